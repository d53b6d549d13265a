"""Computes BERT's vectors for texts: lines → features → vectors → JSON Lines, npz or TFRecords.

The lines are processed as a stream, so the input may have any length. The lines of a window (a group of
consecutive lines) are sorted by length and cut into batches. Each batch is padded to the length of its
longest line. Because the lines of a batch have similar lengths, there is little padding. The results are in
the order of the lines.
"""

import contextlib
import dataclasses
import json
import re
import zipfile

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.data import corpus, input_pipeline, tables, tfrecord_files
from bertlib.estimator import estimator, sessions
from bertlib.system import files, shared_work
from bertlib.tasks import head
from bertlib.tasks.text_windows import make_windows, window_inputs
import modeling

POOLING = ("none", "cls", "mean")
# A window consists of whole batches. It ends when it has at least `_WINDOW_TOKENS` tokens, or about
# `_WINDOW_BYTES` bytes of vectors.
_WINDOW_TOKENS = 1 << 16
_WINDOW_BYTES = 1 << 27
# Number of decimal places of the numbers in JSON, as in the published code.
_DECIMALS = 6


@dataclasses.dataclass(eq=False)
class InputExample:
    """A line of a text file: a single text or a pair of texts."""

    unique_id: int
    text_a: str
    text_b: str | None


@dataclasses.dataclass(eq=False)
class InputFeatures:
    """The features of a line, which are the input of the model.

    Attributes:
      unique_id: int, index of the line. The first line has the index 0.
      tokens: list of str: `[CLS] a [SEP]` for a text a, or `[CLS] a [SEP] b [SEP]` for a pair.
      input_ids, input_mask, input_type_ids: lists of int, padded with zeros.
    """

    unique_id: int
    tokens: list
    input_ids: list
    input_mask: list
    input_type_ids: list


# --- Lines to features -----------------------------------------------------------------------------------


def generate_examples(input_file):
    """Yields an `InputExample` for each line of a text file. The file may be compressed (`.gz`).

    A line "a ||| b" is the pair of the texts "a" and "b". An empty line is an empty text.

    Raises:
      ValueError: a line is not UTF-8.
    """
    for index, text in enumerate(corpus.read_lines(input_file)):
        pair = re.match(r"(.*) \|\|\| (.*)$", text)
        yield InputExample(index, *(pair.groups() if pair else (text, None)))


def generate_features(examples, seq_length, tokenizer):
    """Yields the `InputFeatures` of each `InputExample`, truncated or padded to `seq_length` tokens."""
    for example in examples:
        ((first, second),), _ = make_windows(example.text_a, example.text_b, seq_length, tokenizer)
        yield InputFeatures(example.unique_id, first + second,
                            *window_inputs(first, second, tokenizer, seq_length).values())


def arrays_of(features, seq_length):
    """Converts a list of `InputFeatures` to {name: int32 array}, the input of a model_fn. The features are
    truncated to `seq_length` tokens."""
    return {"unique_ids": np.array([feature.unique_id for feature in features], np.int32),
            **{name: np.array([getattr(feature, name)[:seq_length] for feature in features], np.int32)
               for name in ("input_ids", "input_mask", "input_type_ids")}}


# --- Features to vectors ---------------------------------------------------------------------------------


def pool(layer, input_mask, pooling):
    """Pools the vectors of the tokens into one vector for each line.

    Args:
      layer: float [B, F, W].
      input_mask: int32 [B, F].
      pooling: "cls" for the vector of [CLS]; "mean" for the mean over all tokens, including [CLS] and [SEP];
        or "none" for no pooling.

    Returns:
      float [B, W]. With "none", the layer itself is returned.
    """
    if pooling == "none":
        return layer
    if pooling == "cls":
        return layer[:, 0]
    weights = tf.expand_dims(tf.cast(input_mask, layer.dtype), -1)
    return tf.reduce_sum(layer * weights, axis=1) / tf.reduce_sum(weights, axis=1)


class VectorsHead(head.Head):
    """Head that predicts a vector for each text. The vector is the mean of the last layer over the tokens.
    See the module `head`.

    The prediction has the name `vectors`; it is float32 [B, W].
    """

    modes = (estimator.ModeKeys.PREDICT,)

    def shapes(self, bert_config):
        return {}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        vectors = pool(encoder.get_sequence_output(), features["input_mask"], "mean")
        return head.HeadOutputs(predictions={"vectors": vectors})

    def exported_outputs(self, model, predictions, features):
        return {"vector": predictions["vectors"]}


