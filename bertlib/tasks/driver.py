"""Runs a command that trains a task. The steps of `run` are the same for all tasks, in one order. They are
the sections of `bertlib.tasks.task.Task`, of which each command has a subclass.

Flags, data, weights and the record are checked before anything is written. Exception: `Task.make_data` writes
the records of a sample, which the record of the run describes.
"""

import contextlib
import itertools
import os

from absl import logging

from bertlib.estimator import input_functions
from bertlib.runs import checks, learning_curve, record_content, run_record
from bertlib.system import files, replica_group
from bertlib.tasks import data_splits, estimator_setup, model_checks, starting_weights, training_plan
from bertlib.tasks.inference import Inference


def run(task):
    """Runs the phases (training, evaluation, prediction) that the flags name.

    Args:
      task: a `bertlib.tasks.task.Task`.

    Raises:
      ValueError, OSError: flags, files or weights cannot be used, or contradict each other.
      locks.InUseError: another process writes to one of the directories.
    """
    _resolve(task)
    inputs = _read(task)
    starting_checkpoint = _check_model(task)
    record = _check_record(task, inputs)
    estimator = _create_estimator(task, starting_checkpoint)
    _execute(task, record, _Phases(task, estimator, starting_checkpoint))


def _resolve(task):
    """Flags: sets their defaults, and reads the configuration and the vocabulary that they name. The argument
    of this function and of the next ones is that of `run`."""
    settings = task.settings
    checks.refuse_tpus(settings)
    task.resolve()
    settings.resolve_results_dir()
    task.load_config_and_tokenizer()


def _read(task):
    """Files and data: checks the directories, and reads the data. Returns {flag: paths}, the data files."""
    settings = task.settings
    checks.check_directories(settings)
    learning_curve.check_flags(settings, task.needs_do_eval)
    inputs = task.input_files()
    checks.refuse_overwriting(settings, inputs, _list_overwritten_files(task))
    task.read()
    if settings.keep_best:
        learning_curve.check_metric("keep_best", settings.keep_best, task.known_metrics)
    return inputs


def _check_model(task):
    """The model: checks its weights, and the disk for its checkpoints. Makes the data of a sample. Returns
    the starting weights, see `starting_weights.choose`."""
    settings = task.settings
    starting_checkpoint = starting_weights.choose(task)
    model_checks.check_disk(settings, task.last_step(), task.head_shapes(), task.config)
    model_checks.check_precision(settings)
    task.make_data()
    return starting_checkpoint


def _check_record(task, inputs):
    """Compares the run with the record of an earlier training. This comes before the memory is planned,
    because planning can take minutes. From now on, no flag changes. Returns the `run_record.RunRecord`."""
    settings, group = task.settings, replica_group.current()
    settings.freeze()
    record = run_record.RunRecord(settings, task.num_train_steps(), task.last_step(),
                                  _description(task, inputs))
    record.check_continuation()
    if settings.get("do_export"):
        from bertlib.tasks import export_model
        export_model.check_run(task)
    if group:
        record_content.check_replicas_agree(group, settings, record.data)
    return record


def _create_estimator(task, starting_checkpoint):
    """Describes the model, plans the memory of a step, and returns the `estimator_setup.CommandEstimator`."""
    settings = task.settings
    trainable = training_plan.create_trainable(task, starting_checkpoint)
    step_config = training_plan.create_step_config(settings, trainable, task.trims_padding(is_training=True))
    return estimator_setup.create_estimator(settings, trainable, step_config, task.last_step())


def _execute(task, record, phases):
    """The run: locks the directories, writes the record, trains, evaluates, predicts and exports."""
    settings, group, is_first = task.settings, replica_group.current(), replica_group.is_first()
    with estimator_setup.locked_directories(settings):
        if group:
            estimator_setup.check_shared_directory(settings, group)
        if is_first:
            record.write()
            task.write_skipped_lines()
        if settings.do_train:
            phases.train()
            record.mark_finished()
        phases.evaluate_and_predict()
        if settings.get("do_export") and is_first:
            from bertlib.tasks import export_model
            export_model.export_run(settings)
        if is_first:
            record.warn_of_old_weights()
        task.finish()


def _description(task, inputs):
    """Returns the `record_content.Description` of a run.

    Args:
      task: see `run`.
      inputs: the result of `Task.input_files`.
    """
    fields, module = task.record_fields(), task.module
    if module:
        fields["task_module"] = module.record(task.num_texts)
        fields["more_files"] = {**fields.get("more_files", {}), **module.copy}
    return record_content.Description(
        command=task.command, config=task.encoder_module or task.config, tokenizer=task.tokenizer,
        task_type=task.target.name, inputs=inputs if task.settings.do_train else {},
        trim_padding=task.trims_padding(is_training=True), **fields)


