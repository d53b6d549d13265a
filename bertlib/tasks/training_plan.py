"""Plans a training: describes the model, makes a `StepConfig` that fits into memory, and logs the size of the
training."""

from collections.abc import Callable
import dataclasses
import math
import shlex

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator import memory_planner, run_config
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.estimator.step_config import (
    RECOMPUTE,
    StepConfig,
    divisors,
    flags_for_less_memory,
    plan_step,
)
from bertlib.graph import kernel_choice
from bertlib.system import replica_group, terminal
from bertlib.tasks import head as task_head
import modeling
import optimization

# A training with fewer steps, such as three epochs of 300 sentences, has hardly learned.
_FEW_STEPS = 100


@dataclasses.dataclass(frozen=True)
class TrainableModel:
    """Describes the model of a command. The memory planner simulates this model, and the Estimator trains it.

    Attributes:
      bert_config: the `modeling.BertConfig`.
      head: the head, a `bertlib.tasks.head.Head`.
      feature_fields: function that takes the sequence length and returns the `input_pipeline.Field`s of a
        training example.
      build_model_fn: function that takes a head and returns the model_fn of `head.model_fn_builder`.
    """

    bert_config: modeling.BertConfig
    head: task_head.Head
    feature_fields: Callable[[int], list]
    build_model_fn: Callable

    def build(self, step_config):
        """Builds a training step in the current graph. Its input consists of placeholders for one
        micro-batch. With two or more micro-batches, the graph also contains the sums of the gradients.
        Returns the op of the step."""
        tf.train.get_or_create_global_step()
        batch = step_config.batch
        features = input_pipeline.placeholders(self.feature_fields(step_config.max_seq_length),
                                               batch.micro_batch_size, self.head.batch_totals)
        # A step with more than two micro-batches needs as much memory as a step with two micro-batches. So
        # no more than two are built.
        built_step = dataclasses.replace(
            step_config, gradient_accumulation_steps=min(2, batch.num_micro_batches))
        return self.build_spec(features, ModeKeys.TRAIN, built_step).train_op

    def build_spec(self, features, mode, step_config):
        """Builds the model of a `StepConfig` on the tensors of a batch; returns its `EstimatorSpec`."""
        model_fn = self.build_model_fn(self.head)
        return model_fn(features, None, mode, {}, run_config.RunConfig(step_config=step_config))

    def memory_need(self, step_config):
        """Simulates a micro-batch of a step, and returns its `memory_planner.MemoryNeed`."""
        # The simulated step does not use the kernels of --compile_kernels: the simulated GPU does not know
        # the ops of these kernels, and these ops need no more memory than TensorFlow's ops. The simulated
        # step also keeps the padding: the simulation needs static shapes, but the number of real tokens is
        # not known.
        model = dataclasses.replace(self, head=self.head.simulated())
        simulated_step = dataclasses.replace(
            step_config, compile_kernels=False, use_xla=False, remove_padding=False)
        return memory_planner.predict_memory(model.build, simulated_step)

    def upper_bound(self, step_config):
        """Returns a number of bytes that is far above the memory that a micro-batch of a step needs. If this
        number of bytes is free, the micro-batch certainly fits, so the step is not simulated."""
        config, length = self.bert_config, step_config.max_seq_length
        if config is None:  # the encoder is a hub module, for which there is no formula
            return math.inf
        # Size of the activations for one position and one layer, in bytes. Each number has 32 bits.
        # Equation 2 of Korthikanti et al. 2022, arXiv:2205.05198, is for numbers of 16 bits, so its factors
        # are 34 and 5 instead of 68 and 10. The return value counts the activations twice, so that it is far
        # above the memory need.
        a_position = 68 * config.hidden_size + 10 * config.num_attention_heads * length
        weights = modeling.variable_shapes(config)
        slots = optimization.slot_shapes(weights, step_config.optimizer)
        # Three fp32 numbers for each weight: the weight, its gradient, and the sum of the gradients of the
        # micro-batches. Each number in a slot of the optimizer has 32 bits, too.
        numbers = 3 * _count_numbers(weights) + _count_numbers(slots)
        positions = step_config.batch.micro_batch_size * self.head.sequences_per_example * length
        return 4 * numbers + 2 * positions * config.num_hidden_layers * a_position


