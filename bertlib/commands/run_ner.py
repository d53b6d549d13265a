"""Fine-tunes BERT to tag the words of sentences, evaluates the entities and predicts tags.

    python run_ner.py

This command trains and evaluates the installed model on the sample data. The next command uses your own data,
in CoNLL columns:

    python run_ner.py --do_train=true --do_eval=true --do_predict=true --data_dir=$CONLL_DIR \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --do_lower_case=false --output_dir=/tmp/ner_output/
"""

import functools
import itertools
import os
from typing import NamedTuple

from absl import logging

from bertlib.command_line import common_flags, launch

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline, unknown_tokens
from bertlib.flag_table import training
from bertlib.output_directory import output_files, record_fields
from bertlib.reports import prediction_files, tagging_report, tagging_rows
from bertlib.rows import faults, text_keys
from bertlib.runs import (
    checks,
    estimator_setup,
    example_limits,
    head_labels,
    learning_curve,
    model_config,
    results,
    run_record,
    vocabularies,
)
from bertlib.runs.settings import find_split_file, require_file, sample_path
from bertlib.system import files, fingerprints, terminal
from bertlib.tasks.tagging import tagged_json_lines, tagging_data, tagging_head, word_splitter

# {split: (phase that needs the split, possible names of the split's file in --data_dir, without the file
# extension)}.
_SPLITS = {"train": ("do_train", ("train",)), "dev": ("do_eval", ("dev", "valid")),
           "test": ("do_predict", ("test",))}
_ENDINGS = (".txt", ".conll", ".tsv", ".iob", ".bio")
# The file extensions of JSON Lines. A file with one of these extensions is used if --data_dir has no file in
# CoNLL columns.
_JSON_ENDINGS = tuple(ending + packed for packed in ("", ".gz") for ending in tagged_json_lines.ENDINGS)
# Names of the written files. train.tf_record is written to --output_dir, all others to --results_dir.
_PREDICTIONS, _JSON_PREDICTIONS = "test_predictions.conll", "test_predictions.jsonl"
_RESULTS = {"dev": "eval_results.txt", "test": "test_eval_results.txt"}
_TABLES = {"dev": "eval_predictions", "test": "test_predictions"}
_RECORDS = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
_REPORT = "eval_report.html"
_RESULTS_OF = {split: [_RESULTS[split], _RESULTS[split].replace(".txt", ".json"),
                       *(f"{_TABLES[split]}.{ending}" for ending in prediction_files.FORMATS), more]
               for split, more in (("dev", _REPORT), ("test", _PREDICTIONS))}
_RESULT_FILES = (_RECORDS["dev"], _RECORDS["test"], output_files.SKIPPED_LINES, *_RESULTS_OF["dev"],
                 *_RESULTS_OF["test"])
# Maps each metric in the picture of the learning curve to its name in this picture.
_SHOWN = {"eval_f1": "F1", "eval_precision": "precision", "eval_recall": "recall"}


ENTRIES = training.COMMANDS["run_ner"]


