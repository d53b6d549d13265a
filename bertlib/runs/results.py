"""Writes the metrics of an evaluation."""

import json
import os

from absl import logging
import numpy as np

from bertlib.reports.prediction_files import finite_or_none
from bertlib.system import files


def write_results(directory, file_name, results):
    """Logs metrics, and writes them to a file. The file has a line "name = value" for each metric, sorted by
    name.

    Args:
      directory: directory of the file.
      file_name: name of the file.
      results: {name of a metric: number or array}.
    """
    lines = [f"{name} = {str(value.tolist() if np.ndim(value) else value)}"
             for name, value in sorted(results.items())]
    path = os.path.join(directory, file_name)
    files.write_text(path, "".join(line + "\n" for line in lines))
    logging.info("Results, in %s:\n%s", path, "\n".join(f"  {line}" for line in lines))


def write_json(directory, file_name, results):
    """Writes metrics as a JSON object, sorted by name. NaN and infinite numbers become null.

    Args:
      directory: directory of the file.
      file_name: name of the file.
      results: {name of a metric: number, array, or dict of numbers}. The numbers have the same digits as in
        the file of `write_results`.
    """
    text = json.dumps(_to_json(dict(sorted(results.items()))), indent=2, ensure_ascii=False)
    files.write_text(os.path.join(directory, file_name), text + "\n")


def _to_json(value):
    """Returns a value as objects that can be written as JSON."""
    if isinstance(value, dict):
        return {name: _to_json(each) for name, each in value.items()}
    if np.ndim(value):
        return [_to_json(each) for each in value]
    if isinstance(value, np.floating):
        value = float(str(value))
    return finite_or_none(value.item() if isinstance(value, np.generic) else value)
