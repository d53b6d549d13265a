"""Defines the names of `tf.estimator` and `tf.contrib.tpu`. The Estimator itself is in `script_estimator`.

`tensorflow_names` and `contrib_parts` add these names to the namespaces. TPUs are not supported. All other
features of `TPUEstimator` work on CPU and GPU.
"""

import collections
import dataclasses
import glob
import operator
import os
import tempfile
import time

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator, evaluation
from tf1._names import summary
from tf1._names.namespace import refused
from tf1._replicas.horovod_mode import script_divides_work
from tf1._run import script_config, script_estimator

# --- Warm start, serving ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WarmStartSettings:
    """Holds the arguments of `tf.train.warm_start`, for Estimator(warm_start_from=…)."""

    ckpt_to_initialize_from: str
    vars_to_warm_start: object = ".*"
    var_name_to_vocab_info: dict = None
    var_name_to_prev_var_name: dict = None


class TensorServingInputReceiver(estimator.ServingInputReceiver):
    """A `ServingInputReceiver` for a model whose features are a single tensor."""


def build_raw_serving_input_receiver_fn(features, default_batch_size=None):
    """Returns a serving_input_receiver_fn whose inputs are the features, not serialized examples.

    Args:
      features: {name: tensor}. Only the dtype and the shape of each tensor are used.
      default_batch_size: first dimension of the fed arrays. None allows any size.
    """
    kinds = {name: (tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]])
             for name, tensor in features.items()}

    def serving_input_receiver_fn():
        placeholders = {name: tf.placeholder(dtype, shape, name) for name, (dtype, shape) in kinds.items()}
        return estimator.ServingInputReceiver(placeholders, placeholders)
    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size=None):
    """Returns a serving_input_receiver_fn whose input "examples" takes serialized `tf.train.Example`s.

    Args:
      feature_spec: {name: FixedLenFeature or VarLenFeature}.
      default_batch_size: number of fed examples. None allows any number.
    """
    def serving_input_receiver_fn():
        serialized = tf.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return estimator.ServingInputReceiver(tf.parse_example(serialized, feature_spec),
                                              {"examples": serialized})
    return serving_input_receiver_fn


# --- Input functions -------------------------------------------------------------------------------------


def numpy_input_fn(x, y=None, batch_size=128, num_epochs=1, shuffle=None, queue_capacity=1000, num_threads=1):
    """Returns an input_fn that reads examples from arrays in memory.

    Args:
      x: an array, or a dict {name: array}. The first dimension of each array is the number of examples.
      y: the labels, as an array or a dict {name: array}. None if the examples have no labels.
      batch_size: number of examples in a batch. The last batch may be smaller.
      num_epochs: number of passes over the arrays. None repeats the arrays without end.
      shuffle: whether to shuffle the examples in each pass. It must be true or false; None is an error.
      queue_capacity, num_threads: settings of the queues of TensorFlow 1. They are ignored.

    Raises:
      ValueError: shuffle is not given, or the arrays have different numbers of examples.
    """
    if shuffle is None:
        raise ValueError("numpy_input_fn: shuffle is missing. Pass shuffle=True for training, or "
                         "shuffle=False for evaluation and prediction.")
    data = x if y is None else (x, y)
    sizes = {len(array) for array in tf.nest.flatten(data)}
    if len(sizes) != 1:
        raise ValueError("numpy_input_fn: all arrays must have the same number of examples; found "
                         f"{sorted(sizes)}.")
    size = sizes.pop()

    def input_fn():
        dataset = tf.data.Dataset.from_tensor_slices(data)
        if shuffle:
            dataset = dataset.shuffle(size)
        return dataset.repeat(num_epochs).batch(batch_size)
    return input_fn


def pandas_input_fn(x, y=None, batch_size=128, num_epochs=1, shuffle=None, queue_capacity=1000, num_threads=1,
                    target_column="target"):
    """Returns an input_fn that reads examples from a DataFrame.

    Args:
      x: pandas.DataFrame; each column is a feature.
      y: the labels, as a pandas.Series or DataFrame. None if the examples have no labels.
      batch_size, num_epochs, shuffle, queue_capacity, num_threads: see `numpy_input_fn`.
      target_column: ignored.

    Raises:
      ValueError: see `numpy_input_fn`.
    """
    def arrays(frame):
        return {name: np.asarray(frame[name])
                for name in frame.columns} if hasattr(frame, "columns") else np.asarray(frame)
    return numpy_input_fn(arrays(x), None if y is None else arrays(y), batch_size, num_epochs, shuffle,
                          queue_capacity, num_threads)


