"""A compact Estimator: trains, evaluates and exports the model of a `model_fn` in graph mode, and predicts
with it.

TensorFlow removed `tf.estimator` in version 2.16. This module keeps the published semantics of
`tf.estimator`. The module uses classes that TensorFlow still contains (tf.train.SingularMonitoredSession,
Scaffold, Saver, SessionRunHook). A `model_fn(features, labels, mode, params)` that was written for
`tf.estimator` runs unchanged. The arguments of `TPUEstimator` are accepted, but the model runs on CPU or GPU.
Each call builds a fresh graph.

In each call, the module `sessions` restores the weights from a checkpoint in model_dir. If model_dir contains
no checkpoint, the weights come from the `init_checkpoint` of the model_fn. Without an `init_checkpoint`, the
weights are random.
"""

import contextlib
import copy
import os
import tempfile

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.data import batches
from bertlib.estimator import model_graph, training_session
from bertlib.estimator.estimator_spec import EstimatorSpec, ModeKeys, ServingInputReceiver  # noqa: F401  re-exported
from bertlib.estimator.run_config import RunConfig
from bertlib.estimator.session_hooks import NanLossError  # noqa: F401  re-exported: `train` raises it
from bertlib.system import locks


def refuse_tpu(use_tpu):
    """Raises a ValueError if the argument `use_tpu` of a published function or class is true."""
    if use_tpu:
        raise ValueError("use_tpu=True: TPUs are not supported. Pass use_tpu=False to run on CPU or GPU.")


