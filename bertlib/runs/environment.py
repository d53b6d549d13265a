"""Describes the environment of a training for run.json: code, packages, processor, GPUs and variables.

Each of these parts can change the last bits of the trained weights. A part that cannot be determined is None.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess

from bertlib.graph import lazy_tensorflow as tf
from bertlib.graph import native
from bertlib.system import workers

# Packages whose code may run in a training. Packages that are not installed are left out.
_PACKAGES = ("numpy", "tf-keras", "sentencepiece", "safetensors", "tokenizers", "tensorflow-hub",
             "absl-py", "protobuf")
# Instruction sets of x86-64 and ARM for which TensorFlow, oneDNN or the C++ kernels have separate code.
_INSTRUCTION_SETS = ("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl",
                     "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
                     "amx_fp16", "asimd", "sve", "sve2", "bf16", "i8mm")
# Prefixes of environment variables that decide which kernels TensorFlow, oneDNN and CUDA's libraries use.
_PREFIXES = ("TF_ENABLE_", "TF_DISABLE_", "TF_DETERMINISTIC_", "TF_CUDNN_", "TF_CUBLAS_", "TF_GPU_",
             "TF_XLA_", "TF_NUM_", "TF_USE_", "TF_OVERRIDE_", "ONEDNN_", "DNNL_", "XLA_", "OMP_",
             "CUBLAS_", "CUDNN_", "NVIDIA_TF32_")
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TIMEOUT_SECONDS = 10


def describe():
    """Returns the environment of this process as a dict that can be written as JSON."""
    compiler = native.find_compiler()
    gpus = [tf.config.experimental.get_device_details(device).get("device_name", device.name)
            for device in tf.config.list_physical_devices("GPU")]  # that TensorFlow uses
    version = compiler and _output([*compiler, "--version"])
    return {"git": _describe_git(), "system": f"{platform.system()} {platform.machine()}", **_describe_cpu(),
            "threads": workers.available_cores(), "gpus": gpus,
            "compiler": version.partition("\n")[0] if version else None,
            "variables": {name: value for name, value in sorted(os.environ.items())
                          if name.startswith(_PREFIXES)}}


def flatten(record):
    """Returns the parts of a record that describe the code and the environment, as a flat dict {name: value}.
    """
    parts = record["environment"]
    return {"fingerprint of the code": record["code"],
            **{name: value for name, value in parts.items() if name not in ("git", "variables")},
            "git commit": (parts["git"] or {}).get("commit"),
            "unchanged checkout": (parts["git"] or {}).get("clean"),
            **{f"variable {name}": value for name, value in parts["variables"].items()}}


def versions():
    """Returns {name: version} of Python, of TensorFlow and of the installed packages in `_PACKAGES`."""
    by_package = {"python": platform.python_version(), "tensorflow": tf.version.VERSION}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            by_package[name] = importlib.metadata.version(name)
    return by_package


def _describe_git():
    """Returns {"commit": the hash, "clean": whether the tracked files are unchanged}. Returns None if git is
    missing, or if this code does not belong to a checkout, for example because it is an installed package."""
    # This code may be installed in a Python environment inside the checkout of a different project. In this
    # case, git does not track this file, and the commit would be that of the other project.
    if _run_git("ls-files", "--error-unmatch", "bertlib/__init__.py") is None:
        return None
    commit, status = _run_git("rev-parse", "HEAD"), _run_git("status", "--porcelain", "--untracked-files=no")
    return commit and {"commit": commit, "clean": None if status is None else not status}


def _run_git(*words):
    return _output(["git", "--no-optional-locks", "-C", str(_ROOT), *words])


def _output(command):
    """Returns the output of a command without white space at its ends; None if the command fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              errors="replace", timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout.strip()


def _describe_cpu():
    """Returns {"cpu": name of the processor, "instruction_sets": list of str}; the values are None if the
    system does not list them."""
    pairs = [[part.strip() for part in line.split(":", 1)] for line in native.cpuinfo() if ":" in line]
    values = dict(reversed(pairs))  # the first processor
    known = (values.get("flags") or values.get("Features") or "").split()
    return {"cpu": values.get("model name") or platform.processor() or None,
            "instruction_sets": [name for name in _INSTRUCTION_SETS if name in known] if pairs else None}
