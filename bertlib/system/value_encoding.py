"""Encodes plain values as bytes, for messages between processes. This module does not import TensorFlow.

A message is in the format MessagePack, with extension types for the values that this format lacks: tuples,
long integers, and NumPy's arrays and scalars. Pickle is not used, because a message of pickle can contain
code that runs when the message is decoded. `decode` never runs code from a message.
"""

# The extension types. The content of `_INTEGER` consists of decimal digits. The content of the other types is
# an encoded list: the items of the tuple; the shape and the strings of an array of objects; or dtype, shape
# and bytes of an array or a scalar.
_TUPLE, _INTEGER, _OBJECTS, _ARRAY, _SCALAR = range(5)


def encode(value):
    """Returns a value as bytes.

    Args:
      value: None, bool, int, float, str, bytes, a NumPy array or scalar, or a list, tuple or dict of these.

    Raises:
      TypeError: the value contains an object of another type.
    """
    # Only replicas need this package.
    import msgpack

    return msgpack.packb(value, default=_extension, strict_types=True, unicode_errors="surrogatepass")


def decode(message):
    """Returns the value that `encode` wrote into a message.

    Raises:
      ValueError: the bytes are not a message that `encode` wrote.
    """
    # Only replicas need this package.
    import msgpack

    try:
        return msgpack.unpackb(message, ext_hook=_value, strict_map_key=False,
                               unicode_errors="surrogatepass")
    except (TypeError, KeyError, IndexError, RecursionError, ValueError) as error:
        raise ValueError(f"a message cannot be read ({type(error).__name__}: {error})") from None


def _extension(value):
    """Returns the `msgpack.ExtType` of a value that has no type in MessagePack."""
    # Only replicas need this package.
    import msgpack

    if type(value) is tuple:
        return msgpack.ExtType(_TUPLE, encode(list(value)))
    if type(value) is int:
        return msgpack.ExtType(_INTEGER, str(value).encode())
    if isinstance(value, dict):
        return dict(value)
    # The import is here and not at the top, because NumPy starts threads. A launcher of replicas also imports
    # this module, and must stay a process with one thread.
    import numpy as np

    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"Replicas can exchange numbers, strings and arrays, and lists, tuples and dicts of "
                        f"them. This value is of the type {type(value).__name__}.")
    if value.dtype == object:
        return msgpack.ExtType(_OBJECTS, encode([value.shape, list(value.ravel())]))
    if value.dtype.names:
        raise TypeError(f"Replicas cannot exchange arrays of records, such as {value.dtype}.")
    # Types that do not belong to NumPy, such as bfloat16, are identified by their names. The attribute `str`
    # of such a type states only its number of bytes.
    dtype = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
    return msgpack.ExtType(_ARRAY if isinstance(value, np.ndarray) else _SCALAR,
                           encode([dtype, value.shape, value.tobytes()]))


def _value(kind, content):
    if kind == _INTEGER:
        return int(content)
    items = decode(content)
    if kind == _TUPLE:
        return tuple(items)
    # The import is here and not at the top, because NumPy starts threads; see `_extension`.
    import numpy as np

    if kind == _OBJECTS:
        array = np.empty(len(items[1]), object)
        array[:] = items[1]
        return array.reshape(items[0])
    dtype, shape, values = items
    array = np.frombuffer(values, np.dtype(dtype)).reshape(shape)
    return array.copy() if kind == _ARRAY else array[()]
