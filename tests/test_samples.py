"""Checks the sample data in samples/: formats and sizes."""

import csv
import itertools
import pathlib

import pytest

MRPC = pathlib.Path(__file__).resolve().parents[1] / "samples" / "MRPC"
MIN_SIZE = {"train": 580, "dev": 96, "test": 56}
COLUMNS = ["#1 ID", "#2 ID", "#1 String", "#2 String"]


def read_tsv(name):
    text = (MRPC / (name + ".tsv")).read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    return [line.split("\t") for line in text[:-1].split("\n")]


def read_split(split):
    """Returns the pairs of a split as (label, first sentence, second sentence).

    The labels of the test split are in a separate file.
    """
    rows = read_tsv(split)[1:]
    labels = [row[1] for row in read_tsv("test_labels")[1:]] if split == "test" else [row[0] for row in rows]
    return [(int(label), row[3], row[4]) for label, row in zip(labels, rows, strict=True)]


@pytest.mark.parametrize("split", MIN_SIZE)
def test_format(split):
    header, *rows = read_tsv(split)
    assert header == ["index" if split == "test" else "Quality"] + COLUMNS
    assert len(rows) >= MIN_SIZE[split]
    for number, row in enumerate(rows):
        assert len(row) == 5, row
        assert row[0] == str(number) if split == "test" else row[0] in ("0", "1")
        assert row[1].isdigit() and row[2].isdigit()
        for sentence in row[3:]:
            assert 8 <= len(sentence.split()) <= 36, sentence
            assert sentence == sentence.strip() and '"' not in sentence, sentence


def test_test_labels():
    header, *rows = read_tsv("test_labels")
    assert header == ["index", "label"]
    assert [row[0] for row in rows] == [row[0] for row in read_tsv("test")[1:]]
    assert all(len(row) == 2 and row[1] in ("0", "1") for row in rows)


def test_ids_are_unique():
    ids = [row_id for split in MIN_SIZE for row in read_tsv(split)[1:] for row_id in row[1:3]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("split", MIN_SIZE)
def test_labels_are_balanced_like_mrpc_and_mixed(split):
    labels = [label for label, _, _ in read_split(split)]
    assert 1.6 <= labels.count(1) / labels.count(0) <= 2.6
    longest_run = max(len(list(run)) for _, run in itertools.groupby(labels))
    assert longest_run <= 16


# --- SWAG ------------------------------------------------------------------------------------------------


def test_swag_is_readable_and_each_ending_is_right_once():
    """The wrong endings are right endings of other questions. So an ending alone does not show its label."""
    swag = MRPC.parent / "swag"
    for name, count in {"train": 36, "val": 12, "test": 12}.items():
        with open(swag / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count and ("label" in rows[0]) == (name != "test")
        endings = [[row[f"ending{index}"] for index in range(4)] for row in rows]
        assert all(len(set(four)) == 4 for four in endings)
        assert all(row["startphrase"] == f"{row['sent1']} {row['sent2']}" for row in rows)
        if name != "test":
            labels = [int(row["label"]) for row in rows]
            assert {labels.count(label) for label in range(4)} == {count // 4}
            right = {four[label] for four, label in zip(endings, labels)}
            assert len(right) == count and {text for four in endings for text in four} == right
