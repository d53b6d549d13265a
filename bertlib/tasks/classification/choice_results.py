"""Computes and writes the results of run_swag.py: the chosen endings and their scores."""

from absl import logging

from bertlib.data import row_fields
from bertlib.data.prediction_rows import PredictedRow, shortest
from bertlib.reports import choice_report
from bertlib.tasks import results, task
from bertlib.tasks.classification import choice_data, choice_metrics


class ChoiceResults(results.Results):
    """The results of a `choice_task.MultipleChoice`."""

    def predict(self, split, inference):
        """Returns (list with the prediction for each question, scores). For a prediction, see
        `choice_head.Choice`. The scores are None if the split has no labels."""
        outputs = list(inference.rows())
        if not self.task.files[split].is_labelled:
            return outputs, None
        metrics = choice_metrics.evaluate([int(row.label) for row in self.data[split]],
                                          [output["scores"] for output in outputs],
                                          [output["loss"] for output in outputs])
        return outputs, {**metrics, "global_step": inference.step}

    def write(self, split, inference):
        settings, file = self.settings, self.task.files[split]
        logging.info("Choosing endings for the %d questions of %s.", len(file.rows), file.path)
        outputs, scores = self.predict(split, inference)
        warning = choice_metrics.equal_scores_warning([output["scores"] for output in outputs])
        if warning:
            logging.warning("%s: %s", file.path, warning)
        if scores:
            results.write_metrics(settings, split, task.SCORES[split], scores)
        rows = predicted_rows(file, outputs, self.task.lengths[split])
        self.task.write_table(task.TABLES[split], rows, dialect=file.dialect)
        if split == "dev":
            results.write_report(self.task, task.REPORT, "Multiple choice", scores, file.path,
                                 choice_report.write_report, rows)


def predicted_rows(file, outputs, lengths):
    """Returns the list of the `PredictedRow`s of a file. The labels, the predictions and the keys of the
    probabilities are names from `choice_data.label_names`.

    `outputs` and `lengths` have one element for each row of `file`, in the order of the rows.

    Args:
      file: a `row_examples.Split`.
      outputs: list of {name: array}, the predictions of `choice_head.Choice`.
      lengths: list of int, see `choice_data.write_features`.
    """
    names = choice_data.label_names(choice_data.count_endings(file))
    read_fields, rows = row_fields.FieldReader(file.names), []
    for row, output, length in zip(file.rows, outputs, lengths, strict=True):
        numbers = map(shortest, choice_metrics.probabilities(output["scores"]))
        prediction, is_labelled = names[int(output["scores"].argmax())], row.label is not None
        rows.append(PredictedRow(
            row.line, read_fields(row.values), row.texts, row.label, prediction, dict(zip(names, numbers)),
            row.label == prediction if is_labelled else None,
            shortest(output["loss"]) if is_labelled else None, length))
    return rows
