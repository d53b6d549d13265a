"""Contains the task of run_ner.py: tags the words of sentences, and scores the entities."""

import itertools
import os
from typing import NamedTuple

from absl import logging

from bertlib.data import unknown_tokens
from bertlib.output_directory import output_files
from bertlib.reports import prediction_files
from bertlib.rows import faults, text_keys
from bertlib.runs import example_limits, head_labels, model_config, results, split_files, task
from bertlib.runs.settings import require_file
from bertlib.system import files, fingerprints, terminal
from bertlib.tasks.tagging import (
    tagged_json_lines,
    tagging_data,
    tagging_metrics,
    tagging_report,
    tagging_rows,
    tagging_target,
    word_splitter,
)

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
_ENDINGS = (".txt", ".conll", ".tsv", ".iob", ".bio")
# The file extensions of JSON Lines. A file with one of these extensions is used if --data_dir has no file in
# CoNLL columns.
_JSON_ENDINGS = tuple(ending + packed for packed in ("", ".gz") for ending in tagged_json_lines.ENDINGS)
# Names of the files that are written to --results_dir.
_PREDICTIONS, _JSON_PREDICTIONS = "test_predictions.conll", "test_predictions.jsonl"
_RESULTS = {"dev": "eval_results", "test": "test_eval_results"}
_TABLES = {"dev": "eval_predictions", "test": "test_predictions"}
_REPORT = "eval_report.html"


# An epoch of the sample has only six steps, so the training needs more epochs and a higher learning rate than
# with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 16, "learning_rate": 2e-4}


