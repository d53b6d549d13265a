"""Defines the optimizers of `tf.contrib.opt` and `tf.contrib.mixed_precision`."""

import functools

import tensorflow.compat.v1 as tf

from tf1._names import internals

# --- Decoupled weight decay, rows of embeddings ----------------------------------------------------------


class DecoupledWeightDecayExtension:
    """Adds decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101) to an optimizer.

    To use it, write a class that inherits first from this class and then from an optimizer. Each step first
    applies the decay, w ← w - weight_decay · w. Then it applies the optimizer's update. The decay is not
    multiplied by the learning rate. So if the learning rate follows a schedule, apply the schedule to
    weight_decay, too. If the gradient of a variable is sparse, the decay is applied only to the rows that
    have a gradient.
    """

    def __init__(self, weight_decay, *args, **kwargs):
        """Creates the optimizer.

        Args:
          weight_decay: float, scalar tensor, or a function without arguments that returns the value.
          *args, **kwargs: arguments of the optimizer.
        """
        self._decayed = None  # references of the variables that decay; None if all variables decay
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(self, *args, decay_var_list=None, **kwargs):
        """Calls `minimize` of the optimizer. Weight decay is applied only to the variables in decay_var_list.
        If decay_var_list is None or empty, weight decay is applied to all variables."""
        self._choose(decay_var_list)
        return super().minimize(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None, decay_var_list=None):
        """Calls `apply_gradients` of the optimizer; see `minimize` for decay_var_list."""
        self._choose(decay_var_list)
        pairs = list(grads_and_vars)
        present = [pair for pair in pairs if pair[0] is not None]
        decay = self._weight_decay() if callable(self._weight_decay) else self._weight_decay
        # All gradients must be computed before the decay changes the weights.
        with tf.control_dependencies([gradient for gradient, _ in present]):
            decay = tf.convert_to_tensor(decay, name="weight_decay")
            decays = [_decay(variable, gradient, tf.cast(decay, variable.dtype.base_dtype))
                      for gradient, variable in present
                      if self._decayed is None or variable.ref() in self._decayed]
        with tf.control_dependencies(decays):
            return super().apply_gradients(pairs, global_step=global_step, name=name)

    def _choose(self, variables):
        if variables:
            self._decayed = {variable.ref() for variable in variables}


