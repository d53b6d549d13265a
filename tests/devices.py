"""Devices to write to. Tests as root create their own, because broken code could replace those in /dev."""

import os
import stat

import pytest

_NUMBERS = {"null": (1, 3), "full": (1, 7)}


def device(folder, name):
    """Returns the path of a device: "null" accepts all bytes, and "full" fails as on a full disk."""
    if os.geteuid():
        return f"/dev/{name}"
    path = os.path.join(folder, name)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*_NUMBERS[name]))
        os.close(os.open(path, os.O_WRONLY))
    except PermissionError:
        pytest.skip("this file system has no devices")
    return path


def is_device(path):
    return stat.S_ISCHR(os.stat(path).st_mode)
