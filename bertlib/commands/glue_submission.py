"""Checks predictions for all tasks of the GLUE benchmark and zips them for https://gluebenchmark.com/submit.

    python glue_submission.py output/*

The arguments are files that `run_classifier.py --do_predict=true` wrote (CoLA.tsv, MNLI-m.tsv, …), or
directories with such files. The headers, indices and numbers of rows in these files must be the same as in
the benchmark, and each label must be a label of the task. docs/howto/glue.md has the commands for all tasks.
"""

import collections
import os

from bertlib.commands import common_flags

from absl import logging

from bertlib.runs import entries
from bertlib.runs.input_paths import refuse_directory
from bertlib.system import files
from bertlib.tasks.classification import glue_submission_files

TAKES_PATHS = True


ENTRIES = entries.section("Submission", None, [
    entries.Path("output_file", "glue_submission.zip", "The zip file to write."),
    entries.Switch("partial", False, "Accept missing tasks. The benchmark itself requires all tasks."),
])


def find_predictions(paths, names):
    """Returns a dict {name: list of paths} of the existing prediction files. Files with the same content are
    listed once.

    Args:
      paths: list of str, files and directories. Directories inside these directories are not searched.
      names: container of str, the names of prediction files.

    Raises:
      FileNotFoundError: a path does not exist.
    """
    copies = collections.defaultdict(dict)  # {name: {content: the first path with this content}}
    for path in paths:
        if not files.exists(path):
            raise FileNotFoundError(f"{path}: there is no such file or directory.")
        candidates = [os.path.join(path, name) for name in names] if files.is_directory(path) else [path]
        for file in candidates:
            if os.path.basename(file) in names and files.exists(file):
                copies[os.path.basename(file)].setdefault(files.read_bytes(file), file)
    return {name: list(paths_of_content.values()) for name, paths_of_content in copies.items()}


def list_problems(predictions, test_sets, partial):
    """Returns the reasons why the files cannot be submitted, as a list of sentences.

    Args:
      predictions: {name: list of paths}, see `find_predictions`.
      test_sets: {name of a file of predictions: `glue_submission_files.TestSet`}.
      partial: bool, whether files may be missing.
    """
    problems = []
    for name, test_set in test_sets.items():
        candidates = predictions.get(name, [])
        if len(candidates) > 1:
            problems.append(f"{name} exists more than once: {', '.join(candidates)}. Name only one of the "
                            "directories.")
        elif candidates:
            problem = glue_submission_files.find_problem(candidates[0], test_set)
            problems += [f"{problem}."] if problem else []
        elif not partial:
            # AX has no training file; a model of MNLI predicts it.
            model = " --output_dir=DIRECTORY, the directory of a training on MNLI" * (test_set.task == "ax")
            problems.append(f"{name} is missing: predict with run_classifier.py "
                            f"--task_name={test_set.task.upper()} --do_predict=true{model}.")
    return problems


def main(argv):
    """Checks the predictions and writes the zip file."""
    settings, test_sets = common_flags.read_settings(), glue_submission_files.test_sets()
    if not argv[1:]:
        raise ValueError("No directories were named. Name the directories with the predictions, such as "
                         "output/*.")
    refuse_directory(settings)
    predictions = find_predictions(argv[1:], test_sets)
    if not predictions:
        raise ValueError(f"{', '.join(argv[1:])}: no predictions were found. At least one of these files is "
                         f"needed: {', '.join(test_sets)}. Name the directories that contain them. "
                         "Directories inside of a named directory are not searched.")
    problems = list_problems(predictions, test_sets, settings.partial)
    if problems:
        raise ValueError("The predictions cannot be submitted yet, and no zip file was written:\n"
                         + "\n".join(f"  {problem}" for problem in problems))
    members = [predictions[name][0] for name in test_sets if name in predictions]
    if files.file_identity(settings.output_file) in map(files.file_identity, members):
        raise ValueError(f"--output_file={settings.output_file} would overwrite a file of predictions that "
                         "this command reads. Name another file.")
    files.make_parent(settings.output_file)
    glue_submission_files.write_zip(settings.output_file, members)
    logging.info("%s contains the predictions of %d of %d test sets: %s.", settings.output_file, len(members),
                 len(test_sets), ", ".join(map(os.path.basename, members)))