# --- Training and evaluating in turns --------------------------------------------------------------------


class TrainSpec(collections.namedtuple("TrainSpec", "input_fn max_steps hooks saving_listeners",
                                       defaults=[None, None, None])):
    """Describes the training of `train_and_evaluate`. The fields are arguments of `Estimator.train`."""


class EvalSpec(collections.namedtuple(
        "EvalSpec", "input_fn steps name hooks exporters start_delay_secs throttle_secs",
        defaults=[100, None, None, None, 120, 600])):
    """Describes the evaluations of `train_and_evaluate`.

    Some fields are arguments of `Estimator.evaluate`. The other fields are:

    exporters: an `Exporter`, or a list of them.
    throttle_secs: minimum number of seconds between two evaluations.
    start_delay_secs: setting of clusters. It is ignored.
    """


def train_and_evaluate(estimator, train_spec, eval_spec):
    """Trains a model. Evaluates and exports the model after checkpoints and at the end of the training.

    Args:
      estimator: an `Estimator`.
      train_spec: a `TrainSpec`.
      eval_spec: an `EvalSpec`.

    Returns:
      (metrics of the last evaluation, list with the result of each exporter). If the training had already
      reached max_steps before this call, the function returns (None, []).
    """
    evaluator = _Evaluator(estimator, train_spec, eval_spec)
    estimator.train(train_spec.input_fn, hooks=list(train_spec.hooks or []), max_steps=train_spec.max_steps,
                    saving_listeners=[*(train_spec.saving_listeners or []), evaluator])
    result, group = (evaluator.metrics, evaluator.exports), estimator.config.group
    # Only replica 0 writes and evaluates checkpoints, so the other replicas get the result from replica 0.
    return result if group is None or script_divides_work() else group.broadcast(result)


class _Evaluator(tf.train.CheckpointSaverListener):
    """Evaluates new checkpoints, but not the checkpoint from which the training starts."""

    def __init__(self, trained, train_spec, eval_spec):
        self._estimator = trained
        self._max_steps = train_spec.max_steps
        self._spec = eval_spec
        exporters = eval_spec.exporters or []
        self._exporters = [exporters] if isinstance(exporters, Exporter) else list(exporters)
        self._first_step = self._evaluated_step = None
        self._time = time.time()
        self.metrics, self.exports = None, []

    def begin(self):
        checkpoint = self._estimator.latest_checkpoint()
        self._first_step = int(self._estimator.get_variable_value("global_step")) if checkpoint else 0

    def after_save(self, session, global_step_value):
        last = self._max_steps is not None and global_step_value >= self._max_steps
        due = time.time() - self._time >= self._spec.throttle_secs
        if global_step_value > self._first_step and due and not last:
            self._evaluate(global_step_value, is_the_final_export=False)

    def end(self, session, global_step_value):
        if global_step_value != self._evaluated_step:
            self._evaluate(global_step_value, is_the_final_export=True)
        else:
            # `after_save` has already evaluated this step, but did not know that it was the last one. So
            # some exporters, such as FinalExporter, have exported nothing. They are called again.
            self.exports = [directory or self._export(exporter, is_the_final_export=True)
                            for directory, exporter in zip(self.exports, self._exporters)]

    def _evaluate(self, step, is_the_final_export):
        spec = self._spec
        self.metrics = self._estimator.evaluate(spec.input_fn, steps=spec.steps, hooks=spec.hooks,
                                                checkpoint_path=self._estimator.latest_checkpoint(),
                                                name=spec.name)
        logging.info("Evaluation of step %d: %s", step, ", ".join(
            f"{name} = {value}" for name, value in sorted(self.metrics.items())))
        self.exports = [self._export(exporter, is_the_final_export) for exporter in self._exporters]
        self._evaluated_step, self._time = step, time.time()

    def _export(self, exporter, is_the_final_export):
        return exporter.export(
            estimator=self._estimator, export_path=os.path.join(
                self._estimator.model_dir, "export", exporter.name),
            checkpoint_path=self._estimator.latest_checkpoint(), eval_result=self.metrics,
            is_the_final_export=is_the_final_export)