# --- Flags and files -------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default for this run.

    Raises:
      ValueError, OSError: a required flag is missing, or a flag has an unusable value.
    """
    checks.refuse_tpus(settings)
    settings.choose_phases()
    if settings.output_dir is None:
        settings.set_default("output_dir", os.path.join("output", "ner"))
    run_record.inherit_settings(settings, "tagging")
    needed = [split for split, (phase, _) in _SPLITS.items() if getattr(settings, phase)]
    missing = [split for split in needed if getattr(settings, f"{split}_file") is None]
    if settings.data_dir is None and missing:
        if any(getattr(settings, f"{split}_file") for split in _SPLITS):
            raise ValueError(f"--{missing[0]}_file or --data_dir is required.")
        run_record.refuse_sample(settings, sample_path("ner"), f"--{missing[0]}_file or --data_dir")
        settings.set_default("data_dir", sample_path("ner"), "a small sample made for this repository")
        for name, value in _SAMPLE_DEFAULTS.items():
            if not settings.is_resolved(name):
                settings.set_default(name, value, "for the sample, which is small")
    for split in missing:
        settings.set_default(f"{split}_file", find_split_file(settings.data_dir, split, *(
            [name + ending for name in _SPLITS[split][1] for ending in endings]
            for endings in (_ENDINGS, _JSON_ENDINGS))))
    model_config.resolve_model_flags(settings)


# An epoch of the sample has only six steps, so the training needs more epochs and a higher learning rate than
# with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 16, "learning_rate": 2e-4}


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
    for split, (phase, _) in _SPLITS.items():
        if getattr(settings, phase):
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
    return scheme or record_fields.default_of_setting("tag_scheme", "run_ner.py"), "the training had"


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


# --- The run ---------------------------------------------------------------------------------------------


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


def main(_):
    """Runs the phases that the flags name."""
    launch.log_devices()
    settings = common_flags.read_settings()
    resolve_flags(settings)
    bert_config = model_config.load_config(settings)
    tokenizer = vocabularies.load_tokenizer(settings, bert_config)
    checks.check_output_dir(settings)
    learning_curve.check(settings)
    input_files = {f"{split}_file": getattr(settings, f"{split}_file") for split in _SPLITS}
    checks.refuse_overwriting(settings, {name: [path] for name, path in input_files.items() if path},
                              checks.list_overwritten_files(settings, _RESULT_FILES, [_RECORDS["train"]]))
    data = read_data(settings)
    head_shapes = tagging_head.head_shapes(bert_config, len(data.labels), settings.crf)
    init_checkpoint = head_labels.starting_checkpoint(
        settings, head_labels.Head("tagging", data.labels, len(data.labels), settings.crf))
    checks.check_starting_weights(settings, bert_config, head_shapes, init_checkpoint)
    init_checkpoint = model_config.without_reinitialized(settings, bert_config, init_checkpoint)
    windows = make_windows(settings, data, tokenizer)

    num_train_steps = estimator_setup.count_steps(settings, len(windows.get("train", ())), "sentence")
    checks.check_disk(settings, num_train_steps, head_shapes, bert_config)
    build_model_fn = functools.partial(
        tagging_head.model_fn_builder, bert_config, len(data.labels), init_checkpoint=init_checkpoint,
        use_one_hot_embeddings=False, **estimator_setup.training_arguments(settings, num_train_steps))
    # The memory simulation leaves out the CRF, because the loops of the CRF need almost no memory compared
    # with the encoder.
    model = estimator_setup.TrainableModel(
        bert_config, build_model_fn(settings.crf), tagging_data.feature_fields,
        tagging_head.BATCH_TOTALS, padding_is_removable=True,
        simulated_model_fn=build_model_fn(False))
    record = run_record.RunRecord(
        settings, num_train_steps, command="run_ner.py", config=bert_config, tokenizer=tokenizer, task="ner",
        task_type="tagging", labels=data.labels, **describe_training_file(data),
        train_data=run_record.hash_files([settings.train_file]) if settings.do_train else None,
        dev_data=run_record.describe_dev_files(settings, [settings.dev_file],
                                               lambda: len(data.splits["dev"].sentences)),
        trim_padding=estimator_setup.trims_training(settings, model))
    tagger, step = estimator_setup.create_estimator(settings, model, num_train_steps,
                                                    predict_batch_size=settings.predict_batch_size)

    run(settings, tagger, step, data, windows, num_train_steps, record)


def run(settings, tagger, step, data, windows, num_train_steps, record):
    """Runs the phases that the flags name: training, evaluation, prediction.

    Args:
      settings: a `Settings`, checked.
      tagger, step: the Estimator and its `StepConfig`.
      data: `Data`.
      windows: see `make_windows`.
      num_train_steps: int, the last step of the training.
      record: the `run_record.RunRecord`.
    """
    @functools.cache  # writes the features of a split only once, even if the split is evaluated several times
    def input_fn(split, is_training=False):
        """Writes the features of a split; returns the input_fn that reads them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, _RECORDS[split])
        tagging_data.write_windows(windows[split], settings.max_seq_length, path, settings.features_cache)
        return tagging_head.input_fn_builder(path, settings.max_seq_length,
                                             **estimator_setup.input_options(settings, step, is_training))

    def tag(split, part_input_fn):
        """Predicts the tags of a split. Returns (predictions, scores). `predictions` is a list with a
        `tagging_data.Prediction` for each sentence. `scores` is None if the split has no tags."""
        rows = list(input_pipeline.restore_file_order(tagger.predict(part_input_fn)))
        predicted = tagging_data.merge_windows(rows, data.splits[split].sentences, data.labels, data.scheme)
        if not data.splits[split].is_tagged:
            return predicted, None
        return predicted, scores_of(data, split, predicted, {
            "eval_loss": sum(row["loss"] for row in rows) / sum(
                sum(window.tag_mask) for window in windows[split]),
            "global_step": checkpoint_formats.read_global_step(tagger.latest_checkpoint())})

    with estimator_setup.locked_directories(settings, record):
        results.write_skipped_lines(settings, data.skipped)
        if settings.do_train:
            curve = learning_curve.create_learning_curve(
                settings, lambda: input_fn("dev"), lambda dev: tag("dev", dev)[1],
                "Entities of the development file", _SHOWN)
            estimator_setup.log_training(settings, len(data.splits["train"].sentences), "sentence",
                                         num_train_steps)
            tagger.train(input_fn("train", is_training=True), max_steps=num_train_steps,
                         curve=curve)
        for split in (split for split in data.splits if split != "train"):
            file = data.splits[split]
            logging.info("Tagging %d sentences of %s.", len(file.sentences), file.path)
            predicted, scores = tag(split, input_fn(split))
            with results.replace_together(settings, _RESULTS_OF[split]):
                if split == "test":
                    write_predictions(settings, file, predicted)
                if scores:
                    write_scores(settings, data, split, predicted, scores)
                write_table(settings, split, file, predicted)
                if split == "dev":
                    write_report(settings, file, predicted, scores)


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
    results.write_results(settings.results_dir, name, scores)
    results.record_evaluation(settings, split, scores)
    counts, of_types = tagging_data.count_types(sentences), {}
    for kind in sorted(key.removeprefix("eval_f1_") for key in scores if key.startswith("eval_f1_")):
        of_types[kind] = {metric: scores[f"eval_{metric}_{kind}"] for metric in ("precision", "recall", "f1")}
        of_types[kind]["support"] = counts.get(kind, 0)
    results.write_json(settings.results_dir, f"{name.removesuffix('.txt')}.json",
                       {**scores, "labels": of_types})
    warning = tagging_head.no_entity_warning([sentence.tags for sentence in sentences],
                                             [prediction.tags for prediction in predicted])
    if warning:
        logging.warning("%s: %s", name, warning)


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


def write_report(settings, file, predicted, scores):
    """Writes the report of the evaluation; see `results.write_report`."""
    tags = [prediction.tags for prediction in predicted]

    def write(path, facts):
        tagging_report.write_report(path, facts, file.sentences, tags)

    results.write_report(settings, _REPORT, write, "Tagging", scores, file.path, _SHOWN)


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
    scores = tagging_data.score_tags([sentence.tags for sentence in sentences],
                                     [prediction.tags for prediction in predicted])
    evaluation = {**{f"eval_{name}": value for name, value in scores.items()}, **others}
    if set(tagging_data.collect_labels(sentences)) - set(data.labels):
        del evaluation["eval_loss"]
    return evaluation
