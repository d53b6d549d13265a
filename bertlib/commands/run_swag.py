"""Fine-tunes BERT to choose the right one of several endings of a text, evaluates the model and predicts.

    python run_swag.py

This command trains and evaluates the installed model on the sample data. The next command uses SWAG:

    python run_swag.py --do_train=true --do_eval=true --data_dir=data/swag \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --max_seq_length=128 --train_batch_size=16 \\
      --learning_rate=2e-5 --num_train_epochs=3 --output_dir=/tmp/swag_output/
"""

import functools
import os

from absl import logging
import numpy as np

from bertlib.command_line import common_flags, launch

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline, unknown_tokens
from bertlib.flag_table import training
from bertlib.output_directory import output_files
from bertlib.reports import choice_report, choice_rows, prediction_files
from bertlib.rows import tables
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
from bertlib.system import fingerprints, terminal
from bertlib.tasks.multiple_choice import choice_data, choice_head

# {split: (phase that needs the split, possible names of the split's file in --data_dir, without the file
# extension)}.
_SPLITS = {"train": ("do_train", ("train",)), "dev": ("do_eval", ("val", "dev")),
           "test": ("do_predict", ("test",))}
# Names of the written files. train.tf_record is written to --output_dir, all others to --results_dir.
_RESULTS = {"dev": "eval_results", "test": "test_eval_results"}
_TABLES = {"dev": "eval_predictions", "test": "test_predictions"}
_RECORDS = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
_REPORT = "eval_report.html"
_RESULTS_OF = {split: [*(f"{_RESULTS[split]}.{ending}" for ending in ("txt", "json")),
                       *(f"{_TABLES[split]}.{ending}" for ending in prediction_files.FORMATS)]
               for split in _RESULTS}
_RESULTS_OF["dev"].append(_REPORT)
_RESULT_FILES = (_RECORDS["dev"], _RECORDS["test"], output_files.SKIPPED_LINES, *_RESULTS_OF["dev"],
                 *_RESULTS_OF["test"])
# Maps each metric in the picture of the learning curve to its name in this picture.
_SHOWN = {"eval_accuracy": "accuracy"}
# The sample is small, so the training needs more epochs and a higher learning rate than with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 8, "learning_rate": 1e-4}


ENTRIES = training.COMMANDS["run_swag"]


