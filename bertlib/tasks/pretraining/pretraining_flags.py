"""The flags of run_pretraining.py."""

from bertlib.runs.entries import INPUT, SPEED, WEIGHTS, Integer, Path, Switch, section
from bertlib.tasks import shared_flags

RUN_PRETRAINING = section("Task", INPUT, [
    Path("input_file", None,
         "TFRecord files of create_pretraining_data.py for training: paths or globs, with commas between "
         "them."),
    Path("eval_file", None, "TFRecord files for evaluation. The default is the value of --input_file."),
    SPEED,
    shared_flags.DO_TRAIN,
    Switch("do_eval", False, "Evaluate on --eval_file."),
    INPUT,
    Integer("max_predictions_per_seq", 20,
            "Maximum number of masked tokens in an example. It must be the value with which the records were "
            "written.", least=1),
    SPEED,
    shared_flags.EVAL_BATCH_SIZE,
    Integer("max_eval_steps", 100, "Maximum number of evaluation batches.", least=1),
]) + shared_flags.model(max_seq_length=128) + section("Model", WEIGHTS, [
    Path("vocab_file", None,
         "The vocabulary of the records, with one WordPiece in each line. This command only copies the file "
         "to --output_dir, for fine-tuning. Without this flag, the command takes the file in the directory "
         "of --init_checkpoint, or the file that is named in the manifest of the records."),
    Path("spm_model_file", None, "The SentencePiece model of the records. Pass it instead of --vocab_file."),
    Switch("do_lower_case", None,
           "Whether the text of the records was converted to lower case. The value is recorded in "
           "--output_dir with the vocabulary. Without this flag, the command takes the value from the "
           "manifest of the records, or from tokenizer_config.json in the directory of the vocabulary."),
    shared_flags.MARKER_TOKENS,
]) + section("Training", WEIGHTS, [
    Integer("num_train_steps", 100000, "Number of training steps.", least=1),
    Integer("num_warmup_steps", 10000, "Number of training steps used for learning rate warm-up.", least=0),
]) + (
    shared_flags.TRIMMING + shared_flags.TRAINING + shared_flags.EXPORT + shared_flags.REPLICAS +
    shared_flags.TPUS)
