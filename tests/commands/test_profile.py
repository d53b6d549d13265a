"""Profiles trace the requested steps, for TensorBoard and with a table in the log. They never end a run."""

import glob
import logging
import re

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from bertlib.estimator import profiling

PICOSECONDS = 10**12


def read_traces(directory):
    """Returns the traces under an output directory, a list of XSpace."""
    paths = sorted(glob.glob(f"{glob.escape(str(directory))}/plugins/profile/*/*.xplane.pb"))
    return [xplane_pb2.XSpace.FromString(open(path, "rb").read()) for path in paths]


# --- The hook ----------------------------------------------------------------------------------------------


def train(directory, first, last, start=0):
    """Trains a graph that only counts steps, for six steps. Returns the last step."""
    with tf.Graph().as_default():
        global_step = tf.train.create_global_step()
        step = tf.assign_add(global_step, 1)
        set_start = tf.assign(global_step, start)

        class Resume(tf.train.SessionRunHook):
            def after_create_session(self, session, coord):
                session.run(set_start)

        hooks = [Resume(), profiling.ProfileHook(str(directory), first, last)]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            for _ in range(6):
                done = session.run(step)
    return int(done)


@pytest.mark.parametrize("first, last, start, traced", [
    (1, 1, 0, 1), (2, 4, 0, 3), (6, 6, 0, 1), (3, 5, 4, 1), (4, 9, 0, 3)],
    ids=["first", "middle", "last", "resumed within", "ended within"])
def test_the_steps_asked_for_are_traced(tmp_path, caplog, first, last, start, traced):
    caplog.set_level(logging.INFO)
    train(tmp_path, first, last, start=start)
    trace, = read_traces(tmp_path)
    assert profiling.op_times(trace)["AssignAddVariableOp"][1] == traced
    assert f"Profile of steps {max(first, start + 1)} to {min(last, start + 6)}, " in caplog.text
    assert re.search(rf"% +\d\.\d+ s +{traced} calls  AssignAddVariableOp", caplog.text)


def test_a_run_resumed_behind_the_steps_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    train(tmp_path, 3, 5, start=5)
    assert ("No profile is written: the steps 3 to 5 are already done, and the training continues after step "
            "5.") in caplog.text
    assert not list(tmp_path.iterdir())


def test_training_goes_on_if_the_trace_cannot_be_written(tmp_path, caplog):
    file = tmp_path / "file"
    file.write_text("")
    assert train(file, 2, 3) == 6
    assert "Steps 2 to 3 could not be profiled. The training goes on. Reason: " in caplog.text
    # A later trace works.
    train(tmp_path / "later", 2, 3)
    assert len(read_traces(tmp_path / "later")) == 1


# --- The table ---------------------------------------------------------------------------------------------


def plane_of(space, name, *lines):
    """Adds a plane to an XSpace. An event is (name, start, end[, value of tf_op]), with times in seconds."""
    plane = space.planes.add(name=name)
    plane.stat_metadata[1].name = "tf_op"
    for events in lines:
        line = plane.lines.add()
        for name, start, end, *op in events:
            key = len(plane.event_metadata) + 1
            plane.event_metadata[key].name = name
            event = line.events.add(metadata_id=key, offset_ps=start * PICOSECONDS,
                                    duration_ps=(end - start) * PICOSECONDS)
            if op:
                plane.stat_metadata[1 + key].name = op[0]
                event.stats.add(metadata_id=1, ref_value=1 + key)


def test_an_ops_time_is_without_those_inside_it_and_what_is_no_op_does_not_count():
    space = xplane_pb2.XSpace()
    plane_of(space, "/host:CPU",
             [("ThreadpoolListener::Record", 0, 50), ("a/b:MatMul", 10, 12), ("call:PartitionedCall", 0, 10),
              ("c:MatMul", 1, 4), ("d:Mul", 4, 9), ("e:Mul", 5, 6)],
             [("f:MatMul", 3, 8)], [("CpuExecutable::ExecuteAsyncOnStream", 0, 3), ("multiply_fusion", 1, 2)])
    assert profiling.op_times(space) == {
        "(compiled by XLA)": (pytest.approx(3), 1),
        "PartitionedCall": (pytest.approx(2), 1), "MatMul": (pytest.approx(10), 3),
        "Mul": (pytest.approx(5), 2)}


def test_kernels_on_gpus_count_instead_of_their_launch():
    space = xplane_pb2.XSpace()
    plane_of(space, "/host:CPU", [("a:MatMul", 0, 1)])
    plane_of(space, "/device:GPU:0",
             [("sgemm", 0, 7, "a:MatMul"), ("copy", 7, 8), ("sgemm", 8, 9, "b:MatMul")])
    assert profiling.op_times(space) == {"MatMul": (pytest.approx(8), 2)}
