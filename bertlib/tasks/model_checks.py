"""Checks before anything is written that the model fits its weights, the hardware and the disk."""

import contextlib
import math
import shutil

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.checkpoints.bert_config import is_frozen, variable_shapes
from bertlib.graph import one_dnn
from bertlib.system import files
import modeling
import optimization

# {precision: lowest compute capability of GPUs that have instructions for this precision}.
_GPU_SUPPORT = {"bf16": (8, 0), "fp16": (7, 0)}


def check_precision(settings):
    """Warns if the GPU or CPU has no instructions for the number format of --precision, bf16 or fp16."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capabilities = [tf.config.experimental.get_device_details(gpu).get("compute_capability")
                        for gpu in gpus]
        supported = all(capability is None or capability >= _GPU_SUPPORT[settings.precision]
                        for capability in capabilities)
    else:
        supported = one_dnn.cpu_supports(modeling.PRECISIONS[settings.precision])
    if not supported:
        logging.warning("--precision=%s: this %s has no instructions for this number format. The run needs "
                        "less memory, but may be slower than with fp32.",
                        settings.precision, "GPU" if gpus else "CPU")


def check_starting_weights(settings, config, head_shapes, start):
    """Checks that the starting checkpoint fits the model and can be read.

    The starting checkpoint is the newest checkpoint in --output_dir. If --output_dir contains no checkpoint,
    the starting checkpoint is --init_checkpoint.

    Args:
      settings: a `Settings`.
      config: the `BertConfig`; None if the encoder has its own weights.
      head_shapes: {name: shape} of the variables of the head that the command adds to the encoder. With its
        own weights, also those of the encoder.
      start: the result of `head_labels.starting_checkpoint`.

    Raises:
      ValueError, FileNotFoundError: the checkpoint does not fit, is damaged or is missing, `check_layers`
        raised an error, or a run without training has no trained head.
    """
    if config and (settings.freeze_layers or settings.reinit_layers):
        check_layers(settings, config)
    if settings.output_directory.newest:
        check_output_checkpoint(settings, {**(variable_shapes(config) if config else {}), **head_shapes})
        return
    checkpoint = checkpoint_formats.open_checkpoint(start) if start else None
    if not settings.do_train:
        _check_trained_head(settings, head_shapes, checkpoint)
    if checkpoint:
        check_fits(checkpoint, config, head_shapes)
    elif config:
        logging.warning("No --init_checkpoint: the weights start at random.")
        if settings.freeze_layers or settings.freeze_embeddings:
            logging.warning("Frozen weights are not trained, so they keep their random values. Pass "
                            "--init_checkpoint, or leave out --freeze_layers and --freeze_embeddings.")


def _check_trained_head(settings, head_shapes, checkpoint):
    """Raises a ValueError if the head, or the whole model, would be random. A checkpoint with some variables
    of the head is enough: for example, a masked LM has no weights for the next sentence.

    Args:
      settings: a `Settings`. The run does not train.
      head_shapes: see `check_starting_weights`.
      checkpoint: a `checkpoint_formats.Checkpoint`; None if the weights would start at random.
    """
    if checkpoint and (not head_shapes or any(name in checkpoint.shapes for name in head_shapes)):
        return
    start, lost = "", ""
    if checkpoint:
        start = f" --init_checkpoint={settings.init_checkpoint} has no weights of this task,"
    if settings.output_directory.record:
        lost = (" The directory contains the record of a training, but its checkpoints were removed. "
                "(sweep.py keeps only those of its best run, unless it has --keep_checkpoints=all.)")
    raise ValueError(f"--output_dir={settings.output_dir} contains no checkpoint,{start} and nothing is "
                     f"trained: the answers would come from random weights.{lost} Pass the --output_dir of "
                     "a training, pass a checkpoint that was trained on this task as --init_checkpoint, or "
                     "pass --do_train=true.")


def check_layers(settings, config):
    """Checks that the values of --freeze_layers and --reinit_layers fit the model, if the run trains.

    Args:
      settings: a `Settings`.
      config: the `BertConfig`.

    Raises:
      ValueError: the model has too few layers, a layer would be both frozen and re-initialized, or there are
        no weights to re-initialize.
    """
    if not settings.do_train:
        return
    check_frozen_layers(settings, config)
    frozen, random, layers = settings.freeze_layers, settings.reinit_layers, config.num_hidden_layers
    if random > layers:
        raise ValueError(f"--reinit_layers={random}: the model has only {layers} layers. Pass a number from "
                         f"0 to {layers}.")
    if random and frozen + random > layers:
        raise ValueError(f"--freeze_layers={frozen} and --reinit_layers={random}: the model has {layers} "
                         "layers, so a layer with random weights would never be trained. Pass "
                         f"--reinit_layers={layers - frozen} or less, or freeze fewer layers.")
    if random and not (settings.init_checkpoint or settings.output_directory.newest):
        raise ValueError(f"--reinit_layers={random}: there is nothing to re-initialize, because all weights "
                         "start at random. Pass --init_checkpoint, or leave --reinit_layers out.")


def check_frozen_layers(settings, config):
    """Checks --freeze_layers. See `check_layers` for the arguments.

    Raises:
      ValueError: no layer would be trained.
    """
    frozen, layers = settings.freeze_layers, config.num_hidden_layers
    if frozen >= layers:
        raise ValueError(f"--freeze_layers={frozen}: the model has {layers} layers, and at least one layer "
                         f"must be trained. Pass a number from 0 to {layers - 1}.")


def check_fits(checkpoint, config, head_shapes):
    """Checks that a checkpoint fits an encoder with a head and can be read.

    Published and Hugging Face checkpoints may lack the pooler and the head. In this case, the missing
    variables start from random weights.

    Args:
      checkpoint: a `checkpoint_formats.Checkpoint`.
      config: the `BertConfig`.
      head_shapes: {name: shape} of the head's variables.

    Raises:
      ValueError: the checkpoint does not fit or is damaged.
    """
    shapes = {**variable_shapes(config), **head_shapes}
    checkpoint_formats.check_types(checkpoint, shapes)
    optional = {name for name in shapes if "/pooler/" in name or name in head_shapes}
    checkpoint_formats.check_fits(checkpoint, shapes, optional)
    checkpoint_formats.check_readable(checkpoint, shapes)


def check_output_checkpoint(settings, shapes):
    """Checks that the newest checkpoint in --output_dir fits the model and can be read. For a training, the
    checkpoint also has to contain the variables of the optimizer.

    Args:
      settings: a `Settings`.
      shapes: {name: shape} of all variables of the model.

    Raises:
      ValueError: the checkpoint does not fit or is damaged, or was trained with other markers.
    """
    record, now = settings.output_directory.record, settings.marker_tokens
    before = record["settings"].get("marker_tokens") if record else now
    if before != now:
        raise ValueError(f"--marker_tokens={now or 'nothing'}, but the training in --output_dir="
                         f"{settings.output_dir} has --marker_tokens={before or 'nothing'}. Pass the value "
                         "of the training, or pass another --output_dir.")
    checkpoint = checkpoint_formats.open_checkpoint(settings.output_directory.newest)
    checkpoint_formats.check_types(checkpoint, shapes)
    state = {"global_step": ()}
    if settings.do_train:
        state.update(optimization.slot_shapes(_trained_shapes(settings, shapes), settings.optimizer))
    # The checkpoint may lack the slots of the pooler: if the head does not use the pooler, the pooler is not
    # trained, and the optimizer makes no slots for it.
    optional = {name for name in state if "/pooler/" in name}
    try:
        # If a weight has a wrong shape, the slots of this weight have a wrong shape, too. The weights are
        # checked first, so that the error names the weight and not its slots.
        checkpoint_formats.check_fits(checkpoint, shapes)
        checkpoint_formats.check_fits(checkpoint, {**shapes, **state}, optional)
    except ValueError as error:
        raise ValueError(f"--output_dir={settings.output_dir} contains checkpoints that do not fit this "
                         "run. They probably belong to another model, or were trained with another value of "
                         "--optimizer, --freeze_layers or --freeze_embeddings. Use another directory, or "
                         f"remove these checkpoints.\n{error}") from error
    checkpoint_formats.check_readable(checkpoint, checkpoint.shapes)


def _trained_shapes(settings, shapes):
    """Returns {name: shape} of the variables that the optimizer updates.

    Args:
      settings: a `Settings`.
      shapes: {name: shape} of all variables of the model.
    """
    return {name: shape for name, shape in shapes.items() if not is_frozen(
        name, settings.freeze_layers, settings.freeze_embeddings)}


# --- Space on the disk -----------------------------------------------------------------------------------


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
    newest, start = settings.output_directory.newest, settings.output_directory.step or 0
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
    one = 4 * sum(math.prod(shape) for shape in (
        *shapes.values(),
        *optimization.slot_shapes(_trained_shapes(settings, shapes), settings.optimizer).values()))
    weights = 4 * sum(map(math.prod, shapes.values()))
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
