"""Saves the position of a script's input with each checkpoint. A resumed run continues at this position.

The input of this project's commands needs no saved position, because it can start at any step: see
`input_pipeline.batch_of_step`.

The position for `model.ckpt-<step>` is saved in `input_position/model.ckpt-<step>`. This is a separate file
in TensorFlow's checkpoint format. The position is not part of the checkpoint itself, because some programs
that list the contents of a checkpoint cannot read the state of an iterator. The file contains

    fingerprint   int64: a digest of the input pipeline
    start         int64: the global step at which the input began
    state_<i>     variant: position, shuffle buffer and prefetched batches of iterator i

The fingerprint is needed because a state is valid only for the same pipeline. For example, after a change of
the batch size, TensorFlow would restore the state without an error and return a batch of the old size.

A Python generator has no state that could be saved. Instead, a resumed run reads the batches before the saved
position again, and discards them.
"""

import functools
import hashlib
import os

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.system.terminal import first_line

_ITERATORS = ("IteratorV2", "Iterator", "OneShotIterator")
# These attributes are left out of digests, because they differ between processes or do not change the
# elements that the pipeline returns.
_ATTRIBUTES_LEFT_OUT = ("_class", "_output_shapes", "container", "metadata", "shared_name", "token")
# With this policy, TensorFlow saves the position of an iterator even if the pipeline contains Python
# functions. In this case, TensorFlow assumes that these functions have no state.
_IGNORE_EXTERNAL_STATE = 1


class InputPosition(tf.train.SessionRunHook):
    """Saves and restores the positions of a graph's iterators.

    The object is also a hook, which records whether a step was run.

    Attributes:
      moved: whether `restore` moved the iterators away from the beginning of the input.
      has_trained: whether a step was taken.
    """

    def __init__(self, graph, cardinality=None):
        """Finds the iterators of a graph. Create the object when the graph contains the input, but does not
        contain the model yet.

        Args:
          graph: the graph.
          cardinality: see `script_training.Builder.input_cardinality`.
        """
        handles = [op.outputs[0] for op in graph.get_operations()
                   if op.type in _ITERATORS and _consumers(op, "IteratorGetNext")]
        self._batches = [list(_consumers(handle.op, "IteratorGetNext")[0].outputs) for handle in handles]
        self._start = None
        self.moved = self.has_trained = False
        if not handles:
            return
        digest = _Digest(graph)
        self._fingerprint = digest.of_iterators(handles)
        self._has_states = "GeneratorDataset" not in digest.op_types
        with tf.name_scope("input_position"):
            # The pipeline that distributes batches to replicas has an unknown length. So the length of the
            # script's own dataset is used, if the input_fn returned a dataset.
            self._cardinalities = [cardinality] if cardinality is not None else [
                tf.raw_ops.DatasetCardinality(input_dataset=maker.inputs[0])
                for handle in handles for maker in _consumers(handle.op, "MakeIterator")]
            self._path = tf.placeholder(tf.string, [])
            self._given_start = tf.placeholder(tf.int64, [])
            saved = {"fingerprint": tf.constant(self._fingerprint, tf.int64), "start": self._given_start}
            states = [f"state_{i}" for i in range(len(handles))] if self._has_states else []
            saved.update({name: tf.raw_ops.SerializeIterator(
                resource_handle=handle, external_state_policy=_IGNORE_EXTERNAL_STATE)
                for name, handle in zip(states, handles)})
            self._save = tf.raw_ops.SaveV2(prefix=self._path, tensor_names=list(saved),
                                           shape_and_slices=[""] * len(saved), tensors=list(saved.values()))
            self._restore = tf.group(*[tf.raw_ops.DeserializeIterator(
                resource_handle=handle, serialized=tf.raw_ops.RestoreV2(
                    prefix=self._path, tensor_names=[name], shape_and_slices=[""], dtypes=[tf.variant])[0])
                for name, handle in zip(states, handles)])

    def after_run(self, run_context, run_values):
        self.has_trained = True

    def restore(self, session, checkpoint, step, batches_per_step=1):
        """Moves the input to the position that was saved with a checkpoint.

        If the input has changed since the checkpoint, a warning is logged, and the input starts from its
        beginning.

        Call this method before the first step, but after `after_create_session` of all hooks, because a hook
        of the model_fn may initialize the iterators.

        Args:
          session: a raw session whose iterators are initialized.
          checkpoint: prefix of the checkpoint. None means the beginning of the input.
          step: the global step.
          batches_per_step: number of batches of the input in one step.

        Raises:
          tf.errors.OutOfRangeError: the input ends before the saved position.
          ValueError: the saved position is damaged.
        """
        if not self._batches:
            return
        start = self._start_in(checkpoint) if checkpoint else None
        self._start = step if start is None else start
        self.moved = self._start != step
        if self.moved and self._has_states:
            path = _path_beside(checkpoint)
            try:
                session.run(self._restore, {self._path: checkpoint_files.escape_prefix(path)})
            except (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.NotFoundError) as error:
                raise _damaged(path, error) from error
        elif self.moved:
            batches = (step - start) * batches_per_step
            logging.info("Reading the first %d batches of the input again, to reach the saved position.",
                         batches)
            for _ in range(batches):
                session.run(self._batches)

    def is_endless(self, session):
        """Returns whether all iterators are endless. If the length of a dataset is not known, for example
        behind a filter, the dataset does not count as endless."""
        if not self._batches or not self._cardinalities:
            return False
        try:
            return set(session.run(self._cardinalities)) == {tf.data.experimental.INFINITE_CARDINALITY}
        except tf.errors.InvalidArgumentError:  # a dataset reads a placeholder
            return False

    def _start_in(self, checkpoint):
        """Returns the global step at which the training began to read the input from its beginning. This step
        is saved with each checkpoint.

        Returns None if no position was saved with this checkpoint, or if the input has changed since then.
        """
        fingerprint, start = read(checkpoint)
        if start is not None and fingerprint != self._fingerprint:
            logging.warning("The files, the batch size or the code of the input have changed since %s was "
                            "saved. The input therefore starts from its beginning.", checkpoint)
            return None
        return start

    def save(self, session, checkpoint):
        """Saves the position of the input. Call this method before the checkpoint is written. The method does
        nothing if `restore` was not called yet."""
        if self._start is None:
            return
        path = _path_beside(checkpoint)
        directory = os.path.dirname(path)
        try:
            tf.gfile.MakeDirs(directory)
            session.run(self._save, {self._path: path, self._given_start: self._start})
        except (tf.errors.OpError, OSError) as error:
            checkpoint_files.remove(path)
            logging.warning("The position of the input could not be saved in %s (%s).", directory,
                            first_line(error))
        for prefix in checkpoint_files.list_checkpoints(directory):
            if prefix != path and not checkpoint_files.exists(
                    os.path.join(os.path.dirname(directory), os.path.basename(prefix))):
                checkpoint_files.remove(prefix)


