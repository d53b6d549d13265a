"""Finds, reads, writes and checks checkpoints of TensorFlow and of Hugging Face's BERT (safetensors).

`create_init_fn` initializes a new training from a checkpoint. If a training resumes, the module `sessions`
restores the checkpoint of this training.

The class `Checkpoint` has the same interface for both formats. It lists the published variable names and the
shapes, and reads one tensor at a time as a NumPy array. A published name is the name of a variable in
Google's BERT checkpoints, such as "bert/embeddings/word_embeddings". The tensors of a `Checkpoint` can be
written in both formats. Pickle files are never opened.
"""

import dataclasses
import functools
import ntpath
import os
import re
import shlex

from absl import logging
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bertlib.checkpoints import checkpoint_files
from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import files, terminal

# Matches the names of the variables that a training adds. These variables do not belong to the model.
_TRAINING_STATE = re.compile(
    r"(^|/)(global_step|adam_m|adam_v|Adam|ExponentialMovingAverage|beta[12]_power|"
    r"(current_)?loss_scale(/value)?|learning_rate)(_\d+)?$")
# A message lists at most this number of differences between a checkpoint and a model, or of tensors.
_MAX_DIFFERENCES_SHOWN = 12
# One call of `session.run` loads at most this number of bytes of initial weights. A larger variable is loaded
# alone.
_BYTES_FED_AT_A_TIME = 64 * 2**20
# The tensors of a model that have a row for each token. All other tensors are independent of the vocabulary.
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
WORD_TABLES = (WORD_EMBEDDINGS, "cls/predictions/output_bias")


def _read_errors():
    """Returns the errors that TensorFlow's checkpoint reader raises. The reader raises an IndexError if the
    file is truncated."""
    return tf.errors.OpError, IndexError, RuntimeError


class DamagedError(ValueError):
    """The error for a checkpoint that is damaged and cannot be read completely.

    Attributes:
      path: the prefix or the file of the checkpoint.
      what: str, a sentence that describes the damage.
    """

    def __init__(self, path, what):
        super().__init__(path, what)
        self.path, self.what = path, what

    def __str__(self):
        return f"{self.what} {advice_on_damage(self.path)}"


@dataclasses.dataclass(eq=False)
class Checkpoint:
    """The tensors of a checkpoint with their published names.

    Attributes:
      path: the path that the user passed. If the user passed a directory of TensorFlow checkpoints, this is
        the prefix of the newest checkpoint in the directory.
      shapes: {name: shape as a tuple of ints}.
      dtypes: {name: `tf.DType` in the file}.
      format: "tensorflow" or "hugging_face".
    """

    path: str
    shapes: dict
    _read: object  # function (name) -> array
    dtypes: dict = dataclasses.field(default_factory=dict)
    format: str = "tensorflow"

    def read(self, name):
        """Returns a tensor as an array. 16-bit floats are converted to float32.

        Raises:
          DamagedError: the tensor cannot be read.
        """
        try:
            value = self._read(name)
        except (*_read_errors(), SafetensorError, OSError) as error:
            raise DamagedError(self.path, f"{self.path} is damaged: {name} cannot be read "
                               f"({terminal.first_line(error)}).") from error
        return value.astype(np.float32) if value.dtype in (np.float16, tf.bfloat16.as_numpy_dtype) else value

    def changed(self, read, shapes=None):
        """Returns a `Checkpoint` with another function `read`, and optionally with other shapes."""
        return dataclasses.replace(self, _read=read, shapes=shapes or self.shapes)

    def read_dtype(self, name):
        """Returns the `tf.DType` of the array that `read` returns."""
        return tf.float32 if self.dtypes[name] in (tf.float16, tf.bfloat16) else self.dtypes[name]


