"""An output directory that exists already: another process writes to it, or it has the model of another run.

The promises in tests/conformance have its record, a second run, other weights, data and vocabularies.
"""

import json
import os
import re
import shutil

from bertlib.commands import model_writer

from helpers import read_json, tensors_of, write_json
import numpy as np
from outputs import contents, results, scores
import pytest
from rows import ROWS, STEPS
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import checks
from bertlib.runs.output_directory import LOST_CHECKPOINTS
from bertlib.runs.settings import Settings
from bertlib.system import locks

TRAIN = dict(do_eval=False, do_predict=False)
EVALUATE = dict(do_train=False, do_predict=False)


def warnings_of(finished):
    """Returns the warnings of a run, without the warning that its few examples all have the same class."""
    return [line.split("WARNING: ", 1)[1] for line in finished.err.splitlines()
            if " WARNING: " in line and "does not distinguish" not in line]


# --- Two runs in one directory ---------------------------------------------------------------------------


def test_a_directory_that_is_in_use_is_evaluated_elsewhere(copy):
    with locks.lock_directory(copy.output):
        before = contents(copy.output)
        copy.train(**EVALUATE).assert_refused(f"error: output is in use: process {os.getpid()} on ",
                                              "With --results_dir=DIRECTORY, ")
        training = copy.train()
        training.assert_refused("error: output is in use")
        assert training.err.endswith("or name another path.\n")  # --results_dir does not help a training
        done = copy.train(**EVALUATE, results_dir="results")
        assert done.code == 0 and not warnings_of(done), done.err
        assert contents(copy.output) == before
    found, expected = results(copy.directory / "results"), results(copy.output)
    assert found["eval_results.txt"] == expected["eval_results.txt"]
    with locks.lock_directory(copy.directory / "results"):
        assert "error: results is in use" in copy.train(**EVALUATE, results_dir="results").err


def test_the_results_of_another_training_are_not_replaced(copy):
    other = shutil.copytree(copy.output, copy.directory / "other")
    record = read_json(other / "run.json")
    assert copy.train(**EVALUATE, results_dir="other").code == 0  # a copy has the same training
    write_json(other / "run.json", {**record, "started": "2026-01-31 12:00:00+01:00"})
    before = contents(other)
    for phases in (EVALUATE, dict(do_eval=False, do_train=False), dict(output_dir="new")):
        copy.train(**phases, results_dir="other").assert_refused(
            "--results_dir=other contains another training. The results of this run would replace its")
    assert contents(other) == before and not (copy.directory / "new").exists()


def test_an_evaluation_has_no_steps_to_trace(copy):
    copy.train(**EVALUATE, profile_steps="1,2").assert_refused(
        "--profile_steps=1,2 has an effect only in training: pass --do_train=true")


def test_a_directory_without_its_checkpoints_answers_nothing(copy):
    """A sweep leaves such directories."""
    for path in [*copy.output.glob("model.ckpt-*"), copy.output / "checkpoint"]:
        path.unlink()
    before = contents(copy.output)
    problem = "output contains no checkpoint, --init_checkpoint=model/bert_model.ckpt has no weights of this"
    for phases in (EVALUATE, dict(do_train=False, do_eval=False)):
        done = copy.train(**phases)
        done.assert_refused(problem)
        assert "contains the record of a training, but its checkpoints were removed." in done.err
    copy.train(**EVALUATE, output_dir="outptu").assert_refused("--output_dir=outptu contains no checkpoint")
    copy.run("predict.py", "--model_dir=output").assert_refused(f"output{LOST_CHECKPOINTS}")
    assert contents(copy.output) == before and not (copy.directory / "outptu").exists()


def test_the_weights_of_another_directory_are_evaluated(copy):
    copy.train(**EVALUATE, init_checkpoint=f"output/model.ckpt-{STEPS}", output_dir="other").assert_success()
    assert scores(copy.directory / "other", copy.row) == scores(copy.output, copy.row)


# --- Another run's directory -----------------------------------------------------------------------------


