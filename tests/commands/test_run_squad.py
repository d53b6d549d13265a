"""`run_squad.py` as a user runs it: written files, thresholds, JSON Lines and errors.

The promises in tests/conformance have its trainings, scores, kills and predictions.
"""

import json

from helpers import read_json, write_json, write_lines
from outputs import table
import pytest
from rows import ROWS

from bertlib.tasks.squad import squad_data, squad_metrics

ROW = "SQuAD 2.0"


def paragraphs_of(work):
    return read_json(work.directory / "data" / "dev.json")["data"][0]["paragraphs"]


def test_the_written_files_belong_together(trained):
    answers, scores = (read_json(trained.output / f"{name}.json") for name in ("predictions", "eval_results"))
    assert (scores.pop("null_score_diff_threshold"), scores.pop("global_step")) == (0.0, 8)
    gold = squad_data.read_gold(trained.directory / "data" / "dev.json")
    assert scores == squad_metrics.evaluate(gold, answers, True, read_json(trained.output / "null_odds.json"))
    offsets = read_json(trained.output / "answer_offsets.json")
    report = (trained.output / "eval_report.html").read_text()
    rows = table(trained.output / "eval_predictions.csv")
    assert list(rows[0]) == ["line", "id", "question", "context", "label", "prediction", "probability",
                             "is_right", "loss", "exact_match", "f1", "null_odds"]
    for paragraph, row in zip(paragraphs_of(trained), rows, strict=True):
        question, context = paragraph["qas"][0], paragraph["context"]
        found = offsets[question["id"]]
        assert found["text"] == ("" if found["start"] is None else context[found["start"]:found["end"]])
        assert (row["context"], row["question"]) == (context, question["question"])
        assert row["prediction"] == answers[row["id"]] and question["question"] in report


def test_the_best_threshold_is_used(copy):
    found = copy.train(find_null_threshold=True, do_train=False)
    scores = read_json(copy.output / "eval_results.json")
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    found.assert_success(f"Null threshold: {scores['null_score_diff_threshold']} (the best value of "
                         "--null_score_diff_threshold on data/dev.json).")


def test_later_runs_use_the_threshold_of_the_last_evaluation(copy):
    results = copy.output / "eval_results.json"
    write_json(results, {"null_score_diff_threshold": -1e6, "global_step": 7})
    warning = ("output/eval_results.json contains the null threshold of an evaluation after step 7, but the "
               "weights of the model are those of step 8.")
    later = dict(do_train=False, do_eval=None, do_predict=True, results_dir="later")
    for changes, threshold, source, num_empty in (  # with -1e6, all answers are empty
            (later, -1e6, "output/eval_results.json", 8),
            (later | dict(null_score_diff_threshold=1e6), 1e6, "--null_score_diff_threshold", 0)):
        done = copy.train(**changes)
        done.assert_success(f"Null threshold: {threshold} ({source}).")
        answers = read_json(copy.directory / "later" / "predictions.json")
        assert list(answers.values()).count("") == num_empty
        assert ("all 8 answers are empty" in done.err) == (num_empty == 8)
        assert (warning in done.err) == (threshold == -1e6)
        assert (copy.directory / "later" / "test_predictions.csv").exists()


def test_questions_without_answers_are_pointed_out(workspaces, tmp_path):
    copy = workspaces(ROWS["SQuAD 1.1"]).copy(tmp_path / "copy")
    question = {"question": "what a", "context": "the cat sees a bird ."}
    lines = [{"id": "l0", **question, "answers": []}, {"id": "l1", **question, "answers": ["cat"]}]
    write_lines(copy.directory / "questions.jsonl", map(json.dumps, lines))
    done = copy.train(predict_file="questions.jsonl", do_train=False)
    done.assert_success("1 of 2 questions have no answer", "pass --version_2_with_negative")


# A program of 2018 that checks the flags itself.
PROGRAM = """
from absl import app
import modeling
import run_squad

config = modeling.BertConfig(100, max_position_embeddings=32, type_vocab_size={types})
app.run(lambda _: print(run_squad.validate_flags_or_throw(config)))
"""


@pytest.mark.parametrize("types, flags, expected", [
    (2, {}, None), (2, dict(do_train=None), "At least one of --do_train, --do_predict and --do_eval must be"),
    (2, dict(max_seq_length=40), "--max_seq_length=40 is above max_position_embeddings=32"),
    (2, dict(find_null_threshold=True), "--find_null_threshold needs --version_2_with_negative and"),
    (1, {}, "type_vocab_size")])
def test_a_program_checks_the_flags(types, flags, expected, run_script, tmp_path):
    (tmp_path / "own.py").write_text(PROGRAM.format(types=types))
    (tmp_path / "train.json").write_text("{}")
    done = run_script(tmp_path / "own.py", **{
        "do_train": True, "train_file": "train.json", "output_dir": "output", "max_seq_length": 32,
        "max_query_length": 8, "doc_stride": 8, **flags})
    assert done.code == (expected is not None), done.err
    assert done.out == "None\n" if expected is None else f"ValueError: {expected}" in done.err, done.err


def test_a_prediction_without_output_dir_takes_the_flags_of_the_training_in_the_default_directory(copy):
    default = copy.directory / "output" / "squad-v2.0"
    copy.output.rename(copy.directory / "moved")
    default.parent.mkdir()
    (copy.directory / "moved").rename(default)
    length = read_json(default / "run.json")["settings"]["max_seq_length"]
    done = copy.train(output_dir=None, max_seq_length=None, do_train=False, do_eval=None, do_predict=True)
    done.assert_success("--output_dir not given: using output/squad-v2.0", f"--max_seq_length={length}")