def open_checkpoint(path):
    """Opens a checkpoint; returns a `Checkpoint`.

    Args:
      path: the prefix or the directory of a TensorFlow checkpoint, the directory of a Hugging Face model, or
        the path of a `.safetensors` file. If `path` is already a `Checkpoint`, it is returned unchanged.

    Raises:
      FileNotFoundError: the checkpoint does not exist.
      DamagedError: the checkpoint is damaged.
      ValueError: the format is not supported.
    """
    if isinstance(path, Checkpoint):
        return path
    path = os.fspath(path)
    if path.endswith(".safetensors"):
        return _open_safetensors(path, [path])
    if tf.gfile.IsDirectory(path):
        return _open_directory(path)
    if path.endswith((".bin", ".pt", ".pth", ".pkl")):
        raise ValueError(f"{path}: {_NO_PICKLE}")
    return _open_tensorflow(path)


def read_config(path):
    """Returns the content of a model's configuration file as a dict.

    Hugging Face and google-research/bert give different meanings to "gelu". `modeling.BertConfig.from_dict`
    recognizes a configuration of Hugging Face by the key "model_type". The config.json of an old model lacks
    this key, so this function adds it, if the weights in the same directory are safetensors files.

    Args:
      path: str, a bert_config.json or config.json.

    Raises:
      ValueError: the file contains no JSON object.
      FileNotFoundError: the file does not exist.
    """
    content = files.read_json_object(path)
    directory, name = os.path.split(path)
    if name == "config.json" and checkpoint_files.list_by_ending(directory, ".safetensors"):
        content.setdefault("model_type", "bert")
    return content


def reorder_tensors(checkpoint, orders):
    """Returns a `Checkpoint` in which the elements of some tensors are reordered.

    Args:
      checkpoint: a `Checkpoint`.
      orders: {name of a tensor: list of orders}. The first order is for the first axis of the tensor, the
        second order for the second axis, and so on. An order is a list of old indices: its entry k is the old
        index of the element that gets the new index k. For example, [2, 0, 1] moves the last of three
        elements to the beginning.
    """
    def read(name):
        value = checkpoint.read(name)
        for axis, order in enumerate(orders.get(name, ())):
            value = value.take(order, axis)
        return value

    return checkpoint.changed(read)


def drop_tensors(checkpoint, names):
    """Returns a `Checkpoint` without the tensors `names`."""
    shapes = {name: shape for name, shape in checkpoint.shapes.items() if name not in names}
    return checkpoint.changed(checkpoint.read, shapes)


def append_mean_rows(checkpoint, num_kept, sources):
    """Returns a `Checkpoint` in which the tensors `WORD_TABLES` have new rows. Each new row is the mean of
    old rows.

    Args:
      checkpoint: a `Checkpoint`.
      num_kept: int, number of old rows to keep. All old rows after these rows are padding and are removed.
        The new rows are appended to the kept rows.
      sources: for each new row, a list with the indices of the old rows whose mean is the new row.
    """
    def read(name):
        value = checkpoint.read(name)
        if name not in WORD_TABLES:
            return value
        new = [value[rows].mean(0) for rows in sources]
        return np.concatenate([value[:num_kept], np.asarray(new, value.dtype)])

    shapes = {name: (num_kept + len(sources), *shape[1:]) if name in WORD_TABLES else shape
              for name, shape in checkpoint.shapes.items()}
    return checkpoint.changed(read, shapes)


def directory_of_checkpoint(path):
    """Returns the directory of a checkpoint's files; for `path`, see `open_checkpoint`."""
    path = os.fspath(path)
    return path if tf.gfile.IsDirectory(path) else os.path.dirname(path)


_NO_PICKLE = ("PyTorch's pickle files are not read, because opening such a file can run any code. Save the "
              "model as safetensors: model.save_pretrained(directory, safe_serialization=True).")


