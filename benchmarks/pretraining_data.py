"""Compares the CPU seconds of two programs that create pre-training data: the streamed and the published one.

    python benchmarks/pretraining_data.py --input_file=corpus.txt [--max_seq_length=128] [--rounds=5] \\
      [--workers] [--results=NAME]

The streamed program is the one of this project. The published algorithm is in plain_pretraining.py. The two
programs run alternately. Each run has a new tokenizer, whose cache of words is empty. The programs draw
different random numbers, so their results agree only in the counts. With `--workers`, the script also
compares the files that 1, 2 and 4 processes write, and prints the wall times. The exit code is 1 if these
files differ, or if the published algorithm takes less than 5 times the CPU seconds of the streamed program.
"""

import argparse
import gc
import hashlib
import os
import random
import statistics as statistical
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from absl import logging
import plain_pretraining
import results

from bertlib.runs import model_config
from bertlib.tasks.pretraining import pretraining_data, pretraining_stream
import tokenization

SEED = 12345
WANTED_RATIO = 5


def plain(path, outputs, vocab_file, recipe):
    """Writes the data with the published algorithm. Returns (number of instances, number of tokens in all
    instances)."""
    tokenizer = plain_pretraining.PlainTokenizer(vocab_file)
    instances = plain_pretraining.create_instances([path], tokenizer, random.Random(SEED), *recipe[:6])
    plain_pretraining.write(instances, tokenizer, recipe.max_seq_length, recipe.max_predictions_per_seq,
                            outputs)
    return len(instances), sum(len(tokens) for tokens, *_ in instances)


def streamed(path, outputs, vocab_file, recipe, block=1000, num_workers=1):
    """Writes the pre-training data as a stream, as the project does. Returns the statistics of the data."""
    tokenizer = tokenization.FullTokenizer(vocab_file)
    recipe = recipe._replace(random_seed=SEED, shuffle_buffer_documents=block)
    return pretraining_stream.write_training_data([path], outputs, tokenizer, recipe,
                                                  num_workers)["statistics"]


def measure(write, clock, *arguments):
    """Measures the time of the function `write`, and computes the hashes of the two files that it writes.

    Args:
      write: the function.
      clock: function that returns a time in seconds.
      *arguments: the arguments of `write`, without the paths of the two files.

    Returns:
      (result of `write`, seconds of the call, list with the hash of each file).
    """
    for classify in (tokenization._is_whitespace, tokenization._is_control, tokenization._is_punctuation):
        classify.cache_clear()
    gc.collect()
    gc.freeze()  # the garbage collector then skips the objects of TensorFlow and of the benchmark
    with tempfile.TemporaryDirectory() as directory:
        outputs = [os.path.join(directory, name) for name in ("a.tfrecord", "b.tfrecord")]
        start = clock()
        result = write(arguments[0], outputs, *arguments[1:])
        spent = clock() - start
        contents = []
        for path in outputs:
            with open(path, "rb") as reader:
                contents.append(hashlib.blake2b(reader.read()).hexdigest())
    return result, spent, contents


def main():
    """Measures both programs and prints the times. The exit code is 1 if the published algorithm takes less
    than `WANTED_RATIO` times the CPU seconds of the streamed program. The exit code is also 1 if the files of
    the streamed program depend on the number of workers."""
    defaults = pretraining_data.Recipe()
    parser = argparse.ArgumentParser()
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file",
                        default=os.path.join(model_config.find_installed_model() or "", "vocab.txt"))
    parser.add_argument("--max_seq_length", type=int, default=defaults.max_seq_length)
    parser.add_argument("--max_predictions_per_seq", type=int, default=defaults.max_predictions_per_seq)
    parser.add_argument("--dupe_factor", type=int, default=defaults.dupe_factor)
    parser.add_argument("--do_whole_word_mask", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", action="store_true")
    results.add_flag(parser)
    flags = parser.parse_args()
    recorder = results.Recorder(flags.results, {"plain": "CPU s", "streamed": "CPU s", "wall": "s"})
    logging.set_verbosity(logging.ERROR)
    recipe = defaults._replace(**{name: value for name, value in vars(flags).items()
                                  if name in defaults._fields})
    seconds = []
    for _ in range(flags.rounds):
        counts, slow, _ = measure(plain, time.process_time, flags.input_file, flags.vocab_file, recipe)
        statistics, fast, _ = measure(streamed, time.process_time, flags.input_file, flags.vocab_file, recipe)
        seconds.append((slow, fast))
        recorder.add(plain=slow, streamed=fast, instances=statistics["instances"],
                     tokens=statistics["tokens"])
    print(statistics)
    slow, fast = (min(column) for column in zip(*seconds))
    ratios = [one / other for one, other in seconds]
    ratio = statistical.median(ratios)
    print(f"plain    {slow:6.2f} s of {counts[0]:,} instances, {counts[1]:,} tokens: "
          f"{counts[0] / slow:,.0f} instances/s")
    print(f"streamed {fast:6.2f} s of {statistics['instances']:,} instances, {statistics['tokens']:,} "
          f"tokens: {statistics['instances'] / fast:,.0f} instances/s")
    print(f"CPU seconds, best of {flags.rounds}; ratio {ratio:.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    failed = ratio < WANTED_RATIO
    if flags.workers:
        written = []
        for num_workers in (1, 2, 4):
            _, spent, found = measure(streamed, time.time, flags.input_file, flags.vocab_file, recipe, 100,
                                      num_workers)
            written.append(found)
            print(f"{num_workers} workers: {spent:5.2f} s, files {found[0][:12]} {found[1][:12]}", flush=True)
            recorder.add(workers=num_workers, wall=spent, files=[text[:12] for text in found])
        failed |= written[0] != written[1] or written[0] != written[2]
    recorder.write()
    sys.exit(failed)


if __name__ == "__main__":
    main()
