"""`extract_features.py`: recorded vectors, published and other formats, order, streaming and bad input."""

import gzip
import itertools
import json
import shutil
import types

from helpers import Recording, read_json, write_lines
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.estimator import estimator
from bertlib.tasks.classification import feature_extraction
import extract_features
import modeling
import tokenization

LINES = ["the cat sees a bird .", "", "a dog ||| the old man sells bread , not fish .", "no",
         "unknowable ||| ",
         " ".join(["stone"] * 30), "the dog sings ||| and ||| the child hears a song", "  new train  ",
         "[CLS] a"]
LAYERS = [-1, 0, -2]


# --- Against the recording -------------------------------------------------------------------------------


def test_recorded_vectors(tmp_path):
    recording = Recording("gelu")
    checkpoint = tiny.write_tensorflow(tmp_path / "model.ckpt", recording.group("var"))
    model_fn = extract_features.model_fn_builder(recording.config, str(checkpoint), [0, -2, -1], False, True)
    names = "input_ids", "input_mask", "input_type_ids"
    with feature_extraction.running(model_fn) as run:
        found = run({"unique_ids": np.arange(5), **dict(zip(names, recording.inputs))})
    for index in range(3):
        np.testing.assert_allclose(found[f"layer_output_{index}"], recording.arrays[f"out/layer_{index}"],
                                   atol=1e-5)
    np.testing.assert_array_equal(found["unique_id"], np.arange(5))


# --- The script ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("text") / "text.txt", LINES)


@pytest.fixture(scope="module")
def extracted(scripts, tiny_model, text):
    """A function that runs the script on LINES. It returns the path of the output."""
    def run(name, **changes):
        path = text.parent / "new" / name
        flags = {**tiny_model.flags, "bert_config_file": tiny_model.config, "input_file": text,
                 "output_file": path, "layers": ",".join(map(str, LAYERS)), "batch_size": 2, **changes}
        done = scripts.run("extract_features.py", *tiny.flags(**flags), cwd=text.parent)
        done.assert_success("1 of 9 lines reach --max_seq_length=20")
        return path
    return run


@pytest.fixture(scope="module")
def published(tiny_model, text):
    """[(tokens, values [tokens, L, W])] by the published functions, in batches padded to --max_seq_length."""
    config = modeling.BertConfig.from_json_file(str(tiny_model.config))
    features = extract_features.convert_examples_to_features(
        extract_features.read_examples(str(text)), tiny.SEQ_LENGTH,
        tokenization.FullTokenizer(str(tiny_model.vocab)))
    model_fn = extract_features.model_fn_builder(config, str(tiny_model.checkpoint), LAYERS, False, False)
    runner = estimator.Estimator(model_fn, config=estimator.RunConfig(model_dir=str(text.parent / "none")),
                                 predict_batch_size=4)
    found = []
    for feature, result in zip(features,
                               runner.predict(extract_features.input_fn_builder(features, tiny.SEQ_LENGTH))):
        assert result["unique_id"] == feature.unique_id == len(found)
        layers = np.stack([result[f"layer_output_{index}"] for index in range(len(LAYERS))], axis=1)
        found.append((feature.tokens, layers[:len(feature.tokens)]))
    return found


def test_json_lines_in_the_published_layout(extracted, published):
    lines = extracted("features.jsonl").read_text().splitlines()
    for index, (line, (tokens, values)) in enumerate(zip(lines, published, strict=True)):
        row = json.loads(line)
        assert row["linex_index"] == index
        assert [feature["token"] for feature in row["features"]] == tokens
        layers = [layer for feature in row["features"] for layer in feature["layers"]]
        assert [layer["index"] for layer in layers] == LAYERS * len(tokens)
        found = np.array([layer["values"] for layer in layers]).reshape(values.shape)
        np.testing.assert_allclose(found, values, atol=1e-5)


def test_numbers_are_rounded_as_the_published_ones(tmp_path):
    """The first two numbers are in the middle between two rounded numbers."""
    values = np.array([[[0.5**7, 3 * 0.5**7, -1e-7, 0.0, 123.4567895, 1e-6]]], np.float32)
    feature = types.SimpleNamespace(unique_id=0, tokens=["a"])
    feature_extraction.write_jsonl(str(tmp_path / "x.jsonl.gz"), [(feature, values)], [0])
    layer = {"index": 0, "values": [round(float(number), 6) for number in values[0, 0]]}
    expected = {"linex_index": 0, "features": [{"token": "a", "layers": [layer]}]}
    assert gzip.decompress((tmp_path / "x.jsonl.gz").read_bytes()).decode() == json.dumps(expected) + "\n"


def test_pooled_npz_in_16_bits(extracted, published):
    """The name of the output file determines the format."""
    with np.load(extracted("mean.npz", output_dtype="float16", pooling="mean")) as file:
        assert set(file) == {"values", "layers"} and file["values"].dtype == "float16"
        np.testing.assert_allclose(file["values"], [values.mean(axis=0) for _, values in published],
                                   atol=5e-3)


def read_npz(path):
    """Yields (ids of the tokens, vectors) of each line."""
    with np.load(path) as file:
        assert file["layers"].tolist() == LAYERS
        for start, end in itertools.pairwise(file["offsets"]):
            yield file["input_ids"][start:end], file["values"][start:end]


