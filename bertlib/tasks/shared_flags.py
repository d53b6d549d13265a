"""Lists the flags that several commands have: a tuple of entries for each group of flags.

A function returns a group whose default, heading or meaning differs between commands.
"""

from bertlib.data import prediction_files
from bertlib.data.tables import DECIMAL_SIGNS, check_encoding, is_delimiter
from bertlib.estimator import step_config
from bertlib.runs.best_weights import BEST, LAST
from bertlib.runs.entries import (
    INPUT,
    LINE,
    MACHINE,
    MAX_INT64,
    SPEED,
    WEIGHTS,
    Choice,
    Integer,
    Number,
    Path,
    Switch,
    Text,
    section,
)
import tokenization

MAX_WORKERS = 1024
MAX_GB = 1e6
# Largest number of epochs for which the number of training steps still fits into an int64.
MAX_EPOCHS = 1e9

# --- Data ------------------------------------------------------------------------------------------------

SKIP_BAD_LINES = Switch("skip_bad_lines", False,
    "Leave out lines that cannot be used, such as a line with an empty text or an unknown label. The "
    "file skipped_lines.csv lists these lines with the reasons. By default, the command stops, and "
    "its error message lists some of these lines.")

_TEXT_COLUMN = ("Column of the text, or two columns separated by a comma. A column is a name, or a number "
                "that counts from 1; -1 is the last column. By default, the command looks for columns with "
                "usual names, for example text, or sentence1 and sentence2.")
_LABEL_COLUMN = ("Column of the label: a name, or a number that counts from 1; -1 is the last column. With "
                 "--task_type=multilabel, you can also name several columns, separated by commas. Each of "
                 "these columns contains 0 or 1, and the name of the column is the label.")
_DELIMITERS = ("auto, comma, semicolon, tab, pipe or a single character; a quote or a line end is not "
               "allowed")


def columns(heading, text_column=_TEXT_COLUMN, label_column=_LABEL_COLUMN):
    """Returns the flags that name the columns of the user's own files; see `bertlib.data.columns`.

    Args:
      heading: heading of the flags in the help.
      text_column, label_column: the meanings of --text_column and --label_column.
    """
    return section(heading, INPUT, [
        Text("text_column", None, text_column),
        Text("label_column", None, label_column),
        Choice("header", "auto", ["auto", "true", "false"],
               "Whether the first row of a .csv or .tsv file contains the names of the columns. auto: false "
               "if the columns are given as numbers, otherwise true."),
        Text("delimiter", "auto",
             "Character between the columns of a .csv file: comma, semicolon, tab, pipe, or any other "
             "single character. auto: a semicolon if the first row contains semicolons and no commas "
             "outside of quotes and of numbers such as 3,5; otherwise a comma. The columns of a .tsv file "
             "are always separated by tabs.",
             is_delimiter, _DELIMITERS),
        Text("encoding", "utf-8",
             "Encoding of the files: the name of an encoding of Python, such as cp1252, latin-1 or utf-16.",
             check_encoding, "the name of a text encoding of Python, such as cp1252, latin-1 or utf-16"),
    ])


def word_columns(heading="Task"):
    """Returns the flags that name the columns of CoNLL files; see `conll_files`."""
    return section(heading, INPUT, [
        Integer("token_column", 1,
                "Number of the column that contains the words. The first column is 1, the last column is -1.",
                ),
        Integer("tag_column", -1,
                "Number of the column that contains the tags. The first column is 1, the last column is -1."),
    ])


def example_limits(examples="examples"):
    """Returns the flags that limit the number of examples; see `bertlib.tasks.data_splits.draw_examples`.

    Args:
      examples: name of the command's examples in the help texts: "examples", "sentences" or "questions".
    """
    return section("Task", WEIGHTS, [
        Integer("max_train_examples", None,
                f"Train on at most this number of {examples}. If the training set has more {examples}, a "
                "subset is drawn by a hash of the texts and labels, so each run draws the same subset. By "
                f"default, all {examples} are used.", least=1),
        SPEED,
        Integer("max_eval_examples", None,
                f"Evaluate on at most this number of {examples} of the development set. The subset is drawn "
                f"in the same way as for --max_train_examples. By default, all {examples} are used.",
                least=1),
    ])


# --- The model -------------------------------------------------------------------------------------------

