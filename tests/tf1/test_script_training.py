"""Steps of the training that the Estimator of tf1 overrides: a script's own inputs, params and hooks."""

import contextlib
import json
import os
import types

from helpers import read_batches
import pytest
from replica_threads import Replica
from small_models import counting_estimators, counting_model, endless

import tf1 as tf
from tf1._replicas import scatter

estimator = tf.estimator

@pytest.fixture
def counting(tmp_path):
    return counting_estimators(tmp_path / "model", estimator)


# --- Params and configurations ---------------------------------------------------------------------------


def test_params_may_be_any_object(counting):
    seen = []

    def model_fn(features, labels, mode, params):
        seen.append(vars(params))
        return counting_model(features, labels, mode, {})

    counting(types.SimpleNamespace(rate=2), model_fn).train(endless, steps=1)
    hparams = tf.contrib.training.HParams(rate=2)
    counting(hparams, model_fn, dict(train_batch_size=4)).train(endless, steps=1)
    added = {"gradient_accumulation_steps": 1, "batch_size": 4}
    assert seen[0] == {"rate": 2} and seen[-1].items() >= {"rate": 2, **added}.items()
    assert hparams.values() == {"rate": 2}
    with pytest.raises(TypeError, match="params is a SimpleNamespace, but it must be a dict"):
        counting(types.SimpleNamespace(), model_fn, dict(train_batch_size=4))


def tf_config(task="worker", index=0, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})


# tests/system/test_cluster.py has the forms of TF_CONFIG.
@pytest.mark.parametrize("text, message", [
    ("", None), (tf_config(worker=["a:1"]), None),
    (tf_config("worker", 1, worker=["a:1", "b:1"]), "names a cluster.*python -m tf1 --num_replicas=1 SCRIPT"),
    (tf_config("evaluator", chief=["a:1"]), "names a cluster"), ("{", "cannot be used")])
def test_a_cluster_is_refused_without_what_starts_replicas(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=f"TF_CONFIG {message}") if message else contextlib.nullcontext():
        assert estimator.RunConfig().num_worker_replicas == 1


def test_a_strategy_of_one_replica_changes_nothing_and_one_of_several_is_refused():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    assert estimator.RunConfig(train_distribute=strategy).train_distribute is strategy
    for name in ("train_distribute", "eval_distribute"):
        with pytest.raises(ValueError, match=f"{name} has 2 replicas"):
            estimator.RunConfig(**{name: types.SimpleNamespace(num_replicas_in_sync=2)})


def test_a_model_fn_is_built_on_the_devices_that_device_fn_names(counting):
    seen = []

    def model_fn(features, labels, mode, params):
        seen.extend([features["x"].device, tf.constant(1.0).device])
        return counting_model(features, labels, mode, params)

    counting(model_fn=model_fn, device_fn=lambda op: "/device:CPU:0").train(endless, steps=1)
    assert [device.lower() for device in seen] == ["/device:cpu:0"] * 2


# --- Hooks -----------------------------------------------------------------------------------------------


class Listener(tf.train.CheckpointSaverListener):
    """Records the steps that are saved."""

    def __init__(self, saved):
        self.saved = saved

    def after_save(self, session, global_step_value):
        self.saved.append(global_step_value)


@pytest.mark.parametrize("where", ["hooks", "training_hooks", "training_chief_hooks"])
def test_a_users_own_saver_hook_replaces_ours(counting, tmp_path, where):
    saved = []
    own = tf.train.CheckpointSaverHook(str(tmp_path / "model"), save_steps=2, checkpoint_basename="own.ckpt")

    def model_fn(features, labels, mode, params):
        spec = counting_model(features, labels, mode, params)
        return spec if where == "hooks" else spec._replace(**{where: [own]})

    model = counting(model_fn=model_fn, save_checkpoints_steps=1)
    model.train(endless, steps=3, hooks=[own] if where == "hooks" else None,
                saving_listeners=[Listener(saved)])
    checkpoints = sorted(name for name in os.listdir(tmp_path / "model") if name.endswith(".index"))
    assert checkpoints == [f"own.ckpt-{step}.index" for step in (0, 2, 3)] and saved == [0, 2, 3]
    assert model.latest_checkpoint().endswith("own.ckpt-3")
    model.train(endless, steps=1)
    assert model.get_variable_value("total") == 4


def hooks_of_session(given, is_chief, monkeypatch, tmp_path):
    """Returns those of the given hooks that run in a training of the chief, or of another replica."""
    monkeypatch.setattr(estimator.RunConfig, "is_chief", is_chief)
    model = estimator.Estimator(counting_model, str(tmp_path))
    session = model._training_session(endless, given, [], None, None)
    with tf.Graph().as_default():
        step = session.build_step()
        hooks = session.make_hooks(step, tf.train.Scaffold(), [])
    return [hook for hook in (getattr(hook, "hook", hook) for hook in hooks) if hook in given]


def test_only_replica_0_keeps_hooks_that_write(tmp_path, monkeypatch):
    counter = tf.train.StepCounterHook(output_dir=str(tmp_path))
    saver = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    other = tf.train.SessionRunHook()
    given = [saver, counter, other]
    assert hooks_of_session(given, True, monkeypatch, tmp_path) == given
    assert hooks_of_session(given, False, monkeypatch, tmp_path) == [other]


# --- Batches of replicas ---------------------------------------------------------------------------------


def test_batches_of_a_dataset_are_scattered_and_all_replicas_end_after_the_same_step():
    found = []
    for index in range(3):
        with tf.Graph().as_default():
            dataset = tf.data.Dataset.range(22).batch(2).map(lambda x: {"x": x})  # 11 batches
            taken = read_batches(scatter.scatter_batches(dataset, Replica(index, 3)))
            found.append([of_replicas[index]["x"].tolist() for of_replicas in taken])
    assert found[0] == [[0, 1], [6, 7], [12, 13]] and found[2] == [[4, 5], [10, 11], [16, 17]]


def test_an_input_that_is_no_dataset_cannot_be_scattered():
    with pytest.raises(ValueError, match=r"If it ends with .*get_next\(\), return the dataset"):
        scatter.scatter_batches(tf.zeros([2]), Replica(0, 2))
