"""`locks`: only one process at a time writes to a directory or a file.

The tests use forks as other processes, because a lock works differently inside of one process. The promise
"two at once" in tests/conformance has two commands, and its message. Killed commands free their locks there.
"""

import contextlib
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


def test_a_child_neither_has_it_nor_keeps_it(tmp_path):
    reader, writer = os.pipe()
    holder = os.fork()
    if not holder:
        with locks.lock_directory(tmp_path):
            child = os.fork()
            if not child:
                os.read(reader, 1)  # so this process ends after its parent
                os._exit(0)
            os._exit(0)  # without releasing the lock
    os.waitpid(holder, 0)
    try:
        take(tmp_path)
    finally:
        os.write(writer, b".")  # a child that stays would keep the pipes of the tests open

    # If a child leaves the block of its parent, it does not release the lock.
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.lock_directory(tmp_path))
        assert not in_child(lambda: None)
        pid = os.fork()
        if not pid:
            stack.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert in_child(lambda: take(tmp_path))


def test_programs_that_are_started_do_not_inherit_it(tmp_path):
    with locks.lock_directory(tmp_path):
        process = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        assert not in_child(lambda: take(tmp_path))
    finally:
        process.kill()
        process.wait()


def test_files_are_locked_one_by_one(tmp_path):
    with locks.lock_file(tmp_path / "one"):
        with locks.lock_file(tmp_path / "two"):
            assert sorted(path.name for path in tmp_path.iterdir()) == ["one.lock", "two.lock"]
        def take_one():
            with locks.lock_file(os.path.join(tmp_path, "one")):
                pass
        assert in_child(take_one)
    assert not list(tmp_path.iterdir())


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
