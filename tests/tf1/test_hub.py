"""hub.Module after `import tf1` and `import tensorflow_hub as hub`, on a module of this model and on others.
"""

import hashlib
import shutil
import sys

from graphs import run
from helpers import evaluate
import hub_modules
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
import pytest
import tiny

import modeling
import tf1 as tf
from tf1._names import hub_export

# isort: split
import tensorflow_hub as hub  # can be imported only after tf1

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture(scope="module")
def module(tiny_model, tmp_path_factory):
    return str(hub_modules.write(tiny_model, tmp_path_factory.mktemp("hub") / "module"))


def tokens(module, inputs=None):
    return module(inputs=inputs or hub_modules.inputs(), signature="tokens", as_dict=True)


# --- A model of this project -----------------------------------------------------------------------------


def test_variables_have_the_modules_weights_and_its_name(module, tiny_model):
    with tf.variable_scope("scope"), tf.name_scope("elsewhere"):
        first = hub.Module(module, name="encoder")
        again = hub.Module(module, name="encoder", trainable=True, tags={"train"})
    assert set(first.variable_map) == set(tiny_model.weights)
    assert {variable.op.name for variable in first.variables} == {
        f"scope/encoder/{name}" for name in tiny_model.weights}
    assert {variable.op.name for variable in tf.trainable_variables()} == {
        f"scope/encoder_1/{name}" for name in tiny_model.weights}
    name = "bert/pooler/dense/kernel"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert_array_equal(session.run(first.variable_map[name]), tiny_model.weights[name])
    assert again.variables == [again.variable_map[name] for name in sorted(tiny_model.weights)]


def test_it_tells_of_its_signatures(module):
    found = hub.Module(module, tags={"train"})
    assert sorted(found.get_signature_names()) == ["tokenization_info", "tokens"]
    infos = found.get_input_info_dict("tokens")
    assert set(infos) == set(hub_modules.inputs())
    assert infos["input_ids"].dtype == tf.int32 and infos["input_ids"].get_shape().as_list() == [None, None]
    assert set(found.get_output_info_dict("tokens")) == {"pooled_output", "sequence_output"}
    spec = hub.load_module_spec(module)
    assert sorted(spec.get_tags(), key=len) == [set(), {"train"}] and isinstance(spec, hub.ModuleSpec)
    assert hub.Module(spec).get_signature_names()


# --- Other modules ---------------------------------------------------------------------------------------


def of_everything(tiny_model, use_resource):
    """Returns a function that builds a module with a table, a partitioned variable, a loop and collections.
    """
    def build(tags):
        x, word = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.string, [None])
        with tf.variable_scope("", use_resource=use_resource):
            weights = tf.get_variable("weights", [4, 4], regularizer=lambda value: 0.1 * tf.nn.l2_loss(value))
            parts = tf.get_variable("parts", [6, 4], partitioner=tf.fixed_size_partitioner(2))
        y = tf.layers.batch_normalization(x @ weights, training="train" in tags)
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            str(tiny_model.vocab), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), -1)
        looped = tf.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, value @ weights), [0, x])[1]
        return {"default": ({"x": x}, {"default": y, "parts": tf.convert_to_tensor(parts)}),
                "look:up": ({"word": word}, {"default": table.lookup(word)}),
                "loop": ({"x": x}, {"default": looped})}
    return build


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_tables_loops_and_collections(tiny_model, tmp_path, session, use_resource):
    path = str(hub_modules.write_graphs(tmp_path / "module", of_everything(tiny_model, use_resource)))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    hub.Module(path, name="plain")(x)
    assert not any(map(tf.get_collection, ("update_ops", "regularization_losses", "trainable_variables")))
    found = hub.Module(path, trainable=True, tags={"train"})
    y, index, looped = found(x), found(["cat", "zzz"], signature="look:up"), found(x, signature="loop")
    assert {variable.op.name for variable in tf.trainable_variables()} == {
        f"module/{name}" for name in ("weights", "parts/part_0", "parts/part_1", "batch_normalization/beta",
                                      "batch_normalization/gamma")}
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS, scope="module_apply_default/")
    w = found.variable_map["weights"]
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    weights, y, index, loss, (looped, product), gradients = session.run([w, y, index, loss, *zip(*(
        (result, tf.gradients(result, w)[0]) for result in (looped, x @ w @ w @ w)))])
    session.run(updates)
    mean = session.run(found.variable_map["batch_normalization/moving_mean"])
    assert_allclose(looped, product, rtol=1e-4)
    assert_allclose(*gradients, rtol=1e-4)
    product = x @ weights
    assert_allclose(y, (product - product.mean(0)) / np.sqrt(product.var(0) + 1e-3), rtol=1e-4, atol=1e-5)
    assert_allclose(mean, 0.01 * product.mean(0), rtol=1e-4)
    assert index.tolist() == [tiny.VOCABULARY.index("cat"), -1]
    assert_allclose(loss, 0.05 * (weights**2).sum(), rtol=1e-5)


