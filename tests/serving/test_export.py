"""Exports of each head give the predictor's answers. An export has no ops of this project."""

import functools
import itertools
import os
import pathlib
import random
import sys

from google.protobuf import empty_pb2, unknown_fields
import model_directories
from model_directories import TAGS, linear
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib import serving
from bertlib.data import batches, example_encoding, tfrecord_files
from bertlib.runs import trained_model
from bertlib.serving import export_text
from bertlib.tasks import export_model, serving_warmup
from bertlib.tasks.classification import classification_head
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_head
import modeling
import tf1

EXAMPLES = 30
SIGNATURES = ("serving_default", "ids", "examples")
CONFIG = modeling.BertConfig.from_dict(tiny.CONFIG)
# {name of a model: (kind of its head, variables of the head, labels, flags of its training)}.
MODELS = {
    "classification": ("classification", linear(3), ["no", "yes", "ünsure"], {}),
    "multilabel": ("multilabel", linear(3), ["red", "green", "blue"], {"threshold": 0.4}),
    "regression": ("regression", linear(1), None, {}),
    "tagging": ("tagging", linear(5), TAGS, {}),
    "tagging_crf": ("tagging", {**linear(5), "crf/transitions": (5, 5)}, TAGS, {"crf": True}),
    "questions": ("questions", squad_head.Span().shapes(CONFIG), None,
                  {"doc_stride": 8, "max_query_length": 8}),
    "multiple_choice": ("multiple_choice", classification_head.Choice().shapes(CONFIG), None,
                        {"num_choices": 2}),
    "masked_words": ("pre-training", pretraining_head.PretrainingHead().shapes(CONFIG), None, {})}


def written(directory, tiny_model, name):
    """Writes a model of `MODELS`, and returns its `TrainedModel`."""
    kind, head, labels, settings = MODELS[name]
    return trained_model.read(str(model_directories.write(directory, tiny_model, kind, head, labels,
                                                            **settings)))


def task_of(name):
    return name.removesuffix("_crf")


def asked(name, chance):
    """Returns a random input for a model of `MODELS`: a tuple of texts."""
    one, two = tiny.sentence(chance), tiny.sentence(chance)
    if task_of(name) == "masked_words":
        return one.replace(" ", " [MASK] ", 1).removesuffix(" ."),
    if task_of(name) == "tagging":
        return one,
    if task_of(name) == "multiple_choice":
        return one, two, "a cat", "the dog sees"
    return (one, two) if task_of(name) == "questions" or chance.random() < 0.7 else (one,)


class Exported:
    """A model, its export, inputs for both, and the results of the predictor."""

    def __init__(self, name, directory, tiny_model):
        self.model = written(directory / name, tiny_model, name)
        self.path = export_model.export(self.model, str(directory / name / "export"))
        chance = random.Random(name)
        with serving.Predictor(self.model) as predictor:
            windows = [predictor.prepare(*asked(name, chance))[0] for _ in range(EXAMPLES)]
            self.rows = list(itertools.chain(*windows))[:EXAMPLES]
            self.expected, self.more = predictor.compute(self.rows), predictor.answers.exported_inputs()

    def call(self, signature, **inputs):
        """Returns the outputs of a signature, {name: nested list}. Texts are str."""
        outputs = tf1.contrib.predictor.from_saved_model(self.path, signature)(inputs)
        texts = np.vectorize(bytes.decode, otypes=[object])
        return {name: (texts(array) if array.dtype == object else array).tolist()
                for name, array in outputs.items()}

    def call_examples(self, *rows):
        return self.call("examples", examples=list(map(serving_warmup.example, rows)))


@pytest.fixture(scope="module")
def exports(tmp_path_factory, tiny_model):
    """A function that returns the `Exported` with a name in `MODELS`."""
    return functools.cache(lambda name: Exported(name, tmp_path_factory.mktemp("exports"), tiny_model))


# --- Answers of the signatures ---------------------------------------------------------------------------


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5)


def compare(one, index, found):
    """Compares the outputs of a signature for a row, {name: value}, with the result of the predictor."""
    row, expected, labels = one.rows[index], one.expected[index], one.model.labels
    for name in {"probabilities", "score", "start_logits", "end_logits"} & set(found):
        theirs = expected.get(name, expected.get("scores"))
        size = len(row["masked_lm_positions" if "tokens" in found else "input_ids"])
        close(np.atleast_1d(found[name])[:size], np.atleast_1d(theirs)[:size])
    if "tags" in found:
        words = [place for place, is_first in enumerate(row["word_mask"]) if is_first]
        assert [found["tags"][place] for place in words] == [
            labels[tag] for tag in expected["tags"][:expected["num_words"]]]
        # With a CRF, the other tokens have no tag.
        assert not one.model.setting("crf") or sum(map(bool, found["tags"])) == len(words)
    elif "tokens" in found:
        for ids, tokens in zip(expected["ids"], found["tokens"][:len(row["masked_lm_positions"])]):
            assert tokens == one.model.tokenizer.convert_ids_to_tokens(ids.tolist())
    elif labels:
        assert found["labels"] == labels
        if "label" in found:
            assert found["label"] == labels[expected["probabilities"].argmax()]
        else:
            assert found["predicted"] == (expected["probabilities"] >= 0.4).tolist()


