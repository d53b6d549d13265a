"""Resolves the names that the code of a file uses.

An imported name is resolved to a dotted name. A name with a single assignment is resolved to the assigned
value.
"""

import ast
import builtins

from tf1._check.rules import BUILTINS
from tf1._run.rewriting import our_name

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST_CHAIN = 20


def canonical(name):
    """Returns a dotted name that begins with `tf` if the name is in a module with the names of TensorFlow 1.

    For example, "tensorflow.compat.v1.nn" becomes "tf.nn". Other names are returned unchanged.
    """
    ours = name if name.split(".")[0] == "tf1" else our_name(name)
    return name if ours is None else f"tf{ours.removeprefix('tf1')}"


class Scope:
    """Contains the names that a module, class, function or comprehension defines.

    Attributes:
      parent: the scope around this one, or None.
      is_class: whether this is the scope of a class.
      module: the scope of the module.
      names: {name: list of its bindings}. A binding is the dotted name of an import (str), the expression of
        a plain assignment (ast.expr), or None for any other binding.
      stars: set of the modules that are imported with `import *`.
      methods: names of all functions that the program defines. A method with one of these names may be
        defined by the program, so it is not taken for a method of a Python type.
    """

    def __init__(self, node, parent=None, methods=()):
        self.parent = parent
        self.is_class = isinstance(node, ast.ClassDef)
        self.module = parent.module if parent else self
        self.names = {}
        self.stars, self.methods = set(), methods
        self._elsewhere = set()  # names that are declared global or nonlocal
        body = node.generators if isinstance(node, COMPREHENSIONS) else node.body
        if isinstance(node, FUNCTIONS):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    self._bind(argument.arg)
        self._collect(body if isinstance(body, list) else [body])

    def _bind(self, name, meaning=None):
        if name in self._elsewhere:
            self.module.names.setdefault(name, []).append(None)
        else:
            self.names.setdefault(name, []).append(meaning)

    def _collect(self, nodes):
        waiting = list(nodes)
        for node in waiting:  # the loop appends further nodes to this list
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self._elsewhere.update(node.names)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    self._bind(alias.asname or name, canonical(name))
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, ast.Assign) and [type(target) for target in node.targets] == [ast.Name]:
                self._bind(node.targets[0].id, node.value)
                waiting.append(node.value)
            elif isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self._bind(node.id)
            else:
                if isinstance(name := getattr(node, "name", None), str):
                    self._bind(name)  # a name that is bound by def, class or `except … as`
                if not isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
                    waiting.extend(ast.iter_child_nodes(node))

    def _import_from(self, node):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.module.stars.add(module)
            else:
                self._bind(alias.asname or alias.name, canonical(f"{module}.{alias.name}"))

    def find(self, name):
        """Returns the scope that binds a name, or None."""
        scope, inner = self, True
        while scope is not None:
            if name in scope.names and (inner or not scope.is_class):
                return scope
            scope, inner = scope.parent, False
        return None

    def value(self, node):
        """Returns the expression that was assigned to a name, if `node` is a name that is bound exactly once,
        by an assignment. Otherwise returns `node` itself."""
        if isinstance(node, ast.Name):
            scope = self.find(node.id)
            bindings = scope.names[node.id] if scope else []
            if len(bindings) == 1 and isinstance(bindings[0], ast.expr):
                return bindings[0]
        return node

    def resolve(self, node, depth=0):
        """Returns the full dotted name of an expression that consists of names and dots.

        For example, after `from tensorflow import nn as layers`, the full name of `layers.dropout` is
        "tf.nn.dropout". The first name in this expression, `layers`, is resolved to "tf.nn", which has two
        parts. So the result is ("tf.nn.dropout", 2). A builtin that the program does not redefine, such as
        `range`, has the full name "builtins.range".

        Returns:
          (full dotted name, number of parts of the resolved first name); (None, 0) if the first name cannot
          be resolved.
        """
        if isinstance(node, ast.Attribute):
            base, parts = self.resolve(node.value, depth)
            return (f"{base}.{node.attr}", parts) if base else (None, 0)
        if not isinstance(node, ast.Name) or depth > _LONGEST_CHAIN:
            return None, 0
        scope = self.find(node.id)
        if scope is None:
            known = hasattr(builtins, node.id) or node.id in BUILTINS
            return (f"builtins.{node.id}", 1) if known else (None, 0)
        meanings = {scope.resolve(binding, depth + 1)[0] if isinstance(binding, (ast.Name, ast.Attribute))
                    and len(scope.names[node.id]) == 1 else binding if isinstance(binding, str) else None
                    for binding in scope.names[node.id]}
        meaning = meanings.pop() if len(meanings) == 1 else None
        return (meaning, meaning.count(".") + 1) if meaning else (None, 0)
