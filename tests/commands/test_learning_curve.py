"""--eval_each_checkpoint: the table and the picture of the curve, and refused command lines."""

import types
import xml.etree.ElementTree

import numpy as np
from outputs import scores, table
import pytest
from rows import ROWS
from runs import EACH_CHECKPOINT
from test_best_model import settings

from bertlib.tasks import training_with_evaluations


def test_the_curve_holds_the_metrics_of_each_checkpoint(workspaces):
    work = workspaces(ROWS["pairs"], **EACH_CHECKPOINT, keep_best="eval_f1")
    rows = table(work.output / "learning_curve.tsv", "excel-tab")
    assert [row["global_step"] for row in rows] == ["0", "4", "8"]
    final = scores(work.output, work.row)  # of the best weights
    row, = (row for row in rows if int(row["global_step"]) == final["global_step"])
    assert {name: float(value) for name, value in row.items()} == pytest.approx(final)
    assert len({row["loss"] for row in rows}) == 3

    root = xml.etree.ElementTree.fromstring((work.output / "learning_curve.svg").read_text())
    lines = [line.get("points").split() for line in root.iter("{http://www.w3.org/2000/svg}polyline")]
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(lines) == 2 and all(len(points) == 3 for points in lines)
    for metric, label in {"eval_f1": "F1", "eval_accuracy": "accuracy"}.items():
        assert f"{label}: {100 * float(rows[-1][metric]):.1f} %" in texts


# --- The table -------------------------------------------------------------------------------------------


def curve_of(directory, shown, *results):
    """Adds evaluations to the curve in a directory, and returns the table. An evaluation is a dict."""
    for result in results:
        given = settings(directory, eval_each_checkpoint=True, eval_every_steps=None, keep_best=None)
        task = types.SimpleNamespace(settings=given, title="title", metric_titles=shown, full_score=1.0)
        curve = training_with_evaluations.TrainingWithEvaluations(task, lambda _, result=result: result)
        curve.evaluate_checkpoint(result["global_step"])
    return (directory / "learning_curve.tsv").read_text()


def test_the_curve_of_a_resumed_run_goes_on(tmp_path):
    found = [{"global_step": step, "b": step / 10, "a": 0.5, "matrix": np.zeros([2, 2])}
             for step in (0, 3, 6, 3, 5)]
    assert curve_of(tmp_path, {"b": "B"}, *found) == (
        "a\tb\tglobal_step\n0.5\t0.0\t0\n0.5\t0.3\t3\n0.5\t0.5\t5\n")
    assert "B: 50.0 %" in (tmp_path / "learning_curve.svg").read_text()


def test_metrics_may_come_and_go(tmp_path):
    """For example, some entity types are predicted only at some steps, and equal numbers have no correlation.
    """
    found = [{"global_step": 0, "b": np.float32("nan")}, {"global_step": 3, "b": -0.25, "a": 1.0},
             {"global_step": 6, "b": 0.5, "c": 2}]
    assert curve_of(tmp_path, {"b": "B"}, *found) == (
        "a\tb\tc\tglobal_step\n\tnan\t\t0\n1.0\t-0.25\t\t3\n\t0.5\t2\t6\n")
    picture = (tmp_path / "learning_curve.svg").read_text()
    assert 'points="330.0,330.0 590.0,185.0"' in picture and "B: 50.0 %" in picture


@pytest.mark.parametrize("table", ["", "b\tglobal_step\n1\n", "b\tglobal_step\n1\t?\n"])
def test_damaged_rows_are_left_out(tmp_path, table):
    (tmp_path / "learning_curve.tsv").write_text(table)
    assert curve_of(tmp_path, {"b": "B"}, {"global_step": 3, "b": 1.0}) == "b\tglobal_step\n1.0\t3\n"
