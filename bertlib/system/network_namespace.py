"""Uses a network namespace to close the ports of a run. Other machines, and processes that are not part of
the run, cannot reach these ports.

The servers of TensorFlow and Apache Beam listen on all interfaces, without authentication. For this reason,
the processes of a run can be started in a network namespace that has only the loopback interface. A process
outside of this namespace, such as a process on another machine, cannot reach the servers.

    Namespace()                creates the namespace, and a socket that listens in it
    Namespace.wrap_command     returns the command line that runs a command in the namespace

A process with several threads cannot enter a user namespace, and the imports of NumPy and TensorFlow start
threads. For this reason, this file is also a program. It runs in a new interpreter and creates or enters the
namespaces. To run a command, the program replaces itself by the command with `exec`, which keeps the process
number, the terminal, the working directory and the environment. Because no thread may start in the program,
this file imports only the standard library.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
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
# Largest number of file descriptors that `_main` sends in one message.
_MAX_DESCRIPTORS = 2
# `_ask` starts this file as a program, and waits at most this time for a message of the program.
_TIMEOUT_SECONDS = 60
# Matches command-line arguments that contain a path on a network file system. The path may be one of several
# values, as in "--flag=a,b".
_REMOTE = re.compile(r"(?:^|[=,])(?!file://|ram://)[A-Za-z][A-Za-z0-9+.-]*://")

_EXPOSED = ("{servers} listen on all interfaces, without authentication. Until the run ends, everyone who "
            "can reach this machine can read and write files with the rights of this user.")
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
      cluster: the `cluster.Cluster` of the replicas, or None.
      open_ports, arguments, warn: see `for_processes`.

    Raises:
      ValueError: `open_ports` is False, and the ports cannot be closed.
    """
    if cluster is not None and len(cluster.addresses) > 1:
        if open_ports is False:
            raise ValueError("--open_ports=false: TF_CONFIG names other machines, and the ports between "
                             "machines cannot be closed. Leave the flag out, and protect the ports with the "
                             "firewall rule in docs/howto/cluster.md.")
        return contextlib.nullcontext()
    return for_processes(open_ports, arguments, "The gRPC servers of TensorFlow, one in each replica,", warn)


def for_processes(open_ports, arguments, servers, warn):
    """Returns a context manager that yields the `Namespace` for the processes of a run.

    The context manager yields None if the ports stay open.

    Args:
      open_ports: True to leave the ports open. False to raise an error if the ports cannot be closed. None to
        show a warning if the ports cannot be closed.
      arguments: command-line arguments. A remote path, such as gs://bucket/file, needs the network.
      servers: words for the servers that listen at the ports. They are used in the warning or the error.
      warn: function that takes a text and shows it as a warning.

    Raises:
      ValueError: `open_ports` is False, and the ports cannot be closed.
    """
    if open_ports:
        return contextlib.nullcontext()
    try:
        remote = _first_remote(arguments)
        if remote is not None:
            raise OSError(f"{remote} needs the network")
        return Namespace()
    except OSError as error:
        exposed = _EXPOSED.format(servers=servers)
        if open_ports is False:
            raise ValueError(f"--open_ports=false: the ports of this run cannot be closed ({error}). "
                             f"{exposed} {_REMEDY}") from error
        warn(f"The ports of this run are open to other machines ({error}). {exposed} {_REMEDY}")
        return contextlib.nullcontext()


def _first_remote(arguments):
    """Returns the first argument that contains a remote path. If no argument contains one, but the cache of
    hub modules is remote, returns the setting of this cache. Returns None if there is no remote path."""
    cache = f"TFHUB_CACHE_DIR={os.environ.get('TFHUB_CACHE_DIR', '')}"
    return next((argument for argument in (*arguments, cache) if _REMOTE.search(argument)), None)


# --- The namespace ---------------------------------------------------------------------------------------


