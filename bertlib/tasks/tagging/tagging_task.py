"""Contains the task of run_ner.py: its flags, its data, its model and its results."""

import itertools
import os

from absl import logging

from bertlib.runs import file_names
from bertlib.system import files
from bertlib.tasks import data_splits, head_labels, task
from bertlib.tasks.tagging import (
    conll_files,
    sentence_files,
    tag_schemes,
    tagging_metrics,
    tagging_target,
    tagging_windows,
    word_splitter,
)

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
_ENDINGS = (".txt", ".conll", ".tsv", ".iob", ".bio")
# The file extensions of JSON Lines. A file with one of these extensions is used if --data_dir has no file in
# CoNLL columns.
_JSON_ENDINGS = tuple(ending + packed for packed in ("", ".gz") for ending in (".jsonl", ".json"))
# An epoch of the sample has only six steps, so the training needs more epochs and a higher learning rate than
# with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 16, "learning_rate": 2e-4}


class Tagging(task.Task):
    """Tags the words of sentences. The data of a split are a list of `conll_files.Sentence`.

    Attributes:
      files: {split: its `conll_files.ConllFile` or `sentence_files.JsonLinesFile`}, after `read`.
      target: the `tagging_target.Tags`. After `read`, it knows the labels of the model.
      scheme: str, the scheme of the tags in the prediction file, after `read`.
      windows: the inputs of the model, {split: list of `tagging_windows.Window`}, after `read`.
    """

    command, noun, title = "run_ner.py", "sentence", "Entities of the development file"
    target, trimmed_fields = tagging_target.Tags(), tagging_windows.TRIMMED_FIELDS
    metric_titles = {"eval_f1": "F1", "eval_precision": "precision", "eval_recall": "recall"}

    def __init__(self, settings):
        super().__init__(settings)
        self.files, self.windows = {}, {}

    # --- Flags

    def resolve(self):
        self.resolve_splits("ner", _SAMPLE_DEFAULTS, lambda split: [
            [name + ending for name in _FILES[split] for ending in endings]
            for endings in (_ENDINGS, _JSON_ENDINGS)])

    # --- Files and data

    def result_names(self, split):
        return [*super().result_names(split),
                *([conll_files.ConllFile.predictions_name] if split == "test" else [])]

    def read(self):
        settings = self.settings
        width = self._recorded("num_columns")
        for split in data_splits.needed(settings):
            file, skipped = sentence_files.read_split(settings, split, width)
            self.skipped += skipped
            if split == "train" or width is None:
                width = file.width
            self.data[split] = self.draw(
                split, file.sentences, lambda sentence: [*sentence.words, None, *(sentence.tags or ())])
            self.files[split] = file._replace(sentences=self.data[split])
        tagged_files = [file for file in self.files.values() if file.is_tagged]
        if tagged_files:
            self.scheme = conll_files.detect_scheme(tagged_files[0])
            why = f"fits most of {tagged_files[0].path}"
        else:
            self.scheme, why = self._recorded("tag_scheme") or tag_schemes.SCHEMES[0], None
        for file in tagged_files:
            conll_files.check_scheme(file, self.scheme, why)
        self.target = tagging_target.Tags(_labels(settings, self.files.get("train")), settings.crf)
        for file in self.files.values():
            conll_files.log_file(file, self.scheme, self.target.labels)
        self.warn_of_unknown_tokens(lambda sentence: [sentence.words])
        for split, file in self.files.items():
            self.windows[split] = self._make_windows(file)

    def _recorded(self, name):
        """Returns a setting in the record of the trained model; None if there is none."""
        record = self.settings.evaluated_training and self.settings.evaluated_training.record
        return record and record["settings"].get(name)

    def _make_windows(self, file):
        """Returns the inputs of the model for a file: a list of `tagging_windows.Window`.

        A sentence longer than --max_seq_length is cut into several windows. The number of such sentences is
        logged.
        """
        settings = self.settings
        by_sentence = tagging_windows.make_windows(file.sentences, self.target.labels, self.tokenizer,
                                                   settings.max_seq_length, settings.label_all_pieces,
                                                   settings.num_workers)
        windows = list(itertools.chain.from_iterable(by_sentence))
        num_cut = sum(len(parts) > 1 for parts in by_sentence)
        if num_cut:
            logging.info("%s: %d sentences are longer than --max_seq_length=%d and were cut into windows. "
                         "All sentences together have %d windows.", file.path, num_cut,
                         settings.max_seq_length, len(windows))
        return windows

    # --- The model

    def num_train_steps(self):
        return task.count_steps(self.settings, len(self.windows.get("train", ())), "window")

    def record_fields(self):
        settings = {"tag_scheme": self.scheme}
        if train := self.files.get("train"):
            settings["word_splitting"] = word_splitter.choose_splitting(
                sentence.words for sentence in train.sentences)
            settings |= {"num_columns": train.width} if train.width else {}
        return {"task": "ner", "labels": self.target.labels, "settings": settings,
                **data_splits.data_fields(self.settings, lambda: len(self.data["dev"]))}

    # --- The run

    def write_features(self, split, path):
        tagging_windows.write_windows(self.windows[split], self.settings.max_seq_length, path,
                                      self.settings.features_cache)

    def predict(self, split, inference):
        """Predicts the tags of a split. Returns (predictions, scores). `predictions` is a list with a
        `tagging_windows.Prediction` for each sentence. `scores` is None if the split has no tags.

        If the split has tags that the model does not know, the scores have no eval_loss, because an unknown
        tag has no loss.
        """
        file, rows = self.files[split], list(inference.rows())
        predicted = tagging_windows.merge_windows(rows, file.sentences, self.target.labels, self.scheme)
        if not file.is_tagged:
            return predicted, None
        metrics = tagging_metrics.score_tags([sentence.tags for sentence in file.sentences],
                                             [prediction.tags for prediction in predicted])
        scores = {f"eval_{name}": value for name, value in metrics.items()}
        if set(conll_files.collect_labels(file.sentences)) <= set(self.target.labels):
            scores["eval_loss"] = sum(row["loss"] for row in rows) / sum(
                sum(window.tag_mask) for window in self.windows[split])
        return predicted, {**scores, "global_step": inference.step}

    def evaluate_and_write(self, split, inference):
        from bertlib.tasks import results
        from bertlib.tasks.tagging import tagging_report
        settings, file = self.settings, self.files[split]
        logging.info("Tagging %d sentences of %s.", len(file.sentences), file.path)
        predicted, scores = self.predict(split, inference)
        if split == "test":
            path = os.path.join(settings.results_dir, file.predictions_name)
            files.write_text(path, file.add_predictions(predicted))
            logging.info("%s: the test file with %s.", path, file.where_predicted)
        if scores:
            scores = results.write_metrics(settings, split, task.RESULT_NAMES[split], scores,
                                           {"labels": _scores_of_types(file.sentences, scores)})
        # In JSON Lines, the test file with its predictions has the same name, tags and probabilities as the
        # table.
        name = task.TABLE_NAMES[split]
        if split == "dev" or f"{name}.{settings.predictions_format}" != file.predictions_name:
            self.write_table(name, tagging_report.WordRows(file.sentences, predicted))
        if split == "dev":
            tags = [prediction.tags for prediction in predicted]
            results.write_report_or_warn(self, task.REPORT, "Tagging", scores, file.path,
                                         tagging_report.write_report, file.sentences, tags)


