"""Plans the configuration of a training step, once, before the graph is built. This module does not load
TensorFlow.

    flags, free memory ── plan_step ──> StepConfig ──> planner, Estimator, model builder
"""

import bisect
import dataclasses
import functools
import math
import re

from bertlib.data.batches import LENGTH_STEP, LENGTH_STEP_OF_XLA, Batch, divisors

GB = 10**9
# The values of `StepConfig.recompute`, the fastest first; see `modeling.transformer_model`.
RECOMPUTE = ("none", "attention", "layers")
# The values of `StepConfig.precision`, `StepConfig.optimizer` and `StepConfig.lr_schedule`; see
# `modeling.PRECISIONS`, `optimization.OPTIMIZERS` and `optimization.LR_SCHEDULES`.
PRECISIONS = ("fp32", "bf16", "fp16")
OPTIMIZERS = ("adamw", "adafactor", "lamb", "sgdm")
LR_SCHEDULES = ("linear", "cosine", "exponential", "constant")
# If the predicted memory is above this fraction of the usable memory, it is uncertain whether the step fits.
SURELY_FITS = 0.93


@dataclasses.dataclass(frozen=True)
class StepConfig:
    """The configuration of a training step: its batch, its micro-batches, and the way to compute them. The
    default values are those of the published code. For a command, `from_flags` copies each flag that has the
    name of an attribute. A model for evaluation or prediction uses only precision, compile_kernels and
    portable_ops.

    Attributes:
      train_batch_size: number of examples in the effective batch, to which the learning rate refers.
      gradient_accumulation_steps: number of micro-batches that each replica computes, one after the other.
      num_replicas: number of replicas, which compute at the same time.
      tokens_per_micro_batch: the largest number of tokens in a micro-batch, if micro-batches may have
        different numbers of examples; 0 if all micro-batches have the same number of examples.
      max_seq_length: number of tokens in the longest example.
      trim_padding: whether each training batch is trimmed to the length of its longest example. Evaluation
        ignores this attribute.
      remove_padding: whether the encoder skips padding in training. The outputs of the encoder are then zero
        at padding, except at a few positions (see `bertlib.graph.packing`). The dropout masks differ from the
        masks of a run with padding, and depend on the division of the batch into micro-batches.
      precision: data type of the encoder's matrix products, and of the tensors between them: "fp32", "bf16"
        or "fp16". Sums, softmax and normalization are computed in float32 (Micikevicius et al. 2017,
        arXiv:1710.03740). Variables, embeddings, pooler and all outputs are always float32.
      recompute: the parts that the backward pass recomputes: "none", "attention" or "layers"; see
        `modeling.transformer_model`.
      recompute_segment: number of layers in a recomputed segment.
      gradient_dtype: data type used to exchange gradients between replicas: "fp32" or "bf16".
      compile_kernels: whether kernels are compiled for this machine's CPU; see
        `bertlib.graph.kernel_choice`.
      use_xla: whether XLA compiles the computations between matrix products of a training.
      portable_ops: whether evaluation and prediction use only ops that ONNX also has. A training ignores it.
      optimizer, lr_schedule: names in `OPTIMIZERS` and `LR_SCHEDULES`.
      adam_bias_correction: whether "adamw" corrects the bias; see `optimization.AdamWeightDecayOptimizer`.
      weight_decay: λ of the optimizer, at least 0.
      clip_norm: largest global norm of the gradients; larger gradients are scaled down to this norm. 0 for no
        clipping.
      layer_decay: factor ξ between the learning rates of neighboring layers, above 0 and at most 1; see
        `optimization.rate_factors`. 1.0 for the same rate in all layers.
      freeze_layers: number of layers that are not trained, counted from the lowest layer. If it is not 0, the
        embeddings are not trained either. No gradients are computed for frozen variables, and the optimizer
        has no slots for them. The norm of the gradients is computed from the trained variables only.
      freeze_embeddings: whether the embeddings are frozen.
    """

    train_batch_size: int = 32
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1
    tokens_per_micro_batch: int = 0
    max_seq_length: int = 128
    trim_padding: bool = False
    remove_padding: bool = False
    precision: str = "fp32"
    recompute: str = "none"
    recompute_segment: int = 1
    gradient_dtype: str = "fp32"
    compile_kernels: bool = False
    use_xla: bool = False
    portable_ops: bool = False
    optimizer: str = "adamw"
    lr_schedule: str = "linear"
    adam_bias_correction: bool = False
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    layer_decay: float = 1.0
    freeze_layers: int = 0
    freeze_embeddings: bool = False

    @classmethod
    def from_flags(cls, settings):
        """Returns a `StepConfig` with the values of the flags that have the name of an attribute."""
        names = [field.name for field in dataclasses.fields(cls) if field.name in settings]
        return cls(**{name: getattr(settings, name) for name in names})

    @property
    def loss_scaling(self):
        """Whether the loss is scaled, so that small gradients do not become 0."""
        return self.precision == "fp16"

    @property
    def batch(self):
        """The `Batch` of the step."""
        return Batch(self.train_batch_size, self.gradient_accumulation_steps, self.num_replicas,
                     is_unequal=self.tokens_per_micro_batch > 0,
                     length_step=LENGTH_STEP_OF_XLA if self.use_xla else LENGTH_STEP)


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """The result of `plan_step`.

    Attributes:
      step_config: the `StepConfig`.
      messages: list of messages for the log. Each message is a pair: bool, whether the message is a warning;
        and str, its text.
      may_not_fit: whether a trial of the step must decide on a GPU, because the simulation is not exact
        enough. True if the simulation chose the number of micro-batches, or if equal micro-batches need about
        as much memory as there is, or more.
    """

    step_config: StepConfig
    messages: list
    may_not_fit: bool = False


