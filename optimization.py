"""Builds training steps: optimizers with weight decay, learning rate schedules, gradient accumulation.

The optimizers update the variables in place, one after the other. In addition to the gradients and the state
of the optimizer, the update needs memory for one or two temporary tensors, which are as large as the largest
variable.
"""

import collections
import functools
import math
import re

import tensorflow.compat.v1 as tf

from bertlib.checkpoints.bert_config import is_frozen, layer_index
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import collectives, native, randomness
from bertlib.graph.graph_keys import (
    CONSECUTIVE_SKIPPED_STEPS,
    GRADIENT_ACCUMULATION,
    LOGGED_SCALARS,
    MICRO_BATCH_INDEX,
    OPTIONAL_IN_CHECKPOINT,
)
from bertlib.graph.tensorflow_internals import add_control_inputs, control_flow_context

# A variable with fewer elements is updated by TensorFlow's op, because our op in C++ is not faster for such a
# small variable.
_WORTH_ONE_PASS = 2**16
# The published patterns that match the names of the variables without weight decay.
PUBLISHED_DECAY_EXCLUSIONS = ("LayerNorm", "layer_norm", "bias")


class Accumulation(collections.namedtuple("Accumulation", ["num_micro_batches", "accumulate_op", "loss"])):
    """Contains the ops with which the training loop runs a step that sums gradients.

    Attributes:
      num_micro_batches: number of micro-batches in a step.
      accumulate_op: op that adds the gradient of a micro-batch. Run this op num_micro_batches − 1 times
        before each run of the train op, which adds the last micro-batch.
      loss: scalar tensor, the mean loss of all micro-batches. Fetch it only in the run of the train op.
    """

    @property
    def name(self):
        """Name of the accumulate op. The graph contains this object in a collection. TensorFlow needs this
        property when it writes the collection into a MetaGraph."""
        return self.accumulate_op.name


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu, step_config=None):
    """Builds one training step: the gradients, clipped by their global norm, and the update of all variables.

    As in the published code, the variables whose names match `PUBLISHED_DECAY_EXCLUSIONS` have no weight
    decay. No argument changes this choice. For `layer_decay` and `freeze_layers`, the layer of a variable is
    derived from its name; see `layer_index`. In fp16, the loss is scaled. If the scaled gradients of a step
    are not finite, the update is skipped; see `LossScale`. Skipped steps count as steps.

    Hooks can fetch the scalars "learning_rate:0" and "gradient_norm:0" of the step.

    Args:
      loss: scalar, the loss to minimize. With accumulation it is the loss of a micro-batch, and the mean over
        the micro-batches is minimized.
      init_lr: float, the learning rate to which the warm-up rises. The schedule determines the rate after the
        warm-up.
      num_train_steps: the step at which the decay of the learning rate ends.
      num_warmup_steps: number of steps of linear warm-up; 0 or None for no warm-up.
      use_tpu: must be false.
      step_config: a `StepConfig` with the settings of the optimizer; None for its defaults, which are those
        of the published code.

    Returns:
      op that updates the variables and then adds one to the global step.

    Raises:
      ValueError: an argument has an invalid value.
    """
    if use_tpu:
        raise ValueError("use_tpu=True: TPUs are not supported. Train on CPU or GPU with use_tpu=False.")
    step_config = step_config or StepConfig()
    if step_config.gradient_accumulation_steps < 1:
        raise ValueError(f"gradient_accumulation_steps={step_config.gradient_accumulation_steps}: "
                         "a step takes at least 1 micro-batch.")
    make_optimizer = _optimizer_maker(step_config)
    schedule = _known(LR_SCHEDULES, "lr_schedule", step_config.lr_schedule)

    global_step = tf.train.get_or_create_global_step()
    learning_rate = schedule(global_step, init_lr, num_train_steps, num_warmup_steps)
    chosen_optimizer = make_optimizer(learning_rate)
    variables = trained_variables(tf.trainable_variables(), step_config.freeze_layers,
                                  step_config.freeze_embeddings)
    factors = rate_factors(variables, step_config.layer_decay)
    loss_scale = LossScale() if step_config.loss_scaling else None
    gradients, norm, zero = _effective_batch_gradients(loss, loss_scale, variables,
                                                       step_config.gradient_accumulation_steps)
    # The gradients are sums over the micro-batches of all replicas, and the loss may be scaled. Dividing by
    # mean_divisor gives the gradients of the mean loss.
    num_micro_batches = step_config.gradient_accumulation_steps * collectives.num_replicas()
    mean_divisor = num_micro_batches * (loss_scale.value if loss_scale else 1.0)
    gradient_norm = norm / mean_divisor
    gradient_factor = clipping_factor(gradient_norm, step_config.clip_norm) / mean_divisor

    def apply():
        return chosen_optimizer.apply_gradients(zip(gradients, variables), factor=gradient_factor,
                                                rate_factors=factors)

    update = loss_scale.apply_if_finite(gradient_norm, apply) if loss_scale else apply()
    with tf.control_dependencies([update]):
        update = tf.group(update, zero())
    log_scalar("learning_rate", learning_rate)
    log_scalar("gradient_norm", gradient_norm)
    # All ops that read the global step (schedule, dropout) run before an update that uses their results. The
    # global step is incremented after all updates. So these ops always read the old value, and runs are
    # repeatable.
    with tf.control_dependencies([update]):
        return tf.assign_add(global_step, 1, name="train_step").op


