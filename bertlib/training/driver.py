"""Runs a command that trains a task. `run` contains the steps of each run, in one order for all tasks.

The steps are: resolve the flags, look at what is in the output directory, read the data, check that the model
fits, plan memory and disk, and write. So nothing is written before everything has been checked. There is one
exception: `Task.make_data`. A command describes its task in a subclass of `Task`.
"""

import abc
import contextlib
import functools
import os

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.replicas import replica_group
from bertlib.runs import (
    checks,
    estimator_setup,
    head_labels,
    learning_curve,
    model_config,
    results,
    run_record,
    vocabularies,
)


class Task(abc.ABC):
    """The task of a run: its flags and files, its head, its metrics and its results. `run` calls the methods
    in the order in which they stand here.

    Attributes:
      settings: the `Settings` of the run.
      config: the `modeling.BertConfig`, after `load_model`.
      tokenizer: the tokenizer, after `load_model`; None if the run reads no text.
    """

    # File name of the command, such as "run_squad.py".
    command: str
    # Name of the file of features of each split. That of the split "train" is written to --output_dir, all
    # others are written to --results_dir. A task whose data are features already writes no files.
    records: dict[str, str] = {}
    # The splits that a run can evaluate or predict.
    inferred = "dev", "test"
    # The words for one example of the training in messages, and for the examples in the title of the picture.
    noun: str
    title: str
    # {metric: its name in the picture}, and the best possible value of these metrics.
    shown: dict[str, str]
    full_score = 1.0
    # Whether the development data are read only with --do_eval=true.
    needs_do_eval = True
    # An error that is raised when all results are written; None if there is none.
    failure = None

    def __init__(self, settings):
        self.settings, self.config, self.tokenizer = settings, None, None

    # --- Flags

    @abc.abstractmethod
    def resolve(self):
        """Sets each flag that is missing on the command line to its default for this run.

        Raises:
          ValueError, OSError: a required flag is missing, or flags contradict each other.
        """

    def resolve_run(self, folder, kind):
        """Sets the flags that most tasks resolve in the same way: those of the phases, --output_dir, and
        those that the training of the weights recorded. A method for `resolve`.

        Args:
          folder: name of the default --output_dir below output/.
          kind: the kind of the head, see `run_record.inherit_settings`.
        """
        self.settings.choose_phases()
        if self.settings.output_dir is None:
            self.settings.set_default("output_dir", os.path.join("output", folder))
        run_record.inherit_settings(self.settings, kind)

    def load_model(self):
        """Reads the configuration and the vocabulary of the model, and checks that the task can use them."""
        self.config = model_config.load_config(self.settings)
        self.tokenizer = vocabularies.load_tokenizer(self.settings, self.config)

    # --- Files and data

    @abc.abstractmethod
    def input_files(self):
        """Returns the data files that the run reads, as {name of a flag: list of paths}."""

    @abc.abstractmethod
    def result_names(self, split):
        """Returns the names of all files that the evaluation or the prediction of a split can write into
        --results_dir."""

    def other_names(self):
        """Returns the names of further files that the run can write into --results_dir."""
        return []

    @abc.abstractmethod
    def read(self):
        """Reads the data, and checks them.

        Raises:
          ValueError, OSError: a file is not usable.
        """

    # --- The model

    @abc.abstractmethod
    def head(self):
        """Returns the `head_labels.Head` that the model needs."""

    @abc.abstractmethod
    def head_shapes(self):
        """Returns {name: shape} of the variables of the head."""

    def starting_weights(self):
        """Returns the weights from which the model starts, after checking that they fit the model."""
        settings, config = self.settings, self.config
        start = head_labels.starting_checkpoint(settings, self.head())
        checks.check_starting_weights(settings, config, self.head_shapes(), start)
        return model_config.without_reinitialized(settings, config, start)

    @abc.abstractmethod
    def num_examples(self):
        """Returns the number of examples in an epoch of the training; 0 if the run does not train."""

    def num_train_steps(self):
        """Returns the number of steps of the schedule."""
        return estimator_setup.count_steps(self.settings, self.num_examples(), self.noun)

    def make_data(self):
        """Writes and reads data that the run makes itself, such as records of a sample. It is called after
        all checks that do not need these data."""
        return

    @abc.abstractmethod
    def build_model(self, start, num_train_steps):
        """Returns the `estimator_setup.TrainableModel`.

        Args:
          start: the weights from which the training starts, see `head_labels.starting_checkpoint`.
          num_train_steps: number of steps of the schedule.
        """

    @abc.abstractmethod
    def describe(self):
        """Returns the arguments of `run_record.describe` that depend on the task, as {name: value}."""

    def more_files(self):
        """Returns further files that describe the model, as {name: content in bytes}; see
        `model_files.model_file_contents`."""
        return {}

    # --- The run

    def skipped_lines(self):
        """Returns the list of `faults.Fault`, the lines that --skip_bad_lines left out."""
        return []

    @abc.abstractmethod
    def splits(self):
        """Returns the splits that the run evaluates or predicts at its end, such as ["dev", "test"]."""

    def write_features(self, split, path):
        """Writes the features of a split to a TFRecord file. With replicas, only replica 0 calls this method.

        Args:
          split: name of the split.
          path: path of the file, which has a name in `records`.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def input_fn(self, split, path, options):
        """Returns the input_fn that reads the features of a split.

        Args:
          split, path: see `write_features`; the path is None without such a file.
          options: keyword arguments of the builder of the input_fn, see `estimator_setup.input_options`.
        """

    @abc.abstractmethod
    def scores(self, split, inference):
        """Evaluates a split during the training. Writes no file.

        Args:
          split: name of the split.
          inference: the `Inference`.

        Returns:
          {metric: number}, with "global_step".
        """

    def assist(self, split, inference):
        """Computes the predictions of a split together with replica 0, which calls `scores` or `write`."""
        for _ in inference.rows():
            pass

    @abc.abstractmethod
    def write(self, split, inference):
        """Evaluates or predicts a split, and writes the results into --results_dir. They replace the older
        results when this method returns. For the arguments, see `scores`."""


class Inference:
    """A model with certain weights, and the examples of one split.

    Attributes:
      checkpoint: prefix of the weights; None for the weights with which a new training would start.
    """

    def __init__(self, estimator, input_fn, checkpoint):
        self._estimator, self._input_fn, self.checkpoint = estimator, input_fn, checkpoint

    def rows(self):
        """Yields the predictions for the examples, each a dict of NumPy arrays, in the order of the file."""
        return input_pipeline.restore_file_order(
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
      task: a `Task`.

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
    learning_curve.check(settings, task.needs_do_eval)
    checks.refuse_overwriting(settings, task.input_files(), checks.list_overwritten_files(
        settings, _overwritten(task), filter(None, [task.records.get("train")])))
    # The data, and the weights.
    task.read()
    start = task.starting_weights()
    # Memory and disk.
    num_train_steps = task.num_train_steps()
    checks.check_disk(settings, num_train_steps, task.head_shapes(), task.config)
    task.make_data()
    model = task.build_model(start, num_train_steps)
    description = {"command": task.command, "config": task.config, "tokenizer": task.tokenizer,
                   "trim_padding": estimator_setup.trim_padding(settings, model.trim_padding_by_default)}
    record = run_record.RunRecord(settings, num_train_steps, task.more_files(),
                                  **{**description, **task.describe()})
    estimator, step = estimator_setup.create_estimator(settings, model, num_train_steps)
    # From here on, files are written.
    with estimator_setup.locked_directories(settings, record):
        _Phases(task, estimator, step, num_train_steps).run()
    if task.failure:
        raise task.failure


def _overwritten(task):
    """Returns the names of the files that a task writes into --results_dir."""
    return [*(name for split, name in task.records.items() if split != "train"), *task.other_names(),
            *(name for split in task.inferred for name in task.result_names(split))]


class _Phases:
    """The phases of a run, after all checks."""

    def __init__(self, task, estimator, step, num_train_steps):
        self._task, self._settings, self._estimator, self._step = task, task.settings, estimator, step
        self._num_train_steps = num_train_steps
        self._writes = replica_group.is_first()
        # With the cache, the features of a split are written only once.
        self._input_fn = functools.cache(self._make_input_fn)

    def run(self):
        """Trains, evaluates and predicts."""
        task = self._task
        if self._writes:
            results.write_skipped_lines(self._settings, task.skipped_lines())
        if self._settings.do_train:
            self._train()
        checkpoint = estimator_setup.evaluated_weights(self._settings) if task.splits() else None
        for split in task.splits():
            with (results.replace_together(self._settings, task.result_names(split)) if self._writes
                  else contextlib.nullcontext()):
                self._infer(split, checkpoint, task.write)

    def _train(self):
        settings, task, curve = self._settings, self._task, None
        if learning_curve.is_requested(settings):
            self._input_fn("dev")  # writes the features before the training
            curve = learning_curve.create_learning_curve(
                settings, lambda checkpoint: self._infer("dev", checkpoint, task.scores), task.title,
                task.shown, task.full_score)
        estimator_setup.log_training(settings, task.num_examples(), task.noun, self._num_train_steps)
        self._estimator.train(self._input_fn("train"), max_steps=self._num_train_steps, curve=curve)

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
        return task.input_fn(split, path, estimator_setup.input_options(settings, self._step, is_training))
