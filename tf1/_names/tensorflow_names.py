"""Defines the names of `tf` that are missing or different in `tensorflow.compat.v1`."""

import logging as _python_logging
import operator
import re
import sys
import types

from absl import flags as _flags
from absl import logging as _absl_logging
import tensorflow.compat.v1 as _tf

from bertlib.estimator import estimator as _estimator
from tf1._names import canned, estimator_parts, examples, internals, keyed_random
from tf1._names.namespace import Namespace, own_names, rows
from tf1._run import script_config, script_estimator

# Maps a name of TensorFlow 0.x to the name that replaces it in TensorFlow 1.
RENAMED = dict(rows("""
    tf.batch_matmul             tf.matmul
    tf.inv                      tf.reciprocal
    tf.merge_all_summaries      tf.summary.merge_all
    tf.mul                      tf.multiply
    tf.neg                      tf.negative
    tf.pack                     tf.stack
    tf.scalar_summary           tf.summary.scalar
    tf.select                   tf.where
    tf.sub                      tf.subtract
    tf.train.SummaryWriter      tf.summary.FileWriter
    tf.unpack                   tf.unstack
    tf.initialize_all_variables tf.global_variables_initializer
"""))


def advice(name):
    """Returns the replacement of a missing name such as "tf.mul", or None if no replacement is known."""
    if name in RENAMED:
        return f"TensorFlow 1 has no {name}. Use `{RENAMED[name]}`."
    name_below_tf = name.removeprefix("tf.")
    try:
        operator.attrgetter(name_below_tf)(_tf.compat.v2)
    except AttributeError:
        return None
    return f"{name} is a name of TensorFlow 2. Use `tf.compat.v2.{name_below_tf}`."


def _extended(part, own):
    """Returns the namespace of a part of `tf`, such as "nn". It contains TensorFlow's names and names of tf1.

    Args:
      part: the name below `tf`. TensorFlow must still have this part.
      own: the names of tf1, as a dict {name: object}. They override TensorFlow's names.
    """
    return Namespace(f"tf.{part}", own, lambda: operator.attrgetter(part)(_tf),
                     lambda name: advice(f"tf.{part}.{name}"))


def _set_verbosity(level):
    """Calls tf.logging.set_verbosity, and also sets the level of this project's messages.

    Args:
      level: a number, or the name of a level, such as "INFO".
    """
    level = getattr(_tf.logging, level) if isinstance(level, str) else level
    _tf.logging.set_verbosity(level)
    _absl_logging.set_verbosity(_absl_logging.converter.standard_to_absl(int(level)))


def _run_app(main=None, argv=None):
    """Calls tf.app.run. Shows each message of tf.logging only once, although absl adds a second log handler.
    Logs a warning for each unknown flag, which tf.app.run ignores."""
    _python_logging.getLogger("tensorflow").propagate = False
    main = main or sys.modules["__main__"].main

    def warn_and_run(argv):
        for match in filter(None, map(re.compile("--?([a-zA-Z][^=]*)").match, argv[1:])):
            if match[1] not in _flags.FLAGS:
                _absl_logging.warning("The script has no flag --%s. It is ignored.", match[1])
        return main(argv)

    _tf.app.run(warn_and_run, argv)


@internals.replaces("write", _tf.gfile.GFile.__base__)
def _write(write, self, file_content):
    """Writes a text, bytes or a buffer to a file of tf.gfile. Buffers come from Python's pickle, which writes
    large arrays in this form."""
    is_buffer = not isinstance(file_content, (str, bytes))
    write(self, memoryview(file_content).tobytes() if is_buffer else file_content)


DATA = own_names(keyed_random, "parallel_interleave shuffle_and_repeat")
app = _extended("app", dict(run=_run_app))
nn = _extended("nn", own_names(keyed_random, "dropout"))
layers = _extended("layers", own_names(keyed_random, "dropout=layer_dropout"))
logging = _extended("logging", dict(set_verbosity=_set_verbosity))
train = _extended("train", dict(Int64List=examples.Int64List))
io = _extended("io", dict(parse_example=examples.parse_example))
# After this call, tf.nn.rnn_cell.DropoutWrapper uses the dropout of tf1 (`keyed_random.dropout`).
internals.set_tensorflow_of_cells(Namespace(
    "tf", dict(nn=nn, __internal__=_tf.compat.v2.__internal__), lambda: _tf.compat.v2))
