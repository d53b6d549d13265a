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


from bertlib.commands import common_flags, devices, launch

from absl import flags
import numpy as np

from bertlib.data import example_encoding, input_pipeline
from bertlib.estimator import input_functions
from bertlib.tasks import driver
from bertlib.tasks.classification import classification_flags, classification_task, task_module
from bertlib.tasks.classification.classification_head import (  # noqa: F401  public names of this script
    create_model,
    head_shapes,
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


ENTRIES = classification_flags.RUN_CLASSIFIER

common_flags.define(ENTRIES)


def file_based_input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim_padding=False,
                                target=None):
    """Returns an input_fn that reads a TFRecord file of `file_based_convert_examples_to_features`.

    Args:
      input_file: the file.
      seq_length: sequence length with which the file was written.
      is_training: whether to shuffle and repeat the examples.
      drop_remainder: whether to drop the last batch if it is smaller than the other batches.
      trim_padding: whether to sort examples by length and trim each batch to its longest sequence; see
        `input_pipeline.record_dataset`.
      target: see `classifier_features.feature_fields`.
    """
    return input_functions.input_fn_builder(
        input_file, feature_fields(seq_length, target), is_training, drop_remainder,
        example_encoding.TRIMMED_FIELDS if trim_padding else ())


def input_fn_builder(features, seq_length, is_training, drop_remainder):
    """Returns an input_fn over `InputFeatures` in memory; see `file_based_input_fn_builder`."""
    labels = [feature.label_id for feature in features]
    arrays = {
        **{name: np.array([getattr(feature, name) for feature in features], np.int32).reshape(-1, seq_length)
           for name in example_encoding.TRIMMED_FIELDS},
        "label_ids": np.array(labels, np.float32 if any(isinstance(label, float) for label in labels)
                              else np.int32),
        # Features of an own class may lack this attribute.
        "is_real_example": np.array([getattr(feature, "is_real_example", True) for feature in features],
                                    np.int32),
    }

    def input_fn(params):
        examples = input_pipeline.array_examples(arrays)
        if is_training:
            return input_pipeline.training_dataset(examples, input_functions.training_batch(params))
        return input_pipeline.evaluation_dataset(examples, params["batch_size"], drop_remainder)
    return input_fn


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    devices.log_devices()
    settings = common_flags.read_settings()
    task = task_module.find_task(settings)
    if task:
        driver.run(task)
        return
    with task_module.name_line_in_errors(settings):
        driver.run(classification_task.Classification(settings))


if __name__ == "__main__":
    launch.run(main)
