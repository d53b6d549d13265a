"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py

This command trains a tiny model on the sample text, which takes a few minutes. The next command trains on
records that were written by create_pretraining_data.py:

    python run_pretraining.py --do_train=true --do_eval=true --input_file='/tmp/data/*.tfrecord' \\
      --output_dir=/tmp/output/ --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --train_batch_size=32 --max_seq_length=128 \\
      --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5

Leave --init_checkpoint out to start from random weights.
"""

from bertlib.commands import common_flags, devices, launch

from absl import flags

from bertlib.tasks import driver
from bertlib.tasks.pretraining import pretraining_flags, pretraining_task
from bertlib.tasks.pretraining.pretraining_head import (  # noqa: F401  public names of this script
    BATCH_TOTALS,
    _decode_record,
    gather_indexes,
    get_masked_lm_output,
    get_next_sentence_output,
    input_fn_builder,
    metric_fn,
    model_fn_builder,
)

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here
ENTRIES = pretraining_flags.RUN_PRETRAINING

common_flags.define(ENTRIES)


def main(_):
    """Runs the phases that the flags name: training, evaluation."""
    devices.log_devices()
    driver.run(pretraining_task.Pretraining(common_flags.read_settings()))


if __name__ == "__main__":
    launch.run(main)
