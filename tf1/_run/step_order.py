"""Defines the order in which a training step of a script reads and increments the global step.

Schedules and dropout read the global step. In graphs of published optimizers, these reads may run before or
after the step is incremented. Without a fixed order, two runs of the same program could give different
results.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph.tensorflow_internals import add_control_inputs, control_flow_context
from tf1._contrib import graph_editor

_COUNTING = {"Assign", "AssignAdd", "AssignVariableOp", "AssignAddVariableOp"}


def order_reads(global_step, train_op):
    """Makes the increment of the global step wait for all reads of the global step.

    All reads of a reference variable share one buffer, and the increment changes this buffer. So the reads
    must run before the increment.

    There is one exception: a read that an optimizer uses only for its bias correction, that is, for a
    division by `1 - beta ** step`. Such a read runs after the increment. Before the increment of the first
    step, `step` is 0, and the division would be a division by zero.

    Args:
      global_step: the variable.
      train_op: op or tensor that runs the training step.
    """
    consumers = global_step.op.outputs[0].consumers()
    switches = [op for op in consumers if op.type == "Switch"]
    reads = [op for op in [*consumers, *(use for op in switches for use, _ in _uses(op))]
             if op.type == "ReadVariableOp"]
    early = [op for op in [*reads, *_takers(global_step.op)]
             if control_flow_context(op) is None and not _only_corrects(op)]
    step_ops = set(graph_editor.get_backward_walk_ops([train_op], control_inputs=True))
    for op in consumers:
        if op.type not in _COUNTING or op is global_step.initializer:
            continue
        if op in step_ops and control_flow_context(op) is None:
            for read in reads:
                if _only_corrects(read) and op not in _following(read):
                    add_control_inputs(read, [op])
        later = _following(op)
        add_control_inputs(op, [read for read in early if read not in later])


class LateStepHook:
    """Runs a hook. If the hook fetches the global step in a step, it gets the value after the increment.

    In TensorFlow 1, the fetched value was in the memory of the variable, so it had this value, too.

    Attributes:
      hook: the hook.
    """

    def __init__(self, hook, train_op):
        """Wraps a hook; see `order_reads` for train_op."""
        self.hook, step = hook, tf.train.get_global_step()
        self._early = step, step.name, step.graph.as_graph_element(step)
        with tf.control_dependencies([train_op]):
            self._late = step.read_value()

    def __getattr__(self, name):
        return getattr(self.hook, name)

    def before_run(self, run_context):
        request = self.hook.before_run(run_context)
        return request and request._replace(fetches=tf.nest.map_structure(
            lambda fetch: self._late if fetch in self._early else fetch, request.fetches))


def _only_corrects(read):
    """Returns whether `read`, an op that reads the global step, is used only for a bias correction. A bias
    correction is a division by 1 - beta ** step, where `step` is the value that `read` returns."""
    powers = _uses(read)
    differences = [use for power, _ in powers for use in _uses(power)]
    return bool(differences) and all(op.type == "Pow" and place == 1 for op, place in powers) and all(
        op.type == "Sub" and place == 1 and tf.get_static_value(op.inputs[0]) == 1
        for op, place in differences) and any(
            use.type == "RealDiv" and place == 1 for op, _ in differences for use, place in _uses(op))


def _takers(op):
    """Returns the ops that read the value of a reference variable through one or more Identity ops.

    The output of such an Identity op is in the memory of the variable. So an op that reads this output gets
    the value that the variable has when the op runs.
    """
    shared = [use for use in op.outputs[0].consumers() if use.type == "Identity"]
    takers = [use for identity in shared for use in identity.outputs[0].consumers() if use.type != "Identity"]
    return [*takers, *(use for identity in shared for use in _takers(identity))]


def _uses(op):
    """Finds the ops that use the outputs of an op, directly or through Cast, Identity or Sqrt. Returns a list
    of (op, index of the input)."""
    uses = []
    for output in op.outputs:
        for use in output.consumers():
            if use.type in ("Cast", "Identity", "Sqrt"):
                uses += _uses(use)
            else:
                uses += [(use, place) for place, tensor in enumerate(use.inputs) if tensor is output]
    return uses


def _following(op):
    """Returns the set of all ops that depend on an op, directly or through other ops."""
    return set(graph_editor.get_forward_walk_ops([op], inclusive=False, control_outputs=True))
