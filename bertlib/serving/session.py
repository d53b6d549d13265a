"""A head's model with its weights in one session, which several threads may run at the same time."""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator.step_config import StepConfig
from bertlib.tasks import head as task_head
import modeling

# What the encoder is fed; a head may need more, see `LoadedModel`.
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")


def build(head, bert_config, inputs, step=None):
    """Builds a head's predictions in the current graph.

    Args:
      head: see `bertlib.tasks.head`.
      bert_config: a `modeling.BertConfig`.
      inputs: {name: int32 [B, F]}, those of the encoder and those that the head needs besides.
      step: a `StepConfig` that says the precision and the kernels; the published one if None.

    Returns:
      {name: tensor [B, …]}, the head's predictions.
    """
    model = task_head.create_encoder(bert_config, False, *(inputs[name] for name in ENCODER_INPUTS), False,
                                     step,
                                     head.first_token_only)
    return head.build(bert_config, model, inputs, "infer", 1).predictions


def check_weights(head, bert_config, path):
    """Checks that a checkpoint has a model's variables; returns the open `checkpoint_formats.Checkpoint`.

    Args:
      head, bert_config: see `build`.
      path: see `checkpoint_formats.open_checkpoint`.

    Raises:
      ValueError, OSError: it has not, or it cannot be read.
    """
    found = checkpoint_formats.open_checkpoint(path)
    expected = {**modeling.variable_shapes(bert_config), **head.shapes(bert_config)}
    checkpoint_formats.check_types(found, expected)
    # A head that does not look at the pooler may come without one.
    optional = [] if head.first_token_only else [name for name in expected if "/pooler/" in name]
    checkpoint_formats.check_fits(found, expected, optional)
    checkpoint_formats.check_readable(found, expected)
    return found


class LoadedModel:
    """A model that answers: a graph and a session with the weights.

    Calls are safe from several threads: nothing changes after the weights are loaded.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, head, bert_config, checkpoint, extra_inputs=(), step=None):
        """Loads the weights.

        Args:
          head, bert_config: see `build`.
          checkpoint: path of the weights, see `checkpoint_formats.open_checkpoint`.
          extra_inputs: names of what the head is fed besides the encoder's inputs, int32 [B, any].
          step: see `build`.

        Raises:
          ValueError, OSError: the weights are not there, are others, or are damaged.
        """
        check_weights(head, bert_config, checkpoint)
        self.inputs = (*ENCODER_INPUTS, *extra_inputs)
        with tf.Graph().as_default() as graph:
            self._feeds = {name: tf.placeholder(tf.int32, [None, None], name) for name in self.inputs}
            self._outputs = build(head, bert_config, self._feeds, step or StepConfig())
            scaffold = tf.train.Scaffold(
                init_fn=checkpoint_formats.create_init_fn(checkpoint, tf.trainable_variables()))
            scaffold.finalize()
            self._session = tf.Session(graph=graph)
            with self._session.as_default():
                self._session.run(scaffold.init_op)
                scaffold.init_fn(self._session)
                # What inference keeps of the weights is made of them.
                self._session.run(scaffold.local_init_op)
            graph.finalize()

    def __call__(self, rows):
        """Computes the answers of some inputs together.

        Args:
          rows: list of {name: list of int}; those of the encoder's inputs without padding, all of one length
            within a row.

        Returns:
          list of {name: array}, one for each row. Those along the tokens are as long as the longest row.

        Raises:
          ValueError: memory ran out.
        """
        arrays = {name: _padded([row[name] for row in rows]) for name in self.inputs}
        try:
            found = self._session.run(self._outputs,
                                      {self._feeds[name]: array for name, array in arrays.items()})
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory. Lower --batch_size.") from error
        return [{name: values[index] for name, values in found.items()} for index in range(len(rows))]

    def close(self):
        """Gives the memory back."""
        self._session.close()


def _padded(lists):
    """Lists of ints of some lengths as one int32 array [B, longest], zeros behind."""
    array = np.zeros([len(lists), max(map(len, lists))], np.int32)
    for row, values in zip(array, lists):
        row[:len(values)] = values
    return array
