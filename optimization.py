"""The optimizer of BERT: Adam with decoupled weight decay, warm-up and linear decay of the learning rate."""

import re

import tensorflow.compat.v1 as tf

# Graph collection of scalar tensors that a training loop should log besides the loss, each under its op's name.
LOGGED_SCALARS = "logged_scalars"
_SLOTS = ("adam_m", "adam_v")


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu):
    """Builds one training step: gradients, clipped to a global norm of 1, and an update of every trainable variable.

    Args:
      loss: scalar to minimize.
      init_lr: the learning rate that warm-up reaches and the decay starts from.
      num_train_steps: the step at which the learning rate reaches 0.
      num_warmup_steps: steps of linear warm-up; 0 or None for none.
      use_tpu: must be false.

    Returns:
      An op that updates the variables and then adds one to the global step.

    Raises:
      ValueError: `use_tpu` is set.
    """
    if use_tpu:
        raise ValueError("use_tpu=True: TPUs are not supported. Train on CPU or GPU with use_tpu=False.")
    global_step = tf.train.get_or_create_global_step()
    learning_rate = linear_schedule(global_step, init_lr, num_train_steps, num_warmup_steps)
    optimizer = AdamWeightDecayOptimizer(
        learning_rate=learning_rate, weight_decay_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"])

    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    gradient_norm = tf.global_norm(gradients)
    scale = clipping_factor(gradient_norm, clip_norm=1.0)
    update = optimizer.apply_scaled_gradients(zip(gradients, variables), scale)
    log_scalar("learning_rate", learning_rate)
    log_scalar("gradient_norm", gradient_norm)
    # Whatever reads the global step (schedule, dropout) is an input of some update. Counting after all of them leaves
    # no order open, so that a run repeats.
    with tf.control_dependencies([update]):
        return tf.assign_add(global_step, 1, name="train_step").op


def linear_schedule(global_step, init_lr, num_train_steps, num_warmup_steps):
    """The published learning rate: linear from 0 to init_lr during warm-up, then on the line that falls to 0 at the end.

    With t = min(step, num_train_steps): init_lr · t/num_warmup_steps below num_warmup_steps, else
    init_lr · (1 − t/num_train_steps). The falling line starts at step 0, so there is a jump where warm-up ends.

    Args:
      global_step: integer scalar tensor.

    Returns:
      float32 scalar tensor.
    """
    step = tf.cast(global_step, tf.float32)
    rate = tf.constant(init_lr, tf.float32)
    decayed = rate * (1.0 - tf.minimum(step, num_train_steps) / num_train_steps)
    if not num_warmup_steps:
        return decayed
    return tf.where(step < num_warmup_steps, rate * (step / num_warmup_steps), decayed)


def clipping_factor(global_norm, clip_norm):
    """Returns min(1, clip_norm / global_norm) (Pascanu et al. 2013, algorithm 1); NaN if the norm is not finite."""
    factor = clip_norm * tf.minimum(1.0 / global_norm, 1.0 / clip_norm)
    return factor + (global_norm - global_norm)


def log_scalar(name, tensor):
    """Asks the training loop to log a scalar, and writes it as a summary."""
    with tf.name_scope(None):
        tf.add_to_collection(LOGGED_SCALARS, tf.identity(tensor, name=name))
        # Not tf.summary.scalar: it would make the tag unique beside the op above, as "<name>_1".
        tf.add_to_collection(tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags=name, values=tensor))


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam without bias correction and with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101).

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
        w ← w − η (m / (√v + ε) + λ w)

    The slots are the variables `<name>/adam_m` and `<name>/adam_v`. State: 8 bytes a parameter.

    Each variable is updated in place by one fused kernel: Adam's, with both β powers at 0, is Adam without bias
    correction, and w (1 − η λ) before it is the decay. The updates are chained, one after the other, so that all of them
    together need the temporary memory of the largest one.
    """

    def __init__(self, learning_rate, weight_decay_rate=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-6,
                 exclude_from_weight_decay=None, name="AdamWeightDecayOptimizer"):
        """Creates the optimizer.

        Args:
          learning_rate: η, float or scalar tensor.
          weight_decay_rate: λ.
          beta_1: β₁.
          beta_2: β₂.
          epsilon: ε.
          exclude_from_weight_decay: regular expressions; a variable whose name contains a match is not decayed.
          name: name of the ops.
        """
        super().__init__(False, name)
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns an op that updates the variables. As published, it does not touch the global step."""
        del global_step
        return self.apply_scaled_gradients(grads_and_vars, scale=None, name=name)

    def apply_scaled_gradients(self, grads_and_vars, scale, name=None):
        """Returns an op that updates the variables with scale · gradient.

        Args:
          grads_and_vars: (gradient, variable) pairs; those with None are passed over.
          scale: scalar tensor, such as a clipping factor; None for 1. Multiplying inside each update keeps no second
            copy of all gradients.
          name: name of the returned op.
        """
        previous = [] if scale is None else [scale]
        for gradient, variable in grads_and_vars:
            if gradient is None or variable is None:
                continue
            with tf.control_dependencies(previous):
                previous = [self._update(tf.convert_to_tensor(gradient), variable, scale)]
        return tf.group(*previous, name=name or self._name)

    def _update(self, gradient, variable, scale):
        """The op that updates one variable and its slots."""
        name = self._get_variable_name(variable.name)
        slots = [tf.get_variable(f"{name}/{slot}", shape=variable.shape.as_list(), dtype=variable.dtype.base_dtype,
                                 trainable=False, initializer=tf.zeros_initializer(),
                                 use_resource=_handle(variable).dtype == tf.resource) for slot in _SLOTS]
        if scale is not None:
            gradient *= scale
        rate = tf.cast(self.learning_rate, gradient.dtype)
        before = [gradient]
        if self._do_use_weight_decay(name):
            before.append(tf.assign_sub(variable, rate * self.weight_decay_rate * variable))
        with tf.control_dependencies(before):
            return _apply_adam(variable, *slots, rate, self.beta_1, self.beta_2, self.epsilon, gradient)

    def _do_use_weight_decay(self, param_name):
        """Returns whether the variable of that name is decayed."""
        if not self.weight_decay_rate:
            return False
        return not any(re.search(pattern, param_name) for pattern in self.exclude_from_weight_decay or [])

    def _get_variable_name(self, param_name):
        """Returns the variable's name without its output number: "w:0" → "w"."""
        match = re.match("^(.*):\\d+$", param_name)
        return match.group(1) if match else param_name


def slot_shapes(shapes):
    """Returns the variables that the optimizer adds to those of {name: shape}, in the same form."""
    return {f"{name}/{slot}": shape for name, shape in shapes.items() for slot in _SLOTS}


def _handle(variable):
    """A variable's handle or, of a reference variable, its reference."""
    return variable.op.outputs[0]


def _apply_adam(variable, m, v, rate, beta_1, beta_2, epsilon, gradient):
    """The fused kernel on one variable, resource or reference. Its bias correction is 1 at β powers of 0."""
    arguments = dict(var=_handle(variable), m=_handle(m), v=_handle(v), beta1_power=0.0, beta2_power=0.0, lr=rate,
                     beta1=beta_1, beta2=beta_2, epsilon=epsilon, grad=gradient)
    if arguments["var"].dtype == tf.resource:
        return tf.raw_ops.ResourceApplyAdam(**arguments)
    return tf.raw_ops.ApplyAdam(**arguments).op
