"""Compares two trainings bit by bit: their losses, weights, results, data, settings and environment."""

import glob
import json
import os
import re

import numpy as np

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, metrics_history
from bertlib.runs import environment, record_comparison
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files, fingerprints, terminal

# Names of the values in metrics.jsonl that are not compared: the values that identify a line, and the values
# that measure the machine and not the model.
_MEASURED = ("step", "evaluation", "time", "steps_per_second", "examples_per_second", "peak_memory_gb",
             "waiting_seconds")
# Files of results whose content depends only on the weights and the data.
_RESULTS = ("*eval_results*.txt", "*eval_results*.json", "test_results*.tsv", "*_predictions*.tsv",
            "*_predictions*.csv", "*_predictions*.jsonl", "*_predictions*.conll", "predictions.json",
            "null_odds.json")
_FIELDS_OF_DATA = ("task", "labels", "vocabulary", "do_lower_case", "bert_config", "train_data", "dev_rows",
                   "dev_data")
_RESULT = {True: "the same", False: "differs", None: "not compared, because only one directory has this file"}
_OVERWRITTEN = "not compared, because a later evaluation or prediction has overwritten this file"
# The text of a comparison lists at most this number of missing steps. For each file of results, it lists at
# most this number of metrics.
_MANY = 12


def compare(original, repeated, last_step, results_dir=None, is_whole=True):
    """Compares the training in a directory with its repetition.

    Args:
      original, repeated: the output directories.
      last_step: int, the last step to compare.
      results_dir: directory of the results of the original; by default the output directory.
      is_whole: whether the repetition has all steps. If false, the best weights and the results are not
        compared.

    Returns:
      a dict that can be written as JSON: "same" (whether the repetition reached the last step, with the same
      losses, weights and results), "last_step", "reached_step" (the last step of the repetition), "losses",
      "weights", "results", "data", "settings" and "environment".

    Raises:
      ValueError: the two directories have no step in common, so that nothing can be compared.
    """
    trainings = [OutputDirectory(directory) for directory in (original, repeated)]
    records = [directory.record for directory in trainings]
    losses = compare_losses(original, repeated, last_step)
    weights = compare_weights(original, repeated, last_step)
    if not losses["lines"] and not any(entry["step"] for entry in weights):
        raise ValueError(f"{original} and {repeated} have no logged step and no checkpoint in common. Pass a "
                         "larger --until.")
    results = None
    if is_whole:
        weights += _compare_best(original, repeated)
        results = compare_results(results_dir or original, repeated, original)
    data = _compare_dicts(*map(_describe_data, records))
    if None in data.get("dev_data", ()):  # one of the two has evaluated nothing
        del data["dev_data"]
    newest = trainings[1].latest_checkpoint
    reached_step = checkpoint_files.step_in_name(newest) if newest else 0
    same = not (reached_step < last_step or losses["different"]
                or any(entry["different"] for entry in weights)
                or any(entry["same"] is False for entry in results or ()))
    return {"same": same, "last_step": last_step, "reached_step": reached_step, "losses": losses,
            "weights": weights, "results": results, "data": data,
            "settings": _compare_dicts(*map(record_comparison.settings_of_first_session, records),
                                       only_common=True),
            "environment": _compare_dicts(*map(_describe_environment, records))}


def _compare_dicts(old, new, only_common=False):
    """Returns {name: [old value, new value]} of the values that differ."""
    names = [name for name in {**old, **new} if not only_common or name in old and name in new]
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


# --- Losses and other logged values ----------------------------------------------------------------------


def compare_losses(original, repeated, last_step):
    """Compares the values in metrics.jsonl of two directories up to a step.

    Returns:
      a dict:
        "lines": number of lines that both directories have.
        "first_step", "last_step": the first and the last step of these lines.
        "different": number of these lines that differ.
        "first_difference": step of the first line that differs, or None.
        "largest": {name of a value: {"absolute", "relative", "step"}}, the largest absolute and the largest
          relative difference of the value, and the first step at which the value differs.
        "missing": steps of the lines that only the original has. Lines of evaluations are not counted. If the
          original was killed and continued, it has such lines, because the first step after each start is
          logged.
    """
    old, new = ({(row["step"], row.get("evaluation")): row
                 for row in OutputDirectory(directory).history.read() if row["step"] <= last_step}
                for directory in (original, repeated))
    steps, different_steps, largest = [key[0] for key in old if key in new], [], {}
    for key in filter(new.get, old):
        differences = _compare_dicts(old[key], new[key], only_common=True)
        differences = {name: values for name, values in differences.items() if name not in _MEASURED}
        different_steps += key[:1] if differences else ()
        for name, values in differences.items():
            absolute, relative = _difference(*values)
            entry = largest.setdefault(name, {"absolute": 0.0, "relative": 0.0, "step": key[0]})
            entry.update(absolute=max(entry["absolute"], absolute), relative=max(entry["relative"], relative))
    return {"lines": len(steps), "first_step": min(steps, default=None),
            "last_step": max(steps, default=None), "different": len(different_steps),
            "first_difference": min(different_steps, default=None), "largest": largest,
            "missing": [step for step, evaluation in old if not evaluation and (step, None) not in new]}


