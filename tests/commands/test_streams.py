"""Standard streams that are closed or full, and texts that would control a terminal."""

import os
import shlex
import subprocess
import sys

import scripts as runs

BAD = "\x1b[2J\u202e\x9b"


def assert_one_line(code, log, says):
    assert code == 1 and log.splitlines()[-1] == f"download.py: error: {says}", log
    assert "Traceback" not in log and "Exception ignored" not in log


def test_a_closed_output_is_one_line(tmp_path):
    command = shlex.join([sys.executable, str(runs.ROOT / "download.py"), "--list"])
    done = subprocess.run(["sh", "-c", f"{command} >&-"], cwd=tmp_path, env=runs.environment(),
                          capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)
    assert_one_line(done.returncode, done.stderr,
                    "the standard output is closed. Redirect it to a file or to /dev/null.")


def test_a_reader_of_the_help_that_ends_early_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, runs.ROOT / "run_classifier.py", "--helpfull"], cwd=tmp_path,
                          stdout=write, env=runs.environment(), stderr=subprocess.PIPE, encoding="utf-8",
                          stdin=subprocess.DEVNULL)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_output_is_one_line(scripts):
    done = scripts.run_bash("python download.py --list > /dev/full", cwd=runs.ROOT)
    assert_one_line(done.code, done.err, "the standard output cannot be written: No space left on device.")


def test_messages_do_not_control_the_terminal(run_script):
    done = run_script("predict.py", "--model_dir=.", f"--input_file={BAD}")
    done.assert_refused(r"--input_file=\x1b[2J\u202e\x9b: there is no such file")
    assert not set(BAD) - {"[", "2", "J"} & set(done.err)


def test_log_lines_do_not_control_the_terminal(run_script, tiny_model, tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + f"the cat,{BAD}\na dog,b\n" * 10, encoding="utf-8")
    flags = dict(tiny_model.flags, train_file="train.csv", do_train=True, train_batch_size=99,
                 output_dir="out")
    done = run_script("run_classifier.py", **flags)
    assert r"\x1b[2J\u202e\x9b" in done.err, done.err
    assert not {"\x1b", "\u202e", "\x9b"} & set(done.err)
