"""sweep.py with a real training: parallel jobs, the same grid again, and refused command lines."""

import os

from outputs import table
import pytest
import tiny


@pytest.fixture(scope="module")
def command(tiny_model, tmp_path_factory):
    """The flags of a training of three steps."""
    data = tmp_path_factory.mktemp("data")
    return ["--", "python", "run_classifier.py", *tiny.flags(
        **tiny_model.flags, task_name="mrpc", data_dir=tiny.write_task(data, "mrpc", train=12, dev=5),
        num_train_epochs=1, train_batch_size=4)]


def rows_of(directory):
    return [{**row, "seconds": None} for row in table(directory / "sweep.csv")]


def test_two_jobs_train_as_the_command_alone(run_script, command, tmp_path):
    def flags(name, *values):
        return [f"--sweep_dir={tmp_path / name}", "--metric=eval_accuracy", *values, *command]

    rates = "--grid=learning_rate=1e-3"
    done = run_script("sweep.py", *flags("sweep", rates, "--grid=seed=0,1", "--jobs=2"))
    done.assert_success()
    assert "1 run to go" in done.err and "0 runs to go" in done.err
    rows = rows_of(tmp_path / "sweep")
    assert [(row["learning_rate"], row["seed"], row["status"]) for row in rows] == [
        ("0.001", "0", "finished"), ("0.001", "1", "finished")]
    outputs = [tmp_path / row["directory"] for row in rows]
    # The second run has links to the features of the first.
    assert [os.stat(output / "train.tf_record").st_nlink for output in outputs] == [3, 3]
    assert len(list(tmp_path.glob("sweep/runs/*/checkpoint"))) == 1
    assert b"Distribution over seeds" in (tmp_path / "sweep" / "sweep.html").read_bytes()

    # The command without a sweep gives the same results.
    alone = run_script("run_classifier.py", *command[3:], "--learning_rate=1e-3", "--seed=1",
                       f"--output_dir={tmp_path / 'alone'}")
    assert alone.code == 0
    for name in ("eval_results.txt", "train.tf_record"):
        assert (tmp_path / "alone" / name).read_bytes() == (outputs[1] / name).read_bytes()

    again = run_script("sweep.py", *flags("sweep", rates, "--grid=seed=1,0", "--keep_checkpoints=none"))
    again.assert_success("2 already ended, 0 to go")
    assert rows_of(tmp_path / "sweep") == rows and not list(tmp_path.glob("sweep/runs/*/checkpoint"))

    again = run_script("sweep.py", *flags("sweep", "--grid=seed=0", "--grid=max_eval_examples=3"))
    again.assert_success("The runs were evaluated on 2 different development sets")
    assert "on 2 different development sets" in (tmp_path / "sweep" / "sweep.html").read_text()


@pytest.mark.parametrize("values, message", [
    (["--grid=seed=0,00"], "the value 00 occurs twice"),
    (["--grid=learning_rate=-1"], "must be a number above 0"),
    (["--grid=task_name=cola"], "already has --task_name"),
    (["--grid=learning_rat=0"], "Unknown command line flag 'learning_rat'. Did you mean: learning_rate"),
    (["--grid=output_dir=a,b"], "runs of a sweep cannot differ in --output_dir"),
    (["--grid=verbosity=0,1"], "runs of a sweep cannot differ in --verbosity"),
    (["--grid=seed=0", "--output_dir=a"], "--output_dir=a: all runs would write")])
def test_a_wrong_grid_is_refused_before_anything_is_written(values, message, run_script, command, tmp_path):
    grid, *more = values
    done = run_script("sweep.py", "--sweep_dir=sweep", "--metric=eval_accuracy", grid, *command, *more)
    done.assert_refused(message)
    assert not list(tmp_path.iterdir())


def test_a_metric_that_no_run_can_have_is_refused_before_the_first_training(run_script, command, tmp_path):
    grid = "--sweep_dir=sweep", "--grid=seed=0,1"
    for metric, more, known in (("eval_acuracy", [], "eval_accuracy"),
                                ("eval_pearson", ["--task_type=multilabel"], "eval_auc_*")):
        done = run_script("sweep.py", f"--metric={metric}", *grid, *command, *more)
        done.assert_refused(f"--metric={metric}: the evaluation has no such metric. The metrics of this ")
        assert known in done.err and not list(tmp_path.iterdir())


def test_trainings_and_sweeps_do_not_share_a_directory(run_script, command, tmp_path):
    for record, script, flags, has in (
            ("sweep.json", "run_classifier.py", ["--output_dir=."], "a sweep (sweep.json), but a training"),
            ("run.json", "sweep.py", ["--sweep_dir=.", "--grid=seed=0,1", "--metric=eval_accuracy"],
             "a training (run.json), but a sweep"),
            ("saved_model.pb", "run_classifier.py", ["--output_dir=."], "an exported model")):
        (tmp_path / record).write_text("{}")
        done = run_script(script, *flags, *command[script == "run_classifier.py" and 3:])
        done.assert_refused(f"=. contains {has}")
        (tmp_path / record).unlink()
        assert not list(tmp_path.iterdir())


def test_a_missing_separator_and_a_missing_part_of_a_recipe_are_named(run_script, tmp_path):
    words = ["--sweep_dir=sweep", "--grid=seed=0,1", "--metric=eval_accuracy", "python", "run_classifier.py"]
    done = run_script("sweep.py", *words, "--task_name=MRPC")
    done.assert_refused("If --task_name is a flag of the training, the separator -- is missing.")
    (tmp_path / "mrpc.flags").write_text("--flagfile=recipes/common/glue.flags")
    for command in (["sweep.py", *words[:3], "--", *words[3:]], ["run_classifier.py"]):
        done = run_script(*command, "--flagfile=mrpc.flags")
        done.assert_refused("Use the recipes from the directory of this project.")
