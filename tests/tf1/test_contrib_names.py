"""tf.contrib.framework, .slim, .lookup and smaller modules. Values are compared with values counted by hand.
"""

import importlib
import re
import sys
import types

from graphs import names, normal, run
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tiny

import tf1 as tf
from tf1._check.modules import missing

framework = tf.contrib.framework
layers = tf.contrib.layers

# --- Scopes of arguments -----------------------------------------------------------------------------------


@framework.add_arg_scope
def scoped(first, second=2, third=3):
    """A function with defaults."""
    return first, second, third


@framework.add_arg_scope
def other(second=2):
    return second


def test_a_scope_sets_what_a_call_does_not():
    assert scoped(1) == (1, 2, 3) and scoped.__doc__ == "A function with defaults."
    with framework.arg_scope([scoped, other], second="a") as outer:
        assert scoped(1) == (1, "a", 3) and scoped(1, second="b") == (1, "b", 3) and other() == "a"
        with framework.arg_scope([scoped], third="c"):
            assert scoped(1) == (1, "a", "c") and other() == "a"
        assert scoped(1) == (1, "a", 3)
    assert scoped(1) == (1, 2, 3)
    with framework.arg_scope(outer):
        assert scoped(1) == (1, "a", 3)
    assert framework.has_arg_scope(scoped) and not framework.has_arg_scope(len)


@pytest.mark.parametrize("scope, arguments, error, message", [
    ([len], dict(x=1), ValueError, "len is not decorated"), (3, {}, TypeError, "not int"),
    ({}, dict(x=1), ValueError, "an earlier scope was passed, so no other arguments are allowed. Remove x")])
def test_a_scope_refuses(scope, arguments, error, message):
    with pytest.raises(error, match=message), framework.arg_scope(scope, **arguments):
        pass


# --- Variables ---------------------------------------------------------------------------------------------


def build_variables():
    """Builds the variables a/w, a/b/w, a/b/v and c. The last one is a model variable that is not trained."""
    with tf.variable_scope("a"):
        tf.get_variable("w", [2, 3])
        with tf.variable_scope("b"):
            tf.get_variable("w", [2])
            tf.get_variable("v", [1])
    framework.model_variable("c", [1], trainable=False, initializer=tf.ones_initializer())
    framework.local_variable(1.0, name="local")


@pytest.mark.parametrize("find, expected", [
    (lambda: framework.get_variables(tf.VariableScope(None, "a/b")), ["a/b/w", "a/b/v"]),
    (lambda: framework.get_variables_by_suffix("w", "a/b"), ["a/b/w"]),
    (lambda: framework.get_variables_by_name("w"), ["a/w", "a/b/w"]),
    (lambda: framework.get_model_variables(), ["c"]), (lambda: framework.get_local_variables(), ["local"]),
    (lambda: framework.get_trainable_variables("a"), ["a/w", "a/b/w", "a/b/v"]),
    (lambda: [framework.get_unique_variable("a/w")], ["a/w"]),
    (lambda: framework.get_variables_to_restore(["a/b", "c"], ["a/b/v"]), ["a/b/w", "c"])])
def test_variables_are_found(graph, find, expected):
    build_variables()
    assert names(find()) == expected


def test_what_is_no_variable_is_refused(graph):
    build_variables()
    with pytest.raises(ValueError, match="the graph has no variable a/b"):
        framework.get_unique_variable("a/b")
    with pytest.raises(TypeError, match="include is 'a', but it must be a list"):
        framework.get_variables_to_restore("a")


# --- Values ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The path of a checkpoint with w = [[0, 1, 2], [3, 4, 5]] and b = [7]."""
    folder = tmp_path_factory.mktemp("saved")
    tiny.write_tensorflow(folder / "model.ckpt", {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([7])})
    odd = folder.rename(folder.with_name("saved[1]"))  # this path must not be read as a glob pattern
    return str(odd / "model.ckpt")


