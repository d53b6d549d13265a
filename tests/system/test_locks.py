"""`locks`: only one process at a time writes to a directory or a file.

The tests use forks as other processes, because a lock works differently inside of one process. The promise
"two at once" in tests/conformance has two commands, and its message. Killed commands free their locks there.
"""

import errno
import multiprocessing
import os
import subprocess

from bertlib.system import locks


def in_child(function):
    """Calls a function in a forked child. Returns whether it found a lock taken."""
    def call():
        try:
            function()
        except locks.InUseError:
            os._exit(3)

    child = multiprocessing.get_context("fork").Process(target=call)
    child.start()
    child.join()
    assert child.exitcode in (0, 3)
    return child.exitcode == 3


def take(path):
    with locks.lock_directory(path):
        pass


def test_a_process_holds_it_until_its_outermost_block_ends(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with locks.lock_directory(tmp_path / "real"):
        with locks.lock_directory(tmp_path / "link"):
            take(os.path.join(tmp_path, "link", ""))
        assert in_child(lambda: take(tmp_path / "real"))
    assert not in_child(lambda: take(tmp_path / "real"))


def test_programs_that_are_started_do_not_inherit_it(tmp_path):
    with locks.lock_directory(tmp_path):
        process = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        assert not in_child(lambda: take(tmp_path))
    finally:
        process.kill()
        process.wait()


def test_a_lock_that_its_holder_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    real, times = locks.fcntl.flock, []

    def after_a_removal(descriptor, operation):
        if not times:
            times.append(1)
            os.remove(tmp_path / ".lock")
        real(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", after_a_removal)
    with locks.lock_directory(tmp_path):
        assert (tmp_path / ".lock").exists()
        assert in_child(lambda: take(tmp_path))


def test_where_there_are_no_locks_the_log_says_so(tmp_path, monkeypatch, caplog):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    with locks.lock_directory(tmp_path), locks.lock_directory(tmp_path):
        pass
    assert caplog.messages == [f"{tmp_path} cannot be locked, because its file system has no locks (No locks "
                        "available). Do not start a second run that writes to the same path."]
    with locks.lock_directory("gs://bucket/run"), locks.lock_file("gs://bucket/run/file"):
        pass
    assert [text.split(",")[0] for text in caplog.messages[1:]] == [
        "gs://bucket/run cannot be locked", "gs://bucket/run/file cannot be locked"]
    assert not list(tmp_path.iterdir())
