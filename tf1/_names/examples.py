"""`tf.train.Example`s as programs of TensorFlow 1 write and parse them."""

import numpy as np
import tensorflow.compat.v1 as tf


def _whole(value):
    """A whole number as an int; everything else as it is, for protobuf to refuse."""
    if isinstance(value, (bool, np.bool_, float, np.floating)) and float(value).is_integer():
        return int(value)
    return value


class _Int64ListType(type):
    """Makes `Int64List` stand for the message's class."""

    def __call__(cls, value=()):
        return tf.train.Int64List(value=[_whole(number) for number in value])

    def __getattr__(cls, name):
        return getattr(tf.train.Int64List, name)

    def __instancecheck__(cls, instance):
        return isinstance(instance, tf.train.Int64List)


class Int64List(metaclass=_Int64ListType):
    """tf.train.Int64List, which takes booleans and whole floats too, as protobuf did."""


def parse_example(serialized, features, name=None, example_names=None):
    """tf.parse_example: serialized is a vector, so that features have a known rank; see there."""
    serialized = tf.ensure_shape(tf.convert_to_tensor(serialized, tf.string), [None])
    return tf.io.parse_example(serialized, features, name, example_names)
