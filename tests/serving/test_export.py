"""Exports of each head. If TensorFlow loads them without this project, they give the predictor's answers."""

import importlib.util
import os
import pathlib
import random
import subprocess
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
import graph_tokens
from helpers import read_json, write_json
import model_directories
from model_directories import linear
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import record_files
from bertlib.output_directory import model_directory
from bertlib.serving import export_model, export_text, session, warmup
from bertlib.tasks import answers
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_head
import modeling
import tf1
import tokenization

HERE = pathlib.Path(__file__).parent
EXAMPLES = 60
SIGNATURES = ("serving_default", "ids", "examples")
CONFIG = modeling.BertConfig.from_dict(tiny.CONFIG)
TAGS = model_directories.TAGS
# {name of a model: (kind of its head, variables of the head, labels, flags of its training)}.
MODELS = {
    "classification": ("classification", linear(3), ["no", "yes", "ünsure"], {}),
    "multilabel": ("multilabel", linear(3), ["red", "green", "blue"], {"threshold": 0.4}),
    "regression": ("regression", linear(1), None, {}),
    "tagging": ("tagging", linear(5), TAGS, {}),
    "tagging_crf": ("tagging", {**linear(5), "crf/transitions": (5, 5)}, TAGS, {"crf": True}),
    "questions": ("questions", squad_head.head_shapes(CONFIG), None,
                  {"doc_stride": 8, "max_query_length": 8}),
    "pre-training": ("pre-training", pretraining_head.head_shapes(CONFIG), None, {})}
QUICK = ("classification", "tagging_crf")
SLOW = tuple(name for name in MODELS if name not in QUICK)


def written(directory, tiny_model, name):
    """Writes a model of `MODELS`, and returns its `ModelDirectory`."""
    kind, head, labels, settings = MODELS[name]
    return model_directory.read(str(model_directories.write(directory, tiny_model, kind, head, labels,
                                                            **settings)))


def task_of(name):
    return {"pre-training": "masked_words"}.get(name, name.removesuffix("_crf"))


def asked(name, chance):
    """Returns a random input for a model of `MODELS`: a tuple of texts."""
    one, two = tiny.sentence(chance), tiny.sentence(chance)
    if task_of(name) == "masked_words":
        return one.replace(" ", " [MASK] ", 1).removesuffix(" ."),
    if task_of(name) == "tagging":
        return one,
    return (one, two) if task_of(name) == "questions" or chance.random() < 0.7 else (one,)


def padded(rows, name):
    """Returns the values of some rows, padded, as nested lists [B, longest]."""
    longest = max(len(row[name]) for row in rows)
    return [list(row[name]) + [0] * (longest - len(row[name])) for row in rows]


def serialized(row, names):
    """Returns a `tf.train.Example` as text for JSON: its bytes are encoded as Latin-1 characters."""
    return warmup.example({name: row[name] for name in names}).decode("latin-1")


def run_plainly(calls, directory, *packages, **changes):
    """Returns the results of calls by plain_tensorflow.py.

    It runs in an interpreter without this project on its path, and with changed environment variables.
    """
    write_json(directory / "calls.json", calls)
    places = {pathlib.Path(importlib.util.find_spec(package).origin).parents[1] for package in packages}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), **changes}
    subprocess.run([sys.executable, HERE / "plain_tensorflow.py", "calls.json", "results.json", *packages],
                   cwd=directory, env=environment, check=True, capture_output=True)
    return read_json(directory / "results.json")


class Exported:
    """A model, its export, inputs for both, and the results of the predictor."""

    def __init__(self, name, directory, tiny_model):
        self.model = written(directory / name, tiny_model, name)
        self.task, self.path = task_of(name), export_model.export(self.model,
                                                                  str(directory / name / "export"))
        task, chance = answers.create(self.model, self.task), random.Random(name)
        self.texts = [asked(name, chance) for _ in range(EXAMPLES)]
        self.rows = [row for texts in self.texts for row in task.windows(*texts)[0]][:EXAMPLES]
        with tf.Graph().as_default():
            model = session.LoadedModel(task.head, self.model.bert_config, self.model.checkpoint,
                                        task.extra_inputs)
            self.expected = model(self.rows)
            model.close()

    def calls(self):
        more = answers.create(self.model, self.task).exported_inputs()
        every = (*session.ENCODER_INPUTS, *more)
        inputs = {name: padded(self.rows, name) for name in every}
        examples = [serialized(row, every if index % 2 else ("input_ids", *more))
                    for index, row in enumerate(self.rows)]
        return [[self.path, "serving_default", inputs], [self.path, "ids", inputs],
                [self.path, "examples", {"examples": examples}]]


def export_and_run(names, directory, tiny_model):
    """Exports some models. Returns {(name, signature): (`Exported`, outputs of the signature)}."""
    made = {name: Exported(name, directory, tiny_model) for name in names}
    calls = [(name, call) for name, one in made.items() for call in one.calls()]
    results = run_plainly([call for _, call in calls], directory)
    return {(name, call[1]): (made[name], result) for (name, call), result in zip(calls, results)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory, tiny_model):
    return export_and_run(QUICK, tmp_path_factory.mktemp("exports"), tiny_model)


