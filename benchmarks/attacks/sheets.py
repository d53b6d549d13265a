"""Makes files of rows. Each file differs from a plain file in one way. For each file, also makes the list of
the rows that a correct reader finds in it.

A `Sheet` starts as a plain file with the columns of a model. A function in `KINDS` changes the sheet. The
function also sets how each phase must end: "right" (the phase must succeed), "refused" (it must fail), or
"either". If a phase succeeds, its rows are compared with the expected rows.
"""

import csv
import gzip
import io
import json

from attacks import world

PHASES = ("predict", "test", "dev", "train")


class Sheet:
    """A file that the attack writes.

    Attributes:
      columns: names of the columns, in the order of the file.
      cells: for each row, {name of the column: value}.
      shown: {name of a column: its name in the header of the file}, only for columns whose two names differ.
      expected: list with one element for each row: (texts, label) if the row must be read, None if it is bad.
      must: {phase: how the command of this phase must end: "right", "refused" or "either"}.
      flags: more flags of the commands.
      warns: whether a training that accepts the file must print a warning.
    """

    def __init__(self, chance, name, count=16):
        self.chance, self.model = chance, name
        self.texts, self.label, self.ending, self.has_header = world.LAYOUTS[name]
        self.is_json = self.ending == ".jsonl"
        self.expected = world.rows(chance, name, count)
        self.columns = [*self.texts, self.label]
        if not self.has_header:
            self.columns = ["1", "2", "3"]
        self.cells = [{**dict(zip(self.texts, texts)), self.label: label} for texts, label in self.expected]
        for index, cells in enumerate(self.cells):
            if not self.has_header:
                cells["1"] = str(index)
        self.shown, self.flags, self.warns, self.lines = {}, {}, False, {}
        self.delimiter = {".csv": ",", ".tsv": "\t"}.get(self.ending)
        self.line_end, self.edits, self.suffix = "\n", [], ""
        self.quote_all = False
        self.must = dict.fromkeys(PHASES, "right")

    def expect(self, must, *phases):
        self.must.update(dict.fromkeys(phases or PHASES, must))

    def bad(self, index):
        """Marks a row as bad, and requires that each phase refuses the file."""
        self.expected[index] = None
        self.expect("refused")

    def any_row(self):
        return self.chance.randrange(2, len(self.cells))

    @property
    def name(self):
        return f"given{self.ending}{self.suffix}"

    # --- Content

    def content(self):
        """Returns the bytes of the file."""
        if self.is_json:
            lines = [json.dumps({self.shown.get(name, name): cells[name] for name in self.columns
                                 if name in cells}, ensure_ascii=self.chance.random() < 0.5)
                     for cells in self.cells]
        else:
            head = [[self.shown.get(name, name) for name in self.columns]] if self.has_header else []
            lines = [self._line(row) for row in [*head, *([cells[name] for name in self.columns]
                                                          for cells in self.cells)]]
        for index, line in self.lines.items():
            lines[index + (self.has_header and not self.is_json)] = line
        content = (self.line_end.join(lines) + self.line_end).encode("utf-8", "surrogatepass")
        for edit in self.edits:
            content = edit(content)
        return content

    def _line(self, values):
        if self.ending.lower() == ".tsv" or self.delimiter == "\t":
            return self.delimiter.join(map(str, values))
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=self.delimiter, lineterminator="\n",
                   quoting=csv.QUOTE_ALL if self.quote_all else csv.QUOTE_MINIMAL).writerow(values)
        return buffer.getvalue()[:-1]

    def set_text(self, index, text, column=0):
        """Replaces a text of a row, in the cell of the file and in `expected`."""
        self.cells[index][self.texts[column]] = text
        texts, label = self.expected[index]
        self.expected[index] = (*texts[:column], text, *texts[column + 1:]), label


# --- Header rows and columns -----------------------------------------------------------------------------


def plain(sheet):
    """Leaves the sheet as it is."""


def shuffled_columns(sheet):
    if sheet.has_header:
        sheet.chance.shuffle(sheet.columns)


_DISTRACTORS = ["id", "text_a", "text_b", "sentence", "Quality", "note", "probabilities", "error", "index"]


def more_columns(sheet):
    if not sheet.has_header:
        return
    for name in sheet.chance.sample(_DISTRACTORS, sheet.chance.randint(1, 3)):
        sheet.columns.insert(sheet.chance.randrange(len(sheet.columns) + 1), name)
        for index, cells in enumerate(sheet.cells):
            cells[name] = sheet.chance.choice([f"{name} {index}", str(index)])