def _scores_of_types(sentences, scores):
    """Returns {type of an entity: {"precision", "recall", "f1", "support"}}. The support is the number of
    entities in `sentences`. `scores` are the metrics of `Tagging.predict`."""
    counts = conll_files.count_types(sentences)
    return {kind: {**{metric: scores[f"eval_{metric}_{kind}"] for metric in ("precision", "recall", "f1")},
                   "support": counts.get(kind, 0)}
            for kind in sorted(key.removeprefix("eval_f1_") for key in scores if key.startswith("eval_f1_"))}


def _labels(settings, train):
    """Returns the labels in the training file. Without a training file, returns the labels of the model: they
    are stored in --output_dir, or in the model of --init_checkpoint.

    Raises:
      ValueError: no labels are known, or they are not usable.
    """
    if train is not None:
        labels = conll_files.collect_labels(train.sentences)
        if labels == ["O"] and settings.max_train_examples:
            raise ValueError(f"--max_train_examples={settings.max_train_examples}: no drawn sentence of "
                             f"{train.path} has an entity, so there is nothing to learn. Pass a larger "
                             "number.")
        if labels == ["O"]:
            raise ValueError(f"{train.path}: all tags are O, so there is nothing to learn. If the tags are "
                             "in another column, pass its number with --tag_column.")
        return labels
    labels = head_labels.labels_of_weights(settings)
    if labels is None:
        advice = ("Run the command of the training again, with --do_train=true: it trains only the steps "
                  "that are left, if any, and writes this file."
                  if settings.output_directory.latest_checkpoint else "Train first, with --do_train=true.")
        raise ValueError(f"--output_dir={settings.output_dir} has no {file_names.LABELS}, the file in "
                         f"which a training stores the labels of the model. {advice}")
    wrong_labels = [label for label in labels if not tag_schemes.is_iob2(label)]
    if wrong_labels:
        raise ValueError(f"The labels of the model are {', '.join(labels)}. {wrong_labels[0]!r} is not a tag "
                         "of the scheme IOB2. Train a model for tagging, with --do_train=true.")
    return labels
