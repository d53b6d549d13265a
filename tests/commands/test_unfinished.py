"""Commands that read the weights of an unfinished training refuse them or print a warning.

They are refused if the training has not taken a step.
"""


from helpers import write_json
import model_directories
import numpy as np
from outputs import record
import pytest
from rows import ROWS
import tiny

from bertlib.runs import model_files

# {command: its flags}.
COMMANDS = {"predict.py": dict(model_dir="output", input_file="texts.txt"),
            "run_classifier.py": dict(output_dir="new", init_checkpoint="output", do_eval=True,
                                      data_dir="data"),
            "convert_checkpoint.py": dict(input="output", output="converted")}


@pytest.fixture
def at_step(workspaces, tmp_path):
    """A function that returns a copy of a training in its state after a step, with changes in run.json."""
    def copy(step, **changes):
        work = workspaces(ROWS["pairs"]).copy(tmp_path / "copy")
        (work.output / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
        for path in work.output.glob("model.ckpt-*"):
            if not path.name.startswith(f"model.ckpt-{step}."):
                path.unlink()
        write_json(work.output / "run.json", {**record(work.output), **changes})
        (work.directory / "texts.txt").write_text("the cat ||| a dog\n")
        return work
    return copy


@pytest.mark.parametrize("command", COMMANDS)
def test_step_0_is_refused(at_step, command):
    refused = at_step(0, finished_step=None).run(command, **COMMANDS[command])
    refused.assert_refused("error: output/model.ckpt-0 is the checkpoint of step 0. Its head is random, ")
    assert not refused.out


def test_an_unfinished_training_is_said_once(at_step):
    done = at_step(3, finished_step=None).run("predict.py", **COMMANDS["predict.py"])
    done.assert_success()
    assert done.err.count("WARNING: output/model.ckpt-3 comes from an unfinished training: step 3 of "
                          "8. ") == 1


@pytest.mark.parametrize("step, changes", [
    (8, dict(finished_step=8)), (8, {}),  # killed after its last step
    (3, dict(finished_step=3)),  # it ended by itself, as early stopping does
    (3, dict(planned_steps=None))])  # in best/
def test_what_is_finished_or_not_known_is_not_warned_of(step, changes, tmp_path, caplog):
    weights = tiny.write_tensorflow(tmp_path / f"model.ckpt-{step}", {"global_step": np.int64(step)})
    found = model_directories.record(**{"planned_steps": 8, **changes})
    model_files.check_trained_weights(found, str(weights))
    assert "unfinished" not in caplog.text


def test_published_weights_are_not_concerned(at_step, tiny_model, tmp_path):
    weights = tiny.write_tensorflow(tmp_path / "bert_model.ckpt", tiny_model.weights)
    model_files.check_trained_weights(record(at_step(8).output), str(weights))
