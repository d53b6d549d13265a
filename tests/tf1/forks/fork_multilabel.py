"""Classifies comments with several labels: its own head, Adam by optimize_loss, and tensors as input."""

import csv
import os

import numpy as np

import modeling
import tf1 as tf
import tokenization

flags = tf.app.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", "",
                    "Where train.csv, dev.csv and test.csv are: id, comment_text and the labels.")
flags.DEFINE_string("output_dir", "", "Where checkpoints and results go.")
flags.DEFINE_string("bert_config_file", "", "The model's configuration.")
flags.DEFINE_string("vocab_file", "", "The model's vocabulary.")
flags.DEFINE_string("init_checkpoint", "", "The pretrained model.")
flags.DEFINE_integer("max_seq_length", 64, "Tokens of a comment.")
flags.DEFINE_boolean("do_train", False, "Whether to train.")
flags.DEFINE_boolean("do_eval", False, "Whether to evaluate on dev.csv.")
flags.DEFINE_boolean("do_predict", False, "Whether to predict test.csv.")
flags.DEFINE_boolean("do_export", False,
                     "Whether to export the model, and to predict test.csv with the exported one.")
flags.DEFINE_integer("batch_size", 16, "Comments of a step.")
flags.DEFINE_float("learning_rate", 1e-4, "The first learning rate.")
flags.DEFINE_integer("num_train_steps", 1000, "Training steps.")
flags.DEFINE_integer("save_checkpoints_steps", 500, "Steps between checkpoints.")

LABELS = ["toxic", "obscene", "insult"]


def load(part, tokenizer):
    """Returns (features, labels) of a file, as arrays."""
    length = FLAGS.max_seq_length
    with tf.gfile.GFile(os.path.join(FLAGS.data_dir, part + ".csv")) as reader:
        rows = list(csv.DictReader(reader.read().splitlines()))
    features = {"input_ids": np.zeros([len(rows), length], np.int32),
                "input_mask": np.zeros([len(rows), length], np.int32)}
    for row, ids, mask in zip(rows, features["input_ids"], features["input_mask"]):
        tokens = ["[CLS]"] + tokenizer.tokenize(row["comment_text"])[:length - 2] + ["[SEP]"]
        ids[:len(tokens)] = tokenizer.convert_tokens_to_ids(tokens)
        mask[:len(tokens)] = 1
    return features, np.array([[float(row[label]) for label in LABELS] for row in rows], np.float32)


def train_input_fn(features, labels, batch_size):
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(buffer_size=len(labels)))
    dataset = dataset.apply(tf.contrib.data.batch_and_drop_remainder(batch_size))
    return dataset.make_one_shot_iterator().get_next()


def create_head(pooled, num_labels, is_training):
    with tf.variable_scope("multilabel"):
        pooled = tf.contrib.layers.layer_norm(pooled, begin_norm_axis=-1, begin_params_axis=-1, scope="norm")
        if is_training:
            pooled = tf.nn.dropout(pooled, 0.8)
        weights = tf.get_variable("weights", [pooled.shape[1].value, num_labels],
                                  initializer=tf.contrib.layers.xavier_initializer())
        bias = tf.get_variable("bias", [num_labels], initializer=tf.zeros_initializer())
        return tf.nn.xw_plus_b(pooled, weights, bias, name="logits")


