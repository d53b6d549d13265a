"""Writes run.json, the record of the training in an output directory, and compares later runs with the
record.

A run that continues a training must have the same task, labels, vocabulary and model as the training.
Otherwise, this module refuses the run. Settings and training data may differ, and the record lists these
differences. docs/reference/output.md describes run.json.
"""

import datetime
import json
import os
import pathlib
import platform
import sys

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, hugging_face_cache
from bertlib.output_directory import best_weights, environment, model_files, output_files
from bertlib.replicas import replica_group
from bertlib.rows import tables
from bertlib.runs import learning_curve
from bertlib.runs.settings import INPUT, MACHINE, PATH_SUFFIXES, TASK, WEIGHTS, last_training_step
from bertlib.system import child_processes, files, fingerprints
from bertlib.system.fingerprints import hash_files, hash_texts
from bertlib.tasks.classification import classifier_data
import modeling
import optimization
import tokenization

# Names of flags that affect the speed of a training. They also affect the rounding or the order of sums, so
# the last bits of the trained weights may differ. For this reason, run.json records these flags.
_ROUNDING = ("precision", "tf32", "deterministic", "use_xla", "trim_padding", "gradient_dtype")
# Names of the flags that affect which weights of a training are kept as the best ones, and whether the
# training ends early. run.json records these flags, but later commands do not inherit their values.
_EVALUATIONS = ("eval_every_steps", "keep_best", "early_stopping_evals")
# {flag: key of the record that contains its value}. These flags are not recorded in "settings".
_AT_TOP = {"task_name": "task", "task_type": "task_type", "do_lower_case": "do_lower_case"}
# In general, a run without training does not take paths from the record. These flags are exceptions.
_TAKEN_PATHS = ("bert_hub_module_handle",)
# Messages show at most this number of characters of a value.
_SHORT = 60
# Names of flags that are recorded if batches are trimmed. These flags set the number of micro-batches, and
# with trimming the dropout masks depend on this number. See `_count_micro_batches`.
_SPLITTING = {"gradient_accumulation_steps", "tokens_per_micro_batch", "num_replicas"}
# Fields that describe the first session of a training. A later session does not change these fields, even if
# its settings differ.
_OF_FIRST_SESSION = ("started", "from_step", "command", "flags", "arguments", "working_directory", "inputs",
                     "code", "environment")
# If a training reads more files than this number, run.json contains no fingerprints of single files. It
# still contains the fingerprint of all training data together.
_MOST_FILES = 100


# --- Fingerprints ----------------------------------------------------------------------------------------


def describe_examples(examples):
    """Returns the entry of the record for examples: {"examples": number of the examples, "fingerprint": their
    fingerprint}.

    Args:
      examples: list of `InputExample`, or of other objects whose `vars` contain all of their data.
    """
    texts = (tuple(vars(example).values()) for example in examples)
    return {"examples": len(examples), "fingerprint": hash_texts(texts)}


def describe_dev_files(settings, paths, count_examples):
    """Returns the entry of the record for the files of the development set. It contains the result of
    `fingerprints.hash_files` and "examples", the number of examples that an evaluation reads. The result is
    None if the run evaluates nothing.

    Args:
      settings: a `Settings`.
      paths: list of paths.
      count_examples: function without arguments that returns the number of examples.
    """
    if not (settings.do_eval or learning_curve.is_requested(settings)):
        return None
    return {**hash_files(paths), "examples": count_examples()}


def hash_checkpoint(path):
    """Returns the fingerprint of a checkpoint; None if the checkpoint does not exist or cannot be read."""
    try:
        checkpoint = checkpoint_formats.open_checkpoint(path)
        if checkpoint.kind == "hugging_face":
            is_file = checkpoint.path.endswith(".safetensors")
            paths = ([checkpoint.path] if is_file
                     else checkpoint_files.list_by_ending(checkpoint.path, ".safetensors"))
        else:
            # Only the index file is hashed. It contains the checksum of each tensor, so it changes if a
            # weight changes.
            paths = [checkpoint.path + ".index"]
        return hash_files(paths)["fingerprint"]
    except (OSError, ValueError, tf.errors.OpError):
        return None


