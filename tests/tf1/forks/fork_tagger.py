"""Tags names in sentences: a tag for each token, with plain Estimator, a generator and train_and_evaluate."""

import functools
import os

import modeling
import optimization
import tf1 as tf
import tokenization

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "Where train.txt, dev.txt and test.txt are: a word and its tag a line.")
flags.DEFINE_string("output_dir", None, "Where checkpoints and results go.")
flags.DEFINE_string("bert_config_file", None, "The model's configuration.")
flags.DEFINE_string("vocab_file", None, "The model's vocabulary.")
flags.DEFINE_string("init_checkpoint", None, "The pretrained model.")
flags.DEFINE_integer("max_seq_length", 64, "The most tokens of a sentence.")
flags.DEFINE_bool("do_train", False, "Whether to train, evaluating each checkpoint.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on dev.txt.")
flags.DEFINE_bool("do_predict", False, "Whether to tag test.txt.")
flags.DEFINE_bool("do_export", False, "Whether to tag test.txt with the model that training exported.")
flags.DEFINE_integer("batch_size", 16, "Sentences of a step.")
flags.DEFINE_float("learning_rate", 2e-5, "The highest learning rate.")
flags.DEFINE_float("dropout_rate", 0.2, "Dropout before the tags.")
flags.DEFINE_integer("num_train_steps", 1000, "Training steps.")
flags.DEFINE_integer("num_warmup_steps", 0, "Steps of warm-up.")
flags.DEFINE_integer("save_checkpoints_steps", 500, "Steps between checkpoints.")

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def read_sentences(path):
    """Returns [(words, tags)] of a file."""
    with tf.gfile.GFile(path) as reader:
        blocks = reader.read().strip().split("\n\n")
    return [tuple(zip(*(line.split() for line in block.split("\n")))) for block in blocks]


def to_features(words, tags, tokenizer):
    """Returns the features of a sentence.

    The first piece of a word has the tag of the word, the others have O.
    """
    tokens, tag_ids = ["[CLS]"], [0]
    for word, tag in zip(words, tags):
        pieces = tokenizer.tokenize(word)
        tokens += pieces
        tag_ids += [TAGS.index(tag)] + [0] * (len(pieces) - 1)
    tokens = tokens[:FLAGS.max_seq_length - 1] + ["[SEP]"]
    tag_ids = tag_ids[:FLAGS.max_seq_length - 1] + [0]
    return {"input_ids": tokenizer.convert_tokens_to_ids(tokens), "length": len(tokens)}, tag_ids


def generate(path, tokenizer):
    for words, tags in read_sentences(path):
        yield to_features(words, tags, tokenizer)


def input_fn(path, tokenizer, params=None, is_training=False):
    shapes = ({"input_ids": [None], "length": []}, [None])
    types = ({"input_ids": tf.int32, "length": tf.int32}, tf.int32)
    dataset = tf.data.Dataset.from_generator(functools.partial(generate, path, tokenizer), output_types=types,
                                             output_shapes=shapes)
    if is_training:
        dataset = dataset.shuffle(params["buffer"]).repeat()
    return dataset.padded_batch(params["batch_size"], padded_shapes=shapes).prefetch(1)


def model_fn(features, labels, mode, params):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    input_ids = features["input_ids"]
    mask = tf.sequence_mask(features["length"], maxlen=tf.shape(input_ids)[1], dtype=tf.int32)
    model = modeling.BertModel(config=params["bert_config"], is_training=is_training, input_ids=input_ids,
                               input_mask=mask)
    output = tf.layers.dropout(model.get_sequence_output(), rate=params["dropout_rate"], training=is_training)
    hidden = tf.layers.dense(output, output.shape[-1].value // 2, activation=tf.nn.relu, name="tagger/hidden")
    logits = tf.layers.dense(hidden, len(TAGS), name="tagger/tags",
                             kernel_initializer=modeling.create_initializer(params["bert_config"].initializer_range))
    tag_ids = tf.argmax(logits, axis=-1, output_type=tf.int32)

    if params["init_checkpoint"]:
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
            tf.trainable_variables(), params["init_checkpoint"])
        tf.train.init_from_checkpoint(params["init_checkpoint"], assignment_map)

    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"tag_ids": tag_ids, "length": features["length"]}
        return tf.estimator.EstimatorSpec(
            mode=mode, predictions=predictions,
            export_outputs={tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
                            tf.estimator.export.PredictOutput(predictions)})

    weights = tf.to_float(mask)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits, weights=weights)
    if mode == tf.estimator.ModeKeys.EVAL:
        real, found = tf.not_equal(labels, 0), tf.not_equal(tag_ids, 0)
        return tf.estimator.EstimatorSpec(mode=mode, loss=loss, eval_metric_ops={
            "accuracy": tf.metrics.accuracy(labels, tag_ids, weights=weights),
            "precision": tf.metrics.precision(real, found, weights=weights),
            "recall": tf.metrics.recall(real, found, weights=weights)})

    tf.identity(loss, name="tagging_loss")
    tf.summary.scalar("tokens", tf.reduce_sum(weights))
    train_op = optimization.create_optimizer(loss, params["learning_rate"], params["num_train_steps"],
                                             params["num_warmup_steps"], use_tpu=False)
    return tf.estimator.EstimatorSpec(
        mode=mode, loss=loss, train_op=train_op,
        training_hooks=[tf.train.LoggingTensorHook({"tagging_loss": "tagging_loss:0"}, every_n_iter=10)])


