"""Fine-tunes BERT to classify sentences or sentence pairs, evaluates it and predicts with it.

    python run_classifier.py --task_name=MRPC --max_seq_length=128

does it on the sample data with the installed model. With your own:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --max_seq_length=128 --train_batch_size=32 --learning_rate=2e-5 \\
      --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/
"""

import functools
import os

import runner  # isort: skip  (before TensorFlow: it sets up what has to be set first)

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import checkpoints
import estimator
import input_pipeline
import modeling
import optimization
from classifier_data import (  # noqa: F401  public names of this script that live there
    PROCESSORS,
    SEQUENCES,
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

tf.disable_v2_behavior()
tf.enable_resource_variables()

FLAGS = flags.FLAGS

_SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples")
# As published: dropout before the head, whatever the configuration says.
_HEAD_DROPOUT = 0.1


def define_flags():
    """Defines the flags of this script."""
    flags.DEFINE_string("data_dir", None, "Directory of the task's TSV files.")
    flags.DEFINE_string("task_name", None, f"The task: {', '.join(sorted(PROCESSORS))}, in any letter case.")
    runner.define_model_flags(max_seq_length=128)
    runner.define_tokenizer_flags()
    runner.define_input_flags()
    runner.define_training_flags()
    runner.define_epoch_flags()
    runner.define_tpu_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
    flags.DEFINE_bool("do_predict", False, "Predict on the test set.")
    flags.DEFINE_integer("eval_batch_size", 8, "Examples in a batch of the evaluation.", lower_bound=1)
    flags.DEFINE_integer("predict_batch_size", 8, "Examples in a batch of the prediction.", lower_bound=1)


# --- Input -----------------------------------------------------------------------------------------------


def file_based_input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim_padding=False, by_tokens=False):
    """Returns an input_fn that reads a TFRecord file of `file_based_convert_examples_to_features`.

    Args:
      input_file: the file.
      seq_length: sequence length that it was written with.
      is_training: shuffle and repeat.
      drop_remainder: leave the last, smaller batch out.
      trim_padding: sort by length and cut batches after their longest sequence; see `input_pipeline.record_dataset`.
      by_tokens: see there; the Estimator's configuration has unequal_micro_batches then.
    """
    def input_fn(params):
        return input_pipeline.record_dataset(
            input_file, feature_fields(seq_length), params["batch_size"], is_training, drop_remainder,
            params.get("gradient_accumulation_steps", 1), trim=SEQUENCES if trim_padding else (),
            by_tokens=by_tokens)
    return input_fn


def input_fn_builder(features, seq_length, is_training, drop_remainder):
    """Returns an input_fn over `InputFeatures` in memory; see `file_based_input_fn_builder`."""
    arrays = {
        "input_ids": np.array([feature.input_ids for feature in features], np.int32).reshape(-1, seq_length),
        "input_mask": np.array([feature.input_mask for feature in features], np.int32).reshape(-1, seq_length),
        "segment_ids": np.array([feature.segment_ids for feature in features], np.int32).reshape(-1, seq_length),
        "label_ids": np.array([feature.label_id for feature in features], np.int32),
        "is_real_example": np.array([feature.is_real_example for feature in features], np.int32),
    }

    def input_fn(params):
        return input_pipeline.array_dataset(arrays, params["batch_size"], is_training, drop_remainder,
                                            params.get("gradient_accumulation_steps", 1))
    return input_fn


# --- Model -----------------------------------------------------------------------------------------------


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids, labels, num_labels,
                 use_one_hot_embeddings, model_options=None):
    """Builds BERT with a linear classifier on the pooled output.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: turns dropout on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      labels: int32 [B].
      num_labels: number of classes, C.
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.

    Returns:
      (loss: scalar, the mean cross-entropy; per-example loss [B]; logits [B, C]; probabilities [B, C]), all float32.
    """
    model = modeling.BertModel(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
                               first_token_only=True, **(model_options or {}))
    output = model.get_pooled_output()
    output_weights = tf.get_variable("output_weights", [num_labels, output.shape.as_list()[-1]],
                                     initializer=modeling.create_initializer(0.02))
    output_bias = tf.get_variable("output_bias", [num_labels], initializer=tf.zeros_initializer())
    with tf.variable_scope("loss"):
        if is_training:
            output = modeling.dropout(output, _HEAD_DROPOUT)
        logits = tf.nn.bias_add(tf.matmul(output, output_weights, transpose_b=True), output_bias)
        log_probabilities = tf.nn.log_softmax(logits)
        per_example_loss = -tf.reduce_sum(tf.one_hot(labels, depth=num_labels) * log_probabilities, axis=-1)
        return tf.reduce_mean(per_example_loss), per_example_loss, logits, tf.nn.softmax(logits)


def head_shapes(bert_config, num_labels):
    """The variables that `create_model` adds to the encoder: {name: shape}."""
    return {"output_weights": (num_labels, bert_config.hidden_size), "output_bias": (num_labels,)}


