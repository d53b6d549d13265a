"""Files of checkpoints: odd names of directories, a missing list of checkpoints, damaged and pruned files."""

import itertools
import os
import pathlib
import subprocess

import numpy as np
from numpy.testing import assert_array_equal
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.checkpoints import checkpoint_files, checkpoint_formats

ODD = "a[1] \\ b*?"  # matches none of TensorFlow's globs but those of other directories, such as "a1 \\ bc?"
VALUES = np.arange(6, dtype=np.float32)


def write(directory, *steps):
    """Writes checkpoints model.ckpt-<step> and the file `checkpoint` that lists them. Returns the prefixes.
    """
    prefixes = [str(tiny.write_tensorflow(directory / f"model.ckpt-{step}", {
        "global_step": np.int64(step), "bert/weights": VALUES})) for step in steps]
    tf.train.update_checkpoint_state(str(directory), prefixes[-1], prefixes)
    return prefixes


def truncate(path, left=0.5):
    with open(path, "r+b") as file:
        file.truncate(int(os.path.getsize(path) * left))


def flip(path):
    content = bytearray(path.read_bytes())
    content[2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a bit of the data": lambda prefix: flip(pathlib.Path(prefix + ".data-00000-of-00001")),
    "the data's end": lambda prefix: truncate(prefix + ".data-00000-of-00001"),
    "all of the data": lambda prefix: truncate(prefix + ".data-00000-of-00001", 0),
    "the data's file": lambda prefix: os.remove(prefix + ".data-00000-of-00001"),
    "the index's end": lambda prefix: truncate(prefix + ".index"),
    "all of the index": lambda prefix: truncate(prefix + ".index", 0),
    "the index's file": lambda prefix: os.remove(prefix + ".index"),
}


# --- Names that are globs --------------------------------------------------------------------------------


def test_checkpoints_are_found_and_read_in_a_directory_whose_name_is_a_glob(tmp_path):
    prefixes = write(tmp_path / ODD, 3, 12)
    assert checkpoint_formats.all_checkpoints(str(tmp_path / ODD)) == prefixes
    for path in (prefixes[1], tmp_path / ODD):
        found = checkpoint_formats.open_checkpoint(path)
        assert found.path == prefixes[1] and found.read("global_step") == 12
        assert_array_equal(found.read("bert/weights"), VALUES)
    assert checkpoint_files.list_checkpoints(str(tmp_path / ODD)) == sorted(prefixes)
    assert checkpoint_files.list_training_checkpoints(str(tmp_path / ODD)) == prefixes
    assert len(checkpoint_files.list_files(prefixes[0])) == 3
    os.remove(prefixes[0] + ".index")
    assert checkpoint_formats.all_checkpoints(str(tmp_path / ODD)) == prefixes[1:]


# --- The list of checkpoints -----------------------------------------------------------------------------


def test_a_directory_from_windows_is_read_as_a_moved_one(tmp_path):
    prefixes = write(tmp_path, 5, 10)
    for place, ending, line_end in itertools.product(
            ("C:\\Users\\x\\out\\", "..\\out\\"),
            ("", ".index", ".meta", ".data-00000-of-00001"), ("\n", "\r\n")):
        names = [f"{place}model.ckpt-{step}{ending}".replace("\\", "\\\\") for step in (10, 5, 10)]
        fields = ["model_checkpoint_path", *["all_model_checkpoint_paths"] * 2]
        (tmp_path / "checkpoint").write_bytes("".join(
            f'{field}: "{name}"{line_end}' for field, name in zip(fields, names)).encode())
        assert checkpoint_formats.all_checkpoints(str(tmp_path)) == prefixes
    os.remove(prefixes[1] + ".index")
    with pytest.raises(FileNotFoundError, match=r"names model\.ckpt-10, but the directory contains no "):
        checkpoint_formats.all_checkpoints(str(tmp_path))


# --- The list of checkpoints is lost ---------------------------------------------------------------------


