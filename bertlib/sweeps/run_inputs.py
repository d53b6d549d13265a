"""Checks that the runs of a sweep were trained from the same data, task module, vocabulary and starting
weights.

The run.json of a run contains the fingerprints of these files. It also contains the fingerprints of the
examples, which a task module may read from any place. If two runs have read different contents, their results
cannot be compared.
"""


from bertlib.output_directory.directory import OutputDirectory
from bertlib.runs import run_record, vocabularies
from bertlib.system import files, fingerprints

_VOCABULARIES = ("vocab_file", "spm_model_file")
# Flags that decide which examples a run reads. A sweep may have several values of them in its grid.
_PATHS_OF_DATA = ("data_dir", "train_file", "dev_file", "predict_file", "input_file", "eval_file",
                  "label_file", "task_module")
_SETTINGS_OF_DATA = ("max_train_examples", "dev_fraction", "xnli_language", "label_separator",
                     "skip_bad_lines", "text_column", "label_column", "header", "delimiter", "encoding")


def read_recorded(output_dir):
    """Returns {path: (fingerprint, flag)} of the data, the task module, the vocabulary and the starting
    weights of a run.

    For a vocabulary, `flag` is "vocab_file" or "spm_model_file", and for a task module it is "task_module",
    because these fingerprints are computed in other ways; see `_hash`. For all other files, `flag` is None.
    The dict is empty if the run has not written its record yet.

    Args:
      output_dir: output directory of the run.

    Raises:
      ValueError: the record is damaged.
    """
    record = OutputDirectory(output_dir).record
    if record is None:
        return {}
    found = {path: (entry["fingerprint"], None) for path, entry in (record.get("inputs") or {}).items()}
    start = record.get("init_checkpoint") or {}
    if start.get("fingerprint"):
        found[start["path"]] = start["fingerprint"], None
    for flag in _VOCABULARIES:
        path = (record.get("files") or {}).get(flag)
        if path and record.get("vocabulary"):
            found[path] = record["vocabulary"], flag
    module = (record.get("files") or {}).get("task_module")
    if module and record.get("task_module"):
        found[module] = record["task_module"]["fingerprint"], "task_module"
    return found


def _read_examples(output_dir):
    """Returns {(name, flags): fingerprint} of the training data and the development data of a run. Runs with
    the same `flags` must have read the same examples. The dict is empty without a record.

    Args:
      output_dir: output directory of the run.
    """
    record = OutputDirectory(output_dir).record
    if record is None:
        return {}
    paths, settings = record.get("files") or {}, record["settings"]
    shared = (record["task"], *map(paths.get, _PATHS_OF_DATA),
              *(str(settings.get(name)) for name in _SETTINGS_OF_DATA))
    limit = (record.get("flags") or {}).get("max_eval_examples")
    found = {("training data", shared): record.get("train_data"),
             ("development data", (*shared, limit)): record.get("dev_data")}
    return {key: data["fingerprint"] for key, data in found.items() if data}


def check_equal(output_dirs):
    """Checks that the runs in some output directories have read the same contents.

    Returns:
      {path: (fingerprint, flag, output directory of the first run that has read the file)}. `flag` is
      described in `read_recorded`.

    Raises:
      ValueError: two runs have read different contents of a file; or a record is damaged.
    """
    known, examples = {}, {}
    for output_dir in output_dirs:
        for path, (fingerprint, flag) in read_recorded(output_dir).items():
            before, _, first = known.setdefault(path, (fingerprint, flag, output_dir))
            if before != fingerprint:
                raise ValueError(f"{path} was changed during the sweep: {first} and {output_dir} were "
                                 "trained with different contents, so their results cannot be compared. "
                                 "Restore the right version of the file, and remove the output directory "
                                 "of the run that was trained with the wrong version.")
        for key, fingerprint in _read_examples(output_dir).items():
            before, first = examples.setdefault(key, (fingerprint, output_dir))
            if before != fingerprint:
                raise ValueError(f"The {key[0]} were changed during the sweep: {first} and {output_dir} have "
                                 "read different examples, so their results cannot be compared. Restore the "
                                 "right version of the data, and remove the output directory of the run that "
                                 "has read the wrong version.")
    return known


def check_unchanged(output_dirs):
    """Checks that the input files of earlier runs were not changed after these runs had read them.

    Args:
      output_dirs: output directories of the runs. Directories may be missing.

    Raises:
      ValueError: a file was changed, or `check_equal` raised an error.
    """
    for path, (fingerprint, flag, output_dir) in sorted(check_equal(output_dirs).items()):
        now = _hash(path, flag)
        if now not in (None, fingerprint):
            raise ValueError(f"{path} was changed after {output_dir} was trained: its fingerprint was "
                             f"{fingerprint}, and is {now} now. The results of new runs could not be "
                             "compared with the results of earlier runs. Restore the file, or pass another "
                             "--sweep_dir.")


def _hash(path, flag):
    """Returns the fingerprint of a file or checkpoint, or None if the file or checkpoint does not exist. For
    the argument `flag`, see `read_recorded`."""
    if not files.exists(path) or files.is_directory(path):
        return run_record.hash_checkpoint(path)
    if flag == "task_module":
        return fingerprints.hash_bytes(files.read_bytes(path))
    return vocabularies.fingerprint(path, flag) if flag else fingerprints.hash_files([path])["fingerprint"]
