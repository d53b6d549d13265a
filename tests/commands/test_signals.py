"""SIGTERM, SIGHUP and Ctrl-C end a command with one line and an exit code, and without half-written files.

If the command continues later, its weights are the same as without the signal.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
import time

import pytest
import scripts as running
import tensorflow.compat.v1 as tf
import tiny

LAST_STEP = 8


@pytest.fixture(scope="module")
def training(tiny_model, tmp_path_factory):
    """The flags of a training that saves a checkpoint only at its first and its last step."""
    data = tiny.write_task(tmp_path_factory.mktemp("training"), "mrpc", train=32, dev=3, test=3)
    return dict(tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="mrpc", data_dir=data,
                train_batch_size=4, num_train_epochs=LAST_STEP / 8, learning_rate=0.01, log_steps=1,
                save_checkpoints_steps=100, trim_padding=False)


def start(scripts, here, flags, until, script="run_classifier.py"):
    """Starts a script, and waits until its log contains the pattern `until`."""
    run = scripts.start(script, *tiny.flags(**flags), cwd=here)
    while not re.search(until, run.read("stderr")) and os.path.exists(f"/proc/{run.pid}"):
        time.sleep(0.001)
    return run


def test_ctrl_c_saves_the_last_whole_step(scripts, training, tmp_path):
    """The promise `terminated` in tests/conformance sends SIGTERM, and continues the training."""
    output = tmp_path / "output"
    run = start(scripts, tmp_path, dict(training, do_train=True, output_dir=output), f"step 3/{LAST_STEP}")
    os.kill(run.pid, signal.SIGINT)
    finished = run.wait()
    assert finished.code == 130 and "Press Ctrl-C again" in finished.err, finished
    last = finished.err.splitlines()[-1]
    found = re.fullmatch(rf"run_classifier\.py: interrupted\. The last step is saved in {output}/model\.ckpt-"
                         r"(\d+): run the same command again to continue\.", last)
    assert found and 3 <= int(found.group(1)) < LAST_STEP, finished.err
    saved = output / f"model.ckpt-{found.group(1)}"
    assert tf.train.load_variable(str(saved), "global_step") == int(found.group(1))
    assert "Traceback" not in finished.err and not list(output.glob("*.partial"))


@pytest.mark.slow(reason="three interpreters of their own, which load TensorFlow")
def test_ctrl_c_with_replicas_saves_the_last_whole_step(training, tmp_path):
    """A terminal sends the signal to all processes, and the launcher forwards it a second time."""
    output = tmp_path / "output"
    process, terminal = start_at_a_terminal(dict(
        training, do_train=True, num_train_epochs=500, num_replicas=2, output_dir=output))
    read_until(terminal, b" step 3/")
    os.write(terminal, b"\x03")
    found = b""
    with contextlib.suppress(OSError):  # of the terminal, when all processes have closed it
        while part := os.read(terminal, 65536):
            found += part
    assert process.wait(100) == 130 and b"interrupted. The last step is saved in" in found, found
    assert 3 <= max(int(path.stem.rpartition("-")[2]) for path in output.glob("model.ckpt-*.index")) < 4000


def test_a_second_ctrl_c_ends_a_training_that_cannot_clean_up(run_script, tmp_path):
    """The second signal can interrupt a change of a queue of TensorFlow, so that its cleanup never ends."""
    (tmp_path / "train.py").write_text("""
