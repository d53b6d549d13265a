"""`python -m tf1 --check`: code in programs of 2018 that it reports, and code that it does not report."""

import os
import pydoc
import re
import signal
import sys

import pytest
import test_architecture

from tf1 import __main__ as program
from tf1._check import checker, modules, rules, syntax
from tf1._names import tensorflow_names
from tf1._run import rewriting

# Code, and after "=> " the text of the report on the last line of the code.
REPORTED = r'''
print "a" % 1
=> `print "a" % 1`: print is a function; write `print("a" % 1)`
print x,
=> write `print(x, end=" ")`
print >>f, x, 1
=> write `print(x, 1, file=f)`
if x: print [1]; y = 2
print 'z'
=> write `print('z')`
try:
  pass
except (A, B), e: pass
=> write `except (A, B) as e:`
if node.op in ['Variable', 'VariableV2']: pass
=> the ops of variables are not those of TensorFlow 1; write `python -m tf1 --reference_variables`
raise ValueError, 'bad'
=> write `raise ValueError('bad')`
raise ValueError, 'bad', trace
=> write `raise ValueError('bad').with_traceback(trace)`
y = `x`
=> write `repr(x)`
if x <> y: pass
=> <> is gone; write `!=`
mode = 0755
=> write `0o755`
number = 10L
=> write `10`
s = ur"\d"
=> write `r""`
f = lambda (a, b): a
=> a lambda cannot unpack its parameters
def f(a, (b, c)): pass
=> `(b, c)`: a function cannot unpack its parameters
for i in xrange(9): pass
=> `xrange`: Python 3 has no builtin of this name; write `range`
isinstance(x, unicode)
=> write `str`
for k, v in d.iteritems(): pass
=> `.iteritems()` is gone; write `d.items()`
d.has_key('a')
=> write `'a' in d`
d.keys()[0]
=> `d.keys()[0]`: .keys() is not a list; write `list(d.keys())[0]`
d.keys().sort()
=> write `sorted(d.keys())`
a.items() + b.items()
=> write `list(a.items()) + list(b.items())`
x = map(int, y)
x[0]
=> write `list(x)[0]`
len(filter(None, x))
=> write `len(list(filter(None, x)))`
import random
order = range(9)
random.shuffle(order)
=> range(…) is not a list
for i in range(n / 2): pass
=> `n / 2` in range: the result is a float; write `n // 2`
x[:len(x) / 2]
=> write `len(x) // 2`
print >>f, x
=> write `print(x, file=f)`
print('%d') % 3
=> write `print('%d' % 3)`
x.sort(lambda a, b: a - b)
=> write `key=functools.cmp_to_key(lambda a, b: a - b)`
str(x).decode('utf-8')
=> write `str(x)`
import cPickle as pickle
=> `import cPickle`: the module has another name; write `import pickle`
from urlparse import urljoin
=> write `from urllib.parse import urljoin`
import urllib
urllib.urlencode(x)
=> write `urllib.parse.urlencode`
import sys
sys.maxint
=> write `sys.maxsize`
from itertools import izip
=> write `zip`
class X(object):
  def __iter__(self): return self
  def next(self): pass
=> write `def __next__(self)`
from collections import Mapping
=> write `from collections.abc import Mapping`
import collections
collections.Sequence
=> gone since Python 3.10; write `collections.abc.Sequence`
import time
time.clock()
=> write `time.perf_counter`
from fractions import gcd
=> write `from math import gcd`
import json
json.loads(x, encoding='utf-8')
=> json functions have no argument encoding
x.cuda(async=True)
=> async is a keyword since 3.7
def f():
  yield 1
  raise StopIteration
=> write `return`
thread.isAlive()
=> write `thread.is_alive()`
if x == 1
  pass
=> Python 3 does not parse this
import numpy as np
np.int
=> `np.int`: NumPy has no int; write `int`
import numpy
numpy.NaN
=> write `np.nan`
from numpy import product
=> NumPy has no product; write `np.prod`
import numpy as np
np.array(map(int, x))
=> write `np.array(list(map(int, x)))`
import numpy as np
np.fromstring(x, np.uint8)
=> write `np.frombuffer(x, np.uint8)`
import numpy as np
np.load('x.npy').item()
=> write `allow_pickle=True` as well
import tensorflow as tf
tf.pack([1])
=> write `tf.stack`
import tensorflow as tf
tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)
=> `tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)`: TPUs are not supported. Call it only
import tensorflow as tf
if not use_tpu:
  tf.contrib.nothing
=> tf.contrib is gone
import tensorflow as tf
if use_tpu or x:
  tf.contrib.nothing
=> tf.contrib is gone
import tensorflow as tf
if tpu is None:
  tf.contrib.nothing
=> tf.contrib is gone
tags = graph.get_tensor_by_name('loss/ReverseSequence_1:0')
=> TensorFlow chose this name, and
NAME = 'crf/cond/Merge_1'
graph.get_operation_by_name(NAME)
=> write `tf.identity(x, name="…")`
graph.get_tensor_by_name('w/read:0')
=> the ops of variables are not those of TensorFlow 1; write `python
import tensorflow as tf
tf.contrib.graph_editor.connect(a, b)
=> tf.contrib is gone; write
import tensorflow as tf
tf.contrib.seq2seq.AttentionWrapper(cell, attention)
=> tf.contrib is gone, without a replacement
import tensorflow as tf
tf.contrib.nn.alpha_dropout(x, 0.5)
=> `tf.contrib.nn.alpha_dropout`: tf.contrib is gone, without a replacement
import tensorflow as tf
tf.contrib.data.make_csv_dataset(path)
=> tf.contrib is gone; write tf.data.experimental.make_csv_dataset
import tensorflow as tf
tf.contrib.predictor.nothing
=> `tf.contrib.predictor.nothing`: tf1 provides only these names of tf.contrib.predictor:
import tensorflow as tf
tf.contrib.learn.DNNClassifier()
=> tf.contrib is gone; write tf.estimator.DNNClassifier
import tensorflow as tf
def f():
  return tf.nothing.like_it
=> tf1 has no tf.nothing
import tensorflow as tf
tf.random.set_seed(1)
=> write `tf.compat.v2.random.set_seed`
import tensorflow.compat.v1 as tf
layers = tf.layers
layers.nothing
=> tf.layers
from tensorflow.contrib.learn import LinearClassifier
=> write tf.estimator.LinearClassifier
import tensorflow.nothing.at_all
=> tf1 has no tf.nothing
from tensorflow.python.training import FileWriter
=> write `tf.summary.FileWriter`
import tensorflow as tf
tf.contrib.tpu.TPUEstimator(f, use_tpu=True)
=> TPUs are not supported
import tensorflow as tf
tf.contrib.tpu.RunConfig(cluster=f())
=> write `cluster=None`
import no_such_package.part
=> no_such_package is neither installed nor in the folder of the file; write `pip install` with
from sklearn.externals import joblib
=> write `import joblib`
import yaml
yaml.load(f)
=> write `yaml.safe_load(f)`
'''


