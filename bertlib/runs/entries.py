"""Defines the entries of the table of flags: `Flag`, and a class for each type of flag.

`section` adds the heading under which `--help` lists a flag, and the class of the flag.
"""

from collections.abc import Callable
import copy
import difflib
import functools
import math
import operator
import re
from typing import Any, NamedTuple

from absl import flags

# Classes of flags. Each of the following comments describes the settings of one class. The class decides
# whether run.json records a flag. It also decides whether a later command inherits the recorded value or
# refuses a different value; see `recorded_flags.inherit`.
#
# How rows become inputs of the model, and outputs become answers. A training with another value has other
# weights, but a trained model may be used with another value. Examples: --max_seq_length, --label_all_pieces
INPUT = "input"
TASK = "task"  # settings that determine the kind of the model's answers
WEIGHTS = "weights"  # settings that change the trained weights, and that a later command must not change
SPEED = "speed"  # settings that change the phases or the speed of a run; the weights differ only by rounding
MACHINE = "machine"  # paths, processes and log messages, which may differ between the machines of a run
CLASSES = (INPUT, TASK, WEIGHTS, SPEED, MACHINE)

# Larger values of an integer flag would overflow in TensorFlow or NumPy.
MAX_INT32 = 2**31 - 1
# TensorFlow stores --seed as an int64.
MAX_INT64 = 2**63 - 1
# {name in other programs: flag}.
_NAMES_ELSEWHERE = {
    "lr": "learning_rate", "epoch": "num_train_epochs", "epochs": "num_train_epochs",
    "per_device_train_batch_size": "train_batch_size",
    "per_device_eval_batch_size": "eval_batch_size", "model": "init_checkpoint",
    "model_name_or_path": "init_checkpoint", "max_length": "max_seq_length",
    "warmup_ratio": "warmup_proportion", "fp16": "precision", "bf16": "precision",
    "gradient_checkpointing": "recompute"}
# Headings of the sections that only --helpfull lists, in their order.
ADVANCED = tuple(f"Advanced: {topic}" for topic in (
    "text", "training", "memory and speed", "GPUs", "replicas", "TPUs"))


class Rule(NamedTuple):
    """A rule for a value.

    Attributes:
      holds: function that takes a value, and returns whether the value obeys the rule.
      words: the words that follow "must be" or "has to be" in messages.
    """

    holds: Callable[[Any], bool]
    words: str


def whole_number(least, most=MAX_INT32):
    """Returns the `Rule` for whole numbers from `least` to `most`."""
    return Rule(lambda value: type(value) is int and least <= value <= most,
                "a whole number" if math.isinf(most) else f"a whole number from {least} to {most}")


# A text with surrogates is invalid, because surrogates cannot be written as UTF-8.
TEXT = Rule(lambda value: isinstance(value, str) and not re.search("[\ud800-\udfff]", value), "a text")
LINE = Rule(lambda value: isinstance(value, str) and value.isprintable(), "a text without control characters")
TEXTS = Rule(lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
             "a list of texts")


def flag_text(value):
    """Returns the value of a flag as it is written on a command line; "" for None."""
    if isinstance(value, list):
        return ",".join(value)
    text = "" if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


class Flag:
    """A flag: an entry of the table.

    Attributes:
      name: str.
      default: the value without this flag on the command line.
      meaning: str, the help text.
      advanced: topic of the flag, one of those in `ADVANCED`, if only --helpfull lists it; otherwise None.
      is_recorded: whether run.json records the flag although its class is `SPEED`, because it changes the
        rounding, the evaluations or the tables. Flags of `INPUT`, `TASK` and `WEIGHTS` are always recorded.
      rule: the `Rule` for values that are not None.
      values: the possible values, tuple of str; () for flags that are no choice.
      is_path: whether the value is a path of a file or directory, or several paths with commas between them.
      heading: str, the section of `--help` that lists the flag.
      category: class of the flag, one of `CLASSES`; None for flags of commands that do not train.
    """

    values, is_path, heading, category = (), False, None, None

    def __init__(self, name, default, meaning, advanced=None, is_recorded=False):
        self.name, self.default, self.meaning = name, default, meaning
        self.advanced, self.is_recorded = advanced, is_recorded

    @property
    def words(self):
        """The words that follow "has to be" in messages about a value that was read from JSON."""
        return f"{self.rule.words}, or null" if self.default is None else self.rule.words

    def accepts(self, value):
        """Returns whether the flag can have a value that was read from JSON. This may be None if the default
        is None."""
        return self.default is None if value is None else self.rule.holds(value)

    def define_in(self, flag_values):
        """Defines the flag in a `flags.FlagValues`. A later definition of the name replaces this one."""
        values = [list(self.values)] if self.values else []
        type(self).definition(self.name, self.default, *values, self.meaning, flag_values=flag_values,
                              allow_override=True)
        flags.register_validator(self.name, lambda value: value is None or self.rule.holds(value),
                                 f"must be {self.rule.words}", flag_values=flag_values)


