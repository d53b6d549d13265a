"""Random numbers as a pure function of (seed, step, place, site).

A run must not depend on its history: killed and resumed, split into micro-batches or recomputed in the
backward pass, it has to draw the same numbers. So nothing here has state. Every draw is one stretch of a
Philox stream (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), found by

    key            64 bits   a hash of (seed, site)
    counter, high  64 bits   the optimizer step
    counter, low   64 bits   where the draw's first value is in the effective batch, in blocks of 128 bits

The seed is the graph's (`tf.set_random_seed`), the step its global step. A *site* names one place in the
model where numbers are drawn. If an effective batch is split into equal micro-batches, the numbers for
micro-batch k are the k-th slice of the numbers for the whole batch, bit for bit. This requires that the
number of values in a micro-batch is divisible by four, or by eight for booleans. Micro-batches of unequal
size draw from separate stretches: see `mark_unequal_micro_batches`.
"""

import collections
import hashlib
import threading
import weakref

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.graph import graph_keys

DEFAULT_SEED = 12345

_PHILOX = 1
# A block of the stream: 128 bits, four numbers of `uniform` or eight of `bernoulli`.
_NUMBERS_PER_BLOCK = 4
_BOOLEANS_PER_BLOCK = 8
_BLOCKS_BETWEEN_UNEQUAL_MICRO_BATCHES = 1 << 40

# graph -> {scope: sites handed out there}. Weak, so that a graph can be collected.
_sites_in_graph = weakref.WeakKeyDictionary()
# Per thread, as tf.distribute builds the graph of each replica in one. `replay`: see `repeatable`.
_local = threading.local()


def graph_seed():
    """Returns the current graph's seed (`tf.set_random_seed`), or `DEFAULT_SEED` if it has none. An int."""
    seed = tf.get_default_graph().seed
    return DEFAULT_SEED if seed is None else seed