def test_the_same_command_again_says_which_run_trained(copy):
    """Files that a continued training does not read may be moved or removed."""
    before = (copy.output / "run.json").read_bytes()
    (copy.directory / "model").rename(copy.directory / "moved")
    moved = dict(vocab_file="moved/vocab.txt", bert_config_file="moved/shallow.json",
                 init_checkpoint="moved/bert_model.ckpt")
    again = copy.train(**TRAIN, **moved)
    assert again.code == 0 and not warnings_of(again), again.err
    started = json.loads(before)["started"]
    assert f"output was trained to step 8 by run_classifier.py on mrpc, started {started}.\n" in again.err
    assert (copy.output / "run.json").read_bytes() == before
    *_, last = again.err.splitlines()
    assert " The trained weights are in output. This run evaluated no examples" in last


@pytest.mark.parametrize("row, line", [(ROWS["pairs"], "It rains. ||| It pours."),
                                       (ROWS["tagging, columns"], "It rains.")], ids=["pairs", "tags"])
def test_a_finished_directory_of_the_original_code_gets_the_files_of_later_commands(copy, line):
    """The original code writes only checkpoints. The same training trains no step, and predict.py works."""
    before = contents(copy.output)
    for path in copy.output.iterdir():
        if not re.match(r"checkpoint$|model\.ckpt", path.name):
            path.unlink() if path.is_file() else shutil.rmtree(path)
    (copy.directory / "line.txt").write_text(line + "\n")
    answers = dict(model_dir="output", input_file="line.txt")
    copy.run("predict.py", **answers).assert_refused(
        "output has no run.json, so it is not the output directory of a training with this version. Run the "
        "command of the training again, with --do_train=true and this --output_dir: it trains only")
    again = copy.train(**TRAIN)
    assert again.code == 0 and "No step is left to train. The run writes the files" in again.err, again.err
    after = contents(copy.output)
    kept = [name for name in before if re.search(r"model\.ckpt|bert_config|vocab|labels", str(name))]
    assert len(kept) > 4 and {name: after.get(name) for name in kept} == {name: before[name] for name in kept}
    record = read_json(copy.output / "run.json")
    assert record["from_step"] == record["finished_step"] == 8
    assert "trained to step 8 by" in copy.train(**TRAIN).err
    assert read_json(copy.output / "run.json") == record
    answered = copy.run("predict.py", **answers)
    assert answered.code == 0 and len(answered.out.splitlines()) == 1, answered.err


def test_a_warning_names_a_training_without_a_record_that_is_continued(copy):
    (copy.output / "run.json").unlink()
    continued = copy.train(**TRAIN, num_train_epochs=100, max_steps=9)
    assert continued.code == 0 and read_json(copy.output / "run.json")["from_step"] == 8
    assert [line for line in warnings_of(continued) if "It continues this training from step 8. To train no "
            "step, pass --max_steps=8." in line], continued.err


@pytest.mark.parametrize("has_record", [True, False])
def test_a_checkpoint_of_another_model_is_refused_or_named_in_a_warning(has_record, copy):
    """A fork added a layer between pooler and head."""
    own = dict.fromkeys(["our_pooler/weights", "our_pooler/weights/adam_m"], np.zeros((16, 16), np.float32))
    found = tiny.write_tensorflow(copy.output / f"model.ckpt-{STEPS}", {**tensors_of(copy.output), **own})
    if not has_record:
        (copy.output / "run.json").unlink()
    before = contents(copy.output)
    message = (f"Probably the checkpoint output/model.ckpt-{STEPS} belongs to another model, so the answers "
               "of this model would be wrong: this model has no variables for these weights: our_pooler/")
    for phases in (TRAIN, EVALUATE):
        refused = copy.train(**phases)
        assert refused.code == 1 and "contains checkpoints that do not fit this run" in refused.err
        assert message in refused.err and contents(copy.output) == before
    done = copy.train(**EVALUATE, init_checkpoint=found.relative_to(copy.directory), output_dir="other")
    assert done.code == 0 and message in "".join(warnings_of(done)), done.err


