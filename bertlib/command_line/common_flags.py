"""The flags that commands share, and `--help`, which shows all flags of a command in sections."""

import contextlib
import itertools
import math
import sys
import textwrap

from absl import app, flags

from bertlib.runs.settings import (
    CLASSES,
    INPUT,
    MACHINE,
    PATH_SUFFIXES,
    PHASES,
    SPEED,
    TASK,
    WEIGHTS,
    Settings,
    parse_profile_steps,
)
from bertlib.tasks.classification.classifier_data import PROCESSORS, XnliProcessor
import modeling
import optimization
import tokenization

FLAGS = flags.FLAGS

_HELP_WIDTH = 110

# What whole numbers may be at most, where their flag has no bound of its own: more overflows somewhere in
# TensorFlow or NumPy. The seed is an int64 there; the other one may be any number.
_MAX_INT32 = 2**31 - 1
_SEEDS = {"seed": 2**63 - 1, "random_seed": math.inf}
MAX_WORKERS = 1024
MAX_GB = 1e6
# A number of epochs with which the number of steps, too, is an int64.
_MAX_EPOCHS = 1e9

# Heading of a section -> the names of its flags, in the order of their definition.
_sections = {}
# Name of a flag -> its class, one of `settings.CLASSES`, or None.
_classes = {}

# The flags belong to the command that calls these functions; absl's --helpshort goes by that.
flags.disclaim_key_flags()


# --- Sections and --help ---------------------------------------------------------------------------------


@contextlib.contextmanager
def section(heading, affects=None):
    """Puts the flags that this block defines under a heading of `--help`, and says which class they have.

    A later definition of the same name takes their place, so that a script may import two commands, or a
    command whose flags it defines otherwise.

    Args:
      heading: str.
      affects: one of `settings.CLASSES`: what of a training the flags affect. By it run.json records a flag,
        and a later command takes it over or refuses it, see `run_record.inherit_record`. None for flags of
        commands that do not train.
    """
    if affects not in (None, *CLASSES):
        raise ValueError(f"{affects!r} is no class of flags; there are {', '.join(CLASSES)}")
    before = {name: FLAGS[name] for name in FLAGS}
    yield
    for name in FLAGS:
        if FLAGS[name] is not before.get(name):
            FLAGS[name].allow_override = True
            _classes[name] = affects
            names = _sections.setdefault(heading, [])
            if name not in names:
                names.append(name)


class _HelpFlag(app.HelpFlag):
    """--help, which lists the flags of our commands by section, and ends with exit code 0."""

    def __init__(self, description):
        super().__init__()
        self.allow_override = True  # takes the place of absl's
        self._description = description

    def parse(self, arg):
        if self._parse(arg):
            print(help_text(self._description))
            sys.exit()


def help_text(description):
    """Returns what `--help` prints: a description (str), and the flags by section with their defaults."""
    lines = [(description or "").strip()]
    for heading, names in _sections.items():
        lines += ["", f"{heading}:"]
        for name in names:
            lines += _help_of(FLAGS[name])
    return "\n".join([*lines, "", "Flags of absl, such as --verbosity and --flagfile: --helpfull."])


def _help_of(flag):
    """The lines on one flag."""
    form = f"--[no]{flag.name}" if flag.flag_type() == "bool" else f"--{flag.name}"
    if isinstance(flag, flags.EnumFlag):
        form += f"=<{'|'.join(flag.parser.enum_values)}>"
    default = "" if flag.default is None else (
        f" (default: {str(flag.default).lower() if flag.boolean else flag.default})")
    # absl put the values before it
    text = flag.help.split(">: ", 1)[-1] if isinstance(flag, flags.EnumFlag) else flag.help
    return [f"  {form}", *textwrap.wrap(text + default, _HELP_WIDTH, initial_indent=6 * " ",
                                        subsequent_indent=6 * " ")]


def flag_names():
    """Returns the names of all flags that are in a section: those of the command, not those of absl."""
    return [name for names in _sections.values() for name in names if name in FLAGS]


# --- Values ----------------------------------------------------------------------------------------------


def read_settings():
    """Returns the values of all flags, as `Settings`."""
    return Settings({name: FLAGS[name].value for name in FLAGS},
                    {name for name in FLAGS if FLAGS[name].present}, flag_names(), _classes)