def read_tfrecord(path):
    """Yields (ids of the tokens, vectors) of each line."""
    for index, record in enumerate(tf.python_io.tf_record_iterator(str(path))):
        features = tf.train.Example.FromString(record).features.feature
        numbers = {name: list(feature.int64_list.value) for name, feature in features.items()}
        assert numbers["linex_index"] == [index] and numbers["layers"] == LAYERS
        halves = features["values"].bytes_list.value
        values = np.frombuffer(halves[0], "<f2") if halves else np.array(
            features["values"].float_list.value, np.float32)
        yield numbers["input_ids"], values.reshape(numbers["shape"])


def assert_rows(rows, published, dtype, tolerance):
    for (ids, found), (tokens, values) in zip(rows, published, strict=True):
        assert [tiny.VOCABULARY[number] for number in ids] == tokens and found.dtype == dtype
        np.testing.assert_allclose(found, values, atol=tolerance)


def test_what_a_training_left_needs_no_other_flag(tiny_model, text, published, run_script, tmp_path):
    tiny.write_training(tmp_path / "output", tiny_model.weights)
    for path, name in ((tiny_model.config, "bert_config.json"), (tiny_model.vocab, "vocab.txt")):
        shutil.copy(path, tmp_path / "output" / name)
    done = run_script("extract_features.py", input_file=text, output_file="x.npz", init_checkpoint="output",
                      layers=",".join(map(str, LAYERS)), max_seq_length=tiny.SEQ_LENGTH)
    done.assert_success()
    assert_rows(read_npz(tmp_path / "x.npz"), published, "float32", 1e-5)


def test_the_other_combinations_of_format_and_precision(published, tmp_path):
    rows = [(feature_extraction.InputFeatures(index, tokens,
                                              [tiny.VOCABULARY.index(token) for token in tokens], None, None),
             values) for index, (tokens, values) in enumerate(published)]
    halves = [(feature, values.astype(np.float16)) for feature, values in rows]
    path = str(tmp_path / "x")
    feature_extraction.write_tfrecord(path, halves, LAYERS)
    assert_rows(read_tfrecord(path), published, "float16", 5e-3)
    feature_extraction.write_tfrecord(path, rows, LAYERS)
    assert_rows(read_tfrecord(path), published, "float32", 0)
    feature_extraction.write_jsonl(path, [(feature, values[0]) for feature, values in rows[:1]], LAYERS)
    expected = [{"index": layer, "values": [round(float(number), 6) for number in numbers]}
                for layer, numbers in zip(LAYERS, published[0][1][0])]
    assert read_json(tmp_path / "x") == {"linex_index": 0, "layers": expected}


# --- Streaming -------------------------------------------------------------------------------------------


def test_a_window_at_a_time_is_read_sorted_by_length_and_returned_in_order():
    chance = np.random.RandomState(2)
    lengths = chance.randint(2, 30, size=95)
    taken, batches = [], []

    def features():
        for index, length in enumerate(lengths):
            taken.append(index)
            yield feature_extraction.InputFeatures(index, ["t"] * length, [index] * 30, [1] * 30, [0] * 30)

    def run(arrays):
        batches.append(arrays["input_ids"])
        return {"layer_output_0": arrays["input_ids"][:, :, None].astype(np.float32)}

    rows = feature_extraction.extract(features(), run, 1, 4, feature_extraction._WINDOW_BYTES // 200)
    for index, (feature, values) in enumerate(rows):
        assert feature.unique_id == index and values.dtype == np.float32
        np.testing.assert_array_equal(values, np.full([lengths[index], 1, 1], index))
        assert sum(lengths[index:len(taken)]) <= 200 + 4 * 30
    assert index == 94 and len(batches) == 24
    computed = sum(batch.size for batch in batches)
    assert computed < 1.25 * lengths.sum() < 0.8 * 30 * len(lengths)


def test_what_fails_leaves_no_file(tmp_path):
    def rows():
        yield types.SimpleNamespace(unique_id=0, tokens=["a"], input_ids=[1]), np.zeros([1, 1, 2], np.float32)
        raise KeyboardInterrupt

    for write in (lambda path: feature_extraction.write_jsonl(path, rows(), [0]),
                  lambda path: feature_extraction.write_tfrecord(path, rows(), [0]),
                  lambda path: feature_extraction.write_npz(path, rows(), [0], [3, 1, 2], np.float32)):
        with pytest.raises(KeyboardInterrupt):
            write(str(tmp_path / "x"))
    with pytest.raises(ValueError, match="would have 2 values instead of 3 × 1 × 2, because the input was "
                                         "changed"):
        feature_extraction.write_npz(str(tmp_path / "x"), list(zip(*[iter(next(rows()))] * 2)), [0],
                                     [3, 1, 2], np.float32)
    assert not list(tmp_path.iterdir())


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, complaint", [
    (dict(input_file="empty.txt"), "empty.txt is empty"),
    (dict(layers="-1,-3"), "the model has no layer -3. Its 2 layers have the numbers 0 to 1, or -2 to -1"),
    (dict(output_dtype="float16"), "Pass --output_format=npz or --output_format=tfrecord")], ids=str)
def test_what_cannot_be_is_refused_before_anything_is_written(run_script, tiny_model, tmp_path, changes,
                                                              complaint):
    (tmp_path / "good.txt").write_text("a cat\n")
    (tmp_path / "empty.txt").write_text("")
    flags = {**tiny_model.flags, "bert_config_file": tiny_model.config, "input_file": "good.txt",
             "output_file": "new/x", "layers": "-1", **changes}
    refused = run_script("extract_features.py", **flags)
    refused.assert_refused(complaint)
    assert len(list(tmp_path.iterdir())) == 2
