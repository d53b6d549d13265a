"""Defines the flags that commands share, and prints `--help` and `--helpfull`.

`--help` lists the everyday flags of a command by section. `--helpfull` adds the advanced flags and the flags
of absl.
"""

import contextlib
import itertools
import math
import sys
import textwrap

from absl import app, flags

from bertlib.output_directory import best_weights
from bertlib.reports import prediction_files
from bertlib.rows.columns import is_delimiter
from bertlib.rows.tables import check_encoding
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

# Largest values of integer flags that have no upper bound in their definition. Larger values would overflow
# in TensorFlow or NumPy. TensorFlow stores --seed as an int64. --random_seed may be any integer.
_MAX_INT32 = 2**31 - 1
_SEEDS = {"seed": 2**63 - 1, "random_seed": math.inf}
MAX_WORKERS = 1024
MAX_GB = 1e6
# Largest number of epochs for which the number of training steps still fits into an int64.
_MAX_EPOCHS = 1e9

# Maps the heading of each advanced section to the names of its flags. Only `--helpfull` lists these flags.
ADVANCED = {
    "Advanced: text": ("xnli_language", "label_separator", "protect_special_tokens"),
    "Advanced: training": ("adam_bias_correction", "weight_decay", "clip_norm", "layer_decay",
                           "reinit_layers", "freeze_embeddings", "log_steps", "profile_steps",
                           "keep_checkpoint_max"),
    "Advanced: memory and speed": ("num_workers", "features_cache", "tokens_per_micro_batch",
                                   "recompute_segment", "compile_kernels"),
    "Advanced: GPUs": ("tf32", "deterministic", "gpu_allow_growth"),
    "Advanced: replicas": ("gradient_dtype", "replica_timeout", "max_restarts"),
    "Advanced: TPUs": ("use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores",
                       "iterations_per_loop"),
}

# Maps the heading of each section of --help to the names of its flags, in the order of their definition.
names_by_section = {}
# Maps the name of each flag to the class of the flag. The class is one of `settings.CLASSES`, or None.
_classes = {}

# absl records for each flag which module defines it. The functions of this module define flags for commands.
# Because of the following call, absl records the command that calls such a function, and not this module. So
# --helpxml lists these flags as flags of the command.
flags.disclaim_key_flags()


# --- Sections and --help ---------------------------------------------------------------------------------


@contextlib.contextmanager
def section(heading, affects=None):
    """Returns a context manager. Flags that are defined in its block appear in `--help` under `heading`, and
    belong to the class `affects`.

    A flag in `ADVANCED` appears under the heading of its advanced section instead of `heading`. If a flag is
    defined twice, the later definition replaces the earlier one. So a script can import two commands that
    define the same flag. It can also import a command and define one of its flags differently.

    Args:
      heading: str, heading of the section in `--help`.
      affects: one of `settings.CLASSES`: the kind of effect that the flags have on a training. The class
        decides whether run.json records a flag. It also decides whether a later command inherits the recorded
        value or refuses a different value; see `run_record.inherit_record`. None for flags of commands that
        do not train.

    Raises:
      ValueError: `affects` is not one of `settings.CLASSES`.
    """
    if affects not in (None, *CLASSES):
        raise ValueError(f"{affects!r} is not a class of flags. Use one of {', '.join(CLASSES)}.")
    before = {name: FLAGS[name] for name in FLAGS}
    yield
    for name in FLAGS:
        if FLAGS[name] is not before.get(name):
            FLAGS[name].allow_override = True
            _classes[name] = affects
            advanced = (title for title, members in ADVANCED.items() if name in members)
            names = names_by_section.setdefault(next(advanced, heading), [])
            if name not in names:
                names.append(name)


class _HelpFlag(flags.BooleanFlag):
    """Prints the flags of the command by section, and ends the process with exit code 0."""

    def __init__(self, name, text, description, short_name=None):
        # This flag replaces absl's flag of the same name. absl's flag prints the help in absl's format, and
        # ends the process with exit code 1.
        super().__init__(name, False, text, short_name=short_name, allow_override=True)
        self._description = description

    def parse(self, arg):
        if self._parse(arg):
            print(help_text(self._description, full=self.name == "helpfull"))
            sys.exit()


