"""Strategies of hypothesis for the files of users: the same rows in each form that is accepted, and faults.
"""

import csv
import gzip
import io
import json

from hypothesis import strategies as some
import texts

from bertlib.data.tables import DELIMITERS

MARK = b"\xef\xbb\xbf"
PLAIN = "the cat sees end"
_NAMES = ["body", "First one", "second-text", "#1 String", "naïve", "日本", "e\u0301", "x_1", "(a)", "B"]
_LABEL_NAMES = ["kind", "label", "class of it"]
LABELS = ["yes", "no", "may be", "so, so", "né"]
_SCORES = ["0", "-1", "2.50", "1e-3", "+7", ".5", "3.", "12345678.9"]
# {kind of a table: its texts have these names, if no flag names them}.
KINDS = {"classification": [("text",), ("sentence1", "sentence2"), ("question", "answer")],
         "regression": [("sentence",), ("text_a", "text_b")],
         "multiple choice": [("sent1", "sent2", *(f"ending{index}" for index in range(count)))
                             for count in (2, 4)]}


def visible_texts(without=""):
    """A text that the readers accept, with all kinds of characters except those of `without`."""
    removed = str.maketrans(dict.fromkeys([*map(chr, range(0xd800, 0xe000)), "\0", *without]))
    return texts.texts.map(lambda text: f"the {text.translate(removed)} end")


class Table(object):
    """A file of rows, before it is written. A fault changes its attributes.

    Attributes:
      ending: ".csv", ".tsv" or ".jsonl".
      delimiter: the character between columns; None for JSON Lines.
      columns: names of the columns, in the order of the file.
      names: the header row, or None.
      rows: list of {column: value}.
      texts, label: names of the columns with the texts and with the label.
      flags: {flag: value} of the commands that read the file.
      by: how the commands find the columns: by "usual names", or by the "names" or "numbers" in the flags.
      raw: {index of a row: bytes that are written in its place}.
      options: keyword arguments of `csv.writer`, or of `json.dumps`.
      before, after: bytes before and after the rows.
      has_mark, line_end: whether the file begins with a byte-order mark; its line end.
      compressed, has_capitals: whether the file is compressed, and has its ending in capital letters.
    """

    def __init__(self, **attributes):
        vars(self).update(raw={}, after=b"", before=b"", **attributes)

    @property
    def name(self):
        ending = self.ending.upper() if self.has_capitals else self.ending
        return f"given{ending}{'.gz' * self.compressed}"

    def line(self, values):
        """Returns a row as bytes with a line end. `values` is a list, or a dict for JSON Lines."""
        if self.delimiter is None:
            return json.dumps(values, **self.options).encode() + self.line_end
        if self.ending == ".tsv":
            return "\t".join(values).encode() + self.line_end
        stream = io.StringIO()
        csv.writer(stream, delimiter=self.delimiter, **self.options).writerow(values)
        return stream.getvalue().removesuffix("\r\n").encode() + self.line_end

    def __repr__(self):
        return f"{self.name} {self.flags} {self.content()[0] if not self.compressed else self.rows}"

    def row(self, index):
        values = {name: self.rows[index][name] for name in self.columns if name in self.rows[index]}
        return self.line(values if self.delimiter is None else list(values.values()))

    def content(self):
        """Returns (bytes of the file, number of the line of the header row, of each row)."""
        parts = [self.before, self.line(self.names) if self.names else b"",
                 *(self.raw.get(index, self.row(index)) for index in range(len(self.rows)))]
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + part.count(b"\n"))
        data = MARK * self.has_mark + b"".join(parts) + self.after
        lines = [end + 1 for end in ends[1:-1]]
        return gzip.compress(data, 1) if self.compressed else data, lines[0], lines[1:]

    def examples(self):
        """Returns [(line, texts, label)] of the rows. A score is a float."""
        return [(line, tuple(row[name] for name in self.texts), self._label(row))
                for line, row in zip(self.content()[2], self.rows)]

    def _label(self, row):
        return float(row[self.label]) if self.kind == "regression" else str(row[self.label])


@some.composite
def tables(draw, kind, min_rows=2):
    """A valid `Table`. Columns, their order and names, delimiter, quotes and line ends are drawn."""
    ending = draw(some.sampled_from([".csv", ".csv", ".tsv", ".jsonl"]))
    usual = draw(some.sampled_from(KINDS[kind]))
    by = draw(some.sampled_from(["usual names", "names", "numbers"][:2 if ending == ".jsonl" else 3]))
    own = draw(some.permutations(_NAMES))
    names = usual if by == "usual names" else tuple(own[:len(usual)])
    label = "label" if by == "usual names" else draw(some.sampled_from(_LABEL_NAMES))
    more = own[len(usual):len(usual) + draw(some.integers(0, 2))]
    order = draw(some.permutations([*names, label, *more]))
    delimiter = {".tsv": "\t", ".jsonl": None}.get(ending, draw(some.sampled_from(",;;|\t~")))
    values = visible_texts("\t\r\n" if ending == ".tsv" else "")
    if kind == "multiple choice":
        labels = some.sampled_from([str(index) for index in range(len(usual) - 2)])
    else:
        labels = some.sampled_from(_SCORES if kind == "regression" else LABELS)
    rows = draw(some.lists(some.fixed_dictionaries(
        {**dict.fromkeys(names, values), label: labels, **dict.fromkeys(more, some.just("so"))}),
        min_size=min_rows, max_size=4))
    line_end = draw(some.sampled_from([b"\n", b"\r\n"]))
    table = Table(kind=kind, ending=ending, delimiter=delimiter, columns=order, names=None, rows=rows,
                  texts=names, label=label, flags={}, by=by, line_end=line_end,
                  has_mark=draw(some.booleans()), compressed=draw(some.booleans()),
                  has_capitals=draw(some.booleans()))
    table.after = draw(some.sampled_from([b"", line_end, line_end * 3]))
    if delimiter is None:
        table.options = {"ensure_ascii": draw(some.booleans())}
    else:
        table.options = {"quoting": draw(some.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))}
        _add_header(draw, table)
    if by == "names":
        table.flags.update(text_column=",".join(names), label_column=label)
    return table


