"""Reads the file of --label_map: a table of labels in the user's files, and of the labels that replace them.

Only runs with this flag load the module.
"""

from bertlib.data import tables, text_keys
from bertlib.data.tables import RowError

_HEADER = "old,new"


def read(path, encoding="utf-8"):
    """Reads a .csv or .tsv file with two columns: the old label and the new label. The first row may be the
    header `old,new`. White space around a label is ignored, and so are empty rows of a spreadsheet.

    Args:
      path: the file.
      encoding: name of the encoding.

    Returns:
      {old label: new label}.

    Raises:
      FileNotFoundError, ValueError: the file is missing, is empty or has errors. The message names the line.
    """
    input_format = tables.format_from_name(path)
    if input_format == "jsonl":
        raise ValueError(f"--label_map={path}: the name of the file must end in .csv or .tsv.")
    mapping, lines = {}, {}
    with tables.open_table(path) as stream:
        for line, row in tables.Table(stream, input_format, encoding=encoding):
            if isinstance(row, RowError):
                raise row
            values = [value.strip() for value in row]
            if not any(values) or not lines and ",".join(values).lower() == _HEADER:
                continue
            if len(values) != 2 or not all(map(text_keys.visible_text, values)):
                raise RowError(line, "the row must consist of an old and a new label, such as Yes,yes. "
                               "Complete the row or remove it.")
            old, new = values
            if mapping.setdefault(old, new) != new:
                raise RowError(line, f"the label {old!r:.80} becomes {new!r:.80}, but in line "
                               f"{lines[old]} it becomes {mapping[old]!r:.80}. Remove one of the two rows.")
            lines[old] = line
        for old, new in mapping.items():
            last = mapping.get(new, new)
            if last != new:
                raise RowError(lines[old], f"the label {old!r:.80} becomes {new!r:.80}, which becomes "
                               f"{last!r:.80} in line {lines[new]}. Write the last label in both rows.")
    if not mapping:
        raise ValueError(f"{path}: the file is empty; it should contain an old and a new label in each row.")
    return mapping
