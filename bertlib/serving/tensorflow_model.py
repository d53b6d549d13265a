"""Runs the checkpoint of a training with TensorFlow, which is imported when the first model is loaded."""

from bertlib.estimator.step_config import StepConfig
from bertlib.system import quiet_tensorflow


def load(asked, step_config):
    """Loads the weights of a model. Returns a `session.LoadedModel`.

    Args:
      asked: the `answers.Answers` of the model.
      step_config: a `StepConfig` with the precision and the kernels; None for fp32 and TensorFlow's ops.

    Raises:
      ValueError, OSError: the weights are damaged, cannot be read, or do not fit the model.
      ImportError: TensorFlow is not installed.
    """
    quiet_tensorflow.load_in_library()
    # This module loads TensorFlow.
    from bertlib.tasks import session

    model = asked.model
    return session.LoadedModel(asked.head, model.bert_config, model.checkpoint, asked.extra_inputs,
                               step_config)


def choose_step(precision, hidden_size):
    """Returns the `StepConfig` with the fastest kernels for a model; see `kernel_choice.is_faster`."""
    quiet_tensorflow.load_in_library()
    # This module loads TensorFlow.
    from bertlib.graph import kernel_choice

    return StepConfig(precision=precision, compile_kernels=kernel_choice.is_faster(hidden_size))
