"""Fine-tunes BERT to classify sentences or sentence pairs, evaluates it and predicts with it.

    python run_classifier.py --task_name=MRPC --max_seq_length=128

does it on the sample data with the installed model. With your own:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --max_seq_length=128 --train_batch_size=32 \\
      --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/
"""

import functools
import os

from absl import flags, logging
import numpy as np

from bertlib.commands import checks, common_flags, head_labels, launch, results, run_record, training
from bertlib.commands.settings import Settings
from bertlib.runtime import files, input_pipeline
from bertlib.tasks import classifier as classifier_task
from bertlib.tasks.classifier import (  # noqa: F401  public names of this script that live there
    create_model,
    file_based_input_fn_builder,
    head_shapes,
    input_fn_builder,
    metric_fn,
    model_fn_builder,
)
from bertlib.tasks.classifier_data import (  # noqa: F401  public names of this script that live there
    PROCESSORS,
    ColaProcessor,
    DataProcessor,
    InputExample,
    InputFeatures,
    MnliProcessor,
    MrpcProcessor,
    PaddingInputExample,
    XnliProcessor,
    _truncate_seq_pair,
    convert_examples_to_features,
    convert_single_example,
    feature_fields,
    file_based_convert_examples_to_features,
    get_processor,
)

FLAGS = flags.FLAGS  # as the original has it, for scripts that import this one

# What is written to results_dir.
_RESULT_FILES = ("eval.tf_record", "predict.tf_record", "eval_results.txt", "test_results.tsv",
                 "test_predictions.tsv", "test_eval_results.txt")


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Task"):
        flags.DEFINE_string("task_name", None,
                            f"The task: {', '.join(sorted(PROCESSORS))}, in any letter case.")
        flags.DEFINE_string("data_dir", None, "Directory of the task's TSV files.")
        flags.DEFINE_bool("do_train", False, "Train.")
        flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
        flags.DEFINE_bool("do_predict", False, "Predict on the test set.")
        flags.DEFINE_integer("eval_batch_size", 8, "Examples in a batch of the evaluation.", lower_bound=1)
        flags.DEFINE_integer("predict_batch_size", 8, "Examples in a batch of the prediction.", lower_bound=1)
    common_flags.define_model_flags(max_seq_length=128)
    common_flags.define_tokenizer_flags()
    common_flags.define_training_flags()
    common_flags.define_epoch_flags()
    common_flags.define_input_flags()
    common_flags.define_tpu_flags()


define_flags()


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Fills in what was not given; returns the task's processor.

    Raises:
      ValueError, NotADirectoryError: a flag has no default for this task, or cannot be right.
    """
    if not settings.task_name:
        raise ValueError(f"--task_name is required; known tasks: {', '.join(sorted(PROCESSORS))}.")
    processor = get_processor(settings.task_name)
    checks.refuse_tpus(settings)
    task = settings.task_name.lower()
    if settings.data_dir is None:
        sample = checks.sample(task.upper())
        if not os.path.isdir(sample):
            raise ValueError("--data_dir is required: there is a sample of MRPC only, not of "
                             f"{settings.task_name}.")
        settings.take_default("data_dir", sample,
                              "a small sample made for this repository, not the real corpus")
    if not files.is_directory(settings.data_dir):
        raise NotADirectoryError(f"--data_dir={settings.data_dir}: there is no such directory.")
    checks.resolve_model_flags(settings)
    if settings.output_dir is None:
        settings.take_default("output_dir", os.path.join("output", task))
    settings.choose_phases()
    return processor


def read_examples(settings, processor):
    """Reads what flags ask for: {"train", "dev", "test": list of `InputExample`}, whether test has labels."""
    examples, test_has_labels = {}, False
    if settings.do_train:
        examples["train"] = processor.get_train_examples(settings.data_dir)
        if train_steps(settings, examples["train"]) < 1:
            raise ValueError(f"{len(examples['train'])} training examples and "
                             f"--num_train_epochs={settings.num_train_epochs} make no batch of "
                             f"--train_batch_size={settings.train_batch_size}. Lower the batch size.")
    if settings.do_eval:
        examples["dev"] = processor.get_dev_examples(settings.data_dir)
    if settings.do_predict:
        examples["test"] = processor.get_test_examples(settings.data_dir)
        labels = processor.get_test_labels(settings.data_dir)
        test_has_labels = labels is not None
        for example, label in zip(examples["test"], labels or ()):
            example.label = label
    return examples, test_has_labels


def labels_of(processor):
    """Returns a processor's labels.

    Raises:
      ValueError: there is none, or one twice.
    """
    labels = list(processor.get_labels() or ())
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{type(processor).__name__}.get_labels() gives {labels}: let it give each label of "
                         "the task once.")
    return labels


def train_steps(settings, examples):
    """The number of steps in which the flags' epochs are done."""
    return int(len(examples) / settings.train_batch_size * settings.num_train_epochs)