def plan_step(requested, memory, memory_need, upper_bound=lambda step_config: math.inf,
              sequences_per_example=1):
    """Returns the configuration of a training's steps, from the requested one and the memory.

    Args:
      requested: a `StepConfig` with two more possible values than usual: `recompute` may be "auto", and
        `gradient_accumulation_steps` may be None (not requested) or 0 (the number that fits into memory).
      memory: (bytes that a step may use, description of this memory for messages).
      memory_need: function that takes a `StepConfig` and returns the memory and the time for one micro-batch:
        an object with `total` and `activations` (bytes) and `seconds`, such as a `memory_planner.MemoryNeed`.
        The function simulates the step, which takes seconds to minutes.
      upper_bound: function that takes a `StepConfig` and returns an upper bound of the bytes of a
        micro-batch. If this bound fits into memory, no warning is needed, and the step is not simulated.
      sequences_per_example: number of sequences in an example.

    Returns:
      a `PlannedStep`.

    Raises:
      ValueError: flags contradict each other, or no configuration fits into memory.
    """
    count, messages = requested.gradient_accumulation_steps, []
    if requested.tokens_per_micro_batch:
        count, messages = _count_by_tokens(requested, sequences_per_example)
    elif count is None:
        count = 1
    modes = RECOMPUTE if requested.recompute == "auto" else (requested.recompute,)
    step_config = dataclasses.replace(requested, gradient_accumulation_steps=count or 1, recompute=modes[0])
    step_config.batch.check()
    usable, source = memory

    def is_close(need):
        return need.total > SURELY_FITS * usable and not step_config.batch.is_unequal

    if requested.recompute == "auto" or not count:
        memory_need, counts = functools.cache(memory_need), [count] if count else None
        try:
            step_config, need = choose(step_config, SURELY_FITS * usable, memory_need, modes, counts)
        except ValueError:  # what nearly fills the memory is better than nothing
            step_config, need = choose(step_config, usable, memory_need, modes, counts)
        text = (f"--recompute={step_config.recompute} "
                f"--gradient_accumulation_steps={step_config.gradient_accumulation_steps}: a micro-batch of "
                f"{step_config.batch.micro_batch_size} needs {need}.")
        return PlannedStep(step_config, [*messages, (False, text)],
                            may_not_fit=not count or is_close(need))
    if upper_bound(step_config) <= usable:
        return PlannedStep(step_config, messages)
    need = memory_need(step_config)
    if need.total > usable:
        messages.append((True, f"A micro-batch of {step_config.batch.micro_batch_size} will probably not fit:"
                         f" by simulation it needs {need}, but the usable memory is {source}. "
                         f"Pass {flags_for_less_memory(requested.tokens_per_micro_batch)}."))
    return PlannedStep(step_config, messages, is_close(need))


def parse_steps(text):
    """Returns the two numbers of --profile_steps; None if the text is not two numbers in ascending order."""
    match = re.fullmatch(r"(\d+),(\d+)", text)
    steps = match and tuple(map(int, match.groups()))
    return steps if steps and 1 <= steps[0] <= steps[1] else None


def flags_for_less_memory(tokens_per_micro_batch):
    """Returns the flags that reduce the memory of a step, as text for a message."""
    if tokens_per_micro_batch:
        return "a smaller --tokens_per_micro_batch, or --recompute=auto"
    return "--gradient_accumulation_steps=0 --recompute=auto, which choose a step that fits"


def gb(size):
    """Returns a number of bytes as text, such as "0.41 GB"."""
    return f"{size / GB:.2f} GB" if size >= 0.1 * GB else f"{size / 1e6:.3f} MB"


# --- The number of micro-batches -------------------------------------------------------------------------


