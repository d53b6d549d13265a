"""Redirects the files that a script writes in replicas other than replica 0.

All replicas run the same script, so all replicas would write the same files. Only replica 0 writes to the
paths that the script names. Files that another replica writes with `tf.gfile`,
`tf.python_io.TFRecordWriter` and `tf.summary.FileWriter` go into a temporary directory, which is removed when
the process ends. The replica that wrote such a file can read it under the original path, with `tf.gfile` and
`tf.python_io.tf_record_iterator`. With Horovod, the script itself decides which replica writes, so no file is
redirected.
"""

import functools
import os
import tempfile
import types

import tensorflow.compat.v1 as tf

from tf1._names.namespace import Namespace, own_names
from tf1._replicas.horovod_mode import script_divides_work

_own = {}  # {path that the script names: path of the temporary file that is used instead}
_directory = None


def _key(path):
    path = os.fspath(path)
    path = path.decode() if isinstance(path, bytes) else path
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def _to_write(path):
    """Returns the path to which this process writes when the script writes the file `path`. If the script
    itself divides the work, the result is `path`. Otherwise, it is a path in a temporary directory."""
    global _directory
    if script_divides_work():
        return path
    if _directory is None:
        _directory = tempfile.TemporaryDirectory(prefix="tf1-replica-")
    return _own.setdefault(_key(path), os.path.join(_directory.name, str(len(_own))))


def _to_read(path):
    """Returns the path from which to read the file `path`.

    If this process has written the file, the write was redirected to another path (see `_to_write`), and this
    function returns that other path. Otherwise, it returns `path`.
    """
    return _own.get(_key(path), path) if isinstance(path, (str, bytes, os.PathLike)) else path


def _at(place, function):
    """Returns a function that calls `function` with another path. The first argument, `path`, is replaced by
    place(path), and all other arguments are unchanged."""
    @functools.wraps(function, updated=())
    def at_place(path, *args, **kwargs):
        return function(place(path), *args, **kwargs)
    return at_place


def _open(name, mode="r"):
    writes = mode.strip("b+") != "r" or "+" in mode
    return tf.gfile.GFile(_to_write(name) if writes else _to_read(name), mode)


def _listdir(path):
    files = tf.gfile.ListDirectory(path) if tf.gfile.Exists(path) or _key(path) not in _own else []
    redirected = [os.path.basename(other) for other in _own if os.path.dirname(other) == _key(path)]
    return sorted({*files, *redirected})


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
# {name in tf.gfile: object}
_OLD = own_names(types.SimpleNamespace(**_NEW), """
    GFile Open=GFile FastGFile=GFile Exists=exists IsDirectory=isdir ListDirectory=listdir MakeDirs=makedirs
    MkDir=mkdir Remove=remove DeleteRecursively=rmtree Rename=rename Copy=copy
""")


def install(tf1):
    """Replaces the functions of the module `tf1` that read or write files. The new functions redirect paths,
    as the docstring of this module describes."""
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
