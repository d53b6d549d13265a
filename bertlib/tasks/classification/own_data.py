"""Reads the user's own data (--train_file, --dev_file and --test_file): resolves the flags of the data, reads
the files, and determines the labels."""

from absl import logging

from bertlib.data import columns, labelled_rows, tables
from bertlib.runs import file_names, recorded_flags, registry
from bertlib.runs.input_paths import require_file
from bertlib.system import files
from bertlib.tasks import data_splits, head_labels
from bertlib.tasks.classification import classification_processor, classifier_data, dev_split, row_examples


class OwnData(classifier_data.DataProcessor):
    """The processor of the user's own data. Flags name their files, columns and labels.

    Attributes:
      target: the target of the model, see `classification_target`; after `read`.
      dev_rows: the `dev_split.DevRows` if --dev_fraction takes the development set out of the training file;
        after `read`.
      skipped: list of `faults.Fault`, the lines that --skip_bad_lines left out; after `read`.
      dialects: {split: `tables.Dialect` for its table of predictions}, after `read`.
    """

    name = "Own data"

    def __init__(self, settings):
        """Creates the processor. Call `resolve`, and then `read`.

        Args:
          settings: a `Settings`.
        """
        self._settings, self._files = settings, {}
        self.target = self.dev_rows = None

    def resolve(self, suffix):
        """Sets flags that were not given: the phases, --output_dir, and the flags whose values are in the
        record of the training. Reads no data.

        Args:
          suffix: suffix of the default --output_dir.

        Raises:
          ValueError, OSError: flags contradict each other, or a phase has no file.
        """
        settings = self._settings
        _resolve_phases(settings, suffix)
        self._record = settings.evaluated_training and settings.evaluated_training.record
        recorded_flags.inherit(settings, *classification_processor.TASK_TYPES,
                               without=("task_name", "dev_fraction"))
        target = registry.find_target(settings.task_type)
        self.task_type, self.metrics = target.name, tuple(target.metric_names)[:2]
        _check_flags(settings, target)

    # --- Reading

    def read(self):
        """Reads and checks the files that the phases need, and determines the labels. Sets --text_column and
        --label_column if they were not given.

        Raises:
          ValueError, OSError: a file cannot be used, or the labels are unknown.
        """
        settings, target = self._settings, registry.find_target(self.task_type)
        settings.mapped_labels = self._read_label_map() or {}
        reader = labelled_rows.ExampleReader(
            target.label_kind(settings.get), settings.get, recorded_flags.columns_by_name(settings),
            settings.skip_bad_lines)
        labels = self._read_files(reader, target.is_score)
        self.target = target.for_run(settings, labels)
        self.skipped = reader.skipped
        self.dialects = {split: file.dialect for split, file in self._files.items()}
        for split, file in self._files.items():
            # The first file is the largest one. Warnings about the others would repeat its warnings.
            row_examples.log_labels(f"{split}, {file.path}", file, self.target,
                                    warns=file is next(iter(self._files.values())))
        classification_processor.refuse_other_file(settings, "train_file", lambda record: (
            data_splits.fingerprint_examples(data_splits.draw_examples(
                settings, "train", self.get_train_examples(None), data_splits.row_digest))
            == record["train_data"]))
        recorded = self._record and self._record["settings"].get("output_decimal")
        sign = "comma" if settings.do_train and self.dialects["train"].decimal == "," else recorded
        if settings.output_decimal == "auto" and sign not in (None, "auto"):
            settings.set_default("output_decimal", sign, "as in the training")
        if settings.do_train and reader.unused:
            logging.warning("--label_map=%s: no file of this run contains the labels %s. Compare their "
                            "spelling with the labels in the files.", settings.label_map,
                            ", ".join(sorted(reader.unused)))

    def _read_label_map(self):
        """Returns {old label: new label}: the content of --label_map. Without this flag, it is the content
        that the training recorded, or None."""
        settings, record = self._settings, self._record
        if not settings.label_map:
            return record and record["settings"].get("mapped_labels")
        from bertlib.data import label_map
        return label_map.read(require_file(settings, "label_map"), settings.encoding)

    def _read_files(self, reader, is_score):
        """Reads the files into `_files`, {split: `labelled_rows.ExampleFile`}. Returns the labels; None for a
        regression, `is_score`. `reader` is the `labelled_rows.ExampleReader`."""
        def read(flag, needs_labels=True):
            return reader.read(require_file(settings, flag), needs_labels=needs_labels, known_labels=labels,
                               is_ordered=is_ordered, find_problem=(
                                   row_examples.label_checker(labels, source) if labels else None))

        settings, record = self._settings, self._record
        # Only a file of labels has the order of multi-hot lists. Other labels are sorted.
        is_ordered = bool(settings.label_file or not settings.do_train and record
                          and record.get("files", {}).get("label_file"))
        labels, source = (None, None) if is_score else self._known_labels(reader)
        takes_out = settings.do_eval and settings.dev_fraction is not None and not settings.dev_file
        keeps_train = settings.do_train or (settings.do_eval and settings.baseline == "true"
                                            and settings.train_file)
        train = read("train_file") if keeps_train or takes_out else None
        if labels is None and not is_score:
            if train is None:
                raise ValueError(f"The labels are unknown: --output_dir={settings.output_dir} contains no "
                                 "training with labels. Pass the --output_dir of a training, or pass a file "
                                 "of labels as --label_file.")
            labels = list(row_examples.count_labels(train.rows))
            source = f"the labels in --train_file={settings.train_file}"
        if settings.do_train:
            row_examples.check_several_labels(train)
            row_examples.check_distinguishable(labels or (), settings.label_file, train)
        others = {"dev": read("dev_file")} if settings.do_eval and not takes_out else {}
        if settings.do_predict:
            others["test"] = read("test_file", needs_labels=False)
        for name, found_columns in (("text_column", reader.text), ("label_column", reader.label)):
            if getattr(settings, name) is None and found_columns:
                settings.set_default(name, ",".join(map(str, found_columns)))
        if settings.do_train:
            self._refuse_other_labels(labels or ())
        if train is not None:
            _warn_of_repetitions(train)
            _warn_of_shared_examples(set(map(dev_split.text_key_of_row, train.rows)),
                                     f"--train_file={train.path}", others)
            dev = None
            if settings.dev_fraction is not None:
                (train, dev, _), self.dev_rows = dev_split.split_training_file(settings, train)
            if keeps_train:
                # The values of all columns are dropped, to save memory. Only tables of predictions need them.
                self._files["train"] = train._replace(rows=[row._replace(values=None) for row in train.rows])
            if takes_out:
                self._files["dev"] = dev
        self._files.update(others)
        self._warn_of_earlier_training(train)
        return labels

    def _refuse_other_labels(self, labels):
        """Raises a ValueError if --output_dir contains a training with other labels or of another task type.
        `labels` are those of this run, a container."""
        training = self._settings.output_directory
        record = training.latest_checkpoint and training.record
        if not record or record["task"] != classifier_data.OWN_DATA:
            return
        if record["task_type"] != self.task_type:
            raise ValueError(f"--output_dir={training.path} contains a training with --task_type="
                             f"{record['task_type']}, and this run has --task_type={self.task_type}. To "
                             "continue that training, pass its --task_type. Otherwise, pass another "
                             "--output_dir.")
        trained = record["labels"] or labels
        if set(trained) != set(labels):
            which = "; ".join(f"only {owner}: {', '.join(names[:20])}{', …' * (len(names) > 20)}"
                              for owner, names in (
                                  ("in that training", [name for name in trained if name not in labels]),
                                  ("in this run", [name for name in labels if name not in trained])) if names)
            changed = dev_split.describe_reading(self._settings, record)
            cause = f"The cause may be these flags: {changed}. " if changed else ""
            raise ValueError(f"The labels have changed: --output_dir={training.path} contains a training "
                             f"with {len(trained)} labels, and this run has {len(labels)} ({which}). "
                             f"{cause}A training can continue only with the same labels. For the new labels, "
                             "train in another --output_dir. To continue that training, pass its data and "
                             "its --label_map.")

    def _warn_of_earlier_training(self, train):
        """Warns if the files to evaluate contain examples of `Settings.earlier_training`. `train` is the
        training file if the run has read it."""
        earlier = self._settings.earlier_training
        record = earlier and earlier.record
        path = record and record["task"] == classifier_data.OWN_DATA and record["files"].get("train_file")
        evaluated = {split: file for split, file in self._files.items() if split != "train"}
        if not (path and evaluated) or train and files.absolute(train.path) == path:
            return
        try:
            keys = {dev_split.text_key_of_row(row) for file in evaluated.values() for row in file.rows}
            trained = dev_split.find_trained(earlier.path, record, path, keys)
        except (ValueError, OSError) as error:
            logging.info("The evaluated examples are not compared with those of the training in %s: %s",
                         earlier.path, error)
            return
        _warn_of_shared_examples(trained, f"{path}, the training file of {earlier.path}", evaluated)

    def _known_labels(self, reader):
        """Returns the labels, if they are known before the training file is read.

        Returns:
          a pair: the labels in the order of the model's outputs, and a text that names the source of the
          labels. The pair is (None, None) if the training file determines the labels.

        Raises:
          ValueError, FileNotFoundError: the file of the labels is missing or has an error.
        """
        settings, record = self._settings, self._record
        if settings.label_file:
            path = require_file(settings, "label_file")
            labels = dict.fromkeys(map(reader.map_label, row_examples.read_labels(path)))
            return list(labels), f"the labels in --label_file={path}"
        if settings.do_train:
            return None, None
        if record and record["labels"]:
            return record["labels"], f"the labels of the training in {settings.evaluated_training.path}"
        labels = head_labels.labels_of_weights(settings)
        return labels, f"the labels of the model in {settings.init_checkpoint or settings.output_dir}"

    # --- The examples

    def load_examples(self, data_dir, split, set_type=None):
        """Returns the `InputExample`s of a split, a list. An example without a label has the default label.

        Raises:
          NotImplementedError: the run has not read the file of the split.
        """
        if split not in self._files:
            raise NotImplementedError(f"this run has no --{split}_file.")
        file = self._files[split]
        fields_of, examples = file.field_reader(), []
        for row in file.rows:
            label = self.target.default_label if row.label is None else row.label
            examples.append(classifier_data.InputExample(
                f"{split}-{row.line}", row.text_a, row.text_b, label))
            if row.values is not None:
                examples[-1].source = classifier_data.SourceRow(row.line, fields_of(row.values))
        return examples

    def get_test_labels(self, data_dir):
        file = self._files["test"]
        return [row.label for row in file.rows] if file.is_labelled else None