def drawing(tags):
    del tags
    size = tf.placeholder(tf.int32, [])
    return {"default": ({"size": size}, {
        "uniform": tf.random.uniform([size]), "normal": tf.random.normal([size], seed=3),
        "cut": tf.random.truncated_normal([size]),
        "whole": tf.random.uniform([size], 5, 9, tf.int64)})}


def test_what_it_draws_depends_on_the_seed_and_the_step_only(tmp_path):
    path = str(hub_modules.write_graphs(tmp_path / "module", drawing, variants=((),)))

    def draw(seed, step, times=1):
        return run(lambda: hub.Module(path)(20000, as_dict=True), step, seed, times)

    first, again, other_step, other_seed = draw(1, 5), draw(1, 5, times=2), draw(1, 6), draw(2, 5)
    for name, values in first.items():
        assert_array_equal(values, again[name])
        assert not np.array_equal(values, other_step[name]) and not np.array_equal(values, other_seed[name])
    assert abs(first["uniform"].mean() - 0.5) < 0.02 and abs(first["normal"].std() - 1) < 0.03
    assert abs(first["cut"]).max() < 2.001 and set(first["whole"]) == {5, 6, 7, 8}


def with_custom_gradient(tags):
    del tags
    x = tf.placeholder(tf.float32, [None])
    scale = tf.get_variable("scale", [])

    @tf.custom_gradient
    def clipped(value):
        return value * 2, lambda gradient: tf.clip_by_value(gradient, -1, 1)

    return {"default": ({"x": x}, {"default": clipped(x * scale)})}


def test_a_gradient_that_is_not_in_the_module_is_refused_not_replaced(tmp_path):
    path = str(hub_modules.write_graphs(tmp_path / "module", with_custom_gradient, variants=((),)))
    with pytest.raises(ValueError, match=r"module cannot be trained: .* trainable=False"):
        hub.Module(path, trainable=True)([1.0])
    x = tf.constant([1.0])
    y = hub.Module(path)(x)
    with pytest.raises(LookupError):
        tf.gradients(y, x)


# --- Making one ------------------------------------------------------------------------------------------


def model_fn_of(model):
    """Returns a module_fn as in a fork: BERT with its tokenizer, and a variant for each value of is_training.
    """
    def module_fn(is_training):
        tf.add_to_collection("of no module", object())
        for name, (inputs, outputs) in hub_modules.bert(model, is_training).items():
            hub.add_signature(name, inputs, outputs)
            if name == "tokens":
                hub.add_signature(inputs=inputs["input_ids"], outputs=tf.one_hot(inputs["input_ids"], 5))
    return module_fn


VARIANTS = [(set(), dict(is_training=False)), ({"train"}, dict(is_training=True))]


