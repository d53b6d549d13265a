"""Defines the names of tf.contrib.graph_editor that OpenAI's gradient checkpointing uses
(`memory_saving_gradients`).

The functions walk over ops, copy ops and replace the inputs of ops. A copy is in the same graph as its
original. Control flow (`tf.while_loop`, `tf.cond`) is not copied.
"""

import collections
import re

import tensorflow.compat.v1 as tf

from bertlib.graph import tensorflow_internals
from tf1._names import internals

_CONTROL_FLOW = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"}
_CONTROL_FLOW |= {f"Ref{name}" for name in _CONTROL_FLOW}


# --- Choosing ops and tensors ----------------------------------------------------------------------------


def _ops(things):
    """Returns a list of ops, given one or more ops and tensors. A tensor is replaced by the op that computes
    it."""
    things = [things] if isinstance(things, tf.Operation) or hasattr(things, "op") else things
    return [thing if isinstance(thing, tf.Operation) else thing.op for thing in things]


def _walk(seeds, neighbours, inclusive, within_ops):
    """Returns the ops that can be reached from the seed ops, each op once. If `inclusive` is true, the list
    begins with the seed ops. Otherwise, it does not contain them."""
    seeds = _ops(seeds)
    allowed = None if within_ops is None else set(within_ops)
    found, waiting = {}, collections.deque(seeds)
    while waiting:
        op = waiting.popleft()
        if op not in found and (allowed is None or op in allowed):
            found[op] = None
            waiting.extend(neighbours(op))
    return [op for op in found if inclusive or op not in seeds]


def get_backward_walk_ops(seed_ops, inclusive=True, within_ops=None, stop_at_ts=(), control_inputs=False):
    """Returns the ops on which the seed ops depend, directly or through other ops.

    Args:
      seed_ops: ops or tensors at which the walk starts.
      inclusive: whether to return the seed ops, too.
      within_ops: list of ops. The walk visits only ops in this list. None means all ops.
      stop_at_ts: tensors that the walk does not follow.
      control_inputs: whether the walk follows control inputs.
    """
    stops = set(stop_at_ts)

    def neighbours(op):
        return [tensor.op for tensor in op.inputs if tensor not in stops] + (
            list(op.control_inputs) if control_inputs else [])
    return _walk(seed_ops, neighbours, inclusive, within_ops)


def get_forward_walk_ops(seed_ops, inclusive=True, within_ops=None, stop_at_ts=(), control_outputs=None):
    """Returns the ops that depend on the seed ops, directly or through other ops.

    The arguments are those of `get_backward_walk_ops`. If `control_outputs` is true, the walk also follows
    control outputs.
    """
    stops = set(stop_at_ts)

    def neighbours(op):
        return [user for tensor in op.outputs if tensor not in stops for user in tensor.consumers()] + (
            internals.control_outputs(op) if control_outputs else [])
    return _walk(seed_ops, neighbours, inclusive, within_ops)


def filter_ts(ops, positive_filter=True):
    """Returns the inputs and outputs of ops, each tensor once.

    Args:
      ops: the ops.
      positive_filter: function that takes a tensor and returns whether to include it. True includes all
        tensors.
    """
    every = dict.fromkeys(tensor for op in _ops(ops) for tensor in (*op.inputs, *op.outputs))
    return [tensor for tensor in every if positive_filter is True or positive_filter(tensor)]


def filter_ts_from_regex(ops, regex):
    """Returns the input and output tensors of ops, but only the tensors whose names contain a match of a
    regular expression. The end of a tensor's name, such as ":0", is not searched."""
    return filter_ts(ops, lambda tensor: re.search(regex, tensor.op.name))


def select_ops(*patterns, graph=None):
    """Returns the ops of a graph (by default, the current graph) whose names match a regular expression.

    Args:
      *patterns: regular expressions. An op is selected if one of them matches the beginning of its name.
      graph: the graph; None for the current graph.
    """
    ops = (graph or tf.get_default_graph()).get_operations()
    return [op for op in ops if any(re.match(pattern, op.name) for pattern in patterns)]


