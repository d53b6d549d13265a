"""Locks of directories and files that a process writes to, so that no second process does. Loads no
TensorFlow for local ones.

A lock is the kernel's `flock` on a small file, `.lock` in a directory or `<name>.lock` beside a file, which
says who holds it. It ends with its process, however that ends. The file is removed when the lock is given
back; of a killed process it stays, and is in nobody's way.
"""

import contextlib
import datetime
import errno
import fcntl
import glob
import json
import os
import shutil
import socket
import threading

from absl import logging

from bertlib.system import files

# The locks of this process: {(device, inode of the directory, name): [descriptor or None, holders]}.
_held = {}
_held_lock = threading.Lock()
# What `flock` says where a file system has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}


class InUseError(OSError):
    """Another process writes to the same place."""


@contextlib.contextmanager
def lock_directory(path):
    """Holds the lock of an existing directory in the block.

    A process may hold a lock several times, also in several threads; the outermost block gives it back.
    Forked children do not have it.

    Raises:
      InUseError: another process holds it.
    """
    with _lock(path, path, ".lock"):
        yield


@contextlib.contextmanager
def lock_file(path):
    """Holds the lock of a file, there or not, in the block; see `lock_directory`. Its directory must exist.

    The lock of a symbolic link is that of the file that it leads to. Devices and FIFOs have none: several
    processes may write to them.
    """
    if files.is_special(path):
        yield
        return
    target = files.resolve_links(path)
    with _lock(path, os.path.dirname(target) or ".", os.path.basename(target) + ".lock"):
        yield


def remove_abandoned(folder, prefix):
    """Removes the directories in a local folder that killed processes left there unfinished.

    A directory counts as abandoned if its name begins with `prefix` and its lock exists and is free. The
    process that makes such a directory takes its lock, by `lock_file`, before, and holds it for as long as
    the directory has that name. A directory without a lock stays.
    """
    for lock in glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(prefix)}*.lock")):
        path = lock.removesuffix(".lock")
        name = os.path.basename(lock)
        with contextlib.suppress(OSError):  # another process uses it, or has just removed it
            key = _acquire(path, folder, name, again=False)
            try:
                if _held[key][0] is not None and os.path.isdir(path):
                    shutil.rmtree(path)
                    logging.info("%s, which a killed process left unfinished, was removed.", path)
            finally:
                _release(key, folder, name)


@contextlib.contextmanager
def _lock(what, folder, name):
    if not files.is_writing_enabled():
        yield
        return
    key = _acquire(what, folder, name)
    try:
        yield
    finally:
        _release(key, folder, name)


def _acquire(what, folder, name, again=True):
    """Takes a lock, or counts one more holder of it; returns its key.

    Raises:
      InUseError: another process holds it, or, unless `again`, this one does.
    """
    if files.is_remote(folder):
        key = folder, name
    else:
        found = os.stat(folder)
        key = found.st_dev, found.st_ino, name
    with _held_lock:
        if key in _held and not again:
            raise InUseError(f"{what} is in use by this process.")
        if key in _held:
            _held[key][1] += 1
        elif files.is_remote(folder):
            logging.warning("%s cannot be locked, as it is not on a local or mounted file system: start no "
                            "second run that writes there.", what)
            _held[key] = [None, 1]
        else:
            _held[key] = [_open_locked(what, os.path.join(folder, name)), 1]
    return key


def _release(key, folder, name):
    with _held_lock:
        if key not in _held:  # in a child that was forked inside of the block
            return
        _held[key][1] -= 1
        if _held[key][1]:
            return
        descriptor, _ = _held.pop(key)
        if descriptor is not None:
            # Removed while it is locked: who opened it meanwhile will see that its name is gone.
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, name))
            os.close(descriptor)


def _open_locked(what, path):
    """Returns a descriptor of the lock file, locked; None where the file system has no locks.

    Raises:
      InUseError: another process holds it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_file(descriptor, path):
                with contextlib.suppress(OSError):  # on a full disk it is locked all the same
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, _signature(), 0)
                return descriptor
            os.close(descriptor)  # its holder removed it between our two calls
        except BlockingIOError:
            try:
                holder = _describe_holder(descriptor)
            finally:
                os.close(descriptor)
            raise InUseError(f"{what} is in use: {holder} writes there. Wait until that has ended, or stop "
                             "it, or name another place.") from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                raise
            with contextlib.suppress(OSError):
                os.remove(path)
            logging.warning("%s cannot be locked, as its file system has no locks (%s): start no second run "
                            "that writes there.", what, error.strerror)
            return None


def _is_open_file(descriptor, path):
    """Whether a path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _signature():
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    return json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": now}).encode() + b"\n"


def _describe_holder(descriptor):
    """Says in words what the holder wrote into a lock file, which may be about to write it."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {found['process']} on {found['host']}, since {found['since']},"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _close_inherited_locks():
    """In a forked child: closes what it inherited, which leaves the locks to the parent."""
    global _held_lock
    for descriptor, _ in _held.values():
        if descriptor is not None:
            os.close(descriptor)
    _held.clear()
    _held_lock = threading.Lock()


os.register_at_fork(after_in_child=_close_inherited_locks)
