"""Starts the replicas of a run on this machine, and waits for their end. This module does not import
TensorFlow.

A replica is a separate process that runs the same command. The environment variable BERT_REPLICA describes
the replica; see `replica_group`. GPUs and CPU cores are divided among the replicas. Replica 0 uses the stdin,
stdout and stderr of the launcher. The launcher forwards SIGTERM, SIGHUP and Ctrl-C to the replicas. When a
replica fails, the other replicas end by themselves. The launcher kills replicas that do not end by
themselves.
"""

import collections
import contextlib
import dataclasses
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time

from absl import logging

from bertlib.system import (
    child_processes,
    gpu_libraries,
    network_namespace,
    replica_group,
    replica_meeting,
    terminal,
    workers,
)
from bertlib.system.child_processes import Outcome

_POLL_SECONDS = 0.05
# Number of lines of a replica's log that are shown after its failure.
_LOG_LINES = 20


@dataclasses.dataclass(frozen=True)
class Plan:
    """Describes the replicas to start on this machine.

    Attributes:
      local_count: number of replicas on this machine. Each other machine has the same number.
      timeout: seconds within which all replicas must end after one replica has failed.
      max_restarts: largest number of restarts of all replicas after failures.
      cluster: a `cluster.Cluster` of several machines; None for this machine alone.
      patience: number of seconds that the launcher waits for the end of the other replicas after one replica
        has failed. After this time, the replicas that still run get SIGKILL. If the failed replica named
        another replica as the cause, the named replica gets SIGKILL after a third of this time.
      afterwards: sentence that is added to a message about a replica that was killed or lost.
      command: the command line, the interpreter first.
      namespace: the `network_namespace.Namespace` in which replicas run; None for the namespace of this
        process. It must be None if the run has several machines.
    """

    local_count: int
    timeout: float
    max_restarts: int = 0
    cluster: object = None
    patience: float = 15.0
    afterwards: str = ""
    command: tuple = dataclasses.field(default_factory=lambda: (sys.executable, *sys.orig_argv[1:]))
    namespace: object = None


# --- GPUs and cores of this machine ----------------------------------------------------------------------


def count_here(num_replicas, environment=os.environ):
    """Returns the number of replicas on this machine.

    Args:
      num_replicas: the value of --num_replicas; 0 for one replica on each GPU that TensorFlow can use. If
        there is no such GPU, 0 means one replica on the CPU.

    Raises:
      ValueError: the machine has GPUs, but fewer than `num_replicas`.
    """
    gpus = gpu_libraries.visible_gpus(environment)
    if gpus and num_replicas > len(gpus):
        value = environment.get("CUDA_VISIBLE_DEVICES")
        visible = "" if value is None else f" that CUDA_VISIBLE_DEVICES={value} shows"
        raise ValueError(f"--num_replicas={num_replicas} needs {num_replicas} GPUs, but this machine has "
                         f"only {len(gpus)}{visible}. Pass --num_replicas={len(gpus)}, or --num_replicas=0 "
                         "to use each GPU once. To use the CPU instead, set CUDA_VISIBLE_DEVICES to an empty "
                         "value.")
    if num_replicas == 0 and gpus and gpu_libraries.missing_libraries():
        # TensorFlow cannot use the GPUs. If one replica for each GPU were started, all of them would run on
        # the CPU. So only one replica is started.
        return 1
    return num_replicas or max(1, len(gpus))


# --- The replicas ----------------------------------------------------------------------------------------


