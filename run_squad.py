"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers and scores them.

    python run_squad.py

This command trains and evaluates the installed model on the sample data. The next command uses SQuAD and a
published model:

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

from bertlib.data import unknown_tokens
from bertlib.flag_table import training
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
from bertlib.runs.settings import require_file, sample_path
from bertlib.system import terminal
from bertlib.tasks.squad.squad_answers import (  # noqa: F401  public names of this script
    RawResult,
    _compute_softmax,
    _get_best_indexes,
    get_final_text,
)
from bertlib.tasks.squad.squad_data import (  # noqa: F401  public names of this script
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
from bertlib.tasks.squad.squad_head import (  # noqa: F401  public names of this script
    create_model,
    head_shapes,
    input_fn_builder,
    model_fn_builder,
)
from bertlib.tasks.squad.squad_predictions import write_predictions  # noqa: F401  a public name

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

# These files are written to --results_dir.
_RESULT_FILES = ("eval.tf_record", *question_answering.RESULT_FILES)


ENTRIES = training.COMMANDS["run_squad"]

common_flags.define(ENTRIES)


# --- Flags, input, output --------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default.

    Raises:
      ValueError: a required flag is missing, or two flags contradict each other.
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
            run_record.refuse_sample(settings, sample_path("squad"), f"--{name}")
            settings.set_default(name, sample_path("squad", f"{part}-v{version}.json"),
                                "a small sample made for this repository, not the real SQuAD")
        if needed[name]:
            require_file(settings, name)
    model_config.resolve_model_flags(settings)


def validate_flags_or_throw(bert_config, settings=None):
    """Checks that the flags do not contradict each other or the model.

    Raises:
      ValueError: the flags contradict each other or the model.
    """
    settings = settings or common_flags.read_settings()
    if not any((settings.do_train, settings.do_predict, settings.do_eval)):
        raise ValueError("At least one of --do_train, --do_predict and --do_eval must be true.")
    if settings.max_seq_length > bert_config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} is above the model's "
                         f"max_position_embeddings={bert_config.max_position_embeddings}. Pass "
                         "a lower --max_seq_length.")
    checks.check_segments(bert_config, "each input is a question and a context")
    if settings.max_seq_length <= settings.max_query_length + 3:
        raise ValueError(f"--max_seq_length={settings.max_seq_length} leaves no room for a context after 3 "
                         f"special tokens and a question of --max_query_length={settings.max_query_length}. "
                         "Raise --max_seq_length or lower --max_query_length.")
    if settings.find_null_threshold and not (settings.version_2_with_negative and settings.do_eval):
        raise ValueError("--find_null_threshold needs --version_2_with_negative and --do_eval, because the "
                         "threshold is computed from the right answers, some of which must be empty. Pass "
                         "these two flags, or leave --find_null_threshold out.")
    if settings.do_train and settings.tokens_per_micro_batch and not settings.trim_padding:
        raise ValueError("--tokens_per_micro_batch needs --trim_padding=true, which is not the default in "
                         "this command because the published loss depends on padding. Pass "
                         "--trim_padding=true, or leave --tokens_per_micro_batch out.")


def read_examples(settings):
    """Reads the files that the phases need.

    Returns:
      (examples, gold). `examples` is a dict that maps "train" and "eval" to a list of `SquadExample`. `gold`
      contains the right answers to the questions of "eval", as `read_gold` returns them. Without --do_eval,
      `gold` is None.
    """
    examples, gold = {}, None
    if settings.do_train:
        examples["train"] = question_answering.draw_questions(settings, "train", read_squad_examples(
            settings.train_file, True, settings.version_2_with_negative))
    if settings.do_predict or settings.do_eval:
        examples["eval"] = read_squad_examples(settings.predict_file, False, settings.version_2_with_negative)
    if settings.do_eval:
        gold = read_gold(settings.predict_file)
        examples["eval"] = question_answering.draw_questions(settings, "dev", examples["eval"])
        gold = {example.qas_id: gold[example.qas_id] for example in examples["eval"]}
        unanswerable = sum(not answers for answers in gold.values())
        if unanswerable and not settings.version_2_with_negative:
            logging.warning("--predict_file=%s: %d of %d questions have no answer. Every prediction for "
                            "these questions counts as wrong. If the file has the format of SQuAD 2.0, pass "
                            "--version_2_with_negative.", settings.predict_file, unanswerable, len(gold))
    return examples, gold


def main(_):
    """Runs the phases that the flags name: training, prediction, evaluation."""
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
    init_checkpoint = model_config.without_reinitialized(settings, bert_config, init_checkpoint)
    examples, gold = read_examples(settings)
    unknown_tokens.check(examples, lambda example: (example.question_text, example.doc_tokens), tokenizer)

    # As in the published code, the number of steps depends on the number of questions, not on the number of
    # windows.
    num_train_steps = estimator_setup.count_steps(settings, len(examples.get("train", ())), "question")
    checks.check_disk(settings, num_train_steps, head_shapes(bert_config), bert_config)
    model_fn = model_fn_builder(
        bert_config, init_checkpoint=init_checkpoint, use_one_hot_embeddings=False,
        **estimator_setup.training_arguments(settings, num_train_steps))
    model = estimator_setup.TrainableModel(
        bert_config, model_fn, functools.partial(feature_fields, is_training=True),
        trims_training_by_default=False)
    record = run_record.RunRecord(
        settings, num_train_steps, command="run_squad.py", config=bert_config, tokenizer=tokenizer,
        task_type="questions", task=f"SQuAD {'2.0' if settings.version_2_with_negative else '1.1'}",
        train_data=run_record.hash_files([settings.train_file]) if settings.do_train else None,
        dev_data=run_record.describe_dev_files(settings, [settings.predict_file],
                                               lambda: len(examples["eval"])),
        trim_padding=estimator_setup.trims_training(settings, model))
    reader, step = estimator_setup.create_estimator(settings, model, num_train_steps,
                                                    predict_batch_size=settings.predict_batch_size)
    lengths = settings.max_seq_length, settings.doc_stride, settings.max_query_length

    @functools.cache  # writes the windows of "eval" only once, even if the run evaluates several times
    def input_fn(part, is_training):
        """Writes the windows of one part of the data, "train" or "eval", and returns the input_fn that reads
        them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{part}.tf_record")
        windows = file_based_convert_examples_to_features(examples[part], tokenizer, *lengths, is_training,
                                                          path, settings.num_workers,
                                                          settings.features_cache)
        logging.info("%s: %s, %s.", path, terminal.counted(len(examples[part]), "question"),
                     terminal.counted(windows, "window"))
        if is_training:
            question_answering.log_windows_seen(settings, num_train_steps, len(examples[part]), windows)
        return input_fn_builder(path, settings.max_seq_length,
                                **estimator_setup.input_options(settings, step, is_training))

    evaluation = question_answering.Evaluation(settings, reader, examples.get("eval"), gold, tokenizer)
    with estimator_setup.locked_directories(settings, record):
        if settings.do_train:
            curve = learning_curve.create_learning_curve(
                settings, lambda: input_fn("eval", False), evaluation.scores, "Answers to --predict_file",
                evaluation.shown, full_score=100)
            estimator_setup.log_training(settings, len(examples["train"]), "question", num_train_steps)
            reader.train(input_fn("train", True), max_steps=num_train_steps, curve=curve)
        if "eval" in examples:
            logging.info("Answering %d questions.", len(examples["eval"]))
            evaluation.write(input_fn("eval", False))


if __name__ == "__main__":
    launch.run(main)