def colliding_fields(sheet):
    if sheet.has_header:
        for name in ("input_label", "label", "input_input_label", "probabilities"):
            if name not in sheet.columns:
                sheet.columns.append(name)
                for index, cells in enumerate(sheet.cells):
                    cells[name] = f"kept {name} {index}"


def header_with_spaces(sheet):
    if sheet.has_header:
        sheet.shown = {name: f" {name} " for name in sheet.columns}
        sheet.expect("either")


def header_in_capitals(sheet):
    if sheet.has_header:
        sheet.shown = {name: name.upper() for name in sheet.columns}
        sheet.expect("either")


def no_header(sheet):
    if sheet.has_header and not sheet.is_json:
        sheet.has_header = False
        sheet.expect("refused")


def header_unexpected(sheet):
    if not sheet.has_header:
        sheet.has_header = True
        sheet.shown = dict(zip(sheet.columns, sheet.chance.choice([
            ("number", "kind", "words"), ("id", "label", "text"), ("1", "2", "3")])))
        sheet.flags = sheet.chance.choice([{}, {"header": "true"}])
        sheet.expect("right" if sheet.flags else "either")
        if sheet.shown["1"] == "1":
            sheet.expect("either")


def header_flag_false(sheet):
    if not sheet.has_header:
        sheet.flags = {"header": "false"}


def misspelled_column(sheet):
    if sheet.has_header:
        name = sheet.chance.choice(sheet.texts)
        sheet.shown = {name: name + sheet.chance.choice(["s", "_", "x"])}
        sheet.expect("refused")


def lacks_a_text(sheet):
    if sheet.has_header:
        sheet.columns.remove(sheet.texts[-1])
        sheet.expect("refused")


def lacks_the_label(sheet):
    if sheet.has_header:
        sheet.columns.remove(sheet.label)
        sheet.expect("refused", "dev", "train")


def text_column_twice(sheet):
    if sheet.has_header and not sheet.is_json:
        twin = sheet.columns.index(sheet.texts[0])
        sheet.columns.append("twin")
        for index, cells in enumerate(sheet.cells):
            cells["twin"] = f"another {index}"
        sheet.shown = {"twin": sheet.columns[twin]}
        sheet.expect("refused")


def named_otherwise(sheet):
    """Renames the columns of the texts, and passes the new names as --text_column."""
    if sheet.has_header:
        sheet.shown = {name: f"col {index}" for index, name in enumerate(sheet.texts)}
        sheet.flags = {"text_column": ",".join(sheet.shown.values())}


def flag_nonsense(sheet):
    sheet.flags = {"text_column": sheet.chance.choice(["", "99", "0", ",", "nowhere", "-99", "1,1", "a,,b"])}
    sheet.expect("refused")


# --- Formats ---------------------------------------------------------------------------------------------


def capital_ending(sheet):
    sheet.ending = sheet.ending.upper()


def semicolons(sheet):
    if sheet.ending == ".csv":
        sheet.delimiter = ";"


def tabs_in_csv(sheet):
    if sheet.ending == ".csv":
        sheet.delimiter = "\t"
        sheet.expect("either")


def commas_in_tsv(sheet):
    if sheet.ending == ".tsv":
        sheet.delimiter = ","
        sheet.expect("either" if not sheet.has_header else "refused")


def mark(sheet):
    sheet.edits.append(b"\xef\xbb\xbf".__add__)


def crlf(sheet):
    sheet.line_end = "\r\n"


def cr_alone(sheet):
    sheet.line_end = "\r"
    sheet.expect("either")


def all_quoted(sheet):
    sheet.quote_all = True


def compressed(sheet):
    sheet.suffix = ".gz"
    sheet.edits.append(gzip.compress)


def damaged_gzip(sheet):
    compressed(sheet)
    sheet.edits.append(lambda content: content[:-sheet.chance.randint(1, len(content) - 1)])
    sheet.expect("refused")


def not_gzip(sheet):
    sheet.suffix = ".gz"
    sheet.expect("refused")


def utf_16(sheet):
    sheet.edits.append(lambda content: content.decode().encode("utf-16"))
    sheet.expect("refused")