import os, signal, threading
from bertlib.command_line import signals
from bertlib.system import stopping
signals.handle_termination(lambda: os.write(2, b"interrupted.\\n"))
with stopping.request.being_awaited():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        threading.Event().wait()
""")
    finished = run_script(tmp_path / "train.py")
    assert finished.code == 130 and finished.err.endswith("interrupted.\n"), finished


@pytest.mark.parametrize("phase, until, number", [
    ("do_eval", "Evaluating on", signal.SIGTERM), ("do_predict", "Predicting", signal.SIGHUP)])
def test_what_does_not_train_ends_at_once(phase, until, number, scripts, training, tmp_path):
    output = tmp_path / "output"
    run = start(scripts, tmp_path, {**training, phase: True, "output_dir": output}, until)
    os.kill(run.pid, number)
    finished = run.wait()
    assert finished.code == 128 + number, finished
    assert finished.err.splitlines()[-1] == "run_classifier.py: terminated."
    assert not {"eval_results.txt", "test_results.tsv"} & set(os.listdir(output))


def test_features_that_were_half_written_are_gone(scripts, training, tmp_path):
    """The training has begun, but no step has. So the command does not wait for the end of a step."""
    data = tiny.write_task(tmp_path / "data", "mrpc", train=5000)
    flags = dict(training, do_train=True, data_dir=data, output_dir=tmp_path / "output")
    run = start(scripts, tmp_path, flags, "Converting example|Example: 0|Training on")
    begun = time.monotonic()
    os.kill(run.pid, signal.SIGTERM)
    finished = run.wait()
    assert time.monotonic() - begun < 20
    assert finished.code == 143, finished
    assert finished.err.splitlines()[-1] == ("run_classifier.py: terminated. Run the same command again "
                                             "to continue from the last checkpoint.")
    assert not list((tmp_path / "output").glob("*.tf_record*"))


# --- A terminal that is closed ---------------------------------------------------------------------------


def start_at_a_terminal(flags, hang_up=signal.SIG_DFL):
    """Starts run_classifier.py like a shell in a terminal. Returns (process, terminal)."""
    terminal, side = os.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(side, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, hang_up)

    process = subprocess.Popen(
        [sys.executable, running.ROOT / "run_classifier.py", *tiny.flags(**flags)],
        stdin=side, stdout=side, stderr=side, preexec_fn=take_terminal, env=running.environment())
    os.close(side)
    return process, terminal


def read_until(terminal, text):
    found = b""
    while text not in found:
        found += os.read(terminal, 65536)


@pytest.mark.slow(reason="interpreters of their own, which load TensorFlow")
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.soak(
    reason="three interpreters; test_replicas.py ends replicas by signals"))])
def test_a_training_whose_terminal_is_closed_saves_its_last_whole_step(replicas, training, tmp_path):
    output = tmp_path / "output"
    process, terminal = start_at_a_terminal(dict(
        training, do_train=True, num_train_epochs=500, num_replicas=replicas, output_dir=output))
    read_until(terminal, b" step 3/")
    os.close(terminal)
    assert process.wait(100) == 129
    steps = [int(path.stem.rpartition("-")[2]) for path in output.glob("model.ckpt-*.index")]
    assert 3 <= max(steps) < 4000


# --- Ctrl-C while modules are loaded ---------------------------------------------------------------------

# A fake module that takes a long time to load. It interrupts itself at its beginning.
SLOW = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
AFTER = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def run_python(code, here):
    """Runs a script with the name command.py.

    It finds the modules of `here` first, then those of this project.
    """
    (here / "command.py").write_text(AFTER + code)
    return subprocess.run([sys.executable, "command.py"], cwd=here, capture_output=True, encoding="utf-8",
                          timeout=100, env={**os.environ, "PYTHONPATH": str(running.ROOT)})


def test_ctrl_c_while_modules_are_loaded_is_answered_in_one_line(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(SLOW)
    done = run_python("from bertlib.command_line import launch\n", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "command.py: interrupted.\n")


@pytest.mark.parametrize("error, said", [
    pytest.param(*values, marks=mark(reason="an interpreter of its own, which loads TensorFlow"))
    for mark, values in ((pytest.mark.soak, ("KeyboardInterrupt", "command.py: interrupted.\n")),
                         (pytest.mark.slow, ("stopping.Stopped", "command.py: terminated.\n")),
                         (pytest.mark.soak, ("ZeroDivisionError", "SystemError")))])
def test_what_interrupted_code_makes_of_a_signal_is_answered_alike(error, said, tmp_path):
    done = run_python("from bertlib.command_line import launch\nfrom bertlib.system import stopping\n"
                      "def main(_):\n  try:\n"
                      f"    raise {error}\n  except BaseException as error:\n"
                      "    raise SystemError from error\n"
                      "launch.run(main)\n", tmp_path)
    assert done.returncode == {"KeyboardInterrupt": 130, "stopping.Stopped": 143}.get(error, 1), done.stderr
    assert said in done.stderr and ("Traceback" in done.stderr) == (error == "ZeroDivisionError")
