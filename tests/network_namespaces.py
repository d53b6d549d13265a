"""Helpers for tests of closed ports: other users, machines that forbid namespaces, and ports of processes."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

NOBODY = 65534

# Runs a command as the same user, but in an environment in which no user or network namespace can be created.
# For a whole machine, `sysctl user.max_user_namespaces=0 user.max_net_namespaces=0` has this effect.
_FORBID = """
import ctypes, os, sys
user, group = os.geteuid(), os.getegid()
if ctypes.CDLL(None).unshare(0x10000000):
    sys.exit("no user namespace")
for path, text in (("self/setgroups", "deny"), ("self/uid_map", f"{user} {user} 1"),
                   ("self/gid_map", f"{group} {group} 1"), ("sys/user/max_user_namespaces", "0"),
                   ("sys/user/max_net_namespaces", "0")):
    with open("/proc/" + path, "w") as file:
        file.write(text)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def forbidden(command):
    """Returns the command line that runs a command in an environment in which it can create no namespace."""
    return [sys.executable, "-I", "-S", "-c", _FORBID, *map(str, command)]


def as_nobody(command):
    """Returns the command line that runs a command as the user nobody. This needs root.

    The user can read the files of the Python interpreter.
    """
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, command)]
    closed = next((path for path in reversed(pathlib.Path(sys.executable).resolve().parents)
                   if not path.stat().st_mode & 1), None)
    if closed is None:
        return command
    # Python is below a directory that other users cannot enter. In the new process, this directory contains
    # only the part with Python, and other users can enter it.
    part = closed / pathlib.Path(sys.executable).resolve().relative_to(closed).parts[0]
    kept, closed, part = "/mnt", shlex.quote(str(closed)), shlex.quote(str(part))
    script = (f"mount --bind {part} {kept} && mount -t tmpfs -o mode=755 tmpfs {closed} && mkdir {part} && "
              f'mount --move {kept} {part} && exec "$@"')
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *command]


def require(prefix):
    """Skips the test if this machine cannot run a command line of `prefix`, one of the functions above."""
    done = subprocess.run(prefix([sys.executable, "-S", "-c", ""]), capture_output=True, encoding="utf-8")
    if done.returncode:
        pytest.skip(f"this machine does not allow it: {done.stderr.strip()}")


def require_namespaces(prefix=list):
    """Skips the test if the kernel forbids network namespaces to this user, or to the user of `prefix`."""
    options = ["--net"] if prefix is list and os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    done = subprocess.run(prefix(["unshare", *options, "true"]), capture_output=True, encoding="utf-8")
    if done.returncode:
        pytest.skip(f"the kernel forbids network namespaces: {done.stderr.strip()}")


def _listening(pid):
    """Returns {inode: port} of the sockets that listen in the network namespace of a process."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # TCP_LISTEN
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def ports_of(pid):
    """The ports at which a process listens, as seen in its own network namespace."""
    opened = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            opened.add(os.readlink(descriptor))
        except OSError:
            continue  # the process has closed it in the meantime
    return sorted(port for inode, port in _listening(pid).items() if f"socket:[{inode}]" in opened)


def ports_here():
    """The ports at which any process listens in the network namespace of this process."""
    return set(_listening("self").values())


def namespace_of(pid):
    """The network namespace of a process."""
    return os.readlink(f"/proc/{pid}/ns/net")


def children(pid):
    """Returns the process numbers of the processes that the main thread of a process started."""
    return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