class InMemoryEvaluatorHook(tf.train.SessionRunHook):
    """Evaluates the current weights of a training: before the first step, every N steps, and at the end.

    The results are written to the directory of `Estimator.evaluate`. The evaluation reads the weights from a
    temporary file, so this hook adds no checkpoints to the training.
    """

    def __init__(self, estimator, input_fn, steps=None, hooks=None, name=None, every_n_iter=100):
        """Creates a hook for `Estimator.train`.

        Args:
          estimator: the `Estimator` that trains.
          input_fn, steps, hooks, name: arguments of `Estimator.evaluate`.
          every_n_iter: number of steps between two evaluations.

        Raises:
          ValueError: every_n_iter is not positive, or estimator is not an Estimator.
        """
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"InMemoryEvaluatorHook: every_n_iter is {every_n_iter}, but it must be "
                             "positive.")
        if not isinstance(estimator, script_estimator.Estimator):
            raise ValueError("InMemoryEvaluatorHook: estimator must be a tf.estimator.Estimator, not "
                             f"{type(estimator).__name__}.")
        self._estimator, self._evaluation = estimator, (input_fn, steps, hooks)
        self._name, self._every = name, every_n_iter

    def begin(self):
        self._weights = evaluation.SessionWeights()
        self._steps = self._evaluated = 0

    def after_create_session(self, session, coord):
        self._evaluate(session)

    def after_run(self, run_context, run_values):
        self._steps += 1
        if self._steps - self._evaluated >= self._every:
            self._evaluate(run_context.session)

    def end(self, session):
        self._evaluate(session)

    def _evaluate(self, session):
        self._evaluated = self._steps
        with tempfile.TemporaryDirectory(prefix="evaluated_weights.") as directory:
            checkpoint = self._weights.save(session, directory, self._steps)
            self._estimator.evaluate(*self._evaluation, checkpoint_path=checkpoint, name=self._name)


# --- Exporters -------------------------------------------------------------------------------------------


class Exporter:
    """Base class of objects that export an evaluated model. A subclass defines `name` and `export`."""

    name = None

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        """Exports the checkpoint into a new directory under export_path.

        Returns:
          the new directory, or None if nothing was exported.
        """
        raise NotImplementedError


class _SavedModelExporter(Exporter):
    """Exports a model with `Estimator.export_saved_model`."""

    def __init__(self, name, serving_input_receiver_fn, assets_extra=None, as_text=False, exports_to_keep=5):
        if exports_to_keep is not None and exports_to_keep < 1:
            raise ValueError(f"exports_to_keep is {exports_to_keep}, but it must be positive, or None to "
                             "keep all exports.")
        self.name, self._exports_to_keep = name, exports_to_keep
        self._arguments = serving_input_receiver_fn, assets_extra, as_text

    def _wants(self, estimator, export_path, eval_result, is_the_final_export):
        """Returns whether to export the model that was evaluated."""
        return True

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        if not self._wants(estimator, export_path, eval_result, is_the_final_export):
            return None
        directory = estimator.export_saved_model(export_path, *self._arguments, checkpoint_path)
        if self._exports_to_keep:
            exports = sorted(filter(str.isdigit, os.listdir(export_path)), key=int)
            for name in exports[:-self._exports_to_keep]:
                tf.gfile.DeleteRecursively(os.path.join(export_path, name))
        return directory


class FinalExporter(_SavedModelExporter):
    """Exports the model once, when training ends."""

    def __init__(self, name, serving_input_receiver_fn, assets_extra=None, as_text=False):
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep=None)

    def _wants(self, estimator, export_path, eval_result, is_the_final_export):
        return is_the_final_export


class LatestExporter(_SavedModelExporter):
    """Exports the model after every evaluation and keeps the newest exports."""


def _loss_smaller(best_eval_result, current_eval_result):
    return current_eval_result["loss"] < best_eval_result["loss"]


class BestExporter(_SavedModelExporter):
    """Exports the model after each evaluation that is better than all previous ones, including those of
    earlier runs."""

    def __init__(self, name="best_exporter", serving_input_receiver_fn=None,
                 event_file_pattern="eval/*.tfevents.*", compare_fn=_loss_smaller, assets_extra=None,
                 as_text=False, exports_to_keep=5):
        """Creates an exporter.

        Args:
          event_file_pattern: glob of the event files of earlier evaluations, relative to model_dir. If it is
            None, earlier evaluations are ignored.
          compare_fn: function that takes best_eval_result and current_eval_result, and returns whether the
            current result is better.
        """
        if serving_input_receiver_fn is None:
            raise ValueError("BestExporter needs a serving_input_receiver_fn.")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._pattern = event_file_pattern
        self._is_better = compare_fn
        self._best = None

    def _wants(self, estimator, export_path, eval_result, is_the_final_export):
        if self._best is None and self._pattern and tf.gfile.Exists(export_path):
            results = _events(os.path.join(glob.escape(estimator.model_dir), self._pattern))
            for step in sorted(results)[:-1]:  # the last result is the current one, which was just written
                self._keep_if_better(results[step])
        return self._keep_if_better(eval_result)

    def _keep_if_better(self, result):
        is_better = self._best is None or self._is_better(best_eval_result=self._best,
                                                          current_eval_result=result)
        if is_better:
            self._best = result
        return is_better