GPUS = section("GPUs", SPEED, [
    Switch("tf32", True,
           "Compute matrix products of float32 in TF32 on GPUs that support it (NVIDIA Ampere and newer). "
           "TF32 is faster, but rounds the inputs of a product to 10 bits of mantissa. false: the products "
           "are computed in float32.", advanced="GPUs", is_recorded=True),
    Switch("deterministic", False,
           "Use only ops that give the same numbers in repeated runs on the same GPU. Some of these ops are "
           "slower. On a CPU, this flag is not needed: repeated runs always give the same numbers.",
           advanced="GPUs", is_recorded=True),
    MACHINE,
    Switch("gpu_allow_growth", False,
           "Take GPU memory only when it is needed. false: take nearly all free memory at the start, so no "
           "second process can use this GPU.", advanced="GPUs"),
])


def _is_marker_list(text):
    """Returns whether a text is a list of different tokens, none of them empty or with white space."""
    markers = text.split(",")
    return len(set(markers)) == len(markers) and all(marker.split() == [marker] for marker in markers)


MARKER_TOKENS = Text("marker_tokens", None,
    "Tokens of the texts that stay whole, with commas between them, such as [E1],[/E1]. They are "
    "matched as written, before lower-casing. Markers that the vocabulary lacks take its [unused…] "
    "entries; if there are too few, the vocabulary and the embeddings grow. The vocabulary with the "
    "markers is written to --output_dir. By default, markers are split at the brackets.",
    _is_marker_list, "different tokens without blanks, with commas between them, such as [E1],[/E1]",
    advanced="text")

TOKENIZER = section("Model", WEIGHTS, [
    Path("vocab_file", None, "The model's vocabulary, one WordPiece per line."),
    Path("spm_model_file", None,
         "SentencePiece model file of a model such as ALBERT. Pass it instead of --vocab_file."),
    Switch("do_lower_case", True,
           "Convert the text to lower case and strip accents: true for uncased models, false for cased ones.",
           ),
    MARKER_TOKENS,
    INPUT,
    Switch("protect_special_tokens", False,
           f"Keep each special token that occurs in the text, such as {tokenization.SPECIAL_TOKENS[-1]}, as "
           "one token. false: special tokens in the text are split at the brackets.", advanced="text"),
])

WEIGHTS_TO_USE = Choice("weights", BEST, [BEST, LAST],
    "Weights for evaluation, prediction and export. best: the best weights if the training kept them "
    "(--keep_best), otherwise the last weights. last: the weights of the newest checkpoint.")


def model(max_seq_length):
    """Returns the flags of the model, its precision and its sequence length. `max_seq_length` is the default
    length."""
    return section("Model", WEIGHTS, [
        Path("bert_config_file", None, "The model's bert_config.json, or a Hugging Face config.json."),
        Path("init_checkpoint", None,
             "Initial weights: a TensorFlow checkpoint prefix, a Hugging Face BERT directory, a "
             ".safetensors file, or hf: followed by the name of a model on the Hugging Face Hub, such as "
             "hf:google-bert/bert-base-uncased. If --output_dir contains a checkpoint, that checkpoint is "
             "used instead."),
        INPUT,
        Integer("max_seq_length", max_seq_length,
                "Maximum number of WordPieces in an input, including [CLS] and [SEP]. Longer inputs are "
                "truncated, shorter ones are padded.", least=3),
    ]) + section("Memory and speed", SPEED, [
        Choice("precision", "fp32", sorted(step_config.PRECISIONS),
               "Number format of the encoder's computation. bf16 and fp16 need less memory than fp32, and "
               "less time on hardware that supports the format. Weights, sums, softmax, normalization, "
               "loss, optimizer and checkpoints stay in fp32.", is_recorded=True),
    ]) + GPUS


# --- Training --------------------------------------------------------------------------------------------

