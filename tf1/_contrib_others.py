"""The functions of `tf.contrib` whose module has but one or two here."""

import contextlib

import tensorflow.compat.v1 as tf


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  softmax_loss_function=None, name=None):
    """Weighted cross-entropy of sequences (contrib.seq2seq).

    Args:
      logits: float [B, T, N].
      targets: integer [B, T].
      weights: float [B, T].
      average_across_timesteps, average_across_batch: divide by the sum of the weights along these dimensions.
      softmax_loss_function: function of labels and logits, instead of the sparse cross-entropy.
    """
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        # Functions for this argument were written for flat tensors.
        flat = function(labels=tf.reshape(targets, [-1]),
                        logits=tf.reshape(logits, [-1, logits.shape.as_list()[2]]))
        losses = tf.reshape(flat, tf.shape(weights)) * weights
        axes = [axis for axis, averaged in enumerate([average_across_batch, average_across_timesteps])
                if averaged]
        if not axes:
            return losses
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def parallel_interleave(map_func, cycle_length, block_length=1, sloppy=False, buffer_output_elements=None,
                        prefetch_input_elements=None):
    """tf.data.experimental.parallel_interleave, never sloppy: a run has to repeat."""
    del sloppy
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, False,
                                                    buffer_output_elements, prefetch_input_elements)


def batch_and_drop_remainder(batch_size):
    """Returns a transformation for `Dataset.apply`: batches of exactly that size."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


@contextlib.contextmanager
def experimental_jit_scope(compile_ops=True, separate_compiled_gradients=False):
    """tf.xla.experimental.jit_scope."""
    with tf.xla.experimental.jit_scope(compile_ops, separate_compiled_gradients):
        yield


def mirrored_strategy(num_gpus=None, cross_device_ops=None, devices=None, **others):
    """tf.contrib.distribute.MirroredStrategy; num_gpus takes the first that many, and 0 the CPU."""
    if devices is None and num_gpus is not None:
        devices = [f"/gpu:{index}" for index in range(num_gpus)] or ["/cpu:0"]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops)