def _optimizer_maker(step_config):
    """Returns a function that takes a learning rate and returns the optimizer of a `StepConfig`."""
    options = {}
    if step_config.optimizer == "adamw":
        options = dict(bias_correction=step_config.adam_bias_correction,
                       compile_kernels=step_config.compile_kernels)
    elif step_config.adam_bias_correction:
        raise ValueError(f"adam_bias_correction=True with optimizer={step_config.optimizer!r}: "
                         "only 'adamw' has this option. Leave adam_bias_correction out.")
    return functools.partial(_known(OPTIMIZERS, "optimizer", step_config.optimizer),
                             weight_decay_rate=step_config.weight_decay,
                             exclude_from_weight_decay=list(PUBLISHED_DECAY_EXCLUSIONS), **options)


def _effective_batch_gradients(loss, loss_scale, variables, gradient_accumulation_steps):
    """Builds the gradients of the effective batch.

    Args:
      loss: scalar, the loss of a micro-batch.
      loss_scale: a `LossScale`, by which the loss is scaled, or None.
      variables: the trainable variables.
      gradient_accumulation_steps: number of micro-batches of this replica.

    Returns:
      a triple: the gradients, summed over all micro-batches of all replicas; the global norm of these sums;
      and a function without arguments, which returns an op. This op sets the sums to zero.
    """
    gradients = tf.gradients(loss_scale.scale(loss) if loss_scale else loss, variables)
    if gradient_accumulation_steps > 1 or collectives.current_all_reduce():
        return _sum_gradients(loss, gradients, variables, gradient_accumulation_steps)
    norm = tf.global_norm(gradients)
    if loss_scale:
        # Sparse gradients are converted to dense ones here, because a conversion inside the tf.cond of
        # `apply_if_finite` would give gradients without a static shape.
        gradients = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
    return gradients, norm, tf.no_op


def _known(table, argument, name):
    """Returns the entry `name` of a table. Raises a ValueError if there is no such entry. The error lists the
    known names."""
    if name not in table:
        raise ValueError(f"Unknown {argument}={name!r}; known: {', '.join(table)}.")
    return table[name]


# --- Layers ------------------------------------------------------------------------------------------------


def trained_variables(variables, freeze_layers=0, freeze_embeddings=False):
    """Returns the list of those variables that are trained.

    Args:
      variables: list of all trainable variables.
      freeze_layers, freeze_embeddings: see `create_optimizer`.

    Raises:
      ValueError: all layers would be frozen, or no variable is in a layer or in the embeddings.
    """
    if not (freeze_layers or freeze_embeddings):
        return variables
    num_layers = count_layers(variables, f"freeze_layers={freeze_layers}, "
                              f"freeze_embeddings={freeze_embeddings}")
    if not 0 <= freeze_layers < num_layers:
        raise ValueError(f"freeze_layers={freeze_layers}: the model has {num_layers} layers, and at least "
                         f"one layer must be trained. Pass a number from 0 to {num_layers - 1}.")
    return [variable for variable in variables
            if not is_frozen(variable.op.name, freeze_layers, freeze_embeddings)]


def count_layers(variables, argument):
    """Returns the number of encoder layers. It is determined from the names of the model's variables.

    Raises:
      ValueError: no variable belongs to a layer. The message begins with `argument`.
    """
    layers = [layer_index(variable.op.name) for variable in variables]
    num_layers = max((index for index in layers if index is not None), default=-1) + 1
    if not num_layers:
        raise ValueError(f"{argument}: no variable of this model belongs to a layer. The names of such "
                         "variables contain encoder/layer_0/, encoder/layer_1/ and so on. Leave the argument "
                         "out.")
    return num_layers


def rate_factors(variables, layer_decay):
    """Returns {name of a variable: factor of its learning rate}, without the variables whose factor is 1.

    With L layers, the factor of layer l is ξ^(L − l), where l is L − 1 for the top layer and 0 for the lowest
    one. The factor of the embeddings is ξ^(L + 1). The pooler and the head have the factor 1. These are the
    rates of Zhang et al. 2021, arXiv:2006.05987. In Clark et al. 2020, arXiv:2003.10555, the factors of the
    layers and of the embeddings are multiplied by ξ once more: layer l has the factor ξ^(L + 1 − l).

    Args:
      variables: list of the trained variables. It must contain the variables of the top layer, because their
        names give the number L.
      layer_decay: ξ.

    Raises:
      ValueError: ξ is outside of the interval (0, 1], or no variable is in a layer.
    """
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay={layer_decay}: pass a number above 0 and at most 1.")
    if layer_decay == 1:
        return {}
    num_layers = count_layers(variables, f"layer_decay={layer_decay}")
    names = [variable.op.name for variable in variables]
    return {name: layer_decay ** (num_layers - layer_index(name)) for name in names
            if layer_index(name) is not None}


# --- Learning rate -----------------------------------------------------------------------------------------