def phases_given():
    """Returns the names of the phases on the command line, whether true or false."""
    return [name for name in PHASES if name in FLAGS and FLAGS[name].present]


def refuse_empty_paths():
    """Raises a ValueError if a path on the command line is empty, as a shell variable that is not set is."""
    for name in FLAGS:
        flag = FLAGS[name]
        is_path = name.endswith(PATH_SUFFIXES) and isinstance(flag.value, str)
        if flag.present and is_path and not flag.value.strip():
            raise ValueError(f"--{name} is empty. If a variable of the shell stands for the path, it is not "
                             "set: set it, or leave the flag out.")


# --- Flags -----------------------------------------------------------------------------------------------


def define_classification_flags():
    """Defines the flags of what to classify: a known task, or one's own data."""
    with section("Task", TASK):
        flags.DEFINE_string("task_name", None, f"The task: {', '.join(sorted(PROCESSORS))}, in any letter "
                            "case; or see below for your own data.")
    with section("Task", INPUT):
        flags.DEFINE_string("data_dir", None, "Directory of the task's TSV files.")
        flags.DEFINE_enum("xnli_language", "zh", XnliProcessor.LANGUAGES,
                          "The language that XNLI is read in.")
    with section("Task", SPEED):
        flags.DEFINE_bool("do_train", False, "Train.")
        flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
        flags.DEFINE_bool("do_predict", False, "Predict on the test set.")
        flags.DEFINE_integer("eval_batch_size", 8, "Examples in a batch of the evaluation.", lower_bound=1)
        flags.DEFINE_integer("predict_batch_size", 8, "Examples in a batch of the prediction.", lower_bound=1)
    with section("Task", INPUT):
        flags.DEFINE_integer("doc_stride", 0, "Cut a text that is longer than max_seq_length into windows, "
                             "whose starts are so many tokens apart; what is predicted of them is averaged. "
                             "0: only its start is looked at.", lower_bound=0)
    with section("Task", WEIGHTS):
        flags.DEFINE_string("class_weights", None, "What an example counts in training, by its label: "
                            "balanced, so that all labels count alike; or label:weight,… or the weights in "
                            "the order of the labels. Only their ratios matter.")
        flags.DEFINE_float("label_smoothing", 0.0, "Train as if so much of a label, such as 0.1, were spread "
                           "over all labels alike.")
    flags.register_validator("label_smoothing", lambda value: value is not None and 0 <= value < 1,
                             "must be a number from 0 to below 1")
    _define_custom_data_flags()
    define_column_flags()


def _define_custom_data_flags():
    """Defines the flags of one's own data, in place of a known task; see `custom_task`."""
    with section("Your own data, in place of a task", INPUT):
        flags.DEFINE_string("train_file", None, "File to train on: .csv, .tsv, .jsonl or .json (JSON Lines, "
                            "both), each also with .gz.")
        flags.DEFINE_string("dev_file", None, "File to evaluate on.")
        flags.DEFINE_string("test_file", None, "File to predict; it may have no labels.")
    with section("Your own data, in place of a task", TASK):
        flags.DEFINE_enum("task_type", "classification", ["classification", "regression", "multilabel"],
                          "What a text has: one of several labels, a number, or any number of labels.")
        flags.DEFINE_string("label_file", None, "The labels, one a line, in the order of the model's "
                            "outputs. By default those of the training file, sorted.")
    with section("Your own data, in place of a task", INPUT):
        flags.DEFINE_string("label_separator", ",", "What stands between the labels in a field, with "
                            "task_type=multilabel.")
        flags.DEFINE_float("threshold", 0.5, "The least probability of a label that is predicted, with "
                           "task_type=multilabel.")
    with section("Your own data, in place of a task", WEIGHTS):
        flags.DEFINE_float("dev_fraction", None, "In place of dev_file: the share of the training file, at "
                           "most 0.5, to evaluate on and not to train on: the same share of each label, "
                           "with any seed. The directory keeps these rows in dev_rows.txt.")
    flags.register_validator("threshold", lambda value: value is not None and 0 < value < 1,
                             "must be a number between 0 and 1")
    flags.register_validator("dev_fraction", lambda value: value is None or 0 < value <= 0.5,
                             "must be a number above 0 and at most 0.5")
    flags.register_validator("label_separator", lambda text: bool(text) and text.isprintable(),
                             "must be a character or more, such as a comma")


