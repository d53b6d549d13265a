"""Implements `BertEncoder`, a Keras layer around `modeling.BertModel`.

`modeling.BertModel` builds a graph with `get_variable`. `tf.compat.v1.wrap_function` turns this graph into a
function for eager code. While the graph is built, a variable creator replaces each new variable by a weight
of the layer. So Keras knows all weights of the encoder, and tracks each of them once.

The layer builds two graphs with the same weights: one with dropout and one without. Both consist of plain
TensorFlow ops. The random initial weights are computed in a separate graph with a session.
"""

import os
import tempfile

import tensorflow as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.graph import randomness
from bertlib.system import files
import modeling

_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Name of the weight that counts the training calls. The dropout masks are a function of this number.
_STEP = "global_step"
_CONFIG_FILES = "bert_config.json", "config.json"  # of a published model, of a Hugging Face model


@tf.keras.utils.register_keras_serializable("bertlib")
class BertEncoder(tf.keras.layers.Layer):
    """The BERT encoder with its pooler (Devlin et al. 2018, arXiv:1810.04805) as a Keras layer.

    A call takes int32 tensors of shape [B, F]: either `input_ids` alone, or a dict with "input_ids" and
    optionally "input_mask" (1 for tokens, 0 for padding; default: all ones) and "segment_ids" (default: all
    zeros). It returns a dict: "sequence_output", float32 [B, F, W], and "pooled_output", float32 [B, W]. The
    names B, F and W are explained in `modeling`.

    Dropout is active if the layer is called with `training=True`, as `fit` does. The dropout masks depend on
    `seed` and on the number of training calls.
    """

    def __init__(self, config, precision="fp32", seed=randomness.DEFAULT_SEED, **kwargs):
        """Creates a layer with random weights; see `from_checkpoint` for pretrained weights.

        Args:
          config: a `modeling.BertConfig`, or a dict with its fields.
          precision: "fp32" or "bf16", the data type of the matrix products; see `modeling.BertModel`. The
            weights and the outputs are always float32.
          seed: int, the seed of the random weights and of dropout.
          **kwargs: `name`, `trainable` and other arguments of a Keras layer. `dtype` must be float32.

        Raises:
          ValueError: the configuration or the precision is not valid.
        """
        # The encoder casts its inputs and layers itself. A global policy of mixed precision must not cast
        # the weights a second time.
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"precision={precision!r} is not possible here. Pass \"fp32\" or \"bf16\".")
        self._bert_config = modeling.BertConfig.from_dict(config) if isinstance(config, dict) else config
        self._precision, self._seed = precision, int(seed)
        weights = self._create_weights()
        variables = {name: weight if isinstance(weight, tf.Variable) else weight.value
                     for name, weight in weights.items()}
        functions = {is_training: self._wrap(is_training, variables) for is_training in (False, True)}
        self._step = weights.pop(_STEP)
        # Keras tracks the contents of a dict attribute, and would then save each weight twice. It does not
        # track objects to which a function refers.
        self._weights_by_name = lambda: weights
        self._run = lambda is_training, *inputs: functions[is_training](*inputs)
        self.built = True

    @classmethod
    def from_checkpoint(cls, path, config_file=None, **kwargs):
        """Returns a layer with the weights of a checkpoint.

        Args:
          path: directory or prefix of a published checkpoint, an output directory of a training command, or
            the directory of a Hugging Face model.
          config_file: path of the configuration; None for `bert_config.json` or `config.json` next to the
            checkpoint.
          **kwargs: the arguments of the constructor after `config`.

        Raises:
          FileNotFoundError: the checkpoint or the configuration does not exist.
          ValueError: the checkpoint is damaged, or lacks weights of the encoder, or does not fit the
            configuration.
        """
        path = os.fspath(path)
        if config_file is None:
            directory = path if os.path.isdir(path) else os.path.dirname(path)
            names = [os.path.join(directory, name) for name in _CONFIG_FILES]
            config_file = next((name for name in names if os.path.exists(name)), None)
            if config_file is None:
                raise FileNotFoundError(f"There is no {' and no '.join(names)}. Pass the path of the "
                                        "configuration as config_file.")
        layer = cls(modeling.BertConfig.from_json_file(os.fspath(config_file)), **kwargs)
        layer.load_checkpoint(path)
        return layer

    def load_checkpoint(self, path):
        """Replaces the weights by those of a checkpoint.

        Args:
          path: see `checkpoint_formats.open_checkpoint`.

        Raises:
          ValueError: a weight is missing in the checkpoint, or has another shape there.
        """
        checkpoint = checkpoint_formats.open_checkpoint(path)
        checkpoint_formats.check_types(checkpoint, list(self._weights_by_name()))
        checkpoint_formats.check_fits(
            checkpoint, {name: tuple(weight.shape) for name, weight in self._weights_by_name().items()})
        for name, weight in self._weights_by_name().items():
            weight.assign(checkpoint.read(name))

    def save_checkpoint(self, directory, vocab_file=None):
        """Writes the weights as a published checkpoint, which all commands accept as `--init_checkpoint`.

        The files are `bert_model.ckpt.*` and `bert_config.json`. They replace files with the same names only
        after the new files were written completely.

        Args:
          directory: directory for the files. It is created if it does not exist.
          vocab_file: path of the vocabulary, which is copied as `vocab.txt`; None for no copy.

        Raises:
          OSError: a file cannot be read or written.
        """
        weights = self._weights_by_name()
        source = checkpoint_formats.Checkpoint(
            self.name, {name: tuple(weight.shape) for name, weight in weights.items()},
            lambda name: tf.keras.backend.get_value(weights[name]), dict.fromkeys(weights, tf.float32))
        vocabulary = files.read_bytes(os.fspath(vocab_file)) if vocab_file else None
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".bert_model.", dir=directory) as temporary:
            checkpoint_formats.write_tensorflow(os.path.join(temporary, "bert_model.ckpt"), source,
                                                sorted(weights))
            files.write_text(os.path.join(temporary, "bert_config.json"),
                             self._bert_config.to_json_string())
            if vocabulary is not None:
                files.write_bytes(os.path.join(temporary, "vocab.txt"), vocabulary)
            for name in sorted(os.listdir(temporary)):  # the data file before the index
                os.replace(os.path.join(temporary, name), os.path.join(directory, name))

    def call(self, inputs, training=False):
        """Returns the dict of outputs; see the class."""
        given = dict(inputs) if isinstance(inputs, dict) else {"input_ids": inputs}
        unknown = sorted(set(given) - set(_INPUTS))
        if unknown or "input_ids" not in given:
            raise ValueError("The inputs of BertEncoder are input_ids, and optionally input_mask and "
                             f"segment_ids, but these inputs were passed: {', '.join(sorted(given))}.")
        ids = tf.cast(given["input_ids"], tf.int32)
        mask = tf.cast(given.get("input_mask", tf.ones_like(ids)), tf.int32)
        segments = tf.cast(given.get("segment_ids", tf.zeros_like(ids)), tf.int32)
        if training:
            self._step.assign_add(tf.ones([], tf.int64))
        sequence, pooled = self._run(bool(training), ids, mask, segments)
        return {"sequence_output": sequence, "pooled_output": pooled}

    def compute_output_spec(self, inputs, training=False):
        """Returns the shapes and dtypes of the outputs. Keras 3 calls this for a functional model."""
        ids = inputs["input_ids"] if isinstance(inputs, dict) else inputs
        width = self._bert_config.hidden_size
        return {"sequence_output": tf.keras.KerasTensor((*ids.shape, width), "float32"),
                "pooled_output": tf.keras.KerasTensor((ids.shape[0], width), "float32")}

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "config": self._bert_config.to_dict(), "precision": self._precision,
                "seed": self._seed}

    def _create_weights(self):
        """Creates all weights with random values; returns {name in a checkpoint: weight}."""
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            graph.seed = self._seed
            with tf.compat.v1.variable_scope("", use_resource=True):
                self._build_model(True, *[tf.zeros([1, 1], tf.int32)] * len(_INPUTS))
            session.run(tf.compat.v1.global_variables_initializer())
            variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
            initial = session.run(variables)
        # The names are sorted, because Keras saves weights in the order of their creation. Keras 3 forbids
        # slashes in the name of a weight.
        return {name: self.add_weight(
            name=name.replace("/", "."), shape=initial[name].shape, dtype=initial[name].dtype.name,
            trainable=variables[name].trainable,
            initializer=lambda shape, dtype=None, value=initial[name]: tf.constant(value, dtype))
            for name in sorted(initial)}

    def _build_model(self, is_training, input_ids, input_mask, segment_ids):
        """Builds the encoder in the current graph; returns (sequence output, pooled output)."""
        tf.compat.v1.train.get_or_create_global_step()
        model = modeling.BertModel(self._bert_config, is_training, input_ids, input_mask, segment_ids,
                                   precision=self._precision)
        return model.get_sequence_output(), model.get_pooled_output()

    def _wrap(self, is_training, variables):
        """Returns an eager function of three int32 tensors [B, F] that runs the encoder with variables.

        Args:
          is_training: bool, whether dropout is active.
          variables: {name in a checkpoint: tf.Variable}.
        """
        def build(*inputs):
            tf.compat.v1.get_default_graph().seed = self._seed
            with tf.variable_creator_scope(lambda next_creator, **arguments: variables[arguments["name"]]):
                return self._build_model(is_training, *inputs)

        with tf.init_scope():
            return tf.compat.v1.wrap_function(build, [tf.TensorSpec([None, None], tf.int32)] * len(_INPUTS))
