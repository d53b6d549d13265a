"""Reads files and computes metrics with simple code that shares no code with the project.

The attack compares the results of the project with the results of this code. The texts of the attack consist
of words of the tiny vocabulary, with spaces between them. So each word is one token, and this code needs no
tokenizer.
"""

import csv
import gzip
import io
import json
import pathlib
import re

import numpy as np
from scipy import stats
from seqeval import metrics as seqeval
from sklearn import metrics
import tensorflow.compat.v1 as tf
import tiny

_IDS = {word: index for index, word in enumerate(tiny.VOCABULARY)}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # characters that the tokenizer removes
TOLERANCE = 4e-6  # written probabilities have six decimals, and the batch size changes the rounding


class Unreadable(Exception):
    """The error that the functions of this module raise if they cannot read a file."""


# --- Files -----------------------------------------------------------------------------------------------


def rows_of(path, delimiter=",", has_header=True):
    """Returns the rows of a CSV, TSV or JSON Lines file, as dicts. Without a header, the keys are "1", "2", …

    Raises:
      Unreadable: the rows have different numbers of columns, or the file is not UTF-8, or it is not valid
        CSV or JSON.
    """
    path = pathlib.Path(path)
    content = path.read_bytes()
    try:
        if path.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
        name = path.name.lower().removesuffix(".gz")
        if name.endswith((".jsonl", ".json")):
            found = [json.loads(line) for line in text.split("\n") if line.strip()]
            if not all(isinstance(row, dict) for row in found):
                raise Unreadable("a line is not a JSON object")
            return found
        if name.endswith(".tsv"):
            rows = [line.removesuffix("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
        else:
            csv.field_size_limit(10**9)
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except (OSError, EOFError, ValueError, csv.Error) as error:
        raise Unreadable(str(error)) from error
    if not rows or len({len(row) for row in rows}) > 1:
        raise Unreadable("the file has no rows, or its rows have different numbers of columns")
    names = rows.pop(0) if has_header else [str(index + 1) for index in range(len(rows[0]))]
    return [dict(zip(names, row)) for row in rows]


def results_in(path):
    """Reads an eval_results.txt. Returns {name of a metric: its value, a number or a list}."""
    pairs = (line.split(" = ", 1) for line in pathlib.Path(path).read_text("utf-8").splitlines())
    return {name: float("nan") if value == "nan" else json.loads(value) for name, value in pairs}


def table_in(path):
    """Reads a TSV file in which quotes have no meaning. Returns its rows, each a list of str."""
    text = pathlib.Path(path).read_text("utf-8")
    return [line.split("\t") for line in text.removesuffix("\n").split("\n")]


# --- The input of the model ------------------------------------------------------------------------------


def ids_of(text_a, text_b=None, length=tiny.SEQ_LENGTH):
    """Returns the ids of one or two texts, a tuple.

    If the texts are too long, the last word of the longer text is removed. This is repeated until both texts
    fit.
    """
    first, second = ([_IDS.get(word, 1) for word in _CONTROL.sub("", text or "").lower().split()]
                     for text in (text_a, text_b))
    room = length - (2 if text_b is None else 3)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return (2, *first, 3, *([*second, 3] if text_b is not None else []))


def fed(path):
    """Returns the examples in a TFRecord file of a classifier: a list of (ids without padding, label).

    Padding rows are left out: they only fill the last batch.
    """
    found = []
    for record in tf.python_io.tf_record_iterator(str(path)):
        features = tf.train.Example.FromString(record).features.feature
        real = features["is_real_example"].int64_list.value if "is_real_example" in features else [1]
        if not real[0]:
            continue
        size = sum(features["input_mask"].int64_list.value)
        label = features["label_ids"]
        values = label.int64_list.value or label.float_list.value
        found.append((tuple(features["input_ids"].int64_list.value[:size]), tuple(values)))
    return found


# --- Metrics ---------------------------------------------------------------------------------------------


def classification(right, predicted, labels):
    """Returns the metrics of predicted labels, by their names in eval_results.txt."""
    average = dict(average="binary", pos_label=labels[1]) if len(labels) == 2 else dict(
        average="macro", labels=labels)
    return {"eval_accuracy": metrics.accuracy_score(right, predicted),
            "eval_f1": metrics.f1_score(right, predicted, zero_division=0, **average),
            "eval_matthews": metrics.matthews_corrcoef(right, predicted),
            "eval_confusion_matrix": metrics.confusion_matrix(right, predicted, labels=labels).tolist()}


def regression(right, predicted):
    """Returns the metrics of predicted scores."""
    return {"eval_pearson": stats.pearsonr(right, predicted)[0],
            "eval_spearman": stats.spearmanr(right, predicted)[0]}


def several_labels(right, predicted, labels):
    """Returns the metrics of a multi-label task. `right` and `predicted` contain a set of labels per text."""
    def table(sets):
        return np.array([[label in found for label in labels] for found in sets], int)
    return {f"eval_f1_{average}": metrics.f1_score(table(right), table(predicted), average=average,
                                                   zero_division=0) for average in ("micro", "macro")}


def tags(right, predicted):
    """Returns the metrics of predicted tags. `right` and `predicted` contain a list of tags per sentence."""
    return {"eval_precision": seqeval.precision_score(right, predicted, zero_division=0),
            "eval_recall": seqeval.recall_score(right, predicted, zero_division=0),
            "eval_f1": seqeval.f1_score(right, predicted, zero_division=0),
            "eval_accuracy": seqeval.accuracy_score(right, predicted)}


def differing(found, expected, tolerance=2e-6):
    """Returns the metrics that differ, as {name: (found, expected)}.

    NaN equals NaN, and an undefined metric equals 0.
    """
    wrong = {}
    for name, value in expected.items():
        given = found.get(name)
        both = np.asarray([np.nan if given is None else given], float), np.asarray([value], float)
        if given is None or both[0].shape != both[1].shape or not np.allclose(
                *map(np.nan_to_num, both), rtol=tolerance, atol=tolerance):
            wrong[name] = given, value
    return wrong
