"""Exports a trained model as a SavedModel, for programs that have TensorFlow but not this project.

    export/<time>/           one version, in the layout that TensorFlow Serving expects
      saved_model.pb         one graph for each signature. The graphs contain only TensorFlow's ops, and no
                             kernels that were compiled for one machine
      variables/             the weights, in fp32
      assets.extra/          vocabulary, labels, configuration and warm-up requests

Each signature is a separate copy of the graph. All signatures share the variables. docs/howto/serving.md
lists the inputs and outputs of the signatures.
"""

import os
from typing import NamedTuple

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding
from bertlib.estimator import saved_model
from bertlib.runs import file_names, trained_model
from bertlib.system import files
from bertlib.tasks import answers, loaded_model, serving_warmup

DIRECTORY = "export"  # name of the default directory of the versions
DEFAULT_SIGNATURE = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
# Names of the files in the model's directory that are copied into an export if they exist.
_FILES = (*file_names.MODEL_FILES, file_names.RECORD)
# Names of the extra inputs that have one value for each token.
_ALONG_TOKENS = ("word_mask",)


class Signature(NamedTuple):
    """A signature of a SavedModel.

    Attributes:
      inputs: {name: placeholder}.
      outputs: {name: tensor [B, …]}.
      requests: list of the warm-up requests, of growing length. Each request is {name of an input: nested
        lists that NumPy converts to an array [1, …]}.
    """

    inputs: dict
    outputs: dict
    requests: list


# --- Inputs and outputs ----------------------------------------------------------------------------------


def build_outputs(task_answers, features):
    """Builds the outputs of a model in the current graph. If this function is called several times, all calls
    use the same variables.

    Args:
      task_answers: the `answers.Answers` of the model.
      features: {name: int32 [B, F]}, with the inputs of the encoder and the `exported_inputs` of the answers.

    Returns:
      {name of an output: tensor [B, …]}.
    """
    model, head, ids = task_answers.model, task_answers.head, features["input_ids"]
    longest = model.bert_config.max_position_embeddings
    message = f"The inputs are longer than the {longest} positions of the model."
    with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(ids)[1], longest,
                                                                 message=message)]):
        features = {**features, "input_ids": tf.identity(ids)}
    features = head.exported_features(features)
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        predictions = loaded_model.build(head, model.bert_config, features)
    return head.exported_outputs(model, predictions, features)


def derive_inputs(model, input_ids):
    """Computes the mask and the segments from token ids.

    Args:
      model: a `trained_model.TrainedModel`.
      input_ids: int32 [B, F], padded with 0.

    Returns:
      dict with "input_mask" and "segment_ids", both int32 [B, F]. input_mask is 1 for tokens and 0 for
      padding. segment_ids is 1 for the tokens after the first [SEP], and 0 for all other tokens and for
      padding.
    """
    mask = tf.cast(tf.not_equal(input_ids, 0), tf.int32)
    if model.bert_config.type_vocab_size < 2:
        return {"input_mask": mask, "segment_ids": tf.zeros_like(mask)}
    separators = tf.cast(tf.equal(input_ids, model.tokenizer.vocab["[SEP]"]), tf.int32)
    before = tf.cumsum(separators, axis=1, exclusive=True)
    return {"input_mask": mask, "segment_ids": tf.minimum(before, 1) * mask}


def _parse_examples(model, serialized, more):
    """Returns the features of serialized `tf.train.Example`s. The examples may differ in length. If an
    example has no mask or no segments, `derive_inputs` adds them. If it lacks an extra input, the model
    returns an error.

    Args:
      model: a `trained_model.TrainedModel`.
      serialized: string [B].
      more: names of the extra inputs.
    """
    names = (*loaded_model.ENCODER_INPUTS, *more)
    parsed = tf.io.parse_example(serialized, {name: tf.io.RaggedFeature(tf.int64) for name in names})
    ids = tf.cast(parsed["input_ids"].to_tensor(), tf.int32)

    def padded(name, width):
        return tf.cast(parsed[name].to_tensor(shape=tf.stack([-1, width])), tf.int32)

    features = {"input_ids": ids}
    for name, default in derive_inputs(model, ids).items():
        is_present = tf.expand_dims(parsed[name].row_lengths() > 0, 1)
        features[name] = tf.where_v2(is_present, padded(name, tf.shape(ids)[1]), default)
    for name in more:
        is_complete = tf.debugging.assert_positive(
            parsed[name].row_lengths(), message=f"Each tf.Example needs the feature {name}, but an example "
            "lacks it.")
        with tf.control_dependencies([is_complete]):
            features[name] = padded(name, tf.shape(ids)[1] if name in _ALONG_TOKENS else -1)
    return features


def _signatures(task_answers, number):
    """Builds signatures whose inputs are token ids, with `number` warm-up requests for each. Returns {name of
    a signature: `Signature`}."""
    model, more = task_answers.model, task_answers.exported_inputs()
    rows = warmup_rows(model, more, number)

    def requests(names):
        return [{name: [row[name]] for name in names} for row in rows]

    encoded = loaded_model.create_inputs((*loaded_model.ENCODER_INPUTS, *more))
    ids = loaded_model.create_inputs(("input_ids", *more))
    serialized = {"examples": tf.placeholder(tf.string, [None], "examples")}
    return {
        DEFAULT_SIGNATURE: Signature(encoded, build_outputs(task_answers, encoded), requests(encoded)),
        "ids": Signature(ids, build_outputs(task_answers, {**derive_inputs(model, ids["input_ids"]), **ids}),
                         requests(ids)),
        "examples": Signature(
            serialized, build_outputs(task_answers, _parse_examples(model, serialized["examples"], more)),
            [{"examples": [serving_warmup.example(row)]} for row in rows])}