# --- The data --------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """The data of a run.

    Attributes:
      splits: dict of `tagging_data.ConllFile` or `tagged_json_lines.JsonLinesFile`, with the keys "train",
        "dev" and "test". A split that no phase needs is left out.
      labels: list of str, the classes of the model. The classes are tags in the scheme IOB2.
      scheme: str, the scheme of the tags in the prediction file.
      skipped: list of `faults.Fault`, the lines that were left out.
    """

    splits: dict
    labels: list
    scheme: str
    skipped: list


def read_data(settings):
    """Reads and checks the files; returns `Data`.

    Raises:
      ValueError, OSError: a file is not usable.
    """
    record = settings.trained and settings.trained.record
    splits, skipped, width = {}, [], record and record["settings"].get("num_columns")
    for split in split_files.needed(settings):
        path = require_file(settings, f"{split}_file")
        # Each line of the test file needs a prediction, so its bad lines are always an error.
        bad_lines = None if split == "test" else faults.FileFaults(path, settings.skip_bad_lines)
        splits[split] = tagged_json_lines.read_tagged(
            path, settings.token_column, settings.tag_column, width if split == "test" else True,
            bad_lines)
        if bad_lines:
            skipped.extend(bad_lines.found)
            logging.warning("%s: %d bad lines are left out together with their sentences, because "
                            "--skip_bad_lines=true: %s. The first bad line is line %d.", path,
                            len(bad_lines.found), bad_lines.summary(), bad_lines.found[0].line)
        if split == "test" and width and splits[split].width not in (None, width):
            logging.info("%s: the file has %s instead of %d, so it counts as untagged. If the file has "
                         "tags, pass it as --dev_file with --do_eval=true. The predictions are then "
                         "scored.", path,
                         terminal.counted(splits[split].width, "column"), width)
        if split == "train" or width is None:
            width = splits[split].width
        splits[split] = splits[split]._replace(sentences=example_limits.draw_examples(
            settings, split, splits[split].sentences,
            lambda sentence: fingerprints.hash_texts([*sentence.words, None, *(sentence.tags or ())])))
    tagged = [file for file in splits.values() if file.is_tagged]
    scheme, why = _scheme(settings, tagged)
    for file in tagged:
        tagging_data.check_scheme(file, scheme, why)
    labels = _labels(settings, splits.get("train"))
    for file in splits.values():
        _describe(file, scheme, labels)
    return Data(splits, labels, scheme, skipped)


def _scheme(settings, tagged):
    """Returns (scheme of the tags, reason for this scheme).

    The scheme of the first file with tags is used. If the run reads no file with tags, the scheme of the
    training that wrote the weights is used. The reason is the end of a sentence in an error message: "the tag
    is not valid in the scheme IOB2, which …". An example of a reason is "fits most of train.txt".
    """
    if tagged:
        scheme = tagging_data.detect_scheme(tagged[0])
        return scheme, f"fits most of {tagged[0].path}"
    record = settings.trained and settings.trained.record
    scheme = record["settings"].get("tag_scheme") if record else None
    return scheme or tagging_data.SCHEMES[0], "the training had"


def describe_training_file(data):
    """Returns the entries of run.json that describe the format of the training file: {name: value}."""
    described = {"tag_scheme": data.scheme}
    if "train" in data.splits:
        words = (sentence.words for sentence in data.splits["train"].sentences)
        described["word_splitting"] = word_splitter.choose_splitting(words)
        if data.splits["train"].width:
            described["num_columns"] = data.splits["train"].width
    return described


def _labels(settings, train):
    """Returns the labels in the training file. Without a training file, returns the labels of the model: they
    are stored in --output_dir, or in the model of --init_checkpoint.

    Raises:
      ValueError: no labels are known, or they are not usable.
    """
    if train is not None:
        labels = tagging_data.collect_labels(train.sentences)
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
        raise ValueError(f"--output_dir={settings.output_dir} has no {output_files.LABELS}, the file in "
                         "which a training stores the labels of the model. Train first, with "
                         "--do_train=true.")
    wrong = [label for label in labels if not tagging_data.is_iob2(label)]
    if wrong:
        raise ValueError(f"The labels of the model are {', '.join(labels)}. {wrong[0]!r} is not a tag of the "
                         "scheme IOB2. Train a model for tagging, with --do_train=true.")
    return labels


def _describe(file, scheme, labels):
    """Logs the numbers of sentences, words and entities in a file. Warns about entity types that look like
    misspellings, and about tags that the model does not know."""
    words = sum(len(sentence.words) for sentence in file.sentences)
    sizes = f"{terminal.counted(len(file.sentences), 'sentence')}, {terminal.counted(words, 'word')}"
    if not file.is_tagged:
        logging.info("%s: %s, without tags.", file.path, sizes)
        return
    counts = tagging_data.count_types(file.sentences)
    logging.info("%s: %s, %s: %s.", file.path, sizes, scheme,
                 ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no entities")
    for rare, frequent in text_keys.find_misspellings(counts).items():
        logging.warning("%s: the entity type %r occurs %d times, and looks like a misspelling of %r, which "
                        "occurs %d times. If it is a misspelling, correct it in the file. Otherwise ignore "
                        "this warning.", file.path, rare, counts[rare], frequent, counts[frequent])
    unknown = sorted(set(tagging_data.collect_labels(file.sentences)) - set(labels))
    if unknown:
        logging.warning("%s has tags that the training data does not have. The model never predicts these "
                        "tags, so they count as wrong: %s.", file.path, ", ".join(unknown))


def make_windows(settings, data, tokenizer):
    """Returns the inputs of the model, {split: list of `tagging_data.Window`}.

    A sentence longer than --max_seq_length is cut into several windows. The number of such sentences is
    logged.
    """
    unknown_tokens.check({split: file.sentences for split, file in data.splits.items()},
                         lambda sentence: [sentence.words], tokenizer)
    windows = {}
    for split, file in data.splits.items():
        by_sentence = tagging_data.make_windows(file.sentences, data.labels, tokenizer,
                                                settings.max_seq_length, settings.label_all_pieces,
                                                settings.num_workers)
        windows[split] = list(itertools.chain.from_iterable(by_sentence))
        num_cut = sum(len(parts) > 1 for parts in by_sentence)
        if num_cut:
            logging.info("%s: %d sentences are longer than --max_seq_length=%d and were cut into windows. "
                         "All sentences together have %d "
                         "windows.", file.path, num_cut, settings.max_seq_length, len(windows[split]))
    return windows


# --- The run ---------------------------------------------------------------------------------------------


class Tagging(task.Task):
    """Tags the words of sentences.

    Attributes:
      data: the `Data` of the run, after `read`.
      windows: the inputs of the model, {split: list of `tagging_data.Window`}, after `read`.
    """

    command, noun, title = "run_ner.py", "sentence", "Entities of the development file"
    records = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
    shown = {"eval_f1": "F1", "eval_precision": "precision", "eval_recall": "recall"}

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_run("ner")
        split_files.resolve(settings, "ner", _SAMPLE_DEFAULTS, lambda split: [
            [name + ending for name in _FILES[split] for ending in endings]
            for endings in (_ENDINGS, _JSON_ENDINGS)])
        model_config.resolve_model_flags(settings)

    # --- Files and data

    def input_files(self):
        return split_files.list_files(self.settings)

    def result_names(self, split):
        return [f"{_RESULTS[split]}.txt", f"{_RESULTS[split]}.json",
                *(f"{_TABLES[split]}.{ending}" for ending in prediction_files.FORMATS),
                _REPORT if split == "dev" else _PREDICTIONS]

    def other_names(self):
        return [output_files.SKIPPED_LINES]

    def read(self):
        self.data = read_data(self.settings)
        self.windows = make_windows(self.settings, self.data, self.tokenizer)

    def splits(self):
        return [split for split in self.data.splits if split != "train"]

    def skipped_lines(self):
        return self.data.skipped

    # --- The model

    target, sequences = tagging_target.Tags, tagging_data.SEQUENCES

    def describe_head(self):
        labels = self.data.labels
        return head_labels.Head(self.target.name, labels, len(labels), self.settings.crf)

    def create_head(self):
        return tagging_target.create_head(len(self.data.labels), self.settings.crf)

    def fields(self, seq_length, split="train"):
        return tagging_data.feature_fields(seq_length)

    def num_examples(self):
        return len(self.data.splits["train"].sentences) if self.settings.do_train else 0

    def num_train_steps(self):
        return task.count_steps(self.settings, len(self.windows.get("train", ())), self.noun)

    def describe(self):
        return {"task": "ner", "labels": self.data.labels,
                **describe_training_file(self.data),
                **split_files.describe(self.settings, lambda: len(self.data.splits["dev"].sentences))}

    # --- The run

    def write_features(self, split, path):
        tagging_data.write_windows(self.windows[split], self.settings.max_seq_length, path,
                                   self.settings.features_cache)

    def scores(self, split, inference):
        return self._tag(split, inference)[1]

    def _tag(self, split, inference):
        """Predicts the tags of a split. Returns (predictions, scores). `predictions` is a list with a
        `tagging_data.Prediction` for each sentence. `scores` is None if the split has no tags."""
        data, rows = self.data, list(inference.rows())
        predicted = tagging_data.merge_windows(rows, data.splits[split].sentences, data.labels, data.scheme)
        if not data.splits[split].is_tagged:
            return predicted, None
        return predicted, scores_of(data, split, predicted, {
            "eval_loss": sum(row["loss"] for row in rows) / sum(
                sum(window.tag_mask) for window in self.windows[split]),
            "global_step": inference.step})

    def write(self, split, inference):
        settings, file = self.settings, self.data.splits[split]
        logging.info("Tagging %d sentences of %s.", len(file.sentences), file.path)
        predicted, scores = self._tag(split, inference)
        if split == "test":
            write_predictions(settings, file, predicted)
        if scores:
            write_scores(settings, self.data, split, predicted, scores)
        write_table(settings, split, file, predicted)
        if split == "dev":
            write_report(settings, file, predicted, scores, self.shown)


# --- The results -----------------------------------------------------------------------------------------


def write_predictions(settings, file, predicted):
    """Writes the test file with the predicted tags. In a file in CoNLL columns, the tag of a word is added
    at the end of the word's line.

    Args:
      settings: a `Settings`.
      file: see `Data.splits`.
      predicted: list with a `tagging_data.Prediction` for each sentence.
    """
    is_json = isinstance(file, tagged_json_lines.JsonLinesFile)
    path = os.path.join(settings.results_dir, _JSON_PREDICTIONS if is_json else _PREDICTIONS)
    if is_json:
        files.write_text(path, tagged_json_lines.add_predictions(file, predicted))
        logging.info('The predicted tags are in the key "predicted_tags" in each line of %s.', path)
        return
    tags = [prediction.tags for prediction in predicted]
    files.write_text(path, tagging_data.add_prediction_column(file, tags))
    logging.info("The predicted tags are in the last column of %s.", path)


def write_scores(settings, data, split, predicted, scores):
    """Writes the scores of a split, and warns if the tagger found no entity. The JSON file also contains the
    support of each type, which is the number of entities of this type in the data."""
    name, sentences = _RESULTS[split], data.splits[split].sentences
    counts, of_types = tagging_data.count_types(sentences), {}
    for kind in sorted(key.removeprefix("eval_f1_") for key in scores if key.startswith("eval_f1_")):
        of_types[kind] = {metric: scores[f"eval_{metric}_{kind}"] for metric in ("precision", "recall", "f1")}
        of_types[kind]["support"] = counts.get(kind, 0)
    results.write_metrics(settings, split, name, scores, {"labels": of_types})
    warning = tagging_metrics.no_entity_warning([sentence.tags for sentence in sentences],
                                             [prediction.tags for prediction in predicted])
    if warning:
        logging.warning("%s.txt: %s", name, warning)


def write_table(settings, split, file, predicted):
    """Writes the table of the words and their predicted tags."""
    name = f"{_TABLES[split]}.{settings.predictions_format}"
    # For JSON Lines, `write_predictions` has already written test_predictions.jsonl, with the same tags and
    # probabilities.
    if name == _JSON_PREDICTIONS and isinstance(file, tagged_json_lines.JsonLinesFile):
        return
    path = os.path.join(settings.results_dir, name)
    prediction_files.write_predictions(path, tagging_rows.WordRows(file.sentences, predicted),
                                       settings.predictions_format, settings.csv_safe)
    logging.info("Table of the words and their predictions: %s.", path)


def write_report(settings, file, predicted, scores, shown):
    """Writes the report of the evaluation; see `results.write_report`."""
    tags = [prediction.tags for prediction in predicted]

    def write(path, facts):
        tagging_report.write_report(path, facts, file.sentences, tags)

    results.write_report(settings, _REPORT, write, "Tagging", scores, file.path, shown)


def scores_of(data, split, predicted, others):
    """Returns {name: value}: the scores of the predicted tags of a split, and the entries of `others`.

    If the split has tags that the model does not know, eval_loss is left out, because an unknown tag has no
    loss.

    Args:
      data: the data of the run. `data.splits[split]` contains the right tags.
      split: name of the split.
      predicted: list of a `tagging_data.Prediction` for each sentence of the split.
      others: {name: value}, with eval_loss.
    """
    sentences = data.splits[split].sentences
    scores = tagging_metrics.score_tags([sentence.tags for sentence in sentences],
                                        [prediction.tags for prediction in predicted])
    evaluation = {**{f"eval_{name}": value for name, value in scores.items()}, **others}
    if set(tagging_data.collect_labels(sentences)) - set(data.labels):
        del evaluation["eval_loss"]
    return evaluation
