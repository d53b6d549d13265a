"""What a command writes in the end."""

import os

from absl import logging
import numpy as np

from bertlib.system import files


def write_results(directory, file_name, results):
    """Logs metrics and writes them to a directory, one "name = value" a line, sorted."""
    lines = [f"{name} = {str(value.tolist() if np.ndim(value) else value)}"
             for name, value in sorted(results.items())]
    path = os.path.join(directory, file_name)
    files.write_text(path, "".join(line + "\n" for line in lines))
    logging.info("Results, in %s:\n%s", path, "\n".join(f"  {line}" for line in lines))
