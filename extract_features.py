"""Extracts BERT's vectors of text: for each chosen layer, one vector for each token or for each line.

    python extract_features.py --input_file=text.txt --output_file=features.jsonl --layers=-1,-2,-3,-4

This command uses the installed model. A line "a ||| b" is a pair of texts. The next command writes only one
vector for each line. Its output file is about a hundred times smaller than the file of the first command:

    python extract_features.py --input_file=text.txt --output_file=vectors.npz --layers=-1 --pooling=mean \\
      --output_dtype=float16 --vocab_file=$BERT_DIR/vocab.txt \\
      --bert_config_file=$BERT_DIR/bert_config.json --init_checkpoint=$BERT_DIR/bert_model.ckpt \\
      --max_seq_length=128
"""

import contextlib
import os

from bertlib.commands import common_flags, devices, launch

from absl import flags, logging
import numpy as np

from bertlib.data import corpus, unknown_tokens
from bertlib.estimator.step_config import StepConfig
from bertlib.runs import checks, entries, model_config, record_content, tokenizer_flags
from bertlib.runs.input_paths import refuse_directory, require_file
from bertlib.system import files, fingerprints, locks, replica_group
from bertlib.tasks import shared_flags, starting_weights
from bertlib.tasks.classification import feature_extraction
from bertlib.tasks.classification.classifier_data import _truncate_seq_pair  # noqa: F401  a public name
from bertlib.tasks.classification.feature_extraction import (  # noqa: F401  public names of this script
    InputExample,
    InputFeatures,
    convert_examples_to_features,
    input_fn_builder,
    model_fn_builder,
    read_examples,
)

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

# Formats that are recognized by the file extension.
_FORMATS_BY_ENDING = "npz", "tfrecord"

ENTRIES = entries.section("Vectors", None, [
    entries.Path("input_file", None,
                 'Text file in UTF-8: one text in each line, or a pair of texts with " ||| " between them.'),
    entries.Path("output_file", None, "Output file."),
    entries.Text("layers", "-1,-2,-3,-4",
                 "Layers to extract, separated by commas. Layer 0 is the first layer, and layer -1 is the "
                 "last layer."),
    entries.Choice("pooling", "none", feature_extraction.POOLING,
                   "Vectors to write. none: one vector for each token. cls: the vector of [CLS] for each "
                   "line. mean: the mean vector of all tokens for each line."),
    entries.Choice("output_format", "jsonl", ["jsonl", *_FORMATS_BY_ENDING],
                   "Format of the output file. The default is the format of the published script. If the "
                   "name of --output_file ends in .npz or .tfrecord, that format is the default."),
    entries.Choice("output_dtype", "float32", ["float32", "float16"],
                   "Data type of the vectors with --output_format=npz or --output_format=tfrecord."),
    entries.Integer("batch_size", 32, "Number of lines in a batch.", least=1),
    entries.Switch("use_one_hot_embeddings", False,
                   "Compute the embedding lookup as a matrix product. The result is the same."),
]) + shared_flags.model(max_seq_length=128) + shared_flags.TOKENIZER + shared_flags.REPLICAS + (
    shared_flags.TPUS)