@contextlib.contextmanager
def running(model_fn):
    """Returns a context manager. It opens a session of a model_fn and yields a function that runs the model.

    The yielded function takes the arrays of `arrays_of` and returns the predictions, {name: array}.

    Raises:
      ValueError: memory ran out during the `with` block.
    """
    with tf.Graph().as_default():
        tensors = {name: tf.placeholder(tf.int32, [None, None])
                   for name in ("input_ids", "input_mask", "input_type_ids")}
        tensors["unique_ids"] = tf.placeholder(tf.int32, [None])
        spec = model_fn(tensors, None, "infer", {})
        try:
            with tf.train.SingularMonitoredSession(scaffold=spec.scaffold) as session:
                yield lambda arrays: session.run(spec.predictions,
                                                 {tensors[name]: array for name, array in arrays.items()})
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError("out of memory. Lower --batch_size.") from error


def extract(features, run, num_layers, batch_size, token_bytes, dtype=np.float32, group=None):
    """Yields (`InputFeatures` of a line, vectors of this line), in the order of the lines.

    The vectors of a line are an array [tokens, L, W]. If they are pooled, the array is [L, W].

    Args:
      features: iterable of `InputFeatures`.
      run: the function that `running` yields.
      num_layers: L, the number of extracted layers.
      batch_size: number of lines in a batch.
      token_bytes: size in bytes of all vectors of one token. The larger this size, the fewer tokens a window
        has.
      dtype: data type of the vectors.
      group: the `replica_group.Group` whose replicas share the work, or None.
    """
    def run_batch(batch):
        outputs = run(arrays_of(batch, len(batch[-1].tokens)))
        layers = np.stack([outputs[f"layer_output_{index}"] for index in range(num_layers)],
                          axis=-2).astype(dtype)
        return [values[:len(feature.tokens)] if layers.ndim == 4 else values
                for feature, values in zip(batch, layers)]

    for window in _feature_blocks(features, batch_size, min(_WINDOW_TOKENS, _WINDOW_BYTES // token_bytes)):
        yield from zip(window, shared_work.map_in_batches(
            group, run_batch, window, lambda feature: len(feature.tokens), batch_size))


def _feature_blocks(features, batch_size, tokens):
    """Cuts features into groups of consecutive features, called windows, and yields each window as a list.
    A window consists of whole batches and has at least `tokens` tokens. Only the last window may be smaller:
    it contains the remaining features."""
    window, size = [], 0
    for feature in features:
        window.append(feature)
        size += len(feature.tokens)
        if size >= tokens and len(window) % batch_size == 0:
            yield window
            window, size = [], 0
    if window:
        yield window


# --- Writing ---------------------------------------------------------------------------------------------


def write_jsonl(path, rows, layer_indexes):
    """Writes JSON Lines in the published layout. Each line is one object. Without pooling, an object contains
    the vectors of each token, as in the first example below. With pooling, it looks like the second example.

        {"linex_index": 0, "features": [
            {"token": "[CLS]", "layers": [{"index": -1, "values": [0.123456, …]}, …]}, …]}
        {"linex_index": 0, "layers": [{"index": -1, "values": [0.123456, …]}, …]}

    Args:
      path: the file. It is compressed if its name ends with .gz.
      rows: iterable of (`InputFeatures`, vectors), the result of `extract`.
      layer_indexes: list of int, the indexes of the layers that are written to the file.
    """
    def layers(values):
        return [{"index": index, "values": numbers} for index, numbers in zip(layer_indexes, values)]

    with (files.atomic_replacement(path) as partial,
          tables.text_writer(partial, tables.is_compressed(path)) as writer):
        for feature, values in rows:
            # np.round multiplies by 10⁶ before it rounds. The product of a float32 number and 10⁶ is exact in
            # float64. So the result is equal to round(x, 6) for each number.
            values = np.round(values.astype(np.float64), _DECIMALS).tolist()
            if isinstance(values[0][0], list):
                content = {"features": [{"token": token, "layers": layers(vectors)}
                                        for token, vectors in zip(feature.tokens, values)]}
            else:
                content = {"layers": layers(values)}
            writer.write(json.dumps({"linex_index": feature.unique_id, **content}) + "\n")


def write_npz(path, rows, layer_indexes, shape, dtype):
    """Writes an npz file with the arrays `values` and `layers` (the indexes of the layers).

    If `values` has a row for each token, the file also has the arrays `input_ids` and `offsets`. In such a
    file, the tokens of line i have the rows values[offsets[i]:offsets[i + 1]].

    Args:
      path: the file, on a local file system.
      rows, layer_indexes: see `write_jsonl`.
      shape: shape of `values`, [lines or tokens, L, W].
      dtype: data type of `values`.

    Raises:
      ValueError: the number of rows does not fit the shape.
    """
    ids, offsets, written = [], [0], 0
    with (files.atomic_replacement(path) as partial, files.open_file(partial, "wb") as writer,
          zipfile.ZipFile(writer, "w") as archive):
        with archive.open("values.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False,
                       "shape": tuple(shape)})
            for feature, values in rows:
                file.write(values.tobytes())
                written += values.size
                if values.ndim == 3:
                    ids.append(np.array(feature.input_ids[:len(values)], np.int32))
                    offsets.append(offsets[-1] + len(values))
        if written != np.prod(shape, dtype=np.int64):
            raise ValueError(f"{path} would have {written} values instead of {' × '.join(map(str, shape))}, "
                             "because the input was changed while it was read. Run the command again.")
        arrays = {"layers": np.array(layer_indexes, np.int64)}
        if ids:
            arrays.update(input_ids=np.concatenate(ids), offsets=np.array(offsets, np.int64))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)


