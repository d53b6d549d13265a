"""What a model is to say of a text: one of several labels, a score, or any number of several labels.

A target is an object with

    task_type            "classification", "regression" or "multilabel"
    labels               list of str in the order of the model's outputs; None if there are none
    size                 the number of outputs
    field                the `example_encoding.Field` of an example's label in stored features, "label_ids"
    padding_label        the value of this field in padding rows
    default_label        the label of an example that has none
    encode_label(label)  the value of the field for a label; a ValueError says why a label has none
    output               the name of the head's predictions that are written
    predicted_label(prediction)
                         the answer for the prediction of an example: a str, or a float
"""

from bertlib.data import example_encoding

_NAME = "label_ids"


class SingleLabel:
    """One of several labels; its id is its place among them."""

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


class Score:
    """A number."""

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
            raise ValueError(f"label {label!r} is no number") from None

    def predicted_label(self, prediction):
        return float(prediction)


class MultiLabel:
    """Any number of several labels, none too: 0 or 1 for each. An example's label is an iterable of them."""

    task_type = "multilabel"
    output = "probabilities"
    default_label = ()

    def __init__(self, labels, threshold=0.5, separator=","):
        """`threshold` is the least probability of a label that is predicted; `separator` stands between the
        labels of a prediction."""
        self.labels = list(labels)
        self.size = len(self.labels)
        self.field = example_encoding.Field(_NAME, "int64", (self.size,), (0, 1))
        self.threshold, self._separator = threshold, separator
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
        likely = prediction >= self.threshold
        return self._separator.join(label for label, is_likely in zip(self.labels, likely) if is_likely)


def create_target(label_list):
    """Returns the target that published functions name by their `label_list`: labels; or None, scores. A
    target is returned as it is."""
    if hasattr(label_list, "task_type"):
        return label_list
    return Score() if label_list is None else SingleLabel(label_list)
