"""Predicts and evaluates one split with the weights of a checkpoint, on all replicas."""

import itertools

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import batches


class Inference:
    """A model with certain weights, and the examples of one split.

    With replicas, all of them compute the predictions together. The first replica calls `rows` or
    `batches`, and then `finish`. All others call `follow`.

    Attributes:
      checkpoint: prefix of the weights; None for the weights with which a new training would start.
      step: the step of the weights.
    """

    def __init__(self, settings, estimator, input_fn, checkpoint, starting_checkpoint):
        """Creates an inference.

        Args:
          settings: a `Settings`, with the sizes of the batches.
          estimator, input_fn: the `estimator.Estimator` of the run, and the input of the split.
          checkpoint: see the attribute.
          starting_checkpoint: the `checkpoint_formats.Checkpoint` with which a new training would start, or
            None.
        """
        self._settings, self._estimator, self._input_fn = settings, estimator, input_fn
        self.checkpoint, self._evaluated = checkpoint, None
        self.step = checkpoint_formats.read_global_step(checkpoint or starting_checkpoint)

    def rows(self, size="predict_batch_size", is_evaluation=False):
        """Returns an iterator over the predictions for the examples, each {name: NumPy array}, in the
        order of the file. For the arguments, see `batches`."""
        return batches.restore_file_order(itertools.chain.from_iterable(
            map(batches.split_batch, self.batches(size, is_evaluation))))

    def batches(self, size="predict_batch_size", is_evaluation=False, steps=None):
        """Yields the predictions for each batch, {name: NumPy array [B, …]}.

        Args:
          size: name of the flag with the number of examples in a batch.
          is_evaluation: whether the head is built in the mode EVAL, so that `complete` knows the loss.
          steps: number of batches of an evaluation; None for all.
        """
        arguments = size, is_evaluation, steps
        if group := self._estimator.inference_group:
            group.broadcast(arguments)
        yield from self._compute(*arguments)

    def complete(self, metrics, name=None):
        """Returns metrics with the "loss" and the "global_step" of an evaluation whose batches are all read.
        Writes them for TensorBoard. For `name`, see `Estimator.evaluate`."""
        from bertlib.estimator import evaluation
        results = self._evaluated.complete({"global_step": self.step, **metrics})
        evaluation.write_summary(self._estimator.eval_dir(name), results)
        return results

    def finish(self):
        """Ends `follow` of the other replicas."""
        if group := self._estimator.inference_group:
            group.broadcast(None)

    def follow(self):
        """Computes the same batches as the first replica, until that replica has finished. Returns at once
        during a training, because the first replica then evaluates alone."""
        while (group := self._estimator.inference_group) and (arguments := group.broadcast()):
            for _ in self._compute(*arguments):
                pass

    def _compute(self, size, is_evaluation, steps):
        def input_fn(params):
            return self._input_fn({**params, "batch_size": getattr(self._settings, size)})

        if is_evaluation:
            self._evaluated = self._estimator.evaluated_batches(input_fn, steps, self.checkpoint)
        try:
            yield from self._evaluated if is_evaluation else self._estimator.predict(
                input_fn, checkpoint_path=self.checkpoint, yield_single_examples=False)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(f"out of memory. Lower --{size}.") from error
