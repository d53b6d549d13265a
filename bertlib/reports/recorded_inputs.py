"""Lists the files that a training has read, with their fingerprints, from its run.json. Checks that several
trainings have read the same files.

The run.json of a training contains the fingerprints of its data, task module, vocabulary and starting
weights. It also contains the fingerprints of the examples, which a task module may read from any place. If
two trainings have read different contents, their results cannot be compared.
"""

from bertlib.runs import record_content, tokenizer_flags
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files, fingerprints

# Flags that decide which examples a run reads. A sweep may have several values of them in its grid.
_PATHS_OF_DATA = ("data_dir", "train_file", "dev_file", "predict_file", "input_file", "eval_file",
                  "label_file", "label_map", "task_module")
_SETTINGS_OF_DATA = ("max_train_examples", "dev_fraction", "xnli_language", "label_separator",
                     "skip_bad_lines", "text_column", "label_column", "header", "delimiter", "encoding")


def read(record):
    """Returns {path: (fingerprint, flag)} of the data, the starting weights, the vocabulary and the task
    module of a training. `flag` is the name of the flag for the file, and None for a file of the data.

    Args:
      record: content of run.json, a dict.
    """
    inputs = {path: (entry["fingerprint"], None) for path, entry in (record["inputs"] or {}).items()}
    start, module, paths = record["init_checkpoint"], record["task_module"], record["files"]
    if start and start["fingerprint"]:
        inputs[start["path"]] = start["fingerprint"], "init_checkpoint"
    for flag in ("vocab_file", "spm_model_file"):
        # With markers, the record has the fingerprint of the vocabulary in the output directory.
        if paths.get(flag) and record["vocabulary"] and not record["settings"].get("marker_tokens"):
            inputs[paths[flag]] = record["vocabulary"], flag
    if module and paths.get("task_module"):
        inputs[paths["task_module"]] = module["fingerprint"], "task_module"
    return inputs


def fingerprint(path, flag):
    """Returns the present fingerprint of a file or checkpoint; None if it does not exist. For `flag`, see
    `read`."""
    if flag == "init_checkpoint":
        return record_content.hash_checkpoint(path)
    if not files.exists(path):
        return None
    if flag == "task_module":
        return fingerprints.hash_bytes(files.read_bytes(path))
    if flag:
        return tokenizer_flags.hash_vocabulary(path, flag)
    return fingerprints.hash_file(path)


# --- Several trainings -----------------------------------------------------------------------------------


def _read_examples(record):
    """Returns {(name, flags): (fingerprint, None)} of the training data and the development data of a run.
    Runs with the same `flags` must have read the same examples."""
    flags = (record["task"], *map(record["files"].get, _PATHS_OF_DATA),
             *(str(record["settings"].get(name)) for name in _SETTINGS_OF_DATA))
    examples = {("The training data", flags): record["train_data"],
                ("The development data", (*flags, record["flags"].get("max_eval_examples"))):
                 record["dev_data"]}
    return {key: (data["fingerprint"], None) for key, data in examples.items() if data}


def count_dev_sets(output_dirs):
    """Returns the number of different development sets that the runs in some output directories evaluated."""
    records = filter(None, (OutputDirectory(output_dir).record for output_dir in output_dirs))
    return len({record["dev_data"]["fingerprint"] for record in records if record["dev_data"]})


def check_equal(output_dirs):
    """Checks that the runs in some output directories have read the same contents. Directories may be missing
    or have no record.

    Returns:
      {path: (fingerprint, flag, output directory of the first run that has read the file)}; see
      `read`.

    Raises:
      ValueError: two runs have read different contents of a file; or a record is damaged.
    """
    first_inputs = {}
    for output_dir in output_dirs:
        record = OutputDirectory(output_dir).record
        inputs = {**read(record), **_read_examples(record)} if record else {}
        for key, (now, flag) in inputs.items():
            before, _, first = first_inputs.setdefault(key, (now, flag, output_dir))
            if before != now:
                what = key if isinstance(key, str) else key[0]
                raise ValueError(f"{what} was changed during the sweep: {first} and {output_dir} have read "
                                 "different contents, so their results cannot be compared. Restore the right "
                                 "version, and remove the output directory of the run that has read the "
                                 "wrong version.")
    return {key: value for key, value in first_inputs.items() if isinstance(key, str)}


def check_unchanged(output_dirs):
    """Checks that the input files of earlier runs were not changed after these runs had read them.

    Args:
      output_dirs: output directories of the runs. Directories may be missing.

    Raises:
      ValueError: a file was changed, or `check_equal` raised an error.
    """
    for path, (before, flag, output_dir) in sorted(check_equal(output_dirs).items()):
        now = fingerprint(path, flag)
        if now not in (None, before):
            raise ValueError(f"{path} was changed after {output_dir} was trained: its fingerprint was "
                             f"{before}, and is {now} now. The results of new runs could not be compared "
                             "with the results of earlier runs. Restore the file, or pass another "
                             "--sweep_dir.")
