"""Adapts the tf.ConfigProto with which a script of TensorFlow 1 creates a session.

**Threads.** TensorFlow starts a temporary pool of `intra_op_parallelism_threads` threads for each restored
variable. For example, if a program asks for 1024 intra-op and 1024 inter-op threads,
`tf.train.init_from_checkpoint` starts tens of thousands of threads, and the process aborts. So large pools
are reduced.

**The GPU of a replica.** A replica sees only its own GPU, which is GPU 0. A script for Horovod names the GPU
of a process by `config.gpu_options.visible_device_list = str(hvd.local_rank())`. In the second replica of a
machine, this is GPU 1, which TensorFlow would not find. So the list is cleared.

**One numbering of the GPUs.** In a process, all parts of TensorFlow must number the GPUs in the same way.
Example: for a session with the visible_device_list "1", the name "GPU:0" means GPU 1 of the machine. For
TensorFlow's context, which `get_memory_info` creates, "GPU:0" would mean GPU 0 of the machine. The creation
of the context would then fail. So the context gets only the GPUs of the session.
"""

import contextlib
import inspect

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.system import replica_group, workers
from tf1._names import internals

# A thread pool with at most this number of threads is not changed, even if the machine has fewer cores.
_LARGEST = 64
_FIELDS = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")


def adapted(config):
    """Returns a tf.ConfigProto with fewer threads and, in a replica, with the replica's own GPU.

    Args:
      config: tf.ConfigProto, or None.

    Returns:
      a changed copy of config; the unchanged config if it needs no change.
    """
    if config is None:
        return None
    adapted_config = tf.ConfigProto()
    adapted_config.CopyFrom(config)
    _limit_threads(adapted_config)
    _use_own_gpu(adapted_config.gpu_options)
    _number_gpus_of_context(adapted_config.gpu_options)
    return config if adapted_config == config else adapted_config


def _limit_threads(config):
    """Reduces large thread pools of a tf.ConfigProto to the number of cores; see `_LARGEST`."""
    cores = workers.available_cores()
    too_large = [field for field in _FIELDS if getattr(config, field) > max(_LARGEST, cores)]
    if not too_large:
        return
    logging.log_first_n(
        logging.WARNING, "tf.ConfigProto(%s): TensorFlow 2 would start this number of threads for each "
        "restored variable. Using %d, the number of cores, instead.", 1,
        ", ".join(f"{field}={getattr(config, field)}" for field in too_large), cores)
    for field in too_large:
        setattr(config, field, cores)


def _use_own_gpu(gpu_options):
    """Clears the visible_device_list of a replica if this list contains the index of the replica on its
    machine.

    A script for several GPUs chooses the GPU of a process by this index. But the launcher has already hidden
    all GPUs except one from the replica, and this GPU has the number 0.
    """
    group = replica_group.current()
    if group and str(group.local_index) in gpu_options.visible_device_list.split(","):
        gpu_options.visible_device_list = ""


def _number_gpus_of_context(gpu_options):
    """Limits TensorFlow's context to the GPUs in the session's option `visible_device_list`."""
    if gpu_options.visible_device_list:
        gpus = tf.config.list_physical_devices("GPU")
        # Errors are ignored here. If visible_device_list is wrong, the session raises an error later. If the
        # context already exists, its GPUs can no longer be changed.
        with contextlib.suppress(ValueError, IndexError, RuntimeError):
            tf.config.set_visible_devices(
                [gpus[int(index)] for index in gpu_options.visible_device_list.split(",")], "GPU")


@internals.replaces("__init__", tf.Session, tf.InteractiveSession, tf.distribute.Server)
def _create(create, *args, **kwargs):
    """Adapts the options of all sessions and servers. A session that runs on a server uses the options of the
    server."""
    bound = inspect.signature(create).bind(*args, **kwargs)
    bound.arguments["config"] = adapted(bound.arguments.get("config"))
    create(*bound.args, **bound.kwargs)
