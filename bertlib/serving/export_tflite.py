"""Writes the TFLite file of a model."""

import tensorflow.compat.v1 as tf

from bertlib.system import files
from bertlib.tasks import loaded_model


def write(model, task, quantize, path):
    """Writes a model as a TFLite file. The batch size and the length of the inputs may change between calls.

    Args:
      model: a `trained_model.TrainedModel`.
      task: the `answers.Answers` of the model.
      quantize: whether the weights are stored in int8. If true, matrix products with these weights are also
        computed in int8: the other inputs of the products are quantized when the model runs (dynamic
        quantization).
      path: the new file.

    Raises:
      ValueError, OSError: the weights are damaged, or the graph has ops that TFLite does not have. The
        message names these ops.
    """
    loaded_model.check_weights(task.head, model.bert_config, model.checkpoint)
    with tf.Graph().as_default():
        inputs = loaded_model.create_inputs((*loaded_model.ENCODER_INPUTS, *task.extra_inputs))
        predictions = loaded_model.build(task.head, model.bert_config, inputs)
        outputs = [tf.identity(tensor, name) for name, tensor in predictions.items()]
        with loaded_model.with_weights(model.checkpoint) as weights:
            converter = tf.lite.TFLiteConverter.from_session(weights, list(inputs.values()), outputs)
            if quantize:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            try:
                content = converter.convert()
            except Exception as error:  # the class of the converter's errors is private
                raise ValueError(f"TFLite cannot represent the graph of this model: {_unknown_ops(error)}. "
                                 "Export the model with --format=saved_model.") from error
    files.write_bytes(path, content)


def _unknown_ops(error):
    """Returns one line of a converter's error: the line with the names of the ops that TFLite lacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    op_lines = [line for line in lines if " op " in line or "ops:" in line]
    return (op_lines or lines or [type(error).__name__])[0][:300]