def linear_schedule(global_step, init_lr, num_train_steps, num_warmup_steps):
    """Returns the published learning rate: linear warm-up from 0 to init_lr, and linear decay to 0.

    With t = min(step, num_train_steps), the rate is init_lr · t/num_warmup_steps during warm-up, and
    init_lr · (1 − t/num_train_steps) after it. The line of the decay has the value init_lr at step 0, and not
    at the end of warm-up. For this reason, the rate jumps down at the end of warm-up.

    Args:
      global_step: integer scalar tensor.
      init_lr, num_train_steps, num_warmup_steps: see `create_optimizer`.

    Returns:
      float32 scalar tensor.
    """
    completed = tf.minimum(tf.cast(global_step, tf.float32), num_train_steps)
    return _warmed_up(global_step, init_lr, num_warmup_steps, 1.0 - completed / num_train_steps)


def cosine_schedule(global_step, init_lr, num_train_steps, num_warmup_steps):
    """Returns a rate that follows half a cosine, without restarts (Loshchilov and Hutter 2016,
    arXiv:1608.03983, equation 5).

    The rate is init_lr · (1 + cos πd)/2. Here d rises linearly from 0 at the end of warm-up to 1 at
    num_train_steps, and then stays 1. Warm-up, arguments and return value are those of `linear_schedule`.
    """
    progress = _decay_progress(global_step, num_train_steps, num_warmup_steps)
    return _warmed_up(global_step, init_lr, num_warmup_steps, 0.5 * (1.0 + tf.cos(math.pi * progress)))


def exponential_schedule(global_step, init_lr, num_train_steps, num_warmup_steps):
    """Returns init_lr · 0.01^d, with d as in `cosine_schedule`. The rate decays exponentially to 0.01 ·
    init_lr. Warm-up, arguments and return value are those of `linear_schedule`."""
    progress = _decay_progress(global_step, num_train_steps, num_warmup_steps)
    return _warmed_up(global_step, init_lr, num_warmup_steps, tf.pow(0.01, progress))


def constant_schedule(global_step, init_lr, num_train_steps, num_warmup_steps):
    """Returns the constant rate init_lr after warm-up. Warm-up, arguments and return value are those of
    `linear_schedule`."""
    return _warmed_up(global_step, init_lr, num_warmup_steps, 1.0)


LR_SCHEDULES = {"linear": linear_schedule, "cosine": cosine_schedule, "exponential": exponential_schedule,
                "constant": constant_schedule}


def _decay_progress(global_step, num_train_steps, num_warmup_steps):
    """Returns how much of the training after the warm-up is done: a fraction in [0, 1]."""
    start = num_warmup_steps or 0
    return tf.clip_by_value((tf.cast(global_step, tf.float32) - start) / max(num_train_steps - start, 1),
                            0.0, 1.0)


def _warmed_up(global_step, init_lr, num_warmup_steps, decay):
    """Returns init_lr · global_step/num_warmup_steps during warm-up, and init_lr · decay after it."""
    rate = tf.constant(init_lr, tf.float32)
    if not num_warmup_steps:
        return rate * decay
    completed = tf.cast(global_step, tf.float32)
    return tf.where(completed < num_warmup_steps, rate * (completed / num_warmup_steps), rate * decay)


# --- Clipping, logging -------------------------------------------------------------------------------------


def clipping_factor(global_norm, clip_norm):
    """Returns min(1, clip_norm / global_norm) (Pascanu et al. 2013, algorithm 1), or 1 if clip_norm is 0.

    The factor is NaN if the norm is not finite.
    """
    factor = clip_norm * tf.minimum(1.0 / global_norm, 1.0 / clip_norm) if clip_norm else 1.0
    return factor + (global_norm - global_norm)


def log_scalar(name, tensor):
    """Adds a scalar to the log of the training loop and to the summaries."""
    with tf.name_scope(None):
        tf.add_to_collection(LOGGED_SCALARS, tf.identity(tensor, name=name))
        # tf.summary.scalar is not used here: the op `tf.identity` above already has the name `name`, so
        # the tag of the summary would become "<name>_1".
        tf.add_to_collection(tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags=name, values=tensor))


# --- Gradient accumulation ---------------------------------------------------------------------------------


