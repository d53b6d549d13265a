"""Writes the files of predicted SQuAD answers: final answers, n-best lists, null odds and offsets.

    search = squad_answers.Search(n_best_size=20, max_answer_length=30, do_lower_case=True)
    answers = squad_answers.select_answers(examples, features, results, search)
    predictions = write_nbest(answers, "nbest_predictions.json")
    texts = write_answers(predictions, "predictions.json")

`write_predictions` is the published function. It does all these steps.
"""


import json

from bertlib.system import files
from bertlib.tasks.squad import squad_answers


def write_predictions(all_examples, all_features, all_results, n_best_size, max_answer_length, do_lower_case,
                      output_prediction_file, output_nbest_file, output_null_log_odds_file,
                      version_2_with_negative=False, null_score_diff_threshold=0.0, verbose_logging=False,
                      output_offsets_file=None):
    """Selects the answers, and writes the answers and the n-best lists. For SQuAD 2.0, also writes the null
    odds.

    Args:
      all_examples: list of `SquadExample`.
      all_features: list of `InputFeatures`, in any order.
      all_results: iterable of `RawResult`, in any order.
      n_best_size, max_answer_length, do_lower_case, version_2_with_negative, verbose_logging: see
        `squad_answers.Search`.
      output_prediction_file, output_nbest_file, output_null_log_odds_file, output_offsets_file: paths; see
        `write_nbest` and `write_answers`.
      null_score_diff_threshold: if the null odds of a question are above this number, the answer is empty.

    Returns:
      list of `Prediction`, without their n-best lists.
    """
    features = sorted(all_features, key=lambda feature: feature.example_index)
    search = squad_answers.Search(n_best_size, max_answer_length, do_lower_case, version_2_with_negative,
                                  verbose_logging)
    predictions = write_nbest(squad_answers.select_answers(all_examples, features, all_results, search),
                              output_nbest_file)
    write_answers(predictions, output_prediction_file, output_null_log_odds_file if version_2_with_negative
                  else None, output_offsets_file, null_score_diff_threshold)
    return predictions


def write_nbest(predictions, path):
    """Writes the n-best lists, one question at a time, as {qas_id: [{"text", "probability", "start_logit",
    "end_logit"}]}.

    The file appears only when it is complete. If an error occurs, an older file of this name stays unchanged.

    Args:
      predictions: iterable of `Prediction`.
      path: path of the file.

    Returns:
      list of `Prediction`, without their n-best lists.
    """
    written = []
    with files.atomic_replacement(path) as partial, files.open_file(partial, "w") as writer:
        writer.write("{")
        for prediction in predictions:
            entries = [{"text": answer.text, "probability": answer.probability,
                        "start_logit": answer.start_logit, "end_logit": answer.end_logit}
                       for answer in prediction.nbest]
            question = json.dumps({prediction.qas_id: entries}, indent=4)  # writes -Infinity, as published
            writer.write(("," if written else "") + question[len("{"):-len("\n}")])
            written.append(prediction._replace(nbest=None))
        writer.write("\n}\n" if written else "}\n")
    return written


def write_answers(predictions, prediction_file, null_odds_file=None, offsets_file=None,
                  null_score_diff_threshold=0.0):
    """Writes the final answers as {qas_id: text}. Also writes the null odds and the offsets of the answers,
    each of them only if a path for it is passed.

    Args:
      predictions: list of `Prediction`.
      prediction_file: path for the answers, {qas_id: text}.
      null_odds_file: path for {qas_id: null odds}, or None.
      offsets_file: path for {qas_id: {"text", "start", "end"}}, or None; see `squad_answers.Answer`.
      null_score_diff_threshold: see `write_predictions`.

    Returns:
      dict, the answers {qas_id: text}.
    """
    answers = {prediction.qas_id: prediction.final_answer(null_score_diff_threshold)
               for prediction in predictions}
    texts = {qas_id: answer.text for qas_id, answer in answers.items()}
    files.write_json(prediction_file, texts, indent=4)
    if null_odds_file:
        files.write_json(null_odds_file, null_odds(predictions), indent=4)
    if offsets_file:
        files.write_json(offsets_file, {
            qas_id: {"text": answer.text, "start": answer.start, "end": answer.end}
            for qas_id, answer in answers.items()}, indent=4)
    return texts


def null_odds(predictions):
    """Returns {qas_id: null odds} of a list of `Prediction`."""
    return {prediction.qas_id: prediction.null_odds for prediction in predictions}
