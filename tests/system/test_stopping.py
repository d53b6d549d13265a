"""`stopping`: the places at which training, evaluation and prediction check whether they must end."""

from helpers import tensors_of
from numpy.testing import assert_equal
import pytest
from small_models import Stopping, foreign_batches
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator import estimator
from bertlib.system import stopping
import tf1


def batches_from_step(params):
    """Returns batches that depend on the step and the micro-batch. They begin at the global step."""
    tf.add_to_collection("input_starts_at_global_step", True)
    steps = params["gradient_accumulation_steps"]
    first = tf.cast(tf.train.get_global_step(), tf.int64) * steps
    return tf.data.Dataset.range(first, 1000).map(lambda i: tf.fill([4], tf.cast(i % 7, tf.float32)))


@pytest.mark.parametrize("module, input_fn, at, computed, saved", [
    (estimator, batches_from_step, 6, 6, 1),
    # The position of a script's own input is saved between two steps, and not between micro-batches.
    (tf1.estimator, foreign_batches, 6, 8, 2)])
def test_a_step_that_is_not_whole_is_dropped_and_taken_again(module, input_fn, at, computed, saved,
                                                             tmp_path):
    stopped, again, whole = (Stopping(tmp_path / name, place, 4, module) for name, place in (
        ("stopped", at), ("stopped", None), ("whole", None)))
    with pytest.raises(stopping.Stopped, match=rf"^The last step is saved in .*/model\.ckpt-{saved}$"):
        stopped.model.train(input_fn, max_steps=4)
    assert stopped.micro_batches == computed and not stopped.request.awaited
    assert stopped.model.get_variable_value("global_step") == saved
    for one in (again, whole):
        one.model.train(input_fn, max_steps=4)
    assert again.micro_batches == 4 * (4 - saved)
    assert_equal(tensors_of(again.model.model_dir), tensors_of(whole.model.model_dir))


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


@pytest.mark.parametrize("call", [lambda model: model.evaluate(foreign_batches),
                                  lambda model: list(model.predict(foreign_batches))],
                         ids=["evaluate", "predict"])
def test_evaluation_and_prediction_end_after_a_batch(call, tmp_path):
    stopped = Stopping(tmp_path, at=3)
    with pytest.raises(stopping.Stopped):
        call(stopped.model)
    assert stopped.micro_batches == 3