data = _extended("data", dict(experimental=_extended("data.experimental", DATA)))

TPU = own_names(estimator_parts, "CrossShardOptimizer InputPipelineConfig RunConfig=TPURunConfig TPUConfig "
                "TPUEstimator TPUEstimatorSpec")
STOPPING = own_names(estimator_parts, "make_early_stopping_hook read_eval_metrics stop_if_higher_hook "
                     "stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook")
_EXPORT = dict(ServingInputReceiver=_estimator.ServingInputReceiver,
               **own_names(internals.export_output, "ClassificationOutput ExportOutput PredictOutput "
                           "RegressionOutput"),
               **own_names(estimator_parts, "TensorServingInputReceiver "
                           "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn"))
_HOOKS = """
    CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook
    NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer SessionRunArgs SessionRunContext
    SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook VocabInfo
"""


def _no_estimator(name):
    if name.startswith(("DNN", "Linear", "Boosted", "Baseline")):
        return (f"not provided. The estimators with a built-in model are {', '.join(_CANNED)}. Write a "
                "model_fn for tf.estimator.Estimator; tf1/_names/canned.py is an example.")
    return "not provided. `python -m tf1 --names` lists the available names."


_CANNED = own_names(canned, "DNNClassifier DNNLinearCombinedClassifier LinearClassifier")
_INPUTS = own_names(estimator_parts, "numpy_input_fn pandas_input_fn")
_ESTIMATOR = dict(
    **_CANNED,
    Estimator=script_estimator.Estimator, RunConfig=script_config.RunConfig,
    **own_names(_estimator, "EstimatorSpec ModeKeys"),
    **own_names(estimator_parts, "BestExporter EvalSpec Exporter FinalExporter LatestExporter TrainSpec "
                "WarmStartSettings train_and_evaluate"),
    **own_names(_tf.train, _HOOKS),
    experimental=Namespace("tf.estimator.experimental", STOPPING, explain=_no_estimator),
    export=Namespace("tf.estimator.export", _EXPORT, explain=_no_estimator),
    inputs=Namespace("tf.estimator.inputs", _INPUTS, explain=_no_estimator),
    tpu=Namespace("tf.estimator.tpu", TPU, explain=_no_estimator),
)
estimator = Namespace("tf.estimator", _ESTIMATOR, explain=_no_estimator)


def _upper_case(names):
    return {name.upper(): name for name in names.split()}


# These are names of metrics and outputs of built-in Estimators, such as DNNClassifier. Programs that compare
# evaluations read these names.
_METRIC_KEYS = types.SimpleNamespace(
    LOSS_MEAN="average_loss", LOSS_REGULARIZATION="regularization_loss", AUC_PR="auc_precision_recall",
    LABEL_MEAN="label/mean", PREDICTION_MEAN="prediction/mean",
    **_upper_case("loss accuracy precision recall accuracy_baseline auc"))
_PREDICTION_KEYS = types.SimpleNamespace(**_upper_case(
    "classes class_ids logistic logits predictions probabilities top_k"))
# A program can import each of these names from any file of the Estimator (`_ESTIMATOR_FILES` in
# `tf1/_run/modules.py`). If two of the dicts below contain the same name, the later dict overrides the
# earlier dict.
every_estimator_name = Namespace("tf.estimator", {
    **STOPPING, **TPU, **_INPUTS, **_EXPORT, **_ESTIMATOR, "estimator": estimator,
    "export_output": internals.export_output, "MetricKeys": _METRIC_KEYS, "PredictionKeys": _PREDICTION_KEYS,
    "NewCheckpointReader": _tf.train.NewCheckpointReader}, explain=_no_estimator)
