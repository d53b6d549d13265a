"""Computes the parts of a layer in training, with gradients that keep few tensors for the backward pass."""

import functools
import math

import tensorflow.compat.v1 as tf

from bertlib.graph import products, randomness
from bertlib.graph.custom_gradient import with_custom_gradient


class TrainingKernels:
    """Computes the parts of a layer in training, with hand-written gradients.

    Weights and biases are float32. Inputs may be in 16 bits. Outputs and matrix products have the dtype of
    the inputs; all other arithmetic is float32. A row belongs to one position of one example, and R is the
    number of rows of all examples.

    Attributes:
      formulas: the object whose functions compute the parts between the products: the module `formulas`, the
        module `native_formulas`, or a `formulas.XlaFormulas`.
      convolves: whether oneDNN's convolutions may compute the matrix products in 16 bits.
      mask_op: the op in C++ that draws dropout masks; None for TensorFlow's ops. Both draw the same masks.
    """

    def __init__(self, formulas, convolves=False, mask_op=None):
        self.formulas, self.convolves, self.mask_op = formulas, convolves, mask_op
        self.split_heads = formulas.split_heads
        self.merge_heads = formulas.merge_heads

    def look_up(self, table, ids):
        """Returns rows of a table, [R, W]. `table` is a variable [rows, W], and `ids` is int32 [R]."""
        return tf.gather(table, ids)

    # --- Matrix products ---------------------------------------------------------------------------------

    def linear(self, inputs, weights, biases=()):
        """Returns inputs · weights + biases, where the weights and biases are concatenated.

        Args:
          inputs: [R, width].
          weights: list of [width, units], one for each projection. To compute the gradient, the weights are
            cast and concatenated again; the concatenated matrix is not kept in memory.
          biases: list of [units]; empty for no bias.

        Returns:
          [R, sum of units].
        """
        sizes = [matrix.shape.as_list()[1] for matrix in weights]
        kernel = products.concatenate(weights, 1, inputs.dtype)
        bias = products.concatenate(biases, 0, inputs.dtype) if biases else None
        outputs, input_gradient = self._product(inputs, kernel, bias)
        if len(weights) == 1 and inputs.dtype == tf.float32:
            return outputs

        def split(gradient, axis):
            return [gradient] if len(sizes) == 1 else tf.split(gradient, sizes, axis)

        def gradient(output_gradient, inputs, *parameters):
            kernel = products.concatenate(parameters[:len(sizes)], 1, inputs.dtype)
            weight_gradients = split(products.kernel_gradient(inputs, output_gradient), 1)
            bias_gradients = split(products.bias_gradient(output_gradient), 0) if biases else []
            return [input_gradient(output_gradient, kernel), *weight_gradients, *bias_gradients]

        return with_custom_gradient(outputs, [inputs, *weights, *biases], gradient)

    def _product(self, inputs, weights, bias):
        """Returns a pair: inputs · weights + bias, all of the same dtype; and the function (gradient of this
        product, weights) -> gradient for the inputs. The bias may be None."""
        if self.convolves:
            from bertlib.graph import one_dnn
            images = one_dnn.image_shape(inputs, weights.shape.as_list()[1])
            if images is not None:
                return (one_dnn.convolution(inputs, weights, bias, images),
                        functools.partial(one_dnn.convolution_gradient, images=images))
        outputs = products.matmul(inputs, weights)
        return (outputs if bias is None else tf.nn.bias_add(outputs, bias),
                functools.partial(products.matmul, transpose_b=True))

    # --- GELU --------------------------------------------------------------------------------------------

    def gelu(self, x, approximate=True):
        """Returns gelu(x); see `formulas.gelu_gradient` for `approximate`. For the gradient, only x
        is kept in memory."""
        def gradient(output_gradient, x):
            return [self.formulas.gelu_gradient(output_gradient, x, None, approximate)[0]]

        return with_custom_gradient(self.formulas.gelu(x, None, approximate), [x], gradient)

    def gelu_linear(self, inputs, bias, kernel, approximate=True):
        """Returns gelu(inputs + bias) · kernel. For the gradient, neither inputs + bias nor its gelu is kept
        in memory.

        Args:
          inputs: [R, width].
          bias: [width].
          kernel: [width, units].
          approximate: whether the tanh approximation is used, as published.

        Returns:
          [R, units].
        """
        activation = self.formulas.gelu(inputs, bias, approximate)
        outputs, activation_gradient_of = self._product(activation, tf.cast(kernel, inputs.dtype), None)

        def gradient(output_gradient, inputs, bias, kernel):
            activation_gradient = activation_gradient_of(output_gradient, tf.cast(kernel, inputs.dtype))
            input_gradient, activation, bias_gradient = self.formulas.gelu_gradient(
                activation_gradient, inputs, bias, approximate)
            return [input_gradient, bias_gradient, products.kernel_gradient(activation, output_gradient)]

        return with_custom_gradient(outputs, [inputs, bias, kernel], gradient)

    # --- Layer normalization -----------------------------------------------------------------------------

    def layer_norm(self, inputs, gamma, beta):
        """Returns the layer normalization over the last dimension. For the gradient, only the
        inputs are kept in memory.

        Args:
          inputs: [..., W].
          gamma, beta: [W].
        """
        rows = tf.reshape(inputs, [-1, inputs.shape.as_list()[-1]])
        outputs = self.residual_norm(rows, None, None, None, 1.0, gamma, beta)
        return tf.reshape(outputs, tf.shape(inputs))

    def residual_norm(self, inputs, bias, residual, mask, keep_probability, gamma, beta):
        """Returns the layer normalization of residual + dropout(inputs + bias).

        Args:
          inputs, residual: [R, W]. The residual may be None.
          bias, gamma, beta: [W]. The bias may be None.
          mask: bool [R, W], False where dropout makes a value 0; None for no dropout.
          keep_probability: probability of True in the mask.

        Returns:
          [R, W].
        """
        mask_scale = 1.0 / keep_probability

        def gradient(output_gradient, inputs, bias, residual, gamma, beta, mask):
            residual_gradient, input_gradient, *for_parameters = self.formulas.residual_norm_gradient(
                output_gradient, inputs, bias, residual, mask, gamma, mask_scale)
            bias_gradient, gamma_gradient, beta_gradient = for_parameters
            return [input_gradient, bias_gradient, residual_gradient, gamma_gradient, beta_gradient, None]

        outputs = self.formulas.residual_norm(inputs, bias, residual, mask, gamma, beta, mask_scale)
        return with_custom_gradient(outputs, [inputs, bias, residual, gamma, beta, mask], gradient)

    # --- The ends of sublayers -----------------------------------------------------------------------------

    def linear_norm(self, inputs, dense, residual, dropout_prob, norm):
        """Returns the layer normalization of residual + dropout(inputs · kernel + bias).

        Args:
          inputs: [R, width].
          dense: (kernel [width, W], bias [W]).
          residual: [R, W].
          dropout_prob: probability that dropout makes a value 0.
          norm: (gamma [W], beta [W]).

        Returns:
          [R, W].
        """
        kernel, bias = dense
        return self._dropout_norm(self.linear(inputs, [kernel]), bias, residual, dropout_prob, norm)

    def gelu_norm(self, inputs, inner, outer, dropout_prob, norm, approximate):
        """Returns the layer normalization of inputs + dropout(y).

        The value y is gelu(inputs · kernel₁ + bias₁) · kernel₂ + bias₂.

        Args:
          inputs: [R, W].
          inner: (kernel₁ [W, I], bias₁ [I]).
          outer: (kernel₂ [I, W], bias₂ [W]).
          dropout_prob: probability that dropout makes a value 0.
          norm: (gamma [W], beta [W]).
          approximate: whether the tanh approximation is used, as published.

        Returns:
          [R, W].
        """
        (inner_kernel, inner_bias), (outer_kernel, outer_bias) = inner, outer
        outputs = self.gelu_linear(self.linear(inputs, [inner_kernel]), inner_bias, outer_kernel, approximate)
        return self._dropout_norm(outputs, outer_bias, inputs, dropout_prob, norm)

    def _dropout_norm(self, inputs, bias, residual, dropout_prob, norm):
        mask = self.dropout_mask(inputs, tf.shape(inputs), dropout_prob)
        return self.residual_norm(inputs, bias, residual, mask, 1.0 - dropout_prob, *norm)

    # --- Attention ---------------------------------------------------------------------------------------

    def attention(self, query, key, value, score_bias, mask, keep_probability):
        """Returns dropout(softmax(Q Kᵀ / √H + score_bias)) V.

        For the gradient, only two tensors with the size of the scores are kept in memory: the probabilities
        and the mask.

        Args:
          query: [B, N, F, H].
          key, value: [B, N, T, H].
          score_bias: float32 [B, N, F, T], where B, N and F may be 1. It is added to the scores and gets no
            gradient. None for no bias.
          mask: bool [B, N, F, T], False where dropout makes a probability 0; None for no dropout.
          keep_probability: probability of True in the mask.

        Returns:
          [B, N, F, H].
        """
        scale, mask_scale = 1.0 / math.sqrt(query.shape.as_list()[-1]), 1.0 / keep_probability
        scores = products.matmul(query, key, transpose_b=True)
        dropped, probabilities = self.formulas.softmax(scores, score_bias, mask, scale, mask_scale)

        def gradient(output_gradient, query, key, value, probabilities, mask):
            dropped_gradient = products.matmul(output_gradient, value, transpose_b=True)
            score_gradient, dropped = self.formulas.softmax_gradient(
                dropped_gradient, probabilities, mask, scale, mask_scale)
            return [products.matmul(score_gradient, key),
                    products.matmul(score_gradient, query, transpose_a=True),
                    products.matmul(dropped, output_gradient, transpose_a=True), None, None]

        outputs = products.matmul(dropped, value)
        return with_custom_gradient(outputs, [query, key, value, probabilities, mask], gradient)

    # --- The dropout mask --------------------------------------------------------------------------------

    def dropout_mask(self, wait_for, shape, dropout_prob):
        """Draws a dropout mask. The mask gets a new site (a name for its random numbers); see `randomness`.

        Args:
          wait_for: tensor that must be computed before the mask is drawn.
          shape: shape of the mask; see `randomness.uniform`.
          dropout_prob: probability of False; 0 or None for no dropout.

        Returns:
          bool tensor; None for no dropout.
        """
        if not dropout_prob:
            return None
        site = randomness.new_site("dropout")
        # A random op has no input that depends on the data. Without this control dependency, TensorFlow could
        # draw all masks at the start of a step. The masks would then occupy memory for longer than necessary.
        with tf.control_dependencies([wait_for]):
            return randomness.bernoulli(tf.identity(shape), 1.0 - dropout_prob, site, self.mask_op)