def define_column_flags(heading="Your own data, in place of a task"):
    """Defines the flags of the columns of one's own files; see `columns`."""
    with section(heading, INPUT):
        flags.DEFINE_string("text_column", None, "Column of the text, or of two texts, with a comma between: "
                            "names, or numbers from 1; -1 is the last one. By default the usual names, such "
                            "as text, or sentence1 and sentence2.")
        flags.DEFINE_string("label_column", None, "Column of the label, likewise; with task_type=multilabel "
                            "also several, of 0 and 1, called as the labels.")
        flags.DEFINE_enum("header", "auto", ["auto", "true", "false"],
                          "Whether the first row of a .csv or .tsv file names the columns. auto: it does if "
                          "columns are given by name, or not at all.")
        flags.DEFINE_enum("delimiter", "auto", ["auto", "comma", "semicolon"],
                          "The character between the columns of a .csv file. auto: semicolons, if the first "
                          "row has some and no commas, outside of quotes; else commas.")


def define_word_column_flags(heading="Task"):
    """Defines the flags of the columns of CoNLL's files; see `tagging_data`."""
    with section(heading, INPUT):
        flags.DEFINE_integer("token_column", 1, "Column of the words, counted from 1; -1 is the last one.")
        flags.DEFINE_integer("tag_column", -1, "Column of the tags, counted from 1; -1 is the last one.")


def define_fine_tuning_flags(max_seq_length):
    """Defines the flags of a fine-tuning, all but those of its task."""
    define_model_flags(max_seq_length)
    define_tokenizer_flags()
    define_training_flags()
    _define_epoch_flags()
    _define_input_flags()
    define_replica_flags()
    define_tpu_flags()


def define_model_flags(max_seq_length):
    """Defines the flags that say which model to use, and on how long sequences."""
    with section("Model", WEIGHTS):
        flags.DEFINE_string("bert_config_file", None,
                            "The model's bert_config.json, or a Hugging Face config.json.")
        flags.DEFINE_string("init_checkpoint", None,
                            "Where weights start: a TensorFlow checkpoint prefix, a Hugging Face BERT "
                            "directory or a .safetensors file. A checkpoint in output_dir goes before it.")
    with section("Model", INPUT):
        flags.DEFINE_integer("max_seq_length", max_seq_length,
                             "WordPieces of an input, [CLS] and [SEP] included. "
                             "Longer ones are cut, shorter ones padded.",
                             lower_bound=3)
    with section("Memory and speed", SPEED):
        flags.DEFINE_enum("precision", "fp32", sorted(modeling.PRECISIONS),
                          "What the encoder computes in: bf16 and fp16 save memory, and time where the "
                          "hardware supports them. Weights, sums, softmax, normalization, loss and optimizer "
                          "stay fp32; so do the checkpoints.")


def define_tokenizer_flags():
    """Defines the flags that say how text becomes ids; see `vocabularies.load_tokenizer`."""
    with section("Model", WEIGHTS):
        flags.DEFINE_string("vocab_file", None, "The model's vocabulary, one WordPiece a line.")
        flags.DEFINE_string("spm_model_file", None, "In place of --vocab_file: the model's SentencePiece "
                            "model, as of ALBERT.")
        flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents: true for uncased "
                          "models, false for cased ones.")
    with section("Model", INPUT):
        flags.DEFINE_bool("protect_special_tokens", False, f"Keep {', '.join(tokenization.SPECIAL_TOKENS)} "
                          "in the text whole rather than split them at brackets.")


def _define_input_flags():
    """Defines the flags of how input is prepared."""
    with section("Memory and speed", MACHINE):
        flags.DEFINE_integer("num_workers", 1,
                             "Processes that turn text into features, 0 for one a core. The features are the "
                             "same. One does 100,000 short examples a second, so that only long files of "
                             "long texts gain.", lower_bound=0, upper_bound=MAX_WORKERS)
    with section("Memory and speed", SPEED):
        flags.DEFINE_bool("trim_padding", None, "Sort examples by length, cut each batch after its longest "
                          "sequence, and train a classifier without computing the padding that is left. It "
                          "saves most of the time of short examples. With false, batches have the shape of "
                          "max_seq_length. By default true; but SQuAD's published training loss looks at "
                          "padding too, so that its training is trimmed with true only.")
        flags.DEFINE_integer("tokens_per_micro_batch", 0,
                             "Tokens, padding included, that a micro-batch may hold at most; micro-batches "
                             "then differ in their numbers of examples, so that short ones share one. For "
                             "training that is trimmed. gradient_accumulation_steps follows from it. 0: "
                             "equal numbers of examples.", lower_bound=0)


