"""Input pipeline: reads examples from TFRecord files or arrays, shuffles and trims them, and batches them.

A field is declared once (`Field`). The writer (`tfrecord_files`) and the parser use this declaration.
Training batches are a pure function of (seed, step): step s uses the examples s·B to (s+1)·B − 1 of an
endless stream. Each epoch e of the stream is a permutation of the examples that depends only on (seed, e).
For this reason, a resumed run needs no saved state of the iterator.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.data import tfrecord_files
from bertlib.data.batches import EXAMPLE_INDEX, LENGTH_STEP, Batch, restore_file_order  # noqa: F401  a public name
from bertlib.data.example_encoding import Field  # noqa: F401  a public name of this module
from bertlib.graph import collectives, randomness, tensorflow_internals
from bertlib.system import files

# Number of files that are verified at the same time.
_FILES_AT_A_TIME = 8
# Number of bytes before and after the content of a TFRecord. These bytes contain checksums and the length of
# the content.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# If micro-batches differ in size, each micro-batch has a feature of this name. The feature is a scalar: the
# weight of the micro-batch's mean loss. The mean of the weights of a step is 1.
MICRO_BATCH_WEIGHT = "micro_batch_weight"
# In evaluation and prediction, examples are sorted by length within groups of this number of consecutive
# batches.
_SORTED_BATCHES = 64
# Batches are read before they are needed, but fewer than 64 of them wait at the same time. So if the input
# fails because of a bad record, this record is in one of the last 64 batches that were read.
_SUSPECTED_BATCHES = 64

# Names of collections of a graph: the `RecordFiles` of its input, and at most one `Shard`. They are tuples
# for the reason in `graph_keys`.
_RECORD_READERS, _SHARD = ("record_readers",), ("shard",)
# Name of a collection that is not empty if the input of a training starts at the global step.
_STARTS_AT_GLOBAL_STEP = "input_starts_at_global_step"

# --- Reading ---------------------------------------------------------------------------------------------


class RecordFiles:
    """TFRecord files with random access. The records are numbered as if all files were one file.

    Example: if the first file has 10 records, their numbers are 0 to 9, and the first record of the second
    file has the number 10.

    The batches of a dataset are read and checked here. If the check of a batch fails, `find_bad_record` finds
    a bad record in the batches that were read last.
    """

    def __init__(self, paths, fields, mask_name=None, position_fields=()):
        """Reads and verifies every record once, in `_FILES_AT_A_TIME` files at the same time. Checks the
        fields of the first record of each file.

        Args:
          paths: list of the files.
          fields: list of `Field`.
          mask_name: name of the mask by which the batches are trimmed. Not used without `position_fields`.
          position_fields: see `record_dataset`.

        Raises:
          FileNotFoundError: a file does not exist.
          ValueError: a file is empty, truncated or damaged, or its first record does not have these fields.
        """
        self._paths, self._fields = paths, fields
        self._mask_name, self._position_fields = mask_name, position_fields
        self._suspects = collections.deque(maxlen=_SUSPECTED_BATCHES)
        with concurrent.futures.ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
            self._offsets = list(pool.map(_find_offsets, paths))
        self._starts = np.cumsum([0, *(len(offsets) - 1 for offsets in self._offsets)])
        # Bounds are not checked here. They are checked when a batch is read, and only for the fields that the
        # batch uses.
        unbounded = [field._replace(bounds=None) for field in fields]
        for start in self._starts[:-1].tolist():
            problem = tfrecord_files.find_problem(self.read([start])[0], unbounded)
            if problem:
                raise ValueError(f"{self._describe_position(start)}: {problem}. The file may have been "
                                 "written with another sequence length, or for another task: pass the length "
                                 "and the task of the file, or write the file again.")

    def __len__(self):
        return int(self._starts[-1])

    def read(self, indices):
        """Returns the serialized records at these indices as an object array of bytes."""
        self._suspects.append(indices)
        indices = np.asarray(indices)
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        records = np.empty(len(indices), object)
        for number in np.unique(numbers):
            path, offsets = self._paths[number], self._offsets[number]
            if files.size(path) != offsets[-1]:
                raise ValueError(f"{path} was changed while it was in use. Start this command again, and do "
                                 "not change the file during the run.")
            with files.open_file(path, "rb") as file:
                for place in np.flatnonzero(numbers == number):
                    index = indices[place] - self._starts[number]
                    start, end = offsets[index:index + 2].tolist()
                    file.seek(start + _HEADER_BYTES)
                    records[place] = file.read(end - _FOOTER_BYTES - start - _HEADER_BYTES)
        return records

    def _describe_position(self, index):
        """Returns a text that names the file of a record and the record's index within this file."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return f"{self._paths[number]}, record {index - self._starts[number]} (from 0)"

    def check(self, batch):
        """Adds an op to the current function. The op fails if a value of a batch is out of its field's
        bounds, or if a record with `position_fields` cannot be trimmed.

        Args:
          batch: {name: tensor}.
        """
        conditions = []
        for field in self._fields:
            if field.bounds is None or field.name not in batch:
                continue
            values = batch[field.name]
            least, greatest = (tf.constant(bound, values.dtype) for bound in field.bounds)
            inside = (values >= least) & (values <= greatest)  # false for NaN
            conditions.append(
                tf.reduce_all(inside if field.dtype == "int64" else inside & tf.is_finite(values)))
        if self._position_fields and self._mask_name in batch:
            mask = batch[self._mask_name]
            conditions.append(tf.reduce_all(mask[:, 1:] <= mask[:, :-1]))
            real_tokens = tf.maximum(_lengths(mask), 1)[:, None]
            conditions.extend(tf.reduce_all(batch[name] < real_tokens)
                              for name in self._position_fields if name in batch)
        if conditions:
            # After this error, `find_bad_record` finds the record that caused it.
            tf.Assert(tf.reduce_all(conditions), ["values are out of bounds"])

    def find_bad_record(self):
        """Returns a message about a bad record in the batches that were read last; None if none of their
        records is bad."""
        for index in np.unique(np.concatenate([[], *list(self._suspects)])).astype(np.int64).tolist():
            record = self.read([index])[0]
            problem = tfrecord_files.find_problem(record, self._fields)
            remedy = "Write the file again, or leave the record out."
            if not problem and self._position_fields:
                problem = tfrecord_files.find_trimming_problem(record, self._mask_name, self._position_fields)
                remedy = ("Such a record cannot be trimmed. Write the file again, leave the record out, or "
                          "pass --trim_padding=false.")
            if problem:
                return f"{self._describe_position(index)}: {problem}. {remedy}"
        return None


