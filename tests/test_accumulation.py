"""Gradient accumulation: a step of several micro-batches has the same result as a step of one large batch."""

from helpers import initialize
import numpy as np
import pytest
from replica_threads import Replica
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline, tfrecord_files
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import graph_keys
import optimization

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
    train_op = optimization.create_optimizer(value, 0.1, 10, 0, False,
                                             StepConfig(gradient_accumulation_steps=steps))
    found = tf.get_collection(optimization.GRADIENT_ACCUMULATION)
    assert len(found) == (steps > 1)
    return factor, found[0] if found else None, train_op


@pytest.mark.usefixtures("graph")
def test_one_micro_batch_has_no_accumulator():
    small(steps=1)
    assert tf.local_variables() == []


@pytest.mark.usefixtures("graph")
def test_a_checkpoint_leaves_out_python_objects_without_a_warning(tmp_path, caplog):
    small(steps=2)
    tf.add_to_collection(graph_keys.ALL_REDUCE, object())
    records, fields = str(tmp_path / "records"), [input_pipeline.Field("id", "int64", ())]
    tfrecord_files.write_records(records, fields, [{"id": 1}])
    input_pipeline.record_examples(records, fields)
    input_pipeline.shard_input(Replica(0, 2))
    exported = tf.train.export_meta_graph()
    assert "logged_scalars" in exported.collection_def and not caplog.messages


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
    train_op = optimization.create_optimizer(tf.reduce_mean(values), 1e-3, 10, 0, False, StepConfig(
        optimizer=optimizer, gradient_accumulation_steps=steps))
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
