"""Compares all readers of a user's file: training, evaluation, predict.py, export and Predictor.

    python benchmarks/attacks/readers.py [--count=2000] [--seed=0] [--only=N] [--results=NAME]

Each case is a random .csv, .tsv, .jsonl or .conll file with the flags of a training on this file. In about
half of the cases, one thing in the file is spoiled. All readers must read the same texts from the same lines.
If a line is spoiled, all readers must refuse this line. The script knows which examples it wrote and which
line it spoiled, and compares each reader with them. The exit code is 1 if a reader differs.
"""

import argparse
import collections
import csv
import gzip
import io
import json
import pathlib
import random
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import tiny  # noqa: E402

from bertlib.output_directory import model_directory  # noqa: E402
from bertlib.runs.classification import training_texts  # noqa: E402
from bertlib.serving import answers, prediction_inputs  # noqa: E402
from bertlib.tasks.classification import row_examples  # noqa: E402
from bertlib.tasks.tagging import tagging_data  # noqa: E402
import modeling  # noqa: E402
import tokenization  # noqa: E402

LABELS = ("yes", "no", "may be")
WORDS = ["the", "cat", "sees", "a", "dog", ".", "Straße", "naïve", "日本", "a,b", "x;y", "it's", "|||",
         "e\u0301", "\u3000", "a\u2028b", "a\u00a0b", "1", "0", "#1", "-", "NaN", "{}", "\u200bz"]
PLAIN = [word for word in WORDS if not word.startswith("#")]
USUAL = {1: ["text"], 2: ["sentence1", "sentence2"]}
NAMES = {1: ["body"], 2: ["First one", "second-text"]}


class Case(NamedTuple):
    """A file, and the flags of a training on this file.

    `examples` are the examples that were written: [(line, texts, label)]. In a file of tagged words, `texts`
    are the words, and `label` is their tags. `line` is the number of the line that the readers must refuse.
    It is None if all lines are valid. If `in_labels` is true, only the readers that read labels must refuse
    the line.
    """

    name: str
    data: bytes
    settings: dict
    examples: list
    spoiled: str = ""
    line: int | None = None
    in_labels: bool = False

    @property
    def is_tagged(self):
        return self.name.removesuffix(".gz").endswith(".conll")


class Seen(NamedTuple):
    """The result of a reader.

    Attributes:
      examples: list of (line, texts), the examples that the reader returned.
      line: the line that the error message names; 0 if it names no line; None if there was no error.
      refusal: the text of the error message; "" if there was no error.
    """

    examples: list
    line: int | None = None
    refusal: str = ""


# --- Cases -----------------------------------------------------------------------------------------------