# --- Copies ----------------------------------------------------------------------------------------------


class SubGraphView:
    """A set of ops of one graph.

    Attributes:
      ops: list of the ops, each op once.
    """

    def __init__(self, *things):
        """Creates a set of the given ops and tensors, which may be in lists."""
        self.ops = list(dict.fromkeys(op for thing in things for op in _ops(thing)))


sgv = SubGraphView


class _Copies:
    """Finds the copy of an op or tensor.

    Attributes:
      _transformed_ops: {op: its copy}.
      _transformed_ts: {tensor: its copy}. Programs read both attributes directly, so the attributes have the
        same names as in TensorFlow 1.
    """

    def __init__(self):
        self._transformed_ops, self._transformed_ts = {}, {}

    def transformed(self, original):
        """Returns the copy of an op or tensor. Returns None if the op or tensor was not copied."""
        return self._transformed_ops.get(original, self._transformed_ts.get(original))


def copy_with_input_replacements(sgv, replacement_ts):
    """Copies ops within their graph.

    Args:
      sgv: a `SubGraphView` or list of ops.
      replacement_ts: {input of the ops: the tensor that the copies get instead of this input}.

    Returns:
      (SubGraphView of the copies, an object whose method `transformed(op or tensor)` returns the copy).

    Raises:
      NotImplementedError: an op is control flow.
    """
    ops = sgv.ops if isinstance(sgv, SubGraphView) else _ops(sgv)
    if loops := sorted(op.name for op in ops if op.type in _CONTROL_FLOW):
        raise NotImplementedError(f"tf.contrib.graph_editor.copy_with_input_replacements: {loops[0]} is "
                                  "control flow, which is not copied.")
    copies = _Copies()
    in_order = {op: place for place, op in enumerate(ops[0].graph.get_operations())} if ops else {}
    # A graph lists each op after the ops that compute its inputs. So in this order, the inputs are copied
    # first.
    for op in sorted(ops, key=in_order.get):
        copy = _copied(op, copies, replacement_ts)
        copies._transformed_ops[op] = copy
        copies._transformed_ts.update(zip(op.outputs, copy.outputs))
    return SubGraphView(copies._transformed_ops.values()), copies


def _copied(op, copies, replacements):
    """Returns the copy of one op. The ops that compute its inputs must already be copied."""
    inputs = [replacements[tensor] if tensor in replacements else copies._transformed_ts.get(tensor, tensor)
              for tensor in op.inputs]
    before = [copies._transformed_ops.get(other, other) for other in op.control_inputs]
    with op.graph.as_default(), tf.control_dependencies(None), tf.control_dependencies(before):
        copy = op.graph.create_op(op.type, inputs, [tensor.dtype for tensor in op.outputs], name=op.name,
                                  attrs=dict(op.node_def.attr), op_def=op.op_def)
    internals.set_device(copy, op.device)
    for old, new in zip(op.outputs, copy.outputs):
        new.set_shape(old.shape)
    return copy


# --- Changes ---------------------------------------------------------------------------------------------


def reroute_ts(ts0, ts1, can_modify=None):
    """Replaces inputs of ops: wherever ts1[i] is an input of an op, ts0[i] becomes the input instead.

    Args:
      ts0: the new tensors.
      ts1: the tensors that are replaced.
      can_modify: the ops whose inputs may change. None means all ops.

    Returns:
      the number of inputs that were changed.
    """
    allowed, count = None if can_modify is None else set(_ops(can_modify)), 0
    for new, old in zip(list(ts0), list(ts1)):
        for user in dict.fromkeys(old.consumers()):
            if user is not new.op and (allowed is None or user in allowed):
                for index, tensor in enumerate(user.inputs):
                    if tensor is old:
                        internals.update_input(user, index, new)
                        count += 1
    return count


def add_control_inputs(op, cops):
    """Makes an op also wait for other ops.

    Args:
      op: the op.
      cops: the ops or tensors for which op waits.
    """
    tensorflow_internals.add_control_inputs(
        op, [other for other in _ops(cops) if other not in op.control_inputs])


internals.add_outputs_attribute()
