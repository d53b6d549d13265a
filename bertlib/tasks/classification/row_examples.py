"""The labels of the user's own data: reads, counts, checks and logs them. Also reads a file again in the same
way as a training."""

import collections

from absl import logging

from bertlib.data import columns, labelled_rows, prediction_files, tables, text_keys
from bertlib.data.labelled_rows import parse_score
from bertlib.runs import registry
from bertlib.system import files

_LARGE_SCORE = 5  # the largest score of STS-B, the published regression
_MAX_LISTED = 30  # number of labels that the log lists
_SEPARATORS = ",;|/"  # characters with which files join the labels of a text
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})  # lower case; folding the case replaces ß by ss


def label_names(label):
    """Returns the names of a row's labels, a tuple. It has one element if the row has a single label."""
    return label if isinstance(label, tuple) else (label,)


def count_labels(rows):
    """Returns {label: number of rows with this label}, sorted by label.

    The order is numeric if all labels are numbers, otherwise alphabetical.
    """
    counts = collections.Counter(name for row in rows for name in label_names(row.label))
    numbers = {name: parse_score(name) for name in counts}
    all_numbers = None not in numbers.values()
    return {name: counts[name] for name in sorted(
        counts, key=lambda name: (numbers[name], name) if all_numbers else name)}


def read_as_in_training(record, path, known=None):
    """Reads a file with the user's own data as a training has read its files.

    Args:
      record: the record of the training.
      path: the file.
      known: see `labelled_rows.ExampleReader.read`.

    Returns:
      see `labelled_rows.ExampleReader.read`, also for the errors.
    """
    return _reader_of_training(record).read(path, known_labels=known)


def texts_as_in_training(record, path):
    """Yields the `columns.TextRow`s of a file, without rows whose texts cannot be used. Few rows are in
    memory at the same time. For the arguments and errors, see `read_as_in_training`."""
    with tables.open_table(path) as stream:
        for row in columns.TextFile(_reader_of_training(record), stream, path,
                                    tables.format_from_name(path)):
            if not row.bad:
                yield row


def _reader_of_training(record):
    """Returns a `labelled_rows.ExampleReader` that repeats no messages of the training."""
    setting = record["settings"].get
    has_named_columns = tables.is_json_lines(record["files"].get("train_file"))
    label_kind = registry.find_target(record["task_type"]).label_kind(setting)
    reader = labelled_rows.ExampleReader(label_kind, setting, lambda flag: has_named_columns,
                                         setting("skip_bad_lines", False))
    reader.is_quiet = True
    return reader


