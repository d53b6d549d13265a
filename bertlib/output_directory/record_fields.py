"""Contains the rules for run.json: the type and the bounds of each field and each setting. Also contains the
values that settings had in older versions, which did not record these settings.

A setting has the same bounds as the flag with the same name. tests/tasks/test_record_fields.py checks this.
The setting max_seq_length is also limited by the model's configuration.
"""

from collections.abc import Callable
import math
import re
from typing import Any, NamedTuple

from bertlib.rows import columns, tables
from bertlib.tasks.classification import classifier_data
from bertlib.tasks.multiple_choice import choice_data
from bertlib.tasks.tagging import tagging_data, word_splitter
import modeling
import optimization

# The kinds of heads. The value says whether a head of this kind has labels.
KINDS = {"classification": True, "regression": False, "multilabel": True, "tagging": True,
         "questions": False, "multiple_choice": False, "pre-training": False}
# Upper bounds for values in run.json. They apply to flags whose definitions set no upper bound.
MAX_INT32, MAX_SEED, MAX_EPOCHS = 2**31 - 1, 2**63 - 1, 1e9
_SHOWN_CHARACTERS = 60


class Rule(NamedTuple):
    """A rule for a value.

    Attributes:
      holds: function that takes a value, and returns whether the value obeys the rule.
      words: the words that follow "has to be" in messages.
    """

    holds: Callable[[Any], bool]
    words: str


# --- Rules -----------------------------------------------------------------------------------------------


def _integer(least, most=MAX_INT32):
    return Rule(lambda value: type(value) is int and least <= value <= most,
                f"a whole number from {least} to {most}")


def _number(holds, words):
    return Rule(lambda value: type(value) in (int, float) and math.isfinite(value) and holds(value),
                f"a number {words}".rstrip())


def _one_of(*values):
    return Rule(lambda value: isinstance(value, str) and value in values, f"one of {', '.join(values)}")


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
    return (isinstance(value, list) and len(value) > 0 and all(map(_is_text, value))
            and len(set(value)) == len(value))


def _is_text(value):
    # A text with surrogates is invalid, because surrogates cannot be written as UTF-8.
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


_BOOLEAN = Rule(lambda value: isinstance(value, bool), "true or false")
_TEXT = Rule(_is_text, "a text")
# Unlike a text, a path may contain surrogates: Python decodes file names that are not UTF-8 into surrogates.
_PATH = Rule(lambda value: isinstance(value, str), "a path")
_LINE = Rule(lambda value: isinstance(value, str) and value.isprintable(),
             "a text without control characters")
_OBJECT = Rule(lambda value: isinstance(value, dict), "an object")
_POSITIVE = _number(lambda value: value > 0, "above 0")
_LABELS = Rule(_is_list_of_labels, "a list of different texts")
_COLUMN = Rule(lambda value: type(value) is int and abs(value) <= MAX_INT32,
               f"a whole number from {-MAX_INT32} to {MAX_INT32}")

# --- The table -------------------------------------------------------------------------------------------