def section(heading, category, entries):
    """Returns entries as a tuple, with their heading and class.

    Args:
      heading: str, heading of the section in `--help`. An entry with `advanced` gets that heading instead.
      category: one of `CLASSES`: the kind of effect that the flags have on a training. None for flags of
        commands that do not train.
      entries: iterable of `Flag`. A class between two flags, such as `WEIGHTS`, is the class of all later
        flags.
    """
    placed = []
    for entry in map(copy.copy, entries):
        if entry in CLASSES:
            category = entry
            continue
        entry.heading, entry.category = f"Advanced: {entry.advanced}" if entry.advanced else heading, category
        placed.append(entry)
    return tuple(placed)


# --- Types -----------------------------------------------------------------------------------------------


class Switch(Flag):
    """A flag with the values true and false."""

    definition = flags.DEFINE_bool
    rule = Rule(lambda value: isinstance(value, bool), "true or false")


class Integer(Flag):
    """A flag whose value is a whole number from `least` to `most`."""

    definition = flags.DEFINE_integer

    def __init__(self, name, default, meaning, least=-MAX_INT32, most=MAX_INT32, **attributes):
        super().__init__(name, default, meaning, **attributes)
        self.rule = whole_number(least, most)


class Number(Flag):
    """A flag whose value is a finite number."""

    definition = flags.DEFINE_float

    def __init__(self, name, default, meaning, least=None, above=None, most=None, below=None, **attributes):
        """Stores an entry. `least` and `most` are bounds that the value may have. `above` and `below` are
        bounds that it may not have."""
        super().__init__(name, None if default is None else float(default), meaning, **attributes)
        bounds = [(text, compare, bound) for text, compare, bound in (
            ("of at least", operator.ge, least), ("above", operator.gt, above),
            ("at most", operator.le, most), ("below", operator.lt, below)) if bound is not None]
        self.rule = Rule(
            lambda value: type(value) in (int, float) and math.isfinite(value) and all(
                compare(value, bound) for _, compare, bound in bounds),
            f"a number {' and '.join(f'{text} {bound:g}' for text, _, bound in bounds)}" if bounds
            else "a finite number")


class Choice(Flag):
    """A flag with a few possible values, texts. A command line may contain them in upper or lower case."""

    definition = functools.partial(flags.DEFINE_enum, case_sensitive=False)

    def __init__(self, name, default, values, meaning, **attributes):
        super().__init__(name, default, meaning, **attributes)
        self.values = tuple(values)
        self.rule = Rule(lambda value: isinstance(value, str) and value in values,
                         f"one of {', '.join(values)}")


class Text(Flag):
    """A flag whose value is a text. `holds` and `words` are those of a further `Rule` for the text."""

    definition = flags.DEFINE_string

    def __init__(self, name, default, meaning, holds=lambda value: True, words=TEXT.words, **attributes):
        super().__init__(name, default, meaning, **attributes)
        self.rule = Rule(lambda value: TEXT.holds(value) and holds(value), words)


class Path(Flag):
    """A flag whose value is a path."""

    definition = flags.DEFINE_string
    is_path = True
    # Unlike a text, a path may contain surrogates: Python decodes file names that are not UTF-8 into
    # surrogates.
    rule = Rule(lambda value: isinstance(value, str), "a path")


class Texts(Flag):
    """A flag whose value is a list of texts, with commas between them on the command line."""

    definition = flags.DEFINE_list
    rule = TEXTS


class TextMap(Flag):
    """A setting whose value is {text: text}. It is in run.json, and is no flag of a command line."""

    rule = Rule(lambda value: isinstance(value, dict) and TEXTS.holds(list(value.values())),
                "an object with texts")


class Repeated(Texts):
    """A flag that may be given several times. Its value is a list of texts."""

    definition = flags.DEFINE_multi_string


def similar_names(name, known):
    """Returns the names in `known` that a wrong name of a flag may mean, a list. These are the flag that has
    this name in other programs, and the flags whose names end with its words, such as train_batch_size for
    batch_size. If there are none, it is the name with the most similar spelling."""
    names = [_NAMES_ELSEWHERE.get(name), *sorted((flag for flag in known if flag.endswith(f"_{name}")),
                                                 reverse=True)]
    names = [flag for flag in dict.fromkeys(names) if flag in known]
    return names or difflib.get_close_matches(name, known, 1)