def check(path, capsys):
    """Runs --check. Returns (exit code, lines of the report)."""
    code = checker.check(str(path))
    return code, capsys.readouterr().out.splitlines()


def report(text, tmp_path, capsys):
    """Returns the lines of the report on one file, without the name of the file and without the summary."""
    path = tmp_path / "script.py"
    path.write_text(text, encoding="utf-8")
    return [line.partition("script.py:")[2] for line in check(path, capsys)[1][:-1]]


@pytest.mark.parametrize("text, message", [
    *re.findall(r"(?<=\n)((?s:.+?))\n=> (.+)", REPORTED),
    ("if x:\n\ty = 1\n        z = 2", "tabs and spaces are mixed")],
                         ids=lambda value: value.splitlines()[-1].strip().replace(" ", "_")[:30])
def test_a_line_that_will_not_run_is_told(text, message, tmp_path, capsys):
    last = f"{len(text.splitlines())}: "
    if "does not parse" in message:
        last = "1: "
    told = [line for line in report(text + "\n", tmp_path, capsys) if line.startswith(last)]
    assert any(message in line for line in told), told


RUNS = """
from __future__ import print_function
import collections, os, string, sys, time
import numpy as np
import six
from six.moves import xrange, range as other_range, cPickle
import tensorflow as tf
from tensorflow.contrib import crf
from tensorflow.python.estimator.run_config import RunConfig
from tensorflow import flags, gfile
import numpy.random
import horovod.tensorflow as hvd
from horovod.tensorflow.compression import Compression
if sys.version_info[0] == 2 or six.PY2:
  import cPickle, urllib2
  text = unicode
elif sys.version_info < (3,):
  d.iteritems()
py3k = sys.version_info >= (3, 0)
if not py3k:
  reload(sys)
try:
  import cPickle as pickle
except ImportError:
  import pickle
try:
  from queue import Queue
except ImportError:
  from Queue import Queue
try:
  import no_such_package
except Exception:
  no_such_package = None
try:
  basestring
except NameError:
  basestring = str
for i in xrange(3): isinstance("x", basestring)
def to_text(text):
  if six.PY3:
    return text
  return unicode(text)
def unpacked(file, tf, reduce):
  return file.read(), tf.count, [cmp for cmp in reduce], text if six.PY3 else unicode(text)
def plain(np, unicode=str):
  long = np.int
  return long, unicode, six.iteritems({}), six.text_type
if hasattr(tf, "nothing"):
  tf.nothing.at_all()
value = hasattr(collections, "Mapping") and collections.Mapping
if tf.__version__.startswith("1."):
  tf.nothing()
try:
  tf.nothing
except AttributeError:
  pass
if FLAGS.use_tpu and FLAGS.tpu_name:
    resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)
resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name) if FLAGS.use_tpu else None
if not use_tpu:
    tf.logging.set_verbosity(tf.logging.INFO)
elif params["use_tpu"] or tpu is not None:
    tf.estimator.TPUEstimatorSpec()
else:
    tf.estimator.TPUEstimatorSpec()
if tpu is not None:
    tf.estimator.TPUEstimatorSpec()
def train():
  import no_such_package_either
class Trie(object):
  def iteritems(self): return []
  def values(self): return []
  def next(self): return 1
Trie().iteritems(); Trie().values()[0]; os.path.join("/", "x"); time.time(); string.ascii_letters
{"keys": 1}["keys"]; len({}.keys()); tree.keys("prefix")[0]; list(map(int, []))[0]; sorted([], key=len); 4 / 2
[1][0:2 // 1]; np.sum([1]); np.bool_(1); "x".encode("utf-8"); b"x".decode("utf-8")
b = 0.9 ** tf.cast(global_step + 1, tf.float32)
tf.layers.dense, tf.contrib.layers.xavier_initializer, tf.estimator.Estimator, tf.keras.layers.Dense
tf.flags.FLAGS.anything.at_all; tf.contrib.tpu.TPUEstimator; tf.nn.rnn_cell.LSTMCell
FLAGS = flags.FLAGS
FLAGS.anything
tf.flags.FLAGS.files.split(",")
tf.contrib.tpu.RunConfig(cluster=None); tf.estimator.RunConfig(train_distribute=None)
strategy = tf.contrib.distribute.MirroredStrategy(num_gpus=2)
tf.estimator.RunConfig(train_distribute=strategy, eval_distribute=tf.distribute.MirroredStrategy(["a", "b"]))
import tensorflow.contrib.graph_editor as ge
ge.copy_with_input_replacements(ge.sgv(ge.get_backward_walk_ops([y.op])), {})
import inspect
inspect.getfullargspec(f).varkw; keywords.keywords; functools.partial(f).keywords
graph.get_tensor_by_name("input_ids:0"); graph.get_tensor_by_name("loss/probabilities:0")
graph.get_tensor_by_name(name + ":0")
print("x", file=sys.stderr)
'''
print "in a string"
except X, e
'''
"""


