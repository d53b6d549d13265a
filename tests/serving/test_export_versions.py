"""Versions of exports. Exports that run at the same time get different versions.

The files of killed exports are removed.
"""

import concurrent.futures
import multiprocessing
import os
import time

from bertlib.estimator import saved_model


def export(directory, content, wait=0):
    with saved_model.new_export_dir(str(directory)) as (temporary, final):
        with open(os.path.join(temporary, "content"), "w") as writer:
            writer.write(content)
        time.sleep(wait)
    return os.fsdecode(final)


def start(*arguments):
    """Starts an export in a child process, and returns the process."""
    child = multiprocessing.get_context("fork").Process(target=export, args=arguments)
    child.start()
    return child


def contents(directory):
    """Returns {name: content} of the entries in a directory. The content is None if an entry is no version.
    """
    return {path.name: (path / "content").read_text() if path.name.isdecimal() else None
            for path in directory.iterdir()}


def test_exports_of_one_second_are_versions_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1700000000.5)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda number: export(tmp_path / "export", f"{number}", 0.2), range(4)))
    found = contents(tmp_path / "export")
    assert sorted(found.values()) == ["0", "1", "2", "3"] and len(set(made)) == 4
    assert sorted(map(int, found)) == list(range(1700000000, 1700000004))


def test_an_export_is_newer_than_one_of_a_machine_whose_clock_is_ahead(tmp_path):
    (tmp_path / "9900000000").mkdir()
    assert export(tmp_path, "new") == str(tmp_path / "9900000001")


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path):
    directory = tmp_path / "export"
    child = start(directory, "never", 600)
    while not list(directory.glob("temp-*/content")):
        time.sleep(0.01)
    first = export(directory, "first")
    assert list(directory.glob("temp-*/content"))  # files of a process that still runs
    child.kill()
    child.join()
    (directory / "temp-1").mkdir()  # without a lock file, its process is unknown
    second = export(directory, "second")
    assert contents(directory) == {os.path.basename(first): "first", os.path.basename(second): "second",
                                   "temp-1": None}
