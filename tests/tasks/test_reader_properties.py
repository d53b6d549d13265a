"""All readers of a user's file read the same examples from any form of the file, or refuse the same line.

`written_files` draws the files. The readers are those of training, evaluation, test data, export, and
predict.py on a file and on a pipe.
"""

import gzip
import json

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


def assert_refused(readers, path, line=None):
    """Asserts that each reader refuses the file, with its path, and with the number of the bad line."""
    for name, read in readers.items():
        try:
            found = read()
        except (ValueError, EOFError, OSError) as error:
            place = path if line is None else f":{line}: "
            assert place in str(error) or f"line {line} " in str(error), (name, line, str(error))
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
                    or name in ("training", "evaluation", "export")}, path, lines[index])
    kept = [example[1:] for place, example in enumerate(others) if place != index or what == "a blank line"]
    read = readers_of_rows(table, path, tokenizer, skip_bad_lines=True)["training"]
    assert [row[1:] for row in read()] == kept


@KINDS
@given(data=some.data())
def test_all_readers_refuse_a_bad_header_or_file(kind, directory, tokenizer, data):
    table, line = data.draw(written.tables(kind)), None
    has_names = table.names and table.by != "numbers"
    faults = {**written.file_faults(table), **(written.HEADER_FAULTS if has_names else {})}
    what = data.draw(some.sampled_from(sorted(faults)))
    if what in written.HEADER_FAULTS:
        faults[what](table)
        content, line, _ = table.content()
    else:
        content = faults[what](table.content()[0])
    path = write_file(directory / table.name, content)
    readers = readers_of_rows(table, path, tokenizer)
    # A file without inputs gets no answers. For a file that is not gzip, the error of predict.py is tested in
    # tests/commands/test_predict.py.
    if what in ("empty", "white space", "a header row alone") or "gzip" in what:
        readers = {name: read for name, read in readers.items() if "prediction" not in name}
    assert_refused(readers, path, line)


# --- Sentences -------------------------------------------------------------------------------------------

TAG_FAULTS = {
    "a column more": lambda line, separator: line + separator + "more",
    "a column less": lambda line, separator: line.split()[0],
    "no tag": lambda line, separator: line.replace("B-X", "X").replace(" O", "PER"),
    "NUL": lambda line, separator: line + "\0",
    "not UTF-8": lambda line, separator: line + "\udcff"}
LIST_FAULTS = {
    "tags of another number": lambda row: row["ner_tags"].append("O"),
    "no tags": lambda row: row.pop("ner_tags"), "tags null": lambda row: row.update(ner_tags=None),
    "numbers": lambda row: row.update(ner_tags=[0] * len(row["ner_tags"])),
    "no such tag": lambda row: row.update(ner_tags=["PER"] * len(row["ner_tags"])),
    "an empty word": lambda row: row["tokens"].__setitem__(0, " "),
    "no words": lambda row: row.update(tokens=[], ner_tags=[]),
    "a text": lambda row: row.update(tokens="the cat"), "two keys": lambda row: row.update(words=["the"])}


@some.composite
def sentences(draw):
    """Returns [[(word, tag), …], …]."""
    word = written.visible_texts(" \t\r\n\ufeff").map(lambda text: text[4:-4] + "x")
    return draw(some.lists(some.lists(some.tuples(word, some.sampled_from(["O", "B-X", "I-X", "S-a-b"])),
                                      min_size=1, max_size=4), min_size=2, max_size=4))


@some.composite
def columns_of(draw, found):
    """Returns (lines, flags, numbers of the first lines of the sentences, separator) of a file with columns.
    """
    order = draw(some.sampled_from([["word", "tag"], ["id", "word", "tag"], ["tag", "x", "word"]]))
    separator, lines, firsts = draw(some.sampled_from([" ", "\t", " \t "])), [], []
    for sentence in found:
        lines += draw(some.sampled_from([[], ["-DOCSTART- O", ""], ["# a comment of five words"]]))
        firsts.append(len(lines) + 1)
        for number, (word, tag) in enumerate(sentence):
            row = {"word": word, "tag": tag, "id": str(number), "x": "NN"}
            lines.append(separator.join(row[name] for name in order))
        lines += [""] * draw(some.integers(1, 2))
    ends = draw(some.sampled_from([0, len(order) + 1]))
    flags = {"token_column": order.index("word") + 1 - ends, "tag_column": order.index("tag") + 1 - ends}
    return lines, flags, firsts, separator


