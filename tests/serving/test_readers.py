"""Training, evaluation, predict.py, export and the predictor read the same content from a file.

The tests use 300 files of benchmarks/attacks/readers.py. They also check that it finds a reader that differs.
"""

import importlib.util
import pathlib

import pytest

from bertlib.rows import columns, tables
from bertlib.serving import prediction_inputs
from bertlib.tasks.tagging import tagging_data

PATH = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "attacks" / "readers.py"


@pytest.fixture(scope="module")
def readers():
    spec = importlib.util.spec_from_file_location("readers", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_readers_see_the_same_examples_or_refuse_the_same_line(readers):
    reports = []
    bad, counts = readers.compare(range(300), "test", reports.append)
    assert not bad, "\n".join(reports)
    assert sum(counts.values()) == 300 and len(counts) > 15 and 100 < counts["nothing spoiled"] < 200


def names_as_they_stand(monkeypatch):
    """Makes readers compare names of columns without removing the spaces around them."""
    monkeypatch.setattr(columns.ColumnIndex, "find", lambda place, column, flag: place.names.index(
        f"{column} ") if f"{column} " in (place.names or ()) else 0)


def commas_alone(monkeypatch):
    monkeypatch.setattr(tables, "_drop_quoted", lambda lines: ",")


def words_of_python(monkeypatch):
    monkeypatch.setattr(tagging_data, "split_words", str.split)


def inputs_without_header(monkeypatch):
    """Makes predict.py answer the first row of a file, also if it is a header."""
    source = prediction_inputs.InputReader.__init__

    def init(self, *arguments):
        source(self, *arguments)
        self._reader._header = False

    monkeypatch.setattr(prediction_inputs.InputReader, "__init__", init)


@pytest.mark.parametrize("spoil", [names_as_they_stand, commas_alone, words_of_python,
                                   inputs_without_header])
def test_a_reader_that_reads_otherwise_is_found(spoil, readers, monkeypatch):
    spoil(monkeypatch)
    reports = []
    bad, _ = readers.compare(range(60), "test", reports.append)
    assert bad and len(reports) == bad
