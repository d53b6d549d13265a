"""describe_flags.py COMMAND_LINES: prints the flags of commands, and what they say to command lines.

COMMAND_LINES is JSON: a list of (command, its arguments). The output is JSON, with two lists. The first has
an object for each command: the `classes` of its flags, the `advanced` flags, `--help`, `--helpfull`, and the
replies to each path that is empty. The second has the message on each command line, or null if the flags are
accepted. So one process checks many command lines.
"""

import contextlib
import importlib
import inspect
import io
import json
import sys

from bertlib.commands import common_flags

from absl import flags

FLAGS = flags.FLAGS
BEFORE = set(FLAGS)


def define(command):
    """Defines the flags of a command instead of those of the command before. Returns its description."""
    for name in set(FLAGS) - BEFORE:
        delattr(FLAGS, name)
    common_flags.defined.clear()
    try:
        module = importlib.import_module(f"bertlib.commands.{command}")
    except ModuleNotFoundError:
        module = importlib.import_module(command)
    common_flags.define(module.ENTRIES)
    common_flags.define_common_flags(inspect.getdoc(module))


def describe(command):
    define(command)
    FLAGS(["command"])
    entries = common_flags.read_settings().entries()
    return {"classes": {entry.name: entry.category for entry in entries},
            "advanced": [entry.name for entry in entries if entry.advanced],
            "help": printed("--help"), "helpfull": printed("--helpfull"),
            "empty": {entry.name: reply(command, [f"--{entry.name}="]) for entry in entries if entry.is_path}}


def printed(flag):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        FLAGS(["command", flag])
    return output.getvalue()


def reply(command, arguments):
    define(command)
    try:
        FLAGS(["command", *arguments])
        common_flags.resolve_paths()
    except (flags.Error, ValueError) as error:
        return str(error)


lines = json.loads(sys.argv[1])
commands = dict.fromkeys(command for command, _ in lines)
print(json.dumps([{command: describe(command) for command in commands}, [reply(*line) for line in lines]]))
