"""Programs of 2018 that look up ops by name, edit graphs, request a thousand threads, or use odd weights."""

import types

from absl import logging
from graphs import names, normal
from helpers import evaluate
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest

from bertlib.system import replica_group
import tf1 as tf

N = 3

# --- Names of the results of crf_decode ------------------------------------------------------------------


def test_decoded_tags_of_any_length_have_the_op_names_of_tensorflow_1(session):
    with tf.name_scope("loss"):
        scores = tf.placeholder_with_default(normal(2, 4, N), [None, None, N])
        found = tf.contrib.crf.crf_decode(scores, tf.constant(normal(N, N)), tf.constant([1, 4]))
    assert [tensor.op.name for tensor in found] == ["loss/cond/Merge", "loss/cond/Merge_1"]
    tags, scores = session.run(["loss/cond/Merge:0", "loss/cond/Merge_1:0"])
    assert tags.shape == (2, 4) and scores.shape == (2,)


def test_ops_after_a_decoding_are_numbered_as_in_tensorflow_1(graph):
    scores, transitions = tf.constant(normal(2, 4, N)), tf.constant(normal(N, N))
    found = [tf.contrib.crf.crf_decode(scores, transitions, [4, 2]) for _ in range(2)]
    assert [names([tags, best]) for tags, best in found] == [
        ["ReverseSequence_1", "Max"], ["ReverseSequence_3", "Max_1"]]
    assert tf.argmax(scores, -1).op.name == "ArgMax_2" and tf.reduce_max(scores).op.name == "Max_2"


# --- tf.contrib.graph_editor -----------------------------------------------------------------------------


def test_a_program_recomputes_by_editing_the_graph(session):
    """Programs copy the ops before a tensor. The copies wait for a gradient, and their results replace it."""
    ge = tf.contrib.graph_editor
    tf.train.get_or_create_global_step()
    x = tf.placeholder_with_default(normal(5, 8), [None, 8])
    first = tf.nn.dropout(tf.layers.dense(x, 8, tf.tanh), 0.5)
    loss = tf.reduce_sum(tf.layers.dense(first, 8, tf.tanh) ** 2)
    forward = ge.get_forward_walk_ops([variable.op for variable in tf.trainable_variables()],
                                      within_ops=ge.get_backward_walk_ops(loss.op))
    copied = [op for op in ge.get_backward_walk_ops(loss.op, stop_at_ts=[first])
              if op in forward and op.inputs and op.type != "ReadVariableOp"]
    view, info = ge.copy_with_input_replacements(ge.sgv(copied), {})
    again = info.transformed(loss)
    assert len(view.ops) == len(copied) and info.transformed(loss.op) is again.op is not loss.op
    cut = tf.stop_gradient(first)
    assert ge.reroute_ts([cut], [first], can_modify=info._transformed_ops.values()) == 1
    ge.add_control_inputs(again.op, [x.op])
    assert again.op.control_inputs == [x.op] and tf.gradients(again, first) == [None]
    session.run(tf.global_variables_initializer())
    pairs = [(again, loss), (tf.gradients(again, cut)[0], tf.gradients(loss, first)[0])]
    for ours, theirs in session.run(pairs):
        assert np.abs(theirs).max() > 0
        assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_ops_and_tensors_are_chosen_by_name_and_place(graph):
    ge = tf.contrib.graph_editor
    a = tf.constant(1.0, name="a")
    b = tf.identity(a, name="b")
    c = tf.multiply(b, b, name="c")
    assert ge.get_backward_walk_ops(c, inclusive=False) == [b.op, a.op]
    assert ge.get_forward_walk_ops(a, within_ops=[a.op, b.op]) == [a.op, b.op]
    assert ge.filter_ts_from_regex([c.op, b.op], "b$") == [b] and ge.select_ops("[ac]") == [a.op, c.op]
    assert ge.reroute_ts([b], [a]) == 0  # b itself keeps its input
    tf.cond(a > 0.0, lambda: a + 1.0, lambda: a)
    with pytest.raises(NotImplementedError, match="cond/Merge is control flow, which is not copied"):
        ge.copy_with_input_replacements(ge.sgv(ge.select_ops("cond/")), {})


