"""The files from which the runs of a sweep were trained: data and starting weights.

run.json of a run contains their fingerprints. All runs of a sweep must have read the same content, because
otherwise their results cannot be compared.
"""

from bertlib.output_directory import output_files
from bertlib.runs import run_record
from bertlib.system import files, fingerprints


def read_recorded(output_dir):
    """Returns {path: fingerprint} of the data and the starting weights in the record of a run. Empty if the
    run has not written its record yet.

    Args:
      output_dir: output directory of the run.

    Raises:
      ValueError: the record is damaged.
    """
    record = output_files.read_record(output_dir) if files.is_directory(output_dir) else None
    if record is None:
        return {}
    found = {path: entry["fingerprint"] for path, entry in (record.get("inputs") or {}).items()}
    start = record.get("init_checkpoint") or {}
    if start.get("fingerprint"):
        found[start["path"]] = start["fingerprint"]
    return found


def check_equal(output_dirs):
    """Checks that the runs in some output directories have read the same contents.

    Returns:
      {path: (fingerprint, output directory of the first run that has read the file)}.

    Raises:
      ValueError: two runs have read different contents of a file; or a record is damaged.
    """
    known = {}
    for output_dir in output_dirs:
        for path, fingerprint in read_recorded(output_dir).items():
            before, first = known.setdefault(path, (fingerprint, output_dir))
            if before != fingerprint:
                raise ValueError(f"{path} was changed during the sweep: {first} and {output_dir} were "
                                 "trained with different contents, so their results cannot be compared. "
                                 "Restore the file, and remove the output directory with the other content.")
    return known


def check_unchanged(output_dirs):
    """Checks that the files which earlier runs have read still have the same content.

    Args:
      output_dirs: output directories of the runs. Directories may be missing.

    Raises:
      ValueError: a file was changed; see also `check_equal`.
    """
    for path, (fingerprint, output_dir) in sorted(check_equal(output_dirs).items()):
        now = _hash(path)
        if now not in (None, fingerprint):
            raise ValueError(f"{path} was changed: fingerprint {fingerprint} in {output_dir}, {now} now. The "
                             "results of new runs could not be compared with those of earlier runs. Restore "
                             "the file, or pass another --sweep_dir.")


def _hash(path):
    """Returns the fingerprint of a file or checkpoint; None if it does not exist."""
    if files.exists(path) and not files.is_directory(path):
        return fingerprints.hash_files([path])["fingerprint"]
    return run_record.hash_checkpoint(path)
