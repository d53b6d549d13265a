"""What a script writes in replicas other than the first.

All run the same script, and so would write the same files: the first one alone does. What another one writes
through `tf.gfile`, `tf.python_io.TFRecordWriter` and `tf.summary.FileWriter` goes into a directory of its own
that is gone with the process; reading through them what it has written, it gets that. A script that uses
Horovod decides by itself who writes: nothing is held back.
"""

import functools
import os
import tempfile

import tensorflow.compat.v1 as tf

from tf1._names.namespace import Namespace
from tf1._replicas.horovod_mode import script_divides_work

_own = {}  # {path: where this process has what it wrote there}
_directory = None


def _key(path):
    path = os.fspath(path)
    path = path.decode() if isinstance(path, bytes) else path
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def _to_write(path):
    """Where this process writes what is meant for a path."""
    global _directory
    if script_divides_work():
        return path
    if _directory is None:
        _directory = tempfile.TemporaryDirectory(prefix="tf1-replica-")
    return _own.setdefault(_key(path), os.path.join(_directory.name, str(len(_own))))


def _to_read(path):
    """Where what this process has written for a path is; the path if it has written nothing."""
    return _own.get(_key(path), path) if isinstance(path, (str, bytes, os.PathLike)) else path


def _at(place, function):
    """Returns a function whose first argument, a path, is changed to the place of it in this process."""
    @functools.wraps(function, updated=())
    def at_place(path, *args, **kwargs):
        return function(place(path), *args, **kwargs)
    return at_place


def _open(name, mode="r"):
    writes = mode.strip("b+") != "r" or "+" in mode
    return tf.gfile.GFile(_to_write(name) if writes else _to_read(name), mode)


def _listdir(path):
    real = tf.gfile.ListDirectory(path) if tf.gfile.Exists(path) or _key(path) not in _own else []
    here = [os.path.basename(other) for other in _own if os.path.dirname(other) == _key(path)]
    return sorted({*real, *here})


def _remove(path):
    if script_divides_work():
        (tf.gfile.DeleteRecursively if tf.gfile.IsDirectory(path) else tf.gfile.Remove)(path)
        return
    for other in [other for other in _own if other == _key(path) or other.startswith(_key(path) + "/")]:
        del _own[other]


def _rename(src, dst, overwrite=False):
    if script_divides_work():
        tf.gfile.Rename(src, dst, overwrite)
    elif _key(src) in _own:
        _own[_key(dst)] = _own.pop(_key(src))


def _copy(src, dst, overwrite=False):
    tf.gfile.Copy(_to_read(src), _to_write(dst), overwrite or not script_divides_work())


_NEW = dict(GFile=_open, exists=_at(_to_read, tf.io.gfile.exists), isdir=_at(_to_read, tf.io.gfile.isdir),
            listdir=_listdir, makedirs=_at(_to_write, tf.io.gfile.makedirs),
            mkdir=_at(_to_write, tf.io.gfile.makedirs), remove=_remove, rmtree=_remove, rename=_rename,
            copy=_copy)
_OLD = dict(GFile=_open, Open=_open, FastGFile=_open, Exists=_NEW["exists"], IsDirectory=_NEW["isdir"],
            ListDirectory=_listdir, MakeDirs=_NEW["makedirs"], MkDir=_NEW["makedirs"], Remove=_remove,
            DeleteRecursively=_remove, Rename=_rename, Copy=_copy)


def install(tf1):
    """Puts it into the module `tf1`."""
    def over(name, base, **own):
        return Namespace(f"tf.{name}", {key: value for key, value in own.items() if hasattr(base, key)},
                         lambda: base)

    records = dict(TFRecordWriter=_at(_to_write, tf.python_io.TFRecordWriter),
                   tf_record_iterator=_at(_to_read, tf.python_io.tf_record_iterator))
    tf1.gfile = over("gfile", tf.gfile, **_OLD)
    tf1.python_io = over("python_io", tf.python_io, **records)
    tf1.io = Namespace("tf.io", dict(tf1.io._own, gfile=over("io.gfile", tf.io.gfile, **_NEW), **records),
                       lambda: tf.io)
    tf1.summary = over("summary", tf.summary, FileWriter=_at(_to_write, tf.summary.FileWriter))