@pytest.mark.slow(reason="makes modules of a checkpoint; run_classifier_with_tfhub.py starts from one")
def test_a_module_that_is_made_has_the_weights_of_the_checkpoint(module, tiny_model, tmp_path):
    tiny.write_tensorflow(tmp_path / "weights", {
        f"old/{name}": weights for name, weights in tiny_model.weights.items()})
    spec = hub.create_module_spec(model_fn_of(tiny_model), VARIANTS, drop_collections=["of no module"])
    (tmp_path / "made").mkdir()
    spec.export(str(tmp_path / "made"), checkpoint_path=str(tmp_path / "weights"),
                name_transform_fn=lambda name: f"old/{name}")
    made, written = hub.Module(str(tmp_path / "made")), hub.Module(module)
    assert sorted(made.get_signature_names()) == ["default", "tokenization_info", "tokens"]
    hub.Module(str(tmp_path / "made"), tags={"train"}, trainable=True)
    found, expected, places, vocab_file = evaluate([
        tokens(made), tokens(written), made([[1, 2]]),
        made(signature="tokenization_info", as_dict=True)["vocab_file"]])
    assert_equal(found, expected)
    assert places.tolist() == [[[0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]]
    assert vocab_file.decode() == f"{tmp_path}/made/assets/vocab.txt"
    assert sorted(path.name for path in tmp_path.glob("made*")) == ["made"]


def signed(*names):
    return lambda: [hub.add_signature(name, tf.placeholder(tf.float32), tf.get_variable("v", []))
                    for name in names if name]


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda path: hub.create_module_spec(signed(None)), ValueError, r"added no signature\. Call "
                                                                    r"hub\.add_sig"),
    (lambda path: hub.create_module_spec(lambda: (signed("a")(), hub.add_signature("a"))), ValueError,
     r"already has a signature 'a'"),
    (lambda path: hub.create_module_spec(signed("a"), [((), {}), ((), {})]), ValueError, "the tags \\[\\]"),
    (lambda path: hub.create_module_spec(signed("a")).export(path / "new"), ValueError, "checkpoint_path=…"),
    (lambda path: hub_export.write_module(path, [], {}), FileExistsError,
     r"already exists\. Export the module to a new directory"),
], ids=["none", "twice", "tags", "no checkpoint", "not empty"])
def test_what_is_no_module_to_make(make, error, message, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(error, match=message):
        make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- Errors ----------------------------------------------------------------------------------------------


def damaged(name, contents):
    def damage(path):
        (path / name).write_bytes(contents)
        return path
    return damage


def without(pattern):
    def remove(path):
        for found in list(path.glob(pattern)):
            found.unlink()
        return path
    return remove


def archived(path):
    (path.parent / "module.tar.gz").write_bytes(b"")
    return path.parent / "module.tar.gz"


@pytest.mark.parametrize(("change", "error", "message"), [
    (lambda path: path / "nothing", FileNotFoundError, r"hub module .*nothing was not found"),
    (archived, NotADirectoryError, r"is a file, but a hub module is a directory\. If .* unpack it"),
    (without("saved_model.pb"), ValueError, r"not a hub module: it has no saved_model\.pb\. Name the "
                                            r"directory"),
    (damaged("saved_model.pb", b"\xff\xff"), ValueError, r"saved_model\.pb is damaged"),
    (damaged("tfhub_module.pb", b"\x08\x04"), ValueError, r"tfhub_module\.pb is damaged, or the module has a "
                                                          r"format"),
    (without("variables/*"), ValueError, r"lacks the files of its weights: .*variables/variables\.index"),
    (lambda path: "https://tfhub.dev/google/bert/1", FileNotFoundError,
     r"this module is not in the cache \(\$TFHUB_CACHE_DIR is not set\)\. Download the module and unpack it"),
], ids=["nothing", "archive", "no model", "damaged", "format", "no weights", "address"])
def test_what_is_no_module(module, tmp_path, monkeypatch, change, error, message):
    monkeypatch.delenv("TFHUB_CACHE_DIR", raising=False)
    path = change(tmp_path / "module") if shutil.copytree(module, tmp_path / "module") else None
    with pytest.raises(error, match=message):
        hub.Module(str(path) if not isinstance(path, str) else path)


def test_an_address_is_looked_up_in_the_cache(module, tmp_path, monkeypatch):
    address = "https://tfhub.dev/google/bert_uncased_L-12_H-768_A-12/1"
    name = hashlib.sha1(address.encode()).hexdigest()
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"\$TFHUB_CACHE_DIR has no {name}"):
        hub.Module(address)
    shutil.copytree(module, tmp_path / name)
    assert hub.Module(address).variable_map


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda found: found(hub_modules.inputs(), signature="token"), ValueError,
     r"Signature 'token' is missing in .*\. The existing signatures: tokenization_info, tokens"),
    (lambda found: found(hub_modules.inputs(), signature="tokens"), TypeError,
     r"no output 'default', only pooled_output, sequence_output\. Pass as_dict=True"),
    (lambda found: tokens(found, {"input_ids": [[1]], "ids": [[1]]}), TypeError,
     r"missing inputs: input_mask, segment_ids; unknown inputs: ids"),
    (lambda found: found([[1]], signature="tokens"), TypeError, r"has the inputs input_ids, .*Pass a dict"),
    (lambda found: tokens(found, {**hub_modules.inputs(), "input_mask": [1.5]}), TypeError,
     r"input input_mask"),
    (lambda found: tokens(found, {**hub_modules.inputs(), "input_mask": [1, 1]}), TypeError,
     r"input input_mask has the shape \(2,\), and the module takes \(None, None\)|\(\?, \?\)"),
], ids=["signature", "output", "inputs", "no dict", "type", "shape"])
def test_what_is_no_call_of_it(module, call, error, message):
    with pytest.raises(error, match=message):
        call(hub.Module(module))


