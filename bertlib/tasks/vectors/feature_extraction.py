"""Text to the vectors that BERT gives it: lines → features → vectors → JSON Lines, npz or TFRecords.

Everything streams. A window of some lines at a time is sorted by length and cut into batches, each as long as
its longest line, so that little is computed for padding; results leave in the order of the lines.
"""

import contextlib
import json
import re
import zipfile

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline, record_files
from bertlib.estimator import estimator, replica_sync
from bertlib.rows import tables
from bertlib.system import files
from bertlib.tasks import head
from bertlib.tasks.classification.classifier_data import _truncate_seq_pair
from bertlib.tasks.pretraining import corpus

POOLING = ("none", "cls", "mean")
# Tokens in a window, and bytes of what is extracted for them.
_WINDOW_TOKENS = 1 << 16
_WINDOW_BYTES = 1 << 27
_DECIMALS = 6


class InputExample(object):
    """A line of text: one text, or two."""

    def __init__(self, unique_id, text_a, text_b):
        self.unique_id = unique_id
        self.text_a = text_a
        self.text_b = text_b


class InputFeatures(object):
    """What the model gets of a line.

    Attributes:
      unique_id: number of the line, from 0.
      tokens: list of str, [CLS] a [SEP] or [CLS] a [SEP] b [SEP].
      input_ids, input_mask, input_type_ids: lists of int, padded.
    """

    def __init__(self, unique_id, tokens, input_ids, input_mask, input_type_ids):
        self.unique_id = unique_id
        self.tokens = tokens
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.input_type_ids = input_type_ids


# --- Lines to features -----------------------------------------------------------------------------------


def generate_examples(input_file):
    """Yields an `InputExample` a line of a text file (`.gz` too); "a ||| b" is two texts, an empty line an
    empty one.

    Raises:
      ValueError: a line is not UTF-8.
    """
    for index, text in enumerate(corpus.read_lines(input_file)):
        pair = re.match(r"(.*) \|\|\| (.*)$", text)
        yield InputExample(index, *(pair.groups() if pair else (text, None)))


def generate_features(examples, seq_length, tokenizer):
    """Yields the `InputFeatures` of each `InputExample`: cut or padded to `seq_length`."""
    for example in examples:
        tokens_a = tokenizer.tokenize(example.text_a)
        tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else []
        _truncate_seq_pair(tokens_a, tokens_b, seq_length - (3 if tokens_b else 2))
        tokens = ["[CLS]", *tokens_a, "[SEP]"]
        second = [*tokens_b, "[SEP]"] if tokens_b else []
        length, padding = len(tokens) + len(second), [0] * (seq_length - len(tokens) - len(second))
        yield InputFeatures(
            example.unique_id, tokens + second, tokenizer.convert_tokens_to_ids(tokens + second) + padding,
            [1] * length + padding, [0] * len(tokens) + [1] * len(second) + padding)


def arrays_of(features, seq_length):
    """Returns a model_fn's input, {name: int32 array}, from a list of `InputFeatures`, cut to that length."""
    return {"unique_ids": np.array([feature.unique_id for feature in features], np.int32),
            **{name: np.array([getattr(feature, name)[:seq_length] for feature in features], np.int32)
               for name in ("input_ids", "input_mask", "input_type_ids")}}


# --- Features to vectors ---------------------------------------------------------------------------------


def pool(layer, input_mask, pooling):
    """Makes one vector of each line.

    Args:
      layer: float [B, F, W].
      input_mask: int32 [B, F].
      pooling: "cls", the vector of [CLS]; "mean", the mean over all tokens, [CLS] and [SEP] included; or
        "none".

    Returns:
      float [B, W]; the layer itself for "none".
    """
    if pooling == "none":
        return layer
    if pooling == "cls":
        return layer[:, 0]
    weights = tf.expand_dims(tf.cast(input_mask, layer.dtype), -1)
    return tf.reduce_sum(layer * weights, axis=1) / tf.reduce_sum(weights, axis=1)


class Vectors:
    """A vector of each text: the mean over the tokens of the last layer; see `head`. Prediction: vectors,
    float32 [B, W]."""

    modes = (estimator.ModeKeys.PREDICT,)
    first_token_only = False

    def shapes(self, bert_config):
        del bert_config
        return {}

    def build(self, bert_config, model, features, mode, micro_batches):
        del bert_config, mode, micro_batches
        vectors = pool(model.get_sequence_output(), features["input_mask"], "mean")
        return head.HeadOutputs(predictions={"vectors": vectors})