def assigned(assign, checkpoint, variables=None, **options):
    """Assigns values from the checkpoint to variables, {name: shape}. Returns {name: value}."""
    with tf.Graph().as_default(), tf.Session() as session:
        found = {name: tf.get_variable(name, shape, initializer=tf.zeros_initializer())
                 for name, shape in (variables or {"w": [2, 3], "b": [1]}).items()}
        which = options.pop("which", list)(found.values())
        session.run(tf.global_variables_initializer())
        result = getattr(framework, assign)(checkpoint, which, **options)
        session.run(*result) if assign == "assign_from_checkpoint" else result(session)
        return session.run(found)


@pytest.mark.parametrize("assign", ["assign_from_checkpoint", "assign_from_checkpoint_fn"])
def test_values_come_from_a_checkpoint(assign, checkpoint):
    found = assigned(assign, checkpoint)
    assert_array_equal(found["w"], [[0, 1, 2], [3, 4, 5]])
    assert found["b"] == [7]
    renamed = assigned(assign, checkpoint, {"x": [1]}, which=lambda found: {"b": next(iter(found))})
    assert renamed["x"] == [7]
    partly = assigned(assign, checkpoint, {"b": [1], "new": [2]}, ignore_missing_vars=True)
    assert partly["b"] == [7] and not partly["new"].any()
    with pytest.raises(ValueError, match="does not contain new. Leave these"):
        assigned(assign, checkpoint, {"b": [1], "new": [2]})


def test_values_of_another_shape(checkpoint):
    for assign, shape in (("assign_from_checkpoint", [7]), ("assign_from_checkpoint_fn", [3, 2])):
        with pytest.raises(ValueError, match=r"w has the shape \[2, 3\] in the checkpoint .* in the graph"):
            assigned(assign, checkpoint, {"w": shape})
    found = assigned("assign_from_checkpoint_fn", checkpoint, {"w": [3, 2]}, reshape_variables=True)
    assert_array_equal(found["w"], [[0, 1], [2, 3], [4, 5]])


def test_of_nothing_there_is_no_function(checkpoint, graph):
    new = tf.get_variable("new", [1])
    assert framework.assign_from_checkpoint_fn(checkpoint, [new], ignore_missing_vars=True) is None
    with pytest.raises(ValueError, match="var_list is empty"):
        framework.assign_from_checkpoint_fn(checkpoint, [])


def test_slices_of_a_variable_get_their_parts(checkpoint):
    with tf.Graph().as_default(), tf.Session() as session:
        parts = list(tf.get_variable("w", [2, 3], partitioner=tf.fixed_size_partitioner(2)))
        assert len(parts) == 2
        session.run(*framework.assign_from_checkpoint(checkpoint, parts))
        assert_array_equal(np.concatenate(session.run(parts)), [[0, 1, 2], [3, 4, 5]])


# --- tf-slim -----------------------------------------------------------------------------------------------


def test_without_tf_slim_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tf_slim", None)
    slim = importlib.import_module("tensorflow.contrib.slim")
    with pytest.raises(AttributeError, match=r"slim\.conv2d: .*pip install tf-slim"):
        slim.conv2d  # noqa: B018
    with pytest.raises(AttributeError, match=r"layers\.conv2d: .* Use tf\.layers\.conv2d, .*install tf-sl"):
        layers.conv2d  # noqa: B018