def _open_directory(path):
    index = os.path.join(path, "model.safetensors.index.json")
    if tf.gfile.Exists(index):
        return _open_safetensors(path, _files_of_index(index))
    paths = checkpoint_files.list_by_ending(path, ".safetensors")
    single = os.path.join(path, "model.safetensors")
    if single in paths or len(paths) == 1:
        return _open_safetensors(path, [single if single in paths else paths[0]])
    if newest := latest_or_only_checkpoint(path):
        return _open_tensorflow(newest)
    if checkpoint_files.list_by_ending(path, ".bin"):
        raise ValueError(f"{path} has no model.safetensors. {_NO_PICKLE}")
    prefixes = checkpoint_files.list_checkpoints(path)
    if prefixes:
        raise FileNotFoundError(f"The directory {path} contains {len(prefixes)} checkpoints, but no file "
                                "`checkpoint` that names the newest one. Pass the prefix of a checkpoint "
                                f"instead of the directory, for example {prefixes[-1]}.")
    raise FileNotFoundError(f"The directory {path} contains neither model.safetensors nor a TensorFlow "
                            "checkpoint. Name another directory.")


def _files_of_index(index):
    """Reads the index file of a model that was saved in several safetensors files. Returns the paths of these
    files."""
    try:
        names = sorted(set(files.read_json_object(index)["weight_map"].values()))
        return [os.path.join(os.path.dirname(index), name) for name in names]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError(index, f"{index} is damaged: it does not contain a JSON object with a "
                           f"\"weight_map\" of file names ({error}).") from error


def _open_tensorflow(prefix):
    if not checkpoint_files.exists(prefix):
        checkpoints = checkpoint_files.list_checkpoints(os.path.dirname(prefix))
        hint = f" Checkpoints in this directory: {', '.join(checkpoints[:5])}." if checkpoints else ""
        raise FileNotFoundError(f"There is no checkpoint {prefix} (looked for {prefix}.index).{hint}")
    try:
        reader = tf.train.load_checkpoint(checkpoint_files.escape_prefix(prefix))
        shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    except (*_read_errors(), ValueError) as error:
        raise DamagedError(prefix, f"The checkpoint {prefix} cannot be read ({terminal.first_line(error)}): "
                           "it is truncated or damaged.") from error
    return Checkpoint(prefix, shapes, reader.get_tensor, reader.get_variable_to_dtype_map())


def _without_ending(path):
    """Returns the prefix of a checkpoint, given the prefix or the path of one of its files."""
    return re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)


# {name of a data type in safetensors: its name in TensorFlow}. Data types that are not used for BERT models
# are left out.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
           "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
           "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_WEIGHT_TYPES = ("float16", "bfloat16", "float32", "float64")


def _open_safetensors(path, paths):
    from bertlib.checkpoints.hugging_face_names import published_name
    tensors = {}  # published name -> (open file, name in the file, whether to transpose)
    shapes, dtypes = {}, {}
    for file in paths:
        if not os.path.exists(file):
            raise FileNotFoundError(f"There is no file {file}.")
        try:
            handle = safe_open(file, framework="numpy")
        except (SafetensorError, OSError) as error:
            reason = terminal.first_line(error)
            raise DamagedError(file, f"{file} is not a complete safetensors file ({reason}): it is truncated "
                               "or damaged.") from error
        for key in handle.keys():
            name, transpose = published_name(key)
            if name is not None:
                view = handle.get_slice(key)
                shape = tuple(view.get_shape())
                tensors[name] = (handle, key, transpose)
                shapes[name] = shape[::-1] if transpose else shape
                dtype = _DTYPES.get(view.get_dtype())
                dtypes[name] = dtype and tf.as_dtype(dtype)
    if "output_weights" in tensors and _is_multiple_choice(os.path.dirname(paths[0])):
        for table in (tensors, shapes, dtypes):
            table["cls/multiple_choice/output_weights"] = table.pop("output_weights")
            # The bias has no effect, because it is the same for all endings of a question.
            table.pop("output_bias", None)

    def read(name):
        handle, key, transpose = tensors[name]
        value = handle.get_tensor(key)
        return value.T if transpose else value

    return Checkpoint(path, shapes, read, dtypes, "hugging_face")


