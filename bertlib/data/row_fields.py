"""Names the fields of rows, for tables that contain the columns of the input."""

import functools
import itertools
import json


def _field_names(header, texts, width):
    """Returns the names of the fields of a row, a list of str without repetitions. `width` is the number of
    fields. For the other arguments, see `field_reader`."""
    names, header_names = [], set(header or ())
    for place in range(width):
        own_name = (header[place] if place < len(header) else "") if header is not None else texts.get(place)
        plain = own_name or f"column_{place + 1}"
        choices = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        names.append(next(name for name in choices
                          if name not in names and (name == own_name or name not in header_names)))
    return names


def field_reader(header, texts=None):
    """Returns a function that converts each row of a file into {name of a field: text}. A row is a list of
    str; for JSON Lines, a dict, see `to_texts`.

    If the file has a header, the names are those in the header. Without a header, a text has the name in
    `texts`, and any other field is named after its column, such as column_3. If two fields would have the
    same name, a number is added to the name of the later field: text, text_2.

    Args:
      header: list of str, the header row of the file; None for a file without a header row.
      texts: {index of a column: name of a text}; None without names of texts.
    """
    names_of = functools.cache(lambda width: _field_names(header, texts or {}, width))
    return lambda row: to_texts(row) if isinstance(row, dict) else dict(zip(names_of(len(row)), row))


def to_texts(fields):
    """Returns the fields of a row, {name: value}, in which each value that is neither a text nor None is
    converted to JSON."""
    return {name: value if value is None or isinstance(value, str) else
            json.dumps(value, ensure_ascii=False) for name, value in fields.items()}


def rename_fields(names, result_names):
    """Renames the fields of an input if their names are already names of results in the same output.

    A renamed field gets the prefix "input_". If the input already has a field with the prefixed name, the
    prefix is added twice. Example: if a result has the name "label", the input fields "label" and
    "input_label" become "input_input_label" and "input_label".

    Args:
      names: the names of the input's fields, without repetition.
      result_names: container of the names of the results.

    Returns:
      {name: new name}.
    """
    new_names = {}
    names_in_use = set()
    for name in names:
        new = name
        while new in result_names or new in names_in_use or new != name and new in names:
            new = f"input_{new}"
        new_names[name] = new
        names_in_use.add(new)
    return new_names
