"""The flags of one's own data for the commands that classify: what is read, where the labels are from."""

import os

from absl import logging

from bertlib.runs import checks, head_labels, run_record
from bertlib.runs.settings import PHASES
from bertlib.tasks import own_data, targets
from bertlib.tasks.columns import check_header_flag

# What `run.json` calls it.
TASK = "own data"
_FILES = {"train": "train_file", "dev": "dev_file", "test": "test_file"}
_PHASE_OF = dict(zip(_FILES, PHASES))
_FLAGS = (*_FILES.values(), "text_column", "label_column", "label_file", "task_type", "label_separator",
          "threshold", "header", "delimiter", "dev_fraction")
# Of these flags, what an evaluation or prediction takes from the training.
_AS_IN_TRAINING = ("text_column", "label_column", "label_separator", "header", "delimiter")
_MOST_LISTED = 30


def is_given(settings):
    """Whether the command line is about one's own data.

    Raises:
      ValueError: it is about a task as well.
    """
    given = [name for name in _FLAGS if settings.given(name)]
    if given and settings.task_name:
        raise ValueError(f"--{given[0]} is for your own data, and --task_name={settings.task_name} has files "
                         "of its own: leave one of them out.")
    return bool(given)


def processor_of(settings, suffix=""):
    """Reads and checks one's own files; fills in flags that follow from them.

    Args:
      settings: a `Settings`.
      suffix: what the name of the output directory ends with, if no flag names it.

    Returns:
      an `own_data.OwnProcessor` of the files that the phases need.

    Raises:
      ValueError, OSError: flags contradict each other, or a file cannot be used.
    """
    checks.refuse_tpus(settings)
    _settle_phases(settings)
    settings.task_name = TASK
    if settings.output_dir is None:
        first = next(getattr(settings, name) for name in _FILES.values() if getattr(settings, name))
        settings.take_default("output_dir", os.path.join("output", _stem(first) + suffix))
    record = run_record.of_weights(settings)
    _take_from_training(settings, record)
    _check_flags(settings)
    reader = own_data.reader_of(settings.task_type, lambda name, default: getattr(settings, name, default))
    parts, labels = _read(settings, reader, record)
    for name, found in (("text_column", reader.text), ("label_column", reader.label)):
        if getattr(settings, name) is None and found:
            settings.take_default(name, ",".join(map(str, found)))
    if settings.task_type == "multilabel":
        target = targets.SeveralLabels(labels, settings.threshold, settings.label_separator)
    else:
        target = targets.of(labels)
    for name, part in parts.items():
        _describe(f"{name}, {part.path}", part, target)
    return own_data.OwnProcessor(parts, target)


def files_of(settings):
    """Returns {flag: the files that it names, a list}."""
    return {name: [getattr(settings, name)] for name in (*_FILES.values(), "label_file")
            if getattr(settings, name)}


def _stem(path):
    """The name of a file without its endings."""
    name = os.path.basename(path)
    name = name[:-len(".gz")] if name.lower().endswith(".gz") else name
    return os.path.splitext(name)[0]


# --- Flags -----------------------------------------------------------------------------------------------


def _settle_phases(settings):
    """Does what there are files for, if no phase was named.

    Raises:
      ValueError: a phase lacks its file.
    """
    there = {part: bool(getattr(settings, name)) for part, name in _FILES.items()}
    if there["dev"] and settings.dev_fraction is not None:
        raise ValueError("--dev_file and --dev_fraction exclude each other: the examples to evaluate on are "
                         "in a file, or taken out of the training file.")
    if settings.dev_fraction is not None and not there["train"]:
        raise ValueError("--dev_fraction takes examples out of the training file: pass --train_file.")
    there["dev"] = there["dev"] or settings.dev_fraction is not None
    if not any(there.values()):
        raise ValueError("--train_file, --dev_file or --test_file is required with your own data; "
                         "--task_name is for the known tasks.")
    if not any(settings.given(phase) for phase in PHASES):
        for part, phase in _PHASE_OF.items():
            if there[part]:
                settings.take_default(phase, True)
    settings.choose_phases()
    for part, phase in _PHASE_OF.items():
        if getattr(settings, phase) and not there[part]:
            other = " or --dev_fraction" if part == "dev" else ""
            raise ValueError(f"--{_FILES[part]}{other} is required with --{phase}=true.")


def _take_from_training(settings, record):
    """Fills in what the training in --output_dir says of columns and labels."""
    if record is None:
        return
    task_type = record.get("task_type")
    if task_type and not settings.given("task_type") and task_type != settings.task_type:
        settings.take_default("task_type", task_type, "as in the training")
    for name in _AS_IN_TRAINING if record["task"] == TASK else ():
        value = record["settings"].get(name)
        if value is not None and not settings.given(name) and value != getattr(settings, name):
            settings.take_default(name, value, "as in the training")


