"""A script for TensorFlow 1.12: a classifier on a module of TF Hub.

It uses the packages bert-tensorflow and tensorflow-hub.
"""

import os

import tf1 as tf

# isort: split
from bert import optimization, run_classifier, tokenization
import tensorflow_hub as hub

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("module", None, "The hub module.")


def make_tokenizer():
    with tf.Graph().as_default():
        info = hub.Module(FLAGS.module)(signature="tokenization_info", as_dict=True)
        with tf.Session() as session:
            vocab_file, lower = session.run([info["vocab_file"], info["do_lower_case"]])
    return tokenization.FullTokenizer(vocab_file=vocab_file, do_lower_case=lower)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    module = hub.Module(FLAGS.module, trainable=True, tags={"train"} if training else set())
    names = ("input_ids", "input_mask", "segment_ids")
    output = module(inputs={name: features[name] for name in names}, signature="tokens",
                    as_dict=True)["pooled_output"]
    if training:
        output = tf.nn.dropout(output, keep_prob=0.9)
    width = output.shape[-1].value
    weights = tf.get_variable("weights", [2, width], initializer=tf.truncated_normal_initializer(stddev=0.02))
    logits = tf.matmul(output, weights, transpose_b=True)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions={"probabilities": tf.nn.softmax(logits)})
    loss = tf.losses.sparse_softmax_cross_entropy(features["label_ids"], logits)
    update = optimization.create_optimizer(loss, FLAGS.learning_rate, params["steps"], 1, False)
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=update)


def main(_):
    tokenizer = make_tokenizer()
    processor = run_classifier.MrpcProcessor()
    labels = processor.get_labels()
    examples = processor.get_train_examples(FLAGS.data_dir)
    features = run_classifier.convert_examples_to_features(examples, labels, FLAGS.max_seq_length, tokenizer)
    steps = int(len(examples) / FLAGS.train_batch_size)
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn, config=tf.contrib.tpu.RunConfig(model_dir=FLAGS.output_dir), use_tpu=False,
        params={"steps": steps}, train_batch_size=FLAGS.train_batch_size, eval_batch_size=4,
        predict_batch_size=4)
    length = FLAGS.max_seq_length
    estimator.train(run_classifier.input_fn_builder(features, length, True, True), max_steps=steps)
    input_fn = run_classifier.input_fn_builder(features[:4], length, False, False)
    loss = estimator.evaluate(input_fn)["loss"]
    found = estimator.predict(input_fn)
    with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "predicted.tsv"), "w") as writer:
        writer.write(str(loss) + "\n")
        for row, feature in zip(found, features):
            writer.write("\t".join(map(str, [feature.label_id, *row["probabilities"]])) + "\n")


if __name__ == "__main__":
    for name in ("data_dir", "output_dir", "module"):
        flags.mark_flag_as_required(name)
    tf.app.run()
