"""Kills a training with SIGKILL at random moments, and starts the same command again.

The last checkpoint must have the same bits as the last checkpoint of an undisturbed training.
"""

import contextlib
import os
import random
import shutil
import signal
import time

from attacks.runs import CLASSIFIER, PRETRAINING, SQUAD, Run
import tensorflow.compat.v1 as tf
import tiny

TRAINING = {**CLASSIFIER, "do_eval": False, "do_predict": False, "num_train_epochs": 5}
START_FORK = "tests/tf1/forks/start.py"


def _classifier(**changes):
    return Run("run_classifier.py", {**TRAINING, **changes}, [], [])


SETTINGS = {
    "fp32": _classifier(),
    "bf16": _classifier(precision="bf16"),
    "accumulation": _classifier(gradient_accumulation_steps=4),
    "recomputed layers": _classifier(recompute="layers"),
    "recomputed attention, fp16": _classifier(recompute="attention", precision="fp16"),
    "LAMB": _classifier(optimizer="lamb"),
    "Adafactor, cosine": _classifier(optimizer="adafactor", lr_schedule="cosine"),
    "tokens_per_micro_batch": _classifier(tokens_per_micro_batch=40),
    "not trimmed, kernels": _classifier(trim_padding=False, compile_kernels=True),
    "pre-training": Run("run_pretraining.py", {**PRETRAINING, "num_train_steps": 15, "do_eval": False}, [],
                        []),
    "squad": Run("run_squad.py", {**SQUAD, "num_train_epochs": 5, "do_eval": False, "trim_padding": True}, [],
                 []),
    "a fork": Run(START_FORK, {
        **{name: TRAINING[name] for name in (
            "vocab_file", "bert_config_file", "init_checkpoint", "max_seq_length", "output_dir",
            "train_batch_size", "save_checkpoints_steps")},
        "data_dir": "headlines", "num_train_epochs": 5, "do_train": True}, [], []),
}


def _arguments(run, output):
    fork = ["fork_classifier.py"] if run.script == START_FORK else []
    return [run.script, *fork, *tiny.flags(**{**run.flags, "output_dir": output})]


def write_headlines(directory):
    """Writes the file train.tsv into a new directory. The run with the name "a fork" trains on this file."""
    directory.mkdir()
    chance = random.Random(3)
    (directory / "train.tsv").write_text("".join(f"{topic}\t{tiny.sentence(chance)}\n" for topic in (
        "sports", "politics", "science") * 4))


def tensors_of(directory):
    """Returns (name of the last checkpoint, {name of a tensor: its bytes}). The saved states of the input are
    left out."""
    prefix = tf.train.latest_checkpoint(str(directory))
    reader = tf.train.load_checkpoint(prefix)
    types = reader.get_variable_to_dtype_map()
    return os.path.basename(prefix), {name: reader.get_tensor(name).tobytes() for name in types
                                      if types[name] != tf.variant}


def attack(scripts, chance, here, undisturbed, limit):
    """Kills one run several times.

    Args:
      scripts: a `Scripts`.
      chance: random.Random.
      here: directory, a copy of the template.
      undisturbed: {setting: (seconds, tensors)} of undisturbed runs. This function adds missing entries.
      limit: function that takes a `Running` and starts to watch it. If the watched run does not end, it is
        killed. `limit` returns a function that ends the watch.

    Returns:
      (description of the kills, the last `Finished`, description of the fault or None, [script, arguments]).
    """
    setting = chance.choice(sorted(SETTINGS))
    run = SETTINGS[setting]
    if run.script == START_FORK:
        write_headlines(here / "headlines")
    if setting not in undisturbed:
        began = time.time()
        finished = scripts.run(*_arguments(run, "undisturbed"), cwd=here)
        if finished.code:
            return f"{setting}, undisturbed", finished, "it fails undisturbed", _arguments(run, "undisturbed")
        undisturbed[setting] = time.time() - began, tensors_of(here / "undisturbed")
        shutil.rmtree(here / "undisturbed")
    seconds, expected = undisturbed[setting]
    moments = [chance.uniform(0.1, 1.05) * seconds for _ in range(chance.randint(1, 3))]
    done = f"{setting}, killed after {', '.join(f'{moment:.2f}' for moment in moments)} s"
    for moment in moments:
        running = scripts.start(*_arguments(run, "output"), cwd=here)
        end = time.time() + moment
        while time.time() < end and os.path.exists(f"/proc/{running.pid}"):
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
        finished = running.wait()
        if finished.code not in (0, -signal.SIGKILL):
            wrong = f"it fails with {finished.code} before it is killed"
            return done, finished, wrong, _arguments(run, "output")
    running = scripts.start(*_arguments(run, "output"), cwd=here)
    stop = limit(running)
    finished = running.wait()
    stop()
    if finished.code:
        return done, finished, f"it does not go on: {finished.code}", _arguments(run, "output")
    name, found = tensors_of(here / "output")
    differing = [tensor for tensor, array in expected[1].items() if found.get(tensor) != array]
    wrong = None
    if name != expected[0] or differing or set(found) != set(expected[1]):
        wrong = f"{name}, not {expected[0]}; {len(differing)} of {len(found)} tensors differ: {differing[:3]}"
    return done, finished, wrong, _arguments(run, "output")
