"""The flags of run_swag.py."""

from bertlib.runs.entries import INPUT, SPEED, Integer, Path, Switch, section
from bertlib.tasks import shared_flags

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
