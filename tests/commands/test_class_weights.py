"""--class_weights: allowed values. Balanced weights are equal to those of scikit-learn."""

import types

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bertlib.tasks.classification import class_weights, classification_target

TARGET = classification_target.SingleLabel(["no", "yes", "a:b"])  # not in sorted order


def settings(weights=None, smoothing=0.0):
    return types.SimpleNamespace(class_weights=weights, label_smoothing=smoothing, task_name="T",
                                 do_train=True, mapped_labels={})


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.repeat([0, 1, 2], [7, 1, 4])
    found = class_weights.normalize(class_weights.BALANCED, np.bincount(labels))
    np.testing.assert_allclose(found, compute_class_weight("balanced", classes=np.arange(3), y=labels))
    # A class without examples does not change the weights of the other classes.
    assert class_weights.normalize(class_weights.BALANCED, [7, 0, 1, 4]) == [found[0], 0, *found[1:]]


@pytest.mark.parametrize("text, expected", [
    ("balanced", "balanced"), (None, None), ("1,2.5,3", [1, 2.5, 3]), ("yes:2", [1, 2, 1]),
    (" a:b:3, no:0.5", [0.5, 1, 3])])
def test_forms(text, expected):
    assert class_weights.parse_weights(settings(text), TARGET) == expected


@pytest.mark.parametrize("text, said", [
    ("1,2", r"the number of weights is 2, but there are 3 labels \(no, yes, a:b\)"),
    ("maybe:2", "'maybe' is not one of"), ("yes:1,yes:2", "'yes' is named twice"),
    ("yes:0", "'0' is not a positive number"),
    ("1,nan,2", "'nan' is not a positive"), ("1,inf,2", "'inf'")])
def test_what_cannot_be_meant_is_refused(text, said):
    with pytest.raises(ValueError, match=rf"^--class_weights={text}: .*{said}.*Pass the word balanced, "):
        class_weights.parse_weights(settings(text), TARGET)


def test_the_head_of_a_training_has_them():
    given = settings("balanced", 0.1)
    assert class_weights.loss_options(given, TARGET, {"yes": 1, "no": 2}) == (
        pytest.approx([0.75, 1.5, 0]), 0.1)
    given.do_train = False
    assert class_weights.loss_options(given, TARGET, {}) == ()


@pytest.mark.parametrize("given, flag, target", [
    (dict(weights="balanced"), "--class_weights=balanced", classification_target.Score()),
    (dict(smoothing=0.1), "--label_smoothing=0.1", classification_target.MultiLabel(["a", "b"]))])
def test_only_one_label_each_is_weighted(given, flag, target):
    with pytest.raises(ValueError, match=f"^{flag}: this flag is for a classification with one label"):
        class_weights.parse_weights(settings(**given), target)
    assert class_weights.parse_weights(settings(), target) is None
