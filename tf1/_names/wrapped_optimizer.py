"""The base class of optimizers that change the gradients or the update of another optimizer."""

import tensorflow.compat.v1 as tf


class WrappedOptimizer(tf.train.Optimizer):
    """An optimizer that does the same as another one; subclasses override the part that they change."""

    def __init__(self, optimizer, name):
        """Creates the optimizer.

        Args:
          optimizer: the tf.train.Optimizer to wrap.
          name: name of the ops.
        """
        super().__init__(False, name)
        self._optimizer = optimizer

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, *args, **kwargs):
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self):
        return self._optimizer.variables()
