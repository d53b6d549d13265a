"""Writes and reads the metrics of an evaluation. Also writes its report and the skipped lines."""

import os

from absl import logging
import numpy as np

from bertlib.graph import lazy_tensorflow as tf
from bertlib.output_directory import output_files
from bertlib.output_directory.directory import OutputDirectory
from bertlib.reports import report_sections
from bertlib.rows import faults
from bertlib.runs import learning_curve
from bertlib.system import files


def record_evaluation(settings, name, metrics):
    """Adds an evaluation to the history of the training in --output_dir. Does nothing in a run that does not
    train.

    Args:
      settings: a `Settings`.
      name: name of the evaluated data, such as "dev".
      metrics: {name of a metric: number or array}, with the "global_step" of the weights.
    """
    if settings.do_train:
        OutputDirectory(settings.output_dir).history.add_evaluation(metrics["global_step"], name, metrics)


def write_results(directory, file_name, results):
    """Logs metrics, and writes them to a file. The file has a line "name = value" for each metric. The lines
    are sorted by the names of the metrics.

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
    """Writes metrics as a JSON object. The metrics are sorted by name. NaN and infinite numbers become null.

    Args:
      directory: directory of the file.
      file_name: name of the file.
      results: {name of a metric: number, array, or dict of numbers}. The numbers have the same digits as in
        the file that `write_results` writes.
    """
    text = files.json_text(dict(sorted(results.items())), indent=2, ensure_ascii=False)
    files.write_text(os.path.join(directory, file_name), text + "\n")


def write_skipped_lines(settings, skipped):
    """With --skip_bad_lines=true, writes skipped_lines.csv, which lists the lines that were left out.

    A run that does not train, but writes to --output_dir, keeps the lines of other files in the list. For
    example, an evaluation of a new file keeps the lines that the training left out.

    Args:
      settings: a `Settings`.
      skipped: list of `faults.Fault`.

    Raises:
      ValueError: the file to which lines are added is not such a list.
    """
    if "skip_bad_lines" not in settings or not settings.skip_bad_lines:
        return
    directory = settings.output_dir if settings.do_train else settings.results_dir
    path = os.path.join(directory, output_files.SKIPPED_LINES)
    kept = []
    if not settings.do_train and directory == settings.output_dir and files.exists(path):
        read_again = {fault.path for fault in skipped}
        try:
            listed = faults.parse_table(files.read_text(path))
        except ValueError as error:
            raise ValueError(f"{path} cannot be extended: {error}. Move the file away, or pass "
                             "--results_dir.") from None
        kept = [fault for fault in listed if fault.path not in read_again]
    files.write_text(path, faults.format_table([*kept, *skipped]))
    if skipped:
        logging.warning("%s lists the %d lines that were left out.", path, len(skipped))


# --- The report ------------------------------------------------------------------------------------------


def write_report(settings, file_name, write, title, metrics, data_file, shown, full_score=1.0):
    """Writes a report as an HTML file into --results_dir.

    Call this function after all other results are written. If the report cannot be written, for example
    because the disk is full, the log contains a warning and the run continues. The report of an earlier
    evaluation is then removed, see `files.replace_together`.

    Args:
      settings: a `Settings`.
      file_name: name of the report.
      write: function that takes the path of the report and a `report_sections.Facts`, and writes the report.
      title: str, the name of the task.
      metrics: {name: number}, the metrics in the report.
      data_file: path of the evaluated file; None if it is unknown.
      shown, full_score: see `learning_curve.LearningCurve`.
    """
    trained = OutputDirectory(settings.output_dir) if settings.do_train else settings.trained
    data = data_file and os.path.basename(data_file)
    facts = report_sections.Facts(f"{title}: {data}" if data else title, metrics, data)
    if trained:
        facts = facts._replace(
            curve=learning_curve.points(learning_curve.read_rows(trained.path), shown, full_score),
            losses=_read_losses(trained), record=trained.record)
    path = os.path.join(settings.results_dir, file_name)
    try:
        write(path, facts)
    except (OSError, tf.errors.OpError) as error:
        logging.warning("The report %s could not be written. All other results are complete, so the exit "
                        "code is 0. The reason: %s", path, error)
    else:
        logging.info("Report for a browser: %s.", path)


def _read_losses(directory):
    """Returns a list of (step, loss), the losses in the history of the training."""
    rows = directory.history.read()
    return [(row["step"], row["loss"]) for row in rows
            if "evaluation" not in row and isinstance(row.get("loss"), float)]
