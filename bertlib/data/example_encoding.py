"""Serializes `tf.train.Example` without TensorFlow. Worker processes use this module, and the import of
TensorFlow would take seconds in each of them.

The bytes are those of TensorFlow's class, because `Example` has the same fields:

    Example { 1: Features { 1: map from the name of a feature to its Feature } }
    Feature { 2: FloatList { 1: values } or 3: Int64List { 1: values } }
"""

import collections
import math

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

Field = collections.namedtuple("Field", ["name", "dtype", "shape", "bounds"], defaults=[None])
Field.__doc__ = """One feature of a record.

name: name of the feature.
dtype: "int64" or "float32".
shape: tuple of ints.
bounds: (smallest, largest) value that a reader accepts, both included; None to accept all values."""
# `bounds` for a field that contains ids. They are used if the largest valid id is not known. The upper bound
# is the largest int32, because readers cast ids to int32.
ANY_ID = (0, 2**31 - 1)
# Names of the inputs of the encoder.
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Names of the fields that the encoder reads. The first field is the mask, which decides how batches are
# trimmed.
TRIMMED_FIELDS = ("input_mask", "input_ids", "segment_ids")


def token_fields(shape, names=ENCODER_INPUTS, bounds=None):
    """Returns the list of `Field`s with a value for each token. The values of a field whose name ends in
    "mask" are 0 and 1.

    Args:
      shape: tuple of ints, the shape of each field. The last number is the sequence length.
      names: names of the fields.
      bounds: {name: bounds of the field}; by default, the bounds are `ANY_ID`.
    """
    bounds = dict.fromkeys(names, ANY_ID) | (bounds or {})
    return [Field(name, "int64", shape, (0, 1) if name.endswith("mask") else bounds[name]) for name in names]


def model_inputs(ids, num_second=0, length=None):
    """Returns the inputs of the encoder for a sequence, {"input_ids", "input_mask", "segment_ids": list of
    int}.

    Args:
      ids: list of int, the ids of the tokens.
      num_second: number of tokens in segment 1. They are the last tokens.
      length: number of tokens to which the lists are padded with zeros; None for no padding.
    """
    padding = [0] * ((length or len(ids)) - len(ids))
    return {"input_ids": ids + padding, "input_mask": [1] * len(ids) + padding,
            "segment_ids": [0] * (len(ids) - num_second) + [1] * num_second + padding}


# The messages that the docstring of this module shows. They belong to a pool of their own, so that TensorFlow
# can define its classes in the same process.
_MESSAGES = """
    name: "example.proto" syntax: "proto3"
    message_type { name: "FloatList"
                   field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED } }
    message_type { name: "Int64List"
                   field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
    message_type { name: "Feature"
                   field { name: "float_list" number: 2 type_name: ".FloatList" label: LABEL_OPTIONAL }
                   field { name: "int64_list" number: 3 type_name: ".Int64List" label: LABEL_OPTIONAL } }
    message_type { name: "Features"
                   field { name: "feature" number: 1 type_name: ".Features.FeatureEntry"
                           label: LABEL_REPEATED }
                   nested_type { name: "FeatureEntry" options { map_entry: true }
                                 field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
                                 field { name: "value" number: 2 type_name: ".Feature"
                                         label: LABEL_OPTIONAL } } }
    message_type { name: "Example"
                   field { name: "features" number: 1 type_name: ".Features" label: LABEL_OPTIONAL } }"""
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()))
Example = message_factory.GetMessageClass(_pool.FindMessageTypeByName("Example"))


def encode_example(fields, row):
    """Returns a serialized `Example`.

    Args:
      fields: list of `Field`.
      row: {name: values}. The values of a field are a number, a list, or an array of any shape.

    Raises:
      ValueError: a field does not have the declared number of values.
    """
    example = Example()
    for field in fields:
        values = row[field.name]
        if hasattr(values, "tolist"):  # an array of NumPy
            values = values.reshape(-1).tolist()
        elif not isinstance(values, list):
            values = [values]
        if len(values) != math.prod(field.shape):
            raise ValueError(f"Field {field.name} has {len(values)} values, but is declared with "
                             f"{math.prod(field.shape)} values.")
        feature = example.features.feature[field.name]
        (feature.int64_list if field.dtype == "int64" else feature.float_list).value.extend(values)
    return example.SerializeToString(deterministic=True)
