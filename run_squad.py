"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers and scores them.

    python run_squad.py

does it on the sample data with the installed model. With your own:

    python run_squad.py --do_train=true --train_file=$SQUAD_DIR/train-v1.1.json --do_eval=true \\
      --predict_file=$SQUAD_DIR/dev-v1.1.json --vocab_file=$BERT_DIR/vocab.txt \\
      --bert_config_file=$BERT_DIR/bert_config.json --init_checkpoint=$BERT_DIR/bert_model.ckpt --train_batch_size=12 \\
      --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad/
"""

import functools
import json
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
import squad_predictions
import squad_report
from squad_data import (  # noqa: F401  public names of this script that live there
    SEQUENCES,
    FeatureWriter,
    InputFeatures,
    SquadExample,
    _check_is_max_context,
    _improve_answer_span,
    convert_examples_to_features,
    feature_fields,
    file_based_convert_examples_to_features,
    generate_features,
    read_gold,
    read_squad_examples,
)
from squad_predictions import (  # noqa: F401  likewise
    RawResult,
    _compute_softmax,
    _get_best_indexes,
    get_final_text,
    write_predictions,
)

tf.disable_v2_behavior()
tf.enable_resource_variables()

FLAGS = flags.FLAGS

_SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples", "squad")
# Logit of a position that was cut off: as little as a masked position's score, and no infinity.
_CUT_OFF = -10000.0


def define_flags():
    """Defines the flags of this script."""
    flags.DEFINE_string("train_file", None, "SQuAD file to train on, such as train-v1.1.json.")
    flags.DEFINE_string("predict_file", None, "SQuAD file of the questions to answer, such as dev-v1.1.json; or JSON Lines, "
                        "each with an id, a question and a context, and with answers or is_impossible for --do_eval.")
    runner.define_model_flags(max_seq_length=384)
    runner.define_tokenizer_flags()
    runner.define_input_flags()
    runner.define_training_flags()
    runner.define_epoch_flags()
    runner.define_tpu_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.")
    flags.DEFINE_bool("do_eval", False, "Answer them, and score the answers with those in the file.")
    flags.DEFINE_integer("predict_batch_size", 8, "Windows in a batch of the prediction.", lower_bound=1)
    flags.DEFINE_integer("doc_stride", 128, "Tokens between the starts of two windows of a long context.", lower_bound=1)
    flags.DEFINE_integer("max_query_length", 64, "WordPieces of a question; what is longer is cut.", lower_bound=1)
    flags.DEFINE_integer("n_best_size", 20, "Answers listed for each question.", lower_bound=1)
    flags.DEFINE_integer("max_answer_length", 30, "WordPieces of an answer at most.", lower_bound=1)
    flags.DEFINE_bool("version_2_with_negative", False, "SQuAD 2.0: a question may have no answer.")
    flags.DEFINE_float("null_score_diff_threshold", 0.0, "With version 2: a question gets no answer if the score of none is "
                       "above that of the best by more than this.")
    flags.DEFINE_bool("find_null_threshold", False, "With version 2 and --do_eval: use the threshold that is best on "
                      "--predict_file, and write it down.")
    flags.DEFINE_bool("verbose_logging", False, "Log answers that cannot be found again in the context's spelling.")


# --- Model -----------------------------------------------------------------------------------------------


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings, model_options=None):
    """Builds BERT with a start and an end logit for each token.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: turns dropout on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.

    Returns:
      (start logits, end logits), float32 [B, F].
    """
    model = modeling.BertModel(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
                               **(model_options or {}))
    sequence = model.get_sequence_output()
    batch_size, length, width = modeling.get_shape_list(sequence, expected_rank=3)
    weights = tf.get_variable("cls/squad/output_weights", [2, width], initializer=modeling.create_initializer(0.02))
    bias = tf.get_variable("cls/squad/output_bias", [2], initializer=tf.zeros_initializer())
    logits = tf.nn.bias_add(tf.matmul(tf.reshape(sequence, [batch_size * length, width]), weights, transpose_b=True), bias)
    start, end = tf.unstack(tf.reshape(logits, [batch_size, length, 2]), axis=2)
    return start, end


def head_shapes(bert_config):
    """The variables that `create_model` adds to the encoder: {name: shape}."""
    return {"cls/squad/output_weights": (2, bert_config.hidden_size), "cls/squad/output_bias": (2,)}


def span_loss(logits, positions):
    """The mean cross-entropy of positions, int32 [B], under logits, float [B, F] (padding included, as published)."""
    log_probabilities = tf.nn.log_softmax(logits)
    chosen = tf.one_hot(positions, depth=modeling.get_shape_list(logits)[1]) * log_probabilities
    return -tf.reduce_mean(tf.reduce_sum(chosen, axis=-1))


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, model_options=None, optimizer_options=None):
    """Returns a model_fn for `estimator.Estimator`.

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
        start_logits, end_logits = create_model(
            bert_config, mode == estimator.ModeKeys.TRAIN, features["input_ids"], features["input_mask"],
            features["segment_ids"], use_one_hot_embeddings, model_options)
        scaffold = checkpoints.starting_scaffold(init_checkpoint)
        if mode == estimator.ModeKeys.PREDICT:
            predictions = {"start_logits": start_logits, "end_logits": end_logits}
            predictions.update((name, tf.identity(features[name])) for name in ("unique_ids", input_pipeline.EXAMPLE_INDEX)
                               if name in features)
            return estimator.EstimatorSpec(mode, predictions=predictions, scaffold=scaffold)
        if mode != estimator.ModeKeys.TRAIN:
            raise ValueError(f"This model is trained and predicts; mode {mode!r} is neither.")
        loss = (span_loss(start_logits, features["start_positions"]) + span_loss(end_logits, features["end_positions"])) / 2.0
        loss *= features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
        train_op = optimization.create_optimizer(
            loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, **(optimizer_options or {}),
            gradient_accumulation_steps=params.get("gradient_accumulation_steps", 1))
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

    return model_fn


