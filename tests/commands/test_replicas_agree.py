"""Replicas on several machines refuse to work together if their inputs, models or code differ."""

import subprocess
import sys

import pytest
import scripts as running
from test_replicas import machine, port  # noqa: F401 (a fixture)
import tiny

pytestmark = pytest.mark.slow(reason="starts two launchers, each with a fresh interpreter as its replica")


def run_on_two_machines(port, directory, commands):  # noqa: F811 (the fixture's value)
    """Runs a command on two machines at the same time. Returns the exit code and the log of each machine."""
    started = [subprocess.Popen([sys.executable, *map(str, command)], cwd=directory,
                                env=running.environment(TF_CONFIG=machine(index, port),
                                                        PYTHONPATH=str(running.ROOT)),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                encoding="utf-8")
               for index, command in enumerate(commands)]
    return [(process, text) for process, (text, _) in [(one, one.communicate(timeout=280))
                                                       for one in started]]


def check_refused(found, *words):
    for process, text in found:
        assert process.returncode == 1 and "The replicas have different values: " in text, text
        assert all(word in text for word in words), text


@pytest.fixture
def extraction(tiny_model, tmp_path):
    """A function that returns the command of one machine."""
    def command(name, lines="the cat\na dog\n", **changes):
        (tmp_path / f"{name}.txt").write_text(lines)
        flags = dict(tiny_model.flags, input_file=f"{name}.txt", output_file="vectors.jsonl", layers="-1",
                     replica_timeout=30)
        return [running.ROOT / "extract_features.py", *tiny.flags(**{**flags, **changes})]
    return command


def test_vectors_of_another_script_are_refused(extraction, port, tmp_path):  # noqa: F811
    own = extraction("two")
    own[0] = tmp_path / "extract_features.py"
    own[0].write_text((running.ROOT / "extract_features.py").read_text() + "# another version\n")
    check_refused(run_on_two_machines(port, tmp_path, [extraction("one"), own]),
                  "the code of extract_features.py is ")


def test_another_task_module_is_refused(tiny_model, port, tmp_path):  # noqa: F811
    module = """
from run_classifier import DataProcessor, InputExample
class Task(DataProcessor):
    labels = "0", "1"
    def get_train_examples(self, data_dir):
        return [InputExample(str(number), "the cat", None, str(number % 2)) for number in range(8)]
"""
    (tmp_path / "one.py").write_text(module)
    (tmp_path / "two.py").write_text(f"{module}# the same examples\n")
    flags = dict(tiny_model.flags, train_batch_size=4, num_train_epochs=1, do_train=True,
                 output_dir=tmp_path / "output", replica_timeout=30)
    commands = [[running.ROOT / "run_classifier.py", *tiny.flags(**flags, task_module=f"{name}.py")]
                for name in ("one", "two")]
    check_refused(run_on_two_machines(port, tmp_path, commands), "task_module is ")
    assert not (tmp_path / "output" / "run.json").exists()
