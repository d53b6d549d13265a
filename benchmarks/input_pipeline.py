"""Measures the cost of reading training batches without a model: CPU and wall milliseconds for each step.

    python benchmarks/input_pipeline.py --data_dir=$GLUE_DIR/MRPC [--steps=1000] [--results=NAME]

The input is the training pairs of MRPC, in the files and with the functions of run_classifier.py. A step has
32 pairs. The script measures each way of reading in `WAYS`. Each way has its own session. The first 20 steps
are not measured.
"""

import argparse
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import results
import tensorflow.compat.v1 as tf

from bertlib.estimator import run_config
from bertlib.estimator.step_config import StepConfig
from bertlib.runs import model_config
from bertlib.tasks.classification import classifier_data
import run_classifier
import tokenization

BATCH_SIZE, WARM_UP = 32, 20
# The settings to measure. Each is a tuple: description, length in tokens, number of micro-batches, whether
# batches are trimmed, and whether the micro-batches have similar numbers of tokens instead of equal numbers
# of examples.
WAYS = [("length 128, trimmed (the default)", 128, 1, True, False), ("length 128", 128, 1, False, False),
        ("length 128, trimmed, 4 micro-batches", 128, 4, True, False),
        ("length 128, trimmed, 4 micro-batches cut by tokens", 128, 4, True, True),
        ("length 512", 512, 1, False, False)]


def seconds_a_step(path, length, micro_batches, trim_padding, unequal_micro_batches, steps):
    """Returns how long the examples of one step take to read: the means of (CPU seconds, wall seconds)."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        input_fn = run_classifier.file_based_input_fn_builder(path, length, True, True, trim_padding)
        config = run_config.RunConfig(step_config=StepConfig(
            train_batch_size=BATCH_SIZE, gradient_accumulation_steps=micro_batches,
            tokens_per_micro_batch=int(unequal_micro_batches)))
        iterator = input_fn({}, config).make_initializable_iterator()
        batch = [tensor.op for tensor in iterator.get_next().values()]
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer)  # this op reads the number of the global step
        read = session.make_callable(batch)
        for step in range(WARM_UP + steps):
            if step == WARM_UP:
                cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(micro_batches):
                read()
        return (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps


def main():
    """Measures each way of reading in `WAYS`, and prints its CPU time and wall time."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"cpu": "CPU ms a step", "wall": "ms a step"})
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    processor = classifier_data.MrpcProcessor()
    examples = processor.get_train_examples(arguments.data_dir)
    tokenizer = tokenization.FullTokenizer(os.path.join(model_config.find_installed_model(), "vocab.txt"))
    with tempfile.TemporaryDirectory() as directory:
        for words, length, *way in WAYS:
            path = os.path.join(directory, f"{length}.tf_record")
            if not os.path.exists(path):
                classifier_data.file_based_convert_examples_to_features(
                    examples, processor.get_labels(), length, tokenizer, path)
            cpu, wall = seconds_a_step(path, length, *way, arguments.steps)
            print(f"{words:52s} {cpu * 1e3:6.2f} CPU ms, {wall * 1e3:6.2f} ms a step of {BATCH_SIZE}",
                  flush=True)
            recorder.add(way=words, cpu=cpu * 1e3, wall=wall * 1e3)
    recorder.write()


if __name__ == "__main__":
    main()
