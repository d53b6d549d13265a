"""Runs the evaluator of a cluster, which evaluates the checkpoints that the other machines write.

When an evaluation has ended, the evaluator takes the newest checkpoint. To evaluate this checkpoint, the
evaluator starts its own command again in a separate process, with flags that request only an evaluation.
"""

import os
import sys
import time

from bertlib.commands import common_flags

from absl import flags, logging

from bertlib.checkpoints import checkpoint_files
from bertlib.runs.entries import WEIGHTS
from bertlib.runs.output_directory import OutputDirectory
from bertlib.runs.record_comparison import EVALUATIONS
from bertlib.system import child_processes, files

FLAGS = flags.FLAGS

# Names of the result files that commands write.
_RESULTS = ("eval_results.txt", "eval_results_mismatched.txt", "eval_results.json")
# Longest time that the evaluator waits for the start of the training, as a multiple of --replica_timeout.
_START_TIMEOUTS = 5
# `_POLL_SECONDS` is the time between two checks of the signals and of the child process. `_LOOK_SECONDS` is
# the time between two searches for a new checkpoint.
_POLL_SECONDS, _LOOK_SECONDS = 0.05, 5.0


def follow(timeout):
    """Evaluates checkpoints in --output_dir until the training has ended by itself and its last checkpoint is
    evaluated. If the training is killed, this function waits until it is continued.

    The results are written to the folder `evaluator` in --output_dir. Each evaluation replaces the result
    files of the evaluation before it. So this function also keeps a copy of the result files of each
    evaluation, with the evaluated step in the file names.

    Args:
      timeout: float, in seconds. The training must begin within `_START_TIMEOUTS` times this number. Until
        then, --output_dir may contain an earlier training, which has ended.

    Returns:
      a `child_processes.Outcome`.

    Raises:
      ValueError: the command does not evaluate, or --output_dir was not given.
      OSError: --output_dir contains no training after the time that it has for its start.
    """
    if "do_eval" not in FLAGS:
        raise ValueError("TF_CONFIG makes this machine an evaluator, but this command cannot evaluate: it "
                         "has no flag --do_eval. Remove the evaluator from the cluster.")
    if not FLAGS.output_dir:
        raise ValueError("TF_CONFIG makes this machine an evaluator. Pass --output_dir, the directory in "
                         "which the other machines train. All machines must be able to read this directory.")
    has_begun, evaluated_step, latest_start = False, None, time.monotonic() + _START_TIMEOUTS * timeout
    logging.info("Evaluating the checkpoints in %s until the training there has ended.", FLAGS.output_dir)
    with child_processes.noted_signals() as signals:
        while not signals:
            training = OutputDirectory(FLAGS.output_dir)
            # The record is read before the checkpoint: the training saves its last checkpoint first.
            record, newest = training.record, training.latest_checkpoint
            has_ended = record is not None and record["finished_step"] is not None
            has_begun = has_begun or record is not None and not has_ended
            is_late = not has_begun and time.monotonic() >= latest_start
            step = newest and checkpoint_files.step_in_name(newest)
            if step and step != evaluated_step:  # at step 0, nothing is trained yet
                outcome = _evaluate(signals)
                # If the training has removed the checkpoint in the meantime, the evaluation may have failed
                # for this reason. Such a failure is ignored.
                if outcome.exit_code and files.exists(f"{newest}.index"):
                    # The process of the evaluation has already printed the error.
                    return outcome._replace(message=None)
                evaluated_step = None if outcome.exit_code else _keep_results(step)
            elif has_ended and (has_begun or is_late):
                return child_processes.Outcome("finished")
            elif is_late:
                raise OSError(f"--output_dir={FLAGS.output_dir}: no training has begun there. Check that the "
                              "chief runs, and that all machines see the same directory.")
            else:
                _pause(signals, min(_LOOK_SECONDS, timeout))
    return child_processes.stopped_by(signals[0])


def _pause(signals, seconds):
    end = time.monotonic() + seconds
    while not signals and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


def _evaluate(signals):
    """Evaluates the newest checkpoint in a separate process; returns its `Outcome`.

    The flags in `EVALUATIONS` are accepted only in a training, so they are removed from the command line.
    Settings that affect the weights are taken from run.json and not from this command line. run.json
    describes the training that wrote the checkpoint. The command line may describe a different training,
    which has not yet written its run.json.
    """
    record, settings = OutputDirectory(FLAGS.output_dir).record, common_flags.read_settings()
    recorded_settings = record["settings"] if record else {}
    changes = {**{entry.name: recorded_settings[entry.name] for entry in settings.entries(WEIGHTS)
                  if recorded_settings.get(entry.name) is not None},
               "do_train": "false", "do_eval": "true", "do_predict": "false", "do_export": "false",
               "eval_each_checkpoint": "false", "weights": "last",
               "results_dir": os.path.join(FLAGS.output_dir, "evaluator")}
    command = [sys.executable, *child_processes.without_flags(sys.orig_argv[1:], EVALUATIONS),
               *(f"--{name}={value}" for name, value in changes.items() if name in FLAGS)]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    child = child_processes.Child(command, environment)
    while child.runs():
        signals.forward([child])
        time.sleep(_POLL_SECONDS)
    return child.outcome


def _keep_results(step):
    """Copies the result files of an evaluation, with the evaluated step in the names of the copies.

    Args:
      step: int, the step of the newest checkpoint before the evaluation was started. If the training saved a
        newer checkpoint before the evaluation began, the evaluated step is higher than `step`. It is read
        from the results.

    Returns:
      int, the evaluated step.
    """
    results = OutputDirectory(os.path.join(FLAGS.output_dir, "evaluator"))
    step = int((results.read_results() or {}).get("global_step", step))
    for name in _RESULTS:
        if files.exists(results.join(name)):
            stem, extension = os.path.splitext(results.join(name))
            files.write_text(f"{stem}.{step}{extension}", files.read_text(results.join(name)))
    return step
