"""Fine-tunes BERT to choose the right one of several endings of a text, evaluates the model and predicts.

    python run_swag.py

This command trains and evaluates the installed model on the sample data. The next command uses SWAG:

    python run_swag.py --do_train=true --do_eval=true --data_dir=data/swag \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --max_seq_length=128 --train_batch_size=16 \\
      --learning_rate=2e-5 --num_train_epochs=3 --output_dir=/tmp/swag_output/
"""

from bertlib.commands import common_flags, devices

from bertlib.tasks import driver
from bertlib.tasks.classification import classification_flags
from bertlib.tasks.classification.choice_task import MultipleChoice

ENTRIES = classification_flags.RUN_SWAG


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    devices.log_devices()
    driver.run(MultipleChoice(common_flags.read_settings()))