# {field of the record: its rule}. Records of older versions may lack fields; `output_files.read_record`
# checks that the required fields exist.
FIELDS = {
    "command": _or_null(_LINE), "started": _or_null(_LINE), "from_step": _or_null(_integer(0, MAX_SEED)),
    "planned_steps": _or_null(_integer(0, MAX_SEED)), "finished_step": _or_null(_integer(0, MAX_SEED)),
    "task": _LINE, "task_type": _or_null(_one_of(*KINDS)), "labels": _or_null(_LABELS),
    "vocabulary": _or_null(_TEXT), "do_lower_case": _or_null(_BOOLEAN), "bert_config": _OBJECT,
    "init_checkpoint": _or_null(_fields(
        "a path and a fingerprint", path=_PATH, fingerprint=_or_null(_TEXT), repository=_or_null(_LINE),
        revision=_or_null(_LINE))),
    "train_data": _or_null(_fields("a fingerprint", fingerprint=_TEXT)),
    "dev_data": _or_null(_fields("a fingerprint", fingerprint=_TEXT)), "settings": _OBJECT,
    "dev_rows": _or_null(_fields("rows, of and fingerprint", rows=_integer(0), of=_integer(0),
                                 fingerprint=_TEXT)),
    "task_module": _or_null(_fields("name, fingerprint and texts", name=_LINE, fingerprint=_TEXT,
                                    texts=_or_null(_integer(1, 2)))),
    "files": _object_of(_or_null(_PATH)), "versions": _object_of(_LINE), "model_files": _object_of(_LINE),
    "flags": _or_null(_OBJECT), "working_directory": _or_null(_PATH), "code": _or_null(_TEXT),
    "arguments": _or_null(Rule(lambda value: isinstance(value, list) and all(
        isinstance(one, str) for one in value), "a list of texts")),
    "inputs": _or_null(_object_of(_fields("bytes and a fingerprint", bytes=_integer(0, MAX_SEED),
                                          fingerprint=_TEXT))),
    "environment": _or_null(_OBJECT),
    "sessions": Rule(lambda value: isinstance(value, list) and all(
        isinstance(one, dict) and type(one.get("step")) is int and isinstance(one.get("changed"), dict)
        for one in value), "a list of objects with a step and changed values"),
    "changes": Rule(lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
                    "a list of objects"),
}
# {setting: its rule}, for each flag that run.json records. run.json records all flags that affect the input,
# the task or the weights. It also records a few flags that affect only the speed.
SETTINGS = {
    "max_seq_length": _integer(3), "max_predictions_per_seq": _integer(1), "doc_stride": _integer(0),
    "max_query_length": _integer(1), "max_answer_length": _integer(1), "n_best_size": _integer(1),
    "null_score_diff_threshold": _number(lambda value: True, ""), "protect_special_tokens": _BOOLEAN,
    "num_choices": _integer(choice_data.MIN_CHOICES, choice_data.MAX_CHOICES),
    "label_all_pieces": _BOOLEAN, "token_column": _COLUMN, "tag_column": _COLUMN,
    "num_columns": _integer(1), "tag_scheme": _one_of(*tagging_data.SCHEMES),
    "word_splitting": _one_of(*word_splitter.SPLITTINGS), "text_column": _or_null(_TEXT),
    "label_column": _or_null(_TEXT), "header": _one_of("auto", "true", "false"),
    "delimiter": Rule(lambda value: isinstance(value, str) and columns.is_delimiter(value),
                      f"one of {', '.join(columns.DELIMITERS)}, or a single character"),
    "encoding": Rule(lambda value: isinstance(value, str) and tables.check_encoding(value),
                     "the name of a text encoding"), "skip_bad_lines": _BOOLEAN,
    "max_train_examples": _or_null(_integer(1)),
    "label_separator": Rule(lambda value: isinstance(value, str) and value != "" and value.isprintable(),
                            "one or more printable characters"),
    "threshold": _number(lambda value: 0 < value < 1, "between 0 and 1"),
    "xnli_language": _one_of(*classifier_data.XnliProcessor.LANGUAGES),
    "crf": _BOOLEAN, "version_2_with_negative": _BOOLEAN,
    "dev_fraction": _or_null(_number(lambda value: 0 < value <= 0.5, "above 0 and at most 0.5")),
    "class_weights": _or_null(_TEXT), "label_smoothing": _number(lambda value: 0 <= value < 1,
                                                                 "from 0 to below 1"),
    "train_batch_size": _integer(1), "learning_rate": _POSITIVE,
    "optimizer": _one_of(*optimization.OPTIMIZERS), "adam_bias_correction": _BOOLEAN,
    "weight_decay": _number(lambda value: value >= 0, "at least 0"),
    "clip_norm": _number(lambda value: value >= 0, "at least 0"),
    "layer_decay": _number(lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "freeze_layers": _integer(0), "freeze_embeddings": _BOOLEAN, "reinit_layers": _integer(0),
    "lr_schedule": _one_of(*optimization.LR_SCHEDULES), "seed": _integer(-MAX_SEED, MAX_SEED),
    "num_train_epochs": _number(lambda value: 0 < value <= MAX_EPOCHS,
                                f"above 0 and at most {MAX_EPOCHS:g}"),
    "warmup_proportion": _number(lambda value: 0 <= value <= 1, "from 0 to 1"),
    "num_train_steps": _integer(1), "num_warmup_steps": _integer(0),
    "precision": _one_of(*modeling.PRECISIONS), "tf32": _BOOLEAN, "deterministic": _BOOLEAN,
    "use_xla": _BOOLEAN, "trim_padding": _or_null(_BOOLEAN),
    "gradient_dtype": _one_of("fp32", "bf16"), "gradient_accumulation_steps": _or_null(_integer(0)),
    "tokens_per_micro_batch": _integer(0), "num_replicas": _integer(1),
    "eval_every_steps": _or_null(_integer(1)), "keep_best": _or_null(_LINE),
    "early_stopping_evals": _or_null(_integer(1)),
}
# Older versions did not record these settings. The two tables contain the values that the settings had in
# those versions. `_OLDER_DEFAULTS` is for all heads. `_OLDER_DEFAULTS_OF_KINDS` contains more values for some
# kinds of heads, such as heads that answer questions.
_OLDER_DEFAULTS = {
    "doc_stride": 0, "protect_special_tokens": False, "label_all_pieces": False, "token_column": 1,
    "tag_column": -1, "tag_scheme": tagging_data.SCHEMES[0],
    "word_splitting": word_splitter.SPACES, "text_column": None, "label_column": None,
    "header": "auto", "delimiter": "auto", "encoding": "utf-8", "skip_bad_lines": False,
    "max_train_examples": None, "label_separator": ",", "threshold": 0.5, "crf": False,
    "tf32": True, "deterministic": False, "use_xla": False, "weight_decay": 0.01, "clip_norm": 1.0,
    "layer_decay": 1.0, "freeze_layers": 0, "freeze_embeddings": False, "reinit_layers": 0,
    "eval_every_steps": None, "keep_best": None, "early_stopping_evals": None}
_OLDER_DEFAULTS_OF_KINDS = {"questions": {"doc_stride": 128, "max_query_length": 64, "max_answer_length": 30,
                                          "n_best_size": 20, "null_score_diff_threshold": 0.0}}


def default_in_older_versions(name, kind, default=None):
    """Returns the value that a setting had in versions that did not record it.

    Args:
      name: name of the setting.
      kind: kind of the head, one of `KINDS`.
      default: the result if all versions recorded the setting, or if models of this kind do not have the
        setting.
    """
    return {**_OLDER_DEFAULTS, **_OLDER_DEFAULTS_OF_KINDS.get(kind, {})}.get(name, default)


def find_problem(record, kind_of):
    """Returns a clause that describes the first problem of a record; None if the record obeys all rules.

    Args:
      record: content of run.json, a dict.
      kind_of: function (record) -> the kind of the model's head, one of `KINDS`. It is called once, after all
        fields have been checked.
    """
    for name, rule in FIELDS.items():
        if name in record and not rule.holds(record[name]):
            return _describe_problem(name, record[name], rule.words)
    settings, config = record["settings"], record["bert_config"]
    for name, value in settings.items():
        if name in SETTINGS and not SETTINGS[name].holds(value):
            return _describe_problem(f"settings.{name}", value, SETTINGS[name].words)
    longest = config.get("max_position_embeddings", MAX_INT32)
    if not _integer(1).holds(longest):
        return _describe_problem("bert_config.max_position_embeddings", longest, _integer(1).words)
    if settings.get("max_seq_length", 0) > longest:
        return _describe_problem("settings.max_seq_length", settings["max_seq_length"],
                                 f"at most {longest}, the model's max_position_embeddings")
    kind = kind_of(record)
    if kind == "questions":
        stride, query = settings.get("doc_stride", 1), settings.get("max_query_length", 1)
        length = settings.get("max_seq_length", longest)
        if stride < 1:
            return _describe_problem("settings.doc_stride", stride,
                                     "at least 1, since the model is for questions")
        if length <= query + 3:
            return _describe_problem("settings.max_query_length", query, f"below {length - 3}, so that "
                                     f"settings.max_seq_length={length} leaves space for a context")
    if KINDS[kind] != (record["labels"] is not None):
        return _describe_problem("labels", record["labels"], f"{_LABELS.words if KINDS[kind] else 'null'}, "
                                 f"since the model is for {kind}")
    return None


def _describe_problem(name, value, words):
    return f"{name} is {shorten(value)}, and has to be {words}"


def shorten(value):
    """Returns a value as text for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
