"""Keeps an Estimator in step with other replicas: votes, divided batches, and metrics of gathered batches."""

import contextlib
import hashlib
import itertools
import time

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator import session_hooks
from bertlib.graph import collectives, graph_keys
from bertlib.replicas import replica_group
from bertlib.system import code_fingerprint

# Variables are compared and corrected in lists of this size: TensorFlow prepares each run anew, which takes
# longer than to read most variables, and all values at once may not fit into memory.
_BATCH_BYTES = 2**28


def start_training(group, step, directory):
    """Starts a training of replicas: compares their code, and moves their logs to replica 0's directory.

    Args:
      step: the one that this replica's newest checkpoint has.
      directory: where this replica would write.

    Returns:
      the step that replica 0 starts from.

    Raises:
      ValueError: replicas run different code.
    """
    step, directory = group.broadcast((step, directory))
    group.keep_log(directory)
    code_fingerprint.check_replicas_agree(group)
    return step


@contextlib.contextmanager
def reporting_errors(group):
    """Reports an error in the block to the other replicas at once.

    They wait for this replica in the middle of a step, and closing a session takes time. A loss that is not
    finite is not reported, because all replicas have the same loss.
    """
    try:
        yield
    except (session_hooks.NanLossError, replica_group.ReplicaError, StopIteration,
            tf.errors.OutOfRangeError, *collectives.CONNECTION_ERRORS):
        raise
    except Exception as error:
        group.report_error(error)
        raise


def broadcast_variables(group, root, variables, session):
    """Gives all replicas the values that variables have in one of them.

    Args:
      group: the `replica_group.Group`; all replicas have to call this.
      root: index of the replica whose values are taken.
      variables: list of variables.
      session: of this replica.

    Returns:
      {name: (value before, value given)} of the variables that had another value in this replica.
    """
    changed = {}
    for some in checkpoint_formats.groups_by_size(variables, _BATCH_BYTES):
        values = session.run(some)
        digests = group.all_gather([_digest(value) for value in values])
        different = [place for place, found in enumerate(zip(*digests)) if len(set(found)) > 1]
        given = group.all_gather([values[place] for place in different] if group.index == root else None)
        own = {place: value for place, value in zip(different, given[root])
               if digests[group.index][place] != digests[root][place]}
        if own:
            session.run([some[place].initializer for place in own],
                        {some[place].initializer.inputs[1]: value for place, value in own.items()})
        changed.update({some[place].op.name: (values[place], value) for place, value in own.items()})
    return changed


def _digest(value):
    value = np.asarray(value)
    data = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
    return hashlib.blake2b(f"{value.dtype} {value.shape} ".encode() + data).digest()


class WeightComparison:
    """Finds replicas whose weights differ from those of replica 0, and broadcasts the weights of replica 0.

    All make the same update from the same sums, each by itself: another GPU or CPU may round it otherwise,
    and broken hardware does worse. A run that goes on from a checkpoint would then be another one.
    """

    def __init__(self, group):
        """Builds what compares them, in the current graph of a training."""
        self._group = group
        self._variables = tf.global_variables()
        self._checksums = [_checksum(variable) for variable in tf.trainable_variables()]

    def check(self, session):
        """Compares the weights; all replicas have to do so after the same step.

        Args:
          session: of this graph.
        """
        found = self._group.all_gather(session.run(self._checksums))
        if all(other == found[0] for other in found):
            return
        changed = broadcast_variables(self._group, 0, self._variables, session)
        largest = max(((float(np.max(np.abs(np.subtract(own, given, dtype=np.float64)))), name)
                       for name, (own, given) in changed.items()), default=None)
        for index, moved in enumerate(self._group.all_gather((len(changed), largest))):
            if self._group.is_first and moved[0]:
                logging.warning(
                    "%s computed other weights than replica 0: %d of %d variables differed, %s by %.2g. It "
                    "goes on with those of replica 0. Replicas on GPUs or CPUs of one kind stay the same.",
                    self._group.name(index), moved[0], len(self._variables), moved[1][1], moved[1][0])


def _checksum(variable):
    """A number that depends on each bit of a variable's value, int32 scalar."""
    value = variable.read_value()
    bits = tf.bitcast(value, tf.int32) if value.dtype.size % 4 == 0 else tf.cast(
        tf.bitcast(value, tf.int16), tf.int32)
    return tf.reduce_sum(bits)


