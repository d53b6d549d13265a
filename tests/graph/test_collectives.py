"""Sums over replicas in the graph of one replica: which tensors are sent, in which order, dtype and place."""


from helpers import ancestors
import pytest
from replica_threads import Replica
import tensorflow.compat.v1 as tf

from bertlib.graph import collectives

MEGABYTE = 2**20


REPLICA = Replica(1, 3)  # without the other replicas


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph, tf.device(collectives.replica_device(REPLICA)):
        yield graph


def added_up(megabytes, exchange_dtype=None, dtypes=(tf.float32,)):
    """Builds sums of variables with these sizes.

    Returns:
      (the `AllReduce`, ops after which the variables are ready, ops that assign the sums).
    """
    all_reduce = collectives.AllReduce(REPLICA, exchange_dtype)
    pairs = []
    for index, size in enumerate(megabytes):
        dtype = dtypes[index % len(dtypes)]
        variable = tf.get_variable(f"sum_{index}", [int(size * MEGABYTE) // dtype.size], dtype,
                                   tf.zeros_initializer(), use_resource=True)
        pairs.append((variable, variable.assign_add(tf.ones_like(variable), read_value=False)))
    return all_reduce, [add for _, add in pairs], all_reduce.sum_variables(pairs)


def journeys(graph):
    """Returns the all-reduce ops of a graph, in the order in which they were built."""
    return [op for op in graph.get_operations() if op.type == "CollectiveReduceV2"]


def bytes_of(op):
    return op.inputs[0].shape.num_elements() * op.inputs[0].dtype.size


@pytest.mark.parametrize("arguments, sent", [
    (dict(megabytes=[3, 3, 20, 3, 3, 1]), [(tf.float32, 20), (tf.float32, 9), (tf.float32, 4)]),
    (dict(megabytes=[6, 2, 6, 2], dtypes=[tf.float32, tf.float16]), [(tf.float32, 12), (tf.float16, 4)]),
    (dict(megabytes=[20, 3, 3], exchange_dtype=tf.bfloat16), [(tf.bfloat16, 10), (tf.bfloat16, 3)])],
    ids=["sizes", "dtypes", "bf16"])
def test_small_tensors_of_one_dtype_travel_together_and_large_ones_alone(arguments, sent, graph):
    *_, assigns = added_up(**arguments)
    assert [(op.inputs[0].dtype, bytes_of(op) / MEGABYTE) for op in journeys(graph)] == sent
    assert {op.inputs[1].dtype for op in assigns} == set(arguments.get("dtypes", [tf.float32]))
    names = [f"sum_{index}" for index in range(len(arguments["megabytes"]))]
    assert sorted(op.inputs[0].op.name for op in assigns) == names
    for op in journeys(graph):
        assert tf.get_static_value(op.inputs[1]) == 3  # replicas
        assert (op.get_attr("merge_op"), op.get_attr("final_op")) == (b"Add", b"Id")


def test_a_sum_waits_for_its_own_gradients_and_for_the_sums_before_it(graph):
    _, adds, _ = added_up([20, 5, 5, 20])
    sums = journeys(graph)
    waits_for = [[index for index, add in enumerate(adds) if add in ancestors(op)] for op in sums]
    assert waits_for == [[0], [0, 1, 2], [0, 1, 2, 3]]
    assert sums[0] in ancestors(sums[1]) and sums[1] in ancestors(sums[2])


def test_waiting_counts_from_a_copy_of_a_value_that_the_device_computes_after_the_last_gradient(graph):
    # With a control dependency, an op on a GPU is only started before the next op runs. To know when it has
    # ended, an op must read its value.
    all_reduce, adds, assigns = added_up([20, 3])
    value, = all_reduce.gradients_ready.op.inputs
    assert set(adds) <= ancestors(value.op) and not value.op.device.endswith("CPU:0")
    assert not set(journeys(graph)) & ancestors(all_reduce.gradients_ready.op)
    assert set(assigns) <= ancestors(all_reduce.seconds_waited(assigns, tf.zeros([])).op)
    assert "Timestamp" not in {op.type for op in graph.get_operations()}  # not allowed with deterministic ops


@pytest.mark.parametrize("wrong, advice", [(tf.bfloat16, "--gradient_dtype=fp32"),
                                           (tf.float32, "NCCL_P2P_DISABLE=1")])
def test_wrong_sums_end_the_training(wrong, advice, monkeypatch):
    monkeypatch.setattr(collectives, "session_target", lambda group, config: "")
    monkeypatch.setattr(collectives, "replica_device", lambda group: "")
    monkeypatch.setattr(collectives, "session_config", lambda config: config)
    monkeypatch.setattr(collectives.AllReduce, "sum", lambda self, tensor: tensor * (
        2 if tensor.dtype == wrong else 3))
    if wrong == tf.bfloat16:
        collectives.check_sums(REPLICA, None, None)  # bfloat16 is not used
    with pytest.raises(ValueError, match=f"sum of 1 in {wrong.name} over 3 replicas is 2.*{advice}"):
        collectives.check_sums(REPLICA, tf.bfloat16, None)