def _is_multiple_choice(directory):
    """Returns whether the model in a directory has Hugging Face's class BertForMultipleChoice. The tensors of
    its head have the same names as those of a classifier."""
    path = os.path.join(directory, "config.json")
    classes = files.read_json_object(path).get("architectures") if files.exists(path) else None
    return isinstance(classes, list) and "BertForMultipleChoice" in classes


def weight_names(checkpoint):
    """Returns the names of a TensorFlow checkpoint's weights, without the state of a training.

    The state of a training consists of three kinds of variables: variables that are not floating-point
    numbers (the step, counters, positions in the data), the slots of an optimizer, and single numbers such as
    the learning rate.
    """
    return [name for name, dtype in checkpoint.dtypes.items() if dtype and dtype.is_floating
            and not _TRAINING_STATE.search(name) and not is_slot(name, checkpoint.shapes)]


def is_slot(name, names):
    """Returns whether a variable is a slot of an optimizer. The name of a slot begins with the name of
    another variable in `names` and a slash (`<variable>/adam_m`)."""
    return any(name[:end] in names for end, character in enumerate(name) if character == "/")


def join_names(names):
    """Returns a text with the first names in a list."""
    more = len(names) - _MAX_DIFFERENCES_SHOWN
    return ", ".join(names[:_MAX_DIFFERENCES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# --- Writing ---------------------------------------------------------------------------------------------


def write_tensorflow(prefix, checkpoint, names):
    """Writes tensors of a checkpoint as a TensorFlow checkpoint without a graph file.

    16-bit floats become float32. TensorFlow writes all tensors with one op, so all of them are in memory at
    the same time.

    Args:
      prefix: path of the new checkpoint.
      checkpoint: a `Checkpoint`.
      names: published names of the tensors.
    """
    # The op runs on the CPU, so that this process allocates no GPU memory.
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        # The op gets the tensors from a Python function. If they were constants of the graph, they would be
        # copied. In addition, a graph with its constants can have at most 2 GB.
        tensors = [tf.numpy_function(functools.partial(checkpoint.read, name), [],
                                     checkpoint.read_dtype(name))
                   for name in names]
        session.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names),
                                      tensors=tensors))


def write_safetensors(path, checkpoint, names):
    """Writes tensors of a checkpoint as a safetensors file with Hugging Face's names.

    16-bit floats become float32. If `names` contains no weights of a head, the file gets the names of Hugging
    Face's class BertModel. These names do not begin with "bert.".

    Args:
      path: the new file.
      checkpoint: a `Checkpoint`.
      names: published names of the tensors.
    """
    from bertlib.checkpoints.hugging_face_names import hugging_face_name
    bare = all(name.startswith("bert/") for name in names)
    tensors = {}
    for name in names:
        key, transpose = hugging_face_name(name)
        values = checkpoint.read(name)
        tensors[key.removeprefix("bert.") if bare else key] = np.ascontiguousarray(
            values.T if transpose else values)
    save_file(tensors, path, {"format": "pt"})


# --- Checks ----------------------------------------------------------------------------------------------


def check_fits(checkpoint, model_shapes, optional=()):
    """Checks that a checkpoint contains all variables of a model, with the same shapes.

    Args:
      checkpoint: a `Checkpoint`.
      model_shapes: {name: shape} of the model's variables.
      optional: names of variables that may be missing. If such a variable exists, its shape is checked.

    Raises:
      ValueError: the checkpoint differs from the model. The message lists the differences and their probable
        cause.
    """
    missing_names = [name for name in model_shapes if name not in checkpoint.shapes and name not in optional]
    different_names = [name for name, shape in model_shapes.items()
                       if checkpoint.shapes.get(name, shape) != shape]
    if not missing_names and not different_names:
        return
    lines = [f"  {name}: the checkpoint has {list(checkpoint.shapes[name])}, the model "
             f"{list(model_shapes[name])}" for name in different_names]
    lines += [f"  {name}: not in the checkpoint; the model has {list(model_shapes[name])}"
              for name in missing_names]
    if len(lines) > _MAX_DIFFERENCES_SHOWN:
        lines[_MAX_DIFFERENCES_SHOWN:] = [f"  … and {len(lines) - _MAX_DIFFERENCES_SHOWN} more"]
    raise ValueError(f"The checkpoint {checkpoint.path} does not fit the model:\n" + "\n".join(lines) + "\n"
                     + (_advice_on_scope(checkpoint)
                        or _probable_cause(checkpoint.shapes, model_shapes, missing_names, different_names)))


