"""tf.contrib.mixed_precision: losses scaled so that gradients in half precision do not vanish.

Micikevicius et al. 2018, "Mixed Precision Training", section 3.2 (arXiv:1710.03740).
"""

import tensorflow.compat.v1 as tf

from tf1._names.wrapped_optimizer import WrappedOptimizer


class LossScaleManager(object):
    """What a loss is multiplied by, step by step."""

    def get_loss_scale(self):
        """Returns the scale, a float32 scalar."""
        raise NotImplementedError

    def update_loss_scale(self, finite_grads):
        """Returns an op that takes note whether a step's gradients were finite, a bool scalar."""
        raise NotImplementedError


class FixedLossScaleManager(LossScaleManager):
    """A scale that does not change."""

    def __init__(self, loss_scale):
        """Raises ValueError: loss_scale is less than 1."""
        if loss_scale < 1:
            raise ValueError(f"The loss scale is {loss_scale}; it must be at least 1.")
        self._loss_scale = tf.convert_to_tensor(loss_scale, tf.float32)

    def get_loss_scale(self):
        return self._loss_scale

    def update_loss_scale(self, finite_grads):
        del finite_grads
        return tf.no_op()


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """A scale that grows while gradients are finite, and shrinks when they are not; never below 1.

    Its variables are loss_scale, good_steps and bad_steps.
    """

    def __init__(self, init_loss_scale, incr_every_n_steps, decr_every_n_nan_or_inf=2, incr_ratio=2,
                 decr_ratio=0.8):
        """Creates the variables.

        Args:
          init_loss_scale: the first scale.
          incr_every_n_steps: finite steps in a row after which the scale is multiplied by incr_ratio.
          decr_every_n_nan_or_inf: other steps, in a row or not, after which it is multiplied by decr_ratio.
            Both counts start anew when the scale changes.
          incr_ratio: more than 1. decr_ratio: less than 1.
        """
        self._loss_scale = _variable("loss_scale", float(init_loss_scale), tf.float32)
        self._good_steps = _variable("good_steps", 0, tf.int32)
        self._bad_steps = _variable("bad_steps", 0, tf.int32)
        self._patience = incr_every_n_steps, decr_every_n_nan_or_inf
        self._ratios = incr_ratio, decr_ratio

    def get_loss_scale(self):
        return self._loss_scale.read_value()

    def update_loss_scale(self, finite_grads):
        scale, good, bad = (variable.read_value()
                            for variable in (self._loss_scale, self._good_steps, self._bad_steps))
        larger, smaller = (scale * ratio for ratio in self._ratios)
        grows = tf.logical_and(finite_grads, good + 1 >= self._patience[0])
        shrinks = tf.logical_and(tf.logical_not(finite_grads), bad + 1 >= self._patience[1])
        changes = tf.logical_or(grows, shrinks)
        new_scale = tf.where(grows, tf.where(tf.is_finite(larger), larger, scale),
                             tf.where(shrinks, tf.maximum(1.0, smaller), scale))
        none = tf.zeros_like(good)
        new_good = tf.where(tf.logical_or(changes, tf.logical_not(finite_grads)), none, good + 1)
        new_bad = tf.where(changes, none, tf.where(finite_grads, bad, bad + 1))
        return tf.group(self._loss_scale.assign(new_scale), self._good_steps.assign(new_good),
                        self._bad_steps.assign(new_bad))


def _variable(name, value, dtype):
    return tf.Variable(value, dtype=dtype, trainable=False, name=name, use_resource=True)


class LossScaleOptimizer(WrappedOptimizer):
    """An optimizer of a scaled loss. A step whose gradients are not all finite changes no weight.

    Such a step does not count in global_step either.
    """

    def __init__(self, opt, loss_scale_manager):
        """Wraps an optimizer, `opt`; the manager is one of the classes above."""
        super().__init__(opt, "LossScaleOptimizer")
        self._manager = loss_scale_manager

    def compute_gradients(self, loss, var_list=None, gate_gradients=tf.train.Optimizer.GATE_OP,
                          aggregation_method=None, colocate_gradients_with_ops=False, grad_loss=None):
        """Returns (gradient of the loss, variable) pairs: those of the scaled loss, divided by the scale."""
        scale = self._manager.get_loss_scale()
        loss = loss() if callable(loss) else loss
        pairs = super().compute_gradients(
            loss * tf.cast(scale, loss.dtype), var_list, gate_gradients, aggregation_method,
            colocate_gradients_with_ops, grad_loss)
        return [(gradient if gradient is None else _scaled(gradient, 1.0 / scale), variable)
                for gradient, variable in pairs]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns the op of the step; see `tf.train.Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs if gradient is not None]
        finite = tf.reduce_all(tf.stack([
            tf.reduce_all(tf.is_finite(getattr(gradient, "values", gradient))) for gradient in gradients]))
        step = tf.cond(finite, lambda: tf.group(self._optimizer.apply_gradients(pairs, global_step, name)),
                       tf.no_op)
        with tf.control_dependencies(gradients):  # these read the scale
            return tf.group(step, self._manager.update_loss_scale(finite))


def _scaled(gradient, factor):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * tf.cast(factor, gradient.dtype), gradient.indices,
                                gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
