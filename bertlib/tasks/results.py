"""Writes the metrics of an evaluation and its report."""

import os

from absl import logging

from bertlib.data import faults
from bertlib.graph import lazy_tensorflow as tf
from bertlib.reports import report_sections
from bertlib.runs import file_names, learning_curve
from bertlib.system import child_processes, files


def write_metrics(settings, split, name, metrics, details=None):
    """Logs the metrics of a split, and writes them into NAME.txt and NAME.json of --results_dir. A run that
    trains also adds them to the history of the training.

    Args:
      settings: a `Settings`.
      split: name of the evaluated data, such as "dev".
      name: name of the files.
      metrics: {name of a metric: number or array}, with the "global_step" of the weights.
      details: {name: number, array, or dict of numbers}, further metrics for NAME.json.

    Returns:
      the metrics in NAME.json. If a metric and a further metric have the same name, it is the metric.
    """
    combined = {**metrics, **(details or {}), **metrics}
    text = settings.results_directory.write_results(name, metrics, combined)
    logging.info("Results, in %s.txt:\n%s", settings.results_directory.join(name), text)
    if settings.do_train:
        settings.output_directory.history.add_evaluation(metrics["global_step"], split, metrics)
    return combined


def write_skipped_lines(settings, skipped, dialect):
    """Writes skipped_lines.csv, which lists the lines that were left out, for --skip_bad_lines=true.

    Args:
      settings: a `Settings`.
      skipped: list of `faults.Fault`.
      dialect: the `tables.Dialect` of the input.
    """
    directory = settings.output_dir if settings.do_train else settings.results_dir
    path = os.path.join(directory, file_names.SKIPPED_LINES)
    files.write_text(path, faults.format_table(skipped, dialect.of_output(settings)))
    if skipped:
        logging.warning("%s lists the %d lines that were left out.", path, len(skipped))


# --- The report ------------------------------------------------------------------------------------------


def write_report_or_warn(task, file_name, title, metrics, data_file, write, *contents):
    """Writes a report as an HTML file into --results_dir.

    Call this function after all other results are written. If the report cannot be written, for example
    because the disk is full, the log contains a warning and the run continues. The report of an earlier
    evaluation is then removed, see `files.replace_together`.

    Args:
      task: the `bertlib.tasks.task.Task`.
      file_name: name of the report.
      title: str, the name of the task in the report.
      metrics: {name: number}, the metrics in the report.
      data_file: path of the evaluated file; None if it is unknown.
      write: function that takes the path of the report, a `report_sections.Facts` and `*contents`, and writes
        the report.
    """
    settings, training = task.settings, task.settings.reused_training
    data = data_file and os.path.basename(data_file)
    facts = report_sections.Facts(f"{title}: {data}" if data else title, metrics, data,
                                  metric_titles=task.metric_titles, warnings=child_processes.noted_warnings())
    if training:
        facts = facts._replace(
            curve=learning_curve.points(learning_curve.read_rows(training.path), task.metric_titles,
                                        task.full_score),
            losses=[(row["step"], row["loss"]) for row in training.history.read()
                    if "evaluation" not in row and isinstance(row.get("loss"), float)],
            record=training.record)
    path = os.path.join(settings.results_dir, file_name)
    try:
        write(path, facts, *contents)
    except (OSError, tf.errors.OpError) as error:
        logging.warning("The report %s could not be written. All other results are complete, so the exit "
                        "code is 0. The reason: %s", path, error)
    else:
        logging.info("Report for a browser: %s.", path)
