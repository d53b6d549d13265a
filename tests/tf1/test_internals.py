"""The names in `tf1/_names/internals.py` still exist in TensorFlow, with the arguments that tf1 uses."""

import ast
import inspect
import pathlib
import re

import pytest
import tensorflow.compat.v1 as tf

import tf1  # noqa: F401  TensorFlow as programs have it
from tf1._names import internals

ATTRIBUTES = {
    "export_output": "ClassificationOutput ExportOutput PredictOutput RegressionOutput",
    "nest": "is_nested flatten pack_sequence_as map_structure flatten_up_to map_structure_up_to",
    "lookup_ops": "FastHashSpec StrongHashSpec index_table_from_tensor index_table_from_file "
                  "index_to_string_table_from_tensor",
    "summary_ops_v2": "create_file_writer summary_writer_initializer_op graph_v1",
    "inner_python": "framework ops training",
    "normalization": "BatchNormalization batch_normalization",
    "ResourceVariable": "handle read_value is_initialized initial_value __add__ __pow__",
}
# The arguments that tf1 or programs pass.
ARGUMENTS = {
    "autograph_convert": "recursive",
    "StagingArea": "dtypes shapes names",
    "deprecated": "date instructions",
    "deprecated_args": "date instructions",
    "should_record_summaries": "",
    "find_initialized_value": "variable_op",
    "smart_cond": "pred true_fn false_fn",
    "smart_constant_value": "pred",
    "register_fetch": "tensor_type fetch_function feed_function feed_function_for_partial_run",
}


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_a_module_or_class_has_the_names_that_we_use(name):
    assert not [attribute for attribute in ATTRIBUTES[name].split()
                if not hasattr(getattr(internals, name), attribute)]


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_function_takes_the_arguments_that_we_pass(name):
    assert set(ARGUMENTS[name].split()) <= set(inspect.signature(getattr(internals, name)).parameters)


@pytest.mark.parametrize(("name", "arguments"), [
    ("_prepare", []), ("_apply_dense", ["grad", "var"]), ("_apply_sparse", ["grad", "var"]),
    ("_resource_apply_dense", ["grad", "handle"]), ("_resource_apply_sparse", ["grad", "handle", "indices"])])
def test_optimizers_have_the_steps_that_subclasses_define(name, arguments):
    assert list(inspect.signature(getattr(tf.train.Optimizer, name)).parameters) == ["self", *arguments]


@pytest.mark.parametrize(("replace", "owner", "name", "arguments"), [
    ("replace_apply_op", internals.op_def_library, "_apply_op_helper", ["op_type_name", "name", "keywords"]),
    ("replace_confusion_matrix", internals.metrics_impl, "_streaming_confusion_matrix",
     ["labels", "predictions", "num_classes", "weights"]),
    ("replace_resource_update", internals.optimizers._DenseResourceVariableProcessor, "update_op",
     ["self", "optimizer", "g"]),
    ("replace_variable_import", internals.resource_variable_ops.ResourceVariable, "_init_from_proto",
     ["self", "variable_def", "import_scope", "validate_shape"]),
    ("replace_initial_value", internals.variables, "_safe_initial_value_from_op", ["name", "op", "op_cache"]),
    ("replace_metric_lookup", internals.training_utils_v1, "get_metric_function",
     ["metric", "output_shape", "loss_fn"])])
def test_a_function_of_tensorflow_is_replaced(monkeypatch, replace, owner, name, arguments):
    original = getattr(owner, name)
    assert list(inspect.signature(inspect.unwrap(original)).parameters) == arguments
    monkeypatch.setattr(owner, name, original)  # restores it
    getattr(internals, replace)(lambda function: [function])
    assert getattr(owner, name) == [original]


def test_assign_is_replaced_where_programs_import_it(monkeypatch):
    monkeypatch.setattr(internals.state_ops, "assign", internals.state_ops.assign)
    internals.replace_assign("ours")
    assert internals.state_ops.assign == "ours"


def test_cells_see_our_module(monkeypatch):
    cells = internals.legacy_cell_wrappers
    assert cells.tf.nn.dropout is tf1.nn.dropout
    monkeypatch.setattr(cells, "tf", cells.tf)
    internals.replace_tensorflow_of_cells("ours")
    assert cells.tf == "ours"


def test_a_variable_is_updated_as_a_reference_variable(graph):
    class Negative(tf.train.GradientDescentOptimizer):
        def _apply_dense(self, grad, var):
            return tf.assign(var, -grad)

    variable = tf.get_variable("weights", [2])
    processor = internals.optimizers._get_processor(variable)
    update = internals.update_as_reference(processor, Negative(1.0), tf.constant([1.0, 2.0]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(update)
        assert session.run(variable).tolist() == [-1.0, -2.0]
    internals.add_reference(internals.ResourceVariable)
    assert variable._ref() is variable


def test_ops_that_exist_are_read_and_changed(graph):
    first, second = tf.constant(1, name="first"), tf.constant(2, name="second")
    with tf.control_dependencies([first]):
        user = tf.identity(second)
    assert internals.control_outputs(first.op) == [user.op]
    internals.update_input(user.op, 0, first)
    assert user.op.inputs[0] is first
    internals.set_device(user.op, "/device:CPU:0")
    assert user.op.device == "/device:CPU:0"
    internals.add_outputs_attribute()
    assert first.op._outputs == first.op.outputs


def test_optimizers_and_layers_tell_what_they_are_made_with(graph):
    optimizer = tf.train.AdamOptimizer(0.5, 0.25, 0.75, 0.125, use_locking=True)
    optimizer.minimize(tf.get_variable("weights", [1])[0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(list(internals.adam_tensors(optimizer))) == [0.5, 0.25, 0.75, 0.125, 0.25, 0.75]
    assert internals.uses_locking(optimizer) is True
    layer = tf.layers.Dropout(noise_shape=[None, 1])
    with tf.Session() as session:
        shape = internals.noise_shape(layer, tf.zeros([2, 3]))
        assert session.run(tf.convert_to_tensor(shape)).tolist() == [2, 1]


def test_deprecations_are_silent():
    assert internals.deprecation._PRINT_DEPRECATION_WARNINGS is False
    internals.silence_deprecations()
    assert internals.deprecation._PRINT_DEPRECATION_WARNINGS is False


def test_each_name_of_the_module_is_tested_here():
    tree = ast.parse(inspect.getsource(internals))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
             and isinstance(node.ctx, ast.Store)} | {node.name for node in tree.body
                                                     if isinstance(node, ast.FunctionDef)}
    names = {name for name in names if not name.startswith("_")} | set(internals.__all__)
    source = pathlib.Path(__file__).read_text(encoding="utf-8")
    assert not [name for name in names if not re.search(rf"\b{name}\b", source)]
