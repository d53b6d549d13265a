"""Implements the evaluation of run_squad.py: computes the answers of a model, scores them and writes them."""

import math
import os

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.output_directory import null_threshold
from bertlib.reports import prediction_files, squad_report
from bertlib.reports.prediction_rows import PredictedRow
from bertlib.runs import estimator_setup, example_limits, results
from bertlib.runs.settings import last_training_step
from bertlib.system import files, fingerprints
from bertlib.tasks.squad import squad_answers, squad_data, squad_predictions, squad_scores

RESULTS, REPORT = "eval_results.json", "eval_report.html"
# Names of all files that an evaluation or a prediction writes.
RESULT_FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json", "answer_offsets.json",
                *(f"{split}_predictions.{ending}" for split in ("eval", "test")
                  for ending in prediction_files.FORMATS), RESULTS, REPORT)


def draw_questions(settings, split, examples):
    """Draws the questions for --max_train_examples or --max_eval_examples; see
    `example_limits.draw_examples`.

    Args:
      settings: a `Settings`.
      split: "train" or "dev".
      examples: list of `SquadExample`.
    """
    return example_limits.draw_examples(settings, split, examples, lambda example: fingerprints.hash_texts(
        [example.question_text, example.orig_answer_text, *example.doc_tokens]))


def log_windows_seen(settings, num_train_steps, questions, windows):
    """Logs the number of windows that the training reads, if it does not read all windows.

    Args:
      settings: a `Settings`.
      num_train_steps: number of steps of the schedule.
      questions: number of questions in --train_file.
      windows: number of windows of these questions.
    """
    batch = settings.train_batch_size
    steps = last_training_step(settings, num_train_steps)
    seen = steps * batch
    if seen >= windows:
        return
    epochs = math.ceil(math.ceil(windows / batch) * batch / questions * 100) / 100
    limit = " and without --max_steps" if steps < num_train_steps else ""
    logging.info("%s steps with a batch size of %d read %s of %s windows. --num_train_epochs counts "
                 "questions, as in the published code, but a long context has several windows. With "
                 "--num_train_epochs=%g%s, the training reads all windows.", f"{steps:,}", batch,
                 f"{seen:,}", f"{windows:,}", epochs, limit)


