"""convert_checkpoint.py as a user runs it: conversions in both directions, and errors."""

import contextlib
import json
import os
import re
import shutil

from bertlib.commands import convert_checkpoint

from helpers import read_json, snapshot, tensors_of, write_json, write_lines
import ml_dtypes
import model_directories
import numpy as np
import pytest
from safetensors import numpy as safetensors
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import registry, tokenizer_flags
from bertlib.runs.settings import Settings
from bertlib.system import locks
from bertlib.tasks import head_labels

WIDTH, WORDS = tiny.CONFIG["hidden_size"], len(tiny.VOCABULARY)
CLASSIFIER = {"output_weights": (3, WIDTH), "output_bias": (3,)}
MASKED_LM = {
    "cls/predictions/output_bias": (WORDS,), "cls/predictions/transform/dense/kernel": (WIDTH, WIDTH),
    "cls/predictions/transform/dense/bias": (WIDTH,), "cls/predictions/transform/LayerNorm/gamma": (WIDTH,),
    "cls/predictions/transform/LayerNorm/beta": (WIDTH,)}
NEXT_SENTENCE = {"cls/seq_relationship/output_weights": (2, WIDTH), "cls/seq_relationship/output_bias": (2,)}
# {name of a head's tensor: Hugging Face's name}. These names do not follow the rule for the encoder.
HEAD_NAMES = {
    "output_weights": "classifier.weight", "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight", "cls/squad/output_bias": "qa_outputs.bias",
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias"}


def random_arrays(shapes):
    generator = np.random.RandomState(5)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def their_arrays(arrays):
    """Returns the arrays in the form of Hugging Face's classes: BertModel if there is no head."""
    heads = {HEAD_NAMES[name]: array for name, array in arrays.items() if name in HEAD_NAMES}
    others = tiny.hugging_face({name: array for name, array in arrays.items() if name not in HEAD_NAMES})
    if not heads:
        return {name.removeprefix("bert."): array for name, array in others.items()}
    return {**others, **heads}


def assert_same(found, expected):
    """Checks that two dicts of arrays are equal, bit for bit."""
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape), name
        assert found[name].tobytes() == values.tobytes(), name


def write_published(directory, arrays, config=tiny.CONFIG):
    """Writes the directory of a published model. As in the downloads, it has no file `checkpoint`."""
    tiny.write_tensorflow(directory / "bert_model.ckpt", arrays)
    (directory / "checkpoint").unlink()
    (directory / "bert_model.ckpt.meta").unlink()
    write_json(directory / "bert_config.json", config)
    write_lines(directory / "vocab.txt", tiny.VOCABULARY)
    return directory


@pytest.fixture
def convert(run_script):
    """A function that runs the script, which must succeed. It returns the messages of the log."""
    def run(**flags):
        finished = run_script("convert_checkpoint.py", **flags)
        assert finished.code == 0 and not finished.out, finished.err
        return re.findall(r"^\d\d:\d\d:\d\d (.*)$", finished.err, re.MULTILINE)
    return run


@pytest.fixture
def refusal(run_script, tmp_path):
    """A function that runs the script, which must end with one message and change no file.

    It returns the message.
    """
    def run(**flags):
        before = snapshot(tmp_path)
        finished = run_script("convert_checkpoint.py", **flags)
        finished.assert_refused()
        assert snapshot(tmp_path) == before and not finished.out
        return finished.err.partition("convert_checkpoint.py: error: ")[2]
    return run


# --- Conversions in both directions ----------------------------------------------------------------------


