"""Classifies news headlines by topic: the published classifier script, changed for a user's own data."""

import collections
import csv
import os

import modeling
import optimization
import tf1 as tf
import tokenization

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "Where train.tsv, dev.tsv and test.tsv are: topic, then headline.")
flags.DEFINE_string("output_dir", None, "Where checkpoints and results go.")
flags.DEFINE_string("bert_config_file", None, "The model's configuration.")
flags.DEFINE_string("vocab_file", None, "The model's vocabulary.")
flags.DEFINE_string("init_checkpoint", None, "The pretrained model.")
flags.DEFINE_bool("do_lower_case", True, "Whether the model is uncased.")
flags.DEFINE_integer("max_seq_length", 64, "Tokens of an example.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on dev.tsv.")
flags.DEFINE_bool("do_predict", False, "Whether to predict test.tsv.")
flags.DEFINE_bool("do_export", False,
                  "Whether to export the model, and to predict test.tsv with the exported one.")
flags.DEFINE_integer("train_batch_size", 32, "Examples of a training step.")
flags.DEFINE_integer("eval_batch_size", 8, "Examples of an evaluation step.")
flags.DEFINE_integer("predict_batch_size", 8, "Examples of a prediction step.")
flags.DEFINE_float("learning_rate", 5e-5, "The highest learning rate.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training data.")
flags.DEFINE_float("warmup_proportion", 0.1, "Part of the training that is warm-up.")
flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between checkpoints.")
flags.DEFINE_integer("iterations_per_loop", 1000, "Steps between two looks at the host.")
flags.DEFINE_bool("use_tpu", False, "Whether to use a TPU.")
tf.flags.DEFINE_string("tpu_name", None, "Name of the TPU.")
tf.flags.DEFINE_string("tpu_zone", None, "Zone of the TPU.")
tf.flags.DEFINE_string("gcp_project", None, "Project of the TPU.")
tf.flags.DEFINE_string("master", None, "TensorFlow master.")
flags.DEFINE_integer("num_tpu_cores", 8, "Cores of the TPU.")


class Headline(object):
    def __init__(self, guid, text, topic=None):
        self.guid = guid
        self.text = text
        self.topic = topic


class HeadlineProcessor(object):
    def get_examples(self, data_dir, part):
        with tf.gfile.Open(os.path.join(data_dir, part + ".tsv"), "r") as reader:
            rows = list(csv.reader(reader, delimiter="\t", quotechar=None, quoting=csv.QUOTE_NONE))
        return [Headline(f"{part}-{index}", tokenization.convert_to_unicode(row[1]), row[0])
                for index, row in enumerate(rows)]

    def get_labels(self):
        return ["sports", "politics", "science"]


def convert_examples_to_records(examples, label_list, max_seq_length, tokenizer, output_file):
    label_map = {label: index for index, label in enumerate(label_list)}

    def int_feature(values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))

    writer = tf.python_io.TFRecordWriter(output_file)
    for index, example in enumerate(examples):
        tokens = ["[CLS]"] + tokenizer.tokenize(example.text)[:max_seq_length - 2] + ["[SEP]"]
        padding = [0] * (max_seq_length - len(tokens))
        if index < 2:
            tf.logging.info("guid: %s", example.guid)
            tf.logging.info("tokens: %s", " ".join(tokenization.printable_text(token) for token in tokens))
        features = collections.OrderedDict()
        features["input_ids"] = int_feature(tokenizer.convert_tokens_to_ids(tokens) + padding)
        features["input_mask"] = int_feature([1] * len(tokens) + padding)
        features["segment_ids"] = int_feature([0] * max_seq_length)
        features["label_ids"] = int_feature([label_map[example.topic]])
        record = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(record.SerializeToString())
    writer.close()


def file_based_input_fn_builder(input_file, seq_length, is_training, drop_remainder):
    name_to_features = {
        "input_ids": tf.FixedLenFeature([seq_length], tf.int64),
        "input_mask": tf.FixedLenFeature([seq_length], tf.int64),
        "segment_ids": tf.FixedLenFeature([seq_length], tf.int64),
        "label_ids": tf.FixedLenFeature([], tf.int64),
    }

    def decode(record):
        example = tf.parse_single_example(record, name_to_features)
        return {name: tf.to_int32(value) for name, value in example.items()}

    def input_fn(params):
        dataset = tf.data.TFRecordDataset(input_file)
        if is_training:
            dataset = dataset.repeat()
            dataset = dataset.shuffle(buffer_size=100)
        return dataset.apply(tf.contrib.data.map_and_batch(
            decode, batch_size=params["batch_size"], drop_remainder=drop_remainder))

    return input_fn


