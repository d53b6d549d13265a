"""Encodes plain values as bytes, for messages between processes. This module does not import TensorFlow.

A message consists of three parts: the length of the header (4 bytes, big-endian), the header in JSON, and the
contents of the bytes objects and arrays, in the order of the header. In the header, None, booleans, numbers
and strings have their JSON form. Every other value is described by a list that begins with the kind of the
value:

    ["list", values], ["tuple", values], ["dict", [[key, value], …]], ["bytes", length]
    ["array", dtype, shape]       a NumPy array
    ["scalar", dtype]             a NumPy scalar
    ["objects", shape, values]    a NumPy array of strings

Pickle is not used, because a message of pickle can contain code that runs when the message is decoded.
`decode` never runs code from a message.
"""

import io
import json
import math
import struct

_LENGTH = struct.Struct(">I")


def encode(value):
    """Returns a value as bytes.

    Args:
      value: None, bool, int, float, str, bytes, a NumPy array or scalar, or a list, tuple or dict of these.

    Raises:
      TypeError: the value contains an object of another type.
    """
    parts = []
    header = json.dumps(_described(value, parts)).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *parts])


def decode(message):
    """Returns the value that `encode` wrote into a message.

    Raises:
      ValueError: the bytes are not a message that `encode` wrote.
    """
    try:
        length, = _LENGTH.unpack_from(message)
        header = json.loads(bytes(message[_LENGTH.size:_LENGTH.size + length]))
        rest = io.BytesIO(message[_LENGTH.size + length:])
        value = _value(header, rest)
    except (struct.error, TypeError, KeyError, IndexError, RecursionError, ValueError) as error:
        raise ValueError(f"a message cannot be read ({type(error).__name__}: {error})") from None
    if rest.read(1):
        raise ValueError("a message is longer than its header requires")
    return value


def _described(value, parts):
    """Returns the description of a value for the header of a message. If the value contains bytes objects or
    arrays, appends their contents to `parts`. In the message, these contents follow the header."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        parts.append(value)
        return ["bytes", len(value)]
    if isinstance(value, dict):
        return ["dict", [[_described(key, parts), _described(item, parts)] for key, item in value.items()]]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_described(item, parts) for item in value]]
    return _described_array(value, parts)


def _described_array(value, parts):
    # The import is here and not at the top, because NumPy starts threads. A launcher of replicas also imports
    # this module, and must stay a process with one thread.
    import numpy as np

    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"Replicas can exchange numbers, strings and arrays, and lists, tuples and dicts of "
                        f"them. This value is of the type {type(value).__name__}.")
    if value.dtype == object:
        return ["objects", list(value.shape), [_described(item, parts) for item in value.ravel()]]
    if value.dtype.names:
        raise TypeError(f"Replicas cannot exchange arrays of records, such as {value.dtype}.")
    parts.append(value.tobytes())
    # Types that do not belong to NumPy, such as bfloat16, are identified by their names. The attribute `str`
    # of such a type states only its number of bytes.
    dtype = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
    return ["array", dtype, list(value.shape)] if isinstance(value, np.ndarray) else ["scalar", dtype]


def _take(rest, length):
    """Returns the next `length` bytes of a stream."""
    content = rest.read(length) if length >= 0 else b""
    if len(content) != length:
        raise ValueError("the message is shorter than its header requires")
    return content


def _value(described, rest):
    if not isinstance(described, list):
        return described
    kind, *arguments = described
    if kind == "bytes":
        return _take(rest, *arguments)
    if kind in ("list", "tuple"):
        items = [_value(item, rest) for item in arguments[0]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_value(key, rest): _value(item, rest) for key, item in arguments[0]}
    return _array(kind, arguments, rest)


def _array(kind, arguments, rest):
    # The import is here and not at the top, because NumPy starts threads; see `_described_array`.
    import numpy as np

    if kind == "objects":
        shape, items = arguments
        array = np.empty(len(items), object)
        array[:] = [_value(item, rest) for item in items]
        return array.reshape(shape)
    if kind not in ("array", "scalar"):
        raise ValueError(f"unknown kind of value {kind!r}")
    dtype, shape = np.dtype(arguments[0]), tuple(arguments[1]) if kind == "array" else ()
    array = np.frombuffer(_take(rest, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
    return array.copy() if kind == "array" else array[()]
