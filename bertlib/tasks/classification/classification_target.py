"""What models for texts predict: one label, a score (regression), or any number of labels (multi-label).

`TextTarget` describes the interface of these targets. Its base class in `bertlib.tasks.target` describes what
all targets have in common.
"""

from collections.abc import Iterable
import contextlib
import itertools
import math

import numpy as np

from bertlib.data import example_encoding, prediction_rows, tables
from bertlib.data.prediction_tables import Scored, read_number
from bertlib.runs import entries
from bertlib.tasks.classification import classification_metrics
from bertlib.tasks.target import Target

_NAME = "label_ids"


class TextTarget(Target):
    """Base class of the targets of texts.

    In the methods, a `prediction` is the output of the head for one example. `labels` and `outputs` are
    arrays with a row for each example: the values of the field `field`, and the outputs of the head.

    Attributes:
      field: the `example_encoding.Field` "label_ids" of stored features. It contains the label.
      default_label: label for examples whose label is unknown.
      output: name of the head's prediction that is written to files.
      more_metrics: names of further metrics of an evaluation, see `known_metrics`.
      metric_names: {name of a metric without "eval_": its name in the log, which may contain labels}. The
        metrics are those of `compare`. All are fractions. The first two are the official metrics of the
        user's own data.
      threshold: a label is predicted if its probability is at least this number; None if the labels exclude
        each other.
    """

    architecture = "BertForSequenceClassification"
    output, threshold, more_metrics = "probabilities", None, ()
    commands = "run_classifier", "run_classifier_with_tfhub"
    more_settings = (entries.TextMap("mapped_labels", None, ""),)

    def __init__(self, labels=()):
        """Creates a target. `labels` is a list of str."""
        self.labels = list(labels)
        self._ids = {label: index for index, label in enumerate(self.labels)}

    @property
    def known_metrics(self):
        return *(f"eval_{name}" for name in self.metric_names), *self.more_metrics, "eval_loss", "loss"

    @property
    def fractions(self):
        return f"eval_({'|'.join(self.metric_names)})"

    def with_labels(self, labels, setting):
        return type(self)(labels)

    def for_run(self, settings, labels):
        """Returns the target of a run.

        Args:
          settings: a `Settings`. A multi-label target contains the values of --threshold and
            --label_separator.
          labels: list of str; None for a score.

        Raises:
          ValueError: a flag is not for this type of task, or a label contains the separator of labels.
        """
        for name in filter(settings.is_given, ("threshold", "label_separator")):
            raise ValueError(f"--{name} is for --task_type=multilabel, but this run has "
                             f"--task_type={self.name}. Leave --{name} out.")
        return self.with_labels(labels, settings.get)

    def feature_fields(self, seq_length, is_training=True):
        return feature_fields(seq_length, self)

    # --- Labels and answers

    def encode_label(self, label):
        """Returns the value of the field for a label.

        Raises:
          ValueError: the label is not valid.
        """
        raise NotImplementedError

    def row_label(self, label):
        """Returns the label of an example in the form of `prediction_rows.PredictedRow`."""
        return label

    def row_answer(self, prediction):
        """Returns (answer, {label: probability} or None) in the form of `prediction_rows.PredictedRow`. The
        answer is a label, a score or a tuple of labels."""
        return self._chosen(prediction), dict(zip(self.labels, map(prediction_rows.shortest, prediction)))

    # --- Metrics

    def losses(self, labels, outputs):
        """Returns the loss of each example, float32, computed from the outputs of the head: the
        cross-entropy, the squared error, or the mean of the binary cross-entropies."""
        raise NotImplementedError

    def decide(self, outputs):
        """Returns the predictions, an array like `labels`: ids of labels, scores, or for each label whether
        it is predicted."""
        raise NotImplementedError

    def metric_functions(self, labels, predicted):
        """Returns metrics of a part of the examples as {name of a metric: function}. A function takes an int
        array with the indices of some examples. `predicted` is an array like the result of `decide`."""
        raise NotImplementedError

    def metrics(self, labels, outputs, losses):
        """Returns the metrics of an evaluation, {name: number or array}: the mean loss, the values of
        `compare` for all examples, and others. `losses` is an array with the loss of each example."""
        functions = self.metric_functions(labels, self.decide(outputs))
        return {"eval_loss": np.mean(losses, dtype=np.float64),
                **{name: function(slice(None)) for name, function in functions.items()}}

    def further_metrics(self, labels, outputs):
        """Returns further metrics, which are not official metrics of the task."""
        raise NotImplementedError

    def read_column(self, table, name):
        """Returns the column "label" or "prediction" of a `prediction_tables.PredictionTable`, an array like
        `labels`."""
        raise NotImplementedError

    def score_table(self, table):
        right, predicted = self.read_column(table, "label"), self.read_column(table, "prediction")
        is_right = None if self.is_score else (right == predicted).reshape(len(right), -1).all(1).tolist()
        return Scored({name: lambda rows, function=function: 100 * function(rows)
                       for name, function in self.metric_functions(right, predicted).items()},
                      is_right, len(right), "rows")


