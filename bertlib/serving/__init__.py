"""Loads a trained model and predicts with it from Python. `predict.py` predicts for the lines of a file.

    from bertlib import serving

    with serving.load("output/mrpc") as predictor:  # written by `make mrpc`
        print(predictor("It rains.", "There is rain.")["prediction"])

- How is a line answered? `prediction_inputs` reads it, `predictor` answers it, `line_answers` formats it.
- How does the server work? `http_server`, `server_socket`, `http_app`, `request_batches`; the folder `pages`
  has its HTML
- How is a model exported, and used without TensorFlow? `export_portable` with `export_onnx` and
  `export_tflite`; `export_text` (a SavedModel that takes text); `portable_model`, with `onnx_model` and
  `tflite_model`
"""

import os

from absl import logging

from bertlib.estimator.step_config import StepConfig
from bertlib.runs import trained_model
from bertlib.runs.registry import ANSWERS as TASKS  # noqa: F401 (a public name of this package)
from bertlib.serving import portable_model
from bertlib.serving.predictor import BATCH_SIZE, Predictor
from bertlib.system import files, quiet_tensorflow
from bertlib.system.replica_group import Group
from bertlib.tasks import answers

ENGINES = ("tensorflow", "onnx")


def load(model_dir: str | os.PathLike[str], task: str | None = None, precision: str = "fp32",
         batch_size: int = BATCH_SIZE, group: Group | None = None, weights: str = "best",
         engine: str | None = None) -> Predictor:
    """Loads a trained model.

    Args:
      model_dir: output directory of a training, such as "output/mrpc". To load an export by `export.py
        --format=onnx` or `export.py --format=tflite`, pass the directory of the export, or the path of the
        model's file in this directory.
      task: None for the task that the model was trained for. Pass "vectors" to get the vector of a text;
        every model can compute vectors.
      precision: number format of the encoder's computations, "fp32" or "bf16".
      batch_size: largest number of texts in a batch. Each window of a long text counts as one text.
      group: the `replica_group.Group` of the replicas, see `Predictor`; None if there are no replicas.
      weights: "last" for the weights of the newest checkpoint; "best" for the best weights. If the training
        did not keep its best weights (--keep_best), "best" has the same meaning as "last".
      engine: the program that runs the model: "tensorflow", "onnx" (ONNX Runtime) or "tflite" (TFLite). In
        the output directory of a training, the newest export for this program is loaded. None: TensorFlow
        for an output directory, and the program for the format of an export.

    Returns:
      the model, ready to predict. To free its memory, call `close`, or use it in a `with` statement.

    Raises:
      NotADirectoryError: `model_dir` does not exist or is not a directory.
      ValueError: a file of the training is missing or damaged, or the model cannot do `task`; a file of an
        export was changed; the export cannot be used with this `engine` or `precision`; `engine` or
        `weights` has an unknown value.
      OSError: a file cannot be read.
      ImportError: ONNX Runtime is not installed, or TensorFlow, which all other models need.

    Examples:
      >>> from bertlib import serving
      >>> with serving.load("output/mrpc") as predictor:
      ...     answer = predictor("The cat sleeps.", "A cat is sleeping.")
      >>> sorted(answer)
      ['label', 'prediction', 'probabilities']

      >>> with serving.load("output/mrpc", task="vectors") as predictor:
      ...     vector = predictor("The cat sleeps.")["vector"]
      >>> len(vector)  # hidden_size of the default model
      384
    """
    engines = dict.fromkeys((*ENGINES, *portable_model.FORMATS))
    if engine is not None and engine not in engines:
        raise ValueError(f"engine={engine!r} is unknown. Pass one of {', '.join(engines)}.")
    path = os.fspath(model_dir)
    export_dir = portable_model.find(path)
    if export_dir:
        return _load_export(portable_model.read(export_dir, task), precision, batch_size, group, engine)
    if files.is_directory(path):
        try:
            quiet_tensorflow.load_in_library()  # it reads the checkpoint
        except ImportError as error:
            raise ImportError(f"{path} has no {portable_model.DESCRIPTION}, so it is no ONNX export, and "
                              f"needs TensorFlow. {error}") from error
    model = trained_model.read(path, weights)
    if engine in portable_model.FORMATS:
        export = portable_model.newest(path, model, engine, answers.choose_task(model, task))
        logging.info("--engine=%s: using %s.", engine, export.model.path)
        return _load_export(export, precision, batch_size, group, engine)
    # This module loads TensorFlow.
    from bertlib.graph import kernel_choice

    step_config = StepConfig(precision=precision,
                             compile_kernels=kernel_choice.is_faster(model.bert_config.hidden_size))
    return Predictor(model, task, step_config, batch_size, group)


def _load_export(export, precision, batch_size, group, engine):
    """Returns the `Predictor` of a `portable_model.Export`. For the other arguments, see `load`."""
    if engine not in (None, export.format):
        raise ValueError(f"--engine={engine}: {export.model.path} is an export in the format "
                         f"{export.format}, which --engine={engine} cannot run. Leave --engine out, or pass "
                         "the output directory of the training.")
    if precision != "fp32":
        raise ValueError(f"--precision={precision}: the number format of {export.model.path} was chosen "
                         "when it was exported. Leave --precision out. For int8, export the model with "
                         "--quantize=int8.")
    return Predictor(export.model, export.task, batch_size=batch_size, group=group, loaded=export.load())
