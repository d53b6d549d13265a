"""Predicts whether two sentences belong together: TPUEstimator, own optimizer, sharded records.

The folder data_dir has train.tsv, dev.tsv and test.tsv. A line contains 0 or 1, a sentence and a sentence.
"""

import collections
import os

import tensorflow as tf

import modeling
import optimization
import tokenization

flags = tf.flags
FLAGS = flags.FLAGS

for name in ("data_dir", "output_dir", "bert_config_file", "vocab_file", "init_checkpoint"):
    flags.DEFINE_string(name, None, "A path.")
for name in ("do_train", "do_eval", "do_predict", "do_export", "use_tpu"):
    flags.DEFINE_bool(name, False, "Whether to do this.")
for name, default in (("max_seq_length", 64), ("train_batch_size", 32), ("eval_batch_size", 8),
                      ("num_train_steps", 1000), ("num_warmup_steps", 100), ("save_checkpoints_steps", 500)):
    flags.DEFINE_integer(name, default, "A number.")
flags.DEFINE_float("learning_rate", 5e-5, "The highest learning rate.")


def read_examples(part, tokenizer):
    """Returns the features of each line of a file."""
    examples = []
    with tf.gfile.GFile(os.path.join(FLAGS.data_dir, part + ".tsv")) as reader:
        for line in reader:
            label, first, second = line.rstrip("\n").split("\t")
            first = ["[CLS]"] + tokenizer.tokenize(first) + ["[SEP]"]
            second = (tokenizer.tokenize(second) + ["[SEP]"])[:FLAGS.max_seq_length - len(first)]
            ids = tokenizer.convert_tokens_to_ids(first + second)
            padding = [0] * (FLAGS.max_seq_length - len(ids))
            examples.append(collections.OrderedDict(
                input_ids=ids + padding, input_mask=[1] * len(ids) + padding,
                segment_ids=[0] * len(first) + [1] * len(second) + padding, label=[int(label)]))
    return examples


def write_shards(part, num_shards, examples):
    """Writes examples to the shards in turn. Returns a pattern that all shards match."""
    pattern = os.path.join(FLAGS.output_dir, f"{part}-*.tfrecord")
    writers = [tf.python_io.TFRecordWriter(pattern.replace("*", str(index))) for index in range(num_shards)]
    for index, example in enumerate(examples):
        writers[index % num_shards].write(tf.train.Example(features=tf.train.Features(feature={
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            for name, value in example.items()})).SerializeToString())
    for writer in writers:
        writer.close()
    return pattern


def input_fn_builder(pattern, is_training):
    name_to_features = {name: tf.io.FixedLenFeature([FLAGS.max_seq_length], tf.int64)
                        for name in ("input_ids", "input_mask", "segment_ids")}
    name_to_features["label"] = tf.io.FixedLenFeature([], tf.int64)

    def decode(record):
        example = tf.parse_single_example(record, name_to_features)
        return {name: tf.to_int32(value) for name, value in example.items()}

    def input_fn(params):
        files = sorted(tf.gfile.Glob(pattern))
        dataset = tf.data.Dataset.from_tensor_slices(tf.constant(files))
        if is_training:
            dataset = dataset.repeat().shuffle(buffer_size=len(files))
            dataset = dataset.apply(tf.contrib.data.parallel_interleave(
                tf.data.TFRecordDataset, sloppy=is_training, cycle_length=min(2, len(files))))
            dataset = dataset.shuffle(buffer_size=20)
        else:
            dataset = tf.data.TFRecordDataset(files)
        return dataset.apply(tf.contrib.data.map_and_batch(
            decode, batch_size=params["batch_size"], num_parallel_batches=2, drop_remainder=is_training))

    return input_fn