TRAINING = section("Training", MACHINE, [
    Path("output_dir", None, "Directory of checkpoints, TFRecords and results."),
    Path("results_dir", None,
         "Directory for the results and the TFRecords of evaluation and prediction. The default is "
         "--output_dir. If you pass a different directory and do not train, nothing in --output_dir is "
         "changed, so another process can train there at the same time."),
    WEIGHTS,
    Integer("train_batch_size", 32, "Batch size of training.", least=1),
    Number("learning_rate", 5e-05,
           "Learning rate toward which warm-up rises. As in the published code, the linear decay counts from "
           "step 0. So after a warm-up of a tenth of the steps, the rate is 0.9 times this value.", above=0),
    Choice("optimizer", "adamw", sorted(step_config.OPTIMIZERS),
           "Optimizer; see docs/howto/memory.md#optimizers. The default is that of the published code."),
    Switch("adam_bias_correction", False,
           "With --optimizer=adamw: use Adam's bias correction. The published code does not use it.",
           advanced="training"),
    Choice("lr_schedule", "linear", sorted(step_config.LR_SCHEDULES),
           "Learning rate schedule after warm-up. The default is the schedule of the published code."),
    Number("weight_decay", step_config.StepConfig.weight_decay,
           "Weight decay of the optimizer. In each step, this value is multiplied by the learning rate. "
           "Biases and layer normalization are not decayed.", least=0, advanced="training"),
    Number("clip_norm", step_config.StepConfig.clip_norm,
           "Largest global norm of the gradients. Gradients with a larger norm are scaled down to this norm. "
           "0: no clipping.", least=0, advanced="training"),
    Number("layer_decay", 1.0,
           "Factor between the learning rates of neighboring layers, above 0 and at most 1, such as 0.95. "
           "The pooler and the head have the rate --learning_rate. The top layer has --learning_rate times "
           "the factor. Each lower layer has the rate of the layer above it times the factor. The embeddings "
           "count as the lowest layer.", above=0, most=1, advanced="training"),
    Integer("reinit_layers", 0,
            "Number of layers, counted from the top, that start from random weights instead of the weights "
            "in --init_checkpoint. If it is not 0, the pooler also starts from random weights. The flag has "
            "no effect if the training continues from a checkpoint in --output_dir.", least=0,
            advanced="training"),
    Integer("freeze_layers", 0,
            "Number of layers, counted from the lowest one, that are not trained. If it is not 0, the "
            "embeddings are not trained either. A training with frozen layers needs less time and memory.",
            least=0),
    Switch("freeze_embeddings", False, "Do not train the embeddings. --freeze_layers also freezes them.",
           advanced="training"),
    Integer("seed", 12345, "Random seed. The same seed repeats the run.", least=-MAX_INT64, most=MAX_INT64),
    SPEED,
    Integer("max_steps", None,
            "End the training early, at this step. The learning rate schedule does not change: it is still "
            "the schedule of the whole training. A later run without this flag continues the training to its "
            "last step.", least=1),
    Integer("save_checkpoints_steps", 1000, "Number of steps between checkpoints.", least=1),
    Integer("keep_checkpoint_max", 5,
            "Number of checkpoints to keep. Older ones are removed. 0: keep all.", least=0,
            advanced="training"),
    Switch("eval_each_checkpoint", False,
           "With --do_train: evaluate each checkpoint after it is saved. The metrics are added to "
           "learning_curve.tsv in --output_dir and to the picture learning_curve.svg. The trained weights "
           "are the same as without these evaluations, bit for bit."),
    Integer("eval_every_steps", None,
            "With --do_train: evaluate every N steps and after the last step. No checkpoint is saved for "
            "these evaluations. The metrics are written to the same files as with --eval_each_checkpoint.",
            least=1, is_recorded=True),
    Text("keep_best", None,
         "Name of a metric of the evaluation, such as eval_accuracy or eval_loss. The folder best/ of "
         "--output_dir keeps the weights with the best value. These weights are used for evaluation, "
         "prediction and export after the training. The flag needs --eval_every_steps or "
         "--eval_each_checkpoint. A lower value is better if the name of the metric ends in loss, "
         "perplexity, mae, mse, rmse, error, cost, brier or ece. Otherwise, a higher value is better.",
         LINE.holds, LINE.words, is_recorded=True),
    Integer("early_stopping_evals", None,
            "Patience of early stopping: the training ends after this number of evaluations in a row without "
            "a better value of the metric that --keep_best names.", least=1, is_recorded=True),
    WEIGHTS_TO_USE,
    Integer("log_steps", 10,
            "Number of steps between log lines, and between points in TensorBoard.", least=1,
            advanced="training"),
]) + section("Memory and speed", SPEED, [
    Integer("gradient_accumulation_steps", None,
            "Number of micro-batches of a training step. With more micro-batches, a step needs less memory, "
            "and its result is the same. 0: the command finds by simulation the smallest number with which a "
            "step fits into memory. The default is 1. With --tokens_per_micro_batch, the default is the "
            "number of micro-batches that this token limit requires.", least=0, is_recorded=True),
    Choice("recompute", "none", [*step_config.RECOMPUTE, "auto"],
           "Gradient checkpointing: which activations are computed again in the backward pass instead of "
           "being kept in memory. none: no activations. attention: the attention scores and probabilities. "
           "Their size grows with the square of the sequence length, so this mode helps most with long "
           "sequences. It costs little time. layers: all activations except the input of each layer. With "
           "this mode, a step takes a third more time than with --recompute=none. auto: the fastest mode "
           "that fits into memory, found by simulation.", is_recorded=True),
    Integer("recompute_segment", 1,
            "With --recompute=layers: number of consecutive layers in a segment. Only the input of each "
            "segment is kept in memory.", least=1, advanced="memory and speed", is_recorded=True),
    MACHINE,
    Number("memory_limit_gb", None,
           "With --gradient_accumulation_steps=0 or --recompute=auto: memory that a training step may use, "
           "in GB (10⁹ bytes). The default is nearly all memory of the GPU, or all free RAM on a machine "
           "without a GPU.", least=0, most=MAX_GB),
    SPEED,
    Switch("compile_kernels", None,
           "Use C++ kernels for the elementwise ops of a training step. The kernels are compiled once for "
           "this machine's CPU. TensorFlow's ops are used instead in three cases: no C++ compiler is found, "
           "the machine has a GPU, or a layer computes in fp16. The default is true on a CPU for models with "
           "a hidden size of at least 256, otherwise false.", advanced="memory and speed", is_recorded=True),
    Switch("use_xla", False,
           "For training on GPUs: XLA compiles the computations between the matrix products. Each new batch "
           "shape is compiled once, which takes some seconds. To have fewer shapes, batches are trimmed to a "
           "multiple of 64 tokens. On a CPU, a training is slower with this flag than without it.",
           is_recorded=True),
    Text("profile_steps", None,
         "Two step numbers a,b, counted as in the log. The training steps from a to b are profiled. The "
         "trace is written to --output_dir, for TensorBoard. The log lists the op types that took the most "
         "time.", lambda value: step_config.parse_steps(value) is not None,
         "two numbers a,b with 1 <= a <= b, such as 100,105: the first and the last step to trace",
         advanced="training"),
    Choice("gradient_dtype", "fp32", ["fp32", "bf16"],
           "Data type used to exchange gradients between replicas. With bf16, the replicas send half as many "
           "bytes, but the gradients are rounded.", advanced="replicas", is_recorded=True),
])

