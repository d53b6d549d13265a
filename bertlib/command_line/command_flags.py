"""Reads and checks the command line of another command of this project, without running that command."""

import copy
import importlib
import importlib.util

from absl import flags, logging

from bertlib.command_line import common_flags

_HELP = "help", "helpshort", "helpfull", "helpxml"


class CommandFlags:
    """The flags of a command.

    Attributes:
      names: list of str, the names of the command's flags, without the flags of absl.
    """

    def __init__(self, command):
        """Imports the command and copies its flags. The flags of this process do not change.

        Args:
          command: name of the module, such as "run_classifier".
        """
        flag_values, own = common_flags.FLAGS, list(common_flags.FLAGS)
        sections = dict(common_flags.names_by_section)
        common_flags.names_by_section.clear()
        # The command is imported here and not at the top of this file, because the user chooses the command.
        # A module of `bertlib.commands` defines its flags in `define_flags`. A script of google-research/bert
        # defines its flags when it is imported.
        installed = f"bertlib.commands.{command}"
        if importlib.util.find_spec(installed):
            importlib.import_module(installed).define_flags()
        else:
            importlib.import_module(command)
        self.names = common_flags.flag_names()
        # Names of the flags that this process has, but the other command does not have. These flags are not
        # copied. So if `arguments` contain one of them, `parse` raises an error.
        foreign = {name for part in sections.values() for name in part} - {*self.names, "traceback"}
        self._values = flags.FlagValues()
        for name in flag_values:
            if name not in foreign and name not in _HELP and flag_values[name].name == name:
                self._values[name] = copy.deepcopy(flag_values[name])
        for name in set(flag_values) - set(own):
            delattr(flag_values, name)
        common_flags.names_by_section.clear()
        common_flags.names_by_section.update(sections)

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
            raise ValueError(str(error)) from error
        finally:
            # If `arguments` contain absl's flag --verbosity, parsing them has changed the verbosity of this
            # process. So the old verbosity is set again.
            logging.set_verbosity(verbosity)
        if rest:
            raise ValueError(f"The training command takes only flags, written as --name=value. Remove or "
                             f"correct: {' '.join(rest)}.")
        return {name: self._text(name) for name in self.names if self._values[name].present}

    def effective(self, name):
        """Returns the value of a flag as text: the value that `parse` read, or the default."""
        return self._text(name)

    def _text(self, name):
        value = self._values[name].value
        if isinstance(value, list):
            return ",".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)
