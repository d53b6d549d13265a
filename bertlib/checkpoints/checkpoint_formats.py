"""Checkpoints of TensorFlow, and of Hugging Face's BERT as safetensors: found, read, converted, and started
from.

A training that goes on restores its own checkpoint in `resume`; `create_init_fn` here is for a training
that starts.

Both are seen through `Checkpoint`: published variable names, shapes, and one tensor at a time as a NumPy
array; both can be written from one. Files that would have to be unpickled are never opened.
"""

import functools
import json
import os
import re
import shlex

from absl import logging
import numpy as np
from safetensors import SafetensorError, safe_open
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.system import files

# What training adds to a model's variables.
_TRAINING_STATE = re.compile(
    r"(^|/)(global_step|adam_m|adam_v|beta[12]_power|(current_)?loss_scale(/value)?|learning_rate)(_\d+)?$")
_MAX_DIFFERENCES_SHOWN = 12
_BYTES_FED_AT_A_TIME = 64 * 2**20
_HALF_PRECISION = (np.float16, tf.bfloat16.as_numpy_dtype)
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

# What the reader of TensorFlow raises: an IndexError at the end of a truncated file, RuntimeErrors, its own.
_READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError)


class DamagedError(ValueError):
    """A checkpoint cannot be read to its end.

    Attributes:
      path: its prefix or file.
      what: what is wrong, a sentence.
    """

    def __init__(self, path, what):
        super().__init__(path, what)
        self.path, self.what = path, what

    def __str__(self):
        return f"{self.what} {advice_on_damage(self.path)}"


class Checkpoint(object):
    """The tensors of a checkpoint under their published names.

    Attributes:
      path: what the user named; of a directory of TensorFlow checkpoints the newest one's prefix.
      shapes: {name: shape as a tuple of ints}.
      dtypes: {name: `tf.DType` in the file}.
      kind: "tensorflow" or "hugging_face".
    """

    def __init__(self, path, shapes, read, dtypes=None, kind="tensorflow"):
        self.path = path
        self.shapes = shapes
        self.dtypes = dtypes or {}
        self.kind = kind
        self._read = read

    def read(self, name):
        """Returns one tensor as an array, 16-bit floats widened to float32.

        Raises:
          DamagedError: the file is damaged there.
        """
        try:
            value = self._read(name)
        except (*_READ_ERRORS, SafetensorError, OSError) as error:
            raise DamagedError(self.path, f"{self.path} is damaged: {name} cannot be read "
                               f"({_first_line(error)}).") from error
        return value.astype(np.float32) if value.dtype in _HALF_PRECISION else value

    def read_dtype(self, name):
        """Returns the `tf.DType` of what `read` returns."""
        return tf.float32 if self.dtypes[name] in (tf.float16, tf.bfloat16) else self.dtypes[name]