def serving_input_receiver_fn():
    inputs = {"input_ids": tf.placeholder(tf.int32, [None, None], name="input_ids"),
              "length": tf.placeholder(tf.int32, [None], name="length")}
    return tf.estimator.export.ServingInputReceiver(inputs, inputs)


def write_tags(path, rows):
    with tf.gfile.GFile(path, "w") as writer:
        for row in rows:
            writer.write(" ".join(TAGS[tag_id] for tag_id in row) + "\n")


def tags_of_exported_model(export_dir, path, tokenizer):
    newest = os.path.join(export_dir, sorted(tf.gfile.ListDirectory(export_dir))[-1].rstrip("/"))
    with tf.Session(graph=tf.Graph()) as session:
        meta_graph = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], newest)
        signature = meta_graph.signature_def["serving_default"]
        for features, _ in generate(path, tokenizer):
            yield session.run(signature.outputs["tag_ids"].name, {
                signature.inputs[name].name: [value] for name, value in features.items()})[0]


def main(unused_argv):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    tokenizer = tokenization.FullTokenizer(vocab_file=FLAGS.vocab_file, do_lower_case=True)

    def input_fn_of(part, **options):
        return functools.partial(input_fn, os.path.join(FLAGS.data_dir, part + ".txt"), tokenizer, **options)

    session_config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    session_config.gpu_options.allow_growth = True
    config = tf.estimator.RunConfig(
        model_dir=FLAGS.output_dir, save_checkpoints_steps=FLAGS.save_checkpoints_steps, save_summary_steps=5,
        keep_checkpoint_max=3, log_step_count_steps=10, session_config=session_config)
    params = {
        "bert_config": modeling.BertConfig.from_json_file(FLAGS.bert_config_file),
        "init_checkpoint": FLAGS.init_checkpoint, "batch_size": FLAGS.batch_size, "buffer": 50,
        "dropout_rate": FLAGS.dropout_rate, "learning_rate": FLAGS.learning_rate,
        "num_train_steps": FLAGS.num_train_steps, "num_warmup_steps": FLAGS.num_warmup_steps}
    estimator = tf.estimator.Estimator(model_fn, params=params, config=config)

    if FLAGS.do_train:
        exporter = tf.estimator.FinalExporter("final", serving_input_receiver_fn)
        train_spec = tf.estimator.TrainSpec(input_fn=input_fn_of("train", is_training=True),
                                            max_steps=FLAGS.num_train_steps)
        eval_spec = tf.estimator.EvalSpec(input_fn=input_fn_of("dev"), steps=None, exporters=[exporter],
                                          start_delay_secs=0, throttle_secs=0)
        tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    if FLAGS.do_eval:
        result = estimator.evaluate(input_fn_of("dev"), name="dev")
        with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
            for key in sorted(result):
                writer.write(f"{key} = {result[key]}\n")
    if FLAGS.do_predict:
        # Batches have different lengths, so predictions are cut to the lengths of their sentences here.
        write_tags(os.path.join(FLAGS.output_dir, "test_results.tsv"),
                   (one["tag_ids"][:one["length"]] for one in estimator.predict(input_fn_of("test"))))
    if FLAGS.do_export:
        write_tags(os.path.join(FLAGS.output_dir, "exported_results.tsv"),
                   tags_of_exported_model(os.path.join(FLAGS.output_dir, "export", "final"),
                                          os.path.join(FLAGS.data_dir, "test.txt"), tokenizer))


if __name__ == "__main__":
    tf.app.run(main)
