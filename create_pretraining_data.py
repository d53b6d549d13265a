"""Makes the data that run_pretraining.py trains on: TFRecords of masked text.

    python create_pretraining_data.py --input_file='corpus/*.txt.gz' --output_file=/tmp/data/0.tfrecord,/tmp/data/1.tfrecord \\
      --vocab_file=$BERT_DIR/vocab.txt --do_lower_case=true --max_seq_length=128 --max_predictions_per_seq=20 \\
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5 --num_workers=0

The text has one sentence a line and a blank line between documents. Killed, the same command goes on where it was.
"""

import gc
import os

from absl import flags, logging

from bertlib.commands import checks, common_flags, launch
from bertlib.commands.settings import Settings
from bertlib.tasks import corpus, pretraining_data, pretraining_stream
from bertlib.tasks.pretraining_data import (  # noqa: F401  public names of this script that live there
    TrainingInstance,
    create_float_feature,
    create_instances_from_document,
    create_int_feature,
    create_masked_lm_predictions,
    create_training_instances,
    truncate_seq_pair,
    write_instance_to_example_files,
)

FLAGS = flags.FLAGS  # as the original has it, for scripts that import this one


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Files"):
        flags.DEFINE_string("input_file", None, "Text files, or globs of them, with commas between; .gz too.")
        flags.DEFINE_string("output_file", None, "TFRecord files, with commas between; instances go to them in turn.")
    with common_flags.section("Instances"):
        flags.DEFINE_integer("max_seq_length", 128, "Tokens of an instance, [CLS] and [SEP] included. Train with the same.",
                             lower_bound=5, upper_bound=1 << 16)
        flags.DEFINE_integer("max_predictions_per_seq", 20,
                             "Most tokens to predict in an instance; about max_seq_length * masked_lm_prob. Train with the "
                             "same.",
                             lower_bound=1)
        flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens to predict.")
        flags.DEFINE_bool("do_whole_word_mask", False, "Mask all pieces of a word or none of them.")
        flags.DEFINE_bool("next_sentence", True,
                          "Make sentence pairs, half of them random. If false, instances are full sentences one after the "
                          "other, with [SEP] where a document ends, all in segment 0 and with next-sentence label 0.")
        flags.DEFINE_float("short_seq_prob", 0.1,
                           "Share of the passes over a document, or with --next_sentence=false of the instances, that aim at "
                           "a random, shorter length.")
        flags.DEFINE_integer("dupe_factor", 10, "Passes over the text, each with other masks and pairs.", lower_bound=1)
        flags.DEFINE_integer("random_seed", 12345, "Seed of everything random: the same seed and text give the same files.")
        flags.DEFINE_integer("shuffle_buffer_documents", 1000,
                             "Documents that are shuffled among one another, and from which random next sentences come. Each "
                             "process holds so many in memory, with their instances; the files depend on it.", lower_bound=2)
    common_flags.define_tokenizer_flags()
    with common_flags.section("Memory and speed"):
        flags.DEFINE_integer("num_workers", 1,
                             "Processes, 0 for one a core; the files are the same. Each works on shuffle_buffer_documents at "
                             "a time, so that more processes need more documents than that.", lower_bound=0)
    flags.register_validator("masked_lm_prob", lambda value: value is not None and 0 < value <= 1,
                             "must be above 0 and at most 1")
    flags.register_validator("short_seq_prob", lambda value: value is not None and 0 <= value <= 1,
                             "must be a number from 0 to 1")


define_flags()


def paths_of_flag(settings, name):
    """Returns what a flag lists."""
    paths = [path.strip() for path in (getattr(settings, name) or "").split(",") if path.strip()]
    if not paths:
        raise ValueError(f"--{name} is required.")
    return paths


def load_tokenizer(settings):
    """Returns the tokenizer that the flags describe."""
    if settings.vocab_file is settings.spm_model_file is None and (model := checks.installed_model()):
        settings.take_default("vocab_file", os.path.join(model, "vocab.txt"), "of the installed uncased model")
    tokenizer = checks.load_tokenizer(settings)
    if "[MASK]" not in tokenizer.vocab:
        raise ValueError(f"{settings.vocab_file or settings.spm_model_file} has no [MASK]. Rename an unused entry to it.")
    return tokenizer


def check_predictions(settings):
    """Warns if --max_predictions_per_seq is not about what --masked_lm_prob of --max_seq_length is."""
    length, share, most = settings.max_seq_length, settings.masked_lm_prob, settings.max_predictions_per_seq
    expected = max(1, round(length * share))
    if most < expected:
        logging.warning("--max_predictions_per_seq=%d leaves --masked_lm_prob=%g no room: of %d tokens %d would be predicted. "
                        "To predict that share, pass --max_predictions_per_seq=%d.", most, share, length, expected, expected)
    elif most > 2 * expected:
        logging.warning("--max_predictions_per_seq=%d is more than can be used: --masked_lm_prob=%g of %d tokens are %d. The "
                        "rest costs time in training; --max_predictions_per_seq=%d is enough.", most, share, length, expected,
                        expected)


def main(_):
    """Writes the data."""
    settings = Settings()
    gc.freeze()  # What TensorFlow holds stays; to look through it again and again costs a third of the time.
    input_files = corpus.find_input_files(paths_of_flag(settings, "input_file"))
    output_files = paths_of_flag(settings, "output_file")
    tokenizer = load_tokenizer(settings)
    check_predictions(settings)
    recipe = pretraining_data.Recipe(**{name: getattr(settings, name) for name in pretraining_data.Recipe._fields})
    manifest = pretraining_stream.write_training_data(
        input_files, output_files, tokenizer, recipe, settings.random_seed, settings.shuffle_buffer_documents,
        settings.num_workers,
        {name: getattr(settings, name) for name in ("do_lower_case", "protect_special_tokens")})
    logging.info("Wrote %s: %s", ", ".join(output_files), pretraining_stream.describe(manifest["statistics"]))


if __name__ == "__main__":
    launch.run(main, goes_on=True)
