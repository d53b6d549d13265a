"""Checks before anything is written that the model fits the hardware and the disk."""

import contextlib
import math
import shutil

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.checkpoints.bert_config import variable_shapes
from bertlib.system import files
from bertlib.tasks import starting_weights
import modeling
import optimization

# {precision: lowest compute capability of GPUs that have instructions for this precision}.
_GPU_SUPPORT = {"bf16": (8, 0), "fp16": (7, 0)}


def check_precision(settings):
    """Warns if the GPU or CPU has no instructions for the number format of --precision."""
    if settings.precision == "fp32":
        return
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capabilities = [tf.config.experimental.get_device_details(gpu).get("compute_capability")
                        for gpu in gpus]
        supported = all(capability is None or capability >= _GPU_SUPPORT[settings.precision]
                        for capability in capabilities)
    else:
        from bertlib.graph import one_dnn
        supported = one_dnn.cpu_supports(modeling.PRECISIONS[settings.precision])
    if not supported:
        logging.warning("--precision=%s: this %s has no instructions for this number format. The run needs "
                        "less memory, but may be slower than with fp32.",
                        settings.precision, "GPU" if gpus else "CPU")


def check_disk(settings, last_step, shapes, config):
    """Checks that the disk of --output_dir has enough space for the checkpoints of a training, and logs the
    space that they need. Does nothing if no steps are trained.

    Args:
      settings: a `Settings`.
      last_step: the step at which the training ends.
      shapes: {name: shape} of the variables of the model. The variables of the encoder can be left out if
        `config` is given.
      config: the `BertConfig` of the encoder, or None.

    Raises:
      OSError: the checkpoints need more space than the disk has.
    """
    if not settings.do_train:
        return
    existing = checkpoint_files.list_training_checkpoints(settings.output_dir)
    newest, start = settings.output_directory.latest_checkpoint, settings.output_directory.step or 0
    if start >= last_step:
        return
    # A new training also saves its initial weights, as step 0.
    saved = math.ceil((last_step - start) / settings.save_checkpoints_steps) + (newest is None)
    # The oldest checkpoint is removed only after the next checkpoint was saved. So for a short time, the
    # directory contains one checkpoint more than --keep_checkpoint_max.
    count = len(existing) + saved
    if settings.keep_checkpoint_max:
        count = min(count, settings.keep_checkpoint_max + 1)
    shapes = {**(variable_shapes(config) if config else {}), **shapes}
    slots = optimization.slot_shapes(starting_weights.trained_shapes(settings, shapes), settings.optimizer)
    weights = 4 * sum(map(math.prod, shapes.values()))
    one = weights + 4 * sum(map(math.prod, slots.values()))
    # --keep_best keeps up to three sets of weights without optimizer state: the weights that are being
    # evaluated, the best weights so far, and the weights that were the best when the newest checkpoint was
    # saved.
    best = 3 * weights if settings.keep_best else weights if settings.eval_every_steps else 0
    present = sum(files.size(path) for prefix in existing for path in checkpoint_files.list_files(prefix))
    # The disk needs space for at least one checkpoint, because the next checkpoint is written before the
    # oldest checkpoint is removed.
    needed = max(one, count * one - present) + best
    total = f"at most {count} checkpoints of {files.readable_size(one)} at the same time" + (
        f", and {files.readable_size(best)} for evaluated and best weights" if best else "")
    logging.info("Disk: this training needs about %s in %s: %s.", files.readable_size(count * one + best),
                 settings.output_dir, total)
    free = math.inf
    if not files.is_remote(settings.output_dir):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(files.existing_parent(settings.output_dir)).free
    if needed > free:
        raise OSError(f"--output_dir={settings.output_dir}: this training needs about "
                      f"{files.readable_size(needed)} for its checkpoints ({total}), but only "
                      f"{files.readable_size(free)} are free on this disk. Make room on the disk, pass a "
                      "lower --keep_checkpoint_max, or pass an --output_dir on another disk.")
