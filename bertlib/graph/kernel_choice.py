"""Chooses the kernels that compute a model, from its `StepConfig`.

| `compile_kernels` | training | inference |
|---|---|---|
| no | plain ops | plain ops |
| yes | ops in C++; convolutions for wide matrix products in 16 bits | oneDNN's ops, prepared weights |
| yes, without a compiler | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, in float16 | plain ops; the same convolutions | oneDNN's ops, prepared weights |
| yes, on a machine with a GPU | plain ops | plain ops |
| no, with `use_xla` | formulas compiled by XLA | plain ops |

With `portable_ops`, inference gets the ops of `PortableKernels`, which other formats also have.

Plain ops are TensorFlow's ops. oneDNN's ops, which include the convolutions, are used if TensorFlow has them
and the CPU has instructions for the dtype. Otherwise plain ops replace them. Here and in the table, the dtype
is the dtype of the activations. So the row "yes, in float16" concerns only the layers. Parts of the training
that compute in float32 still use ops in C++, for example AdamW for large variables.
"""

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.graph import formulas, native
from bertlib.graph.training_kernels import TrainingKernels

# The kernels of a function that gets no kernels from its caller: TensorFlow's ops.
PLAIN = TrainingKernels(formulas)


def is_faster(hidden_size):
    """Returns whether kernels for this machine's CPU save so much time that they are worth building.

    Returns False for models with a small hidden size, so that these models need no C++ compiler. Also returns
    False on a machine with a GPU, because these kernels run only on CPUs.
    """
    return hidden_size >= 256 and not tf.config.list_physical_devices("GPU")


def choose_kernels(is_training, dtype, step_config):
    """Returns the `TrainingKernels`, `InferenceKernels` or `PortableKernels` of a model.

    The ops in C++ are built when they are first used on a machine. The build takes 10 to 30 seconds.

    Args:
      is_training: bool.
      dtype: dtype of the activations.
      step_config: a `StepConfig`, whose compile_kernels, use_xla and portable_ops choose the kernels.
    """
    compiled = step_config.compile_kernels
    if compiled and tf.config.list_physical_devices("GPU"):
        logging.log_first_n(logging.INFO, "This machine has a GPU: TensorFlow's ops are used instead of the "
                            "kernels in C++, which run only on CPUs.", 1)
        compiled = False
    if not is_training:
        from bertlib.graph import inference_kernels
        if step_config.portable_ops:
            return inference_kernels.PortableKernels()
        return inference_kernels.InferenceKernels(uses_one_dnn=compiled)
    if step_config.use_xla:
        return TrainingKernels(formulas.XlaFormulas())
    if compiled and dtype == tf.float16:
        logging.info("There are no kernels in C++ for float16: TensorFlow's ops are used instead.")
    ops = native.load_ops() if compiled and dtype in (tf.float32, tf.bfloat16) else None
    if ops:
        from bertlib.graph import native_formulas
        return TrainingKernels(native_formulas, convolves=True, mask_op=ops.bert_dropout_mask)
    return TrainingKernels(formulas, convolves=compiled)