@contextlib.contextmanager
def running(model_fn):
    """Gives a function from {name: array}, see `arrays_of`, to the predictions of a model_fn, {name: array}.

    Raises:
      ValueError: memory ran out in the block.
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
    """Yields (`InputFeatures`, its vectors) in order.

    Args:
      features: iterable of `InputFeatures`.
      run: see `running`.
      num_layers: L, the number of layers extracted.
      batch_size: lines the model gets at a time.
      token_bytes: bytes kept for each token.
      dtype: of the vectors: [tokens, L, W], or pooled [L, W].
      group: the `replica_group.Group` that shares the work, or None.
    """
    for window in _windows(features, batch_size, min(_WINDOW_TOKENS, _WINDOW_BYTES // token_bytes)):
        order = sorted(range(len(window)), key=lambda place: len(window[place].tokens))
        vectors = [None] * len(window)
        batches = [order[start:start + batch_size] for start in range(0, len(order), batch_size)]

        def run_batch(places, window=window):
            return run(arrays_of([window[place] for place in places], len(window[places[-1]].tokens)))

        for places, found in zip(batches, replica_sync.map_on_replicas(group, run_batch, batches)):
            layers = np.stack([found[f"layer_output_{index}"] for index in range(num_layers)],
                              axis=-2).astype(dtype)
            for place, values in zip(places, layers):
                vectors[place] = values[:len(window[place].tokens)] if layers.ndim == 4 else values
        yield from zip(window, vectors)


def _windows(features, batch_size, tokens):
    """Cuts features into lists of whole batches with at least so many tokens; the last takes the rest."""
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
    """Writes JSON Lines in the published layout; the pooled one has no tokens.

        {"linex_index": 0, "features": [
            {"token": "[CLS]", "layers": [{"index": -1, "values": [0.123456, …]}, …]}, …]}
        {"linex_index": 0, "layers": [{"index": -1, "values": [0.123456, …]}, …]}

    Args:
      path: the file; it is compressed if its name ends with .gz.
      rows: iterable of what `extract` yields.
      layer_indexes: list of int.
    """
    def layers(values):
        return [{"index": index, "values": numbers} for index, numbers in zip(layer_indexes, values)]

    with (files.atomic_replacement(path) as partial,
          tables.text_writer(partial, tables.is_compressed(path)) as writer):
        for feature, values in rows:
            # The product is exact, and so this is round(x, 6) of each number.
            values = np.round(values.astype(np.float64), _DECIMALS).tolist()
            if isinstance(values[0][0], list):
                content = {"features": [{"token": token, "layers": layers(vectors)}
                                        for token, vectors in zip(feature.tokens, values)]}
            else:
                content = {"layers": layers(values)}
            writer.write(json.dumps({"linex_index": feature.unique_id, **content}) + "\n")


def write_npz(path, rows, layer_indexes, shape, dtype):
    """Writes an npz file: `values`, `layers` (the indexes), and where `values` has a row for each token,
    `input_ids` and `offsets`: line i is values[offsets[i]:offsets[i + 1]].

    Args:
      path: the file, local.
      rows, layer_indexes: see `write_jsonl`.
      shape: of `values`: [lines or tokens, L, W].
      dtype: of `values`.

    Raises:
      ValueError: there are more or fewer rows.
    """
    ids, offsets, written = [], [0], 0
    with files.atomic_replacement(path) as partial, zipfile.ZipFile(partial, "w") as archive:
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
            raise ValueError(f"{path} would have {written} values, not {' × '.join(map(str, shape))}: the "
                             "input changed while it was read. Run it again.")
        arrays = {"layers": np.array(layer_indexes, np.int64)}
        if ids:
            arrays.update(input_ids=np.concatenate(ids), offsets=np.array(offsets, np.int64))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)


def write_tfrecord(path, rows, layer_indexes):
    """Writes a `tf.train.Example` a line: `linex_index`, `input_ids`, `layers` (indexes), `shape`, `values`.

    float32 values are a float list, float16 ones a string of little-endian bytes (`tf.io.decode_raw`), as
    Examples have no 16-bit numbers.

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

    record_files.write_serialized(path, (serialized(*row) for row in rows))


# --- The published functions -----------------------------------------------------------------------------


def read_examples(input_file):
    """Returns all lines of a text file as a list of `InputExample`; see `generate_examples`."""
    return list(generate_examples(input_file))


def convert_examples_to_features(examples, seq_length, tokenizer):
    """Returns the list of the examples' `InputFeatures`."""
    return list(generate_features(examples, seq_length, tokenizer))


def input_fn_builder(features, seq_length):
    """Returns an input_fn over a list of `InputFeatures`, in order and padded to `seq_length`."""
    def input_fn(params):
        return input_pipeline.array_dataset(arrays_of(features, seq_length), params["batch_size"],
                                            is_training=False, drop_remainder=False)
    return input_fn


def model_fn_builder(bert_config, init_checkpoint, layer_indexes, use_tpu, use_one_hot_embeddings,
                     pooling="none", step=None):
    """Returns a model_fn that predicts `unique_id` and a `layer_output_<i>` for the i-th of the layers.

    Args:
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: the weights, see `checkpoint_formats.open_checkpoint`.
      layer_indexes: list of int: indexes into the encoder's layers.
      use_tpu: must be false.
      use_one_hot_embeddings: see `modeling.BertModel`.
      pooling: see `pool`.
      step: a `StepConfig` that says the precision; the published one if None.

    Raises:
      ValueError: `use_tpu`; in the model_fn: the mode is another than PREDICT.
    """
    if use_tpu:
        raise ValueError("use_tpu=True: TPUs are not supported. Pass use_tpu=False to run on CPU or GPU.")

    def model_fn(features, labels, mode, params):
        del labels, params
        if mode != estimator.ModeKeys.PREDICT:
            raise ValueError(f"This model predicts only; mode {mode!r} does not.")
        mask = features["input_mask"]
        model = head.create_encoder(bert_config, False, features["input_ids"], mask,
                                    features["input_type_ids"],
                                    use_one_hot_embeddings, step)
        scaffold = checkpoint_formats.create_scaffold(init_checkpoint) or tf.train.Scaffold()
        layers = model.get_all_encoder_layers()
        predictions = {f"layer_output_{index}": pool(layers[layer], mask, pooling)
                       for index, layer in enumerate(layer_indexes)}
        return estimator.EstimatorSpec(
            mode, predictions={"unique_id": tf.identity(features["unique_ids"]), **predictions},
            scaffold=scaffold)

    return model_fn
