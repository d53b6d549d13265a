"""Runs the TFLite file of a model with TensorFlow's interpreter of TFLite. `export_tflite` writes this
file."""

import threading
import warnings

from bertlib.data import batches
from bertlib.system import quiet_tensorflow, workers

TITLE, FILE = "TFLite", "model.tflite"


class Model:
    """A model in TensorFlow's interpreter of TFLite. It is used like a `loaded_model.LoadedModel`. Calls from
    several threads run one after the other.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, path):
        """Loads a model.

        Args:
          path: the TFLite file.

        Raises:
          ValueError: the file is damaged.
          ImportError: TensorFlow is not installed.
        """
        self._lock = threading.Lock()
        tf = quiet_tensorflow.load_in_library()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides the notice that the class will move to another package
            self._interpreter = tf.lite.Interpreter(path, num_threads=workers.available_cores())
        self._places = {detail["name"].partition(":")[0]: detail["index"]
                        for detail in self._interpreter.get_input_details()}
        self.inputs = list(self._places)
        self._outputs = {detail["name"].partition(":")[0]: detail["index"]
                         for detail in self._interpreter.get_output_details()}

    def __call__(self, rows):
        """See `loaded_model.LoadedModel.__call__`."""
        arrays = batches.pad(rows, self.inputs)
        with self._lock:
            for name, array in arrays.items():
                self._interpreter.resize_tensor_input(self._places[name], array.shape)
            self._interpreter.allocate_tensors()
            for name, array in arrays.items():
                self._interpreter.set_tensor(self._places[name], array)
            self._interpreter.invoke()
            outputs = {name: self._interpreter.get_tensor(index) for name, index in self._outputs.items()}
        return list(batches.unstack_predictions(outputs))

    def close(self):
        """Frees the memory of the model."""
        self._interpreter = None
