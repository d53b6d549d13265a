"""Compares fine-tunings with different settings over many seeds: is one setting more stable than another?

    python benchmarks/stability.py --glue_dir=$GLUE_DIR --work_dir=output/stability \
      [--seeds=8] [--data=MRPC,MRPC-2490,CoLA] [--settings=published,bias_correction] \
      [--setting='longer=--warmup_proportion=0.3'] [--peer_python=PYTHON] [--results=stability_NAME] \
      [--stored=stability_NAME] [any flag of run_classifier.py]

Each pair of a data set and a setting is a sweep over the seeds: sweep.py trains the installed model in bf16.
Finished runs are kept in --work_dir. So an interrupted command, or a command with more seeds, settings or
data, trains only the missing runs. --setting=NAME=FLAGS adds a setting of your own, with its name and its
flags. Flags that this command does not know are passed to all trainings.

--peer_python names a Python interpreter with torch, transformers, scikit-learn, SciPy and seqeval. The
setting "hugging_face" then trains Hugging Face's model with the same start, batch size, learning rate,
schedule, clipping and weight decay. Its optimizer has bias correction. The order of the examples, the masks
of the dropout and the first weights of the head differ from those of this project.

The runs of one data set take hours. So each data set can have its own file of results: render.py makes its
tables from all results whose names begin with stability. --stored names such files. Their runs are not
trained again, and become a part of the new results. So the seeds of a setting can be trained on different
machines. The flags of all trainings and of each setting must be the same as in the stored results. Store the
new results under another name, and remove the old file.

A run failed if it diverged, or if the sweep calls it degenerate: it is not better than a constant answer. The
mean includes degenerate runs. The paired t-test compares a setting with the setting "published" on the seeds
that have a metric in both.
"""

import argparse
import functools
import json
import os
import re
import shlex
import subprocess
import sys

import compare
import results
import tasks

sys.path.insert(0, results.ROOT)

from bertlib.reports import (  # noqa: E402 (needs the path above)
    paired_predictions,
    paired_tests,
    sweep_runs,  # noqa: E402
)
from bertlib.runs.output_directory import OutputDirectory  # noqa: E402
from bertlib.system import child_processes, files  # noqa: E402

# {name of the data: (name of the task, metric, flags)}. "MRPC-2490" means MRPC with 2,490 training examples.
# It has the same development set as MRPC.
DATA = {"MRPC": ("MRPC", "eval_accuracy", ["--num_train_epochs=3"]),
        "MRPC-2490": ("MRPC", "eval_accuracy", ["--num_train_epochs=3", "--max_train_examples=2490"]),
        "CoLA": ("CoLA", "eval_matthews", ["--num_train_epochs=2"]),
        "STS-B": ("STS-B", "eval_pearson", ["--num_train_epochs=1"])}
DEFAULT_DATA = "MRPC", "MRPC-2490", "CoLA"
RECIPE = ["--do_train=true", "--do_eval=true", "--max_seq_length=128", "--train_batch_size=32",
          "--learning_rate=5e-5", "--precision=bf16"]
PUBLISHED = "published"
HUGGING_FACE = "hugging_face"
# {name of the setting: its flags}.
SETTINGS = {PUBLISHED: [],
            "bias_correction": ["--adam_bias_correction=true"],
            "warmup_0.2": ["--warmup_proportion=0.2"],
            "layer_decay_0.9": ["--layer_decay=0.9"],
            "reinit_1": ["--reinit_layers=1"],
            "freeze_embeddings": ["--freeze_embeddings=true"],
            "freeze_2": ["--freeze_layers=2"]}


def sweep_command(glue_dir, directory, data, flags, seeds):
    """Returns the command, a list of str, that trains a setting on a data set once with each seed.

    Args:
      glue_dir: directory of the folders MRPC and CoLA.
      directory: directory of the sweep.
      data: a name in `DATA`.
      flags: list of the flags of the setting, followed by the flags of all trainings.
      seeds: list of seeds.
    """
    task, metric, of_data = DATA[data]
    grid = f"--grid=seed={','.join(map(str, seeds))}"
    return [sys.executable, os.path.join(results.ROOT, "sweep.py"), f"--sweep_dir={directory}",
            f"--metric={metric}", "--keep_checkpoints=none", grid,
            "--", sys.executable, os.path.join(results.ROOT, "run_classifier.py"), f"--task_name={task}",
            f"--data_dir={os.path.abspath(os.path.join(glue_dir, task))}", *RECIPE, *of_data, *flags]