def help_text(description, full=False):
    """Returns the text of `--help`, or the text of `--helpfull` if `full` is true.

    Args:
      description: str, the text before the flags; None if there is no such text.
      full: bool, whether to add the advanced flags and the flags that absl and TensorFlow define.
    """
    everyday = {heading: names for heading, names in names_by_section.items() if heading not in ADVANCED}
    advanced = {heading: names_by_section[heading] for heading in ADVANCED if heading in names_by_section}
    lines = [(description or "").strip()]
    for heading, names in {**everyday, **(advanced if full else {})}.items():
        lines += ["", f"{heading}:", *_help_of(names)]
    if full:
        ours = flag_names()
        # `FLAGS` also contains the short names of flags, such as "?" for --help. The attribute `name` is
        # always the long name.
        others = {FLAGS[name].name for name in FLAGS} - set(ours)
        # --flagfile and --undefok are not in `FLAGS`. absl adds these two flags to the help text of each
        # `flags.FlagValues`. So the help text of a `flags.FlagValues` without flags contains only these two.
        return "\n".join([*lines, "", "Flags of absl and TensorFlow:", *_help_of(sorted(others)),
                          flags.FlagValues().get_help(prefix="  ")])
    topics = ", ".join(heading.removeprefix("Advanced: ") for heading in advanced)
    more = f"{sum(map(len, advanced.values()))} more flags: {topics}; and " if advanced else ""
    return "\n".join([*lines, "", *textwrap.wrap(
        f"--helpfull lists {more}the flags of absl, such as --verbosity and --flagfile.", _HELP_WIDTH)])


def _help_of(names):
    """Returns the lines of the help text for some flags. `names` are the names of the flags."""
    lines = []
    for flag in map(FLAGS.__getitem__, names):
        form = f"--[no]{flag.name}" if flag.flag_type() == "bool" else f"--{flag.name}"
        text = meaning(flag) + f" (default: {default_text(flag)})" * bool(default_text(flag))
        if isinstance(flag, flags.EnumFlag):
            values = f"=<{'|'.join(flag.parser.enum_values)}>"
            if len(form + values) + 2 <= _HELP_WIDTH:
                form += values
            else:
                text += f" Values: {', '.join(flag.parser.enum_values)}."
        lines += [f"  {form}", *textwrap.wrap(text, _HELP_WIDTH, initial_indent=6 * " ",
                                              subsequent_indent=6 * " ", break_on_hyphens=False)]
    return lines


def default_text(flag):
    """Returns the default of `flag`, a flag object of absl, as it would be written on a command line. Returns
    "" if the flag has no default or an empty default."""
    if flag.default is None:
        return ""
    if isinstance(flag.default, list):
        return ",".join(flag.default)
    return str(flag.default).lower() if flag.boolean else str(flag.default)


def meaning(flag):
    """Returns the help text of `flag`, a flag object of absl. The list of possible values, which absl puts
    before the text, is left out."""
    return flag.help.split(">: ", 1)[-1] if isinstance(flag, flags.EnumFlag) else flag.help


def flag_names():
    """Returns the names of all flags of the command, without absl's own flags."""
    return [name for names in names_by_section.values() for name in names if name in FLAGS]


# --- Values ----------------------------------------------------------------------------------------------


def read_settings():
    """Returns the values of all flags, as `Settings`."""
    return Settings({name: FLAGS[name].value for name in FLAGS},
                    {name for name in FLAGS if FLAGS[name].present}, flag_names(), _classes)


def phases_given():
    """Returns the names of the phases whose flags are on the command line. The values of the flags do not
    matter: --do_train=false counts, too."""
    return [name for name in PHASES if name in FLAGS and FLAGS[name].present]


def refuse_empty_paths():
    """Raises a ValueError if a path on the command line is empty, for example because a shell variable is not
    set."""
    for name in FLAGS:
        flag = FLAGS[name]
        is_path = name.endswith(PATH_SUFFIXES) and isinstance(flag.value, str)
        if flag.present and is_path and not flag.value.strip():
            raise ValueError(f"--{name} is empty. Pass a path, or leave the flag out. If the path comes from "
                             "a shell variable, the variable is not set.")


# --- Flags -----------------------------------------------------------------------------------------------


