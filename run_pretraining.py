"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py

This command trains a tiny model on the sample text, which takes a few minutes. The next command trains on
records that were written by create_pretraining_data.py:

    python run_pretraining.py --do_train=true --do_eval=true --input_file='/tmp/data/*.tfrecord' \\
      --output_dir=/tmp/output/ --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --train_batch_size=32 --max_seq_length=128 \\
      --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

Leave --init_checkpoint out to start from random weights.
"""

import functools
import itertools
import os

from absl import flags, logging

from bertlib.command_line import common_flags, launch

from bertlib.data import record_files
from bertlib.flag_table import training
from bertlib.replicas import replica_group
from bertlib.runs import (
    checks,
    estimator_setup,
    head_labels,
    learning_curve,
    model_config,
    results,
    run_record,
    vocabularies,
)
from bertlib.runs.settings import sample_path
from bertlib.system import files, locks
from bertlib.tasks.pretraining import corpus, pretraining_data, pretraining_metrics, pretraining_stream
from bertlib.tasks.pretraining.pretraining_head import (  # noqa: F401  public names of this script
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

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

# Default values of flags for a training on the sample.
_SAMPLE_FLAGS = dict(max_seq_length=64, max_predictions_per_seq=10, num_train_steps=1500,
                     num_warmup_steps=150, learning_rate=1e-3, eval_batch_size=32, save_checkpoints_steps=150,
                     log_steps=50)
# Number of records that are checked in each file before the training.
_CHECKED_RECORDS = 100


ENTRIES = training.COMMANDS["run_pretraining"]

common_flags.define(ENTRIES)


# --- Checks ----------------------------------------------------------------------------------------------


def check_records(settings, flag, paths, config):
    """Checks the first records of some files.

    Args:
      settings: a `Settings`.
      flag: name of the flag that names the files. It is used in messages.
      paths: list of str.
      config: the `modeling.BertConfig`.

    Raises:
      ValueError: the records have other lengths than the flags say, a record contains a token id that the
        model does not have, or a record is not usable.
    """
    fields = pretraining_data.feature_fields(settings.max_seq_length, settings.max_predictions_per_seq,
                                             config.vocab_size, config.type_vocab_size)
    for path in paths:
        try:
            records = record_files.read_first_records(path, _CHECKED_RECORDS)
        except ValueError as error:
            raise ValueError(f"--{flag}: {error}") from error
        for number, record in enumerate(records):
            try:
                features = record_files.parse_features(record)
            except Exception as error:  # different implementations of protobuf raise different errors
                raise ValueError(f"--{flag}: {path} contains a record that is not a tf.train.Example. Name "
                                 "files that create_pretraining_data.py wrote.") from error
            for name, length in (("input_ids", "max_seq_length"),
                                 ("masked_lm_positions", "max_predictions_per_seq")):
                actual = len(features[name].int64_list.value)
                if actual and actual != getattr(settings, length):
                    raise ValueError(f"--{length}={getattr(settings, length)}, but {path} was written with "
                                     f"--{length}={actual}. Pass --{length}={actual}, or write the file "
                                     f"again with create_pretraining_data.py "
                                     f"--{length}={getattr(settings, length)}.")
            largest = max([0, *features["input_ids"].int64_list.value,
                           *features["masked_lm_ids"].int64_list.value])
            if largest >= config.vocab_size:
                raise ValueError(f"--{flag}: {path} contains the token id {largest}, but vocab_size in "
                                 f"{settings.bert_config_file} is {config.vocab_size}. Pass the "
                                 "--bert_config_file of a model with the vocabulary of the records.")
            problem = record_files.find_problem(record, fields)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Write the file "
                                 "again, or remove the record from the file.")
            problem = settings.trim_padding is not False and record_files.find_trimming_problem(
                record, pretraining_data.SEQUENCES[0], pretraining_data.POSITIONS)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Such a record "
                                 "cannot be trimmed. Write the file again, or pass --trim_padding=false.")


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default. Returns whether the sample is used.

    Raises:
      ValueError: a required flag is missing, or two flags contradict each other.
    """
    checks.refuse_tpus(settings)
    settings.choose_phases()
    if settings.output_dir is None:
        settings.set_default("output_dir", os.path.join("output", "pretraining"))
    run_record.inherit_settings(settings, "pre-training")
    sampled = (settings.input_file is settings.eval_file is settings.bert_config_file
               is settings.init_checkpoint is None)
    if sampled:
        sample = sample_path("pretraining")
        # The records of the sample lie in the output directory, but its configuration lies in the sample.
        run_record.refuse_sample(settings, sample, "--input_file", ("input_file", "bert_config_file"))
        logging.info("--input_file not given: using %s, a small text made for this repository", sample)
        for name, value in {"bert_config_file": os.path.join(sample, "bert_config.json"),
                            "vocab_file": os.path.join(sample, "vocab.txt"), "do_lower_case": True,
                            **_SAMPLE_FLAGS,
                            **({"eval_each_checkpoint": True} if settings.do_train else {})}.items():
            if not settings.is_resolved(name):
                settings.set_default(name, value)
    model_config.fill_in_model_files(settings)
    for name in ("input_file", "bert_config_file"):
        if not getattr(settings, name) and not (sampled and name == "input_file"):
            raise ValueError(f"--{name} is required.")
    if settings.num_warmup_steps >= settings.num_train_steps and settings.do_train:
        logging.warning("--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate never "
                        "gets to --learning_rate.", settings.num_warmup_steps, settings.num_train_steps)
    return sampled


