"""Runs a command that trains a task. `run` contains the steps of each run, in one order for all tasks.

The steps are: resolve the flags, look at what is in the output directory, read the data, check that the model
fits, plan memory and disk, and write. So nothing is written before everything has been checked. There is one
exception: `Task.make_data`. A command describes its task in a subclass of `bertlib.tasks.task.Task`.
"""

import contextlib
import functools
import os

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import batches
from bertlib.runs import checks, curve_table, model_config, run_record
from bertlib.system import files, replica_group
from bertlib.tasks import estimator_setup, learning_curve, model_checks, training_plan
from bertlib.tasks import head as task_head


class Inference:
    """A model with certain weights, and the examples of one split.

    Attributes:
      checkpoint: prefix of the weights; None for the weights with which a new training would start.
    """

    def __init__(self, estimator, input_fn, checkpoint):
        self._estimator, self._input_fn, self.checkpoint = estimator, input_fn, checkpoint

    def rows(self):
        """Yields the predictions for the examples, each a dict of NumPy arrays, in the order of the file."""
        return batches.restore_file_order(
            self._estimator.predict(self._input_fn, checkpoint_path=self.checkpoint))

    def evaluate(self, metrics, steps=None, name=None, batch_size=None):
        """Returns the metrics of the predictions.

        Args:
          metrics, steps, name: see `Estimator.evaluate`.
          batch_size: number of examples in a batch; None for --eval_batch_size.
        """
        def input_fn(params):
            return self._input_fn({**params, "batch_size": batch_size or params["batch_size"]})

        return self._estimator.evaluate(input_fn, steps, checkpoint_path=self.checkpoint, name=name,
                                        metrics=metrics)

    @property
    def step(self):
        """The step of the weights."""
        return checkpoint_formats.read_global_step(self.checkpoint)


def run(task):
    """Runs the phases that the flags name: training, evaluation, prediction.

    Args:
      task: a `bertlib.tasks.task.Task`.

    Raises:
      ValueError, OSError: flags, files or weights cannot be used, or contradict each other.
    """
    settings = task.settings
    # The flags, and the files that they name.
    checks.refuse_tpus(settings)
    task.resolve()
    task.load_model()
    # What is in the directories.
    checks.check_output_dir(settings)
    curve_table.check_flags(settings, task.needs_do_eval)
    inputs = task.input_files()
    checks.refuse_overwriting(settings, inputs, checks.list_overwritten_files(
        settings, _overwritten(task), filter(None, [task.records.get("train")])))
    # The data, and the weights.
    task.read()
    start = _find_starting_weights(task)
    # Memory and disk.
    num_train_steps = task.num_train_steps()
    model_checks.check_disk(settings, num_train_steps, task.head_shapes(), task.config)
    task.make_data()
    model = _create_model(task, start, num_train_steps)
    description = {"command": task.command, "config": task.config, "tokenizer": task.tokenizer,
                   "task_type": task.target.name, "inputs": inputs if settings.do_train else {},
                   "trim_padding": model.trims}
    record = run_record.RunRecord(settings, num_train_steps, {**description, **task.describe()},
                                  task.more_files())
    estimator = estimator_setup.create_estimator(settings, model, num_train_steps)
    # From here on, files are written.
    with estimator_setup.locked_directories(settings, record):
        _Phases(task, model.head, estimator, num_train_steps, record).run()
    if task.failure:
        raise task.failure


def _find_starting_weights(task):
    """Returns the weights from which the model starts, after checking that they fit the model. The result is
    None if the weights start at random, or if the encoder has its own weights."""
    settings, shapes = task.settings, task.head_shapes()
    if task.build_encoder:
        return model_checks.check_starting_weights(settings, None, shapes, None)
    start = settings.init_checkpoint
    # If --output_dir contains a checkpoint, the run loads that checkpoint, so the head in --init_checkpoint
    # does not matter.
    if start and not settings.output_directory.newest:
        # Only a run that starts from other weights compares heads.
        from bertlib.tasks import head_labels
        start = head_labels.starting_checkpoint(settings, task.describe_head())
    start = model_config.with_marker_rows(settings, task.config, start)
    model_checks.check_starting_weights(settings, task.config, shapes, start)
    if settings.do_train and settings.reinit_layers:
        start = model_config.without_reinitialized(settings, task.config, start)
    return start