def warmup_rows(model, more, number):
    """Returns a list of `number` inputs of growing length. Each input is {name: list of int}, and the last
    one has `max_seq_length` tokens. `more` contains the names of the extra inputs."""
    start, unknown, end = model.tokenizer.convert_tokens_to_ids(["[CLS]", "[UNK]", "[SEP]"])
    rows = []
    for index in range(1, number + 1):
        size = max(3, model.max_seq_length * index // number)
        words = [0, *[1] * (size - 2), 0]
        row = {**example_encoding.model_inputs([start, *[unknown] * (size - 2), end]),
               "word_mask": words, "tag_mask": words, "masked_lm_positions": [1]}
        rows.append({name: row[name] for name in dict.fromkeys((*loaded_model.ENCODER_INPUTS, *more))})
    return rows


# --- Writing ---------------------------------------------------------------------------------------------


def export(model, directory, task=None, warmup_requests=1):
    """Exports a model as a SavedModel whose inputs are token ids.

    Args:
      model: a `trained_model.TrainedModel`.
      directory: the directory of all versions. The new version is written to a new subdirectory.
      task: name of the task; None for the task that the model was trained for. See `answers.choose_task`.
      warmup_requests: number of warm-up requests for each signature, see `serving_warmup`.

    Returns:
      the directory of the new version.

    Raises:
      ValueError, OSError: the model cannot do the task, its weights are damaged, or the directory cannot be
        written.
    """
    return write_version(answers.create(model, task), directory, _signatures, warmup_requests)


def write_version(task_answers, directory, build, warmup_requests):
    """Writes a SavedModel into a new directory. The directory gets its final name only when it is complete.

    Args:
      task_answers: the `answers.Answers` of the model.
      directory: the directory of all exports.
      warmup_requests: number of warm-up requests for each signature.
      build: function that takes `task_answers` and `warmup_requests`. It builds the signatures in the
        current graph and returns them, {name: `Signature`}.

    Returns:
      the new directory.
    """
    model = task_answers.model
    files.require_directory(directory, directory)
    loaded_model.check_weights(task_answers.head, model.bert_config, model.checkpoint)
    with tf.Graph().as_default():
        signatures = build(task_answers, warmup_requests)
        with (loaded_model.with_weights(model.checkpoint) as weights,
              saved_model.new_export_dir(directory) as (temporary, final)):
            _write_model(weights, temporary, signatures)
            extra = os.path.join(temporary, "assets.extra")
            copy_files(model, extra)
            requests = [(name, request) for name, signature in signatures.items()
                        for request in signature.requests]
            if requests:
                serving_warmup.write(os.path.join(extra, serving_warmup.FILE), signatures, requests)
    return tf.compat.as_str(final)


def _write_model(weights, directory, signatures):
    """Writes the graph and the weights of a session into a directory."""
    builder = tf.saved_model.builder.SavedModelBuilder(directory)
    builder.add_meta_graph_and_variables(
        weights, [tf.saved_model.tag_constants.SERVING],
        {name: tf.saved_model.predict_signature_def(signature.inputs, signature.outputs)
         for name, signature in signatures.items()},
        assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS), main_op=tf.tables_initializer(),
        clear_devices=True, strip_default_attrs=True, saver=tf.train.Saver(tf.trainable_variables()))
    builder.save()


def copy_files(model, directory):
    """Copies the files that describe a model into a directory."""
    files.make_directories(directory)
    for name in filter(lambda name: files.exists(os.path.join(model.path, name)), _FILES):
        files.write_bytes(os.path.join(directory, name), files.read_bytes(os.path.join(model.path, name)))


def log(path, model):
    """Logs the path of an exported version, and the checkpoint whose weights it contains.

    Args:
      path: directory of the version.
      model: the `trained_model.TrainedModel` that was exported.
    """
    logging.info("%s exported: %s", model.checkpoint, path)


# --- The export at the end of a run ----------------------------------------------------------------------


def run_directory(settings):
    """Returns the directory of the versions that a run with --do_export writes."""
    return os.path.join(settings.output_dir if settings.do_train else settings.results_dir, DIRECTORY)


def check_run(task):
    """Checks that the export at the end of the run of a `bertlib.tasks.task.Task` will be possible. Call this
    function before the run writes anything.

    Raises:
      ValueError, OSError: an export is not possible.
    """
    settings = task.settings
    if task.has_own_head:
        raise ValueError(f"--do_export: the head of {type(task).__name__} is in a task module, and exports "
                         "have only the heads of this project. Leave the flag out.")
    if not settings.do_train:
        trained_model.read(settings.output_dir, settings.weights)
    elif not (settings.vocab_file or settings.spm_model_file):
        raise ValueError("--do_export: an export needs the vocabulary of the model. Pass --vocab_file or "
                         "--spm_model_file.")
    directory = run_directory(settings)
    files.require_directory(directory, directory)


def export_run(settings):
    """Exports the weights in --output_dir that --weights chooses."""
    model = trained_model.read(settings.output_dir, settings.weights)
    log(export(model, run_directory(settings)), model)
