"""--marker_tokens keeps markers in texts whole: in the tokenizers, in a training, and in later commands."""

import json
import random

from helpers import read_json, settings_of, write_lines
import numpy as np
import pytest
import tiny

from bertlib import serving
from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import tokenizer_flags
from bertlib.serving import export_text

MARKERS = ["[E1]", "[/E1]"]
FLAG = ",".join(MARKERS)
TEXT = "the [E1] old cat [/E1] sees a[E1]Bird[/E1]"
TOKENS = ["the", "[E1]", "old", "cat", "[/E1]", "sees", "a", "[E1]", "bird", "[/E1]"]
SPECIAL, WORDS = tiny.VOCABULARY[:5], tiny.VOCABULARY[5:]
SIZE = len(tiny.VOCABULARY)


def load(path, markers=FLAG, **flags):
    return tokenizer_flags.load_tokenizer(settings_of(vocab_file=path, marker_tokens=markers, **flags))


# --- The vocabulary --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unused", "markers", "expected"), [
    (["[unused0]", "[unused1]", "[unused2]"], FLAG, ["[E1]", "[/E1]", "[unused2]"]),
    # An entry that is a marker itself keeps its name.
    (["[unused0]", "[unused1]", "[unused2]"], "[E1],[unused0],[/E1]", ["[unused0]", "[E1]", "[/E1]"]),
    (["[/E1]", "[unused1]"], FLAG, ["[/E1]", "[E1]"]),
    (["[unused0]"], FLAG, ["[E1]", *WORDS, "[/E1]"]),  # the vocabulary grows
    ([], FLAG, [*WORDS, "[E1]", "[/E1]"])])
def test_markers_take_unused_entries_and_then_new_ones(unused, markers, expected, tmp_path):
    path = write_lines(tmp_path / "vocab.txt", [*SPECIAL, *unused, *WORDS])
    tokenizer = load(path, markers, do_lower_case=True)
    vocabulary = list(tokenizer.vocab)
    assert vocabulary[5:5 + len(expected)] == expected
    assert len(vocabulary) == max(5 + len(unused) + len(WORDS), 5 + len(expected))
    for text in (TEXT, TEXT.encode()):
        found = tokenizer.tokenize(text), tokenizer.tokenize_plainly(text)
        assert found == (TOKENS, TOKENS)
    assert [TEXT[start:end] for start, end in tokenizer.spans(TEXT)] == [*TOKENS[:-2], "Bird", "[/E1]"]
    assert tokenizer.tokenize("[e1]") != ["[E1]"]


def test_a_sentencepiece_model_has_no_markers():
    with pytest.raises(ValueError, match=r"--marker_tokens=\[E1\] needs --vocab_file.*user_defined_symbols"):
        tokenizer_flags.load_tokenizer(settings_of(spm_model_file="spm.model", marker_tokens="[E1]"))


# --- Commands --------------------------------------------------------------------------------------------


def sentence(chance):
    first, second = tiny.sentence(chance), tiny.sentence(chance)
    return f"[E1] {first} [/E1] {second}"


def write_data(directory):
    """Writes pairs of marked texts, 16 for the training and 8 for the evaluation."""
    chance = random.Random(1)
    for name, size in (("train", 16), ("dev", 8)):
        rows = [f"{sentence(chance)},{('no', 'yes')[index % 2]}\n" for index in range(size)]
        (directory / f"{name}.csv").write_text("".join(["text,label\n", *rows]))


def training_flags(model, **changes):
    return {**model.flags, "train_file": "train.csv", "dev_file": "dev.csv", "do_train": True,
            "do_eval": True, "train_batch_size": 4, "num_train_epochs": 1, "output_dir": "out", **changes}


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """A directory with data and the output directory "out" of a classifier whose vocabulary has grown."""
    directory = tmp_path_factory.mktemp("markers")
    write_data(directory)
    finished = scripts.run("run_classifier.py", *tiny.flags(**training_flags(
        tiny_model, marker_tokens=FLAG, keep_best="eval_accuracy", eval_every_steps=4)), cwd=directory)
    finished.assert_success()
    assert "is split at the brackets" not in finished.err
    return directory


def test_the_output_directory_has_the_markers(trained, tiny_model):
    out = trained / "out"
    assert (out / "vocab.txt").read_text().split("\n") == [*tiny.VOCABULARY, *MARKERS, ""]
    assert read_json(out / "bert_config.json")["vocab_size"] == SIZE + 2
    assert read_json(out / "tokenizer_config.json")["additional_special_tokens"] == sorted(MARKERS)
    record = read_json(out / "run.json")
    assert record["settings"]["marker_tokens"] == FLAG and record["bert_config"]["vocab_size"] == SIZE + 2
    # The weights of the checkpoint fill the first rows, and a marker starts from the mean of its pieces.
    name = checkpoint_formats.WORD_EMBEDDINGS
    table = checkpoint_formats.open_checkpoint(str(out / "model.ckpt-0")).read(name)
    old = tiny_model.weights[name]
    assert np.array_equal(table[:SIZE], old) and table.shape == (SIZE + 2, old.shape[1])
    unknown = old[tiny.VOCABULARY.index("[UNK]")]  # "[", "e1" and "]" are not in the tiny vocabulary
    np.testing.assert_allclose(table[SIZE:], [unknown] * 2, rtol=1e-6)


