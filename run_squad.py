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

from bertlib.commands import common_flags, devices, launch

from absl import flags

from bertlib.runs import checks, model_config
from bertlib.tasks import driver
from bertlib.tasks.squad import squad_flags, squad_task
from bertlib.tasks.squad.squad_answers import (  # noqa: F401  public names of this script
    RawResult,
    _compute_softmax,
    _get_best_indexes,
    get_final_text,
    write_predictions,
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

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

ENTRIES = squad_flags.RUN_SQUAD

common_flags.define(ENTRIES)


def validate_flags_or_throw(bert_config):
    """Checks that the flags do not contradict each other or the model.

    Raises:
      ValueError: the flags contradict each other or the model.
    """
    settings = common_flags.read_settings()
    if not any((settings.do_train, settings.do_predict, settings.do_eval)):
        raise ValueError("At least one of --do_train, --do_predict and --do_eval must be true.")
    model_config.check_length(settings, bert_config)
    task = squad_task.QuestionAnswering(settings)
    task.check_flags()
    checks.check_segments(bert_config, task.needs_segments)


def main(_):
    """Runs the phases that the flags name: training, prediction, evaluation."""
    devices.log_devices()
    driver.run(squad_task.QuestionAnswering(common_flags.read_settings()))


if __name__ == "__main__":
    launch.run(main)
