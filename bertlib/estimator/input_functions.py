"""Makes the functions that an `estimator.Estimator` calls for its input."""

from bertlib.data import input_pipeline
from bertlib.data.batches import Batch
from bertlib.estimator.run_config import step_config_of
from bertlib.graph import collectives


def training_batch(params, config=None):
    """Returns the `Batch` of a training step, from the arguments that an Estimator passes to an input_fn.

    Args:
      params, config: see `run_config.step_config_of`. If there is no `StepConfig`, params["batch_size"] is
        the number of examples in a micro-batch.
    """
    step_config = step_config_of(params, config)
    if config and config.step_config:
        return step_config.batch
    steps, replicas = step_config.gradient_accumulation_steps, collectives.num_replicas()
    return Batch(params["batch_size"] * steps * replicas, steps, replicas)


def input_fn_builder(input_files, fields, is_training, drop_remainder, trimmed_fields=(), batch_totals=(),
                     num_threads=None, position_fields=()):
    """Returns an input_fn that reads TFRecord files. Its dataset is the `input_pipeline.training_dataset` of
    the step, or an `input_pipeline.evaluation_dataset` with batches of params["batch_size"] examples.

    Args:
      input_files: the file, or a list of files, which are read like one file.
      is_training: whether the dataset is that of a training.
      fields, drop_remainder, trimmed_fields, batch_totals, num_threads, position_fields: see
        `input_pipeline.record_dataset`.
    """
    def input_fn(params, config=None):
        batch = training_batch(params, config) if is_training else params["batch_size"]
        return input_pipeline.record_dataset(input_files, fields, batch, drop_remainder, batch_totals,
                                             num_threads, trimmed_fields, position_fields)
    return input_fn
