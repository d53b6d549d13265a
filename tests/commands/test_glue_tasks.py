"""run_classifier.py on the special tasks of GLUE, and glue_submission.py, as a user runs them."""

import zipfile

import pytest
import tiny

from bertlib.tasks.classification import glue_submission_files


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def last_message(finished):
    finished.assert_success()
    return finished.err.splitlines()[-1].split(" ", 1)[1]


def predictions_in(path):
    """Returns the column of predictions. Checks the header and the indices."""
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["index", "prediction"]
    assert [row[0] for row in rows] == [str(index) for index in range(len(rows))]
    return [row[1] for row in rows]


# --- MNLI and AX -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mnli(scripts, tiny_model, tmp_path_factory):
    """A run of all phases on matched and mismatched sets."""
    here = tmp_path_factory.mktemp("mnli")
    data = tiny.write_task(here / "data", "mnli", train=8, dev=9)
    matched = (data / "dev_matched.tsv").read_text().splitlines()
    (data / "dev_mismatched.tsv").write_text("\n".join(matched[:6]) + "\n")
    for name, lines in (("matched", matched), ("mismatched", matched[:1] + matched[4:])):
        rows = ["\t".join(line.split("\t")[:10]) for line in lines]
        (data / f"test_{name}.tsv").write_text("\n".join(rows) + "\n")
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="MNLI", data_dir=data,
                 output_dir=here / "output", do_train=True, do_eval=True, do_predict=True, train_batch_size=4,
                 num_train_epochs=1, learning_rate=0.02)
    return scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here), flags


@pytest.mark.slow(reason="a whole run")
def test_the_diagnostic_set_is_predicted_with_the_model_of_mnli(run_script, mnli, tmp_path):
    flags = mnli[1]
    rows = [line.split("\t") for line in (flags["data_dir"] / "test_matched.tsv").read_text().splitlines()]
    write(tmp_path / "data" / "diagnostic.tsv", ["index", "sentence1", "sentence2"],
          *([row[0], row[8], row[9]] for row in rows[1:]))
    flags = dict(flags, task_name="AX", data_dir=tmp_path / "data", results_dir=tmp_path / "results")
    refused = run_script("run_classifier.py", **flags)
    refused.assert_refused("AX has no train examples.")
    assert not (tmp_path / "results").exists()
    flags.update(do_train=False, do_eval=False)
    finished = run_script("run_classifier.py", **flags)
    finished.assert_success()
    assert predictions_in(tmp_path / "results" / "AX.tsv") == predictions_in(
        mnli[1]["output_dir"] / "MNLI-m.tsv")
    assert (tmp_path / "results" / "test_results.tsv").exists()  # in a separate directory

    output = mnli[1]["output_dir"]
    names = ("test_results", "test_predictions", "predict", "eval_results", "eval_predictions", "eval_report")
    before = {path: path.read_bytes() for path in output.iterdir() if path.stem.startswith(names)}
    finished = run_script("run_classifier.py", **{
        name: value for name, value in flags.items() if name != "results_dir"})
    finished.assert_success()
    assert "The names of result files end in _ax" in finished.err
    assert {path.name for path in before} >= {"test_predictions.csv", "eval_report.html"}
    assert {path: path.read_bytes() for path in before} == before
    assert predictions_in(output / "test_predictions_ax.tsv") == predictions_in(output / "AX.tsv")
    assert (output / "test_results_ax.tsv").read_bytes() == (
        tmp_path / "results" / "test_results.tsv").read_bytes()


# --- The submission --------------------------------------------------------------------------------------


def write_predictions(directory):
    """Writes predictions of all test sets, in a directory for each task."""
    for name, test_set in glue_submission_files.test_sets().items():
        label = test_set.labels[-1] if test_set.labels else "2.5"
        rows = "".join(f"{index}\t{label}\n" for index in range(test_set.size))
        path = directory / test_set.task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"index\tprediction\n{rows}")
    return sorted(directory.iterdir())


def test_all_that_is_wrong_with_a_submission_is_said_and_nothing_written(run_script, tmp_path):
    here = tmp_path / "output"
    write_predictions(here)
    (here / "rte" / "RTE.tsv").unlink()
    (here / "mrpc" / "MRPC.tsv").write_text("index\tprediction\n0\t1\n")  # not the test file of GLUE
    (here / "cola" / "CoLA.tsv").write_text("index\tprediction\n0\tgood\n")
    (here / "other").mkdir()
    (here / "other" / "AX.tsv").write_bytes((here / "ax" / "AX.tsv").read_bytes())
    finished = run_script("glue_submission.py", *sorted(here.iterdir()))
    finished.assert_refused()
    problems = [line.strip() for line in finished.err.splitlines() if line.startswith("  ")]
    assert len(problems) == 4
    assert problems[0] == (f"AX.tsv exists more than once: {here}/ax/AX.tsv, {here}/other/AX.tsv. Name only "
                           "one of the directories.")
    assert problems[1].startswith(f"{here}/cola/CoLA.tsv:2: 'good' is not one of 0, 1")
    assert problems[2] == (f"{here}/mrpc/MRPC.tsv contains 1 predictions, but the test set has 1725 "
                           "examples. Predict with the directory of GLUE's own files as --data_dir.")
    assert problems[3] == ("RTE.tsv is missing: predict with run_classifier.py --task_name=RTE "
                           "--do_predict=true.")
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_a_part_of_a_submission_is_zipped_if_that_is_asked_for(run_script, tmp_path):
    write_predictions(tmp_path / "output")
    finished = run_script("glue_submission.py", "--partial", "--output_file=new/part.zip", "output/ax",
                          tmp_path / "output" / "mnli", tmp_path / "output" / "ax" / "AX.tsv")
    assert (f"3 of {len(glue_submission_files.test_sets())} test sets: AX.tsv, MNLI-m.tsv, MNLI-mm.tsv"
            in last_message(finished))
    with zipfile.ZipFile(tmp_path / "new" / "part.zip") as archive:
        assert archive.namelist() == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    finished = run_script("glue_submission.py", "output/mnli", "--output_file=new")
    finished.assert_refused("--output_file=new is a directory; name a file.")
    finished = run_script("glue_submission.py", "output/mnli")
    assert finished.code == 1 and ("AX.tsv is missing: predict with run_classifier.py --task_name=AX "
                                   "--do_predict=true --output_dir=DIRECTORY, the directory of a training on "
                                   "MNLI.") in finished.err


def test_the_zip_does_not_take_the_place_of_predictions(run_script, tmp_path):
    write_predictions(tmp_path / "output")
    path = tmp_path / "output" / "wnli" / "WNLI.tsv"
    before = path.read_bytes()
    flags = tiny.flags(partial=True, output_file=path)
    finished = run_script("glue_submission.py", *flags, path.parent)
    finished.assert_refused("would overwrite a file of predictions")
    assert path.read_bytes() == before
