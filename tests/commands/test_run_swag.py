"""run_swag.py as a user runs it: loaded models, other numbers of endings, and errors.

The promises in tests/conformance have its trainings, scores and predictions.
"""

import csv
import io

from bertlib.commands import predict

from outputs import table
import pytest

from bertlib import serving

ROW = "multiple choice"
NAMES = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3"]
EVALUATE = dict(do_eval=True, output_dir="output", results_dir="results")


def test_the_log_counts_questions_that_are_too_long(trained):
    assert "val.csv: 0 of 8 questions (0.0%) are longer than --max_seq_length=32; the longest" in (
        trained.finished.err)


def test_a_loaded_model_and_an_interactive_session(trained, monkeypatch, capsys):
    row = table(trained.directory / "data" / "val.csv")[0]
    texts = [row[name] for name in NAMES]
    with serving.load(str(trained.output)) as predictor:
        assert predictor.fields == tuple(NAMES)
        assert predictor(*texts) == predictor(**dict(zip(NAMES, texts)))
        fewer = predictor(*texts[:4])
        assert list(fewer["probabilities"]) == ["0", "1"]
        with pytest.raises(ValueError, match="ending1 is missing"):
            predictor(*texts[:3])
        with pytest.raises(TypeError, match="sent1, sent2, ending0"):
            predictor(*texts, "more")
        # predict.py --interactive: blank texts at the end are left out, and all others are named.
        typed = "\n".join([*texts[:4], "", texts[5], *texts[:4], "", "", ""])
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        predict.answer_interactively(predictor)
        printed = capsys.readouterr().out
        assert "ending2 is empty." in printed and f'"ending": "{fewer["ending"]}"' in printed
        assert '"2":' not in printed  # no answer has a third ending


def change(work, name, more):
    """Writes the development questions with an additional column, which contains the text "more"."""
    with (open(work.directory / "data" / "val.csv", newline="") as source,
          open(work.directory / name, "w", newline="") as file):
        header, *rows = csv.reader(source)
        csv.writer(file).writerows([[*header, more], *([*row, "more"] for row in rows)])


def test_no_ending_is_left_out(copy):
    """An unreadable column of an ending is an error. The questions are not read with fewer endings."""
    change(copy, "changed.csv", "ending3")
    copy.run("run_swag.py", **EVALUATE, dev_file="changed.csv").assert_refused(
        "changed.csv:1: the endings ending0, ending1, ending2 can be read, but not the column 'ending3'")


def test_more_endings_than_in_the_training(copy):
    """run_swag.py scores them. predict.py cannot, and ends with an error."""
    change(copy, "more.csv", "ending4")
    done = copy.run("run_swag.py", **EVALUATE, dev_file="more.csv")
    done.assert_success("with 5 endings")
    assert table(copy.directory / "results" / "eval_predictions.csv")[0]["probability_4"]
    done = copy.run("predict.py", model_dir="output", input_file="more.csv")
    done.assert_refused("ending3 can be read, but not the column 'ending4'")
