"""TFRecord features: read, shuffled, batched.

A field is declared once (`Field`); the writer (`record_files`) and the parser derive from it. Training
batches are a pure function of (seed, step): step s takes examples s·B to (s+1)·B − 1 of an endless stream in
which epoch e is the permutation keyed by (seed, e). So a resumed run needs no iterator state.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import functools
import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.data import record_files
from bertlib.data.example_encoding import Field  # noqa: F401  a public name of this module
from bertlib.graph import collectives, graph_keys, randomness, tensorflow_internals

_FILES_AT_A_TIME = 8
# Bytes before and after the content of a TFRecord: its length and checksums.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# What a batch of a dataset that changes the order says about each example: its index in the file.
EXAMPLE_INDEX = "example_index"
# What a micro-batch has to weigh its mean loss by if they are of different sizes: a scalar, 1 on average.
MICRO_BATCH_WEIGHT = "micro_batch_weight"
# Sequences are trimmed to a multiple of this: kernels like it, and fewer different shapes occur.
_LENGTH_STEP = 8
# Without training, the examples of 64 batches are sorted by length together.
_SORTED_BATCHES = 64
# If the input fails, the bad record is in one of the last 64 batches read; no more are in flight.
_SUSPECTED_BATCHES = 64


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
        self._reader = tensorflow_internals.open_records(path)
        self._offsets = self._scan()
        if not len(self):
            raise ValueError(f"{path} is empty: it holds no record.")
        self._check_fields(self._reader.read(0)[0])
        self._file = None
        if "://" not in path:
            # For each record the reader would take in, and throw away, a large buffer.
            self._file, self._reader = open(path, "rb", buffering=0), None  # noqa: SIM115  (it stays open)

    def __len__(self):
        return len(self._offsets) - 1

    def _scan(self):
        """Offsets of all records and of the end, int64."""
        size = tf.gfile.Stat(self.path).length
        offsets, offset = [], 0
        while offset < size:
            try:
                _, following = self._reader.read(offset)
            except (tf.errors.DataLossError, IndexError) as error:
                raise ValueError(f"{self.path} is damaged or truncated at record {len(offsets)} (byte "
                                 f"{offset} of {size}). Delete it and let it be written again.") from error
            offsets.append(offset)
            offset = following
        return np.array([*offsets, offset], np.int64)

    def _check_fields(self, record):
        # What is out of bounds is found when it is read.
        wrong = record_files.find_problem(record, [field._replace(bounds=None) for field in self._fields])
        if wrong:
            raise ValueError(f"{self.describe_position(0)}: {wrong}. It may have been written with another "
                             "sequence length, or for another task: pass the same one, or write it again.")

    def read(self, indices):
        """Returns the serialized records at those indices, an object array of bytes."""
        if self._file is None:
            with self._lock:
                return np.array([self._reader.read(self._offsets[index])[0] for index in indices],
                                dtype=object)
        number, starts, ends = (
            self._file.fileno(), self._offsets[indices], self._offsets[np.asarray(indices) + 1])
        return np.array([os.pread(number, end - start - _HEADER_BYTES - _FOOTER_BYTES, start + _HEADER_BYTES)
                         for start, end in zip(starts.tolist(), ends.tolist())], dtype=object)

    def describe_position(self, index):
        """Returns the file and the index of a record, as text."""
        return f"{self.path}, record {index} (from 0)"


class RecordFiles(object):
    """TFRecord files, read at random as if they were one: the first's records, then the second's, ….

    Each stays open.
    """

    def __init__(self, paths, fields):
        """Opens the files, some at a time. Errors are those of `RecordFile`."""
        with concurrent.futures.ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
            self._files = list(pool.map(lambda path: RecordFile(path, fields), paths))
        self._starts = np.cumsum([0, *map(len, self._files)])

    def __len__(self):
        return int(self._starts[-1])

    def read(self, indices):
        """Returns the serialized records at those indices, an object array of bytes."""
        indices = np.asarray(indices)
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        records = np.empty(len(indices), object)
        for number in np.unique(numbers):
            chosen = numbers == number
            records[chosen] = self._files[number].read(indices[chosen] - self._starts[number])
        return records

    def describe_position(self, index):
        """Returns the file and the index of a record, as text."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._files[number].describe_position(int(index - self._starts[number]))


