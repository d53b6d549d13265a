"""Writes the ONNX file of a model, and runs it with ONNX Runtime."""

import os

from bertlib.serving import onnx_graph, session


def write(model, task, quantize, path):
    """Writes a model as an ONNX file.

    Args:
      model, task: see `onnx_graph.convert`.
      quantize: see `portable_model.export`.
      path: the new file.

    Raises:
      ValueError, OSError, ImportError: see `onnx_graph.convert`.
    """
    converted = onnx_graph.convert(model, task)
    (onnx_graph.quantize if quantize else onnx_graph.save)(converted, path)


class OnnxModel:
    """A model in ONNX Runtime. It is used like a `session.LoadedModel`. Several threads may call it.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, path, inputs, num_threads=None):
        """Loads a model.

        Args:
          path: the ONNX file.
          inputs: names of the inputs that the model must have.
          num_threads: number of threads; None for the number of cores that this process may use.

        Raises:
          ValueError: the file is damaged, or the model has other inputs.
          ImportError: ONNX Runtime is not installed.
        """
        runtime = onnx_graph.import_package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = num_threads or len(os.sched_getaffinity(0))
        # Waiting threads sleep. Otherwise they use a whole core.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors only
        try:
            self._session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has no common class for its errors
            raise ValueError(f"{path}: ONNX Runtime cannot load the model: {_first_line(error)}") from error
        found = {value.name for value in self._session.get_inputs()}
        if not found <= set(inputs):
            raise ValueError(f"{path} has the inputs {', '.join(sorted(found))}, but a model of this task "
                             f"has {', '.join(inputs)}. Export the model again.")
        self.inputs = tuple(name for name in inputs if name in found)
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, rows):
        """See `session.LoadedModel.__call__`."""
        try:
            outputs = self._session.run(self._outputs, session.pad(rows, self.inputs))
        except Exception as error:
            raise ValueError(f"ONNX Runtime cannot run the model: {_first_line(error)}") from error
        return session.split(dict(zip(self._outputs, outputs)), len(rows))

    def close(self):
        """Frees the memory of the model."""
        self._session = None


def _first_line(error):
    return str(error).strip().partition("\n")[0][:300]
