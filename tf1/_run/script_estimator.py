"""Defines `tf.estimator.Estimator`: bertlib's Estimator, extended for the models and inputs of scripts."""

from bertlib.estimator import estimator
from tf1._replicas.horovod_mode import script_divides_work
from tf1._run import script_training
from tf1._run.script_config import RunConfig


class Estimator(estimator.Estimator):
    """Extends bertlib's `Estimator` to any input_fn and model_fn; see `script_training`."""

    _builder_class = script_training.Builder

    def __init__(self, model_fn, model_dir=None, config=None, params=None, use_tpu=False,
                 train_batch_size=None, eval_batch_size=None, predict_batch_size=None, warm_start_from=None):
        """Creates an Estimator. The arguments that are not listed below are described in
        `bertlib.estimator.estimator`.

        Args:
          config: a `script_config.RunConfig`.
          params: dict, or an object of another class. The model_fn and the input_fn get a copy of it. If
            batch sizes are given, an object of another class must have a method set_hparam, as HParams does.
          warm_start_from: checkpoint from which the training starts if model_dir has no checkpoint. It may
            also be an object whose attributes are the arguments of `tf.train.warm_start`, such as
            `WarmStartSettings`.

        Raises:
          TypeError: a batch size is given, but params is neither a dict nor has a method set_hparam.
          ValueError: see `estimator.Estimator`.
        """
        super().__init__(model_fn, model_dir, config or RunConfig(), params, use_tpu, train_batch_size,
                         eval_batch_size, predict_batch_size)
        self._warm_start_from = warm_start_from
        self._input_history = script_training.InputHistory()

    def _training_session(self, *arguments):
        return script_training.TrainingSession(self._builder, self._config, *arguments,
                                               warm_start_from=self._warm_start_from,
                                               input_history=self._input_history)

    @property
    def inference_group(self):
        return None if script_divides_work() else super().inference_group

    @property
    def _writes_evaluations(self):
        return script_divides_work() or super()._writes_evaluations
