"""The batches of a script's dataset, scattered over the replicas."""

import tensorflow.compat.v1 as tf


def scatter_batches(dataset, group):
    """Returns a dataset of tuples with a batch for each replica. A rest of fewer batches is dropped.

    All replicas have the same pipeline, and so the same position in it, which replica 0 saves.

    Args:
      dataset: the dataset that an input_fn returned.
      group: the `replica_group.Group`.

    Raises:
      ValueError: it is no dataset.
    """
    if not isinstance(dataset, tf.compat.v2.data.Dataset):
        raise ValueError("With several replicas an input_fn has to return a dataset, whose batches they "
                         f"share; this one returned {type(dataset).__name__}.")
    # All replicas have to end after the same step.
    rounds = dataset.window(group.count, drop_remainder=True)
    return rounds.flat_map(lambda *components: tf.data.Dataset.zip(tuple(
        _zipped(components).skip(index).take(1) for index in range(group.count))))


def _zipped(components):
    """The elements of a window, whose structure may be any."""
    return tf.data.Dataset.zip(components[0] if len(components) == 1 else tuple(components))
