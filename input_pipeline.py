"""TFRecord features: declare, write, read, shuffle, batch.

A field is declared once (`Field`); writer and parser derive from it. Training batches are a pure function of (seed, step):
step s takes examples s·B to (s+1)·B − 1 of an endless stream in which epoch e is the permutation keyed by (seed, e). So a
resumed run needs no iterator state.
"""

import collections
import contextlib
import functools
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.lib.io import tf_record

import randomness

Field = collections.namedtuple("Field", ["name", "dtype", "shape"])
Field.__doc__ = """One feature of a record: its name, dtype ("int64" or "float32") and shape (a tuple of ints)."""


# --- Writing ---------------------------------------------------------------------------------------------


def encode(fields, row):
    """Returns a serialized `tf.train.Example`.

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
    count = 0
    with _replacing(path) as partial, tf.python_io.TFRecordWriter(partial) as writer:
        for row in rows:
            writer.write(encode(fields, row))
            count += 1
    return count


def write_text(path, text):
    """Writes a text file whole or not at all."""
    with _replacing(path) as partial, tf.gfile.GFile(partial, "w") as writer:
        writer.write(text)


@contextlib.contextmanager
def _replacing(path):
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


def record_dataset(path, fields, batch_size, is_training, drop_remainder):
    """Returns a dataset of batches {name: tensor [B, …]} from a TFRecord file; int64 fields become int32.

    Args:
      path: the file.
      fields: list of `Field`.
      batch_size: B. The last batch may be smaller if not training and not `drop_remainder`.
      is_training: an endless, shuffled stream that starts at the global step; otherwise once, in order.
      drop_remainder: leave the last, smaller batch out.

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

    dataset = _index_dataset(len(records), batch_size, is_training, drop_remainder)
    return _prefetched(dataset.map(parse))


def array_dataset(arrays, batch_size, is_training, drop_remainder):
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

    dataset = _index_dataset(num_examples, batch_size, is_training, drop_remainder)
    return _prefetched(dataset.map(gather))
