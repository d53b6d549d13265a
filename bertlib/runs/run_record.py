"""run.json: what trained the weights in an output directory; and what a later run there may change.

A run that goes on with another task, other labels, another vocabulary or another model is refused. Other
settings and other training data are allowed, and listed. docs/reference/output.md describes the file.
"""

import datetime
import json
import os
import pathlib
import platform

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.output_directory import model_files, output_files
from bertlib.replicas import replica_group
from bertlib.runs.settings import INPUT, MACHINE, PATH_SUFFIXES, TASK, WEIGHTS
from bertlib.system import code_fingerprint, files
from bertlib.system.fingerprints import hash_files, hash_texts
from bertlib.tasks.classification import classifier_data
import modeling
import optimization
import tokenization

# Flags of speed that change the bits of the weights, by rounding or by the order of sums: recorded, too.
_ROUNDING = ("precision", "trim_padding", "gradient_dtype")
# Flags that the record has in other places than "settings": {name: the record's key}.
_AT_TOP = {"task_name": "task", "task_type": "task_type", "do_lower_case": "do_lower_case"}
# Paths in the record that a run without training takes over.
_TAKEN_PATHS = ("bert_hub_module_handle",)
# So long may a value be in a message.
_SHORT = 60
# With trimming, the number of micro-batches changes the dropout masks, so these flags are recorded. See
# `_count_micro_batches`.
_SPLITTING = {"gradient_accumulation_steps", "tokens_per_micro_batch", "num_replicas"}


# --- Fingerprints ----------------------------------------------------------------------------------------


def describe_examples(examples):
    """Returns what is recorded of `InputExample`s, or others with plain attributes."""
    texts = (tuple(vars(example).values()) for example in examples)
    return {"examples": len(examples), "fingerprint": hash_texts(texts)}


def hash_checkpoint(path):
    """Returns the fingerprint of a checkpoint, or None if it is not there any more."""
    try:
        found = checkpoint_formats.open_checkpoint(path)
        if found.kind == "hugging_face":
            alone = found.path.endswith(".safetensors")
            paths = [found.path] if alone else checkpoint_files.list_by_ending(found.path, ".safetensors")
        else:
            paths = [found.path + ".index"]  # with the checksum of each tensor
        return hash_files(paths)["fingerprint"]
    except (OSError, ValueError, tf.errors.OpError):
        return None


# --- What is recorded ------------------------------------------------------------------------------------


def describe(settings, command, task, config, task_type=None, labels=None, tokenizer=None, train_data=None,
             vocabulary=None, dev_rows=None, **effective):
    """Returns the record of a run, as JSON has it.

    Args:
      settings: a `Settings`.
      command: its file's name.
      task: str; another one is never gone on with.
      config: the `modeling.BertConfig`.
      task_type: str, the kind of its head, see `head_labels.KINDS`.
      labels: list of str, in the order of the model's outputs, or None.
      tokenizer: has `vocab`; None where the run sees no text.
      train_data: see `describe_examples` and `fingerprints.hash_files`; None of a run that does not train.
      vocabulary: its fingerprint where the run sees no text, or None.
      dev_rows: see `dev_rows.DevRows`; None of a run that takes no development set out of its training data.
      effective: flags that mean something else than their values, {name: value}.
    """
    rounding = {*_ROUNDING, *(_SPLITTING if effective.get("trim_padding") else ())}
    shaping = settings.names_of_class(INPUT, TASK, WEIGHTS)
    recorded = {name: getattr(settings, name) for name in settings.names()
                if name in rounding or name in shaping and name not in _AT_TOP
                and not name.endswith(PATH_SUFFIXES)}
    start = settings.init_checkpoint
    if tokenizer:
        pieces = settings.spm_model_file
        vocabulary = output_files.hash_vocabulary(pieces or settings.vocab_file, pieces=bool(pieces))
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
        "vocabulary": vocabulary,
        "do_lower_case": settings.do_lower_case if vocabulary else None,
        "bert_config": config.to_dict(),
        "init_checkpoint": start and {"path": _absolute(start), "fingerprint": hash_checkpoint(start)},
        "train_data": train_data,
        "dev_rows": dev_rows,
        "settings": {**recorded, **effective},
        "files": {name: _absolute(getattr(settings, name)) for name in shaping
                  if name.endswith(PATH_SUFFIXES) and name != "init_checkpoint"},
        "versions": _versions(),
        "model_files": {},
        "changes": [],
    }
    return json.loads(json.dumps(record))