FAST = "classification", "tagging_crf"


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow(
    reason="a graph for each signature of each head")) for name in MODELS])
def test_an_export_answers_as_the_predictor_does(name, exports):
    one = exports(name)
    every = (*example_encoding.ENCODER_INPUTS, *one.more)
    inputs = batches.pad(one.rows, every)
    derived = "input_ids", *one.more  # the other inputs are derived from these
    for result in (one.call("serving_default", **inputs),
                   one.call("ids", **{field: inputs[field] for field in derived}),
                   one.call_examples(*({field: row[field] for field in (every if index % 2 else derived)}
                                       for index, row in enumerate(one.rows)))):
        assert {len(values) for values in result.values()} == {EXAMPLES}
        for index in range(EXAMPLES):
            compare(one, index, {field: values[index] for field, values in result.items()})


# The mask and the segments are not those that a signature derives from the ids.
LONG = {"input_ids": [2, 5, 6, 3, 7, 3], "input_mask": [1, 1, 0, 1, 0, 1], "segment_ids": [1, 0, 1, 1, 0, 0]}


def test_a_mask_and_segments_in_an_example_are_used(exports):
    one, short = exports("classification"), {"input_ids": [2, 5, 6, 3]}
    found = one.call_examples(LONG, {**LONG, "label_ids": [1]}, short)["probabilities"]
    long, derived, of_short = (one.call(signature, **{name: [values] for name, values in row.items()})[
        "probabilities"] for signature, row in (("serving_default", LONG), (
            "ids", {"input_ids": LONG["input_ids"]}), ("ids", short)))
    close(found, np.concatenate([long, long, of_short]))
    assert np.abs(np.subtract(long, derived)).max() > 1e-3


def test_wrong_inputs_have_clear_errors(exports):
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the 40 positions of the model"):
        exports("classification").call("ids", input_ids=[[5] * 41])
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs the feature word_mask, but an example "):
        exports("tagging_crf").call_examples({"input_ids": [2, 5, 3], "word_mask": [0, 1, 0]},
                                             {"input_ids": [2, 5, 6, 3]})


def test_only_tensorflows_plain_ops_are_in_an_export(exports):
    with tf.Session(graph=tf.Graph()) as here:
        tf.saved_model.loader.load(here, ["serve"], exports("classification").path)
        ops = here.graph.get_operations()
        variables = {variable.dtype for variable in tf.trainable_variables()}
    assert not [op.type for op in ops if op.type.startswith(("_", "Native", "Bert"))]
    assert variables == {tf.float32}
    assert sum("word_embeddings" in op.name and op.type == "VarHandleOp" for op in ops) == 1


# --- Files in an export ----------------------------------------------------------------------------------


def test_vocabulary_labels_and_configuration_travel_along(exports):
    one = exports("classification")
    for name in ("vocab.txt", "bert_config.json", "labels.txt", "run.json"):
        assert pathlib.Path(one.path, "assets.extra", name).read_bytes() == (
            pathlib.Path(one.model.path, name).read_bytes())


def fields(content):
    """Returns [(number, content)] of the fields of a message of Protobuf."""
    return [(field.field_number, field.data)
            for field in unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(content))]


def read_warmup(path):
    """Returns {signature: {name of an input: array}} of the warm-up requests of an export.

    The numbers of the fields are those of TensorFlow Serving (tensorflow_serving/apis/prediction_log.proto).
    """
    found = {}
    for record in tfrecord_files.read_records(
            os.path.join(path, "assets.extra", "tf_serving_warmup_requests")):
        (number, log), = fields(record)
        (first, request), = fields(log)
        (second, specification), *inputs = fields(request)
        (third, signature), = fields(specification)
        assert (number, first, second, third) == (6, 1, 1, 3) and {name for name, _ in inputs} == {2}
        found[signature.decode()] = values = {}
        for _, entry in inputs:
            (_, name), (_, tensor) = fields(entry)
            values[name.decode()] = tf.make_ndarray(type(tf.make_tensor_proto(0)).FromString(tensor))
    return found


def test_warm_up_requests_are_those_that_tensorflow_serving_reads(exports):
    one = exports("tagging_crf")
    found = {signature: np.shape(one.call(signature, **inputs)["tags"])
             for signature, inputs in read_warmup(one.path).items()}
    assert found == dict.fromkeys(SIGNATURES, (1, tiny.SEQ_LENGTH))


# --- Text ------------------------------------------------------------------------------------------------


def test_without_the_package_an_export_of_text_says_what_to_install(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(ImportError, match=r"pip install tensorflow-text==\d+\.\d+\.\*"):
        export_text.export(written(tmp_path / "model", tiny_model, "regression"), str(tmp_path / "export"))