def define_classification_flags():
    """Defines the flags of a classification command. They choose the task or the user's own files, and the
    phases: training, evaluation, prediction."""
    with section("Task", TASK):
        flags.DEFINE_string("task_name", None, "Name of the task, in upper or lower case: "
                            f"{', '.join(sorted(PROCESSORS))}. For your own data, pass --train_file instead.")
        flags.DEFINE_string("task_module", None, "Python file that defines your own task. Pass it instead of "
                            "--task_name. The file contains one class derived from DataProcessor. The "
                            "command passes --data_dir to the methods of this class. For an example, see "
                            "own_task.md in docs/howto.")
    with section("Task", INPUT):
        flags.DEFINE_string("data_dir", None, "Directory of the task's TSV files.")
        flags.DEFINE_enum("xnli_language", "zh", XnliProcessor.LANGUAGES,
                          "Language of the XNLI files.")
    with section("Task", SPEED):
        flags.DEFINE_bool("do_train", False, "Train the model.")
        flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
        flags.DEFINE_bool("do_predict", False, "Predict on the test set.")
        flags.DEFINE_integer("eval_batch_size", 8, "Batch size of evaluation.", lower_bound=1)
        flags.DEFINE_integer("predict_batch_size", 8, "Batch size of prediction.", lower_bound=1)
    with section("Task", INPUT):
        flags.DEFINE_integer("doc_stride", 0, "Split a text that is longer than --max_seq_length into "
                             "windows. Each window starts this number of tokens after the start of the "
                             "window before it. The prediction for the text is the average over its windows. "
                             "0: long texts are truncated instead.",
                             lower_bound=0)
    with section("Task", WEIGHTS):
        flags.DEFINE_string("class_weights", None, "Weights of the classes in the loss. Pass label:weight "
                            "pairs, such as 0:1,1:3, or only the weights in the order of the labels, such as "
                            "1,3. With --class_weights=balanced, the command chooses weights with which all "
                            "classes have the same total weight. Only the ratios of the weights matter.")
        flags.DEFINE_float("label_smoothing", 0.0, "Label smoothing factor, for example 0.1.")
    define_example_limits()
    flags.register_validator("label_smoothing", lambda value: value is not None and 0 <= value < 1,
                             "must be a number from 0 to below 1")
    _define_custom_data_flags()
    define_column_flags()


def define_example_limits(examples="examples"):
    """Defines the flags that limit the number of examples; see `bertlib.runs.example_limits`.

    Args:
      examples: name of the command's examples in the help texts: "examples", "sentences" or "questions".
    """
    with section("Task", WEIGHTS):
        flags.DEFINE_integer("max_train_examples", None, f"Train on at most this number of {examples}. If "
                             f"the training set has more {examples}, a subset is drawn by a hash of the "
                             "texts and labels, so each run draws the same subset. By default, all "
                             f"{examples} are used.",
                             lower_bound=1)
    with section("Task", SPEED):
        flags.DEFINE_integer("max_eval_examples", None, f"Evaluate on at most this number of {examples} of "
                             "the development set. The subset is drawn in the same way as for "
                             f"--max_train_examples. By default, all {examples} are used.", lower_bound=1)


def define_skip_flag():
    """Defines the flag for lines that cannot be used; see `bertlib.rows.faults`."""
    flags.DEFINE_bool("skip_bad_lines", False, "Leave out lines that cannot be used, such as a line with an "
                      "empty text or an unknown label. The file skipped_lines.csv lists these lines with the "
                      "reasons. By default, the command stops, and its error message lists some of these "
                      "lines.")


def _define_custom_data_flags():
    """Defines the flags for a run on the user's own data instead of a known task; see `custom_task`."""
    with section("Your own data, in place of a task", INPUT):
        flags.DEFINE_string("train_file", None, "Training file. The extension must be .csv, .tsv, .jsonl or "
                            ".json, and .gz may follow. .jsonl and .json both mean JSON Lines.")
        flags.DEFINE_string("dev_file", None, "Development file, for evaluation.")
        flags.DEFINE_string("test_file", None, "Test file, for prediction. Its labels are optional.")
        define_skip_flag()
    with section("Your own data, in place of a task", TASK):
        flags.DEFINE_enum("task_type", "classification", ["classification", "regression", "multilabel"],
                          "Type of the task. classification: one class for each text. regression: a number "
                          "for each text. multilabel: any number of classes for each text.")
        flags.DEFINE_string("label_file", None, "File with one label per line, in the order of the model's "
                            "outputs. By default, the labels are those of the training file, sorted.")
    with section("Your own data, in place of a task", INPUT):
        flags.DEFINE_string("label_separator", ",", "With --task_type=multilabel: character or string that "
                            "separates the labels of one text.")
        flags.DEFINE_float("threshold", 0.5, "With --task_type=multilabel: a label is predicted if its "
                           "probability is at least this value.")
    with section("Your own data, in place of a task", WEIGHTS):
        flags.DEFINE_float("dev_fraction", None, "Fraction of the training file, at most 0.5, that is used "
                           "for evaluation and not for training. Pass this flag instead of --dev_file. The "
                           "split is stratified by label and does not depend on --seed. The file "
                           "dev_rows.txt in the output directory lists the rows used for evaluation.")
    flags.register_validator("threshold", lambda value: value is not None and 0 < value < 1,
                             "must be a number between 0 and 1")
    flags.register_validator("dev_fraction", lambda value: value is None or 0 < value <= 0.5,
                             "must be a number above 0 and at most 0.5")
    flags.register_validator("label_separator", lambda text: bool(text) and text.isprintable(),
                             "must not be empty; pass one or more characters, such as a comma")


