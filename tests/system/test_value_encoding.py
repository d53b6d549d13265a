"""Plain values are encoded as bytes and decoded again."""

import math
import pickle
from typing import NamedTuple

import ml_dtypes
import msgpack
import numpy as np
import pytest

from bertlib.system import value_encoding


def round_trip(value):
    return value_encoding.decode(value_encoding.encode(value))


@pytest.mark.parametrize("value", [
    None, True, 0, -2**80, 0.1, -0.0, math.inf, "é\ud800\0", b"\0\xff", [], (), {},
    [1, (2, [b"one", b""])], {"a": 1, 2: "b", (3, None): [4.5]}])
def test_a_plain_value_comes_back_with_its_types(value):
    found = round_trip(value)
    assert found == value and repr(found) == repr(value)


def test_a_number_that_is_none_comes_back():
    assert math.isnan(round_trip([float("nan")])[0])


@pytest.mark.parametrize("value", [
    np.float32([1, np.nan, -0.0]), np.int64(7), np.arange(24).reshape(2, 3, 4)[:, ::2],
    np.array([[b"a"], [b"b\0"]], object),
    np.str_("word"), np.array([1.5, 2], ml_dtypes.bfloat16), np.arange(3, dtype=">i4")], ids=repr)
def test_an_array_comes_back_with_its_dtype_and_bytes(value):
    found = round_trip({"of": [value, value]})["of"]
    for one in found:
        assert type(one) is type(value) and (one.dtype, one.shape) == (value.dtype, value.shape)
        assert one.tolist() == value.tolist() if value.dtype == object else one.tobytes() == value.tobytes()


class Named(NamedTuple):
    """A named tuple. The encoding would lose its type."""

    a: int


@pytest.mark.parametrize("value", [Named(1), [{"a": {1, 2}}], np.array([object()], object),
                                   np.zeros(2, [("a", int)])])
def test_another_value_is_refused(value):
    with pytest.raises(TypeError, match="Replicas (cannot|can) exchange"):
        value_encoding.encode(value)


GOOD = value_encoding.encode({"a": np.arange(4), "b": [b"xyz"]})


def extension(kind, *items):
    return msgpack.packb(msgpack.ExtType(kind, msgpack.packb(items)))


@pytest.mark.parametrize("message", [
    b"", GOOD[:-1], GOOD + b"x", pickle.dumps((1, 2)), b"\x81\x90\1", b"\x91" * 2000,
    extension(1), extension(3, "O", [1], b"\0" * 8), extension(3, "nope", [], b"")])
def test_bytes_that_are_no_message_are_one_kind_of_error(message):
    with pytest.raises(ValueError):
        value_encoding.decode(message)
