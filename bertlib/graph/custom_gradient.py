"""Gradients written by hand: the backward pass keeps what they are computed from, and nothing else."""

import tensorflow.compat.v1 as tf

_GRADIENT = "OwnGradient"


def with_custom_gradient(output, inputs, gradient):
    """Returns `output` with the gradient `gradient`, which keeps fewer tensors than TensorFlow's gradient.

    Args:
      output: tensor, or list of tensors, computed from `inputs`.
      inputs: list of tensors, all that gradients are to reach.
      gradient: function (gradient for each output, *inputs) -> list of gradients for the inputs. Only the
        inputs are kept in memory for it, not the tensors between them and `output`.
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
    """Returns copies of the tensors, whose gradients are computed by `backward`.

    Args:
      tensors: list of tensors.
      backward: function (op, *gradients) -> list with the gradient for each tensor, or None. `op` returns
        the copies, its inputs are the tensors, and `gradients` has one gradient for each copy.
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