def _check_flags(settings):
    """Raises a ValueError if flags exclude each other."""
    kind = settings.task_type
    given = own_data.columns_of_settings(lambda name, default: getattr(settings, name, default))
    text_column, label_column = given["text"], given["label"]
    if settings.data_dir is not None:
        raise ValueError(f"--data_dir={settings.data_dir} is for the known tasks: name your own files with "
                         "--train_file, --dev_file and --test_file.")
    if settings.given("xnli_language"):
        raise ValueError(f"--xnli_language={settings.xnli_language}: only XNLI has languages, and not your "
                         "own data. Leave the flag out.")
    for name in ("threshold", "label_separator"):
        if settings.given(name) and kind != "multilabel":
            raise ValueError(f"--{name} is for --task_type=multilabel, and this is {kind}. Leave it out.")
    if settings.label_file and kind == "regression":
        raise ValueError("--label_file: a regression has no labels, but numbers. Leave the flag out.")
    if len(text_column or ()) > 2:
        raise ValueError(f"--text_column={settings.text_column} names {len(text_column)} columns; an example "
                         "has one text or two.")
    if len(label_column or ()) > 1 and kind != "multilabel":
        raise ValueError(f"--label_column={settings.label_column}: only with --task_type=multilabel there "
                         f"are several columns of labels, and this is {kind}.")
    check_header_flag(given["header"], None if text_column is None else [
        *text_column, *(label_column or ())], "--text_column and --label_column")


# --- Files -----------------------------------------------------------------------------------------------


def _read(settings, reader, record):
    """Reads what the phases need; returns ({"train", "dev", "test": `own_data.Part`}, the labels)."""
    def read(flag, **more):
        return reader.read(checks.file_of_flag(settings, flag), **more)

    parts = {}
    if settings.do_train or settings.do_eval and settings.dev_fraction is not None:
        parts["train"] = read("train_file")
    labels, source = _labels(settings, record, parts.get("train"))
    if settings.do_train:
        own_data.check_variety(parts["train"])
    if settings.do_eval and settings.dev_fraction is None:
        parts["dev"] = read("dev_file", known=labels)
    if settings.do_predict:
        parts["test"] = read("test_file", needs_labels=False, known=labels)
    if labels is not None:
        for part in (part for part in parts.values() if part.is_labelled):
            own_data.check_labels(part, labels, source)
    if settings.dev_fraction is not None and "train" in parts:
        left, taken = own_data.split(parts["train"], settings.dev_fraction, settings.seed)
        parts["train"] = left
        if settings.do_eval:
            parts["dev"] = taken
    if not settings.do_train:
        parts.pop("train", None)
    return parts, labels


def _labels(settings, record, train):
    """Returns (the labels in the order of the model's outputs, where they are from); None of a regression.

    Raises:
      ValueError, FileNotFoundError: it is not known.
    """
    if settings.task_type == "regression":
        return None, None
    if settings.label_file:
        path = checks.file_of_flag(settings, "label_file")
        return own_data.read_labels(path), f"are in --label_file={path}"
    if not settings.do_train and record and record["labels"]:
        return record["labels"], f"are those of the training in {run_record.directory_of_weights(settings)}"
    named = None if settings.do_train else head_labels.labels_of_weights(settings)
    if named:
        return named, f"are those of the model in {settings.init_checkpoint or settings.output_dir}"
    if train is not None:
        return list(own_data.counts_of(train.rows)), f"are those in --train_file={settings.train_file}"
    raise ValueError(f"--output_dir={settings.output_dir} holds no training that says what the labels are. "
                     "Name the directory of one, or the labels with --label_file.")


def _describe(name, part, target):
    """Logs how many examples there are, and of each label; warns of what can hardly be labels."""
    if not part.is_labelled:
        logging.info("%s: %d examples, without labels.", name, len(part.rows))
        return
    if target.labels is None:
        scores = [row.label for row in part.rows]
        logging.info("%s: %d examples, scores from %g to %g.", name, len(scores), min(scores), max(scores))
        return
    counts = {**dict.fromkeys(target.labels, 0), **own_data.counts_of(part.rows)}
    listed = [f"{label} {counts[label]}" for label in target.labels[:_MOST_LISTED]]
    more = len(target.labels) - len(listed)
    logging.info("%s: %d examples: %s%s.", name, len(part.rows), ", ".join(listed),
                 f" and {more} labels more" if more else "")
    for group in own_data.look_alikes(target.labels):
        logging.warning("%s: the labels %s differ in letter case or spelling alone, and are told apart. If "
                        "they mean the same, write them the same.", name, " and ".join(group))
    if target.task_type == "classification" and target.size > max(10, len(part.rows) / 2):
        logging.warning("%s: there are %d labels for %d examples. If this is not the column of the labels, "
                        "say with --label_column which is; if they are numbers, pass --task_type=regression.",
                        name, target.size, len(part.rows))
