"""run_classifier.py on the special tasks of GLUE, and glue_submission.py, as a user runs them."""

import os
import zipfile

import model_directories
import pytest
import tiny

from bertlib.tasks.classification import glue_submission_files

# --- MNLI and AX -----------------------------------------------------------------------------------------


@pytest.mark.slow(reason="two predictions; tests/tasks/test_glue.py reads the files")
def test_the_diagnostic_set_is_predicted_with_the_model_of_mnli(run_script, tiny_model, tmp_path):
    output = model_directories.write_classifier(tmp_path / "output", tiny_model, tiny.LABELS["mnli"],
                                                task="mnli")
    data = tiny.write_task(tmp_path / "data", "mnli", test=9)
    rows = [line.split("\t") for line in (data / "test_matched.tsv").read_text().splitlines()]
    for name in ("test_mismatched", "diagnostic"):
        (data / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in (
            rows if name == "test_mismatched" else [[row[0], *row[8:10]] for row in rows])))
    flags = dict(data_dir=data, output_dir=output)
    run_script("run_classifier.py", task_name="MNLI", do_predict=True, **flags).assert_success()
    before = {path: path.read_bytes() for path in output.iterdir() if path.is_file()
              and path.suffix != ".tf_record"}
    # If one of the two sets cannot be predicted, the files of both stay.
    (data / "test_matched.tsv").write_text("".join("\t".join(row) + "\n" for row in rows[:-1]))
    (output / "MNLI-mm.tsv.partial").mkdir()
    assert run_script("run_classifier.py", task_name="MNLI", do_predict=True, **flags).code == 1
    assert {path: path.read_bytes() for path in before} == before
    refused = run_script("run_classifier.py", task_name="AX", do_train=True, **flags)
    refused.assert_refused("AX has no train examples.")
    finished = run_script("run_classifier.py", task_name="AX", do_predict=True, **flags)
    finished.assert_success("The names of result files end in _ax")
    assert {path: path.read_bytes() for path in before} == before
    for name, same in (("test_predictions_ax.tsv", "AX.tsv"), ("AX.tsv", "MNLI-m.tsv"),
                       ("test_results_ax.tsv", "test_results.tsv")):
        assert (output / name).read_bytes() == (output / same).read_bytes()


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
    (here / "other" / "AX.tsv").write_text((here / "ax" / "AX.tsv").read_text() + "more")
    (here / "copy").mkdir()
    (here / "copy" / "AX.tsv").write_text((here / "ax" / "AX.tsv").read_text())
    finished = run_script("glue_submission.py", *sorted(here.iterdir()))
    finished.assert_refused()
    problems = [line.strip() for line in finished.err.splitlines() if line.startswith("  ")]
    for problem, said in zip(problems, (
            f"AX.tsv exists more than once: {here}/ax/AX.tsv, {here}/other/AX.tsv. Name only",
            f"{here}/cola/CoLA.tsv:2: 'good' is not one of 0, 1",
            f"{here}/mrpc/MRPC.tsv contains 1 predictions, but the test set has 1725 examples.",
            "RTE.tsv is missing: predict with run_classifier.py --task_name=RTE"), strict=True):
        assert problem.startswith(said)
    assert os.listdir(tmp_path) == ["output"]


def test_a_part_of_a_submission_is_zipped_if_that_is_asked_for(run_script, tmp_path):
    write_predictions(tmp_path / "output")
    finished = run_script("glue_submission.py", "--partial", "--output_file=new/part.zip", "output/ax",
                          tmp_path / "output" / "mnli", tmp_path / "output" / "ax" / "AX.tsv")
    assert "3 of 11 test sets: AX.tsv, MNLI-m.tsv, MNLI-mm.tsv" in finished.err.splitlines()[-1]
    with zipfile.ZipFile(tmp_path / "new" / "part.zip") as archive:
        assert archive.namelist() == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    finished = run_script("glue_submission.py", "output/mnli", "--output_file=new")
    finished.assert_refused("--output_file=new is a directory; name a file.")
    finished = run_script("glue_submission.py", "output/mnli")
    finished.assert_refused("AX.tsv is missing: predict with run_classifier.py --task_name=AX --do_predict=")
    finished = run_script("glue_submission.py", "--partial", "--output_file=output/ax/AX.tsv", "output/ax")
    finished.assert_refused("would overwrite a file of predictions")
