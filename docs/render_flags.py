"""Writes docs/reference/flags.md: the flags of all commands, as Markdown tables.

    python docs/render_flags.py [PATH]

PATH is another file to write. The script prints the file, and whether it has changed.
"""

import collections
import importlib
import inspect
import itertools
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)


from bertlib.commands import common_flags  # noqa: E402

from bertlib.runs import entries  # noqa: E402
from bertlib.system import files  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "reference", "flags.md")

# The commands in the order in which the page describes them.
COMMANDS = ["run_classifier", "run_classifier_with_tfhub", "run_ner", "run_squad", "run_swag",
            "create_pretraining_data", "run_pretraining", "extract_features", "predict", "serve", "export",
            "convert_checkpoint", "build_vocab", "sweep", "plan_memory", "download", "glue_submission",
            "reproduce", "compare_results"]
TYPES = {entries.Integer: "integer", entries.Number: "number", entries.Text: "text", entries.Path: "path",
         entries.Switch: "true, false", entries.Texts: "list with commas",
         entries.Repeated: "text, several times"}

INTRODUCTION = """# Flags

`docs/render_flags.py` generates this page from the code. A flag and its value are one argument, such as
`--seed=1`. A flag with the values true and false can be written without its value: `--do_train` means
`--do_train=true`. Most flags without a default are optional. If a command needs such a flag and you leave it
out, the command ends with an error that names the flag.

`python run_classifier.py --help` lists the everyday flags of that command, and
`python run_classifier.py --helpfull` lists all of its flags.
"""

Row = collections.namedtuple("Row", ["name", "values", "default", "meaning"])


def module_of(command):
    """Returns the module of a command, which contains its flags."""
    installed = f"bertlib.commands.{command}"
    path = os.path.join(ROOT, *installed.split(".")) + ".py"
    return importlib.import_module(installed if os.path.exists(path) else command)


def rows_of(command):
    """Returns (text, sections) for a command. `text` is the first paragraph of the command's docstring.
    `sections` is a dict {heading of a section: list with a `Row` for each flag in this section}."""
    module = module_of(command)
    everyday, advanced = common_flags.by_section([*module.ENTRIES, *common_flags.COMMON])
    sections = {heading: list(map(row_of, found)) for heading, found in {**everyday, **advanced}.items()}
    return inspect.getdoc(module).split("\n\n")[0], sections


def row_of(entry):
    """Returns the `Row` of an entry of the table of flags."""
    values = ", ".join(entry.values) or TYPES[type(entry)]
    return Row(entry.name, values, entries.flag_text(entry.default), entry.meaning)


def table(rows, commands=None):
    """Returns the lines of a table of `Row`s.

    Args:
      rows: iterable of `Row`.
      commands: {`Row`: list of the commands that have this flag}. With this dict, the table has a column that
        lists the commands. None: the table has no such column.
    """
    lines = [f"| flag | values | default | meaning |{' commands |' * bool(commands)}",
             f"|---|---|---|---|{'---|' * bool(commands)}"]
    for row in rows:
        cells = [f"`--{row.name}`", escape(row.values), f"`{row.default}`" if row.default else "",
                 escape(row.meaning)]
        if commands:
            cells.append(", ".join(f"`{command}`" for command in commands[row]))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def escape(text):
    """Returns a text for a cell of a Markdown table, with *, _, <, | and [ escaped."""
    for character in "\\*_<|[":
        text = text.replace(character, f"\\{character}")
    return text


def render():
    """Returns the page. A flag that only one command has is listed under this command. All other flags are
    listed by section."""
    described = {command: rows_of(command) for command in COMMANDS}
    commands, heading_of = collections.defaultdict(list), {}
    for command, (_, sections) in described.items():
        for heading, rows in sections.items():
            for row in rows:
                commands[row].append(command)
                heading_of.setdefault(row, heading)
    by_heading = collections.defaultdict(list)
    for row, heading in heading_of.items():
        if len(commands[row]) > 1 or heading in entries.ADVANCED:
            by_heading[heading].append(row)

    lines = [INTRODUCTION, "## Flags of one command"]
    for command, (description, sections) in described.items():
        rows = list(itertools.chain(*sections.values()))
        own = [row for row in rows if row not in by_heading[heading_of[row]]]
        others = dict.fromkeys(heading_of[row] for row in rows if row not in own)
        lines += ["", f"### {command}.py", "", description, ""]
        lines += [*table(own), ""] if own else []
        lines += [f"{'Other' if own else 'All'} flags: {', '.join(map(link, others))}."]
    everyday = [heading for heading in by_heading if by_heading[heading]
                and heading not in entries.ADVANCED]
    for title, headings in (("Flags of several commands", everyday),
                            ("Advanced flags", entries.ADVANCED)):
        lines += ["", f"## {title}"]
        for heading in headings:
            lines += ["", f"### {heading}", "", *table(by_heading[heading], commands)]
    return "\n".join(lines) + "\n"


def link(heading):
    """Returns a link to a section of the page."""
    anchor = "".join(character for character in heading.lower() if character.isalnum() or character in " -")
    return f"[{heading}](#{anchor.replace(' ', '-')})"


if __name__ == "__main__":
    path, page = sys.argv[1] if sys.argv[1:] else PAGE, render()
    state = "unchanged" if files.exists(path) and files.read_text(path) == page else "changed"
    files.write_text(path, page)
    print(f"{os.path.relpath(path)}: {state}")
