"""Evaluates during a training (--eval_each_checkpoint, --eval_every_steps), writes the learning curve as a
table and as a picture, keeps the best weights (--keep_best) and ends the training early
(--early_stopping_evals).

For the calls, and for evaluations without this module, see
docs/development/paths.md#evaluation-during-a-training.
"""

import csv
import io
import os
import time

from absl import logging
import numpy as np

from bertlib.graph import lazy_tensorflow as tf
from bertlib.runs import best_weights, learning_curve
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files, replica_group


class TrainingWithEvaluations:
    """A training with evaluations. Writes learning_curve.tsv and learning_curve.svg, adds the metrics to
    metrics.jsonl, and keeps the best weights. With early stopping, also ends the training early.

    A resumed run keeps the rows of the table up to the newest checkpoint. It removes the rows of later steps,
    and adds new rows.
    """

    def __init__(self, task, evaluate):
        """Creates the training; writes nothing.

        Args:
          task: the `bertlib.tasks.task.Task`. Its `title`, `metric_titles` and `full_score` describe the
            picture, which is written to --output_dir, as is the table.
          evaluate: function that takes the prefix of a checkpoint, evaluates its weights and returns {metric:
            number}. All replicas call it before the training, and only replica 0 calls it during the
            training. Its result is used only in replica 0.
        """
        settings = task.settings
        self._task, self._settings, self._output_dir = task, settings, settings.output_dir
        self._evaluate = evaluate
        self._every_steps, self._metric = settings.eval_every_steps, settings.keep_best
        self._best = self._last_step = self._failure = None
        self._rows = learning_curve.read_rows(self._output_dir)
        self._evaluated_dir = os.path.join(self._output_dir, "evaluated_weights")  # being evaluated
        self._seconds = []  # of each evaluation in this run
        self._stops = False  # whether the training ends now

    # --- Before and after the training

    def train(self, estimator, last_step, input_fn):
        """Trains up to a step, with the evaluations, or until early stopping ends the training. For the
        arguments, see `estimator_setup.CommandEstimator.train_to`. All replicas must call this method."""
        last_step = self.prepare(last_step)
        estimator.train_to(last_step, input_fn, *self.hooks())
        self.finish()

    def prepare(self, last_step):
        """Restores the table of the evaluations and the best weights to their state at the newest checkpoint.
        If an earlier run was killed before the evaluation of this checkpoint, evaluates the checkpoint now.
        All replicas must call this method before the training.

        Args:
          last_step: int, the last step of the training.

        Returns:
          the step at which the training ends: `last_step`, or an earlier step if early stopping has ended the
          training already.
        """
        self._last_step = last_step
        group = replica_group.current()
        state = self._restore() if replica_group.is_first() else None
        newest_step, is_due = group.broadcast(state) if group else state
        if is_due:
            self.evaluate_and_add(newest_step)
        stops = group.broadcast(self._stops) if group else self._stops
        return min(newest_step, last_step) if stops else last_step

    def _restore(self):
        """Restores the table of the evaluations and the best weights to their state at the newest checkpoint.

        Removes the evaluations of later steps from the table.

        Returns:
          (step of the newest checkpoint or None, whether this checkpoint has to be evaluated).
        """
        self._remove_evaluated()
        rows, newest_step = learning_curve.restorable_rows(self._settings.output_directory)
        if rows != self._rows:
            self._write_table(rows)
        if self._metric:
            logging.info("--keep_best=%s: the best value is the %s.", self._metric,
                         "lowest" if best_weights.is_lower_better(self._metric) else "highest")
            self._best = best_weights.BestWeights(self._settings.output_directory, self._metric)
            self._best.restore(learning_curve.finite_values(rows, self._metric), newest_step)
            self._stops = learning_curve.is_early_stop(self._settings, self._best, rows)
        is_due = newest_step is not None and not self._is_done(newest_step) and (
            self._settings.eval_each_checkpoint or self._is_scheduled(newest_step))
        return newest_step, is_due

    def finish(self):
        """Logs the table of all evaluations. Call this method after the training.

        Raises:
          ValueError: the evaluations do not have the metric of --keep_best. In this case, the training has
            ended after the first evaluation, and has saved its last step.
        """
        if self._failure:
            raise ValueError(self._failure)
        if not replica_group.is_first():
            return
        best_step = self._best.finish() if self._best else None
        rows = self._rows
        if not rows:
            return
        took = f" {len(self._seconds)} evaluations of this run took {sum(self._seconds):.1f} s." if (
            self._seconds) else ""
        logging.info("Evaluations during the training, in %s.%s\n%s",
                     os.path.join(self._output_dir, learning_curve.TABLE), took,
                     _format_rows(rows, self._names(rows[-1]), best_step))

    def _names(self, row):
        """Returns the names of the metrics in a row that the log shows."""
        losses = [name for name in ("eval_loss", "loss") if name in row]
        chosen = [self._metric] if self._metric else []
        return list(dict.fromkeys([*chosen, *self._task.metric_titles, *losses[:1]]))

    # --- During the training

    def hooks(self):
        """Returns the hooks and the listeners by which the training calls this object: a pair of lists."""
        # This module loads TensorFlow, which readers of the curve do not need.
        from bertlib.estimator import evaluation
        return ([evaluation.EvaluationHook(self.after_step, saves_weights=bool(self._every_steps))],
                [evaluation.SavedCheckpoints(self.evaluate_checkpoint)])

    def evaluate_checkpoint(self, step):
        """Evaluates the checkpoint that the training has just saved, with --eval_each_checkpoint."""
        if self._settings.eval_each_checkpoint and not self._is_done(step):
            self.evaluate_and_add(step)

    def after_step(self, step, save):
        """Evaluates a step that --eval_every_steps requests, if it is not evaluated yet.

        Args:
          step: the training step that the session has just completed.
          save: function that takes a directory, writes the weights of the session there as a checkpoint, and
            returns the prefix of the checkpoint.

        Returns:
          whether the training ends now.
        """
        if self._is_scheduled(step) and not self._is_done(step):
            try:
                self.evaluate_and_add(step, save(self._evaluated_dir))
            finally:
                self._remove_evaluated()
        return self._stops

    def _is_done(self, step):
        return any(int(row["global_step"]) == step for row in self._rows)

    def _is_scheduled(self, step):
        return bool(self._every_steps) and step > 0 and (
            step % self._every_steps == 0 or step == self._last_step)

    def _remove_evaluated(self):
        if files.is_directory(self._evaluated_dir):
            tf.gfile.DeleteRecursively(self._evaluated_dir)

    def evaluate_and_add(self, step, checkpoint=None):
        """Evaluates the model and adds the row of the step to the table. Removes existing rows of this step
        and of later steps. Keeps the weights if their value of the --keep_best metric is the best so far.

        Args:
          step: the step of the weights.
          checkpoint: prefix of the weights; None for the checkpoint that the training saved at this step.
        """
        checkpoint = checkpoint or os.path.join(self._output_dir, f"model.ckpt-{step}")
        started = time.monotonic()
        metrics = self._evaluate(checkpoint)
        self._seconds.append(time.monotonic() - started)
        if not replica_group.is_first():
            return
        rows = [row for row in self._rows if int(row["global_step"]) < step]
        rows.append({name: str(value) for name, value in metrics.items() if np.ndim(value) == 0})
        logging.info("Evaluation of step %d: %s.", step, ", ".join(
            f"{name} {_format_metric(rows[-1].get(name, '-'))}" for name in self._names(rows[-1])))
        # The table is written last, because the process may be killed at any time. So a row in the table
        # shows that three other outputs are complete for its step: the history, the picture and best/.
        self._settings.output_directory.history.add_evaluation(step, "dev", metrics)
        from bertlib.reports import charts
        files.write_text(os.path.join(self._output_dir, learning_curve.PICTURE),
                         charts.line_chart(self._task.title, learning_curve.points(
                             rows, self._task.metric_titles, self._task.full_score)))
        if self._best:
            self._update_best(step, rows, checkpoint)
        self._write_table(rows)

    def _write_table(self, rows):
        table = io.StringIO()
        # A later row may have a metric that earlier rows lack, such as the F1 of an entity type that was not
        # predicted before. So the header contains the metrics of all rows.
        writer = csv.DictWriter(table, sorted(set().union(*rows)), dialect="excel-tab", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self._rows = rows
        files.write_text(os.path.join(self._output_dir, learning_curve.TABLE), table.getvalue())

    def _update_best(self, step, rows, checkpoint):
        """Keeps the weights of the newest evaluation if their value of the --keep_best metric is the best so
        far. Also decides whether the training ends. The newest evaluation is the last element of `rows`."""
        metric, last = self._metric, rows[-1]
        if not any(metric in row for row in rows):
            self._failure = learning_curve.describe_unknown_metric("keep_best", metric,
                                                                   set(last) - {"global_step"})
            self._stops = True
            return
        if step < max(1, self._best.first_step):
            return
        if not learning_curve.finite_values([last], metric):
            logging.warning("--keep_best: the evaluation of step %d does not count, because %s is %s.", step,
                            metric, last.get(metric, "missing"))
            return
        values = learning_curve.finite_values(rows, metric)
        best_step, best_value = self._best.choose(values)
        if best_step == step:
            newest_step = OutputDirectory(self._output_dir).step or 0
            self._best.replace(step, best_value, checkpoint, values, newest_step)
        self._stops = learning_curve.is_early_stop(self._settings, self._best, rows)
        if self._stops:
            logging.info("Early stopping: %s did not improve in the last %d evaluations. The best value is "
                         "%s, at step %d. The training ends at step %d.", metric,
                         self._settings.early_stopping_evals, best_value, best_step, step)


def _format_rows(rows, names, best_step):
    """Returns rows of the table as lines of text.

    Args:
      rows: list of {metric: text}, sorted by step.
      names: the metrics to show.
      best_step: the step whose row is marked as the best row, or None.
    """
    widths = {name: max(len(name), 8) for name in names}
    lines = ["    step  " + "  ".join(name.rjust(width) for name, width in widths.items())]
    for row in rows:
        cells = "  ".join(_format_metric(row.get(name, "-")).rjust(width) for name, width in widths.items())
        mark = "  best" if int(row["global_step"]) == best_step else ""
        lines.append(f"{row['global_step']:>8}  {cells}{mark}")
    return "\n".join(lines)


def _format_metric(text):
    """Returns the text of a metric for the log."""
    try:
        return f"{float(text):.4f}"
    except ValueError:
        return text
