"""Compares the metrics of an evaluation with those of two simple models: one always answers with the most
frequent label, the other is a linear model of words. Also computes confidence intervals of the metrics."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

from absl import logging
import numpy as np

from bertlib.reports import intervals
from bertlib.system import child_processes, fingerprints
import tokenization

# The bag of words may take `_SHARE` of the CPU time of the run. In a short run, it may take `_SHORT_SHARE`,
# but at most `_SHORT_SECONDS`. The import of scikit-learn and a small training take about `_LEAST_SECONDS`.
_SHARE, _SHORT_SHARE, _SHORT_SECONDS, _LEAST_SECONDS = 0.02, 0.1, 4, 2
_MAX_ROWS = 20_000  # number of training examples of the bag of words
_TOO_LONG = ("it would take more than 2 % of the CPU time of this run (in a short run: 10 %). To compute it "
             "in any case, start the same command again with --baseline=true. A complete training is not "
             "repeated.")


def baseline_metrics(target, official, labels, outputs, answers):
    """Returns metrics that show how good an evaluation is.

    Args:
      target: see `classification_target`.
      official: names of the metrics that get an interval.
      labels, outputs: arrays with a row for each example: its `label_ids`, and the outputs of the head.
      answers: {name of a baseline: its answers, an array like `labels`}. A further baseline has the same
        answer for all examples: their most frequent label, their most frequent set of labels, or the mean of
        their scores.

    Returns:
      {"baselines": {name: {metric: value}}, "intervals": {metric: [low, high]}}.
    """
    name, constant = _constant_answer(target, labels)
    answers = {name: np.broadcast_to(constant, labels.shape), **answers}
    functions = target.metric_functions(labels, target.decide(outputs))
    return {"baselines": {name: _evaluate(target, labels, prediction)
                          for name, prediction in answers.items()},
            "intervals": intervals.of_metrics({metric: functions[metric] for metric in official},
                                              len(labels))}


def _constant_answer(target, labels):
    """Returns the name of the baseline with the same answer for all examples, and this answer."""
    if target.is_score:
        return "mean_score", labels.mean()
    answers, counts = np.unique(labels, axis=0, return_counts=True)
    name = "most_frequent_labels" if target.is_multilabel else "most_frequent_label"
    return name, answers[counts.argmax()]


def _evaluate(target, labels, answers):
    """Returns {metric: value} of answers, an array like `labels`."""
    functions = target.metric_functions(labels, answers)
    values = {name: function(slice(None)) for name, function in functions.items()}
    return values | target.further_metrics(labels, answers) if target.is_score else values


def bag_of_words(settings, target, train, splits, is_again=False):
    """Trains a linear model of words on training examples, and returns its answers, {split: array}. If the
    model cannot be trained, the result is {}, and a line of the log says why.

    Args:
      settings: a `Settings`.
      target: see `classification_target`.
      train: list of `InputExample`; None if the run reads no training examples.
      splits: {split: list of `InputExample`}.
      is_again: whether the model was computed earlier. Then its time has no limit.
    """
    seconds = time.process_time()
    limit = None if is_again or settings.baseline == "true" else int(max(
        _SHARE * seconds, min(_SHORT_SHARE * seconds, _SHORT_SECONDS)))
    if settings.baseline == "false":
        return {}
    if not train:
        training = settings.evaluated_training
        path = training and training.record and training.record["files"].get("train_file")
        problem = ("this run has no training examples. To read them without a training, pass --baseline=true "
                   f"and {f'--train_file={path}' if path else 'the flags of the training data'}.")
    elif limit is not None and limit < _LEAST_SECONDS:
        problem = _TOO_LONG
    elif importlib.util.find_spec("sklearn") is None:
        problem = "scikit-learn is missing. Install it: pip install -r requirements-baseline.txt"
    else:
        is_pair = any(example.text_b for example in train)
        rows = fingerprints.draw([(texts, target.encode_label(example.label))
                                  for example, texts in zip(train, _texts(train, is_pair))], _MAX_ROWS,
                                 lambda row: fingerprints.hash_values(*row))
        texts, labels = zip(*rows)
        code, output, errors = _run({
            "cpu_seconds": limit or 0, "texts": texts, "labels": labels,
            "splits": {name: _texts(examples, is_pair) for name, examples in splits.items()}})
        if code == 0:
            return {name: np.array(answers) for name, answers in json.loads(output).items()}
        problem = (_TOO_LONG if limit and code == -signal.SIGKILL else
                   f"exit code {code}. {''.join(errors.splitlines()[-1:])}")
    logging.info("Baseline: a bag of words is not computed: %s", problem)
    return {}


def _run(arguments):
    """Runs the program `bag_of_words`. Returns (exit code, its standard output, its standard error)."""
    # These small products are not faster with several threads, which take CPU time while they wait.
    child = child_processes.Child(
        [sys.executable, os.path.join(os.path.dirname(__file__), "bag_of_words.py")],
        {**os.environ, "OPENBLAS_NUM_THREADS": "1"}, encoding="utf-8",
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE))
    try:
        output, errors = child.process.communicate(json.dumps(arguments))
    finally:
        child_processes.end([child])
    return child.process.returncode, output, errors


def _texts(examples, is_pair):
    return [[tokenization.convert_to_unicode(text or "")
             for text in ((example.text_a, example.text_b) if is_pair else (example.text_a,))]
            for example in examples]
