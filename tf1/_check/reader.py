"""Reads the syntax tree of one file and collects the imports, names and expressions that will not run."""

import ast
import builtins
import contextlib
import re
import sys

from tf1._check import calls, modules, rules
from tf1._check.guards import exceptions, tested_names, truth
from tf1._check.rules import NUMPY, PACKAGE, PYTHON2, PYTHON3, TENSORFLOW, Finding
from tf1._check.scopes import Scope, canonical
from tf1._names import tensorflow_names

# The possible subjects of a finding. The subject is the part of the code that will not run: an import, a
# name, an attribute or a call.
_IMPORT, _NAME, _ATTRIBUTE, _CALL = "import", "name", "attribute", "call"
# Maps the name of an exception to the subjects of findings. If a `try` of the program catches the exception,
# the findings with these subjects are not reported for the lines in the `try`.
_GUARDS = {"ImportError": {_IMPORT}, "ModuleNotFoundError": {_IMPORT}, "NameError": {_NAME},
           "AttributeError": {_ATTRIBUTE, _CALL}, "TypeError": {_CALL}}
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
# If tensorflow.python lacks a name, the name may exist in `tf` itself ("") or in one of these modules below
# `tf`.
_HOMES = ("", "train.", "nn.", "graph_util.", "estimator.", "estimator.export.", "math.", "summary.")
# Programs import the builtins of Python 2 from these modules with `import *`.
_GIVE_BUILTINS = {"builtins", "future", "past", "six"}
# The checker imports these modules and looks up names in them.
_INSPECTED = ("tf", "tensorflow", "tf1", "numpy", "horovod", "tensorflow_hub")


