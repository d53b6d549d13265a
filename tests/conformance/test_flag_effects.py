"""Each flag has an effect: a run with another value differs in bits, a file, a message or the log.

flag_effects.py contains the value of each flag, and the place where its effect is seen.
"""

import functools
import hashlib
import re
import shutil

from flag_effects import (
    FLAGS,
    OTHER_COMMANDS,
    TRAINING_COMMANDS,
    WITHOUT,
    Effect,
    effect_of,
    effects,
    flags_of,
)
from helpers import ROOT
import model_directories
import pytest
import rows
import tensorflow.compat.v1 as tf
from test_flag_pairs import is_refusal, training_flags
import tiny

# Effects that cost little: fast tests show them. They are refused before TensorFlow builds a graph.
FAST = {("run_classifier", "task_name"), ("run_classifier", "use_tpu"), ("run_squad", "train_file"),
        ("predict", "model_dir")}


@pytest.fixture(scope="module")
def workspace(workspaces, tiny_model, tmp_path_factory):
    """A function that returns the directory for the runs of a command, with its data and models."""
    @functools.cache
    def create(command):
        row = TRAINING_COMMANDS.get(command, rows.ROWS["one text"])
        work = workspaces(row, untrained=True).copy(tmp_path_factory.mktemp("effects") / "work")
        if command in OTHER_COMMANDS:
            write_inputs(work.directory, tiny_model)
        return work.directory
    return create


def write_inputs(directory, model):
    """Writes two trained classifiers, one with other best weights, and the inputs of the other commands."""
    model_directories.write_classifier(directory / "trained", model, task="own data")
    model_directories.write_with_best(directory / "best_trained", model)
    (directory / "lines.csv").write_text("text_a,n\nthe cat,1\na dog,2\n")
    (directory / "texts.txt").write_text("=the Cat sees a dog .\na fish finds the house here .\n")
    (directory / "bad.txt").write_text("the cat\n\na dog\n")
    (directory / "lines.txt").write_text("".join(
        f"=the Cat sees unbreaking {word}s . \na {word} finds the house here .\n\n"
        for word in ("dog", "bird", "fish", "paper")))


class Run(object):
    """A run of a command, and what it has left: `code`, `log` (list of lines), `output` and `files`."""

    def __init__(self, scripts, command, flags, directory, source):
        shutil.copytree(source, directory)
        self.directory = directory
        self.done = scripts.run(f"{command}.py", *tiny.flags(**flags), cwd=directory)
        self.log = [re.sub(r"\d[\d.,:]*", "#", line) for line in self.done.err.splitlines()]

    def at(self, where):
        """Returns what is seen at a place, see `flag_effects.Effect`."""
        if where in ("log", "output"):
            return self.log if where == "log" else self.done.out
        if where == "weights":
            weights = tf.train.load_checkpoint(str(self.directory / "output"))
            return {name: weights.get_tensor(name).tobytes() for name in weights.get_variable_to_shape_map()}
        return {path.relative_to(self.directory): hashlib.sha256(path.read_bytes()).digest()
                if path.is_file() else None for path in self.directory.glob(where)}


@pytest.fixture(scope="module")
def run(scripts, workspace, tmp_path_factory):
    """A function that runs a command. It runs each command line only once."""
    @functools.cache
    def once(command, flags):
        directory = tmp_path_factory.mktemp("run") / "work"
        return Run(scripts, command, dict(flags), directory, workspace(command))
    return lambda command, flags: once(command, tuple(flags.items()))


def command_line(command, flags):
    """Returns {flag: value} of a run. `flags` are those that not all runs of the command have."""
    if command not in TRAINING_COMMANDS:
        found = {**OTHER_COMMANDS[command], **flags}
        return {name: value for name, value in found.items() if value is not None}
    row = TRAINING_COMMANDS[command]
    phases = {name: None for name in ("do_eval", "do_predict") if name in flags_of(command)}
    found = {**training_flags(row, {"do_train": True, **phases, **flags}),
             "output_dir": flags.get("output_dir", "output")}
    return {name: row.metric if value == "METRIC" else value for name, value in found.items()}


def cases():
    """Returns the parameters of the test: (command, flag), with the mark of soak tests."""
    soak = pytest.mark.soak(reason="one or two runs of a command for each of 440 flags: an hour on two cores")
    return [pytest.param(*case, marks=() if case in FAST else soak, id="-".join(case)) for case in effects()]


@pytest.mark.parametrize("command, flag", cases())
def test_a_flag_has_an_effect(command, flag, run):
    effect = effect_of(command, flag)
    changed = run(command, command_line(command, {**effect.base, flag: effect.value}))
    if effect.where == "message":
        assert is_refusal(f"{command}.py", changed.done, [flag]), changed.done.err
        return
    before = run(command, command_line(command, effect.base))
    assert before.at(effect.where) != changed.at(effect.where), changed.done.err


# --- The table -------------------------------------------------------------------------------------------


def test_each_flag_of_each_command_is_in_the_table():
    missing = [(command, flag) for command in FLAGS for flag in flags_of(command)
               if effect_of(command, flag) is None]
    assert not missing, f"Add these flags to flag_effects.py: {missing}"
    shown = set(effects())
    for command in FLAGS:
        for flag in flags_of(command):
            entry = effect_of(command, flag)
            if isinstance(entry, str) and entry not in WITHOUT.values():
                text = (ROOT / "tests" / entry).read_text(encoding="utf-8")
                assert re.search(rf"\b{flag}\b", text), f"{entry} does not test --{flag} of {command}.py"
            assert not isinstance(entry, Effect) or (command, flag) in shown, (command, flag)
