"""Lists the capabilities of this project: commands, flags, public Python names and messages.

    python tests/conformance/capabilities.py --write

writes the lists of the working tree to tests/data/capabilities.json and tests/data/messages.txt. Without
`--write`, the script prints the list of all capabilities except the messages. test_capabilities.py compares
the lists with the code.
"""

import argparse
import ast
import importlib
import inspect
import json
import pathlib
import re
import sys

from absl import flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPABILITIES = ROOT / "tests" / "data" / "capabilities.json"
MESSAGES = ROOT / "tests" / "data" / "messages.txt"
# Modules whose names programs of 2018 import, and packages whose names the documentation shows.
_MODULES = "bertlib", "tf1", "modeling", "optimization", "tokenization"
_IMPORT = re.compile(rf"^\s*from ((?:{'|'.join(_MODULES)})[\w.]*) import ([\w, ]+)", re.M)
_MEMBERS = re.compile(r"^::: ([\w.]+)\n +options:\n +members: \[([\w, ]+)\]", re.M)
_WORDS = re.compile(r"(?:^|\s)[^\W\d_]+[,.:;]?(?=\s|$)")
_FEWEST_WORDS = 4
_TYPES_OF_FLAGS = "Integer", "Number", "Switch", "Choice", "Text", "Path", "Texts", "Repeated"


# --- Commands and flags ----------------------------------------------------------------------------------


def list_flags():
    """Returns {command: {section of --helpfull: {flag: "type, values, default, class"}}}."""
    sys.path.insert(0, str(ROOT / "docs"))
    from bertlib.commands import common_flags

    import render_flags
    found = {}
    for command in sorted(render_flags.COMMANDS):
        sections = common_flags.by_section([*render_flags.module_of(command).ENTRIES, *common_flags.COMMON])
        found[command] = {heading: {entry.name: _describe(entry) for entry in entries}
                          for part in sections for heading, entries in part.items()}
    return found


def _describe(entry):
    """Returns the type of a flag, its values if they are listed, its default, and its class."""
    defined = flags.FlagValues()
    entry.define_in(defined)
    values = f" <{', '.join(entry.values)}>" if entry.values else ""
    kind = f" ({entry.category}{', recorded' * entry.is_recorded})" if entry.category else ""
    return f"{defined[entry.name].flag_type()}{values} = {json.dumps(entry.default)}{kind}"


def list_programs():
    """Returns the names of the programs that `pip install .` installs."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return sorted(re.findall(r"^([\w-]+) =", settings.split("[project.scripts]")[1].split("\n[")[0], re.M))


# --- Python names ----------------------------------------------------------------------------------------


def documented_names():
    """Returns the set of (module, name) that the documentation shows: in imports, and in the lists of
    docs/reference/python.md."""
    found = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        if "development" not in page.parts and page.name != "migrating.md":
            text = page.read_text(encoding="utf-8")
            for module, names in _IMPORT.findall(text) + _MEMBERS.findall(text):
                found.update((module, name.split(" as ")[0].strip()) for name in names.split(","))
    return found


def signatures(module, name):
    """Returns the parameters of a function, {"": parameters}, or those of the public methods of a class.

    A module has none: the names that it offers are documented one by one.
    """
    value = getattr(importlib.import_module(module), name, None)
    value = value or importlib.import_module(f"{module}.{name}")
    if inspect.isclass(value):
        own = [one for one in dir(value) if not one.startswith("_")
               and any(one in vars(base) for base in value.__mro__ if base.__module__.startswith(_MODULES))]
        found = {one: _parameters(getattr(value, one)) for one in own}
        return {"__init__": _parameters(value), **found}
    return {"": _parameters(value)} if callable(value) else {}


def _parameters(value):
    """Returns the parameters of a function as a list of "name" or "name=default". [] for a property."""
    if not callable(value):
        return []
    found = []
    for parameter in inspect.signature(value).parameters.values():
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        found.append(parameter.name + f"={default}" * (parameter.default is not parameter.empty))
    return found


# --- Messages --------------------------------------------------------------------------------------------


def list_messages():
    """Returns the sorted texts of the code that have at least four words, with {} in place of values.

    These are the messages of errors, warnings and logs, and their parts. Docstrings and the help texts of
    flags are left out.
    """
    found = set()
    for path in (*ROOT.glob("*.py"), *(ROOT / "bertlib").rglob("*.py"), *(ROOT / "tf1").rglob("*.py")):
        _collect(ast.parse(path.read_text(encoding="utf-8")), found)
    return sorted(found)


def _collect(node, found):
    text = _template(node)
    if text is not None:
        if len(_WORDS.findall(text)) >= _FEWEST_WORDS:
            found.add(" ".join(text.split()))
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
        children.remove(node.body[0])
    if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("entries.") in _TYPES_OF_FLAGS:
        # The help text is no message; the words of a rule are.
        children = [*node.args[4:], *(keyword.value for keyword in node.keywords)]
    for child in children:
        _collect(child, found)


def _template(node):
    """Returns the text of an expression of strings, with {} for each value in it; None for other nodes."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp):
        parts = [_template(node.left), _template(node.right)]
        return None if parts == [None, None] else "".join("{}" if part is None else part for part in parts)
    return None


# --- The lists -------------------------------------------------------------------------------------------


def collect():
    """Returns the lists of the working tree, except the messages, as a dict."""
    python = {}
    for module, name in sorted(documented_names()):
        python[f"{module}.{name}"] = signatures(module, name)
    return {"flags": list_flags(), "programs": list_programs(), "python": python}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files instead of printing the list")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    text = json.dumps(collect(), indent=1, ensure_ascii=False) + "\n"
    if options.write:
        CAPABILITIES.write_text(text, encoding="utf-8")
        MESSAGES.write_text("".join(f"{message}\n" for message in list_messages()), encoding="utf-8")
    else:
        print(text, end="")
