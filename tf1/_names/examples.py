"""Writes and parses `tf.train.Example`s in the way TensorFlow 1 does."""

import numpy as np
import tensorflow.compat.v1 as tf


def _whole(value):
    """Converts a bool or a whole float, such as 2.0, to an int. Returns other values unchanged; protobuf then
    checks them."""
    if isinstance(value, (bool, np.bool_, float, np.floating)) and float(value).is_integer():
        return int(value)
    return value


class _Int64ListType(type):
    """Makes `Int64List` usable like tf.train.Int64List, the class of the protobuf message: a call of
    `Int64List` returns such a message, and each such message counts as an instance of `Int64List`."""

    def __call__(cls, value=()):
        return tf.train.Int64List(value=[_whole(number) for number in value])

    def __getattr__(cls, name):
        return getattr(tf.train.Int64List, name)

    def __instancecheck__(cls, instance):
        return isinstance(instance, tf.train.Int64List)


class Int64List(metaclass=_Int64ListType):
    """Makes tf.train.Int64List also accept booleans and whole floats, as older versions of protobuf did."""


def parse_example(serialized, features, name=None, example_names=None):
    """Calls tf.parse_example. Sets the rank of `serialized` to 1, so that the features have known ranks."""
    serialized = tf.ensure_shape(tf.convert_to_tensor(serialized, tf.string), [None])
    return tf.io.parse_example(serialized, features, name, example_names)
