"""What models predict: the base class of all targets, and the only place that finds a target, the answers of
a task or the flags of a command by its name.

A *target* is what a model predicts for an example, such as one label for a text, or a tag for each word. The
name of a target is the "task_type" in run.json. *Answers* are how a trained model is used, see `answers`.
Most models have one kind of answers; a pre-trained model fills in masked words, and each model can also
compute vectors. This module and the modules of the targets load no TensorFlow.
"""

import functools
import importlib

# {name of a target: its class}. Modules are relative to `bertlib.tasks`.
_TARGETS = {
    "questions": "squad.squad_target.Spans",
    "multiple_choice": "classification.choice_target.Endings",
    "tagging": "tagging.tagging_target.Tags",
    "multilabel": "classification.text_targets.MultiLabel",
    "regression": "classification.text_targets.Score",
    "classification": "classification.text_targets.SingleLabel",
    "pre-training": "pretraining.pretraining_target.MaskedTokens"}
# {task of predict.py, export.py and serve.py: the class of its answers}.
_ANSWERS = {
    "classification": "classification.text_answers.Classification",
    "regression": "classification.text_answers.Regression",
    "multilabel": "classification.text_answers.Multilabel",
    "tagging": "tagging.tagging_target.TaggedText",
    "questions": "squad.squad_target.SquadQuestions",
    "multiple_choice": "classification.choice_target.ChosenEnding",
    "masked_words": "pretraining.pretraining_target.MaskedWords",
    "vectors": "classification.text_answers.Vectors"}
# {command that trains: its entries in the table of flags, in the order of --help}.
_FLAGS = {
    "run_classifier": "classification.classification_flags.RUN_CLASSIFIER",
    "run_classifier_with_tfhub": "classification.classification_flags.RUN_CLASSIFIER_WITH_TFHUB",
    "run_ner": "tagging.tagging_flags.RUN_NER",
    "run_pretraining": "pretraining.pretraining_flags.RUN_PRETRAINING",
    "run_squad": "squad.squad_flags.RUN_SQUAD",
    "run_swag": "classification.choice_flags.RUN_SWAG"}
NAMES, ANSWERS, COMMANDS = tuple(_TARGETS), tuple(_ANSWERS), tuple(_FLAGS)


def find(name):
    """Returns the class of a target, a subclass of `Target`. `name` is one of `NAMES`."""
    return load(_TARGETS[name])


def find_all():
    """Returns the list of the classes of all targets."""
    return list(map(find, _TARGETS))


def find_answers(task):
    """Returns the class of the answers of a task, see `answers.Answers`. `task` is one of `ANSWERS`."""
    return load(_ANSWERS[task])


def find_flags(command):
    """Returns the flags of a command that trains, a tuple of entries; see `bertlib.runs.entries`.
    `command` is one of `COMMANDS`."""
    return load(_FLAGS[command])


@functools.cache
def _flags_by_name(command):
    return {entry.name: entry for entry in find_flags(command)}


def find_flag(name, command=None):
    """Returns the entries of a flag, a list.

    Args:
      name: the flag.
      command: file name of the command, such as "run_ner.py". None, or a command that does not train or does
        not have the flag: the entries of all commands that train are returned.
    """
    own = (command or "").removesuffix(".py")
    if own in COMMANDS and name in _flags_by_name(own):
        return [_flags_by_name(own)[name]]
    return [_flags_by_name(one)[name] for one in COMMANDS if name in _flags_by_name(one)]


def is_path(name):
    """Returns whether the value of a flag is a path."""
    return any(entry.is_path for entry in find_flag(name))


