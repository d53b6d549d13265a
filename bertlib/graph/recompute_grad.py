"""Gradient checkpointing (Chen et al. 2016, arXiv:1604.06174) for graphs: less memory for more arithmetic.

A function's intermediate results are not kept for the backward pass but computed a second time in it, with
the same random numbers. With `--recompute=layers`
`modeling.transformer_model` wraps its layers in it, with `--recompute=attention` `modeling.attention_layer`
its attention.

(`tf.recompute_grad` saves nothing in a graph. It orders the second computation after the first by an op that
TensorFlow's optimizer removes, and then both run side by side.)

XLA takes no notice of control dependencies in what it compiles together, and would merge the two
computations. Its own barrier (`XlaOptimizationBarrier`) is gone on CPU before the order of computation is
chosen. So the ops at the border are not compiled (`custom_gradient.fence`). The ops before and after it are
compiled separately, and run in this order.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
from bertlib.graph.custom_gradient import fence, identity_with_gradient


def recompute_grad(function):
    """Returns `function` with a backward pass that runs it again.

    Between the two passes only inputs, weights, and outputs that other ops use stay in memory. The gradients
    are those of `function`, also where only some of its outputs are used, and can be differentiated again.

    Args:
      function: takes tensors, returns a tensor or a list of tensors. Gradients have to reach only its
        arguments and the variables it gets by `tf.get_variable`; its random numbers, if any, come from
        `randomness`. Else `tf.gradients` raises a ValueError.
    """
    def call(*inputs):
        scope = tf.get_variable_scope()
        outer_getter = scope.custom_getter
        repeatable = randomness.repeatable(function)
        inputs = [tf.convert_to_tensor(tensor) for tensor in inputs]
        parameters = []

        def get_parameter(getter, *args, **kwargs):
            """A custom getter: the variable as a tensor, which becomes an input too."""
            variable = outer_getter(getter, *args, **kwargs) if outer_getter else getter(*args, **kwargs)
            parameters.append(tf.convert_to_tensor(variable))
            return parameters[-1]

        # The getter is set on the current scope. A new scope would restart the numbers of default names: a
        # second layer would be "dense" again, not "dense_1".
        scope.set_custom_getter(get_parameter)
        try:
            results = repeatable(*inputs)
        finally:
            scope.set_custom_getter(outer_getter)
        outputs = _as_list(results)

        def backward(op, *gradients):
            """Returns the gradients for the inputs of `op`, after a second computation of the outputs."""
            # inputs of the op = outputs, inputs, parameters
            used_outputs = [index for index in range(len(outputs))
                            if not _is_unused(op, index, gradients[index])]
            gradients = [tf.convert_to_tensor(gradients[index]) for index in used_outputs]
            # Without this dependency the second computation could run at the same time as the first, and be
            # merged with it.
            with tf.control_dependencies(gradients):
                fenced = fence(op.inputs[len(outputs):])
            fenced_parameters = iter(fenced[len(inputs):])
            number_of_ops = len(tf.get_default_graph().get_operations())
            with tf.variable_scope(scope, custom_getter=lambda *args, **kwargs: next(fenced_parameters),
                                   auxiliary_name_scope=False):
                recomputed = _as_list(repeatable(*fenced[:len(inputs)]))
            _check(recomputed, fenced, tf.get_default_graph().get_operations()[number_of_ops:])
            computed = tf.gradients([recomputed[index] for index in used_outputs], fenced, gradients)
            # Without this fence XLA would delay the gradients of weights to the step's end, and keep their
            # inputs until then.
            fenced_gradients = iter(fence([gradient for gradient in computed
                                           if isinstance(gradient, tf.Tensor)]))
            # A gradient that is None or tf.IndexedSlices is not fenced.
            return [None] * len(outputs) + [
                next(fenced_gradients) if isinstance(gradient, tf.Tensor) else gradient
                for gradient in computed]

        tensors = identity_with_gradient([*outputs, *inputs, *parameters], backward)
        return tensors[:len(outputs)] if isinstance(results, (list, tuple)) else tensors[0]

    return call


def _as_list(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _is_unused(op, index, gradient):
    """Whether a gradient says only that nothing used the output: the zeros that `tf.gradients` fills in.

    To be computed they need the output, which would have to be kept.
    """
    return gradient is None or (
        isinstance(gradient, tf.Tensor) and gradient.op.type == "ZerosLike"
        and gradient.op.inputs[0] is op.outputs[index])


def _check(outputs, inputs, created):
    """Raises an error for ops that would make gradients wrong without notice; see `recompute_grad`.

    Args:
      outputs: the function's.
      inputs: the tensors that gradients reach.
      created: the ops the function made.
    """
    created = set(created)
    seen, waiting = {tensor.ref() for tensor in inputs}, list(outputs)
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        op = tensor.op
        if op not in created or op.type in ("Placeholder", "ReadVariableOp"):
            if tensor.dtype.is_floating:
                raise ValueError(f"{tensor.name} is used in a recomputed function but is no argument of it: "
                                 "no gradient would reach it. Pass it as an argument, or get the variable "
                                 "inside by tf.get_variable.")
        elif op.op_def.is_stateful and "seed" in op.node_def.attr:
            raise ValueError(f"{op.name} ({op.type}) draws other random numbers each time: the gradients of "
                             "a recomputed function would be wrong. Use `modeling.dropout`, or "
                             "`uniform` or `bernoulli` of `randomness`.")
        else:
            waiting.extend(op.inputs)
