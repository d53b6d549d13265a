"""--use_xla changes no number beyond rounding. test_recompute_grad.py measures its memory."""

from helpers import comparable, read_batches, tensors_of
import numpy as np
import pytest
import rows
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import formulas, kernel_choice


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
    step = StepConfig(train_batch_size=4, gradient_accumulation_steps=2, tokens_per_micro_batch=1,
                      use_xla=True)
    dataset = input_pipeline.training_dataset(input_pipeline.array_examples({"mask": mask}), step.batch,
                                              trimmed_fields=("mask",))
    tf.train.create_global_step()
    assert read_batches(dataset, 1)[0]["mask"].shape[1] == 64


def test_only_training_uses_xla(graph):
    step = StepConfig(use_xla=True)
    for is_training in (True, False):
        kernels = kernel_choice.choose_kernels(is_training, tf.float32, step)
        assert isinstance(getattr(kernels, "formulas", None), formulas.XlaFormulas) == is_training
