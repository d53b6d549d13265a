"""The ops of native/: built by this machine's C++ compiler for this machine's CPU, once, and kept in the user's cache.

A library's name is a digest of all that it is made from and for, so that another TensorFlow or another CPU gets another one.
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

import tensorflow.compat.v1 as tf
from absl import logging

_SOURCES = pathlib.Path(__file__).resolve().parent / "native"
# Of the source that has the arithmetic: all instructions of this CPU, and floating-point arithmetic that asks for no traps.
_LOOPS_FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-std=c++17"]
_WIDE_VECTORS = ["-mprefer-vector-width=512"]
# Of the one that includes TensorFlow's headers, which would print hundreds of warnings.
_OPS_FLAGS = ["-O2", "-w"]
_SECONDS_TO_BUILD = 600


@functools.cache
def ops():
    """Returns the ops' Python functions, built first if need be; None where they cannot be had, and the log says why.

    That is where there is no C++ compiler, or where there is a GPU: the ops are for CPUs only.
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    compiler = _compiler()
    if compiler is None:
        logging.info("No C++ compiler found (g++, c++, or the one that the environment's CXX names): XLA compiles the "
                     "kernels, which are slower then.")
        return None
    try:
        return tf.load_op_library(str(_library(compiler)))
    except (OSError, subprocess.SubprocessError, tf.errors.OpError) as error:
        logging.warning("XLA compiles the kernels, which are slower then: the C++ compiler could not make them for this "
                        "machine. %s", _reason(error))
        return None


def _compiler():
    """The command line of the compiler, a list; None without one."""
    for command in [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def _library(compiler):
    """The path of the library, which is there then."""
    name = _digest(compiler) + ".so"
    kept = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "bert-kernels"
    if (kept / name).exists():
        return kept / name
    logging.info("Building the kernels for this CPU, once, with %s: about ten seconds.", shlex.join(compiler))
    try:
        kept.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(prefix="building-", dir=kept)
    except OSError as error:
        logging.warning("The kernels are built for this run alone, as they cannot be kept: %s. XDG_CACHE_HOME can name "
                        "another folder.", error)
        scratch = tempfile.mkdtemp(prefix="bert-kernels-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        return _build(compiler, pathlib.Path(scratch))
    try:
        os.replace(_build(compiler, pathlib.Path(scratch)), kept / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return kept / name


def _build(compiler, folder):
    """Compiles and links; returns the library's path in that folder."""
    commands = [[*compiler, *flags, "-fPIC", "-c", str(_SOURCES / source), "-o", str(folder / source) + ".o"]
                for source, flags in _flags().items()]
    _run_all(commands)
    target = folder / "library.so"
    _run_all([[*compiler, "-shared", *(command[-1] for command in commands), "-o", str(target),
               *tf.sysconfig.get_link_flags()]])
    return target


def _flags():
    """{source: what it is compiled with}."""
    wide = _WIDE_VECTORS if platform.machine() in ("x86_64", "AMD64") else []
    return {"loops.cc": [*_LOOPS_FLAGS, *wide], "ops.cc": [*_OPS_FLAGS, *tf.sysconfig.get_compile_flags()]}


def _run_all(commands):
    """Runs command lines at the same time.

    Raises:
      subprocess.SubprocessError: one of them failed; it has what that one wrote.
    """
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for command in commands]
    try:
        for process in running:
            output, _ = process.communicate(timeout=_SECONDS_TO_BUILD)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args, output)
    finally:
        for process in running:
            process.kill()
            process.wait()


def _digest(compiler):
    """Of everything that a library depends on."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    # TensorFlow's flags name its folder.
    digest.update(repr([compiler, sorted(_flags().items()), tf.sysconfig.get_link_flags(), tf.__version__, _cpu()]).encode())
    return digest.hexdigest()[:32]


def _cpu():
    """What tells this CPU from those for which its code may be the wrong one."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as reader:
            return sorted({line for line in reader if line.startswith(("model name", "flags", "Features", "CPU part"))})
    except OSError:
        return [platform.machine(), platform.processor()]


def _reason(error):
    """One line of what went wrong."""
    output = getattr(error, "output", None)
    if not isinstance(output, str):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else str(error))
