"""Gradient accumulation: a step of several micro-batches has the same result as a step of one large batch."""

from helpers import comparable
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
import modeling
import optimization

BATCH, LENGTH, STEPS = 32, 8, 8
CONFIG = modeling.BertConfig(
    vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
    hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, max_position_embeddings=LENGTH,
    type_vocab_size=2, initializer_range=0.2)
SESSION = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)


def effective_batch():
    """Returns {feature: array}: the same 32 examples for each step. Their numbers of weights are different.
    """
    chance = np.random.RandomState(3)
    counted = np.arange(LENGTH) < chance.randint(1, LENGTH + 1, [BATCH, 1])
    return {"ids": chance.randint(CONFIG.vocab_size, size=[BATCH, LENGTH]),
            "words": chance.randint(CONFIG.vocab_size, size=[BATCH, LENGTH]),
            "weights": counted.astype(np.float32),
            "weights_total": np.full([BATCH], counted.sum(), np.float32)}


# --- Training by hand, as a loop does it -----------------------------------------------------------------


def make_index():
    """Creates the variable with the index of the micro-batch. A training loop does this before the model."""
    index = tf.get_variable("micro_batch", shape=[], dtype=tf.int64, initializer=tf.zeros_initializer(),
                            trainable=False,
                            collections=[tf.GraphKeys.LOCAL_VARIABLES, optimization.MICRO_BATCH_INDEX])
    randomness.set_micro_batch(index)
    return index


def initialize(session):
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])


def weights_in(session):
    """Returns all weights in one array, without those that contain only rounding noise (see `comparable`)."""
    arrays = session.run({variable.op.name: variable for variable in tf.trainable_variables()})
    return np.concatenate([array.ravel() for array in comparable(arrays).values()])


def trained(steps):
    """Returns (weights before, weights after, losses, gradient norms) of a training.

    The loss is a mean over the weights of the effective batch. Its micro-batches have different weights.
    """
    arrays, size = effective_batch(), BATCH // steps
    with tf.Graph().as_default() as graph, tf.Session(config=SESSION) as session:
        tf.train.get_or_create_global_step()
        if steps > 1:
            make_index()
        features = {name: tf.placeholder(array.dtype, [size, *array.shape[1:]])
                    for name, array in arrays.items()}
        model = modeling.BertModel(CONFIG, True, tf.cast(features["ids"], tf.int32))
        logits = 4.0 * tf.einsum("bfw,vw->bfv", model.get_sequence_output(), model.get_embedding_table())
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=features["words"], logits=logits)
        loss = steps * tf.reduce_sum(features["weights"] * losses) / (features["weights_total"][0] + 1e-5)
        train_op = optimization.create_optimizer(loss, 5e-5, 100, 0, False, gradient_accumulation_steps=steps)
        for accumulation in tf.get_collection(optimization.GRADIENT_ACCUMULATION):
            loss = accumulation.loss
        fetched = [[loss, graph.get_operation_by_name("gradient_norm").outputs[0]], train_op]
        *feeds, last = [{placeholder: arrays[name][part * size:(part + 1) * size]
                         for name, placeholder in features.items()} for part in range(steps)]
        initialize(session)
        before, seen = weights_in(session), []
        for _ in range(STEPS):
            for feed in feeds:
                session.run(accumulation.accumulate_op, feed)
            seen.append(session.run(fetched, last)[0])
        assert session.run(tf.train.get_global_step()) == STEPS
        return before, weights_in(session), *np.transpose(seen)


# --- The same weights ------------------------------------------------------------------------------------


def test_splitting_a_batch_changes_no_weight():
    start, whole, losses, norms = trained(steps=1)
    same_start, split, split_losses, split_norms = trained(steps=4)
    np.testing.assert_array_equal(start, same_start)
    assert norms.min() > 1.0  # so the gradients are clipped, and the norm matters
    assert np.linalg.norm(split - whole) <= 1e-4 * np.linalg.norm(whole - start)
    np.testing.assert_allclose(split_losses, losses, rtol=1e-5)
    np.testing.assert_allclose(split_norms, norms, rtol=1e-5)


# --- Accumulators ----------------------------------------------------------------------------------------


def small(steps):
    """Returns (placeholder of a factor of the loss, Accumulation or None, train op) of a small problem.

    One of its variables is a table: the loss uses only some of its rows.
    """
    kernel = tf.get_variable("dense/kernel", initializer=tf.ones([2, 3]))
    table = tf.get_variable("table", initializer=tf.ones([4, 2]))
    tf.get_variable("pooler/kernel", initializer=tf.ones([2]))
    factor = tf.placeholder_with_default(1.0, [])
    value = factor * (tf.reduce_sum(kernel) + tf.reduce_sum(tf.gather(table, [1, 1, 3])))
    train_op = optimization.create_optimizer(value, 0.1, 10, 0, False, gradient_accumulation_steps=steps)
    found = tf.get_collection("gradient_accumulation")
    assert len(found) == (steps > 1)
    return factor, found[0] if found else None, train_op


@pytest.mark.usefixtures("graph")
def test_one_micro_batch_has_no_accumulator():
    small(steps=1)
    assert tf.local_variables() == []