class Namespace:
    """A network namespace with only the loopback interface. As a context manager, it closes its descriptors
    at the end of the `with` block.

    The namespace exists as long as its descriptors are open or a process runs in it.

    Attributes:
      listener: socket that listens at a free port of 127.0.0.1 in the namespace.
      descriptors: list of file descriptors. A process that runs a command line of `wrap_command` must inherit
        these descriptors.
    """

    def __init__(self):
        """Creates the namespace.

        Raises:
          OSError: the kernel or a security rule of this machine does not allow a namespace.
        """
        self.descriptors = _ask("create")
        try:
            # This call also checks that processes can enter the namespace.
            self.listener = socket.socket(fileno=_ask("listen", self.descriptors)[0])
        except OSError:
            self._close_descriptors()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.close()
        self._close_descriptors()

    def _close_descriptors(self):
        for descriptor in self.descriptors:
            os.close(descriptor)

    def wrap_command(self, command):
        """Returns the command line that runs a command in the namespace. `command` is a sequence of
        arguments."""
        return [*_program("enter"), _join_descriptors(self.descriptors), *command]

    def execute(self, command, environment):
        """Replaces this process by a command in the namespace."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)
        sys.stdout.flush()
        sys.stderr.flush()
        wrapped = self.wrap_command(command)
        os.execve(wrapped[0], wrapped, environment)


def _program(action):
    # A process can enter the namespace only if it has a single thread. Without the options -I and -S, Python
    # would import sitecustomize or modules in the working directory, and these could start a thread.
    return [sys.executable, "-I", "-S", __file__, action]


def _join_descriptors(descriptors):
    return ",".join(map(str, descriptors))


def _split_descriptors(descriptors):
    return [int(text) for text in descriptors.split(",") if text]


def _ask(action, descriptors=()):
    """Starts this file as a program in a new process, which runs an action; see `_main`. Returns the
    descriptors that the new process sends.

    Raises:
      OSError: the action failed.
    """
    # The import is here because the program finds only modules of the standard library.
    from bertlib.system import child_processes

    parent_end, child_end = socket.socketpair()
    with parent_end:
        with child_end:
            process = subprocess.Popen(
                [*_program(action), _join_descriptors(descriptors), str(child_end.fileno())],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[*descriptors, child_end.fileno()], **child_processes.DETACHED)
        try:
            parent_end.settimeout(_TIMEOUT_SECONDS)
            reply, received, _, _ = socket.recv_fds(parent_end, 4096, _MAX_DESCRIPTORS,
                                                    socket.MSG_CMSG_CLOEXEC)
        finally:
            process.kill()
            process.wait()
    if not received:
        raise OSError(*json.loads(reply or b'["the interpreter ended without an answer"]'))
    return received


# --- The program -----------------------------------------------------------------------------------------


def _main(action, descriptors, *arguments):
    """Runs an action of this program.

    Args:
      action: "create" creates a namespace, and "listen" opens a socket in a namespace. Both send descriptors
        through a socket. "enter" moves this process into a namespace, and then replaces this process by a
        command.
      descriptors: str, the descriptors of the namespace; empty for "create".
      *arguments: for "enter", the command; for the other actions, the descriptor of the socket to which the
        program sends.
    """
    if action == "enter":
        _enter(_split_descriptors(descriptors))
        _execute(arguments)
    with socket.socket(fileno=int(arguments[0])) as reply_socket:
        try:
            created = _create() if action == "create" else [_listen(_split_descriptors(descriptors))]
            socket.send_fds(reply_socket, [b"[]"], created)
        except OSError as error:
            reason = ": ".join(str(part) for part in (error.filename, error.strerror) if part)
            reply_socket.sendall(json.dumps([error.errno, reason]).encode())


def _create():
    """Moves this process into a new network namespace; returns the descriptors for `_enter`.

    If the user has the right to create a network namespace, the function creates only a network namespace.
    Usually only root has this right. For a user without this right, the function also creates a user
    namespace, in which the process keeps its user and group. If root does not have the right, the function
    raises a PermissionError, because in a user namespace, root would lose the access to the files of other
    users.
    """
    user, group = os.geteuid(), os.getegid()
    kinds = ["net"]
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
        kinds = ["user", "net"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        interface = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack(_INTERFACE, b"lo", 0))
        flags = struct.unpack(_INTERFACE, interface)[1] | _IS_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack(_INTERFACE, b"lo", flags))
    return [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds]


def _enter(descriptors):
    """Moves this process into a namespace, and closes `descriptors`, which `_create` returned."""
    for descriptor in descriptors:
        _system_call("setns", descriptor, 0)
        os.close(descriptor)


def _listen(descriptors):
    """Moves this process into a namespace, and returns the descriptor of a socket that listens there."""
    _enter(descriptors)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener.detach()


def _execute(command):
    # The Python interpreter ignores these signals, and a command inherits ignored signals. This loop restores
    # the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


def _system_call(name, *arguments):
    """Calls a function of the C library.

    Raises:
      OSError: the call failed, or this system does not have the function.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, f"this system has no {name}")
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