_TEXT_COLUMN = ("Column of the text, or two columns separated by a comma. A column is a name, or a number "
                "that counts from 1; -1 is the last column. By default, the command looks for columns with "
                "usual names, for example text, or sentence1 and sentence2.")
_LABEL_COLUMN = ("Column of the label: a name, or a number that counts from 1; -1 is the last column. With "
                 "--task_type=multilabel, you can also name several columns, separated by commas. Each of "
                 "these columns contains 0 or 1, and the name of the column is the label.")


def define_column_flags(heading="Your own data, in place of a task", text=_TEXT_COLUMN, label=_LABEL_COLUMN):
    """Defines the flags that name the columns of the user's own files; see `columns`.

    Args:
      heading: heading of the flags in the help.
      text, label: the help texts of --text_column and --label_column.
    """
    with section(heading, INPUT):
        flags.DEFINE_string("text_column", None, text)
        flags.DEFINE_string("label_column", None, label)
        flags.DEFINE_enum("header", "auto", ["auto", "true", "false"],
                          "Whether the first row of a .csv or .tsv file contains the names of the columns. "
                          "auto: false if the columns are given as numbers, otherwise true.")
        flags.DEFINE_string("delimiter", "auto", "Character between the columns of a .csv file: comma, "
                            "semicolon, tab, pipe, or any other single character. auto: a semicolon if the "
                            "first row contains semicolons and no commas outside of quotes, otherwise a "
                            "comma. The columns of a .tsv file are always separated by tabs.")
        flags.DEFINE_string("encoding", "utf-8", "Encoding of the files: the name of an encoding of Python, "
                            "such as cp1252, latin-1 or utf-16.")
    flags.register_validator("delimiter", lambda text: text is not None and is_delimiter(text),
                             "must be auto, comma, semicolon, tab, pipe or a single character; a quote or "
                             "a line end is not allowed")
    flags.register_validator("encoding", lambda text: bool(text) and check_encoding(text),
                             "must be the name of a text encoding of Python, such as cp1252, latin-1 or "
                             "utf-16")


def define_word_column_flags(heading="Task"):
    """Defines the flags that name the columns of CoNLL files; see `tagging_data`."""
    with section(heading, INPUT):
        flags.DEFINE_integer("token_column", 1, "Number of the column that contains the words. The first "
                             "column is 1, the last column is -1.")
        flags.DEFINE_integer("tag_column", -1, "Number of the column that contains the tags. The first "
                             "column is 1, the last column is -1.")


def define_fine_tuning_flags(max_seq_length):
    """Defines the flags of a fine-tuning command, except those of its task."""
    define_model_flags(max_seq_length)
    define_tokenizer_flags()
    define_training_flags()
    _define_epoch_flags()
    _define_input_flags()
    define_trimming_flags()
    define_table_flags()
    define_replica_flags()
    define_tpu_flags()


def define_table_flags():
    """Defines the flags of the table of predictions; see `bertlib.reports.prediction_files`."""
    with section("Tables of predictions", SPEED):
        flags.DEFINE_enum("predictions_format", "csv", list(prediction_files.FORMATS),
                          "Format of the tables of predictions. csv: an evaluation writes "
                          "eval_predictions.csv, and a prediction writes test_predictions.csv. jsonl: the "
                          "tables are in JSON Lines, and their names end in .jsonl.")
    define_csv_safe_flag("Tables of predictions", SPEED)


def define_csv_safe_flag(heading, affects=None):
    """Defines the flag that makes CSV tables safe for spreadsheet programs. For the arguments, see
    `section`."""
    with section(heading, affects):
        flags.DEFINE_bool("csv_safe", False, "In CSV tables, write an apostrophe before each text that a "
                          "spreadsheet program would execute as a formula, such as =1+1.")