class _RecordReader(object):
    """Reads and checks the records of batches. After an error it searches the last ones for a bad record."""

    def __init__(self, records, fields):
        self._records = records
        self._fields = fields
        self._bounded = [field for field in fields if field.bounds is not None]
        self._suspects = collections.deque(maxlen=_SUSPECTED_BATCHES)

    def read(self, indices):
        """Returns the serialized records at those indices, an object array of bytes."""
        self._suspects.append(indices)
        return self._records.read(indices)

    def check(self, batch):
        """Adds an assertion to the current function: all values of a batch {name: tensor} are in bounds."""
        within = []
        for field in self._bounded:
            if field.name not in batch:
                continue
            values = batch[field.name]
            least, greatest = (tf.constant(bound, values.dtype) for bound in field.bounds)
            inside = (values >= least) & (values <= greatest)  # which NaN is not
            within.append(tf.reduce_all(inside if field.dtype == "int64" else inside & tf.is_finite(values)))
        if within:
            tf.Assert(tf.reduce_all(within), ["values are out of bounds"])  # `find_bad_record` says where

    def find_bad_record(self):
        """Returns a message about a bad record in the last batches read, or None."""
        for index in np.unique(np.concatenate([[], *list(self._suspects)])).astype(np.int64).tolist():
            wrong = record_files.find_problem(self._records.read([index])[0], self._fields)
            if wrong:
                return (f"{self._records.describe_position(index)}: {wrong}. Write the file again, or leave "
                        "the record out.")
        return None


@contextlib.contextmanager
def translate_record_errors(graph=None):
    """Says which record is to blame if the input of a graph, by default the current one, fails in the block.

    Raises:
      ValueError: a record cannot be used; says which one and why.
    """
    graph = graph or tf.get_default_graph()
    try:
        yield
    # What quotes a record that is no text cannot be decoded.
    except (tf.errors.InvalidArgumentError, tf.errors.UnknownError, UnicodeDecodeError) as error:
        for source in graph.get_collection(graph_keys.RECORD_READERS):
            fault = source.find_bad_record()
            if fault:
                raise ValueError(fault) from error
        raise


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
    tf.add_to_collection(graph_keys.STARTS_AT_GLOBAL_STEP, True)
    seed = randomness.graph_seed()
    global_step = tf.train.get_global_step()
    # Read when the iterator is initialized: after a checkpoint was restored.
    start = tf.constant(0, tf.int64) if global_step is None else tf.cast(global_step, tf.int64)

    def indices(step):
        batch = tf.numpy_function(lambda s: batch_of_step(int(s), batch_size, num_examples, seed), [step],
                                  tf.int64)
        return tf.ensure_shape(batch, [batch_size])

    return tf.data.Dataset.range(start, tf.int64.max).map(indices)


def _prefetched(dataset):
    """Keeps some batches ready. Nothing here is left to tf.data's tuner, whose thread can hold up a session's
    end for a minute: it sleeps that long between its rounds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(4).with_options(options)


def _shard(dataset):
    """Keeps every R-th batch of a dataset, this replica's shard, if the graph asks for it."""
    for index, count in tf.get_collection(graph_keys.SHARD):
        tf.add_to_collection(graph_keys.SHARDED_INPUT, True)
        dataset = dataset.shard(count, index)
    return dataset