def open_checkpoint(path):
    """Opens a TensorFlow checkpoint prefix or directory, a Hugging Face directory or a `.safetensors` file; a
    `Checkpoint` is open.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      DamagedError: it is damaged.
      ValueError: it is of a kind that is not read.
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


def reorder_tensors(checkpoint, orders):
    """Returns a `Checkpoint` that has some tensors in another order: {name: for each of the first axes, list
    of int, where what comes first, second, … was before}."""
    def read(name):
        value = checkpoint.read(name)
        for axis, order in enumerate(orders.get(name, ())):
            value = value.take(order, axis)
        return value

    return Checkpoint(checkpoint.path, checkpoint.shapes, read, checkpoint.dtypes, checkpoint.kind)


def drop_tensors(checkpoint, names):
    """Returns a `Checkpoint` that lacks some tensors."""
    shapes = {name: shape for name, shape in checkpoint.shapes.items() if name not in names}
    return Checkpoint(checkpoint.path, shapes, checkpoint.read, checkpoint.dtypes, checkpoint.kind)


def directory_of_checkpoint(path):
    """Returns where the other files of a checkpoint are, given what `open_checkpoint` takes."""
    path = os.fspath(path)
    return path if tf.gfile.IsDirectory(path) else os.path.dirname(path)


_NO_PICKLE = ("PyTorch's pickle files are not read, because opening one can run any code. Save the model as "
              "safetensors: model.save_pretrained(directory, safe_serialization=True).")


def _open_directory(path):
    index = os.path.join(path, "model.safetensors.index.json")
    if tf.gfile.Exists(index):
        return _open_safetensors(path, _files_of_index(index))
    found = checkpoint_files.list_by_ending(path, ".safetensors")
    single = os.path.join(path, "model.safetensors")
    if single in found or len(found) == 1:
        return _open_safetensors(path, [single if single in found else found[0]])
    latest = latest_checkpoint(path) or only_checkpoint(path)
    if latest:
        return _open_tensorflow(latest)
    if checkpoint_files.list_by_ending(path, ".bin"):
        raise ValueError(f"{path} has no model.safetensors. {_NO_PICKLE}")
    prefixes = checkpoint_files.list_checkpoints(path)
    if prefixes:
        raise FileNotFoundError(f"The directory {path} holds {len(prefixes)} checkpoints, and no file "
                                f"`checkpoint` that says which is meant. Name one, such as {prefixes[-1]}.")
    raise FileNotFoundError(f"The directory {path} holds neither model.safetensors nor a TensorFlow "
                            "checkpoint.")


def _files_of_index(index):
    """The files that hold the tensors, of a model saved in several."""
    try:
        named, reason = files.read_json_object(index).get("weight_map"), ""
    except ValueError as error:
        named, reason = None, f" ({error})"
    if not isinstance(named, dict) or not named:
        raise DamagedError(index, f"{index} is damaged: it holds no JSON object with a \"weight_map\""
                           f"{reason}.")
    for tensor, name in named.items():
        if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
            raise DamagedError(index, f"{index} is damaged: {tensor[:100]} of its \"weight_map\" is in "
                               f"{repr(name)[:100]}, which is no name of a file beside it.")
    return [os.path.join(os.path.dirname(index), name) for name in sorted(set(named.values()))]


def _open_tensorflow(prefix):
    stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", prefix)
    if stem != prefix and checkpoint_files.exists(stem):
        raise FileNotFoundError(f"{prefix} is one file of a checkpoint; name the prefix: {stem}")
    if prefix.endswith("/"):
        raise FileNotFoundError(f"There is no directory {prefix}.")
    if not checkpoint_files.exists(prefix):
        near = checkpoint_files.list_checkpoints(os.path.dirname(prefix))
        hint = f" That directory has: {', '.join(near[:5])}." if near else ""
        raise FileNotFoundError(f"There is no checkpoint {prefix} (looked for {prefix}.index).{hint}")
    try:
        reader = tf.train.load_checkpoint(checkpoint_files.escape_prefix(prefix))
        shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    except (*_READ_ERRORS, ValueError) as error:
        raise DamagedError(prefix, f"The checkpoint {prefix} cannot be read ({_first_line(error)}): it is "
                           "truncated or damaged.") from error
    return Checkpoint(prefix, shapes, reader.get_tensor, reader.get_variable_to_dtype_map())


# Of safetensors; what no BERT is saved in is left out.
_DTYPES = {"F64": tf.float64, "F32": tf.float32, "F16": tf.float16, "BF16": tf.bfloat16, "I64": tf.int64,
           "I32": tf.int32, "I16": tf.int16, "I8": tf.int8, "U8": tf.uint8, "BOOL": tf.bool,
           "F8_E4M3": tf.dtypes.experimental.float8_e4m3fn, "F8_E5M2": tf.dtypes.experimental.float8_e5m2}
_WEIGHT_TYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def _open_safetensors(path, paths):
    tensors = {}  # published name -> (open file, name there, transpose)
    shapes, dtypes = {}, {}
    for file in paths:
        if not os.path.exists(file):
            raise FileNotFoundError(f"There is no file {file}.")
        try:
            handle = safe_open(file, framework="numpy")
        except (SafetensorError, OSError) as error:
            raise DamagedError(file, f"{file} is not a whole safetensors file ({_first_line(error)}): it is "
                               "truncated or damaged.") from error
        for key in handle.keys():
            name, transpose = published_name(key)
            if name is not None:
                view = handle.get_slice(key)
                shape = tuple(view.get_shape())
                tensors[name] = (handle, key, transpose)
                shapes[name] = shape[::-1] if transpose else shape
                dtypes[name] = _DTYPES.get(view.get_dtype())

    def read(name):
        handle, key, transpose = tensors[name]
        value = handle.get_tensor(key)
        return value.T if transpose else value

    return Checkpoint(path, shapes, read, dtypes, "hugging_face")


# --- Names -----------------------------------------------------------------------------------------------

# A head in Hugging Face's classes and in the published scripts. PyTorch's linear layers hold [outputs,
# inputs], as the published heads do; the published dense layers hold the transpose.
_HEADS = {
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}
# How other names end in Hugging Face's classes and, with dots, in the published scripts, and whether one
# tensor is the transpose of the other. The first that fits counts.
_ENDINGS = [
    ("LayerNorm.weight", "LayerNorm.gamma", False),
    ("LayerNorm.bias", "LayerNorm.beta", False),
    ("embeddings.weight", "embeddings", False),
    (".weight", ".kernel", True),
]
# Buffers, and the masked-LM decoder, which is the word embeddings again.
_NOT_VARIABLES = re.compile(r"(position_ids|token_type_ids|cls\.predictions\.decoder\.(weight|bias))$")
_SCOPES = re.compile(r"^(embeddings|encoder|pooler)\.")


def published_name(key):
    """Translates a tensor's name in a Hugging Face BERT; `hugging_face_name` does the opposite.

    Returns:
      (published variable name, whether the tensor has to be transposed); (None, False) for what is no
      variable.
    """
    if _NOT_VARIABLES.search(key):
        return None, False
    if key in _HEADS:
        return _HEADS[key], False
    if _SCOPES.match(key):  # saved from the bare BertModel
        key = "bert." + key
    # Conversions of 2018 kept gamma and beta; those names pass unchanged.
    name, transpose = _translate_ending(key, _ENDINGS)
    return re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name).replace(".", "/"), transpose


def hugging_face_name(name):
    """Translates a published variable name; see `published_name`.

    Returns:
      (the tensor's name in a Hugging Face BERT with any head, whether the tensor has to be transposed).
    """
    for key, head in _HEADS.items():
        if name == head:
            return key, False
    key = re.sub(r"/layer_(\d+)/", r".layer.\1.", name).replace("/", ".")
    return _translate_ending(key, [(ours, theirs, transpose) for theirs, ours, transpose in _ENDINGS])


def _translate_ending(name, endings):
    for old, new, transpose in endings:
        if name.endswith(old):
            return name[:-len(old)] + new, transpose
    return name, False


def weight_names(checkpoint):
    """Returns the names of a TensorFlow checkpoint's variables that are no state of a training.

    State is what is no floating-point number (the step, counters, positions in the data), what has the name
    of another variable and more after it (an optimizer's slots, `<variable>/adam_m`), and some scalars.
    """
    def is_slot(name):
        parts = name.split("/")
        return any("/".join(parts[:end]) in checkpoint.shapes for end in range(1, len(parts)))

    return [name for name, dtype in checkpoint.dtypes.items()
            if dtype and dtype.is_floating and not _TRAINING_STATE.search(name) and not is_slot(name)]


# --- Writing ---------------------------------------------------------------------------------------------


def write_tensorflow(prefix, checkpoint, names):
    """Writes tensors of a checkpoint as a TensorFlow checkpoint, without a graph. 16-bit floats become
    float32.

    TensorFlow writes all tensors in one op, so all are in memory.

    Args:
      prefix: path of the new checkpoint.
      checkpoint: a `Checkpoint`.
      names: published names of the tensors.
    """
    # The op runs on the CPU: a GPU, if there is one, stays free.
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        # Constants would be copied, and limited to 2 GB.
        tensors = [tf.numpy_function(functools.partial(checkpoint.read, name), [],
                                     checkpoint.read_dtype(name))
                   for name in names]
        session.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names),
                                      tensors=tensors))


def write_safetensors(path, checkpoint, names):
    """Writes tensors of a checkpoint under Hugging Face's names, one at a time. 16-bit floats become float32.

    Without a head the names are the bare BertModel's.

    Args:
      path: the new file.
      checkpoint: a `Checkpoint`.
      names: published names of the tensors.
    """
    bare = all(name.startswith("bert/") for name in names)
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    keys = {name: hugging_face_name(name) for name in names}
    # The format: length of the header, header, data.
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (key, transpose) in keys.items():
        shape, dtype = checkpoint.shapes[name], checkpoint.read_dtype(name)
        start, end = end, end + dtype.size * int(np.prod(shape))
        header[key.removeprefix("bert.") if bare else key] = {
            "dtype": codes[dtype], "shape": shape[::-1] if transpose else shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, transpose) in keys.items():
            values = checkpoint.read(name)
            file.write((values.T if transpose else values).tobytes())


# --- Does it fit? -------------------------------------------------------------------------------------


def check_fits(checkpoint, expected, optional=()):
    """Checks that a checkpoint holds a model's variables in their shapes.

    Args:
      checkpoint: a `Checkpoint`.
      expected: {name: shape} of the model.
      optional: names that may be missing, but not differ.

    Raises:
      ValueError: lists the differences and says what is probably wrong.
    """
    missing = [name for name in expected if name not in checkpoint.shapes and name not in optional]
    differing = [name for name, shape in expected.items() if checkpoint.shapes.get(name, shape) != shape]
    if not missing and not differing:
        return
    lines = [f"  {name}: the checkpoint has {list(checkpoint.shapes[name])}, the model {list(expected[name])}"
             for name in differing]
    lines += [f"  {name}: not in the checkpoint; the model has {list(expected[name])}" for name in missing]
    shown = lines[:_MAX_DIFFERENCES_SHOWN]
    if len(lines) > len(shown):
        shown.append(f"  … and {len(lines) - len(shown)} more")
    raise ValueError(f"The checkpoint {checkpoint.path} does not fit the model:\n" + "\n".join(shown) + "\n"
                     + _probable_cause(checkpoint.shapes, expected, missing, differing))


def read_global_step(path):
    """Returns the global step (int) that a checkpoint holds; 0 if it holds none, or if the path is None."""
    if not path:
        return 0
    found = open_checkpoint(path)
    return int(found.read("global_step")) if "global_step" in found.shapes else 0


def check_same_types(checkpoint, expected):
    """Checks that a checkpoint's tensors can be restored into variables as they are.

    Args:
      checkpoint: a `Checkpoint`.
      expected: {name: `tf.DType`} of the variables; what the checkpoint lacks is left to `check_fits`.

    Raises:
      ValueError: one is of another type.
    """
    for name, dtype in expected.items():
        found = checkpoint.dtypes.get(name, dtype)
        if found != dtype:
            raise ValueError(f"The checkpoint {checkpoint.path} does not fit the model: {name} is "
                             f"{found.name} there, and {dtype.name} in the model. A training does not save "
                             "it like that. To start from its weights name it as --init_checkpoint, with "
                             "another --output_dir.")


def _probable_cause(found, expected, missing, differing):
    """One sentence on what the user most likely did."""
    layers_found, layers_expected = _layer_count(found), _layer_count(expected)
    words = next((name for name in differing if name.endswith("/word_embeddings")), None)
    if not any(name in found for name in expected):
        examples = ", ".join(sorted(name for name in found if not _TRAINING_STATE.search(name))[:3])
        return ("Probably this is a checkpoint of something else: none of the names agree "
                f"(it holds {examples}, …).")
    if any(name.endswith("LayerNorm/gamma") for name in differing):
        return ("Probably the configuration is that of a model of another size: use the bert_config.json "
                "that came with the checkpoint.")
    if layers_found != layers_expected:
        return (f"Probably num_hidden_layers is wrong in the configuration: it says {layers_expected}, the "
                f"checkpoint has {layers_found} layers.")
    if words:
        return (f"Probably vocab_size is wrong in the configuration: it says {expected[words][0]}, the "
                f"checkpoint has {found[words][0]} words. Use the configuration and the vocabulary that came "
                "with it.")
    if not missing and all(name.split("/")[-1].startswith("output_") for name in differing):
        return "Probably it was fine-tuned with another number of labels, for another task."
    if differing:
        return "Probably the configuration is not the one that came with the checkpoint."
    return "Probably the checkpoint is incomplete, or was saved under other variable names."


def _layer_count(names):
    return len({match.group(1) for match in (re.search(r"/layer_(\d+)/", name) for name in names) if match})


def check_types(checkpoint, names):
    """Checks that tensors are floating-point numbers: quantized ones are none, whatever their shape.

    Args:
      checkpoint: a `Checkpoint`.
      names: names of weights; those that it lacks are passed over.

    Raises:
      ValueError: some are of another type.
    """
    others = [name for name in names if name in checkpoint.shapes and name in checkpoint.dtypes
              and checkpoint.dtypes[name] not in _WEIGHT_TYPES]
    if not others:
        return
    dtype = checkpoint.dtypes[others[0]]
    more = f", and {len(others) - 1} more are no weights either" if others[1:] else ""
    raise ValueError(f"The checkpoint {checkpoint.path} is quantized, or no model's: {others[0]} is of type "
                     f"{dtype.name if dtype else 'unknown'}{more}. Weights are read as float32, float16, "
                     "bfloat16 or float64. Take the model from before its quantization, or save it again in "
                     "one of these types.")


def check_readable(checkpoint, names):
    """Reads the named tensors once, so that damage shows before training starts.

    Raises:
      DamagedError: a tensor cannot be read, or holds NaN or infinity.
      ValueError: one holds numbers that float32 cannot.
    """
    for name in names:
        if name not in checkpoint.shapes:
            continue
        values = checkpoint.read(name)
        if values.dtype.kind != "f":
            continue  # counters and texts, in checkpoints of other programs
        if not np.isfinite(values).all():
            raise DamagedError(checkpoint.path, f"{checkpoint.path} is damaged: {name} holds values that are "
                               "not finite.")
        if values.itemsize > 4 and values.size and np.abs(values).max() > _MAX_FLOAT32:
            raise ValueError(f"{checkpoint.path}: {name} holds {np.abs(values).max():g}, which float32 "
                             f"cannot hold (at most {_MAX_FLOAT32:.3g}). Such numbers are no weights: take "
                             "another checkpoint.")


def find_damage(prefix):
    """Returns what is wrong with a TensorFlow checkpoint, a sentence; None if all of it can be read."""
    try:
        found = _open_tensorflow(prefix)
        check_readable(found, found.shapes)
    except DamagedError as error:
        return error.what
    except (ValueError, OSError) as error:
        return str(error)
    return None


def advice_on_damage(path):
    """Returns what to do about a damaged or missing checkpoint, in text: which one before it is whole."""
    step, directory = checkpoint_files.step_in_name(path), os.path.dirname(path)
    if step is None:
        return "Copy or download the checkpoint again."
    whole = next((prefix for prefix in reversed(checkpoint_files.list_training_checkpoints(directory))
                  if checkpoint_files.step_in_name(prefix) < step and not find_damage(prefix)), None)
    if whole is None:
        return (f"There is no whole one before it in {directory or '.'}. Restore its files from a copy, or "
                "use another directory to start again.")
    listing = os.path.join(directory, "checkpoint")
    line = f'model_checkpoint_path: "{os.path.basename(whole)}"'
    return (f"The newest whole one before it is {whole}: name that if you named this one. If you named the "
            "directory, run this, and then the same command goes on from there:\n"
            f"  echo {shlex.quote(line)} > {shlex.quote(listing)}")


# --- Starting from it -----------------------------------------------------------------------------------


def create_scaffold(init_checkpoint):
    """Returns the `tf.train.Scaffold` of a model_fn whose weights, all trainable variables so far, start from
    a checkpoint.

    Args:
      init_checkpoint: see `open_checkpoint`; None for random weights, and then None is returned.
    """
    if not init_checkpoint:
        return None
    return tf.train.Scaffold(init_fn=create_init_fn(init_checkpoint, tf.trainable_variables()))


def create_init_fn(init_checkpoint, variables):
    """Returns what a `tf.train.Scaffold` takes as `init_fn`: loads the variables that the checkpoint has.

    It runs after random initialization, and only if no checkpoint of this training was restored. The graph
    stays free of restore ops and file names. Some variables are fed at a time: each different run of a
    session costs as much as a look at the whole graph, and together they would be in memory twice.

    Args:
      init_checkpoint: see `open_checkpoint`.
      variables: variables of the current graph; those that the checkpoint lacks keep their random values.

    Raises:
      ValueError: a variable has another shape or type in the checkpoint.
    """
    checkpoint = open_checkpoint(init_checkpoint)
    check_types(checkpoint, [variable.op.name for variable in variables
                             if variable.dtype.base_dtype.is_floating])
    shapes = {variable.op.name: tuple(variable.shape.as_list()) for variable in variables}
    check_fits(checkpoint, shapes, optional=shapes)
    found = [variable for variable in variables if variable.op.name in checkpoint.shapes]
    others = [name for name in shapes if name not in checkpoint.shapes]

    def init_fn(scaffold, session):
        del scaffold
        for group in groups_by_size(found, _BYTES_FED_AT_A_TIME):
            # The initializer is an assignment; its second input is the value.
            session.run([variable.initializer for variable in group],
                        {variable.initializer.inputs[1]: checkpoint.read(variable.op.name)
                         for variable in group})
        logging.info("Starting weights: %d of %d variables from %s; random: %s.", len(found), len(shapes),
                     checkpoint.path, ", ".join(others) or "none")

    return init_fn


def groups_by_size(variables, num_bytes):
    """Yields lists of variables that follow each other: one, or as many as have at most `num_bytes` bytes."""
    group, size = [], 0
    for variable in variables:
        # The shape of a variable may be unknown.
        more = (variable.shape.num_elements() or 0) * variable.dtype.base_dtype.size
        if group and size + more > num_bytes:
            yield group
            group, size = [], 0
        group.append(variable)
        size += more
    if group:
        yield group


def only_checkpoint(directory):
    """Returns the prefix of the one checkpoint in a directory without a file `checkpoint`, as the published
    downloads are; None if there is another number of them."""
    prefixes = checkpoint_files.list_checkpoints(directory)
    listed = tf.gfile.Exists(os.path.join(directory, "checkpoint"))
    return prefixes[0] if len(prefixes) == 1 and not listed else None


def latest_checkpoint(model_dir):
    """Returns the prefix of the newest checkpoint that a directory's `checkpoint` file names, or None.

    In a directory that was moved or copied, that file may name absolute paths of the old place: a checkpoint
    of the same name beside it goes first. Without that file it is the newest whole `model.ckpt-<step>`.
    """
    prefixes = all_checkpoints(model_dir)
    return prefixes[-1] if prefixes else None


def all_checkpoints(model_dir):
    """Returns the prefixes of all checkpoints that a directory's `checkpoint` file names and that exist,
    oldest first.

    Raises:
      FileNotFoundError: the newest does not exist.
      ValueError: the file is damaged, or is gone and no checkpoint is whole.
    """
    path = os.path.join(model_dir, "checkpoint")
    if not tf.gfile.Exists(path) or tf.gfile.IsDirectory(path):
        return _find_unlisted(model_dir)
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # it names no checkpoint
        state = None
    if state is None:
        raise ValueError(f"{path} is damaged: it names no checkpoint. Remove it: the same command then goes "
                         "on from the newest whole checkpoint beside it, if there is one.")
    prefixes = []
    for named in [*state.all_model_checkpoint_paths, state.model_checkpoint_path]:
        beside = os.path.join(model_dir, os.path.basename(named))
        prefix = beside if checkpoint_files.exists(beside) else named
        if checkpoint_files.exists(prefix) and prefix not in prefixes:
            prefixes.append(prefix)
    newest = os.path.basename(state.model_checkpoint_path)
    if not prefixes or os.path.basename(prefixes[-1]) != newest:
        raise FileNotFoundError(f"{path} names {newest}, but there is no {newest}.index beside it. "
                                f"{advice_on_damage(os.path.join(model_dir, newest))}")
    return prefixes


def _find_unlisted(model_dir):
    """`all_checkpoints` of a directory whose `checkpoint` file was lost; most such directories hold none."""
    prefixes = checkpoint_files.list_training_checkpoints(model_dir)
    if not prefixes or checkpoint_files.step_in_name(prefixes[-1]) == 0:  # from there or anew is the same
        return []
    whole = list(prefixes)
    while whole and find_damage(whole[-1]):
        whole.pop()
    if not whole:
        raise ValueError(f"{model_dir} holds checkpoints, but no file `checkpoint` that names them, and none "
                         f"is whole. The newest: {find_damage(prefixes[-1])} Restore its files from a copy, "
                         "or use another directory to start again.")
    _warn_of_missing_list(model_dir, os.path.basename(whole[-1]))
    return whole


@functools.cache
def _warn_of_missing_list(model_dir, name):
    logging.warning("%s has no file `checkpoint`, which names the newest one: going on from %s, the newest "
                    "that is whole.", model_dir, name)


def _first_line(error):
    text = getattr(error, "message", None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
