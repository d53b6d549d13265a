"""Computes the parts of a layer in inference: with ops that TensorFlow can fuse with matrix products, or with
ops that also exist in other formats."""

import math

import tensorflow.compat.v1 as tf

from bertlib.graph import formulas, graph_keys, one_dnn, products, tensorflow_internals


class InferenceKernels:
    """Computes the parts of a layer in inference. The methods have the same names as those of
    `training_kernels.TrainingKernels`.

    There is no dropout. The gradients are computed by TensorFlow. Arithmetic between matrix products is in
    the dtype of the inputs, except for softmax and normalization.

    Attributes:
      uses_one_dnn: whether to use prepared weights. If TensorFlow has oneDNN's ops, these ops are used, too.
        Prepared weights are copies of the weights that are cast and concatenated only once. Local variables
        contain these copies. So a session must first initialize or restore the weights, and then initialize
        the local variables; or `sessions.load_read_weights` does both. In the first run of a session, oneDNN
        changes the memory layout of the prepared weights. After that, changes of the original weights have
        no effect.
    """

    split_heads = staticmethod(formulas.split_heads)
    merge_heads = staticmethod(formulas.merge_heads)

    def __init__(self, uses_one_dnn=False):
        self.uses_one_dnn = uses_one_dnn

    def linear(self, inputs, weights, biases, activation=None, residual=None):
        """Returns activation(inputs · weights + biases) + residual. For this product, the list of weights is
        concatenated to one matrix, and the list of biases to one vector.

        Args:
          inputs: [R, width].
          weights: list of float32 [width, units].
          biases: list of float32 [units].
          activation: "GeluExact", "GeluApproximate" or None.
          residual: [R, sum of units], or None.

        Returns:
          [R, sum of units].
        """
        kernel = self._cached_weights(weights, 1, inputs.dtype)
        bias = self._cached_weights(biases, 0, inputs.dtype)
        if self.uses_one_dnn and one_dnn.has_fused_product(inputs.dtype):
            return one_dnn.fused_product(inputs, kernel, bias, activation, residual)
        outputs = tf.nn.bias_add(products.matmul(inputs, kernel), bias)
        if activation:
            outputs = self.gelu(outputs, activation == "GeluApproximate")
        return outputs if residual is None else outputs + residual

    def _cached_weights(self, parameters, axis, dtype):
        """Returns the concatenated parameters in `dtype`.

        If the result differs from the stored parameters and oneDNN is used, the result is kept in a variable.
        So later runs of the graph need not concatenate or cast the parameters again.
        """
        weights = products.concatenate(parameters, axis, dtype)
        is_new = weights is not parameters[0]
        if not (self.uses_one_dnn and is_new):
            return weights
        prepared = tf.Variable(
            tf.zeros(weights.shape, weights.dtype), trainable=False, name="prepared", use_resource=True,
            collections=[tf.GraphKeys.LOCAL_VARIABLES, graph_keys.PREPARED_WEIGHTS])
        # A session must initialize this variable after the variables of the weights. If `weights` were the
        # initial value, TensorFlow would replace reads of reference variables by the initial values of the
        # weights. In a process with tf1, it would do so for all variables.
        tensorflow_internals.set_initializer(prepared, prepared.assign(weights, read_value=False))
        return prepared.read_value()

    def look_up(self, table, ids):
        """See `training_kernels.TrainingKernels.look_up`."""
        # A gather from a variable would first copy the whole table, if the session was fed with it.
        return tf.gather(tf.convert_to_tensor(table), ids)

    def gelu(self, x, approximate=True):
        """See `training_kernels.TrainingKernels.gelu`."""
        return tf.compat.v2.nn.gelu(x, approximate=approximate)

    def layer_norm(self, inputs, gamma, beta):
        """See `training_kernels.TrainingKernels.layer_norm`."""
        if self.uses_one_dnn and one_dnn.has_layer_norm(inputs):
            return one_dnn.layer_norm(inputs, gamma, beta, formulas.LAYER_NORM_EPSILON)
        return formulas.residual_norm(inputs, None, None, None, gamma, beta, 1.0)

    def linear_norm(self, inputs, dense, residual, dropout_prob, norm):
        """See `training_kernels.TrainingKernels.linear_norm`."""
        kernel, bias = dense
        return self.layer_norm(self.linear(inputs, [kernel], [bias], residual=residual), *norm)

    def gelu_norm(self, inputs, inner, outer, dropout_prob, norm, approximate):
        """See `training_kernels.TrainingKernels.gelu_norm`."""
        kernel, bias = inner
        activation = self.linear(inputs, [kernel], [bias], "GeluApproximate" if approximate else "GeluExact")
        return self.linear_norm(activation, outer, inputs, dropout_prob, norm)

    def attention(self, query, key, value, score_bias, mask, keep_probability):
        """See `training_kernels.TrainingKernels.attention`. The mask and its probability are ignored."""
        scores = products.matmul(query, key, transpose_b=True)
        if products.would_crash(scores.dtype):
            scores = tf.cast(scores, tf.float32)
        scores *= 1.0 / math.sqrt(query.shape.as_list()[-1])
        if score_bias is not None:
            scores += tf.cast(score_bias, scores.dtype)
        return products.matmul(tf.cast(tf.nn.softmax(scores), value.dtype), value)

    def dropout_mask(self, wait_for, shape, dropout_prob):
        """Returns None: inference has no dropout. See `training_kernels.TrainingKernels.dropout_mask`."""
        assert not dropout_prob


class PortableKernels(InferenceKernels):
    """Computes the same values as `InferenceKernels`, but in float32, and only with ops that also exist in
    formats such as ONNX.

    ONNX Runtime recognizes the ops of the layer normalization and of the two forms of gelu in this class, and
    replaces each of these groups of ops by one op.
    """

    def gelu(self, x, approximate=True):
        """See `training_kernels.TrainingKernels.gelu`. TensorFlow's own function is not used here: for the
        exact form, it uses the op Erfc, which ONNX does not have."""
        if approximate:
            return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * tf.pow(x, 3.0))))
        return x * (1.0 + tf.math.erf(x / math.sqrt(2.0))) * 0.5

    def layer_norm(self, inputs, gamma, beta):
        """See `training_kernels.TrainingKernels.layer_norm`."""
        centered = inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.pow(centered, 2.0), axis=-1, keepdims=True)
        return centered / tf.sqrt(variance + formulas.LAYER_NORM_EPSILON) * gamma + beta


# --- Weights that are read ---------------------------------------------------------------------------------


def find_weight_reads(ops):
    """Returns the trainable variables of the current graph that the ops read, also indirectly.

    Returns:
      {name of a variable: list of the tensors with the value of the variable}. The list is empty if an op
      gets the variable itself, as the gather of `training_kernels.TrainingKernels.look_up` does.
    """
    ancestors, stack = set(), list(ops)
    while stack:
        op = stack.pop()
        if op not in ancestors:
            ancestors.add(op)
            stack += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    reads = {variable.op.name: [] for variable in tf.trainable_variables() if variable.op in ancestors}
    for op in ancestors:
        # The read of a reference variable is an op of the type Identity.
        if op.type in ("ReadVariableOp", "Identity") and op.inputs[0].op.name in reads:
            reads[op.inputs[0].op.name].append(op.outputs[0])
    return reads
