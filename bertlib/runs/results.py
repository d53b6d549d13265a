"""Writes the metrics of an evaluation."""

import os

from absl import logging
import numpy as np

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
