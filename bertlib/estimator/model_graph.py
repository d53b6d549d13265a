"""Builds the graph of an `input_fn` and a `model_fn`, for training, evaluation, prediction and export."""

import inspect
import warnings

import tensorflow.compat.v1 as tf

from bertlib.estimator import session_hooks
from bertlib.estimator.estimator_spec import EstimatorSpec, ModeKeys
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import collectives, graph_keys, randomness, tensorflow_internals

# XLA must not compile these random ops: from the same random bits, XLA would compute different floats than
# TensorFlow.
_RANDOM_FLOATS = {"StatelessRandomUniformV2", "StatelessTruncatedNormalV2", "StatelessRandomNormalV2"}


class Builder:
    """Calls an input_fn and the model_fn in the current graph. Each function gets only the arguments that its
    signature accepts.

    Attributes:
      model_fn: function that takes features, labels, mode, params and config, and returns an `EstimatorSpec`.
      config: the `RunConfig`.
      params: dict with the caller's params. It does not contain the params that the Estimator adds
        (`added_params`).
    """

    def __init__(self, model_fn, config, params, batch_sizes):
        """Creates a builder.

        Args:
          model_fn, params: see `estimator.Estimator`.
          config: the `RunConfig`.
          batch_sizes: {mode: number of examples in a batch, or None}. In training, this is the number of
            examples in the effective batch.

        Raises:
          ValueError: params contains batch_size although batch_sizes are given; or the training batch cannot
            be split into micro-batches, or does not have the size that the `StepConfig` of `config` says.
        """
        self.model_fn, self.config, self._batch_sizes = model_fn, config, batch_sizes
        self.params = dict(params or {})
        self._num_passes = 0  # number of graphs that were built for predictions
        if any(size is not None for size in batch_sizes.values()):
            refuse_batch_size(self.params)
        self.train_batch()  # raises an error for a batch that cannot be split

    def train_batch(self):
        """Returns the `Batch` of a training step; None if the Estimator has no train_batch_size.

        Raises:
          ValueError: see the constructor.
        """
        size = self._batch_sizes[ModeKeys.TRAIN]
        if size is None:
            return None
        step_config = self.config.step_config or StepConfig(
            size, self.config.gradient_accumulation_steps, self.replicas_sharing_a_batch)
        if step_config.train_batch_size != size:
            raise ValueError(f"train_batch_size is {size}, but the StepConfig of the RunConfig says "
                             f"{step_config.train_batch_size}. Pass the same number.")
        return step_config.batch.check()

    def batch_size(self, mode):
        """Returns the "batch_size" of the params: the number of examples in a batch of the input; None if it
        is unknown. For training, see `added_params`."""
        return self.params_for(mode).get("batch_size")

    def call_input_fn(self, input_fn, mode):
        """Calls the input_fn; returns (features, labels, hooks that start the input). labels may be None."""
        result = _call_with_known(input_fn,
                                  {"mode": mode, "params": self.params_for(mode), "config": self.config})
        result, hooks = self.tensors_of(result, mode)
        if isinstance(result, (tuple, list)):
            if len(result) != 2:
                raise ValueError("The input_fn must return features or a pair (features, labels), but it "
                                 f"returned {len(result)} items.")
            return (*result, hooks)
        return result, None, hooks

    def tensors_of(self, result, mode):
        """Returns (the tensors of a batch, hooks that start the input).

        Args:
          result: the return value of an input_fn: a dataset, or the tensors of a batch.
          mode: a `ModeKeys`.
        """
        if not isinstance(result, tf.compat.v2.data.Dataset):  # base class of v1 and v2 datasets
            return result, []
        iterator = tf.data.make_initializable_iterator(_without_tuner(result))
        return iterator.get_next(), [session_hooks.InitializeHook(iterator.initializer)]

    def build(self, features_fn, mode):
        """Builds the input and the model in the current graph. In prediction, labels are ignored.

        Args:
          features_fn: function without arguments that returns (features, labels, hooks).
          mode: a `ModeKeys`.

        Returns:
          (the model_fn's `EstimatorSpec`, hooks of the input).
        """
        tf.set_random_seed(self.config.tf_random_seed)
        tf.train.create_global_step()
        if mode == ModeKeys.TRAIN:
            # The index of the next micro-batch is a local variable, so checkpoints do not contain it. Nothing
            # is lost, because checkpoints are saved between two steps, and the index is 0 at that time.
            index = tf.Variable(0, dtype=tf.int64, trainable=False, name=graph_keys.MICRO_BATCH_INDEX,
                                collections=[tf.GraphKeys.LOCAL_VARIABLES, graph_keys.MICRO_BATCH_INDEX])
            all_reduce = collectives.current_all_reduce()
            randomness.set_micro_batch(all_reduce.effective_batch_index(index) if all_reduce else index)
        elif mode == ModeKeys.PREDICT:
            self._num_passes += 1
            randomness.set_pass(self._num_passes)
        # Iterators and queues stay on the CPU.
        with tf.device("/cpu:0"):
            features, labels, input_hooks = features_fn()
        spec = self.call_model_fn(features, None if mode == ModeKeys.PREDICT else labels, mode)
        for op in tf.get_default_graph().get_operations():
            if op.type in _RANDOM_FLOATS:
                tensorflow_internals.set_attribute(op, "_XlaCompile", tf.AttrValue(b=False))
        return spec, input_hooks

    def params_for(self, mode):
        """Returns the params for the input_fn and the model_fn: the caller's params and `added_params`."""
        return {**self.added_params(mode), **self.params}

    def added_params(self, mode):
        """Returns a dict with the params that the Estimator adds to the caller's params. In training,
        "batch_size" is the size of a micro-batch. If micro-batches have different numbers of examples, it is
        the size of the whole training batch."""
        params = {}
        batch_size = self._batch_sizes[mode]
        if mode == ModeKeys.TRAIN:
            params["gradient_accumulation_steps"] = self.config.gradient_accumulation_steps
            batch = self.train_batch()
            if batch and not batch.is_unequal:
                batch_size = batch.micro_batch_size
        if batch_size is not None:
            params["batch_size"] = batch_size
        return params

    @property
    def replicas_sharing_a_batch(self):
        """The number of replicas that share a training batch."""
        return self.config.num_worker_replicas

    def call_model_fn(self, features, labels, mode):
        """Calls the model_fn and returns its `EstimatorSpec`."""
        arguments = {"labels": labels, "mode": mode, "params": self.params_for(mode), "config": self.config}
        names = inspect.signature(self.model_fn).parameters
        if "labels" not in names and labels is not None and not _takes_any(names):
            raise ValueError("The input_fn gives labels, but the model_fn has no argument for them. Add "
                             "the argument `labels`, or return only features from the input_fn.")
        spec = _call_with_known(self.model_fn, arguments, features)
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(f"The model_fn must return an EstimatorSpec; it returned {type(spec).__name__}.")
        return spec


def refuse_batch_size(params):
    """Raises a ValueError if params already contains batch_size."""
    if "batch_size" in params:
        raise ValueError("params must not contain batch_size: the Estimator sets this entry from "
                         "train_batch_size, eval_batch_size or predict_batch_size. Remove the entry.")


def _call_with_known(function, arguments, *positional):
    """Calls a function with the positional arguments, and with those named arguments that its signature
    accepts."""
    names = inspect.signature(function).parameters
    return function(*positional, **{name: value for name, value in arguments.items()
                                    if name in names or _takes_any(names)})


def _without_tuner(dataset):
    """Returns the dataset with tf.data's autotuning turned off, unless the dataset itself sets this option.
    The thread of the tuner can delay the end of a session by a minute."""
    options = tf.data.Options()
    with warnings.catch_warnings():
        # TensorFlow warns that these options can still be changed later. The warning is hidden.
        warnings.simplefilter("ignore")
        is_undecided = dataset.options().autotune.enabled is None
    if is_undecided:
        options.autotune.enabled = False
    return dataset.with_options(options)


def _takes_any(parameters):
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
