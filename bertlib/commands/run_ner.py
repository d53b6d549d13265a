"""Fine-tunes BERT to tag the words of sentences, evaluates the entities and predicts tags.

    python run_ner.py

This command trains and evaluates the installed model on the sample data. The next command uses your own data,
in CoNLL columns:

    python run_ner.py --do_train=true --do_eval=true --do_predict=true --data_dir=$CONLL_DIR \\
      --vocab_file=$BERT_DIR/vocab.txt --bert_config_file=$BERT_DIR/bert_config.json \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --do_lower_case=false --output_dir=/tmp/ner_output/
"""

from bertlib.commands import common_flags, devices

from bertlib.tasks import driver
from bertlib.tasks.tagging import tagging_flags
from bertlib.tasks.tagging.tagging_task import Tagging

ENTRIES = tagging_flags.RUN_NER


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    devices.log_devices()
    driver.run(Tagging(common_flags.read_settings()))