def _difference(old, new):
    """Returns (largest absolute difference, largest relative difference) between the elements of two values.
    Returns (0, 0) if the values are not numbers, or differ in their shapes."""
    try:
        old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
        absolute = np.abs(old - new)
    except (TypeError, ValueError):
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        relative = np.nan_to_num(absolute / np.maximum(np.abs(old), np.abs(new)), nan=0.0)
    return float(np.nan_to_num(absolute).max(initial=0)), float(relative.max(initial=0))


# --- Weights ---------------------------------------------------------------------------------------------


def compare_weights(original, repeated, last_step):
    """Compares the checkpoints of the original training and of its repetition, bit by bit.

    Only steps up to `last_step` are compared, and only those for which both directories have a checkpoint.

    Returns:
      a list with a dict for each checkpoint: {"name": for example "step 3", "step", "variables": number of
      variables, "different": number of variables that differ, "largest_absolute", "largest_relative",
      "variable": name of the variable with the largest absolute difference}.
    """
    old, new = ({checkpoint_files.step_in_name(prefix): prefix
                 for prefix in checkpoint_files.list_training_checkpoints(directory)}
                for directory in (original, repeated))
    return [_compare_checkpoints(f"step {step}", step, old[step], new[step]) for step in old
            if step in new and step <= last_step]


def _compare_best(original, repeated):
    """Compares the best weights of two trainings, bit by bit. Returns a list as `compare_weights`, which is
    empty if the original kept no best weights. If the repetition kept the weights of another step,
    "variables" is None."""
    old, new = (OutputDirectory(directory).best for directory in (original, repeated))
    if old is None:
        return []
    step = old["step"]
    if new and new["step"] == step:
        return [_compare_checkpoints(f"best/, step {step}", step, old["checkpoint"], new["checkpoint"])]
    name = f"best/: step {step} -> {new['step'] if new else 'no weights'}"
    return [{"name": name, "step": step, "variables": None, "different": 1}]


def _compare_checkpoints(title, step, old, new):
    old, new = (checkpoint_formats.open_checkpoint(prefix) for prefix in (old, new))
    differences = dict.fromkeys(old.shapes.keys() ^ new.shapes.keys(), (0.0, 0.0))
    for name in sorted(old.shapes.keys() & new.shapes.keys()):
        arrays = old.read(name), new.read(name)
        if arrays[0].shape != arrays[1].shape or arrays[0].tobytes() != arrays[1].tobytes():
            differences[name] = _difference(*arrays)
    return {"name": title, "step": step, "variables": len({*old.shapes, *new.shapes}),
            "different": len(differences),
            "largest_absolute": max((absolute for absolute, _ in differences.values()), default=0.0),
            "largest_relative": max((relative for _, relative in differences.values()), default=0.0),
            "variable": max(differences, key=differences.get, default=None)}


# --- Results, data and environment -----------------------------------------------------------------------


def compare_results(original, repeated, training):
    """Compares the result files of two directories.

    Args:
      original, repeated: the directories.
      training: the output directory of the original training. Its metrics.jsonl contains the results of the
        training. A later evaluation can overwrite the result files, but does not change metrics.jsonl.

    Returns:
      a list with a dict {"file", "same", "metrics"} for each file. "same" is None if only one of the two
      directories has the file. It is also None if a later evaluation or prediction has overwritten the file
      in `original`; the dict then has the key "is_overwritten" with the value True. "metrics" is {name: [old
      value, new value]} of the metrics that differ. Only the dict of an eval_results*.json that differs has
      the key "metrics".
    """
    old, new = ({os.path.basename(path) for pattern in _RESULTS
                 for path in glob.glob(os.path.join(glob.escape(directory), pattern))}
                for directory in (original, repeated))
    # The last line of an evaluation is from the end of the training.
    lines = {row["evaluation"]: row for row in OutputDirectory(training).history.read()
             if "evaluation" in row}
    entries = []
    for name in sorted(old | new):
        entry = {"file": name, "same": None}
        if name in old & new:
            if _is_overwritten(name, original, repeated, lines.values()):
                entry["is_overwritten"] = True
            else:
                contents = [files.read_bytes(os.path.join(path, name)) for path in (original, repeated)]
                entry["same"] = contents[0] == contents[1]
        stem, ending = os.path.splitext(name)
        if entry["same"] is False and "eval_results" in stem and ending == ".json":
            values = [OutputDirectory(path).read_results(stem) or {} for path in (original, repeated)]
            for value in values:
                # It is left out if the run takes too little CPU time, see `baselines`.
                value.get("baselines", {}).pop("bag_of_words", None)
            entry["same"] = values[0] == values[1]
            if not entry["same"]:
                entry["metrics"] = _compare_dicts(*values)
        entries.append(entry)
    return entries


