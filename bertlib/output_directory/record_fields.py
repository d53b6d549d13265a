"""Contains the rules for run.json: the type and the bounds of each field and each setting.

The rule for a setting is in the table of flags. The setting max_seq_length is also limited by the model's
configuration.
"""

from bertlib.flag_table import entries, training
from bertlib.flag_table.entries import (
    LINE,
    MAX_INT32,
    MAX_INT64,
    TEXT,
    TEXTS,
    Rule,
    one_of,
    whole_number,
)
from bertlib.tasks import targets

_SHOWN_CHARACTERS = 60


# --- Rules -----------------------------------------------------------------------------------------------


def _or_null(rule):
    return Rule(lambda value: value is None or rule.holds(value), f"{rule.words}, or null")


def _object_of(rule):
    return Rule(lambda value: isinstance(value, dict) and all(map(rule.holds, value.values())),
                f"an object in which each value is {rule.words}")


def _fields(words, **rules):
    """Returns the rule for a JSON object whose fields obey `rules`. The object may also have other fields.

    Args:
      words: the text after "an object with" in the error message.
      **rules: {name of a field: its `Rule`}.
    """
    return Rule(lambda value: isinstance(value, dict) and all(
        rule.holds(value.get(name)) for name, rule in rules.items()), f"an object with {words}")


def _is_list_of_labels(value):
    return (isinstance(value, list) and len(value) > 0 and all(map(TEXT.holds, value))
            and len(set(value)) == len(value))


_BOOLEAN, _PATH = entries.Switch.rule, entries.Path.rule
_OBJECT = Rule(lambda value: isinstance(value, dict), "an object")
_LABELS = Rule(_is_list_of_labels, "a list of different texts")

# --- The table -------------------------------------------------------------------------------------------

# {field of the record: its rule}. Only "sessions" may be missing.
FIELDS = {
    "command": LINE, "started": LINE, "from_step": whole_number(0, MAX_INT64),
    "planned_steps": _or_null(whole_number(0, MAX_INT64)),
    "finished_step": _or_null(whole_number(0, MAX_INT64)),
    "task": LINE, "task_type": one_of(targets.NAMES), "labels": _or_null(_LABELS),
    "vocabulary": _or_null(TEXT), "do_lower_case": _or_null(_BOOLEAN), "bert_config": _OBJECT,
    "init_checkpoint": _or_null(_fields(
        "a path and a fingerprint", path=_PATH, fingerprint=_or_null(TEXT), repository=_or_null(LINE),
        revision=_or_null(LINE))),
    "train_data": _or_null(_fields("a fingerprint", fingerprint=TEXT)),
    "dev_data": _or_null(_fields("a fingerprint", fingerprint=TEXT)), "settings": _OBJECT,
    "dev_rows": _or_null(_fields("rows, of and fingerprint", rows=whole_number(0), of=whole_number(0),
                                 fingerprint=TEXT)),
    "task_module": _or_null(_fields("name, fingerprint and texts", name=LINE, fingerprint=TEXT,
                                    texts=_or_null(whole_number(1, 2)))),
    "files": _object_of(_or_null(_PATH)), "versions": _object_of(LINE), "model_files": _object_of(LINE),
    "flags": _OBJECT, "working_directory": _PATH, "code": TEXT,
    "arguments": _or_null(TEXTS),
    "inputs": _or_null(_object_of(_fields("bytes and a fingerprint", bytes=whole_number(0, MAX_INT64),
                                          fingerprint=TEXT))),
    "environment": _fields("git and variables", git=_or_null(_OBJECT), variables=_OBJECT),
    "sessions": Rule(lambda value: isinstance(value, list) and all(
        isinstance(one, dict) and type(one.get("step")) is int and isinstance(one.get("changed"), dict)
        for one in value), "a list of objects with a step and changed values"),
    "changes": Rule(lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
                    "a list of objects"),
}
_NUM_REPLICAS = entries.Integer("num_replicas", 1, "", least=1)


def find_entries(name, target, command=None):
    """Returns the entries in the table of flags for a recorded setting, a list; see `training.find`.

    Some settings are not flags: the command has found their values from the data, or has counted all
    replicas. `target` is a class in `bertlib.tasks.targets`.
    """
    more = [entry for entry in (_NUM_REPLICAS, *target.more_settings) if entry.name == name]
    return more or training.find(name, command)


def default_of_setting(name, target, command, default=None):
    """Returns the value that a setting has by default.

    Args:
      name: name of the setting.
      target: class of the target, see `bertlib.tasks.targets`.
      command: file name of the command that trained; None if it is unknown.
      default: the result if no command has such a setting, or if the setting has no default.
    """
    found = find_entries(name, target, command)
    return default if not found or found[0].default is None else found[0].default


def find_problem(record):
    """Returns a clause that describes the first problem of a record; None if the record obeys all rules.

    Args:
      record: content of run.json, a dict.
    """
    for name, rule in FIELDS.items():
        if name in record and not rule.holds(record[name]):
            return _describe_problem(name, record[name], rule.words)
    settings, config = record["settings"], record["bert_config"]
    target = targets.find(record["task_type"])
    for name, value in settings.items():
        found = find_entries(name, target, record.get("command"))
        if found and not any(entry.accepts(value) for entry in found):
            return _describe_problem(f"settings.{name}", value, found[0].words)
    longest = config.get("max_position_embeddings", MAX_INT32)
    if not whole_number(1).holds(longest):
        return _describe_problem("bert_config.max_position_embeddings", longest, whole_number(1).words)
    if settings.get("max_seq_length", 0) > longest:
        return _describe_problem("settings.max_seq_length", settings["max_seq_length"],
                                 f"at most {longest}, the model's max_position_embeddings")
    if problem := target.find_problem(settings, longest):
        name, words = problem
        return _describe_problem(f"settings.{name}", settings.get(name), words)
    if target.has_labels != (record["labels"] is not None):
        words = _LABELS.words if target.has_labels else "null"
        return _describe_problem("labels", record["labels"], f"{words}, since the model is for {target.name}")
    return None


def _describe_problem(name, value, words):
    return f"{name} is {shorten(value)}, and has to be {words}"


def shorten(value):
    """Returns a value as text for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
