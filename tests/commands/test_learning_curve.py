"""The table and the picture of the evaluations during a training."""

import types

import numpy as np
import pytest
from test_best_model import settings

from bertlib.tasks import training_with_evaluations


def curve_of(directory, shown, *results):
    """Adds evaluations to the curve in a directory, and returns the table. An evaluation is a dict."""
    for result in results:
        given = settings(directory, eval_each_checkpoint=True, eval_every_steps=None, keep_best=None)
        task = types.SimpleNamespace(settings=given, title="title", metric_titles=shown, full_score=1.0)
        curve = training_with_evaluations.TrainingWithEvaluations(task, lambda _, result=result: result)
        curve.evaluate_checkpoint(result["global_step"])
    return (directory / "learning_curve.tsv").read_text()


def test_a_curve_goes_on_after_a_kill_and_metrics_may_come_and_go(tmp_path):
    """For example, some entity types are predicted only at some steps, and equal numbers have no correlation.
    """
    found = [{"global_step": 0, "b": np.float32("nan"), "matrix": np.zeros([2, 2])},
             *({"global_step": step, "b": -0.25, "a": 1.0} for step in (3, 7, 3)),
             {"global_step": 6, "b": 0.5, "c": 2}]
    assert curve_of(tmp_path, {"b": "B"}, *found) == (
        "a\tb\tc\tglobal_step\n\tnan\t\t0\n1.0\t-0.25\t\t3\n\t0.5\t2\t6\n")
    picture = (tmp_path / "learning_curve.svg").read_text()
    assert 'points="330.0,330.0 590.0,185.0"' in picture and "B: 50.0 %" in picture


@pytest.mark.parametrize("table", ["", "b\tglobal_step\n1\n", "b\tglobal_step\n1\t?\n"])
def test_damaged_rows_are_left_out(tmp_path, table):
    (tmp_path / "learning_curve.tsv").write_text(table)
    assert curve_of(tmp_path, {"b": "B"}, {"global_step": 3, "b": 1.0}) == "b\tglobal_step\n1.0\t3\n"
