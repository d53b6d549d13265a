"""Defines the flags of a command, reads their values, and prints `--help` and `--helpfull`.

`--help` lists the everyday flags of a command by section. `--helpfull` adds the advanced flags and the flags
of absl.
"""

import collections
import contextlib
import sys
import textwrap

from absl import app, flags

from bertlib.runs.entries import ADVANCED, MACHINE, Switch, flag_text, section, similar_names
from bertlib.runs.input_paths import expand_home
from bertlib.runs.settings import PHASES, Settings
from bertlib.system import terminal

FLAGS = flags.FLAGS

_HELP_WIDTH = 110
COMMON = section("Errors", MACHINE, [
    Switch("traceback", False, "Show the Python traceback of an error."),
])

# Maps the name of each flag that was defined in this process to its entry, in the order of --help.
defined = {}

# absl records for each flag which module defines it. The functions of this module define flags for commands.
# Because of the following call, absl records the command that calls such a function, and not this module. So
# --helpxml lists these flags as flags of the command.
flags.disclaim_key_flags()


# --- Definition and --help -------------------------------------------------------------------------------


def define(entries):
    """Defines the flags of a command. A later definition of a flag replaces an earlier one. So a script can
    import two commands that have the same flag.

    Args:
      entries: iterable of `entries.Flag`.
    """
    for entry in entries:
        entry.define_in(FLAGS)
        defined[entry.name] = entry


def define_common_flags(description):
    """Defines the flags of all commands; `description` is the text of `--help` before the flags."""
    app.define_help_flags()
    flags.DEFINE_flag(_HelpFlag("help", "Lists the everyday flags.", description, short_name="?"))
    flags.DEFINE_flag(_HelpFlag("helpshort", "The same as --help.", description))
    flags.DEFINE_flag(_HelpFlag("helpfull", "Lists all flags.", description))
    define(COMMON)


class _HelpFlag(flags.BooleanFlag):
    """Prints the flags of the command by section, and ends the process with exit code 0."""

    def __init__(self, name, text, description, short_name=None):
        # This flag replaces absl's flag of the same name. absl's flag prints the help in absl's format, and
        # ends the process with exit code 1.
        super().__init__(name, False, text, short_name=short_name, allow_override=True)
        self._description = description

    def parse(self, arg):
        if self._parse(arg):
            with contextlib.suppress(terminal.StreamError):  # `launch.run` reports this error
                print(help_text(self._description, full=self.name == "helpfull"))
            sys.exit()


def help_text(description, full):
    """Returns the text of `--help`, or the text of `--helpfull` if `full` is true.

    Args:
      description: str, the text before the flags; None if there is no such text.
      full: bool, whether to add the advanced flags and the flags that absl and TensorFlow define.
    """
    everyday, advanced = by_section(defined.values())
    lines = [(description or "").strip()]
    for heading, entries in {**everyday, **(advanced if full else {})}.items():
        lines += ["", f"{heading}:", *_help_of(entry.name for entry in entries)]
    if full:
        # `FLAGS` also contains the short names of flags, such as "?" for --help. The attribute `name` is
        # always the long name.
        other_names = {FLAGS[name].name for name in FLAGS} - set(defined)
        # --flagfile and --undefok are not in `FLAGS`. absl adds these two flags to the help text of each
        # `flags.FlagValues`. So the help text of a `flags.FlagValues` without flags contains only these two.
        return "\n".join([*lines, "", "Flags of absl and TensorFlow:", *_help_of(sorted(other_names)),
                          flags.FlagValues().get_help(prefix="  ")])
    topics = ", ".join(heading.removeprefix("Advanced: ") for heading in advanced)
    more = f"{sum(map(len, advanced.values()))} more flags: {topics}; and " if advanced else ""
    return "\n".join([*lines, "", *textwrap.wrap(
        f"--helpfull lists {more}the flags of absl, such as --verbosity and --flagfile.", _HELP_WIDTH)])


def by_section(entries):
    """Sorts entries of the table of flags by the headings of --help.

    Returns:
      two dicts {heading: list of entries}: the sections of --help, and the sections that only --helpfull has.
    """
    sections = collections.defaultdict(list)
    for entry in entries:
        sections[entry.heading].append(entry)
    advanced = {heading: sections.pop(heading) for heading in ADVANCED if heading in sections}
    return dict(sections), advanced


def _help_of(names):
    """Returns the lines of the help text for some flags. `names` are the names of the flags."""
    lines = []
    for flag in map(FLAGS.__getitem__, names):
        form = f"--[no]{flag.name}" if flag.flag_type() == "bool" else f"--{flag.name}"
        default = flag_text(flag.default)
        text = meaning(flag) + f" (default: {default})" * bool(default)
        if isinstance(flag, flags.EnumFlag):
            values = f"=<{'|'.join(flag.parser.enum_values)}>"
            if len(form + values) + 2 <= _HELP_WIDTH:
                form += values
            else:
                text += f" Values: {', '.join(flag.parser.enum_values)}."
        lines += [f"  {form}", *textwrap.wrap(text, _HELP_WIDTH, initial_indent=6 * " ",
                                              subsequent_indent=6 * " ", break_on_hyphens=False)]
    return lines


def meaning(flag):
    """Returns the help text of `flag`, a flag object of absl. The list of possible values, which absl puts
    before the text, is left out."""
    return flag.help.split(">: ", 1)[-1] if isinstance(flag, flags.EnumFlag) else flag.help


# --- Values ----------------------------------------------------------------------------------------------


def read_settings(*required):
    """Returns the values of all flags, as `Settings`. Raises a ValueError if one of the flags `required` has
    no value."""
    for name in required:
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is required: {defined[name].meaning}")
    return Settings({name: FLAGS[name].value for name in FLAGS},
                    {name for name in FLAGS if FLAGS[name].present}, defined)


def advice_on(error, description=None):
    """Returns advice on an error of absl's, or "".

    Args:
      error: exception.
      description: the text of `--help`. If it contains " -- ", the command runs a training command.
    """
    if isinstance(error, flags.CantOpenFlagFileError) and "No such file" in str(error):
        return ("The path in --flagfile, and the paths in the file itself, are relative to the current "
                "directory. Use the recipes from the directory of this project.")
    if isinstance(error, flags.UnrecognizedFlagError) and " -- " in (description or "") and (
            "--" not in sys.argv):
        return (f"If --{error.flagname} is a flag of the training, the separator -- is missing. Write -- "
                "before the words of the training, as in the example of --help.")
    # absl finds only misspelled names.
    if isinstance(error, flags.UnrecognizedFlagError) and "Did you mean" not in str(error) and (
            similar := similar_names(error.flagname, defined)):
        return f"Did you mean: {', '.join(similar)} ?"
    return ""


def phases_given():
    """Returns the names of the phases whose flags are on the command line. The values of the flags do not
    matter: --do_train=false counts, too."""
    return [name for name in PHASES if name in FLAGS and FLAGS[name].present]


def resolve_paths():
    """Replaces ~ in the paths on the command line, see `expand_home`.

    Raises:
      ValueError: a path is empty, for example because a shell variable is not set.
    """
    for name, entry in defined.items():
        if not entry.is_path or not FLAGS[name].present:
            continue
        if not (FLAGS[name].value or "").strip():
            raise ValueError(f"--{name} is empty. Pass a path, or leave the flag out. If the path comes from "
                             "a shell variable, the variable is not set.")
        FLAGS[name].value = expand_home(FLAGS[name].value)
