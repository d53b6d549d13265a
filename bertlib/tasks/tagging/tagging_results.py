"""Computes and writes the results of run_ner.py: the tags of words, and the scores of the entities."""

import os

from absl import logging

from bertlib.system import files
from bertlib.tasks import results, task
from bertlib.tasks.tagging import tagging_data, tagging_metrics, tagging_report


class TaggingResults(results.Results):
    """The results of a `task.Tagging`."""

    def predict(self, split, inference):
        """Predicts the tags of a split. Returns (predictions, scores). `predictions` is a list with a
        `tagging_data.Prediction` for each sentence. `scores` is None if the split has no tags.

        If the split has tags that the model does not know, the scores have no eval_loss, because an unknown
        tag has no loss.
        """
        file, rows = self.task.files[split], list(inference.rows())
        predicted = tagging_data.merge_windows(rows, file.sentences, self.task.labels, self.task.scheme)
        if not file.is_tagged:
            return predicted, None
        found = tagging_metrics.score_tags([sentence.tags for sentence in file.sentences],
                                           [prediction.tags for prediction in predicted])
        scores = {f"eval_{name}": value for name, value in found.items()}
        if set(tagging_data.collect_labels(file.sentences)) <= set(self.task.labels):
            scores["eval_loss"] = sum(row["loss"] for row in rows) / sum(
                sum(window.tag_mask) for window in self.task.windows[split])
        return predicted, {**scores, "global_step": inference.step}

    def write(self, split, inference):
        settings, file = self.settings, self.task.files[split]
        logging.info("Tagging %d sentences of %s.", len(file.sentences), file.path)
        predicted, scores = self.predict(split, inference)
        if split == "test":
            path = os.path.join(settings.results_dir, file.predictions_name)
            files.write_text(path, file.add_predictions(predicted))
            logging.info("%s: the test file with %s.", path, file.where_predicted)
        if scores:
            scores = self._write_scores(split, predicted, scores)
        # In JSON Lines, the test file with its predictions has the same name, tags and probabilities as the
        # table.
        if split == "dev" or f"{task.TABLES[split]}.{settings.predictions_format}" != file.predictions_name:
            self.task.write_table(task.TABLES[split], tagging_report.WordRows(file.sentences, predicted))
        if split == "dev":
            tags = [prediction.tags for prediction in predicted]
            results.write_report(self.task, task.REPORT, "Tagging", scores, file.path,
                                 tagging_report.write_report, file.sentences, tags)

    def _write_scores(self, split, predicted, scores):
        """Writes the scores of a split, and warns if the tagger found no entity. The JSON file also contains
        the scores and the support of each type. The support is the number of entities in the data.

        Returns:
          the metrics in the JSON file.
        """
        sentences, of_types = self.data[split], {}
        counts = tagging_data.count_types(sentences)
        for kind in sorted(key.removeprefix("eval_f1_") for key in scores if key.startswith("eval_f1_")):
            of_types[kind] = {metric: scores[f"eval_{metric}_{kind}"]
                              for metric in ("precision", "recall", "f1")}
            of_types[kind]["support"] = counts.get(kind, 0)
        combined = results.write_metrics(self.settings, split, task.SCORES[split], scores,
                                         {"labels": of_types})
        warning = tagging_metrics.no_entity_warning([sentence.tags for sentence in sentences],
                                                    [prediction.tags for prediction in predicted])
        if warning:
            logging.warning("%s.txt: %s", task.SCORES[split], warning)
        return combined
