"""Each op of a training, an evaluation or a prediction has a kernel for GPUs.

The wheel of TensorFlow is built with CUDA. So its registry lists the kernels for GPUs, also on a machine
without a GPU. An op without such a kernel runs on the CPU, and its inputs and outputs are copied between GPU
and CPU in each step. The graphs are those of a machine with a GPU: they have no kernels in C++.
"""

import functools

from helpers import ancestors
import pytest
from replica_threads import Replica
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels

from bertlib.estimator import estimator_spec, model_graph, run_config
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import collectives, graph_keys
from bertlib.graph.tensorflow_internals import control_flow_context
from bertlib.tasks import head
from bertlib.tasks.classification import (
    classification_head,
    classification_target,
    classifier_data,
)
from bertlib.tasks.pretraining import pretraining_data, pretraining_head
from bertlib.tasks.squad import squad_data, squad_head
from bertlib.tasks.tagging import tagging_head, tagging_windows
import modeling
import optimization
from tests import tiny

TRAIN, EVAL, PREDICT = (getattr(estimator_spec.ModeKeys, mode) for mode in ("TRAIN", "EVAL", "PREDICT"))
# {(type of an op without a kernel for GPUs, type of its first input): why it may stay on the CPU}.
ON_THE_CPU = {
    ("Const", None): "the names of summaries: text has no kernel for GPUs",
    ("DenseToDenseSetOperation", "int32"): "tf.metrics compares static ranks",
    ("ScalarSummary", "string"): "writes a scalar to the summaries",
    **{(f"TensorArray{name}V3", type_): "the CRF's back pointers: integers, a few bytes for each token"
       for name, type_ in (("", "int32"), ("Read", "resource"), ("Scatter", "resource"),
                           ("Write", "resource"))},
}
SEQ_LENGTH = 16


# {name: (head, function that returns the fields of a training example)}
HEADS = {
    "classifier": (classification_head.Classifier(2), classifier_data.feature_fields),
    "regression": (classification_head.Regressor(), functools.partial(
        classifier_data.feature_fields, target=classification_target.Score())),
    "squad": (squad_head.Span(), functools.partial(squad_data.feature_fields, is_training=True)),
    "tagger": (tagging_head.Tagger(5), tagging_windows.feature_fields),
    "crf": (tagging_head.Tagger(5, use_crf=True), tagging_windows.feature_fields),
    "pretraining": (pretraining_head.PretrainingHead(), functools.partial(
        pretraining_data.feature_fields, max_predictions_per_seq=3)),
}


@functools.cache
def gpu_kernels(op_type):
    """Returns the constraints of the kernels for GPUs: [{name of an attribute: allowed types or texts}]."""
    return [{constraint.name: {*constraint.allowed_values.list.type, *constraint.allowed_values.list.s}
             for constraint in kernel.constraint}
            for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
            if kernel.device_type in ("GPU", "DEFAULT")]


def runs_on_a_gpu(op):
    """Returns whether some kernel for GPUs supports the types of an op."""
    def values(name):
        value = op.node_def.attr[name]
        kind = value.WhichOneof("value")
        return set(value.list.type) if kind == "list" else {getattr(value, kind)}

    return any(all(values(name) <= allowed for name, allowed in kernel.items())
               for kernel in gpu_kernels(op.type))


def placeholder(field):
    """Returns a placeholder like a feature of the input. A trimmed sequence has no static length."""
    shape = [None, *(None if size == SEQ_LENGTH else size for size in field.shape)]
    return tf.placeholder(tf.int32 if field.dtype == "int64" else tf.as_dtype(field.dtype), shape)


def build(name, mode, **settings):
    """Returns the graph of a head in a mode. With `num_replicas` in the settings, it is that of a replica."""
    task_head, fields = HEADS[name]
    step = StepConfig(train_batch_size=8, max_seq_length=SEQ_LENGTH, trim_padding=True, **settings)
    bert_config = modeling.BertConfig.from_dict({**tiny.CONFIG, "num_hidden_layers": 1})
    builder = model_graph.Builder(
        head.model_fn_builder(task_head, bert_config, None, 1e-3, 10, 2),
        run_config.RunConfig(model_dir="unused", step_config=step), {}, dict.fromkeys((TRAIN, EVAL, PREDICT)))
    with tf.Graph().as_default() as graph:
        if step.num_replicas > 1:
            tf.add_to_collection(graph_keys.ALL_REDUCE, collectives.AllReduce(
                Replica(1, 3), tf.bfloat16 if step.gradient_dtype == "bf16" else None))

        def features_fn():
            features = {field.name: placeholder(field) for field in fields(SEQ_LENGTH)}
            if mode == TRAIN:
                features.update({f"{name}_total": tf.placeholder(tf.float32, [])
                                 for name in task_head.batch_totals})
            return features, None, []

        builder.build(features_fn, mode)
        return graph


def check(name, mode, **settings):
    """Asserts that each op of the graph of a head has a kernel for GPUs, or may stay on the CPU."""
    found = {(op.type, op.inputs[0].dtype.base_dtype.name if op.inputs else None): op.name
             for op in build(name, mode, **settings).get_operations()
             if not op.device.endswith("CPU:0") and not runs_on_a_gpu(op)}
    assert {place: op for place, op in found.items() if place not in ON_THE_CPU} == {}


# --- Tests -----------------------------------------------------------------------------------------------


def test_the_registry_knows_what_has_no_kernel(graph):
    assert not runs_on_a_gpu(tf.slice(tf.placeholder("int16", [8]), [0], [4]).op)


@pytest.mark.parametrize("name, mode, settings", [
    ("classifier", TRAIN, dict(remove_padding=True, gradient_accumulation_steps=2)),
    ("squad", TRAIN, dict(precision="fp16", recompute="layers")),
    ("regression", TRAIN, dict(precision="bf16", num_replicas=3, gradient_dtype="bf16")),
    ("tagger", PREDICT, dict(precision="bf16")), ("crf", PREDICT, {}), ("pretraining", EVAL, {}),
    *(pytest.param("regression", TRAIN, dict(optimizer=optimizer, precision=precision,
                                             gradient_accumulation_steps=steps), marks=pytest.mark.slow(
          reason="the graph of a training for each optimizer"))
      for optimizer in optimization.OPTIMIZERS for precision, steps in (("fp32", 1), ("fp16", 2)))])
def test_all_ops_have_a_kernel_for_gpus(name, mode, settings):
    check(name, mode, **settings)


def test_replicas_start_their_sums_in_one_order():
    # NCCL waits forever if two replicas start two sums in different orders. So each sum waits for the
    # previous one. No sum is inside of a conditional, because a replica may skip a conditional.
    graph = build("classifier", TRAIN, precision="fp16", num_replicas=3, gradient_accumulation_steps=2)
    sums = [op for op in graph.get_operations() if op.type == "CollectiveReduceV2"]
    assert len(sums) > 1 and all(op.get_attr("communication_hint") == b"nccl" for op in sums)
    for previous, op in zip(sums, sums[1:]):
        assert previous in ancestors(op) and control_flow_context(op) is None
