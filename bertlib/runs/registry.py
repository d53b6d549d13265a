"""Finds by name, in the tables that `bertlib.tasks` fills: the targets, the answers, and the flags of the
commands that train.

A *target* is what a model predicts for an example, such as one label for a text, or a tag for each word. The
name of a target is the "task_type" in run.json. *Answers* are how a trained model is used. Most models have
one kind of answers; a pre-trained model fills in masked words, and each model can also compute vectors.
"""

import functools
import importlib

# The tables of all tasks. A value is the full name of a class or constant, such as
# "bertlib.tasks.squad.squad_target.Spans"; its module is imported when it is used for the first time.
TARGETS = {}  # {name of a target: its class}
ANSWERS = {}  # {task of predict.py, export.py and serve.py: the class of its answers}
COMMANDS = {}  # {command that trains: its entries in the table of flags, in the order of --help}


def find_target(name):
    """Returns the class of a target, see `bertlib.tasks.target`. `name` is one of `TARGETS`."""
    return load(TARGETS[name])


def find_targets():
    """Returns the list of the classes of all targets."""
    return list(map(find_target, TARGETS))


def find_answers(task):
    """Returns the class of the answers of a task, see `bertlib.tasks.answers`. `task` is one of `ANSWERS`."""
    return load(ANSWERS[task])


def find_flags(command):
    """Returns the flags of a command that trains, a tuple of entries; see `bertlib.runs.entries`.
    `command` is one of `COMMANDS`."""
    return load(COMMANDS[command])


@functools.cache
def _flags_by_name(command):
    return {entry.name: entry for entry in find_flags(command)}


def find_flag(name, command=None):
    """Returns the entries of a flag, a list.

    Args:
      name: the flag.
      command: file name of the command, such as "run_ner.py". None, or a command that does not train or does
        not have the flag: the entries of all commands that train are returned.
    """
    own = (command or "").removesuffix(".py")
    if own in COMMANDS and name in _flags_by_name(own):
        return [_flags_by_name(own)[name]]
    return [_flags_by_name(one)[name] for one in COMMANDS if name in _flags_by_name(one)]


def is_path(name):
    """Returns whether the value of a flag is a path."""
    return any(entry.is_path for entry in find_flag(name))


def load(name):
    """Returns a class or constant, such as "bertlib.tasks.tagging.tagging_target.Tags"."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
