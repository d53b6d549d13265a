"""Keras is imported at its first use, and not with TensorFlow. Pages of TensorFlow's libraries are released.
"""

import ctypes
import mmap
import sys

import pytest
import scripts as commands

from bertlib.system import quiet_tensorflow

NO_KERAS = ("import sys\n"
            "assert not {'keras', 'tf_keras', 'sklearn'} & {name.split('.')[0] for name in sys.modules}\n")
FIRST_USE = ("from tensorflow.keras import layers\nimport tensorflow as tf\n"
             "assert tf.keras.layers.Dense is layers.Dense\n")


def test_keras_is_imported_at_its_first_use(scripts, tmp_path):
    program = tmp_path / "program.py"
    # This process has loaded TensorFlow. If another test has imported tf1, its Keras is tf_keras.
    program.write_text(f"{NO_KERAS}{FIRST_USE}import importlib\n"
                       "keras = importlib.import_module(layers.Dense.__module__.partition('.')[0])\n"
                       "assert keras.layers.Dense is layers.Dense\n")
    scripts.run(program, cwd=tmp_path).assert_success()


@pytest.mark.slow(reason="imports TensorFlow in a process of its own")
@pytest.mark.parametrize("legacy, before, after", [
    ("1", "", "import tf_keras\nassert tf_keras.layers.Dense is layers.Dense\n"),
    ("0", "import keras\n", "assert keras.layers.Dense is layers.Dense\n")])
def test_legacy_keras_or_a_keras_that_was_imported_before_is_used(legacy, before, after, tmp_path):
    (tmp_path / "program.py").write_text(f"{before}import bertlib.commands\n{FIRST_USE}{after}")
    commands.run_fresh(tmp_path / "program.py", cwd=tmp_path, TF_USE_LEGACY_KERAS=legacy,
                       PYTHONPATH=str(commands.ROOT)).assert_success()


def map_library(path, written):
    """Maps 1 MiB as the loader maps a library: writes relocations, if there are any, then forbids writing."""
    path.write_bytes(bytes(2**20))
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    pages[:len(written)] = written
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(2**20), mmap.PROT_READ) == 0
    assert bytes(pages).count(0) == 2**20 - len(written)  # makes all pages resident
    return pages


def find_resident(path):
    """Returns the resident KiB of a mapped file."""
    with open("/proc/self/smaps") as reader:
        lines = reader.read().partition(f"{path}\n")[2].splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_unchanged_pages_of_its_libraries_are_released(tmp_path):
    paths = [tmp_path / f"libtensorflow_{name}.so.2" for name in ("cc", "framework")]
    mapped = [map_library(path, written) for path, written in zip(paths, (b"", b"relocations"))]
    quiet_tensorflow.release_library_pages()
    assert list(map(find_resident, paths)) == [0, 1024]
    assert mapped[1][:11] == b"relocations"
