"""Thread pools of sessions that are far larger than the machine.

Each restored variable starts a thread pool of `intra_op_parallelism_threads` for a moment. A program of
TensorFlow 1 that asks for 1024 in both fields of its `tf.ConfigProto` starts tens of thousands of threads in
`tf.train.init_from_checkpoint`, and the process aborts.
"""

import functools
import inspect

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.system import workers

_LARGEST = 64  # threads of a pool that is left as it is, on a machine with fewer cores
_FIELDS = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")


def limited(config):
    """Returns a tf.ConfigProto without pools of more threads than are of use; the given one if it has none.

    Args:
      config: tf.ConfigProto, or None.
    """
    cores = workers.available_cores()
    too_large = [] if config is None else [
        field for field in _FIELDS if getattr(config, field) > max(_LARGEST, cores)]
    if not too_large:
        return config
    logging.log_first_n(
        logging.WARNING, "tf.ConfigProto(%s): TensorFlow 2 would start as many threads for each variable "
        "that is restored. Using %d, the number of cores.", 1,
        ", ".join(f"{field}={getattr(config, field)}" for field in too_large), cores)
    found = tf.ConfigProto()
    found.CopyFrom(config)
    for field in too_large:
        setattr(found, field, cores)
    return found


def install():
    """Limits the pools of all sessions, and those of servers, whose configuration their sessions share."""
    for configured in (tf.Session, tf.InteractiveSession, tf.distribute.Server):
        configured.__init__ = _with_limit(configured.__init__)


def _with_limit(create):
    """Returns the `__init__` of a class, with its argument config limited."""
    signature = inspect.signature(create)

    @functools.wraps(create)
    def create_limited(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.arguments["config"] = limited(given.arguments.get("config"))
        create(*given.args, **given.kwargs)

    return create_limited
