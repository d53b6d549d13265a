"""The comparison of records by the code before `record_comparison.compare`; kept for one commit."""

import json
import logging

from bertlib.output_directory import best_weights, environment, output_files

_EVALUATIONS = ("eval_every_steps", "keep_best", "early_stopping_evals")
_OF_FIRST_SESSION = ("started", "from_step", "command", "flags", "arguments", "working_directory", "inputs",
                     "code", "environment")
logging = logging.getLogger("old")
logging.setLevel("CRITICAL")


def _differences(stored, now, training):
    """Compares the record in the output directory with the record of the run.

    Args:
      stored: the record in the directory.
      now: the record of the run, see `describe`.
      training: whether the run trains.

    Returns:
      a pair of dicts {name: [old value, new value]}. The first dict contains the differences for which the
      run is refused. The second dict contains all other differences.
    """
    def changed(name):
        old, new = stored.get(name), now[name]
        return old is not None and new is not None and old != new

    refused = {name: [stored[name], now[name]] for name in ("task", "task_type", "labels", "do_lower_case")
               if changed(name)}
    if changed("vocabulary"):
        refused["vocabulary"] = [_vocabulary(stored), _vocabulary(now)]
    allowed = {}
    modules = [record.get("task_module") for record in (stored, now)]
    if all(modules) and modules[0]["fingerprint"] != modules[1]["fingerprint"]:
        allowed["task_module"] = [_with_fingerprint(module["name"], module) for module in modules]
    if not training and "labels" not in refused and "task" in refused:
        # A model may be evaluated on the data of another task if both tasks have the same labels.
        allowed["task"] = refused.pop("task")
    if changed("dev_data") and "task" not in allowed:
        allowed[best_weights.DEV_DATA] = [_data(stored["dev_data"]), _data(now["dev_data"])]
    configs = stored["bert_config"], now["bert_config"]
    for name in sorted(output_files.CONFIG_KEYS & set(configs[0]) & set(configs[1])):
        may_change = name in output_files.TRAINING_CONFIG_KEYS
        if configs[0][name] != configs[1][name] and (training or not may_change):
            (allowed if may_change else refused)[name] = [config[name] for config in configs]
    old = {"num_replicas": 1, **stored["settings"]}
    new = now["settings"]
    if training:
        allowed.update({name: [old[name], new[name]] for name in new
                        if name in old and old[name] != new[name]})
    # If both runs have the same total number of micro-batches, their results are the same. For example, one
    # replica with two micro-batches gives the same result as two replicas that have one micro-batch each. So
    # changes of the two flags below are not reported.
    count_before, count_now = _count_micro_batches(old), _count_micro_batches(new)
    if count_before is not None and count_before == count_now:
        for name in ("gradient_accumulation_steps", "num_replicas"):
            allowed.pop(name, None)
    if training:
        none = {"path": None, "fingerprint": None}
        starts = [record.get("init_checkpoint") or none for record in (stored, now)]
        compared = "fingerprint" if all(start["fingerprint"] for start in starts) else "path"
        if starts[0][compared] != starts[1][compared]:
            allowed["init_checkpoint"] = [_with_fingerprint(start.get("path"), start) for start in starts]
        if changed("train_data"):
            allowed["training data"] = [_data(stored["train_data"]), _data(now["train_data"])]
        before = stored.get("versions", {})
        allowed.update({name: [before[name], version] for name, version in now["versions"].items()
                        if before.get(name) not in (None, version)})
    return refused, allowed


def _changes_of_environment(stored, now):
    """Returns the changes of the environment since the last session of a training, as a dict. Each key is the
    name of a value that has changed, and its entry is the list [old value, new value]."""
    before, after = environment.flatten(stored), environment.flatten(now)
    for session in stored.get("sessions", []):
        before.update({name: values[-1] for name, values in session["changed"].items()
                       if isinstance(values, list) and values})
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names
            if before.get(name) != after.get(name)}


def _count_micro_batches(settings):
    """Returns the number of micro-batches of all replicas in a step; None if this number depends on free
    memory or on the number of tokens."""
    count = settings.get("gradient_accumulation_steps")
    if count == 0 or count is None and settings.get("tokens_per_micro_batch"):
        return None
    return (count or 1) * settings.get("num_replicas", 1)


def _with_fingerprint(name, start):
    return f"{name} ({start['fingerprint'][:8]})" if start["fingerprint"] else name


def _vocabulary(record):
    paths = record.get("files", {})
    return _with_fingerprint(paths.get("vocab_file") or paths.get("spm_model_file"),
                             {"fingerprint": record["vocabulary"]})


def _data(data):
    counts = ", ".join(f"{value} {name}" for name, value in data.items() if name != "fingerprint")
    return _with_fingerprint(counts, data)


