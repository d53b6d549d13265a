"""Promises about changed flags, data, places and about later commands."""

import json
import random
import re
import shutil

import numpy as np
from outputs import contents, different_tensors, history, losses, record, results, scores, table
import promises
import pytest
from rows import ROWS, SIZES, STEPS
from runs import EACH_CHECKPOINT, add_bad_line, assert_predicts_as_evaluated, interrupt
import tensorflow.compat.v1 as tf

ODD = "a [1], (\\ b*? ü 文"
TRAIN = dict(do_eval=False, do_predict=False)


def best_line(output, row):
    """Returns the evaluation of the training with the best score; the first one, if several are equal."""
    lines = [line for line in history(output) if line.get("evaluation") == "dev" and line["step"]]
    found = {line["step"]: line for line in lines}
    return max(found.values(), key=lambda line: (line[row.metric], -line["step"]))


def assert_best_weights(found, trained, row):
    """Asserts that --keep_best changed no bit of the training, and that the results are of its best step."""
    assert different_tensors(found.output, trained.output) == []
    best = best_line(found.output, row)
    kept = json.loads((found.output / "best" / "best.json").read_text())
    assert (kept["metric"], kept["step"]) == (row.metric, best["step"])
    assert kept["value"] == pytest.approx(best[row.metric])
    values = scores(found.output, row)
    assert values["global_step"] == best["step"]
    assert values[row.metric] == pytest.approx(best[row.metric])
    assert list((found.output / "best").glob("*.index"))[0].name == f"model.ckpt-{best['step']}.index"


@promises.of()
def test_best_weights_by_steps(row, trained, workspaces):
    """--eval_every_steps with --keep_best changes no bit of the training, and later commands use the
    best weights."""
    found = workspaces(row, eval_every_steps=3, do_predict=False, keep_best=row.metric)
    steps = [line["step"] for line in history(found.output) if line.get("evaluation") == "dev"]
    assert set(steps) - {0} == {3, 6, STEPS}
    assert_best_weights(found, trained, row)


@promises.of()
def test_best_weights_by_checkpoints(row, trained, workspaces):
    """--eval_each_checkpoint with --keep_best does the same."""
    found = workspaces(row, **EACH_CHECKPOINT, keep_best=row.metric)
    assert_best_weights(found, trained, row)


@promises.of()
def test_early_stopping(row, untrained):
    """Early stopping ends at the first evaluation that is not better, for good."""
    flags = dict(eval_every_steps=1, keep_best=row.metric, early_stopping_evals=2, do_predict=False)
    done = untrained.train(**flags)
    assert done.code == 0, done.err
    lines = {line["step"]: line[row.metric] for line in history(untrained.output)
             if line.get("evaluation") == "dev" and line["step"]}
    end, best, waited = STEPS, None, 0
    for step, value in sorted(lines.items()):
        waited = 0 if best is None or value > best else waited + 1
        best = value if waited == 0 else best
        if waited == 2:
            end = step
            break
    assert max(lines) == end and record(untrained.output)["finished_step"] == end
    assert (untrained.output / f"model.ckpt-{end}.index").exists()
    before = contents(untrained.output / "best")
    again = untrained.train(**flags)
    assert again.code == 0 and "Nothing to train" in again.err, again.err
    assert contents(untrained.output / "best") == before


def assert_near(found, trained, **tolerance):
    ours, theirs = losses(found.output), losses(trained.output)
    assert list(ours) == list(theirs) == list(range(1, STEPS + 1))
    np.testing.assert_allclose(list(ours.values()), list(theirs.values()), **tolerance)
    assert different_tensors(found.output, trained.output)  # the flag had an effect


@promises.of()
def test_accumulation(row, trained, workspaces):
    """Micro-batches compute the losses of the whole batch."""
    # SQuAD's training is not trimmed. Without trimming, the dropout masks of both ways are the same bits.
    whole = workspaces(row, trim_padding=False, **TRAIN)
    assert_near(workspaces(row, trim_padding=False, gradient_accumulation_steps=2), whole, rtol=1e-4)


@promises.of()
def test_recomputation(row, trained, workspaces):
    """Recomputed layers compute the same losses."""
    found = workspaces(row, recompute="layers", **TRAIN)
    np.testing.assert_allclose(list(losses(found.output).values()), list(losses(trained.output).values()),
                               rtol=1e-5)


@promises.of()
def test_bf16(row, trained, workspaces):
    """bf16 trains with nearly the same losses."""
    assert_near(workspaces(row, precision="bf16", **TRAIN), trained, rtol=0.05)


