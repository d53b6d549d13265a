"""Two replicas skip a step like one process: if one of them has a gradient that is not finite.

The promise `replicas` in tests/conformance compares bits and losses of --num_replicas=2 with two
micro-batches.
"""

from helpers import tensors_of
import numpy as np
import pytest
from rows import ROWS
from scripts import ROOT
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
flags.DEFINE_integer("micro_batches", 1, "")
flags.DEFINE_string("output_dir", None, "")
common_flags.define(shared_flags.REPLICAS)


def model_fn(features, labels, mode, params):
    weights = tf.get_variable("weights", initializer=tf.constant([1.0, 2.0, 3.0]))
    loss = tf.reduce_sum(weights * features)
    train_op = optimization.create_optimizer(loss, 0.01, 100, 0, False, optimization.StepConfig(
        gradient_accumulation_steps=FLAGS.micro_batches, precision="fp16"))
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    numbers = np.arange(100, dtype=np.float32)[:, np.newaxis]
    rows = np.sin((numbers + 1) * [1, 2, 3]).astype(np.float32)
    rows[[3, 5, 11]] = np.inf  # the second part of three steps
    return tf.data.Dataset.from_tensor_slices(rows)


def main(_):
    config = RunConfig(save_checkpoints_steps=4, gradient_accumulation_steps=FLAGS.micro_batches)
    Estimator(model_fn, FLAGS.output_dir, config).train(input_fn, max_steps=30)


if __name__ == "__main__":
    launch.run(main, description="Trains.")
"""


def test_a_step_is_skipped_by_all_replicas_if_one_has_an_overflow(run_script, tmp_path):
    (tmp_path / "train.py").write_text(BROKEN.format(root=str(ROOT)))
    found = []
    for split in ("num_replicas", "micro_batches"):
        run_script(tmp_path / "train.py", *tiny.flags(output_dir=split, **{split: 2})).assert_success()
        found.append(tensors_of(tmp_path / split))
    shared, alone = found
    assert (shared["global_step"], shared["loss_scale/skipped_steps"]) == (30, 3)
    assert shared.keys() == alone.keys()
    for name, values in shared.items():
        np.testing.assert_array_equal(values, alone[name], err_msg=name)


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