class _Replica(child_processes.Child):
    """Describes the process of a replica on this machine.

    Attributes:
      index: index among all replicas of the run.
      log: file of the replica's log; None for replica 0.
      ended_here: whether the launcher ended the process.
    """

    def __init__(self, index, log, command, environment, **options):
        # The process itself notices the end of the launcher; see `replica_group`.
        super().__init__(command, environment, ends_with_caller=False, **options)
        self.index, self.log, self.ended_here = index, log, False
        self._kills_at = math.inf

    def __str__(self):
        return f"replica {self.index} (process {self.process.pid})"

    @property
    def has_failed(self):
        """Returns whether the process, which has ended, had an exit code other than 0."""
        return self.outcome.exit_code != 0

    @property
    def was_asked(self):
        """Returns whether the process was ended by SIGTERM, SIGHUP or SIGINT, which the launcher only
        forwards."""
        return self.outcome.outcome == "stopped"

    @property
    def is_at_fault(self):
        """Returns whether the process failed by itself. A failure does not count if it was caused by a
        request from outside (see `was_asked`), by another replica or by the launcher."""
        return self.has_failed and not self.was_asked and (
            self.outcome.replica == self.index if self.outcome.message else not self.ended_here)

    def limit(self, kills_at):
        """Sets the time at which the process gets SIGKILL. An earlier time that was set before is kept."""
        self._kills_at = min(self._kills_at, kills_at)

    def kill_if_late(self, now):
        """Kills the process if the time of `limit` is reached."""
        if now >= self._kills_at:
            self.ended_here = True
            self.process.kill()


def _start(plan, attempt, listener, key, directory):
    """Starts the replicas of this machine; yields a `_Replica` for each."""
    place = plan.cluster
    command = plan.namespace.wrap_command(plan.command) if plan.namespace else plan.command
    first, machines = (place.index * plan.local_count, len(place.addresses)) if place else (0, 1)
    gpus = gpu_libraries.visible_gpus()
    environment = {**os.environ, **(workers.share_of_cores(plan.local_count) if plan.local_count > 1 else {})}
    for number in range(plan.local_count):
        index = first + number
        log = os.path.join(directory, f"log-{index}") if index else None
        spec = {"index": index, "count": plan.local_count * machines, "local_index": number,
                "local_count": plan.local_count, "host": place.host if place else "127.0.0.1",
                "coordinator": place.coordinator if place else listener.getsockname(),
                "listener": None if index else listener.fileno(), "key": key, "timeout": plan.timeout,
                "launcher": os.getpid(), "log": log, "attempt": attempt}
        own = {"CUDA_VISIBLE_DEVICES": gpus[number]} if gpus else {}
        own[replica_group.VARIABLE] = json.dumps(spec)
        with open(log, "ab") if log else contextlib.nullcontext() as output:
            yield _Replica(index, log, command, {**environment, **own}, stdout=output, stderr=output,
                           stdin=subprocess.DEVNULL if index else None,
                           pass_fds=[] if index else [listener.fileno()])


def _wait(plan, replicas, signals):
    """Waits until all replicas have ended. Until then, forwards signals, and ends replicas that do not end
    in time."""
    ended_replicas = set()
    while running_replicas := [replica for replica in replicas if replica.runs()]:
        now = time.monotonic()
        if signals.forward(running_replicas):
            for replica in running_replicas:
                replica.limit(now + plan.timeout)
        for replica in set(replicas) - set(running_replicas) - ended_replicas:
            ended_replicas.add(replica)
            _limit_others(plan, replica, running_replicas, now, signals)
        for replica in running_replicas:
            replica.kill_if_late(now)
        time.sleep(_POLL_SECONDS)


def _limit_others(plan, ended_replica, running_replicas, now, signals):
    """Sets the times at which the launcher ends the replicas that still run (`running_replicas`). Call
    this function when a replica (`ended_replica`) has ended."""
    for replica in running_replicas:
        if ended_replica.was_asked or ended_replica.index == 0 and not ended_replica.has_failed:
            # There are two cases. If a signal asked the replicas to end (`was_asked`), replica 0 may need the
            # time to save a checkpoint. If replica 0 has ended with success, the other replicas have nothing
            # left to do, so SIGKILL does no harm.
            replica.limit(now + plan.timeout)
        elif ended_replica.has_failed and not signals:
            is_named = ended_replica.outcome.replica == replica.index
            replica.limit(now + (plan.patience / 3 if is_named else plan.patience))


# --- The result of a run ---------------------------------------------------------------------------------