class Estimator:
    """Trains, evaluates and exports the model that a `model_fn` builds, and predicts with it.

    This class expects optimizers of `optimization` and datasets of `input_pipeline`. These datasets continue
    at the right batch when a training is resumed. The subclass `tf1._run.script_estimator.Estimator` accepts
    any input and any optimizer.
    """

    _builder_class = model_graph.Builder

    def __init__(self, model_fn, model_dir=None, config=None, params=None, use_tpu=False,
                 train_batch_size=None, eval_batch_size=None, predict_batch_size=None):
        """Creates an Estimator.

        Args:
          model_fn: function of features, labels, mode, params and config that returns an `EstimatorSpec`. The
            function may lack any of these arguments except features.
          model_dir: directory of checkpoints and summaries. If it is None, the model_dir of `config` is used.
            If both are None, a new temporary directory is used.
          config: a `RunConfig`.
          params: dict that is passed to the model_fn and to the input_fn.
          use_tpu: must be false.
          train_batch_size, eval_batch_size, predict_batch_size: int, numbers of examples. The model_fn and
            the input_fn get the batch size of the current mode as params["batch_size"]. In training,
            params["batch_size"] is the size of a micro-batch: train_batch_size, divided by the number of
            replicas and by the configuration's gradient_accumulation_steps (which is also in params). If
            micro-batches differ in their numbers of examples, params["batch_size"] is train_batch_size.

        Raises:
          ValueError: use_tpu is true; or model_dir and config name different directories; or params contains
            batch_size; or train_batch_size is not divisible by gradient_accumulation_steps.
        """
        refuse_tpu(use_tpu)
        config = config or RunConfig()
        model_dir = model_dir and os.fspath(model_dir)
        if model_dir and config.model_dir and model_dir != config.model_dir:
            raise ValueError(f"model_dir is {model_dir}, but the RunConfig says {config.model_dir}. "
                             "Leave one of the two out.")
        self._model_dir = model_dir or config.model_dir
        if not self._model_dir:
            self._model_dir = tempfile.mkdtemp()
            logging.warning("No model_dir: checkpoints go to the temporary directory %s.", self._model_dir)
        self._config = config if config.model_dir else config.replace(model_dir=self._model_dir)
        self._builder = self._builder_class(model_fn, self._config, params, {
            ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size})
        self._is_training = False

    @property
    def model_dir(self):
        """The directory of checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self):
        """The `RunConfig`."""
        return self._config

    @property
    def params(self):
        """A copy of the parameters."""
        return copy.copy(self._builder.params)

    @property
    def model_fn(self):
        """The `model_fn` that was passed to the constructor."""
        return self._builder.model_fn

    def eval_dir(self, name=None):
        """Returns the directory to which `evaluate` writes summaries if it is called with this `name`."""
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    # --- Training

    def train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None):
        """Trains the model until the input ends or a limit is reached. model_dir is locked during the
        training.

        Args:
          input_fn: function that returns a dataset of features or (features, labels), or the tensors of a
            batch. The function may have the arguments mode, params and config.
          hooks: list of SessionRunHook.
          steps: number of steps to train, counted from the checkpoint.
          max_steps: value of the global step at which the training ends.
          saving_listeners: list of CheckpointSaverListener.

        Returns:
          self.

        Raises:
          ValueError: both steps and max_steps are given, or the given number is not positive; or the
            checkpoint in model_dir does not fit the model.
          NanLossError: the loss became NaN or infinite. Earlier checkpoints are kept.
          locks.InUseError: another process trains in model_dir.
          OSError: a file could not be written. The last complete checkpoint is kept.
          stopping.Stopped: the configuration's stop_request was set. The last complete step is saved.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Give steps or max_steps, not both.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        with contextlib.ExitStack() as stack:
            if self._config.is_chief:
                tf.gfile.MakeDirs(self._model_dir)
                stack.enter_context(locks.lock_directory(self._model_dir))
            self._train_from_newest(input_fn, list(hooks or []), steps, max_steps, saving_listeners)
        return self

    @property
    def inference_group(self):
        """The `replica_group.Group` of the replicas that share the next evaluation or prediction. None if
        this process computes it alone: if there are no other replicas, and while `train` runs, because only
        replica 0 evaluates at that time. (`config.group` has the replicas that share the training.)"""
        return None if self._is_training else self._config.group

    @property
    def _writes_evaluations(self):
        """Whether this process writes the summaries of evaluations."""
        return self._config.is_chief

    def _train_from_newest(self, input_fn, hooks, steps, max_steps, saving_listeners):
        """Like `train`, but model_dir must exist and must be locked already."""
        checkpoint = self._newest_checkpoint_of_replica_0()
        first_step = checkpoint_formats.read_global_step(checkpoint)
        if self._config.group:
            from bertlib.estimator import replica_sync
            first_step = replica_sync.start_training(self._config.group, first_step, self._model_dir)
        if self._config.metrics_history:
            self._config.metrics_history.cut(first_step if checkpoint else None)
        if max_steps is not None and first_step >= max_steps:
            logging.info("Nothing to train: %s is at step %d, and the last step is %d.", checkpoint,
                         first_step, max_steps)
            return

        last_step = max_steps if steps is None else first_step + steps
        if last_step is not None:
            hooks.append(tf.train.StopAtStepHook(last_step=last_step))
        where = f"to step {last_step}" if last_step is not None else "until the input ends"
        if checkpoint:
            logging.info("Resuming from %s: step %d %s. An init_checkpoint is not used.", checkpoint,
                         first_step, where)
        else:
            logging.info("Training in %s, from step 0 %s.", self._model_dir, where)
        session = self._training_session(input_fn, hooks, saving_listeners, checkpoint, last_step)
        self._is_training = True
        try:
            session.run()
        finally:
            self._is_training = False
        if self._config.group:  # wait until the sessions of all replicas are closed
            self._config.group.barrier()

    def _training_session(self, *arguments):
        """Creates the `TrainingSession`. `arguments` are the constructor's arguments that follow `config`."""
        return training_session.TrainingSession(self._builder, self._config, *arguments)

    def _newest_checkpoint_of_replica_0(self):
        """Returns the newest checkpoint that replica 0 sees; None if there is no checkpoint. All replicas
        must call this method, and all get the same result."""
        newest = self.latest_checkpoint()
        return self.inference_group.broadcast(newest) if self.inference_group else newest

    def _default_checkpoint(self):
        """Returns the checkpoint that is evaluated if the caller names none; None for the starting weights.
        All replicas must call this method."""
        return self._newest_checkpoint_of_replica_0()

    # --- Evaluation and prediction

    def evaluate(self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None, metrics=None):
        """Evaluates the newest checkpoint.

        Args:
          input_fn: see `train`.
          steps: number of batches to evaluate; None for all.
          hooks: list of SessionRunHook.
          checkpoint_path: the checkpoint to evaluate, or its directory; None for the newest.
          name: str; the summaries are written into the folder `eval_<name>` in model_dir. If name is None,
            the folder is `eval`.
          metrics: function that returns the metrics as a dict {name: number or array}. Its argument is an
            iterator over the batches, which yields the model_fn's predictions for each batch as NumPy arrays.
            The function must read all batches. None for the metrics of the model_fn.

        Returns:
          dict with the metrics, "loss" (mean over the batches) and "global_step" (of the checkpoint; 0 for
          starting weights). If the function `metrics` returns one of these two, its value is used.
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"steps is {steps}; it must be positive.")
        from bertlib.estimator import evaluation
        results = evaluation.evaluate(
            self._inference_pass("evaluating", input_fn, checkpoint_path, hooks, steps), metrics)
        if self._writes_evaluations:
            evaluation.write_summary(self.eval_dir(name), results)
        return results

    def evaluated_batches(self, input_fn, steps=None, checkpoint_path=None):
        """Returns the `evaluation.EvaluatedBatches` of a checkpoint. For the arguments, see `evaluate`."""
        from bertlib.estimator import evaluation
        return evaluation.EvaluatedBatches(
            self._inference_pass("evaluating", input_fn, checkpoint_path, steps=steps))

    def predict(self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None,
                yield_single_examples=True):
        """Yields predictions. The model computes a batch only when its predictions are requested.

        Args:
          input_fn: see `train`; labels are ignored.
          predict_keys: names of the predictions to compute; None for all.
          hooks: list of SessionRunHook.
          checkpoint_path: the checkpoint to use, or its directory; None for the newest.
          yield_single_examples: True to yield example by example, False to yield whole batches.

        Yields:
          The model_fn's predictions with NumPy arrays in place of tensors: a dict, or a single array.
        """
        from bertlib.estimator import evaluation
        for batch in evaluation.predicted_batches(
                self._inference_pass("predicting", input_fn, checkpoint_path, hooks), predict_keys):
            if not yield_single_examples:
                yield batch
            elif isinstance(batch, dict):
                yield from batches.unstack_predictions(batch)
            else:
                yield from batch

    def _inference_pass(self, activity, input_fn, checkpoint_path, hooks=(), steps=None):
        """Returns the `evaluation.InferencePass` of an evaluation or a prediction, and logs its weights.
        `activity` is the word for it in the log; for the other arguments, see `evaluate`."""
        from bertlib.estimator import evaluation
        group = self.inference_group
        if group:
            group.barrier()  # replica 0 may still be writing the checkpoint that is read next
        checkpoint = self._resolved(checkpoint_path) or self._default_checkpoint()
        if checkpoint:
            logging.info("Weights for %s: %s.", activity, checkpoint)
        else:
            logging.warning("There is no checkpoint in %s: %s with the starting weights (those of "
                            "--init_checkpoint, if this flag is given).", self._model_dir, activity)
        return evaluation.InferencePass(self._builder, checkpoint, input_fn, hooks, steps, group)

    def export_saved_model(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                           checkpoint_path=None):
        """Writes the model as a SavedModel into a new subdirectory of `export_dir_base`.

        The name of the subdirectory is the current time as a whole number of seconds, or the next number that
        is not in use.

        Args:
          export_dir_base: the parent directory.
          serving_input_receiver_fn: function that returns a `ServingInputReceiver`.
          assets_extra: {path below assets.extra: path of the file to copy there}, or None.
          as_text: whether to write the graph as text.
          checkpoint_path: the checkpoint to export, or its directory; the newest if None.

        Returns:
          the new directory, as bytes.

        Raises:
          ValueError: there is no checkpoint.
        """
        group, export_dir = self.inference_group, None
        if not group or group.is_first:  # replica 0 exports
            checkpoint = self._resolved(checkpoint_path) or self.latest_checkpoint()
            if not checkpoint:
                raise ValueError(f"There is no checkpoint in {self._model_dir} to export. Train first.")
            logging.info("Weights for exporting: %s.", checkpoint)
            from bertlib.estimator import saved_model
            export_dir = saved_model.write(self._builder, self._config, checkpoint, export_dir_base,
                                           serving_input_receiver_fn, assets_extra, as_text)
        return group.broadcast(export_dir) if group else export_dir

    def export_savedmodel(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                          checkpoint_path=None, strip_default_attrs=True):
        """Calls `export_saved_model`; `export_savedmodel` is the older name. strip_default_attrs has no
        effect: attributes of ops are always left out of the graph if they have their default value."""
        return self.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra, as_text,
                                       checkpoint_path)

    # --- Checkpoints

    def latest_checkpoint(self):
        """Returns the prefix of the newest checkpoint in model_dir, or None."""
        return checkpoint_formats.latest_checkpoint(self._model_dir)

    def get_variable_names(self):
        """Returns the sorted names of the variables in the newest checkpoint."""
        return sorted(checkpoint_formats.open_checkpoint(self._trained_checkpoint()).shapes)

    def get_variable_value(self, name):
        """Returns the value of a variable in the newest checkpoint."""
        return tf.train.load_variable(checkpoint_files.escape_prefix(self._trained_checkpoint()), name)

    def _trained_checkpoint(self):
        checkpoint = self.latest_checkpoint()
        if not checkpoint:
            raise ValueError(f"There is no checkpoint in {self._model_dir}. Train first.")
        return checkpoint

    @staticmethod
    def _resolved(checkpoint_path):
        """Returns the newest checkpoint of a directory. Another path is returned unchanged."""
        if not checkpoint_path or not tf.io.gfile.isdir(checkpoint_path):
            return checkpoint_path
        if checkpoint := checkpoint_formats.latest_checkpoint(checkpoint_path):
            return checkpoint
        raise ValueError(f"checkpoint_path={checkpoint_path} is a directory without a checkpoint. Pass the "
                         "path of a checkpoint, such as DIRECTORY/model.ckpt-100.")
