"""The flags of run_squad.py."""

from bertlib.runs.entries import INPUT, SPEED, TASK, Integer, Number, Path, Switch, section
from bertlib.tasks import shared_flags

RUN_SQUAD = section("Task", INPUT, [
    Path("train_file", None, "SQuAD file for training, such as train-v1.1.json."),
    Path("predict_file", None,
         "File with the questions for prediction: a SQuAD file, such as dev-v1.1.json, or JSON Lines with "
         "the fields id, question and context. With --do_eval, each line of JSON Lines also needs the field "
         "answers or the field is_impossible."),
    SPEED,
    shared_flags.DO_TRAIN,
    Switch("do_predict", False, "Answer the questions of --predict_file."),
    Switch("do_eval", False,
           "Answer the questions of --predict_file, and compare the answers with the right answers in this "
           "file."),
    TASK,
    Switch("version_2_with_negative", False,
           "The data is SQuAD 2.0, in which some questions have no answer."),
    SPEED,
    Integer("predict_batch_size", 8, "Number of windows in a batch of the prediction.", least=1),
]) + shared_flags.example_limits("questions") + section("Windows and answers", INPUT, [
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
    SPEED,
    Switch("find_null_threshold", False,
           "With --version_2_with_negative and --do_eval: find the --null_score_diff_threshold with the best "
           "score on --predict_file, use it and record it."),
    Switch("verbose_logging", False,
           "Log each answer whose tokens could not be aligned with the text of the context."),
]) + shared_flags.EXPORT + shared_flags.fine_tuning(max_seq_length=384)