def test_lines_that_run_are_left_alone(tmp_path, capsys):
    assert report(RUNS, tmp_path, capsys) == []


def test_what_stands_behind_lines_of_python_2_is_found_too(tmp_path, capsys):
    text = ('print "a"\nx = """\nprint no statement\n"""\nprint """b\nc""" % (\n  1), 2\nxrange(3)\nprint x\n'
            'raise E, \\\n  "x"\nxrange(3)\n')
    lines = [int(line.split(":")[0]) for line in report(text, tmp_path, capsys)]
    assert lines == [1, 5, 8, 9, 10, 12]


def test_rewritten_lines_mean_what_they_meant():
    text = ('x = 7L; mode = 0010\nprint >>log, `x`, "a",\nif x <> 8: space["x"] += 3\n'
            "try: raise KeyError, 'z'\nexcept (KeyError, OSError), e: y = e\n")
    tree, found = syntax.parsed(text)
    printed, space = [], {"x": 1}
    scope = {"log": type("", (), {"write": lambda self, text: printed.append(text)})(), "space": space}
    exec(compile(tree, "script.py", "exec"), scope)
    assert "".join(printed) == "7 a " and space["x"] == 4 and scope["mode"] == 8 and scope["y"].args == ("z",)
    assert [finding.line for finding in sorted(found)] == [1, 1, 2, 2, 3, 4, 5]