@pytest.mark.usefixtures("graph")
def test_the_sums_grow_by_each_micro_batch_and_are_zero_after_the_step():
    index = make_index()
    factor, accumulation, train_op = small(steps=3)
    assert accumulation.steps == 3
    sums = {variable.op.name: variable for variable in tf.local_variables() if variable is not index}
    assert set(sums) == {"dense/kernel/accumulated_gradient", "table/accumulated_gradient",
                         "accumulated_loss", "accumulated_slice_squares"}
    with tf.Session() as session:
        initialize(session)
        for _ in range(2):
            session.run(accumulation.accumulate_op, {factor: 2.0})
            session.run(accumulation.accumulate_op, {factor: 3.0})
            found = session.run(sums)
            np.testing.assert_array_equal(found["dense/kernel/accumulated_gradient"], np.full([2, 3], 5.0))
            np.testing.assert_array_equal(found["table/accumulated_gradient"],
                                          [[0, 0], [10, 10], [0, 0], [5, 5]])
            assert found["accumulated_slice_squares"] == 6 * (2.0**2 + 3.0**2)  # six numbers in three slices
            assert session.run(index) == 2
            session.run(train_op, {factor: np.nan})
            for name, values in session.run(sums).items():
                np.testing.assert_array_equal(values, np.zeros_like(values), err_msg=name)  # even after NaN
            assert session.run(index) == 0


def make_a_step_and_begin_another(directory, steps):
    """Makes a step and begins another one, in a session that restores and saves checkpoints.

    Returns [(name, shape)] of the newest checkpoint.
    """
    with tf.Graph().as_default():
        _, accumulation, train_op = small(steps)

        def accumulate(step_context):
            for _ in range(steps - 1):
                step_context.session.run(accumulation.accumulate_op)

        with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, save_checkpoint_steps=1,
                                               save_checkpoint_secs=None, save_summaries_steps=None,
                                               save_summaries_secs=None) as session:
            assert not any(np.any(values) for values in session.run(tf.local_variables()))
            session.run_step_fn(accumulate)
            session.run(train_op)
            session.run_step_fn(accumulate)
    return tf.train.list_variables(tf.train.latest_checkpoint(directory))


def test_checkpoints_hold_no_accumulators_and_a_new_session_starts_with_zeros(tmp_path):
    for _ in range(2):
        one, three = (make_a_step_and_begin_another(str(tmp_path / str(steps)), steps) for steps in (1, 3))
        assert one == three
    assert tf.train.latest_checkpoint(str(tmp_path / "3")).endswith("-2")


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("steps", [0, -1])
def test_a_step_takes_at_least_one_micro_batch(steps):
    with pytest.raises(ValueError, match=f"gradient_accumulation_steps={steps}: a step takes at least 1"):
        small(steps)
    assert tf.global_variables() == tf.trainable_variables()


# --- Memory ----------------------------------------------------------------------------------------------


WIDTH, DEPTH = 200, 10


def allocations(session, op):
    """Records the memory that one run of an op allocates.

    Returns:
      ({node: [(microseconds, bytes)]}, constants of the graph that was run). Bytes are negative if memory was
      freed.
    """
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    metadata = tf.RunMetadata()
    session.run(op, options=options, run_metadata=metadata)
    records = {node.node_name: [(record.alloc_micros, record.alloc_bytes) for memory in node.memory
                                for record in memory.allocation_records]
               for device in metadata.step_stats.dev_stats for node in device.node_stats}
    return records, [tf.make_ndarray(node.attr["value"].tensor) for graph in metadata.partition_graphs
                     for node in graph.node if node.op == "Const"]


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("optimizer, temporaries", [("adamw", 1), *(
    pytest.param(*values, marks=pytest.mark.slow(reason="two more traces of a step"))
    for values in (("adafactor", 2), ("lamb", 2), ("sgdm", 1)))])
def test_an_update_adds_a_temporary_or_two_of_one_variable_and_works_in_place(optimizer, temporaries, steps):
    kernel = 4 * WIDTH * WIDTH  # bytes
    values = tf.ones([1, WIDTH]) * tf.placeholder_with_default(1.0, [])
    for index in range(DEPTH):
        values = tf.tanh(tf.matmul(values, tf.get_variable(f"layer_{index}/kernel", [WIDTH, WIDTH])))
    train_op = optimization.create_optimizer(tf.reduce_mean(values), 1e-3, 10, 0, False, optimizer=optimizer,
                                             gradient_accumulation_steps=steps)
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=8)) as session:
        initialize(session)
        session.run(train_op)
        records, constants = allocations(session, train_op)
    # No variable may get new memory in a step, except for the accumulators: the step sets each one to new
    # zeros.
    kept = {node for node, changes in records.items() if sum(size for _, size in changes) > kernel // 2}
    assert len(kept) == (0 if steps == 1 else DEPTH)
    changes = sorted(change for node in records.keys() - kept for change in records[node])
    peak = np.cumsum([size for _, size in changes]).max() / kernel
    # With accumulation, the gradients are in the accumulators, so only temporaries are allocated. Without it,
    # all gradients exist at the same time: they wait until the norm of all of them is known.
    assert peak < (DEPTH + 1 if steps == 1 else temporaries) + 0.5
    # A session keeps the memory of its constants. So the zeros of a step must not be constants of the graph.
    assert max(constant.nbytes for constant in constants) < kernel