def read_global_step(path):
    """Returns the global step (int) of a checkpoint; 0 if the checkpoint has none, or if the path is None."""
    if not path:
        return 0
    checkpoint = open_checkpoint(path)
    return int(checkpoint.read("global_step")) if "global_step" in checkpoint.shapes else 0


def check_variables(checkpoint, variables, optional):
    """Checks that a checkpoint fits the variables of a graph; see `check_types` and `check_fits`.

    Args:
      checkpoint: a `Checkpoint`.
      variables: list of the variables.
      optional: variables that the checkpoint may lack.

    Raises:
      ValueError: a variable is missing in the checkpoint, or has a different shape or a type that is not
        floating-point in the checkpoint.
    """
    check_types(checkpoint, [variable.op.name for variable in variables
                             if variable.dtype.base_dtype.is_floating])
    check_fits(checkpoint, {variable.op.name: tuple(variable.shape.as_list()) for variable in variables},
               {variable.op.name for variable in optional})


def check_same_types(checkpoint, variables):
    """Checks that a checkpoint's tensors have the types of the variables into which they are restored.

    Args:
      checkpoint: a `Checkpoint`.
      variables: list of the variables. Variables that the checkpoint lacks are not checked here, but by
        `check_fits`.

    Raises:
      ValueError: a tensor has a type that differs from the type of its variable.
    """
    for variable in variables:
        name, dtype = variable.op.name, variable.dtype.base_dtype
        checkpoint_dtype = checkpoint.dtypes.get(name, dtype)
        if checkpoint_dtype != dtype:
            raise ValueError(f"The checkpoint {checkpoint.path} does not fit the model: {name} has the type "
                             f"{checkpoint_dtype.name} in the checkpoint and {dtype.name} in the model. A "
                             "training saves the types of its model, so this checkpoint does not come from a "
                             "training of this model. To start a training from these weights, pass the "
                             "checkpoint as --init_checkpoint, and pass another --output_dir.")


def _advice_on_scope(checkpoint):
    """Returns a text that says how to rename the weights of a checkpoint, if their names have another scope
    than the published names, such as "module/bert/…" or "my_bert/…". Returns None for other checkpoints."""
    names = [name for name in checkpoint.shapes if f"/{name}".endswith("/embeddings/word_embeddings")]
    if len(names) != 1 or names[0] == "bert/embeddings/word_embeddings":
        return None
    scope, bert_scope = names[0].removesuffix("embeddings/word_embeddings"), "bert/"
    if checkpoint.format == "hugging_face":
        scope, bert_scope = scope.replace("/", "."), "bert."
    wrong = f"begin with {scope!r} instead of" if scope else "do not begin with"
    return (f"The names of the encoder's weights in this checkpoint {wrong} {bert_scope!r}. Copy the weights "
            f"to a checkpoint in which these names begin with {bert_scope!r}.")