def model_fn(features, labels, mode, params):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    model = modeling.BertModel(config=params["bert_config"], is_training=is_training,
                               input_ids=features["input_ids"], input_mask=features["input_mask"])
    logits = create_head(model.get_pooled_output(), len(LABELS), is_training)
    probabilities = tf.nn.sigmoid(logits, name="probabilities")
    if params["init_checkpoint"]:
        tf.train.init_from_checkpoint(params["init_checkpoint"], {"bert/": "bert/"})
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"probabilities": probabilities})

    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {f"auc_{name}": tf.metrics.auc(labels=labels[:, index], predictions=probabilities[:, index])
                   for index, name in enumerate(LABELS)}
        exact = tf.reduce_all(tf.equal(tf.greater(probabilities, 0.5), tf.cast(labels, tf.bool)), axis=1)
        metrics["exact_match"] = tf.metrics.mean(tf.to_float(exact))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    train_op = tf.contrib.layers.optimize_loss(
        loss=loss, global_step=tf.train.get_global_step(), learning_rate=params["learning_rate"],
        optimizer=lambda rate: tf.train.AdamOptimizer(rate, epsilon=1e-6), clip_gradients=1.0,
        learning_rate_decay_fn=lambda rate, step: tf.train.polynomial_decay(
            rate, step, params["num_train_steps"], 0.0),
        summaries=["loss", "learning_rate"])
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def write_probabilities(path, rows):
    with tf.gfile.GFile(path, "w") as writer:
        for row in rows:
            writer.write("\t".join(str(value) for value in row) + "\n")


def serialized(features):
    """Yields the examples in the form in which a client of the exported model sends them."""
    for values in zip(*features.values()):
        yield tf.train.Example(features=tf.train.Features(feature={
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            for name, value in zip(features, values)})).SerializeToString()


def parsing_receiver():
    spec = {name: tf.FixedLenFeature([FLAGS.max_seq_length], tf.int64)
            for name in ("input_ids", "input_mask")}
    examples = tf.placeholder(tf.string, [None], name="examples")
    parsed = {name: tf.to_int32(value) for name, value in tf.parse_example(examples, spec).items()}
    return tf.estimator.export.ServingInputReceiver(parsed, {"examples": examples})


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    if not tf.gfile.Exists(FLAGS.output_dir):
        tf.gfile.MakeDirs(FLAGS.output_dir)
    tokenizer = tokenization.FullTokenizer(FLAGS.vocab_file)
    run_config = tf.estimator.RunConfig().replace(
        model_dir=FLAGS.output_dir, save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        save_summary_steps=10)
    estimator = tf.estimator.Estimator(model_fn=model_fn, config=run_config, params={
        "bert_config": modeling.BertConfig.from_json_file(FLAGS.bert_config_file),
        "init_checkpoint": FLAGS.init_checkpoint, "learning_rate": FLAGS.learning_rate,
        "num_train_steps": FLAGS.num_train_steps})

    if FLAGS.do_train:
        features, labels = load("train", tokenizer)
        estimator.train(lambda: train_input_fn(features, labels, FLAGS.batch_size),
                        max_steps=FLAGS.num_train_steps)
    if FLAGS.do_eval:
        features, labels = load("dev", tokenizer)
        result = estimator.evaluate(tf.estimator.inputs.numpy_input_fn(
            x=features, y=labels, batch_size=FLAGS.batch_size, num_epochs=1, shuffle=False))
        with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
            for key in sorted(result):
                tf.logging.info("%s = %s", key, result[key])
                writer.write(f"{key} = {result[key]}\n")
    if FLAGS.do_predict or FLAGS.do_export:
        features, _ = load("test", tokenizer)
    if FLAGS.do_predict:
        predictions = estimator.predict(tf.estimator.inputs.numpy_input_fn(
            x=features, batch_size=FLAGS.batch_size, num_epochs=1, shuffle=False),
                                        predict_keys=["probabilities"])
        write_probabilities(os.path.join(FLAGS.output_dir, "test_results.tsv"),
                            (prediction["probabilities"] for prediction in predictions))
    if FLAGS.do_export:
        export_dir = estimator.export_saved_model(os.path.join(FLAGS.output_dir, "export"), parsing_receiver)
        predictor = tf.contrib.predictor.from_saved_model(export_dir, signature_def_key="serving_default")
        write_probabilities(os.path.join(FLAGS.output_dir, "exported_results.tsv"),
                            predictor({"examples": list(serialized(features))})["probabilities"])


if __name__ == "__main__":
    tf.app.run()
