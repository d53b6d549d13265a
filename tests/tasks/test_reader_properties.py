"""All readers of a user's file read the same examples from any form of the file, or refuse the same line.

`written_files` draws the tables. The readers are those of training, evaluation, test data, export, and
predict.py on a file and on a pipe.
"""

import gzip

from helpers import write_file, write_lines
from hypothesis import given
from hypothesis import strategies as some
import pytest
import tiny
import written_files as written

from bertlib.data import labelled_rows, tables
from bertlib.runs import registry, trained_model
from bertlib.serving import prediction_inputs
from bertlib.tasks import answers, data_splits
from bertlib.tasks.classification import choice_target, classifier_data, row_examples
from bertlib.tasks.tagging import sentence_files
import modeling
import tokenization

KINDS = pytest.mark.parametrize("kind", written.KINDS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def tokenizer(directory):
    return tokenization.FullTokenizer(str(write_lines(directory / "vocab.txt", tiny.VOCABULARY)))


def model(kind, settings, path, tokenizer, labels=None):
    """Returns the `TrainedModel` of a training with these settings on this file."""
    record = {"task": classifier_data.OWN_DATA, "task_type": kind.replace(" ", "_"),
              "settings": {"max_seq_length": tiny.SEQ_LENGTH, **settings},
              "files": {"dev_file": path}}
    config = modeling.BertConfig.from_dict(tiny.CONFIG)
    return trained_model.TrainedModel("out", config, None, tokenizer, labels, record)


def asked(task, its_model, path, ahead):
    """Reads a file like predict.py. Returns [(line, texts)]."""
    found, source = [], prediction_inputs.InputReader(its_model, task)
    with (gzip.open if path.lower().endswith(".gz") else open)(path, "rb") as stream:
        for item in source.read(stream, path, prediction_inputs.format_from_name(path), ahead):
            if item.problem:
                raise ValueError(f"{path}:{item.line}: {item.problem}")
            with tables.name_file_in_errors(path):
                try:
                    task.preprocess(*item.values)  # checks the texts, too
                except ValueError as error:
                    raise tables.RowError(item.line, str(error)) from None
            found.append((item.line, item.values))
    return found


# --- Rows ------------------------------------------------------------------------------------------------


def _rows(split):
    return [(row.line, row.texts, row.label) for row in split.rows]


def readers_of_rows(table, path, tokenizer, **more):
    """Returns {name: function that reads the file} for each reader of rows. `more` are further flags."""
    settings = {**table.flags, **more}
    labels = written.LABELS if table.kind == "classification" else None
    if table.kind == "multiple choice":
        def read(**options):
            reader = choice_target.QuestionReader(settings.get, lambda flag: False,
                                                  more.get("skip_bad_lines"))
            return _rows(reader.read(path, **options))
        settings["num_choices"] = len(table.texts) - 2
        found = {"training": read, "test data": lambda: read(needs_labels=False)}
    else:
        check = labels and row_examples.label_checker(labels, "the labels")

        def create():
            label_kind = registry.find_target(table.kind).label_kind(settings.get)
            return labelled_rows.ExampleReader(label_kind, settings.get, lambda flag: False,
                                               settings.get("skip_bad_lines", False))
        found = {"training": lambda: _rows(create().read(path)),
                 "evaluation": lambda: _rows(create().read(path, known_labels=labels, find_problem=check)),
                 "test data": lambda: _rows(create().read(path, needs_labels=False, known_labels=labels))}
        # A training records the columns that its reader found. The readers below get these columns as flags.
        settings.setdefault("text_column", ",".join(table.texts))
        settings.setdefault("label_column", table.label)
        found["export"] = lambda: data_splits.read_dev_set(
            model(table.kind, settings, path, tokenizer, labels))
    its_model = model(table.kind, settings, path, tokenizer, labels)
    task = answers.create(its_model, its_model.target.name)
    return {**found, "prediction": lambda: asked(task, its_model, path, 1000),
            "prediction from a pipe": lambda: asked(task, its_model, path, 0)}


def expected(examples, name):
    """Returns the examples as the reader with this name returns them."""
    if name == "export":
        return [(texts, label) for _, texts, label in examples]
    return [example[:2] for example in examples] if name.startswith("prediction") else examples


@KINDS
@given(data=some.data())
def test_rows_are_the_same_in_any_form_for_all_readers(kind, directory, tokenizer, data):
    table = data.draw(written.tables(kind))
    path = write_file(directory / table.name, table.content()[0])
    for name, read in readers_of_rows(table, path, tokenizer).items():
        assert read() == expected(table.examples(), name), (name, table.flags)


def assert_refused(readers, line):
    """Asserts that each reader refuses the file, and names the number of the bad line."""
    for name, read in readers.items():
        try:
            found = read()
        except (ValueError, EOFError, OSError) as error:
            assert f":{line}: " in str(error) or f"line {line} " in str(error), (name, line, str(error))
        else:
            raise AssertionError(f"{name} reads {found}, but line {line} is bad")


@KINDS
@given(data=some.data())
def test_all_readers_refuse_a_bad_row_and_training_can_skip_it(kind, directory, tokenizer, data):
    table = data.draw(written.tables(kind, min_rows=3))
    index = data.draw(some.integers(1, len(table.rows) - 1))
    table.rows[index].update(dict.fromkeys(table.texts, written.PLAIN))
    others = table.examples()
    needs_label, is_json = data.draw(some.booleans()), table.delimiter is None
    faults = written.ROW_FAULTS[table.ending]
    if needs_label:
        faults = {**written.LABEL_FAULTS[kind], **(written.JSON_LABEL_FAULTS if is_json else {})}
    what = data.draw(some.sampled_from(sorted(faults)))
    faults[what](table, index)
    content, _, lines = table.content()
    path = write_file(directory / table.name, content)
    readers = readers_of_rows(table, path, tokenizer)
    assert_refused({name: readers[name] for name in readers if not needs_label
                    or name in ("training", "evaluation", "export")}, lines[index])
    kept = [example[1:] for place, example in enumerate(others) if place != index or what == "a blank line"]
    read = readers_of_rows(table, path, tokenizer, skip_bad_lines=True)["training"]
    assert [row[1:] for row in read()] == kept


# --- Sentences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, content", [
    ("given.conll", "-DOCSTART- X X\n\nO DT the\nB-X NN cat\n"),
    ("given.jsonl", '{"words": ["the", "cat"], "tags": ["O", "B-X"]}\n')])
def test_all_readers_read_the_same_sentence(name, content, directory, tokenizer):
    path = write_file(directory / name, content)
    its_model = model("tagging", {"label_all_pieces": False, "token_column": 3, "tag_column": 1}, path,
                      tokenizer, ["O", "B-X"])
    for needs_tags in (True, False):
        sentence, = sentence_files.read_sentences(path, 3, 1, needs_tags).sentences
        assert (sentence.words, sentence.tags) == (["the", "cat"], ["O", "B-X"])
    assert data_splits.read_dev_set(its_model) == [((sentence.words,), sentence.tags)]
    for ahead in (0, 1000):
        assert asked(answers.create(its_model, "tagging"), its_model, path, ahead) == [
            (sentence.lines[0], (sentence.words,))]
