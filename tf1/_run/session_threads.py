"""Limits the number of threads of a session.

TensorFlow starts a temporary pool of `intra_op_parallelism_threads` threads for each restored variable. If a
program of TensorFlow 1 sets 1024 in both fields of its `tf.ConfigProto`, for example,
`tf.train.init_from_checkpoint` starts tens of thousands of threads, and the process aborts.
"""

import functools
import inspect

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.system import workers

_LARGEST = 64  # pools of at most this size are not changed, even if there are fewer cores
_FIELDS = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")


def limited(config):
    """Limits the thread pools of a tf.ConfigProto to the number of cores.

    Args:
      config: tf.ConfigProto, or None.

    Returns:
      a changed copy of config, or config itself if no pool is too large.
    """
    cores = workers.available_cores()
    too_large = [] if config is None else [
        field for field in _FIELDS if getattr(config, field) > max(_LARGEST, cores)]
    if not too_large:
        return config
    logging.log_first_n(
        logging.WARNING, "tf.ConfigProto(%s): TensorFlow 2 would start this number of threads for each "
        "restored variable. Using %d, the number of cores, instead.", 1,
        ", ".join(f"{field}={getattr(config, field)}" for field in too_large), cores)
    limited_config = tf.ConfigProto()
    limited_config.CopyFrom(config)
    for field in too_large:
        setattr(limited_config, field, cores)
    return limited_config


def install():
    """Limits the pools of all sessions and servers. A session on a server uses the configuration of the
    server."""
    for configured in (tf.Session, tf.InteractiveSession, tf.distribute.Server):
        configured.__init__ = _with_limit(configured.__init__)


def _with_limit(create):
    """Returns a replacement for the `__init__` of a class. The replacement limits the argument config."""
    signature = inspect.signature(create)

    @functools.wraps(create)
    def create_limited(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.arguments["config"] = limited(bound.arguments.get("config"))
        create(*bound.args, **bound.kwargs)

    return create_limited