PACKAGE = {
    "__init__": "from tf_slim.layers import *\nfrom tf_slim import layers\n"
                "from tf_slim.ops.arg_scope import *\n",
    "ops/__init__": "",
    "ops/arg_scope": "_ARGSTACK = [{}]\n_DECORATED_OPS = {'their key': ('size',)}\n"
                     "def scope():\n    return _ARGSTACK[-1]\n",
    "layers/__init__": "def conv2d(size=1):\n    return size\nconv2d._key_op = 'their key'\n"
                       "def flatten():\n    return 'theirs'\n",
    "data/__init__": "", "nets/__init__": "resnet = 'resnet'\n",
    "training/__init__": "", "training/training": "def create_train_op():\n    return 'op'\n"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A fake package tf_slim of a few lines. It has the parts that this project uses."""
    for name, text in PACKAGE.items():
        path = tmp_path / "tf_slim" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "tf_slim"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
def test_with_tf_slim_its_names_are_found():
    from tensorflow.contrib import slim
    assert slim.conv2d() == 1 and "conv2d" in dir(tf.contrib.layers)
    assert layers.conv2d is slim.conv2d and slim.layers.conv2d is slim.conv2d
    assert layers.flatten is not slim.layers.flatten  # tf1's own function has priority
    assert tf.contrib.training.create_train_op() == "op"
    from tensorflow.contrib.slim.nets import resnet
    from tensorflow.contrib.slim.python.slim.data import flatten
    assert slim.nets.resnet == resnet == "resnet" and flatten() == "theirs"
    with pytest.raises(AttributeError, match=r"layers\.no_such: tf\.contrib is gone, without a repl"):
        layers.no_such  # noqa: B018
    with pytest.raises(AttributeError, match=r"slim\.no_such: .* if this package has the name"):
        slim.no_such  # noqa: B018
    with framework.arg_scope([slim.layers.conv2d, scoped], second=5):
        assert slim.scope()["their key"] == {"second": 5} and scoped(1) == (1, 5, 3)
    assert slim.scope() == {} and framework.has_arg_scope(slim.layers.conv2d)


# --- Tables ------------------------------------------------------------------------------------------------


def test_tables(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the\ncat\n")
    lookup = tf.contrib.lookup

    def build():
        words, numbers = tf.constant(["cat", "dog", "the"]), tf.constant([1, 5, 0], tf.int64)
        tables = [lookup.index_table_from_file(str(path), 1),
                  lookup.index_table_from_tensor(mapping=["the", "cat"], default_value=-7),
                  lookup.HashTable(lookup.KeyValueTensorInitializer(["cat"], tf.constant([3], tf.int64)), -1)]
        back = lookup.index_to_string_table_from_tensor(mapping=["the", "cat"], default_value="?")
        outputs = [*(table.lookup(words) for table in tables), back.lookup(numbers)]
        tf.get_default_session().run(tf.tables_initializer())
        return outputs
    assert [found.tolist() for found in run(build)] == [
        [1, 2, 0], [1, -7, 0], [3, -1, -1], [b"cat", b"?", b"the"]]


# --- Small modules -----------------------------------------------------------------------------------------


def test_small_functions_of_sequences():
    def build():
        x = tf.constant([[1.0, 3.0], [2.0, 0.0]])
        tiled = tf.contrib.seq2seq.tile_batch({"x": x, "n": tf.constant([1, 2])}, multiplier=2)
        unknown = tf.placeholder_with_default(tf.reshape(tf.range(6), [1, 2, 3]), None)
        return tiled, [tf.contrib.seq2seq._transpose_batch_time(value) for value in (unknown, [1, 2])]
    tiled, (swapped, same) = run(build)
    assert swapped.tolist() == [[[0, 1, 2]], [[3, 4, 5]]] and same.tolist() == [1, 2]
    assert_array_equal(tiled["x"], [[1, 3], [1, 3], [2, 0], [2, 0]])
    assert tiled["n"].tolist() == [1, 1, 2, 2]


def test_initial_weights():
    scaling = layers.variance_scaling_initializer(1.5, "FAN_OUT", uniform=True, seed=3).get_config()
    assert [scaling[name] for name in ("scale", "mode", "distribution")] == [1.5, "fan_out", "uniform"]
    for uniform in (False, True):
        weights = run(lambda uniform=uniform: layers.xavier_initializer(uniform, seed=3)([200, 50]))
        assert_allclose(weights.var(), 2 / 250, rtol=0.05)
        assert (abs(weights).max() < np.sqrt(6 / 250) + 1e-6) == uniform


def test_collections_of_layers(graph):
    from tensorflow.contrib.layers.python.layers import utils
    assert [utils.get_variable_collections(found, "beta") for found in ({"beta": ["b"]}, ["all"], {})] == [
        ["b"], ["all"], None]
    first = tf.constant(1)
    assert utils.collect_named_outputs(["x", "y"], "LayerNorm", first) is first
    assert tf.get_collection("x") == tf.get_collection("y") == [first]


def test_penalties_of_weights():
    weights = normal(3, 4)

    def build():
        first, second = tf.constant(weights), tf.constant([3.0])
        tf.add_to_collection(tf.GraphKeys.WEIGHTS, second)
        assert layers.sum_regularizer([None]) is None
        found = [layers.apply_regularization(layers.l1_l2_regularizer(0.5, 0.25), [first, second]),
                 layers.apply_regularization(layers.l1_regularizer(1.0))]
        assert tf.losses.get_regularization_losses() == found
        return found
    with pytest.raises(ValueError, match="no weights to regularize"):
        layers.apply_regularization(layers.l1_regularizer(1.0), [])
    expected = abs(weights).sum() / 2 + 1.5 + ((weights ** 2).sum() + 9) / 8
    assert_allclose(run(build), [expected, 3], rtol=1e-5)


def test_strategies():
    distribute = tf.contrib.distribute
    for strategy in (distribute.CollectiveAllReduceStrategy(), distribute.OneDeviceStrategy("/cpu:0")):
        assert strategy.num_replicas_in_sync == 1
    assert distribute.DistributeConfig(1).eval_distribute is None
    assert distribute.AllReduceCrossDeviceOps("nccl") is None


@pytest.mark.parametrize("arguments, devices", [
    (dict(num_gpus=2), ["/gpu:0", "/gpu:1"]), (dict(num_gpus_per_worker=0), ["/cpu:0"]), ({}, None),
    (dict(devices=["/cpu:0"]), ["/cpu:0"])])
def test_a_strategy_takes_the_first_devices(monkeypatch, arguments, devices):
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices, cross_device_ops: devices)
    assert tf.contrib.distribute.MirroredStrategy(**arguments) == devices


def test_the_f1_score_is_the_best_of_all_thresholds(session):
    fed = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float64, [None])
    value, update = tf.contrib.metrics.f1_score(*fed)
    session.run(tf.local_variables_initializer())
    session.run(update, dict(zip(fed, ([1, 0], [0.9, 0.6]))))
    assert session.run(value) == pytest.approx(1)
    session.run(update, dict(zip(fed, ([1, 0, 0], [0.4, 0.1, 0.995]))))
    # With a threshold between 0.1 and 0.4, two of four positive predictions are right, and none is missing.
    assert session.run(value) == pytest.approx(2 / 3)


def test_the_projector_is_that_of_tensorboard(monkeypatch):
    projector = importlib.import_module("tensorflow.contrib.tensorboard.plugins").projector
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(AttributeError, match="pip install tensorboard"):
        projector.ProjectorConfig  # noqa: B018
    installed = types.ModuleType("projector")
    installed.ProjectorConfig = dict
    monkeypatch.setitem(sys.modules, "tensorboard.plugins.projector", installed)
    assert projector.ProjectorConfig is dict


# --- Advice for names that tf1 does not provide ------------------------------------------------------------


PARTS = {part: {name for name in dir(getattr(tf.contrib, part)) if name[0] != "_"} for part in dir(tf.contrib)
         if part[0] != "_" and part != "keras"}
GONE = """
    add_metrics alpha_dropout create_inference_graph forward_features metric_learning no_such_name rotate
    triplet_semihard_loss
"""


@pytest.mark.parametrize("part", PARTS)
def test_advice_names_what_exists(part):
    namespace = getattr(tf.contrib, part)
    assert importlib.import_module(f"tensorflow.contrib.{part}") is namespace
    for name in set(GONE.split()).union(*PARTS.values()) - PARTS[part]:
        with pytest.raises(AttributeError, match=rf"^tf\.contrib\.{part}\.{name}: (tf\.contrib is gone|"
                           rf"tf1 provides only these names of tf\.contrib\.{part}: \w+)") as error:
            getattr(namespace, name)
        advice = str(error.value).partition("Use ")[2]
        assert not [words for words in re.findall(r"tf(?:\.\w+)+", advice) if missing(words)], error.value
