"""Compiles the ops in cpp/ for this machine's CPU, and keeps the compiled library in the user's cache.

The name of a library is a digest of four things: its sources, the compiler, TensorFlow and the CPU. So each
release of TensorFlow and each kind of CPU has a separate library.
"""

import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from absl import logging

from bertlib.graph import lazy_tensorflow as tf

_SOURCES = pathlib.Path(__file__).resolve().parent / "cpp"
# Compiler options for loops.cc, which contains the arithmetic: allow all instructions of this CPU, and assume
# that floating-point arithmetic neither sets errno nor traps. Vectors of 512 bits are preferred.
_LOOPS_OPTIONS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
                  "-std=c++17", "-mprefer-vector-width=512"]
# Compiler options for ops.cc. Warnings are turned off, because the compiler would print hundreds of warnings
# about TensorFlow's headers.
_OPS_OPTIONS = ["-O2", "-w"]
_BUILD_TIMEOUT_SECONDS = 600
# Prefix of the names of directories in which a library is built.
_BUILDING = "building-"


@functools.cache
def load_ops():
    """Returns the module with the ops' Python functions, and builds the ops first if necessary.

    Returns None on a machine with a GPU, because the ops run on CPUs only. Also returns None, and logs the
    reason, if no C++ compiler can build them.
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    try:
        compiler = find_compiler()
        if compiler is not None:
            path = _library_path(compiler)
            return _load_cached_ops(path) or _build_ops(compiler, path)
    except (OSError, ValueError, subprocess.SubprocessError, tf.errors.OpError) as error:
        logging.warning("The C++ compiler could not build the kernels for this machine. TensorFlow's ops are "
                        "used instead; they are slower. %s", _reason(error))
        return None
    logging.info("No C++ compiler found (g++, c++, or the compiler in the environment variable CXX), so the "
                 "kernels cannot be built. TensorFlow's ops are used instead; they are slower.")
    return None


def find_compiler():
    """Returns the command line of the C++ compiler as a list; None if there is no compiler."""
    for command in [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def _library_path(compiler):
    """Returns the path of the library that this compiler builds. The path is in the user's cache."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError as error:  # the user has no home directory
        raise OSError(error) from error
    return pathlib.Path(cache) / "bert-kernels" / (_digest(compiler) + ".so")


def _load_cached_ops(path):
    """Returns the ops of a library in the cache; None if the library is missing or does not work."""
    try:
        return tf.load_op_library(str(path)) if path.exists() else None
    except (OSError, tf.errors.OpError):
        return None


def _build_ops(compiler, path):
    """Builds a library, and stores it at a path in the cache; returns its ops."""
    logging.info("Building the kernels for this CPU with %s. This takes 10 to 30 seconds and is needed only "
                 "once.", shlex.join(compiler))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=_BUILDING, dir=path.parent)
    except OSError as error:
        raise OSError(f"{error}. To keep the kernels in another folder, set the environment variable "
                      "XDG_CACHE_HOME.") from error
    try:
        library = _build(compiler, pathlib.Path(folder))
        ops = tf.load_op_library(str(library))
        # Loading a truncated library would crash the process.
        with open(library, "rb") as file:
            os.fsync(file.fileno())
        os.replace(library, path)
        logging.info("The kernels are built.")
        return ops
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(compiler, folder):
    """Compiles and links the library in a folder; returns its path."""
    objects = []
    for source, options in _options().items():
        objects.append(str(folder / f"{source}.o"))
        _run([*compiler, *options, "-fPIC", "-c", str(_SOURCES / source), "-o", objects[-1]])
    target = folder / "library.so"
    _run([*compiler, "-shared", *objects, "-o", str(target), *tf.sysconfig.get_link_flags()])
    return target


def _options():
    """Returns {source file: list of its compiler options}."""
    return {"loops.cc": _LOOPS_OPTIONS, "ops.cc": [*_OPS_OPTIONS, *tf.sysconfig.get_compile_flags()]}


def _run(command):
    """Runs a command line.

    Raises:
      subprocess.SubprocessError: the command failed. The error contains the output of the command.
    """
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   text=True, errors="replace", env={**os.environ, "LC_ALL": "C"}, check=True,
                   timeout=_BUILD_TIMEOUT_SECONDS)


def _digest(compiler):
    """Returns a digest of everything on which a library depends: the source files, the compiler and its
    options, the version of TensorFlow, and the CPU."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    # The link flags contain the folder in which TensorFlow is installed. So each installation of TensorFlow
    # gets its own library.
    dependencies = [compiler, sorted(_options().items()), tf.sysconfig.get_link_flags(), tf.__version__,
                    sorted({line for line in cpuinfo() if line.startswith(("model name", "flags"))})]
    digest.update(repr(dependencies).encode())
    return digest.hexdigest()[:32]


def cpuinfo():
    """Returns the lines in which Linux describes the CPUs. On other systems, the list is empty."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as reader:
            return reader.readlines()
    except OSError:
        return []


def _reason(error):
    """Returns one line of text that describes an error of the build."""
    output = getattr(error, "output", None)
    if not isinstance(output, str):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error: " in line and not line.startswith("collect2")]
    return [*errors, *lines[-1:], str(error)][0]
