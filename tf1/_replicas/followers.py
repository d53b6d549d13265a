"""What a script writes in replicas other than the first.

All run the same script, and so would write the same files: the first one alone does. What another one writes
through `tf.gfile`, `tf.python_io.TFRecordWriter` and `tf.summary.FileWriter` goes into a directory of its own
that is gone with the process; reading through them what it has written, it gets that. A script that uses
Horovod decides by itself who writes: nothing is held back.
"""

import os
import tempfile

import tensorflow.compat.v1 as tf

from tf1._names.namespace import Namespace
from tf1._replicas.horovod_mode import script_divides_work

_own = {}  # {path: where this process has what it wrote there}
_directory = None


def install(tf1):
    """Puts it into the module `tf1`."""
    def over(name, base, **own):
        return Namespace(f"tf.{name}", {key: value for key, value in own.items() if hasattr(base, key)},
                         lambda: base)

    old = {name: globals()[f"_{function}"] for name, function in _OLD.items()}
    new = {name: globals()[f"_{function}"] for name, function in _NEW.items()}
    records = dict(TFRecordWriter=_writer(tf.python_io.TFRecordWriter),
                   tf_record_iterator=_reader(tf.python_io.tf_record_iterator))
    tf1.gfile = over("gfile", tf.gfile, **old)
    tf1.python_io = over("python_io", tf.python_io, **records)
    io = tf1.io
    tf1.io = Namespace("tf.io", dict(io._own, gfile=over("io.gfile", tf.io.gfile, **new), **records),
                       lambda: tf.io)
    tf1.summary = over("summary", tf.summary, FileWriter=_writer(tf.summary.FileWriter))


_OLD = dict(GFile="open", Open="open", FastGFile="open", Exists="exists", IsDirectory="isdir",
            ListDirectory="listdir", MakeDirs="makedirs", MkDir="makedirs", Remove="remove",
            DeleteRecursively="remove", Rename="rename", Copy="copy")
_NEW = dict(GFile="open", exists="exists", isdir="isdir", listdir="listdir", makedirs="makedirs",
            mkdir="makedirs", remove="remove", rmtree="remove", rename="rename", copy="copy")


def _applies():
    return not script_divides_work()


def _key(path):
    path = os.fspath(path)
    path = path.decode() if isinstance(path, bytes) else path
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def _to_write(path):
    """Where this process writes what is meant for a path."""
    global _directory
    if not _applies():
        return path
    if _directory is None:
        _directory = tempfile.TemporaryDirectory(prefix="tf1-replica-")
    return _own.setdefault(_key(path), os.path.join(_directory.name, str(len(_own))))


def _to_read(path):
    """Where what this process has written for a path is; the path if it has written nothing."""
    return _own.get(_key(path), path) if isinstance(path, (str, bytes, os.PathLike)) else path


def _writer(original):
    def writer(path, *args, **kwargs):
        return original(_to_write(path), *args, **kwargs)
    writer.__doc__ = original.__doc__
    return writer


def _reader(original):
    def reader(path, *args, **kwargs):
        return original(_to_read(path), *args, **kwargs)
    reader.__doc__ = original.__doc__
    return reader


def _open(name, mode="r"):
    writes = mode.strip("b+") != "r" or "+" in mode
    return tf.gfile.GFile(_to_write(name) if writes else _to_read(name), mode)


def _exists(path):
    return tf.io.gfile.exists(_to_read(path))


def _isdir(path):
    return tf.io.gfile.isdir(_to_read(path))


def _listdir(path):
    real = tf.gfile.ListDirectory(path) if tf.gfile.Exists(path) or _key(path) not in _own else []
    here = [os.path.basename(other) for other in _own if os.path.dirname(other) == _key(path)]
    return sorted({*real, *here})


def _makedirs(path):
    tf.gfile.MakeDirs(_to_write(path))


def _remove(path):
    if not _applies():
        (tf.gfile.DeleteRecursively if tf.gfile.IsDirectory(path) else tf.gfile.Remove)(path)
        return
    for other in [other for other in _own if other == _key(path) or other.startswith(_key(path) + "/")]:
        del _own[other]


def _rename(src, dst, overwrite=False):
    if not _applies():
        tf.gfile.Rename(src, dst, overwrite)
    elif _key(src) in _own:
        _own[_key(dst)] = _own.pop(_key(src))


def _copy(src, dst, overwrite=False):
    applies = _applies()
    tf.gfile.Copy(_to_read(src), _to_write(dst), overwrite or applies)
