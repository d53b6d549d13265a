"""run.json: what trained the weights in an output directory; and what a later run there may change.

A run that goes on with another task, other labels, another vocabulary or another model is refused. Other
settings and other training data are allowed, and listed. docs/output.md describes the file.
"""

import datetime
import hashlib
import json
import os
import pathlib
import platform

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.runs import model_files
from bertlib.runs.settings import PATHS
from bertlib.runtime import checkpoint_files, checkpoints, files, replica_group
from bertlib.tasks import output_files
import modeling
import optimization
import tokenization

# Of a configuration, what may change between two runs: it is no part of the architecture.
_OF_TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
# What evaluation and prediction depend on, too.
_OF_INPUT = ("max_seq_length", "max_predictions_per_seq", "doc_stride", "max_query_length",
             "protect_special_tokens", "label_all_pieces")
# Besides, what a run without training need not be told again.
_OF_TASK = ("crf", "xnli_language")
# Flags that leave the weights alone, up to rounding, or that are in the record otherwise.
_NOT_RECORDED = {
    "task_name", "task_type", "threshold", "label_file", "data_dir", "train_file", "dev_file", "test_file",
    "input_file", "predict_file",
    "eval_file", "do_train", "do_eval", "do_predict", "do_export", "eval_batch_size", "predict_batch_size",
    "version_2_with_negative", "max_answer_length",
    "n_best_size", "null_score_diff_threshold", "find_null_threshold", "verbose_logging", "max_eval_steps",
    "eval_each_checkpoint", "bert_config_file", "vocab_file", "spm_model_file", "init_checkpoint",
    "do_lower_case", "output_dir", "results_dir", "save_checkpoints_steps", "log_steps", "num_workers",
    "gradient_accumulation_steps", "tokens_per_micro_batch", "recompute", "recompute_segment",
    "memory_limit_gb", "compile_kernels", "use_xla", "profile_steps", "use_tpu", "tpu_name", "tpu_zone",
    "gcp_project", "master", "num_tpu_cores", "iterations_per_loop", "traceback", "bert_hub_module_handle",
    "num_replicas", "replica_timeout", "max_restarts", "open_ports"}
# What may differ from machine to machine; paths too, for files are compared by their content.
_OF_MACHINE = {"num_workers", "traceback", "memory_limit_gb", "max_restarts", "open_ports"}
# So long may a value be in a message.
_SHORT = 60
# Trimmed micro-batches draw dropout masks of their own: what matters is how many a step has, see `_parts`.
_SPLITTING = {"gradient_accumulation_steps", "tokens_per_micro_batch", "num_replicas"}
# Of large files that many bytes, in blocks that are spread evenly, are looked at.
_SAMPLED_BYTES, _BLOCK = 2**26, 2**16


# --- Fingerprints ----------------------------------------------------------------------------------------


def _digest():
    return hashlib.blake2b(digest_size=16)


def of_texts(texts):
    """Returns the fingerprint of an iterable of texts, of which any may be None."""
    digest = _digest()
    for text in texts:
        digest.update(repr(text).encode() + b"\n")
    return digest.hexdigest()


def of_examples(examples):
    """Returns what is recorded of `InputExample`s, or others with plain attributes."""
    texts = (tuple(vars(example).values()) for example in examples)
    return {"examples": len(examples), "fingerprint": of_texts(texts)}


