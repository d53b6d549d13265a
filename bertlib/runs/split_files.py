"""Finds the files of the splits "train", "dev" and "test": those of --train_file, --dev_file and --test_file,
or files in --data_dir."""

from bertlib.runs import run_record
from bertlib.runs.settings import find_split_file, sample_path

# {split: the phase that needs its file}.
_PHASES = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


def needed(settings):
    """Returns the splits that the phases of a run need."""
    return [split for split, phase in _PHASES.items() if getattr(settings, phase)]


def list_files(settings):
    """Returns the files of the splits, as {flag: list of paths}."""
    paths = {f"{split}_file": getattr(settings, f"{split}_file") for split in _PHASES}
    return {flag: [path] for flag, path in paths.items() if path}


def resolve(settings, sample, sample_defaults, names):
    """Sets the flags of the files that the run needs and that were not given. If no flag names data, the run
    uses a sample of this project.

    Args:
      settings: a `Settings`.
      sample: name of the folder of the sample.
      sample_defaults: {flag: its default for the sample}.
      names: function that takes a split. It returns lists of possible names of the split's file in
        --data_dir, see `settings.find_split_file`.

    Raises:
      ValueError, OSError: a file is missing.
    """
    missing = [split for split in needed(settings) if getattr(settings, f"{split}_file") is None]
    if settings.data_dir is None and missing:
        flags = f"--{missing[0]}_file or --data_dir"
        if list_files(settings):
            raise ValueError(f"{flags} is required.")
        run_record.refuse_sample(settings, sample_path(sample), flags)
        settings.set_default("data_dir", sample_path(sample), "a small sample made for this repository")
        for name, value in sample_defaults.items():
            if not settings.is_resolved(name):
                settings.set_default(name, value, "for the sample, which is small")
    for split in missing:
        settings.set_default(f"{split}_file", find_split_file(settings.data_dir, split, *names(split)))


def describe(settings, count_dev_examples):
    """Returns the arguments of `run_record.describe` for the data.

    Args:
      settings: a `Settings`.
      count_dev_examples: function without arguments that returns the number of examples of --dev_file.
    """
    return {"train_data": run_record.hash_files([settings.train_file]) if settings.do_train else None,
            "dev_data": run_record.describe_dev_files(settings, [settings.dev_file], count_dev_examples)}