def _probable_cause(shapes, model_shapes, missing_names, different_names):
    """Returns a sentence about the probable cause of the differences that `check_fits` found.

    Args:
      shapes: {name: shape} in the checkpoint.
      model_shapes: {name: shape} of the model's variables.
      missing_names: names of variables that the checkpoint lacks.
      different_names: names of variables that have a different shape in the checkpoint.
    """
    layers, model_layers = _layer_count(shapes), _layer_count(model_shapes)
    words = next((name for name in different_names if name.endswith("/word_embeddings")), None)
    if not any(name in shapes for name in model_shapes):
        examples = ", ".join(sorted(name for name in shapes if not _TRAINING_STATE.search(name))[:3])
        return ("Probably this is not a checkpoint of BERT: it has none of the names of BERT's variables "
                f"(its names are {examples}, …).")
    if any(name.endswith("LayerNorm/gamma") for name in different_names):
        return ("Probably the configuration belongs to a model of a different size. Use the bert_config.json "
                "that came with the checkpoint.")
    if layers != model_layers:
        return (f"Probably num_hidden_layers={model_layers} in the configuration is wrong: the "
                f"checkpoint has {layers} layers.")
    if words:
        return (f"Probably vocab_size={model_shapes[words][0]} in the configuration is wrong: the checkpoint "
                f"has {shapes[words][0]} words. Use the configuration and the vocabulary that came with the "
                "checkpoint.")
    if not missing_names and all(name.split("/")[-1].startswith("output_") for name in different_names):
        return ("Probably the checkpoint was fine-tuned with other labels: for another task, or before the "
                "labels in the training data changed. Compare the labels in the log with labels.txt in the "
                "directory of the checkpoint. If only the second size of output_weights differs, a program "
                "with another head trained the checkpoint.")
    if different_names:
        return "Probably the configuration is not the one that came with the checkpoint."
    if not any(name.startswith("bert/") for name in missing_names):
        return ("Probably a program or a --task_module with another head trained the checkpoint. Use the "
                "model with that program.")
    return "Probably the checkpoint is incomplete, or was saved under other variable names."


def _layer_count(names):
    return len(set(re.findall(r"/layer_(\d+)/", "\n".join(names))))


def check_types(checkpoint, names):
    """Checks that weights are floating-point numbers, and not quantized integers.

    Args:
      checkpoint: a `Checkpoint`.
      names: names of weights. Names that the checkpoint lacks are ignored.

    Raises:
      ValueError: a weight is not a floating-point number.
    """
    wrong_names = [name for name in names if name in checkpoint.shapes and name in checkpoint.dtypes
                   and getattr(checkpoint.dtypes[name], "name", None) not in _WEIGHT_TYPES]
    if not wrong_names:
        return
    dtype = checkpoint.dtypes[wrong_names[0]]
    raise ValueError(f"The checkpoint {checkpoint.path} is quantized, or does not belong to a model: "
                     f"{wrong_names[0]} has the type {dtype.name if dtype else 'unknown'}. The type of "
                     "weights must be float32, float16, bfloat16 or float64. Use the model from before the "
                     "quantization, or save the model again in one of these types.")


def check_readable(checkpoint, names):
    """Reads each of the tensors `names` once, so that damage is found before the training starts.

    Raises:
      DamagedError: a tensor cannot be read, or contains NaN, infinity, or numbers that are too large for
        float32.
    """
    for name in names:
        if name not in checkpoint.shapes:
            continue
        values = checkpoint.read(name)
        # The minimum and the maximum need no copy of the values. With NaN, both are NaN, and all comparisons
        # with NaN are false.
        limit = np.finfo(np.float32).max
        if values.dtype.kind == "f" and values.size and not -limit <= values.min() <= values.max() <= limit:
            raise DamagedError(checkpoint.path, f"{checkpoint.path} is damaged: {name} contains values that "
                               "are not finite, or too large for float32.")


def find_damage(prefix):
    """Returns a sentence that describes the damage of a TensorFlow checkpoint. Returns None if all tensors
    can be read."""
    try:
        checkpoint = _open_tensorflow(prefix)
        check_readable(checkpoint, checkpoint.shapes)
    except DamagedError as error:
        return error.what
    except (ValueError, OSError) as error:
        return str(error)
    return None


