"""Contains the task of run_classifier_with_tfhub.py: a classification with the encoder of a hub module."""

from bertlib.runs import tokenizer_flags
from bertlib.tasks.classification.classification_task import Classification

# Some flags set a property that a hub module already has. This dict maps each such flag to the values that do
# not contradict the module.
_NOT_FOR_MODULES = {
    "bert_config_file": (None,), "init_checkpoint": (None,), "spm_model_file": (None,),
    "marker_tokens": (None,),
    "precision": ("fp32",), "recompute": ("none",), "recompute_segment": (1,),
    "compile_kernels": (None, False), "use_xla": (False,), "layer_decay": (1.0,), "freeze_layers": (0,),
    "freeze_embeddings": (False,), "reinit_layers": (0,)}


class HubClassification(Classification):
    """A classification whose encoder is a hub module, with the weights and the vocabulary of the module."""

    command = "run_classifier_with_tfhub.py"

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_processor(suffix="_with_tfhub")
        if not settings.bert_hub_module_handle:
            raise ValueError("--bert_hub_module_handle is required. Pass the directory of a hub module.")
        for name, values in _NOT_FOR_MODULES.items():
            value = getattr(settings, name)
            if value not in values:
                text = "true" if value is True else value
                raise ValueError(f"--{name}={text}: a hub module is used with its own weights and settings. "
                                 "Leave the flag out, or use run_classifier.py.")
        settings.compile_kernels = False
        from bertlib.checkpoints import hub_module  # loads TensorFlow
        try:
            self._spec = hub_module.load_module_spec(settings.bert_hub_module_handle)
        except (OSError, ValueError) as error:
            raise type(error)(f"--bert_hub_module_handle: {error}") from error

    def load_config_and_tokenizer(self):
        from bertlib.tasks import hub_encoder  # loads TensorFlow
        self.encoder_module = hub_encoder.load_encoder(self._spec, self.settings.do_train)
        check_length(self.settings, self.encoder_module)
        self.tokenizer = resolve_tokenizer(self.settings, self.encoder_module)

    # --- Files and data

    def input_files(self):
        return {**super().input_files(), "bert_hub_module_handle": self.encoder_module.list_files()}

    # --- The model

    def head_shapes(self):
        outputs = self.target.size
        return {**self.encoder_module.shapes, "output_weights": (outputs, self.encoder_module.width),
                "output_bias": (outputs,)}

    def trims_padding(self, is_training):
        return self.encoder_module.length is None and super().trims_padding(is_training)


def resolve_tokenizer(settings, module):
    """Sets --vocab_file and --do_lower_case to the module's values. Returns the tokenizer.

    Args:
      settings: a `Settings`.
      module: a `hub_encoder.EncoderModule`.

    Raises:
      ValueError: the flags and the module contradict each other, or neither names a vocabulary.
    """
    handle = settings.bert_hub_module_handle
    if module.vocab_file is None:
        if settings.vocab_file is None:
            raise ValueError(f"--bert_hub_module_handle={handle} has no signature 'tokenization_info', so "
                             "the vocabulary of the module is unknown. Pass --vocab_file. If the model is "
                             "cased, also pass --do_lower_case=false.")
        return tokenizer_flags.load_tokenizer(settings)
    if settings.vocab_file is not None:
        raise ValueError(f"--vocab_file={settings.vocab_file}: the hub module has its own vocabulary, "
                         f"{module.vocab_file}. Leave the flag out.")
    settings.vocab_file = module.vocab_file
    tokenizer_flags.resolve_flag(settings, "do_lower_case", module.do_lower_case, "the hub module")
    return tokenizer_flags.load_tokenizer(settings)


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