def input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim_padding=False, by_tokens=False):
    """Returns an input_fn that reads a TFRecord file of `FeatureWriter`.

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
            input_file, feature_fields(seq_length, is_training), params["batch_size"], is_training, drop_remainder,
            params.get("gradient_accumulation_steps", 1), trim=SEQUENCES if trim_padding else (),
            by_tokens=by_tokens)
    return input_fn


# --- Flags, input, output --------------------------------------------------------------------------------


def resolve_flags():
    """Fills in what was not given.

    Raises:
      ValueError: a flag is missing or contradicts another.
    """
    runner.refuse_tpus()
    phases = ("do_train", "do_predict", "do_eval")
    if not any(FLAGS[name].value for name in phases):
        if any(FLAGS[name].present for name in phases):
            raise ValueError("Nothing to do: at least one of --do_train, --do_predict and --do_eval must be true.")
        runner.take_default("do_train", True)
        runner.take_default("do_eval", True)
    version = "2.0" if FLAGS.version_2_with_negative else "1.1"
    needed = {"train_file": FLAGS.do_train, "predict_file": FLAGS.do_predict or FLAGS.do_eval}
    sampled = FLAGS.train_file is FLAGS.predict_file is None
    for name, part in (("train_file", "train"), ("predict_file", "dev")):
        if needed[name] and FLAGS[name].value is None:
            if not sampled:
                raise ValueError(f"--{name} is required.")
            runner.take_default(name, os.path.join(_SAMPLES, f"{part}-v{version}.json"),
                                "a small sample made for this repository, not the real SQuAD")
    runner.resolve_model_flags()
    if FLAGS.output_dir is None:
        runner.take_default("output_dir", os.path.join("output", f"squad-v{version}"))


def validate_flags_or_throw(bert_config):
    """Checks what flags say together.

    Raises:
      ValueError: they contradict each other or the model.
    """
    if not any((FLAGS.do_train, FLAGS.do_predict, FLAGS.do_eval)):
        raise ValueError("At least one of --do_train, --do_predict and --do_eval must be true.")
    if FLAGS.max_seq_length > bert_config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={FLAGS.max_seq_length} is above the model's max_position_embeddings="
                         f"{bert_config.max_position_embeddings}. Lower it.")
    if FLAGS.max_seq_length <= FLAGS.max_query_length + 3:
        raise ValueError(f"--max_seq_length={FLAGS.max_seq_length} leaves no room for a context beside 3 special tokens and a "
                         f"question of --max_query_length={FLAGS.max_query_length}. Raise the one or lower the other.")
    if FLAGS.find_null_threshold and not (FLAGS.version_2_with_negative and FLAGS.do_eval):
        raise ValueError("--find_null_threshold needs --version_2_with_negative and --do_eval: it looks at questions without "
                         "an answer and at the right answers.")
    if FLAGS.do_train and FLAGS.tokens_per_micro_batch and not trims_training():
        raise ValueError("--tokens_per_micro_batch needs training to be trimmed. The published loss looks at padding too, so "
                         "that it is only with --trim_padding=true: pass that, or leave --tokens_per_micro_batch out.")


def trims_training():
    """Whether batches of the training are trimmed: only if asked for, as the published loss normalizes over padding too."""
    return FLAGS.trim_padding and FLAGS["trim_padding"].present > 0


def train_steps(examples):
    """The number of steps in which the flags' epochs are done; as published, an epoch has as many windows as questions."""
    return int(len(examples) / FLAGS.train_batch_size * FLAGS.num_train_epochs)


def read_examples():
    """Reads what the flags ask for: {"train", "eval": list of `SquadExample`}, and the right answers, or None."""
    examples, gold = {}, None
    if FLAGS.do_train:
        examples["train"] = read_squad_examples(FLAGS.train_file, True, FLAGS.version_2_with_negative)
        if train_steps(examples["train"]) < 1:
            raise ValueError(f"{len(examples['train'])} questions and --num_train_epochs={FLAGS.num_train_epochs} make no "
                             f"batch of --train_batch_size={FLAGS.train_batch_size}. Lower the batch size.")
    if FLAGS.do_predict or FLAGS.do_eval:
        examples["eval"] = read_squad_examples(FLAGS.predict_file, False, FLAGS.version_2_with_negative)
    if FLAGS.do_eval:
        gold = read_gold(FLAGS.predict_file)
        unanswerable = sum(not answers for answers in gold.values())
        if unanswerable and not FLAGS.version_2_with_negative:
            logging.warning("--predict_file=%s: %d of %d questions have no answer, and whatever is answered to them counts as "
                            "wrong. If it is of SQuAD 2.0, pass --version_2_with_negative.", FLAGS.predict_file, unanswerable,
                            len(gold))
    return examples, gold


