"""Lists the NVIDIA cards that a process sees, and finds out why TensorFlow does not use them.

Plain `tensorflow` contains no CUDA libraries. Without them, TensorFlow computes on the CPU, and its C++ code
writes the reason only to its own log, which our commands hide.
"""

import ctypes
import glob
import itertools
import os
import site

# {major version of CUDA: {library: version number of the library}}. TensorFlow loads all of these libraries
# before it uses a GPU.
_LIBRARIES = {12: {"cudart": 12, "cublas": 12, "cublasLt": 12, "cufft": 11, "cusolver": 11, "cusparse": 12,
                   "cudnn": 9}}
_DRIVER = "libcuda.so.1"


def visible_gpus(environment=os.environ):
    """Returns the GPUs that a process sees, as a list of their names in CUDA_VISIBLE_DEVICES."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]
    # CUDA ignores the first invalid name and all names after it.
    return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"),
                                    map(str.strip, value.split(","))))


def has_card():
    """Returns whether this machine has an NVIDIA card. Also finds the card in a container and in WSL2."""
    return any(map(glob.glob, ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*", "/dev/dxg")))


def missing_libraries():
    """Returns the file names of the libraries that TensorFlow needs for a GPU and that are not installed."""
    # The import is here because `replica_launcher` imports this module, but must not load TensorFlow.
    import tensorflow.compat.v1 as tf

    major = int(tf.compat.v2.sysconfig.get_build_info().get("cuda_version", "0").partition(".")[0])
    names = [f"lib{name}.so.{version}" for name, version in _LIBRARIES.get(major, {}).items()]
    return [name for name in (_DRIVER, *names) if not _is_installed(name)]


def _is_installed(name):
    """Returns whether a library is in a folder of the system or in one of NVIDIA's Python packages."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    if any(glob.glob(os.path.join(glob.escape(folder), "nvidia", "*", "lib", name)) for folder in folders):
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def explain_unused_card():
    """Returns a text that says why TensorFlow does not use the card, and what to do. None if there is no
    card, or if CUDA_VISIBLE_DEVICES hides it."""
    if not has_card() or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        return None
    libraries = missing_libraries()
    if _DRIVER in libraries:
        advice = f"The driver's library {_DRIVER} is missing: install NVIDIA's driver."
    elif libraries:
        advice = (f"Missing libraries: {', '.join(libraries)}. Install them by `make gpu`, or by "
                  "`python -m pip install 'tensorflow[and-cuda]==2.21.*'`.")
    else:
        advice = "The environment variable TF_CPP_MIN_LOG_LEVEL=0 shows TensorFlow's reason."
    return f"This machine has an NVIDIA card, which TensorFlow does not use. {advice}"