def model_fn_builder(bert_config, num_labels, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, model_options=None, optimizer_options=None):
    """Returns a model_fn for `estimator.Estimator`.

    Args:
      bert_config: a `modeling.BertConfig`.
      num_labels: number of classes.
      init_checkpoint: where weights start, see `checkpoints.open_checkpoint`; None for random ones.
      learning_rate, num_train_steps, num_warmup_steps, use_tpu: see `optimization.create_optimizer`.
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.
      optimizer_options: dict of further arguments of `optimization.create_optimizer`.
    """
    def model_fn(features, labels, mode, params):
        del labels
        label_ids = features["label_ids"]
        loss, per_example_loss, logits, probabilities = create_model(
            bert_config, mode == estimator.ModeKeys.TRAIN, features["input_ids"], features["input_mask"],
            features["segment_ids"], label_ids, num_labels, use_one_hot_embeddings, model_options)
        scaffold = checkpoints.starting_scaffold(init_checkpoint)

        if mode == estimator.ModeKeys.TRAIN:
            loss *= features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
            train_op = optimization.create_optimizer(
                loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, **(optimizer_options or {}),
                gradient_accumulation_steps=params.get("gradient_accumulation_steps", 1))
            return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)
        if mode == estimator.ModeKeys.EVAL:
            weights = tf.cast(features.get("is_real_example", tf.ones_like(label_ids)), tf.float32)
            return estimator.EstimatorSpec(
                mode, loss=loss, scaffold=scaffold,
                eval_metrics=(metric_fn, [per_example_loss, label_ids, logits, weights]))
        predictions = {"probabilities": probabilities}
        if input_pipeline.EXAMPLE_INDEX in features:
            predictions[input_pipeline.EXAMPLE_INDEX] = tf.identity(features[input_pipeline.EXAMPLE_INDEX])
        return estimator.EstimatorSpec(mode, predictions=predictions, scaffold=scaffold)

    return model_fn


