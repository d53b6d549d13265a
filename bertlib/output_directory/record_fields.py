"""Contains the rules for run.json: the types of its fields and the bounds of its settings.

The rule for a setting is in the table of flags. The setting max_seq_length is also limited by the model's
configuration.
"""

from bertlib.flag_table import entries, training
from bertlib.flag_table.entries import MAX_INT32, whole_number
from bertlib.tasks import targets

_SHOWN_CHARACTERS = 60
_TEXT, _COUNT = (str, None), (int, None)
# {field of the record: the form of its value}. A form is a type, None, or a tuple of possible forms. A list
# [form] describes a list of such values, and {name: form} an object with these fields. The name "*" stands
# for all fields of an object. Only "sessions" may be missing.
FIELDS = {
    "command": str, "started": str, "from_step": int, "planned_steps": _COUNT, "finished_step": _COUNT,
    "task": str, "task_type": str, "labels": ([str], None), "vocabulary": _TEXT,
    "do_lower_case": (bool, None), "bert_config": dict,
    "init_checkpoint": ({"path": str, "fingerprint": _TEXT}, None),
    "train_data": ({"fingerprint": str}, None), "dev_data": ({"fingerprint": str}, None), "settings": dict,
    "dev_rows": ({"rows": int, "of": int, "fingerprint": str}, None),
    "task_module": ({"name": str, "fingerprint": str, "texts": _COUNT}, None), "files": {"*": _TEXT},
    "versions": {"*": str}, "model_files": {"*": str}, "flags": dict, "working_directory": str, "code": str,
    "arguments": ([str], None), "inputs": ({"*": {"bytes": int, "fingerprint": str}}, None),
    "environment": {"git": (dict, None), "variables": dict},
    "sessions": [{"step": int, "changed": dict}], "changes": [dict],
}


def _has_form(value, form):
    """Returns whether a value has a form, see `FIELDS`."""
    if isinstance(form, tuple):
        return any(_has_form(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_has_form(one, form[0]) for one in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            all(_has_form(one, rule) for one in value.values()) if name == "*"
            else _has_form(value.get(name), rule) for name, rule in form.items())
    return value is None if form is None else type(value) is form


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
    wrong = next((name for name, form in FIELDS.items() if name in record and not _has_form(
        record[name], form)), None)
    if wrong is None and record["task_type"] not in targets.NAMES:
        wrong = "task_type"
    if wrong:
        return f"{wrong} is {shorten(record[wrong])}"
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
    if target.has_labels != bool(record["labels"]):
        words = "a list of texts" if target.has_labels else "null"
        return _describe_problem("labels", record["labels"], f"{words}, since the model is for {target.name}")
    return None


def _describe_problem(name, value, words):
    return f"{name} is {shorten(value)}, and has to be {words}"


def shorten(value):
    """Returns a value as text for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