def define_training_flags():
    """Defines the flags of the optimizer, the schedule and the checkpoints."""
    with section("Training", MACHINE):
        flags.DEFINE_string("output_dir", None, "Directory of checkpoints, TFRecords and results.")
        flags.DEFINE_string("results_dir", None,
                            "Directory of the results of evaluation and prediction, and of their TFRecords; "
                            "by default output_dir. Without training, output_dir is then only read: another "
                            "process may train there meanwhile.")
    with section("Training", WEIGHTS):
        flags.DEFINE_integer("train_batch_size", 32, "Examples in a training step.", lower_bound=1)
        flags.DEFINE_float("learning_rate", 5e-5,
                           "Learning rate that warm-up rises towards and that decays from there.")
        flags.DEFINE_enum("optimizer", "adamw", sorted(optimization.OPTIMIZERS),
                          "The optimizer; adamw is the published one.")
        flags.DEFINE_bool("adam_bias_correction", False,
                          "Correct the bias of adamw's moments; the published code does not.")
        flags.DEFINE_enum("lr_schedule", "linear", sorted(optimization.LR_SCHEDULES),
                          "How the learning rate falls after warm-up; linear is the published one.")
        flags.DEFINE_integer("seed", 12345, "Seed of everything random: the same seed repeats the run.")
    with section("Training", SPEED):
        flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between checkpoints.", lower_bound=1)
        flags.DEFINE_bool("eval_each_checkpoint", False, "With do_train: evaluate each checkpoint when it is "
                          "saved. Its metrics become a row of learning_curve.tsv in output_dir, and a point "
                          "of the picture learning_curve.svg. The weights stay the same, bit for bit.")
        flags.DEFINE_integer("log_steps", 10, "Steps between lines in the log and points in TensorBoard.",
                             lower_bound=1)
    with section("Memory and speed", SPEED):
        flags.DEFINE_integer("gradient_accumulation_steps", None,
                             "Micro-batches that a training step is split into, to need less memory. The "
                             "step is the same one. 0: as many as it takes, found out by simulation. By "
                             "default 1, or as many as tokens_per_micro_batch takes.", lower_bound=0)
        flags.DEFINE_enum("recompute", "none", [*modeling.RECOMPUTE, "auto"],
                          "What the backward pass computes again instead of keeping it in memory: attention "
                          "saves most of the memory of long sequences for little time, layers saves all but "
                          "each layer's input for a third more time. auto: "
                          "the fastest that fits, found out by simulation.")
        flags.DEFINE_integer("recompute_segment", 1, "With --recompute=layers: layers that are computed "
                             "again together.",
                             lower_bound=1)
    with section("Memory and speed", MACHINE):
        flags.DEFINE_float("memory_limit_gb", None,
                           "Memory that a training step may take, in 10⁹ bytes: what 0 and auto above go by. "
                           "By default, nearly all of the GPU's, or without a GPU all RAM that is free.",
                           lower_bound=0, upper_bound=MAX_GB)
    with section("Memory and speed", SPEED):
        flags.DEFINE_bool("compile_kernels", None,
                          "Make the elementwise parts of a training step for this machine's CPU, in C++, "
                          "built once. Without a compiler, in the layers of fp16 and with a GPU they stay "
                          "TensorFlow's ops. By default on CPU, for models at least 256 wide.")
        flags.DEFINE_bool("use_xla", False,
                          "Compile the whole model with XLA, anew for each length of a batch, which takes "
                          "two seconds a layer. For long runs on GPUs; on CPU it is slower than without.")
        flags.DEFINE_string("profile_steps", None,
                            "a,b: trace training from step a to step b, both included and counted as in the "
                            "log, for TensorBoard (in output_dir), and log which types of ops took the time.")
        flags.DEFINE_enum("gradient_dtype", "fp32", ["fp32", "bf16"],
                          "What gradients travel in between replicas. bf16 halves the bytes, and rounds.")
    flags.register_validator("profile_steps",
                             lambda text: text is None or parse_profile_steps(text) is not None,
                             "must be two numbers a,b with 1 <= a <= b, such as 100,105: the first and the "
                             "last step to trace")
    require_finite("memory_limit_gb")
    _require_positive("learning_rate")


