"""Locks directories and files, so that no two processes write to the same place at the same time.

TensorFlow is imported only for paths that are not local.

A lock is the kernel's `flock` on a small lock file. The lock file of a directory is the file `.lock` in it.
The lock file of a file is `<name>.lock` in the same directory. A lock file contains a text that names the
process with the lock. The kernel releases the lock when the process ends, also if the process was killed. The
lock file is removed when the lock is released. If the process was killed, the lock file remains, but another
process can lock it.
"""

import contextlib
import datetime
import errno
import fcntl
import glob
import os
import shutil
import socket
import threading

from absl import logging

from bertlib.system import files

# The locks that this process holds. A key identifies the directory, by device and inode, and the name of the
# lock file. A value is [descriptor or None, number of holders].
_held = {}
_held_lock = threading.Lock()
# Error numbers of `flock` on file systems that do not support locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}


class InUseError(OSError):
    """The error that is raised if another process already writes to the same place."""


def lock_directory(path):
    """Returns a context manager that holds the lock of an existing directory during the `with` block.

    A process may hold the same lock several times, also in several threads. The block that ends last releases
    the lock. Forked child processes do not inherit the lock.

    Raises:
      InUseError: another process holds the lock.
    """
    return _lock(path, path, ".lock")


def lock_file(path):
    """Returns a context manager that holds the lock of a file during the `with` block; see `lock_directory`.

    The file may be missing, but its directory must exist. A symbolic link has the same lock as its target
    file. Devices and FIFOs have no lock, because several processes can write to them at the same time.
    """
    if files.is_special(path):
        return contextlib.nullcontext()
    folder, name = os.path.split(files.path_beside(files.resolve_links(path), ".lock"))
    return _lock(path, folder or ".", name)


def remove_abandoned(folder, prefix):
    """Removes abandoned directories from a local folder: directories that killed processes left unfinished.

    A directory counts as abandoned if its name begins with `prefix`, and its lock file exists and is not
    locked. A process that creates such a directory must first lock it by `lock_file`, and must hold the lock
    as long as the directory has this name. A directory without a lock file is kept.
    """
    for lock in glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(prefix)}*.lock")):
        path = lock.removesuffix(".lock")
        # An OSError means that this process or another one holds the lock.
        with contextlib.suppress(OSError):
            descriptor = _open_locked(path, lock)
            try:
                if descriptor is not None and os.path.isdir(path):
                    shutil.rmtree(path)
                    logging.info("%s, which a killed process left unfinished, was removed.", path)
            finally:
                _unlock(descriptor, lock)


@contextlib.contextmanager
def _lock(what, folder, name):
    """Holds a lock during the `with` block. If this process already holds the lock, the number of its holders
    increases by one.

    Args:
      what: the locked path, for messages.
      folder: directory of the lock file.
      name: name of the lock file.

    Raises:
      InUseError: another process holds the lock.
    """
    if files.is_remote(folder):
        logging.warning("%s cannot be locked, because it is not on a local or mounted file system. Do not "
                        "start a second run that writes to the same path.", what)
        yield
        return
    path, status = os.path.join(folder, name), os.stat(folder)
    key = status.st_dev, status.st_ino, name
    with _held_lock:
        if key not in _held:
            _held[key] = [_open_locked(what, path), 0]
        _held[key][1] += 1
    try:
        yield
    finally:
        with _held_lock:
            # If this process was forked while the lock was held, it did not inherit the lock. So it has
            # nothing to release.
            if key in _held:
                _held[key][1] -= 1
                if not _held[key][1]:
                    _unlock(_held.pop(key)[0], path)


def _unlock(descriptor, path):
    """Removes and unlocks a lock file that `_open_locked` opened."""
    if descriptor is not None:
        # The lock file is removed before it is unlocked. Another process may have opened this file already.
        # That process finds out that the path no longer names its open file (`_is_open_file`), and opens a
        # new lock file.
        with contextlib.suppress(OSError):
            os.remove(path)
        os.close(descriptor)


def _open_locked(what, path):
    """Opens and locks a lock file. Returns the descriptor of the file, or None if the file system does not
    support locks.

    Raises:
      InUseError: another process holds the lock.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_file(descriptor, path):
                # If the disk is full, writing fails. The file is locked nevertheless, but stays empty.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
                    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
                    holder = f"process {os.getpid()} on {socket.gethostname()}, since {now},"
                    os.pwrite(descriptor, holder.encode(), 0)
                return descriptor
            os.close(descriptor)  # the previous holder removed the file between `open` and `flock`
        except BlockingIOError:
            # It is empty if the process with the lock has not written the file yet.
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise InUseError(f"{what} is in use: {holder} writes there. Wait until that process has ended, "
                             "or stop it, or name another path.") from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                raise
            with contextlib.suppress(OSError):
                os.remove(path)
            logging.warning("%s cannot be locked, because its file system has no locks (%s). Do not start a "
                            "second run that writes to the same path.", what, error.strerror)
            return None


def _is_open_file(descriptor, path):
    """Returns whether a path still leads to the file that is open with this descriptor. False if the file was
    removed or replaced after it was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _close_inherited_locks():
    """Closes the inherited descriptors in a forked child process. The parent keeps the locks. With open
    descriptors, the child would still hold these locks after the parent was killed."""
    global _held_lock
    for descriptor, *_ in _held.values():
        if descriptor is not None:
            os.close(descriptor)
    _held.clear()
    _held_lock = threading.Lock()


os.register_at_fork(after_in_child=_close_inherited_locks)
