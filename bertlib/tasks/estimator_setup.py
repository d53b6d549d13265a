"""Creates the Estimator of a run, and locks the directories of the run. If the Estimator runs out of memory,
its error message names the flags to change."""

import contextlib
import os

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator, run_config
from bertlib.estimator.step_config import parse_steps
from bertlib.system import files, locks, replica_group, stopping
from bertlib.tasks import training_plan


def evaluated_checkpoint(settings):
    """Returns the prefix of the weights that a run evaluates at its end: the best or the newest weights in
    --output_dir. The result is None if there are none. All replicas use what replica 0 finds.

    Another process may be training in --output_dir. The run uses what it has read once (see
    `Settings.output_directory`), so that all its results belong to the same weights.

    Args:
      settings: a `Settings`.
    """
    checkpoint, group = None, replica_group.current()
    if replica_group.is_first():
        checkpoint = settings.output_directory.directory_of_weights(settings.weights).latest_checkpoint
    return group.broadcast(checkpoint) if group else checkpoint


class CommandEstimator(estimator.Estimator):
    """An Estimator whose error names the flags to change if a training runs out of memory. If the run does
    not train, this Estimator writes nothing into --output_dir.

    Attributes:
      trainable: the `training_plan.TrainableModel`.
    """

    def __init__(self, settings, trainable, hooks, **arguments):
        super().__init__(trainable.build_model_fn(trainable.head), **arguments)
        self._settings, self.trainable, self._hooks = settings, trainable, hooks

    def _default_checkpoint(self):
        return None  # the callers name the checkpoint of the weights; None means the starting weights

    def eval_dir(self, name=None):
        return os.path.join(self._settings.results_dir, os.path.basename(super().eval_dir(name)))

    def train_to(self, last_step, input_fn, hooks=(), listeners=()):
        """Trains, see `estimator.Estimator.train`.

        Args:
          last_step: the step at which the training ends.
          input_fn, listeners: see `estimator.Estimator.train`.
          hooks: list of SessionRunHook. Only replica 0 runs them.
        """
        hooks = [*self._hooks, *hooks] if self.config.is_chief else []
        try:
            return self.train(input_fn, hooks, max_steps=last_step, saving_listeners=listeners)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(training_plan.out_of_memory_message(
                self._settings, self.trainable, self.config.step_config)) from error


def _profile_hooks(settings, last_step):
    """Returns the hooks that trace the steps of --profile_steps.

    Args:
      settings: a `Settings`.
      last_step: the step at which the training ends.

    Raises:
      ValueError: the training ends before these steps, or the run does not train.
    """
    # Only a run with --profile_steps loads the profiler.
    from bertlib.estimator import profiling
    first, last = parse_steps(settings.profile_steps)
    if not settings.do_train:
        raise ValueError(f"--profile_steps={settings.profile_steps} has an effect only in training: pass "
                         "--do_train=true, or leave --profile_steps out.")
    if last > last_step:
        raise ValueError(f"--profile_steps={settings.profile_steps}: training ends at step "
                         f"{last_step}. Pass steps from 1 to {last_step}, or train longer.")
    return [profiling.ProfileHook(settings.output_dir, first, last)]


def create_estimator(settings, trainable, step_config, last_step):
    """Returns the `estimator.Estimator` that the flags describe.

    Args:
      settings: a `Settings`.
      trainable: a `TrainableModel`.
      step_config: the `StepConfig`, see `training_plan.create_step_config`.
      last_step: the step at which the training ends.

    Raises:
      ValueError: --profile_steps does not fit the training.
    """
    hooks = [] if settings.profile_steps is None else _profile_hooks(settings, last_step)
    history = None
    if settings.do_train and replica_group.is_first():
        history = settings.output_directory.history
    config = run_config.RunConfig(
        model_dir=settings.output_dir, tf_random_seed=settings.seed,
        save_checkpoints_steps=settings.save_checkpoints_steps,
        keep_checkpoint_max=settings.keep_checkpoint_max,
        log_step_count_steps=settings.log_steps, save_summary_steps=settings.log_steps,
        step_config=step_config, stop_request=stopping.request,
        metrics_history=history)
    return CommandEstimator(settings, trainable, hooks, config=config,
                            train_batch_size=settings.train_batch_size if settings.do_train else None)


@contextlib.contextmanager
def locked_directories(settings):
    """Returns a context manager. It creates the directories to which the run writes, and locks them during
    its block. With replicas, only replica 0 locks them.

    Args:
      settings: a `Settings`.

    Raises:
      locks.InUseError: another process writes to one of the directories.
    """
    directories = dict.fromkeys([*([settings.output_dir] if settings.do_train else []), settings.results_dir])
    with contextlib.ExitStack() as stack:
        for directory in directories if replica_group.is_first() else ():
            files.make_directories(directory)
            try:
                stack.enter_context(locks.lock_directory(directory))
            except locks.InUseError as error:
                if settings.do_train:
                    raise
                raise locks.InUseError(f"{error} With --results_dir=DIRECTORY, evaluation and prediction "
                                       "write to that directory, and can run while the other process "
                                       "runs.") from error
        yield


def check_shared_directory(settings, group):
    """Checks that all replicas see the output files of replica 0, which must have locked the directories.
    Then moves the log of this replica into the output directory.

    Args:
      settings: a `Settings`.
      group: the `replica_group.Group` of the replicas.

    Raises:
      ValueError: a replica does not see the files of replica 0.
    """
    directory = settings.output_dir if settings.do_train else settings.results_dir
    unseen = group.replicas_not_seeing(directory)
    if unseen:
        flag = "--output_dir" if settings.do_train else "--results_dir"
        others = ", ".join(map(group.name, unseen))
        raise ValueError(f"{flag}={directory} is another directory for {others}: it does not contain the "
                         "files that replica 0 writes. Name a directory on a file system that all machines "
                         "share.")
    group.keep_log(directory)