@promises.of()
def test_speed_flags(row, trained, untrained):
    """Flags that change only speed, log or checkpoints change no bit."""
    workers = {} if row.prepare else {"num_workers": 1}  # a training on records has no text to convert
    done = untrained.train(log_steps=3, save_checkpoints_steps=5, keep_checkpoint_max=1, do_predict=False,
                           **workers)
    assert done.code == 0, done.err
    assert different_tensors(untrained.output, trained.output) == []
    assert (untrained.output / row.results).read_bytes() == (trained.output / row.results).read_bytes()


def longer(row):
    """Returns the flags of a training of 12 steps."""
    return dict(num_train_steps=12) if row.task == "masked_words" else dict(num_train_epochs=3)


@promises.of()
def test_changed_weights_flags(row, copy):
    """A training that goes on with another rate says so, and records it."""
    done = copy.train(**longer(row), learning_rate=0.002, gradient_accumulation_steps=2, **TRAIN)
    assert done.code == 0, done.err
    assert "learning_rate: 0.0002 -> 0.002" in done.err and f"step {STEPS + 1}/12" in done.err
    assert f"step {STEPS}/12" not in done.err
    changes = record(copy.output)["changes"]
    assert changes[-1]["step"] == STEPS and changes[-1]["changed"]["learning_rate"] == [0.0002, 0.002]
    assert changes[-1]["changed"]["gradient_accumulation_steps"] == [None, 2]  # it changes the rounding
    assert record(copy.output)["settings"]["learning_rate"] == 0.002


@promises.of()
def test_changed_data(row, copy):
    """A training that goes on with other data says so, or is refused."""
    if row.prepare:
        (copy.directory / "data" / "train.txt").write_text("the cat sees a dog .\nit eats bread .\n\n" * 20)
        for path in copy.directory.glob("train.tfrecord*"):  # other text is not written to the same files
            path.unlink()
        assert copy.run(row.prepare[0], **row.prepare[1]).code == 0
    else:
        if (copy.directory / row.train_file).is_dir():
            shutil.rmtree(copy.directory / row.train_file)
        row.data(copy.directory / "data", "train", SIZES["train"], random.Random("other"))
    done = copy.train(**longer(row), **TRAIN)
    assert "Traceback" not in done.err
    assert "training data" in done.err, done.err
    if done.code == 0:
        assert "training data" in record(copy.output)["changes"][-1]["changed"]


def features(path):
    """Returns the token ids of each record in a file of features."""
    found = []
    for record_of in tf.python_io.tf_record_iterator(str(path)):
        example = tf.train.Example.FromString(record_of)
        found.append(tuple(example.features.feature["input_ids"].int64_list.value))
    return found


@promises.of(("one text",), dict.fromkeys(
    set(ROWS) - {"one text", "regression", "several labels"},
    "the command has no --dev_fraction, or its task has its own development data"))
def test_separate_dev_rows(row, workspaces, tmp_path):
    """With --dev_fraction, no development row is trained on, also after a kill."""
    flags = dict(dev_file=None, dev_fraction=0.25, test_file=None)
    work = workspaces(row, **flags, **TRAIN).killed.copy(tmp_path / "killed")
    trained_on = features(work.output / "train.tf_record")
    done = work.train(**flags, do_predict=False)
    assert done.code == 0 and "step 1/6" not in done.err, done.err
    assert sorted(features(work.output / "train.tf_record")) == sorted(trained_on)
    evaluated = features(work.output / "eval.tf_record")[:4]
    assert len(trained_on) == record(work.output)["train_data"]["examples"] == 12
    assert not set(evaluated) & set(trained_on)
    lines = {line["line"] for line in table(work.output / "eval_predictions.csv")}
    assert len(lines) == 4  # different lines of the training file


@promises.of()
def test_flat(row, untrained):
    """The numbers of threads and open files do not grow with the steps."""
    steps = dict(num_train_steps=60) if row.task == "masked_words" else dict(num_train_epochs=15)
    done = interrupt(untrained, "/60  loss", "COUNT", **steps, save_checkpoints_steps=1000, do_eval=False,
                     do_predict=False)
    assert done.code == 0, done.err
    counts = [re.findall(r"\d+", line) for line in done.out.splitlines() if line.startswith("threads=")]
    assert len(counts) == 60
    for early, late in zip(counts[20], counts[-1]):
        assert int(late) <= int(early) + 2, counts


@promises.of()
def test_kept_results(row, copy):
    """An evaluation elsewhere writes the same results and changes no other file."""
    before = contents(copy.output)
    done = copy.train(do_train=False, results_dir="elsewhere")
    assert done.code == 0, done.err
    assert contents(copy.output) == before
    ours, theirs = results(copy.directory / "elsewhere"), results(copy.output)
    assert row.results in ours
    ours.pop("evaluated_model.json")  # in place of run.json, which is in the directory of the training
    assert {name: content for name, content in ours.items() if theirs[name] != content} == {}