def hash_inputs(settings):
    """Returns {absolute path: entry of `fingerprints.hash_files`} for the data files that a command reads.
    The dict is empty if the command reads more than `_MOST_FILES` files.

    Args:
      settings: a `Settings`.
    """
    paths = sorted({os.path.abspath(path) if not files.is_remote(path) else path
                    for paths in settings.input_files().values() for path in paths
                    if files.exists(path) and not files.is_directory(path) and not files.is_special(path)})
    if len(paths) > _MOST_FILES:
        return {}
    return {path: {name: value for name, value in hash_files([path]).items() if name != "files"}
            for path in paths}


# --- The content of the record ---------------------------------------------------------------------------


def describe(settings, command, task, config, task_type=None, labels=None, tokenizer=None, train_data=None,
             dev_data=None, vocabulary=None, dev_rows=None, task_module=None, **effective):
    """Returns the record of a run as a dict that can be written as JSON.

    Args:
      settings: a `Settings`.
      command: file name of the command, such as "run_squad.py".
      task: name of the task. A run with a different task cannot continue the training.
      config: the `modeling.BertConfig`.
      task_type: kind of the task's head, see `head_labels.KINDS`.
      labels: list of str, in the order of the model's outputs, or None.
      tokenizer: the tokenizer; None if the run reads no text.
      train_data: see `describe_examples` and `fingerprints.hash_files`; None without training.
      dev_data: see `describe_examples` and `describe_dev_files`; None without an evaluation.
      vocabulary: the fingerprint of the vocabulary if the run reads no text, otherwise None.
      dev_rows: see `dev_rows.DevRows`; None without --dev_fraction.
      task_module: see `task_module.ModuleProcessor`; None without --task_module.
      **effective: {name of a setting: the value that the run uses}, for settings whose value differs from the
        value of their flag.
    """
    rounding = {*_ROUNDING, *_EVALUATIONS, *(_SPLITTING if effective.get("trim_padding") else ())}
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
        # The total number of replicas is recorded instead of the value of --num_replicas, because the flag
        # may be 0, or may count only the replicas of one machine.
        recorded["num_replicas"] = group.count if group else 1
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
        "init_checkpoint": start and {"path": _absolute(start), "fingerprint": hash_checkpoint(start),
                                      **hugging_face_cache.describe_snapshot(start)},
        "train_data": train_data,
        "dev_data": dev_data,
        "dev_rows": dev_rows,
        "task_module": task_module,
        "settings": {**recorded, **effective},
        "files": {name: _absolute(getattr(settings, name)) for name in shaping
                  if name.endswith(PATH_SUFFIXES) and name != "init_checkpoint"},
        "versions": _versions(),
        "flags": {name: getattr(settings, name) for name in settings.names() if settings.is_given(name)},
        "arguments": sys.argv[1:],
        "working_directory": os.getcwd(),
        "inputs": hash_inputs(settings) if "do_train" in settings and settings.do_train else {},
        "code": _hash_code(),
        "environment": environment.describe(),
        "model_files": {},
        "changes": [],
    }
    return json.loads(files.json_text(record))


def check_replicas_agree(group, settings, **data):
    """Checks that all replicas have the same flags, versions, code and data.

    Args:
      group: the `replica_group.Group`.
      settings: a `Settings`.
      **data: {name: description or fingerprint of the replica's data}. All values can be written as JSON.

    Raises:
      ValueError: replicas differ. The message names the differences.
    """
    def short(value):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({hash_texts([text])[:8]})"

    of_machine = settings.names_of_class(MACHINE)
    flags = {f"--{name}": getattr(settings, name) for name in settings.names()
             if name not in of_machine and not name.endswith(PATH_SUFFIXES)}
    fingerprints.check_replicas_agree(group)
    values = {**flags, **data, **_versions(), "the code": _hash_code()}
    group.check_equal({name: short(value) for name, value in values.items()},
                      "Start all replicas with the same flags, data and code.")


