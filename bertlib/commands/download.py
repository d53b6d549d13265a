"""Fetches published checkpoints and data sets, checks and unpacks them.

    python download.py --model=uncased_L-12_H-768_A-12 --data=MRPC,SST-2,squad1.1

makes checkpoints/uncased_L-12_H-768_A-12, data/glue/MRPC, data/glue/SST-2 and data/squad; the log ends with
what to set $BERT_BASE_DIR, $GLUE_DIR and $SQUAD_DIR to. What is there already is left alone, and a download
that broke off goes on. docs/howto/data.md has more.
"""

import os

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.commands import published_files
from bertlib.system import files, http_download

GOES_ON = True


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("What to fetch"):
        flags.DEFINE_list("model", None, "Names of checkpoints, separated by commas; see --list.")
        flags.DEFINE_list("data", None, "Names of data sets, separated by commas; glue stands for all "
                          "of GLUE.")
        flags.DEFINE_bool("list", False, "Print the known names and their addresses, and fetch nothing.")
    with common_flags.section("Where from and where to"):
        flags.DEFINE_string("output_dir", ".", "Directory that checkpoints/ and data/ are made in.")
        flags.DEFINE_string("base_url", None, "A mirror: what takes the place of https:// and host in the "
                            "published addresses, such as http://mirror.example/bert.")


def format_list():
    """Returns what --list prints: names and addresses, a line for each address."""
    lines = []
    for flag, known in (("model", published_files.MODELS), ("data", published_files.DATA)):
        lines.append(f"--{flag}")
        for name, entry in known.items():
            lines += [f"  {name if not index else '':34} {source.address}"
                      for index, source in enumerate(entry.sources)]
    return "\n".join(lines)


def select_files(settings):
    """Returns {name: `published_files.Published`} of what the flags ask for.

    Raises:
      ValueError: they ask for nothing, for what there is not, or for a place that cannot be.
    """
    if settings.base_url is not None and (wrong := http_download.address_problem(settings.base_url)):
        raise ValueError(f"--base_url={settings.base_url}: {wrong}.")
    if files.is_remote(settings.output_dir):
        raise ValueError(f"--output_dir={settings.output_dir} must be a local directory.")
    found = {}
    for flag, known in (("model", published_files.MODELS), ("data", published_files.DATA)):
        try:
            found.update(published_files.find_published(getattr(settings, flag) or [], known))
        except ValueError as error:
            raise ValueError(f"--{flag}: {error} --list prints the known names.") from error
    if not found:
        raise ValueError("Name what to fetch with --model and --data; --list prints the known names.")
    return found


def main(_):
    """Fetches."""
    settings = common_flags.read_settings()
    if settings.list:
        print(format_list())
        return
    entries = select_files(settings)
    for name, entry in entries.items():
        try:
            made = published_files.download(entry, settings.output_dir, settings.base_url)
        except http_download.ServerError as error:
            raise OSError(f"{error} A mirror is named by --base_url.") from error
        logging.info("%s: %s.", name, "done" if made else "already there")
    for variable, directory in dict.fromkeys((entry.variable, entry.directory) for entry in entries.values()):
        logging.info("export %s=%s", variable, os.path.abspath(os.path.join(settings.output_dir, directory)))