def test_a_programs_own_modules_are_not_missing(tmp_path, capsys):
    package = tmp_path / "code" / "bert"
    package.mkdir(parents=True)
    for path in (tmp_path / "commands.py", package / "__init__.py", package / "layers_of_it.py"):
        path.write_text("")
    (tmp_path / "code" / "run.py").write_text("import commands, bert.layers_of_it\nfrom bert import task\n")
    (package / "task.py").write_text("from bert import layers_of_it\nimport commands\n")
    assert check(tmp_path, capsys)[0] == 0
    # Python 2 found another module of the same package without the name of the package.
    (package / "task.py").write_text("import os\nimport layers_of_it\nfrom layers_of_it import x\n")
    (tmp_path / "code" / "run.py").write_text("from bert import task\n")
    code, lines = check(tmp_path / "code", capsys)
    assert code == 1 and "task.py:2: " in lines[0] and lines[0].endswith("write `from . import layers_of_it`")
    assert lines[1].endswith("write `from .layers_of_it import x`")


def test_this_projects_own_code_has_nothing_that_will_not_run(capsys):
    code, lines = check(test_architecture.ROOT / "tf1", capsys)
    assert code == 0 and lines[-1].startswith("Nothing found in "), lines


def test_forks_of_the_tests_have_nothing_that_will_not_run(capsys):
    code, lines = check(test_architecture.ROOT / "tests" / "tf1" / "forks", capsys)
    assert code == 0, lines


def test_notes_do_not_count(tmp_path, capsys):
    (tmp_path / "run.py").write_text("import numpy as np\nnp.array(x, copy=False)\n")
    code, lines = check(tmp_path, capsys)
    assert code == 0
    assert lines[0].endswith("run.py:2: note: `np.array(x, copy=False)`: this call fails if a copy is "
                             "needed; write `np.asarray(x)`")
    assert lines[1] == "Nothing found in 1 file; 1 note."


