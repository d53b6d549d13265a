"""Plans the repetition of a training: reads the command and its flags from run.json, and checks that the data
files are unchanged."""

import os
import re
from typing import NamedTuple

from bertlib.checkpoints import checkpoint_files, hugging_face_cache
from bertlib.reports import recorded_inputs
from bertlib.runs import file_names, record_comparison, registry
from bertlib.runs.input_paths import absolute_paths
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import child_command, files, locks

# These flags are not taken from the training: the repetition sets them itself, or leaves them out.
_OURS = ("output_dir", "results_dir", "max_steps", "do_export", "profile_steps")
# These flags request evaluations during a training, or at its end. If only the first steps are repeated,
# these flags are left out.
_OF_EVALUATION = ("eval_each_checkpoint", "eval_every_steps", "keep_best", "early_stopping_evals")
# Maps each of these flags to the name of a copy in the output directory. The copy is used if the file that
# the flag names no longer exists.
_COPIES = {"vocab_file": file_names.VOCABULARY, "spm_model_file": file_names.SENTENCE_PIECES,
           "bert_config_file": file_names.BERT_CONFIG, "label_file": file_names.LABELS}
_FLAG = re.compile(r"--?([a-z][a-z0-9_]*)(?:=(.*))?", re.DOTALL)


class Plan(NamedTuple):
    """The repetition of a training.

    Attributes:
      command: file name of the command.
      flags: list of str, its command-line arguments.
      step: int, the last step that is trained and compared.
      is_whole: whether the repetition trains all steps of the training.
      results_dir: the directory with the results of the training.
      changed_files: list of {"path", "old", "new"}, the files of data or weights that were changed after the
        training, with their old and new fingerprints.
      overrides: list of str, the flags that the caller passed.
      notes: list of sentences on the limits of the comparison.
    """

    command: str
    flags: list
    step: int
    is_whole: bool
    results_dir: str
    changed_files: list
    overrides: list
    notes: list


def plan(directory, output_dir, until=None, overrides=()):
    """Returns the `Plan` of the repetition of a training.

    Args:
      directory: the output directory of the training.
      output_dir: the output directory of the repetition.
      until: int, the last step to compare; None for all steps.
      overrides: list of str, further command-line arguments, such as "--data_dir=other".

    Raises:
      ValueError, OSError: the training cannot be repeated, or one of its files is missing.
    """
    training, target = OutputDirectory(directory), OutputDirectory(output_dir)
    record = _read_record(training)
    if files.exists(target.record_path) or target.latest_checkpoint:
        raise ValueError(f"--output_dir={output_dir} already contains a training. Remove it, or name another "
                         "directory.")
    try:
        with locks.lock_directory(directory):
            pass
    except locks.InUseError:  # a process trains in the directory
        raise
    except OSError:
        pass  # a directory that this user cannot write cannot be locked
    notes = []
    step, is_whole = _last_step(training, until, notes)
    notes += [f"The training continued after step {session['step']} in another environment: "
              f"{', '.join(session['changed'])}." for session in record.get("sessions", ())]
    new_flags = _parse(overrides)
    base = record["working_directory"]
    flags = {name: absolute_paths(name, value, base) for name, value in record["flags"].items()}
    results_dir = flags.get("results_dir") or directory
    flags = {name: value for name, value in flags.items() if name not in (*_OURS, *new_flags)}
    _use_copies(flags, directory)
    _find_starting_weights(flags, record, new_flags)
    changed_files = _compare_inputs(record, flags, new_flags, notes)
    settings = record_comparison.settings_of_first_session(record)
    replicas = settings.get("num_replicas", 1)
    if replicas > 1 and "num_replicas" not in new_flags:
        flags["num_replicas"] = replicas
    if settings.get("gradient_accumulation_steps", flags.get("gradient_accumulation_steps")) == 0:
        notes.append("--gradient_accumulation_steps=0: the number of micro-batches depends on the free "
                     "memory. A different number changes the last bits of the results.")
    if not is_whole:
        flags = {name: value for name, value in flags.items() if name not in _OF_EVALUATION}
        flags.update(do_train=True, do_eval=False)
        if record["command"] != "run_pretraining.py":
            flags["do_predict"] = False
    flags.update(output_dir=output_dir, max_steps=step)
    words = [*child_command.flags(flags), *(
        f"--{name}" if value is None else f"--{name}={absolute_paths(name, value, os.getcwd())}"
        for name, value in new_flags.items())]
    return Plan(record["command"], words, step, is_whole, results_dir, changed_files, list(overrides), notes)


def _read_record(training):
    record, path = training.record, training.record_path
    if record is None:
        raise ValueError(f"{training.path} contains no {file_names.RECORD}. Name the output directory of a "
                         "training with this project.")
    commands = [f"{name}.py" for name in registry.COMMANDS]
    if record["command"] not in commands:
        raise ValueError(f"{path}: the training was made by {record['command']!r}. Only trainings by these "
                         f"commands can be repeated: {', '.join(commands)}.")
    if record["from_step"]:
        raise ValueError(f"{path} describes only the steps after step {record['from_step']}, because the "
                         "first steps were trained without this file. The training cannot be repeated.")
    return record


