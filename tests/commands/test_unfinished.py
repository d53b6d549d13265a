"""Commands that read the weights of an unfinished training refuse them or print a warning.

They are refused if the training has not taken a step.
"""

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import output_files


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """A finished training of four steps, with the checkpoint of step 0 kept, and its flags."""
    here = tmp_path_factory.mktemp("unfinished")
    data = tiny.write_task(here / "data", "mrpc", train=8, dev=3, test=2)
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="MRPC", data_dir=data,
                 train_batch_size=4, num_train_epochs=2, save_checkpoints_steps=2, do_train=True,
                 output_dir=here / "output")
    done = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here)
    assert done.code == 0, done.err
    return here, flags


def at_step(trained, directory, step, **changes):
    """Returns a copy of the training in its state after a step, with changes in run.json."""
    output = shutil.copytree(trained[0] / "output", directory / "output")
    (output / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    for path in output.glob("model.ckpt-*"):
        if not path.name.startswith(f"model.ckpt-{step}."):
            path.unlink()
    record = json.loads((output / "run.json").read_text())
    (output / "run.json").write_text(json.dumps({**record, **changes}))
    return output


COMMANDS = {"predict": ("predict.py", lambda output: dict(model_dir=output, input_file="texts.txt")),
            "export": ("export.py", lambda output: dict(model_dir=output, output_dir="export")),
            "evaluation": ("run_classifier.py", lambda output: dict(output_dir=output, do_eval=True)),
            "evaluation of a start": ("run_classifier.py", lambda output: dict(
                output_dir="new", init_checkpoint=output, do_eval=True)),
            "convert": ("convert_checkpoint.py", lambda output: dict(input=output, output="converted"))}


def run(scripts, command, output, cwd):
    script, flags = COMMANDS[command]
    (cwd / "texts.txt").write_text("the cat ||| a dog\n")
    return scripts.run(script, *tiny.flags(**flags(output)), cwd=cwd)


def test_a_finished_training_says_so(trained):
    record = json.loads((trained[0] / "output" / "run.json").read_text())
    assert record["planned_steps"] == record["finished_step"] == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_step_0_is_refused(trained, scripts, tmp_path, command):
    output = at_step(trained, tmp_path, 0, finished_step=None)
    assert checkpoint_formats.read_global_step(checkpoint_formats.latest_checkpoint(str(output))) == 0
    refused = run(scripts, command, output, tmp_path)
    assert refused.code == 1 and not refused.out
    assert (f"error: {output}/model.ckpt-0 is the checkpoint of step 0. Its head is random, because no step "
            "was trained. Run the training command again") in refused.err, refused.err


@pytest.mark.parametrize("command", [
    pytest.param(name, marks=pytest.mark.slow(reason="a whole run of another command") if name in (
        "evaluation", "evaluation of a start") else []) for name in COMMANDS])
def test_an_unfinished_training_is_said_once(trained, scripts, tmp_path, command):
    output = at_step(trained, tmp_path, 2, finished_step=None)
    done = run(scripts, command, output, tmp_path)
    assert done.code == 0, done.err
    assert done.err.count(f"WARNING: {output}/model.ckpt-2 comes from an unfinished training: step 2 of "
                          "4. ") == 1


@pytest.mark.parametrize("step, changes", [
    (4, {}), (4, dict(finished_step=None)),  # killed after its last step
    (2, dict(finished_step=2)),  # it ended by itself, as early stopping does
    (2, dict(planned_steps=None, finished_step=None))])  # in best/
def test_what_is_finished_or_not_known_is_not_warned_of(trained, tmp_path, step, changes, caplog):
    output = at_step(trained, tmp_path, step, **changes)
    output_files.check_trained(output_files.read_record(output), str(output / f"model.ckpt-{step}"))
    assert "unfinished" not in caplog.text


def test_published_weights_are_not_concerned(trained, tiny_model, tmp_path):
    weights = tiny.write_tensorflow(tmp_path / "bert_model.ckpt", tiny_model.weights)
    output_files.check_trained(json.loads((trained[0] / "output" / "run.json").read_text()), str(weights))
    state = {**tiny_model.weights, "global_step": np.int64(0)}
    tiny.write_tensorflow(tmp_path / "old" / "model.ckpt-0", state)  # the original code writes no run.json
    assert output_files.read_record(tmp_path / "old") is None


@pytest.mark.slow(reason="whole runs that are ended")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak(
    reason="a whole run that is ended; test_signals.py has the signals"))])
def test_a_training_that_is_ended_is_unfinished(trained, scripts, tmp_path, number):
    flags = dict(trained[1], output_dir=tmp_path / "output", num_train_epochs=10000, save_checkpoints_steps=5)
    running = scripts.start("run_classifier.py", *tiny.flags(**flags), cwd=tmp_path)
    while not list((tmp_path / "output").glob("model.ckpt-5.index")):
        time.sleep(0.05)
    os.kill(running.pid, number)
    assert running.wait().code == (-9 if number == signal.SIGKILL else 143)
    record = output_files.read_record(tmp_path / "output")
    assert (record["planned_steps"], record["finished_step"]) == (20000, None)


@pytest.mark.slow(reason="a whole run that is killed, and another one")
def test_a_training_that_goes_on_is_unfinished_until_its_end(trained, scripts, tmp_path):
    output = at_step(trained, tmp_path, 4)
    flags = dict(trained[1], output_dir=output, num_train_epochs=3)
    refused = scripts.run("run_classifier.py", *tiny.flags(**flags, profile_steps="99,100"), cwd=tmp_path)
    assert refused.code == 1 and output_files.read_record(output)["planned_steps"] == 4
    done = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=tmp_path)
    assert done.code == 0, done.err
    record = output_files.read_record(output)
    assert (record["planned_steps"], record["finished_step"]) == (6, 6)
