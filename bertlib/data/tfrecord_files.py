"""Writes TFRecord files, and builds and parses `tf.train.Example` messages.

The first call that needs TensorFlow imports TensorFlow. Worker processes only compute features and never
import it.
"""

import itertools
import math

from bertlib.data import example_encoding
from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import files


def open_writer(path):
    """Returns a `tf.io.TFRecordWriter`: a context manager with the methods `write(bytes)` and `close()`."""
    return tf.io.TFRecordWriter(path)


def read_records(path, limit=None):
    """Yields the records (bytes) of a file. If `limit` is an int, at most this number of records.

    Raises:
      ValueError: the file contains no TFRecords, or is damaged.
    """
    try:
        yield from itertools.islice(tf.io.tf_record_iterator(path), limit)
    except tf.errors.DataLossError as error:
        raise ValueError(f"{path} contains no TFRecords, or is damaged ({error.message}).") from error


def count_records(path, limit):
    """Returns the number of records in a file, or `limit` if the file has more records. For the errors, see
    `read_records`."""
    return sum(1 for _ in read_records(path, limit))


def parse_features(record):
    """Returns the features {name: `tf.train.Feature`} of a serialized `tf.train.Example`."""
    return example_encoding.Example.FromString(record).features.feature


def find_problem(record, fields):
    """Returns a message about the first problem of a serialized `tf.train.Example`; None if the example has
    no problem.

    Args:
      record: bytes.
      fields: list of the `Field`s that the record must have.
    """
    try:
        features = parse_features(record)
    except Exception:  # the class of this error depends on the implementation of protobuf
        return "it is not a tf.train.Example"
    for field in fields:
        if field.name not in features:
            return f"it has no feature {field.name}; its features: {', '.join(sorted(features)) or 'none'}"
        feature = features[field.name]
        values = (feature.int64_list if field.dtype == "int64" else feature.float_list).value
        size = math.prod(field.shape)
        if len(values) != size:
            return f"{field.name} has {len(values)} {field.dtype} values, not {size}"
        if field.bounds is None:
            continue
        least, greatest = field.bounds
        for place, value in enumerate(values):
            if not (least <= value <= greatest and math.isfinite(value)):
                above = f"finite and at least {least}"
                valid_range = f"from {least} to {greatest}" if math.isfinite(greatest) else above
                return f"{field.name} has {value} at place {place} (from 0); it must be {valid_range}"
    return None


def find_trimming_problem(record, mask_name, position_fields):
    """Returns a text that says why a record cannot be trimmed; None if the record can be trimmed.

    Args:
      record: bytes, a serialized `tf.train.Example` with the fields below.
      mask_name: name of the mask: 1 for real tokens, 0 for padding.
      position_fields: names of the fields whose values are positions of tokens.
    """
    features = parse_features(record)
    mask = features[mask_name].int64_list.value
    length = sum(mask)
    if not all(mask[:length]):
        return f"{mask_name} has padding before a real token"
    for name in position_fields:
        for place, position in enumerate(features[name].int64_list.value):
            # Unused elements of the list contain the position 0. So 0 is valid even if no token is real.
            if position >= max(length, 1):
                return (f"{name} has {position} at place {place} (from 0), but according to {mask_name}, "
                        f"only the first {length} positions are real tokens")
    return None


def int_feature(values):
    """Returns a `tf.train.Feature` with integer values."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def float_feature(values):
    """Returns a `tf.train.Feature` with float values."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))


def write_records(path, fields, rows):
    """Writes rows to a TFRecord file. An old file is replaced when the new file is complete.

    Args:
      path: the file.
      fields: list of `Field`.
      rows: iterable of {name: values}.

    Returns:
      the number of records.
    """
    return write_serialized(path, (example_encoding.encode_example(fields, row) for row in rows))


def write_serialized(path, records):
    """Writes records to a TFRecord file, like `write_records`. Here, `records` is an iterable of bytes: the
    examples are already serialized."""
    count = 0
    with files.atomic_replacement(path) as partial, open_writer(partial) as records_file:
        for record in records:
            records_file.write(record)
            count += 1
    return count
