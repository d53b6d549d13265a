"""Measures featurization, from text pairs to serialized examples, with and without the cache of words.

    python benchmarks/featurization.py --glue_dir=$GLUE_DIR [--rounds=5] [--results=NAME]
    python benchmarks/featurization.py --unicode_strings=20000

The first command converts all splits of MRPC and CoLA. It prints CPU seconds, and the wall time for several
workers. The second command tokenizes random strings, and strings with each code point. It compares the tokens
with and without the cache.

Each measurement has a new tokenizer, so the cache is empty at its start. The exit code is 1 if the cache
changes a token or a byte.
"""

import argparse
import gc
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from absl import logging
from hypothesis import HealthCheck, given, settings
import results

from bertlib.runs import model_config
from bertlib.tasks.classification import classifier_data
from bertlib.tasks.classification.classification_target import SingleLabel
from bertlib.tasks.classification.classifier_features import FeatureRecords
import tokenization

LABELS = ["0", "1"]
LENGTH = 128


def read_examples(glue_dir):
    """Returns all examples of MRPC and CoLA."""
    examples = []
    for task in ("MRPC", "CoLA"):
        processor = classifier_data.get_processor(task)
        for read in (processor.get_train_examples, processor.get_dev_examples, processor.get_test_examples):
            examples += read(os.path.join(glue_dir, task))
    return examples


class PlainTokenizer(tokenization.FullTokenizer):
    """A tokenizer without a cache. The benchmark compares the usual tokenizer with it.

    The encoding of examples has no cache either, because this class is not in `tokenization.TOKENIZERS`.
    """

    tokenize = tokenization.FullTokenizer.tokenize_plainly


def cpu_seconds(make_tokenizer, function):
    """Creates a tokenizer, calls a function with it, and returns (its result, its CPU seconds)."""
    for classify in (tokenization._is_whitespace, tokenization._is_control, tokenization._is_punctuation):
        classify.cache_clear()
    tokenizer = make_tokenizer()
    gc.collect()
    gc.freeze()  # the garbage collector then skips objects of the benchmark, such as earlier results
    start = time.process_time()
    result = function(tokenizer)
    return result, time.process_time() - start


def compare(name, vocab_file, rounds, function, recorder):
    """Measures the CPU seconds with and without the cache in several rounds, and prints the smallest values.

    Returns whether the results with and without the cache are equal.
    """
    seconds, equal = {PlainTokenizer: [], tokenization.FullTokenizer: []}, True
    for _ in range(rounds):
        found = []
        for make in seconds:
            result, spent = cpu_seconds(lambda make=make: make(vocab_file), function)
            found.append(result)
            seconds[make].append(spent)
        equal &= found[0] == found[1]
        recorder.add(step=name, plain=seconds[PlainTokenizer][-1],
                     remembered=seconds[tokenization.FullTokenizer][-1])
    plain, fast = (min(values) for values in seconds.values())
    ratios = sorted(one / other for one, other in zip(*seconds.values()))
    print(f"{name:30} plain {plain:6.3f} s  remembered {fast:6.3f} s  ratio {ratios[len(ratios) // 2]:.1f} "
          f"({ratios[0]:.1f} to {ratios[-1]:.1f})  {'equal' if equal else 'DIFFERENT'}", flush=True)
    return equal


def time_workers(examples, vocab_file, repeat, recorder):
    """Writes features with several numbers of workers, and prints the wall times. Returns whether the files
    are equal for all numbers of workers."""
    contents = set()
    for factor in (1, repeat):
        for num_workers in (1, 2, 4):
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "train.tf_record")
                start = time.time()
                classifier_data.file_based_convert_examples_to_features(
                    examples * factor, LABELS, LENGTH, tokenization.FullTokenizer(vocab_file), path,
                    num_workers)
                spent = time.time() - start
                if factor == 1:
                    with open(path, "rb") as reader:
                        contents.add(reader.read())
            print(f"file of {len(examples) * factor:9,} examples, {num_workers} workers: {spent:6.2f} s",
                  flush=True)
            recorder.add(examples=len(examples) * factor, workers=num_workers, wall=spent)
    return len(contents) == 1


def check_strings(vocab_file, count):
    """Tokenizes random strings and each code point with and without the cache. Returns the number of
    differences."""
    sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
    from texts import texts

    tokenizers = [tokenization.FullTokenizer(vocab_file, lower, never) for lower in (True, False)
                  for never in ((), tokenization.SPECIAL_TOKENS)]
    different, seen = [], 0

    def check(text):
        different.extend((text, tokenizer) for tokenizer in tokenizers
                         if tokenizer.tokenize(text) != tokenizer.tokenize_plainly(text))

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check_random(text):
        nonlocal seen
        seen += 1
        check(text)

    check_random()
    for code_point in range(sys.maxunicode + 1):
        check(f"a{chr(code_point)}B")
    print(f"{seen:,} random strings and {sys.maxunicode + 1:,} code points, each lower-cased and cased, "
          f"special tokens split and whole: {len(different)} differences {different[:3] or ''}")
    return len(different)


def main():
    """Prints the tables. The exit code is 1 if results differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--glue_dir", help="directory that holds MRPC and CoLA")
    parser.add_argument("--vocab_file",
                        default=os.path.join(model_config.find_installed_model() or "", "vocab.txt"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=16, help="the worker processes are measured "
                        "with two files. The shorter file contains each example once. The longer file "
                        "contains each example this number of times")
    parser.add_argument("--unicode_strings", type=int, default=0)
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"plain": "CPU s", "remembered": "CPU s", "wall": "s"})
    logging.set_verbosity(logging.ERROR)
    failed = False
    if arguments.unicode_strings:
        different = check_strings(arguments.vocab_file, arguments.unicode_strings)
        recorder.add(random_strings=arguments.unicode_strings, different=different)
        failed |= different > 0
    if arguments.glue_dir:
        examples = read_examples(arguments.glue_dir)
        texts = [text for example in examples for text in (example.text_a, example.text_b) if text]
        print(f"{len(examples):,} examples, {len(texts):,} texts")
        equal = compare("tokens", arguments.vocab_file, arguments.rounds,
                        lambda tokenizer: [tokenizer.tokenize(text) for text in texts], recorder)
        same_bytes = compare("text pair to serialized", arguments.vocab_file, arguments.rounds,
                             lambda tokenizer: list(FeatureRecords(
                                 examples, SingleLabel(LABELS), LENGTH, tokenizer)), recorder)
        failed |= not equal or not same_bytes
        failed |= not time_workers(examples, arguments.vocab_file, arguments.repeat, recorder)
    recorder.write()
    sys.exit(failed)


if __name__ == "__main__":
    main()
