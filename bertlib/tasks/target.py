"""The base class of the targets: what models predict. The modules of the targets load no TensorFlow."""

from bertlib.runs import registry


class Target:
    """Base class of the targets. A target is always an object. That of `registry.find_target` knows no model;
    that of a run, after `Task.read`, or of a trained model also knows the labels of its model.

    Attributes:
      name: name of the target in run.json, one of `registry.TARGETS`.
      title: name of a head in messages, such as "a tagger".
      noun: the word for such a head in messages.
      has_labels: whether run.json contains a list of labels.
      is_score: whether the prediction is a number.
      is_multilabel: whether a prediction is any number of labels.
      variables: names of the variables of the head; () for the linear layer that several targets share.
      optional_variables: names of variables that the head may have in addition, and no other head has.
      is_pretraining: whether models are only pre-trained for this target.
      labels: list of str, the labels in the order of the outputs; None or empty if this object knows none.
      size: number of outputs of the head; None if this object does not know it.
      crf: whether the head has a CRF.
      problem_type: "problem_type" in Hugging Face's configurations, or None.
      architecture: class of Hugging Face's models with such a head, or None.
      usual_answers: the task of `answers` for which a model is used by default.
      more_settings: tuple of entries of the table of flags, for the settings in run.json that are not flags.
      fractions: regular expression for the names of metrics that are fractions from 0 to 1; None if there are
        none.
      answer_separator: the text between several right answers in a table of predictions; None for the value
        of --label_separator.
      planned: name of the task in plan_memory.py, or None.
    """

    name = title = problem_type = architecture = fractions = planned = None
    noun = "head"
    has_labels = crf = is_score = is_multilabel = is_pretraining = False
    variables = optional_variables = more_settings = ()
    usual_answers = labels = size = answer_separator = None

    # --- The model

    def of_model(self, model):
        """Returns the target that knows the labels of a `trained_model.TrainedModel`."""
        return self

    def answers(self):
        """Returns the class of the answers with the name `usual_answers`."""
        return registry.find_answers(self.usual_answers)

    def create_head(self):
        """Returns the head, see `bertlib.tasks.head`. Its module is imported here, because it loads
        TensorFlow."""
        raise NotImplementedError

    def planned_model(self):
        """Returns the model that plan_memory.py simulates: (head, function that takes the sequence length and
        returns the `input_pipeline.Field`s)."""
        raise NotImplementedError

    # --- Tables of predictions

    def may_lack_label(self, row):
        """Returns whether a row may have an empty label. `row` is the first row of a table."""
        return False

    def compared_label(self, value, table):
        """Returns a label of a `prediction_tables.Table` as text, so that equal labels have equal texts.
        Returns None if the value needs no special form."""
        return

    def score_table(self, table):
        """Returns the `prediction_tables.Scored` of a table of predictions."""
        raise NotImplementedError

    def describe_metric(self, name, labels):
        """Returns the meaning of a metric (str) if it depends on the labels of the model, otherwise None. Two
        values of the metric can be compared only if their meanings are the same.

        Args:
          name: name of the metric.
          labels: list of str, the labels of the model in the order of its outputs.
        """
        return