def _end_of(replicas, signals, afterwards):
    """Returns the `Outcome` of a run whose replicas have all ended."""
    failed_replicas = sorted((replica for replica in replicas if replica.has_failed),
                             key=lambda replica: replica.end_time)
    if not failed_replicas:
        return replicas[0].outcome
    faults = [replica for replica in failed_replicas if replica.is_at_fault]
    if faults:
        causes = [replica.outcome.replica for replica in failed_replicas]
        # If several replicas are at fault, choose the replica that is named most often as the cause. Among
        # replicas that are named equally often, choose the replica that ended first.
        fault = max(faults, key=lambda replica: causes.count(replica.index))
        return _fault(fault, failed_replicas, afterwards)
    stopped_replicas = [replica for replica in failed_replicas if replica.was_asked]
    if stopped_replicas or signals:
        # The run ends with the message of one replica. The message of replica 0 is the best one: replica 0
        # saves the checkpoints, so its message says which results are kept. The sorting puts the replicas
        # that have reported an outcome first, and among them the replica with the lowest index.
        stopped_replicas.sort(key=lambda replica: (replica.outcome.replica is None, replica.index))
        return stopped_replicas[0].outcome if stopped_replicas else child_processes.stopped_by(signals[0])
    return _lost(failed_replicas, afterwards)


def _fault(fault, failed_replicas, afterwards):
    """Returns the `Outcome` of a run that ended because a replica failed.

    Args:
      fault: the `_Replica` that failed by itself.
      failed_replicas: list of all `_Replica`s of this machine that failed for any reason.
      afterwards: a sentence for the end of the message, or "".
    """
    message = fault.outcome.message
    if not message:
        return Outcome("failed", max(1, fault.process.returncode),
                       f"{_in_words(fault)} {afterwards}".rstrip(), replica=fault.index)
    other_messages = [replica.outcome.message for replica in failed_replicas if replica is not fault]
    # The message does not name the replica in two cases: it is replica 0, or another replica has the same
    # message.
    if fault.index and message not in other_messages:
        message = f"replica {fault.index}: {message}"
    return fault.outcome._replace(message=message)


def _in_words(replica):
    code, more = replica.process.returncode, "."
    if code >= 0:
        more = f" and without a message{'; the end of its log is above' if replica.log else ''}."
    elif code == -signal.SIGKILL:
        more = ". If nobody killed it, the machine ran out of memory."
    return f"{replica} {child_processes.describe_end(code)}{more}"


def _lost(failed_replicas, afterwards):
    """Returns the `Outcome` of a run in which no replica of this machine failed by itself.

    Args:
      failed_replicas: list of the `_Replica`s of this machine that failed because of another replica, or
        because the launcher killed them.
      afterwards: a sentence for the end of the message, or "".
    """
    message = next((replica.outcome.message for replica in failed_replicas
                    if replica.outcome.message and not replica.ended_here),
                   f"{failed_replicas[0]} did not end when the other replicas ended, so it was killed.")
    return Outcome("failed", 1, f"{message} {afterwards}".rstrip())


def _show_log(replicas):
    """Prints the end of the log of a replica that failed without a message, or whose traceback is only in its
    log. If replica 0 also failed by itself, nothing is printed, because its output was already shown."""
    if any(replica.index == 0 and replica.is_at_fault for replica in replicas):
        return
    for replica in replicas:
        if (replica.is_at_fault and not replica.outcome.known_message and replica.log
                and os.path.exists(replica.log)):
            with open(replica.log, encoding="utf-8", errors="backslashreplace") as file:
                lines = collections.deque(file, maxlen=_LOG_LINES)
            # After `keep_log`, this path is a link to the log in the output directory.
            place = f", {os.readlink(replica.log)}" if os.path.islink(replica.log) else ""
            end = f"The end of the log of {replica}{place}:\n{''.join(lines).rstrip()}"
            print(terminal.printable(end), file=sys.stderr, flush=True)
            return


# --- Launching -------------------------------------------------------------------------------------------