def _find_offsets(path):
    """Verifies the records of a file. Returns an int64 array with the offsets of all records and the offset
    of the file's end, in bytes. For the errors, see `RecordFiles`."""
    if not files.exists(path):
        raise FileNotFoundError(f"There is no file {path}.")
    size = files.size(path)
    # Records are not read with this reader later, because it would fill a large buffer for each record.
    reader, offsets, offset = tensorflow_internals.open_records(path), [], 0
    while offset < size:
        try:
            _, following = reader.read(offset)
        except (tf.errors.DataLossError, IndexError) as error:
            raise ValueError(f"{path} is damaged or truncated at record {len(offsets)} (byte {offset} of "
                             f"{size}). Delete this file, and write it again.") from error
        offsets.append(offset)
        offset = following
    if not offsets:
        raise ValueError(f"{path} is empty: it contains no record.")
    return np.array([*offsets, offset], np.int64)


@contextlib.contextmanager
def translate_record_errors(graph=None):
    """Returns a context manager. If the input fails inside of the `with` block because of a bad record, the
    context manager raises an error that names this record.

    Args:
      graph: the graph of the input; None for the current graph.

    Raises:
      ValueError: a record cannot be used. The message names the record and the reason.
    """
    graph = graph or tf.get_default_graph()
    try:
        yield
    # A UnicodeDecodeError occurs if TensorFlow's error message quotes bytes of a record that are not text.
    except (tf.errors.InvalidArgumentError, tf.errors.UnknownError, UnicodeDecodeError) as error:
        for reader in graph.get_collection(_RECORD_READERS):
            problem = reader.find_bad_record()
            if problem:
                raise ValueError(problem) from error
        raise


# --- Batching --------------------------------------------------------------------------------------------


_epoch_order = functools.lru_cache(maxsize=2)(randomness.permutation)


