"""Imports files for TensorFlow 1.x as if each `import tensorflow as tf` in them were `import tf1 as tf`.

Only the syntax tree in memory is changed, and line numbers stay the same. No `.pyc` file is written, because
runs of the same files without `tf1` would load the changed code from it. The imports change in the fork's own
files and in the packages that `--also` names. All other libraries keep TensorFlow 2.
"""

import ast
import importlib.abc
import importlib.machinery
import itertools
import os
import sys
import sysconfig

from tf1._run import ours

# Imports of these parts of TensorFlow are not changed.
_INNER = ("core", "python", "tools")
# This part of `tensorflow.python` is changed: it would be another Keras than that of `tf.keras`.
_KERAS = ["tensorflow", "python", "keras"]


def rewritten(tree):
    """Returns the syntax tree of a file, in which imports of TensorFlow are changed into imports of `tf1`."""
    return ast.fix_missing_locations(_Imports().visit(tree))


class _Imports(ast.NodeTransformer):
    """Replaces `tensorflow` by `tf1` in the import statements of a file."""

    def visit_Import(self, node):
        statements, aliases = [], []
        for alias in node.names:
            replacement = our_name(alias.name)
            if replacement is None:
                aliases.append(alias)
            elif alias.asname or "." not in alias.name:
                aliases.append(ast.alias(replacement, alias.asname or alias.name))
            else:
                # `import tensorflow.contrib.crf` binds only the name `tensorflow`. So the replacement imports
                # the module, and then binds `tensorflow` to tf1.
                statements.append(ast.Expr(ast.Call(ast.Name("__import__", ast.Load()),
                                                    [ast.Constant(replacement)], [])))
                aliases.append(ast.alias("tf1", "tensorflow"))
        statements.append(ast.Import(aliases))
        return [ast.copy_location(statement, node) for statement in statements]

    def visit_ImportFrom(self, node):
        statements = []
        for name, aliases in itertools.groupby(
                node.names, lambda alias: None if node.level else our_name(node.module, alias.name)):
            statements.append(ast.ImportFrom(name or node.module, list(aliases), 0 if name else node.level))
        return [ast.copy_location(statement, node) for statement in statements]


def our_name(module, name=None):
    """Returns the name that replaces a TensorFlow module in an import, such as "tf1.nn". Returns None if
    imports of the module are not changed.

    Args:
      module: dotted name of the module.
      name: the name that is imported from the module, or None.
    """
    parts = module.split(".")
    if [*parts, name][:3] == _KERAS:
        return ".".join(["tf1", *parts[1:]])
    if parts[0] != "tensorflow" or parts[1:2] and parts[1] in _INNER:
        return None
    if parts[1:2] == ["compat"] and parts[2:3] != ["v1"]:
        return "tf1.compat" if parts == ["tensorflow", "compat"] else None
    return ".".join(["tf1", *(parts[3:] if parts[1:2] == ["compat"] else parts[1:])])


def compiled(data, path):
    """Changes the imports of a file and compiles it.

    Args:
      data: bytes of the file.
      path: path of the file, for tracebacks.

    Raises:
      SyntaxError: the file is not Python 3.
    """
    return compile(rewritten(ast.parse(data, path)), path, "exec", dont_inherit=True)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a file with changed imports."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)


class Finder(importlib.abc.MetaPathFinder):
    """A finder that Python asks before its own finders. It changes the import statements of two kinds of
    modules while they are loaded: the fork's own files, and the modules of the given packages."""

    def __init__(self, packages=()):
        """Creates a finder.

        Args:
          packages: names of installed packages. The imports in the files of these packages are changed, too.
        """
        self._packages = frozenset(packages)
        self._libraries = [os.path.join(os.path.realpath(path), "") for path in {
            *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
            *(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))}]

    def find_spec(self, name, path=None, target=None):
        spec = ours.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader and (
                name.partition(".")[0] in self._packages or self._is_forks(spec.origin)):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec

    def _is_forks(self, path):
        path = os.path.realpath(path)
        return not path.startswith(tuple(self._libraries)) and not ours.is_ours(path)
