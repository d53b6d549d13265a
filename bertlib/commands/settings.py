"""The values of a command's flags, with what was not given filled in. FLAGS stay as they were parsed."""

from absl import flags, logging

# What a command may be asked to do. One that is asked for nothing trains, and evaluates if it can.
PHASES = ("do_train", "do_eval", "do_predict")
# How the names of flags end that are paths of files and directories.
PATHS = ("_file", "_dir", "_checkpoint", "_handle", "input", "output")


def phases_given(flag_values=flags.FLAGS):
    """Returns the names of the phases that the command line names, be they wanted or not."""
    return [name for name in PHASES if name in flag_values and flag_values[name].present]


def refuse_empty_paths(flag_values=flags.FLAGS):
    """Raises a ValueError if a path on the command line is empty: nobody means that, but a variable of the
    shell that is not set does it."""
    for name in flag_values:
        flag = flag_values[name]
        if flag.present and name.endswith(PATHS) and isinstance(flag.value, str) and not flag.value.strip():
            raise ValueError(f"--{name} is empty. If a variable of the shell stands for the path, it is not "
                             "set: set it, or leave the flag out.")


class Settings:
    """A copy of the values of all flags, as attributes. A command makes it at its start and hands it on."""

    def __init__(self, flag_values=flags.FLAGS):
        vars(self).update({name: flag_values[name].value for name in flag_values})
        self._given = {name for name in flag_values if flag_values[name].present}

    def __contains__(self, name):
        """Whether the command has such a flag."""
        return name in vars(self)

    def given(self, name):
        """Whether the flag was on the command line."""
        return name in self._given

    def choose_phases(self):
        """Trains and evaluates if no phase was named.

        Raises:
          ValueError: some were, and none is wanted.
        """
        phases = [name for name in PHASES if name in self]
        if any(getattr(self, name) for name in phases):
            return
        if any(self.given(name) for name in phases):
            *others, last = (f"--{name}" for name in phases)
            raise ValueError(f"Nothing to do: at least one of {', '.join(others)} and {last} must be true.")
        self.take_default("do_train", True)
        self.take_default("do_eval", True)

    def take_default(self, name, value, why=""):
        """Gives a flag that was not given a value, and says so in one line."""
        setattr(self, name, value)
        logging.info("--%s not given: using %s%s", name, value, f" ({why})" if why else "")
