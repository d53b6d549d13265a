"""An output directory that exists already: another process writes to it, or it has the model of another run.
"""

import json
import os
import random
import re
import shutil

from helpers import ROOT
import pytest
from test_run_squad import write_squad
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.commands import build_vocab
from bertlib.output_directory import model_writer, output_files
from bertlib.system import fingerprints, locks

STEPS = 4


def contents(directory):
    """Returns {path: content} of the files in a directory."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


def warnings_of(finished):
    """Returns the warnings of a run, without the warning that its few examples all have the same class."""
    return [line.split("WARNING: ", 1)[1] for line in finished.err.splitlines()
            if " WARNING: " in line and "does not distinguish" not in line]


class Mrpc(object):
    """A finished training of four steps."""

    def __init__(self, scripts, model, directory):
        self.scripts, self.directory, self.model = scripts, directory, model
        self.output = directory / "output"
        self.data = tiny.write_task(directory / "data", "mrpc", train=8, dev=3, test=2)
        tiny.write_task(self.data / "cola", "cola", train=8, dev=3)
        self.flags = dict(model.flags, bert_config_file=model.shallow, task_name="MRPC", data_dir=self.data,
                          do_train=True, train_batch_size=4, num_train_epochs=2, learning_rate=0.01,
                          save_checkpoints_steps=2, log_steps=1)
        self.finished = self.run(self.output)
        assert self.finished.code == 0, self.finished.err

    def run(self, output, **changes):
        flags = {**self.flags, "output_dir": output, **changes}
        given = {name: value for name, value in flags.items() if value is not None}
        return self.scripts.run("run_classifier.py", *tiny.flags(**given), cwd=self.directory)

    def copy(self, directory, steps=STEPS):
        """Returns a copy of the output directory in its state after `steps` steps."""
        output = directory / "output"
        shutil.copytree(self.output, output)
        (output / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{steps}"\n')
        return output


@pytest.fixture(scope="module")
def mrpc(scripts, tiny_model, tmp_path_factory):
    return Mrpc(scripts, tiny_model, tmp_path_factory.mktemp("mrpc"))


def test_optimizer_and_checkpoints_follow_their_flags(mrpc, tmp_path):
    output = tmp_path / "output"
    done = mrpc.run(output, weight_decay=0, clip_norm=0, save_checkpoints_steps=1, keep_checkpoint_max=2)
    assert done.code == 0, done.err
    *_, last = done.err.splitlines()
    assert f" The trained weights are in {output}. This run evaluated no examples" in last
    assert sorted(path.stem for path in output.glob("model.ckpt-*.index")) == ["model.ckpt-3", "model.ckpt-4"]
    settings = json.loads((output / "run.json").read_text())["settings"]
    assert (settings["weight_decay"], settings["clip_norm"]) == (0, 0)

    refused = mrpc.run(output, clip_norm="nan")
    assert refused.code == 1 and "--clip_norm" in refused.err


# --- Two runs in one directory ---------------------------------------------------------------------------


def test_a_second_run_is_refused_and_changes_nothing(mrpc, tmp_path):
    output = mrpc.copy(tmp_path, steps=2)
    with locks.lock_directory(output):
        before = contents(output)
        for changes in ({}, dict(do_train=None, do_eval=True)):
            refused = mrpc.run(output, **changes)
            assert refused.code == 1 and contents(output) == before
            hint = r" With --results_dir=DIRECTORY, .*" if changes else ""
            assert re.search(rf"\nrun_classifier\.py: error: {re.escape(str(output))} is in use: process "
                             rf"{os.getpid()} on \S+, since \d{{4}}-.* writes there\. Wait until that "
                             rf"process has ended, or stop it, or name another path\.{hint}\n$",
                             refused.err), refused.err


@pytest.mark.slow(reason="three whole runs")
def test_a_training_that_goes_on_is_evaluated_and_predicted_with_elsewhere(mrpc, tmp_path):
    results = tmp_path / "results"
    with locks.lock_directory(mrpc.output):
        before = contents(mrpc.output)
        done = mrpc.run(mrpc.output, do_train=None, do_eval=True, do_predict=True, results_dir=results)
        assert done.code == 0, done.err
        assert contents(mrpc.output) == before
    assert not warnings_of(done)
    assert {"eval_results.txt", "test_results.tsv", "test_predictions.tsv", "eval.tf_record",
            "predict.tf_record", "eval"} <= {path.name for path in results.iterdir()}
    assert "global_step = 4\n" in (results / "eval_results.txt").read_text()
    # The results are the same as in a run without the other process.
    here = mrpc.copy(tmp_path)
    assert mrpc.run(here, do_train=None, do_eval=True, do_predict=True).code == 0
    for name in ("eval_results.txt", "test_results.tsv"):
        assert (here / name).read_text() == (results / name).read_text()

    with locks.lock_directory(results):
        assert f"error: {results} is in use" in mrpc.run(mrpc.output, do_train=None, do_eval=True,
                                                         results_dir=results).err


@pytest.mark.slow(reason="a whole run, and a refused one")
def test_results_dir_is_checked_and_a_training_stays_in_output_dir(mrpc, tmp_path):
    refused = mrpc.run(mrpc.output, do_eval=True, results_dir=mrpc.data / "train.tsv")
    assert refused.code == 1 and f"--results_dir={mrpc.data}/train.tsv: " in refused.err
    done = mrpc.run(tmp_path / "output", do_eval=True, results_dir=tmp_path / "results", num_train_epochs=0.5)
    assert done.code == 0, done.err
    assert sorted(os.listdir(tmp_path / "results")) == [
        "eval", "eval.tf_record", "eval_predictions.csv", "eval_report.html", "eval_results.json",
        "eval_results.txt"]
    assert {"model.ckpt-1.index", "train.tf_record", "run.json"} <= set(os.listdir(tmp_path / "output"))


# --- Another run's directory -----------------------------------------------------------------------------


def test_the_record_says_what_trained(mrpc):
    found = json.loads((mrpc.output / "run.json").read_text())
    assert found["command"] == "run_classifier.py"
    assert found["task"] == "mrpc" and found["labels"] == ["0", "1"]
    assert found["do_lower_case"] is True and found["from_step"] == 0 and found["changes"] == []
    assert found["settings"]["learning_rate"] == 0.01 and found["settings"]["seed"] == 12345
    assert found["settings"]["trim_padding"] is True  # the default of a classifier
    assert found["bert_config"]["num_hidden_layers"] == 1 and found["train_data"]["examples"] == 8
    start = found["init_checkpoint"]
    assert start["path"] == str(mrpc.model.checkpoint) and start["fingerprint"]
    assert found["files"]["vocab_file"] == str(mrpc.model.vocab)
    # Flags that do not change the weights are not recorded as settings.
    without_effect = {"output_dir", "do_train", "log_steps", "num_workers", "recompute", "verbosity"}
    assert not without_effect & set(found["settings"])


@pytest.mark.parametrize("phase", ["do_train", "do_eval"])
def test_other_labels_are_refused(mrpc, tmp_path, phase):
    output = mrpc.copy(tmp_path)
    record = json.loads((output / "run.json").read_text())
    (output / "run.json").write_text(json.dumps({**record, "labels": ["1", "0"]}))
    (output / "labels.txt").write_text("1\n0\n")
    before = contents(output)
    refused = mrpc.run(output, **{"do_train": None, phase: True})
    assert refused.code == 1 and 'labels: ["1", "0"] -> ["0", "1"]. Use another' in refused.err
    assert contents(output) == before


def test_the_same_command_again_says_which_run_trained(mrpc):
    before = (mrpc.output / "run.json").read_bytes()
    again = mrpc.run(mrpc.output)
    assert again.code == 0 and not warnings_of(again)
    started = json.loads(before)["started"]
    said = f"{mrpc.output} was trained to step 4 by run_classifier.py on mrpc, started {started}.\n"
    assert said in again.err
    assert (mrpc.output / "run.json").read_bytes() == before


def swapped_vocabulary(mrpc, directory):
    path = directory / "vocab.txt"
    lines = mrpc.model.vocab.read_text().splitlines()
    lines[8], lines[9] = lines[9], lines[8]
    path.write_text("\n".join(lines) + "\n")
    return dict(vocab_file=path)


def other_activation(mrpc, directory):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(mrpc.model.shallow.read_text()), "hidden_act": "relu"}))
    return dict(bert_config_file=path)


@pytest.mark.parametrize("changes, expected", [
    (lambda mrpc, _: dict(task_name="CoLA", data_dir=mrpc.data / "cola"), r"task: mrpc -> cola\."),
    (lambda mrpc, _: dict(do_lower_case=False), r"do_lower_case: true -> false\."),
    (swapped_vocabulary, r"vocabulary: \S+/vocab\.txt \(\w{8}\) -> \S+/vocab\.txt \(\w{8}\)\."),
    (other_activation, r"hidden_act: gelu -> relu\."),
], ids=["task", "case", "vocabulary", "architecture"])
@pytest.mark.parametrize("steps", [2, STEPS])
def test_another_tasks_directory_is_refused(mrpc, tmp_path, changes, expected, steps):
    output = mrpc.copy(tmp_path, steps)
    before = contents(output)
    refused = mrpc.run(output, do_eval=True, **changes(mrpc, tmp_path))
    assert refused.code == 1 and contents(output) == before
    start = re.escape(f"error: --output_dir={output} contains a training that this run cannot continue. "
                      "According to run.json there (run_classifier.py on mrpc, started ")
    end = r" Use another --output_dir, or remove the checkpoints in this directory\.\n$"
    assert re.search(start + r"\S+ \S+\), these values differ: " + expected + end, refused.err), refused.err


@pytest.mark.slow(reason="three whole runs; test_vocabularies.py refuses vocabularies")
def test_evaluation_with_another_vocabulary_is_refused_and_of_other_data_is_not(mrpc, tmp_path):
    flags = dict(do_train=None, do_eval=True, results_dir=tmp_path / "results")
    refused = mrpc.run(mrpc.output, **flags, **swapped_vocabulary(mrpc, tmp_path))
    assert refused.code == 1 and "contains a training that this run cannot continue" in refused.err
    assert not (tmp_path / "results").exists()
    data = tiny.write_task(tmp_path / "data", "mrpc", dev=7)
    done = mrpc.run(mrpc.output, **flags, data_dir=data, learning_rate=None, train_batch_size=None,
                    init_checkpoint=None)
    assert done.code == 0 and not warnings_of(done), done.err
    taken, = re.findall(r"have their values from the training \(\S+\): (.*)\.\n", done.err)
    assert {"--learning_rate=0.01", "--train_batch_size=4"} <= set(taken.split(", "))
    # Another length is accepted, with a warning.
    done = mrpc.run(mrpc.output, **flags, data_dir=data, max_seq_length=12)
    assert done.code == 0, done.err
    assert warnings_of(done) == [f"Flags with other values than in the training ({mrpc.output}/run.json): "
                                 "--max_seq_length=12 (in the training: 20)."]


def test_evaluation_with_other_flags_of_the_task_or_the_weights_is_refused(mrpc, tmp_path):
    before = contents(mrpc.output)
    refused = mrpc.run(mrpc.output, do_train=None, do_eval=True, task_name="cola", seed=7, num_train_epochs=9,
                       data_dir=mrpc.data / "cola", results_dir=tmp_path / "results")
    assert refused.code == 1 and contents(mrpc.output) == before and not (tmp_path / "results").exists()
    assert refused.err.endswith(
        "error: These flags contradict the training of the weights, which "
        f"{mrpc.output}/run.json describes: --task_name=cola (in the training: mrpc); --seed=7 (in "
        "the training: 12345); --num_train_epochs=9.0 (in the training: 2.0). Leave these flags out, so that "
        "the values of the training are used, or name the directory of another training.\n"), refused.err


def other_weights(mrpc, directory):
    arrays = {**mrpc.model.weights}
    arrays["bert/pooler/dense/bias"] = arrays["bert/pooler/dense/bias"] + 1
    return dict(init_checkpoint=tiny.write_tensorflow(directory / "other.ckpt", arrays), seed=7)


def test_other_settings_are_listed_where_nothing_is_left_to_train(mrpc, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(mrpc.data, data)
    (data / "train.tsv").write_text((data / "train.tsv").read_text().replace(" not ", " no "))
    before = (mrpc.output / "run.json").read_bytes()
    done = mrpc.run(mrpc.output, data_dir=data, learning_rate=0.02, max_seq_length=18,
                    **other_weights(mrpc, tmp_path))
    assert done.code == 0, done.err
    warning, = (text for text in warnings_of(done) if "contains the training of" in text)
    assert re.fullmatch(
        re.escape(f"{mrpc.output} contains the training of run_classifier.py on mrpc, "
                  "started ") + r"\S+ \S+\. "
        r"No steps are left to train\. To train with the new values, pass another --output_dir\. Trained "
        r"value -> "
        "new value: "
        r"(max_seq_length: 20 -> 18; |learning_rate: 0\.01 -> 0\.02; |seed: 12345 -> 7; ){3}"
        r"init_checkpoint: \S+/bert_model\.ckpt \(\w{8}\) -> \S+/other\.ckpt \(\w{8}\); "
        r"training data: 8 examples \(\w{8}\) -> 8 examples \(\w{8}\)\.", warning), warning
    assert (mrpc.output / "run.json").read_bytes() == before
    # The last line of the log warns that the results do not belong to the new values.
    assert "Training on" not in done.err and "The learning rate rises" not in done.err
    assert re.search(r"WARNING: The results above are those of the earlier training in \S+\. No step was "
                     r"trained with the new values: .*learning_rate: 0\.01 -> 0\.02.* To train with them, "
                     r"pass another --output_dir\.$", done.err.splitlines()[-1]), done.err


@pytest.mark.slow(reason="two whole runs; what is listed is shown without training above")
def test_a_training_that_goes_on_with_other_settings_lists_and_records_them_once(mrpc, tmp_path):
    output = mrpc.copy(tmp_path, steps=2)
    first = json.loads((output / "run.json").read_text())
    done = mrpc.run(output, learning_rate=0.02, num_train_epochs=1.5)
    assert done.code == 0, done.err
    warning, = warnings_of(done)
    assert "The training continues from step 2 with changed settings: " in warning
    assert "learning_rate: 0.01 -> 0.02" in warning and "num_train_epochs: 2.0 -> 1.5" in warning
    assert warning.endswith("To train from the start, pass another --output_dir.")
    found = json.loads((output / "run.json").read_text())
    change, = found["changes"]
    assert change["step"] == 2 and change["changed"] == {"learning_rate": [0.01, 0.02],
                                                         "num_train_epochs": [2.0, 1.5]}
    assert found["started"] == first["started"] and found["settings"]["learning_rate"] == 0.02
    # The run is killed, and the same command starts again.
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    before = (output / "run.json").read_bytes()
    again = mrpc.run(output, learning_rate=0.02, num_train_epochs=1.5)
    assert again.code == 0 and not warnings_of(again) and "step 2 to step 3" in again.err
    assert (output / "run.json").read_bytes() == before
    # The data are moved before the run starts again. Later evaluations find them at their new place.
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    data = shutil.copytree(mrpc.data, tmp_path / "data")
    again = mrpc.run(output, learning_rate=0.02, num_train_epochs=1.5, data_dir=data)
    assert again.code == 0 and not warnings_of(again), again.err
    found = json.loads((output / "run.json").read_text())
    assert found["files"]["data_dir"] == str(data) and found["changes"] == [change]


@pytest.mark.slow(reason="two whole runs for one line of the log")
def test_what_two_replicas_trained_goes_on_with_two_micro_batches(mrpc, tmp_path):
    output = mrpc.copy(tmp_path, steps=2)
    record = json.loads((output / "run.json").read_text())
    assert record["settings"]["num_replicas"] == 1
    record["settings"]["num_replicas"] = 2
    (output / "run.json").write_text(json.dumps(record))
    done = mrpc.run(output, gradient_accumulation_steps=2)
    assert done.code == 0 and not warnings_of(done), done.err
    record["settings"]["num_replicas"] = 4
    (output / "run.json").write_text(json.dumps(record))
    warning, at_the_end = warnings_of(mrpc.run(output, gradient_accumulation_steps=2))
    assert "gradient_accumulation_steps: null -> 2; num_replicas: 4 -> 1" in warning
    assert at_the_end.startswith("The results above are those of the earlier training")


def test_the_same_model_elsewhere_is_the_same(mrpc, tmp_path):
    """Files that a continued training does not read may be moved or removed."""
    moved = tmp_path / "moved"
    shutil.copytree(mrpc.model.directory, moved)
    data = tmp_path / "data"
    shutil.copytree(mrpc.data, data)
    flags = dict(vocab_file=moved / "vocab.txt", bert_config_file=moved / "shallow.json", data_dir=data)
    done = mrpc.run(mrpc.output, init_checkpoint=moved / "bert_model.ckpt", **flags)
    assert done.code == 0 and not warnings_of(done), done.err


@pytest.mark.slow(reason="two whole runs, of directories that versions before the record wrote")
def test_a_directory_without_a_record_works_and_gets_one_that_says_from_where(mrpc, tmp_path):
    output = mrpc.copy(tmp_path, steps=2)
    (output / "run.json").unlink()
    unknown = (f"{output} has no run.json, so this run cannot be compared with the training of the "
               "checkpoints in this directory.")
    evaluated = mrpc.run(output, do_train=None, do_eval=True)
    assert evaluated.code == 0 and unknown in evaluated.err and not (output / "run.json").exists()
    done = mrpc.run(output)
    assert done.code == 0 and unknown in done.err and not warnings_of(done)
    assert json.loads((output / "run.json").read_text())["from_step"] == 2


@pytest.mark.slow(reason="a whole run")
def test_a_directory_without_checkpoints_is_nobodys(mrpc, tmp_path):
    """A run that was killed before its first checkpoint leaves such a directory."""
    output = tmp_path / "output"
    output.mkdir()
    shutil.copy(mrpc.output / "run.json", output)
    done = mrpc.run(output, task_name="cola", data_dir=mrpc.data / "cola", num_train_epochs=0.5)
    assert done.code == 0 and not warnings_of(done), done.err
    assert json.loads((output / "run.json").read_text())["task"] == "cola"


@pytest.mark.parametrize("text, complaint", [
    ("{\"format\": ", "is damaged: "), pytest.param("[" * 100000, "is damaged: ", id="nested"),
    ("[]", "is not a record of format 1"),
    ("{\"format\": 9}", "is not a record of format 1")])
def test_a_record_that_cannot_be_read_is_said(mrpc, tmp_path, text, complaint):
    output = mrpc.copy(tmp_path)
    (output / "run.json").write_text(text)
    refused = mrpc.run(output)
    assert refused.code == 1 and f"error: {output}/run.json {complaint}" in refused.err
    assert "emove " in refused.err


@pytest.mark.soak(reason="eight runs of two more scripts, for what is shown of run_classifier.py above")
def test_squad_and_pretraining_have_records_too(mrpc, scripts, tiny_model, tmp_path):
    chance = random.Random(3)
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, max_query_length=6, doc_stride=5,
                 train_batch_size=4, num_train_epochs=1, do_train=True, output_dir=tmp_path / "squad",
                 train_file=write_squad(tmp_path / "train.json", chance, 4, False))
    assert scripts.run("run_squad.py", *tiny.flags(**flags), cwd=tmp_path).code == 0
    found = json.loads((tmp_path / "squad" / "run.json").read_text())
    assert found["task"] == "SQuAD 1.1" and found["settings"]["doc_stride"] == 5
    assert found["train_data"]["files"] == 1 and found["task_type"] == "questions"
    assert {"bert_config.json", "tokenizer_config.json", "vocab.txt"} == set(found["model_files"])
    other = write_squad(tmp_path / "train-2.json", chance, 4, True)
    refused = scripts.run("run_squad.py", *tiny.flags(**{**flags, "train_file": other},
                                                      version_2_with_negative=True), cwd=tmp_path)
    assert refused.code == 1 and "task: SQuAD 1.1 -> SQuAD 2.0" in refused.err
    changed = scripts.run("run_squad.py", *tiny.flags(**{**flags, "doc_stride": 4}), cwd=tmp_path)
    assert changed.code == 0 and "doc_stride: 5 -> 4" in changed.err
    with locks.lock_directory(tmp_path / "squad"):
        refused = scripts.run("run_squad.py", *tiny.flags(**flags), cwd=tmp_path)
        assert refused.code == 1 and "is in use" in refused.err

    flags = dict(max_seq_length=32, max_predictions_per_seq=3, num_train_steps=2, num_warmup_steps=0,
                 train_batch_size=2, do_train=True, output_dir=tmp_path / "pretraining",
                 eval_each_checkpoint=False)
    done = scripts.run("run_pretraining.py", *tiny.flags(**flags), cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "pretraining" / "run.json").read_text())
    assert found["task"] == "pre-training" and found["settings"]["num_train_steps"] == 2
    sample = ROOT / "samples" / "pretraining"
    assert found["vocabulary"] == output_files.hash_vocabulary(sample / "vocab.txt")
    assert found["task_type"] == "pre-training"
    assert (tmp_path / "pretraining" / "vocab.txt").read_bytes() == (sample / "vocab.txt").read_bytes()
    config = json.loads((sample / "bert_config.json").read_text())
    assert json.loads((tmp_path / "pretraining" / "bert_config.json").read_text()).items() <= config.items()
    with locks.lock_directory(tmp_path / "pretraining"):
        refused = scripts.run("run_pretraining.py", *tiny.flags(**flags), cwd=tmp_path)
        assert refused.code == 1 and "is in use" in refused.err
        done = scripts.run("run_pretraining.py", *tiny.flags(**{**flags, "do_train": False, "do_eval": True}),
                           f"--results_dir={tmp_path}/results", "--max_eval_steps=1", cwd=tmp_path)
        assert done.code == 0 and (tmp_path / "results" / "eval_results.txt").exists(), done.err


# --- Fingerprints ----------------------------------------------------------------------------------------


def test_fingerprints_of_files_are_of_sizes_and_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "_SAMPLED_BYTES", 64)
    monkeypatch.setattr(fingerprints, "_BLOCK", 8)
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(bytes(range(200)))
    two.write_bytes(b"short")

    def fingerprint():
        return fingerprints.hash_files([str(one), str(two)])["fingerprint"]

    first = fingerprints.hash_files([str(one), str(two)])
    assert first == {"files": 2, "bytes": 205, "fingerprint": fingerprint()}
    seen = {first["fingerprint"]}
    for content in (b"x" + bytes(range(1, 200)), bytes(range(199)) + b"x", bytes(range(201))):
        one.write_bytes(content)
        seen.add(fingerprint())
    two.write_bytes(b"shorT")
    seen.add(fingerprint())
    assert len(seen) == 5

    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)  # a sparse file: one terabyte that takes no space on the disk
    assert fingerprints.hash_files([str(tmp_path / "huge")])["bytes"] == 2**40


@pytest.mark.parametrize("name", [
    "train_batch_size", "learning_rate", "optimizer", "lr_schedule", "seed", "precision", "max_seq_length",
    "num_train_epochs", "warmup_proportion", "trim_padding", "adam_bias_correction",
    "weight_decay", "clip_norm", "layer_decay", "freeze_layers", "freeze_embeddings", "reinit_layers",
    "use_xla", "protect_special_tokens"])
def test_what_shapes_the_weights_is_recorded(mrpc, name):
    assert name in json.loads((mrpc.output / "run.json").read_text())["settings"]


# --- Files -----------------------------------------------------------------------------------------------


def test_two_at_once_do_not_write_the_same_pretraining_data(scripts, tiny_model, tmp_path):
    """This also holds if they share only one of the files. The second one does not change files of the first.
    """
    chance = random.Random(1)
    documents = ("\n".join(tiny.sentence(chance) for _ in range(4)) for _ in range(9))
    (tmp_path / "text").write_text("\n\n".join(documents))

    def run(*names, **changes):
        flags = dict(input_file="text", output_file=",".join(names), vocab_file=tiny_model.vocab,
                     max_seq_length=20, max_predictions_per_seq=3, dupe_factor=2,
                     shuffle_buffer_documents=3, **changes)
        return scripts.run("create_pretraining_data.py", *tiny.flags(**flags), cwd=tmp_path)

    assert run("a", "b").code == 0
    before = contents(tmp_path)
    assert set(before) == {"a", "b", "a.manifest.json", "text"}
    with locks.lock_file(tmp_path / "b"):
        for names in (("a", "b"), ("b",)):
            refused = run(*names)
            assert refused.code == 1 and f"error: b is in use: process {os.getpid()} on " in refused.err
        assert run("c").code == 0
    assert contents(tmp_path) == {**contents(tmp_path), **before}


def test_two_at_once_do_not_write_the_same_vectors(scripts, tiny_model, tmp_path):
    (tmp_path / "text").write_text("a cat sees a bird .\n")
    flags = dict(tiny_model.flags, input_file="text", output_file="vectors.jsonl", layers=-1)
    with locks.lock_file(tmp_path / "vectors.jsonl"):
        refused = scripts.run("extract_features.py", *tiny.flags(**flags), cwd=tmp_path)
        assert refused.code == 1 and "error: vectors.jsonl is in use: process" in refused.err
        assert not (tmp_path / "vectors.jsonl").exists()
    assert scripts.run("extract_features.py", *tiny.flags(**flags), cwd=tmp_path).code == 0
    assert sorted(contents(tmp_path)) == ["text", "vectors.jsonl"]


def test_two_at_once_do_not_write_the_same_vocabulary(tmp_path, monkeypatch):
    path = str(tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match=r"vocab\.txt already exists, and models may depend on the ids"):
        with monkeypatch.context() as patch:
            # Another process writes the file first.
            patch.setattr(build_vocab.files, "make_directories",
                          lambda _: (tmp_path / "vocab.txt").write_text("x\n"))
            build_vocab.write_vocab(path, tiny.VOCABULARY)
    assert contents(tmp_path) == {"vocab.txt": b"x\n"}


def test_two_at_once_do_not_mix_their_models(scripts, tiny_model, tmp_path, monkeypatch):
    flags = tiny.flags(input=tiny_model.checkpoint, output=tmp_path / "model", to="hugging_face")
    assert scripts.run("convert_checkpoint.py", *flags, cwd=tmp_path).code == 0
    before = contents(tmp_path)
    with locks.lock_directory(tmp_path / "model"):
        refused = scripts.run("convert_checkpoint.py", *flags, "--force", cwd=tmp_path)
        assert refused.code == 1 and f"error: {tmp_path}/model is in use" in refused.err
    assert contents(tmp_path) == before

    # Another process writes files after the check that the directory is empty.
    source = checkpoint_formats.open_checkpoint(tiny_model.checkpoint)

    def write_meanwhile(path, *_):
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "vocab.txt").write_text("theirs")

    monkeypatch.setattr(checkpoint_formats, "write_safetensors", write_meanwhile)
    with pytest.raises(FileExistsError, match="another process wrote to this directory at the same time"):
        model_writer.write(str(tmp_path / "new"), "hugging_face", source, [], {"vocab.txt": b"ours"})
    assert contents(tmp_path) == {**before, "new/vocab.txt": b"theirs"}