def advice_on_damage(path):
    """Returns advice on a damaged or missing checkpoint. If there are complete checkpoints of earlier steps,
    the advice names the newest of them, but not the untrained weights of step 0."""
    step, directory = checkpoint_files.step_in_name(path), os.path.dirname(path)
    if step is None:
        return "Copy or download the checkpoint again."
    newest = next((prefix for prefix in reversed(checkpoint_files.list_training_checkpoints(directory))
                   if 0 < checkpoint_files.step_in_name(prefix) < step and not find_damage(prefix)), None)
    if newest is None:
        return (f"{directory or '.'} contains no earlier checkpoint that is complete. Restore the files of "
                "this checkpoint from a copy, or use another directory to start again.")
    listing = os.path.join(directory, "checkpoint")
    line = f'model_checkpoint_path: "{os.path.basename(newest)}"'
    return (f"The newest complete checkpoint before it is {newest}. If you named the damaged checkpoint, "
            "name the complete checkpoint instead. If you named the directory, run the next line; the same "
            "command then continues from the complete checkpoint:\n"
            f"  echo {shlex.quote(line)} > {shlex.quote(listing)}")


# --- Initial weights -------------------------------------------------------------------------------------


def create_init_fn(init_checkpoint, variables):
    """Returns an `init_fn` for `tf.train.Scaffold`. The `init_fn` loads the variables that the checkpoint
    contains.

    TensorFlow calls the `init_fn` after random initialization, and only if no checkpoint of this training was
    restored. The `init_fn` adds no restore ops and no file names to the graph.

    Args:
      init_checkpoint: path of a checkpoint, or a `Checkpoint`.
      variables: variables of the current graph. Variables that the checkpoint lacks keep their random values.

    Raises:
      ValueError: a variable has a different shape or type in the checkpoint.
    """
    checkpoint = open_checkpoint(init_checkpoint)
    check_variables(checkpoint, variables, optional=variables)
    stored_variables = [variable for variable in variables if variable.op.name in checkpoint.shapes]

    def init_fn(scaffold, session):
        load_variables(session, checkpoint, stored_variables)
        log_starting_weights(checkpoint, variables)

    return init_fn


def log_starting_weights(checkpoint, variables):
    """Logs which variables were loaded from a `Checkpoint`, and which are random."""
    random_names = [variable.op.name for variable in variables if variable.op.name not in checkpoint.shapes]
    logging.info("Starting weights: %d of %d variables from %s; random: %s.",
                 len(variables) - len(random_names), len(variables), checkpoint.path,
                 ", ".join(random_names) or "none")


def load_variables(session, checkpoint, variables):
    """Loads variables of a session's graph from a `Checkpoint`.

    Each call of `session.run` loads a group of variables, usually of at most `_BYTES_FED_AT_A_TIME` bytes.
    One call for each variable would be slow, because TensorFlow examines the whole graph in each call. With a
    single call for all variables, all weights would be in memory twice.
    """
    for group in groups_by_size(variables, _BYTES_FED_AT_A_TIME):
        # The initializer of a variable is an assignment op, and the second input of this op is the value. The
        # session feeds this input with the value from the checkpoint.
        session.run([variable.initializer for variable in group],
                    {variable.initializer.inputs[1]: checkpoint.read(variable.op.name) for variable in group})


def groups_by_size(variables, num_bytes=_BYTES_FED_AT_A_TIME):
    """Yields lists of consecutive variables. The variables of a list have at most `num_bytes` bytes in total.
    A variable with more bytes is alone in its list."""
    group, size = [], 0
    for variable in variables:
        # A variable of unknown shape counts as 0 bytes.
        variable_size = (variable.shape.num_elements() or 0) * variable.dtype.base_dtype.size
        if group and size + variable_size > num_bytes:
            yield group
            group, size = [], 0
        group.append(variable)
        size += variable_size
    if group:
        yield group


