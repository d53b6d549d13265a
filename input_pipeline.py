"""TFRecord features: declare, write, read, shuffle, batch.

A field is declared once (`Field`); writer and parser derive from it. Training batches are a pure function of (seed, step):
step s takes examples s·B to (s+1)·B − 1 of an endless stream in which epoch e is the permutation keyed by (seed, e). So a
resumed run needs no iterator state.
"""

import contextlib
import functools
import sys
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging
from tensorflow.python.lib.io import tf_record
from tqdm import tqdm

import randomness
from example_encoding import Field  # noqa: F401  a public name of this module

# Graph collection that is not empty if the graph's input starts at the global step, and so has no position to save.
_STARTS_AT_GLOBAL_STEP = "input_starts_at_global_step"


# --- Writing ---------------------------------------------------------------------------------------------


def encode(fields, row):
    """Returns a serialized `tf.train.Example`. `example_encoding.Encoder` makes the same bytes faster, of plain numbers.

    Args:
      fields: list of `Field`.
      row: {name: values, a flat sequence or a number}.

    Raises:
      ValueError: a field has another number of values.
    """
    example = tf.train.Example()
    for field in fields:
        values = np.asarray(row[field.name]).reshape(-1)
        size = int(np.prod(field.shape, dtype=np.int64))
        if len(values) != size:
            raise ValueError(f"Field {field.name} has {len(values)} values; declared are {size}.")
        feature = example.features.feature[field.name]
        if field.dtype == "int64":
            feature.int64_list.value.extend(values.tolist())
        else:
            feature.float_list.value.extend(values.tolist())
    return example.SerializeToString(deterministic=True)


def write_records(path, fields, rows):
    """Writes rows as TFRecords; the file is there whole or not at all.

    Args:
      path: the file.
      fields: list of `Field`.
      rows: iterable of {name: values}.

    Returns:
      the number of records.
    """
    return write_serialized(path, (encode(fields, row) for row in rows))


def write_serialized(path, records):
    """Like `write_records`, from an iterable of serialized `tf.train.Example`s."""
    count = 0
    with replacing(path) as partial, tf.python_io.TFRecordWriter(partial) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def with_progress(items, total, doing, every=10000):
    """Yields the items and shows how many they were: a bar on a terminal if it takes longer, else a line in the log.

    Args:
      items: iterable.
      total: their number.
      doing: what is done with them, such as "Converting example".
      every: number of items between two lines.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, doing, total, leave=False, delay=1)
        return
    for index, item in enumerate(items):
        if index and index % every == 0:
            logging.info("%s %d of %d", doing, index, total)
        yield item


def write_text(path, text):
    """Writes a text file whole or not at all."""
    with replacing(path) as partial, tf.gfile.GFile(partial, "w") as writer:
        writer.write(text)


@contextlib.contextmanager
def replacing(path):
    """Gives the name of a file that takes the place of `path` when the block ends, and is removed if the block fails."""
    partial = f"{path}.partial"
    try:
        yield partial
        tf.gfile.Rename(partial, path, overwrite=True)
    except BaseException:
        if tf.gfile.Exists(partial):
            tf.gfile.Remove(partial)
        raise


# --- Reading ---------------------------------------------------------------------------------------------


class RecordFile(object):
    """A TFRecord file, read at random. Opening it reads and verifies every record once."""

    def __init__(self, path, fields):
        """Opens the file.

        Raises:
          FileNotFoundError: it does not exist.
          ValueError: it is empty, truncated or damaged, or its records are not made of these fields.
        """
        self.path = path
        self._fields = fields
        self._lock = threading.Lock()
        if not tf.gfile.Exists(path):
            raise FileNotFoundError(f"There is no file {path}.")
        self._reader = tf_record.tf_record_random_reader(path)
        self._offsets = self._scan()
        if not len(self._offsets):
            raise ValueError(f"{path} is empty: it holds no record.")
        self._check_fields(self._reader.read(0)[0])

    def __len__(self):
        return len(self._offsets)

    def _scan(self):
        """Offsets of all records, int64."""
        size = tf.gfile.Stat(self.path).length
        offsets, offset = [], 0
        while offset < size:
            try:
                _, following = self._reader.read(offset)
            except (tf.errors.DataLossError, IndexError) as error:
                raise ValueError(f"{self.path} is damaged or truncated at record {len(offsets)} (byte {offset} of {size}). "
                                 "Delete it and let it be written again.") from error
            offsets.append(offset)
            offset = following
        return np.array(offsets, np.int64)

    def _check_fields(self, record):
        try:
            features = tf.train.Example.FromString(record).features.feature
        except Exception as error:
            raise ValueError(f"{self.path} holds records that are no tf.train.Example.") from error
        for field in self._fields:
            if field.name not in features:
                raise ValueError(f"{self.path}: its records have no feature {field.name!r}; they have "
                                 f"{', '.join(sorted(features))}.")
            feature = features[field.name]
            values = feature.int64_list.value if field.dtype == "int64" else feature.float_list.value
            size = int(np.prod(field.shape, dtype=np.int64))
            if len(values) != size:
                raise ValueError(f"{self.path}: {field.name} has {len(values)} {field.dtype} values in each record, not "
                                 f"{size}. It was written with another sequence length; pass the same one or write it "
                                 "again.")

    def read(self, indices):
        """Returns the serialized records at those indices, an object array of bytes."""
        with self._lock:
            return np.array([self._reader.read(self._offsets[index])[0] for index in indices], dtype=object)


# --- Batching --------------------------------------------------------------------------------------------


def batch_of_step(step, batch_size, num_examples, seed):
    """Returns the examples of a training step's effective batch: indices, int64 [batch_size]."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs = positions // num_examples
    return np.concatenate([_epoch_order(seed, epoch, num_examples)[positions[epochs == epoch] % num_examples]
                           for epoch in np.unique(epochs).tolist()])


