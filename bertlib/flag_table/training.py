"""Lists the flags of the commands that train."""

import collections

from bertlib.flag_table import shared
from bertlib.flag_table.entries import (
    INPUT,
    SPEED,
    TASK,
    WEIGHTS,
    Choice,
    Integer,
    Number,
    Path,
    Switch,
    Text,
    section,
)
from bertlib.tasks.classification.classifier_data import PROCESSORS, XnliProcessor

_DO_TRAIN = Switch("do_train", False, "Train the model.")
_DO_EVAL = Switch("do_eval", False, "Evaluate on the development file.")
_EVAL_BATCH_SIZE = Integer("eval_batch_size", 8, "Batch size of evaluation.", least=1)
_DEV_FILE = Path("dev_file", None, "Development file, for evaluation.")
_TEST_FILE = Path("test_file", None, "Test file, for prediction. Its labels are optional.")

_CLASSIFICATION = section("Task", TASK, [
    Text("task_name", None,
         f"Name of the task, in upper or lower case: {', '.join(sorted(PROCESSORS))}. For your own data, "
         "pass --train_file instead."),
    Path("task_module", None,
         "Python file that defines your own task. Pass it instead of --task_name. The file contains one "
         "class derived from DataProcessor. The command passes --data_dir to the methods of this class. For "
         "an example, see own_task.md in docs/howto."),
]) + section("Task", INPUT, [
    Path("data_dir", None, "Directory of the task's TSV files."),
    Choice("xnli_language", "zh", XnliProcessor.LANGUAGES, "Language of the XNLI files.", advanced="text"),
]) + section("Task", SPEED, [
    _DO_TRAIN,
    Switch("do_eval", False, "Evaluate on the development set."),
    Switch("do_predict", False, "Predict on the test set."),
    _EVAL_BATCH_SIZE,
    Integer("predict_batch_size", 8, "Batch size of prediction.", least=1),
]) + section("Task", INPUT, [
    Integer("doc_stride", 0,
            "Split a text that is longer than --max_seq_length into windows. Each window starts this number "
            "of tokens after the start of the window before it. The prediction for the text is the average "
            "over its windows. 0: long texts are truncated instead.", least=0),
]) + section("Task", WEIGHTS, [
    Text("class_weights", None,
         "Weights of the classes in the loss. Pass label:weight pairs, such as 0:1,1:3, or only the weights "
         "in the order of the labels, such as 1,3. With --class_weights=balanced, the command chooses "
         "weights with which all classes have the same total weight. Only the ratios of the weights matter."),
    Number("label_smoothing", 0.0, "Label smoothing factor, for example 0.1.", least=0, below=1),
]) + shared.example_limits() + section("Your own data, in place of a task", INPUT, [
    Path("train_file", None,
         "Training file. The extension must be .csv, .tsv, .jsonl or .json, and .gz may follow. .jsonl and "
         ".json both mean JSON Lines."),
    _DEV_FILE,
    _TEST_FILE,
    shared.SKIP_BAD_LINES,
]) + section("Your own data, in place of a task", TASK, [
    Choice("task_type", "classification", ["classification", "regression", "multilabel"],
           "Type of the task. classification: one class for each text. regression: a number for each text. "
           "multilabel: any number of classes for each text."),
    Path("label_file", None,
         "File with one label per line, in the order of the model's outputs. By default, the labels are "
         "those of the training file, sorted."),
]) + section("Your own data, in place of a task", INPUT, [
    Text("label_separator", ",",
         "With --task_type=multilabel: character or string that separates the labels of one text.",
         lambda value: value != "" and value.isprintable(),
         "one or more printable characters, such as a comma",
         advanced="text"),
    Number("threshold", 0.5,
           "With --task_type=multilabel: a label is predicted if its probability is at least this value.",
           above=0, below=1),
]) + section("Your own data, in place of a task", WEIGHTS, [
    Number("dev_fraction", None,
           "Fraction of the training file, at most 0.5, that is used for evaluation and not for training. "
           "Pass this flag instead of --dev_file. The split is stratified by label and does not depend on "
           "--seed. The file dev_rows.txt in the output directory lists the rows used for evaluation.",
           above=0, most=0.5),
]) + shared.columns("Your own data, in place of a task")

_RUN_CLASSIFIER = _CLASSIFICATION + shared.EXPORT + shared.fine_tuning(max_seq_length=128)

