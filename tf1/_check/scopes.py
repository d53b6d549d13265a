"""Which name means what in a file: imports by their dotted names, single assignments by their values."""

import ast
import builtins

from tf1._check.rules import BUILTINS

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST_CHAIN = 20
# Modules that programs import all of Python 2's builtins from.
_GIVE_BUILTINS = {"builtins", "future", "past", "six"}


def canonical(name):
    """A dotted name, where all ways to TensorFlow 1's names are `tf`, as it is after the line is changed."""
    for root in ("tensorflow.compat.v1", "tensorflow_core.compat.v1", "tf1", "tensorflow"):
        if name == root or (root != "tensorflow" and name.startswith(root + ".")):
            return "tf" + name[len(root):]
    return name


class Scope:
    """The names of a module, class, function or comprehension.

    `names` is {name: its bindings}: the dotted name of an import, the expression of a plain assignment, or
    None for anything else. `stars` are the modules of which everything is imported.
    """

    def __init__(self, node, parent=None):
        self.parent = parent
        self.is_class = isinstance(node, ast.ClassDef)
        self.module = parent.module if parent else self
        self.names = {}
        self.stars = set()
        self._elsewhere = set()  # global and nonlocal
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
        for node in waiting:  # it grows
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
                for name in (getattr(node, "name", None), getattr(node, "rest", None)):
                    if isinstance(name, str):  # def, class, except … as, match
                        self._bind(name)
                if not isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
                    waiting.extend(ast.iter_child_nodes(node))

    def _import_from(self, node):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.module.stars.add(module)
            else:
                self._bind(alias.asname or alias.name, canonical(
                    f"tf.{alias.name}" if canonical(module) == "tf" else f"{module}.{alias.name}"))

    def find(self, name):
        """The scope that a name is bound in, or None."""
        scope, inner = self, True
        while scope is not None:
            if name in scope.names and (inner or not scope.is_class):
                return scope
            scope, inner = scope.parent, False
        return None

    def value(self, node):
        """The expression that a name stands for, where that is certain; else the node itself."""
        if isinstance(node, ast.Name):
            scope = self.find(node.id)
            bindings = scope.names[node.id] if scope else []
            if len(bindings) == 1 and isinstance(bindings[0], ast.expr):
                return bindings[0]
        return node

    def resolve(self, node, depth=0):
        """What an expression of names and dots means.

        Returns:
          (dotted name, how many of its parts the first name stands for), or (None, 0). Names that nothing
          binds are `builtins.name`, if they are or were there.
        """
        if isinstance(node, ast.Attribute):
            base, parts = self.resolve(node.value, depth)
            return (f"{base}.{node.attr}", parts) if base else (None, 0)
        if not isinstance(node, ast.Name) or depth > _LONGEST_CHAIN:
            return None, 0
        scope = self.find(node.id)
        if scope is None:
            given = {star.split(".")[0] for star in self.module.stars} & _GIVE_BUILTINS
            known = hasattr(builtins, node.id) or (node.id in BUILTINS and not given)
            return (f"builtins.{node.id}", 1) if known else (None, 0)
        meanings = {scope.resolve(binding, depth + 1)[0] if isinstance(binding, (ast.Name, ast.Attribute))
                    and len(scope.names[node.id]) == 1 else binding if isinstance(binding, str) else None
                    for binding in scope.names[node.id]}
        meaning = meanings.pop() if len(meanings) == 1 else None
        return (meaning, meaning.count(".") + 1) if meaning else (None, 0)
