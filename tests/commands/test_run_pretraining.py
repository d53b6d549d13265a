"""`run_pretraining.py` on a tiny model: heads, shards, training, evaluation, curve, resumed runs and errors.
"""

import re

from helpers import comparable, error_of, read_batches, read_json, tensors_of, write_json
import numpy as np
from outputs import scores
import pytest
from scipy import special
from scripts import ROOT
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import input_pipeline, tfrecord_files
from bertlib.estimator import estimator
from bertlib.tasks.pretraining import pretraining_data, pretraining_head, pretraining_stream
import modeling
import run_pretraining
import tokenization

ROW = "pre-training"
LENGTH, PREDICTIONS, SHARDS = 20, 4, (7, 1)
FIELDS = pretraining_data.feature_fields(LENGTH, PREDICTIONS)
NAMES = [field.name for field in FIELDS]
HEADS = {"cls/predictions/transform/dense/kernel": (16, 16), "cls/predictions/transform/dense/bias": (16,),
         "cls/predictions/transform/LayerNorm/beta": (16,),
         "cls/predictions/transform/LayerNorm/gamma": (16,),
         "cls/predictions/output_bias": (len(tiny.VOCABULARY),),
         "cls/seq_relationship/output_weights": (2, 16), "cls/seq_relationship/output_bias": (2,)}


@pytest.fixture
def records(trained):
    """The path of the records for the training."""
    return str(trained.directory / "train.tfrecord")


@pytest.fixture
def instances(records):
    """The records, each a dict {field: list}."""
    found = []
    for record in tf.python_io.tf_record_iterator(records):
        features = tf.train.Example.FromString(record).features.feature
        found.append({name: list(features[name].int64_list.value or features[name].float_list.value)
                      for name in NAMES})
    return found


