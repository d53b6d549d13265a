"""Converts a BERT model between TensorFlow and Hugging Face (safetensors).

The following two commands convert weights, configuration and vocabulary. The first command converts to the
format of Hugging Face, the second command to the format of TensorFlow:

    python convert_checkpoint.py --input=$BERT_DIR/bert_model.ckpt --output=/tmp/hugging_face
    python convert_checkpoint.py --input=/tmp/hugging_face --output=/tmp/tensorflow

This command copies the weights of a training checkpoint, without the state of the training:

    python convert_checkpoint.py --input=/tmp/mrpc_output --output=/tmp/mrpc_weights --weights_only
"""

import os

from bertlib.commands import common_flags, model_writer

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import (
    checks,
    entries,
    file_names,
    model_config,
    model_files,
    output_directory,
    tokenizer_files,
)
from bertlib.system import files
from bertlib.tasks import head_labels
import modeling
import tokenization

# `_ARCHITECTURES` maps each Hugging Face class to the published names of the variables of its head. The class
# of a model is the first class in this table whose variables are all in the model.
_MASKED_LM = ("cls/predictions/output_bias", "cls/predictions/transform/dense/kernel",
              "cls/predictions/transform/dense/bias", "cls/predictions/transform/LayerNorm/gamma",
              "cls/predictions/transform/LayerNorm/beta")
_NEXT_SENTENCE = ("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias")
_ARCHITECTURES = {
    "BertForSequenceClassification": ("output_weights", "output_bias"),
    "BertForQuestionAnswering": ("cls/squad/output_weights", "cls/squad/output_bias"),
    "BertForPreTraining": _MASKED_LM + _NEXT_SENTENCE,
    "BertForMaskedLM": _MASKED_LM,
    "BertForNextSentencePrediction": _NEXT_SENTENCE,
    "BertModel": (),
}
# {published name of an activation: Hugging Face's name}. `modeling.BertConfig.from_dict` translates the names
# back.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "": "linear"}
_CONFIG = file_names.CONFIGS
_VOCABULARY, _TOKENIZER_CONFIG = file_names.VOCABULARY, tokenizer_files.TOKENIZER_CONFIG
_TOKENIZER = tokenizer_files.TOKENIZER


ENTRIES = entries.section("Conversion", None, [
    entries.Path("input", None,
                 "A TensorFlow checkpoint prefix, the output directory of a training, a Hugging Face BERT "
                 "directory, a .safetensors file, or hf: followed by the name of a model on the Hugging Face "
                 "Hub. By default, the installed model is used."),
    entries.Path("output", None,
                 f"Output directory. The TensorFlow format consists of {model_writer.TENSORFLOW_WEIGHTS}.* "
                 f"and {_CONFIG['tensorflow']}. The Hugging Face format consists of "
                 f"{model_writer.HUGGING_FACE_WEIGHTS} and {_CONFIG['hugging_face']}. Both formats also "
                 f"contain {_VOCABULARY} and {_TOKENIZER_CONFIG}."),
    entries.Choice("to", None, sorted(_CONFIG),
                   "Format of the output. With --weights_only, the default is --to=tensorflow. Otherwise, it "
                   "is --to=hugging_face for a TensorFlow input, and --to=tensorflow for a Hugging Face "
                   "input."),
    entries.Switch("weights_only", False,
                   "Copy a TensorFlow checkpoint in the same format, without the state of the training, such "
                   "as the step and the optimizer's variables. A conversion to the other format always "
                   "leaves this state out."),
    entries.Switch("force", False, "Replace existing model files in --output."),
    entries.Switch("published_config", False,
                   "With --to=tensorflow: write a bert_config.json that the published modeling.py can read. "
                   "If the activation is gelu_erf, the command writes gelu, the tanh form. Each activation "
                   "then changes by up to 0.0005."),
]) + entries.section("Configuration and vocabulary", None, [
    entries.Path("bert_config_file", None,
                 "The model's bert_config.json or config.json. Without this flag, the command reads this "
                 "file from the directory of --input."),
    entries.Path("vocab_file", None,
                 "The model's vocabulary, with one WordPiece in each line. Without this flag, the command "
                 "reads the vocabulary from the directory of --input."),
    entries.Switch("do_lower_case", None,
                   "Whether the model's tokenizer converts text to lower case. The value is written to "
                   f"{_TOKENIZER_CONFIG}. Without this flag, the command takes the value from "
                   f"{_TOKENIZER_CONFIG} in the directory of the vocabulary."),
])


# --- Input -----------------------------------------------------------------------------------------------


