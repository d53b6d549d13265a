"""What a model for question answering predicts: the start and the end of an answer. And how it answers."""

import os

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.data import example_encoding, prediction_files
from bertlib.data.prediction_tables import Scored
from bertlib.runs import file_names, output_directory, registry
from bertlib.tasks import answers
from bertlib.tasks.squad import span_selection, squad_data
from bertlib.tasks.target import Target


class Spans(Target):
    """The target of models that find answers in a text."""

    name, title = "questions", "question answering"
    variables = ("cls/squad/output_weights", "cls/squad/output_bias")
    architecture = "BertForQuestionAnswering"
    separator = prediction_files.ANSWER_SEPARATOR
    commands = ("run_squad",)
    known_metrics = "exact_match", "exact", "f1", "total", "HasAns_*", "NoAns_*", "best_*", "null_*"

    def create_head(self):
        from bertlib.tasks.squad import squad_head
        return squad_head.Span()

    def feature_fields(self, seq_length, is_training=True):
        return squad_data.feature_fields(seq_length, is_training)

    def score_table(self, table):
        exact, f1 = table.numbers("exact_match"), table.numbers("f1")
        # The names are those of the published scorers of SQuAD 1.1 and 2.0.
        name = "exact" if str(table.record["task"]).endswith("2.0") else "exact_match"
        return Scored({"f1": lambda rows: 100 * float(f1[rows].mean()),
                       name: lambda rows: 100 * float(exact[rows].mean())},
                      (exact > 0).tolist(), len(exact), "questions")


class SquadQuestions(answers.Answers):
    """Answers with {"answer", "probability", "start", "end"}. "start" and "end" are indices of characters in
    the context.

    With a model of SQuAD 2.0, "answer" is "" if the context contains no answer. The answers of such a model
    also have "null_odds", the score of "no answer" minus the score of the best answer.
    """

    fields, required, formats = ("question", "context"), 2, ("onnx",)

    def __init__(self, model):
        super().__init__(model)
        self._version_2 = str(model.task_name).endswith("2.0")
        self._threshold = _null_threshold(model) if self._version_2 else None

    @classmethod
    def read_dev_set(cls, model, path_of):
        examples = squad_data.read_squad_examples(path_of("predict_file"), is_training=False)
        return [((example.question_text, example.context), None) for example in examples]

    def preprocess(self, question, context):
        words, offsets = squad_data.split_context(answers.require_text("context", context))
        example = squad_data.SquadExample("", answers.require_text("question", question), words,
                                          context=context, word_offsets=offsets)
        features = list(squad_data.generate_features(
            [example], self.model.tokenizer, self.model.max_seq_length,
            self.model.setting("doc_stride"), self.model.setting("max_query_length"),
            is_training=False, report=False))
        sizes = [len(feature.tokens) for feature in features]
        return [{name: getattr(feature, name)[:size] for name in example_encoding.TRIMMED_FIELDS}
                for feature, size in zip(features, sizes)], (example, features)

    def postprocess(self, outputs, details):
        example, features = details
        results = [span_selection.RawResult(feature.unique_id, output["start_logits"],
                                            output["end_logits"])
                   for feature, output in zip(features, outputs)]
        search = span_selection.Search(
            self.model.setting("n_best_size"), self.model.setting("max_answer_length"),
            self.model.do_lower_case, self._version_2,
            basic_tokenizer=getattr(self.model.tokenizer, "basic_tokenizer", None), skips_padding=True)
        prediction, = span_selection.select_answers([example], features, results, search)
        best = prediction.final_answer(self._threshold)
        answer = {"answer": best.text, "probability": answers.finite_number(best.probability),
                  "start": best.start, "end": best.end}
        if self._version_2:
            answer["null_odds"] = answers.finite_number(prediction.null_odds)
        return answer


def _null_threshold(model):
    """Returns the null threshold of a model: if "null_odds" is above this threshold, "answer" is "".

    This is the threshold of the last evaluation. If no evaluation has stored a threshold, it is the threshold
    that the training recorded.
    """
    threshold, source = read_null_threshold(model.checkpoint, model.path)
    if threshold is None:
        threshold = model.setting("null_score_diff_threshold")
        source = os.path.join(model.path, file_names.RECORD)
    logging.info("Null threshold: %s (%s).", threshold, source)
    return threshold


def read_null_threshold(checkpoint, directory=None):
    """Returns the null threshold that the last evaluation of a model used. Logs a warning if this evaluation
    used the weights of another step.

    Args:
      checkpoint: prefix of the model's weights.
      directory: the directory with the weights; None for the directory of the weights.

    Returns:
      (threshold, path): the threshold, and the file that contains it. Both are None if no evaluation has
      stored a threshold.

    Raises:
      ValueError: the threshold in the file is not a number.
    """
    directory = directory or checkpoint_formats.directory_of_checkpoint(checkpoint)
    evaluation = output_directory.find_evaluation(directory)
    results = evaluation.read_results() if evaluation else {}
    threshold = results.get("null_score_diff_threshold")
    if threshold is None:
        return None, None
    path = evaluation.join(output_directory.EVALUATION)
    entry, = registry.find_definitions("null_score_diff_threshold")
    if not entry.accepts(threshold):
        raise ValueError(f"{path}: null_score_diff_threshold is {threshold!r:.60}, but must be "
                         f"{entry.words}. Run the evaluation again, or remove the file.")
    step = checkpoint_files.step_in_name(checkpoint)
    if step is not None and results.get("global_step", step) != step:
        logging.warning("%s contains the null threshold of an evaluation after step %s, but the weights of "
                        "the model are those of step %d. To get the threshold of these weights, evaluate "
                        "them.", path, results["global_step"], step)
    return threshold, path
