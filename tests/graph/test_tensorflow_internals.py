"""Names outside of TensorFlow's public interface: only two files use them, for a known release."""

import ast
import functools
import re

import pytest
import tensorflow.compat.v1 as tf
import test_architecture

from bertlib.graph import tensorflow_internals

MODULES = {test_architecture.ROOT / path for path in (
    "bertlib/graph/tensorflow_internals.py", "tf1/_names/internals.py")}
FILES = [path for paths in test_architecture.FILES.values() for path in paths]
INTERNALS = re.compile(r"tensorflow\.(?!compat\.v1$)|tf_keras\.")
# Private names that do not belong to TensorFlow: methods of a namedtuple, the function that ends a process,
# the name of a function in an arg_scope, the scopes of tf_slim, and names of a `Namespace` of tf1.
NOT_OF_TENSORFLOW = {"_asdict", "_field_defaults", "_fields", "_make", "_replace", "_exit", "_key_op",
                     "_ARGSTACK", "_DECORATED_OPS", "_own"}
# The methods that tf.train.Optimizer documents for its subclasses.
OPTIMIZER_STEPS = {"_prepare", "_apply_dense", "_apply_sparse", "_resource_apply_dense",
                   "_resource_apply_sparse"}


# --- The release of TensorFlow ---------------------------------------------------------------------------


def test_the_suite_passed_with_this_release_of_tensorflow():
    # This is a failure and not a warning, because a warning among a thousand tests is easily overlooked. Only
    # a person can confirm that all tests were run with the new release. The commands do not check the
    # release.
    assert tf.__version__ in tensorflow_internals.SEEN_WITH, (
        f"TensorFlow {tf.__version__} is new here. Go through 'When TensorFlow has a new release' in "
        "docs/development/packages.md, then add it to SEEN_WITH in bertlib/graph/tensorflow_internals.py.")


# --- No other file ---------------------------------------------------------------------------------------


def uses_of_internals(path):
    """Lists the imports of TensorFlow's internals in a file, and the private names of other packages."""
    found = []
    for node in test_architecture.nodes_of(path):
        found += [(node.lineno, module) for module in _imported(node) if INTERNALS.match(module)]
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
            text = ast.unparse(node)
            # An inherited name may be defined in another file.
            files = [path, *FILES] if text.startswith(("self._", "cls._", "super()._")) else [path]
            if node.attr not in NOT_OF_TENSORFLOW | OPTIMIZER_STEPS and not any(
                    node.attr in _names_in(file) for file in files):
                found.append((node.lineno, text))
    return sorted({f"{path.name}:{line}: {what}" for line, what in found})


def _imported(node):
    """Returns the modules that a statement or a call imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    imports = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module"
    return [node.args[0].value] if imports and isinstance(node.args[0], ast.Constant) else []


@functools.cache
def _names_in(path):
    """Returns the names of a file's functions, classes, variables and attributes of `self`."""
    nodes = test_architecture.nodes_of(path)
    return {getattr(node, "name", getattr(node, "id", None)) for node in nodes} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        and getattr(node.value, "id", "") in ("self", "cls")}


def test_no_other_file_uses_internals_of_tensorflow():
    assert not [use for path in FILES if path not in MODULES for use in uses_of_internals(path)]


@pytest.mark.parametrize(("code", "count"), [
    ("def f():\n    from tensorflow.python.ops import array_ops", 1),
    ("import importlib\nimportlib.import_module('tensorflow.python.util.deprecation')", 1),
    ("class A(tf.train.Saver):\n    def f(self, op):\n        return self._last_checkpoints, op._graph", 2),
])
def test_the_check_finds_internals(tmp_path, code, count):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert len(uses_of_internals(path)) == count