def define_model_flags(max_seq_length):
    """Defines the flags of the model, its precision and its sequence length. `max_seq_length` is the default
    length."""
    with section("Model", WEIGHTS):
        flags.DEFINE_string("bert_config_file", None,
                            "The model's bert_config.json, or a Hugging Face config.json.")
        flags.DEFINE_string("init_checkpoint", None,
                            "Initial weights: a TensorFlow checkpoint prefix, a Hugging Face BERT directory, "
                            "a .safetensors file, or hf: followed by the name of a model on the Hugging Face "
                            "Hub, such as hf:google-bert/bert-base-uncased. If --output_dir contains a "
                            "checkpoint, that checkpoint is used instead.")
    with section("Model", INPUT):
        flags.DEFINE_integer("max_seq_length", max_seq_length,
                             "Maximum number of WordPieces in an input, including [CLS] and [SEP]. "
                             "Longer inputs are truncated, shorter ones are padded.",
                             lower_bound=3)
    with section("Memory and speed", SPEED):
        flags.DEFINE_enum("precision", "fp32", sorted(modeling.PRECISIONS),
                          "Number format of the encoder's computation. bf16 and fp16 need less memory than "
                          "fp32, and less time on hardware that supports the format. Weights, sums, softmax, "
                          "normalization, loss, optimizer and checkpoints stay in fp32.")
    define_gpu_flags()


def define_gpu_flags():
    """Defines the flags that set TensorFlow up for GPUs; `launch.run` applies them."""
    with section("GPUs", SPEED):
        flags.DEFINE_bool("tf32", True, "Compute matrix products of float32 in TF32 on GPUs that support it "
                          "(NVIDIA Ampere and newer). TF32 is faster, but rounds the inputs of a product to "
                          "10 bits of mantissa. false: the products are computed in float32.")
        flags.DEFINE_bool("deterministic", False, "Use only ops that give the same numbers in repeated runs "
                          "on the same GPU. Some of these ops are slower. On a CPU, this flag is not needed: "
                          "repeated runs always give the same numbers.")
    with section("GPUs", MACHINE):
        flags.DEFINE_bool("gpu_allow_growth", False, "Take GPU memory only when it is needed. false: take "
                          "nearly all free memory at the start, so no second process can use this GPU.")


def define_tokenizer_flags():
    """Defines the flags of the tokenizer; see `vocabularies.load_tokenizer`."""
    with section("Model", WEIGHTS):
        flags.DEFINE_string("vocab_file", None, "The model's vocabulary, one WordPiece per line.")
        flags.DEFINE_string("spm_model_file", None, "SentencePiece model file of a model such as ALBERT. "
                            "Pass it instead of --vocab_file.")
        flags.DEFINE_bool("do_lower_case", True, "Convert the text to lower case and strip accents: true "
                          "for uncased models, false for cased ones.")
    with section("Model", INPUT):
        flags.DEFINE_bool("protect_special_tokens", False, "Keep each special token that occurs in the text, "
                          f"such as {tokenization.SPECIAL_TOKENS[-1]}, as one token. false: special tokens "
                          "in the text are split at the brackets.")


def _define_input_flags():
    """Defines the flags that control how the input is prepared."""
    with section("Memory and speed", MACHINE):
        flags.DEFINE_integer("num_workers", 1,
                             "Number of processes that turn text into features; 0: one process for each CPU "
                             "core. The features do not depend on the number of processes. One process "
                             "prepares 100,000 short examples per second, so more processes help only with "
                             "large files of long texts.",
                             lower_bound=0, upper_bound=MAX_WORKERS)
        flags.DEFINE_string("features_cache", None, "Directory of features that several runs share. The run "
                            "stores its features in this directory. If an earlier run with the same "
                            "examples, tokenizer and lengths (such as --max_seq_length) has already stored "
                            "these features, the run reads them instead of converting the texts again. The "
                            "results with and without a cache are the same, bit for bit. sweep.py sets this "
                            "flag for its runs.")


def define_trimming_flags():
    """Defines the flags that reduce the padding of a batch."""
    with section("Memory and speed", SPEED):
        flags.DEFINE_bool("trim_padding", None, "Sort the examples by length, and trim each batch to its "
                          "longest sequence. Training spends no computation on the remaining padding "
                          "either, except with run_squad.py or --use_xla. If the examples are short, "
                          "trimming saves most of the computing time. false: all batches have the length "
                          "--max_seq_length. The default is true, with one exception: the training of "
                          "run_squad.py is not trimmed by default, because the published SQuAD loss depends "
                          "on the padding. The evaluation of run_pretraining.py is never trimmed.")
        flags.DEFINE_integer("tokens_per_micro_batch", 0,
                             "Maximum number of tokens in a micro-batch, including padding. So a "
                             "micro-batch contains either few long examples or many short ones. In training, "
                             "this flag needs --trim_padding=true, and it determines the number of "
                             "micro-batches of a step (--gradient_accumulation_steps). 0: all micro-batches "
                             "have the same number of examples.", lower_bound=0)


