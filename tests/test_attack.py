"""The checks of benchmarks/attack.py: its files have the expected content, and it finds wrong answers."""

import os
import pathlib
import random
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from attacks import classifying, oracle, sheets, trial, world  # noqa: E402  after the path
from scripts import Finished  # noqa: E402


def test_a_plain_reader_finds_the_rows_of_valid_files(tmp_path):
    kinds = set()
    for seed in range(300):
        chance = random.Random(seed)
        kind, sheet = sheets.draw(chance, chance.choice(sorted(world.LAYOUTS)))
        path = tmp_path / sheet.name
        path.write_bytes(sheet.content())
        if set(sheet.must.values()) != {"right"}:
            continue
        names = [sheet.shown.get(name, name) for name in sheet.texts]
        rows = oracle.rows_of(path, sheet.delimiter, sheet.has_header)
        found = [tuple(row[name] for name in names) for row in rows]
        assert found == [texts for texts, _ in sheet.expected], kind
        kinds.add(kind)
    assert len(kinds) > 12


class Answers:
    """A `world.World` whose model says 0.25 for "no"."""

    def answers(self, name, questions):
        del name
        return [{"label": "yes", "probabilities": {"no": 0.25, "yes": 0.75}} for _ in questions]


@pytest.fixture
def case(tmp_path):
    return trial.Trial([], Answers(), random.Random(1), tmp_path, 60, {})


@pytest.mark.parametrize("found", [[[0.25, 0.75]], [[0.25, 0.75], [0.26, 0.74]], [[0.25, 0.75]] * 3])
def test_wrong_and_missing_and_further_answers_are_found(case, found):
    classifying.check_answers(case, "single", [("a",), ("b",)], [[0.25, 0.750001], [0.25, 0.75]])
    with pytest.raises(trial.Bad, match="wrong result"):
        classifying.check_answers(case, "single", [("a",), ("b",)], found)


def test_metrics_that_are_not_those_of_the_files_are_found(tmp_path):
    trained = world.Trained("single", "single", ["text"], "label", ["no", "yes"])
    path = tmp_path / "test_eval_results.txt"
    path.write_text("eval_accuracy = 0.75\neval_confusion_matrix = [[1, 0], [1, 2]]\neval_f1 = 0.8\n"
                    "eval_matthews = 0.57735026\n")
    found = [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]]
    classifying.check_metrics(trained, ["no", "yes", "yes", "yes"], found, path)
    with pytest.raises(trial.Bad, match="eval_accuracy"):
        classifying.check_metrics(trained, ["no", "no", "yes", "yes"], found, path)


@pytest.mark.parametrize(("code", "error", "verdict"), [
    (1, "Traceback (most recent call last):\n  File \"x\"\nKeyError: 1\n", "traceback"),
    (1, "predict.py: error: it is wrong\n", "vague"), (1, "wrong\n", "no message"),
    (1, "predict.py: error: a.csv:1: wrong\nand more\n", "message of several lines"),
    (-6, "", "abort by signal"), (0, "answered \x1b[31mred\n", "escape sequence")])
def test_ends_that_no_user_should_see_are_found(case, code, error, verdict):
    class Process:
        def wait(self):
            return Finished(code, "", error)

    with pytest.raises(trial.Bad) as bad:
        case.finish(("predict.py", Process(), lambda: None, [], None))
    assert bad.value.verdict == verdict


def test_must_is_held(case):
    assert case.expect(Finished(0, "", ""), "right") and not case.expect(Finished(1, "", ""), "refused")
    for code, must in ((0, "refused"), (1, "right")):
        with pytest.raises(trial.Bad):
            case.expect(Finished(code, "", ""), must)


def test_inputs_that_a_command_changed_are_found(case):
    path = case.write("given.csv", "text\n")
    case.check_inputs()
    path.write_text("text\nmore\n")
    with pytest.raises(trial.Bad, match="input lost or changed"):
        case.check_inputs()


def test_unfinished_files_are_found(tmp_path):
    (tmp_path / "export" / "temp-1790000000").mkdir(parents=True)
    for name in ("answers.jsonl", "answers.jsonl.partial", "x.lock"):
        (tmp_path / name).touch()
    assert [os.path.basename(path) for path in trial.unfinished_in(tmp_path)] == [
        "answers.jsonl.partial", "temp-1790000000"]
    assert set(trial.contents_of(tmp_path)) == {"answers.jsonl", "answers.jsonl.partial"}
