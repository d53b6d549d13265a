"""Fine-tunes a TF Hub module to classify sentences or sentence pairs, evaluates it and predicts with it.

    python run_classifier_with_tfhub.py --bert_hub_module_handle=$BERT_DIR/module --task_name=MRPC \\
      --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC --max_seq_length=128 --train_batch_size=32 \\
      --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/

The module is a directory that contains the encoder's weights and vocabulary. Nothing is downloaded.
"""

import functools

from bertlib.commands import common_flags, devices, launch

from absl import flags

from bertlib.checkpoints import hub_module
from bertlib.estimator import estimator
from bertlib.tasks import driver, head, hub_encoder
from bertlib.tasks.classification import (
    classification_flags,
    classification_head,
    hub_classification,
    task_module,
)
import tokenization

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

ENTRIES = classification_flags.RUN_CLASSIFIER_WITH_TFHUB

common_flags.define(ENTRIES)


# --- Model and tokenizer ---------------------------------------------------------------------------------


def create_model(is_training, input_ids, input_mask, segment_ids, labels, num_labels, bert_hub_module_handle):
    """Builds a hub module with a linear classifier on its pooled output.

    Args:
      is_training: bool, whether to apply dropout.
      input_ids, input_mask, segment_ids: int32 [B, F].
      labels: int32 [B].
      num_labels: int, number of classes, C.
      bert_hub_module_handle: see `hub_module.load_module_spec`.

    Returns:
      a tuple of float32 tensors: (loss, loss of each example [B], logits [B, C], probabilities [B, C]). The
      first loss is a scalar, the mean cross-entropy.
    """
    encoder = hub_encoder.HubEncoder(bert_hub_module_handle, is_training, input_ids, input_mask, segment_ids)
    return classification_head.classify(classification_head.head_input(encoder, is_training), labels,
                                        num_labels)


def model_fn_builder(num_labels, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     bert_hub_module_handle, task_head=None):
    """Returns a model_fn for `estimator.Estimator`.

    `task_head` is the head that is built on the module. By default, it is a classifier of `num_labels`
    classes. The other arguments are described in `create_model` and `head.model_fn_builder`.
    `use_tpu` must be false.
    """
    estimator.refuse_tpu(use_tpu)
    return head.model_fn_builder(
        task_head or classification_head.Classifier(num_labels), None, None, learning_rate, num_train_steps,
        num_warmup_steps, functools.partial(hub_encoder.HubEncoder, bert_hub_module_handle))


def create_tokenizer_from_hub_module(bert_hub_module_handle):
    """Returns the `tokenization.FullTokenizer` of a hub module.

    Raises:
      ValueError, OSError: the module does not exist or does not name its vocabulary.
    """
    spec = hub_module.load_module_spec(bert_hub_module_handle)
    vocab_file, do_lower_case = hub_encoder.read_tokenization_info(spec)
    if vocab_file is None:
        raise ValueError(f"{bert_hub_module_handle} has no signature 'tokenization_info', so its vocabulary "
                         "is unknown. Create a tokenization.FullTokenizer from the vocab.txt of the module.")
    return tokenization.FullTokenizer(vocab_file, do_lower_case)


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    devices.log_devices()
    settings = common_flags.read_settings()
    with task_module.name_line_in_errors(settings):
        driver.run(hub_classification.HubClassification(settings))


if __name__ == "__main__":
    launch.run(main)