def _versions():
    return {"python": platform.python_version(), **environment.package_versions(),
            "tensorflow": tf.version.VERSION}


def _hash_code():
    """Returns the fingerprint of the package `bertlib` and of the modules `modeling`, `optimization` and
    `tokenization`. The scripts are left out: replicas compare their scripts separately, with
    `fingerprints.check_replicas_agree`."""
    paths = [pathlib.Path(module.__file__) for module in (modeling, optimization, tokenization)]
    return hash_texts(
        [fingerprints.hash_package(), *(path.read_text(encoding="utf-8") for path in paths)])


def _absolute(path):
    """Returns the absolute path of an existing local file, so that a command in another working directory
    finds the file. Returns other paths unchanged."""
    local = path and not files.is_remote(path) and files.exists(path)
    return os.path.abspath(path) if local else path


def _differences(stored, now, training):
    """Compares the record in the output directory with the record of the run.

    Args:
      stored: the record in the directory.
      now: the record of the run, see `describe`.
      training: whether the run trains.

    Returns:
      a pair of dicts {name: [old value, new value]}. The first dict contains the differences for which the
      run is refused. The second dict contains all other differences.
    """
    def changed(name):
        old, new = stored.get(name), now[name]
        return old is not None and new is not None and old != new

    refused = {name: [stored[name], now[name]] for name in ("task", "task_type", "labels", "do_lower_case")
               if changed(name)}
    if changed("vocabulary"):
        refused["vocabulary"] = [_vocabulary(stored), _vocabulary(now)]
    allowed = {}
    modules = [record.get("task_module") for record in (stored, now)]
    if all(modules) and modules[0]["fingerprint"] != modules[1]["fingerprint"]:
        allowed["task_module"] = [_with_fingerprint(module["name"], module) for module in modules]
    if not training and "labels" not in refused and "task" in refused:
        # A model may be evaluated on the data of another task if both tasks have the same labels.
        allowed["task"] = refused.pop("task")
    if changed("dev_data") and "task" not in allowed:
        allowed[best_weights.DEV_DATA] = [_data(stored["dev_data"]), _data(now["dev_data"])]
    configs = stored["bert_config"], now["bert_config"]
    for name in sorted(output_files.CONFIG_KEYS & set(configs[0]) & set(configs[1])):
        may_change = name in output_files.TRAINING_CONFIG_KEYS
        if configs[0][name] != configs[1][name] and (training or not may_change):
            (allowed if may_change else refused)[name] = [config[name] for config in configs]
    # Older versions never trimmed the batches of a pre-training, and did not record --trim_padding. So a
    # missing value means false.
    untrimmed = {"trim_padding": False} if stored["task"] == "pre-training" else {}
    old = {"num_replicas": 1, **dict.fromkeys(_EVALUATIONS), **untrimmed, **stored["settings"]}
    new = now["settings"]
    if training:
        allowed.update({name: [old[name], new[name]] for name in new
                        if name in old and old[name] != new[name]})
    # If both runs have the same total number of micro-batches, their results are the same. For example, one
    # replica with two micro-batches gives the same result as two replicas that have one micro-batch each. So
    # changes of the two flags below are not reported.
    count_before, count_now = _count_micro_batches(old), _count_micro_batches(new)
    if count_before is not None and count_before == count_now:
        for name in ("gradient_accumulation_steps", "num_replicas"):
            allowed.pop(name, None)
    if training:
        none = {"path": None, "fingerprint": None}
        starts = [record.get("init_checkpoint") or none for record in (stored, now)]
        compared = "fingerprint" if all(start["fingerprint"] for start in starts) else "path"
        if starts[0][compared] != starts[1][compared]:
            allowed["init_checkpoint"] = [_with_fingerprint(start.get("path"), start) for start in starts]
        if changed("train_data"):
            allowed["training data"] = [_data(stored["train_data"]), _data(now["train_data"])]
        before = stored.get("versions", {})
        allowed.update({name: [before[name], version] for name, version in now["versions"].items()
                        if before.get(name) not in (None, version)})
    return refused, allowed