_RUN_CLASSIFIER_WITH_TFHUB = section("Model", WEIGHTS, [
    Path("bert_hub_module_handle", None,
         "Directory of the hub module, which contains saved_model.pb. The address of a module is also "
         "accepted, if the module is already in the cache $TFHUB_CACHE_DIR."),
]) + _CLASSIFICATION + shared.fine_tuning(max_seq_length=128)

_RUN_SQUAD = section("Task", INPUT, [
    Path("train_file", None, "SQuAD file for training, such as train-v1.1.json."),
    Path("predict_file", None,
         "File with the questions for prediction: a SQuAD file, such as dev-v1.1.json, or JSON Lines with "
         "the fields id, question and context. With --do_eval, each line of JSON Lines also needs the field "
         "answers or the field is_impossible."),
]) + section("Task", SPEED, [
    _DO_TRAIN,
    Switch("do_predict", False, "Answer the questions of --predict_file."),
    Switch("do_eval", False,
           "Answer the questions of --predict_file, and compare the answers with the right answers in this "
           "file."),
]) + section("Task", TASK, [
    Switch("version_2_with_negative", False,
           "The data is SQuAD 2.0, in which some questions have no answer."),
]) + section("Task", SPEED, [
    Integer("predict_batch_size", 8, "Number of windows in a batch of the prediction.", least=1),
]) + shared.example_limits("questions") + section("Windows and answers", INPUT, [
    Integer("doc_stride", 128,
            "Number of tokens between the starts of two windows of a long context.", least=1),
    Integer("max_query_length", 64,
            "Maximum number of WordPieces in a question. Longer questions are truncated.", least=1),
    Integer("max_answer_length", 30, "Maximum number of WordPieces in an answer.", least=1),
    Integer("n_best_size", 20, "Number of answers in nbest_predictions.json for each question.", least=1),
    Number("null_score_diff_threshold", 0.0,
           "With --version_2_with_negative: the predicted answer is empty if the score of an empty answer, "
           "minus the score of the best answer, is above this value. If this flag is not given, a run "
           "without training uses the value that the last evaluation stored in eval_results.json."),
]) + section("Windows and answers", SPEED, [
    Switch("find_null_threshold", False,
           "With --version_2_with_negative and --do_eval: find the --null_score_diff_threshold with the best "
           "score on --predict_file, use it and record it."),
    Switch("verbose_logging", False,
           "Log each answer whose tokens could not be aligned with the text of the context."),
]) + shared.EXPORT + shared.fine_tuning(max_seq_length=384)

_RUN_PRETRAINING = section("Task", INPUT, [
    Path("input_file", None,
         "TFRecord files of create_pretraining_data.py for training: paths or globs, with commas between "
         "them."),
    Path("eval_file", None, "TFRecord files for evaluation. The default is the value of --input_file."),
]) + section("Task", SPEED, [
    _DO_TRAIN,
    Switch("do_eval", False, "Evaluate on --eval_file."),
]) + section("Task", INPUT, [
    Integer("max_predictions_per_seq", 20,
            "Maximum number of masked tokens in an example. It must be the value with which the records were "
            "written.", least=1),
]) + section("Task", SPEED, [
    _EVAL_BATCH_SIZE,
    Integer("max_eval_steps", 100, "Maximum number of evaluation batches.", least=1),
]) + shared.model(max_seq_length=128) + section("Model", WEIGHTS, [
    Path("vocab_file", None,
         "The vocabulary of the records, with one WordPiece in each line. This command only copies the file "
         "to --output_dir, for fine-tuning. Without this flag, the command takes the file in the directory "
         "of --init_checkpoint, or the file that is named in the manifest of the records."),
    Path("spm_model_file", None, "The SentencePiece model of the records. Pass it instead of --vocab_file."),
    Switch("do_lower_case", None,
           "Whether the text of the records was converted to lower case. The value is recorded in "
           "--output_dir with the vocabulary. Without this flag, the command takes the value from the "
           "manifest of the records, or from tokenizer_config.json in the directory of the vocabulary."),
]) + section("Training", WEIGHTS, [
    Integer("num_train_steps", 100000, "Number of training steps.", least=1),
    Integer("num_warmup_steps", 10000, "Number of training steps used for learning rate warm-up.", least=0),
]) + (
    shared.TRIMMING + shared.TRAINING + shared.EXPORT + shared.REPLICAS + shared.TPUS)

