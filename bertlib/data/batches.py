"""Defines the batch of a training step. Makes the batches of predictions, and splits them into examples. This
module does not load TensorFlow."""

import dataclasses
import math

import numpy as np

# If a dataset changes the order of the examples, its batches have a feature of this name. The feature
# contains the index of each example in the file.
EXAMPLE_INDEX = "example_index"
# Sequences are trimmed to a multiple of this length. Kernels are faster for such lengths, and batches have
# fewer different shapes.
LENGTH_STEP = 8
# In a training with XLA, sequences are trimmed to a multiple of this length, so that fewer different lengths
# occur. For each new length, XLA compiles the graph again, which takes several seconds.
LENGTH_STEP_OF_XLA = 64


@dataclasses.dataclass(frozen=True)
class Batch:
    """The batch of a training step, and how it is divided into micro-batches.

    Attributes:
      size: number of examples in the effective batch, to which the learning rate refers.
      gradient_accumulation_steps: number of micro-batches that each replica computes, one after the other.
      num_replicas: number of replicas, which compute at the same time.
      is_unequal: whether micro-batches differ in their numbers of examples.
      length_step: number of tokens. Sequences are trimmed to a multiple of this length.
    """

    size: int
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1
    is_unequal: bool = False
    length_step: int = LENGTH_STEP

    @property
    def num_micro_batches(self):
        """Number of micro-batches in the effective batch, counted over all replicas."""
        return self.gradient_accumulation_steps * self.num_replicas

    @property
    def micro_batch_size(self):
        """Number of examples in a micro-batch. If micro-batches have different numbers of examples, this is
        the size of the largest micro-batch in the case that all examples have equal lengths."""
        return math.ceil(self.size / self.num_micro_batches)

    def check(self):
        """Checks that the batch can be divided into its micro-batches; returns the batch.

        Raises:
          ValueError: the micro-batches should be equal, but the size is not divisible by their number. The
            message names the nearest sizes that are divisible. Or there are more micro-batches than examples.
        """
        parts = self.num_micro_batches
        if self.is_unequal:
            if parts > self.size:
                raise ValueError(f"A step of {self.size} examples cannot be cut into {parts} micro-batches, "
                                 "because some of them would be empty.")
            return self
        if self.size % parts:
            each = ""
            if self.num_replicas > 1:
                each = f" ({self.gradient_accumulation_steps} on each of {self.num_replicas} replicas)"
            raise ValueError(f"A training batch of {self.size} examples cannot be split into "
                             f"{parts} equal micro-batches{each}. Use a batch size that is divisible by "
                             f"{parts}, or one of these numbers of micro-batches: "
                             f"{', '.join(map(str, divisors(self.size)))}.")
        return self


def divisors(number):
    """Returns all divisors of a positive int, the smallest first."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def pad(rows, names):
    """Returns the arrays of a batch, {name: int32 [B, length of the longest row]}. Shorter rows are padded
    with zeros.

    Args:
      rows: list of {name of an input: list of int}.
      names: names of the inputs.
    """
    arrays = {}
    for name in names:
        lists = [row[name] for row in rows]
        arrays[name] = np.zeros([len(lists), max(map(len, lists))], np.int32)
        for row, values in zip(arrays[name], lists):
            row[:len(values)] = values
    return arrays


def unstack_predictions(batch):
    """Yields the predictions of each example in a batch as a dict.

    Args:
      batch: {name: array [B, …]}.
    """
    sizes = {key: len(value) for key, value in batch.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"The predictions have different batch sizes: {sizes}. Pass "
                         "yield_single_examples=False to get whole batches.")
    for index in range(next(iter(sizes.values()))):
        yield {key: value[index] for key, value in batch.items()}


def restore_file_order(results):
    """Yields results in the order of the file, and removes `EXAMPLE_INDEX` from them.

    Args:
      results: iterable of dicts with the key `EXAMPLE_INDEX`. If the dicts lack this key, they are already in
        order, and are yielded unchanged.
    """
    early_results, next_index = {}, 0
    for result in results:
        index = result.pop(EXAMPLE_INDEX, None)
        if index is None:
            yield result
            continue
        early_results[int(index)] = result
        while next_index in early_results:
            yield early_results.pop(next_index)
            next_index += 1