def make_sample(settings):
    """Writes records of the sample text to the output directory, and sets --input_file and --eval_file to
    these records.

    Raises:
      ValueError: the directory contains records of the sample text that were written with other settings.
    """
    sample = sample_path("pretraining")
    directory_flag = "output_dir" if settings.do_train else "results_dir"
    directory = getattr(settings, directory_flag)
    tokenizer = tokenization.FullTokenizer(os.path.join(sample, "vocab.txt"))
    group = replica_group.current()
    files.make_directories(directory)
    with locks.lock_directory(directory):
        for part, flag, passes in (("train", "input_file", 10), ("dev", "eval_file", 2)):
            path = os.path.join(directory, f"{part}.tf_record")
            setattr(settings, flag, path)
            if group and not group.is_first:
                continue
            recipe = pretraining_data.Recipe(max_seq_length=settings.max_seq_length, dupe_factor=passes,
                                             max_predictions_per_seq=settings.max_predictions_per_seq)
            try:
                pretraining_stream.write_training_data([os.path.join(sample, f"{part}.txt")], [path],
                                                       tokenizer, recipe)
            except pretraining_stream.OtherRunError as error:
                raise ValueError(f"--{directory_flag}={directory} contains records of the sample text with "
                                 f"other settings: {error.changes}. Pass another --{directory_flag}, or the "
                                 "earlier settings.") from error
    if group:
        group.barrier()


def list_files(settings, name):
    """Returns the files that a flag names by paths and globs. Files without a record are left out.

    Raises:
      FileNotFoundError, IsADirectoryError: see `corpus.find_input_files`.
      ValueError: no file contains a record.
    """
    paths = corpus.find_input_files(
        [pattern.strip() for pattern in getattr(settings, name).split(",") if pattern.strip()], name)
    filled = [path for path in paths if files.size(path)]
    if not filled:
        raise ValueError(f"--{name}={getattr(settings, name)}: all these files are empty. Name files that "
                         "create_pretraining_data.py wrote.")
    if len(filled) < len(paths):
        logging.warning("--%s: %d of the %d files are empty. They are left out.", name,
                        len(paths) - len(filled), len(paths))
    return filled


def count_evaluated(settings, paths):
    """Returns the number of records in some files that an evaluation reads. --max_eval_steps and
    --eval_batch_size limit this number."""
    limit, count = settings.max_eval_steps * settings.eval_batch_size, 0
    for path in paths:
        if count == limit:
            break
        count += record_files.count_records(path, limit - count)
    return count


