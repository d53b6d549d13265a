"""What a model for multiple choice predicts: a score for each ending of a question, as in SWAG. And how it
answers. Also reads questions, and converts them to features.

A row contains a sentence (sent1), the start of the next sentence (sent2), several possible endings of the
next sentence (ending0, ending1, …), and the number of the right ending (label). The model reads one sequence
for each ending: sent1 as the first text, and sent2 together with the ending as the second text (Devlin et al.
2019, section 4.4).
"""

import functools
import re

import numpy as np

from bertlib.data import example_encoding, features_cache, header_rows, labelled_rows, tfrecord_files
from bertlib.data.prediction_tables import Scored
from bertlib.runs import entries
from bertlib.system import files, fingerprints, workers
from bertlib.tasks import answers, text_windows
from bertlib.tasks.target import Target

# Smallest and largest number of endings of a question, and the number of endings in SWAG.
MIN_CHOICES, MAX_CHOICES, SWAG_CHOICES = 2, 26, 4
_SENTENCES = ("sent1", "sent2")
_ENDING = re.compile("ending[0-9]+", re.IGNORECASE)


def column_names(num_choices):
    """Returns the usual names of the columns with the texts of a question, a tuple of str."""
    return (*_SENTENCES, *(f"ending{index}" for index in range(num_choices)))


def label_names(num_choices):
    """Returns the names of the endings in tables and answers. The name of an ending is its number, from 0, as
    in SWAG."""
    return [str(index) for index in range(num_choices)]


def labels_of_columns(names):
    """Returns the names of the endings among the texts of a question, or among the names of their columns;
    see `column_names` and `label_names`."""
    return label_names(max(0, len(names) - len(_SENTENCES)))


def unread_ending(names, read_columns):
    """Returns an error message if the file has a column of endings that would not be read; None if all
    columns of endings are read.

    For example, if a file has the columns ending0, ending1 and ending3, but no ending2, only ending0 and
    ending1 would be read.

    Args:
      names: list of str, the names of all columns in the file.
      read_columns: sequence of str, the names of the columns that are read; see `column_names`.
    """
    unread_columns = [name for name in names if _ENDING.fullmatch(name) and name not in read_columns]
    if not unread_columns:
        return None
    endings = ", ".join(read_columns[len(_SENTENCES):])
    return (f"the endings {endings} can be read, but not the column {unread_columns[0]!r}. The endings have "
            "the numbers from 0 without gaps and repetitions, and not more than in the training. Correct the "
            "names of the columns, or name the columns with --text_column.")


# --- Reading ---------------------------------------------------------------------------------------------


class QuestionReader(labelled_rows.ExampleReader):
    """Reads questions from CSV, TSV or JSON Lines. The texts of a `labelled_rows.Row` are sent1, sent2 and
    the endings. The label is one of `label_names`."""

    # A test file of the Hugging Face Hub's copy of SWAG has the label -1 in each row.
    no_label = (*labelled_rows.ExampleReader.no_label, "-1", -1)

    def __init__(self, setting, by_name, skip_bad_lines):
        """Creates a reader. For the arguments, see `labelled_rows.ExampleReader`.

        Raises:
          ValueError: --text_column names too few columns.
        """
        super().__init__(header_rows.LabelKind(), setting, by_name, skip_bad_lines)
        if self.text is None:
            self.other_names = [column_names(number) for number in range(MAX_CHOICES, MIN_CHOICES - 1, -1)]
            self.find_unread = unread_ending
        elif len(self.text) < len(column_names(MIN_CHOICES)):
            raise ValueError(f"--text_column names {len(self.text)} columns. Name the column of the first "
                             "sentence, the column of the start of the next sentence, and at least "
                             f"{MIN_CHOICES} columns of endings.")

    def read(self, path, needs_labels=True):
        """Returns the `labelled_rows.ExampleFile` of a file; see `ExampleReader.read`. If `needs_labels` is
        false, a file whose labels are all empty has no labels."""
        return super().read(path, needs_labels, label_names(MAX_CHOICES), _find_problem)


def _find_problem(row, label):
    """Returns an error message if a label is not the number of an ending in a `columns.TextRow`."""
    names = labels_of_columns(row.texts)
    return None if label in names else (f"the label is {label!r:.80}, but it should be the number of the "
                                        f"right ending, from 0 to {names[-1]}.")


def count_endings(file):
    """Returns the number of endings of each question in a `labelled_rows.ExampleFile`."""
    return len(file.rows[0].texts) - len(_SENTENCES)


# --- Features --------------------------------------------------------------------------------------------


def feature_fields(seq_length, num_choices=SWAG_CHOICES):
    """Returns the fields of a stored question. `tfrecord_files` writes these fields, and `input_pipeline`
    reads them.

    Args:
      seq_length: int, F, number of tokens in a sequence, including padding.
      num_choices: int, C, number of sequences of a question.

    Returns:
      list of `example_encoding.Field`: input_mask, input_ids and segment_ids [C, F], and label_ids, a scalar.
    """
    return [*example_encoding.token_fields((num_choices, seq_length)),
            example_encoding.Field("label_ids", "int64", (), (0, num_choices - 1))]