common_flags.define(ENTRIES)


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default.

    Raises:
      ValueError, OSError: a required flag is missing, or a flag has an unusable value.
    """
    checks.refuse_tpus(settings)
    if not settings.input_file:
        raise ValueError("--input_file is required. Name a text file with one text on each line.")
    require_file(settings, "input_file")
    ending = os.path.splitext(settings.output_file or "")[1].lower().removeprefix(".")
    if ending in _FORMATS_BY_ENDING and not settings.is_given("output_format"):
        settings.set_default("output_format", ending, "the ending of --output_file")
    if settings.output_dtype == "float16" and settings.output_format == "jsonl":
        raise ValueError("--output_dtype=float16 has no effect with --output_format=jsonl, because numbers "
                         "in JSON have no data type. Pass --output_format=npz or --output_format=tfrecord.")
    model_config.resolve_model_flags(settings)
    if not settings.init_checkpoint:
        raise ValueError("--init_checkpoint is required: the vectors of a model with random weights are "
                         "useless.")
    if not settings.output_file:
        settings.set_default("output_file", os.path.join("output", f"features.{settings.output_format}"))
    refuse_directory(settings)
    checks.refuse_overwriting(settings, {"input_file": [settings.input_file]},
                              {"output_file": [settings.output_file]})


def layer_indexes(settings, config):
    """Returns --layers as a list of int.

    Raises:
      ValueError: --layers is not a list of whole numbers, or the model does not have one of the layers.
    """
    try:
        indexes = [int(text) for text in settings.layers.split(",")]
    except ValueError:
        raise ValueError(f"--layers={settings.layers} is not a list of whole numbers. Pass whole numbers "
                         "with commas between them, such as -1,-2.") from None
    count = config.num_hidden_layers
    for index in indexes:
        if not -count <= index < count:
            raise ValueError(f"--layers={settings.layers}: the model has no layer {index}. Its {count} "
                             f"layers have the numbers 0 to {count - 1}, or -{count} to -1.")
    return indexes


def survey(settings, config, generate_features):
    """Reads the whole input once, to find its errors before anything is written.

    Args:
      settings: a `Settings`.
      config: the `modeling.BertConfig`.
      generate_features: function without arguments that returns an iterator of `InputFeatures`.

    Returns:
      (number of lines, number of tokens, fingerprint of the input).

    Raises:
      ValueError: the input is empty, or it contains a pair of texts although the model has only one segment.
    """
    lines = tokens = num_full = 0
    digest = fingerprints.new_digest()
    for feature in generate_features():
        lines += 1
        digest.update(repr((feature.tokens, feature.input_ids, feature.input_type_ids)).encode())
        if any(feature.input_type_ids):
            checks.check_segments(config, f"line {lines} of --input_file={settings.input_file} is a pair")
        tokens += len(feature.tokens)
        num_full += len(feature.tokens) == settings.max_seq_length
    if not lines:
        raise ValueError(f"--input_file={settings.input_file} is empty. Name a file with at least one line.")
    if num_full:
        logging.warning("%d of %d lines reach --max_seq_length=%d; lines with more tokens are truncated.",
                        num_full, lines, settings.max_seq_length)
    return lines, tokens, digest.hexdigest()


def main(_):
    """Extracts the vectors and writes the output file."""
    devices.log_devices()
    settings = common_flags.read_settings()
    resolve_flags(settings)
    config = model_config.load_config(settings)
    tokenizer = tokenizer_flags.load_tokenizer(settings, config.vocab_size)
    tokenizer_flags.grow_vocab_size(config, tokenizer.vocab)
    indexes = layer_indexes(settings, config)
    start = starting_weights.with_marker_rows(settings, config, model_config.open_starting_weights(settings))
    starting_weights.check_fits(start, config, {})

    def generate_features():
        examples = feature_extraction.generate_examples(settings.input_file)
        return feature_extraction.generate_features(examples, settings.max_seq_length, tokenizer)

    lines, tokens, fingerprint = survey(settings, config, generate_features)
    sample = corpus.sample_lines([settings.input_file], unknown_tokens.SAMPLE)
    unknown_tokens.warn_if_many({settings.input_file: sample}, lambda line: [line], tokenizer)
    logging.info("Extracting layers %s of %d lines, %d tokens.", settings.layers, lines, tokens)
    group = replica_group.current()
    if group:
        # The replicas compare the fingerprint of the tokens and ids. It differs if the lines, the vocabulary
        # or the tokenizer's settings differ. So these three are not compared separately.
        record_content.check_replicas_agree(group, settings, dict(
            input=f"{lines} lines, {tokens} tokens ({fingerprint[:8]})", bert_config=config.to_dict(),
            init_checkpoint=record_content.hash_checkpoint(settings.init_checkpoint)))
    vector_bytes = len(indexes) * config.hidden_size * np.dtype(settings.output_dtype).itemsize
    model_fn = model_fn_builder(config, start, indexes, settings.use_tpu,
                                settings.use_one_hot_embeddings, settings.pooling,
                                StepConfig(precision=settings.precision))
    with contextlib.ExitStack() as stack:
        if replica_group.is_first():
            files.make_parent(settings.output_file)
            stack.enter_context(locks.lock_file(settings.output_file))
        run = stack.enter_context(feature_extraction.running(model_fn))
        rows = feature_extraction.extract(generate_features(), run, len(indexes), settings.batch_size,
                                          vector_bytes, settings.output_dtype, group)
        rows = files.with_progress(rows, lines, "Extracting line")
        if not replica_group.is_first():
            for _ in rows:  # replica 0 writes the vectors of all replicas
                pass
        elif settings.output_format == "npz":
            count = tokens if settings.pooling == "none" else lines
            feature_extraction.write_npz(settings.output_file, rows, indexes,
                                         (count, len(indexes), config.hidden_size), settings.output_dtype)
        else:
            write = {"jsonl": feature_extraction.write_jsonl, "tfrecord": feature_extraction.write_tfrecord}
            write[settings.output_format](settings.output_file, rows, indexes)
    if group:
        group.barrier()  # waits until replica 0 has written the file
    if replica_group.is_first():  # only this process has written the file; other machines may lack it
        logging.info("Vectors: %s, %d bytes.", settings.output_file, files.size(settings.output_file))


if __name__ == "__main__":
    launch.run(main)