# --- Flags -----------------------------------------------------------------------------------------------


def _resolve_phases(settings, suffix):
    """Sets the default --output_dir, --dev_fraction of an earlier training, and the phases.

    Raises:
      ValueError: no flag names a file, a phase has no file, or --dev_fraction contradicts another flag.
    """
    if settings.dev_fraction is not None and settings.dev_file:
        raise ValueError("--dev_file and --dev_fraction exclude each other: the development examples are "
                         "either in a separate file or taken out of the training file. Leave one of these "
                         "two flags out.")
    if settings.dev_fraction is not None and not settings.train_file:
        raise ValueError("--dev_fraction takes examples out of the training file, so it needs --train_file.")
    if not data_splits.list_files(settings):
        raise ValueError("--train_file, --dev_file or --test_file is required with your own data. For a "
                         "known task, pass --task_name instead.")
    settings.task_name = classifier_data.OWN_DATA
    classification_processor.resolve_directory(
        settings, next(iter(data_splits.list_files(settings).values()))[0], suffix)
    classification_processor.turn_on_phases(settings, ["train"] if settings.train_file else [])
    dev_split.take_fraction(settings)  # depends on --do_train, and may give the run a development set
    named = {"train": settings.train_file, "dev": settings.dev_file or settings.dev_fraction,
             "test": settings.test_file}
    classification_processor.turn_on_phases(settings, [split for split in ("dev", "test") if named[split]])
    settings.choose_phases()
    if settings.do_train and settings.dev_file and settings.dev_fraction is not None:
        logging.warning("The training continues without the rows in %s, also with --dev_file. To train on "
                        "all rows, train in another --output_dir.", file_names.DEV_ROWS)
    for split, phase in data_splits.PHASE_OF_SPLIT.items():
        if getattr(settings, phase) and not named[split]:
            other = " or --dev_fraction" if split == "dev" else ""
            raise ValueError(f"--{split}_file{other} is required with --{phase}=true.")