class SingleLabel(TextTarget):
    """The target for models that choose one of several labels. The id of a label is its index in the list of
    labels."""

    name, title = "classification", "a classifier"
    problem_type = "single_label_classification"
    field = example_encoding.Field(_NAME, "int64", (), example_encoding.ANY_ID)

    def create_head(self, *loss_options):
        from bertlib.tasks.classification import classification_head
        return classification_head.Classifier(self.size, *loss_options)

    @property
    def default_label(self):
        return self.labels[0]

    def encode_label(self, label):
        try:
            return self._ids[label]
        except (KeyError, TypeError):
            raise ValueError(f"label {label!r} is not one of {', '.join(map(str, self._ids))}") from None

    def _chosen(self, prediction):
        return self.labels[self.decide(prediction)]

    def losses(self, labels, outputs):
        return classification_metrics.log_losses(outputs[np.arange(len(labels)), labels]).astype(np.float32)

    def metrics(self, labels, outputs, losses):
        return {**super().metrics(labels, outputs, losses),
                "eval_confusion_matrix": self._confusion_matrix(labels, outputs)}

    def _confusion_matrix(self, labels, outputs):
        return classification_metrics.confusion_matrix(labels, self.decide(outputs), self.size)

    def further_metrics(self, labels, outputs):
        matrix = self._confusion_matrix(labels, outputs)
        return {"labels": classification_metrics.label_scores(self.labels, matrix.diagonal(), matrix.sum(1),
                                                              matrix.sum(0))}

    def decide(self, outputs):
        # If two logits differ very little, their probabilities may be rounded to the same number. In this
        # case, the predicted label may differ from the label with the highest logit.
        return outputs.argmax(axis=-1)

    def metric_functions(self, labels, predicted):
        return classification_metrics.class_functions(labels, predicted, self.size)

    @property
    def metric_names(self):
        f1 = "F1"
        if self.size > 2:
            f1 = f"macro F1 of {self.size} labels"
        elif self.labels[1:] not in ([], ["1"]):
            f1 = f"F1 of {self.labels[1]}"
        return {"accuracy": "accuracy", "f1": f1, "matthews": "Matthews"}

    def describe_metric(self, name):
        if name == "eval_f1" and self.size == 2:
            return f"the F1 of {self.labels[1]}"
        return _mean_of_labels(self.labels) if name == "eval_f1" else None

    def read_column(self, table, name):
        return table.label_ids(name)


class Score(TextTarget):
    """The target for models that predict a score, which is a number (regression)."""

    name = problem_type = "regression"
    title, is_score = "a regression", True
    metric_names = {"pearson": "Pearson", "spearman": "Spearman"}
    more_metrics = "eval_mae", "eval_rmse"
    field = example_encoding.Field(_NAME, "float32", ())
    default_label, output = 0.0, "scores"

    def __init__(self, labels=None):
        """Creates a target. A score has no labels."""

    def create_head(self):
        from bertlib.tasks.classification import classification_head
        return classification_head.Regressor()

    def encode_label(self, label):
        try:
            score = float(label)
        except (TypeError, ValueError):
            score = math.nan
        if not abs(score) <= tables.MAX_SCORE:
            raise ValueError(f"the label {label!r:.80} is not a finite number")
        return score

    def losses(self, labels, outputs):
        return np.square(outputs - labels.astype(np.float32))

    def further_metrics(self, labels, outputs):
        return classification_metrics.regression_errors(labels, outputs)

    def decide(self, outputs):
        return classification_metrics.printable_scores(outputs)

    def metric_functions(self, labels, predicted):
        return classification_metrics.number_functions(labels, predicted)

    def row_label(self, label):
        return float(label)

    def row_answer(self, prediction):
        return prediction_rows.shortest(prediction), None

    def compared_label(self, value):
        with contextlib.suppress(TypeError, ValueError):
            return repr(read_number(value))
        return None

    def read_column(self, table, name):
        return table.numbers(name)