def _sum_gradients(loss, gradients, variables, gradient_accumulation_steps):
    """Sums the gradients of micro-batches and of replicas. Puts an `Accumulation` into the graph's collection
    GRADIENT_ACCUMULATION.

    The sums over micro-batches are local variables: they are not saved in checkpoints, and start at zero in
    each session. Each gradient is added to its sum and freed before the next one is computed. If a replica
    computes only one micro-batch, the gradient is assigned instead of added. With several replicas, the train
    op finally replaces the sums by the sums over all replicas; see `collectives.AllReduce`.

    Args:
      loss: scalar, the loss of a micro-batch.
      gradients: list of the gradients of the loss. It contains a tensor, IndexedSlices or None for each
        variable.
      variables: the trainable variables.
      gradient_accumulation_steps: number of micro-batches of this replica.

    Returns:
      a triple. First, the list of the sums: for each gradient, the variable with its sum, or None if the
      gradient is None. Second, the global norm of the sums. Third, a function that builds the op that sets
      the sums to zero.
    """
    all_reduce = collectives.current_all_reduce()
    pairs = [pair for pair in zip(gradients, variables) if pair[0] is not None]
    existing = [gradient for gradient, _ in pairs]
    sums, adds = _add_to_sums(pairs, gradient_accumulation_steps)
    order = _make_one_at_a_time(existing, adds)
    exchanges = []
    if all_reduce:
        exchanges = all_reduce.sum_variables([(sums[index], adds[index]) for index in order])
    scalars, scalar_adds = _add_scalars(loss, existing)
    adds += scalar_adds

    indices = tf.get_collection(MICRO_BATCH_INDEX)
    # The accumulate op waits only for the additions of this replica. The exchanges with other replicas belong
    # to the train op, which runs once in each step.
    with tf.control_dependencies(adds):
        accumulate_op = tf.group(*[tf.assign_add(index, 1).op for index in indices], name="accumulate")
        totals = [scalar.read_value() for scalar in scalars]
    if all_reduce:
        totals = all_reduce.sum_concatenated(totals)
        log_scalar("waiting_seconds", all_reduce.seconds_waited([*exchanges, *totals], totals[0]))
    with tf.control_dependencies([*adds, *exchanges]):
        mean_loss = totals[0] / (gradient_accumulation_steps * collectives.num_replicas())
        dense_sums = [total for total, gradient in zip(sums, existing)
                      if not isinstance(gradient, tf.IndexedSlices)]
        norm = tf.sqrt(tf.add_n([_sum_of_squares(dense_sums), *totals[1:]]))
    tf.add_to_collection(GRADIENT_ACCUMULATION,
                         Accumulation(gradient_accumulation_steps, accumulate_op, mean_loss))

    def zero():
        with tf.control_dependencies([mean_loss]):
            return _zero([*(sums if gradient_accumulation_steps > 1 else []), *scalars, *indices])

    remaining = iter(sums)
    return [None if gradient is None else next(remaining) for gradient in gradients], norm, zero


def _add_to_sums(pairs, gradient_accumulation_steps):
    """Creates the sum of each gradient over the micro-batches, and adds the gradients to the sums.

    Args:
      pairs: list of (gradient, variable).
      gradient_accumulation_steps: number of micro-batches of this replica. If it is 1, the sum of a gradient
        is the gradient itself, so the gradient is assigned to the sum.

    Returns:
      a pair: the list of the sums, which are local variables, and the list of the ops that add to these sums.
    """
    sums, adds = [], []
    for gradient, variable in pairs:
        sums.append(_local_variable(f"{variable.op.name}/accumulated_gradient", variable.shape,
                                    variable.dtype.base_dtype))
        add = sums[-1].assign_add if gradient_accumulation_steps > 1 else sums[-1].assign
        adds.append(add(tf.convert_to_tensor(gradient), read_value=False))
    return sums, adds


def _add_scalars(loss, gradients):
    """Sums the loss over the micro-batches. If there are sparse gradients, also sums their squares.

    In a sparse gradient, several rows can have the same index. The norm is computed from these single rows,
    not from their sum. The published code does the same, and so does a step with one large batch.

    Returns:
      a pair: the list of the sums, and the list of the ops that add to these sums. The sums are local scalar
      variables: the sum of the losses and, with sparse gradients, the sum of squares.
    """
    sums = [_local_variable("accumulated_loss", [], loss.dtype)]
    adds = [sums[0].assign_add(loss, read_value=False)]
    sparse = [gradient.values for gradient in gradients if isinstance(gradient, tf.IndexedSlices)]
    if sparse:
        sums.append(_local_variable("accumulated_slice_squares", [], sparse[0].dtype))
        squares = 2.0 * tf.add_n([tf.nn.l2_loss(rows) for rows in sparse])
        adds.append(sums[1].assign_add(squares, read_value=False))
    return sums, adds


def _make_one_at_a_time(gradients, adds):
    """Adds control dependencies: each gradient is computed after the previous gradient has been added.

    Without these dependencies, TensorFlow may compute many gradients before it adds the first one. This would
    need more memory.

    Returns:
      list of the indices of the gradients in the order of their computation.
    """
    position = {op: index for index, op in enumerate(tf.get_default_graph().get_operations())}
    # The gradients are sorted by the order in which their ops were created. An op is always created after the
    # ops on which it depends. So in this order, two gradients cannot wait for each other.
    order = sorted(range(len(adds)), key=lambda index: position[gradients[index].op])
    for before, index in zip(order, order[1:]):
        op = gradients[index].op
        if op is not gradients[before].op and control_flow_context(op) is None:
            add_control_inputs(op, [adds[before]])
    return order


def _local_variable(name, shape, dtype):
    return tf.get_variable(name, shape=shape, dtype=dtype, initializer=_zeros, trainable=False,
                           use_resource=True, collections=[tf.GraphKeys.LOCAL_VARIABLES])


def _zeros(shape, dtype=tf.float32, partition_info=None):
    """An initializer that returns zeros. An op computes the zeros when the initializer runs. They are not a
    constant of the graph, because a session keeps a copy of each constant in memory."""
    return tf.fill(tf.TensorShape(shape).as_list(), tf.cast(randomness.zero_when_run(), dtype))


def _sum_of_squares(variables):
    """Returns the sum of the squares of variables. The variables are read one after the other, to save
    memory."""
    halves = []
    for variable in variables:
        with tf.control_dependencies(halves[-1:]):
            halves.append(tf.nn.l2_loss(variable.read_value()))
    return 2.0 * tf.add_n(halves) if halves else tf.constant(0.0)


