"""Finds by name, in the tables that `bertlib.tasks` fills: the targets, the answers, and the flags of the
commands that train.

A *target* is what a model predicts for an example, such as one label for a text, or a tag for each word. The
name of a target is the "task_type" in run.json. *Answers* are how a trained model is used. Most models have
one kind of answers; a pre-trained model fills in masked words, and each model can also compute vectors.
"""

import functools
import pkgutil

# The tables of all tasks. The value for a name is the place of an object, as "module:name".
TARGETS = {}  # {name of a target: its class}
ANSWERS = {}  # {task of predict.py, export.py and serve.py: the class of its answers}
COMMANDS = {}  # {command that trains: its flags, in the order of --help}


@functools.cache
def find_target(name):
    """Returns a target, see `bertlib.tasks.target`. It knows no model. `name` is one of `TARGETS`."""
    return pkgutil.resolve_name(TARGETS[name])()


def find_targets():
    """Returns the list of all targets."""
    return list(map(find_target, TARGETS))


def find_answers(task):
    """Returns the class of the answers of a task, see `bertlib.tasks.answers`. `task` is one of `ANSWERS`."""
    return pkgutil.resolve_name(ANSWERS[task])


def find_flags(command):
    """Returns the flags of a command that trains, a tuple of entries; see `bertlib.runs.entries`.
    `command` is one of `COMMANDS`."""
    return pkgutil.resolve_name(COMMANDS[command])


@functools.cache
def _flags_by_name(command):
    return {entry.name: entry for entry in find_flags(command)}


def find_definitions(name, command=None):
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
    return any(entry.is_path for entry in find_definitions(name))