def case_of(seed, number):
    """Returns the `Case` that belongs to a seed and a case number."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.choice(["csv", "csv", "semicolons", "tsv", "jsonl", "conll"])
    case = _words(chance) if kind == "conll" else _objects(chance) if kind == "jsonl" else _rows(chance, kind)
    if chance.random() < 0.2 and kind != "semicolons":
        case = case._replace(data=b"\xef\xbb\xbf" + case.data)
    if chance.random() < 0.15:
        case = case._replace(name=case.name + ".gz", data=gzip.compress(case.data))
    if chance.random() < 0.1 and not case.is_tagged:
        case = case._replace(name=case.name.upper())
    return case


def _sentence(chance, signs=""):
    words = [chance.choice(WORDS) for _ in range(chance.randint(4, 9))]
    text = " ".join(["the", *words])
    return text + chance.choice(["", *signs]) + " end"


def _table(chance, signs):
    """Makes a random table.

    Returns:
      (list of the examples (texts, label), list of the names of all columns, names of the columns with texts,
      name of the column with labels, list of the rows as dicts).
    """
    number = chance.choice([1, 2])
    texts = (USUAL if chance.random() < 0.4 else NAMES)[number]
    extra = chance.sample(["id", "note", " source"], chance.randint(0, 2))
    columns = [*texts, "label" if texts in USUAL.values() else chance.choice(["kind", "label"]), *extra]
    label = columns[number]
    chance.shuffle(columns)
    examples = [(tuple(_sentence(chance, signs) for _ in texts), LABELS[index % 3] if index < 3 else
                 chance.choice(LABELS)) for index in range(chance.randint(3, 8))]
    rows = [{**dict(zip(texts, pair)), label: kind, **{name: f"{name.strip()} {index}" for name in extra}}
            for index, (pair, kind) in enumerate(examples)]
    return examples, columns, texts, label, rows


def _settings(chance, columns, texts, label, has_header):
    """Returns the flags for the columns and the header row of a training file, as {name: value}."""
    numbers = [columns.index(name) + 1 for name in (*texts, label)]
    if chance.random() < 0.5:
        numbers[-1] -= len(columns) + 1
    *of_texts, of_label = numbers
    if not has_header:
        return {"text_column": ",".join(map(str, of_texts)), "label_column": str(of_label),
                "header": chance.choice(["auto", "false"])}
    if chance.random() < 0.2:
        return {"text_column": ",".join(map(str, of_texts)), "label_column": str(of_label), "header": "true"}
    if texts in USUAL.values() and label == "label" and chance.random() < 0.5:
        return {"header": chance.choice(["auto", "true"])}
    return {"text_column": ",".join(texts), "label_column": label, "header": chance.choice(["auto", "true"])}


def _rows(chance, kind):
    """Makes a CSV or TSV file."""
    delimiter = {"csv": ",", "semicolons": ";", "tsv": "\t"}[kind]
    examples, columns, texts, label, rows = _table(chance, ['"', "\n", ", so"] if kind != "tsv" else ['"'])
    has_header = kind == "semicolons" or chance.random() < 0.7
    settings = _settings(chance, columns, texts, label, has_header)
    head = [name if settings.get("text_column", "1")[0].isdigit() and chance.random() < 0.5 else
            f"{chance.choice(['', ' '])}{name}{chance.choice(['', '  '])}" for name in columns]
    lines, places = [], []
    for row in ([head] if has_header else []) + [[row[name] for name in columns] for row in rows]:
        places.append(1 + sum(line.count("\n") for line in lines))
        lines.append(_joined(row, delimiter, chance))
    if not has_header and kind == "csv":
        settings["delimiter"] = "comma"
    written = [(place, *example) for place, example in zip(places[has_header:], examples)]
    spoil = chance.choice(_SPOILS["rows"]) if chance.random() < 0.5 else None
    case = Case("train." + ("tsv" if kind == "tsv" else "csv"), b"", settings, written)
    if spoil:
        case = spoil(chance, case, lines, places, delimiter, columns, texts, label, has_header)
    text = "".join(lines)
    if chance.random() < 0.3 and "\n" not in "".join(line[:-1] for line in lines):
        text = text.replace("\n", "\r\n")
    return case._replace(data=case.data or (text + chance.choice(["", "\n", "\n\n"])).encode())


def _joined(row, delimiter, chance):
    """Returns a line of a file: the fields of a row with the delimiter between them. If the delimiter is a
    tab, no field is in quotes. Otherwise, a random number decides whether all fields are in quotes, or only
    those that need quotes."""
    if delimiter == "\t":
        return "\t".join(row) + "\n"
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if chance.random() < 0.2 else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerow(row)
    return text.getvalue()


def _objects(chance):
    """Makes a file of JSON Lines."""
    examples, columns, texts, label, rows = _table(chance, ['"', "\n", ", so"])
    settings = _settings(chance, columns, texts, label, True)
    if settings.get("text_column", "a")[0].isdigit():  # JSON Lines has no column numbers
        settings = {"text_column": ",".join(texts), "label_column": label}
    written = [(line, *example) for line, example in enumerate(examples, 1)]
    case, place = Case("train.jsonl", b"", settings, written), chance.randrange(len(rows))
    is_ascii = chance.random() < 0.5
    lines = [json.dumps({name: row[name] for name in columns}, ensure_ascii=is_ascii) + "\n" for row in rows]
    if chance.random() < 0.5:
        what, change, in_labels = chance.choice(_OBJECTS)
        lines[place] = change(dict(rows[place]), texts, label)
        case = case._replace(spoiled=what, line=place + 1, in_labels=in_labels)
    return case._replace(data="".join(lines).encode() + chance.choice([b"", b"\n", b" \n\n"]))


def _words(chance):
    """Makes a file of tagged words in columns, as in CoNLL."""
    columns = chance.choice([["word", "tag"], ["id", "word", "tag"], ["tag", "x", "word"]])
    separator = chance.choice([" ", "\t", " \t "])
    lines, written = [], []
    for _ in range(chance.randint(2, 5)):
        if chance.random() < 0.2:
            lines += ["-DOCSTART- O", ""]
        if chance.random() < 0.2:
            lines.append("#\u2028 a comment of several words")
        words = [chance.choice(PLAIN) for _ in range(chance.randint(1, 6))]
        tags = ["B-X" if chance.random() < 0.4 else "O" for _ in words]
        written.append((len(lines) + 1, tuple(words), tuple(tags)))
        for number, (word, tag) in enumerate(zip(words, tags), 1):
            row = {"word": word, "tag": tag, "id": str(number), "x": "NN"}
            lines.append(separator.join(row[name] for name in columns))
        lines += [""] * chance.randint(1, 2)
    settings = {"token_column": columns.index("word") + 1,
                "tag_column": columns.index("tag") + 1 - chance.choice([0, len(columns) + 1])}
    case = Case("train.conll", b"", settings, written)
    if chance.random() < 0.3:
        sentence = chance.randrange(1, len(written))
        place, what = written[sentence][0] - 1, chance.choice(["a column more", "NUL", "not UTF-8"])
        lines[place] += {"a column more": f"{separator}more", "NUL": "\0", "not UTF-8": "\udcff"}[what]
        case = case._replace(spoiled=what, line=place + 1)
    end = chance.choice(["\n", "\r\n"])
    return case._replace(data="".join(line + end for line in lines).encode("utf-8", "surrogateescape"))


# --- What is spoiled -------------------------------------------------------------------------------------


def _spoil_text(text, what, in_labels=False):
    """Returns a function that damages a row of a file. The function replaces one of the texts of the row by
    `text`. If `in_labels` is true, it replaces the label instead. `what` describes the damage."""
    def spoil(chance, case, lines, places, delimiter, columns, texts, label, has_header):
        row = chance.randrange(has_header, len(lines))
        example = case.examples[row - has_header]
        values = dict(zip(texts, example[1])) | {label: example[2]}
        values[label if in_labels else chance.choice(texts)] = text
        lines[row] = _joined([values.get(name, "so") for name in columns], delimiter, chance)
        return case._replace(spoiled=what, line=places[row], in_labels=in_labels)
    return spoil


def _spoil_line(change, what):
    """Returns a function that damages a random row with `change`. `what` is the name of the damage."""
    def spoil(chance, case, lines, places, delimiter, columns, texts, label, has_header):
        rows = [row for row in range(has_header, len(lines)) if lines[row].count("\n") == 1 and row]
        if not rows:
            return case
        row = chance.choice(rows)
        lines[row] = change(lines[row], delimiter)
        return case._replace(spoiled=what, line=places[row])
    return spoil


def _spoil_header(change, what):
    """Returns a function that changes the header row of a file. This function changes nothing if there is no
    header row, or if the flags name the columns by number."""
    def spoil(chance, case, lines, places, delimiter, columns, texts, label, has_header):
        is_numbered = case.settings.get("text_column", "a")[0].isdigit()
        if not has_header or is_numbered:
            return case
        lines[0] = _joined(change(list(columns), texts), delimiter, chance)
        return case._replace(spoiled=what, line=1)
    return spoil


def _not_utf_8(chance, case, lines, places, delimiter, columns, texts, label, has_header):
    row = chance.randrange(len(lines))
    data = [line.encode() for line in lines]
    data[row] = data[row][:-1] + b"\xff\n"
    return case._replace(spoiled="not UTF-8", line=places[row] + lines[row].count("\n") - 1,
                         data=b"".join(data))


def _header_for_an_example(chance, case, lines, places, delimiter, columns, texts, label, has_header):
    """Adds a header row to a case without one. The flags name the columns by numbers and do not
    announce a header row, so the readers must refuse this row."""
    if has_header:
        return case
    lines.insert(0, delimiter.join(columns) + "\n")
    settings = {**case.settings, "header": "auto"}
    return case._replace(spoiled="a header that is not said", line=1, settings=settings)


def _json(**changes):
    def change(row, texts, label):
        for key, value in changes.items():
            row[texts[-1] if key == "text" else label if key == "label" else key] = value
        return json.dumps(row) + "\n"
    return change


def _without(which):
    def change(row, texts, label):
        del row[texts[-1] if which == "text" else label]
        return json.dumps(row) + "\n"
    return change


_SPOILS = {"rows": [
    _spoil_text(" ", "an empty text"), _spoil_text("\u200b\ufeff", "an invisible text"),
    _spoil_text("", "an empty label", True), _spoil_text("a\u2028b", "a label of two lines", True),
    _spoil_line(lambda line, delimiter: line[:-1] + f"{delimiter}more\n", "a column more"),
    _spoil_line(lambda line, delimiter: "\n" + line, "a blank line"),
    _spoil_line(lambda line, delimiter: line[:-1] + "\0\n", "NUL"),
    _spoil_header(lambda names, texts: [name + "s" if name == texts[-1] else name for name in names],
                  "a name misspelled"),
    _spoil_header(lambda names, texts: [*names, texts[-1]], "a name twice"),
    _spoil_header(lambda names, texts: [f"\u200b{name}" if name == texts[0] else name for name in names],
                  "an invisible character in a name"),
    _not_utf_8, _header_for_an_example]}
_OBJECTS = [
    ("null", _json(text=None), False), ("a list", _json(text=[]), False),
    ("an empty text", _json(text=" "), False),
    ("no text", _without("text"), False), ("no label", _without("label"), True),
    ("NaN", _json(more=float("nan")), False), ("no JSON", lambda row, texts, label: "{\n", False),
    ("no object", lambda row, texts, label: "[1]\n", False), ("a blank line", lambda *_: "\n{}\n", False),
    ("too large", lambda row, texts, label: json.dumps(row)[:-1] + ', "more": 1e400}\n', False),
    ("half of a surrogate pair", _json(text="a \ud800"), False), ("a blank label", _json(label=" "), True),
    ("a name twice", lambda row, texts, label: json.dumps(row)[:-1] + f', "{label}": "a"}}\n', False)]


# --- Readers ---------------------------------------------------------------------------------------------


class Readers:
    """Reads a file with each part of this project that reads files of users. Examples of such parts are
    training, predict.py and export."""

    def __init__(self, directory):
        """Creates the readers. The files of the cases are written into `directory`."""
        self._directory = pathlib.Path(directory)
        vocabulary = self._directory / "vocab.txt"
        vocabulary.write_text("".join(f"{word}\n" for word in tiny.VOCABULARY), encoding="utf-8")
        self._tokenizer = tokenization.FullTokenizer(str(vocabulary))
        self._config = modeling.BertConfig.from_dict(tiny.CONFIG)

    def see(self, case):
        """Reads the file of a case with each reader. Returns {name of a reader: `Seen`}."""
        path = self._directory / case.name
        path.write_bytes(case.data)
        try:
            return self._words(case, str(path)) if case.is_tagged else self._texts(case, str(path))
        finally:
            path.unlink()

    def _model(self, case, path, settings, kind):
        record = {"task": "own data" if kind == "classification" else "ner", "settings": settings,
                  "files": {"train_file": path}}
        labels = sorted(LABELS) if kind == "classification" else ["B-X", "O"]
        return model_directory.ModelDirectory("out", kind, self._config, None, self._tokenizer, labels,
                                              {**record, "settings": {"max_seq_length": 64, **settings}})

    def _texts(self, case, path):
        setting = dict(case.settings)
        reader = row_examples.create_reader("classification", lambda name,
                                            default: setting.get(name, default))
        found = {"training": _seen(lambda: [(row.line, _of(row)) for row in reader.read(path).rows])}
        # A training records the columns that its reader found. The readers below get these columns as flags.
        for name, columns in (("text_column", reader.text), ("label_column", reader.label)):
            if columns:
                setting[name] = ",".join(map(str, columns))
        if reader.text is None:
            setting["text_column"] = ",".join(USUAL[len(case.examples[0][1])])
        again = row_examples.create_reader("classification", lambda name, default: setting.get(name, default))
        found["evaluation"] = _seen(lambda: [(row.line, _of(row)) for row in again.read(
            path, known=list(LABELS)).rows])
        found["test file"] = _seen(lambda: [(row.line, _of(row)) for row in again.read(
            path, needs_labels=False, known=list(LABELS)).rows])
        model = self._model(case, path, setting, "classification")
        task = answers.Classification(model)
        found["predict"] = self._asked(task, model, path, 1000)
        found["predict, as lines come"] = self._asked(task, model, path, 0)
        found["export"] = _seen(lambda: list(training_texts.read_training_texts(model)))
        return found

    def _words(self, case, path):
        columns = [case.settings[name] for name in ("token_column", "tag_column")]
        found = {"training": _seen(lambda: _sentences(tagging_data.read_conll(path, *columns))),
                 "test file": _seen(lambda: _sentences(tagging_data.read_conll(path, *columns, tagged=None)))}
        model = self._model(case, path, case.settings, "tagging")
        task = answers.Tagging(model)
        found["predict"] = self._asked(task, model, path, 1000)
        found["predict, as text"] = _seen(lambda: [
            (line, tuple(task.windows("\t".join(words))[1][1])) for line, words in _sentences(
                tagging_data.read_conll(path, *columns))])
        found["export"] = _seen(lambda: list(training_texts.read_training_texts(model)))
        return found

    def _asked(self, task, model, path, ahead):
        """Reads a file in the same way as predict.py does. Divides each row into windows, because this step
        also checks the texts. Returns a `Seen`. For `ahead`, see `prediction_inputs.InputReader.read`."""
        def read():
            source = prediction_inputs.InputReader(model, task.fields, task.required)
            with (gzip.open if path.lower().endswith(".gz") else open)(path, "rb") as stream:
                for item in source.read(stream, path, prediction_inputs.format_from_name(path), ahead):
                    if item.problem:
                        raise ValueError(f"{path}:{item.line}: {item.problem}")
                    task.windows(*item.values)
                    values = item.values[0] if isinstance(task, answers.Tagging) else item.values
                    yield item.line, tuple(values)
        return _seen(lambda: list(read()))


def _of(row):
    return tuple(text for text in (row.text_a, row.text_b) if text is not None)


def _sentences(file):
    return [(sentence.lines[0], tuple(sentence.words)) for sentence in file.sentences]


def _seen(read):
    try:
        return Seen(read())
    except ValueError as error:
        place = str(error).split(": ", 1)[0].rpartition(":")[2]
        return Seen([], int(place) if place.isdigit() else 0, str(error))


# --- The comparison --------------------------------------------------------------------------------------


def differences(case, found):
    """Returns a list of str: the differences between the results of the readers and the file that was
    written."""
    written = [(line, texts) for line, texts, _ in case.examples]
    wrong = []
    for name, seen in found.items():
        expected = written
        if name == "export":
            expected = [" ".join(texts) for _, texts in written] if case.is_tagged else [
                text for _, texts in written for text in texts]
        needs_labels = name not in ("predict", "predict, as lines come", "test file")
        is_refused = case.line is not None and (needs_labels or not case.in_labels)
        # The error must name the spoiled line. It may also name other lines: a fault in one line can make
        # other lines bad, and an error lists all bad lines.
        is_named = seen.line == case.line or f":{case.line}: " in (seen.refusal or "")
        if is_refused and not (seen.refusal and is_named):
            wrong.append(f"{name}: line {case.line} has to be refused ({case.spoiled}), but the reader says: "
                         f"{seen.refusal or 'nothing'}")
        if case.line is None and (seen.refusal or seen.examples != expected):
            wrong.append(f"{name}: {seen.refusal or seen.examples}\n    but the file contains {expected}")
        if name == "predict" and case.in_labels and (seen.refusal or seen.examples != written):
            wrong.append(f"{name}: {seen.refusal or seen.examples}\n    but the file contains {written}")
    return wrong


def compare(numbers, seed, report=print):
    """Makes a case for each of the given numbers, and lets all readers read the case.

    Returns:
      a pair: the number of cases that at least one reader did not read as expected, and
      {name of a damage: number of cases with this damage}.
    """
    bad, counts = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        readers = Readers(directory)
        for number in numbers:
            case = case_of(seed, number)
            wrong = differences(case, readers.see(case))
            counts[case.spoiled or "nothing spoiled"] += 1
            if wrong:
                bad += 1
                about = f"case {number}: {case.name}, {case.settings}, spoiled: {case.spoiled or 'nothing'}"
                report("\n  ".join([about, *wrong]))
    return bad, counts


def main():
    """Compares the readers. Prints which files are read differently, and how many files were made in each
    way."""
    import results  # imported here, because tests import this module without benchmarks/ in sys.path
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="number of files to test")
    parser.add_argument("--only", type=int, help="number of the case to repeat")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {})
    numbers, began = range(arguments.count), time.time()
    if arguments.only is not None:
        numbers = [arguments.only]
        print(case_of(arguments.seed, arguments.only))
    bad, counts = compare(numbers, arguments.seed)
    for what, count in counts.most_common():
        print(f"  {count:5} {what}")
        recorder.add(spoiled=what, files=count)
    recorder.add(files=len(numbers), read_differently=bad)
    recorder.write()
    print(f"{bad} of {len(numbers)} files of seed {arguments.seed} are read differently; "
          f"{time.time() - began:.0f} s.")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
