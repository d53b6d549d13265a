"""Answers of trained models: loaded once, from Python or, by `predict.py`, line by line.

    predictor = bertlib.serving.load("output/mrpc")
    predictor("It rains.", "There is rain.")["label"]
"""

import os

from bertlib.estimator.step_config import StepConfig
from bertlib.kernels import kernel_choice
from bertlib.output_directory import model_directory
from bertlib.replicas.replica_group import Group
from bertlib.serving.answers import TASKS  # noqa: F401 (a public name of this room)
from bertlib.serving.predictor import BATCH_SIZE, Predictor


def load(model_dir: str | os.PathLike[str], task: str | None = None, precision: str = "fp32",
         batch_size: int = BATCH_SIZE, group: Group | None = None) -> Predictor:
    """Loads a model that answers.

    Args:
      model_dir: output directory of a training.
      task: a key of `TASKS`, if another than what the model was trained for; None for that.
      precision: what the encoder computes in: "fp32" or "bf16".
      batch_size: texts, or windows of long ones, that the model gets at a time.
      group: a `replica_group.Group` whose replicas share the batches, or None; see `Predictor`.

    Returns:
      a `Predictor`, which may be called from several threads.

    Raises:
      ValueError, OSError: there is no such model, it does not do that task, or its files are damaged.
    """
    directory = model_directory.read(os.fspath(model_dir))
    step = StepConfig(precision=precision,
                      compile_kernels=kernel_choice.is_faster(directory.bert_config.hidden_size))
    return Predictor(directory, task, step, batch_size, group)
