"""Loads a model with a head into one session, which several threads may run at the same time."""

import contextlib

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import batches
from bertlib.data.example_encoding import ENCODER_INPUTS
from bertlib.estimator import sessions
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.estimator.step_config import StepConfig
from bertlib.tasks import head as task_head
import modeling


def create_inputs(names):
    """Creates the placeholders of a model in the current graph: {name of an input: int32 [B, any]}."""
    return {name: tf.placeholder(tf.int32, [None, None], name) for name in names}


@contextlib.contextmanager
def with_weights(checkpoint):
    """Returns a context manager that yields a session of the current graph, with the weights of a checkpoint.
    The session uses no GPU, because an export computes nothing, and another process may use the GPU."""
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as weights:
        # `tf.train.Scaffold` could do this too, but it writes a message to the log of the calling program.
        weights.run(tf.global_variables_initializer())
        checkpoint_formats.create_init_fn(checkpoint, tf.trainable_variables())(None, weights)
        yield weights


def build(head, bert_config, inputs, step_config=None):
    """Builds a head's predictions in the current graph.

    Args:
      head: a `bertlib.tasks.head.Head`.
      bert_config: a `modeling.BertConfig`.
      inputs: {name: int32 [B, F]}. It contains the inputs of the encoder and the additional inputs of the
        head.
      step_config: a `StepConfig` with the precision and the kernels; None for fp32 and TensorFlow's ops.

    Returns:
      {name: tensor [B, …]}, the head's predictions.
    """
    encoder = modeling.BertModel(bert_config, False, *task_head.encoder_inputs(inputs),
                                 step_config=step_config, first_token_only=head.first_token_only)
    return head.build(bert_config, encoder, inputs, ModeKeys.PREDICT, num_micro_batches=1).predictions


def check_weights(head, bert_config, path):
    """Checks that a checkpoint has a model's variables; returns the open `checkpoint_formats.Checkpoint`.

    Args:
      head: a `bertlib.tasks.head.Head`.
      bert_config: a `modeling.BertConfig`.
      path: prefix of a checkpoint, or path of a Hugging Face model.

    Raises:
      ValueError, OSError: the checkpoint cannot be read, lacks a variable, or has a variable with a wrong
        shape or type.
    """
    checkpoint = checkpoint_formats.open_checkpoint(path)
    expected = {**modeling.variable_shapes(bert_config), **head.shapes(bert_config)}
    checkpoint_formats.check_types(checkpoint, expected)
    # If the head does not use the pooler, the checkpoint may lack the variables of the pooler.
    optional = [] if head.first_token_only else [name for name in expected if "/pooler/" in name]
    checkpoint_formats.check_fits(checkpoint, expected, optional)
    checkpoint_formats.check_readable(checkpoint, expected)
    return checkpoint


class LoadedModel:
    """A trained model in TensorFlow: a graph, and a session that has loaded the weights.

    Several threads may call the model at the same time, because the model does not change after its weights
    are loaded.

    Attributes:
      inputs: names of the arrays that a call takes.
    """

    def __init__(self, head, bert_config, checkpoint, extra_inputs, step_config):
        """Loads the weights.

        Args:
          head: a `bertlib.tasks.head.Head`.
          bert_config: a `modeling.BertConfig`.
          checkpoint: path of the weights, see `checkpoint_formats.open_checkpoint`.
          extra_inputs: names of the additional inputs of the head. Each input is int32 [B, any length].
          step_config: see `build`.

        Raises:
          ValueError, OSError: the weights are missing or damaged, or do not fit the model.
        """
        weights = check_weights(head, bert_config, checkpoint)
        with tf.Graph().as_default() as graph:
            self._feeds = create_inputs((*ENCODER_INPUTS, *extra_inputs))
            self.inputs = tuple(self._feeds)
            self._outputs = build(head, bert_config, self._feeds, step_config or StepConfig())
            self._session = tf.Session(graph=graph)
            sessions.load_read_weights(self._session, weights, tf.trainable_variables(), self._outputs)
            self._session.run(tf.tables_initializer())
            graph.finalize()

    def __call__(self, rows):
        """Computes the predictions of one batch.

        Args:
          rows: list of {name of an input: list of int}, without padding. Within a row, the encoder's inputs
            have the same length.

        Returns:
          list of {name of an output: array}, one dict for each row. An output with one value for each token
          is as long as the longest row.

        Raises:
          ValueError: there is not enough memory.
        """
        arrays = batches.pad(rows, self.inputs)
        try:
            outputs = self._session.run(self._outputs,
                                        {self._feeds[name]: array for name, array in arrays.items()})
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory. Lower --batch_size.") from error
        return list(batches.unstack_predictions(outputs))

    def close(self):
        """Frees the memory of the session."""
        self._session.close()
