"""The names that `tf1` puts over `tensorflow.compat.v1`'s, and the modules that programs import past `tf`."""

import functools
import logging as _python_logging
import sys
import types

from absl import logging as _absl_logging
import tensorflow.compat.v1 as _tf
from tensorflow.python.saved_model.model_utils import export_output as _export_output
from tf_keras.src.layers.rnn import legacy_cell_wrappers as _cell_wrappers

from bertlib.runtime import estimator as _estimator
from bertlib.runtime import randomness as _randomness
from tf1 import _contrib
from tf1 import _estimator as tf1_estimator


class _Namespace(types.ModuleType):
    """A module of names of our own over those of another module."""

    def __init__(self, name, own, base=None, explain=None):
        """Creates a namespace.

        Args:
          name: what programs call it, such as "tf.contrib.layers".
          own: {name: object}.
          base: function that returns the module to find other names in, or None.
          explain: function of a missing name that returns what to do.
        """
        super().__init__(name)
        self._own = own
        self._base = base or (lambda: None)
        self._explain = explain
        vars(self).update(own)

    def __getattr__(self, name):
        if not name.startswith("_"):
            base = self._base()
            if hasattr(base, name):
                return getattr(base, name)
            if self._explain is not None:
                raise AttributeError(f"{self.__name__}.{name}: {self._explain(name)}")
        raise AttributeError(f"{self.__name__} has no attribute {name!r}")

    def __dir__(self):
        return sorted({*self._own, *dir(self._base())})


# --- Random numbers --------------------------------------------------------------------------------------


def _dropout(x, keep_prob=None, noise_shape=None, seed=None, name=None, rate=None):
    """tf.nn.dropout, with a mask that depends on (seed, global step, place in the model) only.

    Args:
      x: float tensor.
      keep_prob: probability, float or scalar tensor, that a value is kept.
      noise_shape: shape of the mask, which is broadcast to that of x.
      seed: one more key of the mask.
      name: of the op.
      rate: 1 - keep_prob, in its place.

    Raises:
      ValueError: both or neither of keep_prob and rate are given, or the number is not a probability.
    """
    if (keep_prob is None) == (rate is None):
        raise ValueError("tf.nn.dropout: give either keep_prob or rate.")
    rate = 1.0 - keep_prob if rate is None else rate
    if isinstance(rate, (int, float)) and not 0 <= rate < 1:
        raise ValueError(f"tf.nn.dropout: a rate of {rate} is not in [0, 1).")
    if isinstance(rate, (int, float)) and rate == 0:
        return _tf.convert_to_tensor(x)
    with _tf.name_scope(name, "dropout", [x]):
        x = _tf.convert_to_tensor(x)
        site = _randomness.new_site("dropout" if seed is None else f"dropout {seed}")
        with _tf.control_dependencies([x]):
            shape = _tf.shape(x) if noise_shape is None else _full_shape(noise_shape, x)
            draw = _uniform_in_loop(shape, site) if _loops() else _randomness.uniform(shape, site)
            if draw is None:
                return _tf.nn.dropout(x, noise_shape=noise_shape, seed=seed, rate=rate)
            keep = draw >= _tf.cast(rate, _tf.float32)
        scale = 1.0 / (1.0 - _tf.cast(rate, x.dtype))
        # Chosen, not multiplied: what is dropped may be infinite.
        dropped = _tf.where_v2(keep, x * scale, _tf.zeros([], x.dtype))
        dropped.set_shape(x.shape)
        return dropped


def _loops():
    """The control flow contexts of the loops that are being built, the innermost first."""
    context, found = _tf.get_default_graph()._get_control_flow_context(), []
    while context is not None:
        found += [context] if context.IsWhileContext() else []
        context = context.outer_context
    return found


