"""Implements the functions of `formulas` with ops in C++, which read and write each tensor only once.

These functions support float32 and bfloat16 on CPUs. They can be called only if `native.load_ops` returns
ops.
"""

import tensorflow.compat.v1 as tf

from bertlib.graph import native
from bertlib.graph.custom_gradient import with_custom_gradient
from bertlib.graph.formulas import LAYER_NORM_EPSILON


def gelu(inputs, bias, approximate):
    """See `formulas.gelu`."""
    return native.load_ops().bert_gelu(inputs=inputs, bias=_optional(bias), approximate=approximate)


def gelu_gradient(gradient, inputs, bias, approximate):
    """See `formulas.gelu_gradient`."""
    return native.load_ops().bert_gelu_gradient(gradient=gradient, inputs=inputs, bias=_optional(bias),
                                                approximate=approximate)


def residual_norm(inputs, bias, residual, mask, gamma, beta, mask_scale):
    """See `formulas.residual_norm`."""
    return native.load_ops().bert_norm(
        inputs=inputs, bias=_optional(bias), residual=_optional(residual), mask=_optional(mask), gamma=gamma,
        beta=beta, mask_scale=mask_scale, epsilon=LAYER_NORM_EPSILON)


def residual_norm_gradient(gradient, inputs, bias, residual, mask, gamma, mask_scale):
    """See `formulas.residual_norm_gradient`."""
    return native.load_ops().bert_norm_gradient(
        gradient=gradient, inputs=inputs, bias=_optional(bias), residual=_optional(residual),
        mask=_optional(mask), gamma=gamma, mask_scale=mask_scale, epsilon=LAYER_NORM_EPSILON)


def softmax(scores, score_bias, mask, scale, mask_scale):
    """See `formulas.softmax`."""
    return native.load_ops().bert_softmax(scores=scores, score_bias=_optional(score_bias),
                                          mask=_optional(mask), scale=scale, mask_scale=mask_scale)


def softmax_gradient(gradient, probabilities, mask, scale, mask_scale):
    """See `formulas.softmax_gradient`."""
    return native.load_ops().bert_softmax_gradient(gradient=gradient, probabilities=probabilities,
                                                   mask=_optional(mask), scale=scale, mask_scale=mask_scale)


def split_heads(rows, number, num_heads, batch_size, length, packing):
    """See `formulas.split_heads`."""
    def gradient(*gradients):
        return [_merge_heads(gradients[:number], packing)]

    heads = _split_heads(rows, number, num_heads, batch_size, length, packing)
    return with_custom_gradient(heads, [rows], gradient)


def merge_heads(heads, batch_size, length, packing):
    """See `formulas.merge_heads`."""
    num_heads = heads.shape.as_list()[1]

    def gradient(row_gradient, _):
        return _split_heads(row_gradient, 1, num_heads, batch_size, length, packing)

    return with_custom_gradient(_merge_heads([heads], packing), [heads], gradient)


def _split_heads(rows, number, num_heads, batch_size, length, packing):
    return native.load_ops().bert_split_heads(rows=rows, row_of=[packing.rows] if packing else [],
                                              shape=tf.stack([batch_size, length]), number=number,
                                              heads=num_heads)


def _merge_heads(heads, packing):
    return native.load_ops().bert_merge_heads(inputs=heads, places=[packing.positions] if packing else [])


def _optional(tensor):
    """Returns an optional input of an op as a list: [] for None, otherwise [tensor]."""
    return [] if tensor is None else [tensor]