def main(_):
    """Runs the phases that the flags name: training, evaluation."""
    launch.log_devices()
    settings = common_flags.read_settings()
    sampled = resolve_flags(settings)
    config = model_config.load_config(settings)
    vocabularies.check_vocabulary(settings, config)
    checks.check_segments(config, "an example of pre-training is a pair")
    checks.check_output_dir(settings)
    learning_curve.check(settings, needs_do_eval=False)
    init_checkpoint = head_labels.starting_checkpoint(settings, head_labels.Head("pre-training"))
    checks.check_starting_weights(settings, config, head_shapes(config), init_checkpoint)
    init_checkpoint = model_config.without_reinitialized(settings, config, init_checkpoint)
    checks.check_disk(settings, settings.num_train_steps, head_shapes(config), config)
    if sampled:
        make_sample(settings)
    paths_of = {"input_file": list_files(settings, "input_file")}
    paths_of["eval_file"] = (list_files(settings, "eval_file") if settings.eval_file
                             else paths_of["input_file"])
    checks.refuse_overwriting(settings, paths_of,
                              checks.list_overwritten_files(settings, ["eval_results.txt"], []))
    for name, paths in paths_of.items():
        check_records(settings, name, paths, config)
    vocabulary = vocabularies.resolve_from_records(settings,
                                                   list(dict.fromkeys(itertools.chain(*paths_of.values()))))
    vocabularies.check_vocabulary(settings, config)

    model_fn = model_fn_builder(
        config, init_checkpoint, settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps,
        use_tpu=False, use_one_hot_embeddings=False)
    fields = functools.partial(pretraining_data.feature_fields,
                               max_predictions_per_seq=settings.max_predictions_per_seq)
    model = estimator_setup.TrainableModel(config, model_fn, fields, BATCH_TOTALS,
                                           padding_is_removable=True)
    record = run_record.RunRecord(
        settings, settings.num_train_steps, command="run_pretraining.py", task="pre-training", config=config,
        task_type="pre-training", vocabulary=vocabulary,
        train_data=run_record.hash_files(paths_of["input_file"]) if settings.do_train else None,
        dev_data=run_record.describe_dev_files(
            settings, paths_of["eval_file"], lambda: count_evaluated(settings, paths_of["eval_file"])),
        trim_padding=estimator_setup.trim_padding(settings, model.trim_padding_by_default))
    trainer, step = estimator_setup.create_estimator(settings, model, settings.num_train_steps)
    lengths = settings.max_seq_length, settings.max_predictions_per_seq
    sizes = dict(vocab_size=config.vocab_size, type_vocab_size=config.type_vocab_size)

    def input_fn(flag, is_training=False):
        # In an evaluation, padding is not trimmed, because trimming sorts the examples by length. The first
        # --max_eval_steps batches would then contain too many of the long examples.
        return input_fn_builder(
            paths_of[flag], *lengths, is_training=is_training,
            trim_padding=is_training and step.trim_padding, **sizes)

    def evaluate(checkpoint):
        return trainer.evaluate(
            input_fn("eval_file"), settings.max_eval_steps, checkpoint_path=checkpoint,
            metrics=functools.partial(pretraining_metrics.evaluate, vocab_size=config.vocab_size))

    with estimator_setup.locked_directories(settings, record):
        if settings.do_train:
            curve = learning_curve.create_learning_curve(
                settings, evaluate, "Masked words that were predicted correctly",
                {"masked_lm_accuracy": "the model", "masked_lm_baseline": "the most frequent word"},
            ) if learning_curve.is_requested(settings) else None
            estimator_setup.log_training(settings, len(paths_of["input_file"]), "file",
                                         settings.num_train_steps)
            trainer.train(input_fn("input_file", is_training=True), max_steps=settings.num_train_steps,
                          curve=curve)
        if settings.do_eval:
            metrics = evaluate(estimator_setup.evaluated_weights(settings))
            results.write_results(settings.results_dir, "eval_results.txt", metrics)
            results.record_evaluation(settings, "dev", metrics)


if __name__ == "__main__":
    launch.run(main)