def _uniform_in_loop(shape, site):
    """`randomness.uniform`, keyed by the round too; None if no integer variable of the loop would tell it."""
    switches = [op for loop in _loops() for op in loop.pivot.consumers() if op.type == "Switch"]
    counters = [op.outputs[1] for op in switches if op.outputs[1].dtype.is_integer
                and op.outputs[1].shape.rank == 0]
    if not counters:
        return None
    with _tf.control_dependencies(None):  # leaves the loop
        key = _tf.cast(_tf.bitcast(_randomness.uniform([2], site), _tf.int32), _tf.int64)
    number = _tf.zeros([], _tf.int64)
    for counter in counters:
        number = number * 1000003 + _tf.cast(counter, _tf.int64)
    return _tf.random.stateless_uniform(shape, key + number)


def _full_shape(noise_shape, x):
    """A mask's shape with the sizes that are left open (None) taken from x."""
    if isinstance(noise_shape, (list, tuple, _tf.TensorShape)):
        sizes = noise_shape.as_list() if isinstance(noise_shape, _tf.TensorShape) else noise_shape
        return _tf.stack([_tf.shape(x)[axis] if size is None else size for axis, size in enumerate(sizes)])
    return noise_shape


def _layer_dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    """tf.layers.dropout, with the mask of `tf.nn.dropout`; training is a bool or a scalar tensor."""
    if isinstance(training, (bool, int)):
        return _dropout(inputs, rate=rate, noise_shape=noise_shape, seed=seed,
                        name=name) if training else _tf.identity(inputs)
    return _tf.cond(training, lambda: _dropout(inputs, rate=rate, noise_shape=noise_shape, seed=seed,
                                               name=name),
                    lambda: _tf.identity(inputs))


class _LayerDropout(object):
    """tf.layers.Dropout: `tf.layers.dropout` with its settings bound."""

    def __init__(self, rate=0.5, noise_shape=None, seed=None, name=None, **others):
        self.rate = rate
        self._settings = dict(noise_shape=noise_shape, seed=seed, name=name)

    def __call__(self, inputs, training=False):
        return _layer_dropout(inputs, self.rate, training=training, **self._settings)

    apply = __call__


def _contrib_dropout(inputs, keep_prob=0.5, noise_shape=None, is_training=True, outputs_collections=None,
                     scope=None, seed=None):
    """tf.contrib.layers.dropout, with the mask of `tf.nn.dropout`."""
    outputs = _layer_dropout(inputs, 1.0 - keep_prob, noise_shape, seed, is_training, scope)
    _tf.add_to_collections(outputs_collections or [], outputs)
    return outputs


def _shuffle_seed():
    return _randomness.key_of(_randomness.graph_seed(), _randomness.new_site("shuffle")) >> 1


def _with_keyed_shuffle(dataset_class):
    """Gives `shuffle` of a Dataset class a seed where the caller gives none."""
    original = dataset_class.shuffle

    @functools.wraps(original)
    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=None, name=None):
        seed = _shuffle_seed() if seed is None else seed
        return original(self, buffer_size, seed, reshuffle_each_iteration, name)

    dataset_class.shuffle = shuffle


def _shuffle_and_repeat(buffer_size, count=None, seed=None):
    """tf.data.experimental.shuffle_and_repeat, keyed like `Dataset.shuffle`."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


_with_keyed_shuffle(_tf.data.Dataset)
_with_keyed_shuffle(_tf.compat.v2.data.Dataset)


# --- Namespaces ------------------------------------------------------------------------------------------


def _set_verbosity(level):
    """tf.logging.set_verbosity, for this project's messages too; a number or a name."""
    level = getattr(_tf.logging, level) if isinstance(level, str) else level
    _tf.logging.set_verbosity(level)
    _absl_logging.set_verbosity(_absl_logging.converter.standard_to_absl(int(level)))


def _run_app(main=None, argv=None):
    """tf.app.run; a message of tf.logging is shown once, although absl has a handler too then."""
    _python_logging.getLogger("tensorflow").propagate = False
    _tf.app.run(main or sys.modules["__main__"].main, argv)


