"""`stopping`: the places at which training, evaluation and prediction check whether they must end."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator.estimator import Estimator, EstimatorSpec, RunConfig
from bertlib.system import stopping
import optimization


def model_fn(features, labels, mode, params):
    """A model with one weight that is trained on the means of batches. `ran` is called for each micro-batch.
    """
    ran = tf.numpy_function(params["ran"], [], tf.float32)
    ran.set_shape([])
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.square(weight - tf.reduce_mean(features)) + ran
    train_op = None
    if mode == "train":
        train_op = optimization.create_optimizer(
            loss, 0.1, 100, 2, use_tpu=False,
            gradient_accumulation_steps=params["gradient_accumulation_steps"])
    return EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=features + ran)


class Stopping:
    """An Estimator that gets a request to stop while it computes micro-batch number `at`, counted from 1."""

    def __init__(self, directory, at=None, micro_batches=1, **settings):
        self.at, self.micro_batches = at, 0
        self.request = stopping.StopRequest()
        config = RunConfig(gradient_accumulation_steps=micro_batches, stop_request=self.request,
                           **{"save_checkpoints_steps": 100, **settings})
        self.model = Estimator(model_fn, str(directory), config, {"ran": self.ran},
                               train_batch_size=4 * micro_batches)

    def ran(self):
        self.micro_batches += 1
        if self.micro_batches == self.at:
            self.request.set()
        return np.float32(0)


def batches_from_step(params):
    """Returns batches that depend on the step and the micro-batch. They begin at the global step."""
    tf.add_to_collection("input_starts_at_global_step", True)
    steps = params["gradient_accumulation_steps"]
    first = tf.cast(tf.train.get_global_step(), tf.int64) * steps
    return tf.data.Dataset.range(first, 1000).map(lambda i: tf.fill([4], tf.cast(i % 7, tf.float32)))


def foreign_batches():
    return tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.float32)).shuffle(50, seed=1).batch(4)


def values_of(model):
    newest = model.latest_checkpoint()
    return {name: tf.train.load_variable(newest, name).tobytes()
            for name, _ in tf.train.list_variables(newest)}


@pytest.mark.parametrize("input_fn, at, seen, saved", [
    (batches_from_step, 6, 6, 1),
    *(pytest.param(batches_from_step, *values, marks=pytest.mark.slow(reason="three more trainings"))
      for values in ((8, 8, 2), (1, 1, 0)))])
def test_a_step_that_is_not_whole_is_dropped_and_taken_again(input_fn, at, seen, saved, tmp_path):
    stopped = Stopping(tmp_path / "stopped", at, micro_batches=4)
    with pytest.raises(stopping.Stopped, match=rf"^The last step is saved in .*/model\.ckpt-{saved}$"):
        stopped.model.train(input_fn, max_steps=4)
    assert stopped.micro_batches == seen and not stopped.request.awaited
    assert stopped.model.get_variable_value("global_step") == saved
    again = Stopping(tmp_path / "stopped", micro_batches=4)
    again.model.train(input_fn, max_steps=4)
    assert again.micro_batches == 4 * (4 - saved)
    whole = Stopping(tmp_path / "whole", micro_batches=4)
    whole.model.train(input_fn, max_steps=4)
    assert values_of(again.model) == values_of(whole.model)


def test_a_step_that_is_saved_already_is_not_saved_again(tmp_path):
    stopped = Stopping(tmp_path, at=2, save_checkpoints_steps=1)
    with pytest.raises(stopping.Stopped, match="ckpt-2$"):
        stopped.model.train(batches_from_step, max_steps=4)
    names = [path.rpartition("/")[2] for path in checkpoint_formats.all_checkpoints(str(tmp_path))]
    assert names == ["model.ckpt-0", "model.ckpt-1", "model.ckpt-2"]


def test_a_request_in_the_last_step_is_not_forgotten(tmp_path):
    stopped = Stopping(tmp_path, at=4)
    with pytest.raises(stopping.Stopped, match="ckpt-4$"):
        stopped.model.train(batches_from_step, max_steps=4)


def test_an_evaluation_of_a_checkpoint_in_training_ends_too(tmp_path):
    stopped = Stopping(tmp_path, at=7, save_checkpoints_steps=2)

    class Evaluate(tf.train.CheckpointSaverListener):
        def after_save(self, session, step):
            if step == 2:  # three micro-batches before: two of steps, one of the evaluation
                stopped.model.evaluate(foreign_batches)

    with pytest.raises(stopping.Stopped, match="ckpt-2$"):
        stopped.model.train(batches_from_step, max_steps=4, saving_listeners=[Evaluate()])
    assert stopped.micro_batches == 7


def test_a_training_still_ends_if_a_hook_has_caught_the_exception(tmp_path):
    """The evaluation in a hook raises `Stopped`. The hook catches it, so that the session saves its step."""
    stopped = Stopping(tmp_path)

    class Evaluate(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            stopped.request.set()
            with pytest.raises(stopping.Stopped):
                stopped.request.check()
            run_context.request_stop()

    with pytest.raises(stopping.Stopped, match="ckpt-1$"):
        stopped.model.train(batches_from_step, max_steps=4, hooks=[Evaluate()])


@pytest.mark.parametrize("call", [lambda model: model.evaluate(foreign_batches),
                                  lambda model: list(model.predict(foreign_batches))],
                         ids=["evaluate", "predict"])
def test_evaluation_and_prediction_end_after_a_batch(call, tmp_path):
    stopped = Stopping(tmp_path, at=3)
    with pytest.raises(stopping.Stopped):
        call(stopped.model)
    assert stopped.micro_batches == 3
