"""The configuration of a training step, resolved once, before the graph is built. Loads no TensorFlow.

    flags, free memory ── resolve ──> StepConfig ──> planner, Estimator, model builder
"""

import bisect
import dataclasses
import functools
import math

GB = 10**9
# What the backward pass may compute again, the fastest first; see `modeling.transformer_model`.
RECOMPUTE = ("none", "attention", "layers")


@dataclasses.dataclass(frozen=True)
class StepConfig:
    """The configuration of a training step: its examples, their micro-batches, and how these are computed.

    Attributes:
      train_batch_size: examples of the effective batch, which learning rate, schedule and log are about.
      gradient_accumulation_steps: micro-batches that a replica computes, one after the other.
      replicas: how many compute at the same time.
      tokens_per_micro_batch: 0 for micro-batches of equal numbers of examples; otherwise they differ in
        these, and none holds more tokens.
      max_seq_length: tokens of the longest example.
      trim: whether training batches are cut after their longest example; evaluation does not use it.
      remove_padding: whether the encoder leaves out what padding is left.
      precision: data type of the encoder's computation: "fp32", "bf16" or "fp16".
      recompute: the parts that the backward pass recomputes: "none", "attention" or "layers".
      recompute_segment: number of layers in a recomputed segment.
      gradient_dtype: data type used to exchange gradients between replicas: "fp32" or "bf16".
      compile_kernels: whether kernels are made for this machine's CPU.
      optimizer, lr_schedule, adam_bias_correction: see `optimization.create_optimizer`.
    """

    train_batch_size: int = 32
    gradient_accumulation_steps: int = 1
    replicas: int = 1
    tokens_per_micro_batch: int = 0
    max_seq_length: int = 128
    trim: bool = False
    remove_padding: bool = False
    precision: str = "fp32"
    recompute: str = "none"
    recompute_segment: int = 1
    gradient_dtype: str = "fp32"
    compile_kernels: bool = False
    optimizer: str = "adamw"
    lr_schedule: str = "linear"
    adam_bias_correction: bool = False

    @property
    def loss_scaling(self):
        """Whether the loss is scaled, so that small gradients are not lost."""
        return self.precision == "fp16"

    @property
    def unequal_micro_batches(self):
        """Whether micro-batches differ in their numbers of examples."""
        return self.tokens_per_micro_batch > 0

    @property
    def micro_batches(self):
        """Number of micro-batches of all replicas in an effective batch."""
        return self.gradient_accumulation_steps * self.replicas

    @property
    def micro_batch_size(self):
        """Examples of a micro-batch; if they differ, the number that needs most memory, at full length."""
        return math.ceil(self.train_batch_size / self.micro_batches)

    def replace(self, **changes):
        """Returns a step that differs in some attributes."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class ResolvedStep:
    """The result of `resolve`: the `StepConfig`, and [(whether it is a warning, text)] for the log."""

    step: StepConfig
    messages: list


def resolve(flags, memory, simulate, bound=lambda step: math.inf):
    """Resolves the flags of a training into the configuration of its steps.

    Args:
      flags: has the values of the training flags as attributes; `trim_padding` and `compile_kernels` are no
        longer None, and `gradient_accumulation_steps` is None if it was not given, 0 for what fits.
        `remove_padding` says whether the model may leave out padding.
      memory: (bytes that a step may take, what they are).
      simulate: function of a `StepConfig` that returns what a micro-batch of it needs: has `total`,
        `activations` (bytes) and `seconds`.
      bound: function of a `StepConfig` that returns bytes that a micro-batch of it surely does not exceed.
        Where they fit, nothing is simulated to warn of too large a step.

    Returns:
      a `ResolvedStep`.

    Raises:
      ValueError: flags contradict each other, or nothing fits.
    """
    replicas = flags.num_replicas
    count, default_messages = _accumulation_steps(flags)
    modes = RECOMPUTE if flags.recompute == "auto" else (flags.recompute,)
    step = StepConfig(
        train_batch_size=flags.train_batch_size, gradient_accumulation_steps=count or 1, replicas=replicas,
        gradient_dtype=flags.gradient_dtype,
        tokens_per_micro_batch=flags.tokens_per_micro_batch, max_seq_length=flags.max_seq_length,
        trim=flags.trim_padding,
        remove_padding=flags.remove_padding, precision=flags.precision, recompute=modes[0],
        recompute_segment=flags.recompute_segment, compile_kernels=flags.compile_kernels,
        optimizer=flags.optimizer,
        lr_schedule=flags.lr_schedule, adam_bias_correction=flags.adam_bias_correction)
    if count and not step.unequal_micro_batches:
        check_equal_micro_batches(step.train_batch_size, count, replicas)
    if not count:
        check_equal_micro_batches(step.train_batch_size, 1, replicas)
    usable, source = memory
    if flags.recompute == "auto" or not count:
        step, needed = choose(step, usable, simulate, modes, [count] if count else None)
        text = (f"--recompute={step.recompute} "
                f"--gradient_accumulation_steps={step.gradient_accumulation_steps}: a micro-batch of "
                f"{step.micro_batch_size} needs {needed}.")
        return ResolvedStep(step, [*default_messages, (False, text)])
    if bound(step) <= usable:
        return ResolvedStep(step, default_messages)
    needed = simulate(step)
    if needed.total <= usable:
        return ResolvedStep(step, default_messages)
    text = (f"A micro-batch of {step.micro_batch_size} will probably not fit: by simulation it needs "
            f"{needed}, and there are {source}. Pass {flags_for_less_memory(flags.tokens_per_micro_batch)}.")
    return ResolvedStep(step, [*default_messages, (True, text)])


def without_training(flags):
    """Returns the `StepConfig` of a run that does not train.

    Only the settings of the model are taken from the flags; settings of the training keep their defaults.
    """
    return StepConfig(train_batch_size=flags.train_batch_size, max_seq_length=flags.max_seq_length,
                        precision=flags.precision, compile_kernels=flags.compile_kernels)


def flags_for_less_memory(tokens_per_micro_batch=0):
    """What to pass for micro-batches that fit."""
    if tokens_per_micro_batch:
        return "a smaller --tokens_per_micro_batch, or --recompute=auto"
    return "--gradient_accumulation_steps=0 --recompute=auto, which find what fits"


def gb(size):
    """Returns a number of bytes as text."""
    return f"{size / GB:.2f} GB" if size >= 0.1 * GB else f"{size / 1e6:.3f} MB"


# --- How many micro-batches ------------------------------------------------------------------------------


def check_equal_micro_batches(batch_size, gradient_accumulation_steps, replicas=1):
    """Returns the number of examples in each of some equal micro-batches, so many on each of the replicas.

    Raises:
      ValueError: the batch is not divisible; names the nearest sizes that are.
    """
    parts = gradient_accumulation_steps * replicas
    rest = batch_size % parts
    if rest:
        sizes = [size for size in (batch_size - rest, batch_size - rest + parts) if size]
        below = [n for n in divisors(batch_size) if n < parts]
        near = below[-1:] + divisors(batch_size)[len(below):][:1]
        each = f" ({gradient_accumulation_steps} on each of {replicas} replicas)" if replicas > 1 else ""
        raise ValueError(f"A training batch of {batch_size} examples cannot be split into "
                         f"{parts} equal micro-batches{each}. Batches of "
                         f"{' or '.join(map(str, sizes))} can; this one can be split into "
                         f"{' or '.join(map(str, near))}.")
    return batch_size // parts


def divisors(number):
    """Returns all divisors of a positive int, the smallest first."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _accumulation_steps(flags):
    """Returns (the number of micro-batches, 0 if it is open; messages).

    Raises:
      ValueError: the flags contradict each other.
    """
    tokens, length, batch_size = flags.tokens_per_micro_batch, flags.max_seq_length, flags.train_batch_size
    count = flags.gradient_accumulation_steps
    if not tokens:
        return 1 if count is None else count, []
    if not flags.trim_padding:
        raise ValueError("--tokens_per_micro_batch with --trim_padding=false: untrimmed examples all have "
                         "the same number of tokens. Leave one of them out.")
    if tokens < length:
        raise ValueError(f"--tokens_per_micro_batch={tokens} is below --max_seq_length={length}: an example "
                         f"may not fit. Pass at least {length}.")
    if count == 0:
        raise ValueError("--gradient_accumulation_steps=0 goes by memory and --tokens_per_micro_batch by "
                         "tokens: leave one of them out.")
    replicas = flags.num_replicas
    needed = math.ceil(math.ceil(batch_size / (tokens // length)) / replicas)
    of_each = f" on each of {replicas} replicas" if replicas > 1 else ""
    if count is None:
        count = needed
    if count * replicas > batch_size:
        raise ValueError(f"--gradient_accumulation_steps={count}{of_each}: "
                         f"--train_batch_size={batch_size} examples make at most {batch_size} micro-batches.")
    if flags.gradient_accumulation_steps is None:
        return needed, [(False, f"--gradient_accumulation_steps not given: using {needed} (so many "
                         f"--tokens_per_micro_batch={tokens} takes{of_each} if all {batch_size} examples "
                         f"have {length} tokens)")]
    if count < needed:
        raise ValueError(f"--gradient_accumulation_steps={count} is too little for "
                         f"--tokens_per_micro_batch={tokens} if all {batch_size} examples have "
                         f"--max_seq_length={length} tokens. Pass --gradient_accumulation_steps={needed} or "
                         f"--tokens_per_micro_batch={math.ceil(batch_size / (count * replicas)) * length}.")
    return count, []


# --- What fits -------------------------------------------------------------------------------------------


def choose(step, usable_bytes, simulate, modes=RECOMPUTE, counts=None):
    """Chooses how to take a step: of what fits, that of the least predicted time.

    Args:
      step: the `StepConfig`, but for what is chosen: `recompute` and `gradient_accumulation_steps`.
      usable_bytes: what it may take.
      simulate: see `resolve`.
      modes: what may be recomputed, the fastest first.
      counts: rising numbers of micro-batches to choose from; None for all divisors of the batch size.

    Returns:
      (the `StepConfig`, what it needs).

    Raises:
      ValueError: nothing fits; says what the smallest would need.
    """
    counts = counts or divisors(step.train_batch_size // step.replicas)
    needs = functools.cache(simulate)
    fitting, too_large = [], []
    for mode in modes:
        if any(found.gradient_accumulation_steps == counts[0] for found in fitting):
            break  # further recomputation would only take time
        candidates = [step.replace(recompute=mode, gradient_accumulation_steps=count) for count in counts]
        found = _fewest(candidates, usable_bytes, needs)
        if found:
            fitting.append(found)
        else:
            too_large += [candidates[0], candidates[-1]]
    if not fitting:
        least = min(too_large, key=lambda candidate: needs(candidate).total)
        raise ValueError(f"{gb(usable_bytes)} are usable, but even recompute={least.recompute} with "
                         f"micro-batches of {least.micro_batch_size} needs {needs(least)}. Take shorter "
                         "sequences, a smaller model or an optimizer with less state.")
    best = min(fitting, key=lambda found: found.gradient_accumulation_steps * needs(found).seconds)
    return best, needs(best)


def _fewest(candidates, usable_bytes, needs):
    """Returns the first candidate that fits, or None; they differ in their rising numbers of micro-batches.

    Smaller micro-batches need less memory, but more than one of them need accumulators: the first candidate
    is looked at by itself.
    """
    first, *others = candidates
    if needs(first).total <= usable_bytes:
        return first
    place = bisect.bisect_left(others, True, key=lambda candidate: needs(candidate).total <= usable_bytes)
    return others[place] if place < len(others) else None