def test_tensorflow_to_hugging_face_and_back(convert, tmp_path):
    arrays = {**tiny.weights(), **random_arrays({**MASKED_LM, **NEXT_SENTENCE})}
    config = {**tiny.CONFIG, "pooler_type": "first_token_transform"}
    published = write_published(tmp_path / "cased_L-12_H-768_A-12", arrays, config)
    theirs, back = tmp_path / "a" / "b", tmp_path / "back"
    log = convert(input=published / "bert_model.ckpt", output=theirs)
    assert set(os.listdir(theirs)) == {
        "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}
    assert_same(safetensors.load_file(theirs / "model.safetensors"), their_arrays(arrays))
    assert read_json(theirs / "config.json") == {
        **config, "architectures": ["BertForPreTraining"], "hidden_act": "gelu_new", "layer_norm_eps": 1e-12,
        "model_type": "bert"}
    assert not any(line.startswith("WARNING") for line in log)
    assert "The Hugging Face class of the model is BertForPreTraining." in log
    assert read_json(theirs / "tokenizer_config.json") == {
        "do_lower_case": False, "model_max_length": 40, "tokenizer_class": "BertTokenizer"}
    assert log[-1].startswith(f"{len(arrays)} of {len(arrays)} tensors of {published / 'bert_model.ckpt'} "
                              f"are in {theirs}: ")

    convert(input=theirs, output=back)
    assert set(os.listdir(back)) == {
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index",
        "tokenizer_config.json", "vocab.txt"}
    assert_same(tensors_of(back / "bert_model.ckpt"), arrays)
    assert read_json(back / "bert_config.json") == config
    for name, source in (("vocab.txt", published), ("tokenizer_config.json", theirs)):
        assert (back / name).read_bytes() == (source / name).read_bytes()


def test_hugging_face_to_tensorflow_and_back(convert, tiny_model, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(tiny_model.hugging_face, start)
    arrays = {**tiny_model.weights, **random_arrays(CLASSIFIER)}
    config = {**tiny.CONFIG, "architectures": ["BertForSequenceClassification"], "layer_norm_eps": 1e-12,
              "model_type": "bert", "id2label": {"0": "no", "1": "maybe", "2": "LABEL_2"},
              "transformers_version": "5"}
    write_json(start / "config.json", config)
    tokenizer = {"do_lower_case": False, "model_max_length": 40, "tokenizer_class": "BertTokenizer",
                 "never_split": None}
    write_json(start / "tokenizer_config.json", tokenizer)
    safetensors.save_file(their_arrays(arrays), start / "model.safetensors")
    log = convert(input=start / "model.safetensors", output=tmp_path / "tensorflow")
    assert_same(tensors_of(tmp_path / "tensorflow" / "bert_model.ckpt"), arrays)
    assert read_json(tmp_path / "tensorflow" / "bert_config.json") == {
        **tiny.CONFIG, "hidden_act": "gelu_erf", "id2label": config["id2label"]}
    warnings = [line for line in log if line.startswith("WARNING: ")]
    assert len(warnings) == 1 and "gelu_erf" in warnings[0] and "pass --published_config=true" in warnings[0]
    log = convert(input=start, output=tmp_path / "published", published_config=True)
    assert read_json(tmp_path / "published" / "bert_config.json")["hidden_act"] == "gelu"
    assert any("hidden_act in bert_config.json is gelu, the tanh form" in line for line in log)

    convert(input=tmp_path / "tensorflow", output=tmp_path / "back")
    assert_same(safetensors.load_file(tmp_path / "back" / "model.safetensors"), their_arrays(arrays))
    settings = read_json(tmp_path / "back" / "config.json")
    assert {name: settings[name] for name in tiny.CONFIG} == tiny.CONFIG  # gelu is converted back
    assert settings["id2label"] == config["id2label"]
    assert settings["label2id"] == {"no": 0, "maybe": 1, "LABEL_2": 2}
    assert read_json(tmp_path / "back" / "tokenizer_config.json") == tokenizer


@pytest.mark.parametrize("kind, labels, architecture, problem", [
    ("multilabel", ["no", "yes"], "SequenceClassification", "multi_label_classification"),
    ("regression", None, "SequenceClassification", "regression"),
    ("tagging", ["B-X", "O"], "TokenClassification", None)])
def test_the_record_of_a_training_says_what_head_it_is(tiny_model, tmp_path, kind, labels, architecture,
                                                       problem):
    names = labels or ["LABEL_0"]
    source = checkpoint_formats.open_checkpoint(model_directories.write(
        tmp_path / "trained", tiny_model, kind, model_directories.linear(len(names)), labels))
    found = convert_checkpoint.hugging_face_config(tiny.CONFIG, source, sorted(source.shapes))
    assert found["architectures"] == [f"BertFor{architecture}"] and found.get("problem_type") == problem
    assert found["id2label"] == dict(enumerate(names))
    assert head_labels.target_of_config(found) == registry.find_target(kind)
    assert found["label2id"] == {name: index for index, name in enumerate(names)}


def test_a_taggers_directory_there_and_back_and_its_crf(convert, tiny_model, tmp_path):
    directory = model_directories.write(
        tmp_path / "trained", tiny_model, "tagging",
        {**model_directories.linear(2), "crf/transitions": (2, 2)}, ["B-X", "O"])
    arrays = tensors_of(directory / "model.ckpt-7")
    log = convert(input=directory, output=tmp_path / "theirs")
    assert any(line.startswith("WARNING: The CRF is left out") for line in log)
    assert any(line.endswith("BERT does not have these tensors: crf/transitions.") for line in log)
    assert_same(safetensors.load_file(tmp_path / "theirs" / "model.safetensors"),
                their_arrays({name: array for name, array in arrays.items()
                              if name not in ("crf/transitions", "global_step")}))
    convert(input=tmp_path / "theirs", output=tmp_path / "back")
    back, tagger = checkpoint_formats.open_checkpoint(tmp_path / "back"), registry.find_target("tagging")
    path = str(tmp_path / "back" / "bert_config.json")
    assert head_labels.read_head(back) == head_labels.HeadDescription(tagger, ["B-X", "O"], 2, False, path)
    convert(input=directory, output=tmp_path / "alone", weights_only=True)
    alone = head_labels.read_head(checkpoint_formats.open_checkpoint(tmp_path / "alone"))
    path = str(tmp_path / "alone" / "labels.txt")
    assert alone == head_labels.HeadDescription(tagger, ["B-X", "O"], 2, True, path)


def test_what_the_tokenizer_does_goes_along(convert, tiny_model, tmp_path):
    """The weights have 16 bits, and the vocabulary is only in tokenizer.json."""
    start, out = tmp_path / "start", tmp_path / "out"
    shutil.copytree(tiny_model.hugging_face, start)
    write_json(start / "config.json", tiny.CONFIG)  # as in old models, without "model_type"
    safetensors.save_file({name: array.astype(ml_dtypes.bfloat16) for name, array in
                           tiny.hugging_face(tiny_model.weights).items()}, start / "model.safetensors")
    (start / "tokenizer_config.json").unlink()
    (start / "vocab.txt").unlink()
    write_json(start / "special_tokens_map.json", {"cls_token": "<s>"})
    *words, added = tiny.VOCABULARY
    write_json(start / "tokenizer.json", {
        "model": {"type": "WordPiece", "vocab": {word: index for index, word in enumerate(words)}},
        "added_tokens": [{"id": words.index("[SEP]"), "content": "[SEP]"},
                         {"id": len(words), "content": added}, {"id": WORDS, "content": "<no embedding>"}],
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": False,
                       "handle_chinese_chars": False}})
    log = convert(input=start, output=out)
    assert (out / "vocab.txt").read_bytes() == tiny_model.vocab.read_bytes()
    found = read_json(out / "tokenizer_config.json")
    assert found == {**found, "do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False,
                     "cls_token": "<s>", "additional_special_tokens": [added]}
    assert_same(tensors_of(out / "bert_model.ckpt"), {
        name: array.astype(ml_dtypes.bfloat16).astype(np.float32)
        for name, array in tiny_model.weights.items()})
    assert any("WARNING: The tokenizers of this project do not produce this model's tokens: " in line
               and 'cls_token="<s>"' in line for line in log)
    assert any("no embeddings for these added tokens, so they are left out: <no embedding>." in line
               for line in log)


@pytest.mark.parametrize("vocab", [
    {"a": 0, "b": "1"}, {"a": 0, "b": 0}, {"a": 0, "b": 2}, ["a"], {"a\nb": 0}, {},
    {str(index): index for index in range(WORDS + 1)}], ids=range(7))
def test_ids_that_are_no_lines_of_a_vocabulary(tiny_model, tmp_path, vocab):
    start = shutil.copytree(tiny_model.hugging_face, tmp_path / "start")
    (start / "vocab.txt").unlink()
    source, settings = checkpoint_formats.open_checkpoint(start), Settings({"vocab_file": None})
    for model, fits in (({"a": 0}, True), (vocab, False)):
        write_json(start / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": model}})
        with contextlib.nullcontext() if fits else pytest.raises(
                ValueError, match=f"a WordPiece vocabulary with at most {WORDS} different entries"):
            assert convert_checkpoint.read_vocabulary(settings, source, WORDS) == (b"a\n", set())


# --- Trainings -------------------------------------------------------------------------------------------


def test_weights_only_leaves_out_the_state_of_the_training_and_keeps_a_forks_variables(
        convert, tiny_model, tmp_path):
    """Configuration and vocabulary are copied unchanged. A fork added some of the arrays."""
    directory, weights = tmp_path / "training", tiny.weights()
    own = random_arrays({"crf/transitions": (3, 3), "bert/adapter/kernel": (WIDTH, 2), "temperature": ()})
    slots = {f"{name}/{slot}": np.ones_like(array) for name, array in own.items()
             for slot in ("adam_m", "adam_v", "Momentum", "lamb/m")}
    written = tiny.write_training(directory, weights, 3, **own, **slots, beta1_power=np.float32(0.9),
                                  loss_scale=np.float32(8), good_steps=np.int32(4))
    for path in directory.glob("*.meta"):
        path.unlink()
    (directory / "bert_config.json").write_text('{"of": "a fork"}')
    (directory / "tokenizer_config.json").write_text('{"do_lower_case":   true}')
    log = convert(input=directory, output=tmp_path / "out", weights_only=True, vocab_file=tiny_model.vocab)
    assert_same(tensors_of(tmp_path / "out" / "bert_model.ckpt"),
                {name: written[name] for name in (*weights, *CLASSIFIER, *own)})
    assert set(os.listdir(tmp_path / "out")) == {
        "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "bert_config.json",
        "tokenizer_config.json", "vocab.txt"}
    for name in ("bert_config.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (directory / name).read_bytes()
    assert "--to not given: using tensorflow" in log


def test_weights_only_writes_the_letter_case_and_refuses_files_of_another_model(convert, refusal, tiny_model,
                                                                                tmp_path):
    other = write_lines(tmp_path / "other.txt", reversed(tiny.VOCABULARY))
    directory = model_directories.write_classifier(tmp_path / "trained", tiny_model)
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    record = read_json(directory / "run.json")
    vocabulary = tokenizer_flags.hash_vocabulary(directory / "vocab.txt")
    write_json(directory / "run.json", {**record, "vocabulary": vocabulary,
         "bert_config": {**tiny.CONFIG, "_name_or_path": "one"}})
    convert(input=directory, output=tmp_path / "out", weights_only=True, do_lower_case=False)
    assert read_json(tmp_path / "out" / "tokenizer_config.json") == {
        "do_lower_case": False, "strip_accents": False}
    flags = dict(input=directory, output=tmp_path / "new", weights_only=True)
    config = tmp_path / "other.json"
    write_json(config, {**tiny.CONFIG, "num_attention_heads": 1})
    assert (f"{config}: num_attention_heads is 1, but according to {directory}/run.json the model was trained"
            in refusal(**flags, bert_config_file=config))
    message = "differs from the vocabulary with which the model was trained"
    assert message in refusal(**flags, vocab_file=other)
    shutil.copyfile(other, directory / "vocab.txt")
    assert message in refusal(**flags)


# --- Existing files --------------------------------------------------------------------------------------


def test_nothing_is_replaced_without_force(convert, refusal, tiny_model, tmp_path):
    out = tmp_path / "with [brackets]"  # brackets must not be read as a pattern
    out.mkdir()
    old = ["config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json",
           "tokenizer.json"]
    for name in (*old, "README.md"):
        (out / name).write_text("old")
    message = refusal(input=tiny_model.checkpoint, output=out)
    assert f"--output={out} contains files that would be replaced: {', '.join(old)}. " in message
    assert "--force" in message

    convert(input=tiny_model.checkpoint, output=out, force=True)
    assert set(os.listdir(out)) == {
        "README.md", "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}
    assert_same(safetensors.load_file(out / "model.safetensors"), their_arrays(tiny_model.weights))

    (out / "config.json").unlink()
    (out / "config.json").mkdir()
    said = refusal(input=tiny_model.checkpoint, output=out, force=True)
    assert "a subdirectory already has the name config.json" in said


# --- Errors ----------------------------------------------------------------------------------------------

THEIRS, OURS = dict(input="model/hugging_face"), dict(input="model/bert_model.ckpt")


@pytest.mark.parametrize("flags, files, expected", [
    (dict(THEIRS, output=None), {}, "--output is required"),
    (THEIRS, {"hugging_face/config.json": None}, "--bert_config_file is required: there is no "
     "bert_config.json or config.json in the directory of --input=model/hugging_face."),
    (THEIRS, {"hugging_face/config.json": json.dumps({
        **tiny.CONFIG, "model_type": "bert", "tie_word_embeddings": False})},
     "model/hugging_face/config.json is not usable:\n  tie_word_embeddings=false is not supported"),
    (OURS, {"vocab.txt": None}, "--vocab_file is required: there is no vocab.txt or tokenizer.json in the "
     "directory of --input=model/bert_model.ckpt."),
    (dict(OURS, weights_only=True),
     {"vocab.txt": "".join(f"{word}\n" for word in [*tiny.VOCABULARY, "more"])},
     "vocab.txt has 52 entries, but the config's vocab_size is 51"),
    (dict(THEIRS, to="hugging_face"), {}, "--to=hugging_face: model/hugging_face already has this format"),
    (dict(input="step.ckpt", weights_only=True), {}, "contains no weights"),
    (dict(THEIRS, output="model/x/../hugging_face", force=True), {"x/a": ""},
     "--output=model/x/../hugging_face is the directory of the input"),
    (dict(THEIRS, output="out/bert_model.ckpt"), {}, "--output=out/bert_model.ckpt is the name of a file. "
     "Name a directory")], ids=str)
def test_what_cannot_be_converted_is_refused_in_one_message(refusal, tiny_model, tmp_path, flags, files,
                                                            expected):
    shutil.copytree(tiny_model.directory, tmp_path / "model")
    tiny.write_tensorflow(tmp_path / "step.ckpt", {"global_step": np.int64(1)})
    for name, text in files.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(exist_ok=True)
        path.unlink() if text is None else path.write_text(text)
    given = {"output": "out", **flags}
    assert expected in refusal(**given)


def test_what_a_killed_conversion_left_is_removed_by_the_next(convert, tiny_model, tmp_path):
    (tmp_path / "converted").mkdir()
    kept, held, folders = ".new_model.other", ".new_model.held", (tmp_path, tmp_path / "converted")
    for folder in folders:
        for name in (".new_model.killed", kept, held):
            (folder / name).mkdir()
        for name in (".new_model.killed", held):  # a killed process leaves its lock file
            (folder / f"{name}.lock").touch()
    with locks.lock_file(str(folders[0] / held)), locks.lock_file(str(folders[1] / held)):
        convert(input=tiny_model.checkpoint, output="converted")
        for folder in folders:
            assert {path.name for path in folder.glob(".*")} == {kept, held, f"{held}.lock"}
    assert (tmp_path / "converted" / "model.safetensors").exists()


@pytest.mark.slow(reason="writes 90 MB")
def test_without_an_input_the_installed_model_is_converted(run_script, tmp_path):
    done = run_script("convert_checkpoint.py", output="out", published_config=True)
    done.assert_success("--input not given: using ")
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config["num_hidden_layers"] == 6 and (tmp_path / "out" / "bert_model.ckpt.index").exists()
