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

from bertlib.runs import registry
from bertlib.tasks import driver
from bertlib.tasks.classification import classification_task, task_module
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


ENTRIES = registry.find_flags("run_classifier")

common_flags.define(ENTRIES)


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
