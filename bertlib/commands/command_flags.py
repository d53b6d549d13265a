"""Reads and checks the command line of a training command, without running that command."""

import copy

from absl import flags, logging

from bertlib.commands import common_flags

from bertlib.runs import targets


class CommandFlags:
    """The flags of a command.

    Attributes:
      names: names of the command's flags, without the flags of absl.
    """

    def __init__(self, command):
        """Stores the command's flags with their defaults. The flags of this process do not change.

        Args:
          command: one of `targets.COMMANDS`.
        """
        self._values = flags.FlagValues()
        process = common_flags.FLAGS
        for name in set(process) - set(common_flags.defined):  # the flags of absl
            if process[name].name == name and not name.startswith("help"):
                self._values[name] = copy.deepcopy(process[name])
        entries = targets.find_flags(command)
        for entry in (*entries, *common_flags.COMMON):
            entry.define_in(self._values)
        self.names = [entry.name for entry in entries]

    def parse(self, arguments):
        """Reads a command line and returns the values of its flags. Flags of absl are left out.

        Args:
          arguments: list of str.

        Returns:
          {name of a flag on the command line: its value as text}.

        Raises:
          ValueError: an argument is not a flag of the command, or its value is not valid.
        """
        verbosity = logging.get_verbosity()
        try:
            self._values.unparse_flags()
            rest = self._values(["command", *arguments])[1:]
        except flags.Error as error:
            raise ValueError(f"{error} {common_flags.advice_on(error)}".strip()) from error
        finally:
            # If `arguments` contain absl's flag --verbosity, parsing them has changed the verbosity of this
            # process. So the old verbosity is set again.
            logging.set_verbosity(verbosity)
        if rest:
            raise ValueError(f"The training command takes only flags, written as --name=value. Remove or "
                             f"correct: {' '.join(rest)}.")
        return {name: self.effective(name) for name in self.names if self._values[name].present}

    def effective(self, name):
        """Returns the value of a flag as text: the value that `parse` read, or the default."""
        value = self._values[name].value
        return str(value).lower() if isinstance(value, bool) else str(value)