def read_labels(path):
    """Reads a file with one label in each line. Returns the list of labels in the order of the file.

    Raises:
      FileNotFoundError, ValueError: the file is missing or empty, or a label occurs twice. The message names
        the line.
    """
    lines = [line.strip() for line in files.read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ValueError(f"{path}: the file is empty; it should contain one label in each line.")
    for number, line in enumerate(lines, 1):
        if not line or line in lines[:number - 1]:
            problem = f"the label {line!r} occurs twice" if line else "the line is blank"
            raise ValueError(f"{path}:{number}: {problem}; each line should contain a different label.")
        with tables.name_file_in_errors(path):
            labelled_rows.check_name(number, line)
    return lines


def label_checker(labels, source):
    """Returns the argument `find_problem` of `labelled_rows.ExampleReader.read` for known labels.

    Args:
      labels: list of the valid labels.
      source: str, the source of the labels for the error message, such as "the labels in --train_file=a.csv".
    """
    known = set(labels)

    def find_problem(_, label):
        unknown = next((name for name in label_names(label) if name not in known), None)
        if unknown is None:
            return None
        allowed = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        similar = [name for name in labels if text_keys.visible_text(name) == text_keys.visible_text(unknown)
                   or parse_score(name) == parse_score(unknown) is not None]
        hint = (f" {ascii(unknown)} looks like {ascii(similar[0])}: the two differ only in white space, "
                "invisible characters, the encoding of accents or the notation of a number. pandas writes 1 "
                "as 1.0 if the column has missing values.") if similar else ""
        return (f"the label {unknown!r:.80} is not one of {allowed} ({source}); correct the row or remove "
                f"it.{hint}")

    return find_problem


def similar_labels(labels):
    """Returns groups of similar labels. The labels of a group differ only in letter case or in the spelling
    of umlauts ("ae" for "ä"), or are spellings of the same number, such as "1" and "1.0".

    Returns:
      list of lists of str.
    """
    groups = collections.defaultdict(list)
    for label in labels:
        number = parse_score(label)
        key = text_keys.text_key(label)[0].translate(_UMLAUTS) if number is None else number
        groups[key].append(label)
    return [group for group in groups.values() if len(group) > 1]


def _format_label_map(replaced):
    """Returns the content of a file for --label_map without a header. `replaced` is {old label: new label}.
    """
    return "\n".join(prediction_files.format_csv_row(pair).strip() for pair in replaced.items())


def _warn_of_similar_labels(name, counts):
    """Logs one warning about all labels that differ only in letter case or look misspelled, with the content
    of a file for --label_map. `counts` is {label: number of rows with this label}."""
    counts, replaced, reasons = dict(counts), {}, []
    for group in similar_labels(counts):
        new = max(group, key=counts.get)
        reasons.append(f"the labels {' and '.join(group)} differ only in letter case or spelling")
        replaced.update((old, new) for old in group if old != new)
        counts[new] = sum(map(counts.pop, group))
    for rare, frequent in text_keys.find_misspellings(counts).items():
        reasons.append(f"the label {rare!r} occurs {counts[rare]} times, and looks like a misspelling of "
                       f"{frequent!r}, which occurs {counts[frequent]} times")
        replaced[rare] = frequent
    for old, new in replaced.items():  # the new label of a row must not be the old label of another row
        while new in replaced:
            new = replaced[new]
        replaced[old] = new
    if replaced:
        logging.warning("%s: these labels probably mean the same, but count as different labels:\n  %s\nIf "
                        "this is right, write them in the same way. Or save the next lines as labels.csv, "
                        "without those that are wrong, and pass --label_map=labels.csv:\nold,new\n%s",
                        name, "\n  ".join(reasons), _format_label_map(replaced))


def check_distinguishable(labels, label_file, train):
    """Checks that no two labels look the same.

    Args:
      labels: list of str.
      label_file: the file with the labels in this order; None if they are the labels of `train`.
      train: the `labelled_rows.ExampleFile` of the training.

    Raises:
      ValueError: two labels look the same. The message names their places.
    """
    def place(label):
        if label_file:
            return f"{label_file}:{labels.index(label) + 1}"
        return next(f"{train.path}:{row.line}" for row in train.rows if label in label_names(row.label))

    seen = {}
    for label in labels:
        other = seen.setdefault(text_keys.visible_text(label), label)
        if other != label:
            raise ValueError(f"{place(label)}: the label {ascii(label):.80} looks like the label "
                             f"{ascii(other):.80} ({place(other)}): they differ only in white space, "
                             "invisible characters or the encoding of accents. Write both labels in the same "
                             "way, or pass --label_map=labels.csv, a file with "
                             f"`{_format_label_map({label: other})}`.")


def check_several_labels(file):
    """Raises a ValueError if all rows have the same label, because nothing can be learned from such rows."""
    if len({row.label for row in file.rows}) < 2:
        label = ", ".join(map(str, label_names(file.rows[0].label))) or "no label"
        raise ValueError(f"{file.path}: all {len(file.rows)} examples have the same label, {label}, so "
                         "there is nothing to learn. If the labels are in another column, name it with "
                         "--label_column.")


def _usual_number(labels, count):
    """Returns the largest usual number of labels for `count` examples. It is smaller if nearly all labels are
    numbers, which may be scores, and smallest if some of these numbers have decimals."""
    numbers = [number for number in (parse_score(label.replace(",", ".")) for label in labels)
               if number is not None]
    if len(numbers) < 0.9 * len(labels):
        return max(10, count / 2)
    return max(10, count / 10) if all(map(float.is_integer, numbers)) else 5


def log_labels(name, file, target, warns):
    """Logs the number of examples in total and for each label. If `warns` is true, warns if labels look
    misspelled or consist of other labels, if scores are large, or if there are very many labels: then
    --label_column or --task_type is probably wrong.
    """
    if not file.is_labelled:
        logging.info("%s: %d examples, without labels.", name, len(file.rows))
        return
    if target.labels is None:
        scores = [row.label for row in file.rows]
        logging.info("%s: %d examples, scores from %g to %g.", name, len(scores), min(scores), max(scores))
        if warns and max(map(abs, scores)) > _LARGE_SCORE:
            logging.warning("%s: the outputs of a new model are near 0 and change slowly, so a usual "
                            "training may not reach these scores. Scale them to a small range around 0, for "
                            "example from -2 to 2.", name)
        return
    counts = {**dict.fromkeys(target.labels, 0), **count_labels(file.rows)}
    listed = [f"{label} {counts[label]}" for label in target.labels[:_MAX_LISTED]]
    more = len(target.labels) - len(listed)
    logging.info("%s: %d examples: %s%s.", name, len(file.rows), ", ".join(listed),
                 f" and {more} more labels" if more else "")
    if not warns:
        return
    _warn_of_similar_labels(name, counts)
    for sign in _SEPARATORS:
        joined = [label for label in target.labels if sign in label and
                  {part.strip() for part in label.split(sign)} <= set(target.labels)]
        if joined:
            logging.warning("%s: the label %r consists of other labels. If an example can have several "
                            "labels, pass --task_type=multilabel --label_separator='%s'.", name, joined[0],
                            sign)
    if not target.is_multilabel and target.size > _usual_number(target.labels, len(file.rows)):
        logging.warning("%s: there are %d labels for %d examples. If the labels are in another column, name "
                        "it with --label_column. If the labels are scores, pass --task_type=regression.",
                        name, target.size, len(file.rows))
