"""The values of a command's flags, with what was not given filled in. FLAGS themselves stay as they were
parsed."""

from absl import flags, logging


class Settings:
    """A copy of the values of all flags, as attributes. A command makes one when it starts and hands it
    on."""

    def __init__(self, flag_values=flags.FLAGS):
        vars(self).update({name: flag_values[name].value for name in flag_values})
        self._given = {name for name in flag_values if flag_values[name].present}

    def __contains__(self, name):
        """Whether the command has such a flag."""
        return name in vars(self)

    def given(self, name):
        """Whether the flag was on the command line."""
        return name in self._given

    def take_default(self, name, value, why=""):
        """Gives a flag that was not given a value, and says so in one line."""
        setattr(self, name, value)
        logging.info("--%s not given: using %s%s", name, value, f" ({why})" if why else "")
