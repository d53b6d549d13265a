"""Runs a command of this repository with only a part of the GPU's memory, to simulate a smaller card.

    python benchmarks/capped.py BYTES run_squad.py --max_seq_length=384 …

TensorFlow gets at most BYTES of the first GPU, and the memory planner sees this limit. Without a GPU, nothing
is limited. Replicas (--num_replicas) are separate processes, which are not limited.
"""

import os
import runpy
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import bertlib.commands  # noqa: E402, F401  prepares the process before TensorFlow is imported

import tensorflow.compat.v1 as tf  # noqa: E402


def limit_gpu(size):
    """Lets this process use only `size` bytes of the first GPU. TensorFlow must not have used a GPU yet."""
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=size // 2**20)
    for gpu in tf.config.list_physical_devices("GPU")[:1]:
        tf.config.set_logical_device_configuration(gpu, [limit])


if __name__ == "__main__":
    limit_gpu(int(sys.argv[1]))
    sys.argv[:] = [os.path.join(ROOT, sys.argv[2]), *sys.argv[3:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