class StopVote:
    """A vote of all replicas before each step on whether the training stops.

    With the vote, replicas exchange the time that each computed, which shows slow ones. They also
    learn whether replica 0 saved a checkpoint, after which they compare their weights.

    Attributes:
      listener: CheckpointSaverListener that is to learn of replica 0's checkpoints.
    """

    def __init__(self, group, compares_weights=True):
        """Prepares it for the current graph, which is complete.

        Args:
          group: the `replica_group.Group`.
          compares_weights: whether replicas compare their weights after checkpoints and at the end.
        """
        self._group = group
        self.listener = _SaveListener()
        self._comparison = WeightComparison(group) if compares_weights else None
        self._exchange = collectives.current_all_reduce()
        self._pace = replica_group.Pace()
        self._started = self._seconds = None

    @property
    def fetches(self):
        """List of tensors to fetch in the last `session.run` of a step."""
        return [] if self._exchange.gradients_ready is None else [self._exchange.gradients_ready]

    def start_step(self):
        """Has to be called when a step starts."""
        self._started = time.time()

    def end_step(self, fetched):
        """Has to be called when a step has ended, with the values of `fetches`."""
        self._seconds = fetched[0] - self._started if fetched else None

    def decides_to_stop(self, session, stop):
        """Returns whether no further step is to be taken; logs which replica is slow, or has other weights.

        Args:
          session: the training's, a `tf.train.SingularMonitoredSession`.
          stop: the `stopping.StopRequest` of this replica; it is set if any replica's request is set.
        """
        own = bool(session.should_stop()), stop.is_set, self._seconds, self.listener.has_saved
        self.listener.has_saved = False
        ended, made, seconds, saved = zip(*self._group.all_gather(own))
        if None not in seconds and self._group.is_first:
            for index, times in self._pace.slow(seconds):
                logging.warning("%s takes %.1f times as long for its part of a step as the others; they wait "
                                "for it.", self._group.name(index), times)
        if any(made):
            stop.set()
        ends = any(ended) or any(made)
        if self._comparison and (ends or any(saved)):
            self._comparison.check(session.raw_session())
        return ends


class _SaveListener(tf.train.CheckpointSaverListener):
    """Notes that a checkpoint was saved."""

    has_saved = False

    def after_save(self, session, global_step_value):
        self.has_saved = True


# --- Evaluation and prediction ---------------------------------------------------------------------------


def shard_input(group):
    """Makes the input of the current graph yield this replica's shard of the batches, except in training."""
    tf.add_to_collection(graph_keys.SHARD, (group.index, group.count))


def is_sharded():
    """Returns whether the input of the current graph yields only this replica's shard."""
    return bool(tf.get_collection(graph_keys.SHARDED_INPUT))


def gather_batches(group, session, fetches, before_each, sharded=True):
    """Yields the fetched values of each batch of all replicas, in order.

    Args:
      session: a session of this replica's shard.
      fetches: tensors, in any nested structure.
      before_each: function that is called before a batch is computed.
      sharded: whether the input is sharded over the replicas; otherwise only replica 0 has batches.
    """
    def own():
        before_each()
        if not sharded and not group.is_first:
            return None
        if session.should_stop():
            return None
        try:
            return session.run(fetches)
        except tf.errors.OutOfRangeError:
            return None

    while True:
        for batch in group.all_gather(own())[:None if sharded else 1]:
            if batch is None:
                return
            yield batch


def map_on_replicas(group, function, items):
    """Yields function(item) of each item, in order. Replicas share the items and have all results; without a
    group (None) this process computes all.

    Args:
      items: list, the same on all replicas.
    """
    if group is None:
        yield from map(function, items)
        return
    for start in range(0, len(items), group.count):
        own = items[start + group.index:start + group.index + 1]
        yield from group.all_gather(function(own[0]) if own else None)[:len(items) - start]


def broadcast_items(group, items):
    """Yields the items of replica 0 on all replicas; without a group (None) yields the items.

    Args:
      items: iterable that only replica 0 iterates.
    """
    if group is None:
        yield from items
        return
    own = iter(items)
    while True:
        # In a list, as an item may be None.
        found = group.broadcast(list(itertools.islice(own, 1)) if group.is_first else None)
        if not found:
            return
        yield found[0]


class GatheredMetrics:
    """Metrics of batches that were computed elsewhere: the same ops on the same numbers."""

    def __init__(self, eval_metrics):
        """Builds them in a graph of their own.

        Args:
          eval_metrics: (function, tensors) of an `EstimatorSpec`; only dtypes and shapes of the tensors, a
            list or dict, count.
        """
        function, tensors = eval_metrics
        with tf.Graph().as_default() as self._graph, tf.device("/cpu:0"):
            self._loss = tf.placeholder(tf.float32, [])
            placeholders = tf.nest.map_structure(_placeholder, tensors)
            self._placeholders = tf.nest.flatten(placeholders)
            metrics = function(**placeholders) if isinstance(tensors, dict) else function(*placeholders)
            metrics = {**metrics, "loss": tf.metrics.mean(self._loss)}
            self._update = tf.group(*[update for _, update in metrics.values()])
            self._values = {name: value for name, (value, _) in metrics.items()}
            self._session = tf.Session()
            self._session.run(tf.local_variables_initializer())

    def add(self, loss, values):
        """Adds a batch: its loss, and the values of the tensors."""
        feeds = dict(zip(self._placeholders, tf.nest.flatten(values)))
        self._session.run(self._update, {self._loss: loss, **feeds})

    def results(self):
        """Returns {name: value}, "loss" too: its mean over the batches."""
        return self._session.run(self._values)


def _placeholder(tensor):
    shape = tensor.shape.as_list() if tensor.shape.rank else []
    return tf.placeholder(tensor.dtype.base_dtype, [None, *shape[1:]] if shape else [])
