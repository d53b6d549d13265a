"""Serializes `tf.train.Example` without protobuf and without TensorFlow.

The result has the same bytes as protobuf's deterministic serialization, but this module needs only a fraction
of the time. Worker processes that use this module need not import TensorFlow. The import would take seconds.

The format (https://protobuf.dev/programming-guides/encoding): A message is a sequence of (tag, length,
content). A list of numbers is packed: integers as varints, floats as 4 bytes each. A map is a repeated
message of key and value.

    Example { 1: Features { 1: {1: name, 2: Feature}, … }}
    Feature { 2: FloatList {1: values} or 3: Int64List {1: values} }
"""

import array
import collections
import math
import operator
import sys

Field = collections.namedtuple("Field", ["name", "dtype", "shape", "bounds"], defaults=[None])
Field.__doc__ = """One feature of a record.

name: name of the feature.
dtype: "int64" or "float32".
shape: tuple of ints.
bounds: (smallest, largest) value that a reader accepts, both included; None to accept all values."""
# `bounds` for a field that contains ids. They are used if the largest valid id is not known. The upper bound
# is the largest int32, because readers cast ids to int32.
ANY_ID = (0, 2**31 - 1)

# The byte with which a Feature message begins. It says whether the message contains floats or integers.
_FEATURE_TAGS = {"float32": b"\x12", "int64": b"\x1a"}
# Number of varints that are cached.
_CACHE_SIZE = 1 << 16
# All bytes whose highest bit is 1. In a varint, all bytes except the last one are of this kind.
_CONTINUED = bytes(range(0x80, 0x100))


class _Varints(dict):
    """Maps an int to its varint. Each byte contains 7 bits of the int, the lowest bits first. The highest bit
    of a byte is 1 if another byte follows."""

    def __missing__(self, value):
        # A negative number is encoded as two's complement of 64 bits.
        rest, encoded = operator.index(value) & (1 << 64) - 1, bytearray()
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        if len(self) < _CACHE_SIZE:
            self[value] = bytes(encoded)
        return bytes(encoded)


_VARINTS = _Varints()


def varints(numbers):
    """Returns the packed varints (bytes) of integers of at most 64 bits."""
    return b"".join(map(_VARINTS.__getitem__, numbers))


def count_varints(packed):
    """Returns the number of varints in packed bytes."""
    return len(packed.translate(None, _CONTINUED))


def _message(tag, content):
    return tag + _VARINTS[len(content)] + content


class Prefixes(dict):
    """Contains the prefixes of one field: {size: prefix}. The size is the number of bytes of the field's
    packed values. The prefix consists of the bytes that precede these values in a serialized example."""

    def __init__(self, field):
        self._key = _message(b"\x0a", field.name.encode("utf-8"))
        self._tag = _FEATURE_TAGS[field.dtype]

    def __missing__(self, size):
        feature = _message(self._tag, _message(b"\x0a", bytes(size)) if size else b"")
        entry = _message(b"\x0a", self._key + _message(b"\x12", feature))
        self[size] = entry[:len(entry) - size]
        return self[size]


class Encoder:
    """Serializes rows. The bytes of a row are the same as those of a `tf.train.Example` that protobuf
    serializes deterministically."""

    def __init__(self, fields):
        """Creates an encoder. Encodes the names and types of the fields here, and not in each call, because
        they are the same in all rows.

        Args:
          fields: list of `Field`.
        """
        self._fields = [(field.name, field.dtype == "int64", math.prod(field.shape), Prefixes(field))
                        for field in sorted(fields)]

    def __call__(self, row):
        """Returns a serialized `tf.train.Example`.

        Args:
          row: {name: values}. The values are a flat sequence of ints or floats, or a bytes object that
            contains packed `varints`. (For ints from 0 to 127, this object is `bytes(ints)`, because the
            varint of such an int is a single byte with the same value.) If a field has fewer values than
            declared, it is padded with zeros.

        Raises:
          ValueError: a field has too many values.
        """
        return join_encoded_fields(self.fields_part(row))

    def fields_part(self, row):
        """Returns the encoded fields of a row, for `join_encoded_fields`.

        If several rows have the same values in these fields, compute the encoded fields once, and use them
        for all of these rows. The arguments and errors are the same as those of `__call__`.
        """
        entries = []
        for name, is_integer, size, prefixes in self._fields:
            values = row[name]
            if type(values) is bytes:
                length, packed = count_varints(values), values
            else:
                length, packed = len(values), varints(values) if is_integer else _floats(values)
            if length > size:
                raise ValueError(f"Field {name} has {length} values, but is declared with {size} values.")
            packed += bytes((size - length) * (1 if is_integer else 4))
            entries += prefixes[len(packed)], packed
        return b"".join(entries)


def join_encoded_fields(*parts):
    """Joins the results of several calls of `Encoder.fields_part` into one serialized `tf.train.Example`.

    Args:
      *parts: bytes. Order the parts so that the names of all fields are in alphabetical order.
    """
    return _message(b"\x0a", b"".join(parts))


def _floats(values):
    packed = array.array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
