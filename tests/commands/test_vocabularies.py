"""A vocabulary in another order is refused, because tokens would get the vectors of other tokens.

The check begins with the records of a pre-training, and includes all runs that start from its weights.
"""

import json

from helpers import read_json, write_json, write_lines
import model_directories
from outputs import record
import pytest
import tiny

from bertlib.runs import tokenizer_flags, trained_model
from bertlib.runs.settings import Settings
from bertlib.tasks.pretraining import pretraining_records

ROW = "pre-training"
MANIFEST = "train.tfrecord.manifest.json"


def reordered(model, path):
    """Writes the vocabulary with its words in reverse order. The special tokens keep their places."""
    words = model.vocab.read_text().splitlines()
    return write_lines(path, [*words[:5], *words[:4:-1]])


# --- Pre-training ----------------------------------------------------------------------------------------


def resolve(*paths, vocab_file=None):
    """Returns (hash of the vocabulary of some records, the settings of the run)."""
    settings = Settings({"vocab_file": vocab_file, "spm_model_file": None, "do_lower_case": None,
                         "marker_tokens": None}, set())
    return pretraining_records.resolve_vocabulary(settings, list(map(str, paths))), settings


def test_a_pre_training_takes_the_vocabulary_of_its_records(untrained):
    done = untrained.train(vocab_file=None, init_checkpoint=None, do_eval=False, num_train_steps=1)
    done.assert_success(f"vocab.txt (the vocabulary of the records, see {MANIFEST})")
    vocabulary = untrained.directory / "model" / "vocab.txt"
    found = record(untrained.output)
    assert found["vocabulary"] == tokenizer_flags.hash_vocabulary(vocabulary)
    assert found["do_lower_case"] is True
    assert (untrained.output / "vocab.txt").read_bytes() == vocabulary.read_bytes()


@pytest.mark.parametrize("flags, said", [
    (dict(vocab_file="other.txt"), "--vocab_file=other.txt differs from the vocabulary of the records ("),
    (dict(do_lower_case=False), "--do_lower_case=false, but the records' manifest ")])
def test_a_pre_training_refuses_another_vocabulary(untrained, tiny_model, flags, said):
    reordered(tiny_model, untrained.directory / "other.txt")
    untrained.train(**flags).assert_refused(said)
    assert not untrained.output.exists()


def test_the_tokenizer_files_must_say_the_same_as_the_manifest(untrained):
    path, config = untrained.directory / MANIFEST, {"strip_accents": False, "tokenize_chinese_chars": False}
    manifest = read_json(path)
    manifest["settings"].update(strip_accents=False, keep_chinese=True)
    write_json(path, manifest)
    untrained.train(init_checkpoint=None).assert_refused(
        f"error: According to {MANIFEST}, the tokenizer of the records has the settings "
        f"{json.dumps(config)}, but the tokenizer files in model contain other settings or none. ")
    assert not untrained.output.exists()
    # The user follows the advice.
    vocabulary, records = untrained.directory / "model" / "vocab.txt", untrained.directory / "train.tfrecord"
    write_json(vocabulary.parent / "tokenizer_config.json", config)
    assert resolve(records, vocab_file=str(vocabulary))[0] == tokenizer_flags.hash_vocabulary(vocabulary)


@pytest.mark.parametrize("name, value", [("strip_accents", False), ("marker_tokens", "cat")])
def test_records_of_different_tokenizers_are_refused(untrained, workspaces, name, value):
    manifest = read_json(untrained.directory / MANIFEST)
    manifest["settings"][name] = value
    write_json(untrained.directory / MANIFEST, manifest)
    other = workspaces(untrained.row, untrained=True).directory / "train.tfrecord"
    with pytest.raises(ValueError, match=f"were written with two different values of {name}"):
        resolve(other, untrained.directory / "train.tfrecord",
                vocab_file=str(untrained.directory / "model" / "vocab.txt"))


def test_the_vocabulary_of_records_is_known_where_its_file_is_another(untrained, tiny_model):
    manifest = read_json(untrained.directory / MANIFEST)
    manifest["vocabulary"]["path"] = str(reordered(tiny_model, untrained.directory / "other.txt"))
    write_json(untrained.directory / MANIFEST, manifest)
    found, settings = resolve(untrained.directory / "train.tfrecord")
    assert found == tokenizer_flags.hash_vocabulary(tiny_model.vocab) and settings.vocab_file is None


@pytest.mark.parametrize("name, change", [
    (MANIFEST, lambda path: write_json(path, {**read_json(path), "blocks_done": 0})),  # an unfinished run
    ("train.tfrecord", lambda path: path.write_bytes(path.read_bytes() * 2)),
    ("train.tfrecord.partial", lambda path: path.touch())])
def test_records_that_their_manifest_does_not_describe_are_refused(untrained, name, change):
    change(untrained.directory / name)
    (untrained.directory / "link").symlink_to("train.tfrecord")
    refused = untrained.train(input_file="link")
    refused.assert_refused("error: link is not the file that ",
                           "Run create_pretraining_data.py again with the same flags.")
    assert not untrained.output.exists()


# --- Commands that start from weights --------------------------------------------------------------------


def test_fine_tuning_refuses_another_vocabulary(trained, tiny_model, run_script, tmp_path):
    start = trained.output
    refused = run_script(
        "run_classifier.py", task_name="mrpc", data_dir=tiny.write_task(tmp_path / "data", "mrpc", train=4),
        do_train=True, output_dir="classifier", init_checkpoint=start, max_seq_length=tiny.SEQ_LENGTH,
        vocab_file=reordered(tiny_model, tmp_path / "other.txt"))
    refused.assert_refused(
        f"--vocab_file={tmp_path}/other.txt differs from the vocabulary of --init_checkpoint={start}: other "
        f"entries, or another order. {start}/run.json records the vocabulary of the checkpoint. With the "
        f"other vocabulary, tokens would get the vectors of other tokens. Pass the vocabulary in {start}.\n")
    assert not (tmp_path / "classifier").exists()


@pytest.fixture
def output(tiny_model, tmp_path):
    """The directory of a trained classifier."""
    return model_directories.write_classifier(tmp_path / "output", tiny_model, "01")


@pytest.mark.parametrize("script, flags", [
    ("predict.py", dict(model_dir="output", input_file="texts.txt")),
    ("convert_checkpoint.py", dict(input="output", output="converted"))])
def test_a_reordered_vocabulary_beside_weights_is_refused(run_script, tiny_model, output, tmp_path, script,
                                                          flags):
    (tmp_path / "texts.txt").write_text("the cat\n")
    write_json(output / "run.json", {**record(output), "vocabulary": tokenizer_flags.hash_vocabulary(
        output / "vocab.txt")})
    reordered(tiny_model, output / "vocab.txt")
    before = sorted(tmp_path.rglob("*"))
    run_script(script, **flags).assert_refused(
        "error: output/vocab.txt differs from the vocabulary with which the model was trained: other "
        "entries, or another order. output/run.json records the vocabulary of the training.")
    assert sorted(tmp_path.rglob("*")) == before


def test_labels_that_differ_between_two_files_are_refused(output):
    (output / "labels.txt").write_text("1\n0\n")
    with pytest.raises(ValueError, match="labels.txt and .*run.json differ in the labels or in their order"):
        trained_model.read(str(output))
