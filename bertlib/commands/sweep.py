"""Trains with each combination of some settings, and compares the results.

    python sweep.py --sweep_dir=output/sweep --grid=learning_rate=5e-5,3e-5,2e-5 --grid=seed=0,1,2 \\
      --metric=eval_accuracy -- python run_classifier.py --task_name=MRPC

The words after -- are a training command: run_classifier.py, run_classifier_with_tfhub.py, run_ner.py,
run_squad.py, run_swag.py or run_pretraining.py. Each run gets its own --output_dir below --sweep_dir. After
each run, the command writes the results of all runs to the table sweep.csv and to the web page sweep.html. If
the sweep is interrupted, run the same command again: finished runs are not repeated.
"""

import os

from bertlib.commands import common_flags, training_command

from bertlib.reports import sweep_directory, sweep_grid, sweep_loop
from bertlib.runs import checks, entries, learning_curve, registry
from bertlib.system import child_jobs, child_processes, files
from bertlib.tasks import shared_flags

# These flags name directories that runs cannot share.
_DIRECTORIES = ("output_dir", "results_dir")
TAKES_PATHS = True  # the training command
RESUMABLE = True


ENTRIES = entries.section("Runs", None, [
    entries.Path("sweep_dir", None,
                 "Directory of the sweep: results, logs, and the output directories of the runs. An existing "
                 "sweep in this directory is continued."),
    entries.Repeated("grid", None,
                     "A flag of the training command and its values, such as seed=0,1,2. Pass --grid once "
                     "for each flag. All combinations of the values are trained."),
    entries.Integer("samples", None,
                    "Train only this number of combinations, drawn at random. If you increase the number "
                    "later, the sweep adds runs. By default, all combinations are trained.", least=1),
    entries.Integer("sample_seed", 0, "Random seed of --samples."),
    entries.Integer("jobs", 1,
                    "Number of parallel runs. On a machine with GPUs, each run uses one GPU. Otherwise, each "
                    "run uses a part of the CPU cores.", least=1, most=shared_flags.MAX_WORKERS),
]) + entries.section("Results", None, [
    entries.Text("metric", None,
                 "Metric by which the runs are compared, such as eval_accuracy, eval_f1 or f1. It must be a "
                 "name in the eval_results.json of the runs. A lower value is better if the name of the "
                 "metric ends in loss, perplexity, mae, mse, rmse, error, cost, brier or ece. Otherwise, a "
                 "higher value is better."),
    entries.Choice("keep_checkpoints", "best", sweep_directory.KEPT,
                   "Runs whose checkpoints are kept. best: only the run with the best metric. The results of "
                   "all runs are always kept."),
])


def _check_base(command, own_flags, all_flags):
    """Checks the flags that all runs share.

    Args:
      command: the `training_command.CommandFlags`.
      own_flags: {flag: value as text}, the flags on the command line of the training command.
      all_flags: {flag: value as text}, the flags in `own_flags`, and the flags in the flag files of the
        training command.

    Raises:
      ValueError: the runs would share a directory, or would not train and evaluate.
    """
    # --results_dir is refused everywhere. --output_dir is refused only on the command line: a flag file may
    # contain it, because each run overrides it.
    for name, flags in (("output_dir", own_flags), ("results_dir", all_flags)):
        if name in flags:
            raise ValueError(f"--{name}={flags[name]}: all runs would write to this directory. Remove the "
                             "flag from the training command: each run gets a directory below --sweep_dir.")
    phases = [name for name in command.names if name in common_flags.PHASES]
    if any(name in all_flags for name in phases):
        for name in ("do_train", "do_eval"):
            if not command.values[name].value:
                raise ValueError(f"The training command has no --{name}=true. Each run must train and "
                                 "evaluate, so that runs can be compared. Pass --do_train=true and "
                                 "--do_eval=true, or leave out all flags whose names begin with do_.")


def _value_parser(command, arguments, own_flags):
    """Returns a function that parses a value of --grid; see `sweep_grid.parse`.

    If a flag is in --grid and in a flag file of the training command, the value of --grid is used. A flag
    that is in --grid must not be on the command line of the training command.

    Args:
      command, own_flags: see `_check_base`.
      arguments: list of str, the arguments of the training command.
    """
    def parse(name, text):
        if name in own_flags:
            raise ValueError(f"the training command already has --{name}={own_flags[name]}. Remove the flag "
                             "from the training command or from --grid.")
        values = command.parse([*arguments, f"--{name}={text}"])
        if name not in values or name in _DIRECTORIES:
            raise ValueError(f"the runs of a sweep cannot differ in --{name}. Remove it from --grid.")
        return values[name]

    return parse


def _metrics(command, task_type):
    """Returns the names of all metrics of a command, see `bertlib.tasks.target`; only those of a task type if
    the command line contains this type."""
    return {metric: None for target in registry.find_targets()
            if command in target.commands and task_type in (None, target.name)
            for metric in target.known_metrics}


def main(argv):
    """Runs the sweep."""
    settings = common_flags.read_settings("sweep_dir", "metric")
    name, arguments = training_command.split(argv[1:])
    command = training_command.CommandFlags(name)
    own_flags = command.parse(child_processes.without_flags(arguments, ["flagfile"]))
    base = command.parse(arguments)
    _check_base(command, own_flags, base)
    base.pop("output_dir", None)
    runs = sweep_grid.list_runs(sweep_grid.parse(settings.grid, _value_parser(command, arguments, own_flags)),
                                settings.samples, settings.sample_seed)
    if "task_module" not in base and "task_module" not in runs[0].settings:
        learning_curve.check_metric("metric", settings.metric, _metrics(name, base.get("task_type")))
    if files.is_remote(settings.sweep_dir):
        raise ValueError(f"--sweep_dir={settings.sweep_dir}: a sweep needs a local directory.")
    slots = child_jobs.divide_machine(settings.jobs)
    directory = sweep_directory.SweepDirectory(settings.sweep_dir, f"{name}.py", base)
    if not directory.runs:
        checks.refuse_other_kind("sweep_dir", settings.sweep_dir, sweep_directory.RECORD)
    num_failed = sweep_loop.run_sweep(
        sweep_loop.Sweep(f"{name}.py", arguments, settings.metric, settings.keep_checkpoints, slots,
                         "features_cache" in command.names and "features_cache" not in base),
        directory, runs)
    if num_failed:
        raise ChildProcessError(
            f"{num_failed} of {len(runs)} runs failed. sweep.csv contains their error messages. Their logs "
            f"are in {os.path.join(settings.sweep_dir, 'logs')}. Run the same command again to repeat only "
            "the failed runs.")