def of_files(paths):
    """Returns what is recorded of files, in that order: of large ones, sizes and blocks here and there."""
    digest, sizes = _digest(), [files.size(path) for path in paths]
    blocks = max(2, _SAMPLED_BYTES // _BLOCK // max(1, len(paths)))
    for path, size in zip(paths, sizes):
        digest.update(f"{size}\n".encode())
        with files.opened(path, "rb") as reader:
            if size <= blocks * _BLOCK:
                digest.update(reader.read())
                continue
            for start in np.linspace(0, size - _BLOCK, blocks, dtype=np.int64):
                reader.seek(int(start))
                digest.update(reader.read(_BLOCK))
    return {"files": len(paths), "bytes": sum(sizes), "fingerprint": digest.hexdigest()}


def _of_vocabulary(settings, tokenizer):
    if settings.spm_model_file:
        return of_files([settings.spm_model_file])["fingerprint"]
    return of_texts(tokenizer.vocab)


def of_checkpoint(path):
    """Returns the fingerprint of a checkpoint, or None if it is not there any more."""
    try:
        found = checkpoints.open_checkpoint(path)
        if found.kind == "hugging_face":
            alone = found.path.endswith(".safetensors")
            paths = [found.path] if alone else checkpoint_files.in_directory(found.path, ".safetensors")
        else:
            paths = [found.path + ".index"]  # with the checksum of each tensor
        return of_files(paths)["fingerprint"]
    except (OSError, ValueError, tf.errors.OpError):
        return None


# --- What is recorded ------------------------------------------------------------------------------------


def describe(settings, command, task, config, task_type=None, labels=None, tokenizer=None, train_data=None,
             **effective):
    """Returns the record of a run, as JSON has it.

    Args:
      settings: a `Settings`.
      command: its file's name.
      task: str; another one is never gone on with.
      config: the `modeling.BertConfig`.
      task_type: str, the kind of its head, see `head_labels.KINDS`.
      labels: list of str, in the order of the model's outputs, or None.
      tokenizer: has `vocab`; None where the run sees no text.
      train_data: see `of_examples` and `of_files`; None of a run that does not train.
      effective: flags that mean something else than their values, {name: value}.
    """
    left_out = _NOT_RECORDED - (_SPLITTING if effective.get("trim_padding") else set())
    recorded = {name: getattr(settings, name) for name in settings.names() if name not in left_out}
    named = ("bert_config_file", "vocab_file", "spm_model_file", "data_dir", "train_file", "input_file",
             "bert_hub_module_handle")
    start = settings.init_checkpoint
    if "num_replicas" in recorded:
        group = replica_group.current()
        recorded["num_replicas"] = group.count if group else 1  # of all machines, and never 0
    record = {
        "format": output_files.RECORD_FORMAT,
        "command": command,
        "started": datetime.datetime.now().astimezone().isoformat(" ", "seconds"),
        "from_step": 0,
        "task": task,
        "task_type": task_type,
        "labels": labels,
        "vocabulary": tokenizer and _of_vocabulary(settings, tokenizer),
        "do_lower_case": settings.do_lower_case if tokenizer else None,
        "bert_config": config.to_dict(),
        "init_checkpoint": start and {"path": _absolute(start), "fingerprint": of_checkpoint(start)},
        "train_data": train_data,
        "settings": {**recorded, **effective},
        "files": {name: _absolute(getattr(settings, name)) for name in named if name in settings},
        "versions": _versions(),
        "model_files": {},
        "changes": [],
    }
    return json.loads(json.dumps(record))


def agree(group, settings, **data):
    """Checks that replicas do the same: that they have the same flags, versions, code and data.

    Args:
      group: the `replica_group.Group`.
      settings: a `Settings`.
      data: what they read, in words or by fingerprints, {name: what JSON can hold}.

    Raises:
      ValueError: they do not; names what differs.
    """
    def short(value):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({of_texts([text])[:8]})"

    given = {f"--{name}": getattr(settings, name) for name in settings.names()
             if name not in _OF_MACHINE and not name.endswith(PATHS)}
    group.agree({name: short(value) for name, value in
                 {**given, **data, **_versions(), "the code": _of_code()}.items()},
                "Start all with the same flags, data and code.")


def _versions():
    return {"python": platform.python_version(), "tensorflow": tf.version.VERSION, "numpy": np.__version__}


def _of_code():
    """Returns the fingerprint of this project's files."""
    package = pathlib.Path(__file__).parents[1]
    paths = [*sorted(package.rglob("*.py")), *sorted(package.rglob("*.cc")),
             *(pathlib.Path(module.__file__) for module in (modeling, optimization, tokenization))]
    return of_texts(f"{path.name} {path.read_text(encoding='utf-8')}" for path in paths)


def _absolute(path):
    """A local path from the root, so that a command elsewhere finds it; others as they are."""
    local = path and not files.is_remote(path) and files.exists(path)
    return os.path.abspath(path) if local else path


def _differences(found, now, training):
    """Compares two records.

    Returns:
      ({what: [old, new]} that cannot be gone on with, the same of what can).
    """
    def changed(name):
        old, new = found.get(name), now[name]
        return old is not None and new is not None and old != new

    wrong = {name: [found[name], now[name]] for name in ("task", "task_type", "labels", "do_lower_case")
             if changed(name)}
    if changed("vocabulary"):
        wrong["vocabulary"] = [_vocabulary(found), _vocabulary(now)]
    noted = {}
    if not training and "labels" not in wrong and "task" in wrong:
        noted["task"] = wrong.pop("task")  # other data with the same labels
    configs = found["bert_config"], now["bert_config"]
    for name in sorted(set(configs[0]) & set(configs[1])):
        if configs[0][name] != configs[1][name] and (training or name not in _OF_TRAINING):
            (noted if name in _OF_TRAINING else wrong)[name] = [config[name] for config in configs]
    old, new = {"num_replicas": 1, **found["settings"]}, now["settings"]
    names = [name for name in new if name in old and (training or name in _OF_INPUT)]
    noted.update({name: [old[name], new[name]] for name in names if old[name] != new[name]})
    if _parts(old) == _parts(new) is not None:
        for name in ("gradient_accumulation_steps", "num_replicas"):
            noted.pop(name, None)
    if training:
        none = {"path": None, "fingerprint": None}
        starts = [record.get("init_checkpoint") or none for record in (found, now)]
        compared = "fingerprint" if all(start["fingerprint"] for start in starts) else "path"
        if starts[0][compared] != starts[1][compared]:
            noted["init_checkpoint"] = [_with_fingerprint(start.get("path"), start) for start in starts]
        if changed("train_data"):
            noted["training data"] = [_data(found["train_data"]), _data(now["train_data"])]
        before = found.get("versions", {})
        noted.update({name: [before[name], version] for name, version in now["versions"].items()
                      if before.get(name) not in (None, version)})
    return wrong, noted


def _parts(settings):
    """Returns the number of micro-batches in a step, of all replicas; None if memory or tokens decide."""
    count = settings.get("gradient_accumulation_steps")
    if count == 0 or count is None and settings.get("tokens_per_micro_batch"):
        return None
    return (count or 1) * settings.get("num_replicas", 1)


def _with_fingerprint(name, start):
    return f"{name} ({start['fingerprint'][:8]})" if start["fingerprint"] else name


def _vocabulary(record):
    paths = record.get("files", {})
    return _with_fingerprint(paths.get("vocab_file") or paths.get("spm_model_file"),
                             {"fingerprint": record["vocabulary"]})


def _data(data):
    counts = ", ".join(f"{value} {name}" for name, value in data.items() if name != "fingerprint")
    return _with_fingerprint(counts, data)


def _in_words(differences):
    def text(value):
        return value if isinstance(value, str) else json.dumps(value)

    return "; ".join(f"{name}: {text(old)} -> {text(new)}" for name, (old, new) in differences.items())


# --- What a run without training takes from it -----------------------------------------------------------


def directory_of_weights(settings):
    """Returns the directory of the training whose weights a run without training uses: --output_dir, or where
    --init_checkpoint lies; None if there is none."""
    if "do_train" in settings and settings.do_train:
        return None
    if "output_dir" in settings and settings.output_dir and checkpoints.latest_checkpoint(
            settings.output_dir):
        return settings.output_dir
    start = settings.init_checkpoint
    return checkpoints.directory_of(start) if start and is_of_training(start) else None


def is_of_training(path):
    """Whether a path names a checkpoint that a training saved: one that the files beside it are about."""
    try:
        found = checkpoints.open_checkpoint(path)
    except (OSError, ValueError):
        return False  # which other checks complain about
    # Published ones, and conversions, may lie in the directory of a training too.
    return found.kind == "tensorflow" and os.path.basename(found.path) != "bert_model.ckpt"


def of_weights(settings):
    """Returns the record of the training whose weights a run without training uses, or None."""
    directory = directory_of_weights(settings)
    return output_files.read_record(directory) if directory else None


def take_settings(settings):
    """Fills in what a run without training was not told, as the training had it: the task, its data and what
    its input depends on."""
    found = of_weights(settings)
    if found is None:
        return
    path = os.path.join(directory_of_weights(settings), output_files.RECORD)

    def take(name, value):
        if name in settings and not settings.given(name) and value not in (None, getattr(settings, name)):
            settings.take_default(name, value, f"as in the training, says {path}")

    if "task_name" in settings and settings.task_name is None:
        take("task_name", found["task"])
    take("bert_hub_module_handle", found.get("files", {}).get("bert_hub_module_handle"))
    if "task_name" not in settings or found["task"] == (settings.task_name or "").lower():
        data = found.get("files", {}).get("data_dir")
        take("data_dir", data if data and files.is_directory(data) else None)
    take("version_2_with_negative", True if found["task"] == "SQuAD 2.0" else None)
    for name in (*_OF_INPUT, *_OF_TASK):
        take(name, found["settings"].get(name))


# --- Checking and writing --------------------------------------------------------------------------------


class RunRecord:
    """The record of a run in its output directory: compared first, written when all else is checked."""

    def __init__(self, settings, last_step, **description):
        """Compares the run with what is in --output_dir; logs what differs.

        Args:
          settings: a `Settings`.
          last_step: of the training.
          description: see `describe`.

        Raises:
          ValueError: what is there cannot be gone on with.
        """
        self._directory, self._trains, self._last_step = settings.output_dir, settings.do_train, last_step
        self._now = describe(settings, **description)
        self._contents = {} if not self._trains else model_files.contents(
            settings, description["config"], description.get("labels"))
        self._compare()

    @property
    def data(self):
        """What the run computes on, {name: what JSON has}; replicas have to have the same."""
        found = {name: self._now[name] for name in ("command", "task", "labels", "vocabulary", "train_data",
                                                    "bert_config")}
        start = self._now["init_checkpoint"]
        return {**found, "init_checkpoint": start and start["fingerprint"]}

    def _compare(self):
        """Compares with what is in the directory now: the record, then the files beside it."""
        newest = checkpoints.latest_checkpoint(self._directory)
        self._seen, self._new = (newest, output_files.read_record(self._directory)), None
        goes_on = self._compare_record(newest, self._seen[1] if newest else None)
        before = self._seen[1] or {}
        ours, changed, stale = before.get("model_files", {}), [], []
        if goes_on:
            changed, stale = model_files.to_write(self._directory, self._contents, ours)
        elif before:  # of an earlier version
            changed = model_files.missing(self._directory, self._contents)
        fingerprints = model_files.fingerprints({name: self._contents[name] for name in changed})
        kept = {name: value for name, value in ours.items() if name not in stale}
        self._files = changed, stale, {**kept, **fingerprints}

    def _compare_record(self, newest, found):
        """Compares with the record that belongs to the newest checkpoint; returns whether there are steps to
        train."""
        if not newest:
            self._new = self._now if self._trains else None
            return self._trains
        step = checkpoints.step_in(newest) if self._trains else None
        trains = self._trains and step < self._last_step
        if found is None:
            logging.info("%s has no %s: what trained its checkpoints is not known, and not compared with "
                         "this run.", self._directory, output_files.RECORD)
            self._new = {**self._now, "from_step": step} if trains else None
            return trains
        wrong, noted = _differences(found, self._now, self._trains)
        if wrong:
            raise ValueError(
                f"--output_dir={self._directory} holds a run that this one cannot go on with, says "
                f"{output_files.RECORD} there ({_name(found)}): {_in_words(wrong)}. Use another "
                "--output_dir, or remove its checkpoints.")
        if self._trains and not trains:
            logging.info("%s was trained to step %d by %s.", self._directory, step, _name(found))
        if noted:
            if trains:
                what = f"The training goes on from step {step} with other settings than before"
            elif self._trains:
                what = ("Nothing is left to train, and the weights stay as they were trained with the first "
                        "of these")
            else:
                what = "The weights were trained with other settings than these"
            logging.warning("%s holds the run of %s. %s: %s.", self._directory, _name(found), what,
                            _in_words(noted))
        if noted and trains:
            change = {"step": step, "at": self._now["started"], "changed": noted}
            first = {name: found[name] for name in ("started", "from_step", "command") if name in found}
            self._new = {**self._now, **first, "changes": [*found["changes"], change]}
        return trains

    def write(self):
        """Writes the model's files, and the record if the directory has another one or none, if this run
        trains. Its lock must be held.

        Raises:
          ValueError: another run wrote there meanwhile, which cannot be gone on with.
        """
        if not self._trains:
            return
        newest = checkpoints.latest_checkpoint(self._directory)
        if (newest, output_files.read_record(self._directory)) != self._seen:
            self._compare()
        changed, stale, kept = self._files
        model_files.write(self._directory, self._contents, changed)
        model_files.remove(self._directory, stale)
        record = self._new or self._seen[1]
        if record is not None and (self._new or kept != record.get("model_files", {})):
            files.write_text(os.path.join(self._directory, output_files.RECORD),
                             json.dumps({**record, "model_files": kept}, indent=1) + "\n")


def _name(record):
    return f"{record.get('command')} on {record['task']}, started {record.get('started')}"