EPOCHS = section("Training", WEIGHTS, [
    Number("num_train_epochs", 3.0, "Number of epochs, for example 3 or 0.5.", above=0, most=MAX_EPOCHS),
    Number("warmup_proportion", 0.1, "Fraction of the training steps used for learning rate warm-up.",
           least=0, most=1),
])

WORKERS = section("Memory and speed", MACHINE, [
    Integer("num_workers", 1,
            "Number of processes that turn text into features; 0: one process for each CPU core. The "
            "features do not depend on the number of processes. One process prepares 100,000 short examples "
            "per second, so more processes help only with large files of long texts.",
            least=0, most=MAX_WORKERS, advanced="memory and speed"),
    Path("features_cache", None,
         "Directory of features that several runs share. The run stores its features in this directory. If "
         "an earlier run with the same examples, tokenizer and lengths (such as --max_seq_length) has "
         "already stored these features, the run reads them instead of converting the texts again. The "
         "results with and without a cache are the same, bit for bit. sweep.py sets this flag for its runs.",
         advanced="memory and speed"),
])

TRIMMING = section("Memory and speed", SPEED, [
    Switch("trim_padding", None,
           "Sort the examples by length, and trim each batch to its longest sequence. Training spends no "
           "computation on the remaining padding either, except with run_squad.py or --use_xla. If the "
           "examples are short, trimming saves most of the computing time. false: all batches have the "
           "length --max_seq_length. The default is true, with one exception: the training of run_squad.py "
           "is not trimmed by default, because the published SQuAD loss depends on the padding. The "
           "evaluation of run_pretraining.py is never trimmed.", is_recorded=True),
    Integer("tokens_per_micro_batch", 0,
            "Maximum number of tokens in a micro-batch, including padding. So a micro-batch contains either "
            "few long examples or many short ones. In training, this flag needs --trim_padding=true, and it "
            "determines the number of micro-batches of a step (--gradient_accumulation_steps). 0: all "
            "micro-batches have the same number of examples.", least=0, advanced="memory and speed",
            is_recorded=True),
])