def _add_header(draw, table):
    """Draws the header row of a table that is not in JSON Lines, and the flags for header and delimiter."""
    if table.by != "numbers" or draw(some.booleans()):
        table.names = [draw(some.sampled_from(["", " "])) + name for name in table.columns]
    if table.by == "numbers":  # from the first or from the last column
        ends = draw(some.sampled_from([0, len(table.columns) + 1]))
        numbers = [str(table.columns.index(name) + 1 - ends) for name in (*table.texts, table.label)]
        table.flags = {"text_column": ",".join(numbers[:-1]), "label_column": numbers[-1],
                       "header": "true" if table.names else "false"}
    if table.ending == ".tsv":
        return
    is_seen = table.names and table.delimiter in ",;"
    how = draw(some.sampled_from(["flag", "declared", *["seen"] * (3 if is_seen else 0)]))
    if how == "declared":
        table.before = f"sep={table.delimiter}".encode() + table.line_end
    elif how == "flag":
        names = {sign: name for name, sign in DELIMITERS.items()}
        table.flags["delimiter"] = names.get(table.delimiter, table.delimiter)


# --- Faults ----------------------------------------------------------------------------------------------

# Each function spoils a table. For the faults of a row, it gets the index of a row, whose values are simple.


def _text(value):
    def spoil(table, index):
        table.rows[index][table.texts[-1]] = value
    return spoil


def _label(value):
    def spoil(table, index):
        table.rows[index][table.label] = value
    return spoil


def _line(change):
    def spoil(table, index):
        table.raw[index] = change(table.row(index).removesuffix(table.line_end), table) + table.line_end
    return spoil


def _without(name):
    def spoil(table, index):
        del table.rows[index][table.texts[-1] if name == "text" else table.label]
    return spoil


def _more(name, value):
    """Adds a value to an object of JSON Lines. `value` is JSON."""
    return _line(lambda line, table: line[:-1] + f', "{name or table.label}": {value}}}'.encode())


_BLANK = {"no text": "", "a blank text": " \u3000\u00a0", "an invisible text": "\u200b\ufeff\x07"}
_ANY_ROW = {**{name: _text(text) for name, text in _BLANK.items()},
            "NUL": _line(lambda line, table: line + b"\0"),
            "not UTF-8": _line(lambda line, table: line + b"\xff"),
            "a blank line": _line(lambda line, table: table.line_end + line)}
_ANY_LABEL = {"an empty label": _label(""), "a blank label": _label("\u3000")}
ROW_FAULTS = {
    ".csv": {**_ANY_ROW,
             "a column more": _line(lambda line, table: line + table.delimiter.encode() + b"more"),
             "a column less": _line(lambda line, table: line.rpartition(table.delimiter.encode())[0]),
             "a quote in a field": _line(lambda line, table: b'"a" b' + table.delimiter.encode() + line),
             "a carriage return": _line(lambda line, table: b"a\rb" + line)},
    ".jsonl": {**_ANY_ROW, **{f"text {value}": _text(value) for value in (None, [], {})},
               "no text": _without("text"), "NaN": _more("more", "NaN"), "too large": _more("more", "1e400"),
               "too many digits": _more("more", "9" * 5000),
               "half of a surrogate pair": _more("more", '"\\ud800"'),
               "a key twice": _more("", '"a"'), "truncated": _line(lambda line, table: line[:-2]),
               **{text[:9]: _line(lambda line, table, text=text: text.encode())
                  for text in ("[1]", '"a"', "null", "17", "{}", "[" * 20000, '{"a": 1,}', "a")}}}
ROW_FAULTS[".tsv"] = {name: ROW_FAULTS[".csv"][name] for name in (
    *_ANY_ROW, "a column more", "a column less", "a carriage return")}
LABEL_FAULTS = {"classification": {**_ANY_LABEL, "a label of two lines": _label("a\u2028b")},
                "regression": {**_ANY_LABEL, **{f"score {text}": _label(text) for text in (
                    "nan", "-inf", "1e400", "1e39", "1_000", "١٢", "x", "1 5", "0x10")}},
                "multiple choice": {**_ANY_LABEL, **{f"number {text}": _label(text) for text in (
                    "4", "-2", "1.0", "a", "ending1", "٢")}}}
JSON_LABEL_FAULTS = {"no label": _without("label"), "label null": _label(None), "label {}": _label({})}
