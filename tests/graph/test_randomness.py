"""Random numbers depend only on (seed, step, place, site)."""

import contextlib

from helpers import evaluate
import numpy as np
from numpy.testing import assert_array_equal
import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
import modeling

CONFIG = modeling.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                             intermediate_size=12, hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.4,
                             max_position_embeddings=8, type_vocab_size=2)
IDS = np.arange(12).reshape(2, 6)


@contextlib.contextmanager
def keyed_session(seed=None):
    """Yields (session, global step) of a new graph with a seed."""
    with tf.Graph().as_default(), tf.Session() as session:
        if seed is not None:
            tf.set_random_seed(seed)
        yield session, tf.train.get_or_create_global_step()


def draw(shape, site="here#0", seed=None, step=0):
    """Returns random numbers that are drawn once, in a new graph and session."""
    with keyed_session(seed) as (session, global_step):
        numbers = randomness.uniform(shape, site)
        global_step.load(step, session)
        return session.run(numbers)


# --- Uniform numbers ----------------------------------------------------------------------------------------


def test_numbers_are_what_they_were_when_this_was_written():
    # A resumed run must continue with the same numbers, also if an older version of this project started it.
    numbers = draw((4,), "bert/embeddings/dropout#0", seed=12345, step=700)
    assert_array_equal(numbers,
                       np.float32([0.5370358228683472, 0.9231173992156982, 0.9202401638031006,
                                   0.8745458126068115]))


def test_the_part_declared_last_counts(session):
    part = tf.placeholder(tf.int32, [])
    tf.train.get_or_create_global_step()
    randomness.set_micro_batch(tf.constant(0))
    randomness.set_micro_batch(part)
    numbers = randomness.uniform([2, 6], "here#0")
    whole = draw((6, 6))
    session.run(tf.global_variables_initializer())
    for index in range(3):
        assert_array_equal(session.run(numbers, {part: index}), whole[2 * index:2 * index + 2])


def test_without_a_global_step_each_run_draws_anew_and_stays_with_it(session):
    first, again = randomness.uniform([50], "here#0"), randomness.uniform([50], "here#0")
    ones = tf.ones([50])
    kept = modeling.dropout(ones, 0.5)
    gradient, = tf.gradients(kept, ones)
    runs = [session.run([first, again, kept, gradient]) for _ in range(3)]
    for one, other, mask, slope in runs:
        assert_array_equal(one, other)
        assert_array_equal(mask, slope)
    assert len({one.tobytes() for one, *_ in runs}) == 3
    assert len({mask.tobytes() for _, _, mask, _ in runs}) == 3


# --- Dropout in a model -------------------------------------------------------------------------------------


def run_model(has_heads):
    """Returns the sequence outputs of a model, in a new graph and session."""
    with keyed_session() as (session, _):
        if has_heads:
            tf.get_variable("head", [3], initializer=modeling.create_initializer())
            modeling.dropout(tf.ones([2, 8]), 0.3)
        model = modeling.BertModel(CONFIG, True, tf.constant(IDS, tf.int32))
        if has_heads:
            with tf.variable_scope("head"):
                modeling.dropout(model.get_pooled_output(), 0.3)
                tf.get_variable("kernel", [3], initializer=modeling.create_initializer())
        session.run(tf.global_variables_initializer())
        return session.run(model.get_sequence_output())


def test_a_head_beside_the_encoder_changes_neither_its_masks_nor_its_initial_weights():
    assert_array_equal(run_model(False), run_model(True))


def test_every_dropout_of_a_model_has_its_own_mask_of_the_right_share(graph):
    tf.train.get_or_create_global_step()
    modeling.BertModel(CONFIG, True, tf.constant(IDS.repeat(20, axis=0), tf.int32))
    comparisons = [op for op in tf.get_default_graph().get_operations()
                   if op.type == "GreaterEqual" and op.inputs[0].dtype == tf.int16]
    assert len(comparisons) == 1 + 3 * CONFIG.num_hidden_layers
    masks = evaluate([op.outputs[0] for op in comparisons])
    assert len({mask.ravel()[:100].tobytes() for mask in masks}) == len(masks)
    for mask in masks:
        assert abs(mask.mean() - 0.6) < 5 * (0.24 / mask.size)**0.5


# --- Initial weights ----------------------------------------------------------------------------------------


def initial_values(names, seed=None, step=0):
    with keyed_session(seed) as (session, global_step):
        variables = {}
        for name in names:
            with tf.variable_scope(name):
                variables[name] = tf.get_variable("kernel", [100, 50],
                                                  initializer=modeling.create_initializer(0.02))
        global_step.load(step, session)
        session.run(tf.variables_initializer(variables.values()))
        return session.run(variables)


def test_initial_values_are_normal_cut_at_two_standard_deviations():
    values = initial_values(["a"])["a"]
    assert np.abs(values).max() <= 0.04
    assert abs(values.mean()) < 0.001
    assert abs(values.std() - 0.02 * 0.8796) < 0.0005  # the standard deviation after the cut


def test_initial_values_depend_on_the_variable_and_the_seed_only():
    alone = initial_values(["b"])["b"]
    among_others = initial_values(["a", "b", "c"])
    assert_array_equal(among_others["b"], alone)
    assert_array_equal(initial_values(["b"], step=9)["b"], alone)
    assert len({values.tobytes() for values in among_others.values()}) == 3
    assert (initial_values(["b"], seed=1)["b"] != alone).any()


# --- Permutations -------------------------------------------------------------------------------------------


def test_permutations_are_what_they_were_when_this_was_written():
    order = randomness.permutation(1, 0, 1000)
    assert order.dtype == np.int64
    assert_array_equal(np.sort(order), np.arange(1000))
    # A resumed run must continue in the same order, also if an older version of this project started it.
    assert randomness.permutation(12345, 0, 8).tolist() == [7, 1, 3, 6, 2, 4, 0, 5]
    assert randomness.permutation(12345, 1, 8).tolist() == [7, 1, 2, 6, 0, 3, 5, 4]
