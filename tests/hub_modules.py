"""Writes hub modules of TensorFlow 1 like the package tensorflow_hub: of the tiny model, and of any graph."""

import json

import tensorflow.compat.v1 as tf
import tiny

import modeling

DECLARATION = b"\x08\x03"  # tfhub_module.pb: format 3


def write_graphs(directory, build, weights=None, variants=((), ("train",)), seed=1):
    """Writes a module; returns its directory.

    Args:
      directory: directory of the module.
      build: function of tags that builds a variant and returns {signature: (inputs, outputs)}. `inputs` and
        `outputs` are dicts of tensors.
      weights: {variable: array}; with None, the weights are random.
      variants: a tuple of tags for each variant.
      seed: seed of random weights.
    """
    builder = tf.saved_model.Builder(str(directory))
    for tags in variants:
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(seed)
            with tf.variable_scope("", use_resource=True):
                signatures = {name: _signature(*sides) for name, sides in build(tags).items()}
            arguments = dict(signature_def_map=signatures,
                             assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS))
            if tags == variants[0]:
                session.run(tf.global_variables_initializer())
                if weights:
                    tiny.load(session, tf.global_variables(), weights)
                builder.add_meta_graph_and_variables(session, tags, **arguments)
            else:
                builder.add_meta_graph(tags, **arguments)
    builder.save()
    (directory / "tfhub_module.pb").write_bytes(DECLARATION)
    return directory


def _signature(*sides):
    return tf.saved_model.build_signature_def(*(
        {name: tf.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
        for tensors in sides))


def bert(model, is_training, config=None, tokenization_info=True, do_lower_case=True, length=None,
         alter=None):
    """Builds a BERT in the default graph; returns {signature: (inputs, outputs)}.

    Args:
      model: a `tiny.Model`.
      is_training: whether the model has dropout.
      config: path of another configuration.
      tokenization_info: whether the module has the signature "tokenization_info" in addition to "tokens".
      do_lower_case: value in the signature "tokenization_info".
      length: length of the sequences; None for any length.
      alter: function of the dict of outputs that returns the changed dict.
    """
    config = modeling.BertConfig.from_dict(json.loads((config or model.config).read_text()))
    ids, mask, segments = (tf.placeholder(tf.int32, [None, length]) for _ in range(3))
    built = modeling.BertModel(config, is_training, ids, mask, segments)
    outputs = {"pooled_output": built.get_pooled_output(), "sequence_output": built.get_sequence_output()}
    signatures = {"tokens": ({"input_ids": ids, "input_mask": mask, "segment_ids": segments},
                             alter(outputs) if alter else outputs)}
    if tokenization_info:
        vocab_file = tf.constant(str(model.vocab))
        tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, vocab_file)
        signatures["tokenization_info"] = ({}, {"vocab_file": vocab_file,
                                                "do_lower_case": tf.constant(do_lower_case)})
    return signatures


def write(model, directory, seed=1, **options):
    """Writes a BERT with the variants {} and {"train"}; returns its directory.

    Args:
      model: a `tiny.Model`. The module has its weights.
      seed: seed of random numbers.
      options: arguments of `bert`.
    """
    return write_graphs(directory, lambda tags: bert(model, "train" in tags, **options), model.weights,
                        seed=seed)


def inputs(batch=3, length=tiny.SEQ_LENGTH):
    """Returns inputs of the signature "tokens" with some padding: {name: nested list}."""
    rows, columns = range(batch), range(length)
    return {"input_ids": [[(7 * row + 3 * column) % tiny.CONFIG["vocab_size"] for column in columns]
                          for row in rows],
            "input_mask": [[int(column < length - row) for column in columns] for row in rows],
            "segment_ids": [[column % 2 for column in columns] for _ in rows]}