def _zero(variables):
    """Returns an op that sets variables to zero, one after the other."""
    previous = []
    for variable in variables:
        with tf.control_dependencies(previous):
            # tf.zeros is not used here: TensorFlow would replace it by a constant, and a session keeps its
            # constants in memory. All these constants would need as much memory as all gradients.
            shape = tf.raw_ops.VariableShape(input=variable.handle)
            zeros = tf.fill(shape, tf.zeros([], variable.dtype.base_dtype))
            previous = [variable.assign(zeros, read_value=False)]
    return tf.group(*previous)


# --- Loss scaling ------------------------------------------------------------------------------------------


class LossScale:
    """Scales the loss by a factor that keeps gradients in the range of float16.

    This is the dynamic loss scaling of Micikevicius et al. 2017, arXiv:1710.03740, section 3.2. The factor
    starts at 2¹⁵. If the gradients of a step are not finite, the step is skipped and the factor is halved.
    After 2,000 steps without a skipped step, the factor is doubled. The state is stored in variables, so
    checkpoints contain it. The variables are `loss_scale/value`, `loss_scale/good_steps` (number of steps
    since the last change), `loss_scale/skipped_steps` and `loss_scale/skipped_in_a_row`. Checkpoints of
    trainings without loss scaling lack these variables.

    Attributes:
      value: the factor of this step, float32 scalar tensor.
    """

    STEPS_TO_DOUBLE = 2000
    LARGEST = 2.0**24

    def __init__(self):
        """Creates the variables."""
        with tf.variable_scope("loss_scale", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
            def variable(name, value, dtype):
                return tf.get_variable(name, [], dtype, tf.constant_initializer(value), trainable=False,
                                       use_resource=True,
                                       collections=[tf.GraphKeys.GLOBAL_VARIABLES, OPTIONAL_IN_CHECKPOINT])

            self._value = variable("value", 2.0**15, tf.float32)
            self._good_steps = variable("good_steps", 0, tf.int64)
            self._skipped_steps = variable("skipped_steps", 0, tf.int64)
            self._skipped_in_a_row = variable("skipped_in_a_row", 0, tf.int64)
        self.value = tf.convert_to_tensor(self._value)

    def scale(self, loss):
        """Returns the loss times the factor."""
        return loss * tf.cast(self.value, loss.dtype)

    def apply_if_finite(self, gradient_norm, apply):
        """Returns an op that runs the update only if the norm is finite.

        Whether the norm is finite or not, the op also sets the loss scaling factor of the next step.

        Args:
          gradient_norm: scalar; it is not finite if any gradient is not finite.
          apply: function without arguments that builds the update and returns its op.
        """
        finite = tf.math.is_finite(gradient_norm)

        def applied():
            with tf.control_dependencies([apply()]):
                return tf.identity(finite)

        with tf.control_dependencies([tf.cond(finite, applied, lambda: tf.identity(finite))]):
            doubles = self._good_steps.read_value() + 1 >= self.STEPS_TO_DOUBLE
            skipped = tf.cast(tf.logical_not(finite), tf.int64)
            grown = tf.where(doubles, tf.minimum(2.0 * self.value, self.LARGEST), self.value)
            good_steps = tf.where(finite & tf.logical_not(doubles), self._good_steps.read_value() + 1,
                                  tf.zeros([], tf.int64))
            in_a_row = skipped * (self._skipped_in_a_row.read_value() + 1)
            updates = [
                self._value.assign(tf.where(finite, grown, tf.maximum(0.5 * self.value, 1.0)),
                                   read_value=False),
                self._good_steps.assign(good_steps, read_value=False),
                self._skipped_in_a_row.assign(in_a_row, read_value=False),
            ]
            skipped_steps = self._skipped_steps.assign_add(skipped)
        tf.add_to_collection(CONSECUTIVE_SKIPPED_STEPS, in_a_row)
        log_scalar("loss_scale", self.value)
        log_scalar("skipped_steps", tf.convert_to_tensor(skipped_steps))
        return tf.group(*updates, skipped_steps)


# --- Optimizers --------------------------------------------------------------------------------------------


class _WeightDecayOptimizer(tf.train.Optimizer):
    """Base class of the optimizers. It scales gradients, decays weights, creates slots, and updates variables
    one after the other.

    A subclass declares its slots and overrides `_apply`, the update of one variable. It can also override
    `_prepare`, a method of `tf.train.Optimizer`. `_prepare` is called once, before the updates of the
    variables are built, and creates the values that all updates use. The weight decay is decoupled
    (Loshchilov and Hutter 2017, arXiv:1711.05101): before the update, `_decay` computes w ← w − η λ w. In
    LAMB and in AdamW's op in C++, the decay is a part of the update instead.
    """

    # Names of the slots. The slot "m" of the variable "w" is the variable "w/m".
    SLOTS = ()

    def __init__(self, learning_rate, weight_decay_rate, exclude_from_weight_decay, name):
        """Creates the optimizer.

        Args:
          learning_rate: η, float or scalar tensor.
          weight_decay_rate: λ.
          exclude_from_weight_decay: list of regular expressions, or None. A variable is not decayed if one of
            them matches a part of its name.
          name: name of the ops.
        """
        super().__init__(False, name)
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.exclude_from_weight_decay = exclude_from_weight_decay

    @classmethod
    def slot_shapes(cls, shape):
        """Returns {name of a slot: its shape}, for a variable with the given shape."""
        return dict.fromkeys(cls.SLOTS, shape)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None, factor=None, rate_factors=None):
        """Returns an op that updates the variables with factor · gradient.

        Args:
          grads_and_vars: (gradient, variable) pairs; pairs with None are skipped. A gradient may be a
            variable. This variable is not read before the update of the previous pair has ended.
          global_step: ignored. As in the published code, the op does not change the global step.
          name: name of the returned op.
          factor: scalar tensor, such as a clipping factor; None for 1. Each gradient is multiplied by the
            factor directly before the update of its variable, so that no second copy of all gradients is
            needed.
          rate_factors: {name of a variable: factor of its learning rate}. Other variables have the factor 1.
        """
        self._prepare()
        rates, rate_factors = {1.0: self.learning_rate}, rate_factors or {}
        for rate_factor in rate_factors.values():
            if rate_factor not in rates:
                rates[rate_factor] = self.learning_rate * rate_factor
        previous = [] if factor is None else [factor]
        for gradient, variable in grads_and_vars:
            if gradient is None or variable is None:
                continue
            rate = rates[rate_factors.get(self._get_variable_name(variable.name), 1.0)]
            with tf.control_dependencies([*previous, gradient]):
                previous = [self._update(gradient, variable, factor, rate)]
        return tf.group(*previous, name=name or self.get_name())

    def _update(self, gradient, variable, factor, rate):
        """Returns the op that updates one variable and its slots with the learning rate `rate`, a float or a
        scalar tensor."""
        name, slots = self._get_variable_name(variable.name), self._make_slots(variable)
        rate = tf.cast(rate, variable.dtype.base_dtype)
        # The weight decay runs before the gradient is multiplied by `factor`. So only one temporary tensor
        # exists at a time.
        with tf.control_dependencies(self._decay(variable, name, rate)):
            gradient = tf.convert_to_tensor(gradient)
            if factor is not None:
                gradient *= factor
            return self._apply(gradient, variable, slots, rate, name)

    def _make_slots(self, variable):
        """Creates the slots of a variable; returns a list in the order of `slot_shapes`."""
        name = self._get_variable_name(variable.name)
        return [tf.get_variable(f"{name}/{slot}", shape=shape, dtype=variable.dtype.base_dtype,
                                initializer=_zeros, trainable=False, use_resource=_is_resource(variable))
                for slot, shape in self.slot_shapes(variable.shape.as_list()).items()]

    def _decay(self, variable, name, rate):
        """Returns a list with the op that decays the variable. If the variable is not decayed, the list is
        empty."""
        if not self._do_use_weight_decay(name):
            return []
        return [tf.assign_sub(variable, rate * self.weight_decay_rate * variable)]

    def _apply(self, gradient, variable, slots, rate, name):
        """Returns the op that updates a variable. The op runs after the op of the decoupled decay.

        Args:
          gradient: dense tensor.
          variable: the variable.
          slots: list of its slots, in the order of `slot_shapes`.
          rate: the learning rate η, in the variable's dtype.
          name: the variable's name.
        """
        raise NotImplementedError

    def _do_use_weight_decay(self, param_name):
        """Returns whether weight decay is applied to the variable with the name `param_name`."""
        return bool(self.weight_decay_rate) and not self._is_excluded(param_name)

    def _is_excluded(self, param_name):
        return any(re.search(pattern, param_name) for pattern in self.exclude_from_weight_decay or [])

    def _get_variable_name(self, param_name):
        """Returns the variable's name without its output number: "w:0" → "w"."""
        match = re.match("^(.*):\\d+$", param_name)
        return match.group(1) if match else param_name


