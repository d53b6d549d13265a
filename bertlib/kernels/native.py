"""The ops of cpp/: built by this machine's C++ compiler for its CPU, once, and kept in the user's cache.

A library's name is a digest of all that it is made from and for, so that another TensorFlow or another CPU
gets another one.
"""

import atexit
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
import time

from absl import logging
import tensorflow.compat.v1 as tf

_SOURCES = pathlib.Path(__file__).resolve().parent / "cpp"
# Of the source that has the arithmetic: all instructions of this CPU, and floating-point arithmetic that asks
# for no traps.
_LOOPS_OPTIONS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
                  "-std=c++17"]
_WIDE_VECTORS = ["-mprefer-vector-width=512"]
# Of the one that includes TensorFlow's headers, which would print hundreds of warnings.
_OPS_OPTIONS = ["-O2", "-w"]
_BUILD_TIMEOUT_SECONDS = 600
_BUILDING = "building-"
_CHECKSUM_BYTES = hashlib.sha256().digest_size


@functools.cache
def load_ops():
    """Returns the ops' Python functions, built first if need be; None where they cannot be had.

    That is where there is a GPU, as the ops are for CPUs only, or no C++ compiler that can build them: then
    the log says so.
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    try:
        compiler = _compiler()
        if compiler is not None:
            return _load_cached_ops(compiler) or _build_ops(compiler)
    except (OSError, ValueError, subprocess.SubprocessError, tf.errors.OpError) as error:
        logging.warning("Plain ops take the place of the kernels, and are slower: the C++ compiler could not "
                        "make them for this machine. %s", _reason(error))
        return None
    logging.info("No C++ compiler found (g++, c++, or the one that the environment's CXX names): plain ops "
                 "take the place of the kernels, and are slower.")
    return None


def _compiler():
    """The command line of the compiler, a list; None without one."""
    for command in [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def _library_path(compiler):
    """Where the library of this compiler is kept."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError as error:  # a user without a home
        raise OSError(error) from error
    return pathlib.Path(cache) / "bert-kernels" / (_digest(compiler) + ".so")


def _load_cached_ops(compiler):
    """The ops of the library that is kept; None if there is none that works."""
    try:
        path = _library_path(compiler)
        content = path.read_bytes()
        # One that was cut off would end the process when it is loaded.
        if content[-_CHECKSUM_BYTES:] == _checksum(content[:-_CHECKSUM_BYTES]):
            return tf.load_op_library(str(path))
    except (OSError, tf.errors.OpError):
        pass
    return None


def _build_ops(compiler):
    """The ops of a new library, which is kept if it can be."""
    logging.info("Building the kernels for this CPU, once, with %s: about ten seconds.", shlex.join(compiler))
    path = None
    try:
        path = _library_path(compiler)
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(_BUILDING + "*"):  # a build that was killed
            if time.time() - old.stat().st_mtime > 2 * _BUILD_TIMEOUT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        folder = tempfile.mkdtemp(prefix=_BUILDING, dir=path.parent)
    except OSError as error:
        logging.warning("The kernels are built for this run alone, as they cannot be kept: %s. "
                        "XDG_CACHE_HOME can name another folder.", error)
        path, folder = None, tempfile.mkdtemp(prefix="bert-kernels-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        library = _build(compiler, pathlib.Path(folder))
        found = tf.load_op_library(str(library))
        if path is not None:
            with open(library, "r+b") as file:
                seal = _checksum(file.read())
                file.write(seal)
                file.flush()
                os.fsync(file.fileno())
            os.replace(library, path)
    finally:
        if path is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _checksum(content):
    """What follows a library's content in its file."""
    return hashlib.sha256(content).digest()


def _build(compiler, folder):
    """Compiles and links; returns the library's path in that folder."""
    objects = []
    for source, options in _options().items():
        objects.append(str(folder / f"{source}.o"))
        _run([*compiler, *options, "-fPIC", "-c", str(_SOURCES / source), "-o", objects[-1]])
    target = folder / "library.so"
    _run([*compiler, "-shared", *objects, "-o", str(target), *tf.sysconfig.get_link_flags()])
    return target


def _options():
    """{source: what it is compiled with}."""
    wide = _WIDE_VECTORS if platform.machine() in ("x86_64", "AMD64") else []
    return {"loops.cc": [*_LOOPS_OPTIONS, *wide],
            "ops.cc": [*_OPS_OPTIONS, *tf.sysconfig.get_compile_flags()]}


def _run(command):
    """Runs a command line.

    Raises:
      subprocess.SubprocessError: it failed; has what the command wrote.
    """
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   text=True, errors="replace", env={**os.environ, "LC_ALL": "C"}, check=True,
                   timeout=_BUILD_TIMEOUT_SECONDS)


def _digest(compiler):
    """Of everything that a library depends on."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    # TensorFlow's flags name its folder.
    others = [compiler, sorted(_options().items()), tf.sysconfig.get_link_flags(), tf.__version__,
              _cpu_features()]
    digest.update(repr(others).encode())
    return digest.hexdigest()[:32]


def _cpu_features():
    """What tells this CPU from those for which its code may be the wrong one."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as reader:
            names = ("model name", "flags", "Features", "CPU part")
            return sorted({line for line in reader if line.startswith(names)})
    except OSError:
        return [platform.machine(), platform.processor()]


def _reason(error):
    """One line of what went wrong."""
    output = getattr(error, "output", None)
    if not isinstance(output, str):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error: " in line and not line.startswith("collect2")]
    return [*errors, *lines[-1:], str(error)][0]
