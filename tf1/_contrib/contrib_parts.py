"""Defines `tf.contrib`: its parts, the names of each part, and the advice for names that are not provided.

The parts contain the names that forks of BERT use. For example, the functions of `tf.contrib.layers` are in
`tf1/_contrib/layers.py`: each public function and class that `layers.py` defines is a name of the part.
`_NAMES_OF_PARTS` lists the names of all parts.
"""

import functools
import operator
import sys
import types

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
from tf1._names.namespace import Namespace, optional_module, own_names, rows
from tf1._replicas import strategies
from tf1._run import keras_modules

# The replacement of these parts of `tf.contrib` is the module of `tf` with the same name.
_SAME_NAME = """
    autograph distribute estimator feature_column image keras linalg lookup losses metrics nn quantization
    saved_model signal summary
"""
# Maps each part of `tf.contrib` to a replacement, for the error message if a program uses a name of the part
# that tf1 does not provide. If the replacement consists of modules of `tf`, the message recommends the same
# name in these modules, or says that there is no replacement. Any other text is recommended unchanged. If the
# replacement is None, the message lists the names of the part. tf1 has no parts that are not in this dict.
REPLACEMENTS = {
    **{part: f"tf.{part}" for part in _SAME_NAME.split()},
    **dict.fromkeys(("crf", "predictor")), "slim": slim.INSTALL,
    **dict(rows("""
    all_reduce               tf.distribute
    batching                 the function tf.nondifferentiable_batch_function
    bayesflow                the package tensorflow-probability
    checkpoint               the class tf.train.Checkpoint
    cluster_resolver         tf.distribute.cluster_resolver
    compiler                 the function tf.xla.experimental.compile
    constrained_optimization the package tfco
    copy_graph               the function tf.import_graph_def
    cudnn_rnn                the layers tf.keras.layers.LSTM and GRU
    data                     tf.data tf.data.experimental
    distributions            the package tensorflow-probability
    eager                    the function tf.enable_eager_execution and tf.GradientTape
    framework                tf.train tf.nest
    graph_editor             the function tf.import_graph_def(input_map=…)
    input_pipeline           tf.data
    integrate                scipy.integrate
    labeled_tensor           plain tensors
    layers                   tf.layers tf.keras.layers
    learn                    tf.estimator
    legacy_seq2seq           the function tf.nn.dynamic_rnn
    linear_optimizer         tf.estimator
    memory_stats             the function tf.config.experimental.get_memory_info
    mixed_precision          the class tf.train.experimental.MixedPrecisionLossScaleOptimizer
    model_pruning            the package tensorflow-model-optimization
    opt                      tf.train
    quantize                 the package tensorflow-model-optimization
    reduce_slice_ops         the function tf.math.segment_sum
    resampler                tf.image
    rnn                      tf.nn.rnn_cell
    seq2seq                  tf.keras.layers
    session_bundle           tf.saved_model
    solvers                  tf.linalg
    staging                  the method tf.data.Dataset.prefetch
    stat_summarizer          the function tf.profiler.profile
    stateless                functions such as tf.random.stateless_uniform
    tensor_forest            the package tensorflow-decision-forests
    tensorboard              the package tensorboard
    tensorrt                 tf.experimental
    tfprof                   the function tf.profiler.profile
    timeseries               tf.keras
    tpu                      CPU or GPU: TPUs are not supported
    training                 a tf.data.Dataset in place of queues and bucketing
    util                     the function tf.make_tensor_proto
    """))}
# Maps a part of `tf.contrib` to the module of the package tf-slim that provides further names of this part.
# "" is the module tf_slim itself.
_IN_SLIM = {"layers": "layers", "slim": "", "training": "training.training"}


def _find(name):
    """Returns the object with a dotted name of tf1, such as "tf.nn.relu", or None."""
    # The module tf1 imports this module, so it cannot be imported here.
    return functools.reduce(lambda value, part: getattr(value, part, None), name.split(".")[1:],
                            sys.modules["tf1"])


def _contrib_namespace(part, own, base=None):
    def explain(name):
        use = REPLACEMENTS[part]
        if use is None:
            return f"tf1 provides only these names of tf.contrib.{part}: {', '.join(sorted(own))}."
        if use.startswith("tf."):
            found = [f"{home}.{name}" for home in use.split() if _find(f"{home}.{name}")]
            if part in _IN_SLIM and not slim.package():
                found.append(slim.INSTALL)
            use = ", or ".join(found)
        return f"tf.contrib is gone. Use {use}." if use else "tf.contrib is gone, without a replacement."

    return Namespace(f"tf.contrib.{part}", own, base, explain)