def test_later_commands_have_the_markers(trained, scripts, tiny_model):
    predictor = serving.load(str(trained / "out"))
    tokenizer = predictor._trained.tokenizer
    assert tokenizer.tokenize(TEXT) == TOKENS
    line = predictor(TEXT)
    (trained / "texts.txt").write_text(f"{TEXT}\n")
    finished = scripts.run("predict.py", "--model_dir=out", "--input_file=texts.txt", cwd=trained)
    finished.assert_success()
    assert json.loads(finished.out)["label"] == line["label"]
    # An evaluation takes the flag, the vocabulary and the configuration from the directory or from the flags
    # of the training. The metrics are those of the training.
    before = read_json(trained / "out" / "eval_results.json")
    flags = training_flags(tiny_model, do_train=None)
    for changes in (dict.fromkeys(tiny_model.flags), {"marker_tokens": FLAG}):
        again = scripts.run("run_classifier.py", *tiny.flags(**{**flags, **changes, "results_dir": "again"}),
                            cwd=trained)
        again.assert_success()
        assert read_json(trained / "again" / "eval_results.json")["eval_loss"] == before["eval_loss"]


def test_a_contradiction_is_refused(trained, scripts, tiny_model):
    flags = training_flags(tiny_model)
    for changes, message in (
            ({"do_train": None, "marker_tokens": "[E2]"}, f"--marker_tokens=[E2] (in the training: {FLAG})"),
            ({"num_train_epochs": 2}, f"--marker_tokens=nothing, but the training in --output_dir=out has "
             f"--marker_tokens={FLAG}. Pass the value"),
            ({"num_train_epochs": 2, "marker_tokens": "[E2]"}, "--marker_tokens=[E2], but the training")):
        finished = scripts.run("run_classifier.py", *tiny.flags(**{**flags, **changes}), cwd=trained)
        finished.assert_refused(message)


def test_a_training_continues_and_another_starts_from_it(trained, scripts, tiny_model):
    flags = training_flags(tiny_model, num_train_epochs=2, marker_tokens=FLAG, do_eval=None)
    scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=trained).assert_success()
    assert (trained / "out" / "model.ckpt-8.index").exists()
    start = dict(init_checkpoint="out", vocab_file=None, bert_config_file=None, output_dir="next",
                 marker_tokens=None)
    finished = scripts.run("run_classifier.py", *tiny.flags(**{**flags, **start}), cwd=trained)
    finished.assert_success()
    assert "is split at the brackets" not in finished.err
    tokenizer_config = read_json(trained / "next" / "tokenizer_config.json")
    assert tokenizer_config["additional_special_tokens"] == sorted(MARKERS)


def test_vectors_of_markers(run_script, tiny_model, tmp_path):
    (tmp_path / "lines.txt").write_text(f"{TEXT}\n")
    run_script("extract_features.py", **tiny_model.flags, input_file="lines.txt", output_file="v.jsonl",
               layers="-1", marker_tokens=FLAG).assert_success()
    line = json.loads((tmp_path / "v.jsonl").read_text())
    assert [feature["token"] for feature in line["features"]] == ["[CLS]", *TOKENS, "[SEP]"]


def test_pretraining_takes_the_markers_from_the_records(run_script, tiny_model, tmp_path):
    chance = random.Random(2)
    documents = ["\n".join(sentence(chance) for _ in range(4)) for _ in range(4)]
    (tmp_path / "lines.txt").write_text("\n\n".join(documents) + "\n")
    run_script("create_pretraining_data.py", vocab_file=tiny_model.vocab, input_file="lines.txt",
               output_file="records.tfrecord", max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=3,
               marker_tokens=FLAG).assert_success()
    flags = dict(input_file="records.tfrecord", bert_config_file=tiny_model.config, do_train=True,
                 max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=3, num_train_steps=1,
                 train_batch_size=2, num_warmup_steps=0, output_dir="out",
                 init_checkpoint=tiny_model.checkpoint)
    run_script("run_pretraining.py", **flags, marker_tokens="[E2]").assert_refused(
        f"says marker_tokens={FLAG}. Pass --marker_tokens={FLAG}, or leave the flag out")
    run_script("run_pretraining.py", **flags).assert_success()
    assert (tmp_path / "out" / "vocab.txt").read_text().split("\n") == [*tiny.VOCABULARY, *MARKERS, ""]
    assert read_json(tmp_path / "out" / "bert_config.json")["vocab_size"] == SIZE + 2
    assert read_json(tmp_path / "out" / "run.json")["settings"]["marker_tokens"] == FLAG


# --- The exported graph ----------------------------------------------------------------------------------


@pytest.mark.slow(reason="it needs tensorflow-text")
def test_the_tokenizer_of_a_text_signature_keeps_markers_whole(trained):
    pytest.importorskip("tensorflow_text")
    import tensorflow.compat.v1 as tf
    with serving.load(str(trained / "out")) as predictor:
        tokenizer = predictor._trained.tokenizer
    chance = random.Random(3)
    parts = [*MARKERS, "[e1]", "[E1", "E1]", "[", "]", " ", "cat", "Bird", "東", "é", "Σ"]
    texts = ["".join(chance.choices(parts, k=9)) for _ in range(50)]
    with tf.Graph().as_default(), tf.Session() as session:
        ids = export_text.GraphTokenizer(tokenizer)(tf.constant(texts))
        session.run(tf.tables_initializer())
        found = session.run(ids).to_list()
    assert found == [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
