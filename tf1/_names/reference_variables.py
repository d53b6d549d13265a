"""Makes idioms of reference variables (the variables of TensorFlow 1) work on resource variables.

These changes are not enough for a program that looks for the ops of reference variables in graphs, or that
uses ops that accept only reference variables. Such a program can call `tf.disable_resource_variables()` to
get reference variables. The error of such an op gives this advice.
"""

import contextlib

import tensorflow.compat.v1 as tf

from tf1._names import internals

_VARIABLE = internals.ResourceVariable
_ADVICE = ("; this variable is a resource variable. To use the reference variables of TensorFlow 1, call "
           "tf.disable_resource_variables() after the imports.")


def _initialized_value(self):
    """Returns the value of the variable if it is initialized, and its initial value otherwise.

    Programs use this method for the initial value of another variable.
    """
    with tf.init_scope():
        return tf.cond(self.is_initialized(), self.read_value, lambda: self.initial_value)


def _new_tensor(operation):
    """Returns the method that Python calls for a statement such as `v += x`. The method returns a new tensor
    and does not change the variable v."""
    return lambda self, other: getattr(self, operation)(other)


@internals.replaces_assign
def assign(assign_value, ref, value, validate_shape=None, use_locking=None, name=None):
    """Calls tf.assign. If validate_shape is False, the value can have a different shape than `ref`."""
    changes_shape = False
    if validate_shape is False and isinstance(ref, _VARIABLE):
        value = tf.convert_to_tensor(value, ref.dtype)
        changes_shape = not ref.shape.is_compatible_with(value.shape)
    if not changes_shape:
        return assign_value(ref, value, validate_shape, use_locking, name)
    # TensorFlow refuses to assign a value whose static shape does not fit the variable. So remove the static
    # shape of the value.
    unshaped = tf.placeholder_with_default(value, None)
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=ref.handle, value=unshaped)]):
        return tf.identity(value, name)


def _depth(optimizer, method):
    """Returns how many inheritance steps lead from the optimizer's class to the class that defines a
    method."""
    return next(depth for depth, kind in enumerate(type(optimizer).__mro__) if method in vars(kind))


@internals.replaces_resource_update
def _update(update_op, self, optimizer, gradient):
    """Makes an optimizer of TensorFlow 1 use its own `_apply_dense` and `_apply_sparse`.

    TensorFlow calls only `_resource_apply_dense` for resource variables. So if a subclass of
    `tf.train.AdamOptimizer` defined only `_apply_dense`, TensorFlow would silently use Adam's update.
    """
    kind = "sparse" if isinstance(gradient, tf.IndexedSlices) else "dense"
    if _depth(optimizer, f"_apply_{kind}") < _depth(optimizer, f"_resource_apply_{kind}"):
        return internals.update_as_reference(self, optimizer, gradient)
    return update_op(self, optimizer, gradient)


@internals.replaces_variable_import
def _import_variable(initialize, self, *args, **kwargs):
    """Gives a variable that is imported from a MetaGraph all attributes of a new variable. TensorFlow's
    import forgets some of them, such as those that Keras reads."""
    _VARIABLE.__init__(self, dtype=tf.float32, in_graph_mode=True)  # the import sets the right dtype
    initialize(self, *args, **kwargs)


@internals.replaces_initial_value
def _initial_value(replace, name, op, op_cache):
    """Makes the initial value of a variable use the initialized values of other variables.

    TensorFlow does this only for reference variables. Otherwise, the other variables may have no value yet
    when tf.global_variables_initializer() runs.
    """
    value = None
    if op.type == "ReadVariableOp" and op.inputs[0].op.type == "VarHandleOp":
        value = internals.find_initialized_value(op.inputs[0].op)
    return replace(name, op, op_cache) if value is None else value.op


@internals.replaces_apply_op
def _apply_op(apply_op, op_type_name, name=None, **keywords):
    """Adds advice to the error of an op that accepts only reference variables."""
    try:
        return apply_op(op_type_name, name, **keywords)
    except TypeError as error:
        if "mutable tensor" not in str(error):
            raise
        raise TypeError(f"{error}{_ADVICE}") from error


def _variable_of(tensor):
    """Returns the variable if a tensor is the handle of a variable, and the tensor otherwise."""
    if not isinstance(tensor, tf.Tensor) or tensor.dtype != tf.resource:
        return tensor
    return next((variable for collection in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.LOCAL_VARIABLES)
                 for variable in tensor.graph.get_collection(collection)
                 if isinstance(variable, _VARIABLE) and variable.handle is tensor), tensor)


@internals.replaces("get_tensor_by_name", tf.Graph)
def _get_tensor_by_name(get_tensor_by_name, self, name):
    """Calls the method of tf.Graph. For a reference variable v, the name "v:0" meant the value of v. For a
    resource variable v, it is only the name of the handle of v. So the function returns v itself."""
    return _variable_of(get_tensor_by_name(self, name))


def _fetched(fetch):
    """Returns the object that a session must fetch if a program asks for `fetch`: a variable, if `fetch` is
    the name or the handle of a variable. An unknown name is returned unchanged, because the session raises
    an error for it."""
    if isinstance(fetch, str) and ":" in fetch:
        with contextlib.suppress(KeyError, ValueError):
            return tf.get_default_graph().get_tensor_by_name(fetch)
    return _variable_of(fetch)


def _fed(fed, value):
    """Returns the tensors that a session must feed if a program feeds a variable, as (tensor, value) pairs.

    A reference variable had one tensor with its value. A resource variable has one for each place where the
    program uses the variable.

    Raises:
      ValueError: an op uses the variable itself, and not a tensor with its value.
    """
    variable = _fetched(fed)
    if not isinstance(variable, _VARIABLE):
        return [(fed, value)]
    uses = variable.handle.consumers()
    if others := sorted({op.type for op in uses} & {"Enter", "ResourceGather", "ResourceGatherNd", "Switch"}):
        raise ValueError(f"The variable {variable.name} cannot be fed, because the op {others[0]} uses it"
                         f"{_ADVICE}")
    return [(op.outputs[0], value) for op in uses if op.type == "ReadVariableOp"]


_VARIABLE.initialized_value = _initialized_value
# As an object without a method `__bool__`, a variable of TensorFlow 1 was true.
_VARIABLE.__bool__ = lambda self: bool(self.numpy()) if tf.executing_eagerly() else True
internals.add_reference(_VARIABLE)
for _operation in ("add", "sub", "mul", "truediv", "pow"):
    setattr(_VARIABLE, f"__i{_operation}__", _new_tensor(f"__{_operation}__"))
for _kind in (str, tf.Tensor, _VARIABLE):
    internals.register_fetch(
        _kind, lambda fetch: ([_fetched(fetch)], lambda values: values[0]), _fed, lambda fed: [fed])