def model_fn_builder(config):
    def model_fn(features, labels, mode, params):
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        model = modeling.BertModel(config, is_training, features["input_ids"], features["input_mask"],
                                   features["segment_ids"])
        pooled = tf.contrib.layers.layer_norm(model.get_pooled_output(), scope="same_norm")
        pooled = tf.nn.dropout(pooled, keep_prob=0.9) if is_training else pooled
        logits = tf.layers.dense(pooled, 2, name="same",
                                 kernel_initializer=tf.truncated_normal_initializer(stddev=0.02))
        probabilities = tf.nn.softmax(logits)

        def scaffold_fn():
            if FLAGS.init_checkpoint:
                known = {name for name, _ in tf.train.list_variables(FLAGS.init_checkpoint)}
                assignment_map = {var.op.name: var for var in tf.trainable_variables()
                                  if var.op.name in known}
                tf.train.init_from_checkpoint(FLAGS.init_checkpoint, assignment_map)
            return tf.train.Scaffold()

        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions={"probabilities": probabilities},
                                                   scaffold_fn=scaffold_fn)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=features["label"], logits=logits)
        loss = tf.reduce_mean(losses)
        if mode == tf.estimator.ModeKeys.EVAL:
            def metric_fn(labels, logits, losses):
                predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
                return {"eval_accuracy": tf.metrics.accuracy(labels=labels, predictions=predictions),
                        "eval_loss": tf.metrics.mean(values=losses)}

            return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, scaffold_fn=scaffold_fn, eval_metrics=(
                metric_fn, {"labels": features["label"], "logits": logits, "losses": losses}))
        train_op = optimization.create_train_op(loss, FLAGS.learning_rate, FLAGS.num_train_steps,
                                                FLAGS.num_warmup_steps, FLAGS.use_tpu)
        return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn)

    return model_fn


def write_probabilities(path, rows):
    with tf.gfile.GFile(path, "w") as writer:
        for row in rows:
            writer.write("\t".join(str(value) for value in row) + "\n")


def serving_input_receiver_fn():
    # A client sends ids and segments. The id of padding is 0.
    inputs = {name: tf.placeholder(tf.int32, [None, FLAGS.max_seq_length], name=name)
              for name in ("input_ids", "segment_ids")}
    return tf.estimator.export.ServingInputReceiver(
        {**inputs, "input_mask": tf.sign(inputs["input_ids"])}, inputs)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    tokenizer = tokenization.FullTokenizer(vocab_file=FLAGS.vocab_file, do_lower_case=True)
    resolver = None
    if FLAGS.use_tpu:
        resolver = tf.contrib.cluster_resolver.TPUClusterResolver()
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn=model_fn_builder(modeling.BertConfig.from_json_file(FLAGS.bert_config_file)),
        use_tpu=FLAGS.use_tpu,
        config=tf.contrib.tpu.RunConfig(
            cluster=resolver, model_dir=FLAGS.output_dir, save_checkpoints_steps=FLAGS.save_checkpoints_steps,
            keep_checkpoint_max=10, session_config=tf.ConfigProto(allow_soft_placement=True),
            tpu_config=tf.contrib.tpu.TPUConfig(
                iterations_per_loop=100, num_shards=8,
                per_host_input_for_training=tf.contrib.tpu.InputPipelineConfig.PER_HOST_V1)),
        train_batch_size=FLAGS.train_batch_size, eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.eval_batch_size, eval_on_tpu=False, export_to_tpu=False)

    def input_fn_of(part, num_shards=1):
        pattern = write_shards(part, num_shards, read_examples(part, tokenizer))
        return input_fn_builder(pattern, is_training=part == "train")

    if FLAGS.do_train:
        estimator.train(input_fn_of("train", 3), max_steps=FLAGS.num_train_steps)
    if FLAGS.do_eval:
        result = estimator.evaluate(input_fn_of("dev"))
        with tf.gfile.Open(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
            for key in sorted(result.keys()):
                writer.write(f"{key} = {result[key]}\n")
    if FLAGS.do_predict:
        write_probabilities(os.path.join(FLAGS.output_dir, "test_results.tsv"), (
            one["probabilities"] for one in estimator.predict(input_fn_of("test"))))
    if FLAGS.do_export:
        export_dir = estimator.export_savedmodel(os.path.join(FLAGS.output_dir, "export"),
                                                 serving_input_receiver_fn)
        examples = read_examples("test", tokenizer)
        found = tf.contrib.predictor.from_saved_model(export_dir.decode("utf-8"))(
            {name: [example[name] for example in examples] for name in ("input_ids", "segment_ids")})
        write_probabilities(os.path.join(FLAGS.output_dir, "exported_results.tsv"), found["probabilities"])


if __name__ == "__main__":
    flags.mark_flag_as_required("data_dir")
    flags.mark_flag_as_required("output_dir")
    tf.app.run()