def latin_1(sheet):
    sheet.set_text(sheet.any_row(), "the café")
    sheet.edits.append(lambda content: content.replace(b"\\u00e9", "é".encode()).decode().encode("latin-1"))
    sheet.expect("refused")


def nul(sheet):
    def edit(content):
        place = sheet.chance.randrange(len(content) // 2, len(content))
        return content[:place] + b"\0" + content[place:]
    sheet.edits.append(edit)
    sheet.expected = None
    sheet.expect("refused")


def empty(sheet):
    sheet.edits.append(lambda content: b"")
    sheet.expected = []
    sheet.expect("refused", "test", "dev", "train")
    sheet.expect("either", "predict")


def header_alone(sheet):
    if not sheet.is_json and sheet.has_header:
        sheet.edits.append(lambda content: content.partition(b"\n")[0] + b"\n")
        sheet.expected = []
        sheet.expect("refused", "test", "dev", "train")
        sheet.expect("either", "predict")


def blank_line(sheet):
    index = sheet.any_row()
    def edit(content):
        lines = content.splitlines(keepends=True)
        return b"".join([*lines[:index], b"\n", *lines[index:]])
    sheet.edits.append(edit)
    sheet.expect("either")


def unclosed_quote(sheet):
    if sheet.ending == ".csv":
        index = sheet.any_row()
        sheet.lines[index] = '"' + sheet.delimiter.join(str(sheet.cells[index][name])
                                                        for name in sheet.columns)
        sheet.expect("refused")
        sheet.expected = None


def line_end_in_quotes(sheet):
    if sheet.ending == ".csv" or sheet.is_json:
        sheet.set_text(sheet.any_row(), "the cat\nsees a dog")


# --- Rows ------------------------------------------------------------------------------------------------


def short_row(sheet):
    if not sheet.is_json:
        index = sheet.any_row()
        sheet.lines[index] = sheet.delimiter.join(str(sheet.cells[index][name])
                                                  for name in sheet.columns[:-1])
        sheet.bad(index)


def long_row(sheet):
    if not sheet.is_json:
        index = sheet.any_row()
        sheet.lines[index] = sheet.delimiter.join(
            [*(str(sheet.cells[index][name]) for name in sheet.columns), "more"])
        sheet.bad(index)


def empty_text(sheet):
    index = sheet.any_row()
    sheet.set_text(index, sheet.chance.choice(["", " ", "\u3000", "\u00a0"]),
                   sheet.chance.randrange(len(sheet.texts)))
    sheet.bad(index)


def json_value(sheet):
    """Replaces a text with a JSON value that is not a string."""
    if sheet.is_json:
        index = sheet.any_row()
        value = sheet.chance.choice([None, [], {}, True, ["a"], {"a": 1}])
        sheet.cells[index][sheet.texts[-1]] = value
        sheet.bad(index)


def json_number(sheet):
    """Replaces a text with a number. A reader may use the digits as the text or refuse them, but not ignore
    them."""
    if sheet.is_json:
        index = sheet.any_row()
        value = sheet.chance.choice([0, 1, 1.5])
        sheet.set_text(index, str(value), len(sheet.texts) - 1)
        sheet.cells[index][sheet.texts[-1]] = value
        sheet.expect("either")


def json_without_the_key(sheet):
    if sheet.is_json:
        index = sheet.any_row()
        del sheet.cells[index][sheet.texts[-1]]
        sheet.bad(index)


def json_line(sheet):
    if sheet.is_json:
        index = sheet.any_row()
        sheet.lines[index] = sheet.chance.choice(['["a"]', '"the cat"', "17", "{", "null", "{}",
                                                  '{"premise": "a",}', "[" * 20000, "nonsense"])
        sheet.bad(index)


def json_key_twice(sheet):
    if sheet.is_json:
        index = sheet.any_row()
        line = json.dumps(sheet.cells[index])
        sheet.lines[index] = line[:-1] + f', "{sheet.texts[0]}": "the dog"}}'
        sheet.bad(index)


def surrogate(sheet):
    if sheet.is_json:
        index = sheet.any_row()
        sheet.set_text(index, "the \ud800 cat")
        sheet.lines[index] = json.dumps(sheet.cells[index])
        sheet.bad(index)
        sheet.expect("either", "test", "dev", "train")
        sheet.expected[index] = None


def huge_field(sheet):
    sheet.set_text(sheet.any_row(), "cat " * 50000)


def odd_spaces(sheet):
    sheet.set_text(sheet.any_row(), "the cat \u2028 a \x85 dog \u3000 here")


def escape_in_text(sheet):
    sheet.set_text(2, "the \x1b[ 2J \x07 cat")
    sheet.set_text(3, "the \x9b 31m cat")
    if not sheet.is_json:
        sheet.expect("either")


def escape_in_header(sheet):
    if sheet.has_header:
        sheet.columns.append("more")
        sheet.shown["more"] = "a\x1b[31mb"
        for cells in sheet.cells:
            cells["more"] = "1"
        if sheet.chance.random() < 0.5:
            sheet.shown[sheet.texts[0]] = "q\x1b[31m"
            sheet.expect("refused")


# --- Labels ----------------------------------------------------------------------------------------------


def unknown_label(sheet):
    if sheet.model != "scores":
        label = sheet.chance.choice(["neither", "NO", "0", "e\x1b[31m"])
        sheet.cells[sheet.any_row()][sheet.label] = [label] if sheet.model == "several" else label
        sheet.expect("refused", "test", "dev")
        sheet.expect("either", "train")


def missing_label(sheet):
    index = sheet.any_row()
    if sheet.is_json:
        del sheet.cells[index][sheet.label]
    else:
        sheet.cells[index][sheet.label] = ""
    sheet.expect("refused", "dev", "train")
    sheet.expect("either", "test")


def first_row_lacks_the_label(sheet):
    if sheet.is_json:
        del sheet.cells[0][sheet.label]
        sheet.expect("refused", "dev", "train")
        sheet.expect("either", "test")


def no_score(sheet):
    if sheet.model == "scores":
        sheet.cells[sheet.any_row()][sheet.label] = sheet.chance.choice(
            ["nan", "inf", "-inf", "1e400", "1_000", "١٢", "x", "1,5", "0x10", "1e39"])
        sheet.expect("refused", "test", "dev", "train")


def look_alike_labels(sheet):
    if sheet.model in ("single", "pair"):
        first, second = sheet.chance.choice([("né", "ne\u0301"), ("yes", "yes\u200b"), ("yes", "y\u00ades")])
        for index, cells in enumerate(sheet.cells):
            cells[sheet.label] = (first, second)[index % 2]
        sheet.expected = [(texts, None) for texts, _ in sheet.expected]
        sheet.expect("refused", "test", "dev")
        sheet.expect("either", "train")
        sheet.warns = True


def header_as_the_only_label(sheet):
    """Adds a first row that looks like a header row. The flag --header is not passed to the command.

    The label in this row occurs only once, and all other labels occur often.
    """
    if not sheet.has_header:
        sheet.has_header = True
        sheet.shown = dict(zip(sheet.columns, ("nr", "topic", "content")))
        sheet.expect("either")


KINDS = {function.__name__.replace("_", " "): function for function in (
    plain, shuffled_columns, more_columns, colliding_fields, header_with_spaces, header_in_capitals,
    no_header, header_unexpected, header_flag_false, misspelled_column, lacks_a_text, lacks_the_label,
    text_column_twice, named_otherwise, flag_nonsense, capital_ending, semicolons, tabs_in_csv,
    commas_in_tsv, mark, crlf, cr_alone, all_quoted, compressed, damaged_gzip, not_gzip, utf_16, latin_1,
    nul, empty, header_alone, blank_line, unclosed_quote, line_end_in_quotes, short_row, long_row,
    empty_text, json_value, json_number, json_without_the_key, json_line, json_key_twice, surrogate,
    huge_field, odd_spaces, escape_in_text, escape_in_header, unknown_label, missing_label,
    first_row_lacks_the_label, no_score, look_alike_labels, header_as_the_only_label)}


def draw(chance, model):
    """Makes a `Sheet`, and changes it in one way that is drawn at random from `KINDS`.

    If the drawn function does not change the sheet, because it does not fit the model, another function is
    drawn.

    Returns:
      (name of the change in `KINDS`, the changed `Sheet`).
    """
    while True:
        kind = chance.choice(sorted(KINDS))
        sheet = Sheet(chance, model)
        before = _state(sheet)
        KINDS[kind](sheet)
        if kind == "plain" or _state(sheet) != before:
            return kind, sheet


def _state(sheet):
    """Returns all attributes of a sheet as one text, except the random generator. The caller compares this
    text before and after a change of the sheet."""
    return repr({name: value for name, value in vars(sheet).items() if name != "chance"})