def open_input(settings):
    """Opens --input, and sets --to if it was not passed. Returns the `checkpoint_formats.Checkpoint`.

    Raises:
      ValueError, FileNotFoundError: --to is already the format of the input, or the input
        cannot be read.
    """
    source = model_config.open_starting_weights(settings, "input")
    if settings.to is None:
        other_format = {"tensorflow": "hugging_face", "hugging_face": "tensorflow"}[source.format]
        settings.set_default("to", "tensorflow" if settings.weights_only else other_format)
    if settings.to == source.format and not (settings.weights_only and source.format == "tensorflow"):
        raise ValueError(f"--to={settings.to}: {source.path} already has this format. Leave --to out. To "
                         "copy a TensorFlow checkpoint without the state of the training, pass "
                         "--weights_only.")
    if settings.published_config and (settings.to, source.format) != ("tensorflow", "hugging_face"):
        raise ValueError("--published_config=true has an effect only on a conversion from Hugging Face to "
                         "TensorFlow. Leave the flag out.")
    return source


def input_directory(source):
    """Returns the directory of a checkpoint. The configuration and the vocabulary should be there, too."""
    return checkpoint_formats.directory_of_checkpoint(source.path)


def read_config(settings, source):
    """Reads and checks --bert_config_file; returns a dict with the settings that the published format has."""
    names = dict.fromkeys((_CONFIG[source.format], *_CONFIG.values()), "bert_config_file")
    path = model_config.resolve_file(settings, names, [input_directory(source)])
    if path is None:
        raise ValueError(f"--bert_config_file is required: there is no {' or '.join(_CONFIG.values())} "
                         f"in the directory of --input={settings.input}.")
    content = checkpoint_formats.read_config(path)
    problems = model_config.config_problems(content)
    if content.get("tie_word_embeddings", True) is not True:
        problems.append("tie_word_embeddings=false is not supported: "
                        "the output layer of the published masked LM uses the word embeddings.")
    model_config.refuse_problems(path, problems)
    target = head_labels.target_of_config(content)
    # The settings below describe a head. A setting is kept only if the model of --input has a head to which
    # the setting applies.
    is_meaningful = {"id2label": head_labels.label_names(content, path) is not None,
                     "architectures": target is not None and not target.problem_type,
                     "problem_type": target is not None and target.problem_type is not None}
    for name, is_kept in is_meaningful.items():
        if not is_kept or "output_bias" not in source.shapes:
            content.pop(name, None)
    config = modeling.BertConfig.from_dict(content).to_dict()
    if settings.to == "tensorflow" and config["hidden_act"] == "gelu_erf":
        if settings.published_config:
            config["hidden_act"] = "gelu"
            logging.warning("--published_config=true: hidden_act in bert_config.json is gelu, the tanh form "
                            "of GELU. The model was trained with the erf form, so its outputs change "
                            "slightly.")
        else:
            logging.warning("hidden_act in bert_config.json is gelu_erf, Hugging Face's gelu. The published "
                            "modeling.py does not have this function. For that code, pass "
                            "--published_config=true.")
    published_names = {*modeling.BertConfig(vocab_size=1).to_dict(), *model_config.IGNORED_CONFIG_KEYS}
    return {name: value for name, value in config.items() if name in published_names}


def read_vocabulary(settings, source, vocab_size):
    """Reads and checks --vocab_file.

    Recent Hugging Face models have no vocab.txt. The vocabulary of such a model is read from tokenizer.json.
    Tokens that were added to the model are in a separate list of this file. An added token without an
    embedding is left out.

    Returns:
      (bytes of a vocab.txt, set of the added tokens that are left out).
    """
    names = dict.fromkeys((_VOCABULARY, _TOKENIZER), "vocab_file")
    path = model_config.resolve_file(settings, names, [input_directory(source)])
    pieces = os.path.join(input_directory(source), file_names.SENTENCE_PIECES)
    if path is None and files.exists(pieces):
        raise ValueError(f"The model's vocabulary is the SentencePiece model {pieces}, and Hugging Face's "
                         "BERT has no tokenizer for such a model. To copy the weights and the vocabulary, "
                         "pass --weights_only --to=tensorflow.")
    if path is None:
        raise ValueError(f"--vocab_file is required: there is no {_VOCABULARY} or {_TOKENIZER} in the "
                         f"directory of --input={settings.input}.")
    if not path.endswith(".json"):
        tokenization.check_vocab(path, vocab_size)
        return files.read_bytes(path), set()
    content = files.read_json_object(path)
    try:
        added_ids = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
        left_out = {token for token, index in added_ids.items() if index >= vocab_size}
        ids = {token: index for token, index in {**content["model"]["vocab"], **added_ids}.items()
               if token not in left_out}
        words = {index: token for token, index in ids.items()}
        vocabulary = "".join(f"{words[index]}\n" for index in range(len(ids)))
        is_usable = content["model"]["type"] == "WordPiece" and 0 < len(ids) <= vocab_size and (
            vocabulary.count("\n") == len(ids) and "" not in ids)
    except (AttributeError, KeyError, TypeError):
        is_usable = False
    if not is_usable:
        raise ValueError(f"--vocab_file: {path} does not fit the model. It must contain a WordPiece "
                         f"vocabulary with at most {vocab_size} different entries, numbered "
                         f"from 0 without a gap. Pass the model's {_VOCABULARY}.")
    if left_out:
        logging.warning("%s: the model has no embeddings for these added tokens, so they are left out: %s.",
                        path, checkpoint_formats.join_names(sorted(left_out)))
    return vocabulary.encode(), left_out


