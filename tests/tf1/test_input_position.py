"""`input_position`, and its use in `estimator`: a resumed run continues at the old position of the input."""

import os
import shutil

from helpers import read_batches
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1 import estimator

# --- Inputs ----------------------------------------------------------------------------------------------


def numbers(size=24):
    return tf.data.Dataset.from_tensor_slices(tf.constant(np.arange(size, dtype=np.float32)))


def shuffled(batch=3):
    return numbers().repeat().shuffle(7, seed=5).batch(batch, drop_remainder=True)


def python_function():
    return shuffled().map(lambda x: tf.ensure_shape(tf.numpy_function(lambda v: v * 3, [x], tf.float32), [3]))


def generated():
    return tf.data.Dataset.from_generator(lambda: iter(range(1000)), tf.float32, []).batch(2)


def one_shot():
    return tf.data.make_one_shot_iterator(shuffled()).get_next()


def own_initializer():
    iterator = tf.data.make_initializable_iterator(shuffled())
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def two_iterators():
    return one_shot() + tf.data.make_one_shot_iterator(numbers().repeat().batch(3)).get_next()


ENDLESS = [shuffled, python_function, generated, one_shot, own_initializer, two_iterators]


def epoch():
    """An input with three batches."""
    return numbers(3).batch(1)


# --- A model that records its inputs ---------------------------------------------------------------------


class Trained(object):
    """An Estimator in a directory. Each call of `train` is a separate run.

    Attributes:
      seen: the batches of all steps.
    """

    def __init__(self, directory, **config):
        self.seen, self._directory = [], str(directory)
        self._config = {"save_checkpoints_steps": 3, **config}
        self.new_process()

    def new_process(self):
        """Makes the next call of `train` the first call of its Estimator, as in a new process."""
        self.estimator = estimator.Estimator(self._model_fn, self._directory,
                                             estimator.RunConfig(**self._config))

    def _model_fn(self, features, labels, mode, params):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
        seen = tf.py_func(lambda batch: self.seen.append(batch.tolist()), [features], [])
        loss = tf.reduce_sum(features)
        update = tf.group(seen, total.assign_add(loss), tf.assign_add(tf.train.get_global_step(), 1))
        return estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    def train(self, input_fn, **limit):
        """Trains, and returns the batches of this run."""
        before = len(self.seen)
        self.new_process()
        self.estimator.train(input_fn, **limit)
        return self.seen[before:]


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", logger="absl")
    return caplog


# --- Continuing the input --------------------------------------------------------------------------------


@pytest.mark.parametrize("input_fn", [
    pytest.param(kind, marks=[] if kind in (shuffled, python_function, generated) else pytest.mark.slow(
        reason="two more trainings")) for kind in ENDLESS])
def test_a_resumed_run_reads_on_where_the_input_was(tmp_path, input_fn, log):
    uninterrupted = Trained(tmp_path / "uninterrupted").train(input_fn, max_steps=9)
    assert len(uninterrupted) == 9 and uninterrupted[:3] != uninterrupted[3:6]
    stopped = Trained(tmp_path / "stopped")
    for max_steps in (4, 5, 9) if input_fn is shuffled else (5, 9):
        stopped.train(input_fn, max_steps=max_steps)
    assert stopped.seen == uninterrupted
    # Only an input without a state that can be saved is read again from its beginning.
    assert ("Reading the first 5 batches" in log.text) == (input_fn is generated)


@pytest.mark.parametrize("file, left", [("index", 0), ("data-00000-of-00001", 0.5)])
def test_a_damaged_position_is_refused_with_a_remedy_that_works(tmp_path, file, left):
    trained = Trained(tmp_path)
    trained.train(shuffled, max_steps=4)
    path = tmp_path / "input_position" / f"model.ckpt-4.{file}"
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * left)])
    with pytest.raises(ValueError, match="The position of the input in .*ckpt-4 is damaged.*Remove"):
        trained.train(shuffled, max_steps=5)
    os.remove(tmp_path / "input_position" / "model.ckpt-4.index")
    assert trained.train(shuffled, max_steps=5) == trained.seen[:1]  # from its beginning


