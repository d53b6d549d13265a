"""What models predict: the base class of all targets. Finds a target, the answers of a task or the flags of a
command by its name, in the tables that `bertlib.tasks` registers.

A *target* is what a model predicts for an example, such as one label for a text, or a tag for each word. The
name of a target is the "task_type" in run.json. *Answers* are how a trained model is used, see `answers`.
Most models have one kind of answers; a pre-trained model fills in masked words, and each model can also
compute vectors. This module and the modules of the targets load no TensorFlow.
"""

import functools
import importlib

# The tables of all tasks, which `register` fills. A value is the full name of a class or constant, such as
# "bertlib.tasks.squad.squad_target.Spans"; its module is imported when it is used for the first time.
TARGETS = {}  # {name of a target: its class}
ANSWERS = {}  # {task of predict.py, export.py and serve.py: the class of its answers}
COMMANDS = {}  # {command that trains: its entries in the table of flags, in the order of --help}


def register(targets, answers, commands):
    """Adds entries to `TARGETS`, `ANSWERS` and `COMMANDS`. `bertlib.tasks` calls it for all tasks."""
    TARGETS.update(targets)
    ANSWERS.update(answers)
    COMMANDS.update(commands)


def find(name):
    """Returns the class of a target, a subclass of `Target`. `name` is one of `TARGETS`."""
    return load(TARGETS[name])


def find_all():
    """Returns the list of the classes of all targets."""
    return list(map(find, TARGETS))


def find_answers(task):
    """Returns the class of the answers of a task, see `answers.Answers`. `task` is one of `ANSWERS`."""
    return load(ANSWERS[task])


def find_flags(command):
    """Returns the flags of a command that trains, a tuple of entries; see `bertlib.runs.entries`.
    `command` is one of `COMMANDS`."""
    return load(COMMANDS[command])


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
    """Returns a class or constant, such as "bertlib.tasks.tagging.tagging_target.Tags"."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


class Target:
    """Base class of the targets. The attributes and methods below belong to the class, because records, files
    and checkpoints are described by the name of a target alone. A target with labels also has objects.

    Attributes:
      name: name of the target in run.json, one of `TARGETS`.
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
      head_class: class of the head, such as "bertlib.tasks.squad.squad_head.Span".
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

    # --- The model

    @classmethod
    def answers(cls):
        """Returns the class of the answers with the name `usual_answers`."""
        return find_answers(cls.usual_answers)

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
