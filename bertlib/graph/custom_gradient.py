"""Gradients written by hand: the backward pass keeps what they are computed from, and nothing else."""

import tensorflow.compat.v1 as tf

_GRADIENT = "OwnGradient"


def with_custom_gradient(output, inputs, gradient):
    """Returns `output` with a gradient of its own, for which fewer tensors are kept than for TensorFlow's.

    Args:
      output: tensor, or list of tensors, computed from `inputs`.
      inputs: list of tensors, all that gradients are to reach.
      gradient: function (gradient for each output, *inputs) -> list of gradients for the inputs. Nothing of
        what `output` was computed from is kept for it but the inputs.
    """
    if tf.executing_eagerly():
        return output
    outputs = output if isinstance(output, list) else [output]
    count = len(outputs)

    def backward(op, *gradients):
        with tf.control_dependencies(gradients[:1]):
            fenced = fence(op.inputs[count:])
        return [*[None] * count, *gradient(*gradients[:count], *fenced)]

    tensors = identity_with_gradient([*outputs, *inputs], backward)[:count]
    return tensors if isinstance(output, list) else tensors[0]


def identity_with_gradient(tensors, backward):
    """Returns the tensors with the gradients of backward(op, *gradients): one for each tensor.

    Args:
      tensors: list of tensors.
      backward: takes the op that returns the tensors, of which they are the inputs too, and the gradients for
        all of them.
    """
    with tf.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
        tensors = tf.identity_n(tensors)
    # On the op, and not in a registry as `tf.custom_gradient` has it, which would keep every graph for ever.
    tensors[0].op.backward = backward
    return tensors


@tf.RegisterGradient(_GRADIENT)
def _custom_gradient(op, *gradients):
    return op.backward(op, *gradients)


def fence(tensors):
    """Identity whose outputs wait for all tensors; also a border of what XLA compiles together."""
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return tf.identity_n(tensors) if tensors else []