@pytest.mark.parametrize("input_fn", [
    epoch, lambda: tf.data.Dataset.from_generator(lambda: iter(range(3)), tf.float32, []).batch(1),
    lambda: tf.data.make_one_shot_iterator(epoch()).get_next()], ids=["dataset", "generator", "one_shot"])
def test_each_epoch_of_an_input_that_ends_starts_anew(tmp_path, input_fn):
    # A checkpoint is saved every third step, when the input is at its end.
    trained = Trained(tmp_path)
    for _ in range(2):
        assert trained.train(input_fn) == [[0], [1], [2]]
    assert trained.train(input_fn, steps=2) == [[0], [1]]
    assert trained.train(input_fn) == [[2]]


def test_each_call_in_a_process_reads_an_input_that_ends_from_its_beginning(tmp_path):
    trained = Trained(tmp_path)
    for _ in range(3):
        trained.estimator.train(epoch, steps=2)
    assert trained.seen == 3 * [[0], [1]]
    trained.seen.clear()
    trained.estimator.train(shuffled, max_steps=8)
    trained.estimator.train(shuffled, max_steps=10)  # an endless input continues
    uninterrupted = Trained(tmp_path / "uninterrupted").train(shuffled, max_steps=4)
    assert trained.seen == uninterrupted


def test_each_epoch_of_an_unseeded_shuffle_has_another_order_also_when_it_is_resumed(tmp_path):
    def own_shuffle():
        return numbers(6).shuffle(6).batch(2)

    trained = Trained(tmp_path / "a")
    epochs = []
    for _ in range(3):
        trained.estimator.train(own_shuffle)
        epochs.append(trained.seen[-3:])
        assert sorted(np.ravel(epochs[-1])) == list(range(6))
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2]
    killed = Trained(tmp_path / "b", save_checkpoints_steps=1)
    killed.train(own_shuffle)
    killed.train(own_shuffle, steps=1)
    killed.train(own_shuffle)
    assert killed.seen == [*epochs[0], *epochs[1]]


# --- Another input ---------------------------------------------------------------------------------------


def mapped(factor=2, **batch):
    return shuffled(**batch).map(lambda x: x * factor)


OTHERS = {"batch size": lambda: mapped(batch=4), "number in a function": lambda: mapped(3), "kind": generated,
          "files": lambda: numbers(25).repeat().shuffle(7, seed=5).batch(3, True).map(lambda x: x * 2)}


def first_batches(input_fn, count):
    """Returns the first batches of an input_fn without an Estimator."""
    with tf.Graph().as_default():
        tf.set_random_seed(estimator.RunConfig().tf_random_seed)
        return [batch.tolist() for batch in read_batches(input_fn(), count)]


@pytest.fixture(scope="module")
def mapped_three(tmp_path_factory):
    """The directory of a training of three steps on `mapped`. Tests share it, so they must not change it."""
    directory = tmp_path_factory.mktemp("mapped")
    Trained(directory).train(lambda: mapped(), max_steps=3)
    return directory


@pytest.mark.parametrize("changed", OTHERS)
def test_another_input_starts_from_its_beginning_and_the_log_says_so(tmp_path, changed, log, mapped_three):
    shutil.copytree(mapped_three, tmp_path / "trained")
    trained = Trained(tmp_path / "trained")
    assert trained.train(OTHERS[changed], max_steps=6) == first_batches(OTHERS[changed], 3)
    assert "of the input have changed since" in log.text and "model.ckpt-3" in log.text


# --- Files -----------------------------------------------------------------------------------------------


def test_checkpoints_hold_nothing_of_it_and_positions_go_with_their_checkpoints(tmp_path):
    trained = Trained(tmp_path, save_checkpoints_steps=1, keep_checkpoint_max=2)
    trained.train(shuffled, max_steps=5)
    assert [name for name, _ in tf.train.list_variables(str(tmp_path / "model.ckpt-5"))] == [
        "global_step", "total"]
    # The position of the checkpoint that was pruned last is removed with the next checkpoint.
    for last in (5, 6):
        trained.train(shuffled, max_steps=last)
        assert sorted(path.stem for path in (tmp_path / "input_position").glob("*.index")) == [
            f"model.ckpt-{step}" for step in range(last - 2, last + 1)]


