"""Uses a hub module as the encoder, in place of `modeling.BertModel`.

The module has the interface of the published BERT modules:

- Signature "tokens": the inputs are input_ids, input_mask and segment_ids, int32 [B, F]; the outputs are
  pooled_output [B, W] and sequence_output [B, F, W].
- Signature "tokenization_info" (optional): the outputs are the path of the vocabulary and whether text is
  lower-cased.
- The graph with the tags {"train"} has dropout.

The names of the variables begin with "module/".
"""

import os
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import hub_module
from bertlib.data.example_encoding import ENCODER_INPUTS
from bertlib.system import files, fingerprints

_POOLED, _SEQUENCE = "pooled_output", "sequence_output"
_TOKENS, _TOKENIZATION_INFO = "tokens", "tokenization_info"
_TRAIN = frozenset(["train"])


class HubEncoder:
    """A hub module, applied to a batch. Heads get this object instead of a
    `modeling.BertModel`."""

    kernels = None  # the layers of a head use TensorFlow's ops

    def __init__(self, spec, is_training, input_ids, input_mask, segment_ids):
        """Builds the encoder. The variables of the encoder are trainable.

        Args:
          spec: see `hub_module.load_module_spec`.
          is_training: whether dropout is on.
          input_ids, input_mask, segment_ids: int32 [B, F].
        """
        module = hub_module.Module(spec, trainable=True, tags=_TRAIN if is_training else None)
        self._outputs = module.apply(_TOKENS, dict(zip(ENCODER_INPUTS, (input_ids, input_mask, segment_ids))))

    def get_pooled_output(self):
        """Returns the pooled output, float32 [B, W]."""
        return self._outputs[_POOLED]

    def get_sequence_output(self):
        """Returns the output of the last layer, float32 [B, F, W]."""
        return self._outputs[_SEQUENCE]


class EncoderModule(NamedTuple):
    """A hub module that a task uses as its encoder, and its properties.

    Attributes:
      spec: the `hub_module.ModuleSpec`.
      shapes: {name: shape} of the trainable variables.
      width: W, the size of the pooled output of a text.
      length: the sequence length F if it is fixed in the module; None if the sequence length may vary.
      positions: the largest sequence length, or None if it is unknown.
      vocab_file, do_lower_case: outputs of the signature "tokenization_info"; None if the module does not
        have this signature.
    """

    spec: hub_module.ModuleSpec
    shapes: dict
    width: int
    length: int | None
    positions: int | None
    vocab_file: str | None
    do_lower_case: bool | None

    def build(self, is_training, input_ids, input_mask, segment_ids, step_config, first_token_only):
        """Returns the `HubEncoder` of the module; see `modeling.BertModel` for the arguments. `step_config`
        and `first_token_only` are ignored, because the module contains its graph."""
        return HubEncoder(self.spec, is_training, input_ids, input_mask, segment_ids)

    def list_files(self):
        """Returns the paths of the module's files, sorted."""
        return sorted(path for folder in ("", "variables", "assets")
                      for path in files.find_files(os.path.join(self.spec.directory, folder, "*"))
                      if not files.is_directory(path))

    def to_dict(self):
        """Returns the configuration of the encoder for run.json. It identifies the module by the contents of
        its files, because the module may be moved to a different directory."""
        return {"hub_module": fingerprints.hash_files(self.list_files())["fingerprint"]}


def load_encoder(spec, training):
    """Checks that a hub module is an encoder, and returns its `EncoderModule`.

    Args:
      spec: a `hub_module.ModuleSpec`.
      training: whether the module will be trained. If True, the function also checks that the pooled output
        has a gradient.

    Raises:
      ValueError: the module is not an encoder, or it cannot be trained.
    """
    _check_signature(spec)
    length = tf.TensorShape(spec.signature(_TOKENS).inputs[ENCODER_INPUTS[0]].tensor_shape)
    length = length.as_list()[1] if length.rank == 2 else None
    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int32, [None, length])
        output = HubEncoder(spec, training, ids, ids, ids).get_pooled_output()
        variables = tf.trainable_variables()
        if training:
            _check_gradients(spec, output, variables)
        shapes = {variable.op.name: tuple(variable.shape.as_list()) for variable in variables}
    width = output.shape.as_list()[-1] if output.shape.rank == 2 else None
    if width is None:
        raise ValueError(f"The hub module {spec.directory}: {_POOLED} should have the shape [batch, width], "
                         f"but has the shape {output.shape}.")
    positions = [shape[0] for name, shape in shapes.items() if name.endswith("/position_embeddings")]
    return EncoderModule(spec, shapes, width, length, positions[0] if positions else None,
                         *read_tokenization_info(spec))


def _check_signature(spec):
    """Raises a ValueError if a module has no signature "tokens", or if the inputs or outputs of this
    signature are not those of an encoder."""
    signatures = spec.variant().signature_def
    if _TOKENS not in signatures:
        raise ValueError(f"The hub module {spec.directory} is not an encoder like the published modules of "
                         f"BERT: it has no signature {_TOKENS!r}. Its signatures: "
                         f"{', '.join(sorted(signatures)) or 'none'}.")
    inputs, outputs = set(signatures[_TOKENS].inputs), set(signatures[_TOKENS].outputs)
    for kind, fits, actual, expected in (("inputs", inputs == set(ENCODER_INPUTS), inputs, ENCODER_INPUTS),
                                         ("outputs", _POOLED in outputs, outputs, (_POOLED,))):
        if not fits:
            raise ValueError(f"The hub module {spec.directory} is not an encoder like the published modules "
                             f"of BERT: its signature {_TOKENS!r} has the {kind} "
                             f"{', '.join(sorted(actual)) or 'none'}, but should have {', '.join(expected)}.")


def _check_gradients(spec, output, variables):
    """Raises a ValueError if the module's output has no gradient with respect to any of the variables."""
    try:
        gradients = tf.gradients(output, variables)
    except LookupError as error:
        raise ValueError(f"The hub module {spec.directory} cannot be trained: {error}.") from error
    if all(gradient is None for gradient in gradients):
        raise ValueError(f"The hub module {spec.directory} cannot be trained: its {_POOLED} has no gradient.")


def read_tokenization_info(spec):
    """Returns (path of the vocabulary file, whether text is lower-cased); (None, None) if the module does not
    have the signature "tokenization_info"."""
    if _TOKENIZATION_INFO not in spec.variant().signature_def:
        return None, None
    with tf.Graph().as_default(), tf.Session() as session:
        outputs = hub_module.Module(spec).apply(_TOKENIZATION_INFO, {})
        if not {"vocab_file", "do_lower_case"} <= set(outputs):
            raise ValueError(f"The hub module {spec.directory}: its signature {_TOKENIZATION_INFO!r} should "
                             "have the outputs vocab_file and do_lower_case.")
        values = session.run(outputs)
    return os.fsdecode(values["vocab_file"]), bool(values["do_lower_case"])
