"""The table of promises: each row of `rows.ROWS` × each behaviour that every command promises.

    PYTHONPATH=.:tests python tests/conformance/promises.py    # prints the table

A cell is tested by the fast tests, by the slow tests, by the soak tests, or not at all. If it is not tested,
the cell has a reason. The function `of` gives a test its rows, so a test cannot contradict the table.
"""

import dataclasses

import pytest
from rows import ROWS

ALL = tuple(ROWS)
_SLOW = "SQuAD 2.0", "tagging, columns", "pre-training"  # one row of each further way to train
_SQUAD = "SQuAD 1.1", "SQuAD 2.0"


@dataclasses.dataclass(frozen=True)
class Promise(object):
    """A behaviour.

    Attributes:
      sentence: the behaviour, in one sentence.
      fast: names of the rows whose cells the fast tests contain.
      without: {name of a row: the reason why the behaviour does not apply to it}.
    """
    sentence: str
    fast: tuple = ("pairs",)
    without: dict = dataclasses.field(default_factory=dict)


_NO_ROWS = {"pre-training": "its input is TFRecords, not rows"}
_MODULE = {"task module": "the user's own module reads the data"}

PROMISES = {
    "fresh run": Promise("A training ends with exit code 0 and writes all its files.", ALL),
    "second run": Promise("The same command again trains nothing and writes the same results.", ALL),
    "record": Promise("run.json and metrics.jsonl describe the whole training.", ALL),
    "scores": Promise("The scores are those of the table of predictions, by an independent library.",
                      ALL, {"pre-training": "it writes no table of predictions"}),
    "prediction": Promise("predict.py answers as the evaluation did.", ALL, {
        "pre-training": "its records have no texts that predict.py could read",
        "hub module": "predict.py reads no directories of hub modules, and says so"}),
    "killed at a checkpoint": Promise(
        "A training that is killed after its first checkpoint continues to the same bits.", ALL),
    "bad line": Promise("A bad line is refused with file and line, before anything is written.", ALL,
                        {**_NO_ROWS, **_MODULE}),
    "another vocabulary": Promise("A trained directory refuses another vocabulary.", ALL, {
        "hub module": "the vocabulary is a part of the module"}),
    "killed between checkpoints": Promise(
        "A training that is killed before, between and after checkpoints continues to the same bits."),
    "killed in the evaluation": Promise("A run that is killed in its evaluation writes the same results "
                                        "when it is started again."),
    "killed at any moment": Promise("A run that is killed at drawn moments, again and again, continues to "
                                    "the same bits and results.", ()),
    "failed change": Promise("If a file cannot be opened, renamed or removed, a run names it, and continues "
                             "later to the same bits and results.", ()),
    "terminated": Promise("SIGTERM saves the last whole step; the training continues to the same bits."),
    "two at once": Promise("A second run in the same directory is refused and changes nothing."),
    "full disk": Promise("A full disk is named, and the training continues later to the same bits."),
    "no directory": Promise("An output directory that cannot be written is refused before any work."),
    "best weights by steps": Promise("--eval_every_steps with --keep_best changes no bit of the training, "
                                     "and later commands use the best weights."),
    "best weights by checkpoints": Promise("--eval_each_checkpoint with --keep_best does the same."),
    "early stopping": Promise("Early stopping ends at the first evaluation that is not better, for good."),
    "replicas": Promise("Two replicas compute the bits of two micro-batches."),
    "accumulation": Promise("Micro-batches compute the losses of the whole batch."),
    "recomputation": Promise("Recomputed layers compute the same losses."),
    "bf16": Promise("bf16 trains with nearly the same losses."),
    "speed flags": Promise("Flags that change only speed, log or checkpoints change no bit."),
    "changed weights flags": Promise("A training that goes on with another rate says so, and records it."),
    "changed data": Promise("A training that goes on with other data says so, or is refused."),
    "separate dev rows": Promise(
        "With --dev_fraction, no development row is trained on, also after a kill.", ("one text",),
        dict.fromkeys(set(ROWS) - {"one text", "regression", "several labels"},
                      "the command has no --dev_fraction, or its task has its own development data")),
    "flat": Promise("The numbers of threads and open files do not grow with the steps."),
    "kept results": Promise("An evaluation elsewhere writes the same results and changes no other file."),
    "skipped line": Promise("--skip_bad_lines leaves out a bad line and lists it.", without={
        **_NO_ROWS, **_MODULE, **dict.fromkeys(_SQUAD, "a SQuAD file is one JSON object"),
        "hub module": "its command reads only GLUE files, without this flag",
        "pairs": "the files of GLUE tasks are read whole", "task of a user": "it leaves out no line"},
        fast=("one text",)),
    "empty file": Promise("An empty file of data is refused by name.", without=_MODULE),
    "missing column": Promise("A missing column is refused with the file and the names of the columns.",
                              ("one text",), {
        **_NO_ROWS, **_MODULE, "pairs": "GLUE files have fixed columns; `bad line` has a short line",
        "hub module": "GLUE files have fixed columns; `bad line` has a short line",
        **dict.fromkeys(_SQUAD, "a SQuAD file has no columns; `bad line` has a missing key"),
        "tagging, columns": "columns have no names; `bad line` has a short line",
        "tagging, JSON Lines": "the fields of a line are checked by `bad line`"}),
    "missing file": Promise("A missing file is refused by name, and nothing is written."),
    "odd paths": Promise("A directory may have spaces, brackets, commas and other scripts in its name."),
    "export": Promise("An exported model answers as the evaluation did.", without={
        "hub module": "export.py refuses hub modules, with a message",
        **dict.fromkeys(
            ("pre-training", "multiple choice", *_SQUAD, "tagging, columns", "tagging, JSON Lines"),
            "its answers are made from several rows; tests/serving/test_export.py compares them")}),
    "reproduction": Promise("reproduce.py repeats the training and says SAME BITS."),
}


def tier(promise, row):
    """Returns "fast", "slow", "soak" or None for the name of a row."""
    if row in promise.without:
        return None
    if row in promise.fast:
        return "fast"
    return "slow" if row in _SLOW else "soak"


def of(name):
    """Returns the decorator of the test of a promise: it gives the test the argument `row`, a `Row`."""
    marks = {"fast": (), "slow": pytest.mark.slow(reason="the fast tests keep this promise on another row"),
             "soak": pytest.mark.soak(reason="faster tests keep this promise on other rows")}
    tiers = {row: tier(PROMISES[name], row) for row in ROWS}
    return pytest.mark.parametrize("row", [pytest.param(ROWS[row], id=row, marks=marks[found])
                                           for row, found in tiers.items() if found])


def table():
    """Returns the lines of the table: F is a fast test, S a slow test, K a soak test, a number a reason."""
    width = max(map(len, PROMISES))
    lines, reasons = [" " * width + "  " + "  ".join(ROWS)], []
    for name, promise in PROMISES.items():
        cells = []
        for row in ROWS:
            cell = {"fast": "F", "slow": "S", "soak": "K"}.get(tier(promise, row))
            if cell is None:
                reasons.append(f"{row}, {name}: {promise.without[row]}.")
                cell = str(len(reasons))
            cells.append(cell.center(len(row)))
        lines.append(f"{name:<{width}}  " + "  ".join(cells))
    return [*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]


if __name__ == "__main__":
    print("\n".join(table()))
