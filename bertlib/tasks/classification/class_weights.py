"""Implements --class_weights and --label_smoothing, which change the loss of a classification in training."""

import math

from absl import logging

from bertlib.tasks.classification.classification_target import SingleLabel

BALANCED = "balanced"


def parse_weights(settings, target):
    """Parses --class_weights.

    Args:
      settings: a `Settings`.
      target: the target of the model, see `classification_target`.

    Returns:
      list of float, the weights in the order of the labels; `BALANCED` for balanced weights; None if the flag
      was not given.

    Raises:
      ValueError: --class_weights is malformed. Or one of --class_weights and --label_smoothing is given,
        although the task is not a classification with one label for each text.
    """
    text, labels = settings.class_weights, target.labels
    if not isinstance(target, SingleLabel) and (text or settings.label_smoothing):
        name = "class_weights" if text else "label_smoothing"
        raise ValueError(f"--{name}={getattr(settings, name)}: this flag is for a classification with one "
                         f"label for each text, but this task has the type {target.name}. Leave the "
                         "flag out.")
    if text is None or text == BALANCED:
        return text
    try:
        return _named(text, labels, settings.mapped_labels) if ":" in text else (
            _in_order(text, labels))
    except ValueError as error:
        raise ValueError(f"--class_weights={text}: {error}. Pass the word balanced, a weight for each label "
                         f"such as {labels[0]}:1, or {len(labels)} numbers in the order of the labels."
                         ) from None


def _in_order(text, labels):
    """Parses a text with one number for each label, such as "1,2.5". Returns the numbers, the weights of the
    labels, as a list of float."""
    parts = text.split(",")
    if len(parts) != len(labels):
        raise ValueError(f"the number of weights is {len(parts)}, but there are {len(labels)} labels "
                         f"({', '.join(labels)})")
    return [_weight(part) for part in parts]


def _named(text, labels, label_map):
    """Parses a text with labels and weights, such as "yes:2.5". Returns the weights in the order of `labels`.
    A label that is not in the text has the weight 1. For `label_map`, see `label_map.read`."""
    weights = {}
    for part in text.split(","):
        label, _, weight = part.rpartition(":")
        label = label_map.get(label.strip(), label.strip())
        if label not in labels:
            raise ValueError(f"{label!r} is not one of the labels {', '.join(labels)}")
        if label in weights:
            raise ValueError(f"the label {label!r} is named twice")
        weights[label] = _weight(weight)
    return [weights.get(label, 1.0) for label in labels]


def _weight(text):
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise ValueError(f"{text.strip()!r} is not a positive number")
    return weight


def normalize(parsed, counts):
    """Scales the weights of classes so that their mean over the training examples is 1.

    As in scikit-learn's `compute_class_weight`, the balanced weight of a class is n / (k · n_c), where n is
    the number of examples, k is the number of classes, and n_c is the number of examples of the class. A
    class without examples gets the weight 0.

    Args:
      parsed: `BALANCED` or the weight of each class, see `parse_weights`.
      counts: number of training examples of each class; with --doc_stride, number of their windows.

    Returns:
      list of float.
    """
    if parsed == BALANCED:
        parsed = [1 / count if count else 0.0 for count in counts]
    mean = sum(weight * count for weight, count in zip(parsed, counts)) / sum(counts)
    return [weight / mean for weight in parsed]


def loss_options(settings, target, counts):
    """Returns the arguments of `classification_head.Classifier` for --class_weights and --label_smoothing, a
    tuple. It is empty if the run does not train.

    Args:
      settings: a `Settings`.
      target: the target of the model, see `classification_target`.
      counts: {label: number of training examples with this label}. With --doc_stride, the windows of these
        examples are counted.
    """
    parsed, labels = parse_weights(settings, target), target.labels
    if not settings.do_train:
        return ()
    weights = None
    if parsed is not None:
        weights = normalize(parsed, [counts.get(label, 0) for label in labels])
        logging.info("Weights of the labels in training, with the numbers of examples in parentheses (the "
                     "mean weight of all examples is 1): %s.",
                     ", ".join(f"{label} {weight:.4g} ({counts.get(label, 0)})"
                               for label, weight in zip(labels, weights)))
    return weights, settings.label_smoothing
