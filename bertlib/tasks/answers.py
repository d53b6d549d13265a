"""Base class of the answers of a task: what a trained model is asked, and how it answers.

The classes are found with `registry.find_answers`. They convert texts to inputs of the model, and outputs of
the model to answers. They also read the development set of a trained model again.
"""

import functools
import math

from bertlib.data.columns import is_blank, parse_columns
from bertlib.data.example_encoding import ENCODER_INPUTS
from bertlib.runs import registry
from bertlib.runs.entries import flag_text

_DIGITS = 6
VECTORS = "vectors"  # the answers that each model can give
# The key of a prediction in the answers of each task, before all tasks got the key "prediction".
_OLDER_KEYS = ("label", "labels", "score", "tags", "answer")


class Answers:
    """Base class of the answers.

    Attributes:
      model: a `trained_model.TrainedModel`.
      task: one of `registry.ANSWERS`, see `create`.
      fields: names of the texts of an input, such as ("text_a", "text_b").
      required: number of texts that an input must have. All further texts are optional.
      extra_inputs: names of the inputs of the head in addition to the inputs of the encoder; see
        `loaded_model.LoadedModel`.
      formats: the file formats other than SavedModel to which the model can be exported.
      exports_texts: whether a SavedModel can contain the steps from text to tokens; see `export_text`.
      takes_words: whether an input may also be a list of words, and a file may be in CoNLL columns. The
        class then has the methods `read_words`, `is_row` and `complete_tags` of `tagging_target.TaggedText`.
      has_label: whether the prediction is one of the labels of the training data.
      refuses_more: whether a line of plain text must not have more texts than `fields`. Otherwise, the last
        field contains the rest of the line.
      word_keys: names of the keys of such lists in JSON Lines.
      folder_suffix: end of the name of the default folder of an export.
      sample: {name of a field: text}, for the description of the server; None for texts without meaning.
    """

    required = 1
    extra_inputs = formats = word_keys = ()
    exports_texts = takes_words = has_label = refuses_more = False
    folder_suffix, sample = "", None

    def __init__(self, model):
        """Creates the answers of a model.

        Args:
          model: a `trained_model.TrainedModel`.
        """
        self.model = model
        self.num_truncated = 0  # number of inputs from which tokens were removed

    def count_truncated(self, num_tokens):
        """Counts an input if it has more tokens than the model reads. `num_tokens` is the number of its
        tokens before truncation, with special tokens."""
        self.num_truncated += num_tokens > self.model.max_seq_length

    @functools.cached_property
    def limited_tokenizer(self):
        """The tokenizer of the model. It stops after the largest number of tokens that the model reads."""
        return self.model.tokenizer.limited(self.model.max_seq_length)

    # --- The data of a trained model

    @classmethod
    def can_predict(cls, task, trained):
        """Returns whether a model can predict the examples of a task.

        Args:
          task: value of --task_name.
          trained: name of the task that the model was trained on.
        """
        return task == trained

    @classmethod
    def find_processor(cls, model):
        """Returns the published processor that reads the data of a model's task; None if there is none.

        Args:
          model: a `trained_model.TrainedModel`.
        """
        return

    @classmethod
    def read_dev_set(cls, model, path_of):
        """Returns the development set of a model as a list of pairs: the texts of an input, a tuple in the
        form that `Predictor.prepare` takes, and the right answer or None.

        Args:
          model: a `trained_model.TrainedModel`.
          path_of: function that takes the name of a flag, and returns the path that run.json records for it.

        Raises:
          ValueError, OSError: the file is unknown, missing or damaged.
        """
        raise ValueError(f"the development set of {model.target.title} cannot be read again.")

    # --- Inputs and outputs

    @property
    def head(self):
        """The head of the model, see `bertlib.tasks.head`. Needs TensorFlow."""
        return self.model.target.create_head()

    @property
    def input_names(self):
        """Names of the inputs of the model: those of the encoder, and `extra_inputs`."""
        return (*ENCODER_INPUTS, *self.extra_inputs)

    def preprocess(self, *values):
        """Converts the texts of an input.

        Args:
          *values: the texts, see `texts_in_order`.

        Returns:
          (rows, details). `rows` contains the inputs of the model for each window, {name: list of int}.
          `details` is the data that `postprocess` needs in addition to the model's outputs.

        Raises:
          ValueError: a text cannot be used.
        """
        raise NotImplementedError

    def postprocess(self, outputs, details):
        """Returns the answer, a dict that can be written as JSON. `outputs` is a list with the model's
        outputs for each window, {name: array}."""
        raise NotImplementedError

    def probability_labels(self):
        """Returns the labels whose probabilities need a column in a CSV table. Its header is written with the
        first answer, which may lack some of them."""
        return ()

    @staticmethod
    def find_unread(names, found):
        """Returns an error message if a file has a column that looks like a text but would not be read;
        otherwise None.

        Args:
          names: list of str, the names of all columns.
          found: sequence of str, the names of the columns that are read.
        """

    @functools.cached_property
    def _other_names(self):
        """{other name of a text in an input: name of its field}. These are the columns of the training, those
        of the task's own files, the keys in `word_keys`, and "text" if one text is enough."""
        model = self.model
        trained, processor = model.setting("text_column", None), model.processor
        names = [*(processor.names_of_texts() if processor else ()),
                 parse_columns(trained, by_name=model.has_named_columns) if trained else (),
                 *([key] for key in self.word_keys), ["text"] if self.required == 1 else ()]
        return {name: field for columns in names for name, field in zip(columns, self.fields)}

    def describe_fields(self):
        """Returns the names of the texts of an input as text, such as "text_a (or: Message, text)"."""
        others = [name for name in self._other_names if name not in self.fields]
        return ", ".join(self.fields) + (f" (or: {', '.join(others)})" if others else "")

    def named_fields(self, fields):
        """Returns an input, {name of a field: value}, in which a name of `_other_names` is replaced by the
        name of the field, unless the input has several names of one field."""
        named = {name if name in self.fields else self._other_names.get(name, name): value
                 for name, value in fields.items()}
        return named if len(named) == len(fields) else fields

    def texts_in_order(self, texts, fields):
        """Returns the texts of an input as a list, in the order of `self.fields`.

        Args:
          texts: the first texts of the input, in this order. None at the end counts as missing.
          fields: {name: text}, the other texts by name. None counts as missing.

        Raises:
          TypeError: there are too many texts, a text was given twice, or a name is unknown.
        """
        texts, names = list(texts), self.fields
        while texts and texts[-1] is None:
            texts.pop()
        fields = self.named_fields({name: text for name, text in fields.items() if text is not None})
        values = {**dict(zip(names, texts)), **fields}
        unknown = [f"unknown field {name!r:.40}: " for name in fields if name not in names]
        if unknown or len(values) != len(texts) + len(fields):
            raise TypeError(f"{''.join(unknown[:1])}the texts of an input are {self.describe_fields()}. Pass "
                            "each text once, in this order or by name.")
        last = max([self.required, *(place for place, name in enumerate(names, 1)
                                     if values.get(name) is not None)])
        return [values.get(name) for name in names[:last]]

    def exported_inputs(self):
        """Returns the names of the inputs that an exported model has in addition to those of the encoder."""
        return self.extra_inputs


