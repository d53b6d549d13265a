"""Programs of TensorFlow 1 write and parse `tf.train.Example`s in these ways."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tensorflow

import tf1 as tf


@pytest.mark.parametrize("value, result", [
    ([True, np.bool_(False)], [1, 0]), ([2.0, np.float32(3)], [2, 3]), (np.array([4.0]), [4]),
    ([np.int32(7), 8, np.array(9)], [7, 8, 9])])
def test_whole_numbers_of_any_type_are_integers(value, result):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    assert list(feature.int64_list.value) == result


@pytest.mark.parametrize("value", [[1.5], [float("nan")], ["1"]])
def test_what_is_no_whole_number_is_an_error(value):
    with pytest.raises((TypeError, ValueError)):
        tf.train.Int64List(value=value)


def test_the_name_stands_for_the_message():
    assert isinstance(tf.train.Int64List(value=[1]), tf.train.Int64List)
    assert not isinstance(tf.train.FloatList(value=[1]), tf.train.Int64List)
    assert tf.train.Int64List.DESCRIPTOR is tensorflow.train.Int64List.DESCRIPTOR


@pytest.mark.parametrize("parse", [tf.parse_example, tf.io.parse_example])
def test_features_of_a_placeholder_without_a_shape_have_a_rank(parse):
    example = tf.train.Example(features=tf.train.Features(feature={
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2, 3]))}))
    with tf.Graph().as_default(), tf.Session() as session:
        serialized = tf.placeholder(tf.string)
        ids = parse(serialized, {"ids": tf.FixedLenFeature([3], tf.int64)})["ids"]
        assert ids.shape.as_list() == [None, 3]
        assert session.run(ids, {serialized: [example.SerializeToString()] * 2}).tolist() == [[1, 2, 3]] * 2
