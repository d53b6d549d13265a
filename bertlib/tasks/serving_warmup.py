"""Writes warm-up requests. TensorFlow Serving sends these requests to itself when it loads a model, so that
the first request of a client is not slower than later requests.

The file is a TFRecord file of PredictionLog messages (tensorflow_serving/apis/prediction_log.proto). The
classes of these messages are in the package tensorflow-serving-api, which this project does not require. So
this module encodes the messages byte by byte. Only these fields are needed:

    PredictionLog { 6: PredictLog { 1: PredictRequest } }
    PredictRequest { 1: ModelSpec { 3: signature name }, 2: map from the name of an input to its TensorProto }
"""

import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding, tfrecord_files

FILE = "tf_serving_warmup_requests"
# TensorFlow Serving accepts at most this number of warm-up requests.
MAX_REQUESTS = 1000


def _field(number, content):
    """Returns a field of a Protobuf message, encoded as bytes. `number` is the number of the field. `content`
    is its value in bytes: a text, or an encoded message."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number):
    """Encodes a number from 0: 7 bits in each byte, the lowest bits first. The highest bit of a byte is 1 if
    another byte follows."""
    if number < 0x80:
        return bytes([number])
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def prediction_log(signature, tensors):
    """Returns a serialized PredictionLog.

    Args:
      signature: name of the signature.
      tensors: {name of an input: `tf.TensorProto`}.
    """
    inputs = b"".join(_field(2, _field(1, name.encode())
                             + _field(2, tensor.SerializeToString(deterministic=True)))
                      for name, tensor in sorted(tensors.items()))
    request = _field(1, _field(3, signature.encode())) + inputs
    return _field(6, _field(1, request))


def example(row):
    """Returns a serialized `tf.train.Example` of {name: list of int}."""
    fields = [example_encoding.Field(name, "int64", (len(values),)) for name, values in row.items()]
    return example_encoding.encode_example(fields, row)


def write(path, signatures, requests):
    """Writes a file of warm-up requests.

    Args:
      path: the file.
      signatures: {name: `export_model.Signature`}.
      requests: list of (name of a signature, {name of an input: nested lists}).
    """
    tfrecord_files.write_serialized(path, (
        prediction_log(name, {key: tf.make_tensor_proto(value, signatures[name].inputs[key].dtype)
                              for key, value in request.items()}) for name, request in requests))
