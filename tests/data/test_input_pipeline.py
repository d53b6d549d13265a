"""Records are written, read and refused. Training reads them in the right order."""

import pathlib

from helpers import error_of, read_batches
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding, input_pipeline, tfrecord_files
from bertlib.data.batches import EXAMPLE_INDEX, Batch, restore_file_order
from bertlib.data.input_pipeline import Field
from bertlib.estimator import estimator, input_functions, run_config
from bertlib.estimator.step_config import StepConfig

pytestmark = pytest.mark.usefixtures("graph")

FIELDS = [Field("input_ids", "int64", (4,)), Field("label_ids", "int64", ()),
          Field("weights", "float32", (2,))]


def make_arrays(count):
    """Returns {name: array} with the dtypes of the datasets. input_ids[i][0] is i."""
    return {"input_ids": np.arange(count, dtype=np.int32)[:, None] + np.arange(4, dtype=np.int32) * 100,
            "label_ids": np.arange(count, dtype=np.int32) % 3,
            "weights": np.arange(2 * count, dtype=np.float32).reshape(count, 2) / 8}


def make_rows(count):
    arrays = make_arrays(count)
    return [{name: values[index] for name, values in arrays.items()} for index in range(count)]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "train.tf_record")


def assert_equal(taken, expected):
    assert len(taken) == len(expected)
    for batch, other in zip(taken, expected):
        assert set(batch) == set(other)
        for name, values in other.items():
            assert batch[name].dtype == values.dtype
            np.testing.assert_array_equal(batch[name], values)


def array_dataset(arrays, batch, drop_remainder=False, **options):
    """Returns a dataset like `input_pipeline.record_dataset`, but from arrays in memory."""
    examples = input_pipeline.array_examples(arrays)
    if isinstance(batch, Batch):
        return input_pipeline.training_dataset(examples, batch, **options)
    return input_pipeline.evaluation_dataset(examples, batch, drop_remainder, **options)


def take(arrays, indices):
    return {name: values[indices] for name, values in arrays.items()}


# --- Writing and reading ---------------------------------------------------------------------------------


# The names of run_classifier.py in the published code. All fields are int64.
PUBLISHED = [Field("input_ids", "int64", (4,)), Field("input_mask", "int64", (4,)),
             Field("segment_ids", "int64", (4,)), Field("label_ids", "int64", ()),
             Field("is_real_example", "int64", ())]
PUBLISHED_ROW = {"input_ids": [101, 7, 102, 0], "input_mask": [1, 1, 1, 0], "segment_ids": [0, 0, 0, 0],
                 "label_ids": [2], "is_real_example": [1]}


def test_a_file_in_the_published_layout_is_read(path):
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(2):
            features = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                        for name, values in PUBLISHED_ROW.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    dataset = input_pipeline.record_dataset(path, PUBLISHED, 2)
    expected = {field.name: np.array([PUBLISHED_ROW[field.name]] * 2, np.int32).reshape(2, *field.shape)
                for field in PUBLISHED}
    assert_equal(read_batches(dataset), [expected])


