"""Post-processing of SQuAD predictions, fast beside plain: CPU seconds in one process, and memory.

    python benchmarks/squad_predictions.py [--windows=10000] [--rounds=5]

The recorded questions and SQuAD 2.0's logits of tests/data/squad_predictions.npz again and again: in
overlapping windows of 96 tokens, as recorded, and of 384, the script's default (the logits repeated to that
length). *Selection* is from the logits to the n best spans of each question; *all* is from the logits to the
three files. Logits come as the model gives them, window by window, float32; the plain path makes lists of
them and keeps these, as the published script does. The two take turns. Exits with 1 if a span or a byte
differs, or if the ratio of the selection is below 7 at 96 tokens or below 10 at 384.
"""

import argparse
import gc
import itertools
import os
import sys
import tempfile
import time
import tracemalloc
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(sys.path[0], "tests"))
from absl import logging
import numpy as np
import plain_squad
from squad_recording import SquadRecording

import bertlib.commands  # noqa: F401  graph mode
from bertlib.runs import checks
from bertlib.tasks import squad_data, squad_predictions
import tokenization

FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")
N_BEST_SIZE, MAX_ANSWER_LENGTH = 20, 30


class Questions:
    """Examples and features, repeated up to a number of windows; `results()` makes the logits one by one."""

    def __init__(self, recording, features, length, num_windows):
        copies = -(-num_windows // len(features))
        count = len(recording.examples)
        self.examples = [SimpleNamespace(**{**vars(example), "qas_id": f"{example.qas_id}-{copy}"})
                         for copy in range(copies) for example in recording.examples]
        self.features = [SimpleNamespace(**{**vars(feature), "unique_id": len(features) * copy + index,
                                            "example_index": count * copy + feature.example_index})
                         for copy in range(copies) for index, feature in enumerate(features)]
        recorded = recording.results("v2")
        self._logits = [
            [np.resize(np.roll(np.ravel([getattr(result, name) for result in recorded]), -length * index),
                       length).astype(np.float32) for index in range(len(features))]
            for name in ("start_logits", "end_logits")]

    def results(self):
        starts, ends = self._logits
        for feature in self.features:
            row = feature.unique_id % len(starts)
            yield squad_answers.RawResult(feature.unique_id, starts[row].copy(), ends[row].copy())


def listed(questions):
    """The results as the published script keeps them."""
    return [result._replace(start_logits=[float(x) for x in result.start_logits.flat],
                            end_logits=[float(x) for x in result.end_logits.flat])
            for result in questions.results()]


def select_plainly(questions, directory):
    windows = {}
    for feature, result in zip(questions.features, listed(questions)):
        windows.setdefault(feature.example_index, []).append((feature, result))
    return [plain_squad.candidates(group, N_BEST_SIZE, MAX_ANSWER_LENGTH, True)[0][:N_BEST_SIZE]
            for group in windows.values()]


def select_fast(questions, directory):
    windows = squad_predictions._with_results(questions.features, questions.results())
    return [list(itertools.islice(candidates, N_BEST_SIZE))
            for groups in squad_predictions._chunks(squad_predictions._by_example(
                    questions.examples, windows))
            for _, candidates in squad_predictions._rank([group for _, group in groups], N_BEST_SIZE,
                                                         MAX_ANSWER_LENGTH, True)]


def write_plainly(questions, directory):
    contents = plain_squad.predict(questions.examples, questions.features, listed(questions), N_BEST_SIZE,
                                   MAX_ANSWER_LENGTH, True, True)
    for content, name in zip(contents, FILES):
        plain_squad.dump(content, os.path.join(directory, name))


def write_fast(questions, directory):
    paths = [os.path.join(directory, name) for name in FILES]
    squad_predictions.write_predictions(questions.examples, questions.features, questions.results(),
                                        N_BEST_SIZE, MAX_ANSWER_LENGTH, True, *paths,
                                        version_2_with_negative=True)


def cpu_seconds(function, questions):
    """Returns a function's CPU seconds, and what it returned or wrote."""
    with tempfile.TemporaryDirectory() as directory:
        gc.collect()
        gc.freeze()  # what the benchmark itself holds
        start = time.process_time()
        result = function(questions, directory)
        spent = time.process_time() - start
        if result is not None:
            return spent, result
        contents = []
        for name in FILES:
            with open(os.path.join(directory, name), "rb") as reader:
                contents.append(reader.read())
    return spent, contents


def peak_memory(function, questions):
    """Returns the most memory, in MB, that a function held at once; examples and features are not its own."""
    with tempfile.TemporaryDirectory() as directory:
        tracemalloc.start()
        function(questions, directory)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak / 1e6


def compare(name, functions, questions, rounds):
    """Prints both functions' CPU seconds, the best of the rounds; returns (ratio, whether results agree)."""
    seconds, equal = {function: [] for function in functions}, True
    for _ in range(rounds):
        results = []
        for function in functions:
            spent, result = cpu_seconds(function, questions)
            seconds[function].append(spent)
            results.append(result)
        equal &= results[0] == results[1]
    plain, fast = (min(values) for values in seconds.values())
    ratios = sorted(one / other for one, other in zip(*seconds.values()))
    ratio = ratios[len(ratios) // 2]
    print(f"  {name:9} plain {plain:5.2f} s  fast {fast:5.2f} s  ratio {ratio:.1f} ({ratios[0]:.1f} to "
          f"{ratios[-1]:.1f})  {'equal' if equal else 'DIFFERENT'}", flush=True)
    return ratio, equal


def default_windows(examples, vocab_file):
    """Features of 384 tokens, stride 128, 64 tokens of the question."""
    features = []
    squad_data.convert_examples_to_features(
        [squad_data.SquadExample(example.qas_id, example.question_text, example.doc_tokens)
         for example in examples],
        tokenization.FullTokenizer(vocab_file), 384, 128, 64, False, features.append)
    return features


def main():
    """Prints the figures; exits with 1 if a claim fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab_file", default=os.path.join(checks.installed_model() or "", "vocab.txt"))
    parser.add_argument("--windows", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    logging.set_verbosity(logging.ERROR)
    recording = SquadRecording()
    failed = False
    for length, features, wanted in ((96, recording.features, 7),
                                     (384, default_windows(recording.examples, arguments.vocab_file), 10)):
        questions = Questions(recording, features, length, arguments.windows)
        print(f"{length} tokens, {len(questions.features):,} windows, {len(questions.examples):,} questions")
        ratio, same_spans = compare("selection", (select_plainly, select_fast), questions, arguments.rounds)
        _, same_files = compare("all", (write_plainly, write_fast), questions, arguments.rounds)
        plain, fast = (peak_memory(function, questions) for function in (write_plainly, write_fast))
        print(f"  peak memory: plain {plain:.1f} MB, fast {fast:.1f} MB", flush=True)
        failed |= not same_spans or not same_files or ratio < wanted
    sys.exit(failed)


if __name__ == "__main__":
    main()