def check_replicas_agree(group, settings, **data):
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
        return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({hash_texts([text])[:8]})"

    of_machine = settings.names_of_class(MACHINE)
    given = {f"--{name}": getattr(settings, name) for name in settings.names()
             if name not in of_machine and not name.endswith(PATH_SUFFIXES)}
    code_fingerprint.check_replicas_agree(group)
    group.check_equal({name: short(value) for name, value in
                       {**given, **data, **_versions(), "the code": _hash_code()}.items()},
                "Start all with the same flags, data and code.")


def _versions():
    return {"python": platform.python_version(), "tensorflow": tf.version.VERSION, "numpy": np.__version__}


def _hash_code():
    """Returns the fingerprint of this project's files; `code_fingerprint` compares the scripts."""
    paths = [pathlib.Path(module.__file__) for module in (modeling, optimization, tokenization)]
    return hash_texts(
        [code_fingerprint.hash_package(), *(path.read_text(encoding="utf-8") for path in paths)])


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
        may_change = name in output_files.TRAINING_CONFIG_KEYS
        if configs[0][name] != configs[1][name] and (training or not may_change):
            (noted if may_change else wrong)[name] = [config[name] for config in configs]
    old, new = {"num_replicas": 1, **found["settings"]}, now["settings"]
    if training:
        noted.update({name: [old[name], new[name]] for name in new
                      if name in old and old[name] != new[name]})
    if _count_micro_batches(old) == _count_micro_batches(new) is not None:
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


def _count_micro_batches(settings):
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


def _describe_differences(differences):
    def text(value):
        return value if isinstance(value, str) else json.dumps(value)

    return "; ".join(f"{name}: {text(old)} -> {text(new)}" for name, (old, new) in differences.items())


# --- What a run without training takes from it -----------------------------------------------------------


def directory_of_weights(settings):
    """Returns the directory of the training whose weights a run without training uses: --output_dir, or where
    --init_checkpoint lies; None if there is none."""
    if "do_train" in settings and settings.do_train:
        return None
    if "output_dir" in settings and settings.output_dir and checkpoint_formats.latest_checkpoint(
            settings.output_dir):
        return settings.output_dir
    start = settings.init_checkpoint
    is_trained = start and is_training_checkpoint(start)
    return checkpoint_formats.directory_of_checkpoint(start) if is_trained else None


def is_training_checkpoint(path):
    """Whether a path names a checkpoint that a training saved: one that the files beside it are about."""
    try:
        found = checkpoint_formats.open_checkpoint(path)
    except (OSError, ValueError):
        return False  # which other checks complain about
    # Published ones, and conversions, may lie in the directory of a training too.
    return found.kind == "tensorflow" and os.path.basename(found.path) != "bert_model.ckpt"


def record_of_weights(settings):
    """Returns the record of the training whose weights a run without training uses, or None."""
    directory = directory_of_weights(settings)
    return output_files.read_record(directory) if directory else None


