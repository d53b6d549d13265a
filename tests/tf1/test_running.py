"""`python -m tf1 SCRIPT`, and the modules that programs of TensorFlow 1 import."""

import functools
import importlib
import pathlib
import re
import shutil
import signal
import subprocess
import textwrap

from graphs import run_python
import pytest

import tf1
from tf1._run import ours, rewriting, running

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write(folder, **files):
    """Writes Python files. "__" in a name separates a folder from a file."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")


def last_lines(text, count):
    return text.strip().split("\n")[-count:]


# --- One script with every kind of import ----------------------------------------------------------------

MODULE = """
    from tensorflow import flags, gfile
    from tensorflow.compat import v1 as compat
    from tensorflow.compat.v1 import estimator as tf_estimator
    from tensorflow.contrib.tpu.python.tpu import tpu_config
    from tensorflow.gfile import Exists
    from tensorflow.nn.rnn_cell import LSTMCell
    from tensorflow.python.framework import ops
    import tensorflow.compat.v1 as tf
    import tensorflow.contrib.crf
    names = [compat.__name__, tf.__name__, tensorflow.contrib.crf.crf_decode.__name__, ops.Tensor.__name__]
    assert tf_estimator.Estimator is tf.estimator.Estimator and gfile.Exists is Exists
    assert tpu_config.TPUConfig is tf.contrib.tpu.TPUConfig and LSTMCell is tf.nn.rnn_cell.LSTMCell

    def fail():
        raise ValueError("as the fork wrote it")
"""
SCRIPT = """
    from __future__ import print_function
    import sys
    import tensorflow as tf
    import fork.model
    tf.flags.DEFINE_string("mode", None, "What to do.")
    tf.flags.DEFINE_integer("n", 1, "Begins like options of tf1.")

    def main(_):
        if tf.flags.FLAGS.mode == "error":
            fork.model.fail()
        if tf.flags.FLAGS.mode == "interrupt":
            raise KeyboardInterrupt
        if tf.flags.FLAGS.mode == "exit":
            sys.exit(7)
        import library
        print([tf.__name__, *fork.model.names, library.name, __name__, __file__, sys.argv[1:], sys.path[0]])
        assert sys.modules["__main__"].main is main

    if __name__ == "__main__":
        tf.app.run()
