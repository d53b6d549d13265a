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

import pytest
from rows import STEPS
from runs import interrupt
import scripts as running
import tensorflow.compat.v1 as tf
import tiny

TRAIN = dict(do_eval=False, do_predict=False, save_checkpoints_steps=10000)


def test_ctrl_c_saves_the_last_whole_step(untrained):
    """The promise `terminated` in tests/conformance sends SIGTERM, and continues the training."""
    finished = interrupt(untrained, f"step 3/{STEPS}", "SIGINT", **TRAIN)
    assert finished.code == 130 and "Press Ctrl-C again" in finished.err, finished
    found = re.fullmatch(r"run_classifier\.py: interrupted\. The last step is saved in output/model\.ckpt-"
                         r"(\d): run the same command again to continue\.", finished.err.splitlines()[-1])
    assert found and 3 <= int(found.group(1)) < STEPS, finished.err
    saved = untrained.output / f"model.ckpt-{found.group(1)}"
    assert tf.train.load_variable(str(saved), "global_step") == int(found.group(1))
    assert "Traceback" not in finished.err and not list(untrained.output.glob("*.partial"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_second_signal_ends_a_training_that_cannot_clean_up(name, run_script, tmp_path):
    """The second signal can interrupt a change of a queue of TensorFlow, so that its cleanup never ends."""
    (tmp_path / "train.py").write_text(f"""
import os, signal, threading, time
from bertlib.commands import signals
from bertlib.system import stopping
signals.handle_termination(lambda: os.write(2, b"interrupted.\\n"))
with stopping.request.being_awaited():
    os.kill(os.getpid(), signal.{name})
    time.sleep(0.5)  # signals that are read together count as one
    try:
        os.kill(os.getpid(), signal.{name})
    finally:
        threading.Event().wait(20)
""")
    finished = run_script(tmp_path / "train.py")
    assert finished.code == 128 + getattr(signal, name), finished
    assert finished.err.endswith("interrupted.\n"), finished


@pytest.mark.parametrize("phase, moment, name", [
    ("do_eval", "Evaluating on", "SIGTERM"), ("do_predict", "Predicting", "SIGHUP")])
def test_what_does_not_train_ends_at_once(phase, moment, name, copy):
    phases = dict.fromkeys(("do_train", "do_eval", "do_predict"), False)
    finished = interrupt(copy, moment, name, **{**phases, phase: True}, results_dir="later")
    assert finished.code == 128 + getattr(signal, name), finished
    assert finished.err.splitlines()[-1] == "run_classifier.py: terminated."
    assert not {"eval_results.txt", "test_results.tsv"} & set(os.listdir(copy.directory / "later"))


def test_features_that_were_half_written_are_gone(untrained):
    """The training has begun, but no step has. So the command does not wait for the end of a step."""
    tiny.write_task(untrained.directory / "data", "mrpc", train=5000)
    finished = interrupt(untrained, "Example train-", "SIGTERM", **TRAIN)
    assert finished.code == 143, finished
    assert finished.err.splitlines()[-1] == ("run_classifier.py: terminated. Run the same command again "
                                             "to continue from the last checkpoint, if one exists.")
    assert not list(untrained.output.glob("*.tf_record*"))


# --- A terminal ------------------------------------------------------------------------------------------


@pytest.fixture
def train_at_a_terminal(untrained):
    """A function that starts a long training like a shell in a terminal, and waits for its third step.

    It returns (process, terminal).
    """
    def start(**changes):
        terminal, side = os.openpty()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(side, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        flags = untrained.row.training_flags(**TRAIN, num_train_epochs=1000, **changes)
        process = subprocess.Popen(
            [sys.executable, running.ROOT / "run_classifier.py", *tiny.flags(**flags)],
            cwd=untrained.directory, stdin=side, stdout=side, stderr=side, preexec_fn=take_terminal,
            env=running.environment())
        os.close(side)
        found = b""
        while b" step 3/" not in found:
            found += os.read(terminal, 65536)
        return process, terminal
    return start


def assert_saved(untrained):
    steps = [int(path.stem.rpartition("-")[2]) for path in untrained.output.glob("model.ckpt-*.index")]
    assert 3 <= max(steps) < 4000


@pytest.mark.slow(reason="three interpreters of their own, which load TensorFlow")
def test_ctrl_c_with_replicas_saves_the_last_whole_step(train_at_a_terminal, untrained):
    """A terminal sends the signal to all processes, and the launcher forwards it a second time."""
    process, terminal = train_at_a_terminal(num_replicas=2)
    os.write(terminal, b"\x03")
    found = b""
    with contextlib.suppress(OSError):  # of the terminal, when all processes have closed it
        while part := os.read(terminal, 65536):
            found += part
    assert process.wait(100) == 130 and b"interrupted. The last step is saved in" in found, found
    assert_saved(untrained)


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_a_training_whose_terminal_is_closed_saves_its_last_step(train_at_a_terminal, untrained):
    process, terminal = train_at_a_terminal()
    os.close(terminal)
    assert process.wait(100) == 129
    assert_saved(untrained)


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
    done = run_python("import run_classifier\n", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "command.py: interrupted.\n")


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_what_interrupted_code_makes_of_a_signal_is_answered_alike(tmp_path):
    done = run_python("from bertlib.commands import launch\nfrom bertlib.system import stopping\n"
                      "def main(_):\n  try:\n"
                      "    raise stopping.Stopped\n  except BaseException as error:\n"
                      "    raise SystemError from error\n"
                      "launch.run(main)\n", tmp_path)
    assert done.returncode == 143 and "Traceback" not in done.stderr, done.stderr
    assert "command.py: terminated.\n" in done.stderr
