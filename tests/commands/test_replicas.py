"""Replicas of a command, as a user starts them: on one machine, on several, and with an evaluator.

The command is short and computes nothing. Other tests check the computations of replicas.
"""

import json
import os
import re
import signal
import socket
import time

from helpers import is_running, wait_until
import model_directories
import pytest
from scripts import ROOT, run_fresh
import tiny

COMMAND = """
import json, os, signal, sys, time
sys.path.insert(0, {root!r})
from absl import flags
from bertlib.commands import common_flags, devices, launch
from bertlib.tasks import shared_flags
from bertlib.system import replica_group

flags.DEFINE_string("act", "", "What to do, in Python.")
flags.DEFINE_bool("do_eval", False, "")
flags.DEFINE_string("output_dir", None, "")
flags.DEFINE_string("results_dir", None, "")
flags.DEFINE_multi_integer("numbers", [1, 2], "")
common_flags.define(shared_flags.REPLICAS)

def main(_):
    group = replica_group.current()
    exec(flags.FLAGS.act, {{**globals(), "group": group}})

if __name__ == "__main__":
    launch.run(main, description="A command.")
"""


@pytest.fixture
def command(tmp_path):
    path = tmp_path / "command.py"
    path.write_text(COMMAND.format(root=str(ROOT)))
    return path


@pytest.fixture
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def machine(index, port, count=2, task="worker"):
    addresses = [f"127.0.0.1:{port + number}" for number in range(count)]
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": task, "index": index}})


# --- One machine -----------------------------------------------------------------------------------------


@pytest.mark.slow(reason="starts four interpreters; test_replica_launcher.py starts small processes again")
def test_replicas_are_started_again_after_one_was_killed(command, run_script, tmp_path):
    act = """
devices.log_devices()
if group.index and not group.attempt: os.kill(os.getpid(), signal.SIGKILL)
if group.index: group.keep_log('.')
print(group.index, group.all_gather(group.index ** 2))
"""
    done = run_script(command, f"--act={act}", "--num_replicas=2", "--max_restarts=1")
    assert (done.code, done.out) == (0, "0 [0, 1]\n"), done
    assert re.search(r"replica 1 \(process \d+\) was killed by SIGKILL\. If nobody killed it, the "
                     r"machine ran out of memory\. All replicas are started again: 1 of "
                     r"--max_restarts=1\.\n", done.err)
    assert re.search(r"TensorFlow .* on CPU, 1 threads \(no GPU found\), replica 0 of 2\.\n", done.err)
    log = (tmp_path / "replicas" / "1.log").read_text()
    assert ", replica 1 of 2.\n" in log and log.endswith("1 [0, 1]\n")


@pytest.mark.slow(reason="starts fresh interpreters")
@pytest.mark.parametrize("act, code, last", [
    ("if group.index: {}['a name']\ngroup.barrier()", 1,
     r"error: replica 1: KeyError: 'a name'\. The traceback is in the log of this replica\."),
    ("os.kill(os.getppid(), signal.SIGTERM) if group.index else None; time.sleep(300)", 143,
     r"terminated\. Run the same command again to continue\.")])
def test_how_replicas_end(act, code, last, command, run_script):
    """test_replica_group.py has the messages of other errors, test_replica_launcher.py other ends."""
    command.write_text(command.read_text().replace("launch.run(main,", "launch.run(main, resumable=True,"))
    done = run_script(command, f"--act={act}", "--num_replicas=2", "--replica_timeout=20")
    assert done.code == code, done
    *before, line = done.err.splitlines()
    assert re.fullmatch(rf"command\.py: {last}", line), done.err
    if code == 1:  # the replica's own traceback and message
        assert any(text.startswith("The end of the log of replica 1 (") for text in before)
        assert before[-2].startswith("KeyError: 'a name'") and before[-1].startswith("command.py: error: ")


@pytest.mark.slow(reason="starts fresh interpreters")
def test_replicas_end_when_their_launcher_is_killed(command, scripts, tmp_path):
    act = "open(str(os.getpid()) + '.pid', 'w').close(); group.barrier(); time.sleep(100)"
    run = scripts.start(command, f"--act={act}", "--num_replicas=2", "--replica_timeout=10", cwd=tmp_path)
    while len(found := list(tmp_path.glob("*.pid"))) < 2:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait().code == -signal.SIGKILL
    wait_until(lambda: not any(is_running(path.stem) for path in found), 20)


# --- Several machines ------------------------------------------------------------------------------------


@pytest.mark.slow(reason="starts fresh interpreters")
def test_two_machines(command, port, scripts, tmp_path):
    act = "print(group.index, group.all_gather((group.index, group.local_index)))"
    flags = [f"--act={act}", "--num_replicas=2"]
    first = scripts.start(command, *flags, cwd=tmp_path, TF_CONFIG=machine(0, port))
    second = run_fresh(command, *flags, cwd=tmp_path, TF_CONFIG=machine(1, port))
    finished = [first.wait(), second]
    assert [one.code for one in finished] == [0, 0], finished
    assert finished[0].out == "0 [(0, 0), (1, 1), (2, 0), (3, 1)]\n"


