"""Finds the weights from which a run starts, changes them as the flags require, and checks that they fit the
model. `head_labels` compares the head in these weights with the head of the task."""

from absl import logging

from bertlib.checkpoints import bert_config, checkpoint_formats
from bertlib.runs import best_weights, tokenizer_files, tokenizer_flags
from bertlib.runs.output_directory import LOST_CHECKPOINTS
from bertlib.system import files
import optimization
import tokenization


def choose(task):
    """Checks the weights from which a run starts, and returns those that the model_fn reads.

    Args:
      task: a `bertlib.tasks.task.Task`.

    Returns:
      the `checkpoint_formats.Checkpoint` of --init_checkpoint. None if the model_fn reads no checkpoint: the
      Estimator restores the newest checkpoint in --output_dir, the weights belong to a hub module, or they
      start at random.

    Raises:
      ValueError, FileNotFoundError: the checkpoint does not fit, is damaged or is missing, `check_layers`
        raised an error, or a run without training has no trained head.
    """
    settings, config, head_shapes = task.settings, task.config, task.head_shapes()
    if config and settings.do_train and (settings.freeze_layers or settings.reinit_layers):
        check_layers(settings, config)
    if settings.output_directory.latest_checkpoint:
        check_output_checkpoint(task, head_shapes)
        return None
    start = None
    if settings.init_checkpoint:
        training = settings.earlier_training
        if training and training.best and files.is_directory(settings.init_checkpoint):
            logging.info("The last weights in --init_checkpoint=%s are used. To start from the best weights, "
                         "pass --init_checkpoint=%s.", settings.init_checkpoint,
                         training.join(best_weights.DIRECTORY))
        from bertlib.tasks import head_labels
        start = with_marker_rows(settings, config,
                                 head_labels.match_head(settings, task.target))
    if not settings.do_train:
        _check_trained_head(settings, head_shapes, start)
    if start:
        check_fits(start, config, head_shapes)
        if not settings.do_train:
            try:
                check_origin(task, start, {**bert_config.variable_shapes(config), **head_shapes})
            except ValueError as error:
                logging.warning("%s", error)
        if settings.do_train and settings.reinit_layers:
            start = _without_reinitialized(settings, config, start)
    elif config:  # a hub module has its own weights
        logging.warning("No --init_checkpoint: the weights start at random.")
        if settings.freeze_layers or settings.freeze_embeddings:
            logging.warning("Frozen weights are not trained, so they keep their random values. Pass "
                            "--init_checkpoint, or leave out --freeze_layers and --freeze_embeddings.")
    return start


# --- Changes ---------------------------------------------------------------------------------------------


def _without_reinitialized(settings, config, start):
    """Returns the starting weights without the layers that --reinit_layers re-initializes.

    With --reinit_layers=N, the N top layers and the pooler start from random weights (Zhang et al. 2021,
    arXiv:2006.05987, section 5). They are initialized as in a new model.

    Args:
      settings: a `Settings` of a training with --reinit_layers.
      config: the `BertConfig`.
      start: a `checkpoint_formats.Checkpoint`.
    """
    first = config.num_hidden_layers - settings.reinit_layers
    indices = {name: bert_config.layer_index(name) for name in bert_config.variable_shapes(config)}
    names = [name for name, index in indices.items() if index is None or index >= first]
    logging.info("--reinit_layers=%d: %d variables start from random weights. These are the variables of the "
                 "pooler and of all layers from layer %d on.", settings.reinit_layers, len(names), first)
    return checkpoint_formats.drop_tensors(start, names)


