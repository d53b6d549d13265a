"""Fine-tunes a TF Hub module to classify sentences or sentence pairs, evaluates it and predicts with it.

    python run_classifier_with_tfhub.py --bert_hub_module_handle=$BERT_DIR/module --task_name=MRPC \\
      --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC --max_seq_length=128 --train_batch_size=32 \\
      --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/

The module is a directory that contains the encoder's weights and vocabulary. Nothing is downloaded.
"""

import functools
import math
import os
import types

from absl import flags, logging

from bertlib.command_line import common_flags, launch

from bertlib.checkpoints import hub_module
from bertlib.flag_table import training
from bertlib.runs import checks, estimator_setup, learning_curve, run_record, vocabularies
from bertlib.runs.classification import classification_run, classification_splits
from bertlib.system import files
from bertlib.tasks import head, hub_encoder
from bertlib.tasks.classification import classification_head
import tokenization

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

# Some flags set a property that a hub module already has. This dict maps each such flag to the values that do
# not contradict the module.
_NOT_FOR_MODULES = {
    "bert_config_file": (None,), "init_checkpoint": (None,), "spm_model_file": (None,),
    "precision": ("fp32",), "recompute": ("none",), "recompute_segment": (1,),
    "compile_kernels": (None, False), "use_xla": (False,), "layer_decay": (1.0,), "freeze_layers": (0,),
    "freeze_embeddings": (False,), "reinit_layers": (0,)}


ENTRIES = training.COMMANDS["run_classifier_with_tfhub"]

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
    return classification_head.classify(encoder.get_pooled_output(), labels, num_labels, is_training)


def model_fn_builder(num_labels, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     bert_hub_module_handle, task_head=None):
    """Returns a model_fn for `estimator.Estimator`.

    `task_head` is the head that is built on the module. By default, it is a classifier of `num_labels`
    classes. The other arguments are described in `create_model` and `head.model_fn_builder`.
    """
    return head.model_fn_builder(
        task_head or classification_head.Classifier(num_labels), None, None, learning_rate, num_train_steps,
        num_warmup_steps, use_tpu, use_one_hot_embeddings=False,
        build_encoder=functools.partial(hub_encoder.HubEncoder, bert_hub_module_handle))


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


# --- The script ------------------------------------------------------------------------------------------


def resolve_flags(settings):
    """Sets each flag that is missing on the command line to its default.

    Returns:
      (the task's processor, the `hub_module.ModuleSpec`).

    Raises:
      ValueError, OSError: a required flag is missing, or a flag has an unusable value.
    """
    processor = classification_run.create_processor(settings, suffix="_with_tfhub")
    if not settings.bert_hub_module_handle:
        raise ValueError("--bert_hub_module_handle is required. Pass the directory of a hub module.")
    for name, values in _NOT_FOR_MODULES.items():
        value = getattr(settings, name)
        if value not in values:
            text = "true" if value is True else value
            raise ValueError(f"--{name}={text}: a hub module is used with its own weights and settings. "
                             "Leave the flag out, or use run_classifier.py.")
    settings.compile_kernels = False
    try:
        return processor, hub_module.load_module_spec(settings.bert_hub_module_handle)
    except (OSError, ValueError) as error:
        raise type(error)(f"--bert_hub_module_handle: {error}") from error


def settle_tokenizer(settings, module):
    """Sets --vocab_file and --do_lower_case to the module's values. Returns the tokenizer.

    Args:
      settings: a `Settings`.
      module: a `hub_encoder.EncoderInfo`.

    Raises:
      ValueError: the flags and the module contradict each other, or neither names a vocabulary.
    """
    handle = settings.bert_hub_module_handle
    if module.vocab_file is None:
        if settings.vocab_file is None:
            raise ValueError(f"--bert_hub_module_handle={handle} has no signature 'tokenization_info', so "
                             "the vocabulary of the module is unknown. Pass --vocab_file. If the model is "
                             "cased, also pass --do_lower_case=false.")
        return vocabularies.load_tokenizer(settings)
    if settings.vocab_file is not None:
        raise ValueError(f"--vocab_file={settings.vocab_file}: the hub module has its own vocabulary, "
                         f"{module.vocab_file}. Leave the flag out.")
    settings.vocab_file = module.vocab_file
    vocabularies.resolve_lower_case(settings, module.do_lower_case, "the hub module")
    return vocabularies.load_tokenizer(settings)


