"""The names of `tf` that are not, or not as they were, in `tensorflow.compat.v1`."""

import logging as _python_logging
import sys
import types

from absl import logging as _absl_logging
import tensorflow.compat.v1 as _tf

from bertlib.estimator import estimator as _estimator
from tf1._names import canned, estimator_parts, examples, internals, keyed_random
from tf1._names.namespace import Namespace, own_names
from tf1._run import script_config, script_estimator


def _set_verbosity(level):
    """tf.logging.set_verbosity, for this project's messages too; a number or a name."""
    level = getattr(_tf.logging, level) if isinstance(level, str) else level
    _tf.logging.set_verbosity(level)
    _absl_logging.set_verbosity(_absl_logging.converter.standard_to_absl(int(level)))


def _run_app(main=None, argv=None):
    """tf.app.run; a message of tf.logging is shown once, although absl has a handler too then."""
    _python_logging.getLogger("tensorflow").propagate = False
    _tf.app.run(main or sys.modules["__main__"].main, argv)


DATA = own_names(keyed_random, "parallel_interleave", "shuffle_and_repeat")
app = Namespace("tf.app", dict(run=_run_app), lambda: _tf.app)
nn = Namespace("tf.nn", dict(dropout=keyed_random.dropout), lambda: _tf.nn)
layers = Namespace("tf.layers", dict(dropout=keyed_random.layer_dropout,
                                      Dropout=keyed_random.LayerDropout), lambda: _tf.layers)
logging = Namespace("tf.logging", dict(set_verbosity=_set_verbosity), lambda: _tf.logging)
train = Namespace("tf.train", dict(Int64List=examples.Int64List), lambda: _tf.train)
io = Namespace("tf.io", dict(parse_example=examples.parse_example), lambda: _tf.io)
# DropoutWrapper drops as tf.nn.dropout does.
internals.replace_tensorflow_of_cells(
    Namespace("tf", dict(nn=nn, __internal__=_tf.compat.v2.__internal__), lambda: _tf.compat.v2))
data = Namespace("tf.data",
                  dict(experimental=Namespace("tf.data.experimental", DATA, lambda: _tf.data.experimental)),
                  lambda: _tf.data)

TPU = dict(RunConfig=estimator_parts.TPURunConfig,
           **own_names(estimator_parts, "CrossShardOptimizer", "InputPipelineConfig", "TPUConfig",
                        "TPUEstimator", "TPUEstimatorSpec"))
STOPPING = own_names(estimator_parts, "make_early_stopping_hook", "read_eval_metrics", "stop_if_higher_hook",
                      "stop_if_lower_hook", "stop_if_no_decrease_hook", "stop_if_no_increase_hook")
_EXPORT = dict(ServingInputReceiver=_estimator.ServingInputReceiver,
               **own_names(internals.export_output, "ClassificationOutput", "ExportOutput", "PredictOutput",
                            "RegressionOutput"),
               **own_names(estimator_parts, "TensorServingInputReceiver",
                            "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn"))
_HOOKS = ("CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook",
          "GlobalStepWaiterHook", "LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook",
          "ProfilerHook", "SecondOrStepTimer", "SessionRunArgs", "SessionRunContext", "SessionRunHook",
          "SessionRunValues", "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "VocabInfo")


def _no_estimator(name):
    return ("canned estimators but DNNClassifier are gone; write a model_fn for tf.estimator.Estimator, as "
            "tf1/_names/canned.py does."
            if name.startswith(("DNN", "Linear", "Boosted", "Baseline")) else "not provided; `python -m tf1 "
            "--names` lists what is.")


_INPUTS = own_names(estimator_parts, "numpy_input_fn", "pandas_input_fn")
_ESTIMATOR = dict(
    DNNClassifier=canned.DNNClassifier,
    Estimator=script_estimator.Estimator, RunConfig=script_config.RunConfig,
    **own_names(_estimator, "EstimatorSpec", "ModeKeys"),
    **own_names(estimator_parts, "BestExporter", "EvalSpec", "Exporter", "FinalExporter", "LatestExporter",
                 "TrainSpec", "WarmStartSettings", "train_and_evaluate"),
    **own_names(_tf.train, *_HOOKS),
    experimental=Namespace("tf.estimator.experimental", STOPPING, explain=_no_estimator),
    export=Namespace("tf.estimator.export", _EXPORT, explain=_no_estimator),
    inputs=Namespace("tf.estimator.inputs", _INPUTS, explain=_no_estimator),
    tpu=Namespace("tf.estimator.tpu", TPU, explain=_no_estimator),
)
estimator = Namespace("tf.estimator", _ESTIMATOR, explain=_no_estimator)

# Names of metrics and outputs that canned estimators had, for code that compares evaluations.
_METRIC_KEYS = types.SimpleNamespace(
    LOSS_MEAN="average_loss", LOSS_REGULARIZATION="regularization_loss", AUC_PR="auc_precision_recall",
    LABEL_MEAN="label/mean", PREDICTION_MEAN="prediction/mean",
    **{key.upper(): key for key in ("loss", "accuracy", "precision", "recall", "accuracy_baseline", "auc")})
_PREDICTION_KEYS = types.SimpleNamespace(**{key.upper(): key for key in (
    "classes", "class_ids", "logistic", "logits", "predictions", "probabilities", "top_k")})
# The names of all files of the Estimator, from any of which programs take them. The last of a name counts.
every_estimator_name = Namespace("tf.estimator", {
    **STOPPING, **TPU, **_INPUTS, **_EXPORT, **_ESTIMATOR, "estimator": estimator,
    "export_output": internals.export_output, "MetricKeys": _METRIC_KEYS, "PredictionKeys": _PREDICTION_KEYS,
    "NewCheckpointReader": _tf.train.NewCheckpointReader}, explain=_no_estimator)