def with_marker_rows(settings, config, start):
    """Returns the starting weights with a row for each marker that was appended to the vocabulary.

    The new row is the mean of the rows of the tokens into which the marker would be split, as with
    `build_vocab.py --extend`.

    Args:
      settings: a `Settings`.
      config: the `BertConfig`, see `tokenizer_flags.grow_vocab_size`.
      start: a `checkpoint_formats.Checkpoint`.

    Returns:
      `start`, or a `checkpoint_formats.Checkpoint` with more rows.
    """
    markers = tokenizer_flags.markers(settings)
    if not (markers and settings.vocab_file):
        return start
    old = tokenization.FullTokenizer(settings.vocab_file, settings.do_lower_case)
    size = max(old.vocab.values()) + 1
    shape = start.shapes.get(checkpoint_formats.WORD_EMBEDDINGS)
    if not shape or not size <= shape[0] < config.vocab_size:
        return start
    vocab = tokenizer_files.load_vocabulary(settings.vocab_file, markers)
    sources = [old.convert_tokens_to_ids(old.tokenize(token)) for token, index in vocab.items()
               if index >= size]
    return checkpoint_formats.append_mean_rows(start, size, sources)


# --- Checks ----------------------------------------------------------------------------------------------


def _check_trained_head(settings, head_shapes, checkpoint):
    """Raises a ValueError if the head, or the whole model, would be random. A checkpoint with some variables
    of the head is enough: for example, a masked LM has no weights for the next sentence.

    Args:
      settings: a `Settings`. The run does not train.
      head_shapes: see `check_fits`.
      checkpoint: a `checkpoint_formats.Checkpoint`; None if the weights would start at random.
    """
    if checkpoint and (not head_shapes or any(name in checkpoint.shapes for name in head_shapes)):
        return
    why, lost = "", ""
    if checkpoint:
        why = f" --init_checkpoint={settings.init_checkpoint} has no weights of this task,"
    if settings.output_directory.record:
        lost = f" The directory{LOST_CHECKPOINTS}"
    raise ValueError(f"--output_dir={settings.output_dir} contains no checkpoint,{why} and nothing is "
                     f"trained: the answers would come from random weights.{lost} Pass the --output_dir of "
                     "a training, pass a checkpoint that was trained on this task as --init_checkpoint, or "
                     "pass --do_train=true.")


def check_layers(settings, config):
    """Checks that the values of --freeze_layers and --reinit_layers fit the model that is trained.

    Args:
      settings: a `Settings`.
      config: the `BertConfig`.

    Raises:
      ValueError: the model has too few layers, a layer would be both frozen and re-initialized, or there are
        no weights to re-initialize.
    """
    check_frozen_layers(settings, config)
    frozen, random, layers = settings.freeze_layers, settings.reinit_layers, config.num_hidden_layers
    if random > layers:
        raise ValueError(f"--reinit_layers={random}: the model has only {layers} layers. Pass a number from "
                         f"0 to {layers}.")
    if random and frozen + random > layers:
        raise ValueError(f"--freeze_layers={frozen} and --reinit_layers={random}: the model has {layers} "
                         "layers, so a layer with random weights would never be trained. Pass "
                         f"--reinit_layers={layers - frozen} or less, or freeze fewer layers.")
    if random and not (settings.init_checkpoint or settings.output_directory.latest_checkpoint):
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
    shapes = {**bert_config.variable_shapes(config), **head_shapes}
    checkpoint_formats.check_types(checkpoint, shapes)
    optional = {name for name in shapes if "/pooler/" in name or name in head_shapes}
    checkpoint_formats.check_fits(checkpoint, shapes, optional)
    checkpoint_formats.check_readable(checkpoint, shapes)


