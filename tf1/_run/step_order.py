"""The order in which a training step of a script reads and counts the global step.

Schedules and dropout read it. Published optimizers leave open whether they do so before it is counted, and so
two runs of the same program would differ.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph.tensorflow_internals import add_control_inputs, control_flow_context
from tf1._contrib import graph_editor

_COUNTING = {"Assign", "AssignAdd", "AssignVariableOp", "AssignAddVariableOp"}


def order_reads(global_step, train_op):
    """Makes the increment of the global step wait for the reads of it.

    All reads of a reference variable share one buffer, so they must run before the increment.

    A read that serves only the bias correction of an optimizer, a division by 1 - beta ** step, comes after
    the increment instead: before it, the first step would divide by zero.

    Args:
      global_step: variable.
      train_op: op or tensor, the training step.
    """
    consumers = global_step.op.outputs[0].consumers()
    into_branches = [op for op in consumers if op.type == "Switch"]
    reads = [op for op in [*consumers, *(use for op in into_branches for use, _ in _uses(op))]
             if op.type == "ReadVariableOp"]
    early = [op for op in [*reads, *_takers(global_step.op)]
             if control_flow_context(op) is None and not _only_corrects(op)]
    run = set(graph_editor.get_backward_walk_ops([train_op], control_inputs=True))
    for op in consumers:
        if op.type not in _COUNTING or op is global_step.initializer:
            continue
        if op in run and control_flow_context(op) is None:
            for read in reads:
                if _only_corrects(read) and op not in _following(read):
                    add_control_inputs(read, [op])
        later = _following(op)
        add_control_inputs(op, [read for read in early if read not in later])


def _only_corrects(read):
    """Whether a number is used in 1 - beta ** number only, which divides something."""
    powers = _uses(read)
    differences = [use for power, _ in powers for use in _uses(power)]
    return bool(differences) and all(op.type == "Pow" and place == 1 for op, place in powers) and all(
        op.type == "Sub" and place == 1 and tf.get_static_value(op.inputs[0]) == 1
        for op, place in differences) and any(
            use.type == "RealDiv" and place == 1 for op, _ in differences for use, place in _uses(op))


def _takers(op):
    """The ops that take the value of a reference variable: all behind an Identity share its memory."""
    shared = [use for use in op.outputs[0].consumers() if use.type == "Identity"]
    taken = [use for identity in shared for use in identity.outputs[0].consumers() if use.type != "Identity"]
    return [*taken, *(use for identity in shared for use in _takers(identity))]


def _uses(op):
    """[(op, which of its inputs)] that take an op's result, behind changes of its type and roots."""
    found = []
    for output in op.outputs:
        for use in output.consumers():
            if use.type in ("Cast", "Identity", "Sqrt"):
                found += _uses(use)
            else:
                found += [(use, place) for place, tensor in enumerate(use.inputs) if tensor is output]
    return found


def _following(op):
    """The set of all ops that run after an op because of an edge between them."""
    return set(graph_editor.get_forward_walk_ops([op], inclusive=False, control_outputs=True))
