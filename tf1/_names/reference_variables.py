"""What programs do with reference variables, the variables of TensorFlow 1, done with resource variables.

`tf.disable_resource_variables()` gives the former back to a program for which this is not enough: one that
looks for their ops in graphs, or calls generated ops on them. Errors of the latter say so.
"""

import functools

import tensorflow.compat.v1 as tf

from tf1._names import internals

_VARIABLE = internals.ResourceVariable
_ADVICE = ("; it is a resource variable. Call tf.disable_resource_variables() after the imports, and "
           "variables are those of TensorFlow 1.")


def _initialized_value(self):
    """The variable's value, or that which it will start with: for the initial value of another variable."""
    with tf.init_scope():
        return tf.cond(self.is_initialized(), self.read_value, lambda: self.initial_value)


def _new_tensor(operation):
    """`v += x` and its kind: a tensor takes the name of the variable, which stays as it was."""
    return lambda self, other: getattr(self, operation)(other)


_assign = tf.assign


@functools.wraps(_assign)
def assign(ref, value, validate_shape=None, use_locking=None, name=None):
    """tf.assign; with validate_shape=False a variable takes a value of another shape."""
    changes_shape = False
    if validate_shape is False and isinstance(ref, _VARIABLE):
        value = tf.convert_to_tensor(value, ref.dtype)
        changes_shape = not ref.shape.is_compatible_with(value.shape)
    if not changes_shape:
        return _assign(ref, value, validate_shape, use_locking, name)
    hidden = tf.placeholder_with_default(value, None)  # of a shape that the graph does not know
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=ref.handle, value=hidden)]):
        return tf.identity(value, name)


def _depth(optimizer, method):
    """How far from an optimizer's class the class is that defines a method of it."""
    return next(depth for depth, kind in enumerate(type(optimizer).__mro__) if method in vars(kind))


def _for_published_optimizers(update_op):
    """Calls `_apply_dense` and `_apply_sparse` of an optimizer that has no newer ones of resource variables.

    A subclass of `tf.train.AdamOptimizer` that defines `_apply_dense` would be passed over in silence.
    """
    @functools.wraps(update_op)
    def update(self, optimizer, gradient):
        kind = "sparse" if isinstance(gradient, tf.IndexedSlices) else "dense"
        if _depth(optimizer, f"_apply_{kind}") < _depth(optimizer, f"_resource_apply_{kind}"):
            return internals.update_as_reference(self, optimizer, gradient)
        return update_op(self, optimizer, gradient)
    return update


def _with_advice(apply_op):
    """Adds to the error of an op that takes reference variables only what to do."""
    @functools.wraps(apply_op)
    def apply(op_type_name, name=None, **keywords):
        try:
            return apply_op(op_type_name, name, **keywords)
        except TypeError as error:
            if "mutable tensor" not in str(error):
                raise
            raise TypeError(f"{error}{_ADVICE}") from error
    return apply


def _fetched(fetch):
    """What a session fetches for a name or tensor: for "v:0", which is a resource variable's handle now, the
    variable."""
    graph = tf.get_default_graph()
    if isinstance(fetch, str) and ":" in fetch:
        try:
            fetch = graph.get_tensor_by_name(fetch)
        except (KeyError, ValueError):  # the session says so
            return fetch
    if isinstance(fetch, tf.Tensor) and fetch.dtype == tf.resource:
        return next((variable for variable in tf.global_variables() + tf.local_variables()
                     if isinstance(variable, _VARIABLE) and variable.handle is fetch), fetch)
    return fetch


def install():
    """Puts all of it into TensorFlow's classes."""
    _VARIABLE.initialized_value = _initialized_value
    internals.add_reference(_VARIABLE)
    for name in ("add", "sub", "mul", "truediv", "pow"):
        setattr(_VARIABLE, f"__i{name}__", _new_tensor(f"__{name}__"))
    internals.replace_assign(assign)
    internals.replace_resource_update(_for_published_optimizers)
    internals.replace_apply_op(_with_advice)
    for kind in (str, tf.Tensor):
        internals.register_fetch(
            kind, lambda fetch: ([_fetched(fetch)], lambda values: values[0]),
            lambda fed, value: [(fed, value)], lambda fed: [fed])