def write_tfrecord(path, rows, layer_indexes):
    """Writes a TFRecord file with a `tf.train.Example` for each line.

    The features of the Example are `linex_index`, `input_ids`, `layers` (the indexes of the layers), `shape`
    and `values`. float32 values are stored as a float list. float16 values are stored as a string of
    little-endian bytes (for `tf.io.decode_raw`), because an Example cannot contain 16-bit numbers.

    Args:
      path: the file.
      rows, layer_indexes: see `write_jsonl`.
    """
    def serialized(feature, values):
        example = tf.train.Example()
        for name, numbers in (("linex_index", [feature.unique_id]), ("layers", layer_indexes),
                              ("shape", values.shape),
                              ("input_ids", feature.input_ids[:len(feature.tokens)])):
            example.features.feature[name].int64_list.value.extend(numbers)
        if values.dtype == np.float32:
            example.features.feature["values"].float_list.value.extend(values.ravel())
        else:
            example.features.feature["values"].bytes_list.value.append(values.astype("<f2").tobytes())
        return example.SerializeToString(deterministic=True)

    tfrecord_files.write_serialized(path, (serialized(*row) for row in rows))


# --- The published functions -----------------------------------------------------------------------------


def read_examples(input_file):
    """Returns all lines of a text file as a list of `InputExample`; see `generate_examples`."""
    return list(generate_examples(input_file))


def convert_examples_to_features(examples, seq_length, tokenizer):
    """Returns the list of the examples' `InputFeatures`."""
    return list(generate_features(examples, seq_length, tokenizer))


def input_fn_builder(features, seq_length):
    """Returns an input_fn for a list of `InputFeatures`. The input_fn yields the features in order, padded to
    `seq_length` tokens."""
    def input_fn(params):
        examples = input_pipeline.array_examples(arrays_of(features, seq_length))
        return input_pipeline.evaluation_dataset(examples, params["batch_size"])
    return input_fn


def model_fn_builder(bert_config, init_checkpoint, layer_indexes, use_tpu, use_one_hot_embeddings,
                     pooling="none", step_config=None):
    """Returns a model_fn that predicts the vectors of some layers.

    The predictions are `unique_id` and `layer_output_0`, `layer_output_1` and so on, one for each element of
    `layer_indexes`. `layer_output_<i>` contains the vectors of the layer layer_indexes[i].

    Args:
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: checkpoint with the weights, see `checkpoint_formats.open_checkpoint`.
      layer_indexes: list of int, indexes into the list of the encoder's layers; -1 is the last layer.
      use_tpu: must be false.
      use_one_hot_embeddings: whether words are looked up by a matrix product.
      pooling: see `pool`.
      step_config: a `StepConfig` with the precision; None for the published settings.

    Raises:
      ValueError: `use_tpu` is true. The model_fn also raises a ValueError if the mode is not PREDICT.
    """
    estimator.refuse_tpu(use_tpu)

    def model_fn(features, labels, mode, params):
        if mode != estimator.ModeKeys.PREDICT:
            raise ValueError(f"The mode is {mode!r}, but this model can only predict (mode "
                             f"{estimator.ModeKeys.PREDICT!r}).")
        mask = features["input_mask"]
        model = modeling.BertModel(bert_config, False, features["input_ids"], mask,
                                   features["input_type_ids"], use_one_hot_embeddings,
                                   step_config=step_config)
        scaffold = sessions.create_init_checkpoint_scaffold(init_checkpoint) or sessions.Scaffold()
        layers = model.get_all_encoder_layers()
        predictions = {f"layer_output_{index}": pool(layers[layer], mask, pooling)
                       for index, layer in enumerate(layer_indexes)}
        return estimator.EstimatorSpec(
            mode, predictions={"unique_id": tf.identity(features["unique_ids"]), **predictions},
            scaffold=scaffold)

    return model_fn
