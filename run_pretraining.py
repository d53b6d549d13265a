"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py

does it with a tiny model on the sample text, in some minutes. With the records of create_pretraining_data.py:

    python run_pretraining.py --do_train=true --do_eval=true --input_file='/tmp/data/*.tfrecord' --output_dir=/tmp/output/ \\
      --bert_config_file=$BERT_DIR/bert_config.json --init_checkpoint=$BERT_DIR/bert_model.ckpt --train_batch_size=32 \\
      --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

Leave --init_checkpoint out to start from random weights.
"""

import functools
import os

from absl import flags, logging

from bertlib.commands import checks, common_flags, launch, learning_curve, results, training
from bertlib.runtime import files, record_files
from bertlib.tasks import corpus, pretraining_data, pretraining_stream
from bertlib.tasks.pretraining import (  # noqa: F401  public names of this script that live there
    BATCH_TOTALS,
    _decode_record,
    gather_indexes,
    get_masked_lm_output,
    get_next_sentence_output,
    head_shapes,
    input_fn_builder,
    metric_fn,
    model_fn_builder,
)
import tokenization

FLAGS = flags.FLAGS

# What the sample needs, where a flag is not given.
_SAMPLE_FLAGS = dict(max_seq_length=64, max_predictions_per_seq=10, num_train_steps=1500, num_warmup_steps=150,
                     learning_rate=1e-3, eval_batch_size=32, save_checkpoints_steps=150, log_steps=50,
                     eval_each_checkpoint=True)
# Records of each file that are looked at before training.
_CHECKED_RECORDS = 100


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Task"):
        flags.DEFINE_string("input_file", None, "TFRecords of create_pretraining_data.py: files or globs, with commas "
                            "between.")
        flags.DEFINE_string("eval_file", None, "Records to evaluate on; --input_file if not given.")
        flags.DEFINE_bool("do_train", False, "Train.")
        flags.DEFINE_bool("do_eval", False, "Evaluate.")
        flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens of an example, as the records were made with.",
                             lower_bound=1)
        flags.DEFINE_integer("eval_batch_size", 8, "Examples in a batch of the evaluation.", lower_bound=1)
        flags.DEFINE_integer("max_eval_steps", 100, "Batches of the evaluation at most.", lower_bound=1)
        flags.DEFINE_bool("eval_each_checkpoint", False, "With --do_train: evaluate each checkpoint when it is saved, into "
                          "learning_curve.tsv and, as a picture, learning_curve.svg.")
    common_flags.define_model_flags(max_seq_length=128)
    with common_flags.section("Training"):
        flags.DEFINE_integer("num_train_steps", 100000, "Training steps.", lower_bound=1)
        flags.DEFINE_integer("num_warmup_steps", 10000, "Steps in which the learning rate rises.", lower_bound=0)
    common_flags.define_training_flags()
    common_flags.define_tpu_flags()


define_flags()


# --- Checks ----------------------------------------------------------------------------------------------


def check_records(flag, paths, config):
    """Looks at the first records of some files.

    Raises:
      ValueError: they were made with other lengths than the flags', or with a larger vocabulary than the model's.
    """
    for path in paths:
        try:
            records = record_files.first_records(path, _CHECKED_RECORDS)
        except ValueError as error:
            raise ValueError(f"--{flag}: {error}") from error
        for features in map(record_files.features_of, records):
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
    checks.refuse_tpus()
    if not (FLAGS.do_train or FLAGS.do_eval):
        if FLAGS["do_train"].present or FLAGS["do_eval"].present:
            raise ValueError("Nothing to do: at least one of --do_train and --do_eval must be true.")
        checks.take_default("do_train", True)
        checks.take_default("do_eval", True)
    sampled = FLAGS.input_file is FLAGS.eval_file is FLAGS.bert_config_file is FLAGS.init_checkpoint is None
    if sampled:
        sample = checks.sample("pretraining")
        logging.info("--input_file not given: using %s, a small text made for this repository", sample)
        for name, value in {"bert_config_file": os.path.join(sample, "bert_config.json"), **_SAMPLE_FLAGS}.items():
            if not FLAGS[name].present:
                checks.take_default(name, value)
    for name in () if sampled else ("input_file", "bert_config_file"):
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is required.")
    if FLAGS.output_dir is None:
        checks.take_default("output_dir", os.path.join("output", "pretraining"))
    if FLAGS.num_warmup_steps >= FLAGS.num_train_steps and FLAGS.do_train:
        logging.warning("--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate never gets to "
                        "--learning_rate.", FLAGS.num_warmup_steps, FLAGS.num_train_steps)
    return sampled


def make_sample():
    """Turns the sample text into records in output_dir: flags input_file and eval_file."""
    sample = checks.sample("pretraining")
    tokenizer = tokenization.FullTokenizer(os.path.join(sample, "vocab.txt"))
    for part, flag, passes in (("train", "input_file", 10), ("dev", "eval_file", 2)):
        path = os.path.join(FLAGS.output_dir, f"{part}.tf_record")
        recipe = pretraining_data.Recipe(max_seq_length=FLAGS.max_seq_length, dupe_factor=passes,
                                         max_predictions_per_seq=FLAGS.max_predictions_per_seq)
        pretraining_stream.write_training_data([os.path.join(sample, f"{part}.txt")], [path], tokenizer, recipe)
        setattr(FLAGS, flag, path)


def files_of_flag(name):
    """Returns the files that a flag names."""
    return corpus.find_input_files([pattern.strip() for pattern in FLAGS[name].value.split(",") if pattern.strip()])


def main(_):
    """Runs what the flags ask for."""
    launch.log_devices()
    sampled = resolve_flags()
    config = checks.load_config()
    checks.check_output_dir()
    checks.check_starting_weights(config, head_shapes(config), FLAGS.do_train)
    if sampled:
        make_sample()
    paths_of = {name: files_of_flag(name if FLAGS[name].value else "input_file") for name in ("input_file", "eval_file")}
    for name, paths in paths_of.items():
        check_records(name, paths, config)

    build_model_fn = functools.partial(
        model_fn_builder, config, FLAGS.init_checkpoint, FLAGS.learning_rate, FLAGS.num_train_steps, FLAGS.num_warmup_steps,
        FLAGS.use_tpu, use_one_hot_embeddings=FLAGS.use_tpu)
    fields = functools.partial(pretraining_data.feature_fields, max_predictions_per_seq=FLAGS.max_predictions_per_seq)
    trainer = training.create_estimator(build_model_fn, config, fields, BATCH_TOTALS, FLAGS.eval_batch_size,
                                        num_train_steps=FLAGS.num_train_steps)
    lengths = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    files.make_directories(FLAGS.output_dir)

    def evaluate():
        return trainer.evaluate(input_fn_builder(paths_of["eval_file"], *lengths, is_training=False), FLAGS.max_eval_steps)

    if FLAGS.do_train:
        listeners = [learning_curve.LearningCurve(FLAGS.output_dir, evaluate, "Words predicted correctly, of those masked", {
            "masked_lm_accuracy": "the model", "masked_lm_baseline": "the most frequent word"})]
        logging.info("Training on %d files, %d steps of %d.", len(paths_of["input_file"]), FLAGS.num_train_steps,
                     FLAGS.train_batch_size)
        trainer.train(input_fn_builder(paths_of["input_file"], *lengths, is_training=True), max_steps=FLAGS.num_train_steps,
                      saving_listeners=listeners if FLAGS.eval_each_checkpoint else None)
    if FLAGS.do_eval:
        results.write_results("eval_results.txt", evaluate())


if __name__ == "__main__":
    launch.run(main)
