"""Offers the BERT encoder as a Keras layer, for code in TensorFlow 2.

    from bertlib.keras import BertEncoder

    encoder = BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")
    outputs = encoder({"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids})
    outputs["pooled_output"]    # float32 [B, W]

The layer is a layer of `tf.keras`. Normally, `tf.keras` is Keras 3. If the environment variable
TF_USE_LEGACY_KERAS is 1 when TensorFlow is imported, `tf.keras` is Keras 2 from the package tf_keras. The
layer does not turn off eager execution.

`modeling.BertModel` builds a graph with `get_variable`. `tf.compat.v1.wrap_function` turns this graph into a
function for eager code. The weights are arguments of this function: while the graph is built, a custom getter
replaces each variable by an argument. So the weights are ordinary weights of a Keras layer in tf_keras and
in Keras 3. The function has no state, so it runs in any `tf.function` and on each replica of a strategy.

The graph without dropout consists of plain TensorFlow ops. The graph with dropout also has custom gradients,
which are Python functions. A SavedModel cannot contain these gradients.
"""

import fnmatch
import functools
import os
import tempfile

from absl import logging
import tensorflow as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.graph import randomness
from bertlib.runs import file_names, model_config, model_files, tokenizer_files
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files
import bertlib.tasks  # noqa: F401  registers the tasks
import modeling

# Patterns of the names of files with weights that commands use instead of `bert_model.ckpt` in the same
# directory.
_OTHER_WEIGHTS = "*.safetensors", "*.safetensors.index.json", file_names.RECORD
_INPUTS = "input_ids", "input_mask", "segment_ids"
# Maps the compute dtype of a Keras dtype policy to the value of BertModel's argument `precision`.
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
# For the weight `global_step`, only the value of the first replica is used. Keras 3 needs this setting as a
# str, and tf_keras needs it as a tf.VariableAggregation. The code recognizes Keras 3 by tf.keras.ops, which
# tf_keras does not have.
_ONLY_FIRST_REPLICA = ("only_first_replica" if hasattr(tf.keras, "ops")
                       else tf.VariableAggregation.ONLY_FIRST_REPLICA)


