"""Writes the TFLite file of a model, and runs it with TensorFlow's interpreter of TFLite."""

import threading
import warnings

import tensorflow.compat.v1 as tf

from bertlib.data import batches
from bertlib.system import files, workers
from bertlib.tasks import session

TITLE, FILE = "TFLite", "model.tflite"


def write(model, task, quantize, path):
    """Writes a model as a TFLite file. The batch size and the length of the inputs may change between calls.

    Args:
      model: a `model_directory.ModelDirectory`.
      task: the `answers.Answers` of the model.
      quantize: whether the weights are stored in int8. If true, matrix products with these weights are also
        computed in int8: the other inputs of the products are quantized when the model runs (dynamic
        quantization).
      path: the new file.

    Raises:
      ValueError, OSError: the weights are damaged, or the graph has ops that TFLite does not have. The
        message names these ops.
    """
    session.check_weights(task.head, model.bert_config, model.checkpoint)
    with tf.Graph().as_default():
        inputs = session.create_inputs((*session.ENCODER_INPUTS, *task.extra_inputs))
        predictions = session.build(task.head, model.bert_config, inputs)
        outputs = [tf.identity(tensor, name) for name, tensor in predictions.items()]
        with session.with_weights(model.checkpoint) as weights:
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
    named = [line for line in lines if " op " in line or "ops:" in line]
    return (named or lines or [type(error).__name__])[0][:300]


class Model:
    """A model in TensorFlow's interpreter of TFLite. It is used like a `session.LoadedModel`. Calls from
    several threads run one after the other.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, path, inputs):
        """Loads a model.

        Args:
          path: the TFLite file.
          inputs: names of the inputs that the model must have.

        Raises:
          ValueError: the file is damaged, or the inputs of the model have other names than `inputs`.
        """
        self._lock = threading.Lock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides the notice that the class will move to another package
            self._interpreter = tf.lite.Interpreter(path, num_threads=workers.available_cores())
        self._places = {detail["name"].partition(":")[0]: detail["index"]
                        for detail in self._interpreter.get_input_details()}
        if set(self._places) != set(inputs):
            raise ValueError(f"{path} has the inputs {', '.join(sorted(self._places))}, but a model of this "
                             f"task has {', '.join(inputs)}. Export the model again.")
        self.inputs = tuple(inputs)
        self._outputs = {detail["name"].partition(":")[0]: detail["index"]
                         for detail in self._interpreter.get_output_details()}

    def __call__(self, rows):
        """See `session.LoadedModel.__call__`."""
        arrays = session.pad(rows, self.inputs)
        with self._lock:
            for name, array in arrays.items():
                self._interpreter.resize_tensor_input(self._places[name], array.shape)
            self._interpreter.allocate_tensors()
            for name, array in arrays.items():
                self._interpreter.set_tensor(self._places[name], array)
            self._interpreter.invoke()
            outputs = {name: self._interpreter.get_tensor(index) for name, index in self._outputs.items()}
        return list(batches.split_batch(outputs))

    def close(self):
        """Frees the memory of the model."""
        self._interpreter = None
