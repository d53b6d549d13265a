"""Contains the class `Predictor`, which predicts with a trained model."""

from collections.abc import Iterator
import itertools
from typing import Any

from bertlib.data import tables, unknown_tokens
from bertlib.estimator.step_config import StepConfig
from bertlib.runs.trained_model import TrainedModel
from bertlib.serving import prediction_inputs
from bertlib.system import quiet_tensorflow, shared_work
from bertlib.system.replica_group import Group
from bertlib.tasks import answers
from bertlib.tasks.answers import Answers

BATCH_SIZE = 32
_SEVERAL = ("For several inputs, call `predictor.answer([predictor.prepare(text) for text in texts])`; for "
            "pairs, `prepare(text_a, text_b)`.")
_CHECKED = 100  # number of inputs whose tokens are checked for [UNK]


class Predictor:
    """A trained model that predicts. Create a predictor with `bertlib.serving.load`.

    An input consists of the texts that the task takes. An answer is a dict that can be written as JSON.
    "prediction" is the prediction. For older programs, the answer also has it under another key, which is
    in parentheses here. The other keys depend on the task:

    - classification ("label"): "probabilities", {label: probability}
    - multilabel ("labels"): "probabilities". The prediction contains each label whose probability is at least
      the threshold
    - regression ("score"): no other keys
    - tagging ("tags"): "words", "entities" and "word_spans". "entities" is a list of {"type", "text",
      "score", "start", "end", "start_word", "end_word"}. "start" and "end" are indices of characters in the
      text. "word_spans" has [start, end] of each word. If the input is a list of words, the text consists of
      these words with single spaces between them
    - questions ("answer"): "probability", "start" and "end". "start" and "end" are indices of characters in
      the context. If the model was trained on SQuAD 2.0, the answer also has the key "null_odds"
    - multiple_choice ("label"): "ending" and "probabilities"
    - masked_words: no prediction, but "masks", a list with the likeliest tokens of each [MASK]
    - vectors: no prediction, but "vector", a list of floats

    Without replicas, several threads may call one predictor at the same time. With replicas, all replicas
    have to make the same calls in the same order, with the same inputs. Each replica then gets all answers.

    Attributes:
      task: the task, one of `bertlib.serving.TASKS`.
      answers: the `Answers` of the task.
      fields: names of the texts of an input, such as ("text_a", "text_b").
      required: number of texts that an input must have. The first `required` texts in `fields` must be
        passed; the others are optional.
      checkpoint: path of the weights.
      label_separator: text between the labels of a multi-label text, as in the training file.

    Examples:
      >>> from bertlib import serving
      >>> predictor = serving.load("output/mrpc")
      >>> predictor.fields
      ('text_a', 'text_b')
      >>> sorted(predictor("The cat sleeps.", "A cat is sleeping.")["probabilities"])
      ['0', '1']
      >>> predictor.close()
    """

    task: str
    answers: Answers
    fields: tuple[str, ...]
    required: int
    checkpoint: str
    label_separator: str

    def __init__(self, trained: TrainedModel, task: str | None = None, step_config: StepConfig | None = None,
                 batch_size: int = BATCH_SIZE, group: Group | None = None, loaded: Any = None) -> None:
        """Loads the weights.

        Args:
          trained: the `TrainedModel` of an output directory, see `trained_model.read`.
          task: "vectors", or None for the task that the model was trained for.
          step_config: a `StepConfig` with the precision and the kernels; None for fp32 and TensorFlow's ops.
          batch_size: largest number of windows in a batch.
          group: the `replica_group.Group` of the replicas; None if there are no replicas. Each batch is
            computed by one replica.
          loaded: the loaded model, an object that is used like a `loaded_model.LoadedModel`; None to load the
            weights into TensorFlow.

        Raises:
          ValueError: the model cannot do `task`, or the weights are damaged or do not fit the model.
          OSError: the weights cannot be read.
        """
        self.answers = answers.create(trained, task)
        self.task = self.answers.task
        self.fields, self.required = self.answers.fields, self.answers.required
        self._trained = trained
        self.checkpoint = trained.checkpoint
        self.label_separator = trained.setting("label_separator", ",")
        self._batch_size, self._group, self._is_closed = batch_size, group, False
        self._unknown_tokens = unknown_tokens.UnknownTokens(trained.tokenizer, "the texts", _CHECKED)
        if loaded is None:
            quiet_tensorflow.load_in_library()
            # This module loads TensorFlow.
            from bertlib.tasks import loaded_model

            loaded = loaded_model.LoadedModel(self.answers.head, trained.bert_config, self.checkpoint,
                                              self.answers.extra_inputs, step_config)
        self._loaded = loaded

    def __call__(self, *texts: Any, **fields: Any) -> dict[str, Any]:
        """Predicts for one input.

        Args:
          *texts: the texts of the input in the order of `fields`. Each text is a str. The text of a tagger
            may also be a list of words.
          **fields: the same texts by name. A list of words also has the names tokens and words.

        Returns:
          the answer; see `Predictor` for its keys.

        Raises:
          ValueError: a text is missing, is empty or is not a str; a second text was given, although the model
            takes one text; there is not enough memory; or the model computed NaN.
          TypeError: there are more texts than the task takes, a text was given twice, or a name is unknown.

        Examples:
          >>> from bertlib import serving
          >>> predictor = serving.load("output/mrpc")
          >>> by_order = predictor("The cat sleeps.", "A cat is sleeping.")
          >>> by_name = predictor(text_a="The cat sleeps.", text_b="A cat is sleeping.")
          >>> by_order == by_name
          True
        """
        try:
            answer, = self.answer([self.prepare(*texts, **fields)])
        except ValueError as error:
            if any(isinstance(text, list | tuple) or hasattr(text, "tolist") for text in texts):
                raise ValueError(f"{error} A call takes one input. {_SEVERAL}") from error
            raise
        return answer

    def input_reader(self, flags: dict[str, Any] | None = None) -> prediction_inputs.InputReader:
        """Returns an object that reads inputs for this model from files and streams.

        Args:
          flags: {name: value} of flags in `prediction_inputs.COLUMN_FLAGS`. These values replace the values
            of the training. None to read the same columns as the training.

        Raises:
          TypeError: a flag is unknown.
          ValueError: flags contradict each other.
        """
        return prediction_inputs.InputReader(self._trained, self.answers, flags)

    def read(self, path: str, input_format: str | None = None,
             **flags: Any) -> Iterator[prediction_inputs.Input]:
        """Yields a `prediction_inputs.Input` for each row of a file. `predict.py` reads rows in the same way.

        A row that cannot be used does not end the reading. For such a row, the attribute `problem` of the
        yielded object says why the row cannot be used.

        Args:
          path: the file, which may be compressed with gzip.
          input_format: one of `prediction_inputs.FORMATS`. If it is None, the file extension determines the
            format.
          **flags: values for flags in `prediction_inputs.COLUMN_FLAGS`, such as `text_column="2"`. They
            replace the values of the training.

        Yields:
          a `prediction_inputs.Input`. Call the predictor with the attribute `values`.

        Raises:
          TypeError: a flag is unknown.
          ValueError: flags contradict each other, or the file has no columns for the texts.
          OSError: the file cannot be read.

        Examples:
          >>> from bertlib import serving
          >>> predictor = serving.load("output/mrpc")
          >>> labels = []
          >>> for item in predictor.read("samples/MRPC/test.tsv"):
          ...     if item.problem is None:
          ...         labels.append(predictor(*item.values)["prediction"])
          ...     else:
          ...         print(f"line {item.line}: {item.problem}")
          >>> set(labels) <= {"0", "1"}
          True
        """
        reader = self.input_reader(flags)
        with tables.open_table(path) as stream:
            yield from reader.read(stream, path, input_format)

    def prepare(self, *texts: Any, **fields: Any) -> tuple[list, Any]:
        """Tokenizes one input for `answer`.

        Args:
          *texts: see `__call__`.
          **fields: see `__call__`.

        Returns:
          a pair (windows, details). `windows` contains the arguments of the model for each window of the
          input. `details` contains further data that the task needs for the answer. Pass the pair to
          `answer` unchanged.

        Raises:
          ValueError: see `__call__`.
          TypeError: see `__call__`.
        """
        texts = self.answers.texts_in_order(texts, fields)
        windows = self.answers.preprocess(*texts)
        self._unknown_tokens.add(*texts)
        return windows

    def answer(self, prepared: list[tuple[list, Any]]) -> list[dict[str, Any]]:
        """Predicts for several inputs, in batches of texts with similar lengths.

        One call for several inputs is faster than one call for each input.

        Args:
          prepared: results of `prepare`, one for each input.

        Returns:
          the answers, in the order of the inputs; see `Predictor` for their keys.

        Raises:
          ValueError: there is not enough memory.
          TypeError: an element is no result of `prepare`.

        Examples:
          >>> from bertlib import serving
          >>> predictor = serving.load("output/mrpc")
          >>> pairs = [("The cat sleeps.", "A cat is sleeping."), ("It rains.", "The sun shines.")]
          >>> answers = predictor.answer([predictor.prepare(*pair) for pair in pairs])
          >>> len(answers)
          2
        """
        if not all(isinstance(item, tuple) and isinstance(item[0], list) for item in prepared):
            raise TypeError(f"`answer` takes a list of results of `prepare`. {_SEVERAL}")
        outputs = iter(self.compute([window for windows, _ in prepared for window in windows]))
        return [self.answer_of(list(itertools.islice(outputs, len(windows))), details)
                for windows, details in prepared]

    def compute(self, windows: list) -> list:
        """Returns the outputs of the model for each window, {name: array}. `windows` are windows of one or
        several results of `prepare`.

        Raises:
          ValueError: there is not enough memory.
          RuntimeError: the predictor is closed.
        """
        if self._is_closed:
            raise RuntimeError("the predictor is closed. Load the model again.")
        return shared_work.map_in_batches(self._group, self._loaded, windows,
                                          lambda row: len(row["input_ids"]), self._batch_size)

    def answer_of(self, outputs: list, details: Any) -> dict[str, Any]:
        """Returns the answer to an input: see `Predictor` for its keys.

        Args:
          outputs: the results of `compute` for the windows of the input.
          details: the second element of the result of `prepare`.
        """
        return answers.with_prediction(self.answers.postprocess(outputs, details))

    def close(self) -> None:
        """Frees the memory of the model. The predictor cannot be called any more."""
        self._is_closed = True
        self._unknown_tokens.warn()
        self._loaded.close()

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
