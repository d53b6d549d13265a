"""Decides, from a stored record and the record of a run, what the run may do in an output directory.

All functions are pure: they read no files and log nothing.
"""

import dataclasses
import json

from bertlib.checkpoints.bert_config import BertConfig
from bertlib.runs import environment

# Keys of a configuration. The values of these keys may differ between two runs, because they do not change
# the architecture.
TRAINING_CONFIG_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
# All keys of a published configuration, and "hub_module", which run_classifier_with_tfhub.py adds. Other
# keys, such as `_name_or_path` in a configuration of Hugging Face, do not change the outputs of the model, so
# their values are not compared.
CONFIG_KEYS = frozenset([*BertConfig(vocab_size=1).to_dict(), "hub_module"])
# Names of the flags that affect which weights of a training are kept as the best ones, and whether the
# training ends early. Later commands do not inherit their values.
EVALUATIONS = ("eval_every_steps", "keep_best", "early_stopping_evals")
DEV_DATA = "development data"  # the name of the development set in an entry of "changes" in run.json
# Names in such an entry. If one of these values changes, the same weights get other scores.
CHANGES_SCORES = frozenset([
    DEV_DATA, "doc_stride", "label_all_pieces", "max_answer_length", "max_query_length", "max_seq_length",
    "n_best_size", "null_score_diff_threshold", "protect_special_tokens", "task_module", "threshold"])
