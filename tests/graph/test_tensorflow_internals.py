"""Names outside of TensorFlow's public interface: they work as expected, and only one file uses them."""

import ast
import functools
import inspect
import pathlib
import re

import pytest
import tensorflow.compat.v1 as tf
import test_rooms

from bertlib.graph import tensorflow_internals

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = {ROOT / "bertlib" / "graph" / "tensorflow_internals.py", ROOT / "tf1" / "_names" / "internals.py"}
FILES = sorted([*ROOT.glob("*.py"), *(ROOT / "bertlib").rglob("*.py"), *(ROOT / "tf1").rglob("*.py")])
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
        "docs/development/house.md, then add it to SEEN_WITH in bertlib/graph/tensorflow_internals.py.")


# The arguments that this project passes. Arguments before "*" are passed by position, the others by name.
ARGUMENTS = {
    "op_definition": "name",
    "apply_op": "op_type_name name",
    "import_meta_graph": "meta_graph_or_file * clear_devices import_scope input_map",
    "open_records": "path",
    "parse_saved_model": "export_dir",
    "asset_paths": "export_dir meta_graph_def_to_load",
    "with_default_output": "export_outputs predictions",
    "signatures_of": "receiver_tensors export_outputs receiver_tensors_alternatives",
    "Cluster": "* devices disable_timeline",
    "Item": "metagraph",
    "optimize_graph": "config_proto metagraph * verbose cluster",
}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_function_takes_the_arguments_that_we_pass(name):
    by_position, _, by_name = ARGUMENTS[name].partition("*")
    parameters = list(inspect.signature(getattr(tensorflow_internals, name)).parameters)
    assert parameters[:len(by_position.split())] == by_position.split()
    assert set(by_name.split()) <= set(parameters)


def test_messages_have_the_fields_that_we_use():
    fields = {name: {field.name for field in getattr(tensorflow_internals, name).DESCRIPTOR.fields}
              for name in ("VariableDef", "NamedDevice", "DeviceProperties")}
    assert fields["VariableDef"] >= {"variable_name", "initial_value_name", "initializer_name",
                                     "snapshot_name", "save_slice_info_def"}
    assert fields["NamedDevice"] >= {"name", "properties"}
    assert fields["DeviceProperties"] >= {"type", "vendor", "frequency", "num_cores", "bandwidth",
                                          "memory_size", "environment"}


def test_each_name_of_the_module_is_tested_here():
    tree = ast.parse(inspect.getsource(tensorflow_internals))
    names = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    names |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    source = pathlib.Path(__file__).read_text(encoding="utf-8")
    assert not [name for name in names if not re.search(rf"\b{name}\b", source)]


def test_objects_have_the_attributes_that_we_use(graph, tmp_path):
    op, saver = tf.get_variable("weights", [2]).op, tf.train.Saver()
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=9, saver=saver)
    used = {  # {function or class of the module: (object, its attributes)}
        "control_flow_context": (op, "_get_control_flow_context"), "set_attribute": (op, "_set_attr"),
        "add_control_inputs": (op, "_add_control_inputs"),
        "Saver": (saver, "_checkpoints_to_be_deleted _next_checkpoint_time _MaybeDeleteOldCheckpoints"),
        "CheckpointSaverHook": (hook, "_checkpoint_dir _save _save_graph_def"),
        "count_as_saved": (hook._timer, "update_last_triggered_step"),
        "forget_summary_writers": (tf.summary.FileWriterCache, "_cache"),
        "parse_profile": (tensorflow_internals.parse_profile(b""), "planes")}
    assert not [(name, attribute) for name, (owner, attributes) in used.items()
                for attribute in attributes.split() if not hasattr(owner, attribute)]


# --- No other file ---------------------------------------------------------------------------------------


def uses_of_internals(path):
    """Lists the imports of TensorFlow's internals in a file, and the private names of other packages."""
    found = []
    for node in test_rooms.nodes_of(path):
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
    nodes = test_rooms.nodes_of(path)
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