def _decay(variable, gradient, factor):
    """Returns the op w ← w - factor · w. If the gradient is sparse, w are the rows that have a gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.assign_sub(variable, factor * variable)
    rows = tf.unique(gradient.indices)[0]
    return tf.scatter_sub(variable, rows, factor * tf.gather(variable, rows))


def extend_with_decoupled_weight_decay(base_optimizer):
    """Returns a class that adds decoupled weight decay to an optimizer.

    The first argument of the class is weight_decay.

    Args:
      base_optimizer: a subclass of `tf.train.Optimizer`.
    """
    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):
        """The optimizer `base_optimizer`, with decoupled weight decay added."""

    return OptimizerWithDecoupledWeightDecay


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
    """Adam with decoupled weight decay. Its slots are named <weight>/AdamW and <weight>/AdamW_1."""

    def __init__(self, weight_decay, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8,
                 use_locking=False, name="AdamW"):
        """Creates the optimizer. All arguments except weight_decay are those of `tf.train.AdamOptimizer`."""
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class LazyAdamOptimizer(tf.train.AdamOptimizer):
    """Implements Adam, but changes neither the rows that have no gradient nor the moments of these rows.

    It is faster than Adam for large embeddings. The results differ from those of Adam: Adam also decays the
    moments of rows without a gradient in each step.
    """

    # `reference_variables` calls this method for resource variables, too.
    def _apply_sparse(self, grad, var):
        variable, gradient, indices = var, grad.values, grad.indices
        dtype = variable.dtype.base_dtype
        rate, beta1, beta2, epsilon, power1, power2 = (
            tf.cast(value, dtype) for value in internals.adam_tensors(self))
        first, second = self.get_slot(variable, "m"), self.get_slot(variable, "v")
        mean = beta1 * tf.gather(first, indices) + (1 - beta1) * gradient
        square = beta2 * tf.gather(second, indices) + (1 - beta2) * gradient * gradient
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        return tf.group(tf.scatter_update(first, indices, mean), tf.scatter_update(second, indices, square),
                        tf.scatter_sub(variable, indices, rate * mean / (tf.sqrt(square) + epsilon)))


# --- Optimizers that wrap another optimizer -------------------------------------------------------------


class WrappedOptimizer(tf.train.Optimizer):
    """Calls another optimizer. Subclasses override the methods that they change."""

    def __init__(self, optimizer, name):
        """Creates the optimizer.

        Args:
          optimizer: the tf.train.Optimizer to wrap.
          name: name of the ops.
        """
        super().__init__(False, name)
        self._optimizer = optimizer


def _forwarded(method):
    @functools.wraps(getattr(tf.train.Optimizer, method))
    def forward(self, *args, **kwargs):
        return getattr(self._optimizer, method)(*args, **kwargs)
    return forward


for _method in ("compute_gradients", "apply_gradients", "get_slot", "get_slot_names", "variables"):
    setattr(WrappedOptimizer, _method, _forwarded(_method))


def clip_gradients_by_global_norm(gradients_variables, clip_norm=20.0):
    """Clips gradients to a global norm of at most clip_norm.

    Args:
      gradients_variables: list of (gradient, variable).
      clip_norm: maximum of the global norm, which is the norm of all gradients as one vector.

    Returns:
      list of (clipped gradient, variable).
    """
    gradients, variables = zip(*gradients_variables)
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm)
    return list(zip(clipped, variables))


# --- Loss scaling: small gradients in half precision do not become 0 (arXiv:1710.03740, section 3.2) -------


class FixedLossScaleManager:
    """Keeps the loss scale constant."""

    def __init__(self, loss_scale):
        """Creates the loss scale; raises ValueError if it is less than 1."""
        if loss_scale < 1:
            raise ValueError(f"The loss scale is {loss_scale}, but it must be at least 1.")
        self._loss_scale = tf.convert_to_tensor(loss_scale, tf.float32)

    def get_loss_scale(self):
        """Returns the loss scale, a float32 scalar tensor."""
        return self._loss_scale

    def update_loss_scale(self, finite_grads):
        """Returns an op that updates the loss scale after a step.

        Args:
          finite_grads: bool scalar tensor, whether all gradients of the step were finite.
        """
        return tf.no_op()


class ExponentialUpdateLossScaleManager:
    """Increases the loss scale after several consecutive steps with finite gradients, and decreases it after
    several steps with gradients that are not finite. The scale is never decreased below 1.

    Its variables are loss_scale, good_steps and bad_steps.
    """

    def __init__(self, init_loss_scale, incr_every_n_steps, decr_every_n_nan_or_inf=2, incr_ratio=2,
                 decr_ratio=0.8):
        """Creates the variables.

        Args:
          init_loss_scale: the first scale.
          incr_every_n_steps: after this number of consecutive steps with finite gradients, the scale is
            multiplied by incr_ratio.
          decr_every_n_nan_or_inf: after this number of steps with gradients that are not finite, the scale is
            multiplied by decr_ratio. These steps need not be consecutive. When the scale changes, the counts
            of both kinds of steps start at 0 again.
          incr_ratio: factor above 1.
          decr_ratio: factor below 1.
        """
        self._loss_scale = _variable("loss_scale", float(init_loss_scale), tf.float32)
        self._good_steps = _variable("good_steps", 0, tf.int32)
        self._bad_steps = _variable("bad_steps", 0, tf.int32)
        self._patience = incr_every_n_steps, decr_every_n_nan_or_inf
        self._ratios = incr_ratio, decr_ratio

    def get_loss_scale(self):
        return self._loss_scale.read_value()

    def update_loss_scale(self, finite_grads):
        scale, finite = self._loss_scale.read_value(), tf.cast(finite_grads, tf.int32)
        good = (self._good_steps.read_value() + 1) * finite
        bad = self._bad_steps.read_value() + 1 - finite
        larger, smaller = (scale * ratio for ratio in self._ratios)
        grows = tf.logical_and(finite_grads, good >= self._patience[0])
        shrinks = tf.logical_and(tf.logical_not(finite_grads), bad >= self._patience[1])
        kept = 1 - tf.cast(tf.logical_or(grows, shrinks), tf.int32)
        new_scale = tf.where(grows, tf.where(tf.is_finite(larger), larger, scale),
                             tf.where(shrinks, tf.maximum(1.0, smaller), scale))
        return tf.group(self._loss_scale.assign(new_scale), self._good_steps.assign(good * kept),
                        self._bad_steps.assign(bad * kept))


def _variable(name, value, dtype):
    return tf.Variable(value, dtype=dtype, trainable=False, name=name, use_resource=True)


class LossScaleOptimizer(WrappedOptimizer):
    """Scales the loss, and skips a step if a gradient is not finite.

    A skipped step changes neither the weights nor global_step.
    """

    def __init__(self, opt, loss_scale_manager):
        """Wraps an optimizer.

        Args:
          opt: the tf.train.Optimizer.
          loss_scale_manager: an object with the methods of `FixedLossScaleManager`.
        """
        super().__init__(opt, "LossScaleOptimizer")
        self._manager = loss_scale_manager

    def compute_gradients(self, loss, *args, **kwargs):
        """Returns (gradient, variable) pairs: the gradients of the scaled loss, divided by the scale."""
        scale = self._manager.get_loss_scale()
        pairs = super().compute_gradients(loss * tf.cast(scale, loss.dtype), *args, **kwargs)
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
        with tf.control_dependencies(gradients):  # the gradients must read the scale before it is updated
            return tf.group(step, self._manager.update_loss_scale(finite))


def _scaled(gradient, factor):
    """Returns gradient · factor. `tf.scalar_mul` would refuse a factor of unknown rank."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * tf.cast(factor, gradient.dtype), gradient.indices,
                                gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
