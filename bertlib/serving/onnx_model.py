"""Runs the ONNX file of a model with ONNX Runtime. `export_onnx` writes this file."""

import importlib
import os

from bertlib.data import batches
from bertlib.system import workers

TITLE, FILE = "ONNX", "model.onnx"
# A large batch is computed in parts of at most this number of tokens, or of `_TOKENS_PER_CORE` for each core.
# The intermediate results of such a part fit into the caches of a CPU. In 32 pairs of 128 tokens, small parts
# save a fifth of the CPU time, and more than half of the memory that is needed in addition to the weights.
_TOKENS, _TOKENS_PER_CORE = 512, 128


def import_package(name):
    """Returns a module of one of the packages in the extra "onnx", for example "onnxruntime.quantization".

    Raises:
      ImportError: the package is not installed.
    """
    # ONNX Runtime sends data about its use to its makers, unless this variable is set before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        # The import is here and not at the top, because the packages are optional.
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"ONNX needs the package {name.split('.')[0]}, which cannot be imported ({error}). "
                          "Install the extra [onnx]: pip install -r requirements-onnx.txt, or, without "
                          "TensorFlow, requirements-answers.txt") from error


class Model:
    """A model in ONNX Runtime. It is used like a `loaded_model.LoadedModel`. Several threads may call it at
    the same time.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, path):
        """Loads a model.

        Args:
          path: the ONNX file.

        Raises:
          ValueError: the file is damaged.
          ImportError: ONNX Runtime is not installed.
        """
        runtime = import_package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = workers.available_cores()
        # With this setting, waiting threads sleep. By default, a waiting thread keeps a CPU core busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors only
        try:
            self._session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has no common class for its errors
            raise ValueError(f"{path}: ONNX Runtime cannot load the model: {_first_line(error)}") from error
        self.inputs = [value.name for value in self._session.get_inputs()]
        self._tokens = max(_TOKENS, _TOKENS_PER_CORE * options.intra_op_num_threads)
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, rows):
        """See `loaded_model.LoadedModel.__call__`."""
        results = []
        for part in self._parts(rows):
            try:
                outputs = self._session.run(self._outputs, batches.pad(part, self.inputs))
            except Exception as error:
                raise ValueError(f"ONNX Runtime cannot run the model: {_first_line(error)}") from error
            results += batches.unstack_predictions(dict(zip(self._outputs, outputs)))
        return results

    def _parts(self, rows):
        """Yields lists of consecutive rows. With padding, a list has at most `self._tokens` tokens, or one
        row."""
        part, longest = [], 0
        for row in rows:
            longest = max(longest, len(row["input_ids"]))
            if part and (len(part) + 1) * longest > self._tokens:
                yield part
                part, longest = [], len(row["input_ids"])
            part.append(row)
        if part:
            yield part

    def close(self):
        """Frees the memory of the model."""
        self._session = None


def _first_line(error):
    return str(error).strip().partition("\n")[0][:300]
