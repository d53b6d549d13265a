"""Makes tables of answers, and reads the result files of an evaluation."""

import json
import os
from typing import Any, NamedTuple

from bertlib.api import data_files
from bertlib.data import row_fields
from bertlib.system import files
from bertlib.tasks import answers

PREDICTIONS_FORMAT = "jsonl"  # unlike CSV, this format keeps the types of the values
PREDICTIONS = f"eval_predictions.{PREDICTIONS_FORMAT}"


class Result(NamedTuple):
    """The result of a training or an evaluation.

    Attributes:
      output_dir: str, the directory of the training.
      results_dir: str, the directory of the result files.
      metrics: the metrics of the evaluation, {name: number, list or dict}, as in eval_results.json; None
        without an evaluation.
      predictions: a table of the evaluated rows with the model's answers. The table is a DataFrame if pandas
        is installed, otherwise a list of dicts. Labels that are numbers stay numbers, unless they come from a
        file. If the data were passed as a DataFrame, the table has their index and values. None without an
        evaluation.
    """

    output_dir: str
    results_dir: str
    metrics: dict[str, Any] | None = None
    predictions: Any = None

    def __repr__(self) -> str:
        rows = None if self.predictions is None else len(self.predictions)
        return (f"Result(output_dir={self.output_dir!r}, results_dir={self.results_dir!r}, "
                f"metrics={self.metrics}, predictions={'None' if rows is None else f'{rows} rows'})")


def table(rows, index=None):
    """Returns rows as a DataFrame if pandas is installed. Otherwise, returns the rows unchanged.

    Args:
      rows: list of dicts, {name of a column: value}.
      index: the index of the DataFrame; None for row numbers from 0.
    """
    try:
        # The import is here because pandas is optional, and because `import bertlib.api` has to be fast.
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, index)


def restore_columns(table, data, first):
    """Returns a table of answers with the index, the values and the names of the caller's columns. In the
    table, these values and names were converted to types of JSON.

    Args:
      table: a DataFrame. From the column `first` (int) on, it has the columns of `data`.
      data: a DataFrame with a row for each row of the table.
    """
    table.index = data.index
    for place, name in enumerate(data, first):
        table.isetitem(place, data[name])
    return table.rename(columns={str(name): name for name in data})


def read_frame(path):
    """Returns the DataFrame whose rows `data_files.write` wrote to a file. Returns None if the rows were no
    DataFrame, or if pandas is missing. Types that texts cannot be converted to, such as intervals, are lost.
    """
    if not files.exists(about := data_files.frame_path(path)):
        return None
    frame = table([json.loads(line) for line in files.read_text(path).split("\n") if line])
    if not data_files.is_frame(frame):
        return None
    # See `table`.
    import pandas

    about = files.read_json_object(about)
    frame.columns = about["columns"]
    return frame.astype(dict(zip(frame, about["types"])), errors="ignore").set_index([
        pandas.Series(values, name=name).astype(kind, errors="ignore")
        for name, kind, values in about["index"]])


def answer_row(fields, answer):
    """Returns a row of a table of predictions: the fields of the input, the prediction, and the probability
    of each label.

    Args:
      fields: {name: value} of the input. If the answer has a column with the name of a field, the field is
        renamed: its name gets the prefix "input_".
      answer: dict, an answer of a `Predictor`, such as {"label", "probabilities"}.
    """
    columns = answers.columns(answer)
    new_names = row_fields.rename_fields(list(fields), columns)
    return {**{new_names[name]: value for name, value in fields.items()}, **columns}


def read_predictions(directory, labels):
    """Returns the table in the file eval_predictions.jsonl of a directory. If a column of the data has the
    name of a column probability_LABEL, it gets the prefix "input_". `labels` is {text: label in its type}."""
    lines = files.read_text(os.path.join(directory, PREDICTIONS)).split("\n")
    rows = [json.loads(line) for line in lines if line]
    names = list(dict.fromkeys(name for row in rows for name in row))
    result_names = {f"probability_{label}" for row in rows for label in row.get("probabilities") or ()}
    new_names = row_fields.rename_fields(names, result_names)
    rows = [answers.spread_probabilities({new_names[name]: value for name, value in row.items()})
            for row in rows]
    return table(rows if not labels else [
        row | {name: labels.get(row[name], row[name]) for name in ("label", "prediction")} for row in rows])