def main(_):
    """Runs what the flags ask for."""
    runner.log_devices()
    resolve_flags()
    bert_config = runner.load_config()
    validate_flags_or_throw(bert_config)
    tokenizer = runner.load_tokenizer(bert_config)
    runner.check_output_dir()
    runner.check_starting_weights(bert_config, head_shapes(bert_config), FLAGS.do_train)
    examples, gold = read_examples()

    num_train_steps = train_steps(examples.get("train", ()))
    build_model_fn = functools.partial(
        model_fn_builder, bert_config, FLAGS.init_checkpoint, FLAGS.learning_rate, num_train_steps,
        int(num_train_steps * FLAGS.warmup_proportion), FLAGS.use_tpu, use_one_hot_embeddings=FLAGS.use_tpu)
    reader = runner.create_estimator(build_model_fn, bert_config, functools.partial(feature_fields, is_training=True),
                                     predict_batch_size=FLAGS.predict_batch_size, num_train_steps=num_train_steps)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    lengths = FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length

    def input_fn(part, is_training):
        """Writes the part's windows to output_dir; returns the input_fn that reads them."""
        path = os.path.join(FLAGS.output_dir, f"{part}.tf_record")
        windows = file_based_convert_examples_to_features(examples[part], tokenizer, *lengths, is_training, path,
                                                          FLAGS.num_workers)
        logging.info("%s: %d questions, %d windows.", path, len(examples[part]), windows)
        return input_fn_builder(path, FLAGS.max_seq_length, is_training, drop_remainder=is_training,
                                trim_padding=trims_training() if is_training else FLAGS.trim_padding,
                                by_tokens=is_training and FLAGS.tokens_per_micro_batch > 0)

    if FLAGS.do_train:
        logging.info("Training on %d questions, %d steps of %d.", len(examples["train"]), num_train_steps,
                     FLAGS.train_batch_size)
        reader.train(input_fn("train", True), max_steps=num_train_steps)
    if "eval" in examples:
        logging.info("Answering %d questions.", len(examples["eval"]))
        results = (RawResult(int(result["unique_ids"]), *(_padded(result[name]) for name in ("start_logits", "end_logits")))
                   for result in input_pipeline.in_order(reader.predict(input_fn("eval", False))))
        features = generate_features(examples["eval"], tokenizer, *lengths, is_training=False, report=False)
        write_answers(examples["eval"], features, results, gold)


def _padded(logits):
    """Logits of a trimmed sequence [≤ F] as those of a whole one, with hardly any chance for what was cut off."""
    return np.pad(logits, (0, FLAGS.max_seq_length - len(logits)), constant_values=_CUT_OFF)


def write_answers(examples, features, results, gold):
    """Writes the answers to output_dir, and with the right answers, the scores and a report to look at.

    Args:
      examples: list of `SquadExample`.
      features: iterable of their `InputFeatures`.
      results: iterable of their `RawResult`.
      gold: see `squad_data.read_gold`, or None.
    """
    def path(name):
        return os.path.join(FLAGS.output_dir, name)

    version_2, threshold = FLAGS.version_2_with_negative, FLAGS.null_score_diff_threshold
    answers = squad_predictions.select_answers(examples, features, results, FLAGS.n_best_size, FLAGS.max_answer_length,
                                               FLAGS.do_lower_case, version_2, FLAGS.verbose_logging)
    predictions = squad_predictions.write_nbest(answers, path("nbest_predictions.json"))
    if FLAGS.find_null_threshold:
        threshold = squad_predictions.find_null_threshold(gold, predictions)
        logging.info("Best --null_score_diff_threshold on %s: %s.", FLAGS.predict_file, threshold)
    texts = squad_predictions.write_answers(predictions, path("predictions.json"),
                                            path("null_odds.json") if version_2 else None, path("answer_offsets.json"),
                                            threshold)
    squad_report.write_report(path("predictions.html"), examples, predictions, gold, threshold)
    logging.info("Answers: %s; to look at: %s.", path("predictions.json"), path("predictions.html"))
    if gold is not None:
        odds = squad_predictions.null_odds(predictions) if version_2 else None
        scores = squad_predictions.evaluate(gold, texts, version_2, odds)
        if version_2:
            scores["null_score_diff_threshold"] = threshold
        input_pipeline.write_text(path("eval_results.json"), json.dumps(scores, indent=2) + "\n")
        logging.info("Results, in %s:\n%s", path("eval_results.json"),
                     "\n".join(f"  {name} = {value}" for name, value in scores.items()))


if __name__ == "__main__":
    define_flags()
    runner.run(main)
