"""Broadcasts the starting weights of one replica to all replicas.

Each replica draws random starting weights. Without the broadcast, the weights of the replicas could differ.
"""

import tensorflow.compat.v1 as tf

from bertlib.estimator import replica_sync


class BroadcastHook(tf.train.SessionRunHook):
    """Broadcasts the starting values of one replica's global variables to all replicas."""

    def __init__(self, group, root=0):
        """Creates the hook.

        Args:
          group: the `replica_group.Group`, or None for a single process.
          root: index of the replica whose values all other replicas get.
        """
        self._group, self._root = group, root

    def begin(self):
        self._variables = tf.global_variables()

    def after_create_session(self, session, coord):
        if self._group:
            replica_sync.broadcast_variables(self._group, self._root, self._variables, session)