@pytest.fixture(scope="module")
def others(tmp_path_factory, tiny_model):
    return export_and_run(SLOW, tmp_path_factory.mktemp("others"), tiny_model)


# --- Answers of the signatures ---------------------------------------------------------------------------


def compare_probabilities(one, index, result):
    expected = one.expected[index]["probabilities"]
    np.testing.assert_allclose(result["probabilities"][index], expected, atol=1e-5)
    assert result["labels"][index] == one.model.labels
    if "label" in result:
        assert result["label"][index] == one.model.labels[expected.argmax()]
    else:
        assert result["predicted"][index] == [bool(p >= 0.4) for p in expected]


def compare_score(one, index, result):
    np.testing.assert_allclose(result["score"][index], one.expected[index]["scores"], atol=1e-5)


def compare_tags(one, index, result):
    expected, tags = one.expected[index], result["tags"][index]
    words = [place for place, is_first in enumerate(one.rows[index]["word_mask"]) if is_first]
    assert [tags[place] for place in words] == [
        one.model.labels[tag] for tag in expected["tags"][:expected["num_words"]]]
    others = set(tags) if not one.model.setting("crf") else {
        tag for place, tag in enumerate(tags) if place not in words}
    assert others <= {"", *(() if one.model.setting("crf") else one.model.labels)}


def compare_logits(one, index, result):
    size = len(one.rows[index]["input_ids"])
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(result[name][index][:size], one.expected[index][name][:size], atol=1e-5)


def compare_words(one, index, result):
    masks = len(one.rows[index]["masked_lm_positions"])
    expected = one.expected[index]
    np.testing.assert_allclose(result["probabilities"][index][:masks], expected["probabilities"][:masks],
                               atol=1e-5)
    for row, tokens in zip(expected["ids"][:masks], result["tokens"][index]):
        assert tokens == one.model.tokenizer.convert_ids_to_tokens(row.tolist())


COMPARE = {"classification": compare_probabilities, "multilabel": compare_probabilities,
           "regression": compare_score, "tagging": compare_tags, "tagging_crf": compare_tags,
           "questions": compare_logits, "pre-training": compare_words}


def check(exported, name, signature):
    one, result = exported[name, signature]
    assert {len(values) for values in result.values()} == {EXAMPLES}
    for index in range(EXAMPLES):
        COMPARE[name](one, index, result)


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("name", QUICK)
def test_an_export_answers_in_plain_tensorflow_as_the_predictor_does(exported, name, signature):
    check(exported, name, signature)


@pytest.mark.slow(reason="a graph for each signature of each of five more heads")
@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("name", SLOW)
def test_exports_of_other_heads_answer_as_the_predictor_does(others, name, signature):
    check(others, name, signature)


def test_a_mask_and_segments_in_an_example_are_used(exported):
    one, _ = exported["classification", "ids"]
    row = {"input_ids": [2, 5, 6, 3, 7, 3], "input_mask": [1, 1, 0, 1, 0, 1],
           "segment_ids": [1, 0, 1, 1, 0, 0]}
    lone = {"input_ids": row["input_ids"][:4]}
    call = {name: tf1.contrib.predictor.from_saved_model(one.path, name) for name in SIGNATURES}
    both = call["examples"]({"examples": [warmup.example(row), warmup.example({**row, "label_ids": [1]}),
                                          warmup.example(lone)]})["probabilities"]
    given = call["serving_default"]({name: [values] for name, values in row.items()})["probabilities"]
    derived = call["ids"]({"input_ids": [lone["input_ids"]]})["probabilities"]
    np.testing.assert_allclose(both, np.concatenate([given, given, derived]), atol=1e-5)
    assert np.abs(given - call["ids"]({"input_ids": [row["input_ids"]]})["probabilities"]).max() > 1e-3
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the 40 positions of the model"):
        call["ids"]({"input_ids": [[5] * 41]})


def test_a_tagger_with_a_crf_asks_for_the_words_places(exported):
    one, _ = exported["tagging_crf", "ids"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="word_mask"):
        tf1.contrib.predictor.from_saved_model(one.path, "ids")({"input_ids": [[2, 5, 3]]})
    examples = [{"input_ids": [2, 5, 3], "word_mask": [0, 1, 0]}, {"input_ids": [2, 5, 6, 3]}]
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs the feature word_mask, but an example "):
        tf1.contrib.predictor.from_saved_model(one.path, "examples")({
            "examples": list(map(warmup.example, examples))})


def test_only_tensorflows_plain_ops_are_in_an_export(exported):
    one, _ = exported["classification", "ids"]
    with tf.Session(graph=tf.Graph()) as here:
        tf.saved_model.loader.load(here, ["serve"], one.path)
        types = {op.type for op in here.graph.get_operations()}
        variables = {variable.op.name: variable.dtype for variable in tf.trainable_variables()}
        weights = sum("word_embeddings" in op.name and op.type == "VarHandleOp"
                      for op in here.graph.get_operations())
    assert not [name for name in types if name.startswith(("_", "Native", "Bert"))]
    assert set(variables.values()) == {tf.float32} and weights == 1