class Reader(ast.NodeVisitor):
    """Collects the findings of a file.

    Attributes:
      found: list of (subject, Finding). The subject says whether the finding is about an import, a name, an
        attribute or a call.
    """

    def __init__(self, tree, path, fork):
        """Reads a file.

        Args:
          tree: ast.Module of the file.
          path: pathlib.Path of the file.
          fork: the modules.Fork that contains the file.
        """
        self.found = []
        self._path, self._fork = path, fork
        self._scope = Scope(tree, methods=fork.methods)
        self._runs_at_import = True
        self._known = frozenset()  # names that an `if` around the current line checks for existence
        self._on_tpus = False  # whether the current line runs only on TPUs
        self._packages = set()  # packages that were already reported
        self._block(tree.body)

    def _emit(self, about, node, kind, what, instead, note=False):
        """Adds a finding, unless the program avoids the problem itself.

        An `if` around the line may test whether a name exists, or which version of a package is installed.
        Then no finding about this name or this package is added. If the line runs only on TPUs, no finding
        about TensorFlow is added.

        Args:
          about: what the finding is about: `_CALL`, `_IMPORT`, `_NAME` or `_ATTRIBUTE`.
          node: the part of the syntax tree with the problem.
          kind, what, instead, note: see `Finding`.
        """
        if not (any(name in what for name in self._known) or kind == TENSORFLOW and self._on_tpus):
            self.found.append((about, Finding(node.lineno, kind, what, instead, note)))

    @contextlib.contextmanager
    def _inside(self, **changes):
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        yield
        vars(self).update(before)

    # --- Which lines run ---------------------------------------------------------------------------------

    def visit(self, node):
        for place, *finding in calls.problems(node, self._scope):
            self._emit(_CALL, place, *finding)
        super().visit(node)

    def _block(self, nodes):
        for node in nodes:
            self.visit(node)
            if isinstance(node, ast.If):
                holds = truth(node.test, self._scope)
                taken = node.body if holds else node.orelse if holds is False else []
                if taken and isinstance(taken[-1], _LEAVING):
                    # On this version of Python, the branch `taken` always runs. It ends with a statement
                    # such as `return`, so the lines after the `if` never run here and are not checked.
                    return

    def generic_visit(self, node):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                self._block([item for item in value if isinstance(item, ast.AST)])
            elif isinstance(value, ast.AST):
                self.visit(value)

    def _branches(self, node, body, orelse):
        holds = truth(node.test, self._scope)
        self.visit(node.test)
        certain = holds is not None or "__main__" in ast.unparse(node.test)
        without_tpus = truth(node.test, self._scope, without_tpus=True)
        with self._inside(_known=self._known | tested_names(node.test),
                          _runs_at_import=self._runs_at_import and certain):
            for value, branch in ((True, body), (False, orelse)):
                if holds in (value, None):
                    with self._inside(_on_tpus=self._on_tpus or without_tpus is (not value)):
                        self._block(branch)

    def visit_If(self, node):
        self._branches(node, node.body, node.orelse)

    def visit_IfExp(self, node):
        self._branches(node, [node.body], [node.orelse])

    def visit_BoolOp(self, node):
        tested = frozenset()
        for value in node.values:
            with self._inside(_known=self._known | tested):
                self.visit(value)
            tested |= tested_names(value)
            if truth(value, self._scope) is isinstance(node.op, ast.Or):
                return

    def visit_Try(self, node):
        guarded, only_for_guards = set(), []
        for handler in node.handlers:
            caught = exceptions(handler.type)
            guarded |= set().union(*(_GUARDS.get(name, set()) for name in caught))
            if caught & {"Exception", "BaseException", None}:
                guarded |= {_IMPORT} | ({_NAME, _ATTRIBUTE, _CALL} if len(node.body) == 1 else set())
            if caught <= set(_GUARDS):
                only_for_guards.append(handler)
        with self._inside(found=[]):
            self._block(node.body)
            inside = self.found
        kept = [entry for entry in inside if entry[0] not in guarded]
        self.found += kept
        falls_back = len(kept) < len(inside)
        for handler in node.handlers:
            if falls_back or handler not in only_for_guards:
                self._block(handler.body)
        if not falls_back:
            self._block(node.orelse)
        self._block(node.finalbody)

    # --- Scopes ------------------------------------------------------------------------------------------

    def _function(self, node):
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        self._block([*getattr(node, "decorator_list", []), node.args,
                     *filter(None, [getattr(node, "returns", None)])])
        with self._inside(_scope=Scope(node, self._scope), _runs_at_import=False):
            self._block(body)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_ClassDef(self, node):
        scope = Scope(node, self._scope)
        bases = [base for base in node.bases if getattr(base, "id", None) != "object"]
        for item in node.body:
            if getattr(item, "name", "") == "next" and "__iter__" in scope.names and not bases and (
                    "__next__" not in scope.names):
                self._emit(_CALL, item, PYTHON2, "`def next(self)`: Python 3 calls __next__",
                           "`def __next__(self)`")
        self._block([*node.decorator_list, *node.bases, *node.keywords])
        with self._inside(_scope=scope):
            self._block(node.body)

    def _comprehension(self, node):
        self.visit(node.generators[0].iter)
        with self._inside(_scope=Scope(node, self._scope)):
            self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    # --- Imports -----------------------------------------------------------------------------------------

    def visit_Import(self, node):
        for alias in node.names:
            self._import(node, alias.name, alias.name, f"import {alias.name}")

    def visit_ImportFrom(self, node):
        for alias in [] if node.level else node.names:
            full = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self._import(node, node.module, full, f"from {node.module} import {alias.name}")

    def _import(self, node, module, full, statement):
        root = module.split(".")[0]
        if root in _INSPECTED:
            if lacking := modules.missing(canonical(full)):
                self._emit(_IMPORT, node, *_lacks(f"`{statement}`", *lacking))
        elif root in self._fork.homes:
            self._import_beside(node, module, statement)
        elif moved := _moved(full):
            kind, gone, instead, later = moved
            self._emit(_IMPORT, node, kind, f"`{statement}`: {gone}", _import_line(instead, module, full),
                       later)
        elif root == "keras":
            instead = statement.replace("keras", "tensorflow.keras", 1)
            self._emit(_IMPORT, node, PACKAGE, f"`{statement}`: imports Keras 3, whose layers cannot be used "
                       "in graphs of TensorFlow 1", f"`{instead}`", True)
        else:
            self._import_package(node, module, full, statement)

    def _import_package(self, node, module, full, statement):
        """Checks an import from the standard library or from an installed package. The names in an installed
        package are not looked up, because this could need an import of the package."""
        root = module.split(".")[0]
        missing = modules.not_installed(full if modules.is_namespace(module) else module)
        if missing is None and root in sys.stdlib_module_names:
            lacking = modules.missing(full)
            if lacking and not full.startswith("__future__."):
                self._emit(_IMPORT, node, PYTHON3, f"`{statement}`: Python has no {lacking[0]}", "")
        elif missing is None:
            self._fork.not_followed.add(root)
        elif not self._runs_at_import:
            self._fork.not_followed.add(f"{missing} (not installed)")
        elif missing not in self._packages:
            self._packages.add(missing)
            self._import_missing(node, missing, full, statement)

    def _import_missing(self, node, missing, full, statement):
        """Reports the first import of a package or module that is not installed."""
        package = next((rules.PACKAGES[name] for name in (full, missing) if name in rules.PACKAGES), None)
        if package:
            problem, instead = "is not installed", f"`pip install {package}` in a shell"
        else:  # no advice to `pip install`: on PyPI, anybody may own a package with this name
            problem = "is neither installed nor in the folder of the file"
            instead = ("`pip install` with the package of this module, or PYTHONPATH=… with the folder that "
                       "contains the module")
        self._emit(_IMPORT, node, PACKAGE, f"`{statement}`: {missing} {problem}", instead)

    def _import_beside(self, node, module, statement):
        """Reports an import of a module of the program that only Python 2 finds. Python 2 also searches the
        package of the file."""
        if "." not in module and self._fork.is_only_beside(module, self._path):
            instead = f"from . {statement}" if statement.startswith("import") else statement.replace(
                "from ", "from .", 1)
            self._emit(_IMPORT, node, PYTHON2, f"`{statement}`: Python 3 finds a module of the same package "
                       "only by its full name or by a relative import", f"`{instead}`")

    # --- Names -------------------------------------------------------------------------------------------

    def visit_Name(self, node):
        self._chain(node)

    def visit_Attribute(self, node):
        if not self._chain(node):
            self.visit(node.value)

    def _chain(self, node):
        """Checks a dotted name. Returns whether the first part of the name is a module or a builtin."""
        name, known = self._scope.resolve(node)
        if name is None:
            return False
        root, *parts = name.split(".")
        if root == "builtins" and parts:
            # `own_name` is false if the program gave the builtin another name, as in `text = unicode`.
            own_name = calls.written(node).split(".")[0] == parts[0]
            given = {star.split(".")[0] for star in self._scope.module.stars} & _GIVE_BUILTINS
            if own_name and parts[0] in rules.BUILTINS and not given:
                self._emit(_NAME, node, PYTHON2, f"`{parts[0]}`: Python 3 has no builtin of this name",
                           rules.code(rules.BUILTINS[parts[0]]))
        elif root in _INSPECTED:
            lacking = modules.missing(name)
            # An import or an assignment defines the first name of the expression. For example, after
            # `from tensorflow import nn as layers`, `layers` means "tf.nn". If "tf.nn" itself does not exist,
            # this was already reported at the import. So only a missing later part is reported here.
            if lacking and lacking[0].count(".") >= known:
                self._emit(_ATTRIBUTE, node, *_lacks(f"`{calls.written(node)}`", *lacking))
        elif root != "builtins" and root not in self._fork.homes:
            moved = _moved(name, known + 1)
            if moved:
                kind, gone, instead, later = moved
                self._emit(_ATTRIBUTE, node, kind, f"`{calls.written(node)}`: {gone}", rules.code(instead),
                           later)
        return True


