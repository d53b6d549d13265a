"""What a model for multiple choice predicts: a score for each ending. And how it answers."""

import numpy as np

from bertlib.data.prediction_tables import Scored
from bertlib.runs import entries
from bertlib.tasks import answers
from bertlib.tasks.choice import choice_data
from bertlib.tasks.target import Target


class Endings(Target):
    """The target of models that choose one of several endings."""

    name, title = "multiple_choice", "multiple choice"
    variables = ("cls/multiple_choice/output_weights",)
    architecture = "BertForMultipleChoice"
    fractions = "eval_accuracy"
    commands, known_metrics = ("run_swag",), ("eval_accuracy", "eval_loss")
    more_settings = (entries.Integer("num_choices", 4, "", least=choice_data.MIN_CHOICES,
                                     most=choice_data.MAX_CHOICES),)

    def __init__(self, num_choices=1):
        """Creates a target. `num_choices` is the number of endings of an example."""
        self.num_choices = num_choices

    def create_head(self):
        from bertlib.tasks.choice import choice_head
        return choice_head.Choice(self.num_choices)

    def feature_fields(self, seq_length, is_training=True):
        return choice_data.feature_fields(seq_length, self.num_choices)

    def score_table(self, table):
        # A label is only the position of the right ending in the list of endings. So metrics that are
        # computed for each label, such as F1, have no meaning.
        is_right = np.array([str(row["label"]) == str(row["prediction"]) for row in table.rows])
        return Scored({"eval_accuracy": lambda rows: 100 * float(is_right[rows].mean())}, is_right.tolist(),
                      len(is_right), "rows")


class ChosenEnding(answers.Answers):
    """Answers with {"label", "ending", "probabilities": {label: probability}}. The label is the number of the
    chosen ending, as a str. The label of the first ending is "0"."""

    refuses_more = True
    required = len(choice_data.column_names(choice_data.MIN_CHOICES))

    def __init__(self, model):
        super().__init__(model)
        self.fields = choice_data.column_names(model.setting("num_choices"))

    def preprocess(self, *texts):
        sent1, sent2, *endings = map(answers.require_text, self.fields, texts)
        sequences, longest = choice_data.make_sequences(sent1, sent2, endings, self.model.max_seq_length,
                                                        self.limited_tokenizer)
        self.count_truncated(longest)
        return sequences, endings

    def postprocess(self, outputs, details):
        endings = details
        numbers = probabilities([output["scores"] for output in outputs])
        best = int(numbers.argmax())
        labels = choice_data.label_names(len(endings))
        return {"label": labels[best], "ending": endings[best],
                "probabilities": dict(zip(labels, map(answers.finite_number, numbers)))}

    def probability_labels(self):
        return choice_data.labels_of_columns(self.fields)

    find_unread = staticmethod(choice_data.unread_ending)


def probabilities(scores):
    """Returns the softmax of scores [..., C], a float32 array of the same shape."""
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