def inherit_settings(settings, *kinds, without=()):
    """Has a run without training take over what the training of its weights recorded; see `inherit_record`.

    Args:
      settings: a `Settings`.
      kinds: the kinds of heads that the command trains, see `output_files.head_kind`. A training of another
        kind, such as the pre-training that a classifier starts from, says nothing of how this one reads.
      without: see `inherit_record`.

    Raises:
      ValueError: a flag contradicts the record, or the weights are those of step 0.
    """
    found, directory = record_of_weights(settings), directory_of_weights(settings)
    if found is not None and output_files.head_kind(found) in kinds:
        inherit_record(settings, found, os.path.join(directory, output_files.RECORD), without)
        goes_first = "output_dir" in settings and directory == settings.output_dir
        output_files.check_trained(found, checkpoint_formats.latest_checkpoint(directory) if goes_first
                                   else settings.init_checkpoint)


def inherit_record(settings, record, path, without=()):
    """Takes what a run without training was not told from the record of its weights' training, by the class
    of each flag: that of files and columns (input), of the task and of the weights. Logs what was taken.

    Flags that were given go first if they are about input, for they describe a new file; the log says where
    the training had something else. Flags of the task and of the weights have to be those of the training.
    Paths may be others, for another run has other files. What the record lacks, as that of an older version
    does, contradicts nothing.

    Args:
      settings: a `Settings`.
      record: see `output_files.read_record`.
      path: where it lies, for messages.
      without: names of flags that are left alone.

    Raises:
      ValueError: a flag of the task or of the weights contradicts the record.
    """
    recorded = {name: value for name, value in _recorded(record, settings).items() if name not in without}
    _refuse_contradictions(settings, recorded, path)
    inputs = [name for name in settings.names_of_class(INPUT) if not name.endswith(PATH_SUFFIXES)]
    other = [f"--{name}={_format_flag(getattr(settings, name))} (there {_format_flag(value)})"
             for name, value in recorded.items()
             if name in inputs and settings.is_given(name) and getattr(settings, name) != value]
    taken = {name: value for name, value in recorded.items()
             if not settings.is_given(name) and value not in (None, getattr(settings, name))}
    settings.inherit(taken)
    if taken:
        logging.info("Not given, and so as in the training (%s): %s.", path,
                     ", ".join(f"--{name}={_format_flag(value)}" for name, value in taken.items()))
    if other:
        logging.warning("Given otherwise than in the training (%s): %s.", path, ", ".join(other))


def _recorded(record, settings):
    """Returns what a record says of a command's flags of input, task and weights, {name: value}."""
    found = {**record["settings"], **{name: record[key] for name, key in _AT_TOP.items()
                                      if record.get(key) is not None}}
    if output_files.head_kind(record) == "questions":  # which older versions say by the task alone
        found.setdefault("version_2_with_negative", str(record["task"]).endswith("2.0"))
    names = settings.names_of_class(INPUT, TASK, WEIGHTS)
    found = {name: found[name] for name in names if name in found}
    paths = record.get("files", {})
    found.update({name: paths[name] for name in _TAKEN_PATHS if name in names and paths.get(name)})
    asked, data = getattr(settings, "task_name", None), paths.get("data_dir")
    same_task = asked is None or asked.lower() == record["task"]
    if "data_dir" in names and same_task and data and files.is_directory(data):
        found["data_dir"] = data
    return found


def _refuse_contradictions(settings, recorded, path):
    """Raises a ValueError if a flag of the task or of the weights was given and is not that of a record."""
    wrong = []
    for name in settings.names_of_class(TASK, WEIGHTS):
        if not settings.is_given(name) or name not in recorded or name.endswith(PATH_SUFFIXES):
            continue
        given, before = getattr(settings, name), recorded[name]
        same = classifier_data.is_compatible_task(given, before) if name == "task_name" else given == before
        if not same:
            wrong.append(f"--{name}={_format_flag(given)}, where the training had {_format_flag(before)}")
    if wrong:
        raise ValueError(f"These flags contradict the training of the weights, says {path}: "
                         f"{'; '.join(wrong)}. Leave them out: they are taken from there. Or name the "
                         "directory of another training.")