def token_balanced_bounds(lengths, num_micro_batches):
    """Returns where to cut a batch into parts so that the largest part is as small as can be, in tokens.

    A part has as many tokens as examples · longest length.

    Args:
      lengths: of the examples, padding that stays included, the longest first: positive integers [B].
      num_micro_batches: number N of parts, none of them empty; at most B.

    Returns:
      int64 [N + 1]: part k is the examples from the k-th of these to the next.
    """
    lengths = np.asarray(lengths).tolist()

    def filled(limit):
        """The bounds of parts that are filled in turn up to a limit of tokens."""
        bounds = [0]
        while bounds[-1] < len(lengths):
            bounds.append(bounds[-1] + limit // lengths[bounds[-1]])
        return [*bounds[:-1], len(lengths)]

    # A full part leaves the others the least: if that takes too many parts, so does all else.
    limits = range(lengths[0], lengths[0] * len(lengths))
    smallest = lengths[0] + bisect.bisect_left(
        limits, True, key=lambda limit: len(filled(limit)) <= num_micro_batches + 1)
    bounds = filled(smallest)
    while len(bounds) <= num_micro_batches:  # halves have no more tokens than the whole
        tokens = [(end - start > 1) * (end - start) * lengths[start]
                  for start, end in zip(bounds, bounds[1:])]
        largest = int(np.argmax(tokens))
        bounds.insert(largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return np.array(bounds)


def _token_balanced_bounds(mask, num_micro_batches):
    """`token_balanced_bounds` of examples with a mask [B, F], the longest first: int64 [N + 1]."""
    kept = tf.minimum(_trimmed_length(tf.reduce_sum(mask, axis=1)), mask.shape.as_list()[1])
    bounds = tf.numpy_function(lambda lengths: token_balanced_bounds(lengths, num_micro_batches), [kept],
                               tf.int64)
    return tf.ensure_shape(bounds, [num_micro_batches + 1])


def _order_by_length(mask):
    """The order of examples with a mask [B, F] by length, the longest first: int32 [B]."""
    return tf.argsort(tf.reduce_sum(mask, axis=1), direction="DESCENDING", stable=True)


def _sort_by_length(batch, mask):
    """Sorts the examples of a batch by length, the longest first."""
    order = _order_by_length(batch[mask])
    return {name: tf.gather(tensor, order) for name, tensor in batch.items()}


def _cut_into_micro_batches(indices, read, num_micro_batches, own, totals, trim, unequal):
    """A dataset of the micro-batches of an effective batch: (indices of the examples, {name: added feature}).

    From the examples of the whole batch only two things are read: the lengths, by which micro-batches are
    sorted, and the fields that totals sum up.

    Args:
      indices: those of all examples of the effective batch, int64 [B].
      own: slice of the micro-batches that this replica computes.
      read, num_micro_batches, totals, trim, unequal: see `_dataset`.
    """
    size = indices.shape.as_list()[0]
    names = [*trim[:1], *totals]
    seen = read(indices, names) if names else {}
    if trim:
        order = _order_by_length(seen[trim[0]])
        indices = tf.gather(indices, order)
    bounds = (_token_balanced_bounds(tf.gather(seen[trim[0]], order), num_micro_batches) if unequal
              else tf.range(0, size + 1, size // num_micro_batches, dtype=tf.int64))
    added = {f"{name}_total": tf.reduce_sum(seen[name]) for name in totals}

    def micro_batch(start, end):
        examples = indices[start:end]
        if not unequal:
            return tf.ensure_shape(examples, [size // num_micro_batches]), added
        weight = tf.cast(end - start, tf.float32) * (num_micro_batches / size)
        return examples, {**added, MICRO_BATCH_WEIGHT: weight}

    return tf.data.Dataset.from_tensor_slices((bounds[:-1][own], bounds[1:][own])).map(micro_batch)


def _trimmed_length(lengths):
    """Rounds lengths up to a multiple of `_LENGTH_STEP`, which is also the smallest result."""
    return (tf.maximum(lengths, 1) + _LENGTH_STEP - 1) // _LENGTH_STEP * _LENGTH_STEP


def _trim(batch, trim):
    """Cuts sequences after the longest one, rounded up to a multiple of 8 (`_LENGTH_STEP`)."""
    longest = _trimmed_length(tf.reduce_max(tf.reduce_sum(batch[trim[0]], axis=1)))
    return {**batch, **{name: batch[name][:, :longest] for name in trim}}


def _dataset(num_examples, read, batch_size, is_training, drop_remainder, micro_batches, batch_totals, trim,
             unequal_micro_batches, num_threads=None):
    """A dataset of what `read` gives for the indices of each batch; see `record_dataset`."""
    if not is_training and (micro_batches != 1 or batch_totals or unequal_micro_batches):
        raise ValueError("Micro-batches and totals are for training only.")
    if unequal_micro_batches and not trim:
        raise ValueError("Without trimming all examples have the same number of tokens: "
                         "unequal_micro_batches needs trim.")
    threads = dict(num_parallel_calls=num_threads, deterministic=True if num_threads else None)
    all_reduce = collectives.current_all_reduce() if is_training else None
    num_micro_batches = micro_batches * (all_reduce.replicas if all_reduce else 1)
    if unequal_micro_batches and num_micro_batches > batch_size:
        raise ValueError(f"A step of {batch_size} examples cannot be cut into {num_micro_batches} "
                         f"micro-batches.")
    batch = batch_size * (1 if unequal_micro_batches else num_micro_batches)
    indices = _index_dataset(num_examples, batch, is_training, drop_remainder)
    if is_training:
        if trim:
            randomness.mark_unequal_micro_batches()
        parts = indices.flat_map(functools.partial(
            _cut_into_micro_batches, read=read, num_micro_batches=num_micro_batches,
            own=all_reduce.own_micro_batches if all_reduce else slice(None), totals=batch_totals, trim=trim,
            unequal=unequal_micro_batches))
        dataset = parts.map(lambda examples, added: {**read(examples), **added}, **threads)
    elif not trim:
        dataset = indices.map(read, **threads)
    else:
        def read_sorted(indices):
            return _sort_by_length({**read(indices), EXAMPLE_INDEX: indices}, trim[0])

        # The last, smaller batch keeps its examples. So a mean over batches is the same as without sorting.
        whole = num_examples - num_examples % batch_size
        many = tf.data.Dataset.range(whole).batch(batch_size * _SORTED_BATCHES).map(read_sorted, **threads)
        dataset = many.flat_map(
            lambda examples: tf.data.Dataset.from_tensor_slices(examples).batch(batch_size))
        if whole < num_examples and not drop_remainder:
            dataset = dataset.concatenate(
                tf.data.Dataset.range(whole, num_examples).batch(batch_size).map(read_sorted))
    if not is_training:
        dataset = _shard(dataset)
    return _prefetched(dataset.map(functools.partial(_trim, trim=trim)) if trim else dataset)


def restore_file_order(results):
    """Puts results back into the order of the file: yields them without their index when their turn comes.

    Args:
      results: iterable of dicts, each with `EXAMPLE_INDEX`. Without one they are in order already.
    """
    waiting, turn = {}, 0
    for result in results:
        index = result.pop(EXAMPLE_INDEX, None)
        if index is None:
            yield result
            continue
        waiting[int(index)] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


# AutoGraph would convert the functions of the pipeline, which need no conversion: a second of CPU time.
@tf.autograph.experimental.do_not_convert
def record_dataset(path, fields, batch_size, is_training, drop_remainder, micro_batches=1, batch_totals=(),
                   num_threads=None, trim=(), unequal_micro_batches=False):
    """Returns a dataset of batches {name: tensor [B, …]} from TFRecord files; int64 fields become int32.

    Args:
      path: the file, or a list of files, which are read as if they were one.
      fields: list of `Field`.
      batch_size: B. The last batch may be smaller if not training and not `drop_remainder`.
      is_training: an endless, shuffled stream that starts at the global step; otherwise once, in order.
      drop_remainder: leave the last, smaller batch out.
      micro_batches: number of batches that make up one training step; together they hold the examples that
        one batch of micro_batches · B would.
      batch_totals: names of fields. Each batch also has <name>_total, a scalar: the field's sum over the
        whole step, which a mean over a number that differs between micro-batches has to be divided by.
      num_threads: number of batches read at the same time; they come in the same order.
      trim: names of fields [B, F], the first of them 1 at real positions and 0 at padding, which follows:
        each batch is cut after its longest sequence. For that the examples of a training step are sorted by
        length before they are split into micro-batches. Without training many batches are sorted, and each
        says where its examples stood, as `EXAMPLE_INDEX`, int64 [B]; see `restore_file_order`.
      unequal_micro_batches: for training with `trim`. batch_size is a whole step's then, and its
        micro-batches are those of `token_balanced_bounds`. Each has a `MICRO_BATCH_WEIGHT`, a float32 scalar,
        b · micro_batches / batch_size for b examples: the mean over the micro-batches of this times their
        mean loss is the step's mean loss.

    Values out of a field's bounds fail the batch; see `translate_record_errors`.

    Raises:
      FileNotFoundError, ValueError: see `RecordFile`.
    """
    records = RecordFile(path, fields) if isinstance(path, str) else RecordFiles(path, fields)
    source = _RecordReader(records, fields)
    tf.add_to_collection(graph_keys.RECORD_READERS, source)
    features = {field.name: tf.FixedLenFeature(field.shape, tf.as_dtype(field.dtype)) for field in fields}

    def parse(indices, names=None):
        serialized = tf.numpy_function(source.read, [indices], tf.string)
        serialized.set_shape(indices.shape)
        batch = tf.io.parse_example(serialized, {name: features[name] for name in names or features})
        source.check(batch)
        return {name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor
                for name, tensor in batch.items()}

    return _dataset(len(records), parse, batch_size, is_training, drop_remainder, micro_batches, batch_totals,
                    trim, unequal_micro_batches, num_threads)


def placeholders(fields, batch_size, batch_totals=()):
    """Returns what `record_dataset` batches are made of: {name: placeholder [B, …]}, scalars for totals."""
    def placeholder(dtype, shape):
        return tf.placeholder(tf.int32 if dtype == "int64" else tf.as_dtype(dtype), shape)

    batch = {field.name: placeholder(field.dtype, [batch_size, *field.shape]) for field in fields}
    return {**batch, **{f"{field.name}_total": placeholder(field.dtype, []) for field in fields
                        if field.name in batch_totals}}


def array_dataset(arrays, batch_size, is_training, drop_remainder, micro_batches=1, batch_totals=(), trim=(),
                  unequal_micro_batches=False):
    """Like `record_dataset`, from arrays in memory: {name: int32 or float32 array [examples, …]}."""
    num_examples = len(next(iter(arrays.values())))
    if not num_examples:
        raise ValueError("There are no examples.")

    def gather(indices, names=tuple(arrays)):
        values = tf.numpy_function(lambda rows: [arrays[name][rows] for name in names], [indices],
                                   [tf.as_dtype(arrays[name].dtype) for name in names])
        for name, value in zip(names, values):
            value.set_shape(indices.shape.concatenate(arrays[name].shape[1:]))
        return dict(zip(names, values))

    return _dataset(num_examples, gather, batch_size, is_training, drop_remainder, micro_batches,
                    batch_totals, trim, unequal_micro_batches)