def as_run(data, setting, seed, status, message, value):
    """Returns a run as {"data", "setting", "seed", "failed", name of the metric: value}.

    Args:
      data: name of the data set.
      setting: name of the setting.
      seed: seed of the training.
      status: `sweep_runs.DONE` or `sweep_runs.DIVERGED`.
      message: the warning about the results, or "".
      value: the metric; None if the run diverged. In this case, the result has no entry for the metric.
    """
    failed = status == sweep_runs.DIVERGED or message.startswith(sweep_runs.DEGENERATE)
    values = {} if value is None else {DATA[data][1]: value}
    return {"data": data, "setting": setting, "seed": seed, "failed": failed, **values}


def read_runs(directory, data, setting, seeds):
    """Reads the runs of a sweep that have the given seeds, in the order of `seeds`.

    Returns:
      list of the results of `as_run`, one for each run.

    Raises:
      SystemExit: a run ended with an error, or is missing.
    """
    metric = DATA[data][1]
    rows = paired_predictions.read_rows(os.path.join(directory, "sweep.csv"))
    found = {int(row["seed"]): row for row in rows}
    runs = []
    for seed in seeds:
        row = found.get(seed)
        if row is None or row["status"] not in sweep_runs.NOT_REPEATED:
            raise SystemExit(f"{directory}: the run with seed {seed} has not finished. Run the same command "
                             "again.")
        value = float(row[metric]) if row["status"] == sweep_runs.DONE else None
        runs.append(as_run(data, setting, seed, row["status"], row["message"], value))
    return runs


def train(arguments, data, setting, flags, seeds):
    """Trains a setting on a data set; returns the runs with the given seeds.

    Args:
      arguments: the command line.
      data: a name in `DATA`.
      setting: name of the setting.
      flags: list of the flags of the setting, followed by the flags of all trainings.
      seeds: list of seeds.

    Returns:
      See `read_runs`.
    """
    directory = os.path.join(arguments.work_dir, data, setting)
    code = subprocess.run(sweep_command(arguments.glue_dir, directory, data, flags, seeds)).returncode
    if code:
        raise SystemExit(code)
    return read_runs(directory, data, setting, seeds)


def train_peer(arguments, data, seeds):
    """Trains Hugging Face's model on a data set; returns the runs with the given seeds.

    Each run has a file of results in --work_dir. If this file exists, the run is not repeated. The name of
    its directory contains the precision.

    Args:
      arguments: the command line.
      data: a name in `DATA`, with the recipe of the same name in tasks.py.
      seeds: list of seeds.

    Returns:
      See `read_runs`.
    """
    metric, runs = DATA[data][1], []
    work = tasks.Task(data, arguments, arguments.work_dir)
    for seed in seeds:
        directory = os.path.join(arguments.work_dir, data, f"{HUGGING_FACE}_{arguments.peer_precision}",
                                 f"seed={seed}")
        if OutputDirectory(directory).results() is None:
            settings = {"precision": arguments.peer_precision, "attention": "sdpa"}
            command = work.command(compare.HUGGING_FACE, work.steps, settings, seed)
            done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
            if done.returncode:
                raise SystemExit(done.returncode)
            found = json.loads(done.stdout.splitlines()[-1])
            values = {f"eval_{name}": value for name, value in found.items()}
            os.makedirs(directory, exist_ok=True)
            files.write_text(os.path.join(directory, "eval_results.json"), json.dumps(values))
        run = sweep_runs.Run({})
        results = OutputDirectory(directory).results()
        sweep_runs.set_result(run, child_processes.Outcome(sweep_runs.DONE), results, metric)
        runs.append(as_run(data, HUGGING_FACE, seed, run.status, run.message, run.value(metric)))
    return runs