def _check_flags(settings, target):
    """Raises a ValueError if flags exclude each other. `target` knows no labels."""
    arguments = columns.column_arguments(settings.get, recorded_flags.columns_by_name(settings))
    text, label = arguments["text"], arguments["label"] or ()
    if settings.data_dir is not None:
        raise ValueError(f"--data_dir={settings.data_dir} is for the known tasks. For your own files, pass "
                         "--train_file, --dev_file and --test_file instead.")
    for name in ("label_file", "label_map"):
        if getattr(settings, name) and target.is_score:
            raise ValueError(f"--{name}: a regression predicts numbers and has no labels. Leave the flag "
                             "out.")
    if len(text or ()) > 2:
        raise ValueError(f"--text_column={settings.text_column} names {len(text)} columns, but an "
                         "example has only one or two texts. Name one or two columns.")
    if len(label) > 1 and not target.is_multilabel:
        raise ValueError(f"--label_column={settings.label_column} names several columns, but this run has "
                         f"--task_type={target.name}. Name one column, or pass --task_type=multilabel.")
    named = [path for [path] in data_splits.list_files(settings).values()]
    if (settings.is_given("delimiter") and arguments["delimiter"] not in (None, "\t")
            and all(tables.format_from_name(path) == "tsv" for path in named)):
        raise ValueError(f"--delimiter={settings.delimiter}: the columns of a .tsv file are always separated "
                         f"by tabs. Leave the flag out, or rename {named[0]} so that its name ends in .csv.")
    columns.check_header_flag(arguments["header"], None if text is None else [*text, *label],
                              "--text_column and --label_column")