_ACCUMULATION = "gradient_accumulation_steps"
# Fields that describe the first session of a training. A later session does not change these fields, even if
# its settings differ.
_OF_FIRST_SESSION = ("started", "from_step", "command", "flags", "arguments", "working_directory", "inputs",
                     "code", "environment")


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a run may do in a directory. A difference is {name of a value: [old value, new value]}.

    Attributes:
      has_steps_left: whether the run has steps to train.
      refused: differences for which the run cannot continue the training. If there are any, the other
        attributes have no meaning.
      changed: all other differences.
      evaluations: changed settings of the evaluations of a training that has no steps left. Even then,
        --keep_best decides which weights later commands use. Empty if the settings have no effect.
      dev_data: [old value, new value] if the run, which does not train, evaluates other development data than
        the training; otherwise None.
      record: the record to write; None if the stored record stays.
    """

    has_steps_left: bool
    refused: dict = dataclasses.field(default_factory=dict)
    changed: dict = dataclasses.field(default_factory=dict)
    evaluations: dict = dataclasses.field(default_factory=dict)
    dev_data: list | None = None
    record: dict | None = None


def compare(stored, now, step, last_step, do_train):
    """Compares a run with the training in its output directory.

    Args:
      stored: the record of the training; None if there is no record.
      now: the record of the run, see `record_content.create_record`.
      step: step of the newest checkpoint in the directory; None if there is no checkpoint.
      last_step: the step at which the run ends.
      do_train: whether the run trains.

    Returns:
      a `Decision`.
    """
    if step is None:
        return Decision(do_train, record=now if do_train else None)
    has_steps_left = do_train and step < last_step
    if stored is None:  # google-research/bert wrote the directory; a training writes a record in any case
        return Decision(has_steps_left, record={**now, "from_step": step} if do_train else None)
    return _compare_with_record(stored, now, step, do_train, has_steps_left)


def _compare_with_record(stored, now, step, do_train, has_steps_left):
    """Returns the `Decision` of a run in a directory with a record and a checkpoint; see `compare`.
    `has_steps_left` is whether the run has steps to train."""
    refused, changed = differences(stored, now, do_train)
    if refused:
        return Decision(has_steps_left, refused)
    dev_data, evaluations, record = None, {}, None
    if not has_steps_left:
        dev_data = changed.pop(DEV_DATA, None)
    if do_train and not has_steps_left:
        evaluations = {name: changed.pop(name) for name in EVALUATIONS if name in changed}
        before = stored["settings"].get("keep_best")
        if before is None and evaluations.get("keep_best", [None, None])[1] is None:
            evaluations = {}  # no best weights are kept, neither before nor now
        if evaluations:
            values = {name: value for name, (_, value) in evaluations.items()}
            record = {**stored, "settings": {**stored["settings"], **values},
                      "changes": _with_change(stored, now, step, evaluations)}
    if has_steps_left:
        record = _continued(stored, now, step, changed)
    return Decision(has_steps_left, {}, changed, evaluations, dev_data, record)


def _continued(stored, now, step, changed):
    """Returns the record of a training that goes on in a new session; None if the stored record stays."""
    record = None
    if changed:
        first = {name: stored[name] for name in _OF_FIRST_SESSION}
        record = {**now, **first, "changes": _with_change(stored, now, step, changed)}
    sessions = stored.get("sessions", [])
    other_environment = _changes_of_environment(stored, now)
    if other_environment:
        sessions = [*sessions, {"step": step, "at": now["started"], "changed": other_environment}]
        record = record or stored
    return {**record, "sessions": sessions} if record and sessions else record


def _with_change(stored, now, step, changed):
    """Returns the field "changes" of the stored record, with an additional entry."""
    return [*stored["changes"], {"step": step, "at": now["started"], "changed": changed}]


def differences(stored, now, do_train):
    """Compares the record in the output directory with the record of the run.

    Args:
      stored: the record in the directory.
      now: the record of the run, see `record_content.create_record`.
      do_train: whether the run trains.

    Returns:
      a pair of dicts {name: [old value, new value]}. The first dict contains the differences for which the
      run is refused. The second dict contains all other differences.
    """
    refused, allowed = _differences_of_models(stored, now, do_train)
    if do_train:
        settings = stored["settings"], now["settings"]
        maps = [values.get("mapped_labels") for values in settings]
        if maps[0] != maps[1]:  # the labels of the same examples would differ
            refused["label_map"] = maps
        allowed |= {**_differences_of_settings(*settings), **_differences_of_data(stored, now),
                    **_changed_values(stored["versions"], now["versions"])}
    return refused, allowed


def _differ(stored, now, name):
    """Returns whether both records have a value of this name, and the two values differ."""
    return None not in (stored[name], now[name]) and stored[name] != now[name]


def _differences_of_models(stored, now, do_train):
    """Compares what two runs must have in common to use the same weights; see `differences`."""
    records = stored, now
    refused = {name: [record[name] for record in records]
               for name in ("task", "task_type", "labels", "do_lower_case") if _differ(stored, now, name)}
    if _differ(stored, now, "vocabulary"):
        refused["vocabulary"] = list(map(_describe_vocabulary, records))
    allowed = {}
    modules = [record["task_module"] for record in records]
    if all(modules) and modules[0]["fingerprint"] != modules[1]["fingerprint"]:
        allowed["task_module"] = [_with_fingerprint(module["name"], module) for module in modules]
    if not do_train and "task" in refused and "labels" not in refused:
        # A model may be evaluated on the data of another task if both tasks have the same labels.
        allowed["task"] = refused.pop("task")
    if _differ(stored, now, "dev_data") and "task" not in allowed:
        allowed[DEV_DATA] = [_describe_data(record["dev_data"]) for record in records]
    config = _changed_values(stored["bert_config"], now["bert_config"])
    for name in sorted(CONFIG_KEYS & set(config)):
        if name not in TRAINING_CONFIG_KEYS:
            refused[name] = config[name]
        elif do_train:
            allowed[name] = config[name]
    return refused, allowed


def _differences_of_settings(stored, now):
    """Returns {name: [old value, new value]} of the settings of two trainings."""
    changed = _changed_values(stored, now)
    if changed.get(_ACCUMULATION) in ([None, 1], [1, None]) and not now.get("tokens_per_micro_batch"):
        del changed[_ACCUMULATION]  # the default is 1
    return changed


def settings_of_first_session(record):
    """Returns the settings with which a training began: those of its record, before all later changes."""
    settings = dict(record["settings"])
    for change in reversed(record["changes"]):
        settings.update({name: values[0] for name, values in change["changed"].items() if name in settings})
    return settings


def _differences_of_data(stored, now):
    """Returns {name: [old value, new value]} of the starting weights and the training data in two records."""
    changed, records = {}, (stored, now)
    starts = [record["init_checkpoint"] or {"path": None, "fingerprint": None} for record in records]
    compared = "fingerprint" if all(start["fingerprint"] for start in starts) else "path"
    if starts[0][compared] != starts[1][compared]:
        changed["init_checkpoint"] = [_with_fingerprint(start["path"], start) for start in starts]
    if _differ(stored, now, "train_data"):
        changed["training data"] = [_describe_data(record["train_data"]) for record in records]
    return changed


def _changed_values(before, after):
    """Returns {name: [old value, new value]} for the values in both dicts that differ."""
    return {name: [before[name], value] for name, value in after.items()
            if name in before and before[name] != value}


def _changes_of_environment(stored, now):
    """Returns the changes of the environment since the last session of a training, as a dict. Each key is the
    name of a value that has changed, and its entry is the list [old value, new value]."""
    before, after = environment.flatten(stored), environment.flatten(now)
    for session in stored.get("sessions", []):
        before.update({name: values[-1] for name, values in session["changed"].items()
                       if isinstance(values, list) and values})
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names
            if before.get(name) != after.get(name)}


def _with_fingerprint(name, start):
    return f"{name} ({start['fingerprint'][:8]})" if start["fingerprint"] else name


def _describe_vocabulary(record):
    paths = record["files"]
    return _with_fingerprint(paths.get("vocab_file") or paths.get("spm_model_file"),
                             {"fingerprint": record["vocabulary"]})


def _describe_data(data):
    counts = ", ".join(f"{value} {name}" for name, value in data.items() if name != "fingerprint")
    return _with_fingerprint(counts, data)


def dev_paths(record):
    """Returns the paths of the development data, a list. Without --eval_file, a pre-training evaluates
    --input_file."""
    paths = record["files"]
    return [paths.get(name) for name in ("data_dir", "dev_file", "predict_file")] + [
        paths.get("eval_file") or paths.get("input_file")]


def format_differences(changed):
    """Returns differences, {name: [old value, new value]}, as a text for messages."""
    def text(value):
        return value if isinstance(value, str) else json.dumps(value)

    return "; ".join(f"{name}: {text(old)} -> {text(new)}" for name, (old, new) in changed.items())
