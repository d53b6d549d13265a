"""Compares two tables of predictions for the same examples: pairs their rows, and computes their metrics."""

import contextlib
import csv
import io
import json
import math
import os
import re
from typing import Any, NamedTuple

from absl import logging
import numpy as np

from bertlib.comparison import paired_tests
from bertlib.output_directory.directory import OutputDirectory
from bertlib.reports import prediction_files
from bertlib.rows import label_lists, tables
from bertlib.runs import results
from bertlib.system import files
from bertlib.tasks.classification import classification_metrics
from bertlib.tasks.tagging import tagging_data, tagging_metrics

TABLE = "eval_predictions"
_OURS = ("line", "label", "prediction", "probability", "probabilities", "is_right", "loss", "exact_match",
         "f1", "null_odds")
_WITH_LABELS = ("classification", "multilabel", "multiple_choice")
# Largest difference between a metric of a table and the same metric in eval_results.json, as a fraction.
_TOLERANCE = 1e-4
_FIX = "Evaluate both models on the same file, in the same order."


class Table(NamedTuple):
    """A table of predictions.

    Attributes:
      path: path of the file.
      kind: kind of the head, see `record_fields.KINDS`. If no run.json describes the table, the kind is
        guessed from the columns of the table.
      task: name of the task; None if no run.json describes the table.
      labels: list of str, in the order of the model's outputs; None if the task has no labels, or if they are
        unknown.
      rows: list of {column: text}. In a table of JSON Lines, a value may also be a number or a list.
      separator: the text between the labels of a row that has several labels.
    """

    path: str
    kind: str
    task: Any
    labels: Any
    rows: list
    separator: str


def find_table(path):
    """Returns the path of the table of predictions in a directory; None if the directory has no table. If
    `path` is a file, returns `path`."""
    if not files.is_directory(path):
        return path
    candidates = [os.path.join(path, f"{TABLE}.{ending}") for ending in prediction_files.FORMATS]
    found = [candidate for candidate in candidates if files.exists(candidate)]
    if len(found) > 1:
        raise ValueError(f"{path} contains {' and '.join(map(os.path.basename, found))}. Name one of these "
                         "files instead of the directory.")
    return found[0] if found else None


def read_tables(paths):
    """Returns the `Table`s in one or two files.

    A table is described by the run.json in its directory. If there is no run.json, because the directory is a
    --results_dir, the run.json of the other table is used.

    Raises:
      ValueError: a file is not a table of predictions with labels.
    """
    records = [OutputDirectory(os.path.dirname(path) or ".").record for path in paths]
    return [_read_table(*each) for each in zip(paths, records, records[::-1])]


def _read_table(path, own_record, other_record):
    record = own_record or other_record
    read_rows = _read_json_lines if path.endswith(".jsonl") else _read_csv
    rows = list(map(_without_apostrophes, read_rows(path)))
    if not rows:
        raise ValueError(f"{path} is not a table of predictions: it has no rows.")
    for number, row in enumerate(rows, 1):
        if missing := [name for name in ("label", "prediction") if name not in row]:
            raise ValueError(f"{path} is not a table of predictions: the column {missing[0]!r} is missing in "
                             f"row {number}.")
    kind = _kind(rows, record)
    # A question of SQuAD 2.0 without an answer has no label. The scores show that it was evaluated.
    may_be_empty = kind == "multilabel" or kind == "questions" and rows[0].get("f1") not in ("", None)
    if not may_be_empty and any(row["label"] in ("", None, []) for row in rows):
        raise ValueError(f"{path}: rows without a label cannot be compared. Use a table of an evaluation.")
    labels = None
    if kind in _WITH_LABELS:
        labels = (own_record or {}).get("labels") or _labels_of_columns(rows) or (record or {}).get("labels")
    if labels:
        labels = list(map(prediction_files.remove_apostrophe, labels))  # as in `_without_apostrophes`
    separator = (prediction_files.ANSWER_SEPARATOR if kind == "questions" else
                 (record or {"settings": {}})["settings"].get("label_separator", ","))
    return Table(path, kind, record and record["task"], labels, rows, separator)


