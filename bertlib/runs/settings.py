"""The values of a command's flags, completed with defaults. The flags themselves stay as they were parsed."""

import os
import re

from absl import logging

from bertlib.system import files

# The phases of a run. A command that is asked for none trains, and evaluates if it can.
PHASES = ("do_train", "do_eval", "do_predict")
# Endings of the names of flags whose values are paths.
PATH_SUFFIXES = ("_file", "_dir", "_checkpoint", "_handle", "input", "output")
# Classes of flags: each flag of a training command says where it is defined which one it belongs to.
INPUT = "input"  # which file is read, how, and how its answers are made
TASK = "task"  # what the model says of a text
WEIGHTS = "weights"  # what training makes of the weights
SPEED = "speed"  # what a run does, and how fast; the weights stay the same, up to rounding
MACHINE = "machine"  # places, processes and messages, which may differ between the machines of a run
CLASSES = (INPUT, TASK, WEIGHTS, SPEED, MACHINE)


class Settings:
    """The values of all flags of a command, as attributes. A command makes them once, at its start."""

    def __init__(self, values, given=(), names=None, classes=None):
        """Takes the values of flags.

        Args:
          values: {name of a flag: its value}.
          given: names of the flags that the command line contains.
          names: list of str, the command's own flags; by default all names in `values`.
          classes: {name of a flag: its class, one of `CLASSES`}; a flag without a class is not in it.
        """
        vars(self).update(values)
        self._classes, self._taken = dict(classes or {}), set()
        self._given = set(given)
        self._names = list(values if names is None else names)

    def __contains__(self, name):
        """Whether the command has such a flag."""
        return name in vars(self)

    def names(self):
        """Returns the names of the command's own flags, without those of absl."""
        return list(self._names)

    def names_of_class(self, *classes):
        """Returns the names of the command's own flags of some classes."""
        return [name for name in self._names if self._classes.get(name) in classes]

    def is_given(self, name):
        """Whether the flag was on the command line."""
        return name in self._given

    def is_resolved(self, name):
        """Whether the flag was on the command line or was taken over from a training."""
        return name in self._given or name in self._taken

    def inherit(self, values):
        """Sets flags that were not given to those of a training, {name: value}; the caller logs them."""
        vars(self).update(values)
        self._taken.update(values)

    def choose_phases(self):
        """Trains and evaluates if no phase was named.

        Raises:
          ValueError: phases were named, and all are false.
        """
        phases = [name for name in PHASES if name in self]
        if any(getattr(self, name) for name in phases):
            return
        if any(self.is_given(name) for name in phases):
            *others, last = (f"--{name}" for name in phases)
            raise ValueError(f"Nothing to do: at least one of {', '.join(others)} and {last} must be true.")
        self.set_default("do_train", True)
        self.set_default("do_eval", True)

    def set_default(self, name, value, why=""):
        """Sets a flag that was not given, and logs the value with its reason."""
        setattr(self, name, value)
        logging.info("--%s not given: using %s%s", name, value, f" ({why})" if why else "")


def parse_profile_steps(text):
    """Returns the two numbers of --profile_steps; None if they are not two numbers in ascending order."""
    match = re.fullmatch(r"(\d+),(\d+)", text)
    steps = match and tuple(map(int, match.groups()))
    return steps if steps and 1 <= steps[0] <= steps[1] else None


def sample_path(*parts):
    """Returns the path of something in this project's samples, which lie in the checkout, or in an installed
    package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed, checkout = (os.path.join(path, "samples") for path in (package, os.path.dirname(package)))
    return os.path.join(installed if os.path.isdir(installed) else checkout, *parts)


def require_file(settings, name):
    """Returns the path that a flag gives.

    Raises:
      IsADirectoryError, FileNotFoundError: it is no file.
    """
    path = getattr(settings, name)
    if files.is_directory(path):
        raise IsADirectoryError(f"--{name}={path} is a directory; name the file.")
    if not files.exists(path):
        raise FileNotFoundError(f"--{name}={path}: there is no such file.")
    return path
