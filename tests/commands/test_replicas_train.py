"""Two replicas skip a step, or end, like one process: if one of them has a gradient that is not finite.

The promise `replicas` in tests/conformance compares the bits of --num_replicas=2 with two micro-batches.
"""

from helpers import tensors_of
import numpy as np
import pytest
from rows import ROWS
from scripts import ROOT
import tensorflow.compat.v1 as tf
import tiny

pytestmark = pytest.mark.slow(reason="starts a launcher with two fresh interpreters, and a run without")
BROKEN = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags
import optimization
from bertlib.commands import common_flags, launch
from bertlib.estimator.estimator import EstimatorSpec
from bertlib.tasks import shared_flags
from tf1._run.script_config import RunConfig  # for an input that is not ours
from tf1._run.script_estimator import Estimator

FLAGS = flags.FLAGS
flags.DEFINE_multi_integer("bad_step", [-1], "Steps with a gradient that is not finite in the last part.")
flags.DEFINE_integer("micro_batches", 1, "")
flags.DEFINE_bool("scaled", False, "")
flags.DEFINE_string("output_dir", None, "")
common_flags.define(shared_flags.REPLICAS)


def model_fn(features, labels, mode, params):
    weights = tf.get_variable("weights", initializer=tf.constant([1.0, 2.0, 3.0]))
    loss = tf.reduce_sum(weights * features)
    train_op = optimization.create_optimizer(loss, 0.01, 100, 0, False, optimization.StepConfig(
        gradient_accumulation_steps=FLAGS.micro_batches, precision="fp16" if FLAGS.scaled else "fp32"))
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    numbers = np.arange(100, dtype=np.float32)[:, np.newaxis]
    rows = np.sin((numbers + 1) * [1, 2, 3]).astype(np.float32)
    rows[[2 * step + 1 for step in FLAGS.bad_step if step >= 0]] = np.inf  # of two parts of a step
    return tf.data.Dataset.from_tensor_slices(rows)


def main(_):
    config = RunConfig(save_checkpoints_steps=4, gradient_accumulation_steps=FLAGS.micro_batches)
    Estimator(model_fn, FLAGS.output_dir, config).train(input_fn, max_steps=30)


if __name__ == "__main__":
    launch.run(main, description="Trains.")
"""


@pytest.fixture
def broken(scripts, run_script, tmp_path):
    """A function that trains on gradients, some of which are not finite.

    It returns (`scripts.Finished`, steps of the checkpoints, tensors of the last checkpoint).
    """
    (tmp_path / "train.py").write_text(BROKEN.format(root=str(ROOT)))

    def run(bad, **changes):
        output = tmp_path / "_".join(map(str, changes))
        flags = [*tiny.flags(output_dir=output, **changes), *(f"--bad_step={step}" for step in bad)]
        done = run_script(tmp_path / "train.py", *flags)
        newest = tf.train.latest_checkpoint(str(output))
        return done, int(newest.rpartition("-")[2]), tensors_of(newest)
    return run


def test_a_step_is_skipped_by_all_replicas_if_one_has_an_overflow(broken):
    (shared, step, weights), (alone, _, others) = (
        broken([1, 2, 5], scaled=True, **split) for split in (dict(num_replicas=2), dict(micro_batches=2)))
    assert (shared.code, alone.code, step) == (0, 0, 30), shared.err
    assert weights["loss_scale/skipped_steps"] == 3 and weights.keys() == others.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)


@pytest.mark.soak(reason="a launcher with two interpreters; above, replicas agree on what is not finite")
def test_a_loss_that_is_not_finite_in_one_replica_ends_all(broken):
    ends = [broken([5], **split) for split in (dict(num_replicas=2), dict(micro_batches=2))]
    assert ends[0][1] == ends[1][1] == 4
    lines = [done.err.splitlines()[-1] for done, _, _ in ends]
    assert [done.code for done, _, _ in ends] == [1, 1] and lines[0] == lines[1]
    assert "The loss of step 6 is inf" in lines[0]
    assert ends[0][0].err.count("train.py: error:") == 1


# --- Files -----------------------------------------------------------------------------------------------

# Python imports this module in each process. It lists the files that the second replica changes.
AUDIT = """
import json, os, sys
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.mkdir", "os.truncate"}
if json.loads(os.environ.get("BERT_REPLICA", "{}")).get("index") == 1:
    log = open(os.environ["CHANGED_FILES"], "a", buffering=1)
    log.write("started\\n")
    def watch(event, arguments):
        if event in CHANGES or event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            path = arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
            if not isinstance(path, int):  # a descriptor of an open file
                log.write(f"{event} {os.path.abspath(os.fsdecode(path))}\\n")
    sys.addaudithook(watch)
"""


@pytest.mark.parametrize("row", ["pairs", "SQuAD 2.0", "tagging, columns", "pre-training"])
def test_only_the_first_replica_writes(row, workspaces, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(AUDIT)
    work = workspaces(ROWS[row], untrained=True).copy(tmp_path / "work")
    changed = tmp_path / "changed.txt"
    done = work.run(work.row.script, **work.row.training_flags(num_replicas=2, eval_each_checkpoint=True),
                    environment={"PYTHONPATH": str(tmp_path), "CHANGED_FILES": str(changed)})
    done.assert_success()
    started, *changes = changed.read_text().splitlines()
    of_run = {change.partition(" ")[2] for change in changes if str(work.directory) in change}
    log = work.output / "replicas" / "1.log"
    assert started == "started" and of_run == {str(log.parent), str(log)}