def _format_flag(value):
    """A flag's value as a command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = "nothing" if value is None else str(value)
    return text if text.isprintable() else repr(text)  # else a terminal would obey it


# --- Checking and writing --------------------------------------------------------------------------------


class RunRecord:
    """The record of a run in its output directory: compared first, written when all else is checked."""

    def __init__(self, settings, last_step, more_files=None, **description):
        """Compares the run with what is in --output_dir; logs what differs.

        Args:
          settings: a `Settings`.
          last_step: of the training.
          more_files: {name: content in bytes} of files that a training writes beside the record, with the
            files of `model_files.model_file_contents`.
          description: see `describe`.

        Raises:
          ValueError: what is there cannot be gone on with.
        """
        self._directory, self._trains, self._last_step = settings.output_dir, settings.do_train, last_step
        self._now = {**describe(settings, **description), "planned_steps": last_step, "finished_step": None}
        self._contents = {} if not self._trains else {**model_files.model_file_contents(
            settings, description["config"], description.get("labels")), **(more_files or {})}
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
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        self._seen, self._new = (newest, output_files.read_record(self._directory)), None
        self._goes_on = goes_on = self._compare_record(newest, self._seen[1] if newest else None)
        before = self._seen[1] or {}
        ours, changed, stale = before.get("model_files", {}), [], []
        if goes_on:
            changed, stale = model_files.list_changed_files(self._directory, self._contents, ours)
        elif before:  # of an earlier version
            changed = model_files.list_missing_files(self._directory, self._contents)
        fingerprints = model_files.hash_contents({name: self._contents[name] for name in changed})
        kept = {name: value for name, value in ours.items() if name not in stale}
        self._files = changed, stale, {**kept, **fingerprints}

    def _compare_record(self, newest, found):
        """Compares with the record that belongs to the newest checkpoint; returns whether there are steps to
        train."""
        if not newest:
            self._new = self._now if self._trains else None
            return self._trains
        step = checkpoint_formats.read_global_step(newest) if self._trains else None
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
                f"{output_files.RECORD} there ({_name_record(found)}): {_describe_differences(wrong)}. Use "
                "another --output_dir, or remove its checkpoints.")
        if self._trains and not trains:
            logging.info("%s was trained to step %d by %s.", self._directory, step, _name_record(found))
        if noted:
            if trains:
                what = f"The training goes on from step {step} with other settings than before"
            elif self._trains:
                what = ("Nothing is left to train, and the weights stay as they were trained with the first "
                        "of these")
            else:
                what = "The weights were trained with other settings than these"
            logging.warning("%s holds the run of %s. %s: %s.", self._directory, _name_record(found), what,
                            _describe_differences(noted))
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
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        if (newest, output_files.read_record(self._directory)) != self._seen:
            self._compare()
        changed, stale, kept = self._files
        model_files.write(self._directory, self._contents, changed)
        model_files.remove(self._directory, stale)
        record = self._new or self._seen[1]
        if record is None:
            return
        plan = {name: self._now[name] for name in ("planned_steps", "finished_step") if self._goes_on}
        written = {**record, **plan, "model_files": kept}
        if self._new or written != {"model_files": {}, **record}:
            _write(self._directory, written)


def _write(directory, record):
    """Writes run.json, whole or not at all."""
    files.write_text(os.path.join(directory, output_files.RECORD), json.dumps(record, indent=1) + "\n")


def mark_finished(directory):
    """Writes down that the training in a directory ended by itself, at the step of its newest checkpoint; one
    that is killed or terminated does not come here."""
    record, step = output_files.read_record(directory), checkpoint_formats.read_global_step(
        checkpoint_formats.latest_checkpoint(directory))
    if record is not None and "planned_steps" in record and record.get("finished_step") != step:
        _write(directory, {**record, "finished_step": step})


def _name_record(record):
    return f"{record.get('command')} on {record['task']}, started {record.get('started')}"
