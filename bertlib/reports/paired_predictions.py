"""Compares two tables of predictions for the same examples: pairs their rows, and computes their metrics."""

import math
import os
import re

import numpy as np

from bertlib.data import prediction_files, tables
from bertlib.data.prediction_tables import PredictionTable
from bertlib.reports import intervals, paired_tests
from bertlib.runs import file_names, registry
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files

TABLES = TABLE, _TEST = "eval_predictions", "test_predictions"
_OURS = ("line", "label", "prediction", "probability", "probabilities", "is_right", "loss", "exact_match",
         "f1", "null_odds")
# Largest difference between a metric of a table and the same metric in eval_results.json, as a fraction.
_TOLERANCE = 1e-4
_FIX = "Evaluate both models on the same file, in the same order."


def find_table(path, name=TABLE):
    """Returns the path of the table of predictions in a directory; None if the directory has no table of this
    name, one of `TABLES`. If `path` is a file, returns `path`."""
    if not files.is_directory(path):
        return path
    candidates = [os.path.join(path, f"{name}.{ending}") for ending in prediction_files.FORMATS]
    paths = [candidate for candidate in candidates if files.exists(candidate)]
    if len(paths) > 1:
        raise ValueError(f"{path} contains {' and '.join(map(os.path.basename, paths))}. Name one of these "
                         "files instead of the directory.")
    return paths[0] if paths else None


def read_tables(paths):
    """Returns the `PredictionTable`s in one or two files.

    A table is described by the run.json in its directory, or by the evaluated_model.json of a --results_dir.
    If both are missing, the description of the other table is used.

    Raises:
      ValueError: a file is not a table of predictions with labels, or no file describes it.
    """
    records = [_read_description(OutputDirectory(os.path.dirname(path) or ".")) for path in paths]
    if not any(records):
        raise ValueError(f"There is no {file_names.RECORD} beside {' or '.join(paths)}. Copy the "
                         f"{file_names.RECORD} of the training into the directory of the table.")
    return [_read_table(path, record or next(filter(None, records))) for path, record in zip(paths, records)]


def _read_description(training):
    """Returns the description of the model whose tables an `OutputDirectory` contains, or None. It has a part
    of the fields of run.json."""
    path = training.join(file_names.EVALUATED)
    return training.record or (files.read_json_object(path) if files.exists(path) else None)


def _read_table(path, record):
    rows = list(map(_without_apostrophes, read_rows(path)))
    if not rows:
        raise ValueError(f"{path} is not a table of predictions: it has no rows.")
    for number, row in enumerate(rows, 1):
        if absent_columns := [name for name in ("label", "prediction") if name not in row]:
            raise ValueError(f"{path} is not a table of predictions: the column {absent_columns[0]!r} is "
                             f"missing in row {number}.")
    if all(row["label"] in ("", None, []) for row in rows):
        raise ValueError(f"{path}: rows without a label cannot be compared. Use a table of an evaluation.")
    labels = record["labels"] and list(map(prediction_files.remove_apostrophe, record["labels"]))
    target = registry.find_target(record["task_type"]).with_labels(labels, record["settings"].get)
    return PredictionTable(path, target,
                           record, rows)


def read_rows(path):
    """Returns the rows of a table, a list of {column: value}. In a CSV table, all values are texts.

    Raises:
      ValueError: the table is damaged. The message names the line.
    """
    input_format = tables.format_from_name(path)
    header, rows = None, []
    # The delimiter follows "line", the name of the first column. `tables.Table` would recognize only commas
    # and semicolons, but --output_delimiter may be any character.
    with tables.open_table(path) as stream:
        start = re.match('"?line"?(.)', str(next(tables.read_lines(stream), ("", ""))[1]))
    with tables.open_table(path) as stream:
        for line, row in tables.Table(stream, input_format, start[1] if start else ","):
            if isinstance(row, tables.RowError):
                raise tables.RowError(line, f"{row.problem} Restore the file.")
            if header and row and len(row) != len(header):
                raise tables.RowError(line, "the row has more or fewer fields than the header. Restore the "
                                      "file.")
            if isinstance(row, dict):
                rows += [row] * bool(row)  # the row of a blank line is empty
            elif header is None:
                header = row
            elif row:
                rows.append(dict(zip(header, row)))
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


