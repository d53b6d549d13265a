"""Writes and checks the files of a submission to the GLUE benchmark (https://gluebenchmark.com).

A submission contains one file of predictions for each test set. Such a file has the header
"index<tab>prediction" and a row for each example. The rows are in the order of the examples, and are numbered
from 0. The processors of `classifier_data` declare the test sets, their sizes and their labels.
"""

import io
import math
import os
from typing import NamedTuple
import zipfile

from absl import logging

from bertlib.system import files
from bertlib.tasks.classification.classifier_data import PROCESSORS

_HEADER = "index\tprediction"
_UNBOUNDED = (-math.inf, math.inf)


class TestSet(NamedTuple):
    """Describes a test set of GLUE.

    Attributes:
      task: key of `PROCESSORS`.
      size: number of examples.
      labels: list of str; None in a regression.
      score_range: (lowest score, highest score) of a regression.
    """

    task: str
    size: int
    labels: list | None
    score_range: tuple = _UNBOUNDED


def test_sets():
    """Returns all test sets of the benchmark: {name of the file of predictions: `TestSet`}."""
    processors = {task: processor() for task, processor in PROCESSORS.items()}
    return {file: TestSet(task, size, processor.get_labels(), processor.score_range)
            for task, processor in processors.items() for file, (_, size) in processor.submission.items()}


def write_predictions(directory, processor, split, predictions):
    """Writes the predictions for a set to a file of a GLUE submission. Does nothing if a submission contains
    no file for this set.

    Args:
      directory: the directory of the file.
      processor: the processor of the task; its `submission` contains the name of the file.
      split: the set, such as "test".
      predictions: list of labels (str) or of scores (float). Scores are clipped to the range of the
        processor.
    """
    for file, (its_split, _) in processor.submission.items():
        if its_split == split:
            lowest, highest = processor.score_range
            texts = [value if isinstance(value, str) else f"{min(max(value, lowest), highest):.6f}"
                     for value in predictions]
            lines = [f"{index}\t{text}\n" for index, text in enumerate(texts)]
            path = os.path.join(directory, file)
            files.write_text(path, f"{_HEADER}\n{''.join(lines)}")
            logging.info("File for a GLUE submission: %s.", path)


def find_problem(path, expected):
    """Checks a file of predictions. Returns a str that describes the first error, or None if the file has no
    error.

    Args:
      path: the file.
      expected: the `TestSet`.
    """
    try:
        lines = files.read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return f"{path} is not UTF-8: {error}"
    if lines.pop():
        return f"{path}:{len(lines) + 1}: the last line has no line end, so the file is truncated"
    if not lines or lines[0] != _HEADER:
        return f"{path}:1: the header must be {_HEADER!r}, but is {(lines or [''])[0]!r:.80}"
    for index, line in enumerate(lines[1:]):
        number, _, prediction = line.partition("\t")
        if number != str(index):
            return f"{path}:{index + 2}: the index must be {index}, but is {number!r:.80}"
        wrong = _problem_with(prediction, expected.labels, *expected.score_range)
        if wrong:
            return f"{path}:{index + 2}: {wrong}"
    if len(lines) - 1 != expected.size:
        return (f"{path} contains {len(lines) - 1} predictions, but the test set has {expected.size} "
                "examples. Predict with the directory of GLUE's own files as --data_dir")
    return None


def _problem_with(prediction, labels, lowest, highest):
    """Returns a description of the error in one prediction, or None."""
    if labels is not None:
        return None if prediction in labels else f"{prediction!r:.80} is not one of {', '.join(labels)}"
    try:
        score = float(prediction)
    except ValueError:
        score = math.nan
    if math.isfinite(score) and lowest <= score <= highest:
        return None
    return f"{prediction!r:.80} is not a number from {lowest:g} to {highest:g}"


def write_zip(path, members):
    """Writes files into a zip file. The names in the zip file contain no directories. The same files always
    result in the same bytes of the zip file.

    Args:
      path: the zip file. It appears only when it is complete.
      members: list of the paths of the files.
    """
    content = io.BytesIO()  # a zip file cannot be written directly to a device such as /dev/null
    with zipfile.ZipFile(content, "w") as archive:
        for member in members:
            # No time is passed to ZipInfo, so each file in the zip has the fixed time 1980-01-01. Otherwise,
            # the bytes would depend on the time.
            archive.writestr(zipfile.ZipInfo(os.path.basename(member)), files.read_bytes(member),
                             zipfile.ZIP_DEFLATED)
    files.write_bytes(path, content.getvalue())
