"""Programs that import Keras under its names in TensorFlow 1 get the Keras of tf.keras."""

import numpy as np
import pytest

import tf1 as tf
from tf1._run import rewriting

# A name of tf.keras, and a statement that binds it.
NAMES = """
layers.Dense: from tensorflow.python.keras.layers import Dense
layers.Dense: from tensorflow.python.keras.layers import *
layers.Dense: from tensorflow.python import keras, ops; Dense = keras.layers.Dense
layers.Dense: import tensorflow.python.keras.layers as layers; Dense = layers.Dense
layers.Dense: import tensorflow.python.keras; Dense = tensorflow.python.keras.layers.Dense
layers.Dense: import tensorflow as tf; Dense = tf.python.keras.layers.Dense
layers.Dense: import tensorflow as tf; Dense = tf.contrib.keras.layers.Dense
layers.Dense: from tensorflow.contrib.keras import layers; Dense = layers.Dense
layers.Dense: from tensorflow.contrib.keras.api.keras.layers import Dense
layers.Dense: from tensorflow.contrib.keras.python.keras.layers import Dense
layers.Dense: from tensorflow.python.keras._impl.keras.layers.core import Dense
layers.RNN: from tensorflow.python.keras.layers.recurrent import RNN
layers.Layer: from tensorflow.python.keras.engine.topology import Layer
models.Model: from tensorflow.python.keras.engine.training import Model
models.Model: from tensorflow.python.keras.models import Model
optimizers.Adam: from tensorflow.python.keras.optimizers import Adam
utils.to_categorical: from tensorflow.python.keras.utils.np_utils import to_categorical
backend.set_session: from tensorflow.python.keras.backend import set_session
"""


@pytest.mark.parametrize("line", NAMES.strip().split("\n"))
def test_a_name_is_the_one_of_tf_keras(line):
    name, _, statement = line.partition(": ")
    found = {}
    exec(rewriting.compiled(statement.encode(), "script.py"), found)
    part, _, name = name.partition(".")
    assert found[name] is getattr(getattr(tf.keras, part), name)


def test_names_that_keras_never_had_are_missing():
    for statement in ("import tensorflow.python.keras.nothing", "from tensorflow.python.keras import nothing",
                      "from tensorflow.contrib.keras.layers import nothing"):
        with pytest.raises(ImportError, match="nothing"):
            exec(rewriting.compiled(statement.encode(), "script.py"), {})


def test_a_model_with_a_mask_is_trained_and_a_metric_can_be_a_method(session):
    class Scores(object):
        def zero(self, labels, predictions):
            return 0.0 * tf.reduce_mean(predictions)

    keras = tf.keras
    keras.backend.set_session(session)
    model = keras.Sequential([keras.layers.Embedding(5, 2, mask_zero=True), keras.layers.Dropout(0.5),
                              keras.layers.LSTM(1)])
    model.compile("sgd", "mse", metrics=[Scores().zero])
    history = model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0).history
    assert history["zero"] == [0]