class MultiLabel(TextTarget):
    """The target for models that choose any number of labels, including none. The label of an example is an
    iterable of label names. It is stored as a list with 0 or 1 for each label of the task."""

    name, title, is_multilabel = "multilabel", "a multi-label classifier", True
    problem_type = "multi_label_classification"
    more_metrics = "eval_auc", "eval_auc_*"
    default_label = ()

    def __init__(self, labels=(), threshold=0.5, separator=","):
        """Creates a target.

        Args:
          labels: list of str.
          threshold: a label is predicted if its probability is at least this number.
          separator: see `Target`.
        """
        super().__init__(labels)
        self.field = example_encoding.Field(_NAME, "int64", (self.size,), (0, 1))
        self.threshold, self.separator = threshold, separator

    def create_head(self):
        from bertlib.tasks.classification import classification_head
        return classification_head.MultilabelClassifier(self.size)

    def with_labels(self, labels, setting):
        return MultiLabel(labels, setting("threshold"), setting("label_separator") or self.separator)

    def for_run(self, settings, labels):
        for label in labels:
            if settings.label_separator in label:
                raise ValueError(f"the label {label!r:.80} contains {settings.label_separator!r}, which "
                                 "separates labels. Pass another --label_separator.")
        return self.with_labels(labels, settings.get)

    def encode_label(self, label):
        if isinstance(label, str) or not isinstance(label, Iterable):
            raise ValueError(f"the label {label!r:.80} is not a tuple of labels")
        ids = [0] * self.size
        for name in label:
            if name not in self._ids:
                raise ValueError(f"label {name!r} is not one of {', '.join(self._ids)}")
            ids[self._ids[name]] = 1
        return ids

    def _chosen(self, prediction):
        return tuple(itertools.compress(self.labels, self.decide(prediction)))

    def losses(self, labels, outputs):
        right = np.where(labels > 0, outputs, 1 - outputs.astype(np.float64))
        return classification_metrics.log_losses(right).mean(axis=-1).astype(np.float32)

    def metrics(self, labels, outputs, losses):
        return {**super().metrics(labels, outputs, losses),
                **classification_metrics.roc_areas(labels, outputs, self.labels)}

    def further_metrics(self, labels, outputs):
        return {"labels": classification_metrics.label_scores(
            self.labels, *classification_metrics.count_sets(labels, self.decide(outputs)))}

    def decide(self, outputs):
        return outputs >= self.threshold

    def metric_functions(self, labels, predicted):
        return classification_metrics.set_functions(labels, predicted)

    @property
    def metric_names(self):
        return {"f1_micro": "micro F1", "f1_macro": f"macro F1 of {self.size} labels"}

    @property
    def fractions(self):
        return f"{super().fractions}|eval_auc(_.*)?"

    def row_label(self, label):
        return tuple(name for name in self.labels if name in label)

    def compared_label(self, value):
        return ", ".join(sorted(self._members(value)))

    def describe_metric(self, name):
        return _mean_of_labels(self.labels) if name == "eval_f1_macro" else None

    def _members(self, value):
        """Returns the set of the labels in a field of a table, which is a text or a list."""
        return set(map(str, value) if isinstance(value, list) else filter(None, (value or "").split(
            self.separator)))

    def read_column(self, table, name):
        sets = [self._members(row[name]) for row in table.rows]
        for number, members in enumerate(sets, 1):
            if unknown := members - set(self.labels):
                raise ValueError(f"{table.path}: the {name} {min(unknown)!r:.60} in row {number} is not one "
                                 f"of the labels {', '.join(self.labels)}. Restore the file.")
        return np.array([[label in members for label in self.labels] for members in sets])


def feature_fields(seq_length, target=None):
    """Returns the fields of a stored example. `tfrecord_files` writes these fields, and `input_pipeline`
    reads them.

    Args:
      seq_length: int, number of tokens in an example.
      target: a target of this module; None for examples with one label each.

    Returns:
      list of `example_encoding.Field`.
    """
    return [
        *example_encoding.token_fields((seq_length,)),
        (target or SingleLabel()).field,
        example_encoding.Field("is_real_example", "int64", (), (0, 1)),
    ]


def create_target(label_list):
    """Converts the argument `label_list` of the published functions to a target.

    Args:
      label_list: list of the labels if an example has one label; None if an example has a score. `label_list`
        may also be a target, which is returned unchanged.
    """
    if isinstance(label_list, Target):
        return label_list
    return Score() if label_list is None else SingleLabel(label_list)


def _mean_of_labels(labels):
    return f"the mean of the F1 of {', '.join(sorted(labels))}"