def metric_fn(per_example_loss, label_ids, logits, weights):
    """Streaming metrics of a classifier; see `estimator.EstimatorSpec`'s eval_metrics.

    Args:
      per_example_loss: float32 [B].
      label_ids: int32 [B].
      logits: float32 [B, C].
      weights: float32 [B], 0 for padding examples.

    Returns:
      {name: (value, update op)}: eval_accuracy, eval_loss, eval_confusion_matrix (int64 [C, C], rows are the labels,
      columns the predictions), eval_f1 (of class 1 if C = 2, else the mean over classes) and eval_matthews (Gorodkin's
      R_K, 2004, equation 8; for C = 2 Matthews' coefficient).
    """
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    num_labels = logits.shape.as_list()[-1]
    with tf.variable_scope("confusion_matrix"):
        total = tf.get_variable("total", [num_labels, num_labels], tf.float64, tf.zeros_initializer(), trainable=False,
                                collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        update = tf.assign_add(total, tf.math.confusion_matrix(label_ids, predictions, num_labels, tf.float64,
                                                               weights=tf.cast(weights, tf.float64)))
    matrix = tf.identity(total)
    hits, actual, predicted = tf.linalg.diag_part(matrix), tf.reduce_sum(matrix, 1), tf.reduce_sum(matrix, 0)
    f1 = tf.math.divide_no_nan(2.0 * hits, actual + predicted)
    count = tf.reduce_sum(matrix)
    covariance = tf.reduce_sum(hits) * count - tf.reduce_sum(actual * predicted)
    matthews = tf.math.divide_no_nan(covariance, tf.sqrt((count**2 - tf.reduce_sum(predicted**2))
                                                         * (count**2 - tf.reduce_sum(actual**2))))
    return {
        "eval_accuracy": tf.metrics.accuracy(label_ids, predictions, weights),
        "eval_loss": tf.metrics.mean(per_example_loss, weights),
        "eval_f1": (f1[1] if num_labels == 2 else tf.reduce_mean(f1), update),
        "eval_matthews": (matthews, update),
        "eval_confusion_matrix": (tf.cast(matrix, tf.int64), update),
    }


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags():
    """Fills in what was not given; returns the task's processor.

    Raises:
      ValueError, NotADirectoryError: a flag has no default for this task, or cannot be right.
    """
    if not FLAGS.task_name:
        raise ValueError(f"--task_name is required; known tasks: {', '.join(sorted(PROCESSORS))}.")
    processor = get_processor(FLAGS.task_name)
    runner.refuse_tpus()
    task = FLAGS.task_name.lower()
    if FLAGS.data_dir is None:
        sample = os.path.join(_SAMPLES, task.upper())
        if not os.path.isdir(sample):
            raise ValueError(f"--data_dir is required: there is a sample of MRPC only, not of {FLAGS.task_name}.")
        runner.take_default("data_dir", sample, "a small sample made for this repository, not the real corpus")
    if not tf.gfile.IsDirectory(FLAGS.data_dir):
        raise NotADirectoryError(f"--data_dir={FLAGS.data_dir}: there is no such directory.")
    runner.resolve_model_flags()
    if FLAGS.output_dir is None:
        runner.take_default("output_dir", os.path.join("output", task))
    phases = ("do_train", "do_eval", "do_predict")
    if not any(FLAGS[name].value for name in phases):
        if any(FLAGS[name].present for name in phases):
            raise ValueError("Nothing to do: at least one of --do_train, --do_eval and --do_predict must be true.")
        runner.take_default("do_train", True)
        runner.take_default("do_eval", True)
    return processor


def read_examples(processor):
    """Reads what the flags ask for: {"train", "dev", "test": list of `InputExample`}, and whether test has labels."""
    examples, test_has_labels = {}, False
    if FLAGS.do_train:
        examples["train"] = processor.get_train_examples(FLAGS.data_dir)
        if train_steps(examples["train"]) < 1:
            raise ValueError(f"{len(examples['train'])} training examples and --num_train_epochs={FLAGS.num_train_epochs} "
                             f"make no batch of --train_batch_size={FLAGS.train_batch_size}. Lower the batch size.")
    if FLAGS.do_eval:
        examples["dev"] = processor.get_dev_examples(FLAGS.data_dir)
    if FLAGS.do_predict:
        examples["test"] = processor.get_test_examples(FLAGS.data_dir)
        labels = processor.get_test_labels(FLAGS.data_dir)
        test_has_labels = labels is not None
        for example, label in zip(examples["test"], labels or ()):
            example.label = label
    return examples, test_has_labels


def train_steps(examples):
    """The number of steps in which the flags' epochs are done."""
    return int(len(examples) / FLAGS.train_batch_size * FLAGS.num_train_epochs)


def main(_):
    """Runs what the flags ask for."""
    runner.log_devices()
    processor = resolve_flags()
    bert_config = runner.load_config()
    tokenizer = runner.load_tokenizer(bert_config)
    label_list = processor.get_labels()
    runner.check_output_dir()
    runner.check_starting_weights(bert_config, head_shapes(bert_config, len(label_list)), FLAGS.do_train)
    examples, test_has_labels = read_examples(processor)

    num_train_steps = train_steps(examples.get("train", ()))
    build_model_fn = functools.partial(
        model_fn_builder, bert_config, len(label_list), FLAGS.init_checkpoint, FLAGS.learning_rate, num_train_steps,
        int(num_train_steps * FLAGS.warmup_proportion), FLAGS.use_tpu, use_one_hot_embeddings=FLAGS.use_tpu)
    classifier = runner.create_estimator(build_model_fn, bert_config, feature_fields, eval_batch_size=FLAGS.eval_batch_size,
                                         predict_batch_size=FLAGS.predict_batch_size, num_train_steps=num_train_steps,
                                         remove_padding=FLAGS.trim_padding)
    tf.gfile.MakeDirs(FLAGS.output_dir)

    def input_fn(part, name, is_training=False):
        """Writes the part's features to output_dir; returns the input_fn that reads them."""
        path = os.path.join(FLAGS.output_dir, f"{name}.tf_record")
        file_based_convert_examples_to_features(examples[part], label_list, FLAGS.max_seq_length, tokenizer, path,
                                                FLAGS.num_workers)
        return file_based_input_fn_builder(path, FLAGS.max_seq_length, is_training, drop_remainder=is_training,
                                           trim_padding=FLAGS.trim_padding,
                                           by_tokens=is_training and FLAGS.tokens_per_micro_batch > 0)

    if FLAGS.do_train:
        logging.info("Training on %d examples, %d steps of %d.", len(examples["train"]), num_train_steps,
                     FLAGS.train_batch_size)
        classifier.train(input_fn("train", "train", is_training=True), max_steps=num_train_steps)
    if FLAGS.do_eval:
        logging.info("Evaluating on %d examples.", len(examples["dev"]))
        runner.write_results("eval_results.txt", classifier.evaluate(input_fn("dev", "eval")))
    if FLAGS.do_predict:
        logging.info("Predicting %d examples.", len(examples["test"]))
        test_input_fn = input_fn("test", "predict")
        write_predictions(input_pipeline.in_order(classifier.predict(test_input_fn)), label_list)
        if test_has_labels:
            runner.write_results("test_eval_results.txt", classifier.evaluate(test_input_fn, name="test"))


def write_predictions(predictions, label_list):
    """Writes test_results.tsv, one row of probabilities an example, and test_predictions.tsv, its most probable label."""
    rows = [prediction["probabilities"] for prediction in predictions]
    results = os.path.join(FLAGS.output_dir, "test_results.tsv")
    input_pipeline.write_text(results, "".join("\t".join(map(str, row)) + "\n" for row in rows))
    named = os.path.join(FLAGS.output_dir, "test_predictions.tsv")
    lines = [f"{index}\t{label_list[np.argmax(row)]}\n" for index, row in enumerate(rows)]
    input_pipeline.write_text(named, "index\tprediction\n" + "".join(lines))
    logging.info("Predictions: probabilities in %s, labels in %s.", results, named)


if __name__ == "__main__":
    define_flags()
    runner.run(main)
