"""The evaluation of run_squad.py: the answers of the newest checkpoint, their scores and their files."""

import json
import os

from absl import logging
import numpy as np

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.system import files
from bertlib.tasks.squad import squad_answers, squad_data, squad_predictions, squad_report, squad_scores

# Logit of a position that was cut off: as little as a masked position's score, and no infinity.
_CUT_OFF = -10000.0


class Evaluation:
    """Answers the questions of --predict_file and scores the answers.

    Attributes:
      shown: {metric: its name} of the scores that a learning curve shows.
    """

    def __init__(self, settings, estimator, examples, gold, tokenizer):
        """Creates the evaluation.

        Args:
          settings: a `Settings`, checked.
          estimator: the Estimator.
          examples: list of `SquadExample`; None if nothing is evaluated.
          gold: see `squad_data.read_gold`, or None.
          tokenizer: of the model.
        """
        self._settings, self._estimator, self._examples, self._gold = settings, estimator, examples, gold
        self._tokenizer = tokenizer
        exact = "exact" if settings.version_2_with_negative else "exact_match"
        self.shown = {"f1": "F1", exact: "exact match"}

    def write(self, input_fn):
        """Writes the files of the answers and, if the right answers are known, of the scores.

        Args:
          input_fn: of the windows of the examples.
        """
        write_result_files(self._settings, self._examples, *self._outputs(input_fn), self._gold,
                           getattr(self._tokenizer, "basic_tokenizer", None))

    def scores(self, input_fn):
        """Returns the content of eval_results.json for the newest checkpoint, and "global_step"; writes
        nothing."""
        answers = predict_answers(self._settings, self._examples, *self._outputs(input_fn),
                                  getattr(self._tokenizer, "basic_tokenizer", None))
        predictions = [answer._replace(nbest=None) for answer in answers]
        threshold = null_threshold(self._settings, self._gold, predictions)
        texts = {prediction.qas_id: prediction.final_answer(threshold).text for prediction in predictions}
        return {**scores_of(self._settings, self._gold, predictions, texts, threshold),
                "global_step": checkpoint_formats.read_global_step(self._estimator.latest_checkpoint())}

    def _outputs(self, input_fn):
        """Returns two iterables: the `InputFeatures` of the windows, and their `RawResult`s."""
        settings = self._settings
        results = (squad_answers.RawResult(int(result["unique_ids"]), *(
            _padded(result[name], settings.max_seq_length) for name in ("start_logits", "end_logits")))
            for result in input_pipeline.restore_file_order(self._estimator.predict(input_fn)))
        features = squad_data.generate_features(
            self._examples, self._tokenizer, settings.max_seq_length, settings.doc_stride,
            settings.max_query_length, is_training=False, report=False)
        return features, results


def _padded(logits, length):
    """Logits of a trimmed sequence [≤ F] as of a whole one, with hardly any chance for what was cut off."""
    return np.pad(logits, (0, length - len(logits)), constant_values=_CUT_OFF)


def predict_answers(settings, examples, features, results, basic_tokenizer=None):
    """Yields the `Prediction` of each question, as the flags ask. For the arguments see
    `write_result_files`."""
    return squad_answers.select_answers(
        examples, features, results, settings.n_best_size, settings.max_answer_length, settings.do_lower_case,
        settings.version_2_with_negative, settings.verbose_logging, basic_tokenizer)


def null_threshold(settings, gold, predictions):
    """Returns the null threshold: with --find_null_threshold the best one for these predictions."""
    if settings.find_null_threshold:
        return squad_scores.find_null_threshold(gold, predictions)
    return settings.null_score_diff_threshold


def scores_of(settings, gold, predictions, texts, threshold):
    """Returns the content of eval_results.json, {name: number}.

    Args:
      settings: a `Settings`.
      gold: see `squad_data.read_gold`.
      predictions: list of `Prediction`.
      texts: {qas_id: the final answer}.
      threshold: the null threshold of these.
    """
    if not settings.version_2_with_negative:
        return squad_scores.evaluate(gold, texts)
    scores = squad_scores.evaluate(gold, texts, True, squad_predictions.null_odds(predictions))
    return {**scores, "null_score_diff_threshold": threshold}


def write_result_files(settings, examples, features, results, gold, basic_tokenizer=None):
    """Writes the answers to results_dir, and with the right answers, the scores and a report to look at.

    Args:
      settings: a `Settings`.
      examples: list of `SquadExample`.
      features: iterable of their `InputFeatures`.
      results: iterable of their `RawResult`.
      gold: see `squad_data.read_gold`, or None.
      basic_tokenizer: see `squad_answers.select_answers`.
    """
    def path(name):
        return os.path.join(settings.results_dir, name)

    version_2 = settings.version_2_with_negative
    answers = predict_answers(settings, examples, features, results, basic_tokenizer)
    predictions = squad_predictions.write_nbest(answers, path("nbest_predictions.json"))
    threshold = null_threshold(settings, gold, predictions)
    if settings.find_null_threshold:
        logging.info("Best --null_score_diff_threshold on %s: %s.", settings.predict_file, threshold)
    texts = squad_predictions.write_answers(predictions, path("predictions.json"),
                                            path("null_odds.json") if version_2 else None,
                                            path("answer_offsets.json"), threshold)
    squad_report.write_report(path("predictions.html"), examples, predictions, gold, threshold)
    logging.info("Answers: %s; to look at: %s.", path("predictions.json"), path("predictions.html"))
    if gold is not None:
        scores = scores_of(settings, gold, predictions, texts, threshold)
        one_sided = squad_scores.one_sided_warning(gold, texts) if version_2 else None
        if one_sided:
            logging.warning("%s", one_sided)
        files.write_text(path("eval_results.json"), json.dumps(scores, indent=2) + "\n")
        logging.info("Results, in %s:\n%s", path("eval_results.json"),
                     "\n".join(f"  {name} = {value}" for name, value in scores.items()))