def _count_numbers(shapes):
    return sum(math.prod(shape) for shape in shapes.values())


def create_trainable(task, starting_checkpoint):
    """Returns the `TrainableModel` of a task.

    Args:
      task: a `bertlib.tasks.task.Task`.
      starting_checkpoint: see `starting_weights.choose`.
    """
    num_train_steps, warmup_steps = task.num_train_steps(), task.num_warmup_steps()

    def build_model_fn(head):
        return task_head.model_fn_builder(
            head, task.config, starting_checkpoint, task.settings.learning_rate, num_train_steps,
            warmup_steps, build_encoder=task.encoder_module and task.encoder_module.build)

    return TrainableModel(task.config, task.head_for_training(), task.feature_fields, build_model_fn)


# --- The step --------------------------------------------------------------------------------------------


def create_step_config(settings, trainable, trims_padding):
    """Resolves the flags into the configuration of a training step.

    Logs the values that were chosen, and warns if the step will probably not fit into memory.

    Args:
      settings: a `Settings`.
      trainable: a `TrainableModel`.
      trims_padding: whether the batches of the training are trimmed, see `Task.trims_padding`.

    Returns:
      a `StepConfig`.

    Raises:
      ValueError: flags contradict each other, or no configuration fits into memory.
    """
    requested = _requested_step(settings, trainable, trims_padding)
    if not settings.do_train:  # the other settings of the training keep their defaults
        return StepConfig(train_batch_size=requested.train_batch_size,
                          max_seq_length=requested.max_seq_length, precision=requested.precision,
                          compile_kernels=requested.compile_kernels)
    if requested.use_xla and not tf.config.list_physical_devices("GPU"):
        logging.warning("--use_xla=true without a GPU: on a CPU, a training without this flag is faster.")
    usable, source = memory_planner.usable_memory(settings.memory_limit_gb)
    if requested.recompute == "auto" or requested.gradient_accumulation_steps == 0:
        logging.info("Simulating which batches fit into %s.", source)
    planned = plan_step(requested, (usable, source), trainable.memory_need, trainable.upper_bound,
                        trainable.head.sequences_per_example)
    for is_warning, text in planned.messages:
        (logging.warning if is_warning else logging.info)("%s", text)
    if not planned.may_not_fit or not tf.config.list_physical_devices("GPU"):
        return planned.step_config
    step_config = _split_until_it_fits(settings, trainable, planned.step_config)
    if group := replica_group.current():
        # One replica may need more micro-batches than the others. All replicas use the largest number.
        counts = group.all_gather(step_config.gradient_accumulation_steps)
        step_config = dataclasses.replace(step_config, gradient_accumulation_steps=max(counts))
    return step_config


def _requested_step(settings, trainable, trims_padding):
    """Returns the `StepConfig` that the flags request, the argument `requested` of `plan_step`. For the
    arguments, see `create_step_config`."""
    group = replica_group.current()
    return dataclasses.replace(
        StepConfig.from_flags(settings), num_replicas=group.count if group else 1, trim_padding=trims_padding,
        remove_padding=trims_padding and trainable.head.padding_is_removable and not settings.use_xla,
        compile_kernels=_compiles_kernels(settings, trainable.bert_config))


def _compiles_kernels(settings, config):
    """Returns whether the run compiles kernels for the CPU of this machine."""
    if settings.use_xla and settings.compile_kernels:
        raise ValueError("--use_xla=true and --compile_kernels=true replace the same ops of TensorFlow. Pass "
                         "only one of the two flags.")
    if settings.compile_kernels is not None or settings.use_xla:
        return bool(settings.compile_kernels)
    return kernel_choice.is_faster(config.hidden_size)


