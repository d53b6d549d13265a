"""Keras is imported at its first use, and not with TensorFlow."""

import pytest
import scripts as commands

NO_KERAS = ("import sys\n"
            "assert not {'keras', 'tf_keras', 'sklearn'} & {name.split('.')[0] for name in sys.modules}\n")
FIRST_USE = ("from tensorflow.keras import layers\nimport tensorflow as tf\n"
             "assert tf.keras.layers.Dense is layers.Dense\n")


def test_keras_is_imported_at_its_first_use(scripts, tmp_path):
    program = tmp_path / "program.py"
    # This process has loaded TensorFlow. If another test has imported tf1, its Keras is tf_keras.
    program.write_text(f"{NO_KERAS}{FIRST_USE}import importlib\n"
                       "keras = importlib.import_module(layers.Dense.__module__.partition('.')[0])\n"
                       "assert keras.layers.Dense is layers.Dense\n")
    scripts.run(program, cwd=tmp_path).assert_success()


@pytest.mark.slow(reason="imports TensorFlow in a process of its own")
@pytest.mark.parametrize("legacy, before, after", [
    ("1", "", "import tf_keras\nassert tf_keras.layers.Dense is layers.Dense\n"),
    ("0", "import keras\n", "assert keras.layers.Dense is layers.Dense\n")])
def test_legacy_keras_or_a_keras_that_was_imported_before_is_used(legacy, before, after, tmp_path):
    (tmp_path / "program.py").write_text(f"{before}import bertlib.commands\n{FIRST_USE}{after}")
    commands.run_fresh(tmp_path / "program.py", cwd=tmp_path, TF_USE_LEGACY_KERAS=legacy,
                       PYTHONPATH=str(commands.ROOT)).assert_success()
