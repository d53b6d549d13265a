"""Measures the real tokens that a pre-training processes in a CPU second, with and without padding.

    python benchmarks/pretraining_padding.py [--rounds=3] [--precision=fp32] [--results=NAME]
    python benchmarks/pretraining_padding.py --padding=none                  records of full length

Half of the positions of the records are padding, as in Wikipedia at length 512 (Krell et al. 2021,
arXiv:2107.02027, figure 1). The length of a record is the smaller one of --length and exp(x), where x has a
normal distribution. The mean and the standard deviation of x were chosen for this benchmark. With them, half
of the positions are padding, and a fifth of the records have full length. But the distribution of the lengths
is not the one in the figure. The lengths are quantiles of the distribution, so each epoch contains the same
lengths. The tokens are random, and 15% of them are masked.

The model has random weights and four layers with the width of BERT-Base; --num_hidden_layers=12 measures
BERT-Base. The input, the heads and the optimizer are those of run_pretraining.py, with its defaults for a
CPU. Two ways to train are compared: with padding, and without padding (--trim_padding=true). They have
separate sessions in one process, and read the same records in the same order. In each round, first one way
trains for an epoch, and then the other way. In both ways, a step has --micro_batches micro-batches. Before
the first round, each way computes one micro-batch that is not measured.

CPU seconds are user and system time of all threads. Real tokens are the tokens of the records that are not
padding; their number is the same in both ways.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bertlib.commands import launch

import numpy as np
import results
import tensorflow.compat.v1 as tf

from bertlib.data import tfrecord_files
from bertlib.estimator import estimator
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import kernel_choice
from bertlib.tasks.pretraining import pretraining_data, pretraining_head
import modeling
import optimization

# The logarithm of the length of a document, in tokens, has a normal distribution:
# {value of --padding: (mean, standard deviation)}.
LENGTHS = {"half": (5.35, 1.0), "none": (20.0, 0.0)}
SHORTEST, VOCABULARY, MASKED = 16, 30522, 0.15
# The two ways to train that are compared: {name: whether the padding is removed}.
WAYS = {"padded": False, "without padding": True}


def record_lengths(count, padding, longest):
    """Returns the lengths of records in tokens, in ascending order.

    Args:
      count: number of records.
      padding: a key of `LENGTHS`.
      longest: the largest possible length.
    """
    mean, deviation = LENGTHS[padding]
    quantiles = ((index + 0.5) / count for index in range(count))
    logarithms = (mean + deviation * statistics.NormalDist().inv_cdf(quantile) for quantile in quantiles)
    return [min(longest, max(SHORTEST, round(math.exp(logarithm)))) for logarithm in logarithms]


def write_records(path, lengths, longest, predictions):
    """Writes a record of random tokens for each length; all records are padded to `longest` tokens."""
    random = np.random.RandomState(0)

    def record(length):
        count = min(predictions, max(1, round(MASKED * length)))
        real = np.arange(predictions) < count
        positions = np.zeros(predictions, int)
        positions[:count] = np.sort(random.choice(np.arange(1, length - 1), count, replace=False))
        mask = np.arange(longest) < length
        return {"input_ids": random.randint(1000, VOCABULARY, longest) * mask, "input_mask": mask.astype(int),
                "segment_ids": (np.arange(longest) > length // 2) * mask, "masked_lm_positions": positions,
                "masked_lm_ids": random.randint(1000, VOCABULARY, predictions) * real,
                "masked_lm_weights": real.astype(np.float32), "next_sentence_labels": [random.randint(2)]}

    tfrecord_files.write_records(path, pretraining_data.feature_fields(longest, predictions),
                               map(record, lengths))


class Training:
    """A training that starts from random weights and has its own graph and session."""

    def __init__(self, path, arguments, removes_padding):
        config = modeling.BertConfig(
            VOCABULARY, arguments.hidden_size, arguments.num_hidden_layers, arguments.hidden_size // 64,
            4 * arguments.hidden_size, type_vocab_size=2, max_position_embeddings=arguments.length)
        step = StepConfig(
            train_batch_size=arguments.batch, gradient_accumulation_steps=arguments.micro_batches,
            max_seq_length=arguments.length, precision=arguments.precision,
            trim_padding=removes_padding, remove_padding=removes_padding,
            compile_kernels=kernel_choice.is_faster(config.hidden_size))
        run_config = estimator.RunConfig(step_config=step)
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(1)
            tf.train.get_or_create_global_step()
            iterator = tf.data.make_initializable_iterator(pretraining_head.input_fn_builder(
                [path], arguments.length, arguments.predictions, is_training=True,
                trim_padding=step.trim_padding)({}, run_config))
            spec = pretraining_head.model_fn_builder(config, None, 1e-4, 10000, 100, False, False)(
                iterator.get_next(), None, estimator.ModeKeys.TRAIN, {}, run_config)
            accumulation, = tf.get_collection(optimization.GRADIENT_ACCUMULATION)
            self._micro_batches = [*[accumulation.accumulate_op] * (arguments.micro_batches - 1),
                                   spec.train_op]
            initializers = tf.global_variables_initializer(), tf.local_variables_initializer()
        self._session = tf.Session(graph=graph)
        self._session.run(initializers)
        self._session.run(iterator.initializer)
        self._session.run(self._micro_batches[0])
        self._session.run(iterator.initializer)  # restarts the input from its beginning

    def cpu_seconds(self, steps):
        """Trains a number of steps. Returns the CPU seconds that these steps took."""
        began = time.process_time()
        for _ in range(steps):
            for micro_batch in self._micro_batches:
                self._session.run(micro_batch)
        return time.process_time() - began


def measure(path, arguments, lengths, recorder):
    """Measures the training with padding and without padding.

    For each round, prints and records the real tokens per CPU second with and without padding, and the ratio
    of these two numbers.
    """
    trainings = {way: Training(path, arguments, removes) for way, removes in WAYS.items()}
    steps, tokens, ratios = len(lengths) // arguments.batch, sum(lengths), []
    for number in range(arguments.rounds):
        speeds = {}
        for way, training in trainings.items():
            cpu = training.cpu_seconds(steps)
            speeds[way] = tokens / cpu
            recorder.add(precision=arguments.precision, round=number, way=way, tokens=tokens, cpu=cpu,
                         speed=speeds[way], padding_share=1 - tokens / (len(lengths) * arguments.length),
                         layers=arguments.num_hidden_layers, width=arguments.hidden_size,
                         length=arguments.length, batch=arguments.batch,
                         micro_batches=arguments.micro_batches)
        ratios.append(speeds["without padding"] / speeds["padded"])
        print(f"round {number}: " + ", ".join(
            f"{way} {speed:.0f}" for way, speed in speeds.items())
            + f" real tokens per CPU second, ratio {ratios[-1]:.3f}", flush=True)
    print(f"ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to "
          f"{max(ratios):.3f}", flush=True)


def main():
    """Prints a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="fp32", choices=sorted(modeling.PRECISIONS))
    parser.add_argument("--padding", default="half", choices=sorted(LENGTHS))
    for name, default in (("num_hidden_layers", 4), ("hidden_size", 768), ("length", 512), ("batch", 16),
                          ("micro_batches", 4),
                          ("records", 16), ("predictions", 77)):
        parser.add_argument(f"--{name}", type=int, default=default,
                            help=f"size of the model or of the data; the default is {default}")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"tokens": "", "cpu": "CPU s",
                                                    "speed": "real tokens per CPU s", "padding_share": ""})
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    launch.keep_freed_memory()
    lengths = record_lengths(arguments.records, arguments.padding, arguments.length)
    print(f"{len(lengths)} records, {1 - sum(lengths) / len(lengths) / arguments.length:.1%} padding, "
          f"{lengths.count(arguments.length)} records of full length")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "records.tfrecord")
        write_records(path, lengths, arguments.length, arguments.predictions)
        measure(path, arguments, lengths, recorder)
    recorder.write()


if __name__ == "__main__":
    main()