@functools.lru_cache(maxsize=2)
def _epoch_order(seed, epoch, num_examples):
    return randomness.permutation(seed, epoch, num_examples)


def _index_dataset(num_examples, batch_size, is_training, drop_remainder):
    """A dataset of int64 [≤ batch_size]: which examples make up each batch."""
    if not is_training:
        return tf.data.Dataset.range(num_examples).batch(batch_size, drop_remainder=drop_remainder)
    tf.add_to_collection(_STARTS_AT_GLOBAL_STEP, True)
    seed = randomness.graph_seed()
    global_step = tf.train.get_global_step()
    # Read when the iterator is initialized: after a checkpoint was restored.
    start = tf.constant(0, tf.int64) if global_step is None else tf.cast(global_step, tf.int64)

    def indices(step):
        batch = tf.numpy_function(lambda s: batch_of_step(int(s), batch_size, num_examples, seed), [step], tf.int64)
        return tf.ensure_shape(batch, [batch_size])

    return tf.data.Dataset.range(start, tf.int64.max).map(indices)


def _prefetched(dataset):
    """Keeps some batches ready. Nothing here is left to tf.data's tuner, whose thread can hold up a session's end for a
    minute: it sleeps that long between its rounds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(4).with_options(options)


def _micro_batches(dataset, micro_batches, batch_totals):
    """Splits each batch of a dataset into equal parts, in order, and adds the totals to each part."""
    def split(batch):
        parts = {name: tf.reshape(tensor, [micro_batches, tensor.shape[0] // micro_batches, *tensor.shape[1:]])
                 for name, tensor in batch.items()}
        for name in batch_totals:
            parts[f"{name}_total"] = tf.fill([micro_batches], tf.reduce_sum(batch[name]))
        return tf.data.Dataset.from_tensor_slices(parts)

    return dataset.flat_map(split) if micro_batches > 1 or batch_totals else dataset


def _dataset(num_examples, read, batch_size, is_training, drop_remainder, micro_batches, batch_totals):
    """A dataset of what `read` gives for the indices of each batch; see `record_dataset`."""
    if not is_training and (micro_batches != 1 or batch_totals):
        raise ValueError("Micro-batches and totals are for training only.")
    dataset = _index_dataset(num_examples, batch_size * micro_batches, is_training, drop_remainder).map(read)
    return _prefetched(_micro_batches(dataset, micro_batches, batch_totals))


def record_dataset(path, fields, batch_size, is_training, drop_remainder, micro_batches=1, batch_totals=()):
    """Returns a dataset of batches {name: tensor [B, …]} from a TFRecord file; int64 fields become int32.

    Args:
      path: the file.
      fields: list of `Field`.
      batch_size: B. The last batch may be smaller if not training and not `drop_remainder`.
      is_training: an endless, shuffled stream that starts at the global step; otherwise once, in order.
      drop_remainder: leave the last, smaller batch out.
      micro_batches: number of batches that make up one training step; together they hold the examples that one batch of
        micro_batches · B would.
      batch_totals: names of fields. Each batch also has <name>_total, a scalar: the field's sum over the whole step, which
        a mean over a number that differs between micro-batches has to be divided by.

    Raises:
      FileNotFoundError, ValueError: see `RecordFile`.
    """
    records = RecordFile(path, fields)
    features = {field.name: tf.FixedLenFeature(field.shape, tf.as_dtype(field.dtype)) for field in fields}

    def parse(indices):
        serialized = tf.numpy_function(records.read, [indices], tf.string)
        serialized.set_shape(indices.shape)
        batch = tf.io.parse_example(serialized, features)
        return {name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor for name, tensor in batch.items()}

    return _dataset(len(records), parse, batch_size, is_training, drop_remainder, micro_batches, batch_totals)


def placeholders(fields, batch_size, batch_totals=()):
    """Returns what a batch of `record_dataset` is made of: {name: placeholder [B, …]}, with a scalar for each total."""
    def placeholder(dtype, shape):
        return tf.placeholder(tf.int32 if dtype == "int64" else tf.as_dtype(dtype), shape)

    batch = {field.name: placeholder(field.dtype, [batch_size, *field.shape]) for field in fields}
    return {**batch, **{f"{field.name}_total": placeholder(field.dtype, []) for field in fields if field.name in batch_totals}}


def array_dataset(arrays, batch_size, is_training, drop_remainder, micro_batches=1, batch_totals=()):
    """Like `record_dataset`, from arrays in memory: {name: int32 or float32 array [examples, …]}."""
    names = list(arrays)
    num_examples = len(arrays[names[0]])
    if not num_examples:
        raise ValueError("There are no examples.")

    def gather(indices):
        values = tf.numpy_function(lambda rows: [arrays[name][rows] for name in names], [indices],
                                   [tf.as_dtype(arrays[name].dtype) for name in names])
        for name, value in zip(names, values):
            value.set_shape(indices.shape.concatenate(arrays[name].shape[1:]))
        return dict(zip(names, values))

    return _dataset(num_examples, gather, batch_size, is_training, drop_remainder, micro_batches, batch_totals)
