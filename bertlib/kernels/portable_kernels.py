"""Computes the parts of a layer in inference. Uses only ops that also exist in formats such as ONNX.

ONNX Runtime recognizes the ops of the layer normalization and of the two forms of gelu in this module, and
replaces each of these groups of ops by one op.
"""

import math

import tensorflow.compat.v1 as tf

from bertlib.kernels import formulas
from bertlib.kernels.inference_kernels import InferenceKernels


class PortableKernels(InferenceKernels):
    """Computes the same values as `InferenceKernels`, but with simple ops in float32 and without oneDNN."""

    def linear(self, inputs, weights, biases, activation=None, residual=None):
        """See `InferenceKernels.linear`."""
        outputs = super().linear(inputs, weights, biases)
        if activation:
            outputs = self.gelu(outputs, activation == "GeluApproximate")
        return outputs if residual is None else outputs + residual

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