def _last_step(training, until, notes):
    """Finds the last step at which the training in an `OutputDirectory` and its repetition are compared.

    Adds sentences to the list `notes` if the training is unfinished, or was continued with other settings.

    Returns:
      a pair: the step, as an int; and a bool, True if the training ended at this step, saved a checkpoint of
      this step, and its settings were not changed afterwards.
    """
    directory, record = training.path, training.record
    saved = training.latest_checkpoint
    saved_step = checkpoint_files.step_in_name(saved) if saved else None
    steps = [row["step"] for row in training.history.read() if "evaluation" not in row]
    last = max([saved_step or 0, *steps])
    if not last:
        raise ValueError(f"{directory} contains no trained step, so there is nothing to compare. Run its "
                         "training again.")
    planned_steps, limit, is_same = record["planned_steps"], last, True
    if record["finished_step"] is None and planned_steps is not None and last < planned_steps:
        notes.append(f"The training is unfinished: its last known step is {last} of {planned_steps}.")
    for change in record["changes"]:
        names = ", ".join(change["changed"])
        if change["step"] >= last:
            is_same = False
            notes.append(f"After the last step, these settings were changed: {names}. So the best weights "
                         "and the results are not compared.")
        elif change["step"] < limit:
            limit = change["step"]
            notes.append(f"The training continued after step {limit} with other settings ({names}). Only the "
                         f"steps up to {limit} are compared.")
    if limit < 1:
        raise ValueError(f"{os.path.join(directory, file_names.RECORD)}: this training cannot be "
                         "repeated, because its settings were changed before its first step.")
    if until is not None and until > limit:
        raise ValueError(f"--until={until}: only the steps up to {limit} can be compared. Pass at most "
                         f"{limit}.")
    step = limit if until is None else until
    has_ended = record["finished_step"] == last
    return step, has_ended and step == last and saved_step == last and is_same


def _parse(overrides):
    """Parses command-line arguments. Returns {flag: value as text}. The value of a flag without "=" is
    None."""
    new_flags = {}
    for word in overrides:
        match = _FLAG.fullmatch(word)
        if not match:
            raise ValueError(f"{word!r} is not a flag. After the separator --, write only flags "
                             "of the training, in the form --name=value.")
        if match[1] in (*_OURS, "do_train", "flagfile"):
            raise ValueError(f"--{match[1]} must not be passed after the separator --, because reproduce.py "
                             "sets this flag itself. Leave it out. Pass --output_dir and --until before the "
                             "--.")
        new_flags[match[1]] = match[2]
    return new_flags


def _use_copies(flags, directory):
    """Replaces paths in flags by the paths of copies in the output directory. The path in --task_module is
    always replaced, even if the original file still exists. The path of a file of the model is replaced only
    if the original file no longer exists. If there is no copy, a path stays unchanged."""
    module = os.path.join(directory, file_names.TASK_MODULE)
    if "task_module" in flags and files.exists(module):
        flags["task_module"] = os.path.abspath(module)
    for name, copy in _COPIES.items():
        copy = os.path.join(directory, copy)
        if isinstance(flags.get(name), str) and not files.exists(flags[name]) and files.exists(copy):
            flags[name] = os.path.abspath(copy)


def _find_starting_weights(flags, record, new_flags):
    """If the starting weights came from the Hugging Face Hub, replaces --init_checkpoint by the name and the
    revision of the model on the Hub. A path that exists on this machine is not replaced."""
    start = record.get("init_checkpoint") or {}
    if "init_checkpoint" in new_flags or not start.get("repository") or "init_checkpoint" not in flags:
        return
    if flags["init_checkpoint"].startswith(hugging_face_cache.PREFIX) or not files.exists(
            flags["init_checkpoint"]):
        flags["init_checkpoint"] = f"{hugging_face_cache.PREFIX}{start['repository']}@{start['revision']}"


def _compare_inputs(record, flags, new_flags, notes):
    """Compares the data files and the files of the starting model with their recorded fingerprints.

    Returns:
      list of {"path", "old", "new"} for the files that were changed. "old" and "new" are fingerprints.

    Raises:
      FileNotFoundError: files are missing. The message names them.
    """
    paths = {**record["files"], **flags}
    moves = [(old, absolute_paths(name, value, os.getcwd())) for name, value in new_flags.items()
             if isinstance(old := paths.get(name), str) and value]
    # A flag that the user passes for the repetition can name other files than the recorded ones, for example
    # if --input_file contains another pattern. So a recorded file that is missing is not an error then. If
    # the repetition needs the file, its command reports the error.
    may_lack_files = any(map(registry.is_path, new_flags))
    changes, missing_files = [], []
    for path, (old, flag) in recorded_inputs.read(record).items():
        new = new_flags.get(flag) or flags.get(flag) or _moved(path, moves)
        if new.startswith(hugging_face_cache.PREFIX):
            continue
        now = recorded_inputs.fingerprint(new, flag)
        if now not in (None, old):
            changes.append({"path": new, "old": old, "new": now})
        elif now is None and new == path and may_lack_files:
            notes.append(f"{path} does not exist, and is not compared before the training.")
        elif now is None and (flag is None or flag in flags):
            missing_files.append(new)
    if missing_files:
        raise FileNotFoundError("These files of the training do not exist here: " + ", ".join(missing_files) +
                                ". To name their new place, add -- as a separate word and then a flag. For "
                                "example: -- --data_dir=DIR.")
    return changes


def _moved(path, moves):
    for old, new in moves:
        if path == old:
            return new
        if path.startswith(old.rstrip("/") + "/"):
            return os.path.join(new, os.path.relpath(path, old))
    return path


def describe_changed(changed_files):
    """Returns a line of text for each changed file, with the fingerprint in the training and the present
    fingerprint."""
    return [f"{entry['path']} was changed: fingerprint {entry['old']} in the training, {entry['new']} now."
            for entry in changed_files]