# {part of tf.contrib: {name: object}}, for objects that have no line in `_NAMES_OF_PARTS`
_OBJECTS = {
    "compiler": dict(jit=_contrib_namespace(
        "compiler", dict(experimental_jit_scope=tf.xla.experimental.jit_scope))),
    "data": tensorflow_names.DATA,
    "distribute": strategies.CONTRIB,
    "estimator": tensorflow_names.STOPPING,
    "framework": dict(nest=Namespace(
        "tf.contrib.framework.nest", dict(is_sequence=internals.nest.is_nested), lambda: internals.nest)),
    "learn": dict(preprocessing=Namespace("tf.contrib.learn.preprocessing", own_names(
        others, "CategoricalVocabulary VocabularyProcessor tokenizer"))),
    "seq2seq": others.SEQ2SEQ_CLASSES,
    "summary": summary.CONTRIB,
    "tensorboard": dict(plugins=Namespace("tf.contrib.tensorboard.plugins", dict(projector=Namespace(
        "tf.contrib.tensorboard.plugins.projector", {},
        lambda: optional_module("tensorboard.plugins.projector"),
        lambda name: "tf.contrib is gone. Use the package tensorboard: pip install tensorboard.")))),
    "tpu": tensorflow_names.TPU,
}
_HOMES = types.SimpleNamespace(
    tf=tf, core_crf=core_crf, crf=crf, estimator_parts=estimator_parts, framework=framework,
    graph_editor=graph_editor, internals=internals, layers=layers, metrics=metrics, optimizers=optimizers,
    others=others, predictor=predictor, rnn=rnn, training=training)
# Each line names a part of tf.contrib, a module in `_HOMES`, and names that the part gets from this module.
# For the form of the names, see `own_names`.
_NAMES_OF_PARTS = """
    autograph        internals                 convert=autograph_convert
    autograph        tf.autograph              to_code to_graph
    autograph        tf.autograph.experimental do_not_convert
    cluster_resolver estimator_parts           TPUClusterResolver
    crf              crf                       *
    crf              core_crf                  crf_binary_score crf_log_likelihood crf_log_norm
    crf              core_crf                  crf_sequence_score crf_unary_score
    data             others                    batch_and_drop_remainder padded_batch_and_drop_remainder
    data             tf.data.experimental      AUTOTUNE bucket_by_sequence_length group_by_window
    data             tf.data.experimental      ignore_errors map_and_batch prefetch_to_device unbatch
    eager            tf                        GradientTape Variable executing_eagerly
    estimator        estimator_parts           InMemoryEvaluatorHook
    framework        framework                 *
    framework        internals                 deprecated deprecated_args smart_cond smart_constant_value
    framework        tf                        CriticalSection argsort is_non_decreasing is_numeric_tensor
    framework        tf                        is_strictly_increasing is_tensor sort
    framework        tf.train                  assert_global_step create_global_step get_global_step
    framework        tf.train                  get_or_create_global_step init_from_checkpoint
    framework        tf.train                  list_variables load_checkpoint load_variable
    graph_editor     graph_editor              *
    layers           layers                    *
    learn            others                    ModeKeys
    legacy_seq2seq   others                    rnn_decoder sequence_loss_by_example
    legacy_seq2seq   others                    sequence_loss=sequence_loss_of_lists
    lookup           internals.lookup_ops      *
    lookup           internals.lookup_ops      MutableDenseHashTable
    lookup           internals.lookup_ops      string_to_index_table_from_file=index_table_from_file
    lookup           others                    index_table_from_tensor index_to_string_table_from_tensor
    lookup           others                    string_to_index_table_from_tensor=index_table_from_tensor
    lookup           tf.lookup                 HashTable=StaticHashTable
    metrics          metrics                   *
    mixed_precision  optimizers                ExponentialUpdateLossScaleManager FixedLossScaleManager
    mixed_precision  optimizers                LossScaleOptimizer
    opt              optimizers                AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer
    opt              optimizers                clip_gradients_by_global_norm
    opt              optimizers                extend_with_decoupled_weight_decay
    predictor        predictor                 *
    rnn              rnn                       *
    rnn              tf.nn                     bidirectional_dynamic_rnn dynamic_rnn raw_rnn
    rnn              tf.nn                     static_bidirectional_rnn static_rnn static_state_saving_rnn
    rnn              tf.nn.rnn_cell            BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell
    rnn              tf.nn.rnn_cell            LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper
    seq2seq          others                    sequence_loss tile_batch
    seq2seq          rnn                       _transpose_batch_time=transpose_batch_time
    staging          internals                 StagingArea
    tpu              tf.tpu                    bfloat16_scope
    training         training                  *
    training         tf.train                  checkpoints_iterator
    util             tf                        make_ndarray make_tensor_proto
    util             tf                        constant_value=get_static_value
"""
_own = {part: dict(_OBJECTS.get(part, {})) for part in REPLACEMENTS}
for _part, _home, _names in rows(_NAMES_OF_PARTS, 3):
    _own[_part].update(own_names(operator.attrgetter(_home)(_HOMES), _names))
contrib = Namespace(
    "tf.contrib",
    {part: _contrib_namespace(part, own, slim.part(_IN_SLIM[part]) if part in _IN_SLIM else None)
     for part, own in _own.items()} | dict(keras=keras_modules.find("tf.contrib.keras")),
    explain=lambda name: "tf.contrib is gone. tf1 has neither a part of this name nor a known replacement.")