def define_training_flags():
    """Defines the flags of the optimizer, the learning rate schedule, the checkpoints, memory and speed."""
    with section("Training", MACHINE):
        flags.DEFINE_string("output_dir", None, "Directory of checkpoints, TFRecords and results.")
        flags.DEFINE_string("results_dir", None,
                            "Directory for the results and the TFRecords of evaluation and prediction. The "
                            "default is --output_dir. If you pass a different directory and do not train, "
                            "nothing in --output_dir is changed, so another process can train there at the "
                            "same time.")
    with section("Training", WEIGHTS):
        flags.DEFINE_integer("train_batch_size", 32, "Batch size of training.", lower_bound=1)
        flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate: the value at the end of warm-up.")
        flags.DEFINE_enum("optimizer", "adamw", sorted(optimization.OPTIMIZERS),
                          "Optimizer. The default is the optimizer of the published code.")
        flags.DEFINE_bool("adam_bias_correction", False,
                          "With --optimizer=adamw: use Adam's bias correction. The published code does not "
                          "use it.")
        flags.DEFINE_enum("lr_schedule", "linear", sorted(optimization.LR_SCHEDULES),
                          "Learning rate schedule after warm-up. The default is the schedule of the "
                          "published code.")
        flags.DEFINE_float("weight_decay", optimization.PUBLISHED_WEIGHT_DECAY, "Weight decay of the "
                           "optimizer. In each step, this value is multiplied by the learning rate. Biases "
                           "and layer normalization are not decayed.", lower_bound=0)
        flags.DEFINE_float("clip_norm", optimization.PUBLISHED_CLIP_NORM, "Largest global norm of the "
                           "gradients. Gradients with a larger norm are scaled down to this norm. 0: no "
                           "clipping.", lower_bound=0)
        flags.DEFINE_float("layer_decay", 1.0, "Factor between the learning rates of neighboring layers, "
                           "above 0 and at most 1, such as 0.95. The pooler and the head have the rate "
                           "--learning_rate. The top layer has --learning_rate times the factor. Each lower "
                           "layer has the rate of the layer above it times the factor. The embeddings count "
                           "as the lowest layer.")
        flags.DEFINE_integer("reinit_layers", 0, "Number of layers, counted from the top, that start from "
                             "random weights instead of the weights in --init_checkpoint. If it is not 0, "
                             "the pooler also starts from random weights. The flag has no effect if the "
                             "training continues from a checkpoint in --output_dir.", lower_bound=0)
        flags.DEFINE_integer("freeze_layers", 0, "Number of layers, counted from the lowest one, that are "
                             "not trained. If it is not 0, the embeddings are not trained either. A training "
                             "with frozen layers needs less time and memory.", lower_bound=0)
        flags.DEFINE_bool("freeze_embeddings", False, "Do not train the embeddings. --freeze_layers also "
                          "freezes them.")
        flags.DEFINE_integer("seed", 12345, "Random seed. The same seed repeats the run.")
    with section("Training", SPEED):
        flags.DEFINE_integer("max_steps", None, "End the training early, at this step. The learning rate "
                             "schedule does not change: it is still the schedule of the whole training. A "
                             "later run without this flag continues the training to its last step.",
                             lower_bound=1)
        flags.DEFINE_integer("save_checkpoints_steps", 1000, "Number of steps between checkpoints.",
                             lower_bound=1)
        flags.DEFINE_integer("keep_checkpoint_max", 5, "Number of checkpoints to keep. Older ones are "
                             "removed. 0: keep all.", lower_bound=0)
        flags.DEFINE_bool("eval_each_checkpoint", False, "With --do_train: evaluate each checkpoint after it "
                          "is saved. The metrics are added to learning_curve.tsv in --output_dir and to the "
                          "picture learning_curve.svg. The trained weights are the same as without these "
                          "evaluations, bit for bit.")
        flags.DEFINE_integer("eval_every_steps", None, "With --do_train: evaluate every N steps and after "
                             "the last step. No checkpoint is saved for these evaluations. The metrics are "
                             "written to the same files as with --eval_each_checkpoint.", lower_bound=1)
        flags.DEFINE_string("keep_best", None, "Name of a metric of the evaluation, such as eval_accuracy or "
                            "eval_loss. The folder best/ of --output_dir keeps the weights with the best "
                            "value. These weights are used for evaluation, prediction and export after the "
                            "training. The flag needs --eval_every_steps or --eval_each_checkpoint. A lower "
                            "value is better if the name of the metric ends in loss, perplexity, mae, rmse "
                            "or error. For all other metrics, a higher value is better.")
        flags.DEFINE_integer("early_stopping_evals", None, "Patience of early stopping: the training ends "
                             "after this number of evaluations in a row without a better value of the metric "
                             "that --keep_best names.",
                             lower_bound=1)
        define_weights_flag()
        flags.DEFINE_integer("log_steps", 10, "Number of steps between log lines, and between points in "
                             "TensorBoard.", lower_bound=1)
    with section("Memory and speed", SPEED):
        flags.DEFINE_integer("gradient_accumulation_steps", None,
                             "Number of micro-batches of a training step. With more micro-batches, a step "
                             "needs less memory, and its result is the same. 0: the command finds by "
                             "simulation the smallest number with which a step fits into memory. The default "
                             "is 1. With --tokens_per_micro_batch, the default is the number of "
                             "micro-batches that this token limit requires.", lower_bound=0)
        flags.DEFINE_enum("recompute", "none", [*modeling.RECOMPUTE, "auto"],
                          "Gradient checkpointing: which activations are computed again in the backward pass "
                          "instead of being kept in memory. none: no activations. attention: the attention "
                          "scores and probabilities. Their size grows with the square of the sequence "
                          "length, so this mode helps most with long sequences. It costs little time. "
                          "layers: all activations except the input of each layer. With this mode, a step "
                          "takes a third more time than with --recompute=none. auto: the fastest mode that "
                          "fits into memory, found by simulation.")
        flags.DEFINE_integer("recompute_segment", 1, "With --recompute=layers: number of consecutive layers "
                             "in a segment. Only the input of each segment is kept in memory.", lower_bound=1)
    with section("Memory and speed", MACHINE):
        flags.DEFINE_float("memory_limit_gb", None,
                           "With --gradient_accumulation_steps=0 or --recompute=auto: memory that a training "
                           "step may use, in GB (10⁹ bytes). The default is nearly all memory of the GPU, or "
                           "all free RAM on a machine without a GPU.",
                           lower_bound=0, upper_bound=MAX_GB)
    with section("Memory and speed", SPEED):
        flags.DEFINE_bool("compile_kernels", None,
                          "Use C++ kernels for the elementwise ops of a training step. The kernels are "
                          "compiled once for this machine's CPU. TensorFlow's ops are used instead in three "
                          "cases: no C++ compiler is found, the machine has a GPU, or a layer computes in "
                          "fp16. The default is true on a CPU for models with a hidden size of at least 256, "
                          "otherwise false.")
        flags.DEFINE_bool("use_xla", False,
                          "For training on GPUs: XLA compiles the computations between the matrix products. "
                          "Each new batch shape is compiled once, which takes some seconds. To have fewer "
                          "shapes, batches are trimmed to a multiple of 64 tokens. On a CPU, a training is "
                          "slower with this flag than without it.")
        flags.DEFINE_string("profile_steps", None,
                            "Two step numbers a,b, counted as in the log. The training steps from a to b are "
                            "profiled. The trace is written to --output_dir, for TensorBoard. The log lists "
                            "the op types that took the most time.")
        flags.DEFINE_enum("gradient_dtype", "fp32", ["fp32", "bf16"],
                          "Data type used to exchange gradients between replicas. With bf16, the replicas "
                          "send half as many bytes, but the gradients are rounded.")
    flags.register_validator("profile_steps",
                             lambda text: text is None or parse_profile_steps(text) is not None,
                             "must be two numbers a,b with 1 <= a <= b, such as 100,105: the first and the "
                             "last step to trace")
    require_finite("memory_limit_gb", "weight_decay", "clip_norm")
    _require_positive("learning_rate")
    flags.register_validator("layer_decay", lambda value: value is not None and 0 < value <= 1,
                             "must be a number above 0 and at most 1")


