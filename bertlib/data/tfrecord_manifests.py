"""Reads the manifests of record files.

A manifest describes the files that a run of create_pretraining_data.py writes: the settings, the vocabulary,
and the size of each file. `pretraining_stream` writes the manifest.
"""

import functools
import os

from absl import logging

from bertlib.system import files

# The name of the manifest is the name of the first output file, followed by this suffix. Both files are in
# the same directory.
SUFFIX = ".manifest.json"
# The form of a manifest, see `files.has_form`.
FORM = {"settings": {"vocabulary": str}, "vocabulary": ({"path": str, "flag": str}, None), "documents": int,
        "sentences": int, "fingerprint": str, "blocks": int, "files": [str], "blocks_done": int,
        "sizes": [int], "statistics": {"*": int}}


def partial_path(path):
    """Returns the path under which a file of records is written before it is complete."""
    return files.path_beside(files.resolve_links(path), ".partial")


def read(paths):
    """Reads the manifests that describe some files of records. Logs a warning if only some of the files have
    a manifest.

    Args:
      paths: list of the files of records. The manifest of a file is in the same directory. If the file is a
        symbolic link, the manifest may also be in the directory of the link's target.

    Returns:
      list of (path of the manifest, manifest).

    Raises:
      ValueError: a manifest is damaged, or it names one of the files but describes another content.
    """
    read_directory = functools.cache(_read_directory)
    manifests, other_paths = {}, []
    for path in paths:
        entries = [entry for place in dict.fromkeys([path, files.resolve_links(path)])
                   for entry in read_directory(os.path.dirname(place)).get(os.path.basename(place), ())]
        matches = {where: manifest for where, manifest, size in entries
                   if manifest["blocks_done"] == manifest["blocks"] and files.size(path) == size
                   and not files.exists(partial_path(path))}
        if entries and not matches:
            where, manifest, size = entries[0]
            raise ValueError(
                f"{path} is not the file that {where} describes. According to this manifest, the file has "
                f"{size} bytes after {manifest['blocks_done']} of {manifest['blocks']} blocks, but it has "
                f"{files.size(path)} bytes. Either the run of create_pretraining_data.py that wrote the "
                "manifest was not completed, or the file was changed later. Run create_pretraining_data.py "
                "again with the same flags. If you changed the file on purpose, remove the manifest. Without "
                "a manifest, the vocabulary of the records is not checked.")
        manifests.update(matches)
        if not matches:
            other_paths.append(path)
    if manifests and other_paths:
        logging.warning("No manifest describes %s%s, so the vocabulary of these records is not checked. Make "
                        "sure that it is the vocabulary of the other records, see %s.",
                        ", ".join(other_paths[:3]),
                        f" and {len(other_paths) - 3} more files" if len(other_paths) > 3 else "",
                        next(iter(manifests)))
    return list(manifests.items())


def _read_directory(directory):
    """Reads all manifests in a directory.

    Returns:
      {name of a file of records: list of (path of a manifest, manifest, size of the file in bytes)}. The list
      has an entry for each manifest that names the file.

    Raises:
      ValueError: a manifest is damaged.
    """
    entries = {}
    for path in files.find_files(os.path.join(directory, f"*{SUFFIX}")):
        manifest = files.read_json_object(path)
        if not files.has_form(manifest, FORM):
            raise ValueError(f"{path} is damaged: it does not have the form of the manifests of "
                             "create_pretraining_data.py. Restore the file from a copy, or remove it. "
                             "Without a manifest, the settings of the records are not checked.")
        for name, size in zip(manifest["files"], manifest["sizes"]):
            entries.setdefault(name, []).append((path, manifest, size))
    return entries
