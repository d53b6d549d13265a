"""--use_xla changes time and memory, but no number beyond rounding, and recomputation still saves memory."""

import functools
import json
import sys

import conftest  # noqa: F401  sets the module path, also in the process that `run` starts
from helpers import comparable, tensors_of
import numpy as np
import pytest
import rows
from scripts import ROOT, run_fresh
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import formulas, kernel_choice
from bertlib.graph.recompute_grad import recompute_grad
import modeling

ROWS, FEW, WIDTH, LAYERS = 1 << 17, 50, 16, 12
PRODUCTS = 3  # number of products in a layer
TENSOR = 4 * ROWS * WIDTH / 2**20  # MiB of a tensor


# --- Recomputation, in a separate process: XLA must be requested before the first session -----------------


def layer(kernels, index, x):
    """[rows, WIDTH] -> [rows, WIDTH]"""
    with tf.variable_scope(f"layer_{index}"):
        for number in range(PRODUCTS):
            values = np.random.RandomState(PRODUCTS * index
                                           + number).standard_normal([WIDTH, WIDTH]).astype(np.float32)
            kernel = tf.get_variable(f"kernel_{number}", initializer=0.5 * values)
            x = modeling.dropout(modeling.gelu(tf.matmul(x, kernel), kernels), 0.1, kernels)
        return x


def resident(field):
    """Returns a size of this process in MiB: "VmRSS" is the present size, "VmHWM" the largest size so far."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


def measure(wrap, compiles, rows, layers):
    """Computes the gradients of the kernels, first with a few rows, and then with `rows` rows.

    Returns (gradients from a few rows, resident MiB after them, largest resident MiB with all rows).
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.get_or_create_global_step()
        kernels = kernel_choice.choose_kernels(True, tf.float32, StepConfig(use_xla=compiles))
        x = inputs = tf.placeholder(tf.float32, [None, WIDTH])
        for index in range(layers):
            x = wrap(functools.partial(layer, kernels, index))(x)
        gradients = tf.gradients(tf.reduce_mean(tf.square(x)), tf.trainable_variables())
        gradients, _ = tf.clip_by_global_norm(gradients, 1e-3)
        assert compiles == any(op.type == "PartitionedCall" for op in graph.get_operations())
        session.run(tf.global_variables_initializer())
        data = np.random.RandomState(0).standard_normal([rows, WIDTH]).astype(np.float32)
        found = session.run(gradients, {inputs: data[:FEW]})
        before = resident("VmRSS")
        if rows > FEW:
            session.run(gradients, {inputs: data})
        return found, before, resident("VmHWM")


def run(rows, layers, cwd):
    """Runs `main` in a new process, and returns the values that it prints."""
    done = run_fresh("tests/commands/test_xla.py", str(rows), str(layers), cwd=cwd,
                      PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'conformance'}")
    assert not done.code, done.err
    return json.loads(done.out)


@pytest.mark.slow(reason="measures what a process really allocates, "
                  "at sizes beside which XLA's own memory is small")
def test_what_is_recomputed_where_xla_compiles_is_not_kept_and_has_the_same_gradients(tmp_path):
    found = run(ROWS, LAYERS, tmp_path)
    # Recomputation keeps the input of each layer, and the tensors of one layer while they are computed
    # again. The bound is relative, because XLA's own buffers differ between CPUs. The measured ratios are
    # 0.34 to 0.41.
    assert found["recomputed"] < found["kept"] / 2
    # Without recomputation, the input of gelu, the output of dropout and a mask of each product are kept. If
    # the intermediate results of gelu were kept too, the memory would be larger by half.
    assert 2.25 * LAYERS * PRODUCTS * TENSOR < found["kept"] < 3.25 * LAYERS * PRODUCTS * TENSOR
    assert found["difference"] < 1e-4


def main(*sizes):
    """Prints as JSON the MiB of a step with and without recomputation, and the difference of the gradients.
    """
    # The step that needs less memory runs first, because the process keeps memory that it has allocated.
    recomputed, before, least = measure(recompute_grad, True, *sizes)
    kept, _, most = measure(lambda function: function, True, *sizes)
    plain, _, _ = measure(lambda function: function, False, FEW, sizes[1])
    differences = [np.abs(a - b).max() / np.abs(b).max() for found in (recomputed, kept)
                   for a, b in zip(found, plain)]
    print(json.dumps({"recomputed": least - before, "kept": most - before,
                      "difference": float(max(differences))}))


# --- The flag --------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="XLA compiles the formulas of a training step, and the step runs as a user runs it")
def test_a_compiled_run_is_the_same_run(workspaces):
    # The run has random numbers in the head, in the pooler, in the order of the examples and in dropout.
    # With XLA, trimmed lengths differ, and so do the masks.
    changes = dict(trim_padding=False, do_eval=False, do_predict=False)
    outputs = [workspaces(rows.ROWS["pairs"], **changes, **flags).output
               for flags in ({}, {"use_xla": True, "recompute": "layers"})]
    graphs = [tf.MetaGraphDef.FromString((output / "model.ckpt-8.meta").read_bytes()).graph_def
              for output in outputs]
    calls = [sum(node.op == "PartitionedCall" for node in graph.node) for graph in graphs]
    assert calls[0] == 0 < calls[1]
    plain, compiled = map(tensors_of, outputs)
    assert plain.keys() == compiled.keys()
    for name, values in comparable(plain).items():
        np.testing.assert_allclose(compiled[name], values, rtol=0, atol=1e-5, err_msg=name)


def test_with_xla_trimmed_batches_have_few_lengths(graph):
    mask = np.zeros([4, 128], np.int32)
    mask[:, :20] = 1
    for unequal in (False, True):
        step = StepConfig(train_batch_size=4, gradient_accumulation_steps=1 + unequal,
                          tokens_per_micro_batch=int(unequal), use_xla=True)
        dataset = input_pipeline.training_dataset(input_pipeline.array_examples({"mask": mask}), step.batch,
                                                  trimmed_fields=("mask",))
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        with tf.Session() as session:
            assert session.run(batch)["mask"].shape[1] == 64


def test_only_training_uses_xla(graph):
    step = StepConfig(use_xla=True)
    for is_training in (True, False):
        kernels = kernel_choice.choose_kernels(is_training, tf.float32, step)
        assert isinstance(getattr(kernels, "formulas", None), formulas.XlaFormulas) == is_training


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
