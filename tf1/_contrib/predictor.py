"""Defines tf.contrib.predictor: objects that apply a loaded model to arrays."""

import os
import tempfile

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.system import files


class Predictor:
    """Applies a model in a session: a call with {input name: array} returns {output name: array}.

    Attributes:
      graph: the tf.Graph of the model.
      session: the tf.Session.
      feed_tensors, fetch_tensors: {input name: tensor} and {output name: tensor}.
    """

    def __init__(self, session, feed_tensors, fetch_tensors):
        self.graph = session.graph
        self.session = session
        self.feed_tensors = feed_tensors
        self.fetch_tensors = fetch_tensors

    def __call__(self, input_dict):
        unknown = sorted(set(input_dict) - set(self.feed_tensors))
        if unknown:
            raise ValueError(f"The model has no input {', '.join(unknown)}; its inputs are "
                             f"{', '.join(sorted(self.feed_tensors))}.")
        return self.session.run(self.fetch_tensors, {
            self.feed_tensors[name]: value for name, value in input_dict.items()})


def from_saved_model(export_dir, signature_def_key=None, *, tags=None, graph=None, config=None):
    """Returns a `Predictor` of a SavedModel.

    Args:
      export_dir: directory of the SavedModel.
      signature_def_key: name of the signature. None means "serving_default".
      tags: tags of the graph, separated by commas. None means "serve".
      graph: the graph into which the model is loaded. None means a new graph.
      config: tf.ConfigProto of the session.

    Raises:
      ValueError: the model has no signature with this name.
    """
    session = tf.Session(graph=graph or tf.Graph(), config=config)
    with session.graph.as_default():
        loaded = tf.saved_model.loader.load(
            session, (tags or tf.saved_model.tag_constants.SERVING).split(","),
            _escape_directory(tf.compat.as_str(os.fspath(export_dir))))
    key = signature_def_key or tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if key not in loaded.signature_def:
        raise ValueError(f"{export_dir} has no signature {key!r}; its signatures are "
                         f"{', '.join(sorted(loaded.signature_def))}.")
    signature = loaded.signature_def[key]
    return Predictor(session, *(
        {name: session.graph.get_tensor_by_name(info.name) for name, info in infos.items()}
        for infos in (signature.inputs, signature.outputs)))


def from_estimator(estimator, serving_input_receiver_fn, output_key=None, graph=None, config=None):
    """Returns a `Predictor` of an Estimator's newest checkpoint.

    Args:
      estimator: the Estimator.
      serving_input_receiver_fn: function that returns the inputs; see `Estimator.export_saved_model`.
      output_key: name of the export output. None means the default output.
      graph, config: see `from_saved_model`.
    """
    with tempfile.TemporaryDirectory() as directory:
        exported = estimator.export_saved_model(directory, serving_input_receiver_fn)
        return from_saved_model(tf.compat.as_str(exported), output_key, graph=graph, config=config)


def _escape_directory(path):
    """Returns a path without glob characters, so that TensorFlow can open the files of a directory. If `path`
    has such characters, the result is a symbolic link, which is valid until this process ends. A remote path
    is returned unchanged."""
    if not checkpoint_files.GLOB_CHARACTERS.search(path) or files.is_remote(path):
        return path
    link = checkpoint_files.new_link()
    os.symlink(os.path.abspath(path), link)
    return link