def _create_model(task, start, num_train_steps):
    """Returns the `training_plan.TrainableModel` of a task.

    Args:
      task: see `run`.
      start: the result of `_find_starting_weights`.
      num_train_steps: number of steps of the schedule.
    """
    def build_model_fn(head):
        return task_head.model_fn_builder(
            head, task.config, start, task.settings.learning_rate, num_train_steps, task.num_warmup_steps(),
            use_tpu=False, use_one_hot_embeddings=False, build_encoder=task.build_encoder)

    return training_plan.TrainableModel(task.config, task.head_for_training(), task.fields, build_model_fn,
                                        trims=task.trims(is_training=True))


def _overwritten(task):
    """Returns the names of the files that a task writes into --results_dir."""
    return [*(name for split, name in task.records.items() if split != "train"), *task.other_names(),
            *(name for split in task.inferred for name in task.result_names(split))]


class _Phases:
    """The phases of a run, after all checks."""

    def __init__(self, task, head, estimator, num_train_steps, record):
        self._task, self._settings, self._head = task, task.settings, head
        self._estimator, self._num_train_steps, self._record = estimator, num_train_steps, record
        self._writes = replica_group.is_first()
        # With the cache, the features of a split are written only once.
        self._input_fn = functools.cache(self._make_input_fn)

    def run(self):
        """Trains, evaluates and predicts."""
        task = self._task
        if self._writes and getattr(self._settings, "skip_bad_lines", False):
            # A run without --skip_bad_lines loads the module of the results only if it evaluates.
            from bertlib.tasks import results
            results.write_skipped_lines(self._settings, task.skipped)
        if self._settings.do_train:
            self._train()
        checkpoint = estimator_setup.evaluated_weights(self._settings) if task.splits() else None
        for split in task.splits():
            paths = [os.path.join(self._settings.results_dir, name) for name in task.result_names(split)]
            with files.replace_together(paths) if self._writes else contextlib.nullcontext():
                self._infer(split, checkpoint, task.write)

    def _train(self):
        settings, task, curve = self._settings, self._task, None
        if curve_table.is_requested(settings):
            self._input_fn("dev")  # writes the features before the training
            curve = learning_curve.LearningCurve(
                settings, lambda checkpoint: self._infer("dev", checkpoint, task.scores), task.title,
                task.shown, task.full_score)
        training_plan.log_training(settings, task, self._num_train_steps)
        self._estimator.train(self._input_fn("train"), max_steps=self._num_train_steps, curve=curve)
        settings.reopen()
        if self._writes:
            self._record.mark_finished()
        if self._writes and not (curve or task.splits()):
            logging.info("The trained weights are in %s. This run evaluated no examples, so the quality of "
                         "the model is not known.", settings.output_dir)

    def _infer(self, split, checkpoint, use):
        """Applies the weights of a checkpoint to a split.

        Args:
          use: `Task.scores` or `Task.write`. Only the first replica calls it and returns its result. The
            other replicas help to compute the predictions.
        """
        inference = Inference(self._estimator, self._input_fn(split), checkpoint)
        return use(split, inference) if self._writes else self._task.assist(split, inference)

    def _make_input_fn(self, split):
        settings, task, is_training = self._settings, self._task, split == "train"
        directory = settings.output_dir if is_training else settings.results_dir
        path = os.path.join(directory, task.records[split]) if split in task.records else None
        if path and self._writes:
            task.write_features(split, path)
        if group := replica_group.current():
            group.barrier()  # the other replicas read the file of replica 0
        trims = task.trims(is_training)
        return task_head.input_fn_builder(
            path or task.record_paths(split), task.fields(settings.max_seq_length, split), is_training,
            drop_remainder=is_training, trimmed_fields=task.sequences if trims else (),
            batch_totals=self._head.batch_totals if is_training else (),
            position_fields=task.position_fields if trims else ())
