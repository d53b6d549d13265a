"""Reads the words of a training command, which other commands take after the separator --."""

import copy
import os
import re

from bertlib.commands import common_flags

from absl import flags, logging

from bertlib.runs import entries, registry
from bertlib.system import child_command, files


class CommandFlags:
    """The flags of a training command.

    Attributes:
      names: names of the command's flags, without the flags of absl.
      values: a `flags.FlagValues`: the values that `parse` read, or the defaults.
    """

    def __init__(self, command):
        """Stores the command's flags with their defaults. The flags of this process do not change.

        Args:
          command: one of `registry.COMMANDS`.
        """
        self.values = flags.FlagValues()
        process = common_flags.FLAGS
        for name in set(process) - set(common_flags.defined):  # the flags of absl
            if process[name].name == name and not name.startswith("help"):
                self.values[name] = copy.deepcopy(process[name])
        own_flags = registry.find_flags(command)
        for entry in (*own_flags, *common_flags.COMMON):
            entry.define_in(self.values)
        self.names = [entry.name for entry in own_flags]

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
            self.values.unparse_flags()
            rest = self.values(["command", *arguments])[1:]
        except flags.Error as error:
            raise ValueError(f"{error} {common_flags.advice_on(error)}".strip()) from error
        finally:
            # If `arguments` contain absl's flag --verbosity, parsing them has changed the verbosity of this
            # process. So the old verbosity is set again.
            logging.set_verbosity(verbosity)
        if rest:
            raise ValueError(f"The training command takes only flags, written as --name=value. Remove or "
                             f"correct: {' '.join(rest)}.")
        return {name: entries.flag_text(self.values[name].value) for name in self.names
                if self.values[name].present}


def split(words):
    """Returns (name of the training command, its arguments).

    Args:
      words: list of str, the command line after "--".

    Raises:
      ValueError: the words do not begin with a training command of this project.
    """
    if not words:
        raise ValueError("The training command is missing. Write -- and the training command after all flags "
                         "of this command, for example: -- python run_classifier.py --task_name=MRPC.")
    rest = words[1:] if re.fullmatch(r"python[\d.]*", os.path.basename(words[0])) else words
    name = os.path.basename(rest[0]) if rest else ""
    for command in registry.COMMANDS:
        script = f"{command}.py"
        if name == child_command.program_name(script):
            return command, rest[1:]
        if name == script:
            ours = child_command.command_line(script)[-1]
            if os.path.exists(rest[0]) and files.file_identity(rest[0]) != files.file_identity(ours):
                raise ValueError(f"{rest[0]} does not belong to this project. Pass the command of this "
                                 f"project: {ours}.")
            return command, rest[1:]
    commands = ", ".join(f"{command}.py" for command in registry.COMMANDS)
    raise ValueError(f"{' '.join(words[:2])} is not a training command of this project. Begin the words "
                     f"after -- with python and one of {commands}.")
