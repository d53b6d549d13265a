"""A disk that cannot be written: the error messages, and the files that are left.

A link to /dev/full replaces a file on a full disk. In other tests, the process has a limit on the size of
files, as with `ulimit -f`.
"""

import contextlib
import errno
import os
import re
import threading
from unittest import mock

from helpers import events_in, largest_file
import numpy as np
import pytest
from small_models import counting_model, endless
import tensorflow.compat.v1 as tf
from tensorflow.python.summary.writer import event_file_writer

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline, tfrecord_files
from bertlib.estimator.estimator import Estimator, RunConfig
from bertlib.system import files

FULL = (r"could not be written: the disk is full: without this file, [\d.]+ .B are free\. "
        "Make room on the disk")
TOO_LARGE = r"could not be written: it is larger than files may be here \(ulimit -f"


def write_records(path):
    fields = [input_pipeline.Field("values", "int64", (1000,))]
    tfrecord_files.write_records(path, fields, ({"values": np.full(1000, 2**40)} for _ in range(500)))


def write_text(path):
    files.write_text(path, "x" * 3_000_000)


@pytest.mark.parametrize("write", [write_text, write_records])
@pytest.mark.parametrize("fault, said", [("full", FULL), ("limit", TOO_LARGE)])
def test_a_disk_that_cannot_be_written(write, fault, said, tmp_path):
    path = tmp_path / "out"
    path.write_text("before")
    if fault == "full":
        os.symlink("/dev/full", f"{path}.partial")
    with (largest_file(100_000) if fault == "limit" else contextlib.nullcontext(),
          pytest.raises(OSError, match=rf"^{path} {said}")):
        write(str(path))
    assert os.listdir(tmp_path) == ["out"] and path.read_text() == "before"


@pytest.mark.parametrize("number, said", [
    (errno.EDQUOT, "the disk quota is used up"), (errno.EROFS, "the file system is read-only"),
    (errno.ENOSPC, "the disk is full"), (errno.EFBIG, "ulimit -f")])
def test_what_the_system_says_in_numbers_and_tensorflow_in_words(number, said, tmp_path):
    of_tensorflow = tf.errors.ResourceExhaustedError(None, None, f"{tmp_path}/part; {os.strerror(number)}")
    for error, name in ((OSError(number, os.strerror(number), "other"), "other"),
                        (OSError(number, os.strerror(number)), "given"), (of_tensorflow, "given")):
        with pytest.raises(OSError) as raised, files.translate_disk_errors("given", lambda: "All is kept."):
            raise error
        assert str(raised.value).startswith(f"{name} could not be written: ")
        assert said in str(raised.value) and ". All is kept. " in str(raised.value)


# --- In a training ---------------------------------------------------------------------------------------


class AtStep(tf.train.SessionRunHook):
    """Calls a function after a number of steps."""

    def __init__(self, step, function):
        self.left, self.function = step, function

    def after_run(self, run_context, run_values):
        self.left -= 1
        if not self.left:
            self.function()


def test_the_graph_that_cannot_be_written_is_no_damaged_checkpoint(tmp_path):
    with largest_file(100), pytest.raises(OSError) as raised:
        Estimator(counting_model, str(tmp_path)).train(endless, steps=1)
    assert re.match(rf"{tmp_path} {TOO_LARGE}.*The last complete checkpoint is none\.", str(raised.value))


@pytest.mark.parametrize("error, strerror", [(tf.errors.OutOfRangeError, errno.EFBIG),
                                             (tf.errors.ResourceExhaustedError, errno.ENOSPC)])
def test_a_hook_that_cannot_write_is_not_the_end_of_the_input(error, strerror, tmp_path):
    def fail():
        raise error(None, None, f"{tmp_path}/table; {os.strerror(strerror)}")

    with pytest.raises(OSError, match=rf"{tmp_path} could not be written.*The last complete "
                       rf"checkpoint is {tmp_path}/model\.ckpt-0\."):
        Estimator(counting_model, str(tmp_path)).train(endless, steps=4, hooks=[AtStep(2, fail)])


# --- Events ----------------------------------------------------------------------------------------------


@pytest.fixture
def traces(monkeypatch):
    """A list of the exceptions that threads did not catch."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


DENIED = tf.errors.PermissionDeniedError(None, None, "events.out; Permission denied")
# TensorFlow 2.21 raises this error on a full disk.
NO_SPACE = RuntimeError("/tmp/events.out; No space left on device\n\tFailed to flush 2 events")


def broken_writer(monkeypatch, error):
    """Makes writers of events fail in their threads."""
    writer = mock.Mock(**{"Flush.side_effect": error, "WriteEvent.side_effect": error})
    monkeypatch.setattr(event_file_writer._pywrap_events_writer, "EventsWriter", lambda path: writer)


@pytest.mark.parametrize("error, kind, said", [(DENIED, tf.errors.PermissionDeniedError, "events.out"),
                                               (NO_SPACE, OSError, "could not be written: the disk is full")])
def test_events_that_cannot_be_written_end_a_training_in_one_error(
        error, kind, said, tmp_path, traces, monkeypatch, caplog):
    broken_writer(monkeypatch, error)
    with pytest.raises(kind, match=said):
        Estimator(counting_model, str(tmp_path), RunConfig(save_summary_steps=1)).train(endless, steps=50)
    assert not traces and "writer thread error" not in caplog.text


@pytest.mark.parametrize("error", [DENIED, NO_SPACE])
def test_an_evaluation_outlives_its_events(error, tmp_path, traces, monkeypatch, caplog):
    (tmp_path / "eval").write_text("not a directory")
    model = Estimator(counting_model, str(tmp_path))
    assert model.evaluate(endless, steps=1)["loss"] == 1.5
    with monkeypatch.context() as patch:
        broken_writer(patch, error)
        assert model.evaluate(endless, steps=1, name="other")["loss"] == 1.5
    model.evaluate(endless, steps=1, name="other")  # with a new writer
    assert events_in(tmp_path / "eval_other")["loss"] == [(0, 1.5)]
    assert caplog.text.count("Some summaries for TensorBoard could not be written (") == 2
    assert not traces and checkpoint_formats.latest_checkpoint(str(tmp_path)) is None