def _split_until_it_fits(settings, trainable, step_config):
    """Runs a step of one micro-batch. If memory runs out, divides the batch into more and smaller
    micro-batches and tries again, until a step fits. Returns the `StepConfig` of the step that ran."""
    while not memory_planner.trial_step_fits(trainable.build, step_config):
        more = [count for count in divisors(step_config.train_batch_size // step_config.num_replicas)
                if count >= 2 * step_config.gradient_accumulation_steps]
        if not more:
            raise ValueError(out_of_memory_message(settings, trainable, step_config))
        logging.warning("A micro-batch of %d ran out of memory: using --gradient_accumulation_steps=%d "
                        "instead of %d.",
                        step_config.batch.micro_batch_size, more[0], step_config.gradient_accumulation_steps)
        step_config = dataclasses.replace(step_config, gradient_accumulation_steps=more[0])
    logging.info("--gradient_accumulation_steps=%d: a micro-batch of %d fits into memory.",
                 step_config.gradient_accumulation_steps, step_config.batch.micro_batch_size)
    return step_config


# --- Messages --------------------------------------------------------------------------------------------


def log_training(task):
    """Logs the size of the training of a `bertlib.tasks.task.Task`, its learning rate, and the command that
    shows its curves. Logs nothing if all steps are already trained."""
    settings, num_train_steps, last_step = task.settings, task.num_train_steps(), task.last_step()
    if settings.output_directory.latest_checkpoint and settings.output_directory.step >= last_step:
        return
    epochs = (f"--num_train_epochs={settings.num_train_epochs:g} means "
              if "num_train_epochs" in settings else "")
    logging.info("Training on %s: %s%s with a batch size of %d and --seed=%d.", task.training_size(), epochs,
                 terminal.counted(num_train_steps, "step"), settings.train_batch_size, settings.seed)
    if epochs and num_train_steps < _FEW_STEPS and settings.train_batch_size > 8:
        logging.info("The training has fewer than %d steps. For a few hundred examples, --train_batch_size=8 "
                     "--num_train_epochs=8 usually gives better scores (with another --output_dir).",
                     _FEW_STEPS)
    rate, warmup_steps = settings.learning_rate, task.num_warmup_steps()
    if warmup_steps:
        logging.info("The learning rate rises from 0 toward --learning_rate=%g in %s of warm-up.", rate,
                     terminal.counted(warmup_steps, "step"))
    start = "After warm-up, the" if warmup_steps else "The"
    if settings.lr_schedule != "linear":
        logging.info("%s learning rate is %.4g and follows --lr_schedule=%s.", start, rate,
                     settings.lr_schedule)
    elif warmup_steps < num_train_steps:
        logging.info("%s learning rate is %.4g and decays to 0, because --lr_schedule=linear counts from "
                     "step 0.", start, rate * (1 - warmup_steps / num_train_steps))
    if last_step < num_train_steps:
        logging.info("--max_steps=%d: the training ends at step %d of %d. The learning rate still follows "
                     "the schedule of %d steps.",
                     settings.max_steps, last_step, num_train_steps, num_train_steps)
    logging.info("The package tensorboard shows the curves of the training: tensorboard --logdir %s",
                 shlex.quote(settings.output_dir))


def out_of_memory_message(settings, trainable, step_config):
    """Returns an error message for a run that is out of memory. The message says which flags to change."""
    # With replicas, no step is simulated: the simulation takes minutes, and the other replicas would wait.
    if replica_group.current():
        fewer = flags_for_less_memory(step_config.tokens_per_micro_batch)
        return f"out of memory. Pass {fewer}; plan_memory.py shows which batches fit."
    logging.info("Out of memory. Simulating which batches would fit. For a large model, this takes minutes.")
    changes = [{}]
    changes += [{"recompute": mode}
                for mode in RECOMPUTE[RECOMPUTE.index(step_config.recompute) + 1:]]
    if step_config.optimizer != "adafactor":
        changes.append({**changes[-1], "optimizer": "adafactor"})
    if step_config.max_seq_length >= 32:
        changes.append({"max_seq_length": step_config.max_seq_length // 2})
    alternatives = {" ".join(f"--{name}={value}" for name, value in change.items())
                    or "no change": dataclasses.replace(step_config, **change) for change in changes}
    usable, source = memory_planner.usable_memory(settings.memory_limit_gb)
    return f"out of memory ({source}).\n" + memory_planner.advice(alternatives, trainable.memory_need, usable)
