"""Defines `tf.contrib`: its parts, the names of each part, and the advice for names that are not provided.

The parts contain the names that forks of BERT use. For example, the functions of `tf.contrib.layers` are in
`tf1/_contrib/layers.py`: each public function and class that `layers.py` defines is a name of the part.
`_NAMES_OF_PARTS` lists the names of all parts.
"""

import importlib

import tensorflow.compat.v1 as tf

from bertlib.graph import crf as core_crf
from tf1._contrib import (
    crf,
    framework,
    graph_editor,
    layers,
    metrics,
    optimizers,
    others,
    predictor,
    rnn,
    slim,
    training,
)
from tf1._names import estimator_parts, internals, summary, tensorflow_names
from tf1._names.namespace import Namespace, defined_names, own_names, rows
from tf1._replicas import strategies
from tf1._run import keras_modules

# If one of these parts of `tf.contrib` lacks a name, the error message recommends the module of `tf` with the
# same name as the part. For example, for a missing name of `tf.contrib.losses`, it recommends `tf.losses`.
_SAME_NAME = """
    autograph distribute estimator feature_column image keras linalg lookup losses metrics nn quantization
    saved_model signal summary
"""
# Maps each part of `tf.contrib` to a replacement. If a program uses a name of a part and tf1 does not provide
# this name, the error message recommends the replacement of the part. If the replacement is None, the error
# message lists the names that tf1 provides in the part. tf1 has no parts of `tf.contrib` that are not in this
# dict.
REPLACEMENTS = {
    **{part: f"tf.{part}" for part in _SAME_NAME.split()},
    **dict.fromkeys(("crf", "predictor", "sparsemax")), "slim": slim.INSTALL,
    **dict(rows("""
    all_reduce               tf.distribute
    batching                 tf.nondifferentiable_batch_function
    bayesflow                the package tensorflow-probability
    checkpoint               tf.train.Checkpoint
    cluster_resolver         tf.distribute.cluster_resolver
    compiler                 tf.xla.experimental
    constrained_optimization the package tfco
    copy_graph               tf.import_graph_def
    cudnn_rnn                tf.keras.layers.LSTM and GRU
    data                     tf.data and tf.data.experimental
    distributions            the package tensorflow-probability
    eager                    tf.enable_eager_execution and tf.GradientTape
    framework                tf.train and tf.nest
    graph_editor             tf.import_graph_def(input_map=…)
    input_pipeline           tf.data
    integrate                scipy.integrate
    labeled_tensor           plain tensors
    layers                   tf.layers, or tf.keras.layers
    learn                    tf.estimator
    legacy_seq2seq           tf.nn.dynamic_rnn
    linear_optimizer         tf.estimator
    memory_stats             tf.config.experimental.get_memory_info
    mixed_precision          tf.train.experimental's MixedPrecisionLossScaleOptimizer and DynamicLossScale
    model_pruning            the package tensorflow-model-optimization
    opt                      tf.train's optimizers
    quantize                 the package tensorflow-model-optimization
    reduce_slice_ops         tf.math.segment_sum
    resampler                tf.image
    rnn                      tf.nn.rnn_cell and tf.nn.dynamic_rnn
    seq2seq                  tf.keras.layers
    session_bundle           tf.saved_model
    solvers                  tf.linalg
    staging                  tf.data's prefetch
    stat_summarizer          tf.profiler
    stateless                tf.random.stateless_uniform and similar functions
    tensor_forest            the package tensorflow-decision-forests
    tensorboard              the package tensorboard
    tensorrt                 tf.experimental.tensorrt
    tfprof                   tf.profiler
    timeseries               tf.keras
    tpu                      CPU or GPU: TPUs are not supported
    training                 tf.data in place of queues and bucketing
    util                     tf.make_tensor_proto
    """))}
# Maps a part of `tf.contrib` to the module of the package tf-slim that provides further names of this part.
# "" is the module tf_slim itself.
_IN_SLIM = {"layers": "layers", "slim": "", "training": "training.training"}


def _contrib_namespace(part, own, base=None):
    def explain(name):
        use = REPLACEMENTS[part]
        if use is None:
            return f"tf1 provides only these names of tf.contrib.{part}: {', '.join(sorted(own))}."
        if part == "slim" and slim.package():
            use = "a different name: the package tf-slim has no such name"
        elif part in _IN_SLIM and part != "slim" and not slim.package():
            use += f", or {slim.INSTALL}, if this package has the name"
        return f"tf.contrib is gone. Use {use}."

    return Namespace(f"tf.contrib.{part}", own, base, explain)


def _projector():
    """Returns the projector of the package tensorboard, or None if the package is not installed."""
    try:
        return importlib.import_module("tensorboard.plugins.projector")
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] != "tensorboard":
            raise
        return None