_RUN_NER = section("Task", INPUT, [
    Path("data_dir", None,
         "Directory of train.txt, dev.txt and test.txt. The names of these files may also end in .conll, "
         ".tsv, .iob, .bio, .jsonl or .json. --train_file, --dev_file and --test_file override this flag."),
    Path("train_file", None,
         "Training file. Each line contains a word and its tag, in columns separated by spaces or tabs. A "
         "blank line follows each sentence. If the name ends in .jsonl or .json, each line is instead an "
         'object such as {"tokens": ["Ana", "sleeps"], "ner_tags": ["B-PER", "O"]}.'),
    _DEV_FILE,
    Path("test_file", None, "Test file, for prediction. Its tags are optional."),
    shared.SKIP_BAD_LINES,
]) + shared.word_columns() + section("Task", SPEED, [
    _DO_TRAIN,
    _DO_EVAL,
    Switch("do_predict", False,
           "Write test_predictions.conll: the test file with an additional column of predicted tags. If the "
           "test file is in JSON Lines, write test_predictions.jsonl instead."),
    Integer("predict_batch_size", 8,
            "Batch size of evaluation and prediction: number of sentences. Each window of a long sentence "
            "counts as one sentence.", least=1),
]) + section("Task", TASK, [
    Switch("crf", False,
           "Predict the tags of a sentence jointly, with a conditional random field (CRF) on top of the "
           "model."),
]) + section("Task", INPUT, [
    Switch("label_all_pieces", False,
           "Train on all WordPieces of a word. By default, only the first WordPiece of a word has a label."),
]) + shared.example_limits("sentences") + shared.EXPORT + shared.fine_tuning(max_seq_length=128)

_RUN_SWAG = section("Task", INPUT, [
    Path("data_dir", None,
         "Directory of train.csv, val.csv and test.csv. The development file may also have the name dev.csv. "
         "The names may also end in .tsv, .jsonl or .json, and .gz may follow. --train_file, --dev_file and "
         "--test_file override this flag."),
    Path("train_file", None,
         "Training file, with a question in each row. The columns are sent1 (a sentence), sent2 (the start "
         "of the next sentence), ending0, ending1 and so on (possible endings of the next sentence), and "
         "label (the number of the right ending, counted from 0)."),
    _DEV_FILE,
    _TEST_FILE,
    shared.SKIP_BAD_LINES,
]) + shared.columns(
    "Columns",
    "Columns of the texts, separated by commas: the sentence, the start of the next sentence, and each "
    "ending. A column is a name, or a number that counts from 1; -1 is the last column. The default is "
    "sent1,sent2,ending0,ending1 and so on.",
    "Column that contains the number of the right ending, counted from 0. The default is label.",
) + section("Task", SPEED, [
    _DO_TRAIN,
    _DO_EVAL,
    Switch("do_predict", False, "Choose an ending for each question of the test file."),
    Integer("predict_batch_size", 8,
            "Batch size of evaluation and prediction: number of questions.", least=1),
]) + shared.example_limits("questions") + shared.EXPORT + shared.fine_tuning(max_seq_length=128)

# {command: its entries}, in the order of --help.
COMMANDS = {"run_classifier": _RUN_CLASSIFIER, "run_classifier_with_tfhub": _RUN_CLASSIFIER_WITH_TFHUB,
            "run_ner": _RUN_NER, "run_pretraining": _RUN_PRETRAINING, "run_squad": _RUN_SQUAD,
            "run_swag": _RUN_SWAG}
# {flag: {file name of a command: its entry}}.
_ENTRIES = collections.defaultdict(dict)
for _command, _entries in COMMANDS.items():
    for _entry in _entries:
        _ENTRIES[_entry.name][f"{_command}.py"] = _entry


def find(name, command=None):
    """Returns the entries of a flag, a list.

    Args:
      name: the flag.
      command: file name of the command, such as "run_ner.py". None, or a command that is not in `COMMANDS` or
        does not have the flag: the entries of all commands are returned.
    """
    found = _ENTRIES.get(name, {})
    return [found[command]] if command in found else list(found.values())


def is_path(name):
    """Returns whether the value of a flag is a path."""
    return any(entry.is_path for entry in find(name))