@tf.keras.utils.register_keras_serializable("bertlib")
class BertEncoder(tf.keras.layers.Layer):
    """The BERT encoder with its pooler (Devlin et al. 2018, arXiv:1810.04805) as a Keras layer.

    A call takes arrays or tensors of integers with the shape [B, F]. The argument is either `input_ids`
    alone, or a dict. The dict has the key "input_ids", and may have the keys "input_mask" (1 for tokens, 0
    for padding; default: all ones) and "segment_ids" (default: all zeros). A call returns a dict:
    "sequence_output", float32 [B, F, W], and "pooled_output", float32 [B, W]. The names B, F and W are
    explained in `modeling`.

    Dropout is active if the layer is called with `training=True`, as `fit` does. The dropout masks depend on
    `seed`, on the number of training calls, and on the replica of a `tf.distribute` strategy.

    A call raises a ValueError for inputs that have a wrong shape or dtype, or contain numbers that are out of
    range. If the values are unknown until the graph runs, for example in `fit`, the error is a
    `tf.errors.InvalidArgumentError`.
    """

    def __init__(self, config, seed=randomness.DEFAULT_SEED, **kwargs):
        """Creates a layer with random weights; see `from_checkpoint` for pretrained weights.

        Args:
          config: a `modeling.BertConfig`, or a dict with its fields.
          seed: int, the seed of the random weights and of dropout.
          **kwargs: `name`, `trainable`, `dtype` and other arguments of a Keras layer. With
            `dtype="mixed_bfloat16"`, matrix products are computed in bfloat16. The default of `dtype` is the
            global policy. The weights and the outputs are always float32.

        Raises:
          ValueError: the configuration is not valid, or the dtype is not supported.
        """
        # The encoder casts its weights itself, so autocast is off.
        super().__init__(autocast=False, **kwargs)
        if self.variable_dtype != "float32" or self.compute_dtype not in _PRECISIONS:
            raise ValueError(f"BertEncoder cannot compute in {self.compute_dtype} with weights in "
                             f'{self.variable_dtype}. Pass dtype="mixed_bfloat16" or dtype="float32" to the '
                             "layer, or set one of these policies with "
                             "tf.keras.mixed_precision.set_global_policy.")
        self._bert_config, self._seed = _checked_config(config), int(seed)
        shapes = modeling.variable_shapes(self._bert_config)
        # Keras saves weights in the order of their creation. The names are sorted, so that this order is
        # always the same.
        self._names = tuple(sorted(shapes))
        for name in self._names:
            # `tf.train.Checkpoint` finds only weights that are attributes.
            setattr(self, name, self._add_encoder_weight(name, shapes[name]))
        self._step = self.add_weight(name="global_step", shape=(), dtype="int64", initializer="zeros",
                                     trainable=False, aggregation=_ONLY_FIRST_REPLICA)
        self._function = functools.cache(self._wrap)
        self.built = True

    @classmethod
    def from_checkpoint(cls, path, config_file=None, **kwargs):
        """Returns a layer with the weights of a checkpoint. If the checkpoint has no pooler, the layer has a
        pooler with random weights.

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
        checkpoint = checkpoint_formats.open_checkpoint(path)
        if config_file is None:
            directory = checkpoint_formats.directory_of_checkpoint(path)
            names = [os.path.join(directory, name) for name in file_names.CONFIGS.values()]
            config_file = next((name for name in names if files.exists(name)), None)
            if config_file is None:
                raise FileNotFoundError(f"There is no {' and no '.join(names)}. Pass the path of the "
                                        "configuration as config_file.")
        config_file = os.fspath(config_file)
        config = _checked_config(checkpoint_formats.read_config(config_file), f" in {config_file}")
        directory, name = os.path.split(config_file)
        if name == file_names.BERT_CONFIG:
            model_files.check_trained_config(config_file, config, OutputDirectory(directory or os.curdir))
        layer = cls(config, **kwargs)
        layer.load_checkpoint(checkpoint)
        return layer

    def load_checkpoint(self, path):
        """Replaces the weights by those of a checkpoint. If the checkpoint has no pooler, the pooler stays
        unchanged.

        Args:
          path: prefix or directory of a checkpoint, or directory of a Hugging Face model.

        Raises:
          ValueError: another weight is missing in the checkpoint, or a weight has a wrong shape or type.
        """
        checkpoint = checkpoint_formats.open_checkpoint(path)
        checkpoint_formats.check_types(checkpoint, self._names)
        checkpoint_formats.check_fits(checkpoint, modeling.variable_shapes(self._bert_config),
                                      [name for name in self._names if "/pooler/" in name])
        missing = [name for name in self._names if name not in checkpoint.shapes]
        if missing:
            logging.warning("The checkpoint %s lacks %s. These weights are not changed. In a new layer, they "
                            "are random.", checkpoint.path, ", ".join(missing))
        for name in self._names:
            if name not in missing:
                getattr(self, name).assign(checkpoint.read(name))

    def save_checkpoint(self, directory, vocab_file=None):
        """Writes the weights as a published checkpoint, which all commands accept as `--init_checkpoint`.

        The files are `bert_model.ckpt.*` and `bert_config.json`. Existing files with these names are replaced
        only after the new files were written completely.

        Args:
          directory: directory for the files. It is created if it does not exist.
          vocab_file: path of the vocabulary, which is copied as `vocab.txt`; None for no copy. If its
            directory contains settings of the tokenizer, they are written to `tokenizer_config.json`.

        Raises:
          FileExistsError: the directory contains other weights, which commands would use instead of these
            weights; or, with `vocab_file`, settings of another tokenizer.
          OSError: a file cannot be read or written.
        """
        source = checkpoint_formats.Checkpoint(
            self.name, modeling.variable_shapes(self._bert_config),
            lambda name: tf.convert_to_tensor(getattr(self, name)).numpy(),
            dict.fromkeys(self._names, tf.float32))
        contents = {file_names.BERT_CONFIG: self._bert_config.to_json_string().encode()}
        if vocab_file:
            contents[file_names.VOCABULARY] = files.read_bytes(os.fspath(vocab_file))
            settings = tokenizer_files.merge_settings(os.path.dirname(vocab_file))
            if settings:
                contents[tokenizer_files.TOKENIZER_CONFIG] = model_files.format_json(settings)
        _refuse_other_files(directory, contents)
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".bert_model.", dir=directory) as temporary:
            checkpoint_formats.write_tensorflow(os.path.join(temporary, "bert_model.ckpt"), source,
                                                self._names)
            for name, content in contents.items():
                files.write_bytes(os.path.join(temporary, name), content)
            # The names are sorted, so the data file is moved before the index file. For this reason, an index
            # file never exists without its data file.
            for name in sorted(os.listdir(temporary)):
                os.replace(os.path.join(temporary, name), os.path.join(directory, name))

    def call(self, inputs, training=False):
        """Returns the dict of outputs that the docstring of the class describes."""
        input_tensors = self._checked_inputs(inputs)
        step = tf.zeros([], tf.int64)
        if training:
            self._step.assign_add(tf.ones([], tf.int64))
            step = tf.convert_to_tensor(self._step)
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        sequence, pooled = self._function(bool(training))(
            *input_tensors, step, tf.cast(replica, tf.int64),
            *[tf.convert_to_tensor(getattr(self, name)) for name in self._names])
        return {"sequence_output": sequence, "pooled_output": pooled}

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "config": self._bert_config.to_dict(), "seed": self._seed}

    def _add_encoder_weight(self, name, shape):
        initializer = "ones" if name.endswith("/gamma") else "zeros"
        if not name.endswith(("/gamma", "/beta", "/bias")):
            initializer = tf.keras.initializers.TruncatedNormal(
                stddev=self._bert_config.initializer_range,
                seed=randomness.philox_key(self._seed, name) % 2**31)
        # Keras 3 forbids slashes in the name of a weight.
        return self.add_weight(name=name.replace("/", "."), shape=shape, dtype="float32",
                               initializer=initializer, autocast=False)

    def _checked_inputs(self, inputs):
        """Returns int32 tensors [B, F]: ids, mask and segments. For the errors, see the docstring of the
        class."""
        given = dict(inputs) if isinstance(inputs, dict) else {"input_ids": inputs}
        given = {name: value for name, value in given.items() if value is not None}
        if "input_ids" not in given or set(given) - set(_INPUTS):
            raise ValueError("The inputs of BertEncoder are input_ids, and optionally input_mask and "
                             "segment_ids, but these inputs were passed: "
                             f"{', '.join(map(str, given)) or 'none'}.")
        config = self._bert_config
        limits = dict(zip(_INPUTS, (config.vocab_size, 2, config.type_vocab_size)))
        values = {name: _integers(name, value, limits[name]) for name, value in given.items()}
        ids, length = values["input_ids"], modeling.get_shape_list(values["input_ids"])[1]
        for is_possible in (length >= 1, length <= config.max_position_embeddings):
            _require(is_possible, "The sequences in input_ids must have 1 to max_position_embeddings="
                     f"{config.max_position_embeddings} ids. Truncate longer sequences.")
        for name, value in values.items():
            for is_equal in (value.shape.is_compatible_with(ids.shape),
                             tf.reduce_all(tf.equal(tf.shape(value), tf.shape(ids)))):
                _require(is_equal, f"{name} must have the shape of input_ids.")
        return [ids, values.get("input_mask", tf.ones_like(ids)),
                values.get("segment_ids", tf.zeros_like(ids))]

    def _wrap(self, is_training):
        """Returns a function that runs the encoder.

        The arguments of this function are, in this order: the tensors of `_checked_inputs`; the number of
        training calls (int64 scalar); the index of the replica (int64 scalar); and the weights. The function
        returns (sequence output, pooled output).

        Args:
          is_training: bool, whether dropout is active.
        """
        def build(input_ids, input_mask, segment_ids, step, replica, *weights):
            tf.compat.v1.get_default_graph().seed = self._seed
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.GLOBAL_STEP, step)
            # The batch of a replica is a part of the global batch, just as a micro-batch is a part of an
            # effective batch. So the index of the replica serves as the index of the micro-batch.
            randomness.set_micro_batch(replica)
            by_name = dict(zip(self._names, weights))
            with tf.compat.v1.variable_scope("", custom_getter=lambda name, **unused: by_name[name]):
                model = modeling.BertModel(
                    self._bert_config, is_training, input_ids, input_mask, segment_ids,
                    step_config=modeling.StepConfig(precision=_PRECISIONS[self.compute_dtype]))
            return model.get_sequence_output(), model.get_pooled_output()

        specs = [*[tf.TensorSpec([None, None], tf.int32)] * len(_INPUTS), *[tf.TensorSpec([], tf.int64)] * 2,
                 *[tf.TensorSpec(getattr(self, name).shape, tf.float32) for name in self._names]]
        with tf.init_scope():
            return tf.compat.v1.wrap_function(build, specs)


def _refuse_other_files(directory, contents):
    """Raises a FileExistsError if a directory contains files that commands would use instead of the saved
    files, or together with them: the weights of a training or of Hugging Face, or settings of a tokenizer.

    Args:
      directory: the directory.
      contents: {name: content} of the files that will be written in addition to the weights.
    """
    names = os.listdir(directory) if os.path.isdir(directory) else []
    settings = tokenizer_files.NAMES if file_names.VOCABULARY in contents else ()
    others = [name for name in sorted(names) if name in settings and name not in contents
              or any(fnmatch.fnmatchcase(name, pattern) for pattern in _OTHER_WEIGHTS)]
    if others:
        raise FileExistsError(f"{directory} contains {', '.join(others)}. Commands would use these files "
                              "instead of the saved files, or with them. Save the encoder in another "
                              "directory.")


def _checked_config(config, where=""):
    """Returns a `modeling.BertConfig` that has only the fields of published configurations.

    Args:
      config: a `modeling.BertConfig`, or a dict with its fields.
      where: str, the part of the error message that names the file of the configuration, such as " in FILE".

    Raises:
      ValueError: a value is missing or not valid.
    """
    if isinstance(config, dict):
        config = modeling.BertConfig.from_dict(config)
    problems = (model_config.config_problems(config.to_dict()) if isinstance(config, modeling.BertConfig)
                else [f"It is {config!r}; it must be a modeling.BertConfig or a dict."])
    if problems:
        raise ValueError(f"The configuration{where} is not usable: {' '.join(problems)}")
    # In Hugging Face's configurations, some names of activations have a different meaning than in published
    # configurations. `from_dict` has translated these names, and must not translate them again when the layer
    # is loaded. So the fields by which `from_dict` recognizes Hugging Face's configurations are removed.
    return modeling.BertConfig.from_dict(model_files.published_settings(config))


def _integers(name, value, limit):
    """Returns an input of the layer as an int32 tensor [B, F].

    Args:
      name: name of the input.
      value: a tensor or an array.
      limit: int, all numbers must be at least 0 and below this number.
    """
    value = tf.convert_to_tensor(value)
    if not (value.dtype.is_integer or value.dtype.is_bool):
        raise ValueError(f"{name} has the dtype {value.dtype.name}. Pass integers. In a functional model, "
                         "use tf.keras.Input(..., dtype=\"int32\").")
    _require(tf.equal(tf.rank(value), 2), f"{name} must have the shape [batch, length], but its shape is "
             f"{value.shape}. Pass several inputs as a dict.")
    value = tf.cast(tf.ensure_shape(value, [None, None]), tf.int64)
    check = _require(tf.reduce_all((value >= 0) & (value < limit)),
                     f"{name} contains a number that is not in the range 0 to {limit - 1}.")
    # Without this dependency, the look-up of a wrong id could fail first, with an error that does not name
    # the input.
    with tf.control_dependencies(check):
        return tf.cast(value, tf.int32)


def _require(condition, message):
    """Raises an error if a condition is false. If the value of the condition is not known yet, the error is
    raised when the graph runs.

    Args:
      condition: bool, or a bool scalar tensor.
      message: str.

    Returns:
      list with the op that checks the condition when the graph runs. Empty if the value is known now.

    Raises:
      ValueError: the condition is false, and its value is known now.
    """
    known = condition if isinstance(condition, bool) else tf.get_static_value(condition)
    if known is None:
        return [tf.debugging.Assert(condition, [message])]
    if not known:
        raise ValueError(message)
    return []