def batch_of_step(step, batch_size, num_examples, seed):
    """Returns the indices of the examples in a training step's effective batch, int64 [batch_size]."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs = positions // num_examples
    return np.concatenate([_epoch_order(seed, epoch, num_examples)[positions[epochs == epoch] % num_examples]
                           for epoch in np.unique(epochs).tolist()])


def _index_dataset(num_examples, batch_size):
    """Returns an endless dataset with an element for each step of a training: an int64 vector with the
    indices of the examples in its effective batch."""
    tf.add_to_collection(_STARTS_AT_GLOBAL_STEP, 1)
    seed = randomness.graph_seed()
    global_step = tf.train.get_global_step()
    # The global step is read when the iterator is initialized. At this time, a checkpoint has already been
    # restored, so a resumed training begins with the batch after its last step.
    start = tf.constant(0, tf.int64) if global_step is None else tf.cast(global_step, tf.int64)

    def indices(step):
        batch = tf.numpy_function(lambda s: batch_of_step(int(s), batch_size, num_examples, seed), [step],
                                  tf.int64)
        return tf.ensure_shape(batch, [batch_size])

    return tf.data.Dataset.range(start, tf.int64.max).map(indices)


def starts_at_global_step():
    """Returns whether the input of the current graph starts directly at the batch of the global step. If the
    input starts at another batch, the training needs a hook that moves the input to the right batch."""
    return bool(tf.get_collection(_STARTS_AT_GLOBAL_STEP))


@dataclasses.dataclass
class Shard:
    """This replica's part of the batches of an evaluation or a prediction: those whose number modulo `count`
    is `index`.

    Attributes:
      index, count: number of this replica from 0, and number of replicas.
      is_used: whether the input yields only this part. False if the input_fn builds its own dataset, which
        yields all batches.
    """

    index: int
    count: int
    is_used: bool = False


def shard_input(group):
    """Makes each `evaluation_dataset` of the current graph yield only this replica's `Shard`, which is
    returned. `group` is the `replica_group.Group`."""
    shard = Shard(group.index, group.count)
    tf.add_to_collection(_SHARD, shard)
    return shard


def _shard(dataset):
    """Returns this replica's shard of a dataset; the whole dataset without `shard_input`."""
    for shard in tf.get_collection(_SHARD):
        shard.is_used = True
        dataset = dataset.shard(shard.count, shard.index)
    return dataset


