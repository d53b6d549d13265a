"""Reads the user's own data for a classification or regression (--train_file, --dev_file, --test_file), and
determines the labels."""

from absl import logging

from bertlib.data import tables, text_keys
from bertlib.data.columns import check_header_flag
from bertlib.runs import file_names, recorded_flags, registry, run_record
from bertlib.runs.input_paths import require_file
from bertlib.tasks import head_labels, split_data
from bertlib.tasks.classification import dev_split, row_examples, sources

_MAX_LISTED = 30


def read(settings, suffix=""):
    """Reads and checks the user's files.

    Sets flags that were not given: the phases, --output_dir, --text_column, --label_column, and the flags
    whose values are in the record of the training.

    Args:
      settings: a `Settings`.
      suffix: suffix of the default --output_dir.

    Returns:
      the `Source`.

    Raises:
      ValueError, OSError: flags contradict each other, or a file cannot be used.
    """
    is_default = settings.output_dir is None
    _resolve_phases(settings, suffix)
    record = settings.trained and settings.trained.record
    recorded_flags.inherit(settings, *sources.TASK_TYPES, without=("task_name", "dev_fraction"))
    target_class = registry.find_target(settings.task_type)
    settings.mapped_labels = _read_label_map(settings, record) or {}
    reader = row_examples.create_reader(settings.task_type, settings.get,
                                        recorded_flags.columns_by_name(settings))
    _check_flags(settings, target_class, reader)
    splits, labels, stored_rows = _read(settings, target_class, reader, record)
    target = sources.create_target(settings, target_class, labels)
    for name, split in splits.items():
        # The first split is the largest one. Warnings about the others would repeat its warnings.
        _describe(f"{name}, {split.path}", split, target, warns=split is next(iter(splits.values())))
    processor = row_examples.CustomProcessor(splits, target)
    if is_default:
        sources.refuse_other_file(settings, "train_file", lambda record: (
            run_record.describe_examples(split_data.draw_examples(
                settings, "train", processor.get_train_examples(None), split_data.row_digest))
            == record["train_data"]))
    if settings.do_train and reader.unused:
        logging.warning("--label_map=%s: no file of this run contains the labels %s. Compare their spelling "
                        "with the labels in the files.", settings.label_map, ", ".join(sorted(reader.unused)))
    recorded, contents = {}, {}
    if stored_rows:
        recorded["dev_rows"] = stored_rows.recorded
        contents[file_names.DEV_ROWS] = stored_rows.content.encode()
    return sources.Source(processor, target, recorded, contents, reader.skipped,
                          {name: split.dialect for name, split in splits.items()})


# --- Flags -----------------------------------------------------------------------------------------------


def _resolve_phases(settings, suffix):
    """Sets the default --output_dir, --dev_fraction of an earlier training, and the phases; see `read`.

    Raises:
      ValueError: no flag names a file, a phase has no file, or --dev_fraction contradicts another flag.
    """
    _check_files(settings)
    settings.task_name = sources.OWN_DATA
    if settings.output_dir is None:
        first = next(iter(split_data.list_files(settings).values()))[0]
        settings.set_default("output_dir", sources.default_directory(first, suffix))
    sources.choose_phases(settings, lambda split: _has_file(settings, split))
    dev_split.take_fraction(settings)  # a training without an evaluation leaves the same rows out
    if settings.do_train and settings.dev_file and settings.dev_fraction is not None:
        logging.warning("The training continues without the rows in %s, also with --dev_file. To train on "
                        "all rows, train in another --output_dir.", file_names.DEV_ROWS)
    for split, phase in split_data.PHASES.items():
        if getattr(settings, phase) and not _has_file(settings, split):
            other = " or --dev_fraction" if split == "dev" else ""
            raise ValueError(f"--{split}_file{other} is required with --{phase}=true.")


def _check_files(settings):
    """Raises a ValueError if no flag names a file, or if --dev_fraction contradicts another flag."""
    if settings.dev_fraction is not None and settings.dev_file:
        raise ValueError("--dev_file and --dev_fraction exclude each other: the development examples are "
                         "either in a separate file or taken out of the training file. Leave one of these "
                         "two flags out.")
    if settings.dev_fraction is not None and not settings.train_file:
        raise ValueError("--dev_fraction takes examples out of the training file, so it needs --train_file.")
    if not split_data.list_files(settings):
        raise ValueError("--train_file, --dev_file or --test_file is required with your own data. For a "
                         "known task, pass --task_name instead.")


