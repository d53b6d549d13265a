"""Predicts and evaluates one split with the weights of a checkpoint, on all replicas."""

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import batches
from bertlib.tasks import estimator_setup

# What the first replica asks the other replicas to compute.
_ROWS, _EVALUATION, _NOTHING_MORE = "rows", "evaluation", "nothing more"


class Inference:
    """A model with certain weights, and the examples of one split.

    With replicas, all of them compute the predictions together. The first replica calls `rows` or
    `evaluate`, and then `finish`. All others call `follow`.

    Attributes:
      checkpoint: prefix of the weights; None for the weights with which a new training would start.
      step: the step of the weights.
    """

    def __init__(self, estimator, input_fn, checkpoint, start):
        """Creates the object. `start` is the `checkpoint_formats.Checkpoint` with which a new training would
        start, or None."""
        self._estimator, self._input_fn, self.checkpoint = estimator, input_fn, checkpoint
        self.step = checkpoint_formats.read_global_step(checkpoint or start)

    def rows(self):
        """Yields the predictions for the examples, each a dict of NumPy arrays, in the order of the file."""
        self._announce(_ROWS)
        yield from self._compute_rows()

    def evaluate(self, metrics, steps=None, name=None, batch_size=None):
        """Returns the metrics of the predictions.

        Args:
          metrics, steps, name: see `Estimator.evaluate`.
          batch_size: number of examples in a batch; None for --eval_batch_size.
        """
        self._announce(_EVALUATION, steps, name, batch_size)
        return self._compute_metrics(lambda batches: {**metrics(batches), "global_step": self.step}, steps,
                                     name, batch_size)

    def finish(self):
        """Ends `follow` of the other replicas."""
        self._announce(_NOTHING_MORE)

    def follow(self):
        """Computes the same batches as the first replica, until that replica has finished. Returns at once
        during a training, because the first replica then evaluates alone."""
        group = self._estimator.group
        while group:
            asked, *arguments = group.broadcast()
            if asked == _NOTHING_MORE:
                return
            if asked == _ROWS:
                _read_all(self._compute_rows())
            else:
                self._compute_metrics(_read_all, *arguments)

    def _announce(self, asked, *arguments):
        if group := self._estimator.group:
            group.broadcast([asked, *arguments])

    def _compute_rows(self):
        with estimator_setup.memory_errors_naming("predict_batch_size"):
            yield from batches.restore_file_order(
                self._estimator.predict(self._input_fn, checkpoint_path=self.checkpoint))

    def _compute_metrics(self, metrics, steps, name, batch_size):
        def input_fn(params):
            return self._input_fn({**params, "batch_size": batch_size or params["batch_size"]})

        with estimator_setup.memory_errors_naming("eval_batch_size"):
            return self._estimator.evaluate(input_fn, steps, None, self.checkpoint, name, metrics)


def _read_all(batches_or_rows):
    """Reads everything, and returns no metrics."""
    for _ in batches_or_rows:
        pass
    return {}