def test_what_is_no_place_for_it(module):
    with pytest.raises(ValueError, match=r"No such graph variant: tags=\['serve'\]\. .* \['train'\], \[\]"):
        hub.Module(module, tags={"serve"})
    with tf.name_scope("taken"):
        pass
    with pytest.raises(RuntimeError, match=r"the variable scope taken/ is unused, but a name scope"):
        hub.Module(module, name="taken")
    found = hub.Module(module)
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="was created in a different graph"):
        tokens(found)


def test_a_saved_model_of_one_variant_needs_no_tags(tmp_path):
    def build(tags):
        x = tf.placeholder(tf.float32, [None])
        return {"serving_default": ({"x": x}, {"default": x * tf.get_variable("scale", [])})}

    path = hub_modules.write_graphs(tmp_path / "module", build, {"scale": 3.0}, variants=(("serve",),))
    (path / "tfhub_module.pb").unlink()
    assert evaluate(hub.Module(str(path))([2.0])).tolist() == [6.0]


# --- The modules -----------------------------------------------------------------------------------------


def test_names_that_are_not_there_name_what_takes_their_place():
    for name, message in (("text_embedding_column", "Apply a hub.Module in the model_fn"),
                          ("LatestModuleExporter", r"hub\.create_module_spec\(…\)\.export"),
                          ("KerasLayer", "Use tf.saved_model.load"), ("Modul", "not provided")):
        with pytest.raises(AttributeError, match=message):
            getattr(hub, name)


# --- A whole script --------------------------------------------------------------------------------------


def test_a_script_may_require_flags_of_ours(scripts, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tf1 as tf\nfrom bert import run_classifier\n"
                      "tf.flags.mark_flag_as_required('data_dir')\ntf.app.run(lambda _: None)\n")
    done = scripts.run(script, cwd=tmp_path)
    assert done.code != 0 and "Flag --data_dir must have a value other than None" in done.err


# --- The package bert ------------------------------------------------------------------------------------


@pytest.fixture
def no_bert():
    """Forgets the package `bert` before and after."""
    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "bert"]:
            del sys.modules[name]
    forget()
    yield
    forget()


def test_bert_is_our_modules(no_bert):
    names = {}
    exec("from bert import modeling as a\nimport bert.tokenization\nfrom bert.optimization import "
         "create_optimizer", names)
    assert names["a"] is modeling and names["bert"].tokenization is sys.modules["tokenization"]
    assert names["create_optimizer"].__module__ == modeling.__spec__.name.replace("modeling", "optimization")
    with pytest.raises(ImportError, match=r"no_such_module"):
        exec("from bert import no_such_module")
    with pytest.raises(ImportError, match=r"No module named 'bert\.no_such_module'"):
        exec("import bert.no_such_module")


def test_a_forks_own_bert_comes_first(no_bert, tmp_path, monkeypatch):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "__init__.py").write_text("")
    (tmp_path / "bert" / "modeling.py").write_text("mine = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = {}
    exec("from bert import modeling", names)
    assert names["modeling"].mine
    with pytest.raises(ImportError):
        exec("from bert import tokenization")
