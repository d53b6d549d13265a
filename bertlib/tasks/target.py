"""The base class of the targets: what models predict. The modules of the targets load no TensorFlow."""

from bertlib.runs import registry


class Target:
    """Base class of the targets. `registry.find_target` returns a target without labels. After `Task.read`,
    the target of a run has the labels of its model, as has the target of a `TrainedModel`.

    Attributes:
      name: name of the target in run.json, one of `registry.TARGETS`.
      title: name of a head in messages, such as "a tagger".
      usual_answers: the task of `answers` for which a model is used by default.
      more_settings: tuple of entries of the table of flags, for the settings in run.json that are not flags.

      labels: list of str, the labels in the order of the outputs; empty if this object knows none. None for
        targets without labels.
      is_score: whether the prediction is a number.
      is_multilabel: whether a prediction is any number of labels.
      separator: the text between several labels or right answers of an example in a table of predictions.
      commands: names of the commands that train such models, without ".py".
      known_metrics: names of the metrics of an evaluation. "*" stands for any text, such as a label.
      fractions: regular expression for the names of metrics that are fractions from 0 to 1; None if there are
        none.

      variables: names of the variables of the head; () for the linear layer that several targets share.
      crf: whether the head has a CRF.
      is_pretraining: whether models are only pre-trained for this target.
      architecture: class of Hugging Face's models with such a head, or None.
      problem_type: "problem_type" in Hugging Face's configurations, or None.
    """

    name = title = labels = fractions = architecture = problem_type = None
    is_score = is_multilabel = crf = is_pretraining = False
    more_settings = variables = commands = known_metrics = ()
    separator = ","

    # --- The model

    def with_labels(self, labels, setting):
        """Returns the target of a trained model.

        Args:
          labels: list of str, the labels of the model; None if it has none.
          setting: function that takes the name of a setting, and returns its value in run.json.
        """
        return self

    @property
    def size(self):
        """The number of outputs of the shared linear layer: one for each label, or one for a score."""
        return 1 if self.labels is None else len(self.labels)

    @property
    def usual_answers(self):
        return self.name

    def answers(self):
        """Returns the class of the answers with the name `usual_answers`."""
        return registry.find_answers(self.usual_answers)

    def create_head(self):
        """Returns the head, see `bertlib.tasks.head`. Its module is imported here, because it loads
        TensorFlow."""
        raise NotImplementedError

    def feature_fields(self, seq_length, is_training=True):
        """Returns the list of `example_encoding.Field`s of an example."""
        raise NotImplementedError

    # --- Files and tables of predictions

    def label_kind(self, setting):
        """Returns the `header_rows.LabelKind` of the user's own files. For `setting`, see `with_labels`."""
        from bertlib.data.header_rows import LabelKind
        return LabelKind(self.is_score, self.is_multilabel, setting("label_separator") or ",")

    def score_table(self, table):
        """Returns the `prediction_tables.Scored` of a table of predictions."""
        raise NotImplementedError

    def compared_label(self, value):
        """Returns a label in a table as text, so that equal labels have equal texts. Returns None if the
        value needs no special form."""
        return

    def describe_metric(self, name):
        """Returns the meaning of a metric (str) if it depends on the labels of the model, otherwise None. Two
        values of the metric can be compared only if their meanings are the same."""
        return
