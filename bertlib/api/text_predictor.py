"""Contains the class `TextPredictor`, which predicts for a text, a list of texts, a pair or a list of
pairs."""

import io
from typing import Any

from bertlib.api import data_files, tables_of_results
from bertlib.data import columns
from bertlib.system import terminal

_LISTED = 5  # number of rows in an error message
_FORMS = ("Pass a text (str), a list of texts, a pair (tuple of two str), or a list of pairs. A list is "
          "always a list of inputs, and never a pair.")


class TextPredictor:
    """A trained model that predicts. Create a predictor with `bertlib.api.load`.

    | argument | answer |
    |---|---|
    | a text, `"…"` | one answer, a dict |
    | a pair of texts, `("…", "…")` | one answer, a dict |
    | a list of texts, `["…", "…"]` | a list of answers |
    | a list of pairs, `[("…", "…"), ("…", "…")]` | a list of answers |

    A tuple is always one input: a pair, or a question with its endings (multiple choice). A list is always a
    list of inputs. `bertlib.serving.predictor.Predictor` describes the keys of an answer.

    Attributes:
      fields: names of the texts of an input, such as ("text_a", "text_b").

    Examples:
      >>> from bertlib import api
      >>> with api.load("output/mrpc") as predictor:
      ...     one = predictor(("The cat sleeps.", "A cat is sleeping."))
      ...     two = predictor([("The cat sleeps.", "A cat is sleeping."), ("It rains.", "The sun shines.")])
      >>> one == two[0]
      True
    """

    fields: tuple[str, ...]

    def __init__(self, predictor: Any, labels: dict[str, Any] | None = None) -> None:
        """Creates the object.

        Args:
          predictor: a `bertlib.serving.predictor.Predictor`.
          labels: {label in its answers: label in the answers of this object}; None if they are equal.
        """
        self._predictor, self._labels = predictor, labels
        self.fields = predictor.fields

    def __call__(self, inputs: Any) -> Any:
        """Predicts for one input or a list of inputs; see `TextPredictor`.

        Raises:
          TypeError: the argument is not a text, a pair, a list of texts or a list of pairs; or it contains
            pairs, but the model takes single texts; or it contains single texts, but the model takes pairs.
          ValueError: a list or a text is empty, a text is missing (None or NaN), or there is not enough
            memory.
        """
        if isinstance(inputs, str | tuple):
            return self._answer([inputs], ["the argument"])[0]
        if hasattr(inputs, "tolist") and getattr(inputs, "ndim", None) == 1:  # for example a pandas Series
            inputs = inputs.tolist()
        if not isinstance(inputs, list):
            raise TypeError(f"the argument is of the type {type(inputs).__name__}. {_FORMS}")
        if not inputs:
            raise ValueError(f"the list is empty. {_FORMS}")
        return self._answer(inputs, [f"element {number} of the list" for number in range(len(inputs))])

    def _answer(self, inputs, names):
        texts, prepared = list(map(self._texts, inputs, names)), []
        for values, name in zip(texts, names):
            try:
                prepared.append(self._predictor.prepare(*values))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self._answer_prepared(prepared)

    def _answer_prepared(self, prepared):
        answers = self._predictor.answer(prepared)
        for answer in answers if self._labels else ():
            answer["prediction"] = answer["label"] = self._labels[answer["label"]]
            answer["probabilities"] = {self._labels[label]: number
                                       for label, number in answer["probabilities"].items()}
        return answers

    def _texts(self, item, name):
        """Checks the type of an input. Returns the texts of the input as a tuple of str.

        Args:
          item: the input.
          name: name of the input in error messages.
        """
        texts = (item,) if isinstance(item, str) else item
        is_tuple = isinstance(texts, tuple)
        if not is_tuple or not all(isinstance(text, str) for text in texts):
            if None in map(data_files.plain_value, texts if is_tuple else [item]):
                raise ValueError(f"{name}: the text is missing.")
            what = (f"a tuple of {', '.join(type(text).__name__ for text in texts)}" if is_tuple
                    else f"of the type {type(item).__name__}")
            raise TypeError(f"{name} is {what}. {_FORMS}")
        least, most = self._predictor.required, len(self.fields)
        if not least <= len(texts) <= most:
            takes = most if least == most else f"{least} to {most}"
            raise TypeError(f"{name} has {terminal.counted(len(texts), 'text')}, but the model takes "
                            f"{takes}: {columns.join_names(self.fields)}. {_FORMS}")
        return texts

    def predict_rows(self, data: Any, columns: tuple[str, ...] | None = None,
                     index: Any = None) -> list[dict]:
        """Predicts for each row of `data`. Returns the rows of the table that `bertlib.api.predict` returns.

        Args:
          data: the value that `data_files.to_inputs` returned.
          columns: names of the columns of the texts. None: the columns that the training used.
          index: the index of the rows for error messages, see `data_files.index_of`.

        Raises:
          TypeError, ValueError: see `bertlib.api.predict`.
          OSError: the file of the data cannot be read.
        """
        if isinstance(data, list) and not isinstance(data[0], dict):
            if columns:
                raise TypeError("The argument `text` names columns, but a list of texts or pairs has no "
                                "columns. Leave `text` out.")
            answers = self(data)  # raises an error if a row is neither a text nor a tuple
            fields = [dict(zip(self.fields, (row,) if isinstance(row, str) else row)) for row in data]
            return list(map(tables_of_results.answer_row, fields, answers))
        flags = {"text_column": ",".join(columns)} if columns else {}
        if isinstance(data, list):
            stream = io.BytesIO(data_files.json_lines(data))
            inputs = self._predictor.input_reader(flags).read(stream, "data", "jsonl")
        else:
            inputs = self._predictor.read(data, **flags)
        inputs = list(inputs)
        if not inputs:
            raise ValueError(f"{data} has no rows. Pass a file with at least one row.")
        problems = [": ".join((data_files.row_name(item.line, index) if isinstance(data, list)
                               else f"{data}:{item.line}", item.problem)) for item in inputs if item.problem]
        if problems:
            more = f"\nand {len(problems) - _LISTED} more" * (len(problems) > _LISTED)
            raise ValueError(data_files.explain_flags("\n".join(problems[:_LISTED]) + more, {"text_column"}))
        answers = self._answer_prepared([self._predictor.prepare(*item.values) for item in inputs])
        return [tables_of_results.answer_row(item.fields, answer)
                for item, answer in zip(inputs, answers)]

    def close(self) -> None:
        """Frees the memory of the model. The predictor cannot be called any more."""
        self._predictor.close()

    def __enter__(self) -> "TextPredictor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
