"""Later evaluations: they notice changed development data, and their files replace all earlier results."""

import json
import re

from outputs import record
import pytest
from rows import ROWS

WARNING = r"WARNING: The development data differ from those of the training in \S+: .* -> .*\. So the "
EVALUATE = dict(do_train=None, do_predict=None, predictions_format="jsonl")


def change(path):
    """Leaves out the last line of a file."""
    path.write_text("".join(path.read_text().splitlines(True)[:-1]))


@pytest.fixture
def changed(workspaces, tmp_path):
    """A trained workspace whose development data were changed after the training."""
    work = workspaces(ROWS["one text"]).copy(tmp_path / "copy")
    found = record(work.output)
    assert len({found[data]["fingerprint"] for data in ("train_data", "dev_data")}) == 2
    trained_in = found["working_directory"]
    (work.output / "run.json").write_text(json.dumps(found).replace(trained_in, str(work.directory)))
    change(work.directory / "data" / "dev.csv")
    return work


def times(output):
    return {file.name: file.stat().st_mtime_ns for file in output.glob("eval_*") if file.is_file()}


def test_a_later_evaluation_of_changed_development_data(changed):
    """The evaluation writes JSON Lines instead of CSV, and cannot write its report."""
    before = times(changed.output)
    assert {"eval_predictions.csv", "eval_report.html"} < set(before)
    (changed.output / "eval_report.html.partial").mkdir()
    done = changed.train(**EVALUATE)
    done.assert_success("WARNING: The report output/eval_report.html could not be written. All other results "
                        "are complete, so the exit code is 0. The reason: ")
    assert re.search(WARNING, done.err), done.err
    found = times(changed.output)
    assert not set(found) & {"eval_predictions.csv", "eval_report.html"}
    assert set(found) - set(before) == {"eval_predictions.jsonl"}
    assert all(found[file] != before[file] for file in found if file in before)


def test_a_failed_evaluation_changes_no_results(changed):
    before = times(changed.output)
    (changed.output / "eval_predictions.jsonl.partial").mkdir()
    assert changed.train(**EVALUATE).code == 1
    assert times(changed.output) == before
    assert [file.name for file in changed.output.glob("*.partial")] == ["eval_predictions.jsonl.partial"]