def create_model(bert_config, is_training, features, num_labels, use_one_hot_embeddings):
    model = modeling.BertModel(
        config=bert_config, is_training=is_training, input_ids=features["input_ids"],
        input_mask=features["input_mask"], token_type_ids=features["segment_ids"],
        use_one_hot_embeddings=use_one_hot_embeddings)
    output_layer = model.get_pooled_output()
    hidden_size = output_layer.shape[-1].value
    output_weights = tf.get_variable("output_weights", [num_labels, hidden_size],
                                     initializer=tf.truncated_normal_initializer(stddev=0.02))
    output_bias = tf.get_variable("output_bias", [num_labels], initializer=tf.zeros_initializer())
    with tf.variable_scope("loss"):
        if is_training:
            output_layer = tf.nn.dropout(output_layer, keep_prob=0.9)
        logits = tf.nn.bias_add(tf.matmul(output_layer, output_weights, transpose_b=True), output_bias)
        log_probs = tf.nn.log_softmax(logits, axis=-1)
        one_hot_labels = tf.one_hot(features["label_ids"], depth=num_labels, dtype=tf.float32)
        per_example_loss = -tf.reduce_sum(one_hot_labels * log_probs, axis=-1)
        return tf.reduce_mean(per_example_loss), per_example_loss, logits, tf.nn.softmax(logits, axis=-1)


def model_fn_builder(bert_config, num_labels, init_checkpoint, learning_rate, num_train_steps,
                     num_warmup_steps, use_tpu, use_one_hot_embeddings):
    def model_fn(features, labels, mode, params):
        tf.logging.info("*** Features ***")
        for name in sorted(features.keys()):
            tf.logging.info("  name = %s, shape = %s", name, features[name].shape)
        loss, per_example_loss, logits, probabilities = create_model(
            bert_config, mode == tf.estimator.ModeKeys.TRAIN, features, num_labels, use_one_hot_embeddings)

        tvars = tf.trainable_variables()
        initialized_variable_names = {}
        scaffold_fn = None
        if init_checkpoint:
            assignment_map, initialized_variable_names = modeling.get_assignment_map_from_checkpoint(
                tvars, init_checkpoint)
            if use_tpu:
                def tpu_scaffold():
                    tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
                    return tf.train.Scaffold()

                scaffold_fn = tpu_scaffold
            else:
                tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
        for variable in tvars:
            tf.logging.info("  name = %s, shape = %s%s", variable.name, variable.shape,
                            ", from the checkpoint" if variable.name in initialized_variable_names else "")

        if mode == tf.estimator.ModeKeys.TRAIN:
            train_op = optimization.create_optimizer(loss, learning_rate, num_train_steps, num_warmup_steps,
                                                     use_tpu)
            return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op,
                                                   scaffold_fn=scaffold_fn)
        if mode == tf.estimator.ModeKeys.EVAL:
            def metric_fn(per_example_loss, label_ids, logits):
                predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
                return {"eval_accuracy": tf.metrics.accuracy(label_ids, predictions),
                        "eval_loss": tf.metrics.mean(per_example_loss)}

            return tf.contrib.tpu.TPUEstimatorSpec(
                mode=mode, loss=loss, eval_metrics=(metric_fn,
                                                    [per_example_loss, features["label_ids"], logits]),
                scaffold_fn=scaffold_fn)
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, predictions={"probabilities": probabilities},
                                               scaffold_fn=scaffold_fn)

    return model_fn


def write_probabilities(path, rows):
    with tf.gfile.GFile(path, "w") as writer:
        for row in rows:
            writer.write("\t".join(str(value) for value in row) + "\n")