def _is_overwritten(name, original, repeated, lines):
    """Returns whether a later evaluation or prediction of other texts has overwritten a file of results.

    Args:
      name: name of the file.
      original, repeated: see `compare_results`.
      lines: the evaluations at the end of the training, from its metrics.jsonl.
    """
    if name.startswith("test_"):  # the input features show whether the texts are the same
        features = re.sub(r"test_(eval_results|results|predictions)(.*)\.[a-z]+", r"predict\2.tf_record",
                          name)
        paths = [os.path.join(directory, features) for directory in (original, repeated)]
        return all(map(files.exists, paths)) and len(set(map(fingerprints.hash_file, paths))) == 2
    stem = "eval_results"
    if name.startswith("eval_"):
        stem = os.path.splitext(name)[0].replace("eval_predictions", stem)
    values = OutputDirectory(original).read_results(stem) or {}
    return bool(lines) and not any(_agree(values, line) for line in lines)


def _agree(values, line):
    """Returns whether the values of an evaluation are the values in a line of metrics.jsonl."""
    names = [name for name in values if name in line and name not in (*_MEASURED, "global_step")]
    return bool(names) and all(files.to_json(values[name]) == line[name] for name in names)


def _describe_data(record):
    fingerprints_of = {name: (record.get(name) or {}).get("fingerprint")
                       for name in ("init_checkpoint", "task_module")}
    return {**{name: record.get(name) for name in _FIELDS_OF_DATA}, **fingerprints_of}


def _describe_environment(record):
    versions = {f"version of {name}": version for name, version in record["versions"].items()}
    return dict(sorted({**versions, **environment.flatten(record)}.items()))


# --- Text ------------------------------------------------------------------------------------------------


def to_text(differences, notes=(), overrides=()):
    """Returns the lines of text that describe the result of `compare`."""
    lines = [_verdict(differences), "", *_losses_to_text(differences), *_weights_to_text(differences)]
    if differences["results"] is None:
        lines.append("Results: not compared, because only a part of the steps was repeated, or settings were "
                     "changed after the last step")
    elif not differences["results"]:
        lines.append("Results: not compared, because the training command wrote none")
    for entry in differences["results"] or ():
        lines.append(f"Results: {entry['file']}: " + (
            _OVERWRITTEN if entry.get("is_overwritten") else _RESULT[entry["same"]]))
        lines += _changes_to_text(dict(list(entry.get("metrics", {}).items())[:_MANY]))
    for part in ("data", "settings", "environment"):
        lines.append(f"{part.title()}: " + (
            "these values differ" if differences[part] else "no known difference"))
        lines += _changes_to_text(differences[part])
    if overrides:
        lines.append(f"Flags passed after --: {' '.join(overrides)}")
    return "\n".join([*lines, *(f"Note: {note}" for note in notes)])


def _verdict(differences):
    if differences["same"]:
        last_step = max([entry["step"] for entry in differences["weights"]] +
                        [differences["losses"]["last_step"] or 0])
        note = " The original has no weights and losses of later steps."
        return f"SAME BITS up to step {last_step}.{note if last_step < differences['last_step'] else ''}"
    steps = [entry["step"] for entry in differences["weights"] if entry["different"]]
    if differences["losses"]["different"]:
        steps.append(differences["losses"]["first_difference"])
    return "DIFFERENT." + (f" The first difference is in the values of step {min(steps)}." if steps else "")


def _losses_to_text(differences):
    losses = differences["losses"]
    if not losses["lines"]:
        lines = [f"Losses:  not compared, because the training has no line of {metrics_history.FILE} up to "
                 f"step {differences['last_step']}"]
    else:
        result = (f"{losses['different']} differ, the first at step {losses['first_difference']}"
                  if losses["different"] else "the same")
        lines = [f"Losses:  {losses['lines']} lines of {metrics_history.FILE}, steps {losses['first_step']} "
                 f"to {losses['last_step']}: {result}"]
    lines += [f"         largest difference of {name}: {_numbers(entry['absolute'], entry['relative'])}"
              for name, entry in losses["largest"].items()]
    if losses["missing"]:
        steps = ", ".join(map(str, losses["missing"][:_MANY]))
        lines.append(f"         not compared, because the repetition lacks these log lines: steps {steps}")
    return lines


def _weights_to_text(differences):
    lines, last = [], differences["last_step"]
    for entry in differences["weights"]:
        text = f"Weights: {entry['name']}"
        if entry["variables"] is not None:
            text += f", {terminal.counted(entry['variables'], 'variable')}: " + (
                f"{entry['different']} differ; largest difference: "
                f"{_numbers(entry['largest_absolute'], entry['largest_relative'])} ({entry['variable']})"
                if entry["different"] else "the same")
        lines.append(text)
    if f"step {last}" not in [entry["name"] for entry in differences["weights"]]:
        why = ("the training kept no checkpoint of this step" if differences["reached_step"] == last else
               f"the repetition ended at step {differences['reached_step']}")
        lines.append(f"Weights: step {last}: not compared, because {why}")
    return lines


def _changes_to_text(changes):
    """Returns the lines for {name: (old value, new value)}."""
    return [f"         {name}: {_short(old)} -> {_short(new)}" for name, (old, new) in changes.items()]


def _numbers(absolute, relative):
    return f"{absolute:.2g} absolute, {relative:.2g} relative"


def _short(value):
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 100 and text.isprintable() else repr(text[:100]) + "…"