def _events(pattern):
    """Returns {step: {name: value}} of the scalars in the event files that match a glob."""
    results = {}
    for path in sorted(glob.glob(pattern)):
        for event in tf.train.summary_iterator(path):
            scalars = {value.tag: value.simple_value for value in event.summary.value
                       if value.HasField("simple_value")}
            if scalars:
                results.setdefault(event.step, {}).update(scalars)
    return results


# --- Early stopping --------------------------------------------------------------------------------------


def read_eval_metrics(eval_dir):
    """Returns the metrics of all evaluations in a directory, as an OrderedDict {step: {name: value}} sorted
    by step."""
    results = _events(os.path.join(glob.escape(eval_dir), "*.tfevents.*"))
    return collections.OrderedDict(sorted(results.items()))


def make_early_stopping_hook(estimator, should_stop_fn, run_every_secs=60, run_every_steps=None):
    """Returns a hook that ends training when a function without arguments returns true.

    Args:
      estimator: not used. In TensorFlow 1, the hook wrote files to the directory of the Estimator.
      should_stop_fn: the function.
      run_every_secs, run_every_steps: seconds or steps between two calls of the function. Pass exactly one of
        the two; otherwise, a ValueError is raised.
    """
    return _StopHook(should_stop_fn, run_every_secs, run_every_steps)


class _StopHook(tf.train.SessionRunHook):
    """Ends training when a function returns true."""

    def __init__(self, should_stop, every_secs, every_steps):
        self._should_stop = should_stop
        self._timer = tf.train.SecondOrStepTimer(every_secs=every_secs, every_steps=every_steps)

    def begin(self):
        self._global_step = tf.train.get_global_step()

    def after_run(self, run_context, run_values):
        step = int(run_context.session.run(self._global_step))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                logging.info("Early stopping at step %d.", step)
                run_context.request_stop()


def stop_if_higher_hook(estimator, metric_name, threshold, *arguments, **keywords):
    """Returns a hook that ends training if an evaluation has found a metric above a threshold.

    Args:
      estimator: the Estimator that wrote the evaluations.
      metric_name: name of the metric.
      threshold: the threshold.
      *arguments, **keywords: the arguments of `_stop_if` that begin with eval_dir.
    """
    return _stop_if(lambda history: any(value > threshold for _, value in history), estimator, metric_name,
                    *arguments, **keywords)


def stop_if_lower_hook(estimator, metric_name, threshold, *arguments, **keywords):
    """Returns a hook that ends training if an evaluation has found a metric below a threshold.

    For the arguments, see `stop_if_higher_hook`.
    """
    return _stop_if(lambda history: any(value < threshold for _, value in history), estimator, metric_name,
                    *arguments, **keywords)


def stop_if_no_increase_hook(estimator, metric_name, max_steps_without_increase, *arguments, **keywords):
    """Returns a hook that ends training if a metric has no new maximum for max_steps_without_increase steps.

    The other arguments are those of `stop_if_higher_hook`.
    """
    return _stop_if(lambda history: _longest_wait(history, operator.gt) >= max_steps_without_increase,
                    estimator, metric_name, *arguments, **keywords)


def stop_if_no_decrease_hook(estimator, metric_name, max_steps_without_decrease, *arguments, **keywords):
    """Returns a hook that ends training if a metric has no new minimum for max_steps_without_decrease steps.

    The other arguments are those of `stop_if_higher_hook`.
    """
    return _stop_if(lambda history: _longest_wait(history, operator.lt) >= max_steps_without_decrease,
                    estimator, metric_name, *arguments, **keywords)


