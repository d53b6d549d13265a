"""`tf.train.Example` by hand: the bytes of protobuf's deterministic serialization, at a fraction of its
price, and without TensorFlow, which worker processes would load for seconds.

The format (https://protobuf.dev/programming-guides/encoding): a message is a sequence of (tag, length,
content); a list of numbers is packed, integers as varints, floats in 4 bytes each; a map is a repeated
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
Field.__doc__ = """One feature of a record: its name, dtype ("int64" or "float32") and shape, a tuple of ints.

bounds: the least and the greatest value that a reader accepts, both included; None for any."""
# What an id can be where it is not known how many there are: readers make int32 of them.
ANY_ID = (0, 2**31 - 1)

_FEATURE_TAGS = {"float32": b"\x12", "int64": b"\x1a"}
_CACHE_SIZE = 1 << 16
_CONTINUED = bytes(range(0x80, 0x100))


class _Varints(dict):
    """{int: its varint}: seven bits a byte, the lowest first, the eighth set in all but the last."""

    def __missing__(self, value):
        rest, encoded = operator.index(value) & (1 << 64) - 1, bytearray()  # below 0: two's complement
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        if len(self) < _CACHE_SIZE:
            self[value] = bytes(encoded)
        return bytes(encoded)


_VARINTS = _Varints()


def varints(numbers):
    """Returns the bytes of packed ints, 64 bits each at most."""
    return b"".join(map(_VARINTS.__getitem__, numbers))


def count_varints(packed):
    """Returns how many varints there are in their packed bytes."""
    return len(packed.translate(None, _CONTINUED))


def _message(tag, content):
    return tag + _VARINTS[len(content)] + content


class Prefixes(dict):
    """{size: the bytes before a field's packed values of so many bytes in a serialized example}."""

    def __init__(self, field):
        self._key = _message(b"\x0a", field.name.encode("utf-8"))
        self._tag = _FEATURE_TAGS[field.dtype]

    def __missing__(self, size):
        feature = _message(self._tag, _message(b"\x0a", bytes(size)) if size else b"")
        entry = _message(b"\x0a", self._key + _message(b"\x12", feature))
        self[size] = entry[:len(entry) - size]
        return self[size]


class Encoder:
    """Serializes rows into the bytes that `tf.train.Example.SerializeToString(deterministic=True)` gives."""

    def __init__(self, fields):
        """Prepares what all rows share.

        Args:
          fields: list of `Field`.
        """
        self._fields = [(field.name, field.dtype == "int64", math.prod(field.shape), Prefixes(field))
                        for field in sorted(fields)]

    def __call__(self, row):
        """Returns a serialized `tf.train.Example`.

        Args:
          row: {name: values}: flat ints or floats; or bytes, taken for packed `varints`, as which each int
            below 128 is one byte. What a field has fewer of than declared is padded with zeros.

        Raises:
          ValueError: a field has too many values.
        """
        return join_encoded_fields(self.fields_part(row))

    def fields_part(self, row):
        """Like a call, but only a part for `join_encoded_fields`: rows that share fields can share their
        part."""
        entries = []
        for name, is_integer, size, prefixes in self._fields:
            values = row[name]
            if type(values) is bytes:
                length, packed = count_varints(values), values
            else:
                length, packed = len(values), varints(values) if is_integer else _floats(values)
            if length > size:
                raise ValueError(f"Field {name} has {length} values; declared are {size}.")
            packed += bytes((size - length) * (1 if is_integer else 4))
            entries += prefixes[len(packed)], packed
        return b"".join(entries)


def join_encoded_fields(*parts):
    """Returns the serialized `tf.train.Example` of what `Encoder.fields_part` returned, by the fields'
    names."""
    return _message(b"\x0a", b"".join(parts))


def _floats(values):
    packed = array.array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
