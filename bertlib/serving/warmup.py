"""Requests that TensorFlow Serving sends itself when it loads a model, so that the first user waits no longer
than the others.

They are a TFRecord file of PredictionLog messages (tensorflow_serving/apis/prediction_log.proto). What is
needed of these is so little that it is written here byte by byte, as in `example_encoding`:

    PredictionLog { 6: PredictLog { 1: PredictRequest } }
    PredictRequest { 1: ModelSpec { 3: signature name }, 2: map of an input's name to its TensorProto }
"""

import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding, record_files

FILE = "tf_serving_warmup_requests"
# TensorFlow Serving reads no more.
MAX_REQUESTS = 1000


def _field(number, content):
    """A field of a message, whose content is bytes."""
    return example_encoding.varints([number << 3 | 2, len(content)]) + content


def _entry(name, tensor):
    return _field(1, name.encode()) + _field(2, tensor.SerializeToString(deterministic=True))


def prediction_log(signature, tensors):
    """Returns a serialized PredictionLog.

    Args:
      signature: name of the signature.
      tensors: {name of an input: `tf.TensorProto`}.
    """
    inputs = b"".join(_field(2, _entry(name, tensor)) for name, tensor in sorted(tensors.items()))
    request = _field(1, _field(3, signature.encode())) + inputs
    return _field(6, _field(1, request))


def example(row):
    """Returns a serialized `tf.train.Example` of {name: list of int}."""
    return tf.train.Example(features=tf.train.Features(feature={
        name: record_files.int_feature(values) for name, values in row.items()})).SerializeToString()


def write(path, signatures, requests):
    """Writes requests.

    Args:
      path: the file.
      signatures: {name: `export_model.Signature`}.
      requests: list of (name of a signature, {name of an input: nested lists}).
    """
    record_files.write_serialized(path, (
        prediction_log(name, {key: tf.make_tensor_proto(value, signatures[name].inputs[key].dtype)
                              for key, value in request.items()}) for name, request in requests))
