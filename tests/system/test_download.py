"""Downloads files from a web server that breaks off, changes files, refuses requests or lies. Unpacks zips.

tests/commands/test_download_command.py has downloads without errors, and those that are interrupted once.
"""

import os
import random
import shutil
import socket
import stat
import zipfile
import zlib

from file_server import Server, zip_of
import pytest

from bertlib.system import http_download
from bertlib.system.http_download import Source

DATA = random.Random(1).randbytes(100_000)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server({"/a/file.bin": DATA}) as server:
        yield server


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "file.bin"


def fetch(server, path):
    return http_download.fetch(f"{server.address}/a/file.bin", path, timeout=5)


def ranges(server):
    return [headers.get("Range") for _, headers in server.requests]


def break_off(server, path):
    """Interrupts a download after 30,000 bytes, which are kept, as if the command had been ended."""
    server.cuts = [30_000, 0 if server.ranges and server.tags else 30_000]
    with pytest.raises(http_download.ServerError,
                       match="was interrupted after 30,000 of 100,000 bytes.*are kept"):
        fetch(server, path)
    assert os.path.getsize(f"{path}.partial") == 30_000 and not path.exists()
    server.requests.clear()


@pytest.mark.parametrize("changed, has_tags", [(DATA[::-1], True), (b"short", False)])
def test_a_file_that_has_changed_is_fetched_anew(server, path, changed, has_tags):
    break_off(server, path)
    server.files["/a/file.bin"] = changed
    if not has_tags:  # such a server answers that the requested bytes do not exist
        server.answer = lambda handler, data, answer=server.answer: (
            handler.send_error(416) if "Range" in handler.headers else answer(handler, data))
    assert fetch(server, path) and path.read_bytes() == changed


@pytest.mark.parametrize("lacks", ["ranges", "tags"])
def test_a_server_without_ranges_or_versions_sends_all_of_it_again(server, path, lacks):
    setattr(server, lacks, False)
    break_off(server, path)
    assert fetch(server, path) and path.read_bytes() == DATA
    assert ranges(server) == ["bytes=30000-" if lacks == "ranges" else None]


def test_what_has_come_from_another_address_is_not_gone_on_with(server, path):
    server.tag = '"same"'  # both files have the same tag
    break_off(server, path)
    server.files["/b"] = other = DATA[1:] + b"."
    assert http_download.fetch(f"{server.address}/b", path) and path.read_bytes() == other


def test_a_range_that_begins_elsewhere_is_not_taken(server, path):
    break_off(server, path)
    answer = server.answer

    def wrong(handler, data):
        if "Range" in handler.headers:
            handler.headers.replace_header("Range", "bytes=29999-")
        answer(handler, data)

    server.answer = wrong
    assert fetch(server, path) and path.read_bytes() == DATA


def test_refusals_web_pages_and_silence_are_said(server, path):
    with pytest.raises(http_download.ServerError, match="/nothing: the server answers 404 Not Found"):
        http_download.fetch(f"{server.address}/nothing", path)
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(http_download.ServerError, match="a web page"):
        fetch(server, path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(http_download.ServerError, match="/x: the server does not answer .timed out"):
            http_download.fetch(address, path, timeout=0.1)
    with pytest.raises(http_download.ServerError, match="/x: the server does not answer .*refused") as error:
        http_download.fetch(address, path, timeout=5)
    assert "kept" not in str(error.value) and not list(path.parent.iterdir())


def test_a_disk_without_room_is_said_before_anything_is_written(server, path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 99_999))
    with pytest.raises(OSError, match="the disk is full: it takes 0.10 MB, and 0.10 MB are free"):
        fetch(server, path)
    assert not list(path.parent.iterdir())


# --- Unpacking -------------------------------------------------------------------------------------------

MODEL = {"model/a.json": b"{}", "model/b.txt": b"text" * 1000, "model/more/c": b"c",
         "__MACOSX/model/._a.json": b"x"}
LINK = zipfile.ZipInfo("evil")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