def token_balanced_bounds(lengths, num_micro_batches):
    """Returns the bounds at which a batch is cut into micro-batches. The bounds make the token count of the
    largest micro-batch as small as possible.

    The token count of a micro-batch is its number of examples times the length of its longest example.

    Args:
      lengths: positive integers [B], in descending order: the length of each example, rounded up in the
        same way as in `_trimmed_length`.
      num_micro_batches: N, the number of micro-batches, at most B. No micro-batch is empty.

    Returns:
      int64 [N + 1]. Micro-batch k contains the examples from bound k (included) to bound k + 1 (excluded).
    """
    lengths = np.asarray(lengths).tolist()

    def filled(limit):
        """Returns the bounds of micro-batches with as many examples as possible.

        Each micro-batch takes the next examples of the batch. It ends when one more example would raise its
        token count above `limit`.
        """
        bounds = [0]
        while bounds[-1] < len(lengths):
            bounds.append(bounds[-1] + limit // lengths[bounds[-1]])
        return [*bounds[:-1], len(lengths)]

    # Find the smallest limit of the token count for which N micro-batches are enough. For a given limit,
    # `filled` makes the smallest possible number of micro-batches. If even this number is larger than N, the
    # limit is too low.
    limits = range(lengths[0], lengths[0] * len(lengths))
    smallest_limit = lengths[0] + bisect.bisect_left(
        limits, True, key=lambda limit: len(filled(limit)) <= num_micro_batches + 1)
    bounds = filled(smallest_limit)
    # If there are fewer than N micro-batches, halve the largest one that can be halved, until there are N. A
    # half never has more tokens than the micro-batch that was halved, so no micro-batch exceeds the limit.
    while len(bounds) <= num_micro_batches:
        tokens = [(end - start > 1) * (end - start) * lengths[start]
                  for start, end in zip(bounds, bounds[1:])]
        largest = int(np.argmax(tokens))
        bounds.insert(largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return np.array(bounds)


def _lengths(mask):
    """Returns the number of real tokens of each example, int32 [B]: the sum of a mask [B, F]. If an example
    has several sequences, the mask is [B, C, F], and the length of an example is the length of its longest
    sequence."""
    lengths = tf.reduce_sum(mask, axis=-1)
    return lengths if lengths.shape.ndims == 1 else tf.reduce_max(lengths, axis=1)


def _token_balanced_bounds(mask, num_micro_batches, length_step):
    """Applies `token_balanced_bounds` to the examples of a batch. Returns an int64 tensor [N + 1].

    Args:
      mask: see `_lengths`. The examples must be sorted by length, the longest first.
      num_micro_batches: N.
      length_step: see `batches.Batch`.
    """
    kept = tf.minimum(_trimmed_length(_lengths(mask), length_step), mask.shape.as_list()[-1])
    bounds = tf.numpy_function(lambda lengths: token_balanced_bounds(lengths, num_micro_batches), [kept],
                               tf.int64)
    return tf.ensure_shape(bounds, [num_micro_batches + 1])


def _sort_by_length(batch, mask_name):
    """Returns a batch whose examples are sorted by `_lengths` of the mask, the longest first."""
    order = tf.argsort(_lengths(batch[mask_name]), direction="DESCENDING", stable=True)
    return {name: tf.gather(tensor, order) for name, tensor in batch.items()}


def _cut_into_micro_batches(examples, batch, own, totals, trimmed_fields):
    """Returns a dataset of the micro-batches of one effective batch. Each micro-batch also contains the
    totals of the effective batch and, if micro-batches are unequal, its own weight.

    Args:
      examples: {name: tensor [B, …]}, sorted by length if micro-batches are unequal.
      batch: the `Batch`.
      own: slice of the micro-batches that this replica computes.
      totals: see `batch_totals` of `training_dataset`.
      trimmed_fields: see `record_dataset`.
    """
    count = batch.num_micro_batches
    sums = {f"{name}_total": tf.reduce_sum(examples[name]) for name in totals}
    if not batch.is_unequal:
        parts = {name: tf.reshape(tensor, [count, batch.micro_batch_size, *tensor.shape[1:]])
                 for name, tensor in examples.items()}
        parts.update({name: tf.fill([count], total) for name, total in sums.items()})
        return tf.data.Dataset.from_tensor_slices({name: tensor[own] for name, tensor in parts.items()})
    bounds = _token_balanced_bounds(examples[trimmed_fields[0]], count, batch.length_step)

    def micro_batch(start, end):
        weight = tf.cast(end - start, tf.float32) * (count / batch.size)
        return {**{name: tensor[start:end] for name, tensor in examples.items()}, **sums,
                MICRO_BATCH_WEIGHT: weight}

    return tf.data.Dataset.from_tensor_slices((bounds[:-1][own], bounds[1:][own])).map(micro_batch)


def _trimmed_length(lengths, step):
    """Returns lengths rounded up to a multiple of `step`. The length 0 is rounded up in the same way as the
    length 1."""
    return (tf.maximum(lengths, 1) + step - 1) // step * step


def _trim(batch, trimmed_fields, length_step):
    """Cuts the trimmed fields of a batch. The new length is the length of the longest sequence in the batch,
    rounded up by `_trimmed_length`."""
    longest = _trimmed_length(tf.reduce_max(_lengths(batch[trimmed_fields[0]])), length_step)
    return {**batch, **{name: batch[name][..., :longest] for name in trimmed_fields}}


class Examples(collections.namedtuple("Examples", ["count", "read"])):
    """The examples of a dataset.

    Attributes:
      count: number of examples.
      read: function that adds ops to the current function, which read a batch. Its arguments are a tensor of
        indices, int64 [B], and the names of the fields to read, by default all. It returns {name: tensor
        [B, …]}.
    """


# The functions of the pipeline need no conversion by AutoGraph. The conversion would take a second of CPU
# time.
@tf.autograph.experimental.do_not_convert
def training_dataset(examples, batch, batch_totals=(), trimmed_fields=(), num_threads=None):
    """Returns the endless dataset of a training: this replica's micro-batches, from the batch of the global
    step on. The examples are shuffled.

    Args:
      examples: an `Examples`.
      batch: the `Batch` of a step. If it has unequal micro-batches, `token_balanced_bounds` determines their
        numbers of examples, and each micro-batch has a `MICRO_BATCH_WEIGHT`, a float32 scalar: b · N / size
        for a micro-batch of b examples. N is the number of micro-batches of the step on all replicas
        together. Multiply the mean loss of each micro-batch by its weight: the mean of these products is the
        mean loss of the step.
      batch_totals: names of fields. For each of these fields, a micro-batch also has the scalar <name>_total:
        the sum of the field over the whole step. Use the total as the divisor of a mean if the number of
        terms differs between micro-batches. For example, micro-batches have different numbers of masked
        tokens.
      trimmed_fields: see `record_dataset`. The examples of a step are sorted by length before they are
        divided into micro-batches.
      num_threads: see `record_dataset`.
    """
    if batch.is_unequal and not trimmed_fields:
        raise ValueError("Unequal micro-batches need trimmed_fields, because without trimming, all examples "
                         "have the same number of tokens.")
    all_reduce = collectives.current_all_reduce()
    indices = _index_dataset(examples.count, batch.check().size)
    if trimmed_fields:
        randomness.mark_unequal_micro_batches()
    # With replicas, each replica reads a few fields of all examples in the effective batch: the fields that
    # decide how the batch is cut into micro-batches. It reads the remaining fields only for its own
    # micro-batches.
    deciding_fields = [*trimmed_fields[:1], *batch_totals]

    def read_batch(indices):
        if not all_reduce:
            fields = examples.read(indices)
        else:
            fields = {EXAMPLE_INDEX: indices,
                      **(examples.read(indices, deciding_fields) if deciding_fields else {})}
        return _sort_by_length(fields, trimmed_fields[0]) if trimmed_fields else fields

    def read_own(micro_batch):
        indices = micro_batch.pop(EXAMPLE_INDEX)
        return {**micro_batch, **examples.read(indices)}

    dataset = indices.map(read_batch, num_threads)
    if batch.num_micro_batches > 1 or batch_totals or batch.is_unequal:
        dataset = dataset.flat_map(functools.partial(
            _cut_into_micro_batches, batch=batch,
            own=all_reduce.own_slice if all_reduce else slice(None), totals=batch_totals,
            trimmed_fields=trimmed_fields))
    if all_reduce:
        dataset = dataset.map(read_own, num_threads)
    return _trim_and_prefetch(dataset, trimmed_fields, batch.length_step)


@tf.autograph.experimental.do_not_convert
def evaluation_dataset(examples, batch_size, drop_remainder=False, trimmed_fields=(), num_threads=None):
    """Returns the dataset of an evaluation or a prediction, which contains each example once. With replicas,
    it contains the batches of this replica.

    Args:
      examples: an `Examples`.
      batch_size: number of examples in a batch. The last batch may be smaller.
      drop_remainder: whether the last batch is left out if it is smaller than the others.
      trimmed_fields: see `record_dataset`. The examples are then sorted by length within groups of 64
        consecutive batches, and each batch also has `EXAMPLE_INDEX`, int64 [B]: the indices of its examples;
        see `batches.restore_file_order`.
      num_threads: see `record_dataset`.
    """
    if trimmed_fields:
        dataset = _sorted_batches(*examples, batch_size, drop_remainder, trimmed_fields[0], num_threads)
    else:
        dataset = tf.data.Dataset.range(examples.count).batch(batch_size, drop_remainder)
        dataset = dataset.map(examples.read, num_threads)
    return _trim_and_prefetch(_shard(dataset), trimmed_fields, LENGTH_STEP)


def _sorted_batches(num_examples, read, batch_size, drop_remainder, mask_name, num_threads):
    """Returns a dataset of batches, in which the examples of `_SORTED_BATCHES` batches are sorted by
    length."""
    def read_sorted(indices):
        return _sort_by_length({**read(indices), EXAMPLE_INDEX: indices}, mask_name)

    # The last batch may be smaller than the other batches. In a mean over all batches, an example in a small
    # batch has a larger weight than an example in a full batch. So the sorting must not move examples between
    # the last batch and the other batches.
    whole = num_examples - num_examples % batch_size
    many = tf.data.Dataset.range(whole).batch(batch_size * _SORTED_BATCHES).map(read_sorted, num_threads)
    dataset = many.flat_map(
        lambda examples: tf.data.Dataset.from_tensor_slices(examples).batch(batch_size))
    if whole < num_examples and not drop_remainder:
        dataset = dataset.concatenate(
            tf.data.Dataset.range(whole, num_examples).batch(batch_size).map(read_sorted))
    return dataset


def _trim_and_prefetch(dataset, trimmed_fields, length_step):
    """Trims each batch of a dataset if there are `trimmed_fields`, and prefetches four batches.

    The automatic tuning of tf.data is turned off. The tuning thread can sleep for a minute between two
    rounds, which can delay the end of a session by a minute.
    """
    if trimmed_fields:
        dataset = dataset.map(functools.partial(_trim, trimmed_fields=trimmed_fields,
                                                length_step=length_step))
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(4).with_options(options)


# --- The examples of a dataset ---------------------------------------------------------------------------


def record_examples(path, fields, trimmed_fields=(), position_fields=()):
    """Returns the `Examples` of TFRecord files; see `record_dataset` and `RecordFiles`."""
    records = RecordFiles([path] if isinstance(path, str) else path, fields,
                          next(iter(trimmed_fields), None), position_fields)
    tf.add_to_collection(_RECORD_READERS, records)
    features = {field.name: tf.FixedLenFeature(field.shape, tf.as_dtype(field.dtype)) for field in fields}

    def read(indices, names=None):
        serialized = tf.numpy_function(records.read, [indices], tf.string)
        serialized.set_shape(indices.shape)
        batch = tf.io.parse_example(serialized, {name: features[name] for name in names or features})
        records.check(batch)
        return {name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor
                for name, tensor in batch.items()}

    return Examples(len(records), read)


def array_examples(arrays):
    """Returns the `Examples` of arrays in memory, {name: int32 or float32 array [examples, …]}."""
    count = len(next(iter(arrays.values())))
    if not count:
        raise ValueError("There are no examples.")

    def read(indices, names=tuple(arrays)):
        values = tf.numpy_function(lambda rows: [arrays[name][rows] for name in names], [indices],
                                   [tf.as_dtype(arrays[name].dtype) for name in names])
        for name, value in zip(names, values):
            value.set_shape(indices.shape.concatenate(arrays[name].shape[1:]))
        return dict(zip(names, values))

    return Examples(count, read)


def record_dataset(path, fields, batch, drop_remainder=False, batch_totals=(), num_threads=None,
                   trimmed_fields=(), position_fields=()):
    """Returns a dataset of batches {name: tensor [B, …]} from TFRecord files; int64 fields become int32.

    A value outside of its field's bounds makes the batch fail, and so does a record that cannot be trimmed
    because of its `position_fields`; see `translate_record_errors`.

    Args:
      path: the file, or a list of files, which are read like one file.
      fields: list of `Field`.
      batch: a `Batch` for a training: the result is an endless, shuffled `training_dataset`. An int, the
        number of examples in a batch, for an evaluation or a prediction: the result is an
        `evaluation_dataset`, in the order of the file unless `trimmed_fields` are given.
      drop_remainder: whether an evaluation leaves out the last batch if it is smaller than the others.
      batch_totals: names of fields. Each batch of a training also has the scalar <name>_total: the sum of the
        field over the whole step.
      num_threads: number of batches that are read at the same time. The order of the batches does not depend
        on this number.
      trimmed_fields: names of fields [B, F], or [B, C, F] if each example has C sequences. In each batch,
        these fields are cut to the length of the longest sequence, rounded up to a multiple of the batch's
        `length_step`. The first field is the mask: 1 for real tokens, 0 for padding after them. The examples
        of a step are sorted by length, and so are those of 64 batches of an evaluation, whose batches then
        have `EXAMPLE_INDEX`; see `batches.restore_file_order`.
      position_fields: names of fields [B, P] whose values are positions in the `trimmed_fields` [B, F]. If
        there are any, each record is checked: no padding is before a real token, and each position is that of
        a real token, or 0.

    Raises:
      FileNotFoundError, ValueError: see `RecordFiles`.
    """
    examples = record_examples(path, fields, trimmed_fields, position_fields)
    if isinstance(batch, Batch):
        return training_dataset(examples, batch, batch_totals, trimmed_fields, num_threads)
    return evaluation_dataset(examples, batch, drop_remainder, trimmed_fields, num_threads)


def placeholders(fields, batch_size, batch_totals=()):
    """Returns {name: placeholder} for a batch of `record_dataset`. The placeholder of a field has the shape
    [B, …]; the placeholder of a total is a scalar."""
    def placeholder(dtype, shape):
        return tf.placeholder(tf.int32 if dtype == "int64" else tf.as_dtype(dtype), shape)

    batch = {field.name: placeholder(field.dtype, [batch_size, *field.shape]) for field in fields}
    return {**batch, **{f"{field.name}_total": placeholder(field.dtype, []) for field in fields
                        if field.name in batch_totals}}
