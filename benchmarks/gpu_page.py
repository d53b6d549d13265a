"""Writes benchmarks/results/NAME.md, the tables of a result of benchmarks/gpu.py.

    python benchmarks/gpu_page.py [NAME]
"""

import os
import sys

from render import place, table
import results

_MiB = 2**20


def write(name):
    """Writes the Markdown page of a stored result of benchmarks/gpu.py. `name` is the name of the result."""
    path = results.path_of(name).removesuffix("json") + "md"
    with open(path, "w", encoding="utf-8") as writer:
        writer.write(page(results.read(name)))
    print(f"Stored: {os.path.relpath(path)}", file=sys.stderr)


def page(result):
    """Returns the page of a result, as Markdown."""
    rounds = {part: [row for row in result["rounds"] if row["part"] == part] for part in _TABLES}
    gpus = next(row["gpus"] for row in result["rounds"] if row["part"] == "devices")
    names = ", ".join(f"{gpu['name']} ({gpu['memory'] / _MiB:,.0f} MiB usable)" for gpu in gpus)
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    failures = [row for row in result["rounds"] if "error" in row or row.get("ok") is False]
    lines = [f"# Training on {names}" if gpus else "# No GPU: a tiny model on the CPU",
             f"`{result['command']}`, commit {result['commit']}; {place(result)}; {versions}.",
             f"{len(result['rounds']) - 1} measurements, {len(failures)} of them failed."]
    for part, rows in rounds.items():
        if rows:
            title, text, tabulate = _TABLES[part]
            lines += [f"## {title}", text, tabulate([row for row in rows if "error" not in row])]
            lines += [f"- **Failed**, {_labels(row)}: {' '.join(row['error'].split())}" for row in rows
                      if "error" in row]
    return "\n\n".join(line for line in lines if line) + "\n"


def _labels(row):
    return ", ".join(str(row[name]) for name in ("program", "model", "head", "length", "precision",
                                                 "recompute", "card", "replicas") if name in row) + (
        ", --use_xla" * bool(row.get("use_xla")))


def _columns(*columns):
    """Returns a function that makes a table from rows.

    Args:
      *columns: pairs (title of the column, function that takes a row and returns the text of the cell).
    """
    def tabulate(rows):
        return table([title for title, _ in columns],
                     [[cell(row) for _, cell in columns] for row in rows]) if rows else ""
    return tabulate


def _field(name, form=""):
    return name.replace("_", " "), lambda row: f"{row[name]:{form}}" if name in row else ""


def _mebibytes(name):
    return name.replace("_bytes", " MiB"), lambda row: f"{row[name] / _MiB:,.0f}"


_OK = "result", lambda row: "passed" if row["ok"] else "**failed**"


def _speed_table(rows):
    """Returns a table with a row for each model, length and precision, and a column for each program."""
    found = {}
    for row in rows:
        program = row["program"] + ", `--use_xla`" * bool(row.get("use_xla"))
        key = row["model"], row["length"], row["precision"], row["batch"]
        found.setdefault(key, {})[program] = row["examples_per_second"]
    programs = list(dict.fromkeys(program for speeds in found.values() for program in speeds))
    return table(["model", "length", "precision", "batch", *programs], [
        [*key, *(f"{speeds[program]:.1f}" if program in speeds else "" for program in programs)]
        for key, speeds in found.items()]) if found else ""


def _scaling_table(rows):
    """Returns a table with a row for each model and number of replicas. The efficiency is the number of
    examples per second and replica, relative to that of a training with one replica."""
    alone = {row["model"]: row["examples_per_second"] for row in rows if row["replicas"] == 1}
    return _columns(
        _field("model"), _field("replicas"), _field("batch"), _field("examples_per_second", ".1f"),
        ("efficiency", lambda row: f"{row['examples_per_second'] / row['replicas'] / alone[row['model']]:.0%}"
         if row["model"] in alone else ""))(rows)


def _ops_table(rows):
    """Returns a table with a row for each step. Below it, a separate table for each step lists the types
    of ops that take the most time."""
    heading = _columns(
        _field("model"), _field("length"), ("precision", lambda row: row["precision"]
                                             + ", `--use_xla`" * row["use_xla"]), _field("batch"),
        _field("kernels", ","),
        ("ms", lambda row: f"{row['device_seconds'] * 1e3:.1f}"),
        *((f"GB, {kind}", lambda row, kind=kind: f"{row['bytes'][kind] / 1e9:.2f}")
          for kind in ("matrix products", "other ops")),
        ("ops on the CPU", lambda row: ", ".join(f"{count} {kind}" for kind, count in row["on_cpu"].items())
         or "none"))(rows)
    lists = [f"{_labels(row)}:\n\n" + table(["op", "ms", "share", "calls"], [
        [kind, f"{seconds * 1e3:.2f}", f"{seconds / row['device_seconds']:.1%}", calls]
        for kind, seconds, calls in row["top"]]) for row in rows]
    return "\n\n".join(filter(None, [heading, *lists]))


# Maps each part to (title, explanation, function). The function takes the rounds of the part, and returns the
# table as text.
_TABLES = {
    "losses": ("Losses", "The largest difference between a loss of the device and the same loss of the CPU "
               "in float32. The docstring of `benchmarks/gpu.py` explains the bound.", _columns(
                   _field("head"), _field("precision"), _field("model"), _field("difference", ".1e"),
                   _field("bound", ".1e"), _OK)),
    "repeat": ("Repetition", "Tensors of the last checkpoint, the optimizer's state included, that differ "
               "from those of the first run.", _columns(
                   _field("head"), _field("precision"), _field("tensors"), _field("different"),
                   _field("different_after_kill"), _field("resumed_from"), _OK)),
    "memory": ("Memory", "The largest batch of a classifier in fp32. A check fails if the planned batch does "
               "not fit. The peak is that of the largest batch. The ratio is the peak of the planned batch, "
               "divided by the planned bytes. On a CPU, both batches are simulated.", _columns(
                   _field("model"), _field("length"), _field("recompute"), _field("card"),
                   _field("planned_batch"), _field("batch"), _mebibytes("planned_bytes"),
                   _mebibytes("peak_bytes"),
                   _field("peak_ratio", ".2f"), _OK)),
    "speed": ("Speed", "Examples per second in training, without padding and without recomputation.",
              _speed_table),
    "scaling": ("Scaling", "Examples per second of `run_classifier.py --num_replicas=N`.", _scaling_table),
    "ops": ("Ops", "One training step: kernels (on a CPU: ops), their time, and the bytes of the inputs and "
            "outputs of all ops. The bytes include tensors that stay in a cache.", _ops_table),
    "commands": ("Whole commands", "`run_squad.py` with length 384 and a batch of 32 windows, with only the "
                 "memory of a card. The recipe for 12 GB has 8 micro-batches. A check fails if a batch that "
                 "does not fit ends without advice.", _columns(
                     _field("model"), _field("card"), _field("setting"), _field("peak_gb", ".2f"),
                     _field("seconds"), ("result", lambda row: _OK[1](row) if "ok" in row else ""))),
    "training": ("Training", "Whole trainings and evaluations on samples.", _columns(
        _field("model"), _field("script"), _field("precision"), _field("metric"), _field("score", ".3f"),
        _field("seconds"))),
    "answers": ("Predictions", "Examples per second in prediction, without padding.", _columns(
        _field("model"), _field("length"), _field("precision"), _field("batch"),
        _field("examples_per_second", ".1f"))),
}


if __name__ == "__main__":
    write(*sys.argv[1:] or ["gpu"])
