"""Checks the sample data in samples/: formats and sizes."""

import csv
import pathlib

import pytest

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "samples"


def read_mrpc(name):
    text = (SAMPLES / "MRPC" / (name + ".tsv")).read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    return [line.split("\t") for line in text[:-1].split("\n")]


@pytest.mark.parametrize("split, size", [("train", 580), ("dev", 96), ("test", 56)])
def test_mrpc_has_the_published_format(split, size):
    header, *rows = read_mrpc(split)
    assert header == ["index" if split == "test" else "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    assert len(rows) >= size and {len(row) for row in rows} == {5}
    if split == "test":
        head, *answers = read_mrpc("test_labels")
        assert head == ["index", "label"] and [row[0] for row in rows] == [index for index, _ in answers]


def test_swag_is_readable_and_each_ending_is_right_once():
    """The wrong endings are right endings of other questions. So an ending alone does not show its label."""
    for name, count in {"train": 36, "val": 12, "test": 12}.items():
        with open(SAMPLES / "swag" / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count and ("label" in rows[0]) == (name != "test")
        endings = [[row[f"ending{index}"] for index in range(4)] for row in rows]
        assert all(row["startphrase"] == f"{row['sent1']} {row['sent2']}" for row in rows)
        if name != "test":
            labels = [int(row["label"]) for row in rows]
            assert {labels.count(label) for label in range(4)} == {count // 4}
            right = {four[label] for four, label in zip(endings, labels)}
            assert len(right) == count and {text for four in endings for text in four} == right