def make_sequences(sent1, sent2, endings, max_seq_length, tokenizer, length=None):
    """Converts a question to the sequences that the model reads.

    Args:
      sent1, sent2, endings: the texts of a question.
      max_seq_length: int, largest number of tokens of a sequence. Longer sequences are truncated; see
        `text_windows.cut_into_windows`.
      tokenizer: a tokenizer of `tokenization`.
      length: number of tokens to which the sequences are padded; None for no padding.

    Returns:
      (sequences, longest). `sequences` is a list with a dict for each ending. The keys are "input_ids",
      "input_mask" and "segment_ids". Each value is a list of int. `longest` is the number of
      tokens of the longest sequence before truncation.
    """
    sequences, sizes = [], []
    for ending in endings:
        (window,), size = text_windows.make_windows(sent1, f"{sent2} {ending}", max_seq_length, tokenizer)
        sizes.append(size)
        sequences.append(text_windows.window_inputs(*window, tokenizer, length))
    return sequences, max(sizes)


def _convert(question, max_seq_length, tokenizer, fields):
    """Converts a `labelled_rows.Row` to a pair: the serialized `tf.train.Example`, and the number of tokens
    of its longest sequence before truncation. Worker processes call this function."""
    sent1, sent2, *endings = question.texts
    sequences, longest = make_sequences(sent1, sent2, endings, max_seq_length, tokenizer, max_seq_length)
    row = {"label_ids": int(question.label or 0)}
    for name in example_encoding.TRIMMED_FIELDS:
        row[name] = [value for sequence in sequences for value in sequence[name]]
    return example_encoding.encode_example(fields, row), longest


def write_features(file, max_seq_length, tokenizer, path, num_workers=1, cache=None):
    """Writes the features of a file to a TFRecord file. The TFRecord file appears only when it is complete.

    Args:
      file: a `labelled_rows.ExampleFile`. If a question has no label, 0 is written as its label_ids.
      max_seq_length: int, largest number of tokens of a sequence.
      tokenizer: a tokenizer of `tokenization`.
      path: the TFRecord file.
      num_workers: number of processes; 0 for one process per core. The results do not depend on this number.
      cache: directory of a cache of features, see `features_cache`; None for no cache.

    Returns:
      list of int: for each question, the number of tokens of its longest sequence before truncation.
    """
    num_choices = count_endings(file)

    def convert(partial):
        lengths = []

        def records():
            convert_one = functools.partial(_convert, max_seq_length=max_seq_length, tokenizer=tokenizer,
                                            fields=feature_fields(max_seq_length, num_choices))
            results = workers.ordered_map(convert_one, file.rows, num_workers)
            for record, length in files.with_progress(results, len(file.rows), "Converting question"):
                lengths.append(length)
                yield record

        tfrecord_files.write_serialized(partial, records())
        return lengths

    questions = fingerprints.hash_texts((*row.texts, row.label) for row in file.rows)
    return features_cache.write(path, cache, [max_seq_length, num_choices, tokenizer, questions], [], convert)


# --- Predictions -----------------------------------------------------------------------------------------


class Endings(Target):
    """The target of models that choose one of several endings."""

    name, title = "multiple_choice", "multiple choice"
    variables = ("cls/multiple_choice/output_weights",)
    architecture = "BertForMultipleChoice"
    fractions = "eval_accuracy"
    commands, known_metrics = ("run_swag",), ("eval_accuracy", "eval_loss")
    more_settings = (entries.Integer("num_choices", 4, "", least=MIN_CHOICES,
                                     most=MAX_CHOICES),)

    def __init__(self, num_choices=1):
        """Creates a target. `num_choices` is the number of endings of an example."""
        self.num_choices = num_choices

    def create_head(self):
        from bertlib.tasks.classification import classification_head
        return classification_head.Choice(self.num_choices)

    def feature_fields(self, seq_length, is_training=True):
        return feature_fields(seq_length, self.num_choices)

    def score_table(self, table):
        # A label is only the position of the right ending in the list of endings. So metrics that are
        # computed for each label, such as F1, have no meaning.
        is_right = np.array([str(row["label"]) == str(row["prediction"]) for row in table.rows])
        return Scored({"eval_accuracy": lambda rows: 100 * float(is_right[rows].mean())}, is_right.tolist(),
                      len(is_right), "rows")


class ChosenEnding(answers.Answers):
    """Answers with {"label", "ending", "probabilities": {label: probability}}. The label is the number of the
    chosen ending, as a str. The label of the first ending is "0"."""

    refuses_more = True
    required = len(column_names(MIN_CHOICES))

    def __init__(self, model):
        super().__init__(model)
        self.fields = column_names(model.setting("num_choices"))

    def preprocess(self, *texts):
        sent1, sent2, *endings = map(answers.require_text, self.fields, texts)
        sequences, longest = make_sequences(sent1, sent2, endings, self.model.max_seq_length,
                                                        self.limited_tokenizer)
        self.count_truncated(longest)
        return sequences, endings

    def postprocess(self, outputs, details):
        endings = details
        numbers = probabilities([output["scores"] for output in outputs])
        best = int(numbers.argmax())
        labels = label_names(len(endings))
        return {"label": labels[best], "ending": endings[best],
                "probabilities": dict(zip(labels, map(answers.finite_number, numbers)))}

    def probability_labels(self):
        return labels_of_columns(self.fields)

    find_unread = staticmethod(unread_ending)


def probabilities(scores):
    """Returns the softmax of scores [..., C], a float32 array of the same shape."""
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
