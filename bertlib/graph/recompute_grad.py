"""Implements gradient checkpointing for graphs. It saves memory but needs more arithmetic.

Gradient checkpointing is described in Chen et al. 2016, arXiv:1604.06174. The intermediate results of a
function are not kept for the backward pass. The backward pass computes these results a second time, with the
same random numbers. With `--recompute=layers`, `modeling.transformer_model` applies `recompute_grad` to each
segment of its layers. With `--recompute=attention`, `modeling.attention_layer` applies it to the attention.

TensorFlow's function `tf.recompute_grad` saves no memory in a graph. It adds an op that delays the second
computation, but TensorFlow's graph optimizer removes this op. Without the op, both computations run at the
same time.

XLA ignores control dependencies between ops that it compiles together, and would merge the two computations.
XLA's op "XlaOptimizationBarrier" does not help: on CPU, XLA removes this op before it chooses the order of
the ops. So the ops at the border between the two computations are not compiled (`custom_gradient.fence`). The
ops before the border and the ops after it are compiled separately, and run in this order.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
from bertlib.graph.custom_gradient import fence, identity_with_gradient


def recompute_grad(function):
    """Returns a function that computes the same results as `function`, and computes them again for gradients.

    Between the forward and the backward pass, only three kinds of tensors stay in memory: the inputs, the
    weights, and the outputs that other ops use. The gradients equal those of `function`, even if only some of
    the outputs are used. The gradients can be differentiated again.

    Args:
      function: function of tensors that returns a tensor or a list of tensors. If the function uses
        floating-point tensors from outside, they must be arguments of the function, or variables that the
        function gets by `tf.get_variable`. All random numbers of the function must be drawn by `randomness`.
        If one of these conditions is not met, `tf.gradients` raises a ValueError.
    """
    def call(*inputs):
        scope = tf.get_variable_scope()
        repeated_function = randomness.repeatable(function)
        inputs = [tf.convert_to_tensor(tensor) for tensor in inputs]
        results, parameters = _call_with_parameters(repeated_function, inputs, scope)
        outputs = _as_list(results)

        def backward(op, *gradients):
            """Computes the outputs a second time, and returns the gradients with respect to the inputs of
            `op`."""
            # The inputs of `op` are, in this order: the outputs of the function, its inputs and its
            # parameters. `backward` returns no gradients for the outputs. This prevents TensorFlow from
            # computing gradients of the first computation.
            inputs_and_parameters = op.inputs[len(outputs):]
            used_outputs = [index for index in range(len(outputs))
                            if not _is_unused(op, index, gradients[index])]
            gradients = [tf.convert_to_tensor(gradients[index]) for index in used_outputs]
            # Without this dependency, the second computation could run at the same time as the first one,
            # and could be merged with the first one.
            with tf.control_dependencies(gradients):
                fenced = fence(inputs_and_parameters)
            fenced_inputs, fenced_parameters = fenced[:len(inputs)], iter(fenced[len(inputs):])
            # `repeated_function` requests its variables in the same order as in the first computation. So its
            # n-th request gets the n-th fenced parameter.
            number_of_ops = len(tf.get_default_graph().get_operations())
            with tf.variable_scope(scope, custom_getter=lambda *args, **kwargs: next(fenced_parameters),
                                   auxiliary_name_scope=False):
                recomputed = _as_list(repeated_function(*fenced_inputs))
            _check(recomputed, fenced, tf.get_default_graph().get_operations()[number_of_ops:])
            computed = tf.gradients([recomputed[index] for index in used_outputs], fenced, gradients)
            # Without this fence, XLA would delay the gradients of weights to the end of the step. Until then,
            # XLA would keep all tensors that are needed to compute these gradients.
            fenced_gradients = iter(fence([gradient for gradient in computed
                                           if isinstance(gradient, tf.Tensor)]))
            # `fence` takes only tensors. A gradient that is None or tf.IndexedSlices is returned unchanged.
            return [None] * len(outputs) + [
                next(fenced_gradients) if isinstance(gradient, tf.Tensor) else gradient
                for gradient in computed]

        tensors = identity_with_gradient([*outputs, *inputs, *parameters], backward)
        return tensors[:len(outputs)] if isinstance(results, (list, tuple)) else tensors[0]

    return call


def _call_with_parameters(function, inputs, scope):
    """Returns (the results of a function, list of the variables that it gets in a scope). The variables are
    tensors, and become additional inputs of the recomputed function."""
    parameters, outer_getter = [], scope.custom_getter

    def get_parameter(getter, *args, **kwargs):
        variable = outer_getter(getter, *args, **kwargs) if outer_getter else getter(*args, **kwargs)
        parameters.append(tf.convert_to_tensor(variable))
        return parameters[-1]

    # The getter is set on the current scope. In a new scope, the numbering of default names would start
    # again: the second layer would be named "dense" instead of "dense_1".
    scope.set_custom_getter(get_parameter)
    try:
        return function(*inputs), parameters
    finally:
        scope.set_custom_getter(outer_getter)


def _as_list(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _is_unused(op, index, gradient):
    """Returns whether the gradient of an output shows that the output is unused.

    As the gradient of an unused output, `tf.gradients` uses zeros with the shape of this output. To compute
    these zeros, the output would have to be kept in memory. So `recompute_grad` ignores such gradients.
    """
    return gradient is None or (
        isinstance(gradient, tf.Tensor) and gradient.op.type == "ZerosLike"
        and gradient.op.inputs[0] is op.outputs[index])


def _check(outputs, inputs, created):
    """Raises a ValueError for ops that would cause wrong gradients without an error; see `recompute_grad`.

    Args:
      outputs: the outputs of the function, a list of tensors.
      inputs: the tensors for which gradients are computed.
      created: the ops that the function created.
    """
    created = set(created)
    seen, stack = {tensor.ref() for tensor in inputs}, list(outputs)
    while stack:
        tensor = stack.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        op = tensor.op
        if op not in created or op.type in ("Placeholder", "ReadVariableOp"):
            if tensor.dtype.is_floating:
                raise ValueError(f"{tensor.name} is used in a recomputed function but is not an argument of "
                                 "this function, so no gradient would reach this tensor. Pass the tensor as "
                                 "an argument. If it is a variable, you can also call tf.get_variable inside "
                                 "of the function.")
        elif op.op_def.is_stateful and "seed" in op.node_def.attr:
            raise ValueError(f"{op.name} ({op.type}) draws different random numbers each time, so the "
                             "gradients of a recomputed function would be wrong. Use `modeling.dropout`, "
                             "`randomness.uniform` or `randomness.bernoulli`.")
        else:
            stack.extend(op.inputs)