def test_without_the_file_that_lists_them_the_newest_whole_checkpoint_counts(tmp_path, caplog):
    prefixes = write(tmp_path / "a", 0, 5, 10, 20)
    os.remove(tmp_path / "a" / "checkpoint")
    assert checkpoint_formats.all_checkpoints(str(tmp_path / "a")) == prefixes
    assert "has no file `checkpoint`" in caplog.text and "continues from model.ckpt-20" in caplog.text
    DAMAGE["the data's file"](prefixes[3])
    DAMAGE["a bit of the data"](prefixes[2])
    assert checkpoint_formats.latest_checkpoint(str(tmp_path / "a")) == prefixes[1]
    assert "continues from model.ckpt-5, the newest checkpoint that is complete" in caplog.text


def test_without_that_file_and_a_whole_checkpoint_nothing_is_started_anew(tmp_path):
    prefix, = write(tmp_path / "a", 5)
    os.remove(tmp_path / "a" / "checkpoint")
    DAMAGE["the data's end"](prefix)
    with pytest.raises(ValueError, match="all of them are damaged.*model.ckpt-5 is damaged.*Restore the "
                                         "files"):
        checkpoint_formats.latest_checkpoint(str(tmp_path / "a"))


def test_no_checkpoint_of_a_training_is_no_loss(tmp_path):
    """The first checkpoint was being written, or a published checkpoint is in the directory."""
    first, published = (write(tmp_path / name, step)[0] for name, step in (("a", 0), ("b", 5)))
    DAMAGE["the index's end"](first)
    for path in checkpoint_files.list_files(published):
        os.rename(path, path.replace("model.ckpt-5", "bert_model.ckpt"))
    for name in "ab":
        os.remove(tmp_path / name / "checkpoint")
        assert checkpoint_formats.latest_checkpoint(str(tmp_path / name)) is None


# --- The newest checkpoint is damaged --------------------------------------------------------------------


@pytest.mark.parametrize("how, name", [*((how, "a") for how in DAMAGE), ("the data's end", ODD)])
def test_of_a_damaged_one_the_message_has_the_command_to_go_on_from_the_one_before(tmp_path, how, name):
    directory = tmp_path / name
    prefixes = write(directory, 2, 5, 8, 10, 20)
    DAMAGE[how](prefixes[3])
    DAMAGE["the index's end"](prefixes[2])
    tf.train.update_checkpoint_state(str(directory), "model.ckpt-10", ["model.ckpt-10"])  # without step 20
    with pytest.raises((ValueError, FileNotFoundError)) as refused:
        found = checkpoint_formats.open_checkpoint(checkpoint_formats.latest_checkpoint(str(directory)))
        checkpoint_formats.check_readable(found, found.shapes)
    message, command = str(refused.value).split("\n  ")
    assert f"The newest complete checkpoint before it is {prefixes[1]}" in message and "remove" not in message
    subprocess.run(command, shell=True, check=True)
    assert checkpoint_formats.latest_checkpoint(str(directory)) == prefixes[1]


@pytest.mark.parametrize("text", ["", "\x00", "no protocol buffer", "all_model_checkpoint_paths: "])
def test_a_damaged_file_of_names_is_answered_with_what_removing_it_does(tmp_path, text):
    write(tmp_path / "a", 5)
    listing = tmp_path / "a" / "checkpoint"
    listing.write_text(text)
    with pytest.raises(ValueError, match="checkpoint is damaged: it names no checkpoint. Remove this file"):
        checkpoint_formats.latest_checkpoint(str(tmp_path / "a"))
    listing.unlink()
    assert checkpoint_formats.latest_checkpoint(str(tmp_path / "a")) == str(tmp_path / "a" / "model.ckpt-5")


def test_whatever_byte_of_an_index_is_wrong_or_missing_the_checkpoint_is_read_or_called_damaged(tmp_path):
    prefix, = write(tmp_path / "run", 3)
    index = pathlib.Path(prefix + ".index")
    whole, damaged = index.read_bytes(), 0
    spoiled = [whole[:size] for size in range(0, len(whole), 5)]
    spoiled += [whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1:]
                for place in range(len(whole)) for bit in (1, 64)]
    for content in spoiled:
        index.write_bytes(content)
        try:
            found = checkpoint_formats.open_checkpoint(prefix)
            for name in found.shapes:
                found.read(name)
        except checkpoint_formats.DamagedError as error:
            damaged += prefix in str(error)
    assert damaged > len(spoiled) / 2