def test_a_single_file_imports_the_modules_beside_it(tmp_path, capsys):
    for name in ("run", "modeling", "package/module"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("import modeling, package.module\n")
    assert check(tmp_path / "run.py", capsys) == (0, ["Nothing found in 1 file."])


def test_files_that_are_no_code_are_told_and_nothing_crashes(tmp_path, capsys):
    contents = {"latin.py": b"# \xe9\nx = 1\nxrange(1)\n", "named.py": b"# coding: latin-1\n# \xe9\n",
                "null.py": b"x = 1\0\n", "empty.py": b"", "unknown.py": b"# coding: klingon\n",
                "wide.py": "x = 1\n".encode("utf-16"), "deep.py": b"x = " + b"(" * 3000 + b")" * 3000 + b"\n",
                "chain.py": b"x = " + b"1 + " * 20000 + b"1\n", "brackets.py": b"((((\n'''\n\"\n",
                "mark.py": b"\xef\xbb\xbfx = 1\r\nxrange(1)\r\n", "notes.ipynb": b"{}"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.py").mkdir()
    os.symlink(tmp_path, tmp_path / "loop")
    os.symlink(tmp_path / "loop.py", tmp_path / "loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    code, lines = check(tmp_path, capsys)
    told = {line[len(str(tmp_path)) + 1:].split(":")[0] for line in lines[:-1]}
    fine = {"named.py", "empty.py", "notes.ipynb"}
    assert code == 1 and told == set(contents) - fine | {"loop.py", "pipe.py"}
    assert any("latin.py:1: the file is not UTF-8" in line for line in lines)
    assert any("latin.py:3: `xrange`" in line for line in lines)
    assert any("mark.py:2: `xrange`" in line for line in lines)
    assert "1 notebook not read" in lines[-1]


def test_what_python_dropped_is_as_the_table_says():
    for name, (version, _) in rules.GONE.items():
        gone = sys.version_info >= tuple(map(int, version.split(".")))
        # setuptools may provide distutils, and some versions of Python have cElementTree
        assert name in ("distutils", "xml.etree.cElementTree") or gone == (pydoc.locate(name) is None), name


def test_what_the_tables_advise_is_there():
    for name, instead in rules.NUMPY_NAMES.items():
        if instead.startswith("np.") and "(" not in instead:
            assert modules.missing(f"numpy.{instead[3:]}") is None, name
    for name, instead in tensorflow_names.RENAMED.items():
        assert modules.missing(instead) is None, name
    for name, instead in rules.MODULES.items():
        assert instead.split(".")[0] in sys.stdlib_module_names, name


@pytest.fixture
def run_command(monkeypatch, capsys):
    """A function that runs --check with paths. Returns (exit code, stdout, stderr)."""
    def run(*paths):
        monkeypatch.setattr(sys, "argv", ["tf1", "--check", *map(str, paths)])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as exit:
            program.main()
        return exit.value.code, *capsys.readouterr()
    return run


def test_the_command_reads_several_paths_as_several_programs(tmp_path, run_command):
    for name, text in (("a/run", "import helper\nprint 'x'\n"), ("a/helper", ""), ("b/run", "xrange(1)\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    paths = [tmp_path / path for path in ("a", "b/run.py")]
    code, out, error = run_command(*paths)
    first, second, summary = out.splitlines()
    assert (code, error) == (1, "")
    assert first == f"{tmp_path}/a/run.py:2: `print 'x'`: print is a function; write `print('x')`"
    assert second.startswith(f"{tmp_path}/b/run.py:1: `xrange`")
    assert summary == "2 lines in 2 of 3 files will not run (2 findings: Python 2: 2)."
    code, out, error = run_command(*paths, tmp_path / "c")
    assert (code, out) == (2, "") and f"there is no file or folder {tmp_path}/c" in error


SET_UP = "import tensorflow as tf\nfrom tensorflow.keras import backend as K\n"
# A name that the checker reports cannot be used, and all other names can.
NAMES = ["K.set_session", "K.get_session", "tf.keras.backend.get_session", "tf.contrib.keras.layers.Dense",
         "tf.contrib.learn.preprocessing.VocabularyProcessor", "tf.python.keras.layers.Dense",
         "tf.contrib.legacy_seq2seq.rnn_decoder", "tf.contrib.legacy_seq2seq.attention_decoder",
         "tf.contrib.rnn.NASCell", "tf.contrib.keras.layers.Nothing", "tf.estimator.LinearClassifier",
         "K.nothing", "tf.placeholder", "tf.contrib.seq2seq.BasicDecoder", "tf.contrib.eager.Iterator"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_reported_exactly_if_it_cannot_be_used(name, tmp_path, capsys):
    found = {}
    exec(rewriting.compiled(SET_UP.encode(), "script.py"), found)
    try:
        eval(name, found)
        works = True
    except AttributeError:
        works = False
    assert bool(report(f"{SET_UP}{name}\n", tmp_path, capsys)) is not works


IMPORTS = '''
from google.cloud import storage
import google.cloud.storage
from google.protobuf import text_format
import google.nothing
from google import nothing
import scipy.sparse.linalg.eigen.arpack
from scipy.sparse.linalg import eigsh
from six.moves import cPickle
import six.moves.urllib.request
from collections import OrderedDict
from collections import Nothing
import xml.nothing
import horovod.tensorflow as hvd
from horovod.tensorflow import allgather
from tensorflow_hub import LatestModuleExporter
from bert import modeling
from bert import nothing
import tensorflow.python.keras.layers.recurrent
from tensorflow.python.keras.layers import Nothing
from tensorflow.contrib.keras.python.keras.layers import LSTM
import tensorflow.python.keras.nothing
from tensorflow.contrib.crf.python.ops import crf
from tensorflow.python.framework import ops
'''.strip().split("\n")


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_is_reported_exactly_if_it_fails(statement, tmp_path, capsys):
    try:
        exec(rewriting.compiled(statement.encode(), "script.py"), {})
        works = True
    except ImportError:
        works = False
    told = report(statement + "\n", tmp_path, capsys)
    assert bool(told) is not works, told


def test_imports_that_are_not_checked_are_listed(tmp_path, capsys):
    (tmp_path / "run.py").write_text(
        "import scipy\ndef f():\n  import no_such_package_either\n")
    code, lines = check(tmp_path, capsys)
    assert code == 0
    assert lines == ["Nothing found in 1 file; imports not checked: no_such_package_either (not installed), "
                     "scipy."]
