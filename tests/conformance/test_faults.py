"""Kills and faults at drawn moments: a command fails with one message, and the same command then completes.

See inside.py for the moments. Each draw has a fixed seed.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys

from flag_effects import FLAGS, OTHER_COMMANDS, flags_of
from outputs import different_tensors, results
import promises
import pytest
from rows import ROWS
from runs import assert_same_run, interrupt
from scripts import ROOT, Finished, environment
from test_flag_effects import command_line, workspace  # noqa: F401  a fixture
import tiny

from bertlib.estimator import step_config

ERRORS = ("ENOSPC", "EIO", "EACCES", "ENOMEM", "EMFILE")
_INSIDE = "tests/conformance/inside.py"
_UNFINISHED = re.compile(r"\.partial|\.tempstate|/temp-|/\.new_model\.")


def assert_clear(done, path=None):
    """Asserts that a command failed with one message, without a traceback. The message names the file."""
    assert done.code == 1 and "Traceback" not in done.err and "Exception ignored" not in done.err, done.err
    message = done.err.rpartition("error: ")[2]
    lines = message.splitlines()
    assert len(lines) == 1 or lines and "lines cannot be used" in lines[0], done.err
    name = os.path.basename(path or "").partition(".partial")[0]
    assert name in message, (name, message)
    return True


# --- Commands that do not train --------------------------------------------------------------------------

FAST = {"build_vocab": 4, "create_pretraining_data": 3, "convert_checkpoint": 3}  # numbers of disturbed runs
COMMANDS = {**{name: OTHER_COMMANDS[name] for name in (*FAST, "export", "extract_features")},
            "predict": {"model_dir": "trained", "input_file": "lines.csv", "output_file": "answers.jsonl"}}


@pytest.fixture(scope="module")
def source(workspace):  # noqa: F811
    """A directory with a trained model and the inputs of all commands."""
    return workspace("predict")


def files_of(directory):
    """Returns ({path: content, None for a directory}, unfinished paths) without lock files.

    Exports have a time in their path, and TensorFlow writes random numbers into fingerprint.pb.
    """
    found, unfinished = {}, []
    for path in sorted(directory.rglob("*")):
        name = f"/{path.relative_to(directory)}"
        if path.suffix == ".lock" or path.name == "fingerprint.pb":
            continue
        if _UNFINISHED.search(name):
            unfinished.append(name)
        else:
            found[re.sub(r"/\d{9,}(/|$)", r"/time\1", name)] = path.read_bytes() if path.is_file() else None
    return found, unfinished


def fresh_copy(source, here):
    """Replaces the directory `here` by a copy. All runs have the same path, because files contain it."""
    shutil.rmtree(here, ignore_errors=True)
    return shutil.copytree(source, here)


def cells():
    """Returns the parameters (command, number of disturbed runs; 0 for one at each change)."""
    soak = pytest.mark.soak(reason="hundreds of runs; the fast tests disturb some of them")
    return [*FAST.items(), *(pytest.param(command, 0, marks=soak) for command in COMMANDS)]


@pytest.mark.parametrize("command, number", cells())
def test_each_change_may_be_the_last_or_fail(command, number, source, scripts, tmp_path):
    chance, here = random.Random(command), tmp_path / "work"
    line = [ROOT / f"{command}.py", *tiny.flags(**COMMANDS[command])]
    done = scripts.run(_INSIDE, "end", "COUNT", *line, cwd=fresh_copy(source, here))
    assert done.code == 0, done.err
    before, whole = files_of(source)[0], files_of(here)[0]
    moments = [(place, act) for place in range(1, 1 + int(re.search(r"changes=(\d+)", done.err)[1]))
               for act in ("SIGKILL", chance.choice(ERRORS))]
    for place, act in chance.sample(moments, number or len(moments)):
        done = scripts.run(_INSIDE, f"change {place}", act, *line, cwd=fresh_copy(source, here))
        path = re.search(r"inside.py: (change \d+: .*)", done.err)[1]
        found, unfinished = files_of(here)
        if act == "SIGKILL":
            assert done.code == -9
        else:
            # The next run of create_pretraining_data.py continues with the unfinished records.
            assert not unfinished or command == "create_pretraining_data", (act, path)
            assert done.code == 0 or assert_clear(done, path.split()[-1]), (act, path)
        wrong = [name for name in found if found[name] not in (whole.get(name), before.get(name))]
        assert not wrong, (act, path, wrong)
        if found != whole:
            done = scripts.run(f"{command}.py", *line[1:], cwd=here)
            assert done.code == 0, (act, path, done.err)
        found, unfinished = files_of(here)
        assert not unfinished, (act, path)
        wrong = [name for name in {*found, *whole} if found.get(name, 0) != whole.get(name, 0)]
        assert not wrong, (act, path, wrong)


# --- Trainings -------------------------------------------------------------------------------------------

# Flags under which a killed training continues, in addition to those of the rows.
SETTINGS = [
    dict(precision="bf16"), dict(precision="fp16", recompute="attention"), dict(recompute="layers"),
    dict(gradient_accumulation_steps=4), dict(tokens_per_micro_batch=40),
    *(dict(optimizer=name, lr_schedule="cosine") for name in step_config.OPTIMIZERS[1:]),
    dict(compile_kernels=True, trim_padding=False), dict(features_cache="cache"),
    dict(eval_every_steps=2, keep_best="eval_f1", early_stopping_evals=2)]


def complete(work, **changes):
    done = work.train(**changes)
    assert done.code == 0, done.err
    assert not files_of(work.directory)[1]


def kill(work, chance, times, **changes):
    """Starts a training several times, and kills it at drawn moments. The first one is before its end."""
    killed = 0
    for attempt in range(times):
        moment = f"change {chance.randint(1, 40 if attempt else 15)}"
        if attempt:
            moment = chance.choice([moment, f"cpu {chance.uniform(0.5, 6):.2f}"])
        done = interrupt(work, moment, **changes)
        assert done.code in (0, -signal.SIGKILL, -signal.SIGPROF), done.err
        killed += done.code < 0
    assert killed


@promises.of(fast=())
def test_killed_at_any_moment(row, trained, untrained):
    """A run that is killed at drawn moments, again and again, continues to the same bits and results."""
    kill(untrained, random.Random(row.name), 4)
    complete(untrained)
    assert_same_run(untrained, trained)


@pytest.mark.soak(reason="ten times three or four trainings; the rows of the table are killed, too")
@pytest.mark.parametrize("flags", SETTINGS, ids=lambda flags: "-".join(flags))
def test_a_killed_training_with_other_flags_continues(flags, workspaces, tmp_path):
    row = ROWS["pairs"]
    untrained = workspaces(row, untrained=True).copy(tmp_path / "untrained")
    kill(untrained, random.Random(repr(flags)), 3, **flags)
    complete(untrained, **flags)
    assert_same_run(untrained, workspaces(row, **flags))


@promises.of(fast=())
def test_failed_change(row, trained, untrained):
    """If a file cannot be opened, renamed or removed, a run names it, and continues later to the same
    bits and results."""
    chance = random.Random(row.name)
    for place in chance.sample(range(1, 40), 6):
        done = interrupt(untrained, f"change {place}", chance.choice(ERRORS))
        if done.code:
            assert_clear(done, re.search(r"inside.py: change \d+: \S+ (.*)", done.err)[1])
    complete(untrained)
    # A line of metrics.jsonl that cannot be written is lost, with a warning.
    assert different_tensors(untrained.output, trained.output) == []
    assert results(untrained.output) == results(trained.output)


# --- Surroundings and flags ------------------------------------------------------------------------------

SURROUNDINGS = {
    "locale C": "export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
    "Turkish": "export LC_ALL=tr_TR.UTF-8 LANG=tr LANGUAGE=tr", "no home": "unset HOME XDG_CACHE_HOME",
    "read-only home": "export HOME=/proc XDG_CACHE_HOME=/proc", "no TMPDIR": "export TMPDIR=/no/such",
    "umask": "umask 077", "closed streams": "exec <&- >&-",
    "no directory": "mkdir gone; cd gone; rmdir ../gone",
    "odd variables": "export PYTHONSTARTUP=/no/such PYTHONOPTIMIZE=2 TF_CONFIG= COLUMNS=0 LINES=x TERM= "
                     "CUDA_VISIBLE_DEVICES=x OMP_NUM_THREADS=-1 TZ=no/such NO_COLOR=1"}


@pytest.mark.soak(reason="interpreters of their own, which load TensorFlow")
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_surroundings_change_no_answer(name, source, scripts, tmp_path):
    here, flags = fresh_copy(source, tmp_path / "work"), tiny.flags(**COMMANDS["predict"])
    assert scripts.run("predict.py", *flags, cwd=here).code == 0
    expected = (here / "answers.jsonl").read_bytes()
    (here / "answers.jsonl").unlink()
    process = subprocess.run(["bash", "-c", f'{SURROUNDINGS[name]}; exec "$@"', "bash", sys.executable,
                              ROOT / "predict.py", *flags], cwd=here, env=environment(),
                             stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=600)
    if process.returncode:
        assert_clear(Finished(process.returncode, process.stdout, process.stderr))
    else:
        assert (here / "answers.jsonl").read_bytes() == expected


VALUES = {
    "int": [0, -1, 2**31 - 1, 2**31, 2**63, 10**30, "1e3", "٣", "", " 5", "0x10", "1_000", "nan"],
    "float": [0, "-0.0", -1, "1e-320", "1e308", "1e400", "nan", "-inf", "", "1,5"],
    "bool": ["maybe", "2", ""],
    "string": ["", ".", "..", "none/there", "model", "lines.txt", "[", "a]b", "back\\slash", "new\nline",
               "-dash", "x" * 5000, "~", "a,b", ",", "no://x", "%s{0}", "*", "99", "a,,b", "\udcff",
               "ünï…\u200b"]}


@pytest.mark.soak(reason="fifteen runs of each command")
@pytest.mark.parametrize("command", sorted(FLAGS))
def test_a_wrong_value_of_a_flag_is_one_message_or_valid(command, workspace, scripts, tmp_path):  # noqa: F811
    chance, types = random.Random(command), flags_of(command)
    for number in range(15):
        flag = chance.choice(sorted(types))
        value = chance.choice(VALUES.get(types[flag].split()[0], VALUES["string"]))
        here = shutil.copytree(workspace(command), tmp_path / str(number))
        done = scripts.run(f"{command}.py", *tiny.flags(**command_line(command, {flag: value})), cwd=here)
        assert done.code == 0 or "FATAL Flags parsing" in done.err or assert_clear(done), (flag, value)
        assert "Traceback" not in done.err or flag == "traceback", (flag, value, done.err)
