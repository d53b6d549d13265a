"""The flags of run_ner.py."""

from bertlib.runs.entries import INPUT, SPEED, TASK, Integer, Path, Switch, section
from bertlib.tasks import shared_flags

RUN_NER = section("Task", INPUT, [
    Path("data_dir", None,
         "Directory of train.txt, dev.txt and test.txt. The names of these files may also end in .conll, "
         ".tsv, .iob, .bio, .jsonl or .json. --train_file, --dev_file and --test_file override this flag."),
    Path("train_file", None,
         "Training file. Each line contains a word and its tag, in columns separated by spaces or tabs. A "
         "blank line follows each sentence. If the name ends in .jsonl or .json, each line is instead an "
         'object such as {"tokens": ["Ana", "sleeps"], "ner_tags": ["B-PER", "O"]}.'),
    shared_flags.DEV_FILE,
    Path("test_file", None, "Test file, for prediction. Its tags are optional."),
    shared_flags.SKIP_BAD_LINES,
]) + shared_flags.word_columns() + section("Task", SPEED, [
    shared_flags.DO_TRAIN,
    shared_flags.DO_EVAL,
    Switch("do_predict", False,
           "Write test_predictions.conll: the test file with an additional column of predicted tags. If the "
           "test file is in JSON Lines, write test_predictions.jsonl instead."),
    Integer("predict_batch_size", 8,
            "Batch size of evaluation and prediction: number of sentences. Each window of a long sentence "
            "counts as one sentence.", least=1),
    TASK,
    Switch("crf", False,
           "Predict the tags of a sentence jointly, with a conditional random field (CRF) on top of the "
           "model."),
    INPUT,
    Switch("label_all_pieces", False,
           "Train on all WordPieces of a word. By default, only the first WordPiece of a word has a label."),
]) + shared_flags.example_limits("sentences") + shared_flags.EXPORT + (
    shared_flags.fine_tuning(max_seq_length=128))
