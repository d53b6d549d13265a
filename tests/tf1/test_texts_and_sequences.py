"""tf.contrib.learn.preprocessing, tf.contrib.legacy_seq2seq, and files of tf.gfile."""

import pickle

import numpy as np
from numpy.testing import assert_allclose
import pytest

import tf1 as tf

TEXTS = ["the cat sees the dog", "the dog's old", "USA and USAir"]


def test_texts_become_arrays_of_word_ids(tmp_path):
    processor = tf.contrib.learn.preprocessing.VocabularyProcessor(4)
    ids = [row.tolist() for row in processor.fit_transform(TEXTS)]
    assert ids == [[1, 2, 3, 1], [1, 5, 6, 0], [7, 8, 9, 10]]
    assert len(processor.vocabulary_) == 11
    processor.save(str(tmp_path / "vocab"))
    restored = tf.contrib.learn.preprocessing.VocabularyProcessor.restore(str(tmp_path / "vocab"))
    assert [row.tolist() for row in restored.transform(["the bird sees"])] == [[1, 0, 3, 0]]
    assert list(restored.reverse([[1, 0]])) == ["the <UNK>"]
    often = tf.contrib.learn.preprocessing.VocabularyProcessor(3, min_frequency=1).fit(TEXTS)
    assert [row.tolist() for row in often.transform(["USA the cat"])] == [[0, 1, 0]]


def test_a_language_model_of_lists():
    with tf.Graph().as_default(), tf.Session() as session:
        cell = tf.nn.rnn_cell.GRUCell(3)
        inputs = [tf.ones([2, 3])] * 3
        sequences = tf.contrib.legacy_seq2seq
        outputs, state = sequences.rnn_decoder(inputs, tf.zeros([2, 3]), cell)
        looped, _ = sequences.rnn_decoder(inputs, tf.zeros([2, 3]), cell, lambda output, step: output * step,
                                          scope="looped")
        targets, weights = [tf.constant([0, 2])] * 3, [tf.constant([1.0, 0.5])] * 3
        by_example = sequences.sequence_loss_by_example(outputs, targets, weights)
        whole = sequences.sequence_loss(outputs, targets, weights)
        assert len(looped) == 3
        assert {variable.op.name.split("/")[0] for variable in tf.global_variables()} == {
            "rnn_decoder"}  # the cell keeps its variables
        session.run(tf.global_variables_initializer())
        outputs, last, by_example, whole = session.run([outputs, state, by_example, whole])
    assert np.array_equal(outputs[-1], last)
    expected = [np.mean([np.log(np.exp(output[index]).sum()) - output[index][label] for output in outputs])
                for index, label in enumerate((0, 2))]
    assert_allclose(by_example, expected, rtol=1e-5)
    assert_allclose(whole, np.mean(expected), rtol=1e-5)
    with pytest.raises(ValueError, match="must have the same length; they have 1, 0 and 1"):
        sequences.sequence_loss([1], [], [1])


@pytest.mark.parametrize("opener", [tf.gfile.GFile, tf.gfile.Open, tf.gfile.FastGFile, tf.io.gfile.GFile])
def test_a_file_takes_buffers(opener, tmp_path):
    content = [np.asfortranarray(np.arange(20000.0).reshape(100, 200)), "text"]
    with opener(str(tmp_path / "pickle"), "wb") as file:
        pickle.dump(content, file, protocol=5)
    with opener(str(tmp_path / "pickle"), "rb") as file:
        assert np.array_equal(pickle.load(file)[0], content[0])
    with opener(str(tmp_path / "bytes"), "wb") as file:
        for part in (bytearray(b"a"), memoryview(b"b"), np.frombuffer(b"c", np.uint8), b"d", "e"):
            file.write(part)
    assert (tmp_path / "bytes").read_text() == "abcde"
