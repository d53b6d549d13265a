"""Checks the flags and files of a run before anything is written."""

import glob
import os

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, metrics_history
from bertlib.runs import file_names, learning_curve
from bertlib.system import files

# {name of a file: what a directory with this file contains}.
_RECORDS = {file_names.RECORD: "a training", file_names.SWEEP_RECORD: "a sweep",
            "saved_model.pb": "an exported model"}


def check_segments(config, reason):
    """Checks that a model can distinguish the second text of a pair from the first text.

    Args:
      config: a `modeling.BertConfig`.
      reason: clause for the error message. It says why the input contains pairs of texts.

    Raises:
      ValueError: the model has no vector for the second text.
    """
    if config.type_vocab_size < 2:
        raise ValueError(f"type_vocab_size is {config.type_vocab_size} in the model's configuration. This "
                         f"model cannot distinguish a second text from the first text, but {reason}. Use a "
                         "model with type_vocab_size=2, such as a published model.")


def refuse_tpus(settings):
    """Raises a ValueError if --use_tpu=true is given."""
    if settings.use_tpu:
        raise ValueError("--use_tpu=true: TPUs are not supported. Leave the flag out to run on CPU or GPU.")


def check_directories(settings):
    """Checks that --output_dir, --results_dir and --features_cache are directories or can be created.

    Raises:
      NotADirectoryError: a path, or one of its parent directories, is a file or a broken link.
      PermissionError: nothing can be written in a directory.
      ValueError: a flag is empty, --features_cache is not a local directory, or a new training would be
        written into a directory of another kind, such as that of a sweep; or there is nothing to evaluate,
        because the directory has lost its checkpoints; or --results_dir contains another training.
    """
    for name in ("output_dir", "results_dir"):
        directory = getattr(settings, name)
        if not directory:
            raise ValueError(f"--{name} is empty. Pass the path of a directory.")
        existing = files.require_directory(f"--{name}={directory}", directory)
        read_only = settings.results_dir != directory and not settings.do_train
        if not (read_only or files.is_remote(directory) or os.access(existing, os.W_OK | os.X_OK)):
            raise PermissionError(f"--{name}={directory}: nothing can be written in {existing}: this "
                                  "directory belongs to another user, or is on a read-only file system. Use "
                                  "another directory.")
    if settings.do_train and not settings.output_directory.latest_checkpoint:
        refuse_other_kind("output_dir", settings.output_dir, file_names.RECORD)
    if not (settings.do_train or settings.is_fixed("init_checkpoint")):
        settings.output_directory.refuse_lost_checkpoints(f"--output_dir={settings.output_dir}")
    _refuse_other_results(settings)
    cache = settings.get("features_cache")
    if cache and files.is_remote(cache):
        raise ValueError(f"--features_cache={cache}: the cache needs a local directory, because its files "
                         "are shared by hard links. Name a local directory.")
    if cache:
        files.require_directory(f"--features_cache={cache}", cache)


def _refuse_other_results(settings):
    """Raises a ValueError if --results_dir contains another training than that of this run. A training may be
    in two directories: best/ and a copy have the record of the same training."""
    results, own = settings.results_directory, settings.reused_training
    if files.file_identity(results.path) == files.file_identity(settings.output_dir) or not results.record:
        return
    if not (own and own.record and own.record["started"] == results.record["started"]):
        raise ValueError(f"--results_dir={results.path} contains another training. The results of this run "
                         "would replace its results, and later commands would use them as the results of "
                         "that training. Pass another --results_dir.")


def refuse_other_kind(flag, directory, own):
    """Raises a ValueError if a directory contains a file of `_RECORDS` other than `own`. Otherwise, the files
    of two kinds of directories would be mixed."""
    for name, kind in _RECORDS.items():
        if name != own and files.exists(os.path.join(directory, name)):
            raise ValueError(f"--{flag}={directory} contains {kind} ({name}), but {_RECORDS[own]} needs a "
                             "separate directory. Use another directory.")


# --- Input files are not overwritten ---------------------------------------------------------------------

