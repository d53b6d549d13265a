"""Tests of build_vocab.py --extend: the new words, the rows of their weights, and the errors."""

import json
import os
import shutil

from bertlib.commands import build_vocab

from helpers import read_json, write_json
import numpy as np
import pytest
import tiny

from bertlib.checkpoints import checkpoint_formats
import tokenization

TEXT = "The unsees cat sees dogs, dogs and dogs. A ZEBRA eats paper; the zebra eats unsees bread dogly.\n"
# The old pieces of the words that are added. The vocabulary has no piece of "zebra".
PIECES = {"unsees": ["un", "##s", "##ee", "##s"], "dogs": ["dog", "##s"], "zebra": ["[UNK]"]}
VOCABULARY = [*tiny.VOCABULARY, "##ee"]
ROWS = -(-len(VOCABULARY) // 8) * 8  # of the weights. The last rows are padding.
CONFIG = {**tiny.CONFIG, "vocab_size": ROWS}
WORD_EMBEDDINGS, OUTPUT_BIAS = checkpoint_formats.WORD_TABLES
WIDTH = CONFIG["hidden_size"]


def weights():
    """Returns {name: array}: the encoder, the pre-training heads, and a classifier. The command removes it.
    """
    generator = np.random.RandomState(3)
    shapes = {WORD_EMBEDDINGS: (ROWS, WIDTH), OUTPUT_BIAS: (ROWS,),
              "cls/predictions/transform/dense/kernel": (WIDTH, WIDTH), "output_weights": (2, WIDTH)}
    return {**tiny.weights(), **{name: generator.standard_normal(shape).astype(np.float32)
                                 for name, shape in shapes.items()}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with a model."""
    directory = tmp_path_factory.mktemp("model")
    tiny.write_tensorflow(directory / "bert_model.ckpt", weights())
    (directory / "vocab.txt").write_text(build_vocab.format_vocab(VOCABULARY))
    write_json(directory / "bert_config.json", CONFIG)
    return directory


@pytest.fixture
def extend(run_script, model, tmp_path):
    """A function that runs the command on TEXT in `tmp_path`. A flag with the value None is left out."""
    (tmp_path / "text.txt").write_text(TEXT)

    def extend(**changes):
        flags = {"input_file": "text.txt", "extend": model / "vocab.txt", "init_checkpoint": model,
                 "vocab_size": len(VOCABULARY) + 10, "output_file": "new/vocab.txt", **changes}
        return run_script("build_vocab.py", **flags)
    return extend


# --- The choice of words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("limits", "expected"), [
    ((9, 2), ["unsees", "dogs", "zebra"]),  # they save 2 · 3 and 4 · 1 tokens; two words are no longer [UNK]
    ((2, 2), ["unsees", "dogs"]), ((9, 3), ["dogs"]), ((9, 1), ["unsees", "dogs", "zebra", "dogly"])])
def test_words_that_save_most_tokens_come_first(limits, expected):
    words = {"dogly": 1, "zebra": 2, "dogs": 4, "unsees": 2, "cat": 9, "cats" * 60: 5}
    tokenizer = tokenization.WordpieceTokenizer({token: index for index, token in enumerate(VOCABULARY)})
    assert build_vocab.choose_words(words, tokenizer, *limits) == expected


# --- The command -----------------------------------------------------------------------------------------


def read_tensors(path):
    checkpoint = checkpoint_formats.open_checkpoint(path)
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


def test_the_extended_model_is_the_old_model_with_means_of_pieces(extend, model, tmp_path):
    done = extend()
    done.assert_success("3 new words, such as unsees, dogs, zebra. The text has 23 tokens instead of 32.")
    directory = tmp_path / "new"
    vocabulary = (directory / "vocab.txt").read_text().split("\n")[:-1]
    assert vocabulary == [*VOCABULARY, *PIECES]
    config, tokenizer_config = (read_json(directory / f"{name}_config.json")
                                for name in ("bert", "tokenizer"))
    assert config == {**CONFIG, "vocab_size": len(vocabulary)} and tokenizer_config["do_lower_case"] is True
    old, new = weights(), read_tensors(directory)
    assert set(new) == set(old) - {"output_weights"}
    for name in new:
        assert np.array_equal(new[name][:len(VOCABULARY)], old[name][:len(VOCABULARY)]), name
    for name in (WORD_EMBEDDINGS, OUTPUT_BIAS):
        means = [np.mean([old[name][VOCABULARY.index(piece)] for piece in pieces], 0)
                 for pieces in PIECES.values()]
        np.testing.assert_allclose(new[name][len(VOCABULARY):], means, rtol=1e-6)


def test_a_vocabulary_without_weights_is_extended(extend, model, tmp_path):
    done = extend(init_checkpoint=None, output_file="longer.txt", vocab_size=len(VOCABULARY) + 2)
    done.assert_success()
    assert (tmp_path / "longer.txt").read_text().split("\n") == [*VOCABULARY, "unsees", "dogs", ""]
    assert sorted(os.listdir(tmp_path)) == ["longer.txt", "text.txt"]


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"extend": None}, "--init_checkpoint needs --extend. Pass both flags"),
    ({"init_checkpoint": None, "bert_config_file": "c.json"}, "--bert_config_file needs --init_checkpoint"),
    ({"vocab_size": len(VOCABULARY)}, f"leaves no place for new words: {{model}}/vocab.txt already has "
     f"{len(VOCABULARY)} entries. For 1000 new words, pass --vocab_size={len(VOCABULARY) + 1000}."),
    ({"min_frequency": 9}, "There are no words to add"),
    ({"do_lower_case": False, "min_frequency": 1}, "such as A, have capital letters"),
    ({"output_file": "new/words.txt"}, "the name of the file must be vocab.txt"),
    ({"output_file": "vocab.txt"}, "--output_file=vocab.txt contains files that would be replaced: bert_"),
])
def test_bad_flags(extend, model, tmp_path, changes, complaint):
    if changes.get("output_file") == "vocab.txt":
        (tmp_path / "bert_config.json").write_text("{}")
    assert_refused(extend(**changes), tmp_path, complaint.replace("{model}", str(model)))


def assert_refused(done, directory, complaint):
    done.assert_refused(complaint)
    assert set(os.listdir(directory)) <= {"text.txt", "bert_config.json", "other"}


@pytest.mark.parametrize(("changes", "flags", "complaint"), [
    ({"bert_config.json": json.dumps({**CONFIG, "vocab_size": ROWS + 8})}, {}, "does not fit the model"),
    ({"tokenizer_config.json": '{"do_lower_case": false}'}, {"do_lower_case": True},
     "--do_lower_case=true, but"),
    ({"bert_config.json": None}, {}, "--bert_config_file is required")])
def test_files_that_contradict_each_other(extend, model, tmp_path, changes, flags, complaint):
    other = shutil.copytree(model, tmp_path / "other")
    for name, content in changes.items():
        (other / name).unlink() if content is None else (other / name).write_text(content)
    assert_refused(extend(extend=other / "vocab.txt", init_checkpoint=other, **flags), tmp_path, complaint)
