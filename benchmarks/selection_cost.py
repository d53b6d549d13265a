"""Measures the bias in the score of a sweep's best run.

    python benchmarks/selection_cost.py --sweep_dir=output/sweep --metric=eval_accuracy [--splits=2000] \\
      [--results=NAME]

The score is too high, because the run was chosen by its score on the same examples. The command estimates by
how much. It splits the development set at random into two halves, and chooses the run with the best metric on
the first half. The metric of this run on the second half is its fair score, because these examples were not
used for the choice. The difference of the two metrics is the cost of the choice. The command repeats this
procedure for many splits and prints means. A metric of half of the examples varies more than a metric of all
examples, so the cost of a choice on the whole development set is lower.

All finished runs of the sweep must have the file eval_predictions.csv for the same development set.
"""

import argparse
import json
import os
import pathlib
import sys

import numpy as np
import results

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bertlib.reports import paired_predictions  # noqa: E402 (needs the path above)


def read_runs(sweep_dir, metric):
    """Reads the predictions of all finished runs.

    Returns:
      (settings, metrics, number of rows). `settings` is a list with {flag: value} for each run. `metrics` is
      a list with a function for each run. The function takes an int array of row numbers, and returns the
      metric on these rows, in points.
    """
    with open(os.path.join(sweep_dir, "sweep.json"), encoding="utf-8") as reader:
        flags = list(json.load(reader)["runs"][0])
    rows = paired_predictions.read_rows(os.path.join(sweep_dir, "sweep.csv"))
    runs, metrics, first = [], [], None
    for row in rows:
        if row["status"] != "finished":
            continue
        name = os.path.basename(row["directory"])
        path = paired_predictions.find_table(os.path.join(sweep_dir, "runs", name))
        if path is None:
            raise SystemExit(f"The run {name} has no eval_predictions.csv.")
        table, = paired_predictions.read_tables([path])
        if first is not None:
            paired_predictions.check_pairs(first, table)
        first = first or table
        scored = table.target.score_table(table._replace(labels=first.labels))
        if metric not in scored.metrics:
            raise SystemExit(f"--metric={metric}: the predictions have only the metrics "
                             f"{', '.join(scored.metrics)}.")
        runs.append({flag: row[flag] for flag in flags})
        metrics.append(scored.metrics[metric])
    if len(runs) < 2:
        raise SystemExit(f"{sweep_dir} has {len(runs)} finished runs; at least two are needed for a choice.")
    return runs, metrics, scored.count


def split_scores(metrics, count, splits, generator):
    """Divides the examples at random into two halves, `splits` times.

    Each time, the run with the best metric on the first half is chosen.

    Returns:
      three float arrays of shape [splits]: the metric of the chosen run on the first half, the metric of the
      chosen run on the second half, and the mean metric of all runs on the second half.
    """
    chosen, fair, mean = np.zeros(splits), np.zeros(splits), np.zeros(splits)
    for index in range(splits):
        order = generator.permutation(count)
        first, second = order[:count // 2], order[count // 2:]
        on_first = np.array([metric(first) for metric in metrics])
        on_second = np.array([metric(second) for metric in metrics])
        best = generator.choice(np.flatnonzero(on_first == on_first.max()))  # one of the best runs, at random
        chosen[index], fair[index], mean[index] = on_first[best], on_second[best], on_second.mean()
    return chosen, fair, mean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sweep_dir", required=True)
    parser.add_argument("--metric", default="eval_accuracy")
    parser.add_argument("--splits", type=int, default=2000)
    parser.add_argument("--results")
    arguments = parser.parse_args()
    runs, metrics, count = read_runs(arguments.sweep_dir, arguments.metric)
    recorder = results.Recorder(arguments.results, dict.fromkeys(
        ("score", "best", "chosen", "fair", "cost", "mean_run"), "points"))
    everything = np.arange(count)
    scores = [metric(everything) for metric in metrics]
    best = int(np.argmax(scores))
    chosen, fair, mean = split_scores(metrics, count, arguments.splits, np.random.default_rng(0))
    print(f"{len(runs)} runs, {count} examples, {arguments.splits} random splits, in points of "
          f"{arguments.metric}:")
    print(f"  best run on all examples: {scores[best]:.2f} ({runs[best]})")
    print(f"  chosen run on the half that chose it: {chosen.mean():.2f}")
    print(f"  chosen run on the other half: {fair.mean():.2f} (standard deviation of the splits "
          f"{fair.std():.2f})")
    print(f"  cost of the choice: {(chosen - fair).mean():.2f}")
    print(f"  mean of all runs on the other half: {mean.mean():.2f}; the choice gains "
          f"{(fair - mean).mean():.2f}")
    for settings, score in zip(runs, scores):
        recorder.add(**settings, score=score)
    recorder.add(examples=count, splits=arguments.splits, best=scores[best], chosen=chosen.mean(),
                 fair=fair.mean(), cost=(chosen - fair).mean(), mean_run=mean.mean())
    recorder.write()


if __name__ == "__main__":
    main()
