"""Defines the strategies of tf.contrib.distribute for one machine, and the strategy that a process uses if it
is a replica."""

import collections
import contextlib

import tensorflow.compat.v1 as tf

from bertlib.system import replica_group
from tf1._names.namespace import Namespace, refused


class DistributeConfig(collections.namedtuple(
        "DistributeConfig", "train_distribute eval_distribute remote_cluster", defaults=[None] * 3)):
    """Stores the strategy of the training, the strategy of the evaluation, and the cluster."""


class Replicas:
    """The strategy that a process uses if it is one of several replicas.

    The script can read the number of replicas from this object. Names of devices in the script have no
    effect, because the launcher of the replicas has already chosen the device of each replica.
    """

    def __init__(self, *args, **kwargs):
        self.num_replicas_in_sync = self.num_towers = replica_group.current().count

    def scope(self):
        """Returns a context manager without effect."""
        return contextlib.nullcontext()


def mirrored_strategy(devices=None, num_gpus=None, num_gpus_per_worker=None, cross_device_ops=None,
                      auto_shard_dataset=False, cross_tower_ops=None):
    """Returns a tf.contrib.distribute.MirroredStrategy.

    Args:
      devices: names of devices.
      num_gpus, num_gpus_per_worker: number of GPUs. Pass one of these arguments instead of devices. With 0,
        the CPU is used.
      cross_device_ops, cross_tower_ops: object that sums the gradients. If None, the strategy chooses it.
      auto_shard_dataset: ignored.
    """
    if replica_group.current():
        return Replicas()
    count = num_gpus if num_gpus is not None else num_gpus_per_worker
    if devices is None and count is not None:
        devices = [f"/gpu:{index}" for index in range(count)] or ["/cpu:0"]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops or cross_tower_ops)


def collective_all_reduce_strategy(num_gpus_per_worker=0, communication=None):
    """Returns a tf.distribute.MirroredStrategy, which replaces tf.contrib's CollectiveAllReduceStrategy for
    one worker.

    The argument `communication` is ignored.
    """
    return mirrored_strategy(num_gpus_per_worker=num_gpus_per_worker)


def _refused(name, what):
    return refused(f"tf.contrib.distribute.{name}", f"{what} are not supported. Leave the strategy "
                   "out; the run then uses one device.")


def _cross_device_ops(*args, **kwargs):
    """Returns None, so that the strategy chooses how to sum the gradients. The arguments are ignored."""


# {name: object} for `tf.distribute` in a process that is a replica. These objects replace the objects of
# TensorFlow that have the same names.
OF_REPLICAS = dict(MirroredStrategy=Replicas, MultiWorkerMirroredStrategy=Replicas, experimental=Namespace(
    "tf.distribute.experimental", dict(MultiWorkerMirroredStrategy=Replicas),
    lambda: tf.distribute.experimental))
CONTRIB = dict(
    AllReduceCrossDeviceOps=_cross_device_ops, AllReduceCrossTowerOps=_cross_device_ops,
    CollectiveAllReduceStrategy=collective_all_reduce_strategy, DistributeConfig=DistributeConfig,
    MirroredStrategy=mirrored_strategy, OneDeviceStrategy=tf.distribute.OneDeviceStrategy,
    ParameterServerStrategy=_refused("ParameterServerStrategy", "parameter servers"),
    TPUStrategy=_refused("TPUStrategy", "TPUs"))