def test_a_file_that_changes_is_refused(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        tfrecord_files.write_records(path, FIELDS, make_rows(2))
    records = input_pipeline.RecordFiles(paths, FIELDS)
    assert len(set(records.read([0, 1, 2, 3]))) == 2
    for path in paths:
        tfrecord_files.write_records(path, FIELDS, make_rows(1))
    with pytest.raises(ValueError, match="/a was changed while it was in use. Start this command again"):
        records.read([0, 1, 2, 3])


# --- Refused files ---------------------------------------------------------------------------------------


def refusal(path, fields=FIELDS):
    message = error_of(input_pipeline.record_dataset, path, fields, Batch(2))
    assert path in message
    return message


def test_a_file_without_records_is_refused(path):
    assert "There is no file" in refusal(path)
    for content, message in ((b"", "is empty"), (b"Quality\t#1 ID\t#2 ID\n" * 20, "at record 0 (byte 0 ")):
        pathlib.Path(path).write_bytes(content)
        assert message in refusal(path)
    tfrecord_files.write_serialized(path, [b"\xff\xff no protocol buffer"])
    assert "not a tf.train.Example" in refusal(path)


@pytest.mark.parametrize("field, message", [
    (Field("more", "int64", ()), "no feature more; its features: input_ids, label_ids, weights"),
    (Field("input_ids", "int64", (8,)), "input_ids has 4 int64 values, not 8. The file may have been "
                                        "written with another sequence length"),
    (Field("weights", "int64", (2,)), "weights has 0 int64 values")])
def test_other_features_are_refused(path, field, message):
    tfrecord_files.write_records(path, FIELDS, make_rows(1))
    assert message in refusal(path, [field])


@pytest.mark.parametrize("left", [1, 10, 12, 40, -5, -1])
@pytest.mark.parametrize("flips", [False, True])
def test_a_damaged_record_is_refused_with_the_place(path, left, flips):
    """The last record is truncated, or has a flipped bit in its length, its checksum or its data."""
    tfrecord_files.write_records(path, FIELDS, make_rows(3))
    data = bytearray(pathlib.Path(path).read_bytes())
    record = len(data) // 3
    place = 2 * record + left % record
    if flips:
        data[place] ^= 1
    size = len(data) if flips else place
    pathlib.Path(path).write_bytes(data[:size])
    message = refusal(path)
    assert f"damaged or truncated at record 2 (byte {2 * record} of {size})" in message
    assert "Delete this file" in message


# --- Records that cannot be used ------------------------------------------------------------------------

BOUNDED = [Field("input_ids", "int64", (4,), (0, 350)), Field("label_ids", "int64", (), (0, 2)),
           Field("weights", "float32", (2,), (0, float("inf")))]
FAULTS = {
    "id": ({"input_ids": [0, 351, 0, 0]},
           "input_ids has 351 at place 1 (from 0); it must be from 0 to 350"),
    "negative id": ({"input_ids": [0, 1, 2, -1]}, "input_ids has -1 at place 3"),
    # Converted to int32, this id would be 5.
    "large id": ({"input_ids": [2**32 + 5, 0, 0, 0]}, "input_ids has 4294967301 at place 0"),
    "label": ({"label_ids": 3}, "label_ids has 3 at place 0 (from 0); it must be from 0 to 2"),
    "nan": ({"weights": [1, float("nan")]},
            "weights has nan at place 1 (from 0); it must be finite and at least 0"),
    "infinity": ({"weights": [float("inf"), 1]}, "weights has inf at place 0"),
    "negative weight": ({"weights": [-1, 1]}, "weights has -1.0 at place 0")}


def with_fault(change, where=7, count=10):
    rows = make_rows(count)
    rows[where].update(change)
    return rows


@pytest.mark.parametrize("change, message", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("is_training", [True, False])
def test_a_value_out_of_bounds_is_located(path, change, message, is_training):
    tfrecord_files.write_records(path, FIELDS, make_rows(3))
    tfrecord_files.write_records(path + "2", FIELDS, with_fault(change))
    dataset = input_pipeline.record_dataset([path, path + "2"], BOUNDED, Batch(2) if is_training else 2,
                                            num_threads=2)
    with pytest.raises(ValueError) as error, input_pipeline.translate_record_errors():
        read_batches(dataset, 30)
    assert f"{path}2, record 7 (from 0): {message}" in str(error.value)


@pytest.mark.parametrize("last, message", [
    (example_encoding.encode_example(FIELDS[:1], make_rows(1)[0]), "it has no feature label_ids"),
    (b"\xff\xff none", "it is not a tf.train")])
def test_a_record_that_is_made_otherwise_than_the_first_is_located(path, last, message):
    tfrecord_files.write_serialized(
        path, [*(example_encoding.encode_example(FIELDS, row) for row in make_rows(3)), last])
    dataset = input_pipeline.record_dataset(path, BOUNDED, 2)
    with pytest.raises(ValueError) as error, input_pipeline.translate_record_errors():
        read_batches(dataset)
    assert f"{path}, record 3 (from 0): {message}" in str(error.value)


def test_an_error_that_is_not_a_records_fault_stays(path):
    tfrecord_files.write_records(path, FIELDS, make_rows(3))
    dataset = input_pipeline.record_dataset(path, BOUNDED, 3)
    with (pytest.raises(tf.errors.InvalidArgumentError, match="mine"),
          input_pipeline.translate_record_errors()):
        read_batches(dataset.map(lambda batch: tf.debugging.check_numerics(batch["weights"] / 0, "mine")))


# --- The order of training -------------------------------------------------------------------------------


@pytest.mark.parametrize("size, batch_size", [(10, 5), (10, 4), (7, 3), (3, 8), (1, 2)])
def test_every_epoch_takes_each_example_once_also_where_a_batch_crosses_it(size, batch_size):
    epochs = 4
    steps = -(-epochs * size // batch_size)
    taken = [input_pipeline.batch_of_step(step, batch_size, size, seed=1) for step in range(steps)]
    assert all(batch.dtype == np.int64 and batch.shape == (batch_size,) for batch in taken)
    stream = np.concatenate(taken)
    orders = [stream[epoch * size:(epoch + 1) * size].tolist() for epoch in range(epochs)]
    for order in orders:
        assert sorted(order) == list(range(size))
    if size >= 7:
        assert len({tuple(order) for order in orders}) == epochs


@pytest.fixture(params=["records", "arrays"])
def make_dataset(request, path):
    """A function that builds a dataset, from a file or from memory. The dataset must be the same."""
    def make(count, *arguments, **options):
        if request.param == "arrays":
            return array_dataset(make_arrays(count), *arguments, **options)
        tfrecord_files.write_records(path, FIELDS, make_rows(count))
        return input_pipeline.record_dataset(path, FIELDS, *arguments, **options)
    return make


def test_training_takes_the_batches_of_the_graphs_seed(make_dataset):
    tf.set_random_seed(77)
    dataset = make_dataset(5, Batch(2))
    expected = [take(make_arrays(5), input_pipeline.batch_of_step(step, 2, 5, seed=77)) for step in range(6)]
    assert_equal(read_batches(dataset, 6), expected)


def test_evaluation_takes_everything_once_in_order_with_a_smaller_last_batch(make_dataset):
    tf.train.get_or_create_global_step()
    dataset = make_dataset(5, 2)
    expected = [take(make_arrays(5), slice(start, start + 2)) for start in (0, 2, 4)]
    assert_equal(read_batches(dataset, step=3), expected)  # at any global step


# --- Micro-batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [2, 3, 6])
def test_micro_batches_are_the_batch_in_parts(make_dataset, micro_batches):
    tf.train.get_or_create_global_step()
    whole = read_batches(make_dataset(8, Batch(6)), 3, step=2)
    size = 6 // micro_batches
    dataset = make_dataset(8, Batch(6, micro_batches))
    expected = [take(batch, slice(start, start + size)) for batch in whole for start in range(0, 6, size)]
    assert_equal(read_batches(dataset, 3 * micro_batches, step=2), expected)


# --- Trimming --------------------------------------------------------------------------------------------

LENGTHS = np.random.RandomState(0).randint(1, 33, 90)
TRIM = ("input_mask", "input_ids")


def make_padded():
    """Returns sequences with LENGTHS real tokens, padded to [90, 40].

    input_ids[i][:length] is i + 1, and label_ids[i] is i.
    """
    mask = (np.arange(40) < LENGTHS[:, None]).astype(np.int32)
    return {"input_ids": mask * np.arange(1, 91, dtype=np.int32)[:, None], "input_mask": mask,
            "label_ids": np.arange(90, dtype=np.int32)}


def assert_trimmed(batch, size):
    examples = batch["label_ids"]
    longest = LENGTHS[examples].max()
    assert batch["input_ids"].shape == batch["input_mask"].shape == (size, -(-longest // 8) * 8)
    np.testing.assert_array_equal(batch["input_mask"].sum(axis=1), LENGTHS[examples])
    np.testing.assert_array_equal(batch["input_ids"].max(axis=1), examples + 1)


def test_micro_batches_of_a_step_are_sorted_by_length():
    dataset = array_dataset(make_padded(), Batch(32, 8), batch_totals=("label_ids",), trimmed_fields=TRIM)
    step = read_batches(dataset, 8)
    for batch in step:
        assert_trimmed(batch, 4)
        assert batch["label_ids_total"] == sum(batch["label_ids"].sum() for batch in step)
    lengths = LENGTHS[np.concatenate([batch["label_ids"] for batch in step])]
    assert list(lengths) == sorted(lengths, reverse=True)
    assert step[0]["input_ids"].shape[1] > step[-1]["input_ids"].shape[1]


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_evaluation_sorts_batches_and_results_are_put_back_in_order(monkeypatch, drop_remainder):
    monkeypatch.setattr(input_pipeline, "_SORTED_BATCHES", 4)
    found = read_batches(array_dataset(make_padded(), 8, drop_remainder, trimmed_fields=TRIM))
    # The last, smaller batch has the same examples as without sorting.
    assert [len(batch["label_ids"]) for batch in found] == [8] * 11 + [2] * (not drop_remainder)
    for batch in found:
        assert_trimmed(batch, len(batch["label_ids"]))
        np.testing.assert_array_equal(batch[EXAMPLE_INDEX], batch["label_ids"])
    assert sum(batch["input_ids"].size for batch in found) < 0.75 * 40 * 90
    results = [{"label": label, EXAMPLE_INDEX: index} for batch in found
               for label, index in zip(batch["label_ids"], batch[EXAMPLE_INDEX])]
    assert [result["label"] for result in results] != list(range(len(results)))
    in_order = [{"label": index} for index in range(len(results))]
    assert list(restore_file_order(iter(results))) == in_order
    assert list(restore_file_order(reversed(in_order))) == in_order[::-1]  # results without an index stay


def test_an_example_of_padding_alone_keeps_a_position_and_no_examples_are_refused():
    arrays = {"input_ids": np.zeros([2, 16], np.int32), "input_mask": np.zeros([2, 16], np.int32)}
    batch, = read_batches(array_dataset(arrays, 2, trimmed_fields=TRIM))
    assert batch["input_ids"].shape == (2, 8)
    with pytest.raises(ValueError, match="no examples"):
        input_pipeline.array_examples(make_arrays(0))


# --- The batch of a step ---------------------------------------------------------------------------------


def test_the_batch_is_that_of_the_step_or_of_other_programs_params(graph):
    step = StepConfig(train_batch_size=24, gradient_accumulation_steps=2, num_replicas=3)
    config = run_config.RunConfig(step_config=step)
    assert input_functions.training_batch({"batch_size": 7}, config) == step.batch == Batch(24, 2, 3)
    for given in (None, run_config.RunConfig()):
        params = {"batch_size": 8, "gradient_accumulation_steps": 2}
        assert input_functions.training_batch(params, given) == Batch(16, 2)


def test_an_estimator_refuses_another_batch_than_that_of_its_step(tmp_path):
    config = run_config.RunConfig(str(tmp_path), step_config=StepConfig(train_batch_size=24))
    with pytest.raises(ValueError, match="train_batch_size is 8, but the StepConfig .* says 24"):
        estimator.Estimator(lambda features: None, config=config, train_batch_size=8)
