"""Removes the padding from a batch: packs its real tokens as the rows of one matrix.

Most parts of an encoder compute each position independently. Only attention needs to know to which sequence a
row belongs. So all other parts can be computed for the real tokens only.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph.custom_gradient import with_custom_gradient

# The number of packed rows is rounded up to a multiple of this number, so that only few different shapes
# occur. But there are never more rows than positions in the batch.
_ROW_STEP = 128


class Packing:
    """Removes most of the padding of a batch: puts the vectors of the remaining positions into the rows of
    one matrix.

    These positions are the real tokens, and the first position of each sequence. Their rows are in the order
    of the batch. After them, positions of padding are added as rows until the number of rows is a multiple of
    128, or until all positions are rows.

    Attributes:
      positions: int64 [R, 2], (example, position) of each row.
      rows: int32 [B, F], the row of each position, or R for a position without a row.
    """

    def __init__(self, input_mask):
        """Chooses the positions of the batch that get a row.

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
        """Returns the vectors of a tensor [B, F, W] at the packed positions, as rows [R, W]."""
        return with_custom_gradient(
            self._pack(tensor), [tensor], lambda gradient, _: [self._unpack(gradient)])

    def unpack(self, rows):
        """Returns a tensor [B, F, W] with the rows [R, W] at their positions, and zeros elsewhere."""
        return with_custom_gradient(self._unpack(rows), [rows], lambda gradient, _: [self._pack(gradient)])

    def _pack(self, tensor):
        return tf.gather_nd(tensor, self.positions)

    def _unpack(self, rows):
        # tf.scatter_nd would take three times as long on a CPU.
        return tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), self.rows)
