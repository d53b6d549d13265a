"""Implements dropout and shuffling with random numbers that depend only on seed, step and place in the model.

So two runs of a program with the same seed draw the same numbers. `bertlib.graph.randomness` computes these
numbers. In `randomness`, a place in the model is called a site.
"""

import functools

import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
from bertlib.graph.tensorflow_internals import control_flow_context
from tf1._names import internals

# Name of a collection of a graph; see `set_input_start`.
_INPUT_START = "input_start"


def dropout(x, keep_prob=None, noise_shape=None, seed=None, name=None, rate=None):
    """Applies tf.nn.dropout with a mask that depends only on seed, global step and place in the model.

    Args:
      x: float tensor.
      keep_prob: probability that a value is kept, as a float or a scalar tensor.
      noise_shape: shape of the mask, which is broadcast to the shape of x.
      seed: an additional key for the random numbers of the mask.
      name: name of the op.
      rate: probability that a value is dropped, 1 - keep_prob, as a float or a scalar tensor. Pass either
        keep_prob or rate.

    Raises:
      ValueError: both or neither of keep_prob and rate are given, or the rate is not in [0, 1).
    """
    if (keep_prob is None) == (rate is None):
        raise ValueError("tf.nn.dropout: pass either keep_prob or rate, and not both.")
    rate = 1.0 - keep_prob if rate is None else rate
    if isinstance(rate, (int, float)):
        if not 0 <= rate < 1:
            raise ValueError(f"tf.nn.dropout: rate is {rate}, but it must be at least 0 and less than 1.")
        if rate == 0:
            return tf.convert_to_tensor(x)
    with tf.name_scope(name, "dropout", [x]):
        x = tf.convert_to_tensor(x)
        site = randomness.new_site("dropout" if seed is None else f"dropout {seed}")
        with tf.control_dependencies([x]):
            shape = tf.shape(x) if noise_shape is None else _full_shape(noise_shape, x)
            draw = _uniform_in_loop(shape, site) if _loops() else randomness.uniform(shape, site)
            if draw is None:
                return tf.nn.dropout(x, noise_shape=noise_shape, seed=seed, rate=rate)
            keep = draw >= tf.cast(rate, tf.float32)
        scale = 1.0 / (1.0 - tf.cast(rate, x.dtype))
        # The dropped values are not multiplied by 0, because an infinite value would become NaN.
        dropped = tf.where_v2(keep, x * scale, tf.zeros([], x.dtype))
        dropped.set_shape(x.shape)
        return dropped


def _loops():
    """Returns the control flow contexts of the loops in which new ops are built. The innermost loop comes
    first."""
    context, loops = control_flow_context(tf.get_default_graph()), []
    while context is not None:
        loops += [context] * context.IsWhileContext()
        context = context.outer_context
    return loops


def _uniform_in_loop(shape, site):
    """Returns uniform numbers that differ between the iterations of a loop.

    The integer variables of the loop, such as its counter, make the numbers of each iteration different.

    Args:
      shape: integer vector.
      site: see `randomness.uniform`.

    Returns:
      float32 tensor with values in [0, 1), or None if the loop has no integer variable.
    """
    switches = [op for loop in _loops() for op in loop.pivot.consumers() if op.type == "Switch"]
    counters = [op.outputs[1] for op in switches if op.outputs[1].dtype.is_integer
                and op.outputs[1].shape.rank == 0]
    if not counters:
        return None
    # The key is built outside the loop, so that all iterations use the same key.
    with tf.control_dependencies(None):
        key = tf.cast(tf.bitcast(randomness.uniform([2], site), tf.int32), tf.int64)
    number = tf.zeros([], tf.int64)
    for counter in counters:
        number = number * 1000003 + tf.cast(counter, tf.int64)
    return tf.random.stateless_uniform(shape, key + number)


def _full_shape(noise_shape, x):
    """Returns the shape of a mask. If a size is None, it is taken from x."""
    if isinstance(noise_shape, (list, tuple, tf.TensorShape)):
        sizes = noise_shape.as_list() if isinstance(noise_shape, tf.TensorShape) else noise_shape
        return tf.stack([tf.shape(x)[axis] if size is None else size for axis, size in enumerate(sizes)])
    return noise_shape


def layer_dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    """Replaces tf.layers.dropout. The function `dropout` of this module draws the mask. `training` is a bool
    or a scalar tensor."""
    dropped = functools.partial(dropout, inputs, rate=rate, noise_shape=noise_shape, seed=seed, name=name)
    unchanged = functools.partial(tf.identity, inputs)
    if isinstance(training, (bool, int)):
        return dropped() if training else unchanged()
    return tf.cond(training, dropped, unchanged)


@internals.replaces("call", tf.keras.layers.Dropout)
def _call(call, self, inputs, training=None):
    """Makes a Keras dropout layer use the mask of `dropout` in graphs of TensorFlow 1. tf.layers.Dropout is a
    subclass of this layer."""
    is_other = tf.executing_eagerly() or tf.get_default_graph().building_function
    if is_other or isinstance(self.rate, (int, float)) and self.rate in (0, 1):
        return call(self, inputs, training)
    training = tf.keras.backend.learning_phase() if training is None else training
    return layer_dropout(inputs, self.rate, internals.noise_shape(self, inputs), self.seed, training)


def set_input_start(step):
    """Tells `Dataset.shuffle` the global step at which the input of the current graph's training begins."""
    tf.add_to_collection(_INPUT_START, step)


@internals.replaces("shuffle", tf.data.Dataset, tf.compat.v2.data.Dataset)
def _shuffle(shuffle, self, buffer_size, seed=None, reshuffle_each_iteration=None, name=None):
    """Calls the method `shuffle` of a Dataset.

    If the caller passes no seed, but the graph has a seed, the shuffling uses a seed that is the same in
    every run. This seed also depends on the global step at which the input began. So an input that begins
    again has another order. In a graph without a seed, each iterator draws a random order, as in TensorFlow
    1.
    """
    graph = tf.get_default_graph()
    if seed is None and graph.seed is not None:
        site = randomness.new_site("shuffle")
        start = max(graph.get_collection(_INPUT_START), default=0)
        seed = randomness.philox_key(graph.seed, f"{site}@{start}" if start else site) >> 1
    return shuffle(self, buffer_size, seed, reshuffle_each_iteration, name)


def shuffle_and_repeat(buffer_size, count=None, seed=None):
    """Returns a function for `Dataset.apply`, like tf.data.experimental.shuffle_and_repeat. If `seed` is
    None, `Dataset.shuffle` chooses the seed."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def parallel_interleave(map_func, cycle_length, block_length=1, sloppy=False, buffer_output_elements=None,
                        prefetch_input_elements=None):
    """Calls tf.data.experimental.parallel_interleave, but ignores `sloppy`, so that the order of the records
    is the same in every run."""
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, False,
                                                    buffer_output_elements, prefetch_input_elements)