def _stop_if(ends, trained, metric_name, eval_dir=None, min_steps=0, run_every_secs=60, run_every_steps=None):
    """Returns the hook of `make_early_stopping_hook`.

    Args:
      ends: function that gets the values of the metric as a list of (step, value), sorted by step.
      trained, metric_name: see `stop_if_higher_hook`.
      eval_dir: directory with the event files of the evaluations. None means `estimator.eval_dir()`.
      min_steps: the first step whose evaluation counts. Earlier evaluations are ignored.
      run_every_secs, run_every_steps: seconds or steps between two checks. Pass exactly one of the two.
    """
    def should_stop():
        return ends([(step, values[metric_name])
                     for step, values in read_eval_metrics(eval_dir or trained.eval_dir()).items()
                     if step >= min_steps and metric_name in values])
    return make_early_stopping_hook(trained, should_stop, run_every_secs, run_every_steps)


def _longest_wait(history, is_better):
    """Returns the largest number of steps between a value and the best value up to it. As in TensorFlow 1,
    the training ends even if a better value follows, because several evaluations may be new to a hook.

    If the best value occurs several times, the first occurrence counts. Returns -1 if there are no values.

    Args:
      history: list of (step, value), sorted by step.
      is_better: function of two values, `operator.gt` or `operator.lt`.
    """
    longest, best = -1, None
    for step, value in history:
        if best is None or is_better(value, best[1]):
            best = step, value
        longest = max(longest, step - best[0])
    return longest


# --- TPU names -------------------------------------------------------------------------------------------


class InputPipelineConfig:
    """Lists the ways in which hosts of a TPU can share the input. Without a TPU, all ways have the same
    effect."""

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


TPUConfig = collections.namedtuple(
    "TPUConfig", "iterations_per_loop num_shards num_cores_per_replica per_host_input_for_training "
    "tpu_job_name initial_infeed_sleep_secs input_partition_dims eval_training_input_configuration "
    "experimental_host_call_every_n_steps",
    defaults=[2, None, None, True, None, None, None, InputPipelineConfig.PER_HOST_V1, 1])
TPUConfig.__doc__ = "Settings of a TPU. They are accepted, but have no effect."


class TPURunConfig(script_config.RunConfig):
    """Extends `tf.estimator.RunConfig` by the arguments of `tf.contrib.tpu.RunConfig`."""

    def __init__(self, tpu_config=None, evaluation_master=None, master=None, cluster=None, **settings):
        """Creates a configuration. `settings` are the arguments of `tf.estimator.RunConfig`.

        Raises:
          ValueError: a cluster resolver is given.
        """
        if cluster is not None:
            raise ValueError("RunConfig(cluster=…): TPUs are not supported. "
                             "Pass cluster=None to run on CPU or GPU.")
        super().__init__(**settings)
        self.tpu_config = tpu_config or TPUConfig()
        self.cluster = None
        self.master = master or ""
        self.evaluation_master = evaluation_master or ""


class TPUEstimator(script_estimator.Estimator):
    """Extends `tf.estimator.Estimator` by the arguments of TensorFlow's TPUEstimator. Runs on CPU or GPU."""

    def __init__(self, *arguments, batch_axis=None, eval_on_tpu=True, export_to_tpu=True, export_to_cpu=True,
                 embedding_config_spec=None, export_saved_model_api_version=None, **settings):
        """Creates an Estimator; see `script_estimator.Estimator`. The arguments with names are ignored."""
        super().__init__(*arguments, **settings)


class TPUEstimatorSpec(estimator.EstimatorSpec):
    """Takes the arguments of TensorFlow's TPUEstimatorSpec, in the order of that class."""

    def __new__(cls, mode, predictions=None, loss=None, train_op=None, eval_metrics=None, export_outputs=None,
                scaffold_fn=None, host_call=None, training_hooks=None, evaluation_hooks=None,
                prediction_hooks=None):
        spec = super().__new__(
            cls, mode, predictions, loss, train_op, None, export_outputs, None, training_hooks, None,
            evaluation_hooks, prediction_hooks, eval_metrics, host_call, scaffold_fn)
        if host_call is not None:
            summary.start_writers()  # this also starts writers that were created with tf.compat.v2.summary
        return spec

    def as_estimator_spec(self):
        """Returns this object."""
        return self


def CrossShardOptimizer(opt, reduction=None, name=None, group_assignment=None):
    """Returns the optimizer unchanged, because there is only one shard. The other arguments are ignored."""
    return opt


TPUClusterResolver = refused(
    "tf.contrib.cluster_resolver.TPUClusterResolver",
    "TPUs are not supported. Call it only if the flag use_tpu is true, and run with --use_tpu=false.")
