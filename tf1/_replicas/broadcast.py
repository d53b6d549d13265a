"""The same starting weights in all replicas, for scripts that draw them at random."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import replica_sync


class BroadcastHook(tf.train.SessionRunHook):
    """Gives the global variables of all replicas the values that one replica's start with."""

    def __init__(self, group, root=0):
        """Creates the hook.

        Args:
          group: the `replica_group.Group`, or None for a process that is alone.
          root: index of the replica whose values are taken.
        """
        self._group, self._root = group, root

    def begin(self):
        self._variables = tf.global_variables()

    def after_create_session(self, session, coord):
        if self._group:
            replica_sync.broadcast_variables(self._group, self._root, self._variables, session)
