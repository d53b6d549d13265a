"""Draws random numbers as a pure function of (seed, step, position in the batch, site).

The random numbers of a run must not depend on its history. For example, none of these events may change the
numbers: the run is killed and resumed; its batches are split into micro-batches; the backward pass recomputes
layers. For this reason, the functions of this module keep no state. Each draw is a range of a
Philox stream (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). The range is determined by

    key            64 bits   a hash of (seed, site)
    counter, high  64 bits   the optimizer step
    counter, low   64 bits   position of the draw's first value in the effective batch, in blocks of 128 bits

The seed is the graph's seed (`tf.set_random_seed`), and the step is its global step. A *site* is the name of
one place in the model where numbers are drawn. If an effective batch is split into equal micro-batches, the
numbers for micro-batch k are the k-th slice of the numbers for the whole batch, bit for bit. This requires
that the number of values in a micro-batch is divisible by four, or, if the values are booleans, by eight.
Micro-batches of unequal size draw from separate ranges: see `mark_unequal_micro_batches`.
"""

import collections
import functools
import hashlib
import threading
import weakref

import numpy as np
import tensorflow.compat.v1 as tf

DEFAULT_SEED = 12345

# The number by which TensorFlow's stateless ops identify the Philox algorithm.
_PHILOX = 1
# A block of the stream has 128 bits: four numbers of `uniform`, or eight booleans of `bernoulli`.
_NUMBERS_PER_BLOCK = 4
_BOOLEANS_PER_BLOCK = 8
# If micro-batches differ in size, each micro-batch has its own range of blocks in the stream of random
# numbers. Each range has this number of blocks. A micro-batch never draws more blocks, so the ranges do not
# overlap.
_BLOCKS_BETWEEN_UNEQUAL_MICRO_BATCHES = 1 << 40
# Names of collections of a graph; see `set_micro_batch`, `mark_unequal_micro_batches`, `set_pass`, `_step`
# and `zero_when_run`.
_MICRO_BATCH = "randomness_micro_batch"
_UNEQUAL_MICRO_BATCHES = "randomness_unequal_micro_batches"
_PASS = "randomness_pass"
_FALLBACK_STEP = "randomness_fallback_step"
_ZERO_WHEN_RUN = "zero_when_run"

# {graph: {"<variable scope>/<kind>": number of sites of this kind in this scope}}. A site is a place in the
# graph where random numbers are drawn, see `new_site`. The graphs are weak references, so that the memory of
# an unused graph can be freed.
_sites_in_graph = weakref.WeakKeyDictionary()
# `repeatable` sets the attribute `source` of this object to a function. The function takes the arguments of
# `_make_or_repeat`. The attribute has a separate value in each thread, because tf.distribute builds the graph
# of each replica in a separate thread.
_local = threading.local()


def graph_seed():
    """Returns the current graph's seed (int, see `tf.set_random_seed`); `DEFAULT_SEED` if no seed is set."""
    seed = tf.get_default_graph().seed
    return DEFAULT_SEED if seed is None else seed


