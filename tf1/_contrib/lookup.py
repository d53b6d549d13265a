"""tf.contrib.lookup: tables of words and numbers."""

import tensorflow.compat.v1 as tf

from tf1._names.internals import lookup_ops as _ops
from tf1._names.namespace import own_names


def index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1,
                            hasher_spec=_ops.FastHashSpec, dtype=tf.string, name=None):
    """Returns a table from the elements of a vector to their positions in it.

    Args:
      mapping: the vector; no element twice.
      num_oov_buckets: buckets after these positions for what is not in it; 0 gives default_value.
      default_value: see there.
      hasher_spec: how buckets are chosen.
      dtype: of the keys.
      name: of the op.
    """
    return _ops.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def index_to_string_table_from_tensor(mapping, default_value="UNK", name=None):
    """Returns a table from positions in a vector of strings to its elements."""
    return _ops.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(tensor, mapping, default_value=-1, name=None):
    """Returns the positions in `mapping` of the strings of a tensor."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    """Returns the elements of `mapping` at the positions in a tensor, int64."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


NAMES = dict(
    HashTable=tf.lookup.StaticHashTable, index_table_from_tensor=index_table_from_tensor,
    index_to_string=index_to_string, index_to_string_table_from_tensor=index_to_string_table_from_tensor,
    string_to_index=string_to_index, string_to_index_table_from_tensor=index_table_from_tensor,
    string_to_index_table_from_file=_ops.index_table_from_file,
    **own_names(tf.lookup, "KeyValueTensorInitializer", "TextFileIndex", "TextFileInitializer"),
    **own_names(tf.lookup.experimental, "MutableHashTable"),
    **own_names(_ops, "FastHashSpec", "HasherSpec", "IdTableWithHashBuckets", "InitializableLookupTableBase",
                "LookupInterface", "MutableDenseHashTable", "StrongHashSpec", "TextFileIdTableInitializer",
                "TextFileStringTableInitializer", "index_table_from_file", "index_to_string_table_from_file"))
