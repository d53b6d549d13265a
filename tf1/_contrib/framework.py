"""Defines tf.contrib.framework.

Its functions set default arguments in scopes, find variables by name, and load values from checkpoints."""

import contextlib
import functools

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files

# --- Default arguments in scopes ---------------------------------------------------------------------------

SCOPES = [{}]  # stack of scopes, the innermost last: {key of a function: {argument: value}}
SCOPED = {}  # {key of each decorated function: names of arguments, which only tf_slim stores}


def arg_scope_func_key(op):
    """Returns the key under which a scope stores the default arguments of a function."""
    return getattr(op, "_key_op", str(op))


def add_arg_scope(func):
    """Decorates a function. A call of the decorated function takes missing arguments from the `arg_scope`
    around the call."""
    key = arg_scope_func_key(func)

    @functools.wraps(func)
    def with_scope(*args, **kwargs):
        return func(*args, **{**current_arg_scope().get(key, {}), **kwargs})

    with_scope._key_op = key
    SCOPED[key] = ()
    return with_scope


@contextlib.contextmanager
def arg_scope(list_ops_or_scope, **kwargs):
    """Sets default arguments of functions within a `with` block.

    Args:
      list_ops_or_scope: list or tuple of functions that are decorated with `add_arg_scope`, or a scope from
        an earlier call.
      **kwargs: the default arguments. Must be empty if list_ops_or_scope is an earlier scope.

    Yields:
      the scope. It can be passed to a later call.

    Raises:
      TypeError: list_ops_or_scope is not a list, a tuple or a scope.
      ValueError: a function is not decorated, or both an earlier scope and arguments are given.
    """
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("arg_scope: an earlier scope was passed, so no other arguments are allowed. "
                             f"Remove {', '.join(kwargs)}.")
        scope = dict(list_ops_or_scope)
    elif isinstance(list_ops_or_scope, (list, tuple)):
        scope = dict(current_arg_scope())
        for op in list_ops_or_scope:
            if not has_arg_scope(op):
                raise ValueError(f"arg_scope: {getattr(op, '__name__', op)} is not decorated with "
                                 "@tf.contrib.framework.add_arg_scope.")
            key = arg_scope_func_key(op)
            scope[key] = {**scope.get(key, {}), **kwargs}
    else:
        raise TypeError("arg_scope: the first argument must be a list or tuple of functions, or an earlier "
                        f"scope, not {type(list_ops_or_scope).__name__}.")
    SCOPES.append(scope)
    try:
        yield scope
    finally:
        SCOPES.pop()


def current_arg_scope():
    """Returns the innermost scope, a dict {key of a function: {argument: default value}}. For the keys, see
    `arg_scope_func_key`."""
    return SCOPES[-1]


def has_arg_scope(func):
    """Returns whether a function is decorated with `add_arg_scope`."""
    return arg_scope_func_key(func) in SCOPED


# --- Variables ---------------------------------------------------------------------------------------------


def variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True,
             collections=None, caching_device=None, device=None, **others):
    """Calls tf.get_variable on a device. `device` is the name of a device, or a function that takes an op and
    returns a name."""
    with tf.device(device or ""):
        return tf.get_variable(
            name, shape, dtype, initializer, regularizer, trainable,
            collections=list(collections or [tf.GraphKeys.GLOBAL_VARIABLES]), caching_device=caching_device,
            **others)


def model_variable(name, shape=None, dtype=tf.float32, initializer=None, regularizer=None, trainable=True,
                   collections=None, **others):
    """Returns a `variable` that is also in the collection MODEL_VARIABLES."""
    kept = [*(collections or []), tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES]
    return variable(name, shape, dtype, initializer, regularizer, trainable, kept, **others)


def local_variable(initial_value, validate_shape=True, name=None, use_resource=None):
    """Returns a variable that is not saved in checkpoints and is not trained."""
    return tf.Variable(initial_value, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES],
                       validate_shape=validate_shape, name=name, use_resource=use_resource)


def add_model_variable(var):
    """Puts a variable into the collection MODEL_VARIABLES."""
    if not any(var is known for known in tf.get_collection(tf.GraphKeys.MODEL_VARIABLES)):
        tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, var)


def get_variables(scope=None, suffix=None, collection=tf.GraphKeys.GLOBAL_VARIABLES):
    """Returns the variables of a collection.

    Args:
      scope: regular expression for the start of the names, or a variable scope.
      suffix: regular expression for the end of the names.
      collection: the collection.
    """
    scope = getattr(scope, "name", scope)
    if suffix is not None:
        scope = f"{scope or ''}.*{suffix}" + ("" if ":" in suffix else ":")
    return tf.get_collection(collection, scope)


def _of_collection(collection):
    def get(scope=None, suffix=None):
        return get_variables(scope, suffix, collection)
    get.__doc__ = f"Returns the variables of the collection {collection}; see `get_variables`."
    return get


get_model_variables = _of_collection(tf.GraphKeys.MODEL_VARIABLES)
get_local_variables = _of_collection(tf.GraphKeys.LOCAL_VARIABLES)
get_trainable_variables = _of_collection(tf.GraphKeys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix, scope=None):
    """Returns the variables whose names end with `suffix`."""
    return get_variables(scope, suffix)


