"""A vocabulary in another order is refused, because tokens would get the vectors of other tokens.

The check begins with the records of a pre-training, and includes all runs that start from its weights.
"""

import json
import random
import shutil

from helpers import read_json, write_json
import model_directories
import pytest
import tiny

from bertlib.data import record_manifests
from bertlib.output_directory import model_directory, output_files
from bertlib.runs import vocabularies
from bertlib.runs.settings import Settings


def reordered(model, path):
    """Writes the vocabulary with its words in reverse order. The special tokens keep their places."""
    words = model.vocab.read_text().splitlines()
    path.write_text("".join(f"{word}\n" for word in [*words[:5], *words[:4:-1]]))
    return path


@pytest.fixture(scope="module")
def records(scripts, tiny_model, tmp_path_factory):
    """The directory of records for a pre-training and their manifest."""
    here = tmp_path_factory.mktemp("records")
    chance = random.Random(1)
    documents = ("".join(tiny.sentence(chance) + "\n" for _ in range(6)) for _ in range(6))
    (here / "text.txt").write_text("\n".join(documents))
    done = scripts.run("create_pretraining_data.py", *tiny.flags(
        input_file="text.txt", output_file="a.tfrecord,b.tfrecord", vocab_file=tiny_model.vocab,
        max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=3, dupe_factor=2), cwd=here)
    done.assert_success()
    return here


@pytest.fixture(scope="module")
def pretrain(scripts, tiny_model, records):
    """A function that pre-trains for one step on the second file of records, with some flags."""
    def run(output, **flags):
        given = dict(do_train=True, input_file=records / "b.tfrecord", bert_config_file=tiny_model.shallow,
                     max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=3, train_batch_size=2,
                     num_train_steps=1, num_warmup_steps=0, output_dir=output)
        return scripts.run("run_pretraining.py", *tiny.flags(**{**given, **flags}), cwd=records)

    return run


@pytest.fixture(scope="module")
def pretrained(pretrain, tmp_path_factory):
    """(`Finished`, output directory) of a pre-training without a flag for the vocabulary."""
    output = tmp_path_factory.mktemp("pretrained") / "output"
    done = pretrain(output)
    done.assert_success()
    return done, output


def test_a_pre_training_takes_the_vocabulary_of_its_records(pretrained, records, tiny_model):
    done, output = pretrained
    manifest = records / "a.tfrecord.manifest.json"
    assert (f"--vocab_file not given: using {tiny_model.vocab} (the vocabulary of the records, see "
            f"{manifest})") in done.err
    record = read_json(output / "run.json")
    assert record["vocabulary"] == output_files.hash_vocabulary(tiny_model.vocab)
    assert record["do_lower_case"] is True
    assert (output / "vocab.txt").read_bytes() == tiny_model.vocab.read_bytes()


@pytest.mark.parametrize("flags, said", [
    (lambda model, path: dict(vocab_file=reordered(model, path)),
     "--vocab_file={path} differs from the vocabulary of the records ({model}): other entries, or another "),
    (lambda model, path: dict(do_lower_case=False), "--do_lower_case=false, but the records' manifest ")])
def test_a_pre_training_refuses_another_vocabulary(pretrain, tiny_model, tmp_path, flags, said):
    path = tmp_path / "other.txt"
    refused = pretrain(tmp_path / "output", **flags(tiny_model, path))
    assert refused.code == 1 and not (tmp_path / "output").exists()
    assert said.format(path=path, model=tiny_model.vocab) in refused.err, refused.err


@pytest.mark.parametrize("recorded, config", [
    ({"strip_accents": False, "keep_chinese": True},
     {"strip_accents": False, "tokenize_chinese_chars": False})], ids=str)
def test_the_tokenizer_files_must_say_the_same_as_the_manifest(pretrain, records, tiny_model, tmp_path,
                                                               recorded, config):
    other = shutil.copytree(records, tmp_path / "other")
    path = other / "a.tfrecord.manifest.json"
    manifest = read_json(path)
    manifest["settings"].update(recorded)
    write_json(path, manifest)
    vocabulary = shutil.copy(tiny_model.vocab, other / "vocab.txt")
    refused = pretrain(tmp_path / "output", input_file=other / "a.tfrecord", vocab_file=vocabulary)
    assert refused.code == 1 and not (tmp_path / "output").exists()
    assert (f"error: According to {path}, the tokenizer of the records has the settings "
            f"{json.dumps(config)}, but the tokenizer files in {other} contain other settings or none. "
            ) in refused.err
    # The user follows the advice.
    write_json(other / "tokenizer_config.json", config)
    settings = Settings({"vocab_file": str(vocabulary), "spm_model_file": None, "do_lower_case": None}, set())
    assert (vocabularies.resolve_from_records(settings, [f"{other}/a.tfrecord"])
            == output_files.hash_vocabulary(vocabulary))
    with pytest.raises(ValueError, match="were written with two different values of strip_accents"):
        vocabularies.resolve_from_records(settings, [f"{other}/a.tfrecord", f"{records}/a.tfrecord"])


def test_the_vocabulary_of_records_is_known_where_its_file_is_another(records, tiny_model, tmp_path):
    moved = shutil.copytree(records, tmp_path / "moved")
    manifest = read_json(moved / "a.tfrecord.manifest.json")
    manifest["vocabulary"]["path"] = str(reordered(tiny_model, tmp_path / "other.txt"))
    write_json(moved / "a.tfrecord.manifest.json", manifest)
    settings = Settings({"vocab_file": None, "spm_model_file": None, "do_lower_case": None}, set())
    found = vocabularies.resolve_from_records(settings, [f"{moved}/a.tfrecord"])
    assert found == output_files.hash_vocabulary(tiny_model.vocab) and settings.vocab_file is None


