"""--class_weights and --label_smoothing: what an example counts in the training of a classifier."""

import math

from absl import logging

from bertlib.tasks.classification import classification_head

BALANCED = "balanced"


def parse_weights(settings, target):
    """Returns what --class_weights asks for: `BALANCED`, the weight of each label (list of float), or None.

    Args:
      settings: a `Settings`.
      target: what the model says of a text, see `targets`.

    Raises:
      ValueError: it cannot be right; or it, or --label_smoothing, is given where a text has not one label.
    """
    text, labels = settings.class_weights, target.labels
    if target.task_type != "classification" and (text or settings.label_smoothing):
        name = "class_weights" if text else "label_smoothing"
        raise ValueError(f"--{name}={getattr(settings, name)}: this is for a classification with one label "
                         f"for each text, and not for a {target.task_type}. Leave the flag out.")
    if text is None or text == BALANCED:
        return text
    try:
        return _named(text, labels) if ":" in text else _in_order(text, labels)
    except ValueError as error:
        raise ValueError(f"--class_weights={text}: {error}. Pass balanced, or such as "
                         f"{','.join(f'{label}:1' for label in labels)}, or {len(labels)} numbers.") from None


def _in_order(text, labels):
    """The weights in the order of the labels."""
    parts = text.split(",")
    if len(parts) != len(labels):
        raise ValueError(f"there are {len(labels)} labels ({', '.join(labels)}), and weights: {len(parts)}")
    return [_weight(part) for part in parts]


def _named(text, labels):
    """The weights by label; of those that are not named, 1."""
    weights = {}
    for part in text.split(","):
        label, _, weight = part.rpartition(":")
        label = label.strip()
        if label not in labels:
            raise ValueError(f"{label!r} is not one of the labels {', '.join(labels)}")
        if label in weights:
            raise ValueError(f"{label!r} is there twice")
        weights[label] = _weight(weight)
    return [weights.get(label, 1.0) for label in labels]


def _weight(text):
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise ValueError(f"{text.strip()!r} is no positive number")
    return weight


def normalize(asked, counts):
    """Returns the weights of classes, of mean 1 over the training set.

    Balanced ones are n / (k · n_c) of n examples, n_c of them of the class, in k classes: those of
    scikit-learn's `compute_class_weight`. A class without examples has none, and weight 0 then.

    Args:
      asked: see `parse_weights`; not None.
      counts: the number of training examples, or windows, of each class.
    """
    if asked == BALANCED:
        asked = [1 / count if count else 0.0 for count in counts]
    mean = sum(weight * count for weight, count in zip(asked, counts)) / sum(counts)
    return [weight / mean for weight in asked]


def weighted_head(settings, target, head, counts):
    """Returns a classifier's head with the weights and the smoothing that flags ask for; without them the one
    that is given. `counts` are the training examples, or windows, of each label, {label: number}."""
    asked, labels = parse_weights(settings, target), target.labels
    if not settings.do_train or asked is None and not settings.label_smoothing:
        return head
    weights = None
    if asked is not None:
        weights = normalize(asked, [counts.get(label, 0) for label in labels])
        logging.info("Weights of the labels in training, on average 1 an example: %s.",
                     ", ".join(f"{label} {weight:.4g} ({counts.get(label, 0)})"
                               for label, weight in zip(labels, weights)))
    return classification_head.Classifier(len(labels), weights, settings.label_smoothing)