def export(estimator, export_dir, seq_length):
    features = {name: tf.placeholder(tf.int32, shape=[None, seq_length], name=name)
                for name in ("input_ids", "input_mask", "segment_ids")}
    features["label_ids"] = tf.placeholder(tf.int32, shape=[None], name="label_ids")
    serving_input_receiver_fn = tf.estimator.export.build_raw_serving_input_receiver_fn(features)
    estimator._export_to_tpu = False
    return estimator.export_savedmodel(export_dir, serving_input_receiver_fn, strip_default_attrs=True)


def read_batch(record_file):
    """Returns the records as arrays, in the form that a client of the exported model needs."""
    rows = collections.defaultdict(list)
    for serialized in tf.python_io.tf_record_iterator(record_file):
        example = tf.train.Example.FromString(serialized)
        for name, feature in example.features.feature.items():
            values = list(feature.int64_list.value)
            rows[name].append(values[0] if name == "label_ids" else values)
    return dict(rows)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict or FLAGS.do_export):
        raise ValueError("Nothing to do.")
    bert_config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    processor = HeadlineProcessor()
    label_list = processor.get_labels()
    tokenizer = tokenization.FullTokenizer(vocab_file=FLAGS.vocab_file, do_lower_case=FLAGS.do_lower_case)

    tpu_cluster_resolver = None
    if FLAGS.use_tpu and FLAGS.tpu_name:
        tpu_cluster_resolver = tf.contrib.cluster_resolver.TPUClusterResolver(
            FLAGS.tpu_name, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project)
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    run_config = tf.contrib.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        master=FLAGS.master,
        model_dir=FLAGS.output_dir,
        save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        tpu_config=tf.contrib.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=FLAGS.num_tpu_cores,
            per_host_input_for_training=is_per_host))

    train_examples = None
    num_train_steps = None
    num_warmup_steps = None
    if FLAGS.do_train:
        train_examples = processor.get_examples(FLAGS.data_dir, "train")
        num_train_steps = int(len(train_examples) / FLAGS.train_batch_size * FLAGS.num_train_epochs)
        num_warmup_steps = int(num_train_steps * FLAGS.warmup_proportion)

    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn_builder(
            bert_config=bert_config, num_labels=len(label_list), init_checkpoint=FLAGS.init_checkpoint,
            learning_rate=FLAGS.learning_rate, num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps, use_tpu=FLAGS.use_tpu, use_one_hot_embeddings=FLAGS.use_tpu),
        config=run_config,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.predict_batch_size)

    def records(examples, part):
        path = os.path.join(FLAGS.output_dir, part + ".tf_record")
        convert_examples_to_records(examples, label_list, FLAGS.max_seq_length, tokenizer, path)
        return path

    if FLAGS.do_train:
        train_file = records(train_examples, "train")
        tf.logging.info("***** Running training: %d examples, %d steps *****", len(train_examples),
                        num_train_steps)
        estimator.train(input_fn=file_based_input_fn_builder(train_file, FLAGS.max_seq_length, True, True),
                        max_steps=num_train_steps)

    if FLAGS.do_eval:
        eval_file = records(processor.get_examples(FLAGS.data_dir, "dev"), "eval")
        result = estimator.evaluate(
            input_fn=file_based_input_fn_builder(eval_file, FLAGS.max_seq_length, False, False), steps=None)
        with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
            for key in sorted(result.keys()):
                tf.logging.info("  %s = %s", key, str(result[key]))
                writer.write(f"{key} = {result[key]}\n")

    if FLAGS.do_predict or FLAGS.do_export:
        predict_file = records(processor.get_examples(FLAGS.data_dir, "test"), "predict")
    if FLAGS.do_predict:
        result = estimator.predict(
            input_fn=file_based_input_fn_builder(predict_file, FLAGS.max_seq_length, False, False))
        write_probabilities(os.path.join(FLAGS.output_dir, "test_results.tsv"),
                            [prediction["probabilities"] for prediction in result])
    if FLAGS.do_export:
        export_dir = export(estimator, os.path.join(FLAGS.output_dir, "export"), FLAGS.max_seq_length)
        predict_fn = tf.contrib.predictor.from_saved_model(export_dir)
        write_probabilities(os.path.join(FLAGS.output_dir, "exported_results.tsv"),
                            predict_fn(read_batch(predict_file))["probabilities"])


if __name__ == "__main__":
    for name in ("data_dir", "output_dir", "bert_config_file", "vocab_file"):
        flags.mark_flag_as_required(name)
    tf.app.run()