def _count_by_tokens(requested, sequences):
    """Resolves --tokens_per_micro_batch. Returns a pair: the number of micro-batches on each replica, and the
    messages for the log.

    Args:
      requested: see `plan_step`.
      sequences: number of sequences in an example.

    Raises:
      ValueError: the flags contradict each other.
    """
    tokens, batch_size = requested.tokens_per_micro_batch, requested.train_batch_size
    length = requested.max_seq_length * sequences
    count = requested.gradient_accumulation_steps
    if not requested.trim_padding:
        raise ValueError("--tokens_per_micro_batch needs --trim_padding=true: untrimmed examples all have "
                         "the same number of tokens. Pass --trim_padding=true, or leave "
                         "--tokens_per_micro_batch out.")
    if tokens < length:
        raise ValueError(f"--tokens_per_micro_batch={tokens} is below --max_seq_length="
                         f"{requested.max_seq_length}" + f" × {sequences} sequences" * (sequences > 1)
                         + f": a long example would not fit. Pass at least {length}.")
    if count == 0:
        raise ValueError("--gradient_accumulation_steps=0 chooses micro-batches by memory, but "
                         "--tokens_per_micro_batch chooses them by tokens: leave one of the two flags out.")
    replicas = requested.num_replicas
    least_count = math.ceil(math.ceil(batch_size / (tokens // length)) / replicas)
    of_each = f" on each of {replicas} replicas" if replicas > 1 else ""
    if count is None:
        count = least_count
    if count * replicas > batch_size:
        raise ValueError(f"--gradient_accumulation_steps={count}{of_each}: "
                         f"--train_batch_size={batch_size} can be split into at most {batch_size} "
                         "micro-batches.")
    if requested.gradient_accumulation_steps is None:
        return least_count, [(False, f"--gradient_accumulation_steps not given: using {least_count} (the "
                              f"number that --tokens_per_micro_batch={tokens} needs{of_each} if all "
                              f"{batch_size} examples have {length} tokens)")]
    if count < least_count:
        raise ValueError(f"--gradient_accumulation_steps={count} is too small for "
                         f"--tokens_per_micro_batch={tokens} if all {batch_size} examples have {length} "
                         f"tokens. Pass --gradient_accumulation_steps={least_count} or "
                         f"--tokens_per_micro_batch={math.ceil(batch_size / (count * replicas)) * length}.")
    return count, []


# --- The settings that fit into memory -------------------------------------------------------------------


def choose(step_config, usable_bytes, memory_need, modes=RECOMPUTE, counts=None):
    """Chooses `recompute` and `gradient_accumulation_steps`: the fastest combination that fits into memory.

    Args:
      step_config: a `StepConfig`. Its `recompute` and its `gradient_accumulation_steps` are ignored.
      usable_bytes: the memory that the step may use.
      memory_need: function that takes a `StepConfig` and returns its `memory_planner.MemoryNeed`. It is
        called several times with the same argument, so it should keep its results.
      modes: the values of `recompute` to choose from, the fastest first.
      counts: numbers of micro-batches to choose from, in ascending order. None to choose from all divisors of
        the number of examples on a replica.

    Returns:
      (the chosen `StepConfig`, the return value of `memory_need` for it).

    Raises:
      ValueError: no combination fits into memory. The message names the combination that needs the least
        memory, and says how much it needs.
    """
    counts = counts or divisors(step_config.train_batch_size // step_config.num_replicas)
    fitting_steps, too_large = [], []
    for mode in modes:
        if any(step.gradient_accumulation_steps == counts[0] for step in fitting_steps):
            # A faster mode of recomputation already fits with the smallest possible number of micro-batches.
            # `mode` cannot use fewer micro-batches, so it would only make the step slower.
            break
        candidates = [dataclasses.replace(step_config, recompute=mode, gradient_accumulation_steps=count)
                      for count in counts]
        fewest = _fewest(candidates, usable_bytes, memory_need)
        if fewest:
            fitting_steps.append(fewest)
        else:
            too_large += [candidates[0], candidates[-1]]
    if not fitting_steps:
        least = min(too_large, key=lambda candidate: memory_need(candidate).total)
        raise ValueError(f"{gb(usable_bytes)} are usable, but the setting that needs least memory, "
                         f"recompute={least.recompute} with micro-batches of {least.batch.micro_batch_size}, "
                         f"needs {memory_need(least)}. Use "
                         "shorter sequences, a smaller model or an optimizer with less state.")
    best = min(fitting_steps,
               key=lambda step: step.gradient_accumulation_steps * memory_need(step).seconds)
    return best, memory_need(best)


def _fewest(candidates, usable_bytes, memory_need):
    """Returns the candidate that fits into memory with the fewest micro-batches; None if no candidate fits.

    With more micro-batches, a step needs less memory, so a binary search finds the candidate. The first
    candidate, which may have a single micro-batch, is tried separately. A single micro-batch needs no
    accumulators, so it may fit even if two micro-batches do not fit.

    Args:
      candidates: list of `StepConfig` with ascending numbers of micro-batches.
      usable_bytes: the memory that a step may use.
      memory_need: function that takes a `StepConfig` and returns its `memory_planner.MemoryNeed`.
    """
    first, *others = candidates
    if memory_need(first).total <= usable_bytes:
        return first
    place = bisect.bisect_left(others, True,
                               key=lambda candidate: memory_need(candidate).total <= usable_bytes)
    return others[place] if place < len(others) else None
