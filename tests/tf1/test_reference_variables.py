"""Idioms of reference variables work with resource variables, which a program of TensorFlow 1 now gets."""

import numpy as np
import pytest
from tensorflow.python.ops import gen_state_ops, state_ops

import tf1 as tf

pytestmark = pytest.mark.usefixtures("graph")


def ones():
    return tf.get_variable("v", [2], initializer=tf.ones_initializer())


def values(*fetches):
    """Returns the values of the fetches, in this order, in one session. Each fetch is a separate run."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [np.array(session.run(fetch)).tolist() for fetch in fetches]


def test_a_variable_starts_with_the_initialized_value_of_another():
    first = tf.get_variable("first", [3], initializer=tf.random_normal_initializer())
    second = tf.get_variable("second", initializer=first.initialized_value() * 2)
    a, b = values(first, second)
    assert np.array_equal(np.float32(a) * 2, np.float32(b))


def test_the_name_of_a_variable_is_fetched_as_its_value():
    ones()
    tf.get_local_variable("local", initializer=3.0)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), "local/Assign"])
        found = session.run({"names": ["v:0", "local:0"], "op": "init"})
        handle = session.run(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[]))
        with pytest.raises(ValueError, match="cannot be interpreted as a Tensor.*'none:0'"):
            session.run("none:0")
    assert found["names"][0].tolist() == [1, 1] and found["names"][1] == 3 and found["op"] is None
    assert handle.dtype != np.float32  # the graph does not know the variable of this handle


@pytest.mark.parametrize("statement, result", [
    ("v += 1.0", [2, 2]), ("v -= 3.0", [-2, -2]), ("v *= 4.0", [4, 4]), ("v /= 2.0", [0.5, 0.5])])
def test_an_operation_in_place_gives_a_tensor_and_leaves_the_variable(statement, result):
    variable = ones()
    found = {"v": variable}
    exec(statement, found)
    assert values(found["v"], variable) == [result, [1, 1]]


def test_a_value_of_another_shape_is_assigned_without_validation():
    variable = ones()
    assigned = state_ops.assign(variable, [4.0, 5.0, 6.0], validate_shape=False)
    assert assigned.shape == [3] and values(assigned, variable) == [[4, 5, 6]] * 2
    with pytest.raises(ValueError, match="(?i)shape"):
        tf.assign(variable, [1.0, 2.0, 3.0])
    assert values(tf.assign(variable, [7.0, 8.0], validate_shape=False)) == [[7, 8]]


def test_a_reference_of_a_variable_is_assigned_to():
    variable = ones()
    assert values(tf.assign(variable._ref(), [3.0, 4.0]), variable) == [[3, 4], [3, 4]]


class Descent(tf.train.Optimizer):
    """An optimizer as it was written in 2018."""

    def __init__(self):
        super().__init__(False, "Descent")

    def _apply_dense(self, gradient, variable):
        return state_ops.assign_sub(variable, 0.5 * gradient)

    def _apply_sparse(self, gradient, variable):
        return tf.scatter_sub(variable, gradient.indices, 0.5 * gradient.values)


class OverAdam(tf.train.AdamOptimizer):
    """Replaces Adam's update for dense gradients, and keeps its update for sparse gradients."""

    def _apply_dense(self, gradient, variable):
        return state_ops.assign_sub(variable, 100 * gradient)


class Newer(Descent):
    """An optimizer with methods for reference variables and for resource variables."""

    def _apply_dense(self, gradient, variable):
        raise AssertionError

    def _resource_apply_dense(self, gradient, variable):
        return variable.assign_sub(2 * gradient)


def squares(variable):
    return tf.reduce_sum(variable ** 2)


def looked_up(variable):
    return tf.reduce_sum(tf.nn.embedding_lookup(variable, [0, 0]))  # its gradient is sparse


@pytest.mark.parametrize("optimizer, loss, after", [
    (Descent, squares, [0, 0]), (OverAdam, squares, [-199, -199]), (Newer, squares, [-3, -3]),
    (Descent, looked_up, [0, 1]), (OverAdam, looked_up, [0.999, 1])])
def test_an_optimizer_updates_as_it_says(optimizer, loss, after):
    variable = ones()
    step = optimizer().minimize(loss(variable))
    assert values(step, variable)[1] == pytest.approx(after, abs=1e-6)


def test_a_program_that_disables_v2_behavior_once_more_keeps_its_variables():
    tf.disable_v2_behavior()
    assert tf.resource_variables_enabled()
    tf.disable_resource_variables()
    try:
        tf.compat.v1.disable_v2_behavior()
        assert not tf.resource_variables_enabled()
    finally:
        tf.enable_resource_variables()


def test_the_error_of_a_generated_op_says_what_to_do():
    with pytest.raises(TypeError, match=r"mutable tensor.*tf\.disable_resource_variables\(\)"):
        gen_state_ops.assign_add(ones(), [1.0, 1.0])
    tf.disable_resource_variables()
    try:
        reference = tf.get_variable("r", [2], initializer=tf.ones_initializer())
        assert values(gen_state_ops.assign_add(reference._ref(), [1.0, 1.0])) == [[2, 2]]
        assert values(tf.assign(reference, [1.0], validate_shape=False)) == [[1]]
    finally:
        tf.enable_resource_variables()


def test_a_variable_is_true():
    variable = ones()
    assert (1 if variable else 2, not variable, [v for v in (variable, None) if v]) == (1, False, [variable])


@pytest.mark.parametrize("initial", [
    lambda first: first * 2, lambda first: first, lambda first: tf.gather(tf.stack([first, first * 2]), 1)])
def test_an_initial_value_uses_the_initial_values_of_other_variables(initial):
    first = tf.Variable([3.0], name="first")
    second = tf.Variable(initial(first))
    with tf.Session() as session:
        session.run(second.initializer)  # the first variable has no value yet
        assert session.run(second)[0] in (3, 6)


def test_a_variable_is_fed_by_name_or_as_an_object():
    variable = ones()
    doubled, total = variable * 2, tf.reduce_sum(variable) + variable.read_value()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([doubled, total], {variable: [3, 4]})[0].tolist() == [6, 8]
        assert session.run(total, {"v:0": [3, 4]}).tolist() == [10, 11]
        assert session.run(doubled).tolist() == [2, 2]
        looked_up = tf.nn.embedding_lookup(variable, [0])
        with pytest.raises(ValueError, match="v:0 cannot be fed, because the op ResourceGather.*disable_res"):
            session.run(looked_up, {variable: [3, 4]})


def test_the_tensor_with_the_name_of_a_variable_is_its_value():
    variable = ones()
    found = tf.get_default_graph().get_tensor_by_name("v:0")
    assert values(found * 3, tf.gradients(found * 2, found)[0]) == [[3, 3], [2, 2]]
    assert found is variable
    step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False)
    assert tf.train.get_global_step() is step  # the variable is in no collection of steps


def test_an_imported_variable_has_what_a_new_one_has(tmp_path):
    tf.get_variable("w", [3, 1])
    tf.train.export_meta_graph(str(tmp_path / "w.meta"))
    with tf.Graph().as_default():  # as in the `build` of a Keras layer, which trains the variable
        tf.train.import_meta_graph(str(tmp_path / "w.meta"), import_scope="module")
        imported, = tf.global_variables()
        assert not vars(tf.get_variable("new", [1])).keys() - vars(imported).keys()
