"""Predicts and evaluates one split with the weights of a checkpoint, on all replicas."""

import itertools

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import batches


class Inference:
    """A model with certain weights, and the examples of one split.

    The replicas of a group compute the predictions together. The first replica calls `rows` or `evaluate`,
    and then `finish`. All others call `follow`.

    Attributes:
      checkpoint: prefix of the weights; None for the weights with which a new training would start.
      step: the step of the weights.
    """

    def __init__(self, settings, estimator, input_fn, checkpoint, starting_checkpoint, group):
        """Creates an inference.

        Args:
          settings: a `Settings`, with the sizes of the batches.
          estimator, input_fn: the `estimator.Estimator` of the run, and the input of the split.
          checkpoint: see the attribute.
          starting_checkpoint: the `checkpoint_formats.Checkpoint` with which a new training would start, or
            None.
          group: the `Estimator.inference_group`: the `replica_group.Group` of the replicas that compute
            together; None if this process computes alone, as during a training.
        """
        self._settings, self._estimator, self._input_fn = settings, estimator, input_fn
        self._group = group
        self.checkpoint = checkpoint
        self.step = checkpoint_formats.read_global_step(checkpoint or starting_checkpoint)

    def rows(self):
        """Returns an iterator over the predictions for the examples, see `rows_of`. The head is built in the
        mode PREDICT, with --predict_batch_size."""
        batch_size_flag = "predict_batch_size"
        predicted = self._start(batch_size_flag, is_evaluation=False)
        return self.rows_of(_advise_on_memory(batch_size_flag, predicted))

    @staticmethod
    def rows_of(predicted):
        """Returns an iterator over the predictions for the examples, each {name: NumPy array}, in the order
        of the file. `predicted` is an iterable of the predictions for the batches."""
        rows = itertools.chain.from_iterable(map(batches.unstack_predictions, predicted))
        return batches.restore_file_order(rows)

    def evaluate(self, score, batch_size_flag, steps=None, name=None):
        """Evaluates the weights, with the head in the mode EVAL. Writes the metrics for TensorBoard.

        Args:
          score: function that takes an iterator over the predictions for the batches, each {name: NumPy array
            [B, …]}. It reads all of them, and returns (predictions, {metric: number or array}).
          batch_size_flag: name of the flag with the number of examples in a batch.
          steps: number of batches; None for all.
          name: see `Estimator.evaluate`.

        Returns:
          the result of `score`, in which the metrics have "loss" and "global_step", too.
        """
        from bertlib.estimator import evaluation
        evaluated = self._start(batch_size_flag, is_evaluation=True, steps=steps)
        predictions, metrics = score(_advise_on_memory(batch_size_flag, evaluated))
        metrics = evaluated.complete({"global_step": self.step, **metrics})
        evaluation.write_summary(self._estimator.eval_dir(name), metrics)
        return predictions, metrics

    def finish(self):
        """Ends `follow` of the other replicas."""
        if self._group:
            self._group.broadcast(None)

    def follow(self):
        """Computes the same batches as the first replica of the group, until that replica calls `finish`."""
        while arguments := self._group.broadcast():
            for _ in _advise_on_memory(arguments[0], self._batches(*arguments)):
                pass

    def _start(self, batch_size_flag, is_evaluation, steps=None):
        """Returns the result of `_batches`, for which the other replicas compute the same batches."""
        arguments = batch_size_flag, is_evaluation, steps
        if self._group:
            self._group.broadcast(arguments)
        return self._batches(*arguments)

    def _batches(self, batch_size_flag, is_evaluation, steps):
        """Returns an iterable of the predictions for the batches: in an evaluation, an
        `evaluation.EvaluatedBatches`."""
        def input_fn(params):
            return self._input_fn({**params, "batch_size": getattr(self._settings, batch_size_flag)})

        if is_evaluation:
            return self._estimator.evaluated_batches(input_fn, steps, self.checkpoint)
        return self._estimator.predict(input_fn, checkpoint_path=self.checkpoint, yield_single_examples=False)


def _advise_on_memory(batch_size_flag, predicted):
    """Yields the elements of `predicted`. If memory runs out, the error names the flag `batch_size_flag`."""
    try:
        yield from predicted
    except tf.errors.ResourceExhaustedError as error:
        raise ValueError(f"out of memory. Lower --{batch_size_flag}.") from error
