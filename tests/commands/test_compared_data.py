"""Later evaluations: they notice changed development data, and their files replace all earlier results."""

import json
import re
import shutil

import pytest
from test_learning_curve import Trainings
from test_run_pretraining import FIELDS, rows
from test_run_swag import write as write_swag
import tiny

from bertlib import api
from bertlib.data import record_files

_again = pytest.mark.slow(reason="two more runs for what the classifier shows")
NAMES = ["classifier", *(pytest.param(name, marks=_again) for name in ("hub", "squad", "ner", "pretraining",
                                                                       "swag"))]
WARNING = r"WARNING: The development data differ from those of the training in \S+: .* -> .*\. So the "


@pytest.fixture(scope="module")
def folder(scripts, tiny_model, tmp_path_factory):
    return Trainings(scripts, tiny_model, tmp_path_factory.mktemp("files"))


def train(name, folder, output, scripts, tiny_model):
    """Trains without evaluations during the training. Returns (script, flags, development file)."""
    data = folder.directory / "data"
    if name == "swag":
        paths = {f"{split}_file": write_swag(data / f"{split}.csv", 8, seed)
                 for seed, split in enumerate(("train", "dev"))}
        command = "run_swag.py", *tiny.flags(**{**tiny_model.flags, "max_seq_length": 32}, **paths,
                                             num_train_epochs=1, train_batch_size=4, output_dir=output)
    else:
        folder.flags["pretraining"]["eval_file"] = data / "eval.tfrecord"
        record_files.write_records(str(data / "eval.tfrecord"), FIELDS, rows(0, 6))
        command = folder.command(name, output, eval_each_checkpoint=None)
    done = scripts.run(*command, cwd=folder.directory)
    assert done.code == 0 and not re.search(WARNING, done.err), done.err
    return *command, {"hub": data / "dev.tsv", "classifier": data / "dev.tsv", "swag": data / "dev.csv",
                      "squad": data / "predict.json", "ner": data / "dev.conll",
                      "pretraining": data / "eval.tfrecord"}[name]


def change(path):
    """Changes the development file: leaves out its last example, or changes a question."""
    if path.suffix == ".tfrecord":
        record_files.write_records(str(path), FIELDS, rows(0, 5))
    elif path.suffix == ".json":
        path.write_text(path.read_text().replace('"question": "', '"question": "now ', 1))
    elif path.suffix == ".conll":
        path.write_text(path.read_text().rstrip("\n").rpartition("\n\n")[0] + "\n")
    else:
        path.write_text("".join(path.read_text().splitlines(True)[:-1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_later_evaluation_of_changed_development_data(name, folder, scripts, tiny_model, tmp_path):
    """The evaluation writes JSON Lines instead of CSV, and cannot write its report."""
    output = tmp_path / "output"
    script, *flags, path = train(name, folder, output, scripts, tiny_model)
    record = json.loads((output / "run.json").read_text())
    assert len({record[data]["fingerprint"] for data in ("train_data", "dev_data")}) == 2
    evaluation = [flag for flag in flags if not flag.startswith("--do_")] + ["--do_eval=true"]
    results = {file.name: file.stat().st_mtime_ns for file in output.glob("eval_*")}
    if name != "pretraining":
        assert {"eval_predictions.csv", "eval_report.html"} < set(results)
        evaluation.append("--predictions_format=jsonl")
        (output / "eval_report.html.partial").mkdir()
    change(path)
    done = scripts.run(script, *evaluation, cwd=tmp_path)
    assert done.code == 0 and re.search(WARNING, done.err.splitlines()[-1]), done.err
    found = {file.name: file.stat().st_mtime_ns for file in output.glob("eval_*") if file.is_file()}
    assert not set(found) & {"eval_predictions.csv", "eval_report.html"}
    assert set(found) - set(results) == ({"eval_predictions.jsonl"} if name != "pretraining" else set())
    assert all(found[file] != results[file] for file in found if file in results)


@pytest.mark.slow(reason="two runs; the test above shows that older files disappear")
def test_a_failed_evaluation_changes_no_results(folder, scripts, tiny_model, tmp_path):
    output = tmp_path / "output"
    script, *flags, path = train("classifier", folder, output, scripts, tiny_model)
    names = ("eval_results.txt", "eval_results.json", "eval_predictions.csv", "eval_report.html")
    results = {name: (output / name).read_bytes() for name in names}
    change(path)
    (output / "eval_predictions.csv.partial").mkdir()
    evaluation = [flag for flag in flags if not flag.startswith("--do_")] + ["--do_eval=true"]
    assert scripts.run(script, *evaluation, cwd=tmp_path).code == 1
    assert {name: (output / name).read_bytes() for name in names} == results
    assert [file.name for file in output.glob("*.partial")] == ["eval_predictions.csv.partial"]


@pytest.mark.slow(reason="five runs; the test above shows the warning")
def test_other_ways_to_evaluate_changed_development_data(folder, scripts, tiny_model, tmp_path):
    script, *flags, path = train("classifier", folder, tmp_path / "output", scripts, tiny_model)
    evaluation = [flag for flag in flags if not flag.startswith("--do_")] + ["--do_eval=true"]
    before = path.read_bytes()
    change(path)
    # A repeated training evaluates again, too. Weights in another directory have the same record.
    again = scripts.run(script, *flags, cwd=tmp_path)
    other = scripts.run(script, *evaluation, f"--output_dir={tmp_path / 'other'}",
                        f"--init_checkpoint={tmp_path / 'output'}", cwd=tmp_path)
    for done in (again, other):
        assert done.code == 0 and re.search(WARNING, done.err.splitlines()[-1]), done.err
    # The user names other data on purpose.
    shutil.copytree(path.parent, tmp_path / "data")
    path.write_bytes(before)
    done = scripts.run(script, *evaluation, f"--data_dir={tmp_path / 'data'}", cwd=tmp_path)
    assert done.code == 0 and not re.search(WARNING, done.err), done.err
    assert "The development data differ from those of the training" in done.err


@pytest.mark.slow(reason="two processes that load TensorFlow; a command shows the same warning")
def test_a_program_gets_a_warning_about_changed_development_data(tiny_model, tmp_path):
    examples = [("a cat", "animal"), ("a dog", "animal"), ("the house", "none"), ("the river", "none")] * 4
    settings = {**tiny_model.flags, "bert_config_file": tiny_model.shallow, "num_train_epochs": 1,
                "train_batch_size": 8}
    settings.pop("init_checkpoint", None)
    api.train(examples, tmp_path / "model", dev=examples[:5], verbose=False, **settings)
    path, = (tmp_path / "model" / "data").glob("dev-*.jsonl")
    change(path)
    with pytest.warns(UserWarning, match="^The development data differ from those of the training in "):
        api.evaluate(tmp_path / "model", verbose=False)