@pytest.mark.parametrize("changes, expected", [
    (dict(task_name="CoLA", data_dir="cola"), "task: mrpc -> cola."),
    (dict(bert_config_file="relu.json"), "hidden_act: gelu -> relu.")], ids=str)
def test_another_tasks_directory_is_refused(copy, changes, expected):
    tiny.write_task(copy.directory / "cola", "cola", train=8, dev=3)
    config = read_json(copy.directory / "model" / "shallow.json")
    write_json(copy.directory / "relu.json", {**config, "hidden_act": "relu"})
    before = contents(copy.output)
    copy.train(do_predict=False, **changes).assert_refused(
        "run.json there (run_classifier.py on mrpc, started ", f"these values differ: {expected} Use another")
    assert contents(copy.output) == before


def test_other_settings_are_listed_where_nothing_is_left_to_train(copy):
    path = copy.directory / "data" / "train.tsv"
    path.write_text(path.read_text().replace("the", "no", 1))
    before = (copy.output / "run.json").read_bytes()
    done = copy.train(**TRAIN, learning_rate=0.02, max_seq_length=18, seed=7)
    done.assert_success()
    warning, = (text for text in warnings_of(done) if "contains the training of" in text)
    assert re.fullmatch(
        r"output contains the training of run_classifier\.py on mrpc, .* -> value of this run: "
        r"(max_seq_length: 20 -> 18; |learning_rate: 0\.0002 -> 0\.02; |seed: 12345 -> 7; ){3}"
        r"training data: 16 examples \(\w{8}\) -> 16 examples \(\w{8}\)\.", warning), warning
    assert (copy.output / "run.json").read_bytes() == before
    assert re.search(r"Nothing was trained\. All results are those of the earlier training, without the new "
                     r"values of .*\btraining data\b.* another --output_dir\.$", done.err.splitlines()[-1])
    assert "Training on" not in done.err and "The learning rate rises" not in done.err


# --- Files -----------------------------------------------------------------------------------------------


def test_two_at_once_do_not_write_the_same_pretraining_data(workspaces, tmp_path):
    work = workspaces(ROWS["pre-training"], untrained=True).copy(tmp_path / "copy")
    before = contents(work.directory)
    script, flags = work.row.prepare
    with locks.lock_file(work.directory / "train.tfrecord"):
        work.run(script, **{**flags, "output_file": "new.tfrecord,train.tfrecord"}).assert_refused(
            f"error: train.tfrecord is in use: process {os.getpid()} on ")
    assert contents(work.directory) == before


def test_two_at_once_do_not_mix_their_models(run_script, tiny_model, tmp_path, monkeypatch):
    flags = tiny.flags(input=tiny_model.checkpoint, output=tmp_path / "model", to="hugging_face", force=True)
    shutil.copytree(tiny_model.hugging_face, tmp_path / "model")
    before = contents(tmp_path)
    with locks.lock_directory(tmp_path / "model"):
        refused = run_script("convert_checkpoint.py", *flags)
        refused.assert_refused(f"error: {tmp_path}/model is in use")
    assert contents(tmp_path) == before

    # Another process writes files after the check that the directory is empty.
    source = checkpoint_formats.open_checkpoint(tiny_model.checkpoint)

    def write_meanwhile(path, *_):
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "vocab.txt").write_text("theirs")

    monkeypatch.setattr(checkpoint_formats, "write_safetensors", write_meanwhile)
    with pytest.raises(FileExistsError, match="another process wrote to this directory at the same time"):
        model_writer.write(str(tmp_path / "new"), "hugging_face", source, [], {"vocab.txt": b"ours"})
    assert contents(tmp_path) == {**before, "new/vocab.txt": b"theirs"}


def test_an_output_dir_without_permission_is_refused(tmp_path, monkeypatch):
    settings = Settings({"output_dir": str(tmp_path / "a" / "b"), "results_dir": None, "do_train": False})
    settings.resolve_results_dir()
    checks.check_directories(settings)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    with pytest.raises(PermissionError, match=f"=.*/a/b: nothing can be written in {tmp_path}:"):
        checks.check_directories(settings)
    assert asked == [str(tmp_path)]
