"""Answers of a trained model: loaded once, then called as often as one likes."""

from collections.abc import Iterator
from typing import Any

from bertlib.estimator import replica_sync
from bertlib.estimator.step_config import StepConfig
from bertlib.output_directory.model_directory import ModelDirectory
from bertlib.replicas.replica_group import Group
from bertlib.rows import tables
from bertlib.serving import answers, questions, session

BATCH_SIZE = 32


class Predictor:
    """A model that answers; see `bertlib.serving.load`.

    It is safe to call from several threads, unless replicas share its work: these have to call it in
    lockstep, with the same questions, and all have all answers.

    Attributes:
      task: a key of `answers.TASKS`.
      fields, required: names of what is asked about, such as ("text_a", "text_b"), and how many of them have
        to be there.
      checkpoint: path of the weights.
    """

    task: str
    fields: tuple[str, ...]
    required: int
    checkpoint: str

    def __init__(self, directory: ModelDirectory, task: str | None = None, step: StepConfig | None = None,
                 batch_size: int = BATCH_SIZE, group: Group | None = None) -> None:
        """Loads the weights.

        Args:
          directory: a `model_directory.ModelDirectory`.
          task: another task than the directory's, such as "vectors"; None for that.
          step: a `StepConfig` that says the precision and the kernels; None for fp32.
          batch_size: windows that the model gets at a time, at most.
          group: a `replica_group.Group` whose replicas share the batches, or None.

        Raises:
          ValueError, OSError: the weights do not fit or are damaged.
        """
        self.task = answers.resolve_task(directory, task)
        self._task = answers.TASKS[self.task](directory)
        self.fields, self.required = self._task.fields, self._task.required
        self._directory = directory
        self.checkpoint = directory.checkpoint
        self._batch_size, self._group = batch_size, group
        self._model = session.LoadedModel(self._task.head, directory.bert_config, directory.checkpoint,
                                          self._task.extra_inputs, step)

    def __call__(self, *texts: Any, **fields: Any) -> dict[str, Any]:
        """Answers one question.

        Args:
          texts, fields: values of `fields`, in order or by name.

        Returns:
          the answer, a dict; see the task's class in `answers`.

        Raises:
          ValueError: there is no text where one has to be.
          TypeError: there are more or fewer texts than the task takes, or other names.
        """
        found, = self.answer([self.prepare(*texts, **fields)])
        return found

    def source(self, flags: dict[str, Any] | None = None) -> questions.QuestionReader:
        """Returns the `questions.QuestionReader` of files to answer; `flags` override the columns of the
        training."""
        return questions.QuestionReader(self._directory, self.fields, self.required, flags)

    def read(self, path: str, input_format: str | None = None,
             **flags: Any) -> Iterator[questions.Question]:
        """Yields the `questions.Question` of each row of a file, as `predict.py` reads it.

        Args:
          path: the file, which may be compressed.
          input_format: one of `questions.FORMATS`; by default the format of the file's name.
          flags: values of `questions.COLUMN_FLAGS`, in place of the training's.

        Raises:
          ValueError, OSError: the file cannot be used.
        """
        source = self.source(flags)
        with tables.open_table(path) as stream:
            yield from source.read(stream, path, input_format or questions.format_from_name(path))

    def prepare(self, *texts: Any, **fields: Any) -> tuple[list, Any]:
        """Returns what `answer` takes of one question; arguments and errors are those of a call."""
        return self._task.windows(*texts, **fields)

    def answer(self, prepared: list[tuple[list, Any]]) -> list[dict[str, Any]]:
        """Answers several questions, in batches of similar length.

        Args:
          prepared: list of what `prepare` returned.

        Returns:
          list of answers, in order.
        """
        rows = [(index, row) for index, (windows, _) in enumerate(prepared) for row in windows]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place][1]["input_ids"]))
        batches = [order[start:start + self._batch_size] for start in range(0, len(order), self._batch_size)]
        computed = replica_sync.map_on_replicas(
            self._group, lambda places: self._model([rows[place][1] for place in places]), batches)
        found = {}
        for places, results in zip(batches, computed):
            found.update(zip(places, results))
        outputs = [[] for _ in prepared]
        for place, (index, _) in enumerate(rows):
            outputs[index].append(found[place])
        return [self._task.answer(output, context) for output, (_, context) in zip(outputs, prepared)]

    def close(self) -> None:
        """Gives the memory back."""
        self._model.close()

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
