"""A message explains why TensorFlow does not use a card."""

import logging
import os

from bertlib.commands import devices

from absl import flags
import pytest
import tensorflow.compat.v1 as tf

from bertlib.system import gpu_libraries, replica_launcher
from bertlib.tasks import shared_flags

CUDA_12 = ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
           "libcusparse.so.12", "libcudnn.so.9"]


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A fake machine with a card and its driver, but without the libraries of CUDA."""
    def load(name):
        if name != "libcuda.so.1":
            raise OSError

    monkeypatch.setattr(gpu_libraries, "has_card", lambda: True)
    monkeypatch.setattr(gpu_libraries.ctypes, "CDLL", load)
    monkeypatch.setattr(gpu_libraries.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_the_libraries_are_those_that_tensorflow_was_built_with():
    assert gpu_libraries.missing_libraries() == CUDA_12


def test_libraries_of_nvidias_packages_are_found(machine):
    for name in CUDA_12[1:]:
        path = machine / "nvidia" / name.split(".")[0] / "lib" / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert gpu_libraries.missing_libraries() == CUDA_12[:1]
    text = gpu_libraries.explain_unused_card()
    assert "Missing libraries: libcudart.so.12. Install them by `make gpu`" in text


def test_a_missing_driver_is_named_alone(monkeypatch):
    monkeypatch.setattr(gpu_libraries, "missing_libraries", lambda: ["libcuda.so.1", *CUDA_12])
    assert "libcuda.so.1 is missing: install NVIDIA's driver." in gpu_libraries.explain_unused_card()


@pytest.mark.parametrize("has_card", [False, True])
def test_a_command_warns_once(has_card, monkeypatch, caplog):
    monkeypatch.setattr(gpu_libraries, "has_card", lambda: has_card)
    with caplog.at_level(logging.WARNING):
        devices.log_devices()
    assert [record.message.startswith("This machine has an NVIDIA card, which TensorFlow does not use.")
            for record in caplog.records if record.levelname == "WARNING"] == [True] * has_card


@pytest.mark.parametrize("asked, missing, started", [(0, CUDA_12, []), (0, [], [2]), (2, CUDA_12, [2])])
def test_replicas_of_all_cards_are_started_only_if_tensorflow_can_use_cards(asked, missing, started,
                                                                            monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(gpu_libraries, "missing_libraries", lambda: missing)
    counts = []
    monkeypatch.setattr(replica_launcher, "run", lambda plan, log: counts.append(plan.local_count))
    replica_launcher.launch(asked, 60.0, 0, None, True, [], print)
    assert counts == started


# --- Flags -----------------------------------------------------------------------------------------------


@pytest.fixture
def command_flags(monkeypatch):
    """Flags of a command, in the form that `devices` gets. TensorFlow's settings are restored after the test.
    """
    found = flags.FlagValues()
    for entry in shared_flags.GPUS:
        entry.define_in(found)
    found(["command"])
    monkeypatch.setattr(devices, "FLAGS", found)
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    yield found
    tf.config.experimental.enable_tensor_float_32_execution(True)


@pytest.mark.parametrize("tf32, grows", [(True, False), (False, True)])
def test_flags_set_tensorflow_up_for_gpus(tf32, grows, command_flags):
    command_flags.tf32, command_flags.gpu_allow_growth = tf32, grows
    devices.set_up_gpus()
    assert tf.config.experimental.tensor_float_32_execution_enabled() == tf32
    assert os.environ.pop("TF_FORCE_GPU_ALLOW_GROWTH", None) == ("true" if grows else None)


@pytest.mark.parametrize("named, is_replica, missing, seen", [
    ("2,GPU-ab", False, [], "2"), ("2", False, [], "2"), ("", False, [], ""), ("2,3", True, [], "2,3"),
    ("2,3", False, CUDA_12, "2,3")])
def test_a_single_process_sees_one_gpu(named, is_replica, missing, seen, command_flags, monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setenv("BERT_REPLICA", "{}" if is_replica else "")
    monkeypatch.setattr(gpu_libraries, "missing_libraries", lambda: missing)
    with caplog.at_level(logging.INFO):
        devices.set_up_gpus()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
    assert caplog.messages == (["Using GPU 2, the first of 2."] if seen != named else [])
