"""Which kernels the parts of a layer are made of. That is decided here, once for a graph.

| | training | inference |
|---|---|---|
| without `compile_kernels` | TensorFlow's ops | TensorFlow's ops |
| with it | ops in C++, in 16 bits oneDNN's convolutions | oneDNN's ops, with prepared weights |
| with it, and a GPU | TensorFlow's ops | TensorFlow's ops |
| with it, without a compiler | TensorFlow's ops, in 16 bits oneDNN's convolutions | oneDNN's ops, with prepared weights |
| with it, in float16 | TensorFlow's ops, oneDNN's convolutions | oneDNN's ops, with prepared weights |
"""

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.kernels import formulas, native, native_formulas
from bertlib.kernels.inference import Inference
from bertlib.kernels.training import Training
from bertlib.runtime import graph_keys


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


def choose(is_training, dtype):
    """Returns the current graph's kernels for activations of that dtype: a `Training` or an `Inference`."""
    compiled = _are_compiled()
    if not is_training:
        return Inference(uses_one_dnn=compiled)
    if compiled and dtype == tf.float16:
        logging.info("There are no kernels in C++ for float16: plain ops take their place.")
    native_dtype = dtype in (tf.float32, tf.bfloat16)
    return Training(native_formulas if native_dtype and native_ops() else formulas, convolves=compiled)


def native_ops():
    """Returns the ops in C++ that the current graph is to use, `native.ops()`; None for plain ones."""
    return native.ops() if _are_compiled() else None