def main(_):
    """Runs what the flags ask for."""
    launch.log_devices()
    settings = Settings()
    processor = resolve_flags(settings)
    bert_config = checks.load_config(settings)
    tokenizer = checks.load_tokenizer(settings, bert_config)
    label_list = labels_of(processor)
    checks.check_output_dir(settings)
    # A processor of a script that imports this one may declare no files.
    names = processor.file_names() if isinstance(processor, DataProcessor) else {}
    checks.refuse_overwriting(
        settings, {"data_dir": [os.path.join(settings.data_dir, name) for name in names.values()]},
        checks.overwritten_by(settings, _RESULT_FILES, ["train.tf_record"]))
    checks.check_starting_weights(settings, bert_config, head_shapes(bert_config, len(label_list)),
                                  settings.do_train)
    init_checkpoint = head_labels.starting_checkpoint(settings, label_list)
    examples, test_has_labels = read_examples(settings, processor)
    if any(example.text_b for part in examples.values() for example in part):
        checks.check_segments(bert_config, f"the examples of {settings.task_name} are pairs")

    num_train_steps = train_steps(settings, examples.get("train", ()))
    build_model_fn = functools.partial(
        model_fn_builder, bert_config, len(label_list), init_checkpoint, settings.learning_rate,
        num_train_steps,
        int(num_train_steps * settings.warmup_proportion), settings.use_tpu,
        use_one_hot_embeddings=settings.use_tpu)
    model = training.Model(bert_config, build_model_fn, feature_fields, padding_is_removable=True)
    record = run_record.RunRecord(
        settings, num_train_steps, command="run_classifier.py", task=settings.task_name.lower(),
        config=bert_config, labels=label_list, tokenizer=tokenizer,
        train_data=run_record.of_examples(examples["train"]) if settings.do_train else None,
        trim_padding=training.trims_training(settings, model))
    classifier, step = training.create_estimator(settings, model, settings.eval_batch_size,
                                                 settings.predict_batch_size, num_train_steps)

    def report(file_name, found):
        """Writes metrics; warns if all predictions are one class."""
        results.write_results(settings.results_dir, file_name, found)
        one_class = classifier_task.one_class(found["eval_confusion_matrix"], label_list)
        if one_class:
            logging.warning("%s: %s", file_name, one_class)

    def input_fn(part, name, is_training=False):
        """Writes the part's features; returns the input_fn that reads them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{name}.tf_record")
        file_based_convert_examples_to_features(examples[part], label_list, settings.max_seq_length,
                                                tokenizer, path, settings.num_workers)
        return file_based_input_fn_builder(path, settings.max_seq_length, is_training,
                                           drop_remainder=is_training, trim=step.trim if is_training
                                           else settings.trim_padding is not False,
                                           unequal_micro_batches=is_training and step.unequal_micro_batches)

    with training.writing(settings, record):
        if settings.do_train:
            logging.info("Training on %d examples, %d steps of %d.", len(examples["train"]), num_train_steps,
                         settings.train_batch_size)
            classifier.train(input_fn("train", "train", is_training=True), max_steps=num_train_steps)
        if settings.do_eval:
            logging.info("Evaluating on %d examples.", len(examples["dev"]))
            report("eval_results.txt", classifier.evaluate(input_fn("dev", "eval")))
        if settings.do_predict:
            logging.info("Predicting %d examples.", len(examples["test"]))
            test_input_fn = input_fn("test", "predict")
            predictions = input_pipeline.in_order(classifier.predict(test_input_fn))
            write_predictions(settings, predictions, label_list)
            if test_has_labels:
                report("test_eval_results.txt", classifier.evaluate(test_input_fn, name="test"))


def write_predictions(settings, predictions, label_list):
    """Writes test_results.tsv, probabilities, and test_predictions.tsv, likeliest labels, by example."""
    rows = [prediction["probabilities"] for prediction in predictions]
    probabilities = os.path.join(settings.results_dir, "test_results.tsv")
    files.write_text(probabilities, "".join("\t".join(map(str, row)) + "\n" for row in rows))
    named = os.path.join(settings.results_dir, "test_predictions.tsv")
    lines = [f"{index}\t{label_list[np.argmax(row)]}\n" for index, row in enumerate(rows)]
    files.write_text(named, "index\tprediction\n" + "".join(lines))
    logging.info("Predictions: probabilities in %s, labels in %s.", probabilities, named)


if __name__ == "__main__":
    launch.run(main)
