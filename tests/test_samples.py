"""Checks the sample data in samples/: formats and sizes."""

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