def stop_after_no_block(directory):
    """Changes a manifest as if a run was stopped before it completed the first block."""
    path = directory / "a.tfrecord.manifest.json"
    write_json(path, {**read_json(path), "blocks_done": 0})


@pytest.mark.parametrize("change", [
    stop_after_no_block,
    lambda directory: (directory / "b.tfrecord").write_bytes((directory / "a.tfrecord").read_bytes() * 2),
    lambda directory: (directory / "b.tfrecord.partial").touch()],
    ids=["unfinished", "another size", "not renamed"])
def test_records_that_their_manifest_does_not_describe_are_refused(pretrain, records, tmp_path, change):
    other = shutil.copytree(records, tmp_path / "other")
    path = tmp_path / "b.link"
    path.symlink_to(other / "b.tfrecord")
    change(other)
    refused = pretrain(tmp_path / "output", input_file=path)
    assert refused.code == 1 and not (tmp_path / "output").exists()
    assert f"error: {path} is not the file that {other}/a.tfrecord.manifest.json describes. " in refused.err
    assert "Run create_pretraining_data.py again with the same flags." in refused.err


def test_a_warning_names_the_records_without_a_manifest(records, tmp_path, caplog):
    caplog.set_level("WARNING", logger="absl")
    other = shutil.copytree(records, tmp_path / "other")
    for name in "cdefg":
        shutil.copy(other / "b.tfrecord", other / name)
    assert record_manifests.read([f"{other}/c", f"{other}/d"]) == []
    assert not caplog.messages
    (found, _), = record_manifests.read([f"{other}/{name}" for name in ["b.tfrecord", *"cdefg"]])
    assert caplog.messages == [
        f"No manifest describes {other}/c, {other}/d, {other}/e and 2 more files, so the vocabulary of these "
        "records is not checked. Make sure that it is the vocabulary of the other records, see "
        f"{found}."]


# --- Fine-tuning -----------------------------------------------------------------------------------------


@pytest.fixture
def fine_tune(run_script, pretrained, tmp_path):
    """A function that trains a classifier with some flags. It starts from a pre-training."""
    data = tiny.write_task(tmp_path / "data", "mrpc", train=4)

    def run(start=pretrained[1], **flags):
        given = dict(task_name="mrpc", data_dir=data, do_train=True, train_batch_size=4, num_train_epochs=1,
                     max_seq_length=tiny.SEQ_LENGTH, output_dir=tmp_path / "classifier",
                     init_checkpoint=start)
        return run_script("run_classifier.py", **{**given, **flags})

    return run


def test_fine_tuning_refuses_another_vocabulary(fine_tune, pretrained, tiny_model, tmp_path):
    refused = fine_tune(vocab_file=reordered(tiny_model, tmp_path / "other.txt"))
    assert refused.code == 1 and not (tmp_path / "classifier").exists()
    said = (f"--vocab_file={tmp_path}/other.txt differs from the vocabulary of --init_checkpoint={{start}}: "
            "other entries, or another order. {start}/run.json records the vocabulary of the checkpoint. "
            "With the other vocabulary, tokens would get the vectors of other tokens. "
            "Pass the vocabulary in {start}.\n")
    assert said.replace("{start}", str(pretrained[1])) in refused.err


# --- Commands that answer --------------------------------------------------------------------------------


@pytest.fixture
def output(tiny_model, tmp_path):
    """The directory of a trained classifier."""
    (tmp_path / "texts.txt").write_text("the cat\n")
    return model_directories.write(tmp_path / "output", tiny_model, "classification",
                                   model_directories.linear(2), ["0", "1"])


PREDICT = "predict.py", lambda output: dict(model_dir=output, input_file="texts.txt")
CONVERT = "convert_checkpoint.py", lambda output: dict(input=output, output="converted")


def check_refused(scripts, here, script, flags, said):
    before = sorted(here.rglob("*"))
    refused = scripts.run(script, *tiny.flags(**flags), cwd=here)
    assert refused.code == 1 and said in refused.err and sorted(here.rglob("*")) == before, refused.err


@pytest.mark.parametrize("script, flags", [PREDICT, CONVERT])
def test_a_reordered_vocabulary_beside_the_weights_is_refused(scripts, tiny_model, output, tmp_path, script,
                                                              flags):
    record = read_json(output / "run.json")
    record["vocabulary"] = output_files.hash_vocabulary(output / "vocab.txt")
    write_json(output / "run.json", record)
    reordered(tiny_model, output / "vocab.txt")
    check_refused(scripts, tmp_path, script, flags(output), (
        f"error: {output}/vocab.txt differs from the vocabulary with which the model was trained: other "
        f"entries, or another order. {output}/run.json records the vocabulary of the training."))


@pytest.mark.parametrize("name", ["labels.txt", "run.json"])
def test_labels_that_differ_between_two_files_are_refused(output, name):
    record = read_json(output / "run.json")
    (output / name).write_text("1\n0\n" if name == "labels.txt" else json.dumps(
        {**record, "labels": ["1", "0"]}))
    with pytest.raises(ValueError, match="labels.txt and .*run.json differ in the labels or in their order"):
        model_directory.read(str(output))