class AdamWeightDecayOptimizer(_WeightDecayOptimizer):
    """Implements Adam with decoupled weight decay. By default, the bias of m and v is not corrected.

    The decay is that of Loshchilov and Hutter 2017, arXiv:1711.05101.

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
        w ← w − η (m / (√v + ε) + λ w)

    With bias correction, the quotient m / (√v + ε) is multiplied by η √(1 − β₂ᵗ) / (1 − β₁ᵗ) instead of η.
    Here t is the number of the step; the first step has the number 1. This is the form at the end of section
    2 of Kingma and Ba 2014, arXiv:1412.6980, where ε is written ε̂.

    The slots are the variables `<name>/adam_m` and `<name>/adam_v`. State: 8 bytes for each parameter.

    TensorFlow's fused kernel for Adam updates a variable in place. If its arguments β₁ᵗ and β₂ᵗ are 0, it
    computes Adam without bias correction. With kernels in C++, one op decays, clips and updates a large
    variable in a single pass through memory.
    """

    SLOTS = ("adam_m", "adam_v")

    def __init__(self, learning_rate, weight_decay_rate=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-6,
                 exclude_from_weight_decay=None, name="AdamWeightDecayOptimizer", bias_correction=False,
                 compile_kernels=False):
        """Creates the optimizer.

        Args:
          learning_rate: η, float or scalar tensor.
          weight_decay_rate: λ.
          beta_1: β₁.
          beta_2: β₂.
          epsilon: ε.
          exclude_from_weight_decay: list of regular expressions, or None. A variable is not decayed if one of
            them matches a part of its name.
          name: name of the ops.
          bias_correction: whether to correct the bias of m and v. In the first steps, both are biased
            towards 0.
          compile_kernels: whether to use the op that is compiled for this machine's CPU.
        """
        super().__init__(learning_rate, weight_decay_rate, exclude_from_weight_decay, name)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.bias_correction = bias_correction
        self.compile_kernels = compile_kernels

    def _prepare(self):
        # The powers β₁ᵗ and β₂ᵗ. If they are 0, the bias is not corrected.
        self._powers = _powers(self.beta_1, self.beta_2) if self.bias_correction else (0.0, 0.0)

    def _update(self, gradient, variable, factor, rate):
        ops = native.load_ops() if self.compile_kernels else None
        if not (ops and _is_resource(variable) and variable.dtype.base_dtype == tf.float32
                and variable.shape.num_elements() >= _WORTH_ONE_PASS):
            return super()._update(gradient, variable, factor, rate)
        # This op also decays the variable, so `_decay` is not called. The rate of decay is 0 for an excluded
        # variable.
        is_decayed = self._do_use_weight_decay(self._get_variable_name(variable.name))
        power_1, power_2 = self._powers
        correction = tf.sqrt(1.0 - power_2) / (1.0 - power_1)
        rate = tf.convert_to_tensor(rate, tf.float32)
        return ops.bert_adam_w(
            _handle(variable), *map(_handle, self._make_slots(variable)), tf.convert_to_tensor(gradient),
            tf.constant(1.0) if factor is None else factor, rate * correction,
            rate * (self.weight_decay_rate if is_decayed else 0.0),
            beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon)

    def _apply(self, gradient, variable, slots, rate, name):
        m, v = map(_handle, slots)
        power_1, power_2 = self._powers
        return _run_kernel("ApplyAdam", variable, dict(
            m=m, v=v, beta1_power=power_1, beta2_power=power_2, lr=rate, beta1=self.beta_1, beta2=self.beta_2,
            epsilon=self.epsilon, grad=gradient))


