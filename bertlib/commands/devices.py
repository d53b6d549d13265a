"""Sets up the GPUs of a command by its flags, and logs the devices that it uses."""

import os

from absl import flags, logging

from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import gpu_libraries, replica_group, workers

FLAGS = flags.FLAGS


def set_up_gpus():
    """Applies the flags in `shared_flags.GPUS`, and hides all GPUs except one.

    Call this function before TensorFlow uses a GPU for the first time. At that time, TensorFlow reads these
    settings, and it does not read them again.
    """
    if "tf32" not in FLAGS:
        return
    tf.config.experimental.enable_tensor_float_32_execution(FLAGS.tf32)
    if FLAGS.gpu_allow_growth:
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if FLAGS.deterministic:
        tf.compat.v2.config.experimental.enable_op_determinism()
        os.environ["TF_DETERMINISTIC_OPS"] = "1"  # some libraries read only this variable
    _hide_other_gpus()


def _hide_other_gpus():
    """Hides all GPUs except the first one from this process, which computes on one GPU.

    TensorFlow would take the memory of all GPUs that it sees. A replica already sees only its own GPU.
    """
    gpus = gpu_libraries.visible_gpus()
    if replica_group.is_replica() or len(gpus) < 2 or gpu_libraries.missing_libraries():
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0]
    uses_all = "; --num_replicas=0 uses all" if "num_replicas" in FLAGS else ""
    logging.info("Using GPU %s, the first of %d%s.", gpus[0], len(gpus), uses_all)


def log_devices():
    """Logs the devices that this process will use."""
    details = {gpu.name: tf.config.experimental.get_device_details(gpu)
               for gpu in tf.config.list_physical_devices("GPU")}
    gpus = [detail.get("device_name", name) for name, detail in details.items()]
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS") or workers.available_cores()
    group = replica_group.current()
    logging.info("TensorFlow %s on %s%s.", tf.version.VERSION,
                 ", ".join(gpus) if gpus else f"CPU, {threads} threads (no GPU found)",
                 f", replica {group.index} of {group.count}" if group else "")
    has_tf32 = any(detail.get("compute_capability", (0, 0)) >= (8, 0) for detail in details.values())
    if has_tf32 and tf.config.experimental.tensor_float_32_execution_enabled():
        logging.info("Matrix products of float32 are computed in TF32. Pass --tf32=false to compute them in "
                     "float32.")
    explanation = None if gpus else gpu_libraries.explain_unused_card()
    if explanation and (not group or group.is_first):
        logging.warning("%s", explanation)
