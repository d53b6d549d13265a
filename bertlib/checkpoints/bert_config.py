"""The configuration of an encoder, and the names and shapes of its variables. This module builds no graph."""

import copy
import dataclasses
import json
import os
import re

from bertlib.checkpoints import checkpoint_formats

# Names of the activations, see `modeling.get_activation`.
ACTIVATIONS = ("gelu", "gelu_erf", "linear", "relu", "tanh")
# {Hugging Face's name of an activation: our name}. All other names have the same meaning in both projects.
_HUGGING_FACE_ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}


@dataclasses.dataclass(eq=False)
class BertConfig:
    """The hyperparameters of a BERT encoder, as in `bert_config.json`.

    Attributes:
      vocab_size: number of entries in the vocabulary.
      hidden_size: W, the width of the encoder.
      num_hidden_layers: number of encoder layers.
      num_attention_heads: N. hidden_size must be a multiple of N.
      intermediate_size: width of the feed-forward layer.
      hidden_act: activation of the feed-forward layer, a name for `modeling.get_activation` or a function.
      hidden_dropout_prob: dropout probability after the embeddings, and after the output projections of
        attention and feed-forward layer.
      attention_probs_dropout_prob: dropout probability of the attention probabilities.
      max_position_embeddings: number of position embeddings, the length of the longest possible sequence.
      type_vocab_size: number of segment ids.
      initializer_range: standard deviation of the (truncated normal) initial weights.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: object = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02

    @classmethod
    def from_dict(cls, json_object):
        """Creates a configuration from a dict. Keys that are not arguments of the constructor become
        attributes too.

        The dict may be the content of a Hugging Face `config.json`. In such a file, "gelu" means the erf
        form, which has the name "gelu_erf" here.
        """
        config = cls(vocab_size=None)
        for key, value in json_object.items():
            setattr(config, key, value)
        if "model_type" in json_object or "transformers_version" in json_object:
            config.hidden_act = _HUGGING_FACE_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
        return config

    @classmethod
    def from_json_file(cls, json_file):
        """Creates a configuration from a JSON file in the published form or in Hugging Face's form."""
        return cls.from_dict(checkpoint_formats.read_config(os.fspath(json_file)))

    def to_dict(self):
        """Returns a deep copy of the configuration as a dict."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self):
        """Returns the configuration as indented JSON with sorted keys and a final newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def check_activation(name):
    """Raises a ValueError if there is no activation with the name `name`, a str. An empty name means none."""
    if name and name.lower() not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {name!r}; known: {', '.join(ACTIVATIONS)}.")


def variable_shapes(config, scope="bert"):
    """Returns {name: shape} of the variables of a `modeling.BertModel`, without building the model. A shape
    is a tuple of ints."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes = {}

    def dense(name, inputs, outputs):
        shapes[f"{scope}/{name}/kernel"] = (inputs, outputs)
        shapes[f"{scope}/{name}/bias"] = (outputs,)

    def normalization(name):
        shapes[f"{scope}/{name}/LayerNorm/beta"] = shapes[f"{scope}/{name}/LayerNorm/gamma"] = (width,)

    shapes[f"{scope}/embeddings/word_embeddings"] = (config.vocab_size, width)
    shapes[f"{scope}/embeddings/token_type_embeddings"] = (config.type_vocab_size, width)
    shapes[f"{scope}/embeddings/position_embeddings"] = (config.max_position_embeddings, width)
    normalization("embeddings")
    for index in range(config.num_hidden_layers):
        layer = f"encoder/layer_{index}"
        for projection in ("query", "key", "value"):
            dense(f"{layer}/attention/self/{projection}", width, width)
        dense(f"{layer}/attention/output/dense", width, width)
        normalization(f"{layer}/attention/output")
        dense(f"{layer}/intermediate/dense", width, inner)
        dense(f"{layer}/output/dense", inner, width)
        normalization(f"{layer}/output")
    dense("pooler/dense", width, width)
    return shapes


def layer_index(name):
    """Returns the index of the encoder layer that contains a variable, −1 for a variable of the embeddings,
    and None for all other variables, such as those of the pooler and of the head.

    Args:
      name: name of the variable, such as "bert/encoder/layer_3/output/dense/kernel".
    """
    layer = re.search(r"(?:^|/)encoder/layer_(\d+)/", name)
    if layer:
        return int(layer[1])
    return -1 if re.search(r"(?:^|/)embeddings/", name) else None


def is_frozen(name, freeze_layers=0, freeze_embeddings=False):
    """Returns whether a variable is not trained. See `optimization.create_optimizer` for the
    arguments."""
    index = layer_index(name)
    return index is not None and (index < freeze_layers if freeze_layers else
                                  freeze_embeddings and index == -1)
