"""Writes output directories of tiny models, with the files that a training writes."""

import json

import numpy as np
import tiny

import bertlib.tasks  # noqa: F401  registers the tasks, whose names are in the records

COMMANDS = {"tagging": "run_ner.py", "questions": "run_squad.py", "multiple_choice": "run_swag.py",
            "pre-training": "run_pretraining.py"}
TAGS = ["O", "B-ANIMAL", "I-ANIMAL", "B-THING", "I-THING"]


def record(labels=None, task_type=None, **fields):
    """Returns the record of a training, the content of run.json. `fields` are fields of the record."""
    kind = task_type or ("classification" if labels else "regression")
    return {
        "format": 2, "command": COMMANDS.get(kind, "run_classifier.py"),
        "started": "2026-01-31 12:00:00+01:00", "from_step": 0,
        "planned_steps": 0, "finished_step": None, "task": "mine", "task_type": kind,
        "labels": labels, "vocabulary": None, "do_lower_case": None, "bert_config": {},
        "init_checkpoint": None, "train_data": None, "dev_data": None, "dev_rows": None, "task_module": None,
        "settings": {}, "files": {}, "versions": {}, "flags": {}, "arguments": [], "working_directory": "/",
        "inputs": {}, "code": "ab", "environment": {"git": None, "variables": {}}, "model_files": {},
        "changes": [], **fields}


def write(directory, model, kind, head, labels=None, task="mine", config=tiny.CONFIG, **settings):
    """Writes an output directory.

    Args:
      directory: the new directory.
      model: a `tiny.Model`, or another object with the attributes `weights` and `vocab`.
      kind: kind of the head, as in run.json.
      head: {name: shape} of the head's variables. Their values are random.
      labels: list of str, or None.
      task, settings: values in run.json.
      config: dict, the content of bert_config.json.

    Returns:
      the directory.
    """
    directory.mkdir()
    generator = np.random.RandomState(3)
    arrays = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in head.items()}
    tiny.write_tensorflow(directory / "model.ckpt-7", {**model.weights, **arrays, "global_step": np.int64(7)})
    (directory / "bert_config.json").write_text(json.dumps(config))
    (directory / "vocab.txt").write_bytes(model.vocab.read_bytes())
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    if labels:
        (directory / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    (directory / "run.json").write_text(json.dumps(record(
        labels, kind, task=task, bert_config=config, do_lower_case=True,
        settings={"max_seq_length": tiny.SEQ_LENGTH, **settings})))
    return directory


def write_classifier(directory, model, labels=("no", "yes"), **settings):
    """Writes the output directory of a classifier with these labels; see `write`. Returns the directory."""
    return write(directory, model, "classification", linear(len(labels)), list(labels), **settings)


def linear(size):
    """Returns {name: shape} of the variables of a linear head with `size` outputs."""
    return {"output_weights": (size, tiny.CONFIG["hidden_size"]), "output_bias": (size,)}


def write_with_best(directory, model):
    """Writes an output directory of a classifier whose best weights have a head of zeros. Returns it."""
    for path in (directory, directory / "best"):
        write_classifier(path, model, keep_best="eval_accuracy")
    tiny.write_training(directory / "best", model.weights, step=5)
    (directory / "best" / "best.json").write_text(json.dumps({
        "metric": "eval_accuracy", "step": 5, "value": 0.5, "first_step": 0, "training": record()["started"],
        "earlier": []}))
    return directory