# A dict. Each key is the name of a part of tf.contrib. The value is a dict with the names in this part:
# {name: the object that tf1 provides under this name}. Most of these objects are functions or classes.
_NAMES_OF_PARTS = {
    "autograph": dict(convert=internals.autograph_convert,
                      do_not_convert=tf.autograph.experimental.do_not_convert,
                      **own_names(tf.autograph, "to_code to_graph")),
    "cluster_resolver": dict(TPUClusterResolver=estimator_parts.TPUClusterResolver),
    "compiler": dict(jit=_contrib_namespace(
        "compiler", dict(experimental_jit_scope=tf.xla.experimental.jit_scope))),
    "crf": dict(**defined_names(crf),
                **own_names(core_crf, "crf_binary_score crf_log_likelihood crf_log_norm crf_sequence_score "
                            "crf_unary_score viterbi_decode")),
    "data": dict(**tensorflow_names.DATA, AUTOTUNE=tf.data.experimental.AUTOTUNE,
                 **own_names(others, "batch_and_drop_remainder padded_batch_and_drop_remainder"),
                 **own_names(tf.data.experimental, "bucket_by_sequence_length group_by_window "
                             "ignore_errors map_and_batch prefetch_to_device unbatch")),
    "distribute": strategies.CONTRIB,
    "eager": own_names(tf, "GradientTape Variable executing_eagerly"),
    "estimator": dict(**tensorflow_names.STOPPING,
                      InMemoryEvaluatorHook=estimator_parts.InMemoryEvaluatorHook,
                      clip_gradients_by_norm=optimizers.clip_gradients_by_norm),
    "framework": dict(**defined_names(framework),
                      nest=Namespace("tf.contrib.framework.nest",
                                     dict(is_sequence=internals.nest.is_nested), lambda: internals.nest),
                      **own_names(internals, "deprecated deprecated_args smart_cond smart_constant_value"),
                      **own_names(tf.train, "assert_global_step create_global_step get_global_step "
                                  "get_or_create_global_step init_from_checkpoint list_variables "
                                  "load_checkpoint load_variable"),
                      **own_names(tf, "CriticalSection argsort is_non_decreasing is_numeric_tensor "
                                  "is_strictly_increasing is_tensor sort")),
    "graph_editor": defined_names(graph_editor),
    "layers": defined_names(layers),
    "learn": dict(ModeKeys=others.ModeKeys, preprocessing=Namespace(
        "tf.contrib.learn.preprocessing",
        own_names(others, "CategoricalVocabulary VocabularyProcessor tokenizer"))),
    "legacy_seq2seq": dict(own_names(others, "rnn_decoder sequence_loss_by_example"),
                           sequence_loss=others.sequence_loss_of_lists),
    "lookup": dict(defined_names(internals.lookup_ops), HashTable=tf.lookup.StaticHashTable,
                   MutableDenseHashTable=internals.lookup_ops.MutableDenseHashTable,
                   string_to_index_table_from_file=internals.lookup_ops.index_table_from_file,
                   string_to_index_table_from_tensor=others.index_table_from_tensor,
                   **own_names(others, "index_table_from_tensor index_to_string "
                               "index_to_string_table_from_tensor string_to_index")),
    "metrics": defined_names(metrics),
    "mixed_precision": own_names(optimizers, "ExponentialUpdateLossScaleManager FixedLossScaleManager "
                                 "LossScaleManager LossScaleOptimizer"),
    "opt": own_names(optimizers, "AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer "
                     "MomentumWOptimizer MovingAverageOptimizer clip_gradients_by_global_norm "
                     "extend_with_decoupled_weight_decay"),
    "predictor": defined_names(predictor),
    "rnn": dict(**defined_names(rnn),
                **own_names(tf.nn.rnn_cell, "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper "
                            "GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper"),
                **own_names(tf.nn, "static_rnn static_bidirectional_rnn dynamic_rnn "
                            "bidirectional_dynamic_rnn raw_rnn static_state_saving_rnn")),
    "seq2seq": dict(others.SEQ2SEQ_CLASSES, _transpose_batch_time=rnn.transpose_batch_time,
                    **own_names(others, "hardmax sequence_loss tile_batch")),
    "sparsemax": own_names(others, "sparsemax sparsemax_loss"),
    "staging": dict(StagingArea=internals.StagingArea),
    "summary": summary.CONTRIB,
    "tensorboard": dict(plugins=Namespace("tf.contrib.tensorboard.plugins", dict(projector=Namespace(
        "tf.contrib.tensorboard.plugins.projector", {}, _projector,
        lambda name: "tf.contrib is gone. Use the package tensorboard: pip install tensorboard.")))),
    "tfprof": dict(model_analyzer=Namespace("tf.contrib.tfprof.model_analyzer", dict(
        FLOAT_OPS_OPTIONS=tf.profiler.ProfileOptionBuilder.float_operation(),
        TRAINABLE_VARS_PARAMS_STAT_OPTIONS=tf.profiler.ProfileOptionBuilder.trainable_variables_parameter(),
        print_model_analysis=others.print_model_analysis))),
    "tpu": dict(**tensorflow_names.TPU, bfloat16_scope=tf.tpu.bfloat16_scope),
    "training": dict(**defined_names(training), checkpoints_iterator=tf.train.checkpoints_iterator),
    "util": dict(constant_value=tf.get_static_value, **own_names(tf, "make_ndarray make_tensor_proto")),
}
contrib = Namespace(
    "tf.contrib",
    {part: _contrib_namespace(part, _NAMES_OF_PARTS.get(part, {}),
                                slim.part(_IN_SLIM[part]) if part in _IN_SLIM else None)
     for part in REPLACEMENTS} | dict(keras=keras_modules.find("tf.contrib.keras")),
    explain=lambda name: "tf.contrib is gone. tf1 has neither a part of this name nor a known replacement.")
