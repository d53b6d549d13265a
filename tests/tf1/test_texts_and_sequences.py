"""tf.contrib.learn.preprocessing, tf.contrib.legacy_seq2seq, and files of tf.gfile."""

import pickle

from graphs import names
import numpy as np
from numpy.testing import assert_allclose
import pytest

import tf1 as tf

TEXTS = ["the cat sees the dog", "the dog's old", "USA and USAir"]


def test_texts_become_arrays_of_word_ids(tmp_path):
    make = tf.contrib.learn.preprocessing.VocabularyProcessor
    processor = make(4)
    ids = [row.tolist() for row in processor.fit_transform(TEXTS)]
    assert ids == [[1, 2, 3, 1], [1, 5, 6, 0], [7, 8, 9, 10]] and len(processor.vocabulary_) == 11
    processor.save(str(tmp_path / "vocab"))
    restored = make.restore(str(tmp_path / "vocab"))
    assert next(restored.transform(["the bird sees"])).tolist() == [1, 0, 3, 0]
    assert list(restored.reverse([[1, 0]])) == ["the <UNK>"]
    often = make(3, min_frequency=1).fit(TEXTS)
    assert next(often.transform(["USA the cat"])).tolist() == [0, 1, 0]


def test_a_language_model_of_lists(session):
    sequences, cell = tf.contrib.legacy_seq2seq, tf.nn.rnn_cell.GRUCell(3)
    inputs, zeros = [tf.ones([2, 3])] * 3, tf.zeros([2, 3])
    outputs, state = sequences.rnn_decoder(inputs, zeros, cell)
    looped, _ = sequences.rnn_decoder(inputs, zeros, cell, lambda output, step: tf.ones([2, 3]) * step,
                                      scope="looped")
    targets, weights = [tf.constant([0, 2])] * 3, [tf.constant([1.0, 0.5])] * 3
    losses = [loss(outputs, targets, weights)
              for loss in (sequences.sequence_loss_by_example, sequences.sequence_loss)]
    assert names(tf.trainable_variables())[0].startswith("rnn_decoder/")
    session.run(tf.global_variables_initializer())
    outputs, last, looped, (by_example, whole) = session.run([outputs, state, looped, losses])
    assert np.array_equal(outputs[-1], last) and np.array_equal(looped[1], outputs[1])
    assert not np.array_equal(looped[2], outputs[2])
    expected = [np.mean([np.log(np.exp(output[index]).sum()) - output[index][label] for output in outputs])
                for index, label in enumerate((0, 2))]
    assert_allclose([*by_example, whole], [*expected, np.mean(expected)], rtol=1e-5)
    with pytest.raises(ValueError, match="must have the same length; they have 1, 0 and 1"):
        sequences.sequence_loss([1], [], [1])


def test_a_file_takes_buffers(tmp_path):
    content = [np.asfortranarray(np.arange(20000.0).reshape(100, 200)), "text"]
    with tf.gfile.FastGFile(str(tmp_path / "pickle"), "wb") as file:
        pickle.dump(content, file, protocol=5)
    with tf.gfile.Open(str(tmp_path / "pickle"), "rb") as file:
        assert np.array_equal(pickle.load(file)[0], content[0])
    with tf.io.gfile.GFile(str(tmp_path / "bytes"), "wb") as file:
        for part in (bytearray(b"a"), np.frombuffer(b"b", np.uint8), b"c", "d"):
            file.write(part)
    assert (tmp_path / "bytes").read_text() == "abcd"
