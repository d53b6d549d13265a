"""An encoder that comes as a hub module, in place of `modeling.BertModel`.

As published for BERT, its signature "tokens" has the inputs input_ids, input_mask and segment_ids, int32
[B, F], and the outputs pooled_output [B, W] and sequence_output [B, F, W]. Its signature "tokenization_info",
which may be missing, says which vocabulary it has, and whether text is lower-cased. The graph of the tags
{"train"} has dropout. Its variables are called module/….
"""

import os
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import hub_module

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_POOLED, _SEQUENCE = "pooled_output", "sequence_output"
_TOKENS, _TOKENIZATION_INFO = "tokens", "tokenization_info"
_TRAIN = frozenset(["train"])


class HubEncoder(object):
    """A module applied to a batch; a head is given it as its `model`."""

    def __init__(self, spec, is_training, input_ids, input_mask, segment_ids):
        """Builds the encoder, with variables that are trained.

        Args:
          spec: see `hub_module.load_module_spec`.
          is_training: turns dropout on.
          input_ids, input_mask, segment_ids: int32 [B, F].
        """
        module = hub_module.Module(spec, trainable=True, tags=_TRAIN if is_training else None)
        self._outputs = module(dict(zip(_INPUTS, (input_ids, input_mask, segment_ids))), signature=_TOKENS,
                               as_dict=True)

    def get_pooled_output(self):
        """Returns the pooled output, float32 [B, W]."""
        return self._outputs[_POOLED]

    def get_sequence_output(self):
        """Returns the output of the last layer, float32 [B, F, W]."""
        return self._outputs[_SEQUENCE]


class EncoderInfo(NamedTuple):
    """What is known of a module before it is used.

    shapes: {name: shape} of the variables that are trained. width: W. length: F if the module takes no other,
    else None. positions: the most that F may be, if known. vocab_file, do_lower_case: None if it does not
    say.
    """

    shapes: dict
    width: int
    length: int | None
    positions: int | None
    vocab_file: str | None
    do_lower_case: bool | None


def describe_encoder(spec, training):
    """Returns the `EncoderInfo` of a module, after a look whether it is one of an encoder.

    Args:
      spec: a `hub_module.ModuleSpec`.
      training: whether it is to be trained, too.

    Raises:
      ValueError: it cannot be used.
    """
    _check_signature(spec)
    length = spec.get_input_info_dict(_TOKENS)[_INPUTS[0]].shape
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
        raise ValueError(f"The hub module {spec.directory}: {_POOLED} should be of shape [batch, width], and "
                         f"is {output.shape}.")
    positions = [shape[0] for name, shape in shapes.items() if name.endswith("/position_embeddings")]
    return EncoderInfo(shapes, width, length, positions[0] if positions else None,
                       *read_tokenization_info(spec))


def _check_signature(spec):
    """Raises a ValueError if a module's signature is not that of an encoder."""
    if _TOKENS not in spec.get_signature_names():
        raise ValueError(f"The hub module {spec.directory} is no encoder as published for BERT: it has "
                         f"no signature {_TOKENS!r} but "
                         f"{', '.join(sorted(spec.get_signature_names())) or 'none'}.")
    inputs, outputs = set(spec.get_input_info_dict(_TOKENS)), set(spec.get_output_info_dict(_TOKENS))
    for what, fits, found, wanted in (("inputs", inputs == set(_INPUTS), inputs, _INPUTS),
                                      ("outputs", _POOLED in outputs, outputs, (_POOLED,))):
        if not fits:
            raise ValueError(f"The hub module {spec.directory} is no encoder as published for BERT: its "
                             f"signature {_TOKENS!r} has the {what} {', '.join(sorted(found)) or 'none'}, "
                             f"and should have {', '.join(wanted)}.")


def _check_gradients(spec, output, variables):
    """Raises a ValueError if a module's output cannot be differentiated."""
    try:
        gradients = tf.gradients(output, variables)
    except LookupError as error:
        raise ValueError(f"The hub module {spec.directory} cannot be trained: {error}.") from error
    if all(gradient is None for gradient in gradients):
        raise ValueError(f"The hub module {spec.directory} cannot be trained: its {_POOLED} has no gradient.")


def read_tokenization_info(spec):
    """Returns (the vocabulary's file, whether text is lower-cased); (None, None) if nothing says so."""
    if _TOKENIZATION_INFO not in spec.get_signature_names():
        return None, None
    with tf.Graph().as_default(), tf.Session() as session:
        said = hub_module.Module(spec)(signature=_TOKENIZATION_INFO, as_dict=True)
        if not {"vocab_file", "do_lower_case"} <= set(said):
            raise ValueError(f"The hub module {spec.directory}: its signature {_TOKENIZATION_INFO!r} should "
                             "have the outputs vocab_file and do_lower_case.")
        found = session.run(said)
    return os.fsdecode(found["vocab_file"]), bool(found["do_lower_case"])
