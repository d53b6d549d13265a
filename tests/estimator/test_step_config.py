"""Tests how flags, free memory and a simulation determine a training step. No test loads TensorFlow."""

import collections
import dataclasses

import pytest

from bertlib.data.batches import Batch
from bertlib.estimator.step_config import GB, StepConfig, plan_step

Needs = collections.namedtuple("Needs", ["total", "activations", "seconds"])
FLAGS = dataclasses.asdict(StepConfig(
    gradient_accumulation_steps=None, trim_padding=True, remove_padding=True, compile_kernels=True))


class Simulation:
    """A fake simulation that records its calls.

    The variables take 2 GB. An example takes 1 GB without recomputation, 0.5 GB with recompute="attention",
    and 0.1 GB with recompute="layers".
    """

    def __init__(self):
        self.steps = []

    def __call__(self, step):
        self.steps.append(step)
        share, time = {"none": (1.0, 1.0), "attention": (0.5, 1.05), "layers": (0.1, 1.3)}[step.recompute]
        activations = share * step.batch.micro_batch_size * GB
        return Needs(2 * GB + activations, activations, time * (step.batch.micro_batch_size + 3))


def settled(memory_gb=1000, sequences_per_example=1, **flags):
    simulation = Simulation()
    found = plan_step(StepConfig(**{**FLAGS, **flags}), (memory_gb * GB, "a card"), simulation,
                      sequences_per_example=sequences_per_example)
    return found.step_config, found.messages, simulation.steps


def test_replicas_share_the_batch_with_their_micro_batches():
    step, messages, _ = settled(num_replicas=4, gradient_accumulation_steps=2, gradient_dtype="bf16")
    assert (step.batch, step.gradient_dtype, messages) == (Batch(32, 2, 4), "bf16", [])
    assert (step.batch.num_micro_batches, step.batch.micro_batch_size) == (8, 4)


@pytest.mark.parametrize("memory_gb, mode, count",
                         [(36.6, "none", 1), (36.5, "attention", 1), (19.2, "attention", 2),
                          (5.5, "layers", 2), (2.1, "layers", 32)])  # the last one fits only without a margin
def test_auto_and_0_take_the_fastest_that_fits_with_a_margin(memory_gb, mode, count):
    step, messages, _ = settled(memory_gb, recompute="auto", gradient_accumulation_steps=0)
    assert (step.recompute, step.gradient_accumulation_steps) == (mode, count)
    (is_warning, text), = messages
    assert not is_warning
    assert f"--recompute={mode} --gradient_accumulation_steps={count}: a micro-batch of" in text


def test_auto_alone_keeps_the_number_of_micro_batches_and_0_alone_the_mode():
    assert settled(5, recompute="auto", gradient_accumulation_steps=2)[0].recompute == "layers"
    step, _, steps = settled(5, gradient_accumulation_steps=0)
    assert (step.recompute, step.gradient_accumulation_steps) == ("none", 16)
    assert {tried.recompute for tried in steps} == {"none"} and len(steps) < 6


def test_what_is_given_is_kept_and_warned_of_if_it_will_not_fit():
    step, messages, steps = settled(9, gradient_accumulation_steps=4)
    assert step.gradient_accumulation_steps == 4 and steps == [step]
    (is_warning, text), = messages
    assert is_warning and "A micro-batch of 8 will probably not fit" in text
    assert text.endswith("Pass --gradient_accumulation_steps=0 --recompute=auto, which choose a step that "
                         "fits.")
    assert settled(10.5, gradient_accumulation_steps=4)[1] == []


@pytest.mark.parametrize("memory_gb, flags, expected", [
    (10.7, {}, True), (9, {}, True), (10.8, {}, False),  # a micro-batch of 8 needs 10 GB
    (10.7, {"recompute": "auto"}, False),
    (2.1, {"recompute": "auto", "gradient_accumulation_steps": 32}, True),
    (1000, {"gradient_accumulation_steps": 0}, True),
    (10.7, {"tokens_per_micro_batch": 1024, "gradient_accumulation_steps": None}, False)])
def test_a_micro_batch_that_nearly_fills_the_memory_may_not_fit(memory_gb, flags, expected):
    found = plan_step(StepConfig(**{**FLAGS, "gradient_accumulation_steps": 4, **flags}),
                      (memory_gb * GB, "a card"), Simulation())
    assert found.may_not_fit == expected


# --- By tokens -------------------------------------------------------------------------------------------


def test_by_tokens_there_are_as_many_micro_batches_as_the_longest_examples_take():
    step, messages, _ = settled(tokens_per_micro_batch=1000)
    assert (step.gradient_accumulation_steps, step.batch.is_unequal) == (5, True)
    assert "--gradient_accumulation_steps not given: using 5" in messages[0][1]
    # The number of micro-batches need not divide the batch. It may be larger than necessary.
    assert settled(tokens_per_micro_batch=1000,
                   gradient_accumulation_steps=7)[0].gradient_accumulation_steps == 7
    assert settled(tokens_per_micro_batch=1000, gradient_accumulation_steps=7)[0].batch.micro_batch_size == 5


def test_by_tokens_the_warning_names_the_flag_that_helps():
    (_, _), (is_warning, text) = settled(3, tokens_per_micro_batch=1000)[1]
    assert is_warning and "Pass a smaller --tokens_per_micro_batch, or --recompute=auto." in text


# --- Refusals ------------------------------------------------------------------------------------------

TOKENS = dict(tokens_per_micro_batch=1000)


@pytest.mark.parametrize("flags, message", [
    (dict(gradient_accumulation_steps=5), "32 examples cannot be split into 5 .* Use a batch size that is "
     "divisible by 5, or one of these numbers of micro-batches: 1, 2, 4, 8, 16, 32"),
    *((dict(num_replicas=3, gradient_accumulation_steps=count),
       r"1 on each of 3 replicas\). Use a batch size that is divisible by 3") for count in (None, 0)),
    (dict(memory_gb=2.05, recompute="auto", gradient_accumulation_steps=0), r"2\.05 GB are usable, but the "
     "setting that needs least memory, recompute=layers with micro-batches of 1, needs"),
    (dict(TOKENS, trim_padding=False), "untrimmed examples all have the same number of tokens"),
    (dict(tokens_per_micro_batch=100), "is below --max_seq_length=128"),
    (dict(TOKENS, gradient_accumulation_steps=0), "leave one of the two flags out"),
    (dict(TOKENS, gradient_accumulation_steps=33), "can be split into at most 32 micro-batches"),
    (dict(TOKENS, gradient_accumulation_steps=4), "Pass --gradient_accumulation_steps=5 or "
     "--tokens_per_micro_batch=1024")])
def test_a_step_that_cannot_be_is_refused_with_one_that_can(flags, message):
    with pytest.raises(ValueError, match=message):
        settled(**flags)