def _changes_of_environment(stored, now):
    """Returns the changes of the environment since the last session of a training, as a dict. Each key is the
    name of a value that has changed, and its entry is the list [old value, new value]. The dict is empty if
    the record does not contain the environment."""
    if stored.get("environment") is None:
        return {}
    before, after = environment.flatten(stored), environment.flatten(now)
    for session in stored.get("sessions", []):
        before.update({name: values[-1] for name, values in session["changed"].items()
                       if isinstance(values, list) and values})
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names
            if before.get(name) != after.get(name)}


def _count_micro_batches(settings):
    """Returns the number of micro-batches of all replicas in a step; None if this number depends on free
    memory or on the number of tokens."""
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


def _dev_paths(record):
    """Returns the paths of the development data, a list. Without --eval_file, a pre-training evaluates
    --input_file."""
    paths = record.get("files", {})
    return [paths.get(name) for name in ("data_dir", "dev_file", "predict_file")] + [
        paths.get("eval_file") or paths.get("input_file")]


def _describe_differences(differences):
    def text(value):
        return value if isinstance(value, str) else json.dumps(value)

    return "; ".join(f"{name}: {text(old)} -> {text(new)}" for name, (old, new) in differences.items())


# --- Settings that a run without training takes from the record ------------------------------------------


def directory_of_weights(settings):
    """Returns the output directory of the earlier training whose weights this run uses.

    This directory is --output_dir if it contains a checkpoint, otherwise the directory of --init_checkpoint.
    The result is None if this run trains, or if no training saved the weights.
    """
    if "do_train" in settings and settings.do_train:
        return None
    if "output_dir" in settings and settings.output_dir and checkpoint_formats.latest_checkpoint(
            settings.output_dir):
        return settings.output_dir
    start = settings.init_checkpoint
    is_trained = start and is_training_checkpoint(start)
    return checkpoint_formats.directory_of_checkpoint(start) if is_trained else None


def is_training_checkpoint(path):
    """Returns whether a path names a checkpoint that a training saved. If so, the run.json in the same
    directory describes this checkpoint."""
    try:
        checkpoint = checkpoint_formats.open_checkpoint(path)
    except (OSError, ValueError):
        return False  # other checks report the unreadable checkpoint
    # The directory may also contain a published or converted checkpoint, which run.json does not describe.
    return checkpoint.kind == "tensorflow" and os.path.basename(checkpoint.path) != "bert_model.ckpt"


def record_of_weights(settings):
    """Returns the record in the directory that `directory_of_weights` returns; None if there is no record."""
    directory = directory_of_weights(settings)
    return output_files.read_record(directory) if directory else None


def columns_by_name(settings):
    """Returns a function that takes the name of a flag for columns. It returns whether a number in the value
    of this flag is the name of a column: the flag was given, and the first data file is in JSON Lines; or the
    value is from the record of a training whose file was in JSON Lines."""
    now = [getattr(settings, name) for name in ("train_file", "dev_file", "test_file")]
    trained = ((record_of_weights(settings) or {}).get("files") or {}).get("train_file")
    first = next(filter(None, now), None)
    return lambda flag: tables.is_json_lines(trained if trained and not settings.is_given(flag) else first)


def refuse_sample(settings, sample, flag, names=("data_dir", "train_file")):
    """Checks that a sample of this project may be the data of a run. The sample is the default if no flag
    names data. It must not replace the data of a training that this run continues or evaluates.

    Args:
      settings: a `Settings`.
      sample: path of the sample, in the directory samples/.
      flag: the flag to advise, such as "--data_dir".
      names: names of the flags whose files show whether a training used the sample. The first of them that
        was given names the data in the error message.

    Raises:
      ValueError: the model was trained on other data.
    """
    continues = settings.do_train and checkpoint_formats.latest_checkpoint(settings.output_dir)
    directory = settings.output_dir if continues else directory_of_weights(settings)
    record = output_files.read_record(directory) if directory else None
    recorded = (record or {}).get("files", {})
    trained = [recorded[name] for name in names if recorded.get(name)]
    # The name of the checkout may have changed since the training.
    name = os.path.join("", "samples", os.path.basename(sample))
    if trained and not any(f"{os.sep}{name}" in path for path in trained):
        raise ValueError(f"{flag} is required: according to {os.path.join(directory, output_files.RECORD)}, "
                         f"the model was trained on {trained[0]}. Without {flag}, this run would use the "
                         f"sample {sample} instead.")


