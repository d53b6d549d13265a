"""The names in `tf1/_names/internals.py` still exist in TensorFlow, with the arguments that tf1 uses.

The tests of the modules that use these names check what the names do.
"""

import ast
import inspect
import operator
import pathlib
import re

import pytest

import tf1  # noqa: F401  TensorFlow as programs have it
from tf1._names import internals

ATTRIBUTES = {
    "export_output": "ClassificationOutput ExportOutput PredictOutput RegressionOutput",
    "nest": "is_nested flatten pack_sequence_as map_structure flatten_up_to map_structure_up_to",
    "lookup_ops": "FastHashSpec StrongHashSpec index_table_from_tensor index_table_from_file "
                  "index_to_string_table_from_tensor",
    "summary_ops_v2": "create_file_writer summary_writer_initializer_op graph_v1",
    "inner_python": "framework ops training",
    "ResourceVariable": "handle read_value is_initialized initial_value __add__ __pow__",
    "state_ops": "assign",
    "optimizers": "_RefVariableProcessor",
    "legacy_cell_wrappers": "tf",
    "deprecation": "_PRINT_DEPRECATION_WARNINGS",
    "tf.Operation": "_control_outputs _set_device _update_input",
    "tf.train.AdamOptimizer": "_get_beta_accumulators",
    "tf.keras.layers.Dropout": "_get_noise_shape",
}
# {function: its first arguments}. tf1 or programs pass them, or tf1 replaces the function.
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
    "op_def_library._apply_op_helper": "op_type_name name keywords",
    "metrics_impl._streaming_confusion_matrix": "labels predictions num_classes weights",
    "optimizers._DenseResourceVariableProcessor.update_op": "self optimizer g",
    "resource_variable_ops.ResourceVariable._init_from_proto": "self variable_def import_scope "
                                                               "validate_shape",
    "variables._safe_initial_value_from_op": "name op op_cache",
    "training_utils_v1.get_metric_function": "metric output_shape loss_fn",
    "tf.train.Optimizer._prepare": "self",
    "tf.train.Optimizer._apply_dense": "self grad var",
    "tf.train.Optimizer._apply_sparse": "self grad var",
    "tf.train.Optimizer._resource_apply_dense": "self grad handle",
    "tf.train.Optimizer._resource_apply_sparse": "self grad handle indices",
}


def found(name):
    return operator.attrgetter(name)(internals)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_module_or_class_has_the_names_that_we_use(name):
    assert not [attribute for attribute in ATTRIBUTES[name].split() if not hasattr(found(name), attribute)]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_function_takes_the_arguments_that_we_pass(name):
    expected = ARGUMENTS[name].split()
    assert list(inspect.signature(inspect.unwrap(found(name))).parameters)[:len(expected)] == expected


def test_each_name_of_the_module_is_tested_here():
    values = [node for node in ast.parse(inspect.getsource(internals)).body
              if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call)]
    names = {node.id for value in values for target in value.targets for node in ast.walk(target)
             if isinstance(node, ast.Name) and not node.id.startswith("_")} | set(internals.__all__)
    source = pathlib.Path(__file__).read_text(encoding="utf-8")
    assert not [name for name in names if not re.search(rf"\b{name}\b", source)]
