"""What a command writes in the end."""

import os

from absl import flags, logging
import numpy as np

from bertlib.runtime import files

FLAGS = flags.FLAGS


def write_results(file_name, results):
    """Logs metrics and writes them to --output_dir, one "name = value" a line, sorted."""
    lines = [f"{name} = {str(value.tolist() if np.ndim(value) else value)}" for name, value in sorted(results.items())]
    path = os.path.join(FLAGS.output_dir, file_name)
    files.write_text(path, "".join(line + "\n" for line in lines))
    logging.info("Results, in %s:\n%s", path, "\n".join(f"  {line}" for line in lines))