CSV_SAFE = Switch("csv_safe", False,
    "In CSV tables, write an apostrophe before each text that a spreadsheet program would execute as "
    "a formula, such as =1+1.")
OUTPUT_DELIMITER = Text("output_delimiter", "auto",
    "Character between the columns of CSV tables: comma, semicolon, tab, pipe, or any other single "
    "character. auto: the delimiter of the input if it is CSV, otherwise a comma. The table begins with a "
    "byte-order mark if the input does.", is_delimiter, _DELIMITERS)

OUTPUT_DECIMAL = Choice("output_decimal", "auto", list(DECIMAL_SIGNS),
    "Decimal sign of the numbers in CSV tables. auto: a comma if run_classifier.py reads scores with "
    "decimal commas, otherwise a point. predict.py, and run_classifier.py with your own files, take the sign "
    "of the training.", is_recorded=True)

TABLES = section("Tables of predictions", SPEED, [
    Choice("predictions_format", "csv", list(prediction_files.FORMATS),
           "Format of the tables of predictions. csv: an evaluation writes eval_predictions.csv, and a "
           "prediction writes test_predictions.csv. jsonl: the tables are in JSON Lines, and their names end "
           "in .jsonl."),
    OUTPUT_DELIMITER,
    OUTPUT_DECIMAL,
    CSV_SAFE,
])

OPEN_PORTS = Switch("open_ports", None,
    "Whether other machines can reach the network ports that a run opens on this machine. By default, "
    "the command closes the ports to other machines if the system permits this and if no path is "
    "remote. Otherwise, the ports stay open, and the command logs a warning. true: the ports stay "
    "open, without a warning. false: the command ends with an error if the ports cannot be closed.")

REPLICAS = section("Several GPUs and machines", SPEED, [
    Integer("num_replicas", 1,
            "Number of processes on this machine that share the work. Each process uses one GPU. 0: the "
            "number of GPUs. The micro-batches of a training step are divided among the processes. Except "
            "for rounding, the result of the step does not depend on the number of processes. With "
            "TF_CONFIG, several machines share the work; see docs/howto/cluster.md.",
            least=0, most=MAX_WORKERS, is_recorded=True),
    Number("replica_timeout", 60.0,
           "If a replica was killed, was stopped or lost its connection, all replicas end after this number "
           "of seconds.", above=0, advanced="replicas"),
    MACHINE,
    Integer("max_restarts", 0,
            "Largest number of restarts. If a replica was killed, crashed or lost its connection, all "
            "replicas are restarted from the last checkpoint.", least=0, advanced="replicas"),
    OPEN_PORTS,
])

# Old command lines may contain these flags. TPUs are not supported.
TPUS = section("TPUs", SPEED, [
    Switch("use_tpu", False, "TPUs are not supported: only false is accepted.", advanced="TPUs"),
    *(Text(name, None, "Ignored. Old command lines may contain this flag.", advanced="TPUs")
      for name in ("tpu_name", "tpu_zone", "gcp_project", "master")),
    Integer("num_tpu_cores", 8, "Ignored. Old command lines may contain this flag.", advanced="TPUs"),
    Integer("iterations_per_loop", 1000, "Ignored. Old command lines may contain this flag.",
            advanced="TPUs"),
])

EXPORT = section("Task", SPEED, [
    Switch("do_export", False,
           "At the end, export the model as a SavedModel, with the weights that --weights chooses. The "
           "export is a new version in the folder export/ of --output_dir; see docs/howto/serving.md."),
])


def fine_tuning(max_seq_length):
    """Returns the flags of a fine-tuning command, except those of its task. `max_seq_length` is the default
    length."""
    return (model(max_seq_length) + TOKENIZER + TRAINING + EPOCHS + WORKERS + TRIMMING + TABLES + REPLICAS
            + TPUS)

# --- Phases and files of a task --------------------------------------------------------------------------

DO_TRAIN = Switch("do_train", False, "Train the model.")
DO_EVAL = Switch("do_eval", False, "Evaluate on the development file.")
EVAL_BATCH_SIZE = Integer("eval_batch_size", 8, "Batch size of evaluation.", least=1)
DEV_FILE = Path("dev_file", None, "Development file, for evaluation.")
TEST_FILE = Path("test_file", None, "Test file, for prediction. Its labels are optional.")
