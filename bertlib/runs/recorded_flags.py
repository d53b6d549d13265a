"""Takes the settings of a training from its record, for a run that does not train. Refuses flags that
contradict the record."""

import os

from absl import logging

from bertlib.data import tables
from bertlib.runs import model_files, registry
from bertlib.runs.entries import INPUT, TASK, WEIGHTS, flag_text
from bertlib.runs.record_format import AT_TOP
from bertlib.system import files

# In general, a run without training does not take paths from the record. These flags are exceptions.
_TAKEN_PATHS = ("bert_hub_module_handle",)


def columns_by_name(settings):
    """Returns a function that takes the name of a flag for columns. It returns whether a number in the value
    of this flag is the name of a column: the flag was given, and the first data file is in JSON Lines; or the
    value is from the record of a training whose file was in JSON Lines."""
    now = [getattr(settings, name) for name in ("train_file", "dev_file", "test_file")]
    record = settings.evaluated_training and settings.evaluated_training.record
    trained = record and record["files"].get("train_file")
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
    earlier = settings.reused_training
    recorded = earlier.record["files"] if earlier and earlier.record else {}
    trained = [recorded[name] for name in names if recorded.get(name)]
    # The name of the checkout may have changed since the training.
    name = os.path.join("", "samples", os.path.basename(sample))
    if trained and not any(f"{os.sep}{name}" in path for path in trained):
        raise ValueError(f"{flag} is required: according to {earlier.record_path}, "
                         f"the model was trained on {trained[0]}. Without {flag}, this run would use the "
                         f"sample {sample} instead.")


def inherit(settings, *kinds, without=()):
    """Sets each flag that is not on the command line to the value that it had in the training of the weights,
    and logs these values. They are read from run.json. Does nothing in a run that trains.

    If a flag is on the command line, its class decides whether its value may differ from the record:

    - Input flags, such as the flags of columns, may differ from the training, because they describe a new
      file. The log lists the differences.
    - Flags of the task and of the weights must have the same values as in the training.
    - Flags with paths may differ. The log does not list these differences.

    Args:
      settings: a `Settings`.
      *kinds: names of the targets that the command trains, see `bertlib.tasks.target`. A record is ignored
        if its target is not one of them. For example, the record of a pre-training does not
        describe the data of a classifier that starts from the pre-trained weights.
      without: names of flags that are neither set nor compared.

    Raises:
      ValueError: a flag contradicts the record, or the weights are from step 0, before any training.
    """
    trained = settings.evaluated_training
    record = trained and trained.record
    if record is not None and record["task_type"] in kinds:
        _inherit_from(trained, settings, without)
        model_files.check_trained_weights(
            record, trained.latest_checkpoint if trained is settings.output_directory
            else settings.init_checkpoint)


def _inherit_from(trained, settings, without):
    """Inherits flags from the training in an `OutputDirectory`; see `inherit`."""
    path, target = trained.record_path, registry.find_target(trained.record["task_type"])
    recorded = _recorded(trained.record, settings)
    if _reads_other_files(settings, trained.record):
        # Without the flag on the command line, a bad line of these files is an error.
        recorded.pop("skip_bad_lines", None)
    taken, different, wrong = {}, [], []
    for entry in settings.entries(INPUT, TASK, WEIGHTS):
        name = entry.name
        if name not in recorded or name in without:
            continue
        now, before = getattr(settings, name), recorded[name]
        if not settings.is_given(name):
            if before not in (None, now):
                taken[name] = before
        elif not entry.is_path and now != before:
            text = _format_change(name, now, before)
            if entry.category == INPUT:
                different.append(text)
            elif not (name == "task_name" and target.answers().can_predict(now, before)):
                wrong.append(text)
    if wrong:
        raise ValueError(f"These flags contradict the training of the weights, which {path} describes: "
                         f"{'; '.join(wrong)}. Leave these flags out, so that the values of the training are "
                         "used, or name the directory of another training.")
    settings.inherit(taken)
    if taken:
        logging.info("Flags that were not given have their values from the training (%s): %s.", path,
                     ", ".join(f"--{name}={_format_flag(value)}" for name, value in taken.items()))
    if different:
        logging.warning("Flags with other values than in the training (%s): %s.", path, ", ".join(different))


def _reads_other_files(settings, record):
    """Returns whether the command line names a data file that the training did not read."""
    given = filter(settings.is_given, ("data_dir", "dev_file", "test_file"))
    return any(files.absolute(getattr(settings, name)) != record["files"].get(name) for name in given)


def _recorded(record, settings):
    """Returns {name: recorded value} for the flags of a command that belong to the class INPUT, TASK or
    WEIGHTS."""
    values = {**record["settings"], **{name: record[key] for name, key in AT_TOP.items()
                                       if record.get(key) is not None}}
    names = [entry.name for entry in settings.entries(INPUT, TASK, WEIGHTS)]
    values = {name: values[name] for name in names if name in values}
    paths = record.get("files", {})
    values.update({name: paths[name] for name in _TAKEN_PATHS if name in names and paths.get(name)})
    task, data = settings.get("task_name"), paths.get("data_dir")
    same_task = task is None or task.lower() == record["task"]
    if "data_dir" in names and same_task and data and files.is_directory(data):
        values["data_dir"] = data
    return values


def describe_changes(settings, record, names):
    """Returns the settings that differ from the record of a training, as text such as "--encoding=utf-8 (in
    the training: cp1252)". Returns "" if all of the settings `names` are equal."""
    before = {**record, **record["settings"]}
    pairs = {name: (getattr(settings, name) or None, before.get(name) or None) for name in names}
    return ", ".join(_format_change(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])


def _format_change(name, now, before):
    """Returns the values of a flag in this run and in the training as text."""
    values = [text if len(text) <= 200 else f"{text[:199]}…" for text in map(_format_flag, (now, before))]
    return f"--{name}={values[0]} (in the training: {values[1]})"


def _format_flag(value):
    """Returns a flag's value as written on a command line."""
    text = "nothing" if value is None else flag_text(value)
    # Control characters are escaped, because a terminal would execute them.
    return text if text.isprintable() else repr(text)