def test_training_goes_on_when_a_position_cannot_be_saved(tmp_path, log):
    (tmp_path / "input_position").write_text("in the way")
    trained = Trained(tmp_path)
    trained.train(shuffled, max_steps=3)
    assert "The position of the input could not be saved" in log.text
    assert tf.train.checkpoint_exists(str(tmp_path / "model.ckpt-3"))


def test_an_input_that_starts_at_the_global_step_has_no_position(tmp_path):
    def input_fn():
        tf.add_to_collection("input_starts_at_global_step", True)
        return tf.data.Dataset.range(tf.train.get_global_step(),
                                     100).map(lambda x: tf.cast(x, tf.float32)).batch(1)

    trained = Trained(tmp_path)
    trained.train(input_fn, max_steps=2)
    assert trained.train(input_fn, max_steps=4) == [[2], [3]]
    assert not (tmp_path / "input_position").exists()


def test_a_hook_of_the_users_that_saves_saves_the_position_too(tmp_path):
    trained = Trained(tmp_path, save_checkpoints_steps=1000)
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2)
    expected = Trained(tmp_path / "uninterrupted").train(shuffled, max_steps=8)
    trained.train(shuffled, hooks=[hook], max_steps=4)
    trained.train(shuffled, hooks=[hook], max_steps=8)
    assert trained.seen == expected


# --- The step is read before it is counted ---------------------------------------------------------------


def slow_zero():
    """Returns 0 after a chain of products, which takes long. If the order were not fixed, the step would be
    counted before the end of this chain, or last."""
    slow = tf.random.uniform([400, 400])
    for _ in range(8):
        slow = tf.matmul(slow, slow) * 1e-3
    return tf.cast(slow[0, 0] < 0, tf.int64)


@pytest.mark.parametrize("count",
                         [lambda step: tf.assign(step, step + 1), lambda step: tf.assign_add(step, 1)],
                         ids=["assign", "assign_add"])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_whatever_reads_the_global_step_reads_it_before_it_is_counted(tmp_path, count, use_resource,
                                                                      request):
    if not use_resource:
        tf.disable_resource_variables()
        request.addfinalizer(tf.enable_resource_variables)

    def model_fn(features, labels, mode, params):
        step = tf.train.get_global_step()
        with tf.control_dependencies([slow_zero()]):
            late = step.read_value() if use_resource else tf.identity(step)
        seen = tf.get_variable("seen", [], tf.int64, initializer=tf.zeros_initializer())
        train_op = tf.group(count(step), tf.assign_add(seen, late))
        return estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=train_op)

    trained = estimator.Estimator(model_fn, str(tmp_path)).train(shuffled, steps=5)
    assert trained.get_variable_value("seen") == 0 + 1 + 2 + 3 + 4


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in tf.cond"])
def test_a_bias_correction_reads_the_global_step_after_it_is_counted(tmp_path, inside):
    def model_fn(features, labels, mode, params):
        step = tf.train.get_global_step()
        rates = tf.get_variable("rates", [], initializer=tf.zeros_initializer())
        seen = tf.get_variable("seen", [], initializer=tf.zeros_initializer())

        def update():
            steps = tf.cast(step, tf.float32)  # like LAMB in NVIDIA's BERT; its schedule also reads the step
            return tf.assign_add(seen, tf.sqrt(1 - 0.5**steps) / (1 - 0.5**steps))

        updated = tf.cond(tf.reduce_sum(features) > -1, update, lambda: 0.0) if inside else update()
        train_op = tf.group(updated, tf.assign_add(rates, tf.cast(step, tf.float32)),
                            tf.assign(step, step + 1 + slow_zero()))
        return estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=train_op)

    trained = estimator.Estimator(model_fn, str(tmp_path)).train(shuffled, steps=3)
    assert trained.get_variable_value("rates") == 0 + 1 + 2
    np.testing.assert_allclose(trained.get_variable_value("seen"), sum((1 - 0.5**t)**-0.5 for t in (1, 2, 3)),
                               rtol=1e-6)