# --- Creating the answers of a model ---------------------------------------------------------------------


def choose_task(model, task=None):
    """Returns the task for which a model will be used, one of `registry.ANSWERS`.

    Args:
      model: a `trained_model.TrainedModel`.
      task: the requested task; None for the task that the model was trained for.

    Raises:
      ValueError: the model cannot do this task.
    """
    usual = model.target.usual_answers
    if task not in (None, usual, VECTORS):
        raise ValueError(f"task {task}: the model in {model.path} was trained for {model.target.name}. "
                         f"Its tasks are {usual} and {VECTORS}.")
    return task or usual


def create(model, task=None):
    """Returns the `Answers` of a model for a task. For the arguments and errors, see `choose_task`."""
    task = choose_task(model, task)
    created = registry.find_answers(task)(model)
    created.task = task
    return created


# --- The forms of an answer ------------------------------------------------------------------------------


def with_prediction(answer):
    """Returns an answer with the additional key "prediction". Programs still read the older key with the same
    value. An answer without a prediction, such as a vector, is returned unchanged."""
    return next(({"prediction": answer[key], **answer} for key in _OLDER_KEYS if key in answer), answer)


def columns(answer):
    """Returns an answer as {column: value} for a table: the prediction only once, as "prediction", and the
    columns of `spread_probabilities`."""
    return spread_probabilities({"prediction" if name in _OLDER_KEYS else name: value
                                 for name, value in answer.items()})


def spread_probabilities(row):
    """Returns a row with a column probability_LABEL for each label, instead of the dict "probabilities"."""
    spread = {}
    for name, value in row.items():
        if name == "probabilities" and isinstance(value, dict):
            spread.update({f"probability_{flag_text(label)}": number for label, number in value.items()})
        else:
            spread[name] = value
    return spread


def finite_number(value):
    """Returns a number as a float, rounded to six decimals. All numbers in answers are rounded like this.

    Raises:
      ValueError: the number is NaN or infinite. JSON has no such numbers.
    """
    if not math.isfinite(value):
        raise ValueError("the answer has a number that is not finite: the model's weights are damaged, or "
                         "the training of the model diverged.")
    return round(float(value), _DIGITS)


# --- The texts of an input -------------------------------------------------------------------------------


def require_text(name, value):
    """Returns a text of an input.

    Raises:
      ValueError: the value is no text, is empty, or is missing (None).
    """
    if value is None:
        raise ValueError(f"{name} is missing.")
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.80}, but it must be a text.")
    if is_blank(value):
        raise ValueError(f"{name} is empty.")
    return value
