"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers and scores them.

    python run_squad.py

does it on the sample data with the installed model. With your own:

    python run_squad.py --do_train=true --train_file=$SQUAD_DIR/train-v1.1.json --do_eval=true \\
      --predict_file=$SQUAD_DIR/dev-v1.1.json --vocab_file=$BERT_DIR/vocab.txt \\
      --bert_config_file=$BERT_DIR/bert_config.json --init_checkpoint=$BERT_DIR/bert_model.ckpt \\
      --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 \\
      --doc_stride=128 --output_dir=/tmp/squad/
"""

import functools
import os

from absl import flags, logging

from bertlib.command_line import common_flags, launch

from bertlib.runs import (
    checks,
    estimator_setup,
    head_labels,
    learning_curve,
    model_config,
    question_answering,
    run_record,
    vocabularies,
)
from bertlib.runs.settings import INPUT, SPEED, TASK, sample_path
from bertlib.tasks.squad.squad_answers import (  # noqa: F401  likewise
    RawResult,
    _compute_softmax,
    _get_best_indexes,
    get_final_text,
)
from bertlib.tasks.squad.squad_data import (  # noqa: F401  likewise
    FeatureWriter,
    InputFeatures,
    SquadExample,
    _check_is_max_context,
    _improve_answer_span,
    convert_examples_to_features,
    feature_fields,
    file_based_convert_examples_to_features,
    generate_features,
    read_gold,
    read_squad_examples,
)
from bertlib.tasks.squad.squad_head import (  # noqa: F401  public names of this script that live there
    create_model,
    head_shapes,
    input_fn_builder,
    model_fn_builder,
)
from bertlib.tasks.squad.squad_predictions import write_predictions  # noqa: F401  likewise

FLAGS = flags.FLAGS  # as the original has it, for scripts that import this one

# What is written to results_dir.
_RESULT_FILES = ("eval.tf_record", "predictions.json", "nbest_predictions.json", "null_odds.json",
                 "answer_offsets.json", "predictions.html", "eval_results.json")


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Task", INPUT):
        flags.DEFINE_string("train_file", None, "SQuAD file to train on, such as train-v1.1.json.")
        flags.DEFINE_string("predict_file", None, "SQuAD file of the questions to answer, such as "
                            "dev-v1.1.json; or JSON Lines, each with an id, a question and a context, and "
                            "with answers or is_impossible for --do_eval.")
    with common_flags.section("Task", SPEED):
        flags.DEFINE_bool("do_train", False, "Train.")
        flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.")
        flags.DEFINE_bool("do_eval", False, "Answer them, and score the answers with those in the file.")
    with common_flags.section("Task", TASK):
        flags.DEFINE_bool("version_2_with_negative", False, "SQuAD 2.0: a question may have no answer.")
    with common_flags.section("Task", SPEED):
        flags.DEFINE_integer("predict_batch_size", 8, "Windows in a batch of the prediction.", lower_bound=1)
    with common_flags.section("Windows and answers", INPUT):
        flags.DEFINE_integer("doc_stride", 128, "Tokens between the starts of two windows of a long context.",
                             lower_bound=1)
        flags.DEFINE_integer("max_query_length", 64, "WordPieces of a question; what is longer is cut.",
                             lower_bound=1)
        flags.DEFINE_integer("max_answer_length", 30, "WordPieces of an answer at most.", lower_bound=1)
        flags.DEFINE_integer("n_best_size", 20, "Answers listed for each question.", lower_bound=1)
        flags.DEFINE_float("null_score_diff_threshold", 0.0, "With version 2: a question gets no answer if "
                           "the score of none is above that of the best by more than this.")
        common_flags.require_finite("null_score_diff_threshold")
    with common_flags.section("Windows and answers", SPEED):
        flags.DEFINE_bool("find_null_threshold", False, "With version 2 and --do_eval: use the threshold "
                          "that is best on --predict_file, and write it down.")
        flags.DEFINE_bool("verbose_logging", False,
                          "Log answers that cannot be found again in the context's spelling.")
    common_flags.define_export_flags()
    common_flags.define_fine_tuning_flags(max_seq_length=384)


define_flags()


# --- Flags, input, output --------------------------------------------------------------------------------


def resolve_flags(settings):
    """Fills in what was not given.

    Raises:
      ValueError: a flag is missing or contradicts another.
    """
    checks.refuse_tpus(settings)
    settings.choose_phases()
    run_record.inherit_settings(settings, "questions")
    version = "2.0" if settings.version_2_with_negative else "1.1"
    if settings.output_dir is None:
        settings.set_default("output_dir", os.path.join("output", f"squad-v{version}"))
    needed = {"train_file": settings.do_train, "predict_file": settings.do_predict or settings.do_eval}
    sampled = settings.train_file is settings.predict_file is None
    for name, part in (("train_file", "train"), ("predict_file", "dev")):
        if needed[name] and getattr(settings, name) is None:
            if not sampled:
                raise ValueError(f"--{name} is required.")
            settings.set_default(name, sample_path("squad", f"{part}-v{version}.json"),
                                "a small sample made for this repository, not the real SQuAD")
    model_config.resolve_model_flags(settings)


def validate_flags_or_throw(bert_config, settings=None):
    """Checks what flags say together.

    Raises:
      ValueError: they contradict each other or the model.
    """
    settings = settings or common_flags.read_settings()
    if not any((settings.do_train, settings.do_predict, settings.do_eval)):
        raise ValueError("At least one of --do_train, --do_predict and --do_eval must be true.")
    if settings.max_seq_length > bert_config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} is above the model's "
                         f"max_position_embeddings={bert_config.max_position_embeddings}. Lower it.")
    checks.check_segments(bert_config, "each input is a question and a context")
    if settings.max_seq_length <= settings.max_query_length + 3:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} leaves no room for a context beside 3 "
                         f"special tokens and a question of --max_query_length={settings.max_query_length}. "
                         "Raise the one or lower the other.")
    if settings.find_null_threshold and not (settings.version_2_with_negative and settings.do_eval):
        raise ValueError("--find_null_threshold needs --version_2_with_negative and --do_eval: it looks at "
                         "questions without an answer and at the right answers.")
    if settings.do_train and settings.tokens_per_micro_batch and not settings.trim_padding:
        raise ValueError("--tokens_per_micro_batch needs training to be trimmed. The published loss looks at "
                         "padding too, so that it is only with --trim_padding=true: pass that, or leave "
                         "--tokens_per_micro_batch out.")


def read_examples(settings):
    """Reads what flags ask for: {"train", "eval": list of `SquadExample`}, and the right answers, or None."""
    examples, gold = {}, None
    if settings.do_train:
        examples["train"] = read_squad_examples(settings.train_file, True, settings.version_2_with_negative)
    if settings.do_predict or settings.do_eval:
        examples["eval"] = read_squad_examples(settings.predict_file, False, settings.version_2_with_negative)
    if settings.do_eval:
        gold = read_gold(settings.predict_file)
        unanswerable = sum(not answers for answers in gold.values())
        if unanswerable and not settings.version_2_with_negative:
            logging.warning("--predict_file=%s: %d of %d questions have no answer, and whatever is answered "
                            "to them counts as wrong. If it is of SQuAD 2.0, pass --version_2_with_negative.",
                            settings.predict_file, unanswerable, len(gold))
    return examples, gold


def main(_):
    """Runs what the flags ask for."""
    launch.log_devices()
    settings = common_flags.read_settings()
    resolve_flags(settings)
    bert_config = model_config.load_config(settings)
    validate_flags_or_throw(bert_config, settings)
    tokenizer = vocabularies.load_tokenizer(settings, bert_config)
    checks.check_output_dir(settings)
    learning_curve.check(settings)
    checks.refuse_overwriting(
        settings, {name: filter(None, [getattr(settings, name)]) for name in ("train_file", "predict_file")},
        checks.list_overwritten_files(settings, _RESULT_FILES, ["train.tf_record"]))
    init_checkpoint = head_labels.starting_checkpoint(settings, head_labels.Head("questions"))
    checks.check_starting_weights(settings, bert_config, head_shapes(bert_config), init_checkpoint)
    examples, gold = read_examples(settings)

    # As published, an epoch has as many windows as questions.
    num_train_steps = estimator_setup.count_steps(settings, len(examples.get("train", ())), "questions")
    build_model_fn = functools.partial(
        model_fn_builder, bert_config, init_checkpoint=init_checkpoint, use_one_hot_embeddings=False,
        **estimator_setup.schedule_arguments(settings, num_train_steps))
    model = estimator_setup.TrainableModel(
        bert_config, build_model_fn, functools.partial(feature_fields, is_training=True),
        trims_training_by_default=False)
    record = run_record.RunRecord(
        settings, num_train_steps, command="run_squad.py", config=bert_config, tokenizer=tokenizer,
        task_type="questions", task=f"SQuAD {'2.0' if settings.version_2_with_negative else '1.1'}",
        train_data=run_record.hash_files([settings.train_file]) if settings.do_train else None,
        trim_padding=estimator_setup.trims_training(settings, model))
    reader, step = estimator_setup.create_estimator(settings, model, num_train_steps,
                                                    predict_batch_size=settings.predict_batch_size)
    lengths = settings.max_seq_length, settings.doc_stride, settings.max_query_length

    @functools.cache  # a part that is evaluated several times is written once
    def input_fn(part, is_training):
        """Writes the part's windows; returns the input_fn that reads them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{part}.tf_record")
        windows = file_based_convert_examples_to_features(examples[part], tokenizer, *lengths, is_training,
                                                          path, settings.num_workers)
        logging.info("%s: %d questions, %d windows.", path, len(examples[part]), windows)
        return input_fn_builder(path, settings.max_seq_length,
                                **estimator_setup.input_options(settings, step, is_training))

    evaluation = question_answering.Evaluation(settings, reader, examples.get("eval"), gold, tokenizer)
    with estimator_setup.locked_directories(settings, record):
        if settings.do_train:
            listeners = learning_curve.create_listeners(
                settings, lambda: input_fn("eval", False), evaluation.scores, "Answers to --predict_file",
                evaluation.shown, full_score=100)
            logging.info("Training on %d questions, %d steps of %d.", len(examples["train"]), num_train_steps,
                         settings.train_batch_size)
            reader.train(input_fn("train", True), max_steps=num_train_steps, saving_listeners=listeners)
        if "eval" in examples:
            logging.info("Answering %d questions.", len(examples["eval"]))
            evaluation.write(input_fn("eval", False))


if __name__ == "__main__":
    launch.run(main)
