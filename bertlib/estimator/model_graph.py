"""The graph of a `model_fn` on an `input_fn`: what an Estimator trains, evaluates, runs and exports."""

import contextlib
import copy
import inspect
import warnings

import tensorflow.compat.v1 as tf

from bertlib.estimator import replica_sync, session_hooks
from bertlib.estimator.estimator_spec import EstimatorSpec, ModeKeys
from bertlib.estimator.training_step import equal_micro_batches
from bertlib.graph import collectives, graph_keys, randomness

# Ops of which XLA would make other floats than TensorFlow, though of the same random bits.
_RANDOM_FLOATS = {"StatelessRandomUniformV2", "StatelessTruncatedNormalV2", "StatelessRandomNormalV2"}


class Builder:
    """Calls an input_fn and the model_fn, with those arguments that each takes, in the current graph.

    Attributes:
      model_fn: see `estimator.Estimator`.
      params: the dict or other object that both are given, less what is added to it.
    """

    def __init__(self, model_fn, config, params, batch_sizes):
        """Creates it.

        Args:
          model_fn, params: see `estimator.Estimator`.
          config: the `RunConfig`.
          batch_sizes: {mode: number of examples, or None}; in training of the effective batch.

        Raises:
          ValueError, TypeError: batch sizes cannot be put into params, or the batch of a training cannot be
            split into micro-batches.
        """
        self.model_fn, self._config, self._batch_sizes = model_fn, config, batch_sizes
        self.params = dict(params or {}) if isinstance(params or {}, dict) else copy.deepcopy(params)
        if any(size is not None for size in batch_sizes.values()):
            self._check_params()
        if batch_sizes[ModeKeys.TRAIN] is not None:
            self._params_for(ModeKeys.TRAIN)

    def batch_size(self, mode):
        """Returns the number of examples in a batch, in training in a micro-batch; None if it is unknown."""
        examples = self._added_params(mode).get("batch_size")
        if examples is None and isinstance(self.params, dict):
            return self.params.get("batch_size")
        return examples

    def call_input_fn(self, input_fn, mode):
        """Calls the input_fn and returns (features, labels, hooks)."""
        result = _call_with_known(input_fn,
                                  {"mode": mode, "params": self._params_for(mode), "config": self._config})
        hooks, group = [], self._config.replicas
        ours = tf.get_collection(graph_keys.STARTS_AT_GLOBAL_STEP)
        shared = mode == ModeKeys.TRAIN and group and not group.horovod and not ours
        if shared:
            result = replica_sync.deal_out(result, group)
        if isinstance(result, tf.compat.v2.data.Dataset):  # the base class of both versions
            iterator = tf.data.make_initializable_iterator(_without_tuner(result))
            hooks.append(session_hooks.InitializeHook(iterator.initializer))
            result = iterator.get_next()
        if shared:
            result = result[group.index]
        if isinstance(result, (tuple, list)):
            if len(result) != 2:
                raise ValueError("The input_fn must give features or (features, labels); it gave "
                                 f"{len(result)} items.")
            return (*result, hooks)
        return result, None, hooks

    def build_on(self, input_fn, mode):
        """`build`, on an input_fn, of which prediction ignores the labels."""
        def features_fn():
            features, labels, hooks = self.call_input_fn(input_fn, mode)
            return features, None if mode == ModeKeys.PREDICT else labels, hooks

        return self.build(features_fn, mode)

    def build(self, features_fn, mode):
        """Builds input and model.

        Args:
          features_fn: returns what `call_input_fn` does.
          mode: a `ModeKeys`.

        Returns:
          (the model_fn's `EstimatorSpec`, hooks of the input).
        """
        tf.set_random_seed(self._config.tf_random_seed)
        tf.train.create_global_step()
        if mode == ModeKeys.TRAIN:
            # Local: a checkpoint is saved between steps, where it is 0.
            index = tf.Variable(0, dtype=tf.int64, trainable=False, name=graph_keys.MICRO_BATCH_INDEX,
                                collections=[tf.GraphKeys.LOCAL_VARIABLES, graph_keys.MICRO_BATCH_INDEX])
            exchange = collectives.exchange()
            randomness.set_part(exchange.part(index) if exchange else index)
        # Iterators and queues stay on the CPU.
        with tf.device("/cpu:0"):
            features, labels, input_hooks = features_fn()
        with tf.device(self._config.device_fn) if self._config.device_fn else contextlib.nullcontext():
            spec = self._call_model_fn(features, labels, mode)
        for op in tf.get_default_graph().get_operations():
            if op.type in _RANDOM_FLOATS:
                op._set_attr("_XlaCompile", tf.AttrValue(b=False))
        return spec, input_hooks

    def _check_params(self):
        """Raises an error if the batch sizes cannot be put into params."""
        if not isinstance(self.params, dict) and not hasattr(self.params, "set_hparam"):
            raise TypeError(f"params is a {type(self.params).__name__}; the Estimator puts batch_size "
                            "there, for which it has to be a dict.")
        if "batch_size" in self.params:
            raise ValueError("params must not hold batch_size: the Estimator puts it there.")

    def _params_for(self, mode):
        params = self._added_params(mode)
        if isinstance(self.params, dict):
            return {**params, **self.params}
        found = copy.deepcopy(self.params)
        for name, value in params.items() if hasattr(found, "set_hparam") else ():
            if name not in found:
                found.add_hparam(name, value)
        return found

    def _added_params(self, mode):
        """What the Estimator adds to params."""
        batch_size, steps = self._batch_sizes[mode], self._config.gradient_accumulation_steps
        added = {"gradient_accumulation_steps": steps} if mode == ModeKeys.TRAIN else {}
        if batch_size is not None:
            equal = mode == ModeKeys.TRAIN and not self._config.unequal_micro_batches
            group = self._config.replicas
            count = group.count if group and not group.horovod else 1
            added["batch_size"] = equal_micro_batches(batch_size, steps, count) if equal else batch_size
        return added

    def _call_model_fn(self, features, labels, mode):
        arguments = {"labels": labels, "mode": mode, "params": self._params_for(mode), "config": self._config}
        names = inspect.signature(self.model_fn).parameters
        if "labels" not in names and labels is not None and not _takes_any(names):
            raise ValueError("The input_fn gives labels, but the model_fn has no argument for them.")
        spec = _call_with_known(self.model_fn, arguments, features)
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(f"The model_fn must return an EstimatorSpec; it returned {type(spec).__name__}.")
        return spec


def _call_with_known(function, arguments, *positional):
    """Calls a function with those of the named arguments that it takes."""
    names = inspect.signature(function).parameters
    return function(*positional, **{name: value for name, value in arguments.items()
                                    if name in names or _takes_any(names)})


def _without_tuner(dataset):
    """Turns tf.data's tuner off unless the dataset says otherwise: its thread can hold up a session's end for
    a minute."""
    options = tf.data.Options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is the value at the time of building is what is wanted
        undecided = dataset.options().autotune.enabled is None
    if undecided:
        options.autotune.enabled = False
    return dataset.with_options(options)


def _takes_any(parameters):
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
