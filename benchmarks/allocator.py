"""Computes how much memory TensorFlow's GPU allocator needs beyond the simulated peak: the fragmentation.

    python benchmarks/allocator.py --model=large --max_seq_length=384 --batch_size=54 --recompute=layers

The tensors of a simulated training step are allocated and freed by the rules of TensorFlow's allocator (BFC:
best fit with coalescing). Sizes are rounded up to multiples of 256 bytes. A tensor gets the smallest free
chunk that is large enough. If several chunks have this size, it gets the one at the lowest address. The rest
of the chunk becomes a new chunk if the chunk is at least twice as large as the tensor, or at least 128 MiB
larger. Neighbouring free chunks are merged. Variables have the lowest addresses. The highest address in use
is the memory that the step needs. `memory_planner.ALLOCATOR_MARGIN` is based on the printed ratios.

The script takes one CPU minute for BERT-Large. No GPU is needed or measured.
"""

import argparse
import bisect
import itertools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bertlib.commands import plan_memory

import tensorflow.compat.v1 as tf

from bertlib.estimator import memory_planner
from bertlib.estimator.step_config import StepConfig, gb
import modeling

_ALIGNMENT = 256
_LARGEST_WASTE = 128 * 2**20


class Allocator:
    """Simulates BFC, the allocator of TensorFlow, with unlimited memory.

    Attributes:
      highest: the highest address that was ever in use.
    """

    def __init__(self):
        self.highest = 0
        self._free = [(1 << 60, 0)]  # (size, address), sorted
        self._ends = {1 << 60: 0}  # end of a free chunk -> address of this chunk
        self._sizes = {0: 1 << 60}  # address of a free chunk -> size of this chunk
        self._used = {}  # name -> (address, size of the chunk)

    def _remove(self, address):
        size = self._sizes.pop(address)
        del self._ends[address + size], self._free[bisect.bisect_left(self._free, (size, address))]
        return size

    def _insert(self, address, size):
        bisect.insort(self._free, (size, address))
        self._ends[address + size], self._sizes[address] = address, size

    def allocate(self, name, size):
        """Allocates a number of bytes under a name."""
        size = max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT
        _, address = self._free[bisect.bisect_left(self._free, (size, 0))]
        chunk = self._remove(address)
        if chunk >= 2 * size or chunk - size >= _LARGEST_WASTE:
            self._insert(address + size, chunk - size)
            chunk = size
        self._used[name] = address, chunk
        self.highest = max(self.highest, address + chunk)

    def free(self, name):
        """Frees the chunk that was allocated under a name."""
        address, size = self._used.pop(name)
        if address + size in self._sizes:
            size += self._remove(address + size)
        if address in self._ends:
            before = self._ends[address]
            size += self._remove(before)
            address = before
        self._insert(address, size)


def allocated_bytes(allocations):
    """Returns the bytes that the allocator needs for allocations from `memory_planner.trace_allocations`."""
    allocator = Allocator()
    for tensor, change in allocations:
        if change > 0:
            allocator.allocate(tensor, change)
        elif change < 0:
            allocator.free(tensor)
    return allocator.highest


def main():
    """Prints a line for each mode of recomputation."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="large", choices=sorted(plan_memory.MODELS))
    parser.add_argument("--task", default="classifier", choices=["classifier", "squad"])
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--batch_size", type=int, default=54)
    parser.add_argument("--recompute", default="layers", choices=modeling.RECOMPUTE)
    parser.add_argument("--precision", default="fp32", choices=sorted(modeling.PRECISIONS))
    arguments = parser.parse_args()
    model = plan_memory.task_model(modeling.BertConfig(**plan_memory.MODELS[arguments.model]), arguments.task)
    step = StepConfig(max_seq_length=arguments.max_seq_length, train_batch_size=arguments.batch_size,
                      recompute=arguments.recompute, precision=arguments.precision)
    with tf.Graph().as_default():
        train_op = model.build(step)
        variables = memory_planner.simulate(train_op).variables
        allocations, _ = memory_planner.trace_allocations(train_op)
    peak = variables + max(itertools.accumulate(change for _, change in allocations))
    needed = variables + allocated_bytes(allocations)
    print(f"{arguments.batch_size} × {arguments.max_seq_length}, --recompute={arguments.recompute}, "
          f"{arguments.precision}: simulated peak {gb(peak)}, with fragmentation {gb(needed)}: "
          f"{needed / peak:.3f} times")


if __name__ == "__main__":
    tf.disable_v2_behavior()
    main()