"""


@pytest.fixture(scope="module")
def fork(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fork")
    # Writes a namespace package, and a library in site-packages, like pip.
    write(folder, task=SCRIPT, fork__model=MODULE, old="print 'Python 2'")
    library = tmp_path_factory.mktemp("env") / "site-packages"
    library.mkdir()
    write(library, library="import tensorflow as tf\nname = tf.__name__\n")
    return folder, library


def start(fork, *arguments):
    return run_python(fork[0], "-m", "tf1", *arguments, path=fork[1:])


@pytest.fixture
def run_fork(fork, scripts):
    """A function that runs `python -m tf1` in a fork of the process that has loaded TensorFlow."""
    folder, library = fork
    return functools.partial(scripts.run, "tf1/__main__.py", cwd=folder, PYTHONDONTWRITEBYTECODE="",
                             PYTHONPATH=f"{ROOT}:{library}")


@pytest.mark.parametrize("options, library", [((), "tensorflow"), pytest.param(
    ("--also=other,library",), "tf1",
    marks=pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow"))])
def test_a_script_runs_as_if_started_directly_with_tf1_in_its_own_files(fork, options, library):
    done = start(fork, *options, "task.py", "--mode=run", "--n=2")
    assert done.returncode == 0, done.stderr
    assert last_lines(done.stdout, 1) == [str(
        ["tf1", "tf1", "tf1", "crf_decode", "Tensor", library, "__main__", "task.py",
         ["--mode=run", "--n=2"],
         str(fork[0])])]


@pytest.mark.slow(reason="two interpreters of their own, which load TensorFlow; "
                  "test_reference_variables.py has the variables")
def test_variables_are_those_of_tensorflow_1_if_asked_for(tmp_path):
    write(tmp_path, task="""
        import tensorflow as tf
        print(tf.get_variable("v", [1]).op.type)
    """)
    kinds = [run_python(tmp_path, "-m", "tf1", *options, "task.py").stdout.strip()
             for options in ([], ["--reference_variables"])]
    assert kinds == ["VarHandleOp", "VariableV2"]


@pytest.mark.slow(reason="interpreters of their own, which load TensorFlow")
def test_a_traceback_has_the_forks_frames_alone(fork):
    done = start(fork, "task.py", "--mode=error")
    assert done.returncode == 1
    assert not re.search(r"_running\.py|_rewriting\.py|__main__\.py|frozen", done.stderr)
    assert re.search(r'File "task\.py", line 11, in main\n +fork\.model\.fail\(\)', done.stderr)
    assert re.search(rf'File "{fork[0]}/fork/model\.py", line 16, in fail\n +raise ValueError', done.stderr)
    assert last_lines(done.stderr, 1) == ["ValueError: as the fork wrote it"]
    assert start(fork, "task.py", "--mode=interrupt").returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize("file, is_explained", [("model.safetensors", True), ("pytorch_model.bin", False)])
def test_a_directory_of_hugging_face_is_explained(tmp_path, capsys, file, is_explained):
    (tmp_path / file).touch()
    with pytest.raises(ValueError) as error:
        tf1.train.list_variables(str(tmp_path))
    running.show_error(error.type, error.value, error.tb)
    shown = capsys.readouterr().err
    assert "Couldn't find 'checkpoint' file" in shown
    assert (f"`python convert_checkpoint.py --input={tmp_path} --output=DIRECTORY`" in shown) == is_explained


def test_the_last_line_has_the_reason_of_an_error_in_the_graph(capsys):
    with tf1.Graph().as_default(), tf1.Session() as session, pytest.raises(tf1.errors.OpError) as error:
        session.run(tf1.gather(tf1.ones([3]), tf1.placeholder_with_default([7], [1]), name="find"))
    running.show_error(error.type, error.value, error.tb)
    assert last_lines(capsys.readouterr().err, 1) == ["The op find failed: indices[0] = 7 is not in [0, 3)"]


@pytest.mark.parametrize("arguments, code, message", [
    (["task.py", "--mode=exit"], 7, ""), (["old.py"], 1, "SyntaxError"),
    (["nothing.py"], 2, "there is no file nothing.py"),
    (["-m", "no_such_module"], 1, "No module named no_such_module")])
def test_exit_codes_are_the_scripts(run_fork, arguments, code, message):
    done = run_fork(*arguments)
    assert done.code == code and message in last_lines(done.err, 1)[0]


def test_a_module_runs_too_and_leaves_no_compiled_files(run_fork, fork):
    done = run_fork("-m", "task", "--mode=run")
    done.assert_success()
    assert not list(fork[0].rglob("*.pyc"))  # no run has written one
    assert f"{fork[0]}/task.py" in done.out and "['--mode=run']" in done.out


# --- Which files are changed, and how --------------------------------------------------------------------

def test_our_own_modules_are_not_changed():
    listed = re.search(r"^py-modules = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)[1]
    assert set(re.findall(r'"(\w+)"', listed)) == ours.PUBLISHED
    assert {path.stem for path in ROOT.glob("*.py")} == ours.MODULES
    assert ours.is_ours(ROOT / "modeling.py") and ours.is_ours(ROOT / "bertlib/system/files.py")
    assert not ours.is_ours(ROOT / "my_fork.py")


@pytest.mark.parametrize("statement, name", [
    ("import tensorflow", "tf1"), ("from tensorflow import nn", "tf1.nn"),
    ("import tensorflow.compat.v2 as tf", "tensorflow.compat.v2"),
    ("from tensorflow.python.util import nest", "tensorflow.python.util.nest"),
    ("import tensorflow.python.util.nest", "tensorflow"), ("import tensorflow.train as t", "tf1.train"),
    ("import json, tensorflow as tf", "tf1")])
def test_imports_of_tensorflow_become_those_of_tf1(statement, name):
    found = {}
    exec(rewriting.compiled(statement.encode(), "file.py"), found)
    assert [value.__name__ for key, value in found.items() if key not in ("__builtins__", "json")] == [name]


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_the_documented_commands_change_the_imports_of_all_files(fork, tmp_path):
    shutil.copytree(fork[0], tmp_path / "my-fork")
    page = (ROOT / "docs" / "howto" / "porting.md").read_text(encoding="utf-8")
    command = re.search(r"^    (find my-fork .*?\{\} \+)$", page, re.M | re.S)[1]
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    changed = (tmp_path / "my-fork/fork/model.py").read_text()
    assert "from tensorflow.python.framework import ops" in changed
    assert "import tensorflow.contrib.crf" in changed
    done = run_python(tmp_path / "my-fork", "task.py", "--mode=run", path=fork[1:])
    assert done.returncode == 0, done.stderr
    assert "'tf1', 'tf1', 'tf1', 'crf_decode', 'Tensor', 'tensorflow'" in done.stdout


# --- Modules that TensorFlow lacks -----------------------------------------------------------------------

MODULES_OF_TENSORFLOW_1 = """
from tensorflow.compat.v1 import estimator as e; e.Estimator; e.tpu.TPUEstimator
import tensorflow_estimator as e; e.estimator.Estimator
from tensorflow_estimator.python.estimator import estimator as e; e.Estimator
from tensorflow_estimator.python.estimator.canned import metric_keys as k; k.MetricKeys.LOSS
from tensorflow.python.estimator.canned.prediction_keys import PredictionKeys
from tensorflow.python.estimator.export.export import ServingInputReceiver
from tensorflow.python.estimator.export.export_output import PredictOutput
from tensorflow.python.estimator.inputs.numpy_io import numpy_input_fn
import tensorflow.contrib.tpu as t; t.TPUEstimatorSpec
from tensorflow.contrib.tpu.python.tpu.tpu_estimator import TPUEstimatorSpec
from tensorflow.contrib.distribute.python import mirrored_strategy as m; m.MirroredStrategy
from tensorflow.contrib.framework.python.framework.checkpoint_utils import list_variables
from tensorflow.contrib.rnn.python.ops.core_rnn_cell import LSTMCell
from tensorflow.python import pywrap_tensorflow as p; p.NewCheckpointReader
from tensorflow.python.framework.graph_util import convert_variables_to_constants
from tensorflow.python.framework import graph_util as g; g.extract_sub_graph
from tensorflow.python.ops.variable_scope import variable
from tf1.contrib.tpu.python.tpu import tpu_config as t; t.RunConfig
from tensorflow.python.training import training_ops as t; t.apply_adam
from tensorflow import gfile, flags, layers; gfile.Exists; flags.FLAGS; layers.Dense
import pydoc; assert pydoc.locate('tensorflow.layers.Dense')
from tensorflow.tools.graph_transforms import TransformGraph
from tensorflow.contrib.seq2seq import Decoder, AttentionWrapper, tile_batch; type('D', (Decoder,), {})
from tensorflow.contrib.seq2seq.python.ops import decoder; decoder._transpose_batch_time
from tensorflow.python.estimator.canned.dnn import DNNClassifier
from tensorflow.python.ops import array_ops, control_flow_ops; array_ops.stack; control_flow_ops.cond
from tf1.train import AdamOptimizer
from tf1.keras.layers import Dense
import tf1.compat.v1 as v; v.estimator.Estimator
from tensorflow.contrib.compiler.jit import experimental_jit_scope
from tensorflow.contrib import crf, tpu; assert (crf, tpu) == (tf1.contrib.crf, tf1.contrib.tpu)
from tensorflow.contrib.layers.python.layers import layer_norm as f; assert f is tf1.contrib.layers.layer_norm
from tensorflow.contrib.layers.python.layers import initializers; initializers.xavier_initializer
from tensorflow.python.estimator.estimator import Estimator as e; assert e is tf1.estimator.Estimator
from tensorflow.python.estimator import run_config; run_config.RunConfig
from tensorflow.python.layers import normalization; normalization.BatchNormalization
"""


@pytest.mark.parametrize("statement", MODULES_OF_TENSORFLOW_1.strip().split("\n"))
def test_a_module_of_tensorflow_1_is_found(statement):
    exec(statement, {"tf1": tf1})


@pytest.mark.parametrize("statement, message", [
    ("from tensorflow.contrib.learn import DNNClassifier", r"tf\.contrib is gone\. Use tf\.estimator\.DNN"),
    ("import tensorflow.contrib.no_such_part", "tf.contrib is gone"),
    ("from tensorflow.contrib.layers.python.layers.layers import max_pooling1d", r"Use tf\.layers\.max_pool"),
    ("from tensorflow.python.estimator.canned.dnn import DNNRegressor", "Write a model_fn"),
    ("from tensorflow_estimator.python.estimator.canned import nothing", "tf.estimator.nothing: not prov"),
    ("import tf1.no_such_module", "no_such_module"), ("import tensorflow.no_such_module", "no_such_module")])
def test_a_module_that_nobody_has_is_an_import_error(statement, message):
    with pytest.raises(ImportError, match=message):
        exec(statement, {})


@pytest.mark.parametrize("call, message", [
    (lambda: tf1.contrib.seq2seq.AttentionWrapper(None, None), "AttentionWrapper: tf.contrib is gone"),
    (lambda: importlib.import_module("tensorflow.tools.graph_transforms").TransformGraph(None, [], [], []),
     "removed the graph transforms"),
    (lambda: tf1.contrib.cluster_resolver.TPUClusterResolver("grpc://1.2.3.4", zone=None),
     "TPUClusterResolver: TPUs are not supported"),
    *((lambda name=name: getattr(tf1.contrib.distribute, name)(num_gpus_per_worker=1),
       f"{name}: .* not supported. Leave the strategy out")
      for name in ("ParameterServerStrategy", "TPUStrategy"))])
def test_what_only_the_import_is_provided_of_says_so_when_used(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- A fork's modules and ours ---------------------------------------------------------------------------

@pytest.mark.slow(reason="interpreters of their own, which load TensorFlow")
@pytest.mark.parametrize("start", [["-m", "tf1"], []], ids=["run by tf1", "import tf1"])
def test_a_forks_module_is_found_before_ours_wherever_it_is(tmp_path, start):
    write(tmp_path, task=f"""
        import sys
        import {"tensorflow" if start else "tf1"} as tf
        sys.path.append("library")
        import tokenization
        import modeling
        print(tokenization.WHOSE, modeling.__file__)
    """, library__tokenization="WHOSE = 'the fork'")
    done = run_python(tmp_path, *start, "task.py")
    assert done.stdout.split("\n")[0] == f"the fork {ROOT / 'modeling.py'}", done.stderr
