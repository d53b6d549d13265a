"""Compares two trainings bit by bit: their losses, weights, results, data, settings and environment."""

import glob
import json
import os
import re

import numpy as np

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, metrics_history
from bertlib.output_directory import environment
from bertlib.output_directory.directory import OutputDirectory
from bertlib.system import files, fingerprints, terminal

# Names of the values in metrics.jsonl that are not compared: the values that identify a line, and the values
# that measure the machine and not the model.
_MEASURED = ("step", "evaluation", "time", "steps_per_second", "examples_per_second", "peak_memory_gb",
             "waiting_seconds")
# Files of results whose content depends only on the weights and the data.
_RESULTS = ("eval_results*.txt", "eval_results*.json", "test_results*.tsv", "test_predictions*.tsv",
            "predictions.json", "null_odds.json")
_FIELDS_OF_DATA = ("task", "labels", "vocabulary", "do_lower_case", "bert_config", "train_data", "dev_rows")
_RESULT = {True: "the same", False: "differs", None: "not compared, because only one directory has this file"}
_OVERWRITTEN = "not compared, because a later evaluation or prediction has overwritten this file"
# Files that an evaluation of SQuAD writes in addition to eval_results.json.
_ANSWERS = ("predictions.json", "null_odds.json")
# A file with predictions. The group is the suffix of the name, such as "_mismatched".
_PREDICTIONS = re.compile(r"test_(?:results|predictions)(.*)\.tsv")
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
      "weights", "best", "results", "data", "settings", "environment" and "unknown".

    Raises:
      ValueError: the two directories have no step in common, so that nothing can be compared.
    """
    records = [OutputDirectory(directory).record for directory in (original, repeated)]
    losses = compare_losses(original, repeated, last_step)
    weights = compare_weights(original, repeated, last_step)
    if not losses["lines"] and not any(entry["step"] for entry in weights):
        raise ValueError(f"{original} and {repeated} have no logged step and no checkpoint in common. Pass a "
                         "larger --until.")
    best = compare_best(original, repeated) if is_whole else None
    results = compare_results(results_dir or original, repeated, original) if is_whole else None
    differences, unknown = compare_environments(*records)
    newest = checkpoint_formats.latest_checkpoint(repeated)
    reached = checkpoint_files.step_in_name(newest) if newest else 0
    same = not (reached < last_step or losses["different"] or any(entry["different"] for entry in weights)
                or best and (best["different"] or best["step"] != best["repeated_step"])
                or any(entry["same"] is False for entry in results or ()))
    return {"same": same, "last_step": last_step, "reached_step": reached, "losses": losses,
            "weights": weights, "best": best, "results": results,
            "data": _differences_of_data(*records), "settings": _compare_dicts(
                records[0]["settings"], records[1]["settings"], only_common=True),
            "environment": differences, "unknown": unknown}


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
    old, new = (_logged(directory, last_step) for directory in (original, repeated))
    common = [key for key in old if key in new]
    largest, differing = {}, []
    for key in common:
        names = [name for name in old[key] if name in new[key] and name not in _MEASURED]
        wrong = [name for name in names if old[key][name] != new[key][name]]
        if wrong:
            differing.append(key)
        for name in wrong:
            _note_largest(largest, name, key[0], *_difference(old[key][name], new[key][name]))
    steps = [key[0] for key in common]
    trained = [key for key in old if key[1] is None]
    return {"lines": len(common), "first_step": min(steps, default=None),
            "last_step": max(steps, default=None), "different": len(differing),
            "first_difference": min((key[0] for key in differing), default=None),
            "largest": largest, "missing": [key[0] for key in trained if key not in new]}


def _logged(directory, last_step):
    return {(row["step"], row.get("evaluation")): row
            for row in OutputDirectory(directory).history.read() if row["step"] <= last_step}


def _note_largest(largest, name, step, absolute, relative):
    entry = largest.setdefault(name, {"absolute": 0.0, "relative": 0.0, "step": step})
    entry.update(absolute=max(entry["absolute"], absolute), relative=max(entry["relative"], relative))


def _difference(old, new):
    """Returns (largest absolute difference, largest relative difference) between the elements of two values.
    Returns (0, 0) if the values are not numbers."""
    try:
        old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
        absolute = np.abs(old - new)
    except (TypeError, ValueError):
        return 0.0, 0.0
    if not absolute.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        relative = np.nan_to_num(absolute / np.maximum(np.abs(old), np.abs(new)), nan=0.0)
    return float(np.nan_to_num(absolute).max()), float(relative.max())


# --- Weights ---------------------------------------------------------------------------------------------


def compare_weights(original, repeated, last_step):
    """Compares the checkpoints of the original training and of its repetition, bit by bit.

    Only steps up to `last_step` are compared, and only those for which both directories have a checkpoint.

    Returns:
      a list with a dict for each checkpoint: {"step", "variables": number of variables, "different": number
      of variables that differ, "largest_absolute", "largest_relative", "variable": name of the variable with
      the largest absolute difference}.
    """
    old, new = ({checkpoint_files.step_in_name(prefix): prefix
                 for prefix in checkpoint_files.list_training_checkpoints(directory)}
                for directory in (original, repeated))
    return [_compare_checkpoints(step, old[step], new[step]) for step in old
            if step in new and step <= last_step]


def compare_best(original, repeated):
    """Compares the best weights of two trainings, bit by bit.

    Returns:
      a dict with the keys that `compare_weights` describes, and the key "repeated_step". If the repetition
      kept the weights of a different step, or no best weights, the weights are not compared. In this case,
      "variables" is None, and "different" is 0. If the original did not keep its best weights, the function
      returns None instead of a dict.
    """
    old, new = (OutputDirectory(directory).best for directory in (original, repeated))
    if old is None:
        return None
    if new is None or old["step"] != new["step"]:
        return {"step": old["step"], "repeated_step": new and new["step"], "variables": None, "different": 0}
    return {**_compare_checkpoints(old["step"], old["checkpoint"], new["checkpoint"]),
            "repeated_step": new["step"]}


def _compare_checkpoints(step, old, new):
    old, new = (checkpoint_formats.open_checkpoint(prefix) for prefix in (old, new))
    names = sorted({*old.shapes, *new.shapes})
    found = {"step": step, "variables": len(names), "different": 0, "largest_absolute": 0.0,
             "largest_relative": 0.0, "variable": None}
    for name in names:
        if name not in old.shapes or name not in new.shapes:
            found["different"] += 1
            found["variable"] = found["variable"] or name
            continue
        arrays = old.read(name), new.read(name)
        if arrays[0].shape == arrays[1].shape and arrays[0].tobytes() == arrays[1].tobytes():
            continue
        found["different"] += 1
        absolute, relative = _difference(*arrays) if arrays[0].shape == arrays[1].shape else (0.0, 0.0)
        if found["variable"] is None or absolute > found["largest_absolute"]:
            found.update(largest_absolute=absolute, variable=name)
        found["largest_relative"] = max(found["largest_relative"], relative)
    return found


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
    names = [{os.path.basename(path) for pattern in _RESULTS
              for path in glob.glob(os.path.join(glob.escape(directory), pattern))}
             for directory in (original, repeated)]
    found, overwritten = [], (_list_overwritten(original, names[0], training)
                              | _list_other_predictions(original, repeated, names[0]))
    for name in sorted(set.union(*names)):
        if not all(name in some for some in names):
            found.append({"file": name, "same": None})
            continue
        if name in overwritten:
            found.append({"file": name, "same": None, "is_overwritten": True})
            continue
        contents = [files.read_bytes(os.path.join(directory, name)) for directory in (original, repeated)]
        found.append({"file": name, "same": contents[0] == contents[1]})
        if name.endswith(".json") and name.startswith("eval_results") and not found[-1]["same"]:
            found[-1]["metrics"] = _compare_dicts(*(_parse(content) for content in contents))
    return found


def _list_overwritten(directory, names, training):
    """Returns the names of the result files that a later evaluation has overwritten, as a set.

    Args:
      directory: directory of the result files.
      names: names of its result files.
      training: see `compare_results`.
    """
    # The last line of an evaluation is from the end of the training.
    lines = {row["evaluation"]: row for row in OutputDirectory(training).history.read()
             if "evaluation" in row}
    found = set()
    for stem in {os.path.splitext(name)[0] for name in names if name.startswith("eval_results")}:
        values = OutputDirectory(directory).results(stem) or {}
        if lines and not any(_agree(values, line) for line in lines.values()):
            found.update([f"{stem}.json", f"{stem}.txt", *_ANSWERS])
    return found


def _list_other_predictions(original, repeated, names):
    """Returns the names of the files with predictions that a later prediction of other texts has overwritten,
    as a set. The input features of the test set show this: predict.tf_record of the two directories differs.

    Args:
      original, repeated: see `compare_results`.
      names: names of the result files in `original`.
    """
    found = set()
    for name in names:
        match = _PREDICTIONS.fullmatch(name)
        paths = match and [os.path.join(directory, f"predict{match[1]}.tf_record")
                           for directory in (original, repeated)]
        if paths and all(map(files.exists, paths)) and len(
                {fingerprints.hash_files([path])["fingerprint"] for path in paths}) == 2:
            found.add(name)
    return found


def _agree(values, line):
    """Returns whether the values of an evaluation are the values in a line of metrics.jsonl."""
    names = [name for name in values if name in line and name not in (*_MEASURED, "global_step")]
    return bool(names) and all(files.to_json(values[name]) == line[name] for name in names)


def _parse(content):
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _differences_of_data(old, new):
    fields = {name: (old.get(name), new.get(name)) for name in _FIELDS_OF_DATA}
    fields["init_checkpoint"], fields["task_module"] = (
        [(record.get(name) or {}).get("fingerprint") for record in (old, new)]
        for name in ("init_checkpoint", "task_module"))
    if all(record.get("dev_data") for record in (old, new)):  # one of the two may have evaluated nothing
        fields["dev_data"] = old["dev_data"], new["dev_data"]
    return {name: list(values) for name, values in fields.items() if values[0] != values[1]}


def compare_environments(old, new):
    """Compares the versions and the environments of two records.

    Returns:
      a pair. The first element is a dict, {name: [old value, new value]}, of the values that differ. The
      second element is a list: the names of the values that are missing in the old record.
    """
    flat = [_flat(record) for record in (old, new)]
    differences = {name: [flat[0][name], flat[1].get(name)] for name in sorted(flat[0])
                   if flat[0][name] != flat[1].get(name)}
    missing = sorted(set(flat[1]) - set(flat[0]))
    variables = [name for name in missing if name.startswith("variable ")]  # these were not set
    differences.update({name: [None, flat[1][name]] for name in variables})
    return differences, [name for name in missing if name not in variables]


def _flat(record):
    """Returns the versions and the environment of a record in one dict without nesting, {name: value}."""
    return {**{f"version of {name}": version for name, version in record.get("versions", {}).items()},
            **environment.flatten(record)}


def _compare_dicts(old, new, only_common=False):
    names = [name for name in {**old, **new} if not only_common or name in old and name in new]
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


# --- Text ------------------------------------------------------------------------------------------------


def to_text(found, notes=(), overrides=()):
    """Returns the lines of text that describe the result of `compare`."""
    lines = []
    losses, last = found["losses"], found["last_step"]
    if found["same"]:
        lines.append(f"SAME BITS up to step {last}.")
    else:
        first = _first_difference(found)
        lines.append("DIFFERENT." if first is None else
                     f"DIFFERENT. The first difference is in the values of step {first}.")
    lines.append("")
    if losses["lines"]:
        where = f"{losses['lines']} lines of {metrics_history.FILE}, steps {losses['first_step']} to " \
                f"{losses['last_step']}"
        lines.append(f"Losses:  {where}: " + (
            "the same" if not losses["different"] else
            f"{losses['different']} differ, the first at step {losses['first_difference']}"))
        lines += [f"         largest difference of {name}: {_numbers(entry['absolute'], entry['relative'])}"
                  for name, entry in losses["largest"].items()]
    else:
        lines.append(f"Losses:  not compared, because the training has no line of {metrics_history.FILE} "
                     f"up to step {last}")
    if losses["missing"]:
        steps = ", ".join(map(str, losses["missing"][:_MANY]))
        lines.append(f"         not compared, because the repetition lacks these log lines: steps {steps}")
    lines += _weights_to_text(found)
    if found["results"] is None:
        lines.append("Results: not compared, because only a part of the steps was repeated, or settings were "
                     "changed after the last step")
    elif not found["results"]:
        lines.append("Results: not compared, because the training command wrote none")
    for entry in found["results"] or ():
        lines.append(f"Results: {entry['file']}: " + (
            _OVERWRITTEN if entry.get("is_overwritten") else _RESULT[entry["same"]]))
        lines += [f"         {name}: {_short(old)} -> {_short(new)}"
                  for name, (old, new) in list(entry.get("metrics", {}).items())[:_MANY]]
    for title, part in (("Data", "data"), ("Settings", "settings"), ("Environment", "environment")):
        lines.append(f"{title}: " + ("no known difference" if not found[part] else "these values differ"))
        lines += [f"         {name}: {_short(old)} -> {_short(new)}"
                  for name, (old, new) in found[part].items()]
    if found["unknown"]:
        lines.append("Unknown for the training: " + ", ".join(found["unknown"]))
    if overrides:
        lines.append(f"Flags passed after --: {' '.join(overrides)}")
    return "\n".join([*lines, *(f"Note: {note}" for note in notes)])


def _weights_to_text(found):
    last = found["last_step"]
    lines = [f"Weights: step {entry['step']}, {_variables_to_text(entry)}" for entry in found["weights"]]
    if last not in [entry["step"] for entry in found["weights"]]:
        why = ("the training kept no checkpoint of this step" if found["reached_step"] == last else
               f"the repetition ended at step {found['reached_step']}")
        lines.append(f"Weights: step {last}: not compared, because {why}")
    best = found["best"]
    if best and best["variables"] is None:
        lines.append(f"Weights: best/: step {best['step']} -> {best['repeated_step'] or 'no weights'}")
    elif best:
        lines.append(f"Weights: best/, step {best['step']}, {_variables_to_text(best)}")
    return lines


def _variables_to_text(entry):
    return f"{terminal.counted(entry['variables'], 'variable')}: " + (
        "the same" if not entry["different"] else
        f"{entry['different']} differ; largest difference: "
        f"{_numbers(entry['largest_absolute'], entry['largest_relative'])} ({entry['variable']})")


def _first_difference(found):
    """Returns the first step at which the weights or the values in metrics.jsonl differ. Returns None if
    there is no such step."""
    best = [found["best"]] if found["best"] else []
    steps = [entry["step"] for entry in [*found["weights"], *best] if entry["different"]]
    if found["losses"]["first_difference"] is not None:
        steps.append(found["losses"]["first_difference"])
    return min(steps, default=None)


def _numbers(absolute, relative):
    return f"{absolute:.2g} absolute, {relative:.2g} relative"


def _short(value):
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 100 and text.isprintable() else repr(text[:100]) + "…"
