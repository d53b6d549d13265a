"""Which kernels the parts of a layer are made of. That is decided here, once for a graph.

| `compile_kernels` | training | inference |
|---|---|---|
| no | plain ops | plain ops |
| yes | ops in C++; of wide products in 16 bits, convolutions | oneDNN's ops, prepared weights |
| yes, but no compiler | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, but float16 | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, but a GPU | plain ops | plain ops |

Plain ops are TensorFlow's. oneDNN's ops, the convolutions among them, are used where TensorFlow has them and
the CPU has instructions for the dtype; elsewhere plain ops take their place. The dtype is that of the
activations: beside layers in float16, what is in float32 is in C++, AdamW of large variables included.
"""

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.graph import graph_keys
from bertlib.kernels import formulas, native, native_formulas
from bertlib.kernels.inference_kernels import InferenceKernels
from bertlib.kernels.training_kernels import TrainingKernels


def is_faster(hidden_size):
    """Whether kernels for this machine's CPU are worth it for a model of that width. Narrow ones should not
    need a compiler; with a GPU there are no such kernels."""
    return hidden_size >= 256 and not tf.config.list_physical_devices("GPU")


def compile_kernels():
    """Has the current graph's kernels made for this machine's CPU, and no other; not if there is a GPU.

    Those of training are ops in C++, built when they are first needed on a machine, which takes ten seconds.
    """
    if tf.config.list_physical_devices("GPU"):
        logging.info("There is a GPU: kernels are plain ops, as those in C++ are for CPUs.")
    else:
        tf.get_collection_ref(graph_keys.COMPILED_KERNELS)[:] = [True]


def _are_compiled():
    return bool(tf.get_collection(graph_keys.COMPILED_KERNELS))


def choose_kernels(is_training, dtype):
    """Returns the current graph's kernels for activations of that dtype: a `Training` or an `Inference`."""
    compiled = _are_compiled()
    if not is_training:
        return InferenceKernels(uses_one_dnn=compiled)
    if compiled and dtype == tf.float16:
        logging.info("There are no kernels in C++ for float16: plain ops take their place.")
    native_dtype = dtype in (tf.float32, tf.bfloat16)
    return TrainingKernels(native_formulas if native_dtype and native_ops() else formulas, convolves=compiled)


def native_ops():
    """Returns the ops in C++ that the current graph is to use, `native.load_ops()`; None for plain ones."""
    return native.load_ops() if _are_compiled() else None
