"""Contains the class `TextPredictor`, which predicts for a text, a list of texts, a pair or a list of
pairs."""

import io
from typing import Any

from bertlib.api import child_command, data_files, tables_of_results

_FORMS = "Pass a text (str), a list of texts, a pair (tuple of two str), or a list of pairs."


class TextPredictor:
    """A trained model that predicts. Create a predictor with `bertlib.api.load`.

    | argument | answer |
    |---|---|
    | a text, `"…"` | one answer, a dict |
    | a pair of texts, `("…", "…")` | one answer, a dict |
    | a list of texts, `["…", "…"]` | a list of answers |
    | a list of pairs, `[("…", "…"), ("…", "…")]` | a list of answers |

    A tuple is always one pair. A list is always a list of inputs. `bertlib.serving.predictor.Predictor`
    describes the keys of an answer.

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

    def __init__(self, predictor: Any) -> None:
        """Takes a `bertlib.serving.predictor.Predictor`."""
        self._predictor = predictor
        self.fields = predictor.fields

    def __call__(self, questions: Any) -> Any:
        """Predicts for one input or a list of inputs; see `TextPredictor`.

        Raises:
          TypeError: the argument is not a text, a pair, a list of texts or a list of pairs; or it contains
            pairs, but the model takes single texts; or it contains single texts, but the model takes pairs.
          ValueError: a list or a text is empty, or there is not enough memory.
        """
        if isinstance(questions, str | tuple):
            return self._answer([questions], ["the argument"])[0]
        if hasattr(questions, "tolist") and getattr(questions, "ndim", None) == 1:  # NumPy, or pandas' Series
            questions = questions.tolist()
        if not isinstance(questions, list):
            raise TypeError(f"the argument is of the type {type(questions).__name__}. {_FORMS}")
        if not questions:
            raise ValueError(f"the list is empty. {_FORMS}")
        return self._answer(questions, [f"element {number} of the list" for number in range(len(questions))])

    def _answer(self, questions, names):
        texts = [self._texts(question, name, len(questions) == 1)
                 for question, name in zip(questions, names)]
        prepared = []
        for values, name in zip(texts, names):
            try:
                prepared.append(self._predictor.prepare(*values))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self._predictor.answer(prepared)

    def _texts(self, question, name, is_one):
        """Checks the type of an input. Returns the texts of the input as a tuple of str.

        Args:
          question: the input.
          name: name of the input in error messages.
          is_one: whether this is the only input.
        """
        most, least = len(self.fields), self._predictor.required
        listed = " and ".join(self.fields)
        if isinstance(question, list):
            hint = "a pair is a tuple, so write (…, …)" if len(question) == 2 else "do not nest lists"
            raise TypeError(f"{name} is a list; {hint}. {_FORMS}")
        if isinstance(question, str):
            if least > 1:
                both = "" if is_one else " If the list is meant as one pair, write a tuple: (…, …)."
                raise TypeError(f"{name} is one text, but the model takes pairs: {listed}. Pass a tuple of "
                                f"two texts.{both}")
            return (question,)
        if not isinstance(question, tuple) or not all(isinstance(text, str) for text in question):
            what = (f"a tuple of {', '.join(type(text).__name__ for text in question)}"
                    if isinstance(question, tuple) else f"of the type {type(question).__name__}")
            raise TypeError(f"{name} is {what}. {_FORMS}")
        if most == 1:
            raise TypeError(f"{name} is a tuple, but the model takes single texts. Pass a text. For several "
                            "texts, pass a list.")
        if len(question) != 2:
            raise TypeError(f"{name} is a tuple of {len(question)} texts, but a pair has two texts. For "
                            "several inputs, pass a list.")
        return question

    def predict_rows(self, data: Any, columns: tuple[str, ...] | None = None) -> list[dict]:
        """Returns the rows of `bertlib.api.predict`.

        Args:
          data: the value that `data_files.to_questions` returned.
          columns: names of the columns of the texts; None for the columns of the training.

        Raises:
          TypeError, ValueError, OSError: see `bertlib.api.predict`.
        """
        if isinstance(data, list) and not isinstance(data[0], dict):
            if columns:
                raise TypeError("text: a list of texts or of pairs has no columns. Leave `text` out.")
            fields = [dict(zip(self.fields, (row,) if isinstance(row, str) else row)) for row in data
                      if isinstance(row, str | tuple)]  # `__call__` refuses all other rows
            return list(map(tables_of_results.answer_row, fields, self(data)))
        flags = {"text_column": ",".join(columns)} if columns else {}
        if isinstance(data, list):
            stream = io.BytesIO(data_files.json_lines(data))
            found = self._predictor.question_reader(flags).read(stream, "data", "jsonl")
        else:
            found = self._predictor.read(data, **flags)
        found = list(found)
        if not found:
            raise ValueError(f"{data} has no rows. Pass a file with at least one row.")
        for question in found:
            if question.problem:
                where = f"data, row {question.line}" if isinstance(data, list) else f"{data}:{question.line}"
                raise ValueError(child_command.explain_flags(f"{where}: {question.problem}"))
        answers = self._predictor.answer([self._predictor.prepare(*question.values) for question in found])
        return [tables_of_results.answer_row(question.fields, answer)
                for question, answer in zip(found, answers)]

    def close(self) -> None:
        """Frees the memory of the model. The predictor cannot be called any more."""
        self._predictor.close()

    def __enter__(self) -> "TextPredictor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