def _own_names(module, *names):
    return {name: getattr(module, name) for name in names}


_DATA = dict(parallel_interleave=_contrib.parallel_interleave, shuffle_and_repeat=_shuffle_and_repeat)
app = _Namespace("tf.app", dict(run=_run_app), lambda: _tf.app)
nn = _Namespace("tf.nn", dict(dropout=_dropout), lambda: _tf.nn)
layers = _Namespace("tf.layers", dict(dropout=_layer_dropout, Dropout=_LayerDropout), lambda: _tf.layers)
logging = _Namespace("tf.logging", dict(set_verbosity=_set_verbosity), lambda: _tf.logging)
# DropoutWrapper drops as tf.nn.dropout does.
_cell_wrappers.tf = _Namespace("tf", dict(nn=nn, __internal__=_tf.compat.v2.__internal__),
                               lambda: _tf.compat.v2)
data = _Namespace("tf.data",
                  dict(experimental=_Namespace("tf.data.experimental", _DATA, lambda: _tf.data.experimental)),
                  lambda: _tf.data)

_TPU = dict(RunConfig=tf1_estimator.TPURunConfig,
            **_own_names(tf1_estimator, "CrossShardOptimizer", "InputPipelineConfig", "TPUConfig",
                         "TPUEstimator", "TPUEstimatorSpec"))
_STOPPING = _own_names(tf1_estimator, "make_early_stopping_hook", "read_eval_metrics", "stop_if_higher_hook",
                       "stop_if_lower_hook", "stop_if_no_decrease_hook", "stop_if_no_increase_hook")
_EXPORT = dict(ServingInputReceiver=_estimator.ServingInputReceiver,
               **_own_names(_export_output, "ClassificationOutput", "ExportOutput", "PredictOutput",
                            "RegressionOutput"),
               **_own_names(tf1_estimator, "TensorServingInputReceiver",
                            "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn"))