def define_weights_flag():
    """Defines the flag that chooses between the best and the last weights of a training."""
    flags.DEFINE_enum("weights", best_weights.BEST, [best_weights.BEST, best_weights.LAST],
                      "Weights for evaluation, prediction and export. best: the best weights if the training "
                      "kept them (--keep_best), otherwise the last weights. last: the weights of the newest "
                      "checkpoint.")


def define_replica_flags():
    """Defines the flags for the number of processes, for failed processes, and for network ports."""
    with section("Several GPUs and machines", SPEED):
        flags.DEFINE_integer("num_replicas", 1,
                             "Number of processes on this machine that share the work. Each process uses one "
                             "GPU. 0: the number of GPUs. The micro-batches of a training step are divided "
                             "among the processes. Except for rounding, the result of the step does not "
                             "depend on the number of processes. With TF_CONFIG, several machines share the "
                             "work; see docs/howto/cluster.md.", lower_bound=0, upper_bound=MAX_WORKERS)
        flags.DEFINE_float("replica_timeout", 60.0, "If a replica was killed, was stopped or lost its "
                           "connection, all replicas end after this number of seconds.")
    with section("Several GPUs and machines", MACHINE):
        flags.DEFINE_integer("max_restarts", 0, "Largest number of restarts. If a replica was killed, "
                             "crashed or lost its connection, all replicas are restarted from the last "
                             "checkpoint.", lower_bound=0)
        define_open_ports_flag()
    _require_positive("replica_timeout")


