"""reproduce.py: equal bits, each kind of difference, and errors."""

import json
import os
import re
import shutil

import pytest
from test_learning_curve import Trainings
import tiny

from bertlib.comparison import reproduction, run_differences
from bertlib.system import locks

_again = pytest.mark.slow(reason="four more runs for what the classifier shows")


@pytest.fixture(scope="module")
def training(scripts, tiny_model, tmp_path_factory):
    """The directory `output` of a training. Its data are in the same folder, and had relative paths."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "data").mkdir()
    tiny.write_task(folder / "data", "mrpc", train=20, dev=7)
    flags = tiny.flags(**{**tiny_model.flags, "bert_config_file": tiny_model.shallow}, task_name="mrpc",
                       data_dir="data", output_dir="output", do_train=True, do_eval=True, train_batch_size=4,
                       num_train_epochs=1, learning_rate=0.01, save_checkpoints_steps=2, log_steps=1)
    done = scripts.run("run_classifier.py", *flags, cwd=folder, ONEDNN_MAX_CPU_ISA="")
    assert done.code == 0, done.err
    return folder / "output"


@pytest.fixture
def copy(training, tmp_path):
    """A copy of the training, with its own data."""
    shutil.copytree(training.parent, tmp_path / "copy")
    record = change(tmp_path / "copy" / "output", lambda record: record.update(json.loads(
        json.dumps(record).replace(str(training.parent), str(tmp_path / "copy")))))
    assert record["working_directory"] == str(tmp_path / "copy")
    return tmp_path / "copy" / "output"


def change(directory, function):
    """Changes the content of run.json by a function. Returns the new content."""
    record = json.loads((directory / "run.json").read_text())
    function(record)
    (directory / "run.json").write_text(json.dumps(record))
    return record


def read(directory):
    return json.loads((directory / "reproduction.json").read_text())


def test_the_same_training_has_the_same_bits(training, scripts, tmp_path):
    record = json.loads((training / "run.json").read_text())
    assert record["flags"]["data_dir"] == "data" and "--data_dir=data" in record["arguments"]
    assert {os.path.basename(path) for path in record["inputs"]} == {"train.tsv", "dev.tsv"}
    assert {"tensorflow", "numpy", "sentencepiece", "tf-keras"} <= set(record["versions"])
    assert record["environment"]["threads"] >= 1 and record["environment"]["cpu"]

    done = scripts.run("reproduce.py", training, f"--output_dir={tmp_path / 'again'}", cwd=tmp_path,
                       ONEDNN_MAX_CPU_ISA="")
    assert done.code == 0, done.err
    assert done.out.startswith("SAME BITS up to step 5.\n") and "step 5/5  loss" in done.err
    assert re.search(r"^Weights: step 5, \d+ variables: the same$", done.out, re.M)
    assert "Results: eval_results.txt: the same\n" in done.out
    assert "Environment: no known difference" in done.out and "Data: no known difference" in done.out
    found = read(tmp_path / "again")
    assert found["same"] and found["losses"]["lines"] >= 5 and found["losses"]["missing"] == []
    assert [entry["step"] for entry in found["weights"]] == [0, 2, 4, 5]


def test_another_seed_and_instruction_set_are_named(training, scripts, tmp_path):
    done = scripts.run("reproduce.py", training, f"--output_dir={tmp_path / 'again'}", "--until=2", "--",
                       "--seed=7", cwd=tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
    assert done.code == 3, done.err
    assert done.out.startswith("DIFFERENT. The first difference is in the values of step ")
    assert "         seed: 12345 -> 7\n" in done.out and "Flags passed after --: --seed=7" in done.out
    assert 'variable ONEDNN_MAX_CPU_ISA:  -> AVX2\n' in done.out
    assert "Results: not compared, because only a part of the steps was repeated" in done.out
    found = read(tmp_path / "again")
    assert found["losses"]["largest"]["loss"]["absolute"] > 1e-6 and found["losses"]["last_step"] == 2
    assert not (tmp_path / "again" / "eval_results.txt").exists()
    assert found["weights"][-1]["step"] == 2 and found["weights"][-1]["different"] > 10


def test_a_changed_row_is_refused_and_then_found(copy, scripts, tmp_path):
    path = copy.parent / "data" / "train.tsv"
    for changed in (path, copy.parent / "data" / "dev.tsv"):
        changed.write_text(changed.read_text().replace("\t1\t1\t", "\t1\t1\tcat ", 1))
    done = scripts.run("reproduce.py", copy, cwd=tmp_path)
    old = json.loads((copy / "run.json").read_text())["inputs"][str(path)]["fingerprint"]
    assert done.code == 1 and re.search(rf"{re.escape(str(path))} was changed: fingerprint {old} in the "
                                        r"training, [0-9a-f]{32} now\.", done.err)
    assert "pass --anyway" in done.err and not (copy.parent / "output-reproduced").exists()

    done = scripts.run("reproduce.py", copy, "--anyway", cwd=tmp_path)
    assert done.code == 3, done.err
    found = read(copy.parent / "output-reproduced")
    assert set(found["data"]) == {"train_data", "dev_data"}
    assert old in [changed["old"] for changed in found["changed_files"]]


def test_what_cannot_be_repeated_is_refused(copy, scripts, tmp_path):
    def refused(*words, **changes):
        done = scripts.run("reproduce.py", *words, cwd=tmp_path, **changes)
        assert done.code == 1 and not done.out, done.err
        assert "Traceback" not in done.err
        assert not (copy.parent / "output-reproduced").exists()
        return done.err

    assert "Name one directory of a training" in refused()
    assert "Name one directory of a training" in refused(copy, copy)
    assert "there is no such directory" in refused(tmp_path / "none")
    assert "contains no run.json" in refused(tmp_path)
    assert "--until=6: only the steps up to 5 can be compared. Pass at most 5." in refused(copy, "--until=6")
    assert "is the training itself" in refused(copy, f"--output_dir={copy}")
    assert "Pass --until before the --." in refused(copy, "--", "--max_steps=3")
    assert "'--=3' is not a flag" in refused(copy, "--", "--=3")
    assert "there is no setting 'nonsense'" in refused(copy, "--", "--nonsense=3")
    with locks.lock_directory(str(copy)):
        assert "is in use: process" in refused(copy)
    (tmp_path / "other").mkdir()
    shutil.copy(copy / "run.json", tmp_path / "other")
    assert "already contains a training" in refused(copy, f"--output_dir={tmp_path / 'other'}")
    assert "contains no trained step" in refused(tmp_path / "other")
    (copy.parent / "data" / "dev.tsv").unlink()
    missing = refused(copy)
    assert f"do not exist here: {copy.parent / 'data' / 'dev.tsv'}." in missing
    assert "-- --data_dir=DIR" in missing
    change(copy, lambda record: record.update(command="my_own.py"))
    assert "was made by 'my_own.py'" in refused(copy)
    change(copy, lambda record: record.update(environment=3))
    assert "environment is 3, and has to be an object" in refused(copy)


def test_a_training_with_changed_settings_is_repeated_up_to_the_change(copy, scripts, tmp_path):
    change(copy, lambda record: record.update(
        finished_step=None, planned_steps=9, sessions=[{"step": 4, "changed": {"cpu": ["a", "b"]}}],
        changes=[{"step": 2, "changed": {"learning_rate": [0.01, 0.02]}}]))
    done = scripts.run("reproduce.py", copy, "--until=3", cwd=tmp_path)
    assert done.code == 1 and "only the steps up to 2 can be compared" in done.err
    done = scripts.run("reproduce.py", copy, cwd=tmp_path, ONEDNN_MAX_CPU_ISA="")
    assert done.code == 0, done.err
    assert done.out.startswith("SAME BITS up to step 2.\n")
    assert "Note: The training is unfinished: its last known step is 5 of 9.\n" in done.out
    assert "Note: The training continued after step 2 with other settings (learning_rate)." in done.out
    assert "Note: The training continued after step 4 in another environment: cpu." in done.out


def test_an_unfinished_training_is_repeated_without_its_evaluations(copy, tmp_path):
    again = str(tmp_path / "again")
    evaluations = dict(eval_every_steps=2, keep_best="eval_loss")
    change(copy, lambda record: record["flags"].update(evaluations))
    plan = reproduction.plan(str(copy), again)
    assert plan.is_whole and "--keep_best=eval_loss" in plan.flags and "--do_eval=true" in plan.flags
    # With its evaluations, the repetition would evaluate step 5, which the training did not do.
    change(copy, lambda record: record.update(finished_step=None, planned_steps=9))
    plan = reproduction.plan(str(copy), again)
    assert not plan.is_whole and plan.step == 5 and "--do_eval=false" in plan.flags
    assert not [flag for flag in plan.flags if flag.startswith(("--keep_best", "--eval_every_steps"))]
    assert plan.notes == ["The training is unfinished: its last known step is 5 of 9."]


def test_results_that_a_later_evaluation_has_overwritten_are_not_compared(training, copy):
    assert run_differences.compare(str(copy), str(training), 5)["same"]
    for name in ("eval_results.json", "eval_results.txt"):
        text = (copy / name).read_text()
        (copy / name).write_text(re.sub(r"(eval_loss\W+)\d\.\d+", r"\g<1>0.125", text))
    found = run_differences.compare(str(copy), str(training), 5)
    assert found["same"] and found["results"] == [
        {"file": name, "same": None, "is_overwritten": True}
        for name in ("eval_results.json", "eval_results.txt")]
    text = run_differences.to_text(found)
    assert ("eval_results.txt: not compared, because a later evaluation or prediction has overwritten this "
            "file\n") in text
    # The results of the repetition are always compared.
    assert not run_differences.compare(str(training), str(copy), 5)["same"]


def test_a_path_with_a_comma_is_one_path(copy, tmp_path):
    data = tmp_path / "b,c"
    (copy.parent / "data").rename(data)
    change(copy, lambda record: record.update(json.loads(
        json.dumps(record).replace(str(copy.parent / "data"), str(data)))))
    change(copy, lambda record: record["flags"].update(data_dir=str(data)))
    found = reproduction.plan(str(copy), str(tmp_path / "again"))
    assert f"--data_dir={data}" in found.flags and not found.changed
    other = os.path.relpath(data)
    found = reproduction.plan(str(copy), str(tmp_path / "again"), overrides=[f"--data_dir={other}"])
    assert not found.changed


def test_predictions_of_other_texts_are_not_compared(tmp_path):
    for name, features in (("old", "a"), ("new", "b"), ("same", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "predict.tf_record").write_text(features)
        (tmp_path / name / "test_results.tsv").write_text(name)
    other, same = (run_differences.compare_results(str(tmp_path / "old"), str(tmp_path / name),
                                                   str(tmp_path / "old")) for name in ("new", "same"))
    assert other == [{"file": "test_results.tsv", "same": None, "is_overwritten": True}]
    assert same == [{"file": "test_results.tsv", "same": False}]


@_again
@pytest.mark.parametrize("name", ["squad", "ner", "pretraining", "hub"])
def test_all_trainings_are_repeated(name, scripts, tiny_model, tmp_path):
    (tmp_path / "files").mkdir()
    trainings = Trainings(scripts, tiny_model, tmp_path / "files")
    output = trainings.finished(name, tmp_path / "output", log_steps=1)
    done = scripts.run("reproduce.py", output, cwd=tmp_path)
    assert done.code == 0 and done.out.startswith("SAME BITS up to step 5.\n"), done.err
    found = read(tmp_path / "output-reproduced")
    assert found["losses"]["lines"] > 5 and found["weights"][-1]["step"] == 5
    assert found["results"] and all(entry["same"] for entry in found["results"])
