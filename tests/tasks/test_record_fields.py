"""Checks of run.json: a damaged record gives a message of one sentence, and values have the bounds of flags.
"""

import json

from absl import flags
from helpers import error_of
import model_directories
import pytest
import tiny

from bertlib import serving
from bertlib.runs import record_format, registry

RECORD = model_directories.record(
    ["0", "1"], task="mrpc", vocabulary="ab", do_lower_case=True,
    bert_config={"max_position_embeddings": 512},
    init_checkpoint={"path": "bert_model.ckpt", "fingerprint": None},
    train_data={"examples": 8, "fingerprint": "cd"}, files={"data_dir": None}, versions={"numpy": "2"},
    model_files={"vocab.txt": "ef"}, settings={"max_seq_length": 128, "doc_stride": 0, "other": [1]})


def write(directory, **changes):
    settings = changes.pop("settings", {})
    record = {**RECORD, **changes}
    if isinstance(settings, dict):
        record["settings"] = {**RECORD["settings"], **settings}
    else:
        record["settings"] = settings
    (directory / "run.json").write_text(json.dumps(record))
    return record


@pytest.mark.parametrize("changes, said", [
    (dict(format=3), "is not a record of format 1 or 2, which this version reads. Train again"),
    (dict(format=2), "is damaged: it lacks code. Restore the file")])
def test_records_of_other_versions_are_refused(tmp_path, changes, said):
    record = write(tmp_path, **changes)
    del record["code"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"run.json {said}"):
        record_format.read_record(tmp_path)


@pytest.mark.parametrize("changes, said", [
    (dict(settings={"max_seq_length": "128"}), "settings.max_seq_length is '128', and"),
    (dict(settings={"keep_best": "\x1b[31m"}), "settings.keep_best is '\\x1b[31m', and"),
    (dict(settings=[]), "settings is []"),
    (dict(labels=None), "labels is None, and has to be a list of texts, since the model is for "
     "classification"),
    (dict(labels=[]), "labels is [], and"),
    (dict(task_type="regression"), "labels is ['0', '1'], and has to be null, since the model is for "
     "regression"),
    (dict(task_type="other"), "task_type is 'other'"), (dict(changes=[3]), "changes is [3]"),
    (dict(planned_steps=True), "planned_steps is True"),
    (dict(command="run_squad.py", task_type="questions", labels=None, settings={"doc_stride": 0}),
     "settings.doc_stride is 0, and has to be a whole number from 1 to 2147483647"),
])
def test_a_damaged_record_is_one_sentence(tmp_path, changes, said):
    write(tmp_path, **changes)
    text = error_of(record_format.read_record, tmp_path)
    assert text.startswith(f"{tmp_path}/run.json is damaged: {said}") and "\n" not in text
    assert text.endswith(". Restore the file, or remove it to continue without a record of the training of "
                         "these checkpoints.")


# --- The table of flags ----------------------------------------------------------------------------------


def recorded_entries():
    """Returns (command, entry) for each flag that run.json can record among its settings."""
    return [(command, entry) for command in registry.COMMANDS for entry in registry.find_flags(command)
            if not entry.is_path and (entry.is_recorded or entry.category in ("input", "task", "weights"))]


@pytest.mark.parametrize("command", sorted(registry.COMMANDS))
def test_a_record_of_defaults_is_right(tmp_path, command):
    settings = {entry.name: entry.default for of, entry in recorded_entries() if of == command}
    labels = {} if command.startswith("run_classifier") else dict(task_type="regression", labels=None)
    record = write(tmp_path, command=f"{command}.py", settings=settings, **labels)
    assert record_format.read_record(tmp_path) == record


# A value that a flag refuses is refused in a record, too.
PROBES = ["-3", "-1", "0", "1", "2", "3", "0.25", "0.5", "0.75", "1.5", "inf", "nan", str(2**31), "zh",
          "true", "adamw", "linear", "\x07", "", ","]


def test_a_record_has_the_bounds_of_the_flags(tmp_path):
    refused = 0
    for command, entry in recorded_entries():
        defined = flags.FlagValues()
        entry.define_in(defined)
        for probe in PROBES:
            try:
                defined(["command", f"--{entry.name}={probe}"])
                value = defined[entry.name].value
            except flags.Error as error:
                value = defined[entry.name].parser.parse(probe) if "must be" in str(error) else probe
                refused += "must be" in str(error)
                assert "must be" not in str(error) or f"--{entry.name}=" in str(error) and str(
                    error).endswith(f": must be {entry.rule.words}"), str(error)
                assert not entry.accepts(value), (command, entry.name, probe)
            else:
                assert entry.accepts(value), (command, entry.name, probe)
    assert refused > 40


def test_a_model_answers_with_the_threshold_and_the_length_of_the_training(tiny_model, tmp_path):
    head = {"cls/squad/output_weights": (2, tiny.CONFIG["hidden_size"]), "cls/squad/output_bias": (2,)}
    for threshold in (1e6, -1e6):
        directory = model_directories.write(
            tmp_path / str(threshold), tiny_model, "questions", head, task="SQuAD 2.0", max_query_length=6,
            doc_stride=4, null_score_diff_threshold=threshold, max_answer_length=1)
        context = "the old cat sees a new dog and the bird eats bread"
        with serving.load(str(directory)) as predictor:  # by default, the answers have several words
            assert [len(predictor(question, context)["answer"].split())
                    for question in ("cat", "dog", "the man")] == [int(threshold > 0)] * 3
    (directory / "eval_results.json").write_text('{"null_score_diff_threshold": "low"}')
    with pytest.raises(ValueError, match="null_score_diff_threshold is 'low', but must be a finite number"):
        serving.load(str(directory))