# Names of the files that each training writes into --output_dir, or removes from it, in addition to
# checkpoints.
_TRAINING_FILES = ("checkpoint", "graph.pbtxt", file_names.RECORD, *file_names.MODEL_FILES,
                   *file_names.FILES_OF_SOME_FLAGS, metrics_history.FILE, *learning_curve.FILES)


def refuse_overwriting(settings, read, written):
    """Checks that a command overwrites none of its input files. The check compares the files and not only
    their paths. So it also finds an output path that is a link to an input file.

    Args:
      settings: a `Settings`.
      read: {flag: paths that the command reads}. Paths that do not exist are ignored here, because other
        checks report them. The paths of the model's files can be left out: they are always checked.
      written: {flag: paths that the command writes}. Each file is first written as "path.partial", so this
        path is checked, too.

    Raises:
      ValueError: a file would be overwritten.
    """
    flags = {}
    for flag, paths in (*_list_model_files(settings).items(), *read.items()):
        flags.update((files.file_identity(path), (flag, path)) for path in paths if files.exists(path))
    for flag, paths in written.items():
        for path in paths:
            if files.is_special(path):  # the same terminal or device may be both input and output
                continue
            for name in (path, files.path_beside(files.resolve_links(path), ".partial")):
                reader, source = flags.get(files.file_identity(name), (None, None))
                # A training may read the model's files from --output_dir and write files with the same names
                # into it. This is not refused here, because `run_record` compares the old and new contents of
                # these files.
                own = reader in file_names.FILE_FLAGS and os.path.basename(name) in (
                    *file_names.MODEL_FILES, file_names.TASK_MODULE)
                if reader is not None and not (flag == "output_dir" and own):
                    other = "" if source == name else f" (the same file as {source})"
                    raise ValueError(f"--{flag}={getattr(settings, flag)} would overwrite {name}{other}, "
                                     f"which --{reader} reads. Pass another --{flag}.")


def list_overwritten_files(settings, result_names, training_names):
    """Returns the paths of the files that a command overwrites in --output_dir and --results_dir.

    Args:
      settings: a `Settings`, after `Settings.resolve_results_dir`.
      result_names: names of the files that the command writes into --results_dir, except the list of the
        skipped lines.
      training_names: names of the files that the training of this command writes into --output_dir in
        addition to `_TRAINING_FILES`.

    Returns:
      {flag: list of str}, for `refuse_overwriting`.
    """
    directory = settings.output_dir
    overwritten = {"output_dir": []}
    if settings.do_train:
        names = (*_TRAINING_FILES, *training_names)
        overwritten["output_dir"] += (os.path.join(directory, name) for name in names)
        if not settings.output_directory.latest_checkpoint:
            # A new training writes checkpoints from step 0 on, and overwrites existing files with the same
            # names.
            overwritten["output_dir"] += glob.glob(os.path.join(glob.escape(directory), "model.ckpt-*"))
    flag = "output_dir" if settings.results_dir == directory else "results_dir"
    results = (*result_names, file_names.SKIPPED_LINES)
    overwritten.setdefault(flag, []).extend(os.path.join(settings.results_dir, name) for name in results)
    return overwritten


def _list_model_files(settings):
    """Returns {flag: list of paths}, the paths of the model's files that a command reads."""
    paths = {flag: [path] for flag in file_names.FILE_FLAGS if (path := settings.get(flag))}
    if settings.get("init_checkpoint"):
        paths["init_checkpoint"] = list_checkpoint_files(settings.init_checkpoint)
    return paths


def list_checkpoint_files(path):
    """Returns a list of str, the paths of the files of a checkpoint.

    Args:
      path: value of a flag: the prefix of a checkpoint, a directory, or a file.
    """
    if not files.is_directory(path):
        return [path, *checkpoint_files.list_files(path)]
    newest = checkpoint_formats.latest_or_only_checkpoint(path)
    return [*checkpoint_files.list_by_ending(path, ".safetensors", ".safetensors.index.json"),
            *(list_checkpoint_files(newest) if newest else [])]