def philox_key(seed, site):
    """Returns the 64-bit Philox key (int) for a seed and a site. `site` is a name from `new_site`."""
    digest = hashlib.blake2b(f"{seed}/{site}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def new_site(kind):
    """Returns the name of a new site: a place in the graph where random numbers are drawn.

    The name consists of the current variable scope, `kind`, and the number of earlier sites of this kind in
    the scope.

    For example, the second dropout in the scope `bert/embeddings` has the name "bert/embeddings/dropout#1" in
    every graph. So its random numbers do not change if the model gets a new head, or a new op in a different
    scope.

    Args:
      kind: purpose of the numbers: "dropout", "initializer", ….
    """
    def count():
        counts = _sites_in_graph.setdefault(tf.get_default_graph(), {})
        name = f"{tf.get_variable_scope().name}/{kind}"
        index = counts.get(name, 0)
        counts[name] = index + 1
        return f"{name}#{index}"

    return _make_or_repeat(kind, count)


def repeatable(function):
    """Returns a function that calls `function` and makes it draw the same random numbers in each call.

    The first call records the names of the sites (see `new_site`), the seed, and the tensors of the step and
    of the micro-batch. Later calls use the recorded values in the same order, even if the variable scope is
    different in a later call. Later calls do not read the global step again, because the global step may have
    increased since the first call.
    """
    history = None

    def call(*args):
        nonlocal history
        outer_source = getattr(_local, "source", None)
        if history is None:
            history = collections.defaultdict(list)
            _local.source = functools.partial(_record, history, outer_source)
        else:
            remaining = {kind: iter(values) for kind, values in history.items()}
            _local.source = lambda kind, make: next(remaining[kind])
        try:
            return function(*args)
        finally:
            _local.source = outer_source
    return call


def _record(history, outer_source, kind, make):
    """Makes a value in the first call of a `repeatable` function, records it for later calls, and returns it.

    Args:
      history: {kind: list of the recorded values of this kind}. The returned value is added to it.
      outer_source: None, unless the `repeatable` function is called inside of another `repeatable` function.
        In this case, `outer_source` is a function that makes the value or repeats an earlier one.
      kind, make: see `_make_or_repeat`. If `outer_source` is None, the value is make().
    """
    history[kind].append(outer_source(kind, make) if outer_source else make())
    return history[kind][-1]


def set_micro_batch(index):
    """Sets the index of the micro-batch that the current graph computes. `index` is an integer scalar tensor.
    The value of this tensor may differ between two calls of `session.run`."""
    tf.get_collection_ref(_MICRO_BATCH)[:] = [tf.cast(index, tf.int64)]


def set_pass(number):
    """Makes random numbers of the current graph independent of the global step, which does not change in a
    graph that predicts. `number` is an int: how many such graphs the program has built."""
    tf.add_to_collection(_PASS, number)


def mark_unequal_micro_batches():
    """Declares that one micro-batch of the graph may draw more random values than another.

    The number of values differs between micro-batches in three cases: sequences are trimmed, micro-batches
    have different numbers of examples, or padding is removed. If padding is removed, each `packing.Packing`
    has a different number of rows.
    """
    tf.get_collection_ref(_UNEQUAL_MICRO_BATCHES)[:] = [1]


def uniform(shape, site):
    """Draws float32 numbers from [0, 1) for one training step.

    Args:
      shape: int32 vector or tensor. The first dimension is one of three numbers. It may be the number of
        examples in the micro-batch. It may be the number of positions of all examples (first all positions of
        example 0, then all positions of example 1, …). It may also be the number of rows of a
        `packing.Packing`. In this last case, the micro-batches must be marked as unequal; see
        `mark_unequal_micro_batches`.
      site: name of the site, see `new_site`.

    Returns:
      float32 tensor of that shape. Two calls with the same graph seed, global step, micro-batch and site
      return equal tensors.
    """
    shape = tf.convert_to_tensor(shape, dtype=tf.int32)
    return tf.raw_ops.StatelessRandomUniformV2(shape=shape, **_stream(shape, site, _NUMBERS_PER_BLOCK),
                                               dtype=tf.float32)


def bernoulli(shape, keep_probability, site, native_op=None):
    """Draws the booleans of a dropout mask for one training step.

    Every dropout of our model uses this function: `TrainingKernels.dropout_mask` calls it.

    One boolean uses 16 bits of the stream. One number drawn by `uniform` uses 32 bits. For this reason,
    drawing a boolean takes half as long as drawing a number.

    Args:
      shape: list or tensor of int, the shape of the mask.
      keep_probability: probability of True, rounded to a multiple of 2⁻¹⁶.
      site: name of the site, see `new_site`.
      native_op: op in C++ (shape, key, counter, threshold) -> bool tensor of that shape, True where the
        stream's 16-bit integer is at least the threshold. It needs half as much time as TensorFlow's ops.
        None to use TensorFlow's ops.

    Returns:
      bool tensor of that shape.
    """
    shape = tf.convert_to_tensor(shape, dtype=tf.int32)
    stream = _stream(shape, site, _BOOLEANS_PER_BLOCK)
    # The threshold is at most 2¹⁵ − 1, the largest int16. So with keep_probability 0, one boolean in 2¹⁶ is
    # still True.
    threshold = -2**15 + min(round((1.0 - keep_probability) * 2**16), 2**16 - 1)
    if native_op:
        return native_op(shape=shape, key=stream["key"], counter=stream["counter"], threshold=threshold)
    size = tf.reduce_prod(tf.cast(shape, tf.int64))
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(size + 1) // 2], **stream, dtype=tf.uint32)
    # tf.slice is not used here: it has no kernel for int16 on a GPU, so the mask would be computed on the
    # CPU.
    numbers = tf.reshape(tf.reshape(tf.bitcast(words, tf.int16), [-1])[:size], shape)
    return numbers >= tf.constant(threshold, tf.int16)


def truncated_normal(shape, stddev, site, dtype=tf.float32):
    """Draws initial values of a weight from a normal distribution, truncated at two standard deviations.

    Args:
      shape: int32 vector or tensor.
      stddev: standard deviation.
      site: name of the site, see `new_site`. The values depend only on the graph's seed and the site.
      dtype: dtype of the values.
    """
    values = tf.raw_ops.StatelessTruncatedNormalV2(
        shape=tf.convert_to_tensor(shape, dtype=tf.int32), dtype=dtype,
        **_range(graph_seed(), site, zero_when_run(), tf.constant(0, tf.int64)))
    return values * tf.cast(stddev, dtype)


def stateless_seed(site):
    """Returns a seed (int64 [2]) for one of TensorFlow's stateless ops.

    The seed depends on the graph's seed, the site, the step and the micro-batch. So each micro-batch draws
    different values. If the number of micro-batches in an effective batch changes, the values of an example
    can change, too. For this reason, use this seed only for values that do not belong to examples.
    """
    seed, step, micro_batch = _make_or_repeat("seed_step_and_micro_batch", _seed_and_position)
    key = tf.constant(philox_key(seed, site) >> 1, tf.int64)
    return tf.stack([key + micro_batch[0] if micro_batch else key, step])


def permutation(seed, epoch, size):
    """Returns a permutation of range(size) as an int64 array. It depends only on the arguments.

    Raw numbers of the bit generator Philox are drawn, and the permutation is the order that sorts them.
    `Generator.permutation` is not used: a new version of NumPy may change its result. NumPy guarantees only
    that the raw numbers of a bit generator never change.
    """
    generator = np.random.Philox(key=philox_key(seed, f"epoch {epoch}"))
    return np.argsort(generator.random_raw(size), kind="stable")


def _make_or_repeat(kind, make):
    """Returns the value of make(), or repeats an earlier value of make().

    Outside of `repeatable` functions, and in the first call of a `repeatable` function, make() is called. All
    later calls of the `repeatable` function return the values of its first call again.

    Args:
      kind: str that describes the value of make(). Values of each kind are repeated in the order of the first
        call.
      make: function without arguments.
    """
    source = getattr(_local, "source", None)
    return source(kind, make) if source else make()


def _stream(shape, site, values_per_block):
    """Returns a dict with arguments for the stateless op that draws the values of a site: the key, the
    counter at which the draw starts, and TensorFlow's number for the Philox algorithm."""
    seed, step, micro_batch = _make_or_repeat("seed_step_and_micro_batch", _seed_and_position)
    low = tf.constant(0, tf.int64)
    if micro_batch and tf.get_collection(_UNEQUAL_MICRO_BATCHES):
        low = micro_batch[0] * _BLOCKS_BETWEEN_UNEQUAL_MICRO_BATCHES
    elif micro_batch:
        values = tf.reduce_prod(tf.cast(shape, tf.int64))
        low = micro_batch[0] * ((values + values_per_block - 1) // values_per_block)
    return _range(seed, site, low, step)


def _range(seed, site, low, high):
    """Returns the arguments by which a stateless op finds its range of a stream. `low` and `high` are the
    halves of the counter, int64 scalar tensors."""
    return {"key": tf.constant([philox_key(seed, site)], tf.uint64),
            "counter": tf.bitcast(tf.stack([low, high]), tf.uint64), "alg": _PHILOX}


def zero_when_run():
    """Returns 0 as an int64 scalar tensor that TensorFlow's constant folding cannot replace by a constant: a
    random integer from 0 to (but not including) 1. All calls in a graph return the same tensor.

    If all arguments of an initializer were constants, constant folding would replace the initial values by
    constants, too. A session keeps its constants in memory, and these constants would need as much memory as
    the model.
    """
    shared = [] if tf.executing_eagerly() else tf.get_collection_ref(_ZERO_WHEN_RUN)
    if not shared:
        shared.append(tf.random.uniform([], maxval=1, dtype=tf.int64, seed=0))
    return shared[0]


def _seed_and_position():
    """Returns (seed, step, list). The list contains the index of the micro-batch, or is empty if no index was
    set. Random numbers depend on these values and on their site (see `new_site`)."""
    return graph_seed(), _step(), tf.get_collection(_MICRO_BATCH)


def _step():
    """Returns the current optimizer step as an int64 scalar tensor.

    In a graph without a global step, a random number replaces the step. A stateful op draws this number once
    in each `session.run`, so each run of the graph gets new random numbers. The same is true if an Estimator
    predicts: a model with dropout (Monte Carlo dropout, Gal and Ghahramani 2016) draws new masks for each
    batch and in each call of `predict`.
    """
    try:
        global_step = tf.train.get_global_step()
    except TypeError:  # the program's variable `global_step` is not an integer scalar
        global_step = None
    passes = tf.get_collection(_PASS)
    if global_step is not None and not passes:
        # Without tf.convert_to_tensor, tf.cast may return the variable instead of the variable's value.
        return tf.cast(tf.convert_to_tensor(global_step), tf.int64)
    fallback = tf.get_collection_ref(_FALLBACK_STEP)
    if not fallback:
        # All later draws of the graph use this op, so it must not belong to one branch of a tf.cond or to a
        # tf.while_loop. The argument `None` places the op outside of them, and removes all control
        # dependencies.
        with tf.control_dependencies(None):
            seed = graph_seed() + sum(passes)
            fallback.append(tf.random.uniform([], maxval=2**62, dtype=tf.int64, seed=seed))
    return fallback[0]
