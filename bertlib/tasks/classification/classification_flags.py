"""The flags of run_classifier.py, run_classifier_with_tfhub.py and run_swag.py."""

from bertlib.runs.entries import (
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
from bertlib.tasks import shared_flags
from bertlib.tasks.classification.classifier_data import PROCESSORS, XnliProcessor

_CLASSIFICATION = section("Task", TASK, [
    Text("task_name", None,
         f"Name of the task, in upper or lower case: {', '.join(sorted(PROCESSORS))}. For your own data, "
         "pass --train_file instead."),
    Path("task_module", None,
         "Python file that defines your own task. Pass it instead of --task_name. The file contains one "
         "class derived from DataProcessor. The command passes --data_dir to the methods of this class. For "
         "an example, and for tasks that are no classification, see own_task.md in docs/howto."),
    INPUT,
    Path("data_dir", None, "Directory of the task's TSV files."),
    Choice("xnli_language", "zh", XnliProcessor.LANGUAGES, "Language of the XNLI files.", advanced="text"),
    SPEED,
    shared_flags.DO_TRAIN,
    Switch("do_eval", False, "Evaluate on the development set."),
    Switch("do_predict", False, "Predict on the test set."),
    shared_flags.EVAL_BATCH_SIZE,
    Integer("predict_batch_size", 8, "Batch size of prediction.", least=1),
    Choice("baseline", "auto", ["auto", "true", "false"],
           "Whether to compare the scores with those of a bag of words, which is a linear model of "
           "scikit-learn. auto: if it takes at most 2 % of the CPU time of the run, or 10 % and at most 4 "
           "seconds in a short run, or if the directory has it from an earlier evaluation."),
    INPUT,
    Integer("doc_stride", 0,
            "Split a text that is longer than --max_seq_length into windows. Each window starts this number "
            "of tokens after the start of the window before it. The prediction for the text is the average "
            "over its windows. 0: long texts are truncated instead.", least=0),
    WEIGHTS,
    Text("class_weights", None,
         "Weights of the classes in the loss. Pass label:weight pairs, such as 0:1,1:3, or only the weights "
         "in the order of the labels, such as 1,3. With --class_weights=balanced, the command chooses "
         "weights with which all classes have the same total weight. Only the ratios of the weights matter."),
    Number("label_smoothing", 0.0, "Label smoothing factor, for example 0.1.", least=0, below=1),
]) + shared_flags.example_limits() + section("Your own data, in place of a task", INPUT, [
    Path("train_file", None,
         "Training file. The extension must be .csv, .tsv, .jsonl or .json, and .gz may follow. .jsonl and "
         ".json both mean JSON Lines."),
    shared_flags.DEV_FILE,
    shared_flags.TEST_FILE,
    shared_flags.SKIP_BAD_LINES,
    TASK,
    Choice("task_type", "classification", ["classification", "regression", "multilabel"],
           "Type of the task. classification: one class for each text. regression: a number for each text. "
           "multilabel: any number of classes for each text."),
    Path("label_file", None,
         "File with one label per line, in the order of the model's outputs. By default, the labels are "
         "those of the training file, sorted."),
    INPUT,
    Path("label_map", None,
         "CSV or TSV file with two columns, the old and the new label. The first row may be the header "
         "old,new. In all files, each old label is replaced by its new label. Later commands take the labels "
         "from the record of the training."),
    Text("label_separator", ",",
         "With --task_type=multilabel: character or string that separates the labels of one text.",
         lambda value: value != "" and value.isprintable(),
         "one or more printable characters, such as a comma",
         advanced="text"),
    Number("threshold", 0.5,
           "With --task_type=multilabel: a label is predicted if its probability is at least this value.",
           above=0, below=1),
    WEIGHTS,
    Number("dev_fraction", None,
           "Fraction of the training file, at most 0.5, that is used for evaluation and not for training. "
           "Pass this flag instead of --dev_file. The split depends on the texts, not on --seed. The file "
           "dev_rows.txt in the output directory lists the rows used for evaluation.",
           above=0, most=0.5),
]) + shared_flags.columns("Your own data, in place of a task")

RUN_CLASSIFIER = _CLASSIFICATION + shared_flags.EXPORT + shared_flags.fine_tuning(max_seq_length=128)

RUN_CLASSIFIER_WITH_TFHUB = section("Model", WEIGHTS, [
    Path("bert_hub_module_handle", None,
         "Directory of the hub module, which contains saved_model.pb. The address of a module is also "
         "accepted, if the module is already in the cache $TFHUB_CACHE_DIR."),
]) + _CLASSIFICATION + shared_flags.fine_tuning(max_seq_length=128)

RUN_SWAG = section("Task", INPUT, [
    Path("data_dir", None,
         "Directory of train.csv, val.csv and test.csv. The development file may also have the name dev.csv. "
         "The names may also end in .tsv, .jsonl or .json, and .gz may follow. --train_file, --dev_file and "
         "--test_file override this flag."),
    Path("train_file", None,
         "Training file, with a question in each row. The columns are sent1 (a sentence), sent2 (the start "
         "of the next sentence), ending0, ending1 and so on (possible endings of the next sentence), and "
         "label (the number of the right ending, counted from 0)."),
    shared_flags.DEV_FILE,
    shared_flags.TEST_FILE,
    shared_flags.SKIP_BAD_LINES,
]) + shared_flags.columns(
    "Columns",
    "Columns of the texts, separated by commas: the sentence, the start of the next sentence, and each "
    "ending. A column is a name, or a number that counts from 1; -1 is the last column. The default is "
    "sent1,sent2,ending0,ending1 and so on.",
    "Column that contains the number of the right ending, counted from 0. The default is label.",
) + section("Task", SPEED, [
    shared_flags.DO_TRAIN,
    shared_flags.DO_EVAL,
    Switch("do_predict", False, "Choose an ending for each question of the test file."),
    Integer("predict_batch_size", 8,
            "Batch size of evaluation and prediction: number of questions.", least=1),
]) + shared_flags.example_limits("questions") + shared_flags.EXPORT + (
    shared_flags.fine_tuning(max_seq_length=128))