def check_length(settings, module):
    """Checks --max_seq_length and --trim_padding against the sequence lengths that the module accepts.

    Raises:
      ValueError: the module does not accept --max_seq_length or --trim_padding.
    """
    length = settings.max_seq_length
    if module.positions is not None and length > module.positions:
        raise ValueError(f"--max_seq_length={length}: the hub module has only {module.positions} positions. "
                         f"Pass --max_seq_length={module.positions} or less.")
    if module.length is None:
        return
    if module.length != length:
        raise ValueError(f"--max_seq_length={length}: the hub module accepts only sequences of the length "
                         f"{module.length}. Pass --max_seq_length={module.length}.")
    if settings.trim_padding:
        raise ValueError("--trim_padding=true: the hub module accepts only sequences of one length. Leave "
                         "the flag out.")
    settings.trim_padding = False


class _Model(estimator_setup.TrainableModel):
    """A hub module with a head. The module has no BERT configuration, so no formula can estimate how much
    memory it needs. For this reason, the training step is always simulated."""

    def upper_bound(self, step):
        return math.inf


def main(_):
    """Runs the phases that the flags name: training, evaluation, prediction."""
    launch.log_devices()
    settings = common_flags.read_settings()
    processor, spec = resolve_flags(settings)
    module = hub_encoder.describe_encoder(spec, settings.do_train)
    check_length(settings, module)
    tokenizer = settle_tokenizer(settings, module)
    target = classification_run.get_target(processor)
    task_head, num_outputs = classification_run.create_head(target), target.size
    checks.check_output_dir(settings)
    learning_curve.check(settings)
    module_files = files_of(spec)
    classification_run.refuse_overwriting(settings, processor, {"bert_hub_module_handle": module_files})
    shapes = {**module.shapes, "output_weights": (num_outputs, module.width), "output_bias": (num_outputs,)}
    if settings.directory.newest:
        checks.check_output_checkpoint(settings, shapes)
    elif not settings.do_train:
        logging.warning("--output_dir=%s has no checkpoint, and nothing is trained: the classifier's weights "
                        "are random.", settings.output_dir)
    examples, test_has_labels = classification_run.read_examples(settings, processor)

    splits = classification_splits.Splits(settings, examples, target, tokenizer, test_has_labels)
    task_head = splits.head_for_training(task_head)
    num_train_steps = classification_run.train_steps(settings, splits.training)
    checks.check_disk(settings, num_train_steps, shapes)
    arguments = estimator_setup.training_arguments(settings, num_train_steps)
    model_fn = model_fn_builder(
        num_outputs, bert_hub_module_handle=spec, task_head=task_head, **arguments)
    # run.json identifies the module by the contents of its files, because the module may be moved to a
    # different directory.
    fingerprint = {"hub_module": run_record.hash_files(module_files)["fingerprint"]}
    model = _Model(None, model_fn, classification_run.feature_fields_for(target))
    classification_run.run(settings, model, processor, splits, target, tokenizer,
                           command="run_classifier_with_tfhub.py",
                           config=types.SimpleNamespace(to_dict=lambda: fingerprint))


def files_of(spec):
    """Returns the paths of a module's files, sorted."""
    return sorted(path for folder in ("", "variables", "assets")
                  for path in files.find_files(os.path.join(spec.directory, folder, "*"))
                  if not files.is_directory(path))


if __name__ == "__main__":
    launch.run(main)