# --- Flags and files -------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default for this run.

    Raises:
      ValueError, OSError: a required flag is missing, or a flag has an unusable value.
    """
    checks.refuse_tpus(settings)
    settings.choose_phases()
    if settings.output_dir is None:
        settings.set_default("output_dir", os.path.join("output", "swag"))
    run_record.inherit_settings(settings, "multiple_choice")
    needed = [split for split, (phase, _) in _SPLITS.items() if getattr(settings, phase)]
    missing = [split for split in needed if getattr(settings, f"{split}_file") is None]
    if settings.data_dir is None and missing:
        if any(getattr(settings, f"{split}_file") for split in _SPLITS):
            raise ValueError(f"--{missing[0]}_file or --data_dir is required.")
        run_record.refuse_sample(settings, sample_path("swag"), f"--{missing[0]}_file or --data_dir")
        settings.set_default("data_dir", sample_path("swag"), "a small sample made for this repository")
        for name, value in _SAMPLE_DEFAULTS.items():
            if not settings.is_resolved(name):
                settings.set_default(name, value, "for the sample, which is small")
    for split in missing:
        settings.set_default(f"{split}_file", find_split_file(settings.data_dir, split, [
            name + ending + packed for name in _SPLITS[split][1] for ending in tables.ENDINGS
            for packed in ("", ".gz")]))
    model_config.resolve_model_flags(settings)


def read_data(settings):
    """Reads and checks the files.

    Returns:
      {split: `choice_data.QuestionFile`}, with the keys "train", "dev" and "test". A split that no phase
      needs is left out.

    Raises:
      ValueError, OSError: a file is not usable.
    """
    data = {}
    for split, (phase, _) in _SPLITS.items():
        if getattr(settings, phase):
            # Each question of the test file needs a prediction. So a bad line in the test file is always an
            # error, even with --skip_bad_lines. None: the error does not advise this flag.
            file = choice_data.read_questions(
                require_file(settings, f"{split}_file"), lambda name, _: getattr(settings, name),
                needs_labels=split != "test",
                skip_bad_lines=None if split == "test" else settings.skip_bad_lines,
                by_name=run_record.columns_by_name(settings))
            questions = example_limits.draw_examples(
                settings, split, file.questions, lambda question: fingerprints.hash_texts(
                    [question.sent1, question.sent2, *question.endings, question.label]))
            data[split] = file._replace(questions=questions)
            logging.info("%s: %s with %d endings%s.", file.path,
                         terminal.counted(len(questions), "question"), file.num_choices,
                         "" if file.is_labelled else ", without labels")
    return data


def compare_numbers_of_endings(settings, data):
    """Logs a warning for each file whose questions have more or fewer endings than the training questions.

    Args:
      settings: a `Settings`.
      data: see `read_data`.
    """
    record = settings.trained and settings.trained.record
    trained = data["train"].num_choices if "train" in data else record and record["settings"].get(
        "num_choices")
    for file in data.values():
        if trained and file.num_choices != trained:
            logging.warning("%s: the questions have %d endings, and those of the training have %d. A random "
                            "choice has an accuracy of %.2f on this file, and of %.2f on the training data.",
                            file.path, file.num_choices, trained, 1 / file.num_choices, 1 / trained)


# --- The run ---------------------------------------------------------------------------------------------


def main(_):
    """Runs the phases that the flags name."""
    launch.log_devices()
    settings = common_flags.read_settings()
    resolve_flags(settings)
    bert_config = model_config.load_config(settings)
    checks.check_segments(bert_config, "each input is a sentence and an ending")
    tokenizer = vocabularies.load_tokenizer(settings, bert_config)
    checks.check_output_dir(settings)
    learning_curve.check(settings)
    input_files = {f"{split}_file": getattr(settings, f"{split}_file") for split in _SPLITS}
    checks.refuse_overwriting(settings, {name: [path] for name, path in input_files.items() if path},
                              checks.list_overwritten_files(settings, _RESULT_FILES, [_RECORDS["train"]]))
    data = read_data(settings)
    compare_numbers_of_endings(settings, data)
    unknown_tokens.check({split: file.questions for split, file in data.items()},
                         lambda question: (question.sent1, question.sent2, *question.endings), tokenizer)
    head_shapes = choice_head.head_shapes(bert_config)
    init_checkpoint = head_labels.starting_checkpoint(settings, head_labels.Head("multiple_choice"))
    checks.check_starting_weights(settings, bert_config, head_shapes, init_checkpoint)
    init_checkpoint = model_config.without_reinitialized(settings, bert_config, init_checkpoint)

    num_train_steps = estimator_setup.count_steps(
        settings, len(data["train"].questions) if settings.do_train else 0, "question")
    checks.check_disk(settings, num_train_steps, head_shapes, bert_config)
    num_choices = next(iter(data.values())).num_choices
    model = estimator_setup.TrainableModel(
        bert_config, choice_head.model_fn_builder(
            bert_config, init_checkpoint=init_checkpoint, use_one_hot_embeddings=False,
            **estimator_setup.training_arguments(settings, num_train_steps)),
        functools.partial(choice_data.feature_fields, num_choices=num_choices),
        padding_is_removable=True, sequences_per_example=num_choices)
    record = run_record.RunRecord(
        settings, num_train_steps, command="run_swag.py", config=bert_config, tokenizer=tokenizer,
        task="swag", task_type="multiple_choice", num_choices=num_choices,
        train_data=run_record.hash_files([settings.train_file]) if settings.do_train else None,
        dev_data=run_record.describe_dev_files(settings, [settings.dev_file],
                                               lambda: len(data["dev"].questions)),
        trim_padding=estimator_setup.trims_training(settings, model))
    chooser, step = estimator_setup.create_estimator(settings, model, num_train_steps,
                                                     predict_batch_size=settings.predict_batch_size)
    run(settings, chooser, step, data, tokenizer, num_train_steps, record)


def run(settings, chooser, step, data, tokenizer, num_train_steps, record):
    """Runs the phases that the flags name: training, evaluation, prediction.

    Args:
      settings: a `Settings`, checked.
      chooser, step: the Estimator and its `StepConfig`.
      data: see `read_data`.
      tokenizer: the tokenizer.
      num_train_steps: int, the last step of the training.
      record: the `run_record.RunRecord`.
    """
    @functools.cache  # writes the features of a split only once, even if the split is evaluated several times
    def make_input(split, is_training=False):
        """Writes the features of a split. Returns (the input_fn that reads them, list of the lengths of the
        questions in tokens); see `choice_data.write_features`."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, _RECORDS[split])
        lengths = choice_data.write_features(data[split], settings.max_seq_length, tokenizer, path,
                                             settings.num_workers, settings.features_cache)
        log = logging.warning if max(lengths) > settings.max_seq_length else logging.info
        log("%s: %s", data[split].path, choice_data.describe_lengths(lengths, settings.max_seq_length))
        return choice_head.input_fn_builder(
            path, settings.max_seq_length, data[split].num_choices,
            **estimator_setup.input_options(settings, step, is_training)), lengths

    def choose(split, input_fn):
        """Returns (list with the prediction for each question, scores). For a prediction, see
        `choice_head.Choice`. The scores are None if the split has no labels."""
        outputs = list(input_pipeline.restore_file_order(chooser.predict(input_fn)))
        if not data[split].is_labelled:
            return outputs, None
        right = [output["scores"].argmax() == question.label
                 for output, question in zip(outputs, data[split].questions, strict=True)]
        return outputs, {
            "eval_accuracy": float(np.mean(right)),
            "eval_loss": float(np.mean([output["loss"] for output in outputs], dtype=np.float64)),
            "global_step": checkpoint_formats.read_global_step(chooser.latest_checkpoint())}

    with estimator_setup.locked_directories(settings, record):
        results.write_skipped_lines(settings, [fault for file in data.values() for fault in file.skipped])
        if settings.do_train:
            curve = learning_curve.create_learning_curve(
                settings, lambda: make_input("dev")[0], lambda dev: choose("dev", dev)[1],
                "Questions of the development file", _SHOWN)
            estimator_setup.log_training(settings, len(data["train"].questions), "question",
                                         num_train_steps)
            chooser.train(make_input("train", is_training=True)[0], max_steps=num_train_steps, curve=curve)
        for split in (split for split in data if split != "train"):
            input_fn, lengths = make_input(split)
            logging.info("Choosing endings for the %d questions of %s.", len(data[split].questions),
                         data[split].path)
            outputs, scores = choose(split, input_fn)
            warning = choice_head.equal_scores_warning([output["scores"] for output in outputs])
            if warning:
                logging.warning("%s: %s", data[split].path, warning)
            rows = choice_rows.ChoiceRows(data[split], outputs, lengths)
            with results.replace_together(settings, _RESULTS_OF[split]):
                write_results(settings, split, data[split], rows, scores)


def write_results(settings, split, file, rows, scores):
    """Writes the scores of a split and the table of its predictions. For the development set, also writes the
    report.

    Args:
      settings: a `Settings`.
      split: "dev" or "test".
      file: a `choice_data.QuestionFile`.
      rows: a `choice_rows.ChoiceRows`.
      scores: {name: number}; None without labels.
    """
    name = _RESULTS[split]
    if scores:
        results.write_results(settings.results_dir, f"{name}.txt", scores)
        results.record_evaluation(settings, split, scores)
        results.write_json(settings.results_dir, f"{name}.json", scores)
    path = os.path.join(settings.results_dir, f"{_TABLES[split]}.{settings.predictions_format}")
    prediction_files.write_predictions(path, rows, settings.predictions_format, settings.csv_safe)
    logging.info("Table of the questions and their predictions: %s.", path)
    if split == "dev":
        results.write_report(settings, _REPORT, lambda report, facts: choice_report.write_report(
            report, facts, rows), "Multiple choice", scores, file.path, _SHOWN)
