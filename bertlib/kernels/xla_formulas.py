"""Compiles each function of `formulas` with XLA into a few kernels.

TensorFlow's ops start one kernel for each step of a formula, and each kernel reads its inputs from the memory
of the device and writes its output there. A compiled function reads each input about once and keeps
intermediate values in registers. Compilation helps most in 16 bits, where TensorFlow's ops also write the
float32 copies of the tensors. The results are those of `formulas`, except for rounding.

A function is compiled once for each shape of its arguments, when this shape first occurs. Matrix products and
random numbers are not compiled, so the dropout masks are the same as without XLA. Recomputation also works as
without XLA. Each call is one op of the graph, and contains ops of either the forward or the backward pass. So
XLA cannot merge a computation of the forward pass with its repetition in the backward pass.
"""

import tensorflow.compat.v1 as tf

from bertlib.kernels import formulas


class XlaFormulas(object):
    """Contains the functions of `formulas` for one model.

    A compiled function keeps a reference to each graph in which it was called, so these graphs stay in
    memory. For this reason, each model has separate instances of this class.
    """

    keep_mask = staticmethod(formulas.keep_mask)
    duplicate = staticmethod(formulas.duplicate)
    add_bias = staticmethod(formulas.add_bias)
    split_heads = staticmethod(formulas.split_heads)
    merge_heads = staticmethod(formulas.merge_heads)

    def __init__(self):
        self.gelu = _compiled(formulas.gelu)
        self.gelu_gradient = _compiled(formulas.gelu_gradient)
        self.residual_norm = _compiled(formulas.residual_norm)
        self.residual_norm_gradient = _compiled(formulas.residual_norm_gradient)
        self.softmax = _compiled(formulas.softmax)
        self.softmax_gradient = _compiled(formulas.softmax_gradient)


def _compiled(function):
    return tf.compat.v2.function(function, jit_compile=True, autograph=False)