def inherit_settings(settings, *kinds, without=()):
    """Sets each flag that is not on the command line to the value that it had in the training of the weights.
    The values are read from run.json, see `inherit_record`. Does nothing in a run that trains.

    Args:
      settings: a `Settings`.
      *kinds: kinds of heads that the command trains, see `output_files.head_kind`. A record is ignored if the
        kind of its head is not one of these kinds. For example, the record of a pre-training does not
        describe the data of a classifier that starts from the pre-trained weights.
      without: see `inherit_record`.

    Raises:
      ValueError: a flag contradicts the record, or the weights are from step 0, before any training.
    """
    record, directory = record_of_weights(settings), directory_of_weights(settings)
    if record is not None and output_files.head_kind(record) in kinds:
        inherit_record(settings, record, os.path.join(directory, output_files.RECORD), without)
        is_output_dir = "output_dir" in settings and directory == settings.output_dir
        output_files.check_trained(record, checkpoint_formats.latest_checkpoint(directory) if is_output_dir
                                   else settings.init_checkpoint)
        if "precision" in settings:
            output_files.log_precision(record, settings.precision, modeling.PRECISIONS)


def inherit_record(settings, record, path, without=()):
    """If a flag is not on the command line, sets it to its value in the record of a training. Logs these
    values.

    If a flag is on the command line, its class decides whether its value may differ from the record:

    - Input flags, such as the flags of columns, may differ from the training, because they describe a new
      file. The log lists the differences.
    - Flags of the task and of the weights must have the same values as in the training.
    - Flags with paths may differ. The log does not list these differences.

    If the record lacks a flag, because an older version wrote the record, this flag is not compared.

    Args:
      settings: a `Settings`.
      record: see `output_files.read_record`.
      path: path of the record, for messages.
      without: names of flags that are neither set nor compared.

    Raises:
      ValueError: a flag of the task or of the weights contradicts the record.
    """
    recorded = {name: value for name, value in _recorded(record, settings).items() if name not in without}
    _refuse_contradictions(settings, recorded, path)
    inputs = [name for name in settings.names_of_class(INPUT) if not name.endswith(PATH_SUFFIXES)]
    different = [f"--{name}={_format_flag(getattr(settings, name))} (in the training: {_format_flag(value)})"
                 for name, value in recorded.items()
                 if name in inputs and settings.is_given(name) and getattr(settings, name) != value]
    taken = {name: value for name, value in recorded.items()
             if not settings.is_given(name) and value not in (None, getattr(settings, name))}
    settings.inherit(taken)
    if taken:
        logging.info("Flags that were not given have their values from the training (%s): %s.", path,
                     ", ".join(f"--{name}={_format_flag(value)}" for name, value in taken.items()))
    if different:
        logging.warning("Flags with other values than in the training (%s): %s.", path, ", ".join(different))


def _recorded(record, settings):
    """Returns {name: recorded value} for the flags of a command that belong to the class INPUT, TASK or
    WEIGHTS."""
    values = {**record["settings"], **{name: record[key] for name, key in _AT_TOP.items()
                                       if record.get(key) is not None}}
    if output_files.head_kind(record) == "questions":
        # Older versions did not record --version_2_with_negative. For their records, the value is derived
        # from the name of the task: the name ends in "2.0" if the flag was true.
        values.setdefault("version_2_with_negative", str(record["task"]).endswith("2.0"))
    names = settings.names_of_class(INPUT, TASK, WEIGHTS)
    values = {name: values[name] for name in names if name in values}
    paths = record.get("files", {})
    values.update({name: paths[name] for name in _TAKEN_PATHS if name in names and paths.get(name)})
    task, data = getattr(settings, "task_name", None), paths.get("data_dir")
    same_task = task is None or task.lower() == record["task"]
    if "data_dir" in names and same_task and data and files.is_directory(data):
        values["data_dir"] = data
    return values


