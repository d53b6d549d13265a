"""Computes and writes the results of run_squad.py: the answers of a model with their scores."""

import os

from absl import logging

from bertlib.system import files
from bertlib.tasks import results, task
from bertlib.tasks.squad import null_threshold, squad_answers, squad_data, squad_metrics, squad_report


class SquadResults(results.Results):
    """The results of a `task.QuestionAnswering`."""

    def predict(self, split, inference):
        predictions = [answer._replace(nbest=None) for answer in self._answers(split, inference)]
        threshold, _ = self._null_threshold(predictions, inference)
        texts = {prediction.qas_id: prediction.final_answer(threshold).text for prediction in predictions}
        scores = self._scores_of(predictions, texts, threshold)
        return predictions, {**scores, "global_step": inference.step}

    def write(self, split, inference):
        """Writes the answers, a table of the answers and an HTML report. Also writes the scores, if the right
        answers are known."""
        def path(name):
            return os.path.join(settings.results_dir, name)

        settings, gold, examples = self.settings, self.task.gold, self.data[split]
        version_2 = settings.version_2_with_negative
        logging.info("Answering %d questions.", len(examples))
        predictions = squad_answers.write_nbest(self._answers(split, inference),
                                                path("nbest_predictions.json"))
        threshold, source = self._null_threshold(predictions, inference)
        if version_2:
            logging.info("Null threshold: %s (%s).", threshold, source)
        texts = squad_answers.write_answers(predictions, path("predictions.json"),
                                            path("null_odds.json") if version_2 else None,
                                            path("answer_offsets.json"), threshold)
        logging.info("Answers: %s.", path("predictions.json"))
        scores = {} if gold is None else self._scores_of(predictions, texts, threshold)
        self._write_scores(path("eval_results.json"), scores, texts, inference.step)
        answers = [prediction.final_answer(threshold) for prediction in predictions]
        rows = squad_report.predicted_rows(examples, predictions, answers, gold, version_2)
        self.task.write_table(task.TABLES["test" if gold is None else "dev"], rows,
                              self.target.answer_separator)
        results.write_report(self.task, task.REPORT, f"SQuAD {'2.0' if version_2 else '1.1'}", scores,
                             settings.predict_file, squad_report.write_report, rows, answers, gold)

    def _write_scores(self, path, scores, texts, step):
        """Writes the scores.

        Args:
          path: path of eval_results.json.
          scores: {metric: number}; empty if the right answers are unknown.
          texts: the final answers as {qas_id: text}.
          step: the step of the weights.
        """
        if scores:
            one_sided = (squad_metrics.one_sided_warning(self.task.gold, texts)
                         if self.settings.version_2_with_negative else None)
            if one_sided:
                logging.warning("%s", one_sided)
            results.write_metrics(self.settings, "dev", task.SCORES["dev"], {**scores, "global_step": step})
        elif files.exists(path):
            # The scores belong to other answers. Later predictions still need the null threshold.
            kept = {name: value for name, value in files.read_json_object(path).items()
                    if name in ("null_score_diff_threshold", "global_step")}
            if "null_score_diff_threshold" in kept:
                files.write_json(path, kept, indent=2)

    def _answers(self, split, inference):
        """Yields the `Prediction` of each question."""
        settings = self.settings
        features = squad_data.generate_features(self.data[split], self.task.tokenizer, *self.task.lengths,
                                                is_training=False, report=False)
        outputs = (squad_answers.RawResult(int(row["unique_ids"]), row["start_logits"], row["end_logits"])
                   for row in inference.rows())
        return squad_answers.select_answers(self.data[split], features, outputs, squad_answers.Search(
            settings.n_best_size, settings.max_answer_length, settings.do_lower_case,
            settings.version_2_with_negative, settings.verbose_logging,
            getattr(self.task.tokenizer, "basic_tokenizer", None), self.task.trims(is_training=False)))

    def _null_threshold(self, predictions, inference):
        """Returns (threshold, source): the null threshold, and a str that says where it comes from.

        With --find_null_threshold=true, the threshold is the best one for these predictions. A run without
        training uses the threshold of the last evaluation, unless --null_score_diff_threshold is given.
        """
        settings = self.settings
        if settings.find_null_threshold:
            return (squad_metrics.find_null_threshold(self.task.gold, predictions),
                    f"the best value of --null_score_diff_threshold on {settings.predict_file}")
        checkpoint = inference.checkpoint or settings.init_checkpoint
        if checkpoint and not settings.do_train and not settings.is_given("null_score_diff_threshold"):
            threshold, path = null_threshold.read(checkpoint)
            if threshold is not None:
                return threshold, path
        return settings.null_score_diff_threshold, "--null_score_diff_threshold"

    def _scores_of(self, predictions, texts, threshold):
        """Returns a dict {name: number}, the content of eval_results.json.

        Args:
          predictions: list of `Prediction`.
          texts: {qas_id: the final answer}.
          threshold: the null threshold with which `texts` were chosen, see --null_score_diff_threshold.
        """
        if not self.settings.version_2_with_negative:
            return squad_metrics.evaluate(self.task.gold, texts)
        scores = squad_metrics.evaluate(self.task.gold, texts, True, squad_answers.null_odds(predictions))
        return {**scores, "null_score_diff_threshold": threshold}