def _has_file(settings, split):
    """Returns whether flags name the examples of a set. If the run continues a training, sets --dev_fraction
    to the value in that training; this depends on --do_train."""
    if split == "dev":
        dev_split.take_fraction(settings)
        if settings.dev_fraction is not None:
            return True
    return bool(getattr(settings, f"{split}_file"))


def _check_flags(settings, target_class, reader):
    """Raises a ValueError if flags exclude each other.

    Args:
      settings: a `Settings`.
      target_class: class of the target.
      reader: the `row_examples.ExampleReader` with the values of the flags.
    """
    if settings.data_dir is not None:
        raise ValueError(f"--data_dir={settings.data_dir} is for the known tasks. For your own files, pass "
                         "--train_file, --dev_file and --test_file instead.")
    for name in ("label_file", "label_map"):
        if getattr(settings, name) and target_class.is_score:
            raise ValueError(f"--{name}: a regression predicts numbers and has no labels. Leave the flag "
                             "out.")
    if len(reader.text or ()) > 2:
        raise ValueError(f"--text_column={settings.text_column} names {len(reader.text)} columns, but an "
                         "example has only one or two texts. Name one or two columns.")
    if len(reader.label or ()) > 1 and not target_class.is_multilabel:
        raise ValueError(f"--label_column={settings.label_column} names several columns, but this run has "
                         f"--task_type={target_class.name}. Name one column, or pass --task_type=multilabel.")
    named = [path for [path] in split_data.list_files(settings).values()]
    if (settings.is_given("delimiter") and reader.delimiter not in (None, "\t")
            and all(tables.format_from_name(path) == "tsv" for path in named)):
        raise ValueError(f"--delimiter={settings.delimiter}: the columns of a .tsv file are always separated "
                         f"by tabs. Leave the flag out, or rename {named[0]} so that its name ends in .csv.")
    check_header_flag(reader.header, None if reader.text is None else [
        *reader.text, *(reader.label or ())], "--text_column and --label_column")


# --- Files -----------------------------------------------------------------------------------------------


def _read(settings, target_class, reader, record):
    """Reads the files that the phases need.

    Args:
      settings: a `Settings`.
      target_class: class of the target.
      reader: a `row_examples.ExampleReader`.
      record: the record of the training that saved the weights, or None.

    Returns:
      three values: a dict {"train", "dev" or "test": `row_examples.Split`}; the labels; and the
      `dev_split.DevRows` or None.
    """
    # Only a file of labels has the order of multi-hot lists. Other labels are sorted.
    is_ordered = bool(settings.label_file or not settings.do_train and record
                      and record.get("files", {}).get("label_file"))

    def read(flag, needs_labels=True):
        return reader.read(require_file(settings, flag), needs_labels=needs_labels, known=labels,
                           is_ordered=is_ordered, find_problem=(
                               row_examples.label_checker(labels, source) if labels else None))

    splits, stored_rows = {}, None
    takes_out = settings.dev_fraction is not None and not settings.dev_file
    labels = source = None
    if not target_class.is_score:
        labels, source = _labels_before_reading(settings, record, reader)
    for_baseline = settings.do_eval and settings.baseline == "true" and settings.train_file
    if settings.do_train or for_baseline or settings.do_eval and takes_out:
        splits["train"] = read("train_file")
    train = splits.get("train")
    if labels is None and not target_class.is_score:
        if train is None:
            raise ValueError(f"The labels are unknown: --output_dir={settings.output_dir} contains no "
                             "training with labels. Pass the --output_dir of a training, or pass a file of "
                             "labels as --label_file.")
        labels = list(row_examples.count_labels(train.rows))
        source = f"the labels in --train_file={settings.train_file}"
    if settings.do_train:
        row_examples.check_several_labels(train)
        row_examples.check_distinguishable(labels or (), settings.label_file, train)
    if settings.do_eval and not takes_out:
        splits["dev"] = read("dev_file")
    if settings.do_predict:
        splits["test"] = read("test_file", needs_labels=False)
    for name, columns in (("text_column", reader.text), ("label_column", reader.label)):
        if getattr(settings, name) is None and columns:
            settings.set_default(name, ",".join(map(str, columns)))
    if train is not None:
        _warn_of_shared_examples(train, splits)
    if train is not None and settings.dev_fraction is not None:
        parts, stored_rows = dev_split.split_training_file(settings, train)
        splits["train"] = parts.train
        if settings.do_eval and takes_out:
            splits["dev"] = parts.dev
    if not (settings.do_train or for_baseline):
        splits.pop("train", None)
    elif train is not None:
        splits["train"] = _without_values(splits["train"])
    return splits, labels, stored_rows