class LambOptimizer(AdamWeightDecayOptimizer):
    """Implements LAMB. For each variable, it computes a direction u from Adam and the weight decay, and
    scales u to a step whose norm is η times the norm of the variable.

    This is algorithm 2 of You et al. 2019, arXiv:1904.00962.

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
        u = (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε) + λ w
        w ← w − η (‖w‖ / ‖u‖) u

    The trust ratio ‖w‖/‖u‖ is 1 if one of the norms is 0, and for variables that are excluded from weight
    decay. t is the number of the step, 1 for the first. The slots are `<name>/lamb_m` and `<name>/lamb_v`.
    They need 8 bytes for each parameter.
    """

    SLOTS = ("lamb_m", "lamb_v")
    _update = _WeightDecayOptimizer._update  # the op in C++ computes AdamW

    def _prepare(self):
        super()._prepare()
        self._corrections = [1.0 - power for power in _powers(self.beta_1, self.beta_2)]

    def _decay(self, variable, name, rate):
        return []  # no separate op: `_apply` decays the variable in the update itself

    def _apply(self, gradient, variable, slots, rate, name):
        m, v = slots
        correction_m, correction_v = self._corrections
        # With a rate of 0, Adam's kernel updates m and v in place and does not change w.
        with tf.control_dependencies([super()._apply(gradient, variable, slots, 0.0, name)]):
            weights = variable.read_value()
            deviation = tf.sqrt(v.read_value() / correction_v) + self.epsilon
            update = m.read_value() / correction_m / deviation
            # The first `if` adds the weight decay, and the second `if` applies the trust ratio. A variable
            # that is excluded from weight decay gets neither of the two.
            if self._do_use_weight_decay(name):
                # Without this dependency, TensorFlow could compute the product of rate and weights early. The
                # product would then be in memory together with the temporary tensors of `update`.
                with tf.control_dependencies([update]):
                    update += self.weight_decay_rate * weights
            if not self._is_excluded(name):
                size, length = tf.global_norm([weights]), tf.global_norm([update])
                rate *= tf.where((size > 0.0) & (length > 0.0), size / length, tf.ones_like(size))
            return tf.assign_sub(variable, rate * update).op