# --- Options of sessions ---------------------------------------------------------------------------------


def options_of_session(asked, kind=tf.Session):
    """Returns the `tf.ConfigProto` that a session uses if a script asks for another one."""
    with tf.Graph().as_default():
        session = kind(config=asked)
        session.close()
        return session._config


def test_a_session_has_no_more_threads_than_are_of_use(monkeypatch):
    messages = []
    monkeypatch.setattr(logging, "log_first_n", lambda level, text, count, *values: messages.append(
        (level, count, text % values)))
    asked = tf.ConfigProto(intra_op_parallelism_threads=1024, inter_op_parallelism_threads=1000,
                           allow_soft_placement=True)
    for kind in (tf.Session, tf.InteractiveSession):
        used = options_of_session(asked, kind)
        assert 0 < used.intra_op_parallelism_threads <= 64 and 0 < used.inter_op_parallelism_threads <= 64
        assert used.allow_soft_placement and asked.intra_op_parallelism_threads == 1024
    (level, count, text), _ = messages
    assert (level, count) == (logging.WARNING, 1) and "intra_op_parallelism_threads=1024" in text
    used = options_of_session(tf.ConfigProto(intra_op_parallelism_threads=3))
    assert used.intra_op_parallelism_threads == 3 and len(messages) == 2


@pytest.mark.parametrize("listed, used", [("0,1", ""), ("0", "0"), ("11", "11")])
def test_a_replica_uses_its_own_gpu_where_a_script_names_it_by_the_local_rank(listed, used, monkeypatch):
    asked = tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list=listed, allow_growth=True))
    for group, expected in ((types.SimpleNamespace(local_index=1), used), (None, listed)):
        monkeypatch.setattr(replica_group, "_group", group)
        found = options_of_session(asked).gpu_options
        assert found.visible_device_list == expected and found.allow_growth
    assert asked.gpu_options.visible_device_list == listed


@pytest.mark.parametrize("listed, shown", [("0,1", ["a", "b"]), ("", None), ("2", None), ("one", None)])
def test_the_context_sees_the_gpus_of_the_session(listed, shown, monkeypatch):
    calls = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: calls.append((devices, kind)))
    options_of_session(tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list=listed)))
    assert calls == ([] if shown is None else [(shown, "GPU")])


# --- Weights of metrics ----------------------------------------------------------------------------------

LABELS = np.array([[0, 1, 2], [1, 1, 2]])
PREDICTED = np.array([[0, 1, 1], [1, 2, 2]])


def matrix(weights):
    """Returns the confusion matrix of LABELS and PREDICTED, by a TensorFlow function that forks import."""
    from tensorflow.python.ops.metrics_impl import _streaming_confusion_matrix  # like forks

    with tf.Graph().as_default():
        labels, predicted = (tf.placeholder_with_default(values, [None, 3]) for values in (LABELS, PREDICTED))
        weights = tf.placeholder_with_default(np.float32(weights), [None] * np.ndim(weights))
        return evaluate(_streaming_confusion_matrix(labels, predicted, 3, weights)[1])


@pytest.mark.parametrize("weights, for_each", [
    ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]), ([1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3], [4, 5, 6]]),
    ([1, 2, 3], [[1, 2, 3], [1, 2, 3]]), ([1, 2], [[1, 1, 1], [2, 2, 2]])],
    ids=["two dimensions", "too many", "positions", "examples"])
def test_weights_of_another_length_than_the_labels_count(weights, for_each):
    expected = np.zeros([3, 3])
    np.add.at(expected, (LABELS, PREDICTED), for_each)
    assert_array_equal(matrix(weights), expected)


def test_weights_that_fit_nothing_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape of labels:\] \[4\] \[2 3\]"):
        matrix([1, 2, 3, 4])