def summarize(runs, published, metric):
    """Returns the statistics of the runs of a setting on a data set.

    Args:
      runs: see `read_runs`.
      published: the runs of the published recipe on the same data set; None if `runs` are already the runs of
        the published recipe.
      metric: name of the metric.

    Returns:
      {"runs": number of runs, "failed_share", "mean", "low", "high", "difference", "difference_low",
      "difference_high", "p_value"}. low and high are the limits of the 95 % confidence interval of the mean
      (Student's t). Each run is paired with the run of the published recipe that has the same seed, and
      "difference" is the mean difference of these pairs. Its limits and its p-value are from the paired
      t-test. A statistic is left out if it cannot be computed: limits and differences need at least two
      values, and equal differences have no p-value.
    """
    values = {run["seed"]: run[metric] for run in runs if metric in run}
    found = {"runs": len(runs), "failed_share": sum(run["failed"] for run in runs) / len(runs)}
    if not values:
        return found
    found["mean"] = sum(values.values()) / len(values)
    if len(values) > 1:
        # `compare_pairs` returns the interval of the mean difference of pairs. Here, each value is paired
        # with 0. The differences are then the values themselves, so the result is the interval of their mean.
        numbers = list(values.values())
        found["low"], found["high"] = paired_tests.compare_pairs([0.0] * len(numbers), numbers)["interval"]
    pairs = [(run[metric], values[run["seed"]]) for run in published or ()
             if metric in run and run["seed"] in values]
    if len(pairs) > 1:
        before, after = zip(*pairs)
        test = paired_tests.compare_pairs(before, after)
        found["difference"] = (sum(after) - sum(before)) / len(pairs)
        found["difference_low"], found["difference_high"] = test["interval"]
        if test["p_value"] is not None:
            found["p_value"] = test["p_value"]
    return found


def parse_settings(names, own):
    """Returns {name of a setting: its flags}, with the published recipe first.

    Args:
      names: names of settings with commas between them, or None for all in `SETTINGS`.
      own: list of "NAME=FLAGS".

    Raises:
      SystemExit: a name is unknown or not valid.
    """
    known = dict(SETTINGS)
    for text in own:
        name, equals, flags = text.partition("=")
        if not (equals and re.fullmatch(r"[\w.-]+", name)):
            raise SystemExit(f"--setting={text}: pass NAME=FLAGS. A name may contain only letters, digits, "
                             "and the characters in '_.-'.")
        known[name] = shlex.split(flags)
    chosen = [PUBLISHED, *(known if names is None else names.split(","))]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"--settings: {', '.join(unknown)} is unknown. Known are {', '.join(known)}.")
    return {name: known[name] for name in chosen}


def read_stored(names, settings, flags):
    """Returns the runs of stored results as {(data, setting, seed): run}.

    If a run has no field "origin", the field is added. It contains the CPU and the date of the results.

    Args:
      names: names of results, with commas between them; "" for none.
      settings: {name of a setting: its flags}.
      flags: list of the flags of all trainings.

    Raises:
      SystemExit: a file of results does not exist, or does not fit the arguments. It does not fit if its
        trainings had other flags than `flags`, or if a setting in it had other flags than in `settings`.
    """
    found = {}
    for name in filter(None, names.split(",")):
        try:
            result = results.read(name)
        except FileNotFoundError as error:
            raise SystemExit(f"--stored={name}: {error.filename} does not exist.") from error
        if result.get("flags") != shlex.join(flags):
            raise SystemExit(f"--stored={name}: the trainings of this result had the flags "
                             f"{result.get('flags')!r}, but this command has the flags "
                             f"{shlex.join(flags)!r}. Pass the flags of these trainings.")
        for run in result["rounds"]:
            if "seed" not in run:  # This entry is not a run: it is the summary of all runs of a setting.
                now = shlex.join(settings.get(run["setting"], shlex.split(run["flags"])))
                if run["flags"] != now:
                    raise SystemExit(f"--stored={name}: the setting {run['setting']} had the flags "
                                     f"{run['flags']!r}, and not {now!r}. Pass the same flags.")
            else:
                found[run["data"], run["setting"], run["seed"]] = {
                    **run, "origin": run.get("origin", f"{result['machine']['cpu']}; {result['date']}")}
    return found


