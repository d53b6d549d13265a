"""run_classifier.py, changed for what benchmarks/replicas.py asks:

    python benchmarks/peers/replica_run.py VARIANT [flags of run_classifier.py]

VARIANT is `sums` for nothing changed, `none` for replicas that leave the sums over each other out, or `late` for
sums that begin after the last gradient. With sums the log has their bytes, and lead_seconds: for how long
before the last gradient was ready the first sum could begin.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from absl import logging
import run_classifier
import tensorflow.compat.v1 as tf

from bertlib.commands import launch
from bertlib.runtime import collectives
import optimization


def leave_out(exchange, tensor):
    """Stands for `Exchange.sum`."""
    del exchange
    return tf.identity(tensor)


def timed(make_sum):
    """Returns `Exchange.sum` that logs how many bytes it sums, and when the first one could begin."""
    def summed(exchange, tensor):
        logging.info("Sum of %d bytes.", tensor.shape.num_elements() * tensor.dtype.size)
        if not exchange._previous:
            with tf.control_dependencies([tensor]):
                optimization.log_scalar("lead_seconds", exchange.ready - tf.timestamp())
        return make_sum(exchange, tensor)
    return summed


def late(add_up):
    """Returns `Exchange.add_up` that begins when all variables are ready."""
    def added_up(exchange, pairs):
        everything = tf.group(*[add for _, add in pairs])
        return add_up(exchange, [(variable, everything) for variable, _ in pairs])
    return added_up


if __name__ == "__main__":
    variant = sys.argv.pop(1)
    exchange_class = collectives.Exchange
    exchange_class.sum = leave_out if variant == "none" else timed(exchange_class.sum)
    if variant == "late":
        exchange_class.add_up = late(exchange_class.add_up)
    launch.run(run_classifier.main)