@promises.of()
def test_odd_paths(row, trained, tmp_path):
    """A directory may have spaces, brackets, commas and other scripts in its name."""
    odd = trained.copy(tmp_path / ODD)
    shutil.rmtree(odd.output)
    done = odd.train(save_checkpoints_steps=2, keep_checkpoint_max=2, do_predict=False, eval_every_steps=4,
                     keep_best=row.metric, weights="last")
    assert done.code == 0, done.err
    kept = {path.name for path in odd.output.glob("model.ckpt-*.index")}
    assert kept == {"model.ckpt-6.index", f"model.ckpt-{STEPS}.index"}
    if row.name not in promises.NOT_ANSWERED:
        assert_predicts_as_evaluated(odd, trained, weights="last")
    odd.directory.rename(tmp_path / "renamed")  # TensorFlow's reader takes the odd name for a pattern
    assert different_tensors(tmp_path / "renamed" / "output", trained.output) == []


# --- Refusals ---------------------------------------------------------------------------------------------


def refuse(workspace, **changes):
    """Runs the training, which must be refused before anything is written. Returns the message."""
    refused = workspace.train(**changes)
    assert refused.code == 1 and "Traceback" not in refused.err, refused.err
    assert not workspace.output.exists() or not list(workspace.output.iterdir())
    return refused.err.split("error: ", 1)[1]


@promises.of(without=promises.NO_FILE)
def test_empty_file(row, untrained):
    """An empty file of data is refused by name."""
    (untrained.directory / row.train_file).write_bytes(b"")
    assert row.train_file in refuse(untrained)


@promises.of()
def test_missing_file(row, untrained):
    """A missing file is refused by name, and nothing is written."""
    path = untrained.directory / row.train_file
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    message = refuse(untrained)
    assert row.train_file in message, message


@promises.of(("one text",), {
    **promises.NO_ROWS, **promises.NO_FILE,
    **dict.fromkeys(("pairs", "hub module"), "GLUE files have fixed columns; see `test_bad_line`"),
    **dict.fromkeys(promises.SQUAD, "a SQuAD file has no columns; `test_bad_line` has a missing key"),
    "tagging, columns": "columns have no names; `test_bad_line` has a short line",
    "tagging, JSON Lines": "the fields of a line are checked by `test_bad_line`"})
def test_missing_column(row, untrained):
    """A missing column is refused with the file and the names of columns."""
    path = untrained.directory / row.train_file
    path.write_text(re.sub(r"\b(text|sent1)\b|\btext_", "words_", path.read_text()))
    message = refuse(untrained)
    assert row.train_file in message and re.search("words_|text_a", message), message


@promises.of(("one text",), {
    **promises.NO_ROWS, **promises.NO_FILE,
    **dict.fromkeys(promises.SQUAD, "a SQuAD file is one JSON object"),
    "hub module": "its command reads only GLUE files, without this flag",
    "pairs": "the files of GLUE tasks are read whole", "task of a user": "it leaves out no line"})
def test_skipped_line(row, trained, untrained):
    """--skip_bad_lines leaves out a bad line and lists it. It is passed again for other files."""
    line = add_bad_line(row, untrained)
    done = untrained.train(skip_bad_lines=True, **TRAIN)
    assert done.code == 0, done.err
    (skipped,) = table(untrained.output / "skipped_lines.csv")
    assert row.train_file in " ".join(skipped.values()) and str(line) in skipped.values()
    assert different_tensors(untrained.output, trained.output) == []  # trained on the other lines, in order
    other = dict(do_train=False, do_predict=False, data_dir=None, dev_file=row.train_file,
                 results_dir="other")
    refused = untrained.train(**other)
    assert refused.code == 1 and f"{row.train_file}:{line}" in refused.err, refused.err
    done = untrained.train(**other, skip_bad_lines=True)
    assert done.code == 0, done.err
    report = (untrained.directory / "other" / "eval_report.html").read_text()
    assert "bad lines are left out" in report


# --- Later commands --------------------------------------------------------------------------------------


@promises.of(without={
    "hub module": "export.py refuses hub modules, with a message",
    **dict.fromkeys(
        ("pre-training", "multiple choice", *promises.SQUAD, "tagging, columns", "tagging, JSON Lines"),
        "its answers are made from several rows; tests/serving/test_export.py compares them")})
def test_export(row, copy):
    """An exported model answers as the evaluation did. tests/serving/test_export.py has SavedModels."""
    done = copy.run("export.py", model_dir="output", format="onnx")
    assert done.code == 0, done.err
    assert_predicts_as_evaluated(copy, copy, engine="onnx")


@promises.of()
def test_reproduction(row, copy):
    """reproduce.py repeats the training and says SAME BITS."""
    done = copy.run("reproduce.py", "output", output_dir="again")
    assert done.code == 0, done.err
    assert done.out.startswith(f"SAME BITS up to step {STEPS}.\n")
    assert different_tensors(copy.directory / "again", copy.output) == []
