"""Measures the scores of a trained model and of simple baselines on the sample of MRPC.

    python benchmarks/sample.py [--seeds=5] [--results=NAME] [any flag of run_classifier.py]

First, the script prints two accuracies of each simple baseline (pair_baselines.py). For the first one,
the baseline is fitted on train and measured on dev. The second one is a cross-validation with ten folds over
all pairs. Then the script runs the training of `make mrpc`, with the flags in the Makefile, once for each
seed. --seeds=0 leaves out the training.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import pair_baselines
import results

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNITS = {"accuracy": "", "accuracy_in_ten_folds": "", "matthews": "", "cpu": "CPU s", "wall": "s"}
ROW = "accuracy {:.4f}  Matthews {:.4f}  CPU {:.0f} s  wall {:.0f} s"


def read_split(split):
    """Returns the pairs of a split as (label, first sentence, second sentence).

    The labels of the test split are in a separate file.
    """
    def read_rows(name):
        with open(os.path.join(ROOT, "samples", "MRPC", f"{name}.tsv"), encoding="utf-8") as reader:
            return [line.rstrip("\n").split("\t") for line in reader][1:]

    rows = read_rows(split)
    labels = [row[1] for row in read_rows("test_labels")] if split == "test" else [row[0] for row in rows]
    return [(int(label), row[3], row[4]) for label, row in zip(labels, rows, strict=True)]


def makefile_flags():
    """Returns the flags that `make mrpc` passes to run_classifier.py."""
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as reader:
        recipe = re.search(r"^mrpc:.*\n\t.* run_classifier\.py ((?:.*\\\n)*.*)", reader.read(), re.MULTILINE)
    return recipe[1].replace("\\\n", " ").split()


def run_once(seed, flags):
    """Trains and evaluates like `make mrpc`.

    Returns [accuracy, Matthews coefficient, CPU seconds, wall seconds].
    """
    with tempfile.TemporaryDirectory() as output_dir:
        start, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, os.path.join(ROOT, "run_classifier.py"), *makefile_flags(),
                        f"--seed={seed}", f"--output_dir={output_dir}", *flags], check=True)
        wall, after = time.time() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(os.path.join(output_dir, "eval_results.txt"), encoding="utf-8") as reader:
            results = dict(line.rstrip("\n").split(" = ", 1) for line in reader)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [float(results["eval_accuracy"]), float(results["eval_matthews"]), cpu, wall]


def main():
    """Prints the accuracy of the baselines, then a row for each seed, and then the means of these rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    recorder = results.Recorder(arguments.results, UNITS)
    train, dev, test = (read_split(split) for split in ("train", "dev", "test"))
    on_dev = pair_baselines.accuracies(train, dev)
    folded = pair_baselines.folded_accuracies(train + dev + test)
    for name in on_dev:
        print(f"{name:36}dev {on_dev[name]:.3f}  ten folds {folded[name]:.3f}", flush=True)
        recorder.add(baseline=name, accuracy=on_dev[name], accuracy_in_ten_folds=folded[name])
    rows = []
    for seed in range(arguments.seeds):
        rows.append(run_once(seed, flags))
        recorder.add(seed=seed, **dict(zip(("accuracy", "matthews", "cpu", "wall"), rows[-1])))
        print(f"seed {seed}  {ROW.format(*rows[-1])}", flush=True)
    if rows:
        means = [sum(column) / len(column) for column in zip(*rows)]
        print(f"mean    {ROW.format(*means)}")
    recorder.write()


if __name__ == "__main__":
    main()