class Evaluation:
    """Answers the questions of --predict_file and scores the answers.

    Attributes:
      shown: the metrics that the picture of the learning curve shows, as {metric: its name in the picture}.
    """

    def __init__(self, settings, estimator, examples, gold, tokenizer):
        """Creates the evaluation.

        Args:
          settings: a `Settings`, checked.
          estimator: the Estimator.
          examples: list of `SquadExample`; None if nothing is evaluated.
          gold: the right answers, see `squad_data.read_gold`; None if the right answers are unknown.
          tokenizer: tokenizer of the model.
        """
        self._settings, self._estimator, self._examples, self._gold = settings, estimator, examples, gold
        self._tokenizer = tokenizer
        exact = "exact" if settings.version_2_with_negative else "exact_match"
        self.shown = {"f1": "F1", exact: "exact match"}

    def write(self, input_fn):
        """Writes the answers, a table of the answers and an HTML report into --results_dir. Also writes the
        scores, if the right answers are known. Files of an earlier evaluation or prediction that are not
        written again are removed, because they belong to other answers.

        Args:
          input_fn: the Estimator's input function. It reads the windows of the examples.
        """
        with results.replace_together(self._settings, RESULT_FILES):
            self._write(input_fn)

    def _write(self, input_fn):
        def path(name):
            return os.path.join(settings.results_dir, name)

        settings, gold = self._settings, self._gold
        version_2 = settings.version_2_with_negative
        predictions = squad_predictions.write_nbest(self._answers(input_fn), path("nbest_predictions.json"))
        threshold, source = self._null_threshold(predictions)
        if version_2:
            logging.info("Null threshold: %s (%s).", threshold, source)
        texts = squad_predictions.write_answers(predictions, path("predictions.json"),
                                                path("null_odds.json") if version_2 else None,
                                                path("answer_offsets.json"), threshold)
        logging.info("Answers: %s.", path("predictions.json"))
        scores = {}
        if gold is not None:
            scores = self._scores_of(predictions, texts, threshold)
            one_sided = squad_scores.one_sided_warning(gold, texts) if version_2 else None
            if one_sided:
                logging.warning("%s", one_sided)
            evaluation = {**scores, "global_step": self._step()}
            files.write_json(path(RESULTS), evaluation, indent=2)
            results.record_evaluation(settings, "dev", evaluation)
            logging.info("Results, in %s:\n%s", path(RESULTS),
                         "\n".join(f"  {name} = {value}" for name, value in scores.items()))
        elif files.exists(path(RESULTS)):
            # The scores belong to other answers. Later predictions still need the null threshold.
            kept = {name: value for name, value in files.read_json_object(path(RESULTS)).items()
                    if name in ("null_score_diff_threshold", "global_step")}
            if "null_score_diff_threshold" in kept:
                files.write_json(path(RESULTS), kept, indent=2)
        table = path(f"{'test' if gold is None else 'eval'}_predictions.{settings.predictions_format}")
        prediction_files.write_predictions(
            table, predicted_rows(self._examples, predictions, threshold, gold, version_2),
            settings.predictions_format, settings.csv_safe, prediction_files.ANSWER_SEPARATOR)
        logging.info("Table of the questions and their answers: %s.", table)
        results.write_report(
            settings, REPORT, lambda path, facts: squad_report.write_report(
                path, facts, self._examples, predictions, gold, threshold),
            f"SQuAD {'2.0' if version_2 else '1.1'}", scores, settings.predict_file, self.shown, 100)

    def scores(self, input_fn):
        """Returns a dict {name: number}: the scores of the weights that the Estimator evaluates, and
        "global_step", the step of these weights. Writes no file.

        Args:
          input_fn: see `write`.
        """
        predictions = [answer._replace(nbest=None) for answer in self._answers(input_fn)]
        threshold, _ = self._null_threshold(predictions)
        texts = {prediction.qas_id: prediction.final_answer(threshold).text for prediction in predictions}
        return {**self._scores_of(predictions, texts, threshold), "global_step": self._step()}

    def _step(self):
        """Returns the step of the weights that the Estimator evaluates."""
        return checkpoint_formats.read_global_step(self._estimator.latest_checkpoint())

    def model_outputs(self, input_fn):
        """Returns two iterables: the `InputFeatures` of the windows, and the `RawResult`s of the windows.

        Args:
          input_fn: see `write`.
        """
        settings = self._settings
        results = (squad_answers.RawResult(int(result["unique_ids"]), result["start_logits"],
                                           result["end_logits"])
                   for result in input_pipeline.restore_file_order(self._estimator.predict(input_fn)))
        features = squad_data.generate_features(
            self._examples, self._tokenizer, settings.max_seq_length, settings.doc_stride,
            settings.max_query_length, is_training=False, report=False)
        return features, results

    def _answers(self, input_fn):
        """Yields the `Prediction` of each question."""
        settings = self._settings
        return squad_answers.select_answers(
            self._examples, *self.model_outputs(input_fn), settings.n_best_size, settings.max_answer_length,
            settings.do_lower_case, settings.version_2_with_negative, settings.verbose_logging,
            getattr(self._tokenizer, "basic_tokenizer", None), estimator_setup.trims_evaluation(settings))

    def _null_threshold(self, predictions):
        """Returns (threshold, source): the null threshold, and a str that says where it comes from.

        With --find_null_threshold=true, the threshold is the best one for these predictions. A run without
        training uses the threshold of the last evaluation, unless --null_score_diff_threshold is given.
        """
        settings = self._settings
        if settings.find_null_threshold:
            return (squad_scores.find_null_threshold(self._gold, predictions),
                    f"the best value of --null_score_diff_threshold on {settings.predict_file}")
        checkpoint = self._estimator.latest_checkpoint() or settings.init_checkpoint
        if checkpoint and not settings.do_train and not settings.is_given("null_score_diff_threshold"):
            threshold, path = null_threshold.read(checkpoint_formats.directory_of_checkpoint(checkpoint),
                                                  checkpoint_files.step_in_name(checkpoint))
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
        if not self._settings.version_2_with_negative:
            return squad_scores.evaluate(self._gold, texts)
        scores = squad_scores.evaluate(self._gold, texts, True, squad_predictions.null_odds(predictions))
        return {**scores, "null_score_diff_threshold": threshold}


def predicted_rows(examples, predictions, threshold, gold=None, version_2_with_negative=False):
    """Returns the list of `PredictedRow`s of questions.

    Args:
      examples: list of `SquadExample`.
      predictions: list of `Prediction`, one for each example, in the order of the examples.
      threshold: the null threshold, see --null_score_diff_threshold.
      gold: the right answers, see `squad_data.read_gold`; None if they are unknown.
      version_2_with_negative: whether some questions have no answer.
    """
    answers = [prediction.final_answer(threshold) for prediction in predictions]
    texts = {prediction.qas_id: answer.text for prediction, answer in zip(predictions, answers)}
    scores = {} if gold is None else squad_scores.score_answers(gold, texts, version_2_with_negative)
    rows = []
    for example, prediction, answer in zip(examples, predictions, answers, strict=True):
        context = example.context if example.context is not None else " ".join(example.doc_tokens)
        label, is_right, details = None, None, {}
        if gold is not None:
            exact, f1 = scores[prediction.qas_id]
            label = tuple(dict.fromkeys(text for text, _ in gold[prediction.qas_id]))
            is_right, details = bool(exact), {"exact_match": exact, "f1": f1}
        if prediction.null_odds is not None:
            details["null_odds"] = float(prediction.null_odds)
        rows.append(PredictedRow(
            example.line, {"id": prediction.qas_id, "question": example.question_text, "context": context},
            (example.question_text, context), label, answer.text, {"": float(answer.probability)}, is_right,
            details=details))
    return rows
