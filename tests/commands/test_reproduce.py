"""reproduce.py: equal bits, each kind of difference, records of older versions, and errors."""

import json
import re
import shutil

from helpers import read_json, write_json
import pytest
from rows import ROWS

from bertlib.reports import reproduction, run_differences
from bertlib.system import locks


@pytest.fixture
def training(workspaces):
    """The output directory of a training. Its data are in the same folder, and had relative paths."""
    return workspaces(ROWS["pairs"]).output


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
    record = read_json(directory / "run.json")
    function(record)
    write_json(directory / "run.json", record)
    return record


def test_a_changed_row_is_refused_and_then_each_difference_is_named(copy, scripts, run_script, tmp_path):
    path = copy.parent / "data" / "train.tsv"
    for changed in (path, copy.parent / "data" / "dev.tsv"):
        changed.write_text(changed.read_text().replace("\t1\t1\t", "\t1\t1\tcat ", 1))
    done = run_script("reproduce.py", copy)
    old = read_json(copy / "run.json")["inputs"][str(path)]["fingerprint"]
    assert done.code == 1 and re.search(rf"{re.escape(str(path))} was changed: fingerprint {old} in the "
                                        r"training, [0-9a-f]{32} now\.", done.err)
    assert "pass --anyway" in done.err and not (copy.parent / "output-reproduced").exists()

    done = scripts.run("reproduce.py", copy, f"--output_dir={tmp_path / 'again'}", "--anyway", "--until=3",
                       "--", "--seed=7", cwd=tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
    assert done.code == 3, done.err
    assert done.out.startswith("DIFFERENT. The first difference is in the values of step ")
    assert "         seed: 12345 -> 7\n" in done.out and "Flags passed after --: --seed=7" in done.out
    assert re.search(r"variable ONEDNN_MAX_CPU_ISA: .* -> AVX2\n", done.out)
    assert "Results: not compared, because only a part of the steps was repeated" in done.out
    found = read_json(tmp_path / "again" / "reproduction.json")
    assert found["losses"]["largest"]["loss"]["absolute"] > 1e-6 and found["losses"]["last_step"] == 3
    assert not (tmp_path / "again" / "eval_results.txt").exists()
    assert found["weights"][-1]["step"] == 3 and found["weights"][-1]["different"] > 10
    assert set(found["data"]) >= {"train_data"}
    assert old in [changed["old"] for changed in found["changed_files"]]


def test_flags_that_cannot_be_are_refused(copy, run_script, tmp_path):
    (tmp_path / "task.py").write_text("")
    for words, said in (([copy, copy], "Name one directory of a training"),
                        ([copy, "--", "--nonsense=3", f"--task_module={tmp_path / 'task.py'}"],
                         "there is no setting 'nonsense'")):
        done = run_script("reproduce.py", *words)
        done.assert_refused(said)
        assert not done.out and not (copy.parent / "output-reproduced").exists()
    done.assert_refused("executes this Python file")
    with locks.lock_directory(str(copy)):
        run_script("reproduce.py", copy).assert_refused("is in use: process")


def test_what_cannot_be_repeated_is_refused(copy, tmp_path):
    def refused(said, directory=copy, output_dir=tmp_path / "again", **arguments):
        with pytest.raises((ValueError, OSError), match=re.escape(said)):
            reproduction.plan(str(directory), str(output_dir), **arguments)

    refused("contains no run.json", directory=tmp_path)
    refused("--until=9: only the steps up to 8 can be compared. Pass at most 8.", until=9)
    refused("already contains a training", output_dir=copy)
    refused("Pass --output_dir and --until before the --.", overrides=["--max_steps=3"])
    refused("'--=3' is not a flag", overrides=["--=3"])
    (tmp_path / "other").mkdir()
    shutil.copy(copy / "run.json", tmp_path / "other")
    refused("already contains a training", output_dir=tmp_path / "other")
    refused("contains no trained step", directory=tmp_path / "other")
    (copy.parent / "data" / "dev.tsv").unlink()
    refused(f"do not exist here: {copy.parent / 'data' / 'dev.tsv'}.")
    change(copy, lambda record: record.update(command="my_own.py"))
    refused("was made by 'my_own.py'")


def test_a_training_with_changed_settings_is_repeated_up_to_the_change(copy, tmp_path):
    change(copy, lambda record: record.update(
        finished_step=None, planned_steps=9, sessions=[{"step": 4, "changed": {"cpu": ["a", "b"]}}],
        changes=[{"step": 2, "changed": {"learning_rate": [0.01, 0.02]}}]))
    plan = reproduction.plan(str(copy), str(tmp_path / "again"))
    assert plan.step == 2 and plan.notes == [
        "The training is unfinished: its last known step is 8 of 9.",
        "The training continued after step 2 with other settings (learning_rate). Only the steps up to 2 are "
        "compared.",
        "The training continued after step 4 in another environment: cpu."]


def test_the_first_steps_are_repeated_with_the_settings_before_the_changes(training, copy, tmp_path):
    """After the last change, the record has the settings of the last steps."""
    assert read_json(copy / "run.json")["settings"]["gradient_accumulation_steps"] is None
    change(copy, lambda record: record.update(
        settings={**record["settings"], "gradient_accumulation_steps": 0, "num_replicas": 3},
        changes=[{"step": 2, "changed": {"num_replicas": [1, 2], "gradient_accumulation_steps": [None, 4]}},
                 {"step": 4, "changed": {"num_replicas": [2, 3], "gradient_accumulation_steps": [4, 0]}}]))
    plan = reproduction.plan(str(copy), str(tmp_path / "again"))
    assert not [flag for flag in plan.flags if "num_replicas" in flag]
    assert not [note for note in plan.notes if "--gradient_accumulation_steps=0" in note]
    assert run_differences.compare(str(copy), str(training), 2, is_whole=False)["settings"] == {}


def test_an_unfinished_training_is_repeated_without_its_evaluations(copy, tmp_path):
    again = str(tmp_path / "again")
    evaluations = dict(eval_every_steps=2, keep_best="eval_loss")
    change(copy, lambda record: record["flags"].update(evaluations))
    plan = reproduction.plan(str(copy), again)
    assert plan.is_whole and "--keep_best=eval_loss" in plan.flags and "--do_eval=true" in plan.flags
    # With its evaluations, the repetition would evaluate step 5, which the training did not do.
    change(copy, lambda record: record.update(finished_step=None, planned_steps=9))
    plan = reproduction.plan(str(copy), again)
    assert not plan.is_whole and plan.step == 8 and "--do_eval=false" in plan.flags
    assert not [flag for flag in plan.flags if flag.startswith(("--keep_best", "--eval_every_steps"))]
    assert plan.notes == ["The training is unfinished: its last known step is 8 of 9."]


def test_results_that_a_later_evaluation_has_overwritten_are_not_compared(training, copy):
    assert run_differences.compare(str(copy), str(training), 8)["same"]
    for name in ("eval_results.json", "eval_results.txt"):
        text = (copy / name).read_text()
        (copy / name).write_text(re.sub(r"(eval_loss\W+)\d\.\d+", r"\g<1>0.125", text))
    found = run_differences.compare(str(copy), str(training), 8)
    assert found["same"] and [entry for entry in found["results"] if not entry["same"]] == [
        {"file": name, "same": None, "is_overwritten": True}
        for name in ("eval_predictions.csv", "eval_results.json", "eval_results.txt")]
    text = run_differences.to_text(found)
    assert "Weights: step 8, " in text and "Environment: no known difference" in text
    assert ("eval_results.txt: not compared, because a later evaluation or prediction has overwritten this "
            "file\n") in text
    # The results of the repetition are always compared.
    assert not run_differences.compare(str(training), str(copy), 8)["same"]


def test_a_path_with_a_comma_is_one_path(copy, tmp_path):
    data = tmp_path / "b,c"
    (copy.parent / "data").rename(data)
    change(copy, lambda record: record.update(json.loads(
        json.dumps(record).replace(str(copy.parent / "data"), str(data)))))
    change(copy, lambda record: record["flags"].update(data_dir=str(data)))
    found = reproduction.plan(str(copy), str(tmp_path / "again"))
    assert f"--data_dir={data}" in found.flags and not found.changed_files


def test_predictions_of_other_texts_are_not_compared(tmp_path):
    for name, features in (("old", "a"), ("new", "b"), ("same", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "predict.tf_record").write_text(features)
        (tmp_path / name / "test_results.tsv").write_text(name)
    other, same = (run_differences.compare_results(str(tmp_path / "old"), str(tmp_path / name),
                                                   str(tmp_path / "old")) for name in ("new", "same"))
    assert other == [{"file": "test_results.tsv", "same": None, "is_overwritten": True}]
    assert same == [{"file": "test_results.tsv", "same": False}]