def resolve_tokenizer_settings(settings, source, config, left_out):
    """Returns the content of tokenizer_config.json as a dict; None if this file is not written.

    The Hugging Face format always contains this file. The TensorFlow format does not need the file, so it is
    written only if a setting of the tokenizer is known. The function logs a warning about settings that the
    tokenizers of this project do not support. `left_out` is the second result of `read_vocabulary`.
    """
    directories = [os.path.dirname(settings.vocab_file), input_directory(source)]
    content = next(filter(None, map(tokenizer_files.merge_settings, directories)), {})
    if left_out:
        content["additional_special_tokens"] = [token for token in content["additional_special_tokens"]
                                                if token not in left_out]
    for problem in dict.fromkeys(tokenizer_files.read(directories).problems):
        logging.warning("The tokenizers of this project do not produce this model's tokens: %s", problem)
    if settings.do_lower_case is None and "do_lower_case" not in content:
        if settings.to == "tensorflow":
            return content or None
        try:
            tokenization.validate_case_matches_checkpoint(True, source.path)
            settings.set_default("do_lower_case", True, "right for uncased models only")
        except ValueError:
            settings.set_default("do_lower_case", False, "the input has the name of a cased model")
    if settings.do_lower_case is not None:
        content = {**content, "do_lower_case": settings.do_lower_case}
    return {"tokenizer_class": "BertTokenizer", "model_max_length": config["max_position_embeddings"],
            **content}


# --- Output ----------------------------------------------------------------------------------------------


def check_output(settings, source):
    """Checks that --output can be written, and removes the temporary directories of killed conversions.

    Existing model files are replaced only with --force.

    Raises:
      ValueError, NotADirectoryError, IsADirectoryError, FileExistsError: --output cannot be written.
    """
    if settings.output.endswith((".ckpt", ".safetensors")):
        raise ValueError(f"--output={settings.output} is the name of a file. Name a directory.")
    if os.path.realpath(settings.output) == os.path.realpath(input_directory(source)):
        raise ValueError(f"--output={settings.output} is the directory of the input. Name another directory.")
    model_writer.check_directory(settings.output, settings.to, f"--output={settings.output}", settings.force)


def hugging_face_config(config, source, names):
    """Translates a published configuration to a configuration in Hugging Face's format.

    Args:
      config: dict, the published configuration.
      source: the input, a `checkpoint_formats.Checkpoint`. The labels are read from its head.
      names: names of the tensors that are converted. They determine the class of the Hugging Face model.

    Returns:
      dict.
    """
    activation = (config["hidden_act"] or "").lower()
    architecture = next(name for name, head in _ARCHITECTURES.items() if set(head) <= set(names))
    head = head_labels.read_head(source)
    target = head and head.target
    if target and not target.variables:  # these targets share the names of their variables
        architecture = target.architecture
    content = {**config, "architectures": [architecture],
               "hidden_act": _ACTIVATIONS.get(activation, activation),
               "layer_norm_eps": modeling.LAYER_NORM_EPSILON, "model_type": "bert"}
    logging.info("The Hugging Face class of the model is %s.", architecture)
    if architecture in ("BertForSequenceClassification", "BertForTokenClassification"):
        count = source.shapes["output_bias"][0]
        labels = head.labels or head_labels.label_names(config, _CONFIG["tensorflow"]) or []
        if len(labels) != count:
            labels = [f"LABEL_{index}" for index in range(count)]
        content.update(id2label=dict(enumerate(labels)),
                       label2id={label: index for index, label in enumerate(labels)})
        if target and (target.is_score or target.is_multilabel):
            content["problem_type"] = target.problem_type
    if head and head.crf:
        logging.warning("The CRF is left out, because no Hugging Face class has a CRF. The converted model "
                        "predicts each tag separately, from the same scores.")
    return content


