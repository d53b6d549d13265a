"""What forks of BERT used of `tf.contrib`, and for the rest what to use instead.

The functions of `tf.contrib.layers` are in `tf1/_contrib_layers.py`, and so on.
"""

import types

import tensorflow.compat.v1 as tf

from tf1 import (
    _contrib_crf,
    _contrib_layers,
    _contrib_metrics,
    _contrib_others,
    _contrib_predictor,
    _estimator,
    _keyed_random,
    _names,
)
from tf1._namespace import Namespace, own_names

# contrib module: what to use in place of its names that are not provided.
REPLACEMENTS = {
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
    return lambda name: f"tf.contrib is gone. Use {REPLACEMENTS[module]}."


def _contrib_namespace(module, own, base=None):
    return Namespace(f"tf.contrib.{module}", own, base, _replacement(module))



INITIALIZERS = dict(xavier_initializer=_contrib_layers.xavier_initializer,
                     xavier_initializer_conv2d=_contrib_layers.xavier_initializer)
_CELLS = ("BasicLSTMCell", "BasicRNNCell", "DeviceWrapper", "DropoutWrapper", "GRUCell", "LSTMCell",
          "LSTMStateTuple", "MultiRNNCell", "RNNCell", "ResidualWrapper")


def _cells():
    """tf.nn.rnn_cell, and the functions that run its cells."""
    return types.SimpleNamespace(**own_names(tf.nn.rnn_cell, *_CELLS), **own_names(
        tf.nn, "static_rnn", "static_bidirectional_rnn", "dynamic_rnn"))


_MODULES = {
    "cluster_resolver": dict(TPUClusterResolver=_estimator.TPUClusterResolver),
    "crf": own_names(_contrib_crf, "crf_binary_score", "crf_decode", "crf_log_likelihood", "crf_log_norm",
                      "crf_sequence_score", "crf_unary_score", "viterbi_decode"),
    "data": dict(**_names.DATA, batch_and_drop_remainder=_contrib_others.batch_and_drop_remainder,
                 **own_names(tf.data.experimental, "bucket_by_sequence_length", "group_by_window",
                              "map_and_batch", "unbatch")),
    "distribute": dict(MirroredStrategy=_contrib_others.mirrored_strategy,
                       AllReduceCrossDeviceOps=lambda *_, **__: None,
                       OneDeviceStrategy=tf.distribute.OneDeviceStrategy),
    "estimator": _names.STOPPING,
    "framework": dict(**own_names(tf.train, "get_global_step", "get_or_create_global_step",
                                   "init_from_checkpoint", "list_variables", "load_checkpoint",
                                   "load_variable"), nest=tf.nest),
    "layers": dict(**own_names(_contrib_layers, "batch_norm", "flatten", "fully_connected", "l1_regularizer",
                                "l2_regularizer", "layer_norm", "optimize_loss"), **INITIALIZERS,
                   dropout=_keyed_random.contrib_dropout),
    "metrics": own_names(_contrib_metrics, "streaming_concat", "streaming_pearson_correlation"),
    "predictor": own_names(_contrib_predictor, "from_estimator", "from_saved_model"),
    "seq2seq": dict(sequence_loss=_contrib_others.sequence_loss),
    "tpu": _names.TPU,
}
jit = _contrib_namespace("compiler", dict(experimental_jit_scope=_contrib_others.experimental_jit_scope))
contrib = Namespace("tf.contrib", {
    **{module: _contrib_namespace(module, _MODULES.get(module, {})) for module in REPLACEMENTS},
    "compiler": _contrib_namespace("compiler", dict(jit=jit)),
    "rnn": _contrib_namespace("rnn", {}, _cells),
}, explain=lambda name: "tf.contrib is gone, and nothing took the place of this part.")
