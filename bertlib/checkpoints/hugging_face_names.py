"""Translates the names of tensors between Google's and Hugging Face's BERT."""

import re

# Names of the tensors of heads. The key is the name in Hugging Face's classes, and the value is the name in
# the published scripts. Hugging Face and the published scripts store the weights of a head with the same
# shape, [outputs, inputs], so these weights are not transposed. Only the kernels of dense layers are
# transposed, because their published shape is [inputs, outputs]; see `_ENDINGS`.
_HEADS = {
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}
# Each entry has three elements: the end of a name in Hugging Face's classes; the end of the published name,
# with dots instead of slashes; and a bool that is True if the tensor in Hugging Face's classes is the
# transpose of the published tensor. The entries are tried in this order. The first entry that matches the end
# of a given name is used.
_ENDINGS = [
    ("LayerNorm.weight", "LayerNorm.gamma", False),
    ("LayerNorm.bias", "LayerNorm.beta", False),
    ("embeddings.weight", "embeddings", False),
    (".weight", ".kernel", True),
]
# Matches the names of tensors that are not variables: buffers, and the masked-LM decoder, which is a copy of
# the word embeddings.
_NOT_VARIABLES = re.compile(r"(position_ids|token_type_ids|cls\.predictions\.decoder\.(weight|bias))$")
_SCOPES = re.compile(r"^(embeddings|encoder|pooler)\.")


def published_name(key):
    """Translates a tensor's name in a Hugging Face BERT into the published name; the inverse of
    `hugging_face_name`.

    Returns:
      (published variable name, whether the tensor has to be transposed); (None, False) for a buffer or a
      copy of another tensor, because the published model has no variable for it.
    """
    if _NOT_VARIABLES.search(key):
        return None, False
    if key in _HEADS:
        return _HEADS[key], False
    if _SCOPES.match(key):  # the model was saved from a BertModel without a head
        key = "bert." + key
    # In Hugging Face checkpoints that were converted in 2018, the names of normalization weights end with
    # gamma and beta. The published names end in the same way. So `_ENDINGS` needs no entry for these
    # endings, and the endings stay unchanged.
    name, transpose = _translate_ending(key, _ENDINGS)
    return re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name).replace(".", "/"), transpose


def hugging_face_name(name):
    """Translates a published variable name into Hugging Face's name; the inverse of `published_name`.

    Returns:
      a pair: the tensor's name in Hugging Face's classes with a head, and whether the tensor has to be
      transposed. In Hugging Face's class BertModel, which has no head, the name lacks the prefix "bert.".
    """
    for key, head in _HEADS.items():
        if name == head:
            return key, False
    key = re.sub(r"/layer_(\d+)/", r".layer.\1.", name).replace("/", ".")
    return _translate_ending(key, [(published, hugging_face, transpose)
                                   for hugging_face, published, transpose in _ENDINGS])


def _translate_ending(name, endings):
    for old, new, transpose in endings:
        if name.endswith(old):
            return name[:-len(old)] + new, transpose
    return name, False
