"""Synchronizes the Estimators of several replicas.

Before each step, the replicas vote on whether to continue the training. In an evaluation, the replicas share
the batches, and the metrics are computed from the batches of all replicas.

The gradients are not summed here: `bertlib.graph.collectives.AllReduce` sums them.
"""

import contextlib

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator import session_hooks
from bertlib.graph import collectives
from bertlib.system import fingerprints, replica_group

# Largest total size, in bytes, of the variables that one `session.run` reads or corrects. A separate run for
# each variable would be slow, because TensorFlow has to prepare each run. A single run for all variables may
# need too much memory.
_BATCH_BYTES = 2**28


def start_training(group, step, directory):
    """Starts a training of replicas: compares their code, and moves their logs to replica 0's directory.

    Args:
      group: the `replica_group.Group`; all replicas must call this.
      step: int, the step of the newest checkpoint that this replica sees.
      directory: path of the training's directory on this replica. The path on replica 0 is used.

    Returns:
      int, the step of replica 0's newest checkpoint, with which all replicas start.

    Raises:
      ValueError: replicas run different code.
    """
    step, directory = group.broadcast((step, directory))
    group.keep_log(directory)
    fingerprints.check_same_code(group)
    return step


def broadcast_variables(group, root, variables, session):
    """Copies the values of variables from one replica to all others.

    First, the replicas compare digests of the values. Only values that differ are sent.

    Args:
      group: the `replica_group.Group`; all replicas must call this.
      root: index of the replica whose values are copied.
      variables: list of variables.
      session: the session of this replica.

    Returns:
      list of the names of the variables whose value in this replica was replaced.
    """
    changed_names = []
    for batch in checkpoint_formats.groups_by_size(variables, _BATCH_BYTES):
        values = session.run(batch)
        digests = group.all_gather([_digest(value) for value in values])
        different = [index for index, column in enumerate(zip(*digests)) if len(set(column)) > 1]
        root_values = group.all_gather(
            [values[index] for index in different] if group.index == root else None)[root]
        replacements = [(batch[index], value) for index, value in zip(different, root_values)
                        if digests[group.index][index] != digests[root][index]]
        if replacements:
            session.run([variable.initializer for variable, _ in replacements],
                        {variable.initializer.inputs[1]: value for variable, value in replacements})
        changed_names += [variable.op.name for variable, _ in replacements]
    return changed_names


def _digest(value):
    value = np.asarray(value)
    data = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
    return fingerprints.hash_bytes(f"{value.dtype} {value.shape} ".encode() + data)


class StepVote:
    """Exchanges values between all replicas before each step. The replicas vote on whether the training
    stops.

    The replicas also learn whether replica 0 saved a checkpoint. If so, they compare their weights, and
    weights that are not equal are replaced by the weights of replica 0. Each replica computes the same update
    from the same sums of gradients. Still, weights can differ: GPUs or CPUs of different kinds may round
    differently, and broken hardware computes wrong values. Checkpoints contain only the weights of replica 0.
    So without this comparison, a run that is resumed from a checkpoint could differ from an uninterrupted
    run.

    Attributes:
      listener: CheckpointSaverListener, to be added to the saver of replica 0.
    """

    def __init__(self, group, compares_weights=True):
        """Prepares the votes of a training. The current graph must be the complete graph of the training.

        Args:
          group: the `replica_group.Group`.
          compares_weights: whether replicas compare their weights after checkpoints and at the end.
        """
        self._group = group
        self.listener = _SaveListener()
        self._trained, self._all = tf.trainable_variables(), tf.global_variables()
        self._compares_weights = compares_weights

    @contextlib.contextmanager
    def reporting_errors(self):
        """Returns a context manager. If the `with` block fails, the context manager reports the error to the
        other replicas before the session is closed.

        The other replicas wait for this replica in the middle of a step. Without the report they would wait
        until this replica has closed its session, which takes time. A loss that is not finite is not
        reported: all replicas have the same loss, so each of them raises this error itself.
        """
        try:
            yield
        except (session_hooks.NanLossError, replica_group.ReplicaError, StopIteration,
                tf.errors.OutOfRangeError, *collectives.CONNECTION_ERRORS):
            raise
        except Exception as error:
            self._group.report_error(error)
            raise

    def synchronize(self, session, stop):
        """Exchanges the votes of all replicas. Returns whether the training stops now.

        After a checkpoint and at the end, also compares the weights. If a replica has different weights, this
        method logs a warning, and replaces them by the weights of replica 0.

        Args:
          session: the `tf.train.SingularMonitoredSession` of the training.
          stop: the `stopping.StopRequest` of this replica. The method sets this request if the request of any
            replica is set.
        """
        own_votes = bool(session.should_stop()), stop.is_set, self.listener.has_saved
        self.listener.has_saved = False
        ended, requested, saved = map(any, zip(*self._group.all_gather(own_votes)))
        if requested:
            stop.set()
        if self._compares_weights and (ended or requested or saved):
            self._correct_differences(session.raw_session())
        return ended or requested

    def _correct_differences(self, session):
        changed_names = broadcast_variables(self._group, 0, self._trained, session)
        counts = self._group.all_gather(len(changed_names))
        if any(counts):
            broadcast_variables(self._group, 0, self._all, session)
        for index, count in enumerate(counts if self._group.is_first else []):
            if count:
                logging.warning(
                    "%s computed other weights than replica 0: %d of %d variables differed. All replicas "
                    "continue with the weights of replica 0. To avoid differences, use GPUs or CPUs of the "
                    "same kind for all replicas.", self._group.name(index), count, len(self._trained))


class _SaveListener(tf.train.CheckpointSaverListener):
    """Remembers that a checkpoint was saved."""

    has_saved = False

    def after_save(self, session, global_step_value):
        self.has_saved = True


# --- Evaluation and prediction ---------------------------------------------------------------------------


def gather_batches(group, session, fetches, before_each, sharded):
    """Yields the fetched values of each batch, in the order of the batches, on all replicas.

    Args:
      group: the `replica_group.Group`; None if only this process computes.
      session: a session of this replica.
      fetches: tensors, in any nested structure.
      before_each: function without arguments that is called before each batch.
      sharded: True if the session's input yields only this replica's shard of the batches. False if replica 0
        computes all batches.
    """
    def own_batch():
        before_each()
        if session.should_stop() or group and not sharded and not group.is_first:
            return None
        try:
            return session.run(fetches)
        except (tf.errors.OutOfRangeError, StopIteration):  # a hook may raise StopIteration
            return None

    while True:
        round_of_batches = group.all_gather(own_batch()) if group else [own_batch()]
        for batch in round_of_batches if sharded else round_of_batches[:1]:
            if batch is None:
                return
            yield batch