def _without_values(train):
    """Returns the training examples without the values of all columns, to save memory. Only tables of
    predictions need these values, and they contain no training examples."""
    return train._replace(rows=[row._replace(values=None) for row in train.rows])


def _warn_of_shared_examples(train, splits):
    """Warns if the training file contains texts with different labels; or if the development file or the test
    file contains examples of the training file."""
    trained, contradictions = {}, []
    for row in train.rows:
        first = trained.setdefault(dev_split.text_key_of_row(row), row)
        if first.label != row.label and not isinstance(row.label, float):
            contradictions.append((first.line, row.line))
    if contradictions:
        logging.warning("%s: examples with the same texts as an earlier example, but another label: %d. The "
                        "lines %d and %d are such a pair. Correct the labels, or remove one of the examples.",
                        train.path, len(contradictions), *contradictions[0])
    for name, split in splits.items():
        if split is train:
            continue
        shared = [row for row in split.rows if dev_split.text_key_of_row(row) in trained]
        if shared:
            logging.warning("%s, %s: %d of %d examples have the same texts as examples in --train_file=%s. "
                            "(Letter case, white space and the order of two texts were ignored.) The first "
                            "of these examples is in line %d. The metrics will say little about new texts. "
                            "Remove these examples from one of the two "
                            "files.", name, split.path, len(shared), len(split.rows), train.path,
                            shared[0].line)


def _read_label_map(settings, record):
    """Returns {old label: new label}: the content of --label_map. Without this flag, it is the content that
    the training recorded, or None. `record` is the record of the training, or None."""
    if not settings.label_map:
        return record and record["settings"].get("mapped_labels")
    from bertlib.data import label_map
    return label_map.read(require_file(settings, "label_map"), settings.encoding)


def _labels_before_reading(settings, record, reader):
    """Returns the labels of a task with labels, if they are known before the training file is read.

    Returns:
      a pair: the labels in the order of the model's outputs, and a text that names the source of the labels.
      The pair is (None, None) if the training file determines the labels.

    Raises:
      ValueError, FileNotFoundError: the file of the labels is missing or has an error.
    """
    if settings.label_file:
        path = require_file(settings, "label_file")
        labels = dict.fromkeys(map(reader.map_label, row_examples.read_labels(path)))
        return list(labels), f"the labels in --label_file={path}"
    if not settings.do_train and record and record["labels"]:
        return record["labels"], f"the labels of the training in {settings.trained.path}"
    named = None if settings.do_train else head_labels.labels_of_weights(settings)
    if named:
        return named, f"the labels of the model in {settings.init_checkpoint or settings.output_dir}"
    return None, None


def _describe(name, split, target, warns):
    """Logs the number of examples in total and for each label. If `warns` is true, warns if labels look
    misspelled, or if there are very many labels: then --label_column or --task_type is probably wrong.
    """
    if not split.is_labelled:
        logging.info("%s: %d examples, without labels.", name, len(split.rows))
        return
    if target.labels is None:
        scores = [row.label for row in split.rows]
        logging.info("%s: %d examples, scores from %g to %g.", name, len(scores), min(scores), max(scores))
        return
    counts = {**dict.fromkeys(target.labels, 0), **row_examples.count_labels(split.rows)}
    listed = [f"{label} {counts[label]}" for label in target.labels[:_MAX_LISTED]]
    more = len(target.labels) - len(listed)
    logging.info("%s: %d examples: %s%s.", name, len(split.rows), ", ".join(listed),
                 f" and {more} more labels" if more else "")
    if not warns:
        return
    for group in row_examples.similar_labels(target.labels):
        new = max(group, key=counts.get)
        logging.warning("%s: the labels %s differ only in letter case or spelling, but count as different "
                        "labels. If they have the same meaning, write all of them in the same way, %s",
                        name, " and ".join(group),
                        row_examples.advise_label_map(group, new))
    for rare, frequent in text_keys.find_misspellings(counts).items():
        logging.warning("%s: the label %r occurs %d times, and looks like a misspelling of %r, which occurs "
                        "%d times. If the label is misspelled, correct it in the file, %s Otherwise, ignore "
                        "this warning.",
                        name, rare, counts[rare], frequent, counts[frequent],
                        row_examples.advise_label_map([rare], frequent))
    if target.takes_class_weights and target.size > max(10, len(split.rows) / 2):
        logging.warning("%s: there are %d labels for %d examples. If the labels are in another column, name "
                        "it with --label_column. If the labels are numbers, pass --task_type=regression.",
                        name, target.size, len(split.rows))