# --- Files in an export ----------------------------------------------------------------------------------


def test_vocabulary_labels_and_configuration_travel_along(exported):
    one, _ = exported["classification", "ids"]
    extra = pathlib.Path(one.path, "assets.extra")
    for name in ("vocab.txt", "bert_config.json", "labels.txt", "run.json"):
        assert (extra / name).read_bytes() == pathlib.Path(one.model.path, name).read_bytes()


# The needed fields of TensorFlow Serving's messages, see tensorflow_serving/apis/prediction_log.proto.
LOG = """
name: "log.proto"
package: "serving"
syntax: "proto3"
message_type {
  name: "ModelSpec"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "signature_name" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING }
}
message_type {
  name: "PredictRequest"
  field { name: "model_spec" number: 1 label: LABEL_OPTIONAL type_name: ".serving.ModelSpec" }
  field { name: "inputs" number: 2 label: LABEL_REPEATED type_name: ".serving.PredictRequest.InputsEntry" }
  nested_type {
    name: "InputsEntry"
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: ".tensorflow.TensorProto" }
    options { map_entry: true }
  }
}
message_type {
  name: "PredictLog"
  field { name: "request" number: 1 label: LABEL_OPTIONAL type_name: ".serving.PredictRequest" }
}
message_type {
  name: "PredictionLog"
  field { name: "predict_log" number: 6 label: LABEL_OPTIONAL type_name: ".serving.PredictLog" }
}
"""


def prediction_log():
    """Returns the message class PredictionLog."""
    pool = descriptor_pool.DescriptorPool()

    def add(file):
        for imported in file.dependencies:
            add(imported)
        pool.AddSerializedFile(file.serialized_pb)

    tensor = tf.make_tensor_proto(0).DESCRIPTOR.file
    add(tensor)
    here = text_format.Parse(LOG, descriptor_pb2.FileDescriptorProto(dependency=[tensor.name]))
    pool.Add(here)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("serving.PredictionLog"))


def test_warm_up_requests_are_those_that_tensorflow_serving_reads(exported):
    one, _ = exported["tagging_crf", "ids"]
    path = os.path.join(one.path, "assets.extra", "tf_serving_warmup_requests")
    log, names = prediction_log(), []
    for record in record_files.read_records(path):
        found = log.FromString(record)
        assert found.SerializeToString(deterministic=True) == record
        request = found.predict_log.request
        names.append(request.model_spec.signature_name)
        given = {name: tf.make_ndarray(type(tf.make_tensor_proto(0)).FromString(value.SerializeToString()))
                 for name, value in request.inputs.items()}
        answer = tf1.contrib.predictor.from_saved_model(one.path, names[-1])(given)
        assert answer["tags"].shape == (1, tiny.SEQ_LENGTH)
    assert sorted(names) == sorted(SIGNATURES)


# --- Directories -----------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path, tiny_model):
    return written(tmp_path / "model", tiny_model, "regression")


@pytest.mark.parametrize(("asked_for", "message"), [
    (dict(task="tagging"), "was trained for regression. Its tasks are regression and vectors"),
    (dict(directory="model/run.json/deeper"), "model/run.json is not a directory")])
def test_what_cannot_be_exported_is_refused(model, tmp_path, asked_for, message):
    asked_for["directory"] = str(tmp_path / asked_for.get("directory", "export"))
    with pytest.raises((ValueError, OSError), match=message):
        export_model.export(model, **asked_for)
    assert not (tmp_path / "export").exists()


# --- Text ------------------------------------------------------------------------------------------------


def test_without_the_package_an_export_of_text_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(ImportError, match=r"pip install tensorflow-text==\d+\.\d+\.\*"):
        export_text.export(model, str(tmp_path / "export"))
    assert not (tmp_path / "export").exists()


def test_questions_are_not_exported_with_text(tmp_path, tiny_model):
    questions = written(tmp_path / "model", tiny_model, "questions")
    with pytest.raises(ValueError, match="or export the model without --text"):
        export_text.export(questions, str(tmp_path / "export"))


@pytest.mark.slow(reason="loads the package of ops")
def test_tokens_in_the_graph_are_the_tokenizers(tmp_path):
    words = [*"aéeß2².中文ςσiİ$x", *tiny.VOCABULARY[:5], "##b", "ss", "fi", "ﬁ", "中文", "ΑΣ", "##x"]
    texts = ["ab É e\u0301", "ß ﬁ ²", "中文.$", "ΑΣ ΑΣ. σς", "İ i\u0307", "", " ", "\x00a\ufffd", "[MASK]",
             "a\u200bb a\x0bb a\u2028b a\xa0b", "x" * 200 + " " + "x" * 201, "\U0001f600 ab"]
    for options in ({}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False},
                    {"max_input_chars_per_word": 3}):
        vocabulary = {word: index for index, word in enumerate(words)}
        tokenizer = tokenization.FullTokenizer(vocabulary, **options)
        assert graph_tokens.differing_tokens(tokenizer, texts) == []