def check_origin(task, checkpoint, shapes):
    """Checks that a checkpoint comes from the model of a task: it has no weights that the model lacks, and
    the optimizer has updated all weights that the head uses.

    If the checkpoint contains the state of an optimizer, variables without this state are ignored, such as
    accumulators of gradients. If the model has no variables "cls/…", those of the checkpoint are ignored,
    because they belong to the heads of the pre-training.

    Args:
      task: a `bertlib.tasks.task.Task`.
      checkpoint: a `checkpoint_formats.Checkpoint` that fits the model.
      shapes: {name: shape} of all variables of the model.

    Raises:
      ValueError: the checkpoint has other weights, or its training updated the encoder, but not all weights
        that the head uses.
    """
    if not task.config:  # the names of the other variables of a hub module are unknown
        return
    head, names = task.create_head(), checkpoint_formats.weight_names(checkpoint)
    updated = {name[:end] for name in checkpoint.shapes for end, character in enumerate(name)
               if character == "/"}.intersection(names)
    has_cls = any(name.startswith("cls/") for name in shapes)
    others = [name for name in names if name not in shapes and (name in updated or not updated)
              and (has_cls or not name.startswith("cls/"))]
    lost = [name for name in trained_shapes(task.settings, shapes) if updated and name not in updated
            and (head.first_token_only or head.uses_pooler or "/pooler/" not in name)]
    if not all(bert_config.layer_index(name) is None for name in lost):
        lost = []  # the layers or embeddings were frozen, perhaps also the pooler
    problems = [f"{found}: {checkpoint_formats.join_names(sorted(names))}" for found, names in (
        ("this model has no variables for these weights", others),
        ("these weights have no slots of an optimizer, so they were not trained", lost))
        if names]
    if problems:
        raise ValueError(f"Probably the checkpoint {checkpoint.path} belongs to another model, so the "
                         f"answers of this model would be wrong: {'; '.join(problems)}. Use the program that "
                         "trained the checkpoint, or write a head with these weights. See "
                         "docs/howto/migrating.md.")


def check_output_checkpoint(task, head_shapes):
    """Checks that the newest checkpoint in --output_dir fits the model and can be read. For a training, the
    checkpoint also has to contain the variables of the optimizer.

    Args:
      task: a `bertlib.tasks.task.Task`.
      head_shapes: see `check_fits`.

    Raises:
      ValueError: the checkpoint does not fit or is damaged, or was trained with other markers.
    """
    settings = task.settings
    shapes = {**(bert_config.variable_shapes(task.config) if task.config else {}), **head_shapes}
    record, now = settings.output_directory.record, settings.marker_tokens
    before = record["settings"].get("marker_tokens") if record else now
    if before != now:
        raise ValueError(f"--marker_tokens={now or 'nothing'}, but the training in --output_dir="
                         f"{settings.output_dir} has --marker_tokens={before or 'nothing'}. Pass the value "
                         "of the training, or pass another --output_dir.")
    checkpoint = checkpoint_formats.open_checkpoint(settings.output_directory.latest_checkpoint)
    checkpoint_formats.check_types(checkpoint, shapes)
    state = {"global_step": ()}
    if settings.do_train:
        state.update(optimization.slot_shapes(trained_shapes(settings, shapes), settings.optimizer))
    # The checkpoint may lack the slots of the pooler: if the head does not use the pooler, the pooler is not
    # trained, and the optimizer makes no slots for it.
    optional = {name for name in state if "/pooler/" in name}
    try:
        # If a weight has a wrong shape, the slots of this weight have a wrong shape, too. The weights are
        # checked first, so that the error names the weight and not its slots.
        checkpoint_formats.check_fits(checkpoint, shapes)
        check_origin(task, checkpoint, shapes)
        checkpoint_formats.check_fits(checkpoint, {**shapes, **state}, optional)
    except ValueError as error:
        raise ValueError(f"--output_dir={settings.output_dir} contains checkpoints that do not fit this "
                         "run. They probably belong to another model, or were trained with another value of "
                         "--optimizer, --freeze_layers or --freeze_embeddings. Use another directory, or "
                         f"remove these checkpoints.\n{error}") from error
    checkpoint_formats.check_readable(checkpoint, checkpoint.shapes)


def trained_shapes(settings, shapes):
    """Returns {name: shape} of the variables that the optimizer updates.

    Args:
      settings: a `Settings`.
      shapes: {name: shape} of all variables of the model.
    """
    return {name: shape for name, shape in shapes.items() if not bert_config.is_frozen(
        name, settings.freeze_layers, settings.freeze_embeddings)}