def test_a_port_that_is_taken_is_named(command, scripts, tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        done = scripts.run(command, cwd=tmp_path, TF_CONFIG=machine(0, port))
        done.assert_refused(f"command.py: error: This machine cannot listen at port {port}, which TF_CONFIG")
        # A cluster of one machine needs no port.
        done = scripts.run(command, "--act=print('done')", cwd=tmp_path, TF_CONFIG=machine(0, port, 1))
        assert (done.code, done.out) == (0, "done\n")


# --- The evaluator ---------------------------------------------------------------------------------------

EVALUATE = """
assert flags.FLAGS.do_eval and "TF_CONFIG" not in os.environ
newest = open("output/checkpoint").read().split('"')[1]
os.makedirs(flags.FLAGS.results_dir, exist_ok=True)
with open(flags.FLAGS.results_dir + "/eval_results.txt", "w") as file:
    print("global_step =", newest.rpartition("-")[2], file=file)
with open(flags.FLAGS.results_dir + "/eval_results.json", "w") as file:
    print('{"f1": 50.0, "global_step": %s}' % newest.rpartition("-")[2], file=file)
"""


def save(directory, step, **recorded):
    """Writes empty files of a checkpoint, and a run.json, so that the evaluator finds a training."""
    (directory / f"model.ckpt-{step}.index").touch()
    (directory / f"model.ckpt-{step}.data-00000-of-00001").touch()
    (directory / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n'
                                          f'all_model_checkpoint_paths: "model.ckpt-{step}"\n')
    (directory / "new.json").write_text(json.dumps(model_directories.record(["0", "1"], **recorded)))
    (directory / "new.json").rename(directory / "run.json")


@pytest.mark.slow(reason="starts fresh interpreters")
def test_the_evaluator_follows_a_training_to_its_end(command, port, scripts, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    run = scripts.start(command, f"--act={EVALUATE}", "--output_dir=output", "--replica_timeout=1",
                        cwd=tmp_path, TF_CONFIG=machine(0, port, task="evaluator"))
    save(output, 5)
    wait_until((output / "evaluator" / "eval_results.5.json").exists, 200)
    save(output, 8, finished_step=8)
    finished = run.wait()
    assert finished.code == 0, finished
    assert sorted(os.listdir(output / "evaluator")) == [
        f"eval_results{step}.{extension}" for step in (".5", ".8", "") for extension in ("json", "txt")]
    assert (output / "evaluator" / "eval_results.8.txt").read_text() == "global_step = 8\n"


@pytest.mark.slow(reason="starts a fresh interpreter, and evaluates a model")
def test_the_evaluator_takes_the_settings_of_the_weights(scripts, port, tiny_model, tmp_path):
    """The training may continue with other settings, which it has not recorded yet."""
    output = model_directories.write_classifier(tmp_path / "output", tiny_model, "01", task="mrpc",
                                                learning_rate=0.01)
    record = json.loads((output / "run.json").read_text())
    data = tiny.write_task(tmp_path / "data", "mrpc", dev=3)
    run = scripts.start("run_classifier.py", *tiny.flags(
        task_name="mrpc", data_dir=data, output_dir=output, do_train=True, do_eval=True,
        eval_each_checkpoint=True, learning_rate=0.02, replica_timeout=1), cwd=tmp_path,
                        TF_CONFIG=machine(0, port, task="evaluator"))
    wait_until((output / "evaluator" / "eval_results.7.txt").exists, 200)
    (output / "new.json").write_text(json.dumps({**record, "finished_step": 7}))
    (output / "new.json").rename(output / "run.json")
    finished = run.wait()
    assert finished.code == 0 and (output / "evaluator" / "eval_results.7.txt").exists(), finished.err


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_evaluator_waits_for_the_start_of_the_training(command, port, scripts, tmp_path, has_ended):
    (tmp_path / "output").mkdir()
    if has_ended:  # an earlier training
        save(tmp_path / "output", 0, finished_step=0)
    done = scripts.run(command, "--output_dir=output", "--replica_timeout=0.1", cwd=tmp_path,
                       TF_CONFIG=machine(0, port, task="evaluator"))
    assert done.code == (0 if has_ended else 1)
    assert has_ended or "--output_dir=output: no training has begun there." in done.err


@pytest.mark.parametrize("script, said", [("extract_features.py", "it has no flag --do_eval"),
                                          ("run_classifier.py", "Pass --output_dir")])
def test_what_cannot_be_an_evaluator_says_so(script, said, scripts, port, tmp_path):
    done = scripts.run(script, cwd=tmp_path, TF_CONFIG=machine(0, port, task="evaluator"))
    assert done.code == 1 and said in done.err.splitlines()[-1] and not list(tmp_path.iterdir())