def readers_of_sentences(path, flags, tokenizer):
    def read(**options):
        file = sentence_files.read_sentences(path, *flags.values(), **options)
        return [(one.lines[0], list(one.words), one.tags) for one in file.sentences]

    its_model = model("tagging", {"label_all_pieces": False, **flags}, path, tokenizer, ["O", "B-X"])
    task = answers.create(its_model, "tagging")
    return {"training": read, "test data": lambda: read(needs_tags=False),
            "export": lambda: data_splits.read_dev_set(its_model),
            **{f"prediction {ahead}": lambda ahead=ahead: [
                (line, list(values[0])) for line, values in asked(task, its_model, path, ahead)]
               for ahead in (0, 1000)}}


def expected_sentences(found, firsts, name):
    words = [[word for word, _ in sentence] for sentence in found]
    tags = [[tag for _, tag in sentence] for sentence in found]
    if name == "export":
        return [((texts,), of_sentence) for texts, of_sentence in zip(words, tags)]
    if name == "test data" and not any(set(one) - {"O"} for one in tags):
        tags = [None] * len(tags)
    return list(zip(firsts, words)) if name.startswith("prediction") else list(zip(firsts, words, tags))


def write_sentences(directory, data, lines, ending):
    """Writes lines with a drawn line end, byte-order mark and compression. Returns the path."""
    end, has_mark, is_packed = data.draw(some.tuples(some.sampled_from(["\n", "\r\n"]), some.booleans(),
                                                     some.booleans()))
    content = "".join(line + end for line in lines).encode("utf-8", "surrogateescape")
    content = written.MARK * has_mark + content
    path = directory / f"given{ending}{'.gz' * is_packed}"
    path.write_bytes(gzip.compress(content, 1) if is_packed else content)
    return str(path)


@given(found=sentences(), data=some.data())
def test_sentences_are_the_same_in_columns_and_in_json_lines(directory, tokenizer, found, data):
    lines, flags, firsts, _ = data.draw(columns_of(found))
    keys = data.draw(some.sampled_from([("tokens", "ner_tags"), ("words", "tags")]))
    objects = [json.dumps(dict(zip(keys, map(list, zip(*sentence)))), ensure_ascii=data.draw(some.booleans()))
               for sentence in found]
    for path, places in ((write_sentences(directory, data, lines, ".conll"), firsts),
                         (write_sentences(directory, data, objects, ".jsonl"), range(1, len(found) + 1))):
        for name, read in readers_of_sentences(path, flags, tokenizer).items():
            assert read() == expected_sentences(found, places, name), (name, path, flags)


@given(found=sentences(), data=some.data())
def test_all_readers_refuse_a_bad_sentence(directory, tokenizer, found, data):
    index = data.draw(some.integers(1, len(found) - 1))
    found[index][0] = "cat", "B-X"
    found[0][0] = found[0][0][0], "B-X"  # without any tag, test data have no tags
    if data.draw(some.booleans()):
        lines, flags, firsts, separator = data.draw(columns_of(found))
        place, what = firsts[index], data.draw(some.sampled_from(sorted(TAG_FAULTS)))
        lines[place - 1] = TAG_FAULTS[what](lines[place - 1], separator)
        path = write_sentences(directory, data, lines, ".conll")
    else:
        flags, place, what = {"token_column": 1, "tag_column": -1}, index + 1, data.draw(some.sampled_from(
            sorted(LIST_FAULTS)))
        rows = [dict(zip(("tokens", "ner_tags"), map(list, zip(*sentence)))) for sentence in found]
        LIST_FAULTS[what](rows[index])
        path = write_sentences(directory, data, map(json.dumps, rows), ".jsonl")
    readers = readers_of_sentences(path, flags, tokenizer)
    # Predictions need no tags, split a text into words, and prefer the first of two keys.
    if "tag" in what or what in ("numbers", "a text", "two keys"):
        readers = {name: read for name, read in readers.items() if "prediction" not in name}
    assert_refused(readers, path, place)
