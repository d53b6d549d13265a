"""Compares the memory of a training step on the CPU with the prediction of the memory planner.

    python benchmarks/memory_on_cpu.py [--results=NAME]    three configurations: 5 GB of RAM, 300 CPU seconds

The measured value is the peak resident size during a step, minus the resident size before the step. Before
the measurement, the same step runs once, and its memory is returned to the system. Each configuration runs in
a separate process. In this process, oneDNN is off, because its allocator does not return memory. The
thresholds of malloc in glibc are the defaults. The measured value is compared only with the predicted
activations, because the memory of the variables does not change during a step.
"""

import argparse
import collections
import ctypes
import multiprocessing
import os
import sys

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import results
import tensorflow.compat.v1 as tf

from bertlib.estimator import memory_planner
import modeling
import optimization

Sizes = collections.namedtuple("Sizes", ["recompute", "layers", "width", "length", "batch_size"])
# The batches are so large that the activations need blocks above 32 MiB. glibc returns such blocks to the
# system when they are freed, but keeps smaller blocks.
CONFIGURATIONS = [Sizes("none", 3, 256, 128, 272), Sizes("attention", 3, 256, 384, 91),
                  Sizes("layers", 6, 256, 128, 272)]


def build(sizes, batch_size):
    """Builds a training step in the current graph, and returns its op."""
    config = modeling.BertConfig(1000, sizes.width, sizes.layers, sizes.width // 64, 4 * sizes.width,
                                 type_vocab_size=2)
    ids = tf.placeholder(tf.int32, [batch_size, sizes.length], name="ids")
    tf.train.get_or_create_global_step()
    model = modeling.BertModel(config, True, ids, step_config=modeling.StepConfig(recompute=sizes.recompute))
    loss = tf.reduce_mean(tf.square(model.get_pooled_output() - 0.5))
    return optimization.create_optimizer(loss, 1e-5, 1000, 0, False)


def resident(field):
    """Returns the resident memory of this process in bytes. With the field "VmRSS", it is the present memory.
    With the field "VmHWM", it is the largest memory since the last reset.
    """
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def compare(sizes, threads, pipe):
    """Predicts and measures the memory of a training step. Sends (predicted bytes, measured bytes) through
    `pipe`, because this function runs in a separate process."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    predicted = memory_planner.predict_memory(build, sizes, sizes.batch_size).activations
    options = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        train_op = build(sizes, sizes.batch_size)
        session.run(tf.global_variables_initializer())
        batch = {"ids:0": np.random.RandomState(0).randint(0, 1000, [sizes.batch_size, sizes.length])}
        session.run(train_op, batch)
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as reset:
            reset.write("5")
        static = resident("VmRSS")
        session.run(train_op, batch)
        pipe.send((predicted, resident("VmHWM") - static))


def main():
    """Prints a line for each configuration."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"predicted": "MB", "measured": "MB"})
    context = multiprocessing.get_context("spawn")
    for sizes in CONFIGURATIONS:
        ours, theirs = context.Pipe()
        process = context.Process(target=compare, args=(sizes, arguments.threads, theirs))
        process.start()
        theirs.close()
        predicted, measured = ours.recv()
        process.join()
        print(f"{sizes.recompute:9}  {sizes.layers} layers of {sizes.width}, {sizes.batch_size} × "
              f"{sizes.length}:  predicted {predicted / 1e6:6.0f} MB, measured {measured / 1e6:6.0f} MB, "
              f"ratio {predicted / measured:.3f}", flush=True)
        recorder.add(**sizes._asdict(), predicted=predicted / 1e6, measured=measured / 1e6)
    recorder.write()


if __name__ == "__main__":
    main()