def define_open_ports_flag():
    """Defines the flag that decides whether other machines can reach the network ports of a run."""
    flags.DEFINE_bool("open_ports", None, "Whether other machines can reach the network ports that a run "
                      "opens on this machine. By default, the command closes the ports to other machines if "
                      "the system permits this and if no path is remote. Otherwise, the ports stay open, and "
                      "the command logs a warning. true: the ports stay open, without a warning. false: the "
                      "command ends with an error if the ports cannot be closed.")


def define_export_flags():
    """Defines the flag that exports the model at the end of a training command."""
    with section("Task", SPEED):
        flags.DEFINE_bool("do_export", False, "At the end, export the model as a SavedModel, with the "
                          "weights that --weights chooses. The export is a new version in the folder "
                          "export/ of --output_dir; see docs/howto/serving.md.")


def _define_epoch_flags():
    """Defines --num_train_epochs and --warmup_proportion. They determine the number of training steps and the
    number of warm-up steps."""
    with section("Training", WEIGHTS):
        flags.DEFINE_float("num_train_epochs", 3.0, "Number of epochs, for example 3 or 0.5.")
        flags.DEFINE_float("warmup_proportion", 0.1,
                           "Fraction of the training steps used for learning rate warm-up.")
    _require_positive("num_train_epochs")
    flags.register_validator("num_train_epochs", lambda value: value <= _MAX_EPOCHS,
                             f"must be at most {_MAX_EPOCHS:g}")
    flags.register_validator("warmup_proportion", lambda value: value is not None and 0 <= value <= 1,
                             "must be a number from 0 to 1")


def require_finite(*names):
    """Adds a check that the values of flags are finite or None. This check is needed in addition to absl's
    bounds, because absl's bounds accept NaN."""
    for name in names:
        flags.register_validator(name, lambda value: value is None or math.isfinite(value),
                                 "must be a finite number")


def _require_positive(name):
    # The flag is checked here, because a lower bound in the definition of the flag would accept NaN.
    flags.register_validator(name, lambda value: value is not None and 0 < value < math.inf,
                             "must be a positive number")


def define_tpu_flags():
    """Defines the published TPU flags, so that old command lines are accepted. TPUs are not supported."""
    with section("TPUs", SPEED):
        flags.DEFINE_bool("use_tpu", False, "TPUs are not supported: only false is accepted.")
        for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
            flags.DEFINE_string(name, None, "Ignored. Old command lines may contain this flag.")
        flags.DEFINE_integer("num_tpu_cores", 8, "Ignored. Old command lines may contain this flag.")
        flags.DEFINE_integer("iterations_per_loop", 1000, "Ignored. Old command lines may contain this flag.")


def define_common_flags(description):
    """Defines the flags of all commands; `description` is the text of `--help` before the flags."""
    app.define_help_flags()
    flags.DEFINE_flag(_HelpFlag("help", "Lists the everyday flags.", description, short_name="?"))
    flags.DEFINE_flag(_HelpFlag("helpshort", "The same as --help.", description))
    flags.DEFINE_flag(_HelpFlag("helpfull", "Lists all flags.", description))
    with section("Errors", MACHINE):
        flags.DEFINE_bool("traceback", False, "Show the Python traceback of an error.")
    _limit_integers()


def _limit_integers():
    """Adds an upper bound to integer flags that have none. Larger values would overflow in TensorFlow or
    NumPy."""
    for name in itertools.chain.from_iterable(names_by_section.values()):
        flag = FLAGS[name]
        if flag.flag_type() == "int" and flag.parser.upper_bound is None:
            most = _SEEDS.get(name, _MAX_INT32)
            flags.register_validator(
                name, lambda value, most=most: value is None or abs(value) <= most, f"must be at most {most}")