class AdafactorOptimizer(_WeightDecayOptimizer):
    """Implements Adafactor without first moment, with a given learning rate.

    This class implements algorithms 4 and 5 of Shazeer and Stern 2018, arXiv:1804.04235.

        β = 1 − t^−0.8
        r ← β r + (1 − β) mean over columns of (g² + ε)     c ← β c + (1 − β) mean over rows of (g² + ε)
        u = g / √(r cᵀ / mean r)                            for a matrix
        v ← β v + (1 − β) (g² + ε),  u = g / √v             for any other variable
        w ← w − η (u / max(1, RMS(u) / d) + λ w)

    Here ε = 1e−30, d = 1, and t is the number of the step, 1 for the first. The paper uses sums where these
    formulas use means; u has the same value in both cases. η is the learning rate of the caller; the relative
    step size of section 8 is not implemented. The slots are `<name>/adafactor_row` and
    `<name>/adafactor_column` for a matrix, and `<name>/adafactor_v` for any other variable. State: for a
    matrix, 4 bytes for each row and 4 bytes for each column (0.011 bytes for each parameter at 768×768); for
    any other variable, 4 bytes for each parameter.
    """

    SLOTS = ("adafactor_row", "adafactor_column", "adafactor_v")

    def __init__(self, learning_rate, weight_decay_rate=0.0, decay_exponent=0.8, clipping_threshold=1.0,
                 epsilon=1e-30, exclude_from_weight_decay=None, name="AdafactorOptimizer"):
        """Creates the optimizer.

        Args:
          learning_rate, weight_decay_rate, exclude_from_weight_decay, name: see `AdamWeightDecayOptimizer`.
          decay_exponent: the exponent 0.8 in the formula of β, see the docstring of the class.
          clipping_threshold: the d of the formulas.
          epsilon: the ε of the formulas.
        """
        super().__init__(learning_rate, weight_decay_rate, exclude_from_weight_decay, name)
        self.decay_exponent = decay_exponent
        self.clipping_threshold = clipping_threshold
        self.epsilon = epsilon

    @classmethod
    def slot_shapes(cls, shape):
        """Returns {name of a slot: its shape}, for a variable with the given shape."""
        row, column, v = cls.SLOTS
        return {row: shape[:1], column: shape[1:]} if len(shape) == 2 else {v: shape}

    def _prepare(self):
        self._beta = 1.0 - _next_step() ** -self.decay_exponent

    def _apply(self, gradient, variable, slots, rate, name):
        squares = tf.square(gradient) + self.epsilon
        if len(slots) == 2:
            row = self._averaged(slots[0], tf.reduce_mean(squares, axis=1))
            column = self._averaged(slots[1], tf.reduce_mean(squares, axis=0))
            update = gradient * tf.rsqrt(row / tf.reduce_mean(row))[:, tf.newaxis] * tf.rsqrt(column)
        else:
            update = gradient * tf.rsqrt(self._averaged(slots[0], squares))
        rms = tf.global_norm([update]) / math.sqrt(max(variable.shape.num_elements(), 1))
        return tf.assign_sub(variable, rate / tf.maximum(1.0, rms / self.clipping_threshold) * update).op

    def _averaged(self, slot, value):
        """Adds a value to the moving average in a slot; returns the new average."""
        return tf.convert_to_tensor(tf.assign_sub(slot, (1.0 - self._beta) * (slot.read_value() - value)))


class MomentumWeightDecayOptimizer(_WeightDecayOptimizer):
    """Implements gradient descent with momentum (Polyak 1964) and decoupled weight decay.

    This is algorithm 1 of Loshchilov and Hutter 2017, arXiv:1711.05101.

        m ← μ m + g        w ← w − η (m + λ w)

    The slot is `<name>/momentum`. State: 4 bytes for each parameter.
    """

    SLOTS = ("momentum",)

    def __init__(self, learning_rate, weight_decay_rate=0.0, momentum=0.9, exclude_from_weight_decay=None,
                 name="MomentumWeightDecayOptimizer"):
        """Creates the optimizer; momentum is μ, and all other arguments are the same as those of
        `AdamWeightDecayOptimizer`."""
        super().__init__(learning_rate, weight_decay_rate, exclude_from_weight_decay, name)
        self.momentum = momentum

    def _apply(self, gradient, variable, slots, rate, name):
        return _run_kernel("ApplyMomentum", variable, dict(
            accum=_handle(slots[0]), lr=rate, grad=gradient, momentum=self.momentum))


OPTIMIZERS = {"adamw": AdamWeightDecayOptimizer, "adafactor": AdafactorOptimizer, "lamb": LambOptimizer,
              "sgdm": MomentumWeightDecayOptimizer}


def slot_shapes(shapes, optimizer="adamw"):
    """Returns the slots that an optimizer creates: {name: shape}.

    Args:
      shapes: {name: shape} of the trainable variables.
      optimizer: a name in `OPTIMIZERS`.
    """
    optimizer_class = _known(OPTIMIZERS, "optimizer", optimizer)
    return {f"{name}/{slot}": slot_shape for name, shape in shapes.items()
            for slot, slot_shape in optimizer_class.slot_shapes(shape).items()}


def _next_step():
    """Returns the number of the current step as a float32 scalar tensor. The first step has the number 1."""
    return tf.cast(tf.train.get_or_create_global_step(), tf.float32) + 1.0


def _powers(*bases):
    """Returns the list of the powers baseᵗ, where t is the number of the current step (see `_next_step`)."""
    return [tf.pow(base, _next_step()) for base in bases]


def _handle(variable):
    """Returns the tensor by which ops update a variable in place: a resource handle or a reference."""
    return variable.op.outputs[0]


def _is_resource(variable):
    return _handle(variable).dtype == tf.resource


def _run_kernel(name, variable, arguments):
    """Returns the op that updates a variable with a fused kernel of TensorFlow, such as "ApplyAdam"."""
    if _is_resource(variable):
        return getattr(tf.raw_ops, f"Resource{name}")(var=_handle(variable), **arguments)
    return getattr(tf.raw_ops, name)(var=_handle(variable), **arguments).op
