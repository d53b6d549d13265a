"""Mixed precision (encoder layers in 16 bits, the rest in 32), loss scaling, last layer only at [CLS]."""

import dataclasses
import functools

from helpers import assert_close, initialize, run_bert, tensors_of
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
import pytest
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator.estimator import Estimator, EstimatorSpec, NanLossError, RunConfig
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import native, one_dnn
import modeling
import optimization

CONFIG = modeling.BertConfig(
    vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
    hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, max_position_embeddings=8, type_vocab_size=2,
    initializer_range=0.2)
WITHOUT_DROPOUT = modeling.BertConfig.from_dict(
    {**CONFIG.to_dict(), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
     "num_hidden_layers": 2})
FP16 = StepConfig(precision="fp16")
IDS = np.random.RandomState(3).randint(30, size=[8, 8])
IN_16_BITS = ["bf16", "fp16"]
# The largest allowed differences, relative to the largest value: a few roundings to 8 bits and to 11 bits.
TOLERANCES = {"bf16": 2**-5, "fp16": 2**-8}


@pytest.fixture
def whole_one_dnn(monkeypatch):
    """Removes a limit on the instructions of oneDNN, for tests that build graphs but do not run them."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


def build_model(is_training=True, **settings):
    ids = tf.constant(IDS, tf.int32)
    return modeling.BertModel(CONFIG, is_training, ids, tf.cast(tf.not_equal(ids, 3), tf.int32),
                              step_config=StepConfig(**settings))


def first_token_loss(model):
    """Returns a scalar of the pooled output. Its gradient is different at each position of the output."""
    return tf.reduce_mean(model.get_pooled_output() * np.linspace(
        -3, 3, CONFIG.hidden_size, dtype=np.float32))


@functools.cache
def run_model(config=CONFIG, **options):
    return run_bert(config, IDS, IDS != 3, first_token_loss, **options)


# --- The model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", IN_16_BITS)
def test_outputs_and_gradients_are_float32_and_close_to_those_of_fp32(precision):
    found, plain = run_model(precision=precision), run_model()
    assert {values.dtype for values in found.values()} == {np.dtype(np.float32)}
    assert_close(found, plain, TOLERANCES[precision])
    assert (found["layer_0"] != plain["layer_0"]).any()


@pytest.mark.parametrize("is_training", [True, False])
def test_where_one_dnn_may_not_use_the_instructions_no_op_that_it_would_take_is_in_bf16(
        is_training, graph, monkeypatch):
    # TensorFlow looks only at the instructions of the CPU, not at this limit. An op in bf16 would then end
    # the process.
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(one_dnn, "cpu_supports", one_dnn.cpu_supports.__wrapped__)
    model = build_model(is_training=is_training, precision="bf16", compile_kernels=True)
    if is_training:
        tf.gradients(first_token_loss(model), tf.trainable_variables())
    taken = [op for op in graph.get_operations()
             if op.type in ("MatMul", "BatchMatMulV2", "Softmax") or "Mkl" in op.type]
    assert len(taken) >= 6 and {op.inputs[0].dtype for op in taken} == {tf.float32}
    assert any(op.outputs and op.outputs[0].dtype == tf.bfloat16 for op in graph.get_operations())


def test_unknown_precisions_are_refused(graph):
    with pytest.raises(ValueError, match="Unknown precision='fp8'; known: fp32, bf16, fp16"):
        build_model(precision="fp8")


def test_with_the_first_token_only_pooled_output_and_gradients_are_the_same():
    full, first = run_model(WITHOUT_DROPOUT), run_model(WITHOUT_DROPOUT, first_token_only=True,
                                                        recompute="layers")
    assert first["layer_1"].shape == (8, 1, 16)
    assert_close(first, {**full, "layer_1": full["layer_1"][:, :1]}, 1e-5)


# --- Scaled losses ---------------------------------------------------------------------------------------


class Linear(object):
    """A graph whose gradient is fed by the test, and its training step.

    Args:
      micro_batches: number of micro-batches in a step.
      loss_scaling, optimizer: see `create_optimizer`.
    """

    def __init__(self, micro_batches=1, loss_scaling=True, optimizer="adamw"):
        with tf.Graph().as_default() as graph:
            weights = tf.get_variable("weights", initializer=tf.constant([1.0, 2.0, 3.0]))
            self._gradient = tf.placeholder(tf.float32, [3])
            train_op = optimization.create_optimizer(
                tf.reduce_sum(weights * self._gradient), 0.1, 100, 0, False, StepConfig(
                    optimizer=optimizer, gradient_accumulation_steps=micro_batches,
                    precision="fp16" if loss_scaling else "fp32"))
            self._accumulation = tf.get_collection(optimization.GRADIENT_ACCUMULATION)
            skipped = tf.get_collection(optimization.CONSECUTIVE_SKIPPED_STEPS)
            self._step = ["gradient_norm:0", *skipped, train_op]
            self.variables = {variable.op.name: variable for variable in tf.global_variables()}
            self.session = tf.Session(graph=graph)
            initialize(self.session)

    def step(self, *gradients):
        """Takes a step with a gradient for each micro-batch.

        Returns [gradient norm, number of steps skipped in a row].
        """
        for gradient in gradients[:-1]:
            self.session.run(self._accumulation[0].accumulate_op, {self._gradient: gradient})
        return self.session.run(self._step, {self._gradient: gradients[-1]})[:-1]

    def values(self):
        return self.session.run(self.variables)


GOOD, BAD = [0.3, -2.0, 0.01], [0.3, np.inf, 0.01]


@pytest.mark.parametrize("optimizer", optimization.OPTIMIZERS)
def test_finite_steps_are_those_of_the_loss_as_it_is(optimizer):
    # The scale is a power of two, so scaling adds no rounding.
    scaled, plain = (Linear(2, loss_scaling, optimizer) for loss_scaling in (True, False))
    for gradient in ([0.3, -2.0, 0.01], [0.2, 0.1, 0.0], [-5.0, 1.0, 7.0]):
        assert scaled.step(gradient, GOOD) == [*plain.step(gradient, GOOD), 0]
    found = scaled.values()
    for name, value in plain.values().items():
        if optimizer == "adafactor":  # it adds ε to squares of gradients that were multiplied before
            assert_allclose(found[name], value, rtol=1e-6)
        else:
            assert_array_equal(found[name], value)


@pytest.mark.parametrize("gradients, optimizer", [
    *[([BAD], optimizer) for optimizer in optimization.OPTIMIZERS],
    ([[np.nan, 0, 0]], "adamw"), ([BAD, GOOD], "adamw"), ([GOOD, BAD], "adamw")], ids=str)
def test_a_step_whose_gradients_are_not_finite_is_skipped_and_halves_the_scale(gradients, optimizer):
    model = Linear(len(gradients), optimizer=optimizer)
    model.step(*[GOOD] * len(gradients))
    before = model.values()
    _, in_a_row = model.step(*gradients)
    assert in_a_row == 1
    after = model.values()
    changed = {"global_step": 2, "loss_scale/value": 2**14, "loss_scale/good_steps": 0,
               "loss_scale/skipped_steps": 1, "loss_scale/skipped_in_a_row": 1}
    assert {name: after[name] for name in changed} == changed
    for name in before.keys() - changed:
        assert_array_equal(after[name], before[name], err_msg=name)
    # Nothing of the skipped step is left in the accumulators.
    model.step(*[GOOD] * len(gradients))
    assert np.isfinite(model.values()["weights"]).all()
    assert (model.values()["weights"] != before["weights"]).all()


def test_the_scale_doubles_after_good_steps_and_is_bounded(monkeypatch):
    monkeypatch.setattr(optimization.LossScale, "STEPS_TO_DOUBLE", 3)
    model = Linear()

    def follow(gradients):
        """Returns (scale, number of good steps) after each step."""
        found = []
        for gradient in gradients:
            model.step(gradient)
            values = model.values()
            found.append((values["loss_scale/value"], values["loss_scale/good_steps"]))
        return found

    assert follow([GOOD] * 3) == [(2**15, 1), (2**15, 2), (2**16, 0)]
    # A skipped step sets the count of good steps to 0.
    assert follow([GOOD, GOOD, BAD, BAD, GOOD]) == [
        (2**16, 1), (2**16, 2), (2**15, 0), (2**14, 0), (2**14, 1)]
    assert follow([GOOD, GOOD]) == [(2**14, 2), (2**15, 0)]
    model.variables["loss_scale/value"].load(2.0**24, model.session)
    assert follow([GOOD] * 3)[-1][0] == 2**24
    model.variables["loss_scale/value"].load(2.0, model.session)
    assert [scale for scale, _ in follow([BAD] * 3)] == [1, 1, 1]


# --- Scaled losses in an Estimator -----------------------------------------------------------------------


def model_fn(features, labels, mode, params):
    """A model whose gradient is the value of its input."""
    del labels
    weights = tf.get_variable("weights", initializer=tf.constant([1.0, 2.0, 3.0]))
    loss = tf.reduce_sum(weights * features)
    train_op = optimization.create_optimizer(
        loss, 0.01, 100, 0, False, dataclasses.replace(
            FP16 if params["loss_scaling"] else StepConfig(),
            gradient_accumulation_steps=params.get("gradient_accumulation_steps", 1)))
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def train(model_dir, max_steps, bad=(), loss_scaling=True, micro_batches=1):
    """Trains up to `max_steps`. In the steps `bad`, counted from 0, the gradient is not finite."""
    def input_fn():
        bad_steps = tf.constant([-1, *bad], tf.int64)
        first = tf.cast(tf.train.get_global_step(), tf.int64) * micro_batches

        def gradient(index):
            is_bad = tf.reduce_any(tf.equal(bad_steps,
                                            index // micro_batches)) & tf.equal(index % micro_batches, 0)
            return tf.where(is_bad, np.inf, 1.0) * tf.sin(tf.cast(index + 1, tf.float32) * [1.0, 2.0, 3.0])
        return tf.data.Dataset.range(first, 1000).map(gradient)

    model = Estimator(model_fn, str(model_dir), RunConfig(save_checkpoints_steps=4, log_step_count_steps=None,
                                                          save_summary_steps=None,
                                                          gradient_accumulation_steps=micro_batches),
                      {"loss_scaling": loss_scaling})
    return model.train(input_fn, max_steps=max_steps)


def test_single_overflows_do_not_end_training_and_a_resumed_run_goes_on_with_the_scale(tmp_path):
    run = functools.partial(train, bad=[1, 2, 5], micro_batches=2)
    run(tmp_path / "whole", 8)
    run(tmp_path / "killed", 3)
    state = tensors_of(tmp_path / "killed/model.ckpt-3")
    assert (state["loss_scale/value"], state["loss_scale/skipped_in_a_row"]) == (2**13, 2)
    run(tmp_path / "killed", 8)
    found = tensors_of(tmp_path / "killed/model.ckpt-8")
    assert_equal(found, tensors_of(tmp_path / "whole/model.ckpt-8"))
    assert (found["loss_scale/value"], found["loss_scale/skipped_steps"],
            found["loss_scale/good_steps"]) == (2**12, 3, 2)


def test_twenty_skipped_steps_in_a_row_end_training(tmp_path):
    train(tmp_path, 3)
    with pytest.raises(NanLossError, match="(?s)20 steps in a row, up to step 23, are.*use bf16 or fp32"):
        train(tmp_path, 50, bad=range(3, 50))
    # A checkpoint is saved every 4 steps, but not at the end, because the training ended with an error.
    found, before = tensors_of(tmp_path / "model.ckpt-19"), tensors_of(tmp_path / "model.ckpt-3")
    assert checkpoint_formats.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-19")
    assert_array_equal(found["weights"], before["weights"])


def test_nineteen_do_not_and_single_ones_are_not_announced(tmp_path, caplog):
    with caplog.at_level("WARNING", "absl"):
        train(tmp_path, 22, bad=range(2, 21))
        assert tensors_of(tmp_path / "model.ckpt-22")["loss_scale/skipped_steps"] == 19
        assert caplog.messages[-1].startswith(
            "19 of the 22 steps of this run were skipped, because their gradients were not finite.")
        caplog.clear()
        train(tmp_path, 24, bad=[22])  # half of the steps
    assert "skipped" not in caplog.text


def test_a_training_goes_on_with_and_without_scaling(tmp_path):
    train(tmp_path / "plain", 6, loss_scaling=False)
    for steps, loss_scaling in ((2, False), (4, True), (6, False)):
        train(tmp_path / "changed", steps, loss_scaling=loss_scaling)
    expected = tensors_of(tmp_path / "plain/model.ckpt-6")
    assert_equal(tensors_of(tmp_path / "changed/model.ckpt-6"), expected)
    state = tensors_of(tmp_path / "changed/model.ckpt-4")
    assert {name: state[name] for name in state.keys() - expected} == {
        "loss_scale/value": 2**15, "loss_scale/good_steps": 2, "loss_scale/skipped_steps": 0,
        "loss_scale/skipped_in_a_row": 0}
    # The loss scale is not a weight of the model.
    names = checkpoint_formats.weight_names(
        checkpoint_formats.open_checkpoint(str(tmp_path / "changed/model.ckpt-4")))
    assert names == ["weights"]


# --- Instructions of the CPU -----------------------------------------------------------------------------


@pytest.mark.parametrize("flags, supports", [
    ("fpu avx512_bf16 sse", ["bf16"]), ("amx_bf16", ["bf16"]), ("fpu avx512_fp16 avx2", ["fp16"])])
def test_the_instructions_of_the_cpu(flags, supports, whole_one_dnn, monkeypatch):
    """test_run_classifier.py has the warning."""
    monkeypatch.setattr(native, "cpuinfo", lambda: [f"flags\t\t: {flags}\n"])
    assert supported() == supports


def supported():
    return [name for name in IN_16_BITS if one_dnn.cpu_supports.__wrapped__(modeling.PRECISIONS[name])]


@pytest.mark.parametrize("limit, supports", [
    ("", ["bf16", "fp16"]), ("default", ["bf16", "fp16"]), ("AVX512_CORE_VNNI", []),
    ("AVX512_CORE_AMX", ["bf16"]), ("AVX512_CORE_FP16", ["bf16", "fp16"]),
    ("AVX10_1_512_AMX_FP16", ["bf16", "fp16"])])
@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_what_the_environment_keeps_from_one_dnn_counts_as_not_there(
        limit, supports, variable, whole_one_dnn, monkeypatch):
    monkeypatch.setenv(variable, limit)
    monkeypatch.setattr(native, "cpuinfo", lambda: ["flags: avx512_bf16 avx512_fp16"])
    assert supported() == supports
