"""Reads the files of an output directory, without the code of the project."""

import csv
import json

from comparisons import compare_tensors
from rows import STEPS


def different_tensors(first, second, step=STEPS):
    """Returns the differences between the checkpoints of a step in two output directories, a list of str."""
    return list(compare_tensors(*(output / f"model.ckpt-{step}.index" for output in (first, second))))


def record(output):
    return json.loads((output / "run.json").read_text())


def history(output):
    """Returns the objects in metrics.jsonl."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def losses(output):
    """Returns {step: loss} of the training."""
    return {line["step"]: line["loss"] for line in history(output) if "evaluation" not in line}


def scores(output, row):
    """Returns {metric: value} of the last evaluation of a `rows.Row`."""
    text = (output / row.results).read_text()
    if row.results.endswith(".json"):
        return json.loads(text)
    pairs = (line.split(" = ") for line in text.splitlines())
    return {name: json.loads(value.replace("nan", "NaN")) for name, value in pairs}


def table(path, dialect="excel"):
    """Returns the rows of a CSV file as dicts."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, dialect=dialect))


def contents(directory):
    """Returns {path: content} of all files in a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*"))
            if path.is_file()}


def results(output):
    """Returns {path: content} of the files that evaluations and predictions write as text."""
    return {path.name: path.read_bytes() for path in sorted(output.iterdir())
            if path.suffix in (".txt", ".csv", ".tsv", ".json", ".jsonl", ".conll")
            and path.name not in ("run.json", "metrics.jsonl", "config.json")}
