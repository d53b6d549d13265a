"""Uses a network namespace to close the ports of a run. Other machines, and processes that are not part of
the run, cannot reach these ports.

The servers of TensorFlow listen on all interfaces, without authentication. For this reason, the processes of
a run can be started in a network namespace that has only the loopback interface. A process outside of this
namespace, such as a process on another machine, cannot reach the servers.

    Namespace()                creates the namespace
    Namespace.wrap_command     returns the command line that runs a command in the namespace

A process with several threads cannot enter a user namespace, and the imports of NumPy and TensorFlow start
threads. For this reason, this file is also a program. It runs in a new interpreter and creates or enters the
namespaces. To run a command, the program replaces itself by the command with `exec`, which keeps the process
number, the terminal, the working directory and the environment. Because no thread may start in the program,
this file imports only the standard library.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys

# Flags of unshare and setns (sched.h).
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
# Constants for ioctl: the requests that read and set the flags of a network interface (SIOCGIFFLAGS,
# SIOCSIFFLAGS), the format of struct ifreq, and the flag of an active interface (IFF_UP in net/if.h).
_GET_FLAGS, _SET_FLAGS, _INTERFACE, _IS_UP = 0x8913, 0x8914, "16sh22x", 1
# The line that the action "hold" of the program prints when the namespace exists.
_READY = "ready"
# Matches command-line arguments that contain a path on a network file system. The path may be one of several
# values, as in "--flag=a,b".
_REMOTE = re.compile(r"(?:^|[=,])(?!file://|ram://)[A-Za-z][A-Za-z0-9+.-]*://")

_EXPOSED = ("The gRPC servers of TensorFlow, one in each replica, listen on all interfaces, without "
            "authentication. Until the run ends, everyone who can reach this machine can read and write "
            "files with the rights of this user.")
_REMEDY = (
    "To close the ports, allow network namespaces: on Ubuntu with `sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`, on other systems with `sysctl "
    "user.max_user_namespaces=10000`, for root in Docker with `--cap-add=SYS_ADMIN --cap-add=NET_ADMIN`. Or "
    "block the ports with a firewall: `iptables -I INPUT ! -i lo -p tcp --syn --dport 32768:60999 -j DROP`, "
    "and the same with ip6tables. For a container, `--network=none` blocks the ports. If the ports are "
    "blocked, --open_ports=true hides this warning. See docs/howto/cluster.md.")


# --- Deciding --------------------------------------------------------------------------------------------


def for_replicas(cluster, open_ports, arguments, warn):
    """Returns a context manager that yields the `Namespace` for the replicas of this machine. It yields None
    if the ports stay open.

    Args:
      cluster: the `cluster.Cluster` of several machines; None for this machine alone.
      open_ports: True to leave the ports open. False to raise an error if the ports cannot be closed. None to
        show a warning if the ports cannot be closed.
      arguments: command-line arguments. A remote path, such as gs://bucket/file, needs the network.
      warn: function that takes a text and shows it as a warning.

    Raises:
      ValueError: `open_ports` is False, and the ports cannot be closed.
    """
    if cluster is not None and open_ports is False:
        raise ValueError("--open_ports=false: TF_CONFIG names other machines, and the ports between "
                         "machines cannot be closed. Leave the flag out, and protect the ports with the "
                         "firewall rule in docs/howto/cluster.md.")
    if cluster is None and not open_ports:
        try:
            cache = f"TFHUB_CACHE_DIR={os.environ.get('TFHUB_CACHE_DIR', '')}"  # of hub modules
            for argument in (*arguments, cache):
                if _REMOTE.search(argument):
                    raise OSError(f"{argument} needs the network")
            return Namespace()
        except OSError as error:
            if open_ports is False:
                raise ValueError(f"--open_ports=false: the ports of this run cannot be closed ({error}). "
                                 f"{_EXPOSED} {_REMEDY}") from error
            warn(f"The ports of this run are open to other machines ({error}). {_EXPOSED} {_REMEDY}")
    return contextlib.nullcontext()


# --- The namespace ---------------------------------------------------------------------------------------


class Namespace:
    """A network namespace with only the loopback interface. It exists until the end of the `with` block, or
    until the end of this process."""

    def __init__(self):
        """Creates the namespace.

        Raises:
          OSError: the kernel or a security rule of this machine does not allow a namespace.
        """
        # The program keeps the namespace open until its standard input is closed.
        self._holder = subprocess.Popen(_program("hold"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        answer = self._holder.stdout.readline().rstrip()
        if answer != _READY:
            self.__exit__()
            raise OSError(answer or "the interpreter ended without an answer")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._holder.communicate()

    def wrap_command(self, command):
        """Returns the command line that runs a command in the namespace. `command` is a sequence of
        arguments."""
        return [*_program("enter"), str(self._holder.pid), *command]


def _program(action):
    # A process can enter the namespace only if it has a single thread. Without the options -I and -S, Python
    # would import sitecustomize or modules in the working directory, and these could start a thread.
    return [sys.executable, "-I", "-S", __file__, action]


# --- The program -----------------------------------------------------------------------------------------


def _main(action, *arguments):
    """Runs an action of this program.

    Args:
      action: "hold" creates a namespace, and keeps it until the standard input ends. "enter" moves this
        process into a namespace, and then replaces it by a command.
      *arguments: for "enter", the number of a process in the namespace, and the command.
    """
    if action == "hold":
        try:
            _create()
        except OSError as error:
            print(": ".join(str(part) for part in (error.filename, error.strerror) if part), flush=True)
        else:
            print(_READY, flush=True)
            sys.stdin.read()
        return
    process, *command = arguments
    _enter(process)
    # The Python interpreter ignores these signals, and a command inherits ignored signals. This loop restores
    # the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


def _create():
    """Moves this process into a new network namespace.

    If the user has the right to create a network namespace, the function creates only a network namespace.
    Usually only root has this right. For a user without this right, the function also creates a user
    namespace, in which the process keeps its user and group. If root does not have the right, the function
    raises a PermissionError, because in a user namespace, root would lose the access to the files of other
    users.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        _system_call("unshare", _NEW_NETWORK)
    except PermissionError:
        if user == 0:
            raise
        _system_call("unshare", _NEW_USER | _NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                           ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        interface = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack(_INTERFACE, b"lo", 0))
        flags = struct.unpack(_INTERFACE, interface)[1] | _IS_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack(_INTERFACE, b"lo", flags))


def _enter(process):
    """Moves this process into the namespaces of another process. `process` is its number."""
    descriptors = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")
                   if not os.path.samefile(f"/proc/{process}/ns/{kind}", f"/proc/self/ns/{kind}")]
    for descriptor in descriptors:
        _system_call("setns", descriptor, 0)
        os.close(descriptor)


def _system_call(name, *arguments):
    """Calls a function of the C library.

    Raises:
      OSError: the call failed.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
