"""Repeats a training in another directory, and compares the results of the two trainings bit for bit.

    python reproduce.py output/mrpc

The argument is the output directory of a training. Its run.json contains the flags, the environment, and the
fingerprints of the data. The next command repeats only the first 20 steps:

    python reproduce.py output/mrpc --until=20

Flags after -- replace flags of the training, for example if the data are now in another directory:

    python reproduce.py output/mrpc -- --data_dir=/data/MRPC

The exit code is 0 if all bits are the same, 3 if there is a difference, and 1 after an error.
"""

import contextlib
import os
import sys

from bertlib.commands import common_flags

from absl import logging

from bertlib.reports import reproduction, run_differences
from bertlib.runs import entries, file_names
from bertlib.system import child_command, files

TAKES_PATHS = True
DIFFERENT = 3


ENTRIES = entries.section("Repetition", None, [
    entries.Path("output_dir", None,
                 "Output directory of the repeated training. The default is the directory of the training, "
                 "with -reproduced added to its name."),
    entries.Integer("until", None,
                    "Last step to repeat and to compare. By default, all steps are repeated and compared.",
                    least=1),
    entries.Switch("anyway", False,
                   "Repeat the training even if its data files or starting weights were changed."),
])


def main(argv):
    """Repeats the training, compares it and prints the result."""
    settings, words = common_flags.read_settings(), argv[1:]
    paths = [word for word in words if not word.startswith("-")]
    if len(paths) != 1 or words[:1] != paths:
        raise ValueError("Name one directory of a training, before all other arguments. Write flags of the "
                         "training after --. Example: python reproduce.py output/mrpc --until=20 -- "
                         "--data_dir=DIR")
    directory = paths[0].rstrip("/") or paths[0]
    output_dir = settings.output_dir or files.path_beside(directory, "-reproduced")
    plan = reproduction.plan(directory, output_dir, settings.until, words[1:])
    changes = reproduction.describe_changed(plan.changed_files)
    if changes and not settings.anyway:
        raise ValueError("\n".join([*changes, "Restore these files, or pass --anyway to repeat the training "
                                    "with the changed files."]))
    for line in (*changes, *plan.notes):
        logging.warning("%s", line)
    if any(flag.startswith("--task_module=") for flag in plan.flags):
        logging.warning("The training used --task_module. The repetition executes this Python file.")
    logging.info("Repeating the training %s up to step %d in the directory %s: %s %s", directory, plan.step,
                 output_dir, plan.command, " ".join(plan.flags))
    os.environ.pop("TF_CONFIG", None)  # the repetition runs on this machine only
    try:
        with contextlib.redirect_stdout(sys.stderr):
            child_command.run(plan.command, plan.flags, verbose=True)
    except TypeError as error:
        raise ValueError(f"The command could not be started: {error} The flag that this error names is "
                         f"recorded in {os.path.join(directory, file_names.RECORD)}, or was passed after "
                         "the separator --. If another version of this project made the training, use that "
                         "version.") from error
    differences = run_differences.compare(directory, output_dir, plan.step, plan.results_dir, plan.is_whole)
    differences.update(training=os.path.abspath(directory), repetition=os.path.abspath(output_dir),
                       command=[plan.command, *plan.flags], changed_files=plan.changed_files,
                       overrides=plan.overrides, notes=plan.notes)
    print(run_differences.to_text(differences, [*changes, *plan.notes], plan.overrides))
    files.write_json(os.path.join(output_dir, file_names.REPRODUCTION), differences)
    if not differences["same"]:
        sys.exit(DIFFERENT)
