"""What the GLUE benchmark (https://gluebenchmark.com) is sent: a file of predictions for each test set.

A file has the header "index<tab>prediction" and a row for each example, in order, numbered from 0. Which sets
there are, their sizes and their labels: the processors of `classifier_data`.
"""

import math
import os
from typing import NamedTuple
import zipfile

from bertlib.system import files
from bertlib.tasks.classification.classifier_data import PROCESSORS

_HEADER = "index\tprediction"
_UNBOUNDED = (-math.inf, math.inf)


class TestSet(NamedTuple):
    """A test set: its task (key of `PROCESSORS`), number of examples, labels (list of str; None: scores), and
    the (lowest, highest) score."""

    task: str
    size: int
    labels: list | None
    score_range: tuple = _UNBOUNDED


def test_sets():
    """Returns {name of the file of predictions: `TestSet`} of the whole benchmark."""
    processors = {task: processor() for task, processor in PROCESSORS.items()}
    return {file: TestSet(task, size, processor.get_labels(), processor.score_range)
            for task, processor in processors.items() for file, (_, size) in processor.submission.items()}


def write_predictions(directory, processor, split, predictions):
    """Writes the benchmark's file of predictions; none if the task or the set is not of the benchmark.

    Args:
      directory: where to.
      processor: that of the task; its `submission` has the file's name.
      split: the set, such as "test".
      predictions: list of labels (str), or of scores (float), which are clipped to the processor's range.
    """
    for file, (its_split, _) in processor.submission.items():
        if its_split == split:
            lines = [f"{index}\t{_to_text(value, *processor.score_range)}\n"
                     for index, value in enumerate(predictions)]
            files.write_text(os.path.join(directory, file), f"{_HEADER}\n{''.join(lines)}")


def _to_text(value, lowest, highest):
    return value if isinstance(value, str) else f"{min(max(value, lowest), highest):.6f}"


def find_problem(path, expected):
    """Returns what is wrong with a file of predictions, in words, with the line; None if nothing is.

    Args:
      path: the file.
      expected: the `TestSet`.
    """
    try:
        lines = files.read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return f"{path} is not UTF-8: {error}"
    if lines.pop():
        return f"{path}:{len(lines) + 1}: the last line has no end: the file is cut off"
    if not lines or lines[0] != _HEADER:
        return f"{path}:1: the header has to be {_HEADER!r}, and is {(lines or [''])[0]!r:.80}"
    for index, line in enumerate(lines[1:]):
        number, _, prediction = line.partition("\t")
        if number != str(index):
            return f"{path}:{index + 2}: the index has to be {index}, and is {number!r:.80}"
        wrong = _problem_with(prediction, expected.labels, *expected.score_range)
        if wrong:
            return f"{path}:{index + 2}: {wrong}"
    if len(lines) - 1 != expected.size:
        return f"{path}: {len(lines) - 1} predictions, and the test set has {expected.size} examples"
    return None


def _problem_with(prediction, labels, lowest, highest):
    """What is wrong with one prediction, or None."""
    if labels is not None:
        return None if prediction in labels else f"{prediction!r:.80} is not one of {', '.join(labels)}"
    try:
        score = float(prediction)
    except ValueError:
        score = math.nan
    if math.isfinite(score) and lowest <= score <= highest:
        return None
    return f"{prediction!r:.80} is no number from {lowest:g} to {highest:g}"


def write_zip(path, members):
    """Writes files into a zip, without their directories; the same files make the same bytes.

    Args:
      path: the zip; it is there whole or not at all.
      members: list of paths.
    """
    with files.atomic_replacement(path) as partial, files.open_file(partial, "wb") as writer:
        with zipfile.ZipFile(writer, "w") as archive:
            for member in members:
                # Without a time of its own it has the format's first.
                archive.writestr(zipfile.ZipInfo(os.path.basename(member)), files.read_bytes(member),
                                 zipfile.ZIP_DEFLATED)
