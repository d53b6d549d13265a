"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py

does it with a tiny model on the sample text, in some minutes. With the records of create_pretraining_data.py:

    python run_pretraining.py --do_train=true --do_eval=true --input_file='/tmp/data/*.tfrecord' --output_dir=/tmp/output/ \\
      --bert_config_file=$BERT_DIR/bert_config.json --init_checkpoint=$BERT_DIR/bert_model.ckpt --train_batch_size=32 \\
      --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

Leave --init_checkpoint out to start from random weights.
"""

import functools
import itertools
import os

import runner  # isort: skip  (before TensorFlow: it sets up what has to be set first)

import tensorflow.compat.v1 as tf
from absl import flags, logging

import checkpoints
import corpus
import estimator
import input_pipeline
import learning_curve
import modeling
import optimization
import pretraining_data
import pretraining_stream
import tokenization

tf.disable_v2_behavior()
tf.enable_resource_variables()

FLAGS = flags.FLAGS

_SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples", "pretraining")
# What the sample needs, where a flag is not given.
_SAMPLE_FLAGS = dict(max_seq_length=64, max_predictions_per_seq=10, num_train_steps=1500, num_warmup_steps=150,
                     learning_rate=1e-3, eval_batch_size=32, save_checkpoints_steps=150, log_steps=50,
                     eval_each_checkpoint=True)
# Records of each file that are looked at before training.
_CHECKED_RECORDS = 100
_BATCH_TOTALS = ("masked_lm_weights",)


def define_flags():
    """Defines the flags of this script."""
    flags.DEFINE_string("input_file", None, "TFRecords of create_pretraining_data.py: files or globs, with commas between.")
    flags.DEFINE_string("eval_file", None, "Records to evaluate on; --input_file if not given.")
    runner.define_model_flags(max_seq_length=128)
    runner.define_training_flags()
    runner.define_tpu_flags()
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens of an example, as the records were made with.",
                         lower_bound=1)
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate.")
    flags.DEFINE_integer("eval_batch_size", 8, "Examples in a batch of the evaluation.", lower_bound=1)
    flags.DEFINE_integer("num_train_steps", 100000, "Training steps.", lower_bound=1)
    flags.DEFINE_integer("num_warmup_steps", 10000, "Steps in which the learning rate rises.", lower_bound=0)
    flags.DEFINE_integer("max_eval_steps", 100, "Batches of the evaluation at most.", lower_bound=1)
    flags.DEFINE_bool("eval_each_checkpoint", False, "With --do_train: evaluate each checkpoint when it is saved, into "
                      "learning_curve.tsv and, as a picture, learning_curve.svg.")


# --- Model -----------------------------------------------------------------------------------------------


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, model_options=None, optimizer_options=None):
    """Returns a model_fn for `estimator.Estimator`; the loss is that of the masked words plus that of the next sentence.

    Args:
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: where weights start, see `checkpoints.open_checkpoint`; None for random ones.
      learning_rate, num_train_steps, num_warmup_steps, use_tpu: see `optimization.create_optimizer`.
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.
      optimizer_options: dict of further arguments of `optimization.create_optimizer`.
    """
    def model_fn(features, labels, mode, params):
        del labels
        if mode not in (estimator.ModeKeys.TRAIN, estimator.ModeKeys.EVAL):
            raise ValueError(f"This model is trained and evaluated; mode {mode!r} is neither.")
        is_training = mode == estimator.ModeKeys.TRAIN
        micro_batches = params.get("gradient_accumulation_steps", 1) if is_training else 1
        model = modeling.BertModel(bert_config, is_training, features["input_ids"], features["input_mask"],
                                   features["segment_ids"], use_one_hot_embeddings, **(model_options or {}))
        masked_lm_loss, *masked_lm = get_masked_lm_output(
            bert_config, model.get_sequence_output(), model.get_embedding_table(), features["masked_lm_positions"],
            features["masked_lm_ids"], features["masked_lm_weights"], features.get("masked_lm_weights_total"), micro_batches)
        next_sentence_loss, *next_sentence = get_next_sentence_output(
            bert_config, model.get_pooled_output(), features["next_sentence_labels"])
        loss = masked_lm_loss + next_sentence_loss
        scaffold = checkpoints.starting_scaffold(init_checkpoint)
        if is_training:
            train_op = optimization.create_optimizer(loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                                                     **(optimizer_options or {}), gradient_accumulation_steps=micro_batches)
            return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)
        metrics = metric_fn(*masked_lm, features["masked_lm_ids"], features["masked_lm_weights"], *next_sentence,
                            features["next_sentence_labels"])
        return estimator.EstimatorSpec(mode, loss=loss, scaffold=scaffold, eval_metric_ops=metrics)

    return model_fn


def get_masked_lm_output(bert_config, input_tensor, output_weights, positions, label_ids, label_weights, total_weight=None,
                         micro_batches=1):
    """Predicts the masked words: dense, activation, layer normalization, then the word embeddings again as output weights.

    Args:
      bert_config: a `modeling.BertConfig`.
      input_tensor: float [B, F, W], the last encoder layer.
      output_weights: float [vocab_size, W], the word embeddings.
      positions: int32 [B, P], where to predict.
      label_ids: int32 [B, P], the words there.
      label_weights: float [B, P], 0 where P is padding.
      total_weight: scalar, the sum of the weights of the effective batch; that of this batch if None.
      micro_batches: number of parts of the effective batch, of which this is one. The mean of their losses is then its loss,
        however the weights are spread over them.

    Returns:
      (loss: scalar, the weighted mean; loss of each position [B·P]; log probabilities [B·P, vocab_size]).
    """
    width = bert_config.hidden_size
    inputs = gather_indexes(input_tensor, positions)  # [B·P, W]
    with tf.variable_scope("cls/predictions"):
        with tf.variable_scope("transform"):
            with tf.variable_scope("dense"):
                kernel = tf.get_variable("kernel", [inputs.shape.as_list()[-1], width],
                                         initializer=modeling.create_initializer(bert_config.initializer_range))
                inputs = tf.nn.bias_add(tf.matmul(inputs, kernel),
                                        tf.get_variable("bias", [width], initializer=tf.zeros_initializer()))
            activation = modeling.get_activation(bert_config.hidden_act)
            inputs = modeling.layer_norm(activation(inputs) if activation else inputs)
        bias = tf.get_variable("output_bias", [bert_config.vocab_size], initializer=tf.zeros_initializer())
        logits = tf.nn.bias_add(tf.matmul(inputs, output_weights, transpose_b=True), bias)
        # Keeps one matrix of B·P rows and vocab_size columns for the backward pass, where the formula would keep three.
        per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(label_ids, [-1]), logits=logits)
        weights = tf.cast(tf.reshape(label_weights, [-1]), tf.float32)
        total_weight = tf.reduce_sum(weights) if total_weight is None else total_weight
        loss = micro_batches * tf.reduce_sum(weights * per_example_loss) / (total_weight + 1e-5)
        return loss, per_example_loss, tf.nn.log_softmax(logits)


def get_next_sentence_output(bert_config, input_tensor, labels):
    """Predicts whether the second segment is random (1) or follows the first (0).

    Args:
      bert_config: a `modeling.BertConfig`.
      input_tensor: float [B, W], the pooled output.
      labels: int32 [B] or [B, 1].

    Returns:
      (loss: scalar, the mean; loss of each example [B]; log probabilities [B, 2]).
    """
    with tf.variable_scope("cls/seq_relationship"):
        weights = tf.get_variable("output_weights", [2, bert_config.hidden_size],
                                  initializer=modeling.create_initializer(bert_config.initializer_range))
        bias = tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer())
        logits = tf.nn.bias_add(tf.matmul(input_tensor, weights, transpose_b=True), bias)
        per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, [-1]), logits=logits)
        return tf.reduce_mean(per_example_loss), per_example_loss, tf.nn.log_softmax(logits)


def gather_indexes(sequence_tensor, positions):
    """Returns the vectors at some positions of each sequence: [B, F, W] and int32 [B, P] to [B·P, W]."""
    batch_size, length, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
    starts = tf.reshape(tf.range(batch_size, dtype=tf.int32) * length, [-1, 1])
    return tf.gather(tf.reshape(sequence_tensor, [batch_size * length, width]), tf.reshape(positions + starts, [-1]))


def head_shapes(bert_config):
    """The variables that the two heads add to the encoder: {name: shape}."""
    width = bert_config.hidden_size
    return {"cls/predictions/transform/dense/kernel": (width, width), "cls/predictions/transform/dense/bias": (width,),
            "cls/predictions/transform/LayerNorm/beta": (width,), "cls/predictions/transform/LayerNorm/gamma": (width,),
            "cls/predictions/output_bias": (bert_config.vocab_size,), "cls/seq_relationship/output_weights": (2, width),
            "cls/seq_relationship/output_bias": (2,)}


def metric_fn(masked_lm_example_loss, masked_lm_log_probs, masked_lm_ids, masked_lm_weights, next_sentence_example_loss,
              next_sentence_log_probs, next_sentence_labels):
    """Streaming metrics of both tasks: {name: (value, update op)}.

    They are the published masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and next_sentence_loss, and
    masked_lm_baseline: the accuracy of predicting the same word everywhere, the most frequent of the masked ones. Arguments
    are what the heads return and get.
    """
    ids, weights = tf.reshape(masked_lm_ids, [-1]), tf.reshape(masked_lm_weights, [-1])
    labels = tf.reshape(next_sentence_labels, [-1])
    vocab_size = masked_lm_log_probs.shape.as_list()[-1]
    with tf.variable_scope("masked_lm_baseline"):
        counts = tf.get_variable("counts", [vocab_size], tf.float64, tf.zeros_initializer(), trainable=False,
                                 collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        counted = tf.math.unsorted_segment_sum(tf.cast(weights, tf.float64), ids, vocab_size)
        baseline = (tf.math.divide_no_nan(tf.reduce_max(counts), tf.reduce_sum(counts)), tf.assign_add(counts, counted))
    return {
        "masked_lm_accuracy": tf.metrics.accuracy(ids, tf.argmax(masked_lm_log_probs, -1, output_type=tf.int32), weights),
        "masked_lm_baseline": baseline,
        "masked_lm_loss": tf.metrics.mean(masked_lm_example_loss, weights),
        "next_sentence_accuracy": tf.metrics.accuracy(labels, tf.argmax(next_sentence_log_probs, -1, output_type=tf.int32)),
        "next_sentence_loss": tf.metrics.mean(next_sentence_example_loss),
    }


# --- Input -----------------------------------------------------------------------------------------------


def input_fn_builder(input_files, max_seq_length, max_predictions_per_seq, is_training, num_cpu_threads=4):
    """Returns an input_fn that reads TFRecord files of create_pretraining_data.py as if they were one.

    Args:
      input_files: list of paths.
      max_seq_length, max_predictions_per_seq: what they were made with.
      is_training: shuffle all of them and repeat; else once, in order.
      num_cpu_threads: batches read at the same time; the order is the same.
    """
    def input_fn(params):
        return input_pipeline.record_dataset(
            list(input_files), pretraining_data.feature_fields(max_seq_length, max_predictions_per_seq), params["batch_size"],
            is_training, drop_remainder=is_training, micro_batches=params.get("gradient_accumulation_steps", 1),
            batch_totals=_BATCH_TOTALS if is_training else (), num_threads=num_cpu_threads)
    return input_fn


def _decode_record(record, name_to_features):
    """Parses a serialized `tf.train.Example`: {name: tensor}, int64 as int32."""
    example = tf.parse_single_example(record, name_to_features)
    return {name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor for name, tensor in example.items()}


def check_records(flag, paths, config):
    """Looks at the first records of some files.

    Raises:
      ValueError: they were made with other lengths than the flags', or with a larger vocabulary than the model's.
    """
    for path in paths:
        try:
            records = list(itertools.islice(tf.python_io.tf_record_iterator(path), _CHECKED_RECORDS))
        except tf.errors.DataLossError as error:
            raise ValueError(f"--{flag}: {path} holds no TFRecords, or is damaged ({error.message}).") from error
        for record in records:
            features = tf.train.Example.FromString(record).features.feature
            for name, length in (("input_ids", "max_seq_length"), ("masked_lm_positions", "max_predictions_per_seq")):
                found = len(features[name].int64_list.value)
                if found and found != FLAGS[length].value:
                    raise ValueError(f"--{length}={FLAGS[length].value}, but {path} was made with {found}. Pass "
                                     f"--{length}={found}, or make it again with create_pretraining_data.py --{length}="
                                     f"{FLAGS[length].value}.")
            largest = max([0, *features["input_ids"].int64_list.value, *features["masked_lm_ids"].int64_list.value])
            if largest >= config.vocab_size:
                raise ValueError(f"{path} has a token with id {largest}, but vocab_size in {FLAGS.bert_config_file} is "
                                 f"{config.vocab_size}. Take the configuration that goes with the records' vocabulary.")


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags():
    """Fills in what was not given; returns whether it is the sample that is trained on.

    Raises:
      ValueError: a flag is missing or contradicts another.
    """
    runner.refuse_tpus()
    if not (FLAGS.do_train or FLAGS.do_eval):
        if FLAGS["do_train"].present or FLAGS["do_eval"].present:
            raise ValueError("Nothing to do: at least one of --do_train and --do_eval must be true.")
        runner.take_default("do_train", True)
        runner.take_default("do_eval", True)
    sampled = FLAGS.input_file is FLAGS.eval_file is FLAGS.bert_config_file is FLAGS.init_checkpoint is None
    if sampled:
        logging.info("--input_file not given: using %s, a small text made for this repository", _SAMPLE)
        for name, value in {"bert_config_file": os.path.join(_SAMPLE, "bert_config.json"), **_SAMPLE_FLAGS}.items():
            if not FLAGS[name].present:
                runner.take_default(name, value)
    for name in () if sampled else ("input_file", "bert_config_file"):
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is required.")
    if FLAGS.output_dir is None:
        runner.take_default("output_dir", os.path.join("output", "pretraining"))
    if FLAGS.num_warmup_steps >= FLAGS.num_train_steps and FLAGS.do_train:
        logging.warning("--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate never gets to "
                        "--learning_rate.", FLAGS.num_warmup_steps, FLAGS.num_train_steps)
    return sampled


def make_sample():
    """Turns the sample text into records in output_dir: flags input_file and eval_file."""
    tokenizer = tokenization.FullTokenizer(os.path.join(_SAMPLE, "vocab.txt"))
    for part, flag, passes in (("train", "input_file", 10), ("dev", "eval_file", 2)):
        path = os.path.join(FLAGS.output_dir, f"{part}.tf_record")
        recipe = pretraining_data.Recipe(max_seq_length=FLAGS.max_seq_length, dupe_factor=passes,
                                         max_predictions_per_seq=FLAGS.max_predictions_per_seq)
        pretraining_stream.write_training_data([os.path.join(_SAMPLE, f"{part}.txt")], [path], tokenizer, recipe)
        setattr(FLAGS, flag, path)


def files_of_flag(name):
    """Returns the files that a flag names."""
    return corpus.find_input_files([pattern.strip() for pattern in FLAGS[name].value.split(",") if pattern.strip()])


def main(_):
    """Runs what the flags ask for."""
    runner.log_devices()
    sampled = resolve_flags()
    config = runner.load_config()
    runner.check_output_dir()
    runner.check_starting_weights(config, head_shapes(config), FLAGS.do_train)
    if sampled:
        make_sample()
    files = {name: files_of_flag(name if FLAGS[name].value else "input_file") for name in ("input_file", "eval_file")}
    for name, paths in files.items():
        check_records(name, paths, config)

    build_model_fn = functools.partial(
        model_fn_builder, config, FLAGS.init_checkpoint, FLAGS.learning_rate, FLAGS.num_train_steps, FLAGS.num_warmup_steps,
        FLAGS.use_tpu, use_one_hot_embeddings=FLAGS.use_tpu)
    fields = functools.partial(pretraining_data.feature_fields, max_predictions_per_seq=FLAGS.max_predictions_per_seq)
    trainer = runner.create_estimator(build_model_fn, config, fields, _BATCH_TOTALS, FLAGS.eval_batch_size,
                                      num_train_steps=FLAGS.num_train_steps)
    lengths = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    tf.gfile.MakeDirs(FLAGS.output_dir)

    def evaluate():
        return trainer.evaluate(input_fn_builder(files["eval_file"], *lengths, is_training=False), FLAGS.max_eval_steps)

    if FLAGS.do_train:
        listeners = [learning_curve.LearningCurve(FLAGS.output_dir, evaluate, "Words predicted correctly, of those masked", {
            "masked_lm_accuracy": "the model", "masked_lm_baseline": "the most frequent word"})]
        logging.info("Training on %d files, %d steps of %d.", len(files["input_file"]), FLAGS.num_train_steps,
                     FLAGS.train_batch_size)
        trainer.train(input_fn_builder(files["input_file"], *lengths, is_training=True), max_steps=FLAGS.num_train_steps,
                      saving_listeners=listeners if FLAGS.eval_each_checkpoint else None)
    if FLAGS.do_eval:
        runner.write_results("eval_results.txt", evaluate())


if __name__ == "__main__":
    define_flags()
    runner.run(main)
