"""Keras is imported at its first use, and not with TensorFlow."""

import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = "import bertlib.command_line, sys\n"
NO_KERAS = "assert not {'keras', 'tf_keras', 'sklearn'} & {name.partition('.')[0] for name in sys.modules}\n"
FIRST_USE = ("from tensorflow.keras import layers\nimport tensorflow as tf\n"
             "assert tf.keras.layers.Dense is layers.Dense\n")


def run(code, legacy="0"):
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": legacy}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=environment)


def test_keras_is_imported_at_its_first_use():
    run(COMMAND + NO_KERAS + FIRST_USE + "import keras\nassert keras.layers.Dense is layers.Dense\n")


@pytest.mark.soak(reason="imports TensorFlow in a process of its own, as the test above")
def test_legacy_keras_is_imported_at_its_first_use():
    run(COMMAND + FIRST_USE + "import tf_keras\nassert tf_keras.layers.Dense is layers.Dense\n", legacy="1")


@pytest.mark.slow(reason="imports TensorFlow in a process of its own, as the first test")
def test_a_keras_that_was_imported_before_stays():
    run("import keras\nDense = keras.layers.Dense\n" + COMMAND + FIRST_USE
        + "assert keras is sys.modules['keras'] and layers.Dense is Dense\n")
