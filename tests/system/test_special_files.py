"""Writes to special files: a link stays, and its target is written. test_output_paths.py has devices."""

import errno
import os
import pathlib

from devices import device, is_device
import pytest

from bertlib.system import files, locks


def everything(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_open_file_of_the_process_is_written_to_and_not_replaced(tmp_path):
    with open(tmp_path / "out", "w+b", buffering=0) as file:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        files.write_text(f"/dev/fd/{file.fileno()}", "one")
        files.write_text(str(tmp_path / "link"), "two")
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(tmp_path / "out"))
        assert (tmp_path / "out").read_text() == "two" and everything(tmp_path) == ["link", "out"]


@pytest.mark.parametrize("target", ["there", "new"])
def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path, target):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "there").write_text("before")
    (tmp_path / "other").symlink_to(f"folder/{target}")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with files.atomic_replacement(str(tmp_path / "link")) as partial:
        pathlib.Path(partial).write_text("after")
        assert not (folder / "new").exists() and (folder / "there").read_text() == "before"
    assert os.readlink(tmp_path / "link") == str(tmp_path / "other")
    assert os.readlink(tmp_path / "other") == f"folder/{target}"
    assert (folder / target).read_text() == "after" and not list(folder.glob("*.partial"))


def test_a_link_that_cannot_be_written_to_leaves_all_unchanged(tmp_path):
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(KeyError), files.atomic_replacement(str(tmp_path / "link")) as partial:
        pathlib.Path(partial).write_text("after")
        raise KeyError
    assert (tmp_path / "file").read_text() == "before" and everything(tmp_path) == ["file", "link"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=f"{os.strerror(errno.ELOOP)}: .*/loop"):
        files.write_text(str(tmp_path / "loop"), "x")
    assert (tmp_path / "loop").is_symlink()


def test_an_error_of_a_device_names_it_and_gives_no_advice_about_disks(tmp_path):
    full = device(tmp_path, "full")
    with pytest.raises(OSError) as said:
        files.write_text(full, "x")
    assert (said.value.filename, said.value.strerror) == (full, "No space left on device") and is_device(full)


@pytest.mark.parametrize("name", ["好" * 80 + ".jsonl", "x" * 255])
def test_names_are_limited_in_bytes_and_not_in_characters(tmp_path, name):
    path = tmp_path / name
    path.write_text("before")
    with locks.lock_file(str(path)), files.atomic_replacement(str(path)) as partial:
        pathlib.Path(partial).write_text("after")
        assert path.read_text() == "before" and len(everything(tmp_path)) == 3
    assert path.read_text() == "after" and everything(tmp_path) == [name]


def test_a_file_in_place_of_a_directory_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(NotADirectoryError, match="Not a directory: .*file"):
            files.make_directories(str(path))
