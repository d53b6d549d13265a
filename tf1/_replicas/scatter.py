"""Distributes the batches of a script's dataset to the replicas."""

import tensorflow.compat.v1 as tf


def scatter_batches(dataset, group):
    """Returns a dataset whose elements are tuples. Each tuple contains one batch for each replica.

    If fewer batches than replicas remain at the end, these batches are dropped. All replicas run the same
    pipeline and have the same position in the input, so only replica 0 needs to save the position.

    Args:
      dataset: the dataset that an input_fn returned.
      group: the `replica_group.Group`.

    Raises:
      ValueError: the input_fn returned an object that is not a dataset.
    """
    if not isinstance(dataset, tf.compat.v2.data.Dataset):
        raise ValueError("With several replicas, the input_fn must return a dataset, whose batches are then "
                         f"distributed to the replicas. This input_fn returned {type(dataset).__name__}. If "
                         "it ends with dataset.make_one_shot_iterator().get_next(), return the dataset. If "
                         "it changes the tensors after that, change them with dataset.map(…).")
    # A round has one batch for each replica. An incomplete round is dropped, because all replicas must end
    # after the same step.
    rounds = dataset.window(group.count, drop_remainder=True)
    return rounds.flat_map(lambda *components: tf.data.Dataset.zip(tuple(
        _zipped(components).skip(index).take(1) for index in range(group.count))))


def _zipped(components):
    """Returns a dataset with the elements of a window. The elements can have any structure.

    Args:
      components: the arguments that `flat_map` passes for a window. They have the structure of an element,
        with a dataset in place of each tensor.
    """
    return tf.data.Dataset.zip(components[0] if len(components) == 1 else tuple(components))
