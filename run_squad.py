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
from bertlib.tasks.squad import span_selection, squad_flags, squad_task
from bertlib.tasks.squad.span_selection import (  # noqa: F401  public names of this script
    RawResult,
    _compute_softmax,
    _get_best_indexes,
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
    input_fn_builder,
    model_fn_builder,
)
import tokenization

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
    checks.check_segments(bert_config, task.segments_reason)


def get_final_text(pred_text, orig_text, do_lower_case, verbose_logging=False):
    """Returns the part of the original text that belongs to a predicted text; see `span_selection.align`.

    Args:
      pred_text: str, words joined by spaces.
      orig_text: str, the words of the context that the tokens come from.
      do_lower_case: whether the tokens are lower-cased and without accents.
      verbose_logging: whether to log the reason if the whole original text is returned.
    """
    tokenizer = tokenization.BasicTokenizer(do_lower_case=do_lower_case)
    tok_text = " ".join(tokenizer.tokenize(orig_text))
    start, end = span_selection.align(pred_text, orig_text, tok_text, verbose_logging)
    return orig_text[start:end]


def write_predictions(all_examples, all_features, all_results, n_best_size, max_answer_length, do_lower_case,
                      output_prediction_file, output_nbest_file, output_null_log_odds_file,
                      version_2_with_negative=False, null_score_diff_threshold=0.0, verbose_logging=False,
                      output_offsets_file=None):
    """Selects the answers, and writes the answers and the n-best lists. For SQuAD 2.0, also writes the null
    odds.

    Args:
      all_examples: list of `SquadExample`.
      all_features: list of `InputFeatures`, in any order.
      all_results: iterable of `RawResult`, in any order.
      n_best_size, max_answer_length, do_lower_case, version_2_with_negative, verbose_logging: see
        `span_selection.Search`.
      output_prediction_file, output_nbest_file, output_null_log_odds_file, output_offsets_file: paths; see
        `span_selection.write_nbest` and `span_selection.write_answers`.
      null_score_diff_threshold: if the null odds of a question are above this number, the answer is empty.

    Returns:
      list of `span_selection.Prediction`, without their n-best lists.
    """
    features = sorted(all_features, key=lambda feature: feature.example_index)
    search = span_selection.Search(n_best_size, max_answer_length, do_lower_case, version_2_with_negative,
                                   verbose_logging)
    predictions = span_selection.write_nbest(
        span_selection.select_answers(all_examples, features, all_results, search), output_nbest_file)
    span_selection.write_answers(predictions, output_prediction_file,
                                 output_null_log_odds_file if version_2_with_negative else None,
                                 output_offsets_file, null_score_diff_threshold)
    return predictions


def main(_):
    """Runs the phases that the flags name: training, prediction, evaluation."""
    devices.log_devices()
    driver.run(squad_task.QuestionAnswering(common_flags.read_settings()))


if __name__ == "__main__":
    launch.run(main)