# --- Pairs -----------------------------------------------------------------------------------------------


def check_pairs(first, second):
    """Checks that two `PredictionTable`s have the same examples, in the same order.

    Raises:
      ValueError: the tables differ. The message names the first row that differs.
    """
    if first.target.name != second.target.name:
        raise ValueError(f"{first.path} belongs to a task of the type {first.target.name}, and {second.path} "
                         f"to a task of the type {second.target.name}. Only predictions of one type can be "
                         "compared.")
    copies = _copies_of_labels(first) | _copies_of_labels(second)
    names = [name for name in first.rows[0] if name in second.rows[0] and name not in _OURS
             and name not in copies and not name.startswith("probability_")]
    if not names:
        raise ValueError(f"{first.path} and {second.path} have no column of texts in common, so their rows "
                         f"cannot be paired. {_FIX}")
    label_changes = []
    for number, (one, other) in enumerate(zip(first.rows, second.rows), 1):
        for name in [*names, "label"]:
            values = [_plain(row.get(name), table, name == "label")
                      for row, table in ((one, first), (other, second))]
            place = (f"in row {number}, the column {name!r} contains {values[0]!r:.60} in the first file, "
                     f"and {values[1]!r:.60} in the second file.")
            if values[0] != values[1] and name == "label":
                label_changes.append(place)
            elif values[0] != values[1] and values != [str(one["label"]), str(other["label"])]:
                raise ValueError(f"{first.path} and {second.path} are not predictions for the same examples: "
                                 f"{place} {_FIX}")
    if len(first.rows) != len(second.rows):
        raise ValueError(f"{first.path} has {len(first.rows)} rows, and {second.path} has "
                         f"{len(second.rows)}. {_FIX}")
    if label_changes:
        raise ValueError(f"{first.path} and {second.path} have the same texts, but different labels in "
                         f"{len(label_changes)} of {len(first.rows)} rows: {label_changes[0]} If labels were "
                         "corrected, evaluate the first model on the corrected file, and compare its "
                         f"--results_dir: {_evaluation_command(first)}")


def _copies_of_labels(table):
    """Returns the names that the columns of the labels in the input have in a table, a set of str."""
    columns = (table.record["settings"].get("label_column") or "").split(",")
    return {form.format(column) for column in columns for form in ("{}", "input_{}", "column_{}")}


def _evaluation_command(table):
    """Returns the command that evaluates the model of a table again."""
    directory = os.path.dirname(table.path) or "."
    is_test = os.path.basename(table.path).startswith(_TEST)
    flags = ["test_file" if is_test else "dev_file", "predict_file", "data_dir", "train_file"]
    flag = next(filter(table.record["files"].get, flags), flags[0])
    return (f"python {table.record['command']} --do_train=false --do_{'predict' if is_test else 'eval'}=true "
            f"--{flag}=CORRECTED --output_dir={table.record.get('output_dir', directory)} "
            f"--results_dir={directory}_corrected")


def _plain(value, table, is_label):
    """Returns a value of a table as text, in the form in which values are compared.

    Texts such as "1" and "01" differ. Only scores are compared as numbers: the text "1" from CSV must equal
    the number 1.0 from JSON Lines. Several labels of an example may be in any order.
    """
    text = table.target.compared_label(value) if is_label else None
    if text is not None:
        return text
    if isinstance(value, list):
        return table.target.separator.join(map(str, value))
    return "" if value is None else str(value)


def explain_difference(name, meanings):
    """Returns the reason (str) why a metric cannot be compared; None if it can be compared.

    Args:
      name: name of the metric.
      meanings: two results of `target.Target.describe_metric`.
    """
    if meanings[0] == meanings[1]:
        return None
    return f"{name} is {meanings[0]} for the first model, and {meanings[1]} for the second model"