def launch(num_replicas, timeout, max_restarts, machines, open_ports, arguments, log, afterwards=""):
    """Starts the replicas of this machine, and waits until they have ended.

    Args:
      num_replicas: see `count_here`.
      timeout, max_restarts, afterwards: see `Plan`.
      machines: the `cluster.Cluster`, or None.
      open_ports, arguments: see `network_namespace.for_replicas`.
      log: see `run`.

    Returns:
      an `Outcome`; None if this process does the work itself, because it would be the only replica.

    Raises:
      ValueError: the machine has fewer GPUs than `num_replicas`, or the ports cannot be closed although
        `open_ports` is False.
      OSError: see `run`.
    """
    count, several = count_here(num_replicas), machines if machines and len(machines.addresses) > 1 else None
    if count == 1 and several is None:
        return None
    with network_namespace.for_replicas(several, open_ports, arguments, logging.warning) as namespace:
        plan = Plan(count, timeout, max_restarts, several, afterwards=afterwards, namespace=namespace)
        return run(plan, log)


def _run_once(plan, attempt, listener, key, signals):
    """Starts the replicas and waits for their end; returns their `Outcome`."""
    replicas = []
    with tempfile.TemporaryDirectory(prefix="bert-replicas-") as directory:
        try:
            for replica in _start(plan, attempt, listener, key, directory):
                replicas.append(replica)
            _wait(plan, replicas, signals)
        finally:
            for replica in replicas:
                if replica.runs():
                    replica.kill()
        _show_log(replicas)
        return _end_of(replicas, signals, plan.afterwards)


@contextlib.contextmanager
def _listeners(plan):
    """Returns a context manager that listens at the ports of a plan. It yields the socket at which replica 0
    listens. On a machine without replica 0, it yields None.

    Raises:
      OSError: another process already listens at the port, or the replicas cannot meet.
    """
    if plan.cluster:
        host, port = plan.cluster.coordinator
        try:
            listener = replica_meeting.listener(host, port) if plan.cluster.index == 0 else None
        except OSError as error:
            raise OSError(f"This machine cannot listen at port {port}, which TF_CONFIG names "
                          f"({error.strerror}). Another job on this machine may still use the port: end that "
                          "job, or name another port in TF_CONFIG on all machines.") from error
        with listener or contextlib.nullcontext():
            yield listener
        return
    # The replicas of one machine meet at a Unix socket.
    with tempfile.TemporaryDirectory(prefix="bert-replicas-") as directory, \
            socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(os.path.join(directory, "socket"))
        except OSError as error:  # the path of a Unix socket can have at most 107 bytes
            raise OSError(f"The replicas cannot meet in {directory}: {error}. Set the environment variable "
                          "TMPDIR to a local directory with a short path.") from error
        listener.listen(128)
        yield listener


def run(plan, log):
    """Runs the replicas of this machine. After a failure, restarts them if another attempt may succeed.

    Replicas are restarted if a replica was killed, crashed or was lost, or if its outcome is "failed". After
    other errors, such as invalid flags, the replicas are not restarted.

    Args:
      plan: a `Plan`.
      log: function (message) -> None that logs the message.

    Returns:
      an `Outcome`.

    Raises:
      OSError: the port is used by another process, the replicas cannot meet, or no process can be started.
    """
    with _listeners(plan) as listener, child_processes.noted_signals() as signals:
        key = plan.cluster.key if plan.cluster else secrets.token_hex(32)
        if plan.cluster and plan.cluster.index:
            first = plan.cluster.index * plan.local_count
            indices = ", ".join(str(first + number) for number in range(plan.local_count))
            log(f"Starting replica {indices} of {plan.local_count * len(plan.cluster.addresses)}. If the "
                "command has an output directory, the output of these replicas is written to logs in the "
                "folder replicas/ of this directory.")
        attempt = 0
        while True:
            outcome = _run_once(plan, attempt, listener, key, signals)
            if signals or outcome.outcome != "failed" or attempt >= plan.max_restarts:
                return outcome
            attempt += 1
            failure = outcome.message.removesuffix(plan.afterwards).rstrip()
            log(f"{failure} All replicas are started again: {attempt} of --max_restarts={plan.max_restarts}.")