def translate(settings, source):
    """Prepares a conversion between the formats.

    Returns:
      (names of the tensors to write, other files to write as {name: content in bytes}).
    """
    config = read_config(settings, source)
    encoder = modeling.variable_shapes(modeling.BertConfig.from_dict(config))
    heads = {name for head in _ARCHITECTURES.values() for name in head} & set(source.shapes)
    shapes = {name: (*source.shapes[name][:1], config["hidden_size"]) for name in heads
              if name.endswith("_weights")}
    checkpoint_formats.check_types(source, [*encoder, *heads])
    # Question answering and masked LM do not use the pooler, so Hugging Face's models for these tasks have no
    # pooler.
    checkpoint_formats.check_fits(source, {**encoder, **shapes},
                                  optional={name for name in encoder if "/pooler/" in name})
    names = sorted(name for name in {*encoder, *heads} if name in source.shapes)
    other_names = sorted(set(checkpoint_formats.weight_names(source)) - set(names))
    if other_names:
        logging.warning("Left out, because a published BERT does not have these tensors: %s.",
                        checkpoint_formats.join_names(other_names))
    vocabulary, left_out = read_vocabulary(settings, source, config["vocab_size"])
    contents = {_VOCABULARY: vocabulary}
    tokenizer = resolve_tokenizer_settings(settings, source, config, left_out)
    if settings.to == "hugging_face":
        config = hugging_face_config(config, source, names)
    for name, content in ((_CONFIG[settings.to], config), (_TOKENIZER_CONFIG, tokenizer)):
        if content is not None:
            contents[name] = model_files.format_json(content)
    return names, contents


def copy_weights(settings, source):
    """Prepares a conversion with --weights_only, which copies the configuration and the vocabulary unchanged.
    In tokenizer_config.json, only the value of --do_lower_case is changed, if the flag was given. Returns
    (names of the tensors to write, other files to write); see `translate`."""
    directory = input_directory(source)
    paths = {**{name: model_config.resolve_file(settings, {name: flag}, [directory])
                for name, flag in ((_CONFIG["tensorflow"], "bert_config_file"), (_VOCABULARY, "vocab_file"))},
             **{name: os.path.join(directory, name)
                for name in (_TOKENIZER_CONFIG, file_names.SENTENCE_PIECES)}}
    if settings.vocab_file:
        tokenization.check_vocab(settings.vocab_file,
                                 source.shapes.get("bert/embeddings/word_embeddings", [None])[0])
    contents = {}
    for name, path in paths.items():
        if path is not None and files.exists(path):
            if name.endswith(".json"):
                files.read_json_object(path)  # raises an error if the file is not a JSON object
            contents[name] = files.read_bytes(path)
    if settings.do_lower_case is not None:
        contents[_TOKENIZER_CONFIG] = model_files.format_json({
            **tokenizer_files.merge_settings(directory),
            "do_lower_case": settings.do_lower_case})
    head = head_labels.read_head(source)
    if head and head.labels and head_labels.has_trained_names(head):
        contents[file_names.LABELS] = model_files.format_labels(head.labels)
    # A tensor that is not of a float type counts as state of the training and is left out. In the encoder,
    # such a tensor is an error.
    checkpoint_formats.check_types(source, [name for name in source.shapes if name.startswith("bert/")])
    return sorted(checkpoint_formats.weight_names(source)), contents


def check_training(settings, training):
    """Checks that the configuration and the vocabulary are those of the training that wrote the input.

    Args:
      settings: a `Settings`. The files are those of --bert_config_file and --vocab_file. Without
        --vocab_file, the SentencePiece model in the directory of the training is checked, if there is one.
      training: the `output_directory.OutputDirectory` of the training, which has a record.

    Raises:
      ValueError: a file differs from the file with which the input was trained.
    """
    if settings.bert_config_file:
        config = modeling.BertConfig.from_dict(files.read_json_object(settings.bert_config_file))
        model_files.check_trained_config(settings.bert_config_file, config, training)
    if not (settings.vocab_file or "").endswith(".json"):  # a tokenizer.json has no recorded hash
        model_files.check_trained_vocabulary(training, settings.vocab_file)


def main(_):
    """Converts the checkpoint."""
    settings = common_flags.read_settings("output")
    if not settings.input:
        model_config.use_installed_model(settings, "input")
    source = open_input(settings)
    training = output_directory.find_training(source.path)
    has_record = training and training.record
    if has_record:
        model_files.check_trained_weights(training.record, source.path)
    check_output(settings, source)
    prepare = copy_weights if settings.to == source.format else translate
    names, contents = prepare(settings, source)
    if has_record:
        check_training(settings, training)
    checks.refuse_overwriting(
        settings, {"input": checks.list_checkpoint_files(source.path)},
        {"output": [os.path.join(settings.output, name)
                    for name in model_writer.list_replaced_files(settings.output, settings.to)]})
    if not names:
        raise ValueError(f"--input={settings.input}: {source.path} contains no weights. Name a checkpoint of "
                         "a BERT model.")
    checkpoint_formats.check_readable(source, names)
    new = model_writer.write(settings.output, settings.to, source, names, contents)
    logging.info("%d of %d tensors of %s are in %s: %s.", len(names), len(source.shapes), source.path,
                 settings.output, ", ".join(new))