def unpack(tmp_path, data, expected=("a.json", "b.txt")):
    (tmp_path / "x.zip").write_bytes(data)
    http_download.unpack(str(tmp_path / "x.zip"), str(tmp_path / "out"), expected)


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("contents, unpacked", [
    (MODEL, {"a.json": b"{}", "b.txt": b"text" * 1000, "more/c": b"c"}),
    # The files have no folder of their own.
    (OLD := {"b.txt": b"b", "a.json": b"a", "old/a.json": b"old"}, OLD),
    # The names are dangerous.
    ({"/other/a.json": b"a", "/other/b.txt": b"b"}, {"a.json": b"a", "b.txt": b"b"}),
    ({"a.json": b"a", "b.txt": b"b", "../above": b"", "x/../../around": b"", "/top": b""},
     {"a.json": b"a", "b.txt": b"b", "above": b"", "x/around": b"", "top": b""}),
    # A link becomes a plain file.
    ({"a.json": b"a", "b.txt": b"b", LINK: b"/etc"}, {"a.json": b"a", "b.txt": b"b", "evil": b"/etc"})])
def test_the_folder_with_the_expected_files_becomes_the_directory(tmp_path, contents, unpacked):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text("mine")
    unpack(tmp_path, zip_of(contents))
    assert files_in(tmp_path / "out") == unpacked
    assert set(files_in(tmp_path)) == {"x.zip", "other/a.json", *(f"out/{name}" for name in unpacked)}
    assert (tmp_path / "other" / "a.json").read_text() == "mine"


@pytest.mark.parametrize(("data", "says"), [
    (zip_of({"a.json": b"a", "b.txt": b"b", "c": b"", "c/d": b""}), "is damaged, or is not a zip: .*/c"),
    (zip_of({"a.json": b"a", "b.txt": b"b", "zeros": bytes(20_000_000)}), "its content has 20,000,002 bytes"),
    (zip_of({"a.json": b"a", "b.txt": b"b", **{f"{n}": b"" for n in range(10_000)}}), "in 10,002 files"),
    (zip_of({"x/a.json": b"a", "y/b.txt": b"b"}), "no folder in this zip contains all of a.json, b.txt. The "
                                                  "zip contains x"),
    (zip_of(MODEL)[20:], "is damaged, or is not a zip"),
    (zip_of({"a.json": b"a", "b.txt": b"b"}).replace(zlib.crc32(b"b").to_bytes(4, "little"), b"none"),
     "Bad CRC-32 for file 'b.txt'"),
    (b"no zip", "is damaged, or is not a zip: File is not a zip file"),
], ids=["folder", "bomb", "many", "lacks", "beheaded", "checksum", "other"])
def test_zips_that_are_damaged_leave_nothing(tmp_path, data, says):
    with pytest.raises(http_download.DamagedError, match=says):
        unpack(tmp_path, data)
    assert [path.name for path in tmp_path.rglob("*")] == ["x.zip"]


def test_a_directory_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    # The command is killed at the end, and leaves its temporary directory. This does not disturb the next
    # command.
    monkeypatch.setattr(os, "rename", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)
    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path, zip_of({**MODEL, "model/stale": b"x"}))
    assert not (tmp_path / "out").exists() and (tmp_path / "out.partial").exists()
    monkeypatch.undo()
    unpack(tmp_path, zip_of(MODEL))
    assert set(files_in(tmp_path / "out")) == {"a.json", "b.txt", "more/c"}
    assert not (tmp_path / "out.partial").exists()


# --- Sources ---------------------------------------------------------------------------------------------

ZIP = Source("https://example.invalid/a/m.zip", "all/m", ("a.json", "b.txt"))


def test_a_directory_of_another_content_is_not_touched(server, tmp_path):
    (tmp_path / "all" / "m").mkdir(parents=True)
    (tmp_path / "all" / "m" / "a.json").write_text("mine")
    with pytest.raises(FileExistsError, match="m already exists, but lacks b.txt. Move this directory"):
        http_download.download(ZIP, str(tmp_path), server.address)
    assert files_in(tmp_path) == {"all/m/a.json": b"mine"} and not server.requests


def test_a_zip_that_lies_there_is_used_and_kept(server, tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "m.zip").write_bytes(b"no zip")
    with pytest.raises(http_download.DamagedError, match="m.zip is damaged.*Remove the zip"):
        http_download.download(ZIP, str(tmp_path), server.address)
    (tmp_path / "all" / "m.zip").write_bytes(zip_of(MODEL))
    assert http_download.download(ZIP, str(tmp_path), server.address) and not server.requests
    assert (tmp_path / "all" / "m.zip").exists() and (tmp_path / "all" / "m" / "a.json").exists()