# --- Heads -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("graph")
def test_heads_compute_the_published_formulas(instances):
    chance = np.random.RandomState(1)
    config = modeling.BertConfig.from_dict({**tiny.CONFIG, "hidden_act": "relu"})
    sequence = chance.standard_normal([3, LENGTH, 16]).astype(np.float32)
    table = chance.standard_normal([config.vocab_size, 16]).astype(np.float32)
    batch = {name: np.array([instance[name] for instance in instances[:3]]) for name in NAMES}
    masked = run_pretraining.get_masked_lm_output(config, tf.constant(sequence), tf.constant(table), *(
        tf.constant(batch[f"masked_lm_{name}"], tf.float32 if name == "weights" else tf.int32)
        for name in ("positions", "ids", "weights")))
    following = run_pretraining.get_next_sentence_output(config, tf.constant(sequence[:, 0]),
                                                         tf.constant(batch["next_sentence_labels"], tf.int32))
    assert pretraining_head.PretrainingHead().shapes(config) == HEADS
    values = {name: chance.standard_normal(shape).astype(np.float32) for name, shape in HEADS.items()}
    with tf.Session() as session:
        tiny.load(session, tf.trainable_variables(), values)
        masked, following = session.run([masked, following])

    kernel, bias, beta, gamma, output_bias, weights, next_bias = values.values()
    inputs = np.concatenate([vectors[positions]
                             for vectors, positions in zip(sequence, batch["masked_lm_positions"])])
    inputs = np.maximum(inputs @ kernel + bias, 0.0)
    inputs = ((inputs - inputs.mean(-1, keepdims=True)) / np.sqrt(inputs.var(-1, keepdims=True) + 1e-12)
              * gamma + beta)
    expected = special.log_softmax(inputs @ table.T + output_bias, axis=-1)
    losses = -expected[np.arange(3 * PREDICTIONS), batch["masked_lm_ids"].ravel()]
    counted = batch["masked_lm_weights"].ravel()
    for found, wanted in zip(masked, [(losses * counted).sum() / (counted.sum() + 1e-5), losses, expected]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    expected = special.log_softmax(sequence[:, 0] @ weights.T + next_bias, axis=-1)
    losses = -expected[np.arange(3), batch["next_sentence_labels"].ravel()]
    for found, wanted in zip(following, [losses.mean(), losses, expected]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# --- Shards ----------------------------------------------------------------------------------------------


def batches_of(paths, is_training, threads, step):
    """Returns the first nine batches of 3 examples. In training, they are micro-batches."""
    params = {"batch_size": 3, "gradient_accumulation_steps": 2 if is_training else 1}
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        return read_batches(run_pretraining.input_fn_builder(
            paths, LENGTH, PREDICTIONS, is_training, threads)(params), 9, step)


@pytest.mark.parametrize("is_training, step", [(True, 5), (False, 0)])
def test_shards_are_read_as_one_file_in_the_same_order_by_any_number_of_threads(
        records, instances, tmp_path, is_training, step):
    ends = np.cumsum([0, *SHARDS, len(instances)])
    shards = [str(tmp_path / f"part-{index}.tfrecord") for index in range(len(SHARDS) + 1)]
    for path, start, end in zip(shards, ends, ends[1:]):
        tfrecord_files.write_records(path, FIELDS, instances[start:end])
    expected = batches_of([records], is_training, None, step)
    np.testing.assert_equal(batches_of(shards, is_training, 4, step), expected)
    if is_training:
        for pair in zip(expected[::2], expected[1::2]):
            assert pair[0]["masked_lm_weights_total"] == sum(part["masked_lm_weights"].sum() for part in pair)
    else:
        ids = [instance["input_ids"] for instance in instances]
        np.testing.assert_array_equal(np.concatenate([batch["input_ids"] for batch in expected]),
                                      ids[:3 * len(expected)])


# --- The evaluation -----------------------------------------------------------------------------------------


def test_training_writes_the_published_variables_and_metrics(trained, records):
    """An own Estimator computes the same metrics with the published `metric_fn`."""
    tensors = tensors_of(trained.output)
    for name, shape in HEADS.items():
        assert tensors[name].shape == tensors[f"{name}/adam_m"].shape == shape
    config = modeling.BertConfig.from_json_file(str(trained.directory / "model" / "shallow.json"))
    model = estimator.Estimator(run_pretraining.model_fn_builder(config, None, 0.02, 6, 1, False, False),
                                str(trained.output), eval_batch_size=3)
    found = model.evaluate(run_pretraining.input_fn_builder([records], LENGTH, PREDICTIONS, False))
    expected = scores(trained.output, trained.row)
    assert set(expected) - set(found) == {"masked_lm_baseline", "next_sentence_baseline"}
    assert found == pytest.approx({"loss": found["loss"], **{
        name: expected[name] for name in found if name != "loss"}}, rel=1e-5)


# --- Padding ---------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="two trainings")
def test_without_padding_micro_batches_make_the_same_update(untrained):
    config = untrained.directory / "model" / "shallow.json"
    write_json(config, {**read_json(config), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    flags = dict(do_eval=False, train_batch_size=8, num_train_steps=2)
    untrained.train(**flags, trim_padding=False).assert_success()
    untrained.train(**flags, output_dir="parts", trim_padding=True, gradient_accumulation_steps=3,
                    tokens_per_micro_batch=60, recompute="layers").assert_success()
    found = tensors_of(untrained.directory / "parts")
    start = tensors_of(untrained.output / "model.ckpt-0")
    for name, values in comparable(tensors_of(untrained.output)).items():
        if name in start:  # differences are small compared with the update
            assert np.linalg.norm(found[name] - values) <= 2e-3 * np.linalg.norm(values - start[name]), name


def test_records_that_cannot_be_trimmed_are_refused(untrained, instances):
    hole = {**instances[0], "input_mask": [1, 0, *[1] * (LENGTH - 2)]}
    tfrecord_files.write_records(str(untrained.directory / "hole"), FIELDS, [instances[0], hole])
    untrained.train(input_file="hole").assert_refused(
        "error: --input_file: hole, record 1 (from 0): input_mask has padding before a real token. "
        "Such a record cannot be trimmed. Write the file again, or pass --trim_padding=false.")
    assert not untrained.output.exists()


@pytest.mark.parametrize("changes, complaint", [
    ({"input_mask": [1, 0, *[1] * (LENGTH - 2)]}, "input_mask has padding before a real token"),
    ({"input_mask": [1] * 9 + [0] * (LENGTH - 9), "masked_lm_positions": [2, 8, 9, 0]},
     "masked_lm_positions has 9 at place 2 (from 0), but according to input_mask, only the first 9 positions "
     "are real tokens")])
def test_a_record_that_cannot_be_trimmed_is_named_when_it_is_read(instances, tmp_path, changes, complaint):
    path = str(tmp_path / "records")
    tfrecord_files.write_records(path, FIELDS, [*instances[:2], {**instances[0], **changes}])

    def read(**arguments):
        with tf.Graph().as_default() as graph, input_pipeline.translate_record_errors(graph):
            tf.train.create_global_step()
            return read_batches(run_pretraining.input_fn_builder(
                [path], LENGTH, PREDICTIONS, True, **arguments)({"batch_size": 2}), 2)

    assert error_of(read, trim_padding=True) == (
        f"{path}, record 2 (from 0): {complaint}. Such a record cannot be trimmed. Write the file again, "
        "leave the record out, or pass --trim_padding=false.")
    assert len(read()) == 2


# --- The sample ------------------------------------------------------------------------------------------


def test_records_of_the_sample_with_other_settings_are_refused(run_script, tmp_path):
    sample = ROOT / "samples" / "pretraining"
    pretraining_stream.write_training_data(
        [str(sample / "train.txt")], [str(tmp_path / "train.tf_record")],
        tokenization.FullTokenizer(str(sample / "vocab.txt")),
        pretraining_data.Recipe(max_seq_length=64, max_predictions_per_seq=10, dupe_factor=1))
    refused = run_script("run_pretraining.py", do_train=True, output_dir=tmp_path, max_seq_length=32)
    assert refused.code == 1
    assert f"error: --output_dir={tmp_path}: {tmp_path}/train.tf_record is the" in refused.err
    assert "max_seq_length was 64 and is now 32; dupe_factor was 1 and is now 10." in refused.err
    assert refused.err.endswith("pass another --output_dir.\n")


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, complaint", [
    (dict(bert_config_file="small.json", vocab_file=None, init_checkpoint=None),
     r"contains the token id \d+, but vocab_size in small.json is 20"),
    (dict(eval_file="strange"), "--eval_file: strange contains a record that is not a tf.train.Example"),
    (dict(input_file="empty,text.txt"), r"(?s)--input_file: 1 of the 2 files are empty\. They are left out\."
     ".*error: --input_file: text.txt contains no TFRecords")], ids=str)
def test_what_cannot_be_is_refused_before_anything_is_written(untrained, changes, complaint):
    (untrained.directory / "text.txt").write_text("no records at all, only some text\n")
    (untrained.directory / "empty").touch()
    tfrecord_files.write_serialized(str(untrained.directory / "strange"), [b"\xff\xff"])
    write_json(untrained.directory / "small.json", {**tiny.CONFIG, "vocab_size": 20})
    if "bert_config_file" in changes:  # the manifest names a vocabulary, which is checked first
        (untrained.directory / "train.tfrecord.manifest.json").unlink()
    refused = untrained.train(**changes)
    refused.assert_refused()
    assert re.search(complaint, refused.err) and not untrained.output.exists(), refused.err


def test_a_record_that_cannot_be_used_is_named_when_it_is_read(copy, instances):
    """The record comes after the records that are checked before the start."""
    spoilt = {**instances[0], "masked_lm_weights": [float("nan"), *[0.0] * (PREDICTIONS - 1)]}
    tfrecord_files.write_records(str(copy.directory / "records"), FIELDS, [*instances[:1] * 101, spoilt])
    copy.train(eval_file="records", do_train=False, do_lower_case=None).assert_refused(
        "error: records, record 101 (from 0): masked_lm_weights has nan at place 0 (from 0); it must be "
        "finite and at least 0. Write the file again, or leave the record out.\n")
