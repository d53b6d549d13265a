"""Lists the files that a training has read, with their fingerprints, from its run.json."""

from bertlib.runs import run_record, vocabularies
from bertlib.system import files, fingerprints


def read(record):
    """Returns {path: (fingerprint, flag)} of the data, the starting weights, the vocabulary and the task
    module of a training. `flag` is the name of the flag for the file, and None for a file of the data.

    Args:
      record: content of run.json, a dict.
    """
    found = {path: (entry["fingerprint"], None) for path, entry in (record["inputs"] or {}).items()}
    start, module, paths = record["init_checkpoint"], record["task_module"], record["files"]
    if start and start["fingerprint"]:
        found[start["path"]] = start["fingerprint"], "init_checkpoint"
    for flag in ("vocab_file", "spm_model_file"):
        if paths.get(flag) and record["vocabulary"]:
            found[paths[flag]] = record["vocabulary"], flag
    if module and paths.get("task_module"):
        found[paths["task_module"]] = module["fingerprint"], "task_module"
    return found


def fingerprint(path, flag):
    """Returns the present fingerprint of a file or checkpoint; None if it does not exist. For `flag`, see
    `read`."""
    if flag == "init_checkpoint":
        return run_record.hash_checkpoint(path)
    if not files.exists(path):
        return None
    if flag == "task_module":
        return fingerprints.hash_bytes(files.read_bytes(path))
    return vocabularies.fingerprint(path, flag) if flag else fingerprints.hash_files([path])["fingerprint"]