def get_variables_by_name(given_name, scope=None):
    """Returns the variables whose name is `given_name`, or ends with "/" and `given_name`."""
    return get_variables(scope, f"/{given_name}:|^{given_name}:")


def get_unique_variable(var_op_name):
    """Returns the variable with the given name. Raises ValueError if the graph has no such variable."""
    for var in get_variables(var_op_name):
        if var.op.name == var_op_name:
            return var
    raise ValueError(f"get_unique_variable: the graph has no variable {var_op_name}.")


def get_variable_full_name(var):
    """Returns the name that a variable has in checkpoints. For a slice, this is the name of the partitioned
    variable."""
    return _slice(var).full_name or var.op.name


def _slice(variable):
    """Returns the SaveSliceInfoDef of a slice of a partitioned variable. For any other variable, returns an
    empty SaveSliceInfoDef."""
    return variable.to_proto().save_slice_info_def


def get_variables_to_restore(include=None, exclude=None):
    """Returns the variables whose names start with one of `include` and with none of `exclude`. If `include`
    is None, all names are included.

    Raises:
      TypeError: include or exclude is not a list or tuple.
    """
    for name, scopes in (("include", include), ("exclude", exclude)):
        if scopes is not None and not isinstance(scopes, (list, tuple)):
            raise TypeError(f"get_variables_to_restore: {name} is {scopes!r}, but it must be a list of "
                            "scopes.")
    included = get_variables() if include is None else [
        var for scope in include for var in get_variables(scope)]
    excluded = {var.op.name for scope in exclude or [] for var in get_variables(scope)}
    return [var for var in included if var.op.name not in excluded]


# --- Values ------------------------------------------------------------------------------------------------


def _assignment(pairs):
    """Returns (op, feed_dict) for the assignment of arrays to variables.

    The arrays are fed, so they are not stored in the graph.

    Args:
      pairs: list of (variable, array).
    """
    feed, ops = {}, []
    for var, value in pairs:
        placeholder = tf.placeholder(var.dtype.base_dtype, var.shape, f"placeholder/{var.op.name}")
        feed[placeholder] = np.reshape(value, var.shape.as_list())
        ops.append(var.assign(placeholder, read_value=False))
    return tf.group(*ops), feed


def _saved_values(model_path, var_list, ignore_missing_vars, reshapes):
    """Returns a list of (variable, value in a checkpoint).

    Args:
      model_path, var_list, ignore_missing_vars: see `assign_from_checkpoint`.
      reshapes: whether a value may have a different shape than the variable, but as many elements.
    """
    reader = tf.train.load_checkpoint(checkpoint_files.escape_prefix(model_path))
    if isinstance(var_list, dict):
        named = [(name, var) for name, found in var_list.items()
                 for var in (found if isinstance(found, (list, tuple)) else [found])]
    else:
        named = [(get_variable_full_name(var), var) for var in var_list]
    missing = list(dict.fromkeys(name for name, _ in named if not reader.has_tensor(name)))
    if missing and not ignore_missing_vars:
        raise ValueError(f"The checkpoint {model_path} does not contain {', '.join(missing)}. Leave these "
                         "variables out, or pass ignore_missing_vars=True.")
    for name in missing:
        logging.warning("Variable %s is not in the checkpoint %s", name, model_path)
    pairs = []
    for name, var in named:
        if name in missing:
            continue
        value, info = reader.get_tensor(name), _slice(var)
        part = value[tuple(slice(at, at + size) for at, size in zip(info.var_offset, info.var_shape))] if (
            info.full_name) else value
        if part.size != var.shape.num_elements() or not reshapes and list(part.shape) != var.shape.as_list():
            raise ValueError(f"{name} has the shape {list(value.shape)} in the checkpoint {model_path}, but "
                             f"{var.shape.as_list()} in the graph.")
        pairs.append((var, part))
    return pairs


def assign_from_checkpoint(model_path, var_list, ignore_missing_vars=False):
    """Returns (op, feed_dict). A session that runs the op with the feed_dict sets variables to the values in
    a checkpoint.

    Args:
      model_path: the checkpoint.
      var_list: variables, or {name in the checkpoint: variable or list of its slices}.
      ignore_missing_vars: whether to leave out variables that the checkpoint lacks, with a warning.

    Raises:
      ValueError: the checkpoint lacks a variable, or contains a different number of values for a variable.
    """
    return _assignment(_saved_values(model_path, var_list, ignore_missing_vars, reshapes=True))


def assign_from_checkpoint_fn(model_path, var_list, ignore_missing_vars=False, reshape_variables=False):
    """Returns a function that takes a session and sets variables to a checkpoint's values.

    Args:
      model_path, var_list, ignore_missing_vars: see `assign_from_checkpoint`.
      reshape_variables: whether to reshape a value that has as many elements as the variable, but a different
        shape.

    Returns:
      the function, or None if the checkpoint contains none of the variables.

    Raises:
      ValueError: var_list is empty, the checkpoint lacks a variable, or the checkpoint contains a variable
        with a different shape.
    """
    if not var_list:
        raise ValueError("assign_from_checkpoint_fn: var_list is empty.")
    pairs = _saved_values(model_path, var_list, ignore_missing_vars, reshape_variables)
    if not pairs:
        logging.warning("assign_from_checkpoint_fn: the checkpoint %s has none of the variables.", model_path)
        return None
    assign, feed = _assignment(pairs)
    return lambda session: session.run(assign, feed)
