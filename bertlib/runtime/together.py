"""What an Estimator does together with other replicas: a vote before each step, batches shared out and
gathered in order, metrics of what was gathered."""

import contextlib
import hashlib
import itertools
import pickle
import time

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.runtime import collectives, graph_keys, replica_group, session_hooks

# Hooks that write: replica 0's alone.
_WRITING_HOOKS = tf.train.CheckpointSaverHook, tf.train.SummarySaverHook, tf.train.StepCounterHook


def deal_out(dataset, group):
    """Returns a dataset of tuples of R batches of another one, of which each replica takes its own; a rest of
    fewer than R batches is nobody's.

    All replicas have the same pipeline, and so the same position in it, which replica 0 saves.

    Raises:
      ValueError: it is no dataset.
    """
    if not isinstance(dataset, tf.compat.v2.data.Dataset):
        raise ValueError("With several replicas an input_fn has to return a dataset, whose batches they "
                         f"share; this one returned {type(dataset).__name__}.")
    # All replicas have to end after the same step.
    rounds = dataset.window(group.count, drop_remainder=True)
    return rounds.flat_map(lambda *parts: tf.data.Dataset.zip(tuple(
        _zipped(parts).skip(index).take(1) for index in range(group.count))))


def _zipped(parts):
    """The elements of a window, whose structure may be any."""
    return tf.data.Dataset.zip(parts[0] if len(parts) == 1 else tuple(parts))


@contextlib.contextmanager
def telling(group):
    """Tells the other replicas at once of an error in the block: they wait for this one in the middle of a
    step, and to close a session and to explain an error take time. Of a broken loss all know."""
    try:
        yield
    except (session_hooks.NanLossError, replica_group.ReplicaError, StopIteration,
            tf.errors.OutOfRangeError, *collectives.LOST):
        raise
    except Exception as error:
        group.tell(error)
        raise


def keep_reading_hooks(hooks, group):
    """Returns those of some hooks that a replica is to run: only replica 0 writes."""
    if group is None or group.is_first:
        return hooks
    return [hook for hook in hooks if not isinstance(hook, _WRITING_HOOKS)]


class SameStart(tf.train.SessionRunHook):
    """Gives all replicas the values that the global variables of one of them start with."""

    def __init__(self, group, index=0):
        """Takes the `replica_group.Group`, and which replica's values they are."""
        self._group, self._index = group, index

    def begin(self):
        self._variables = tf.global_variables()

    def after_create_session(self, session, coord):
        def value(variable):
            return session.run(variable)

        digests = self._group.all_gather([
            hashlib.blake2b(pickle.dumps(value(variable))).digest() for variable in self._variables])
        for variable, *found in zip(self._variables, *digests):
            if len(set(found)) > 1:
                is_given = self._group.index == self._index
                given = self._group.all_gather(value(variable) if is_given else None)[self._index]
                if not is_given:
                    variable.load(given, session)


class Vote:
    """What replicas tell each other between steps: whether one wants to end, and how long each computed."""

    def __init__(self, group):
        """Prepares it for the current graph."""
        self._group = group
        self._exchange = collectives.exchange()
        self._pace = replica_group.Pace()
        self._begun = self._seconds = None

    @property
    def fetches(self):
        """What is to be fetched with a step's last run: tensors."""
        return [] if self._exchange.ready is None else [self._exchange.ready]

    def begin(self):
        """To be called when a step begins."""
        self._begun = time.time()

    def end(self, fetched):
        """To be called when a step is done, with the values of `fetches`."""
        self._seconds = fetched[0] - self._begun if fetched else None

    def ends(self, ended, stop):
        """Returns whether no further step is to be taken; logs which replica is slow.

        Args:
          ended: whether this replica has none to take.
          stop: the `stopping.StopRequest` of this replica; it is made if another replica's was.
        """
        votes = self._group.all_gather((bool(ended), stop.made, self._seconds))
        seconds = [seconds for _, _, seconds in votes]
        if None not in seconds and self._group.is_first:
            for index, times in self._pace.slow(seconds):
                logging.warning("%s takes %.1f times as long for its part of a step as the others; they wait "
                                "for it.", self._group.name(index), times)
        if any(made for _, made, _ in votes):
            stop.make()
        return any(ended or made for ended, made, _ in votes)


# --- Evaluation and prediction ---------------------------------------------------------------------------


def share_input(group):
    """Has our input of the current graph, if it does not train, give a replica its share of the batches."""
    tf.add_to_collection(graph_keys.SHARE, (group.index, group.count))


def is_shared():
    """Whether the input of the current graph is such a share."""
    return bool(tf.get_collection(graph_keys.SHARED_INPUT))


def gathered(group, session, fetches, before_each, shared=True):
    """Yields what is fetched for each batch of all replicas, in order.

    Args:
      session: a session of this replica's share.
      fetches: what to fetch.
      before_each: function that is called before a batch is computed.
      shared: whether all replicas have batches; otherwise replica 0 alone.
    """
    def own():
        before_each()
        if not shared and not group.is_first:
            return None
        if session.should_stop():
            return None
        try:
            return session.run(fetches)
        except tf.errors.OutOfRangeError:
            return None

    while True:
        for batch in group.all_gather(own())[:None if shared else 1]:
            if batch is None:
                return
            yield batch


def shared_out(group, function, items):
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


def told(group, items):
    """Yields what replica 0 has, item by item, on all replicas; without a group (None) the items.

    Args:
      items: iterable that only replica 0 iterates.
    """
    if group is None:
        yield from items
        return
    own = iter(items)
    while True:
        # In a list, as an item may be None.
        found = group.from_first(list(itertools.islice(own, 1)) if group.is_first else None)
        if not found:
            return
        yield found[0]


class Metrics:
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