def read(checkpoint):
    """Reads the position that was saved with a checkpoint.

    Returns:
      (fingerprint of the input, global step at which the input began), two ints; (None, None) if no position
      was saved.

    Raises:
      ValueError: the saved position is damaged.
    """
    path = _path_beside(checkpoint)
    if not checkpoint_files.exists(path):
        return None, None
    try:
        reader = tf.train.load_checkpoint(checkpoint_files.escape_prefix(path))
        return int(reader.get_tensor("fingerprint")), int(reader.get_tensor("start"))
    # TensorFlow reports the end of a truncated file as an IndexError.
    except (tf.errors.OpError, ValueError, IndexError) as error:
        raise _damaged(path, error) from error


def _path_beside(checkpoint):
    return os.path.join(os.path.dirname(checkpoint), "input_position", os.path.basename(checkpoint))


def _damaged(path, error):
    return ValueError(f"The position of the input in {path} is damaged ({first_line(error)}). The weights of "
                      f"the checkpoint are not lost. Remove {path}.index to start the input from its "
                      "beginning.")


def _consumers(op, kind):
    return [consumer for consumer in op.outputs[0].consumers() if consumer.type == kind]


class _Digest:
    """Computes digests of input pipelines. The same pipeline has the same digest in each process.

    The names of ops and functions differ between processes, because TensorFlow gives each function a number.
    A digest therefore contains only the types, attributes and inputs of ops.

    Attributes:
      op_types: set of the types of all ops in the digests.
    """

    def __init__(self, graph):
        self._graph = graph.as_graph_def()
        self._functions = {function.signature.name: function for function in self._graph.library.function}
        self.op_types = set()
        # The digest of a function is computed once, because many ops call the same functions.
        self._function = functools.cache(self._function)

    def of_iterators(self, handles):
        """Returns a digest, as an int of 63 bits. The digest covers the pipelines of all iterators in
        `handles` together."""
        ends = [op for handle in handles for op in (handle.op, *_consumers(handle.op, "MakeIterator"))]
        pipelines = tf.graph_util.extract_sub_graph(self._graph, [op.name for op in ends])
        return int(self._nodes(pipelines.node), 16) >> 1

    def _nodes(self, nodes, arguments=()):
        """Returns the digest of NodeDefs. `arguments` are the inputs of the function that contains them."""
        numbers = {node.name: str(number) for number, node in enumerate([*arguments, *nodes])}
        parts = []
        for node in nodes:
            inputs = [text.lstrip("^").split(":", 1) for text in node.input]
            parts += [self._node(node), *(":".join([numbers[first], *rest]) for first, *rest in inputs)]
        return _hash(parts)

    def _node(self, node):
        """Returns the digest of the type and the attributes of a NodeDef."""
        self.op_types.add(node.op)
        attributes = [f"{name}={self._attribute(node.attr[name])}" for name in sorted(node.attr)
                      if name not in _ATTRIBUTES_LEFT_OUT]
        return _hash([node.op, *attributes])

    def _attribute(self, value):
        if value.HasField("func"):
            return self._function(value.func.name)
        if value.HasField("list") and value.list.func:
            return _hash([self._function(function.name) for function in value.list.func])
        return _hash([value.SerializeToString(deterministic=True)])

    def _function(self, name):
        function = self._functions[name]
        return self._nodes(function.node_def, function.signature.input_arg)


def _hash(parts):
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


class Listener(tf.train.CheckpointSaverListener):
    """Saves the position of the input before each checkpoint."""

    def __init__(self, position, model_dir):
        self._position, self._model_dir = position, model_dir

    def before_save(self, session, global_step_value):
        self._position.save(session, os.path.join(self._model_dir, f"model.ckpt-{global_step_value}"))