def load(name):
    """Returns a class or constant of a module of `bertlib.tasks`, such as "tagging.tagging_target.Tags"."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"bertlib.tasks.{module}"), attribute)


class Target:
    """Base class of the targets. The attributes and methods below belong to the class, because records, files
    and checkpoints are described by the name of a target alone. A target with labels also has objects.

    Attributes:
      name: name of the target in run.json, one of `NAMES`.
      title: name of a head in messages, such as "a tagger".
      noun: the word for such a head in messages.
      has_labels: whether run.json contains a list of labels.
      is_score: whether the prediction is a number.
      is_multilabel: whether a prediction is any number of labels.
      variables: names of the variables of the head; () for the linear layer that several targets share.
      optional_variables: names of variables that the head may have in addition, and no other head has.
      is_pretraining: whether models are only pre-trained for this target.
      labels: list of str, the labels in the order of the outputs; None if there are none, or if only an
        object of the class knows them. `size` is the number of outputs of the head, in the same way.
      problem_type: "problem_type" in Hugging Face's configurations, or None.
      architecture: class of Hugging Face's models with such a head, or None.
      usual_answers: the task of `answers` for which a model is used by default.
      more_settings: tuple of entries of the table of flags, for the settings in run.json that are not flags.
      fractions: regular expression for the names of metrics that are fractions from 0 to 1; None if there are
        none.
      answer_separator: the text between several right answers in a table of predictions; None for the value
        of --label_separator.
      planned: name of the task in plan_memory.py, or None.
      head_class: class of the head, such as "squad.squad_head.Span"; see `load`.
    """

    name = title = problem_type = architecture = fractions = planned = None
    noun = "head"
    has_labels = is_score = is_multilabel = is_pretraining = False
    variables = optional_variables = more_settings = ()
    usual_answers = labels = size = None
    answer_separator = head_class = None

    # --- Records

    @classmethod
    def find_problem(cls, settings, longest):
        """Returns the first problem of recorded settings that contradict each other: (name of a setting, rule
        in words); None if there is no problem.

        Args:
          settings: {name: value}, from run.json.
          longest: number of positions of the model.
        """
        return

    @classmethod
    def can_predict(cls, task, trained):
        """Returns whether a model can predict the examples of a task.

        Args:
          task: value of --task_name.
          trained: name of the task that the model was trained on.
        """
        return task == trained

    @classmethod
    def processor(cls, model):
        """Returns the published processor that reads the data of a model's task; None if there is none.

        Args:
          model: a `model_directory.ModelDirectory`.
        """
        return

    @classmethod
    def read_dev_set(cls, model, path_of):
        """Returns the development set of a model as a list of pairs: the texts of an input, a tuple in the
        form that `Predictor.prepare` takes, and the right answer or None.

        Args:
          model: a `model_directory.ModelDirectory`.
          path_of: function that takes the name of a flag, and returns the path that run.json records for it.

        Raises:
          ValueError, OSError: the file is unknown, missing or damaged.
        """
        raise ValueError(f"the development set of {cls.title} cannot be read again.")

    # --- The model

    @classmethod
    def create_head(cls, *arguments):
        """Returns the head, see `bertlib.tasks.head`. Its module is imported here, because it loads
        TensorFlow."""
        return load(cls.head_class)(*arguments)

    @classmethod
    def planned_model(cls):
        """Returns the model that plan_memory.py simulates: (head, function that takes the sequence length and
        returns the `input_pipeline.Field`s)."""
        raise NotImplementedError

    # --- Tables of predictions

    @classmethod
    def may_lack_label(cls, row):
        """Returns whether a row may have an empty label. `row` is the first row of a table."""
        return False

    @classmethod
    def compared_label(cls, value, table):
        """Returns a label of a `prediction_tables.Table` as text, so that equal labels have equal texts.
        Returns None if the value needs no special form."""
        return

    @classmethod
    def score_table(cls, table):
        """Returns the `prediction_tables.Scored` of a table of predictions."""
        raise NotImplementedError

    @classmethod
    def describe_metric(cls, name, labels):
        """Returns the meaning of a metric (str) if it depends on the labels of the model, otherwise None. Two
        values of the metric can be compared only if their meanings are the same.

        Args:
          name: name of the metric.
          labels: list of str, the labels of the model in the order of its outputs.
        """
        return
