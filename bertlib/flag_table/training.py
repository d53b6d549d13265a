"""Finds the flags of the commands that train. Each task has a table of its flags."""

import functools

from bertlib.tasks import targets


@functools.cache
def _entries(command):
    """Returns {flag: its entry} of a command."""
    return {entry.name: entry for entry in targets.find_flags(command)}


def find(name, command=None):
    """Returns the entries of a flag, a list.

    Args:
      name: the flag.
      command: file name of the command, such as "run_ner.py". None, or a command that does not train or does
        not have the flag: the entries of all commands that train are returned.
    """
    stem = (command or "").removesuffix(".py")
    if stem in targets.COMMANDS and name in _entries(stem):
        return [_entries(stem)[name]]
    return [_entries(other)[name] for other in targets.COMMANDS if name in _entries(other)]


def is_path(name):
    """Returns whether the value of a flag is a path."""
    return any(entry.is_path for entry in find(name))
