"""Downloads published checkpoints and data sets, checks and unpacks them.

    python download.py --model=uncased_L-12_H-768_A-12 --data=MRPC,SST-2,squad1.1

This command creates checkpoints/uncased_L-12_H-768_A-12, data/glue/MRPC, data/glue/SST-2 and data/squad. The
log ends with the values of $BERT_BASE_DIR, $GLUE_DIR and $SQUAD_DIR. Existing files stay unchanged. To
continue an interrupted download, run the same command again. docs/howto/data.md says more about checkpoints
and data.
"""

import os

from bertlib.commands import common_flags, published_files

from absl import logging

from bertlib.runs import entries
from bertlib.system import files, http_download

RESUMABLE = True


ENTRIES = entries.section("Checkpoints and data sets", None, [
    entries.Texts("model", None, "Comma-separated names of checkpoints. --list prints all names."),
    entries.Texts("data", None, "Comma-separated names of data sets; 'glue' means all tasks of GLUE."),
    entries.Switch("list", False, "Print the known names and their addresses, and download nothing."),
]) + entries.section("Source and destination", None, [
    entries.Path("output_dir", ".", "Directory in which checkpoints/ and data/ are created."),
    entries.Text("base_url", None,
                 "Address of a mirror, for example http://mirror.example/bert. It replaces the beginning of "
                 "each published address: https:// and the host."),
])


def format_list():
    """Returns the text that --list prints. It has one line for each address. The name of a checkpoint or data
    set is in the line of its first address."""
    lines = []
    for flag, catalog in (("model", published_files.MODELS), ("data", published_files.DATA)):
        lines.append(f"--{flag}")
        for name, entry in catalog.items():
            lines += [f"  {name if not index else '':34} {source.address}"
                      for index, source in enumerate(entry.sources)]
    return "\n".join(lines)


def select_files(settings):
    """Returns a dict {name: `published_files.Published`} of the checkpoints and data sets that the flags
    name.

    Raises:
      ValueError: the flags contain no name or an unknown name, or --base_url or --output_dir is not usable.
    """
    if settings.base_url is not None and not settings.base_url.startswith(("http://", "https://")):
        raise ValueError(f"--base_url={settings.base_url}: it must be http:// or https:// and a host.")
    if files.is_remote(settings.output_dir):
        raise ValueError(f"--output_dir={settings.output_dir} must be a local directory.")
    entries = {}
    for flag, catalog in (("model", published_files.MODELS), ("data", published_files.DATA)):
        try:
            entries.update(published_files.find_published(getattr(settings, flag) or [], catalog))
        except ValueError as error:
            raise ValueError(f"--{flag}: {error} To see the known names, pass --list.") from error
    if not entries:
        raise ValueError("Name checkpoints with --model, or data sets with --data. To see the known names, "
                         "pass --list.")
    return entries


def main(_):
    """Downloads the checkpoints and data sets that the flags name."""
    settings = common_flags.read_settings()
    if settings.list:
        print(format_list())
        return
    entries = select_files(settings)
    for name, entry in entries.items():
        try:
            is_new = published_files.download(entry, settings.output_dir, settings.base_url)
        except http_download.ServerError as error:
            raise OSError(f"{error} To use a mirror, pass its address as --base_url.") from error
        logging.info("%s: %s.", name, "done" if is_new else "already there")
    for variable, directory in dict.fromkeys((entry.variable, entry.directory) for entry in entries.values()):
        logging.info("export %s=%s", variable, os.path.abspath(os.path.join(settings.output_dir, directory)))