def check_data(chosen, peer_python):
    """Raises SystemExit if the name of a data set is unknown, or if --peer_python cannot train on it."""
    unknown = [data for data in chosen if data not in DATA]
    if unknown:
        raise SystemExit(f"--data: {', '.join(unknown)} is unknown. Known are {', '.join(DATA)}.")
    without = [data for data in chosen if data not in tasks.RECIPES]
    if peer_python and without:
        raise SystemExit(f"--peer_python: Hugging Face's model is not trained on {', '.join(without)}. "
                         "Remove these data from --data.")


def describe(name, summary):
    """Returns the statistics of a setting as a line of text."""
    def interval(value, low, high):
        limits = f" [{summary[low]:.4f}, {summary[high]:.4f}]" if low in summary else ""
        return f"{summary[value]:.4f}{limits}" if value in summary else "none"

    text = (f"{name}: {interval('mean', 'low', 'high')}, failed {summary['failed_share']:.0%} of "
            f"{summary['runs']} runs")
    if "difference" in summary:
        text += f"; difference {interval('difference', 'difference_low', 'difference_high')}"
    return text + (f", p = {summary['p_value']:.3f}" if "p_value" in summary else "")


def main():
    """Trains the missing runs; prints and stores the runs and the statistics."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue_dir", required=True)
    parser.add_argument("--work_dir", required=True, help="directory of the sweeps")
    parser.add_argument("--seeds", type=int, default=8, help="number of seeds; the seeds are 0, 1, 2, …")
    parser.add_argument("--data", default=",".join(DEFAULT_DATA), help="names of "
                        f"data sets, with commas between them. The possible names are {', '.join(DATA)}")
    parser.add_argument("--settings", help="names of settings, with commas between "
                        "them; default: all. The published recipe is always included")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=FLAGS")
    parser.add_argument("--peer_python", help="Python interpreter that trains Hugging Face's "
                        "model. Without this flag, Hugging Face's model is not trained")
    parser.add_argument("--peer_precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--stored", default="", help="names of earlier results, separated by commas. "
                        "The runs in these results are not trained again")
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    paired_tests.load_scipy()
    settings = parse_settings(arguments.settings, arguments.setting)
    chosen = arguments.data.split(",")
    check_data(chosen, arguments.peer_python)
    of_peer = [f"--precision={arguments.peer_precision}"]
    stored = read_stored(arguments.stored, {**settings, HUGGING_FACE: of_peer}, flags)
    recorder = results.Recorder(arguments.results, dict.fromkeys(
        (*{metric for _, metric, _ in DATA.values()}, "failed_share", "mean", "low", "high", "difference",
         "difference_low", "difference_high", "p_value"), ""),
        [arguments.peer_python], packages=("scipy",), flags=shlex.join(flags))

    def all_runs(data, name, train_seeds):
        """Returns the runs of all seeds. Runs that are stored are not repeated. For the other seeds, this
        function calls `train_seeds`, which takes a list of seeds and trains one run for each of them."""
        missing = [seed for seed in range(arguments.seeds) if (data, name, seed) not in stored]
        trained = dict(zip(missing, train_seeds(missing) if missing else ()))
        return [trained[seed] if seed in trained else stored[data, name, seed]
                for seed in range(arguments.seeds)]

    def report(data, name, runs, published, of_setting):
        metric = DATA[data][1]
        summary = summarize(runs, published, metric)
        print(f"{data}, {describe(name, summary)}", flush=True)
        for run in runs:
            recorder.add(**run)
        recorder.add(data=data, setting=name, flags=shlex.join(of_setting), metric=metric, **summary)

    for data in chosen:
        published = None
        for name, of_setting in settings.items():
            runs = all_runs(data, name, functools.partial(
                train, arguments, data, name, [*of_setting, *flags]))
            report(data, name, runs, published, of_setting)
            published = published or runs
        if arguments.peer_python:
            runs = all_runs(data, HUGGING_FACE, functools.partial(train_peer, arguments, data))
            report(data, HUGGING_FACE, runs, published, of_peer)
    recorder.write()


if __name__ == "__main__":
    main()
