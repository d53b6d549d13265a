"""Chooses the kernels that compute the layers of a graph.

| `compile_kernels` | training | inference |
|---|---|---|
| no | plain ops | plain ops |
| yes | ops in C++; convolutions for wide matrix products in 16 bits | oneDNN's ops, prepared weights |
| yes, without a compiler | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, in float16 | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, on a machine with a GPU | plain ops | plain ops |
| no, with `use_xla` | formulas compiled by XLA | plain ops |

A graph for an export into another format (see `use_portable_ops`) gets the ops of `PortableKernels` in
inference.

Plain ops are TensorFlow's ops. oneDNN's ops, which include the convolutions, are used if TensorFlow has them
and the CPU has instructions for the dtype. Otherwise plain ops replace them. Here and in the table, the dtype
is the dtype of the activations. So the row "yes, in float16" concerns only the layers. Parts of the training
that compute in float32 still use ops in C++, for example AdamW for large variables.
"""

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.graph import graph_keys
from bertlib.kernels import formulas, native, native_formulas
from bertlib.kernels.inference_kernels import InferenceKernels, PortableKernels
from bertlib.kernels.training_kernels import TrainingKernels
from bertlib.kernels.xla_formulas import XlaFormulas


def is_faster(hidden_size):
    """Returns whether kernels for this machine's CPU save so much time that they are worth building.

    Returns False for models with a small hidden size, so that these models need no C++ compiler. Also returns
    False on a machine with a GPU, because these kernels run only on CPUs.
    """
    return hidden_size >= 256 and not tf.config.list_physical_devices("GPU")


def compile_kernels():
    """Makes the current graph use kernels for this machine's CPU. Has no effect on a machine with a GPU.

    The kernels of training are ops in C++. They are built when they are first used on a machine. The build
    takes 10 to 30 seconds.
    """
    if tf.config.list_physical_devices("GPU"):
        logging.info("This machine has a GPU: TensorFlow's ops are used instead of the kernels in C++, which "
                     "run only on CPUs.")
    else:
        tf.get_collection_ref(graph_keys.COMPILED_KERNELS)[:] = [1]


def use_portable_ops():
    """Makes the inference in the current graph use only ops that ONNX also has."""
    tf.get_collection_ref(graph_keys.PORTABLE_OPS)[:] = [1]


def _are_compiled():
    return bool(tf.get_collection(graph_keys.COMPILED_KERNELS))


def choose_kernels(is_training, dtype):
    """Returns the `TrainingKernels`, `InferenceKernels` or `PortableKernels` for the current graph. `dtype`
    is the dtype of the activations."""
    compiled = _are_compiled()
    if not is_training:
        if tf.get_collection(graph_keys.PORTABLE_OPS):
            return PortableKernels()
        return InferenceKernels(uses_one_dnn=compiled)
    if tf.get_collection(graph_keys.USES_XLA):
        return TrainingKernels(_xla_formulas())
    if compiled and dtype == tf.float16:
        logging.info("There are no kernels in C++ for float16: TensorFlow's ops are used instead.")
    native_dtype = dtype in (tf.float32, tf.bfloat16)
    return TrainingKernels(native_formulas if native_dtype and native_ops() else formulas, convolves=compiled)


def native_ops():
    """Returns the ops in C++ for the current graph (see `native.load_ops`); None if the graph must use plain
    ops."""
    return native.load_ops() if _are_compiled() else None


def _xla_formulas():
    """Returns the `XlaFormulas` of the current graph. The first call creates them."""
    existing = tf.get_collection_ref(graph_keys.XLA_FORMULAS)
    if not existing:
        existing.append(XlaFormulas())
    return existing[0]