def _list_overwritten_files(task):
    """Returns {flag: paths}, the files that the run overwrites in --output_dir and --results_dir."""
    in_output_dir = [name for split, name in task.feature_files.items() if split == "train"]
    results = [*(name for split, name in task.feature_files.items() if split != "train"),
               *(name for split in task.result_splits for name in task.result_names(split))]
    return checks.list_overwritten_files(task.settings, results, in_output_dir)


class _Phases:
    """The phases of a run, after all checks. All replicas call the same methods in the same order."""

    def __init__(self, task, estimator, starting_checkpoint):
        self._task, self._settings, self._estimator = task, task.settings, estimator
        self._starting_checkpoint = starting_checkpoint  # see `starting_weights.choose`
        self._is_first = replica_group.is_first()
        self._splits_with_features = set()

    def train(self):
        """Trains up to the last step, or until early stopping ends the training."""
        settings, task = self._settings, self._task
        has_curve = learning_curve.is_requested(settings)
        if has_curve:
            self._write_features("dev")
        training_plan.log_training(task)
        self._write_features("train")
        if has_curve:
            from bertlib.tasks import training_with_evaluations
            training_with_evaluations.TrainingWithEvaluations(task, self._dev_scores).train(
                self._estimator, task.last_step(), self._input_fn("train"))
        else:
            self._estimator.train_to(task.last_step(), self._input_fn("train"))
        settings.reopen()  # the directory contains new checkpoints
        if self._is_first and not (has_curve or task.splits()):
            logging.info("The trained weights are in %s. This run evaluated no examples, so the quality of "
                         "the model is not known.", settings.output_dir)

    def _dev_scores(self, checkpoint):
        """Returns the scores of the development set, {metric: number}, with the weights of a checkpoint."""
        return self._infer("dev", checkpoint, self._task.evaluate_during_training)

    def evaluate_and_predict(self):
        """Evaluates or predicts each split of `Task.splits`, and writes its results. The results of all sets
        of one part, such as "dev" and "dev_mismatched", replace the earlier ones together: a killed run
        leaves no results of two models side by side."""
        settings, task = self._settings, self._task
        checkpoint = estimator_setup.evaluated_checkpoint(settings) if task.splits() else None
        for _, splits in itertools.groupby(task.splits(), data_splits.base_split):
            splits = list(splits)
            paths = [os.path.join(settings.results_dir, name) for split in splits
                     for replaced in task.replaced_splits(split) for name in task.result_names(replaced)]
            with files.replace_together(paths) if self._is_first else contextlib.nullcontext():
                for split in splits:
                    self._write_features(split)
                    self._infer(split, checkpoint, task.evaluate_and_write)

    def _infer(self, split, checkpoint, compute):
        """Applies the weights of a checkpoint to a split, whose features are written.

        Args:
          compute: `Task.evaluate_during_training` or `Task.evaluate_and_write`. Only the first replica calls
            it and returns its result.
        """
        inference = Inference(self._settings, self._estimator, self._input_fn(split), checkpoint,
                              self._starting_checkpoint, self._estimator.inference_group)
        if not self._is_first:
            return inference.follow()
        result = compute(split, inference)
        inference.finish()
        return result

    def _features_path(self, split):
        """Returns the path of the features that the run writes for a split; None if the task writes none."""
        settings, names = self._settings, self._task.feature_files
        directory = settings.output_dir if split == "train" else settings.results_dir
        return os.path.join(directory, names[split]) if split in names else None

    def _write_features(self, split):
        """Writes the features of a split, if the task writes any and this run has not written them yet."""
        path = self._features_path(split)
        if path is None or split in self._splits_with_features:
            return
        self._splits_with_features.add(split)
        if self._is_first:
            self._task.write_features(split, path)
        if group := replica_group.current():
            group.barrier()  # the other replicas read the file of replica 0

    def _input_fn(self, split):
        """Returns the input_fn that reads the features of a split."""
        settings, task, is_training = self._settings, self._task, split == "train"
        trims_padding = task.trims_padding(is_training)
        return input_functions.input_fn_builder(
            self._features_path(split) or task.feature_paths(split),
            task.feature_fields(settings.max_seq_length, split), is_training,
            drop_remainder=is_training, trimmed_fields=task.trimmed_fields if trims_padding else (),
            batch_totals=self._estimator.trainable.head.batch_totals if is_training else (),
            position_fields=task.position_fields if trims_padding else ())
