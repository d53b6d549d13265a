"""Defines targets. A target describes what a text model predicts for a text: one label, a score (regression),
or any number of labels (multi-label).

A target is an object with these attributes and methods:

    task_type            "classification", "regression" or "multilabel"
    labels               list of str, the labels in the order of the model's outputs; None for a score
    size                 number of outputs of the head
    field                the `example_encoding.Field` "label_ids" of stored features. It contains the label
    padding_label        value of this field in padding rows
    default_label        label for examples whose label is unknown
    encode_label(label)  returns the value of the field for a label; raises a ValueError for an invalid label
    output               name of the head's prediction that is written to files
    predicted_label(prediction)
                         returns the answer, a str or a float, for the prediction of an example
    losses(labels, outputs)
                         returns the loss of each example, computed from the outputs of the head
    metrics(labels, outputs, losses)
                         returns the metrics of an evaluation, {name: number or array}
    details(labels, outputs)
                         returns further metrics, which are not official metrics of the task

The last three methods call functions of `classification_metrics`. Their arguments are arrays with a row for
each example: the values of the field "label_ids", the outputs of the head, and the losses.
"""

from bertlib.data import example_encoding


def _functions():
    """Returns the module with the metrics. It is imported when the first metric is computed."""
    # Processes that only make features do not load NumPy.
    from bertlib.tasks.classification import classification_metrics
    return classification_metrics

_NAME = "label_ids"


class SingleLabel:
    """The target for models that choose one of several labels. The id of a label is its index in the list of
    labels."""

    task_type = "classification"
    field = example_encoding.Field(_NAME, "int64", (), example_encoding.ANY_ID)
    padding_label = 0
    output = "probabilities"

    def __init__(self, labels):
        self.labels = list(labels)
        self.size = len(self.labels)
        self._ids = {label: index for index, label in enumerate(self.labels)}

    @property
    def default_label(self):
        return self.labels[0]

    def encode_label(self, label):
        if label not in self._ids:
            raise ValueError(f"label {label!r} is not one of {', '.join(map(str, self._ids))}")
        return self._ids[label]

    def predicted_label(self, prediction):
        return self.labels[prediction.argmax()]

    def losses(self, labels, outputs):
        return _functions().class_losses(labels, outputs)

    def metrics(self, labels, outputs, losses):
        return _functions().evaluate_classes(labels, outputs, losses)

    def details(self, labels, outputs):
        matrix = _functions().class_matrix(labels, outputs)
        return {"labels": _functions().label_scores(self.labels, matrix.diagonal(), matrix.sum(1),
                                                              matrix.sum(0))}


class Score:
    """The target for models that predict a score, which is a number (regression)."""

    task_type = "regression"
    labels = None
    size = 1
    field = example_encoding.Field(_NAME, "float32", ())
    padding_label = default_label = 0.0
    output = "scores"

    def encode_label(self, label):
        try:
            return float(label)
        except (TypeError, ValueError):
            raise ValueError(f"the label {label!r} is not a number") from None

    def predicted_label(self, prediction):
        return float(prediction)

    def losses(self, labels, outputs):
        return _functions().score_losses(labels, outputs)

    def metrics(self, labels, outputs, losses):
        return _functions().evaluate_scores(labels, outputs, losses)

    def details(self, labels, outputs):
        return _functions().errors(labels, outputs)


class MultiLabel:
    """The target for models that choose any number of labels, including none. The label of an example is an
    iterable of label names. It is stored as a list with 0 or 1 for each label of the task."""

    task_type = "multilabel"
    output = "probabilities"
    default_label = ()

    def __init__(self, labels, threshold=0.5, separator=","):
        """Creates a target.

        Args:
          labels: list of str.
          threshold: a label is predicted if its probability is at least this number.
          separator: str, the text between the labels in an answer.
        """
        self.labels = list(labels)
        self.size = len(self.labels)
        self.field = example_encoding.Field(_NAME, "int64", (self.size,), (0, 1))
        self.threshold, self.separator = threshold, separator
        self._ids = {label: index for index, label in enumerate(self.labels)}

    @property
    def padding_label(self):
        return [0] * self.size

    def encode_label(self, label):
        ids = self.padding_label
        for name in label:
            if name not in self._ids:
                raise ValueError(f"label {name!r} is not one of {', '.join(self._ids)}")
            ids[self._ids[name]] = 1
        return ids

    def predicted_label(self, prediction):
        return self.separator.join(self.predicted_labels(prediction))

    def predicted_labels(self, prediction):
        """Returns the predicted labels as a tuple of str, in the order of the model's outputs."""
        likely = prediction >= self.threshold
        return tuple(label for label, is_likely in zip(self.labels, likely) if is_likely)

    def losses(self, labels, outputs):
        return _functions().set_losses(labels, outputs)

    def metrics(self, labels, outputs, losses):
        return _functions().evaluate_sets(labels, outputs, losses, self.labels, self.threshold)

    def details(self, labels, outputs):
        return {"labels": _functions().label_scores(
            self.labels, *_functions().count_sets(labels, outputs >= self.threshold))}


def create_target(label_list):
    """Converts the argument `label_list` of the published functions to a target.

    Args:
      label_list: list of the labels if an example has one label; None if an example has a score. `label_list`
        may also be a target, which is returned unchanged.
    """
    if hasattr(label_list, "task_type"):
        return label_list
    return Score() if label_list is None else SingleLabel(label_list)
