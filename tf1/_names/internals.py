"""Defines all names of TensorFlow and Keras 2 that `tf1` uses although they are not public.

bertlib has a similar module, `bertlib/graph/tensorflow_internals.py`. `tf1` needs more such names, because it
restores names that programs of TensorFlow 1.x use and that TensorFlow 2 no longer publishes. The comment
above a name says why the name is needed, and why a similar public name does not replace it. No other file of
`tf1` imports a name that is not public, or reads a private attribute of an object of TensorFlow;
`tests/graph/test_tensorflow_internals.py` tests this rule. `docs/development/packages.md` describes the steps
for a new release of TensorFlow. The modules that programs import by name are in `tf1/_run/modules.py`.
"""

import functools
import inspect

from tensorflow import python as tensorflow_python
import tensorflow.compat.v1 as tf
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.client import session
from tensorflow.python.framework import op_def_library
from tensorflow.python.framework import smart_cond as smart_conds
from tensorflow.python.ops import (
    data_flow_ops,
    lookup_ops,
    metrics_impl,
    resource_variable_ops,
    state_ops,
    summary_ops_v2,
    variables,
)
from tensorflow.python.saved_model.model_utils import export_output
from tensorflow.python.training import optimizer as optimizers
from tensorflow.python.util import deprecation, nest
from tf_keras.src.engine import training_utils_v1
from tf_keras.src.layers.rnn import legacy_cell_wrappers

__all__ = ["export_output", "lookup_ops", "nest", "summary_ops_v2"]

# --- Names of TensorFlow that programs use unchanged ----------------------------------------------

# Programs use the modules in `__all__`. `export_output` contains the classes that were public as
# tf.estimator.export until TensorFlow 2.15. `nest` is tf.contrib.framework.nest; the public `tf.nest` lacks
# flatten_up_to, map_structure_up_to and others. `lookup_ops` contains names of tf.contrib.lookup that the
# public `tf.lookup` lacks, such as index_table_from_file. `summary_ops_v2` contains the names of
# tf.contrib.summary. `tf.compat.v2.summary` has functions with the same names, but they take other arguments,
# and do not find the global step of a graph.
should_record_summaries = summary_ops_v2._legacy_contrib_should_record_summaries

# The next two names are tf.contrib.autograph.convert and tf.contrib.staging.StagingArea. `convert` converts a
# function when the function is called. The public `tf.autograph.to_graph` converts it immediately.
# `tf.raw_ops.Stage` and `tf.raw_ops.Unstage` provide only the ops of a StagingArea, not the class.
autograph_convert = autograph_api.convert
StagingArea = data_flow_ops.StagingArea
# This package is `tf.python`. Programs read other names of it than the public names of `tf`.
inner_python = tensorflow_python
# The next two names are in tf.contrib.framework. TensorFlow has no public names for them.
deprecated, deprecated_args = deprecation.deprecated, deprecation.deprecated_args
# tf.contrib.framework.smart_cond accepts a Python bool, which the public `tf.cond` refuses.
smart_cond, smart_constant_value = smart_conds.smart_cond, smart_conds.smart_constant_value

# --- Graphs ----------------------------------------------------------------------------------------------


def control_outputs(op):
    """Returns the control outputs of an op: the ops that may run only after it. The public `control_inputs`
    gives only the opposite: the ops that must run before it."""
    return op._control_outputs


def set_device(op, device):
    """Sets the device of an existing op.

    The public `tf.device` affects only new ops. It also merges the device with the devices of outer scopes.
    """
    op._set_device(device)


def update_input(op, index, tensor):
    """Replaces an input of an existing op. TensorFlow has no public function for that."""
    op._update_input(index, tensor)


def add_outputs_attribute():
    """Gives `tf.Operation` the attribute `_outputs` of TensorFlow 1, because programs that edit graphs read
    it."""
    if not hasattr(tf.Operation, "_outputs"):
        tf.Operation._outputs = property(lambda self: self.outputs)


# --- Optimizers and layers -------------------------------------------------------------------------------


def adam_tensors(optimizer):
    """Returns the tensors of the current step of a tf.train.AdamOptimizer. The optimizer's public methods
    return only its slots.

    Returns:
      a tuple of scalar tensors: (learning rate, beta 1, beta 2, epsilon, beta 1 ** step, beta 2 ** step).
    """
    return (optimizer._lr_t, optimizer._beta1_t, optimizer._beta2_t, optimizer._epsilon_t,
            *optimizer._get_beta_accumulators())