def _refuse_contradictions(settings, recorded, path):
    """Raises a ValueError if a flag of the task or of the weights was given and differs from the recorded
    value.

    Args:
      settings: a `Settings`.
      recorded: {name of a flag: its recorded value}.
      path: path of the record, for the message.
    """
    wrong = []
    for name in settings.names_of_class(TASK, WEIGHTS):
        if not settings.is_given(name) or name not in recorded or name.endswith(PATH_SUFFIXES):
            continue
        now, before = getattr(settings, name), recorded[name]
        same = classifier_data.is_compatible_task(now, before) if name == "task_name" else now == before
        if not same:
            wrong.append(f"--{name}={_format_flag(now)} (in the training: {_format_flag(before)})")
    if wrong:
        raise ValueError(f"These flags contradict the training of the weights, which {path} describes: "
                         f"{'; '.join(wrong)}. Leave these flags out, so that the values of the training are "
                         "used, or name the directory of another training.")


def _format_flag(value):
    """Returns a flag's value as written on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    text = "nothing" if value is None else str(value)
    # Control characters are escaped, because a terminal would execute them.
    return text if text.isprintable() else repr(text)


# --- Checking and writing --------------------------------------------------------------------------------


def _warn(text, before=""):
    """Logs a warning about the results, and adds it to the outcome of the process. The log also contains the
    text `before`."""
    logging.warning("%s%s", before, text)
    child_processes.add_warning(text)


class RunRecord:
    """The record of a run. The constructor compares the run with the files in the output directory. The
    method `write` writes the record, and must be called after all other checks."""

    def __init__(self, settings, last_step, more_files=None, **description):
        """Compares the run with the record and the model's files in --output_dir, and logs the differences.

        Args:
          settings: a `Settings`.
          last_step: last step of the schedule. With --max_steps, the training may end earlier.
          more_files: {name: content in bytes} of further files that the training writes, in addition to the
            result of `model_files.model_file_contents`.
          **description: see `describe`.

        Raises:
          ValueError: the run cannot continue the training in the directory.
        """
        self._directory, self._trains = settings.output_dir, settings.do_train
        self._last_step = last_training_step(settings, last_step)
        if self._trains:
            stopped = learning_curve.find_early_stop(settings)
            self._last_step = self._last_step if stopped is None else stopped
        self._now = {**describe(settings, **description), "planned_steps": last_step, "finished_step": None}
        self._contents = {} if not self._trains else {**model_files.model_file_contents(
            settings, description["config"], description.get("labels")), **(more_files or {})}
        self._unused_values, self._other_dev_data = None, None
        self._directory_of_weights = directory_of_weights(settings) or self._directory
        self._compare()

    def warn_about_results(self):
        """Logs warnings if the results of this run could be mistaken for other results. They are the last
        lines of the log.

        - The run evaluates other development data than the training, although their path is the same. If the
          user named another path, this is only logged.
        - The flags of this run have other values than the training, but the training had already ended. So
          the run trains no step with the new values.
        """
        if self._other_dev_data:
            log, differences = self._other_dev_data
            log(f"The development data differ from those of the training in {self._directory_of_weights}: "
                f"{differences}. So the metrics of this evaluation cannot be compared with those of the "
                "training.")
        if self._unused_values:
            _warn(f"No step was trained with the new values: {self._unused_values}. To train with them, pass "
                  "another --output_dir.",
                  f"The results above are those of the earlier training in {self._directory}. ")

    @property
    def data(self):
        """Returns {name: value}, a description of the data, the model and the task. All replicas must have
        the same description. All values can be written as JSON."""
        data = {name: self._now[name] for name in ("command", "task", "labels", "vocabulary", "train_data",
                                                   "bert_config")}
        start, module = self._now["init_checkpoint"], self._now["task_module"]
        return {**data, "init_checkpoint": start and start["fingerprint"],
                "task_module": module and module["fingerprint"]}

    def _compare(self):
        """Compares the run first with the record in the output directory, and then with the model's files in
        this directory."""
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        self._seen, self._new = (newest, output_files.read_record(self._directory)), None
        self._has_steps_left = self._compare_record(newest, self._seen[1] if newest else None)
        before = self._seen[1] or {}
        recorded, changed, stale = before.get("model_files", {}), [], []
        if self._has_steps_left:
            changed, stale = model_files.list_changed_files(self._directory, self._contents, recorded)
        elif before:  # some of the files may be missing if an earlier version wrote this directory
            changed = model_files.list_missing_files(self._directory, self._contents)
        fingerprints = model_files.hash_contents({name: self._contents[name] for name in changed})
        kept = {name: value for name, value in recorded.items() if name not in stale}
        self._files = changed, stale, {**kept, **fingerprints}

    def _compare_record(self, newest, stored):
        """Compares the run with the record of the newest checkpoint.

        Args:
          newest: path of the newest checkpoint, or None.
          stored: the record of the newest checkpoint, or None.

        Returns:
          whether the run has steps to train.

        Raises:
          ValueError: the run cannot continue this training.
        """
        if not newest:
            self._new = self._now if self._trains else None
            if self._directory_of_weights != self._directory:
                self._compare_evaluation(output_files.read_record(self._directory_of_weights))
            return self._trains
        step = checkpoint_formats.read_global_step(newest) if self._trains else None
        trains = self._trains and step < self._last_step
        if stored is None:
            logging.info("%s has no %s, so this run cannot be compared with the training of the checkpoints "
                         "in this directory.", self._directory, output_files.RECORD)
            self._new = {**self._now, "from_step": step} if trains else None
            return trains
        refused, allowed = _differences(stored, self._now, self._trains)
        if refused:
            raise ValueError(
                f"--output_dir={self._directory} contains a training that this run cannot continue. "
                f"According to {output_files.RECORD} there ({_name_record(stored)}), these values differ: "
                f"{_describe_differences(refused)}. Use another --output_dir, or remove the checkpoints in "
                "this directory.")
        if not trains:
            self._note_dev_data(stored, allowed.pop(best_weights.DEV_DATA, None))
        if self._trains and not trains:
            logging.info("%s was trained to step %d by %s.", self._directory, step, _name_record(stored))
            self._change_evaluations(stored, step, {name: allowed.pop(name) for name in _EVALUATIONS
                                                    if name in allowed})
        if allowed:
            if trains:
                effect = f"The training continues from step {step} with changed settings"
            elif self._trains:
                self._unused_values = _describe_differences(allowed)
                effect = ("No steps are left to train. To train with the new values, pass another "
                          "--output_dir. Trained value -> new value")
            else:
                effect = "The weights were trained with other settings. Trained value -> value of this run"
            advice = " To train from the start, pass another --output_dir." if trains else ""
            logging.warning("%s contains the training of %s. %s: %s.%s", self._directory,
                            _name_record(stored), effect, _describe_differences(allowed), advice)
        if allowed and trains:
            first = {name: stored[name] for name in _OF_FIRST_SESSION if name in stored}
            self._new = {**self._now, **first, "changes": self._add_change(stored, step, allowed)}
        changed = _changes_of_environment(stored, self._now) if trains else None
        if changed:
            session = {"step": step, "at": self._now["started"], "changed": changed}
            self._new = {**(self._new or stored), "sessions": [*stored.get("sessions", []), session]}
        elif self._new and "sessions" in stored:
            self._new["sessions"] = stored["sessions"]
        return trains

    def _compare_evaluation(self, stored):
        """Compares an evaluation of weights from another directory with the record of their training."""
        if stored is None:
            return
        _, allowed = _differences(stored, self._now, training=False)
        self._note_dev_data(stored, allowed.get(best_weights.DEV_DATA))
        if "task_module" in allowed:
            logging.warning("%s contains the training of %s. It used another task module: %s.",
                            self._directory_of_weights, _name_record(stored),
                            _describe_differences({"task_module": allowed["task_module"]}))

    def _note_dev_data(self, stored, change):
        """Stores the message of `warn_about_results` about the development data.

        Args:
          stored: the record of the training.
          change: [old value, new value] of the development data; None if they are the same.
        """
        if change is not None:
            is_same_path = _dev_paths(stored) == _dev_paths(self._now)
            log = _warn if is_same_path else logging.info
            self._other_dev_data = log, " -> ".join(change)

    def _add_change(self, stored, step, changed):
        """Returns the field "changes" of the stored record, with an additional entry."""
        return [*stored["changes"], {"step": step, "at": self._now["started"], "changed": changed}]

    def _change_evaluations(self, stored, step, changed):
        """Changes settings of the evaluations in the record of a training that has no steps left. Even then,
        --keep_best decides which weights later commands use. Without --keep_best, before and now, these
        settings have no effect on such a training, and the record stays unchanged.

        Args:
          stored: the record.
          step: int, the last step of the training.
          changed: {name of a setting: [old value, new value]}.
        """
        old = stored["settings"].get("keep_best")
        new = changed.get("keep_best", [old, old])[1]
        if not changed or old is None and new is None:
            return
        effect = ("Later commands use the last weights" if new is None else
                  "The best weights are chosen again among the earlier evaluations")
        logging.warning("%s: no steps are left to train. %s, because these settings have changed: %s.",
                        self._directory, effect, _describe_differences(changed))
        new = {name: value for name, (_, value) in changed.items()}
        self._new = {**stored, "settings": {**stored["settings"], **new},
                     "changes": self._add_change(stored, step, changed)}

    def write(self):
        """Writes the model's files, and the record if it is new or changed. If the training starts from step
        0, also removes the learning curve of an earlier training. Does nothing if the run does not train. The
        caller must hold the lock of the directory.

        Raises:
          ValueError: since this object was created, another run wrote to the directory, and this run cannot
            continue the training of that run.
        """
        if not self._trains:
            return
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        if (newest, output_files.read_record(self._directory)) != self._seen:
            self._compare()
        changed, stale, kept = self._files
        model_files.write(self._directory, self._contents, changed)
        model_files.remove(self._directory, stale)
        if not newest:
            learning_curve.remove(self._directory)
        record = self._new or self._seen[1]
        if record is None:
            return
        plan = {}
        if self._has_steps_left:
            plan = {name: self._now[name] for name in ("planned_steps", "finished_step", "dev_data")}
            named = {name: path for name, path in self._now["files"].items() if path}
            plan["files"] = {**record.get("files", {}), **named}  # later evaluations read these files
        if plan and newest and plan["dev_data"] is None:
            # A session without evaluations does not change which development set the last evaluations used.
            plan["dev_data"] = (self._seen[1] or {}).get("dev_data")
        written = {**record, **plan, "model_files": kept}
        if self._new or written != {"model_files": {}, **record}:
            _write(self._directory, written)


def _write(directory, record):
    """Writes run.json atomically: even if the process is killed, either the old file or the complete new file
    exists."""
    files.write_json(os.path.join(directory, output_files.RECORD), record)


def mark_finished(directory):
    """Records in run.json that the training has ended. The field `finished_step` gets the step of the newest
    checkpoint. Call this function only if the training was neither killed nor terminated.

    Args:
      directory: the output directory.
    """
    record, step = output_files.read_record(directory), checkpoint_formats.read_global_step(
        checkpoint_formats.latest_checkpoint(directory))
    if record is not None and "planned_steps" in record and record.get("finished_step") != step:
        _write(directory, {**record, "finished_step": step})


def _name_record(record):
    return f"{record.get('command')} on {record['task']}, started {record.get('started')}"
