"""Measures the CPU seconds that recomputation costs, and the activation memory that it saves.

    python benchmarks/recompute.py [--results=NAME]
    python benchmarks/recompute.py --memory
    python benchmarks/recompute.py --memory --num_hidden_layers=6 …
    python benchmarks/recompute.py --modes=none,layers,none+xla,layers+xla

The first command measures the CPU seconds of a model with four layers of BERT-Base's width, on batches of 8
sequences of 128 tokens. The second command measures the activation memory of BERT-Large, on a batch of 8
sequences of 384 tokens, and needs 20 GB of memory. The third command measures the memory of a smaller model.
The fourth command measures CPU seconds with and without XLA.

A mode is "none", "attention", "layers", or "layers:k" for segments of k layers. With "+xla", XLA compiles the
computations between the matrix products (--use_xla). Each mode is measured in a separate process. The process
trains with the optimizer of optimization.py, and with the default thresholds of glibc's malloc.

CPU seconds are user and system time of all threads. The modes run alternately. In each round, the CPU seconds
of a mode are divided by those of the first mode. The script prints the median of these ratios. The number
after `start` in the output is the CPU time of the first step minus the median CPU time of the other steps.

Activation memory is the peak resident size of a step (with XLA, of the second step), minus the resident size
after a step with a single example of 8 tokens. After the small step, all objects exist that do not depend on
the batch: weights, variables of the optimizer, graph and runtime.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import results
import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import StepConfig
import modeling
import optimization

SIZES = {"hidden_size": (768, 1024), "num_hidden_layers": (4, 24), "num_attention_heads": (12, 16),
         "intermediate_size": (3072, 4096), "vocab_size": (2000, 30522), "length": (128, 384),
         "batch": (8, 8)}


def build(sizes, mode, use_xla=False):
    """Builds a training step in the current graph. Returns (placeholder of the token ids, train op)."""
    config = modeling.BertConfig(sizes.vocab_size, sizes.hidden_size, sizes.num_hidden_layers,
                                 sizes.num_attention_heads, sizes.intermediate_size, type_vocab_size=2)
    recompute, _, segment = mode.partition(":")
    ids = tf.placeholder(tf.int32, [None, None])
    tf.train.get_or_create_global_step()
    step = StepConfig(recompute=recompute, recompute_segment=int(segment or 1), use_xla=use_xla)
    model = modeling.BertModel(config, True, ids, step_config=step)
    loss = tf.reduce_mean(tf.square(model.get_pooled_output() - 0.5))
    return ids, optimization.create_optimizer(loss, 1e-5, 1000, 0, False)


def shape(sizes):
    """Returns the sizes of the model and of the batch as a dict, {name of a flag: value}."""
    return {name: getattr(sizes, name) for name in SIZES}


def resident(field):
    """Returns the memory of this process in MiB. With the field "VmRSS", this is the present memory. With
    "VmHWM", this is the largest memory since the last reset.
    """
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


def serve(sizes, mode, pipe):
    """Builds the model, and sends 0 when the model is ready.

    Then takes a step for each request, and answers with (CPU seconds, peak MiB) of this step.
    """
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    mode, _, compiler = mode.partition("+")
    options = tf.ConfigProto()
    options.intra_op_parallelism_threads = options.inter_op_parallelism_threads = sizes.threads
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        ids, train_op = build(sizes, mode, use_xla=bool(compiler))
        session.run(tf.global_variables_initializer())
        session.run(train_op, {ids: np.ones([1, 8])})
        batch = np.random.RandomState(0).randint(0, sizes.vocab_size, [sizes.batch, sizes.length])
        static = resident("VmRSS")
        pipe.send(0)
        while pipe.recv():
            with open("/proc/self/clear_refs", "w", encoding="utf-8") as reset:
                reset.write("5")
            began = time.process_time()
            session.run(train_op, {ids: batch})
            pipe.send((time.process_time() - began, resident("VmHWM") - static))


def start(sizes, mode):
    """Starts a process that trains.

    Returns:
      function of a bool: True lets the process take a step, False ends the process.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(sizes, mode, theirs), daemon=True)
    process.start()
    ours.recv()

    def step(more=True):
        ours.send(more)
        return ours.recv() if more else process.join()
    return step


def print_memory(sizes, modes, recorder):
    """Measures and prints the memory of each mode.

    The processes of the modes run one after the other, because two processes at the same time may need too
    much memory.
    """
    first = None
    for mode in modes:
        step = start(sizes, mode)
        if mode.endswith("+xla"):
            step()  # the compilation of this step needs memory, too
        _, peak = step()
        step(False)
        first = first or peak
        recorder.add(mode=mode, **shape(sizes), activations=peak)
        print(f"{mode:10}  activations {peak:8.0f} MiB  {peak / first:.3f} of {modes[0]}", flush=True)


def print_seconds(sizes, modes, recorder):
    """Measures the CPU seconds of the modes. The modes run alternately. So if the machine is slow for a
    while, all modes are affected."""
    steps = {mode: start(sizes, mode) for mode in modes}
    first = {mode: step()[0] for mode, step in steps.items()}
    seconds = {mode: [] for mode in modes}
    for _ in range(sizes.rounds):
        for mode, step in steps.items():
            seconds[mode].append(step()[0] / sizes.batch)
            recorder.add(mode=mode, **shape(sizes), cpu=seconds[mode][-1])
    for mode, step in steps.items():
        step(False)
        ratio = statistics.median(ours / base for ours, base in zip(seconds[mode], seconds[modes[0]]))
        used = statistics.median(seconds[mode])
        print(f"{mode:10}  {used:.4f} CPU seconds per example  {ratio:.3f} of {modes[0]}  "
              f"start {first[mode] - used * sizes.batch:.1f} CPU seconds")


def main():
    """Measures the time or the memory of each mode of recomputation. Prints one line for each mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", action="store_true", help="measure memory, not time")
    parser.add_argument("--modes", default="none,attention,layers")
    parser.add_argument("--rounds", type=int, default=7, help="number of steps that are timed for each "
                        "mode")
    parser.add_argument("--threads", type=int, default=2)
    for name, (for_time, for_memory) in SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=f"the default is {for_time}; with --memory, it is "
                            f"{for_memory}")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"cpu": "CPU s per example", "activations": "MiB"})
    for name, defaults in SIZES.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, defaults[arguments.memory])
    measure = print_memory if arguments.memory else print_seconds
    measure(arguments, arguments.modes.split(","), recorder)
    recorder.write()


if __name__ == "__main__":
    main()
