"""Work that replicas share: their parts of a batch, evaluation, prediction, and votes."""

import functools
import types

from helpers import read_batches
import numpy as np
import pytest
from replica_threads import Replica, run_replicas
from small_models import counting_model
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.data.batches import Batch
from bertlib.estimator import replica_sync, session_hooks
from bertlib.estimator.estimator import Estimator
from bertlib.graph import collectives, graph_keys
from bertlib.system import stopping

EXAMPLES = 24


def batches(replica, steps=2, micro_batches=2, **options):
    """Returns the batches on which a replica trains in some steps, a list of dicts of arrays."""
    generator = np.random.RandomState(0)
    lengths = generator.randint(1, 33, EXAMPLES)
    mask = (np.arange(32) < lengths[:, np.newaxis]).astype(np.int32)
    arrays = {"mask": mask, "number": np.arange(EXAMPLES, dtype=np.int32),
              "weight": generator.rand(EXAMPLES).astype(np.float32)}
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        tf.train.create_global_step()
        if replica:
            tf.add_to_collection(graph_keys.ALL_REDUCE, collectives.AllReduce(replica))
        count = replica.count if replica else 1
        batch = Batch(12, micro_batches, count, is_unequal=options.pop("is_unequal", False))
        dataset = input_pipeline.training_dataset(input_pipeline.array_examples(arrays), batch, **options)
        return read_batches(dataset, steps * micro_batches)


@pytest.mark.parametrize("options", [
    dict(), dict(batch_totals=["weight"]), dict(trimmed_fields=["mask"], batch_totals=["weight"]),
    dict(trimmed_fields=["mask"], is_unequal=True, batch_totals=["weight"])],
    ids=["plain", "totals", "trimmed", "by tokens"])
def test_replicas_have_the_parts_that_one_process_has(options):
    count = 2
    alone = batches(None, micro_batches=2 * count, **options)
    found = [batches(Replica(index, count), **options) for index in range(count)]
    for number, whole in enumerate(alone):
        micro_batch, index = divmod(number, count)
        np.testing.assert_equal(found[index][micro_batch], whole)


def vote_of(said):
    """Returns a vote of replica 0. The other replica answers with `said`, and has the same weights."""
    with tf.Graph().as_default():
        tf.get_variable("weights", initializer=np.float32([1]))
        return replica_sync.StepVote(
            Replica(0, 2, lambda own: [own, said if isinstance(own, tuple) else own]))


def training_that(ends=False, runs=None):
    """Returns a fake training session, which adds to the list `runs` when the weights are read."""
    return types.SimpleNamespace(should_stop=lambda: ends, raw_session=lambda: types.SimpleNamespace(
        run=lambda fetches: (runs if runs is not None else []).append(1) or [np.float32([1])]))


def test_one_replica_ends_all_and_a_request_to_stop_reaches_the_others():
    stop = stopping.StopRequest()
    vote = vote_of((False, False, False))
    assert not vote.synchronize(training_that(), stop)
    assert vote.synchronize(training_that(ends=True), stop) and not stop.is_set
    assert vote_of((True, False, False)).synchronize(training_that(), stop) and not stop.is_set
    assert vote_of((False, True, False)).synchronize(training_that(), stop) and stop.is_set


def test_weights_are_compared_after_each_checkpoint_and_in_the_end():
    vote, compared = vote_of((False, False, False)), []
    for saves, ends in ((False, False), (True, False), (False, False), (False, True)):
        if saves:
            vote.listener.after_save(None, 7)
        runs = []
        vote.synchronize(training_that(ends, runs), stopping.StopRequest())
        compared.append(len(runs))
    assert compared == [0, 1, 0, 1]


def test_weights_that_have_moved_away_become_those_of_replica_0(caplog):
    def work(group):
        given = {"weights": np.float32([1, 2, 3]), "halves": np.float16([1, 2]), "slot": np.float32([5])}
        if group.index == 1:
            given["weights"][1] = np.nextafter(np.float32(2), np.float32(3))
            given["slot"][0] = 6
        if group.index == 2:
            given["halves"][1] = np.nextafter(np.float16(2), np.float16(0))
        with tf.Graph().as_default(), tf.Session() as session:
            for name, value in given.items():
                tf.get_variable(name, initializer=value, trainable=name != "slot", use_resource=True)
            vote = replica_sync.StepVote(group)
            session.run(tf.global_variables_initializer())
            training = types.SimpleNamespace(should_stop=lambda: True, raw_session=lambda: session)
            found = []
            for _ in range(2):
                vote.synchronize(training, stopping.StopRequest())
                found.append([value.tolist() for value in session.run(tf.global_variables())])
            return found

    assert run_replicas(3, work) == [[[[1, 2, 3], [1, 2], [5]]] * 2] * 3
    assert [line.partition(". All replicas continue")[0] for line in caplog.messages] == [
        "replica 1 computed other weights than replica 0: 1 of 2 variables differed",
        "replica 2 computed other weights than replica 0: 1 of 2 variables differed"]


@pytest.mark.parametrize("error, is_reported", [
    (session_hooks.NanLossError("the loss is nan", 3), False),  # all replicas raise it
    (tf.errors.OutOfRangeError(None, None, "end of the input"), False), (ValueError("bad"), True)])
def test_an_error_of_one_replica_is_raised_and_only_its_own_is_reported(error, is_reported):
    reported = []
    with tf.Graph().as_default():
        vote = replica_sync.StepVote(types.SimpleNamespace(report_error=reported.append))
    with pytest.raises(type(error)), vote.reporting_errors():
        raise error
    assert reported == [error] * is_reported


def test_replicas_that_cannot_share_the_input_leave_the_evaluation_to_replica_0(tmp_path, monkeypatch):
    model = Estimator(counting_model, str(tmp_path))
    input_fn = functools.partial(tf.data.Dataset.from_tensor_slices, [[1.0, 2.0], [6.0, 7.0]])
    alone = model.evaluate(input_fn)
    assert alone["mean_x"] == 4
    monkeypatch.setattr(Replica, "barrier", lambda group: None, raising=False)
    # Replica 1 computes nothing. It only returns the value that replica 0 broadcasts, and here this is None.
    for group, expected in ((Replica(0, 2), alone), (Replica(1, 2), None)):
        monkeypatch.setattr(Estimator, "inference_group", group)
        monkeypatch.setattr(Estimator, "_writes_evaluations", group.is_first)
        assert model.evaluate(input_fn) == expected