def _dev_paths(record):
    """Returns the paths of the development data, a list. Without --eval_file, a pre-training evaluates
    --input_file."""
    paths = record.get("files", {})
    return [paths.get(name) for name in ("data_dir", "dev_file", "predict_file")] + [
        paths.get("eval_file") or paths.get("input_file")]


def _describe_differences(differences):
    def text(value):
        return value if isinstance(value, str) else json.dumps(value)

    return "; ".join(f"{name}: {text(old)} -> {text(new)}" for name, (old, new) in differences.items())


def _name_record(record):
    return record["task"]


class Old:

    def __init__(self, now, last_step, trains):
        self._now, self._last_step, self._trains = now, last_step, trains
        self._directory = self._directory_of_weights = "d"
        self._new = self._unused_values = self._other_dev_data = None

    def _compare_record(self, newest, stored):
        """Compares the run with the record of the newest checkpoint.

        Args:
          newest: path of the newest checkpoint, or None.
          stored: the record of the newest checkpoint, or None.

        Returns:
          whether the run has steps to train.

        Raises:
          ValueError: the run cannot continue this training.
        """
        if newest is None:
            self._new = self._now if self._trains else None
            if self._directory_of_weights != self._directory:
                self._compare_evaluation(output_files.read_record(self._directory_of_weights))
            return self._trains
        step = newest if self._trains else None
        trains = self._trains and step < self._last_step
        if stored is None:
            logging.info("%s has no %s, so this run cannot be compared with the training of the checkpoints "
                         "in this directory.", self._directory, output_files.RECORD)
            self._new = {**self._now, "from_step": step} if trains else None
            return trains
        refused, allowed = _differences(stored, self._now, self._trains)
        if refused:
            raise ValueError(
                f"--output_dir={self._directory} contains a training that this run cannot continue. "
                f"According to {output_files.RECORD} there ({_name_record(stored)}), these values differ: "
                f"{_describe_differences(refused)}. Use another --output_dir, or remove the checkpoints in "
                "this directory.")
        if not trains:
            self._note_dev_data(stored, allowed.pop(best_weights.DEV_DATA, None))
        if self._trains and not trains:
            logging.info("%s was trained to step %d by %s.", self._directory, step, _name_record(stored))
            self._change_evaluations(stored, step, {name: allowed.pop(name) for name in _EVALUATIONS
                                                    if name in allowed})
        if allowed:
            if trains:
                effect = f"The training continues from step {step} with changed settings"
            elif self._trains:
                self._unused_values = _describe_differences(allowed)
                effect = ("No steps are left to train. To train with the new values, pass another "
                          "--output_dir. Trained value -> new value")
            else:
                effect = "The weights were trained with other settings. Trained value -> value of this run"
            advice = " To train from the start, pass another --output_dir." if trains else ""
            logging.warning("%s contains the training of %s. %s: %s.%s", self._directory,
                            _name_record(stored), effect, _describe_differences(allowed), advice)
        if allowed and trains:
            first = {name: stored[name] for name in _OF_FIRST_SESSION if name in stored}
            self._new = {**self._now, **first, "changes": self._add_change(stored, step, allowed)}
        changed = _changes_of_environment(stored, self._now) if trains else None
        if changed:
            session = {"step": step, "at": self._now["started"], "changed": changed}
            self._new = {**(self._new or stored), "sessions": [*stored.get("sessions", []), session]}
        elif self._new and "sessions" in stored:
            self._new["sessions"] = stored["sessions"]
        return trains

    def _note_dev_data(self, stored, change):
        """Stores the message of `warn_about_results` about the development data.

        Args:
          stored: the record of the training.
          change: [old value, new value] of the development data; None if they are the same.
        """
        if change is not None:
            is_same_path = _dev_paths(stored) == _dev_paths(self._now)
            self._other_dev_data = logging.warning if is_same_path else logging.info, " -> ".join(change)

    def _add_change(self, stored, step, changed):
        """Returns the field "changes" of the stored record, with an additional entry."""
        return [*stored["changes"], {"step": step, "at": self._now["started"], "changed": changed}]

    def _change_evaluations(self, stored, step, changed):
        """Changes settings of the evaluations in the record of a training that has no steps left. Even then,
        --keep_best decides which weights later commands use. Without --keep_best, before and now, these
        settings have no effect on such a training, and the record stays unchanged.

        Args:
          stored: the record.
          step: int, the last step of the training.
          changed: {name of a setting: [old value, new value]}.
        """
        old = stored["settings"].get("keep_best")
        new = changed.get("keep_best", [old, old])[1]
        if not changed or old is None and new is None:
            return
        effect = ("Later commands use the last weights" if new is None else
                  "The best weights are chosen again among the earlier evaluations")
        logging.warning("%s: no steps are left to train. %s, because these settings have changed: %s.",
                        self._directory, effect, _describe_differences(changed))
        new = {name: value for name, (_, value) in changed.items()}
        self._new = {**stored, "settings": {**stored["settings"], **new},
                     "changes": self._add_change(stored, step, changed)}
