"""`run_squad.py` on tiny data, as a user runs it: written files, scores, resumed runs and errors."""

import csv
import json
import random
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.runs import question_answering
from bertlib.runs.settings import Settings
from bertlib.tasks.squad import squad_data, squad_scores
from bertlib.tasks.squad.squad_answers import Answer, Prediction

LENGTHS = dict(max_seq_length=32, doc_stride=8, max_query_length=8)
FILES = {"predictions.json", "nbest_predictions.json", "answer_offsets.json", "eval_report.html",
         "eval_results.json"}


def write_squad(path, chance, size, version_2):
    """Writes questions about contexts of the tiny vocabulary.

    The answer is the word that follows the last word of the question in the context.
    """
    paragraphs = []
    for index in range(size):
        words = chance.sample(tiny.WORDS[:24], 14)
        place = chance.randrange(1, 14)
        impossible = version_2 and index % 3 == 2
        answer = {"text": words[place], "answer_start": len(" ".join(words[:place])) + 1}
        question = {"id": f"q{index}", "question": f"what {words[place - 1]}",
                    "answers": [] if impossible else [answer]}
        if version_2:
            question["is_impossible"] = impossible
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    path.write_text(json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


class Squad(object):
    """Flags of a training and its evaluation on SQuAD 1.1 or 2.0."""

    def __init__(self, scripts, model, directory, version_2):
        self.scripts = scripts
        self.directory = directory
        chance = random.Random(5)
        self.dev = write_squad(directory / "dev.json", chance, 9, version_2)
        self.flags = dict(model.flags, bert_config_file=model.shallow, **LENGTHS, train_batch_size=4,
                          learning_rate=0.01, num_train_epochs=2, save_checkpoints_steps=3, log_steps=1,
                          do_train=True, do_eval=True,
                          train_file=write_squad(directory / "train.json", chance, 12, version_2),
                          predict_file=self.dev, version_2_with_negative=version_2)

    def run(self, output, **changes):
        flags = {**self.flags, "output_dir": output, **changes}
        return self.scripts.run("run_squad.py", *tiny.flags(**{
            name: value for name, value in flags.items() if value is not None}), cwd=self.directory)


@pytest.mark.parametrize("batch, steps, questions, windows, logged", [
    (12, 44, 264, 2285, "44 steps with a batch size of 12 read 528 of 2,285 windows. --num_train_epochs "
     "counts questions, as in the published code, but a long context has several windows. With "
     "--num_train_epochs=8.69, the training reads all windows."), (4, 6, 12, 24, None)])
def test_the_log_says_how_many_windows_a_training_sees(batch, steps, questions, windows, logged, caplog):
    settings = Settings({"train_batch_size": batch, "max_steps": None})
    with caplog.at_level("INFO", "absl"):
        question_answering.log_windows_seen(settings, steps, questions, windows)
    assert [record.getMessage() for record in caplog.records] == ([logged] if logged else [])
    if logged:  # the epochs in the advice are enough
        assert int(questions / batch * 8.69) * batch >= windows > int(questions / batch * 8.6) * batch


def test_the_advice_about_windows_names_the_limit_of_the_steps(caplog):
    with caplog.at_level("INFO", "absl"):
        question_answering.log_windows_seen(Settings({"train_batch_size": 12, "max_steps": 4}), 7, 30, 328)
    (record,) = caplog.records
    assert "4 steps with a batch size of 12 read 48 of 328 windows." in record.getMessage()
    assert "With --num_train_epochs=11.2 and without --max_steps, the training" in record.getMessage()


@pytest.fixture(scope="module", params=[False, True], ids=["v1.1", "v2.0"])
def trained(request, scripts, tiny_model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("squad")
    squad = Squad(scripts, tiny_model, directory, request.param)
    squad.output = directory / "output"
    squad.finished = squad.run(squad.output)
    assert squad.finished.code == 0, squad.finished.err
    return squad


@pytest.fixture(scope="module")
def squad_1(scripts, tiny_model, tmp_path_factory):
    return Squad(scripts, tiny_model, tmp_path_factory.mktemp("squad"), False)


def tensors_of(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_it_writes_the_published_files_and_scores_them(trained):
    version_2 = trained.flags["version_2_with_negative"]
    written = {path.name for path in trained.output.iterdir()}
    assert written >= {*FILES, "train.tf_record",
                       "eval.tf_record"} and ("null_odds.json" in written) == version_2
    answers = json.loads((trained.output / "predictions.json").read_text())
    assert list(answers) == [f"q{index}" for index in range(9)]
    odds = json.loads((trained.output / "null_odds.json").read_text()) if version_2 else None
    scores = json.loads((trained.output / "eval_results.json").read_text())
    threshold, step = scores.pop("null_score_diff_threshold", None), scores.pop("global_step")
    assert scores == squad_scores.evaluate(squad_data.read_gold(trained.dev), answers, version_2, odds)
    assert (threshold == 0.0) == version_2 and step == 6
    offsets = json.loads((trained.output / "answer_offsets.json").read_text())
    paragraphs = json.loads(trained.dev.read_text())["data"][0]["paragraphs"]
    for paragraph in paragraphs:
        found = offsets[paragraph["qas"][0]["id"]]
        assert found["text"] == ("" if found["start"] is None
                                 else paragraph["context"][found["start"]:found["end"]])
    report = (trained.output / "eval_report.html").read_text()
    assert all(paragraph["qas"][0]["question"] in report for paragraph in paragraphs)
    assert "step 6/6" in trained.finished.err


def test_the_table_has_the_answers_and_their_scores(trained):
    version_2 = trained.flags["version_2_with_negative"]
    with open(trained.output / "eval_predictions.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["line", "id", "question", "context", "label", "prediction", "probability",
                             "is_right", "loss", "exact_match", "f1", *["null_odds"] * version_2]
    answers = json.loads((trained.output / "predictions.json").read_text())
    assert {row["id"]: row["prediction"] for row in rows} == answers
    scores = json.loads((trained.output / "eval_results.json").read_text())
    for column, name in (("exact_match", "exact" if version_2 else "exact_match"), ("f1", "f1")):
        np.testing.assert_allclose(100 * np.mean([float(row[column]) for row in rows]), scores[name], 1e-6)
    for paragraph, row in zip(json.loads(trained.dev.read_text())["data"][0]["paragraphs"], rows):
        question = paragraph["qas"][0]
        assert row["context"] == paragraph["context"] and row["question"] == question["question"]
        assert row["label"] == "".join(answer["text"] for answer in question["answers"])
        assert row["is_right"] == str(float(row["exact_match"]) == 1).lower()


def test_a_row_of_a_table():
    def row(text, gold, **more):
        example = squad_data.SquadExample("q", "who?", ["a", "man"], context="a man", line=7)
        answer = Answer(text, 0.0, 0.0, 0.25)
        return question_answering.predicted_rows([example], [Prediction("q", None, answer, **more)], 0.0,
                                                 gold, bool(more))[0]

    fields = {"id": "q", "question": "who?", "context": "a man"}
    texts = ("who?", "a man")
    gold = {"q": [("the old man", 0), ("a man", 0), ("a man", 3)]}
    assert row("old woman", gold) == (7, fields, texts, ("the old man", "a man"), "old woman", {"": 0.25},
                                      False, None, None, {"exact_match": 0.0, "f1": 0.5})
    assert row("Man", gold)[6:] == (True, None, None, {"exact_match": 1.0, "f1": 1.0})
    assert row("man", None)[3:] == (None, "man", {"": 0.25}, None, None, None, {})
    empty = row("man", {"q": []}, null_answer=Answer("", 0.0, 0.0, 0.75), null_odds=1.5)
    assert empty[3:7] == ((), "", {"": 0.75}, True)
    assert empty.details == {"exact_match": 1.0, "f1": 1.0, "null_odds": 1.5}


def test_the_head_has_the_published_names(trained):
    tensors = tensors_of(trained.output / "model.ckpt-6")
    assert tensors["cls/squad/output_weights"].shape == (2, 16)
    assert tensors["cls/squad/output_bias"].shape == (2,)
    assert "cls/squad/output_weights/adam_m" in tensors


_through_another_script = pytest.mark.slow(
    reason="runs the script again for what test_run_classifier.py shows of scripts and test_accumulation.py "
    "of this loss")


@_through_another_script
@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_what_saves_memory_gives_the_same_losses(trained, tmp_path):
    changed = trained.run(tmp_path, gradient_accumulation_steps=2, recompute="layers", do_eval=None)
    losses = [[float(text) for text in re.findall(r"step \d+/6  loss (\S+)", run.err)]
              for run in (trained.finished, changed)]
    assert len(losses[0]) == 6
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-4)


@_through_another_script
@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_going_on_after_the_last_step_but_one_changes_nothing(trained, tmp_path):
    """The checkpoints of the last steps are missing, as after a kill."""
    for path in trained.output.glob("model.ckpt-[03]*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    resumed = trained.run(tmp_path, do_eval=None)
    assert resumed.code == 0 and "step 3 to step 6" in resumed.err
    first, second = (tensors_of(directory / "model.ckpt-6") for directory in (trained.output, tmp_path))
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


@pytest.mark.slow(reason="two whole runs; test_input_pipeline.py trims batches")
@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_trimmed_windows_get_the_same_answers_and_training_is_trimmed_only_if_asked_for(trained, tmp_path):
    def best(directory):
        entries = json.loads((directory / "nbest_predictions.json").read_text())
        return {name: (ranked[0]["text"], pytest.approx(ranked[0]["start_logit"], abs=1e-5))
                for name, ranked in entries.items()}

    trimmed = best(trained.output)
    assert trained.run(trained.output, trim_padding=False, do_train=None).code == 0
    assert trimmed == best(trained.output)

    losses = [re.findall(r"step \d+/6  loss (\S+)", run.err)
              for run in (trained.finished, trained.run(tmp_path, trim_padding=True, do_eval=None))]
    assert len(losses[0]) == len(losses[1]) == 6 and losses[0] != losses[1]


def test_only_the_drawn_questions_are_seen_answered_and_scored(squad_1, tmp_path):
    finished = squad_1.run(tmp_path / "part", max_train_examples=5, max_eval_examples=4, num_train_epochs=1)
    assert finished.code == 0, finished.err
    assert "Drawn: 5 of 12 training examples (--max_train_examples=5)." in finished.err
    assert "Drawn: 4 of 9 examples of the development set (--max_eval_examples=4)." in finished.err
    assert json.loads((tmp_path / "part" / "run.json").read_text())["settings"]["max_train_examples"] == 5
    answers = json.loads((tmp_path / "part" / "predictions.json").read_text())
    with (tmp_path / "part" / "eval_predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(answers) == 4 and {row["id"] for row in rows} == set(answers)
    f1 = json.loads((tmp_path / "part" / "eval_results.json").read_text())["f1"]
    assert f1 == pytest.approx(100 * sum(float(row["f1"]) for row in rows) / 4)


@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_a_threshold_is_for_questions_without_an_answer(trained, tmp_path):
    refused = trained.run(tmp_path, find_null_threshold=True)
    assert refused.code == 1 and "--find_null_threshold needs --version_2_with_negative" in refused.err


@pytest.mark.parametrize("trained", [True], indirect=True, ids=["v2.0"])
def test_the_best_threshold_is_used_and_json_lines_are_scored_like_squad(trained, tmp_path):
    """The same questions as JSON Lines, with answers only as texts, give the same answers, scores and report.
    """
    found = trained.run(trained.output, find_null_threshold=True, do_train=None)
    assert found.code == 0, found.err
    scores = json.loads((trained.output / "eval_results.json").read_text())
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert (f"Null threshold: {scores['null_score_diff_threshold']} (the best value of "
            f"--null_score_diff_threshold on {trained.dev})." in found.err)

    written = {name: (trained.output / name).read_text() for name in FILES}
    questions = tmp_path / "questions.jsonl"
    paragraphs = json.loads(trained.dev.read_text())["data"][0]["paragraphs"]
    lines = [{**paragraph["qas"][0], "context": paragraph["context"],
              "answers": [answer["text"] for answer in paragraph["qas"][0]["answers"]]}
             for paragraph in paragraphs]
    questions.write_text("\n".join(map(json.dumps, lines)))
    for name in FILES:
        (trained.output / name).unlink()
    done = trained.run(trained.output, predict_file=questions, do_train=None, find_null_threshold=True)
    assert done.code == 0, done.err
    assert {name: (trained.output / name).read_text().replace("questions.jsonl", "dev.json")
            for name in FILES} == written
    assert written["eval_report.html"].count('<mark class="gold') > 1  # one is in the legend


@pytest.mark.parametrize("trained", [True], indirect=True, ids=["v2.0"])
def test_later_runs_use_the_threshold_of_the_last_evaluation(trained, tmp_path):
    results = trained.output / "eval_results.json"
    step = json.loads(results.read_text())["global_step"]
    results.write_text(json.dumps({"null_score_diff_threshold": -1e6, "global_step": step - 1}))
    later = dict(do_train=None, do_eval=None, do_predict=True, results_dir=tmp_path)
    for changes, threshold, source, num_empty in (  # with -1e6, all answers are empty
            (later, -1e6, results, 9), (later | dict(do_eval=True), -1e6, results, 9),
            (later | dict(null_score_diff_threshold=1e6), 1e6, "--null_score_diff_threshold", 0)):
        done = trained.run(trained.output, **changes)
        assert done.code == 0 and f"Null threshold: {threshold} ({source})." in done.err, done.err
        answers = json.loads((tmp_path / "predictions.json").read_text())
        assert list(answers.values()).count("") == num_empty
        warning = (f"{results} contains the null threshold of an evaluation after step {step - 1}, but the "
                   f"weights of the model are those of step {step}.")
        assert (warning in done.err) == (source == results)
        if "do_eval" in changes and changes["do_eval"]:
            kept = json.loads((tmp_path / "eval_results.json").read_text())["null_score_diff_threshold"]
            assert kept == threshold
        # The answers of two runs are never mixed. Only the threshold of the evaluation is kept.
        tables = sorted(path.stem for path in tmp_path.glob("*_predictions.csv"))
        assert tables == ["eval_predictions" if changes.get("do_eval") else "test_predictions"]
    assert json.loads((tmp_path / "eval_results.json").read_text()) == {
        "null_score_diff_threshold": -1e6, "global_step": step}


@pytest.mark.parametrize("trained", [True], indirect=True, ids=["v2.0"])
def test_evaluations_with_questions_without_an_answer_are_compared(trained, tmp_path):
    done = trained.run(trained.output, do_train=None, results_dir=tmp_path / "lines",
                       predictions_format="jsonl")
    assert done.code == 0, done.err
    compared = trained.scripts.run("compare_results.py", trained.output / "eval_predictions.csv",
                                   tmp_path / "lines", "--resamples=200", cwd=tmp_path)
    assert compared.code == 0 and "0.0 points" in compared.out, compared.err


@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_the_sample_does_not_replace_the_questions_of_a_training(trained, tmp_path):
    refused = trained.run(trained.output, train_file=None, predict_file=None, do_train=None,
                          results_dir=tmp_path / "new")
    assert refused.code == 1 and not (tmp_path / "new").exists()
    assert f"--predict_file is required: according to {trained.output}/run.json, the model was" in refused.err


@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_json_lines_without_answers_are_answered_but_not_scored(trained, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": f"l{index}", "question": "what a",
                                             "context": "the cat sees a bird ."})
                                 + "\n" for index in range(2)))
    refused = trained.run(tmp_path / "output", predict_file=questions, do_train=None)
    assert refused.code == 1
    assert 'questions.jsonl:1: question l0 has no "answers", which --do_eval needs' in refused.err
    assert not (tmp_path / "output").exists()
    done = trained.run(trained.output, predict_file=questions, do_train=None, do_eval=None, do_predict=True)
    assert done.code == 0, done.err
    assert set(json.loads((trained.output / "predictions.json").read_text())) == {"l0", "l1"}


@pytest.mark.parametrize("trained", [False], indirect=True, ids=["v1.1"])
def test_unanswerable_questions_are_pointed_out_where_every_question_is_answered(trained, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(
        json.dumps({"id": f"l{len(answers)}", "question": "what a", "context": "the cat sees a bird .",
                    "answers": answers})
        + "\n" for answers in ([], ["cat"])))
    done = trained.run(trained.output, predict_file=questions, do_train=None)
    assert done.code == 0, done.err
    assert "1 of 2 questions have no answer" in done.err and "pass --version_2_with_negative" in done.err
    assert "have no answer" not in trained.finished.err


@pytest.mark.parametrize("changes, complaint", [
    (dict(train_file=None), "--train_file is required"),
    (dict(predict_file="/none.json"), "--predict_file=/none.json: there is no such file. If your command "
                                      "has a shell variable before /none.json: is this variable set?"),
    (dict(max_query_length=29), "leaves no room for a context"),
    (dict(max_seq_length=64), "max_position_embeddings=40"),
    (dict(do_train=False, do_eval=False), "at least one of"), (dict(use_tpu=True), "TPUs are not supported"),
    (dict(null_score_diff_threshold="nan"), "must be a finite number"),
    (dict(null_score_diff_threshold="-inf"), "must be a finite number"),
    (dict(train_batch_size=64), "make no batch")], ids=str)
def test_what_cannot_be_is_refused_before_anything_is_written(squad_1, tmp_path, changes, complaint):
    refused = squad_1.run(tmp_path / "output", **changes)
    assert refused.code == 1 and complaint in refused.err and "Traceback" not in refused.err
    assert not (tmp_path / "output").exists()


def test_malformed_json_has_its_place_named(squad_1, tmp_path):
    (tmp_path / "broken.json").write_text('{"data": [\n  {"title": }\n]}')
    refused = squad_1.run(tmp_path / "output", predict_file=tmp_path / "broken.json")
    assert refused.code == 1 and "broken.json:2:" in refused.err
