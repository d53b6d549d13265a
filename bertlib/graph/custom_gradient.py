"""Defines hand-written gradients, which keep only chosen tensors in memory for the backward pass."""

import itertools

import tensorflow.compat.v1 as tf

_GRADIENT = "OwnGradient"


def with_custom_gradient(output, inputs, gradient):
    """Returns `output` with a gradient that `gradient` computes. For this gradient, only `inputs` are kept in
    memory.

    Args:
      output: tensor, or list of tensors, computed from `inputs`.
      inputs: list of tensors: all tensors for which gradients are computed, and other tensors that `gradient`
        uses. An element is None if an optional input is missing.
      gradient: function (gradient for each output, *inputs) -> list with one element for each input: its
        gradient, or None. The function gets only these arguments, because the tensors between the inputs and
        `output` are not kept in memory.
    """
    if tf.executing_eagerly():
        return output
    outputs = output if isinstance(output, list) else [output]
    count, are_given = len(outputs), [tensor is not None for tensor in inputs]

    def backward(op, *gradients):
        with tf.control_dependencies(gradients[:1]):
            fenced = iter(fence(op.inputs[count:]))
        input_gradients = gradient(*gradients[:count],
                                   *[next(fenced) if is_given else None for is_given in are_given])
        return [*[None] * count, *itertools.compress(input_gradients, are_given)]

    tensors = identity_with_gradient([*outputs, *itertools.compress(inputs, are_given)], backward)[:count]
    return tensors if isinstance(output, list) else tensors[0]


def identity_with_gradient(tensors, backward):
    """Returns copies of the tensors. The gradients for the tensors are computed by `backward`.

    Args:
      tensors: list of tensors.
      backward: function (op, *gradients) -> list with one element for each tensor: its gradient, or None.
        `op` is the op whose inputs are the tensors and whose outputs are the copies. `gradients` has one
        gradient for each copy.
    """
    with tf.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
        tensors = tf.identity_n(tensors)
    # The function is stored as an attribute of the op, because the registry of `tf.custom_gradient` would
    # keep every graph in memory.
    tensors[0].op.backward = backward
    return tensors


@tf.RegisterGradient(_GRADIENT)
def _custom_gradient(op, *gradients):
    return op.backward(op, *gradients)


def fence(tensors):
    """Returns copies of the tensors. The copies are computed only after all of the tensors have been
    computed.

    XLA does not compile the op that makes the copies. So XLA compiles the ops before this op and the ops
    after this op separately.
    """
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return tf.identity_n(tensors) if tensors else []
