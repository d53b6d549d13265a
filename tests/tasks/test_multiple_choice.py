"""Questions with several endings: reading, features, and the scores of the head."""

from helpers import FixedEncoder, read_batches, write_lines
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import input_pipeline, tfrecord_files
from bertlib.estimator.estimator import ModeKeys
from bertlib.tasks.classification import choice_target, classification_head
import modeling
import tokenization

HEADER = "sent1,sent2,ending0,ending1,ending2,label"
GOOD = "the cat sees a bird .,it,eats the bird .,finds a house .,moves a train .,0"


def read(path, *lines, needs_labels=True, skip=False, **flags):
    write_lines(path, lines)
    values = {"text_column": None, "label_column": None, "header": "auto", "delimiter": "auto",
              "encoding": "utf-8", **flags}
    reader = choice_target.QuestionReader(values.get, lambda flag: False, skip)
    return reader.read(str(path), needs_labels)


# --- Reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["-1", '"-1"', "null"])
def test_a_test_file_needs_no_labels(label, tmp_path):
    row = f'{{"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": {label}}}'
    file = read(tmp_path / "a.jsonl", row, needs_labels=False)
    assert not file.is_labelled and file.rows[0].label is None
    with pytest.raises(ValueError, match="a.jsonl:1: "):
        read(tmp_path / "a.jsonl", row)


def test_columns_of_endings_are_counted(tmp_path):
    with pytest.raises(ValueError, match="--text_column names 3 columns"):
        read(tmp_path / "a.csv", HEADER, GOOD, text_column="sent1,sent2,ending0")
    row = '{"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": 1'
    with pytest.raises(ValueError, match="a.jsonl:2: the row has 5 texts, but the first row has 4"):
        read(tmp_path / "a.jsonl", f"{row}}}", f'{row}, "ending2": "e"}}')


# --- Features --------------------------------------------------------------------------------------------


def test_each_ending_is_a_sequence(tiny_model, tmp_path):
    """The form is that of section 4.4 of the paper: [CLS] sentence A [SEP] start of sentence B, ending [SEP].
    """
    tokenizer = tokenization.FullTokenizer(str(tiny_model.vocab))
    path = str(tmp_path / "a.tf_record")
    file = read(tmp_path / "a.csv", HEADER, GOOD[:-1] + "2")
    lengths = choice_target.write_features(file, 16, tokenizer, path)
    record, = tfrecord_files.read_records(path)
    values = {name: feature.int64_list.value
              for name, feature in tfrecord_files.parse_features(record).items()}
    first = ["[CLS]", *tokenizer.tokenize("the cat sees a bird ."), "[SEP]"]
    sequences = zip(*(np.reshape(values[name], [3, 16]).tolist()
                      for name in ("input_ids", "input_mask", "segment_ids")))
    for ending, (ids, mask, segments) in zip(
            ("eats the bird .", "finds a house .", "moves a train ."), sequences, strict=True):
        second = [*tokenizer.tokenize(f"it {ending}"), "[SEP]"]
        size = len(first + second)
        assert tokenizer.convert_ids_to_tokens(ids) == first + second + ["[PAD]"] * (16 - size)
        assert mask == [1] * size + [0] * (16 - size) and lengths == [size]  # all three are equally long
        assert segments == [0] * len(first) + [1] * len(second) + [0] * (16 - size)
    assert values["label_ids"] == [2]


def test_a_batch_is_trimmed_to_its_longest_sequence():
    """This need not be the first sequence of a question."""
    mask = (np.arange(32) < np.array([[3, 17], [4, 2]])[..., None]).astype(np.int32)
    batch, = read_batches(input_pipeline.evaluation_dataset(
        input_pipeline.array_examples({"input_mask": mask}), 2, trimmed_fields=("input_mask",)))
    assert np.array_equal(batch["input_mask"], mask[..., :24])


# --- The head --------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_over_the_endings(graph):
    features = {"input_ids": tf.zeros([2, 3, 5], tf.int32), "label_ids": tf.constant([2, 0])}
    pooled = np.random.RandomState(3).standard_normal([6, 4])  # two questions with three endings
    vector = np.random.RandomState(4).standard_normal([1, 4])
    outputs = classification_head.Choice().build(modeling.BertConfig(9, hidden_size=4), FixedEncoder(pooled),
                                         features, ModeKeys.PREDICT, 1)
    with tf.Session() as session:
        tiny.load(session, tf.trainable_variables(), {"cls/multiple_choice/output_weights": vector})
        loss, predictions = session.run([outputs.loss, outputs.predictions])
    scores = (pooled @ vector[0]).reshape(2, 3)
    np.testing.assert_allclose(predictions["scores"], scores, rtol=1e-5, atol=1e-6)
    chosen = choice_target.probabilities(scores)[[0, 1], [2, 0]]
    np.testing.assert_allclose(predictions["loss"], -np.log(chosen), rtol=1e-5)
    np.testing.assert_allclose(loss, -np.log(chosen).mean(), rtol=1e-5)