def latest_or_only_checkpoint(directory):
    """Returns the `latest_checkpoint` of a directory. If there is none, but the directory contains a single
    checkpoint, as the directories of the published models do, returns the prefix of this checkpoint."""
    prefixes = checkpoint_files.list_checkpoints(directory)
    return latest_checkpoint(directory) or (prefixes[0] if len(prefixes) == 1 else None)


def latest_checkpoint(model_dir):
    """Returns the prefix of the newest checkpoint that a directory's `checkpoint` file names, or None.

    If the directory was moved or copied, the `checkpoint` file may still contain paths in the old directory,
    also paths of Windows. So a checkpoint in `model_dir` is used instead of a checkpoint with the same file
    name in the old directory. If the `checkpoint` file is missing, the newest undamaged `model.ckpt-<step>`
    is returned.
    """
    prefixes = all_checkpoints(model_dir)
    return prefixes[-1] if prefixes else None


def all_checkpoints(model_dir):
    """Returns the prefixes of the checkpoints that the file `checkpoint` of a directory lists, the oldest
    first. Checkpoints that no longer exist are left out.

    `latest_checkpoint` describes which files are used if the directory was moved or has no `checkpoint` file.

    Raises:
      FileNotFoundError: the newest checkpoint does not exist.
      ValueError: the `checkpoint` file is damaged; or this file is missing, and all checkpoints are damaged.
    """
    path = os.path.join(model_dir, "checkpoint")
    if not tf.gfile.Exists(path) or tf.gfile.IsDirectory(path):
        return _find_unlisted(model_dir)
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # the file does not contain the name of a checkpoint
        state = None
    if state is None:
        raise ValueError(f"{path} is damaged: it names no checkpoint. Remove this file, and run the same "
                         "command again. If the directory contains a complete checkpoint, the command "
                         "continues from the newest one.")
    newest = _find_named(model_dir, state.model_checkpoint_path)
    if newest is None:
        name = ntpath.basename(_without_ending(state.model_checkpoint_path))
        raise FileNotFoundError(f"{path} names {name}, but the directory contains no {name}.index. "
                                f"{advice_on_damage(os.path.join(model_dir, name))}")
    prefixes = (_find_named(model_dir, prefix) for prefix in state.all_model_checkpoint_paths)
    return [*(prefix for prefix in dict.fromkeys(prefixes) if prefix not in (None, newest)), newest]


def _find_named(model_dir, path):
    """Returns the prefix of the checkpoint that a `checkpoint` file names; None if it does not exist.

    Args:
      model_dir: directory of the `checkpoint` file.
      path: a path in the file. It may be a path of Windows, or the path of one file of the checkpoint.
    """
    prefix = _without_ending(path)
    here = os.path.join(model_dir, ntpath.basename(prefix))
    return next(filter(checkpoint_files.exists, [here, prefix]), None)


def _find_unlisted(model_dir):
    """Returns the result of `all_checkpoints` for a directory without a `checkpoint` file. Most of these
    directories contain no checkpoint, so the result is usually an empty list."""
    prefixes = checkpoint_files.list_training_checkpoints(model_dir)
    # A checkpoint of step 0 is ignored: a training that resumes from it gives the same result as a new
    # training.
    if not prefixes or checkpoint_files.step_in_name(prefixes[-1]) == 0:
        return []
    checkpoints = list(prefixes)
    while checkpoints and find_damage(checkpoints[-1]):
        checkpoints.pop()
    if not checkpoints:
        raise ValueError(f"{model_dir} contains checkpoints, but no file `checkpoint` that names them, and "
                         f"all of them are damaged. The newest: {find_damage(prefixes[-1])} Restore the "
                         "files of this checkpoint from a copy, or use another directory to start again.")
    _warn_of_missing_list(model_dir, os.path.basename(checkpoints[-1]))
    return checkpoints


@functools.cache
def _warn_of_missing_list(model_dir, name):
    logging.warning("%s has no file `checkpoint`, which should name the newest checkpoint. The run continues "
                    "from %s, the newest checkpoint that is complete.", model_dir, name)