def _warn_of_repetitions(train):
    """Warns if the training file contains examples with the same texts, with equal or different labels."""
    firsts, copies, contradictions = {}, [], []
    for row in train.rows:
        first = firsts.setdefault(dev_split.text_key_of_row(row), row)
        if first is not row and first.label == row.label:
            copies.append((first, row))
        elif first is not row and not isinstance(row.label, float):
            contradictions.append((first, row))
    if copies:
        logging.warning("%s: examples with the same texts and label as an earlier example: %d. The first "
                        "lines: %s. Such an example counts twice in the training.", train.path, len(copies),
                        train.in_words(copies))
    if contradictions:
        logging.warning("%s: examples with the same texts as an earlier example, but another label: %d. The "
                        "first lines: %s. Correct the labels, or remove one of the examples.",
                        train.path, len(contradictions), train.in_words(contradictions))


def _warn_of_shared_examples(texts, source, others):
    """Warns if the development file or the test file contains examples of a training.

    Args:
      texts: set of the keys of the training's texts, see `dev_split.text_key_of_row`.
      source: their file, for the warning.
      others: {split: `labelled_rows.ExampleFile`}, the files to evaluate.
    """
    for name, file in others.items():
        shared = [row for row in file.rows if dev_split.text_key_of_row(row) in texts]
        if shared:
            logging.warning("%s, %s: %d of %d examples have the same texts as examples in %s. "
                            "(Letter case, white space and the order of two texts were ignored.) The first "
                            "of these examples is in line %d. The metrics will say little about new texts. "
                            "Remove them from the training or from the evaluation.",
                            name, file.path, len(shared), len(file.rows), source, shared[0].line)