def define_replica_flags():
    """Defines the flags of how many processes share the work, and of what happens when one fails."""
    with section("Several GPUs and machines", SPEED):
        flags.DEFINE_integer("num_replicas", 1,
                             "Processes on this machine that share the work, one for each GPU; 0: as many as "
                             "there are GPUs. A training step stays the same one: a replica is a micro-batch "
                             "that runs at the same time. With TF_CONFIG several machines share it; see "
                             "docs/howto/cluster.md.", lower_bound=0, upper_bound=MAX_WORKERS)
        flags.DEFINE_float("replica_timeout", 60.0, "Seconds in which all replicas have ended after one was "
                           "killed, stopped or cut off.")
    with section("Several GPUs and machines", MACHINE):
        flags.DEFINE_integer("max_restarts", 0, "How often all replicas are started again after one was "
                             "killed, crashed or was lost. They go on from the last checkpoint.",
                             lower_bound=0)
        define_open_ports_flag()
    _require_positive("replica_timeout")


def define_open_ports_flag():
    """Defines the flag that decides whether the network ports of a run are closed to other processes."""
    flags.DEFINE_bool("open_ports", None, "Whether other machines can reach the network ports that a run "
                      "opens on this machine. By default the ports are closed if the system allows it and no "
                      "path is remote; otherwise a warning says that they are open. true: leave them open, "
                      "without the warning. false: refuse to run if they cannot be closed.")


def define_export_flags():
    """Defines the flag of what a training command exports in the end."""
    with section("Task", SPEED):
        flags.DEFINE_bool("do_export", False, "In the end, write the newest checkpoint as a SavedModel, a "
                          "new version in output_dir/export; see docs/howto/serving.md.")


def _define_epoch_flags():
    """Defines the flags of how long to train, as passes over the data."""
    with section("Training", WEIGHTS):
        flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training data; a fraction is allowed.")
        flags.DEFINE_float("warmup_proportion", 0.1,
                           "Share of the training steps in which the learning rate rises.")
    _require_positive("num_train_epochs")
    flags.register_validator("num_train_epochs", lambda value: value <= _MAX_EPOCHS,
                             f"must be at most {_MAX_EPOCHS:g}")
    flags.register_validator("warmup_proportion", lambda value: value is not None and 0 <= value <= 1,
                             "must be a number from 0 to 1")


def require_finite(*names):
    """Has flags of numbers refuse NaN and infinity, which are within any bound; they may be None."""
    for name in names:
        flags.register_validator(name, lambda value: value is None or math.isfinite(value),
                                 "must be a finite number")


def _require_positive(name):
    # Not as a bound of the flag: NaN is within any.
    flags.register_validator(name, lambda value: value is not None and 0 < value < math.inf,
                             "must be a positive number")


def define_tpu_flags():
    """Defines the published TPU flags, so that old command lines parse. TPUs are refused."""
    with section("Of TPUs, for old command lines", SPEED):
        flags.DEFINE_bool("use_tpu", False, "Not supported: only false is accepted.")
        for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
            flags.DEFINE_string(name, None, "Of TPUs only; ignored.")
        flags.DEFINE_integer("num_tpu_cores", 8, "Of TPUs only; ignored.")
        flags.DEFINE_integer("iterations_per_loop", 1000, "Of TPUs only; ignored.")


def define_common_flags(description):
    """Defines the flags of all commands; `description` is what `--help` says before the flags."""
    app.define_help_flags()
    flags.DEFINE_flag(_HelpFlag(description))
    with section("When it fails", MACHINE):
        flags.DEFINE_bool("traceback", False, "Show the Python traceback of an error.")
    _limit_numbers()


def _limit_numbers():
    """Has numbers refused that are too large for what computes with them."""
    for name in itertools.chain.from_iterable(_sections.values()):
        flag = FLAGS[name]
        if flag.flag_type() == "int" and flag.parser.upper_bound is None:
            most = _SEEDS.get(name, _MAX_INT32)
            flags.register_validator(
                name, lambda value, most=most: value is None or abs(value) <= most, f"must be at most {most}")