# --- The comparison --------------------------------------------------------------------------------------


def _check_results(table, scored):
    """Checks that the metrics of a table are those in the eval_results.json of the same evaluation.

    Raises:
      ValueError: a metric differs, so the files belong to different evaluations.
    """
    match = re.fullmatch(r"(eval|test)_predictions(.*)\.\w+", os.path.basename(table.path))
    if not match:
        return
    name = f"{'eval' if match[1] == 'eval' else 'test_eval'}_results{match[2]}"
    results = OutputDirectory(os.path.dirname(table.path) or ".").read_results(name) or {}
    unit = 1 if table.target.fractions is None else 100  # the scores of SQuAD are already in percent
    for metric, function in scored.metrics.items():
        result = results.get(metric)
        if not isinstance(result, int | float) or not math.isfinite(result):
            continue
        value = function(np.arange(scored.count)) / unit
        if abs(value - result) * unit > 100 * _TOLERANCE:
            raise ValueError(f"{table.path}: {metric} is {value:.6g} in this table, but {result:.6g} in "
                             f"{name}.json in the same directory. The files belong to different evaluations. "
                             "Evaluate the model again.")


def _choose_metrics(metric, scored, tables_):
    """Returns (list with the names of the compared metrics, {name: reason} of metrics that cannot be
    compared).

    Args:
      metric: see `compare`.
      scored: the `Scored` of the first table.
      tables_: the two `PredictionTable`s.

    Raises:
      ValueError: there is no such metric, or it cannot be compared.
    """
    names = [name for name in scored.metrics
             if metric is None or metric in (name, name.removeprefix("eval_"))]
    if not names:
        raise ValueError(f"--metric={metric}: the metrics of these predictions are "
                         f"{', '.join(scored.metrics)}. Other metrics cannot be computed from a table of "
                         "predictions.")
    reasons = {name: explain_difference(name, [table.target.describe_metric(name) for table in tables_])
               for name in names}
    reasons = {name: reason for name, reason in reasons.items() if reason}
    if metric is not None and reasons:
        raise ValueError(f"--metric={metric}: this metric cannot be compared: {', '.join(reasons.values())}.")
    return [name for name in names if name not in reasons], reasons


def compare(paths, metric=None, resamples=9999, seed=0):
    """Compares the predictions of two trainings.

    Args:
      paths: two paths of tables.
      metric: name of the only metric to compare, or None for all metrics of the task.
      resamples, seed: see `intervals.bootstrap`.

    Returns:
      a dict that can be written as JSON. It contains "n", the number of compared units; "unit", the name of
      these units, such as "rows" or "sentences"; "metrics", a list of the results of
      `paired_tests.compare_values`; "refused", {name of a metric: the reason why it cannot be compared}; and
      "mcnemar", the result of `paired_tests.mcnemar` (None for a regression).

    Raises:
      ValueError: the tables or the metric cannot be compared.
    """
    first, second = read_tables(paths)
    check_pairs(first, second)
    scored = [table.target.score_table(table) for table in (first, second)]
    for table, one in zip((first, second), scored):
        _check_results(table, one)
    names, reasons = _choose_metrics(metric, scored[0], (first, second))
    count = scored[0].count
    if count < 2:
        raise ValueError(f"{first.path}: a comparison needs at least 2 {scored[0].unit}.")
    differences = []
    for name in names:
        old, new = (one.metrics[name] for one in scored)
        interval = intervals.bootstrap(lambda rows, old=old, new=new: new(rows) - old(rows), count,
                                       resamples, seed)
        differences.append(paired_tests.compare_values(
            name, [function(np.arange(count)) for function in (old, new)], interval))
    test = paired_tests.mcnemar(*(one.is_right for one in scored)) if scored[0].is_right else None
    return {"kind": "predictions", "tables": list(paths), "n": count, "unit": scored[0].unit,
            "metrics": differences, "refused": reasons, "mcnemar": test, "resamples": resamples, "seed": seed}
