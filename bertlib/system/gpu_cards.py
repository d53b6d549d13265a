"""Lists the memory that TensorFlow can use on well-known GPUs. This module does not load TensorFlow.

The memory of a GPU is shared by the driver, the CUDA context, a reserve that TensorFlow leaves to CUDA's
libraries, and TensorFlow's allocator. At its start, TensorFlow logs the memory of its allocator:

    Created device /job:localhost/replica:0/task:0/device:GPU:0 with 9709 MB memory:  -> device: 0,
    name: NVIDIA GeForce RTX 3060, …

These MB are MiB. On 2026-11-23, files of public repositories were searched for such lines with the names of
the cards. The numbers of a card differ, because a display may use part of its memory. `CARDS` contains the
lowest number that was found for each card. Numbers that are more than 6 % below the highest number of the
same card were left out, because other programs probably used these cards at the same time.
"""

import collections

MIB = 2**20
# The MiB that TensorFlow 2.21 leaves to CUDA's libraries on a GPU of compute capability 8: a constant in the
# installed libtensorflow_framework.so.2. If the environment variable TF_DEVICE_MIN_SYS_MEMORY_IN_MB is set,
# TensorFlow uses the value of this variable instead.
TENSORFLOW_RESERVE = 1536

GpuCard = collections.namedtuple("GpuCard", ["title", "usable_mib", "source"])
GpuCard.__doc__ = \
    """A type of GPU.

Attributes:
  title: name and nominal memory.
  usable_mib: the MiB that TensorFlow's allocator can use.
  source: how `usable_mib` was found.
"""


def _logged(title, lowest, highest=None):
    """Returns the `GpuCard` of a card whose memory was found in logs. `lowest` and `highest` are the smallest
    and the largest memory in these logs, in MiB. If only one log was found, `highest` is None."""
    return GpuCard(title, lowest, f"logs: {lowest:,} to {highest:,} MiB" if highest else
                   f"one log: {lowest:,} MiB")


def _calculated(title, total):
    """Returns the `GpuCard` of a card for which no logs were found. Its usable memory is calculated.

    Args:
      title: str, a card of compute capability 8.
      total: total MiB that nvidia-smi shows.
    """
    # On the cards for which logs were found, the driver and the CUDA context take 370 to 1,300 MiB.
    # nvidia-smi shows 513 MiB for the driver on an idle A10G.
    driver_and_context = 1024
    return GpuCard(title, total - driver_and_context - TENSORFLOW_RESERVE,
                   f"formula: {total:,} MiB - {driver_and_context:,} MiB for driver and CUDA context "
                   f"- {TENSORFLOW_RESERVE:,} MiB that TensorFlow reserves")


# {value of --card: `GpuCard`}, in the order of `usable_mib`.
CARDS = {
    "rtx3080ti": _logged("GeForce RTX 3080 Ti, 12 GB", 9436),
    "rtx2080ti": _logged("GeForce RTX 2080 Ti, 11 GB", 9454, 9637),
    "rtx3060": _logged("GeForce RTX 3060, 12 GB", 9491, 9709),
    "rtx4070": _calculated("GeForce RTX 4070, 12 GB", 12282),
    "titan-x": _logged("TITAN X (Pascal), 12 GB", 11380, 11549),
    "rtx5070ti": _logged("GeForce RTX 5070 Ti, 16 GB", 13123),
    "rtx4080": _logged("GeForce RTX 4080, 16 GB", 13508, 13512),
    "t4": _logged("Tesla T4, 16 GB", 13584, 13942),
    "rtx4060ti-16": _logged("GeForce RTX 4060 Ti, 16 GB", 13689),
    "v100-16": _logged("Tesla V100, 16 GB", 14518, 14784),
    "p100": _logged("Tesla P100, 16 GB", 15397, 15511),
    "a10": _calculated("A10 and A10G, 24 GB", 23028),
    "l4": _logged("L4, 24 GB", 20549, 20967),
    "rtx4090": _logged("GeForce RTX 4090, 24 GB", 21286, 22288),
    "rtx3090": _logged("GeForce RTX 3090, 24 GB", 21342, 22455),
    "v100-32": _logged("Tesla V100, 32 GB", 30574, 31134),
    "a100-40": _logged("A100, 40 GB", 38068, 38482),
    "h100-80": _logged("H100, 80 GB", 78763),
    "a100-80": _logged("A100, 80 GB", 78945, 79197),
}
