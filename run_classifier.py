"""Fine-tunes BERT to classify sentences or sentence pairs, evaluates it and predicts with it.

    python run_classifier.py --task_name=MRPC --max_seq_length=128

This command trains and evaluates the installed model on the sample data. The next command uses your own data,
in CSV, TSV or JSON Lines:

    python run_classifier.py --train_file=train.csv --dev_fraction=0.1 --text_column=text --label_column=label

The next command uses a GLUE task and a published model:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --max_seq_length=128 --train_batch_size=32 \\
      --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/
"""


from absl import flags

from bertlib.command_line import common_flags, launch

from bertlib.flag_table import training
from bertlib.runs import checks, estimator_setup, learning_curve, model_config, vocabularies
from bertlib.runs.classification import classification_run
from bertlib.runs.classification.classification_run import (  # noqa: F401  public names of this script
    get_labels,
    read_examples,
    train_steps,
)
from bertlib.runs.classification.classification_splits import Splits
from bertlib.tasks import head as task_head
from bertlib.tasks.classification.classification_head import (  # noqa: F401  public names of this script
    create_model,
    file_based_input_fn_builder,
    head_shapes,
    input_fn_builder,
    metric_fn,
    model_fn_builder,
)
from bertlib.tasks.classification.classifier_data import (  # noqa: F401  public names of this script
    PROCESSORS,
    ColaProcessor,
    DataProcessor,
    InputExample,
    InputFeatures,
    Layout,
    MnliProcessor,
    MrpcProcessor,
    PaddingInputExample,
    XnliProcessor,
    _truncate_seq_pair,
    convert_examples_to_features,
    convert_single_example,
    feature_fields,
    file_based_convert_examples_to_features,
    get_processor,
)

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here


ENTRIES = training.COMMANDS["run_classifier"]

common_flags.define(ENTRIES)


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default. Returns the task's processor.

    Raises:
      ValueError, NotADirectoryError: a required flag is missing, or a flag has an unusable value.
    """
    model_config.find_named_weights(settings)  # the task may read its labels from this checkpoint
    processor = classification_run.create_processor(settings)
    model_config.resolve_model_flags(settings)
    return processor


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    launch.log_devices()
    settings = common_flags.read_settings()
    processor = resolve_flags(settings)
    bert_config = model_config.load_config(settings)
    tokenizer = vocabularies.load_tokenizer(settings, bert_config)
    target = classification_run.get_target(processor)
    head = classification_run.create_head(target)
    checks.check_output_dir(settings)
    learning_curve.check(settings)
    classification_run.refuse_overwriting(settings, processor)
    init_checkpoint = classification_run.starting_checkpoint(settings, target)
    checks.check_starting_weights(settings, bert_config, head.shapes(bert_config), init_checkpoint)
    init_checkpoint = model_config.without_reinitialized(settings, bert_config, init_checkpoint)
    examples, test_has_labels = read_examples(settings, processor)
    if any(example.text_b for part in examples.values() for example in part):
        checks.check_segments(bert_config, f"the examples of {settings.task_name} are pairs")

    splits = Splits(settings, examples, target, tokenizer, test_has_labels)
    num_train_steps = train_steps(settings, splits.training)
    checks.check_disk(settings, num_train_steps, head.shapes(bert_config), bert_config)
    model_fn = task_head.model_fn_builder(
        splits.head_for_training(head), bert_config, init_checkpoint=init_checkpoint,
        use_one_hot_embeddings=False,
        **estimator_setup.training_arguments(settings, num_train_steps))
    model = estimator_setup.TrainableModel(
        bert_config, model_fn, classification_run.feature_fields_for(target), padding_is_removable=True)
    classification_run.run(settings, model, processor, splits, target, tokenizer,
                           command="run_classifier.py", config=bert_config)


if __name__ == "__main__":
    launch.run(main)