def noise_shape(layer, inputs):
    """Returns the shape of a Keras dropout layer's mask. The public attribute `noise_shape` is not enough,
    because a subclass of the layer may compute the shape from the inputs."""
    return layer._get_noise_shape(inputs)


# --- Hooks -----------------------------------------------------------------------------------------------


def saving_listeners(hook):
    """Returns the listeners of a tf.train.CheckpointSaverHook."""
    return list(hook._listeners)


def set_saving_listeners(hook, listeners):
    """Replaces the listeners of a tf.train.CheckpointSaverHook.

    In the public interface, listeners can be passed only to the constructor of the hook.
    """
    hook._listeners = listeners


# --- Changes of TensorFlow itself ------------------------------------------------------------------------

# The class of resource variables. `tf.Variable` cannot be used instead, because it is also the base class of
# reference variables, whose methods must not change.
ResourceVariable = resource_variable_ops.BaseResourceVariable
# Returns the `initialized_value` of the variable with a given op, or None. `tf.global_variables` alone would
# not find a local variable.
find_initialized_value = variables._find_initialized_value_for_variable
# Registers a function for one class. If a program fetches an object of this class, the session fetches the
# tensors that the function returns. A replacement of `tf.Session.run` would not be enough, because it would
# miss such objects inside lists and dicts.
register_fetch = session.register_session_run_conversion_functions


def silence_deprecations():
    """Turns off TensorFlow's warnings about deprecated names of TensorFlow 1.

    The public `tf.logging.set_verbosity` would also hide other warnings.
    """
    deprecation._PRINT_DEPRECATION_WARNINGS = False


def add_reference(variable_class):
    """Gives resource variables the method `_ref` of reference variables, because some programs call
    `_ref`."""
    variable_class._ref = lambda self: self


def _wrapped(function, original):
    @functools.wraps(original)
    def replacement(*args, **kwargs):
        return function(original, *args, **kwargs)
    # Keras calls `getfullargspec`, which does not look at the wrapped function.
    replacement.__signature__ = inspect.signature(original)
    return replacement


def replaces(name, *owners):
    """Returns a decorator for a function that replaces a function or method of TensorFlow.

    The decorated function takes the original, and then the arguments of the original. The decorator returns
    the replacement, whose arguments are those of the original.

    Args:
      name: name of the function.
      owners: the modules or classes whose function is replaced.
    """
    def replace(function):
        for owner in owners:
            setattr(owner, name, _wrapped(function, getattr(owner, name)))
        return getattr(owners[-1], name)
    return replace


# The method that creates a resource variable from its description in a MetaGraph. There is no public function
# that every import of a MetaGraph calls.
replaces_variable_import = replaces("_init_from_proto", resource_variable_ops.ResourceVariable)
# The function that makes the initial value of a variable safe: it replaces each op that reads another
# variable. There is no public function that does this for a variable of any kind.
replaces_initial_value = replaces("_safe_initial_value_from_op", variables)
# The function with which `tf.keras.Model.compile` looks up a metric. There is no public function for that.
replaces_metric_lookup = replaces("get_metric_function", training_utils_v1)
# The function with which TensorFlow's generated code (`gen_*_ops`) creates ops. A replacement of the public
# `tf.Graph.create_op` would not see its errors, because TensorFlow checks the arguments before it calls
# `create_op`.
replaces_apply_op = replaces("_apply_op_helper", op_def_library)
# Metrics such as `tf.metrics.mean_iou` call this function. It was never public, but some programs import it.
replaces_confusion_matrix = replaces("_streaming_confusion_matrix", metrics_impl)
# `tf.assign` in TensorFlow's module `state_ops`, from which some programs import it.
replaces_assign = replaces("assign", state_ops)
# The method that `tf.train.Optimizer` calls to update a resource variable. Its arguments are (self,
# optimizer, gradient), and it returns an op.
replaces_resource_update = replaces("update_op", optimizers._DenseResourceVariableProcessor)


def set_tensorflow_of_cells(module):
    """Sets the name `tf` in the source module of the RNN wrappers of Keras 2, such as
    tf.nn.rnn_cell.DropoutWrapper."""
    legacy_cell_wrappers.tf = module


def update_as_reference(processor, optimizer, gradient):
    """Returns the op that updates a variable as if it were a reference variable.

    The public `Optimizer.apply_gradients` cannot be used, because it chooses the kind of update from the
    class of the variable.

    Args:
      processor: TensorFlow's object for the variable. It is the `self` of the method that
        `replaces_resource_update` replaces.
      optimizer: tf.train.Optimizer.
      gradient: tensor or tf.IndexedSlices.
    """
    return optimizers._RefVariableProcessor(processor._v).update_op(optimizer, gradient)
