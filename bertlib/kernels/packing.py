"""Sequences without their padding: the real tokens of a batch as the rows of one matrix.

Most of an encoder treats every position alike: only attention needs to know which sequence a row belongs to.
So everything else can be computed for the real tokens alone.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph.custom_gradient import with_custom_gradient

# The number of rows is a multiple of this, as far as there are positions, so that few different shapes occur.
_ROW_STEP = 128


class Packing(object):
    """Which positions of a batch are rows: real tokens, the first position of each sequence, a few others.

    The rows are in the order of the batch, with as many positions of padding after them as make their number
    a multiple of 128, or all positions if there are no more.

    Attributes:
      positions: int64 [R, 2], (example, position) of each row.
      rows: int32 [B, F], the row of each position, and R where there is none.
    """

    def __init__(self, input_mask):
        """Finds the rows.

        Args:
          input_mask: int32 [B, F], 1 for real tokens and 0 for padding.
        """
        real = tf.concat([tf.ones_like(input_mask[:, :1]), input_mask[:, 1:]], axis=1) > 0
        count = tf.reduce_sum(tf.cast(real, tf.int32))
        rows = tf.minimum((count + _ROW_STEP - 1) // _ROW_STEP * _ROW_STEP, tf.size(input_mask))
        self.positions = tf.concat([tf.where(real), tf.where(tf.logical_not(real))], axis=0)[:rows]
        nowhere = tf.fill(tf.shape(input_mask), rows)
        self.rows = tf.tensor_scatter_nd_update(nowhere, self.positions, tf.range(rows))

    def pack(self, tensor):
        """Returns the rows of a tensor [B, F, W]: [R, W]."""
        return with_custom_gradient(
            self._pack(tensor), [tensor], lambda gradient, _: [self._unpack(gradient)])

    def unpack(self, rows):
        """Returns rows [R, W] at their positions, and zeros at all others: [B, F, W]."""
        return with_custom_gradient(self._unpack(rows), [rows], lambda gradient, _: [self._pack(gradient)])

    def _pack(self, tensor):
        return tf.gather_nd(tensor, self.positions)

    def _unpack(self, rows):
        # Not tf.scatter_nd, which takes three times as long on a CPU.
        return tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), self.rows)