def philox_key(seed, site):
    """Returns the 64-bit Philox key (int) of a site name under a seed."""
    digest = hashlib.blake2b(f"{seed}/{site}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def new_site(kind):
    """Returns a name for the next place of this kind in the current variable scope.

    The second dropout of `bert/embeddings` is "bert/embeddings/dropout#1" whatever else the graph holds, so
    that adding a head or an op elsewhere changes no other site's numbers.

    Args:
      kind: what the numbers are for: "dropout", "initializer", ….
    """
    def count():
        counts = _sites_in_graph.setdefault(tf.get_default_graph(), {})
        name = f"{tf.get_variable_scope().name}/{kind}"
        index = counts.get(name, 0)
        counts[name] = index + 1
        return f"{name}#{index}"

    return _replay(kind, count)


def repeatable(function):
    """Returns a function that draws the same numbers in each of its calls.

    The first call records its sites, its seed, and the tensors of its step and its micro-batch. Later calls
    replay them in the same order, wherever they are made. A second read of the global step could find it
    advanced.
    """
    recorded = None

    def call(*args):
        nonlocal recorded
        enclosing = getattr(_local, "replay", None)
        if recorded is None:
            recorded = collections.defaultdict(list)

            def replay(kind, make):
                recorded[kind].append(enclosing(kind, make) if enclosing else make())
                return recorded[kind][-1]
        else:
            remaining = {kind: iter(values) for kind, values in recorded.items()}

            def replay(kind, make):
                return next(remaining[kind])
        _local.replay = replay
        try:
            return function(*args)
        finally:
            _local.replay = enclosing
    return call


def set_micro_batch(index):
    """Declares that the current graph computes micro-batch `index` (integer scalar tensor) of each step."""
    collection = tf.get_collection_ref(graph_keys.RANDOMNESS_MICRO_BATCH)
    collection[:] = [tf.cast(index, tf.int64)]


def mark_unequal_micro_batches():
    """Declares that the graph's micro-batches differ in size, as with trimmed sequences."""
    tf.get_collection_ref(graph_keys.RANDOMNESS_UNEQUAL_MICRO_BATCHES)[:] = [True]


def uniform(shape, site):
    """Draws float32 numbers from [0, 1) for one training step.

    Args:
      shape: int32 vector or tensor; the first dimension runs over the examples of the batch.
      site: see `new_site`.

    Returns:
      float32 tensor of that shape: the same for the same (graph seed, global step, micro-batch, site).
    """
    shape = tf.convert_to_tensor(shape, dtype=tf.int32)
    return tf.raw_ops.StatelessRandomUniformV2(shape=shape, **_stream(shape, site, _NUMBERS_PER_BLOCK),
                                               dtype=tf.float32)


def bernoulli(shape, probability, site, draw=None):
    """Draws booleans for a training step, such as a dropout mask; 16 bits each, half of `uniform`'s cost.

    Args:
      shape: as for `uniform`.
      probability: of True; rounded to a multiple of 2⁻¹⁶.
      site: see `new_site`.
      draw: function (shape, key, counter, threshold) -> bool tensor of that shape, True where the stream's
        16-bit integer is at least the threshold. `native_formulas.dropout_mask` passes an op in C++; None
        for TensorFlow's ops.

    Returns:
      bool tensor of that shape.
    """
    shape = tf.convert_to_tensor(shape, dtype=tf.int32)
    stream = _stream(shape, site, _BOOLEANS_PER_BLOCK)
    # At most 2¹⁵ − 1, so that it is an int16: for probability 0 one number in 2¹⁶ is still True.
    threshold = -2**15 + min(round((1.0 - probability) * 2**16), 2**16 - 1)
    if draw:
        return draw(shape=shape, key=stream["key"], counter=stream["counter"], threshold=threshold)
    size = tf.reduce_prod(tf.cast(shape, tf.int64))
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(size + 1) // 2], **stream, dtype=tf.uint32)
    numbers = tf.reshape(tf.slice(tf.reshape(tf.bitcast(words, tf.int16), [-1]), [0], [size]), shape)
    return numbers >= tf.constant(threshold, tf.int16)


def truncated_normal(shape, stddev, site, dtype=tf.float32):
    """Draws initial values by (seed, site): a normal distribution cut at two standard deviations."""
    values = tf.raw_ops.StatelessTruncatedNormalV2(
        shape=tf.convert_to_tensor(shape, dtype=tf.int32), key=_key_tensor(graph_seed(), site),
        counter=_counter_tensor(_zero_when_run(), tf.constant(0, tf.int64)), alg=_PHILOX, dtype=dtype)
    return values * tf.cast(stddev, dtype)


def stateless_seed(site):
    """Returns the seed (int64 [2]) of TensorFlow's stateless ops for one draw of this step and micro-batch.

    For draws whose shape cannot be split by micro-batch: each micro-batch draws other numbers.
    """
    seed, step, micro_batch = _replay("seed_step_and_micro_batch", _seed_and_position)
    key = tf.constant(philox_key(seed, site) >> 1, tf.int64)
    return tf.stack([key + micro_batch[0] if micro_batch else key, step])


def permutation(seed, epoch, size):
    """Returns a permutation of range(size), int64 [size], keyed by (seed, epoch).

    Sorts raw Philox output: NumPy keeps a bit generator's stream fixed for ever, but not
    `Generator.permutation`.
    """
    generator = np.random.Philox(key=philox_key(seed, f"epoch {epoch}"))
    return np.argsort(generator.random_raw(size), kind="stable")


def _replay(kind, make):
    """Returns make(), or in a later call of a `repeatable` function the value recorded in the first call."""
    replay = getattr(_local, "replay", None)
    return replay(kind, make) if replay else make()


def _stream(shape, site, values_per_block):
    """Returns the position of a draw in its Philox stream, as arguments of a stateless op."""
    seed, step, micro_batch = _replay("seed_step_and_micro_batch", _seed_and_position)
    low = tf.constant(0, tf.int64)
    if micro_batch and tf.get_collection(graph_keys.RANDOMNESS_UNEQUAL_MICRO_BATCHES):
        low = micro_batch[0] * _BLOCKS_BETWEEN_UNEQUAL_MICRO_BATCHES
    elif micro_batch:
        values = tf.reduce_prod(tf.cast(shape, tf.int64))
        low = micro_batch[0] * ((values + values_per_block - 1) // values_per_block)
    return {"key": _key_tensor(seed, site), "counter": _counter_tensor(low, step), "alg": _PHILOX}


def _key_tensor(seed, site):
    return tf.constant([philox_key(seed, site)], tf.uint64)


def _counter_tensor(low, high):
    return tf.bitcast(tf.stack([low, high]), tf.uint64)


def _zero_when_run():
    """A zero (int64 scalar) that constant folding cannot see.

    From constants TensorFlow would compute the initial values beforehand, and a session holds its constants:
    as much memory as the model once more.
    """
    return tf.random.uniform([], maxval=1, dtype=tf.int64, seed=0)


def _seed_and_position():
    """Returns what numbers depend on in addition to their site: (seed, step, [micro-batch] or [])."""
    return graph_seed(), _step(), tf.get_collection(graph_keys.RANDOMNESS_MICRO_BATCH)


def _step():
    """The current optimizer step, int64 scalar.

    A graph without a global step has no notion of one: there, one stateful draw per `session.run` stands in
    for it, so that each run of the graph sees fresh numbers.
    """
    global_step = tf.train.get_global_step()
    if global_step is not None:
        # tf.cast alone may return the variable itself
        return tf.cast(tf.convert_to_tensor(global_step), tf.int64)
    fallback = tf.get_collection_ref(graph_keys.RANDOMNESS_FALLBACK_STEP)
    if not fallback:
        with tf.control_dependencies(None):  # also leaves any tf.cond or tf.while_loop
            fallback.append(tf.random.uniform([], maxval=2**62, dtype=tf.int64, seed=graph_seed()))
    return fallback[0]