def _moved(name, first=1):
    """Looks up a name in the tables of the names that Python or a package has renamed, moved or removed.

    Args:
      name: dotted name.
      first: number of parts of the shortest prefix that is looked up. The prefixes of "a.b.c" are "a", "a.b"
        and "a.b.c".

    Returns:
      None if the tables contain neither the name nor one of its prefixes. Otherwise four values: the kind of
      the finding; a text such as "it was moved or removed"; the replacement; and a bool, True if the Python
      that runs the checker still has the name and a later version removes it.
    """
    parts = name.split(".")
    for length in range(first, len(parts) + 1):
        part = ".".join(parts[:length])
        if part in rules.MODULES and modules.not_installed(part):
            return PYTHON2, "the module has another name", rules.MODULES[part], False
        if part in rules.GONE:
            version, instead = rules.GONE[part]
            kind = PYTHON2 if version == "3.0" else PYTHON3
            later = sys.version_info < tuple(map(int, version.split(".")))
            return kind, f"it is gone {'in' if later else 'since'} Python {version}", instead, later
        if part in rules.MOVED:
            return PACKAGE, "it was moved or removed", rules.MOVED[part], False
    return None


def _import_line(instead, module, full):
    """Returns the code that a program should contain instead of an import.

    Args:
      instead: the replacement, from a table of `rules`: a dotted name, or another text.
      module: name of the module in the import.
      full: the imported name: `module` for "import module", "module.name" for "from module import name".
    """
    if not re.fullmatch(r"[\w.]+", instead) or instead in dir(builtins):
        return rules.code(instead)
    if full == module:
        return f"`import {instead}`"
    name = full.rpartition(".")[2]
    home, _, new = instead.rpartition(".")
    if full in {**rules.GONE, **rules.MOVED}:
        return f"`from {home} import {new}`" if home else f"`import {new}`"
    return f"`from {instead} import {name}`"


def _lacks(code, part, reason):
    """Returns (kind of the finding, text, replacement) for a name that TensorFlow or NumPy lacks.

    Args:
      code: str, the import or the expression in the program that contains the name. The text begins with it.
      part: the dotted name up to and including the first part that does not exist.
      reason: the error message. If a Namespace of tf1 raised the error, the message may name a replacement.
    """
    root, _, name = part.partition(".")
    if root == "numpy":
        advice = re.search(r"[Uu]se (`[^`]+`)", reason)
        instead = f"`{rules.NUMPY_NAMES[name]}`" if name in rules.NUMPY_NAMES else advice[1] if advice else ""
        return NUMPY, f"{code}: NumPy has no {name}", instead
    if root == "tf" and (advice := tensorflow_names.advice(part)):
        reason = f"{part}: {advice}"
    if explained := re.match(r"[\w.]+: (.*?)\.?(?: Use (.*?)\.?)?$", reason):
        return TENSORFLOW, f"{code}: {explained[1]}", explained[2] or ""
    last = part.rpartition(".")[2]
    elsewhere = [f"tf.{home}{last}" for home in _HOMES if not modules.missing(f"tf.{home}{last}")]
    found = part.startswith("tensorflow.python.") and not last.startswith("_") and elsewhere
    return TENSORFLOW, f"{code}: tf1 has no {part}", f"`{elsewhere[0]}`" if found else ""