_HOOKS = ("CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook",
          "GlobalStepWaiterHook", "LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook",
          "ProfilerHook", "SecondOrStepTimer", "SessionRunArgs", "SessionRunContext", "SessionRunHook",
          "SessionRunValues", "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "VocabInfo")


def _no_estimator(name):
    return ("canned estimators are gone; write a model_fn for tf.estimator.Estimator, or use tf.keras."
            if name.startswith(("DNN", "Linear", "Boosted", "Baseline")) else "not provided; `python -m tf1 "
            "--names` lists what is.")


estimator = _Namespace("tf.estimator", dict(
    **_own_names(_estimator, "Estimator", "EstimatorSpec", "ModeKeys", "RunConfig"),
    **_own_names(tf1_estimator, "BestExporter", "EvalSpec", "Exporter", "FinalExporter", "LatestExporter",
                 "TrainSpec", "WarmStartSettings", "train_and_evaluate"),
    **_own_names(_tf.train, *_HOOKS),
    experimental=_Namespace("tf.estimator.experimental", _STOPPING, explain=_no_estimator),
    export=_Namespace("tf.estimator.export", _EXPORT, explain=_no_estimator),
    inputs=_Namespace("tf.estimator.inputs", _own_names(tf1_estimator, "numpy_input_fn", "pandas_input_fn"),
                      explain=_no_estimator),
    tpu=_Namespace("tf.estimator.tpu", _TPU, explain=_no_estimator),
), explain=_no_estimator)

# contrib module: what to use in place of its names that are not provided.
_REPLACEMENTS = {
    "all_reduce": "tf.distribute", "autograph": "tf.autograph",
    "batching": "tf.nondifferentiable_batch_function",
    "bayesflow": "the package tensorflow-probability", "checkpoint": "tf.train.Checkpoint",
    "cluster_resolver": "tf.distribute.cluster_resolver", "compiler": "tf.xla.experimental",
    "constrained_optimization": "the package tfco", "copy_graph": "tf.import_graph_def",
    "crf": "tf.contrib.crf.crf_log_likelihood and its neighbours",
    "cudnn_rnn": "tf.keras.layers.LSTM and GRU",
    "data": "tf.data and tf.data.experimental", "distribute": "tf.distribute",
    "distributions": "the package tensorflow-probability", "eager": "tf.enable_eager_execution and "
    "tf.GradientTape",
    "estimator": "tf.estimator", "feature_column": "tf.feature_column", "framework": "tf.train and tf.nest",
    "graph_editor": "tf.import_graph_def(input_map=…)", "image": "tf.image", "input_pipeline": "tf.data",
    "integrate": "scipy.integrate", "keras": "tf.keras", "labeled_tensor": "plain tensors",
    "layers": "tf.layers, or tf.keras.layers", "learn": "tf.estimator", "legacy_seq2seq": "tf.nn.dynamic_rnn",
    "linalg": "tf.linalg", "linear_optimizer": "tf.estimator", "lookup": "tf.lookup", "losses": "tf.losses",
    "metrics": "tf.metrics", "mixed_precision": "tf.train.experimental.MixedPrecisionLossScaleOptimizer and "
    "DynamicLossScale",
    "model_pruning": "the package tensorflow-model-optimization", "nn": "tf.nn",
    "opt": "tf.train's optimizers, or optimization.AdamWeightDecayOptimizer for AdamW",
    "predictor": "tf.contrib.predictor.from_saved_model", "quantization": "tf.quantization",
    "quantize": "the package tensorflow-model-optimization", "reduce_slice_ops": "tf.math.segment_sum",
    "resampler": "tf.image", "rnn": "tf.nn.rnn_cell and tf.nn.dynamic_rnn", "saved_model": "tf.saved_model",
    "seq2seq": "tf.keras.layers", "session_bundle": "tf.saved_model", "signal": "tf.signal",
    "slim": "the package tf-slim", "solvers": "tf.linalg",
    "sparsemax": "a few lines of tf.sort and tf.cumsum",
    "staging": "tf.data's prefetch", "stat_summarizer": "tf.profiler",
    "stateless": "tf.random.stateless_uniform and its neighbours", "summary": "tf.summary",
    "tensor_forest": "the package tensorflow-decision-forests", "tensorboard": "the package tensorboard",
    "tensorrt": "tf.experimental.tensorrt", "tfprof": "tf.profiler", "timeseries": "tf.keras",
    "tpu": "CPU or GPU: TPUs are not supported",
    "training": "absl flags in place of HParams, tf.data in place of bucketing",
    "util": "tf.make_tensor_proto",
}


def _replacement(module):
    return lambda name: f"tf.contrib is gone. Use {_REPLACEMENTS[module]}."


def _contrib_namespace(module, own, base=None):
    return _Namespace(f"tf.contrib.{module}", own, base, _replacement(module))


def _mirrored_strategy(num_gpus=None, cross_device_ops=None, devices=None, **others):
    """tf.contrib.distribute.MirroredStrategy; num_gpus takes the first that many, and 0 the CPU."""
    if devices is None and num_gpus is not None:
        devices = [f"/gpu:{index}" for index in range(num_gpus)] or ["/cpu:0"]
    return _tf.distribute.MirroredStrategy(devices, cross_device_ops)


_INITIALIZERS = dict(xavier_initializer=_contrib.xavier_initializer,
                     xavier_initializer_conv2d=_contrib.xavier_initializer)
_CELLS = ("BasicLSTMCell", "BasicRNNCell", "DeviceWrapper", "DropoutWrapper", "GRUCell", "LSTMCell",
          "LSTMStateTuple", "MultiRNNCell", "RNNCell", "ResidualWrapper")


def _cells():
    """tf.nn.rnn_cell, and the functions that run its cells."""
    return types.SimpleNamespace(**_own_names(_tf.nn.rnn_cell, *_CELLS), **_own_names(
        _tf.nn, "static_rnn", "static_bidirectional_rnn", "dynamic_rnn"))


_MODULES = {
    "cluster_resolver": dict(TPUClusterResolver=tf1_estimator.TPUClusterResolver),
    "crf": _own_names(_contrib, "crf_binary_score", "crf_decode", "crf_log_likelihood", "crf_log_norm",
                      "crf_sequence_score", "crf_unary_score", "viterbi_decode"),
    "data": dict(**_DATA, batch_and_drop_remainder=_contrib.batch_and_drop_remainder,
                 **_own_names(_tf.data.experimental, "bucket_by_sequence_length", "group_by_window",
                              "map_and_batch", "unbatch")),
    "distribute": dict(MirroredStrategy=_mirrored_strategy, AllReduceCrossDeviceOps=lambda *_, **__: None,
                       OneDeviceStrategy=_tf.distribute.OneDeviceStrategy),
    "estimator": _STOPPING,
    "framework": dict(**_own_names(_tf.train, "get_global_step", "get_or_create_global_step",
                                   "init_from_checkpoint", "list_variables", "load_checkpoint",
                                   "load_variable"), nest=_tf.nest),
    "layers": dict(**_own_names(_contrib, "batch_norm", "flatten", "fully_connected", "l1_regularizer",
                                "l2_regularizer", "layer_norm", "optimize_loss"), **_INITIALIZERS,
                   dropout=_contrib_dropout),
    "metrics": _own_names(_contrib, "streaming_concat", "streaming_pearson_correlation"),
    "predictor": _own_names(_contrib, "from_estimator", "from_saved_model"),
    "seq2seq": dict(sequence_loss=_contrib.sequence_loss),
    "tpu": _TPU,
}
_jit = _contrib_namespace("compiler", dict(experimental_jit_scope=_contrib.experimental_jit_scope))
contrib = _Namespace("tf.contrib", {
    **{module: _contrib_namespace(module, _MODULES.get(module, {})) for module in _REPLACEMENTS},
    "compiler": _contrib_namespace("compiler", dict(jit=_jit)),
    "rnn": _contrib_namespace("rnn", {}, _cells),
}, explain=lambda name: "tf.contrib is gone, and nothing took the place of this part.")

def _modules_that_bypass_us():
    """{name of a module of TensorFlow 1: what stands in for it}."""
    found = {"tensorflow.contrib": contrib}
    for name in _REPLACEMENTS:
        found[f"tensorflow.contrib.{name}"] = getattr(contrib, name)
    found["tensorflow.contrib.compiler.jit"] = _jit
    python_layers = _Namespace("tensorflow.contrib.layers.python", {})
    python_layers.layers = _Namespace("tensorflow.contrib.layers.python.layers", dict(
        initializers=_Namespace("tensorflow.contrib.layers.python.layers.initializers", _INITIALIZERS)),
        lambda: contrib.layers)
    found["tensorflow.contrib.layers.python"] = python_layers
    found["tensorflow.contrib.layers.python.layers"] = python_layers.layers
    found["tensorflow.contrib.layers.python.layers.initializers"] = python_layers.layers.initializers
    found["tensorflow.estimator"] = estimator
    parts = dict.fromkeys(("estimator", "model_fn", "run_config", "training"), estimator)
    found["tensorflow.python.estimator"] = _Namespace("tensorflow.python.estimator", parts, lambda: estimator)
    found.update({f"tensorflow.python.estimator.{name}": module for name, module in parts.items()})
    return found


def _under_our_name(modules):
    """The same modules by the names that they have after the import of `tf1` in place of `tensorflow`."""
    ours = {name.replace("tensorflow.", "tf1.", 1): module for name, module in modules.items()
            if not name.startswith("tensorflow.python.")}
    return {**ours, **{f"tf1.{name}": module for name, module in dict(
        app=app, data=data, layers=layers, logging=logging, nn=nn).items()}}


_modules = _modules_that_bypass_us()
sys.modules.update({**_modules, **_under_our_name(_modules)})