def _read_csv(path):
    """Returns the rows of a CSV table, a list of {column: text}."""
    csv.field_size_limit(max(csv.field_size_limit(), tables.MAX_FIELD_CHARACTERS))
    try:
        text = files.read_bytes(path).decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV table in UTF-8: {error}. Restore the file.") from error
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # csv.DictReader's marks of a row that is too long or short
            raise ValueError(f"{path}: row {number} has more or fewer fields than the header. Restore the "
                             "file.")
    return rows


def _read_json_lines(path):
    rows = []
    for number, line in enumerate(files.read_bytes(path).split(b"\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: the line is not JSON ({error}). Restore the "
                                 "file.") from error
            if not isinstance(rows[-1], dict):
                raise ValueError(f"{path}, line {number}: the line is not a JSON object. Restore the file.")
    return rows


def _without_apostrophes(row):
    """Returns a row without the apostrophes of --csv_safe.

    The other table may have been written without this flag. In a text of the data, such an apostrophe cannot
    be recognized. So it is removed from all tables, also from JSON Lines, and the texts stay comparable.
    """
    def plain(value):
        if isinstance(value, dict):  # {label: probability}
            return {plain(name): number for name, number in value.items()}
        return prediction_files.remove_apostrophe(value) if isinstance(value, str) else value

    return {plain(name): plain(value) for name, value in row.items()}


def _kind(rows, record):
    if record:
        return record["task_type"]
    columns = rows[0]
    if {"exact_match", "f1", "question"} <= set(columns):
        return "questions"
    if {"sentence", "word"} <= set(columns):
        return "tagging"
    if isinstance(columns["label"], list):
        return "multilabel"
    return "regression" if all(row.get("is_right") in ("", None) for row in rows) else "classification"


def _labels_of_columns(rows):
    """Returns the labels in the names of the columns of probabilities, a list."""
    of_columns = [name.removeprefix("probability_") for name in rows[0] if name.startswith("probability_")]
    return of_columns or list(rows[0].get("probabilities") or ())


# --- Pairs -----------------------------------------------------------------------------------------------


def check_pairs(first, second):
    """Checks that two `Table`s have the same examples, in the same order.

    Raises:
      ValueError: the tables differ. The message names the first row that differs.
    """
    if first.kind != second.kind:
        raise ValueError(f"{first.path} belongs to the task {first.task or first.kind}, and {second.path} to "
                         f"the task {second.task or second.kind}. Only predictions of one task can be "
                         "compared.")
    names = [name for name in first.rows[0] if name in second.rows[0] and name not in _OURS
             and not name.startswith("probability_")]
    if not names:
        raise ValueError(f"{first.path} and {second.path} have no column of texts in common, so their rows "
                         f"cannot be paired. {_FIX}")
    for number, (one, other) in enumerate(zip(first.rows, second.rows), 1):
        for name in [*names, "label"]:
            values = [_plain(row.get(name), table, name == "label")
                      for row, table in ((one, first), (other, second))]
            if values[0] != values[1]:
                raise ValueError(f"{first.path} and {second.path} are not predictions for the same examples: "
                                 f"in row {number}, the column {name!r} contains {values[0]!r:.60} in the "
                                 f"first file, and {values[1]!r:.60} in the second file. {_FIX}")
    if len(first.rows) != len(second.rows):
        raise ValueError(f"{first.path} has {len(first.rows)} rows, and {second.path} has "
                         f"{len(second.rows)}. {_FIX}")


def _plain(value, table, is_label):
    """Returns a value of a table as text, in the form in which values are compared.

    Texts such as "1" and "01" differ. Only scores are compared as numbers: the text "1" from CSV must equal
    the number 1.0 from JSON Lines. Several labels of an example may be in any order.
    """
    if is_label and table.kind == "multilabel":
        return ", ".join(sorted(_members(value, table)))
    if isinstance(value, list):
        return table.separator.join(map(str, value))
    if is_label and table.kind == "regression":
        with contextlib.suppress(TypeError, ValueError):
            return repr(float(value))
    return "" if value is None else str(value)


def _members(value, table):
    """Returns the set of the labels in a field of a multi-label table, which is a text or a list."""
    if isinstance(value, list):
        return set(map(str, value))
    return set(label_lists.read(value or "", table.separator, table.labels).names)


# --- Metrics ---------------------------------------------------------------------------------------------


class Scored(NamedTuple):
    """The metrics of a table. They are computed over units: rows, sentences or questions.

    Attributes:
      metrics: {name: function}. A function takes an int array with the indices of some units, and returns the
        metric of these units, in points.
      is_right: list of bool, whether the prediction for each unit is right; None for a regression.
      count: number of units.
      unit: name of a unit in the plural, such as "rows" or "sentences".
    """

    metrics: dict
    is_right: Any
    count: int
    unit: str


def describe_metric(name, kind, labels):
    """Returns the meaning of a metric (str) if it depends on the labels of the model, otherwise None. Two
    values of the metric can be compared only if their meanings are the same.

    Args:
      name: name of the metric.
      kind: kind of the head, see `record_fields.KINDS`.
      labels: list of str, the labels of the model in the order of its outputs.
    """
    if name == "eval_f1" and kind == "classification" and len(labels) == 2:
        return f"the F1 of {labels[1]}"
    if name == "eval_f1" and kind == "classification" or name == "eval_f1_macro":
        return f"the mean of the F1 of {', '.join(sorted(labels))}"
    return None


def explain_difference(name, meanings):
    """Returns the reason (str) why a metric cannot be compared; None if it can be compared.

    Args:
      name: name of the metric.
      meanings: two results of `describe_metric`.
    """
    if meanings[0] == meanings[1]:
        return None
    return f"{name} is {meanings[0]} for the first model, and {meanings[1]} for the second model"


def score(table):
    """Prepares the metrics of a table of predictions. Returns a `Scored`.

    Args:
      table: a `Table` with known labels.
    """
    labels = table.labels
    return {"questions": _score_questions, "tagging": _score_tagging, "regression": _score_regression,
            "multilabel": _score_multilabel, "multiple_choice": _score_multiple_choice}.get(
                table.kind, _score_classification)(table, labels)


def _score_multiple_choice(table, labels):
    # A label is only the position of the right ending in the list of endings. So metrics that are computed
    # for each label, such as F1, have no meaning.
    scored = _score_classification(table, labels)
    return scored._replace(metrics={"eval_accuracy": scored.metrics["eval_accuracy"]})


def _score_classification(table, labels):
    indices = {label: index for index, label in enumerate(labels)}
    right, predicted = (_indices(table, name, indices) for name in ("label", "prediction"))

    def metric(function):
        return lambda rows: 100 * function(
            classification_metrics.confusion_matrix(right[rows], predicted[rows], len(labels)))

    return Scored({"eval_accuracy": metric(classification_metrics.accuracy),
                   "eval_f1": metric(classification_metrics.class_f1),
                   "eval_matthews": metric(classification_metrics.matthews)},
                  (right == predicted).tolist(), len(right), "rows")


def _indices(table, name, indices):
    found = np.array([indices.get(str(row[name]), -1) for row in table.rows])
    if (found < 0).any():
        number = int(np.argmax(found < 0))
        raise ValueError(f"{table.path}: the {name} {table.rows[number][name]!r:.60} in row {number + 1} is "
                         f"not one of the labels {', '.join(indices)}. Restore the file.")
    return found


def _numbers(table, name):
    """Returns the numbers in a column of a table, a float64 array with shape [number of rows]."""
    values = []
    for number, row in enumerate(table.rows, 1):
        try:
            values.append(float(row.get(name)))
        except (TypeError, ValueError):
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            raise ValueError(f"{table.path}: the {name} {row.get(name)!r:.60} in row {number} is not a "
                             "finite number. If the model predicted NaN, train it again; otherwise restore "
                             "the file.")
    return np.array(values)


def _score_multilabel(table, labels):
    def members(name):
        sets = [_members(row[name], table) for row in table.rows]
        for number, found in enumerate(sets, 1):
            if found - set(labels):
                raise ValueError(f"{table.path}: the {name} {min(found - set(labels))!r:.60} in row {number} "
                                 f"is not one of the labels {', '.join(labels)}. Restore the file.")
        return np.array([[label in found for label in labels] for found in sets])

    right, predicted = members("label"), members("prediction")

    def metric(function):
        def of_rows(rows):
            hits, actual, found = classification_metrics.count_sets(right[rows], predicted[rows])
            return 100 * function(hits, actual + found)
        return of_rows

    return Scored({"eval_f1_micro": metric(classification_metrics.micro_f1),
                   "eval_f1_macro": metric(classification_metrics.macro_f1)},
                  (right == predicted).all(1).tolist(), len(right), "rows")


def _score_regression(table, _):
    right, predicted = (_numbers(table, name) for name in ("label", "prediction"))

    def metric(function):
        return lambda rows: 100 * function(right[rows], predicted[rows])

    return Scored({"eval_pearson": metric(classification_metrics.pearson),
                   "eval_spearman": metric(classification_metrics.spearman)}, None, len(right), "rows")


def _score_tagging(table, _):
    sentences = {}
    for row in table.rows:
        sentences.setdefault(row["sentence"], []).append((str(row["label"]), str(row["prediction"])))
    counts, right_words, is_right = [], [], []
    for pairs in sentences.values():
        right, predicted = map(list, zip(*pairs))
        spans = [set(tagging_data.entity_spans(tags)) for tags in (right, predicted)]
        counts.append((len(spans[0] & spans[1]), len(spans[0]) + len(spans[1])))
        right_words.append((sum(map(str.__eq__, right, predicted)), len(right)))
        is_right.append(right == predicted)
    counts, right_words = np.array(counts), np.array(right_words)

    def f1(rows):
        return 100 * float(tagging_metrics.entity_f1(*counts[rows].sum(0)))

    def accuracy(rows):
        hits, words = right_words[rows].sum(0)
        return 100 * float(hits / words)

    return Scored({"eval_f1": f1, "eval_accuracy": accuracy}, is_right, len(counts), "sentences")


def _score_questions(table, _):
    exact, f1 = (_numbers(table, name) for name in ("exact_match", "f1"))
    # The names are those of the published scorers of SQuAD 1.1 and 2.0.
    name = "exact" if str(table.task).endswith("2.0") else "exact_match"
    return Scored({"f1": lambda rows: 100 * float(f1[rows].mean()),
                   name: lambda rows: 100 * float(exact[rows].mean())},
                  (exact > 0).tolist(), len(exact), "questions")


# --- The comparison --------------------------------------------------------------------------------------


def _check_results(table, scored):
    """Checks that the metrics of a table are those in the eval_results.json or eval_results.txt of the same
    evaluation.

    Raises:
      ValueError: a metric differs, so the files belong to different evaluations.
    """
    match = re.fullmatch(r"(eval|test)_predictions(.*)\.\w+", os.path.basename(table.path))
    if not match:
        return
    name = f"{'eval' if match[1] == 'eval' else 'test_eval'}_results{match[2]}"
    stored = results.read_results(os.path.dirname(table.path) or ".", name) or {}
    unit = 1 if table.kind == "questions" else 100  # the scores of SQuAD are already in percent
    for metric, function in scored.metrics.items():
        expected = stored.get(metric)
        if not isinstance(expected, int | float) or not math.isfinite(expected):
            continue
        found = function(np.arange(scored.count)) / unit
        if abs(found - expected) * unit > 100 * _TOLERANCE:
            raise ValueError(f"{table.path}: {metric} is {found:.6g} in this table, but {expected:.6g} in "
                             f"{name} in the same directory. The files belong to different evaluations. "
                             "Evaluate the model again.")


def _choose_metrics(metric, scored, tables_):
    """Returns (list with the names of the compared metrics, {name: reason} of metrics that cannot be
    compared).

    Args:
      metric: see `compare`.
      scored: the `Scored` of the first table.
      tables_: the two `Table`s.

    Raises:
      ValueError: there is no such metric, or it cannot be compared.
    """
    names = list(scored.metrics)
    if metric is not None:
        names = [name for name in names if metric in (name, name.removeprefix("eval_"))]
        if not names:
            raise ValueError(f"--metric={metric}: the metrics of these predictions are "
                             f"{', '.join(scored.metrics)}. Other metrics cannot be computed from a table of "
                             "predictions.")
    reasons = {name: explain_difference(name, [describe_metric(name, table.kind, table.labels)
                                               for table in tables_]) for name in names}
    refused = {name: reason for name, reason in reasons.items() if reason}
    if metric is not None and refused:
        raise ValueError(f"--metric={metric}: this metric cannot be compared: {', '.join(refused.values())}.")
    return [name for name in names if name not in refused], refused


def compare(paths, metric=None, resamples=9999, seed=0):
    """Compares the predictions of two trainings.

    Args:
      paths: two paths of tables.
      metric: name of the only metric to compare, or None for all metrics of the task.
      resamples, seed: see `paired_tests.bootstrap_interval`.

    Returns:
      a dict that can be written as JSON. It contains "n", the number of compared units; "unit", the name of
      these units, such as "rows" or "sentences"; "metrics", a list of `paired_tests.Difference`s as dicts;
      "refused", {name of a metric: the reason why it cannot be compared}; and "mcnemar", the result of
      `paired_tests.mcnemar` (None for a regression).

    Raises:
      ValueError: the tables or the metric cannot be compared.
    """
    first, second = read_tables(paths)
    check_pairs(first, second)
    if first.kind in _WITH_LABELS:
        seen = {str(label) for table in (first, second) for row in table.rows
                for name in ("label", "prediction") for label in (
                    row[name] if isinstance(row[name], list) else [row[name]])}
        first, second = (table._replace(labels=table.labels or sorted(seen)) for table in (first, second))
    scored = [score(table) for table in (first, second)]
    for table, one in zip((first, second), scored):
        _check_results(table, one)
    if first.task is None:
        logging.warning("There is no run.json beside %s and %s, so the type of the task is guessed from the "
                        "columns: %s, with the metrics %s. If this guess is wrong, copy the run.json of the "
                        "training into the directory of the first table.", *paths, first.kind,
                        ", ".join(scored[0].metrics))
    names, refused = _choose_metrics(metric, scored[0], (first, second))
    count = scored[0].count
    if count < 2:
        raise ValueError(f"{first.path}: a comparison needs at least 2 {scored[0].unit}.")
    differences = []
    for name in names:
        functions = [one.metrics[name] for one in scored]
        values = [function(np.arange(count)) for function in functions]
        differences.append(paired_tests.Difference(
            name, values, values[1] - values[0],
            paired_tests.bootstrap_interval(functions, count, resamples, seed)))
    test = paired_tests.mcnemar(*(one.is_right for one in scored)) if scored[0].is_right else None
    return {"kind": "predictions", "tables": list(paths), "n": count, "unit": scored[0].unit,
            "metrics": [{**difference._asdict(), "is_evidence": difference.is_evidence}
                        for difference in differences], "refused": refused,
            "mcnemar": test, "resamples": resamples, "seed": seed}
