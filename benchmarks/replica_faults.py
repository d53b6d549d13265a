"""Kills, stops, cuts off and terminates replicas at random moments, and compares the results.

    python benchmarks/replica_faults.py [--faults=50] [--seed=0] [--fresh] [--machines]
      [--results=NAME] [any flag of run_classifier.py]

After each fault, all processes must end within --replica_timeout. One message must name the replica and the
reason, and no file may be incomplete. Then the training continues. In about half of the runs, --max_restarts
continues it; in the other runs, the script starts the same command again. The training must end with the
weights of an undisturbed run, bit for bit, and with the same results. The script needs Linux and root.

With --machines, each replica has its own launcher, as on several machines that TF_CONFIG names.

Replicas are forks of this process, which has loaded TensorFlow. With --fresh, they are new Python processes.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import bertlib.commands  # noqa: E402, F401  graph mode

import results  # noqa: E402

from bertlib.system import (  # noqa: E402
    child_processes,
    network_namespace,
    replica_meeting,  # noqa: E402
)
from bertlib.tasks import estimator_setup  # noqa: E402, F401  the modules that all commands load

# 16 steps.
RECIPE = ["--task_name=MRPC", "--do_train=true", "--train_batch_size=12", "--save_checkpoints_steps=5",
          "--log_steps=1", "--max_seq_length=32", "--num_train_epochs=0.32"]
ALL_PHASES = ["--do_eval=true", "--do_predict=true"]
# After a fault, a run must end within a time that is computed from the timeout. This number of seconds is
# added to that time, because the machine may be slow.
SLACK = 6.0
LONGEST = 240.0
# {name of the moment of a fault: (regular expression, number of seconds)}. Before the fault, the log must
# contain a text that matches the regular expression. The fault occurs at most this number of seconds later.
MOMENTS = {"start": (r"", 1.0), "meeting": (r"", 4.0), "building": (r"Training in|Resuming", 4.0),
           "first step": (r"Devices: ", 1.0), "steps": (r" step {step}/", 0.02),
           "saving": (r" step {step}/", 0),
           "evaluation": (r"Weights for evaluating", 4.0), "prediction": (r"Weights for predicting", 4.0),
           "last step": (r" step {last}/", 0.3)}
FAULTS = ["kill", "stop", "cut", "silence", "terminate", "kill launcher", "terminate launcher"]
# Files that are not compared, because they contain times or depend on the number of repeated steps.
OF_A_RUN = re.compile(r"events\.out|graph\.pbtxt|run\.json|checkpoint$|\.meta$|replicas/|\.lock|lock$")
CHECKPOINT = re.compile(r"model\.ckpt-(?!16\.)\d+\.(index|data-00000-of-00001)$")
_libc = ctypes.CDLL(None, use_errno=True)


# --- Processes -------------------------------------------------------------------------------------------


class Forked:
    """A child process, made with `os.fork`. It has the methods of `subprocess.Popen` that `child_processes`
    uses."""

    def __init__(self, command, env, stdout, stderr=None, stdin=None, start_new_session=True, pass_fds=()):
        both = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        self.pid, self.returncode = os.fork(), None
        if not self.pid:
            for number in both:
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            for number, file in ((1, stdout), (2, stderr)):
                if file is not None:
                    os.dup2(file.fileno(), number)
            os.environ.clear()
            os.environ.update(env)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
            run_script(enter_namespace(command)[1:])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    def poll(self):
        """Returns the exit code, or None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        """Waits for the end of the process."""
        while self.poll() is None:
            time.sleep(0.01)

    def send_signal(self, number):
        """Sends a signal if the process still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)


def enter_namespace(command):
    """Moves this process into the namespace that is named in a command line from `Namespace.wrap_command`.
    Returns the command line without the part that `wrap_command` added.

    If the command line is not from `wrap_command`, it is returned unchanged, and the process stays in its
    current namespace.
    """
    program = network_namespace._program("enter")
    if list(command[:len(program)]) != program:
        return command
    process, *inner = command[len(program):]
    network_namespace._enter(process)
    return inner


def run_script(command):
    """Runs a script in this process, and then ends the process with the exit code of the script."""
    sys.argv[:], sys.orig_argv[:] = command, [sys.executable, *command]
    code = 0
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Machines:
    """Several launchers on this machine. Each launcher starts one replica, as if it were on its own machine.

    A caller can use this object like the process of a single launcher: see `poll` and `returncode`.
    """

    def __init__(self, start_one, count):
        with contextlib.ExitStack() as stack:
            ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                     for _ in range(count)]
        workers = [f"127.0.0.1:{port}" for port in ports]
        self.launchers = [start_one({**os.environ, "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})})
            for index in range(count)]
        self.pid = self.launchers[0].pid

    @property
    def returncode(self):
        """Returns None while any launcher runs. After that, returns the exit code of a launcher that failed,
        or 0 if no launcher failed."""
        codes = [launcher.returncode for launcher in self.launchers]
        return None if None in codes else max(codes, key=abs)

    def poll(self):
        """Polls all launchers, and returns `returncode`."""
        for launcher in self.launchers:
            launcher.poll()
        return self.returncode


def start(command, log, fresh, machines=0):
    """Starts a launcher and returns its process. With `machines`, starts this number of launchers and returns
    a `Machines`."""
    open(log, "wb").close()

    def start_one(environment):
        with open(log, "ab") as output:
            if fresh:
                return subprocess.Popen([sys.executable, *command], env=environment, stdout=output,
                                        stderr=output)
            child_processes.subprocess = types.SimpleNamespace(Popen=Forked, DEVNULL=None)
            return Forked([sys.executable, *command], environment, output, output)

    return Machines(start_one, machines) if machines else start_one(dict(os.environ))


def launchers_of(process):
    """Returns the process numbers of the launchers of a run."""
    return [one.pid for one in getattr(process, "launchers", [process])]


def replicas_of(process):
    """Returns the process numbers of the replicas of a run, sorted by the index of the replica."""
    return [pid for launcher in launchers_of(process) for pid in children(launcher)]


def children(pid):
    """Returns the process numbers of the children of a process, in the order of their start."""
    try:
        found = map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [child for child in found if not makes_namespace(child)]
    except OSError:
        return []


def makes_namespace(pid):
    """Returns whether a process is the helper of a launcher that holds the network namespace of the
    replicas."""
    with contextlib.suppress(OSError):
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        return os.path.basename(network_namespace.__file__) in command and "enter" not in command
    return False


def is_replica(pid):
    """Returns whether a child process of a launcher is a replica. This works only for replicas that are new
    Python processes (--fresh)."""
    with contextlib.suppress(OSError):
        return b"BERT_REPLICA=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    return False


def left_over():
    """Returns the ids of the processes that are still alive after their launcher has ended.

    Linux has made them children of this process, because `main` sets PR_SET_CHILD_SUBREAPER.
    """
    found = []
    for pid in children(os.getpid()):
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                found.append(pid)
        except ChildProcessError:
            pass
    return found


# --- Faults ----------------------------------------------------------------------------------------------


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                ("k", ctypes.c_uint)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def sockets(pid):
    """Yields copies of the internet sockets of another process, except for listening sockets. A copy refers
    to the same connection as its original. So if the copy is shut down, the other process loses the
    connection."""
    pidfd = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        number = _libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
        if number < 0:
            continue
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                found = socket.socket(fileno=os.dup(number))
                # Leave out listening sockets: the process inherited them from the launcher.
                inherited = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if found.family in (socket.AF_INET, socket.AF_INET6) and not inherited:
                    yield found
                found.close()
        except OSError:
            pass
        finally:
            os.close(number)
    os.close(pidfd)


def strike(fault, launcher, pids, index):
    """Causes the fault with the name `fault` in the replica pids[index]. The faults "kill launcher" and
    "terminate launcher" hit the process `launcher` instead."""
    if fault == "kill":
        os.kill(pids[index], signal.SIGKILL)
    elif fault == "stop":
        os.kill(pids[index], signal.SIGSTOP)
    elif fault == "terminate":
        os.kill(pids[index], signal.SIGTERM)
    elif fault == "kill launcher":
        os.kill(launcher, signal.SIGKILL)
    elif fault == "terminate launcher":
        os.kill(launcher, signal.SIGTERM)
    elif fault == "cut":
        for found in sockets(pids[index]):
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
    elif fault == "silence":  # all packets to and from this replica are lost
        for pid in pids:
            for found in sockets(pid):
                if pid == pids[index] or _peer_is(found, pids[index]):
                    nothing = _Program(1, ctypes.pointer(_Instruction(0x06, 0, 0, 0)))
                    found.setsockopt(socket.SOL_SOCKET, 26, bytes(nothing))  # SO_ATTACH_FILTER


def _peer_is(found, pid):
    try:
        peer = found.getpeername()[1]
    except OSError:
        return False
    return any(other.getsockname()[1] == peer for other in sockets(pid))


# --- A run -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Case:
    """A test: a fault, the replica that the fault hits, the moment of the fault, and whether
    --max_restarts is set."""

    number: int
    fault: str
    moment: str
    replicas: int
    index: int
    restarts: bool
    step: int
    delay: float


def contents(directory):
    """Returns {path of a file: fingerprint} for a directory. Leaves out files that differ in equal runs."""
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(directory).rglob("*"))
            if path.is_file() and not OF_A_RUN.search(str(path.relative_to(directory)))}


def saves(directory):
    """Returns whether a run is now writing a checkpoint into the directory."""
    try:
        return any("temp" in name for name in os.listdir(directory))
    except OSError:
        return False


class Faults:
    """Runs tests, and counts their results. A test is a `Case`: one fault at one moment of a run."""

    def __init__(self, arguments, flags):
        self.flags, self.fresh, self.timeout = flags, arguments.fresh, arguments.timeout
        self.machines = arguments.machines
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="replica-faults-"))
        self.expected, self.longest = {}, 0.0
        self.hangs = self.different = self.wrong = self.late = 0

    def command(self, case, output, restarts=0):
        phases = [] if case.moment not in ("evaluation", "prediction") else ALL_PHASES
        return [str(ROOT / "run_classifier.py"), *RECIPE, *phases, *self.flags, f"--output_dir={output}",
                f"--num_replicas={1 if self.machines else case.replicas}",
                f"--replica_timeout={self.timeout:g}", f"--max_restarts={restarts}"]

    def start(self, case, output, log, restarts=0):
        """Starts the run of a case. Returns what the function `start` returns: a process or a `Machines`."""
        return start(self.command(case, output, restarts), log, self.fresh, self.machines and case.replicas)

    def finish(self, process, seconds):
        """Waits for a process. Returns whether it ended."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return process.poll() is not None

    def undisturbed(self, case):
        """Returns the contents of the output directory of an undisturbed run."""
        key = case.replicas, case.moment in ("evaluation", "prediction")
        if key not in self.expected:
            output, log = self.directory / f"undisturbed-{key[0]}-{key[1]}", self.directory / "log"
            process = self.start(case, output, log)
            if not self.finish(process, LONGEST) or process.returncode:
                sys.exit(f"the undisturbed run failed:\n{log.read_text()[-3000:]}")
            self.expected[key] = contents(output)
        return self.expected[key]

    def wait_for(self, case, process, log, output):
        """Waits for the moment at which the fault of a test must happen.

        Returns the processes of the replicas, or None if the run ended earlier.
        """
        said, _ = MOMENTS[case.moment]
        said = said.format(step=case.step, last=16)
        while process.poll() is None:
            pids = [pid for pid in replicas_of(process) if not self.fresh or is_replica(pid)]
            there = len(pids) > (case.index if case.moment == "start" else case.replicas - 1)
            if there and (not said or re.search(said, log.read_text(errors="replace"))):
                break
            time.sleep(0.005)
        end = time.monotonic() + 1
        while case.moment == "saving" and not saves(output) and time.monotonic() < end:
            pass
        time.sleep(case.delay)
        pids = replicas_of(process)
        return None if process.poll() is not None or len(pids) <= case.index else pids

    def run(self, case):
        """Runs a case, and prints its result: a line, and a further line for each problem."""
        expected = self.undisturbed(case)
        output, log = self.directory / f"{case.number}", self.directory / f"{case.number}.log"
        process = self.start(case, output, log, 3 * case.restarts)
        pids = self.wait_for(case, process, log, output)
        problems, seconds, message = [], 0.0, ""
        if pids is not None:
            struck = time.monotonic()
            launchers = launchers_of(process)
            strike(case.fault, launchers[case.index % len(launchers)], pids, case.index)
            problems, message = self.after(case, process, log, struck, pids)
            seconds = time.monotonic() - struck
            if process.poll() == 0:
                message = message or "(ended well)"
            elif not problems:
                problems = self.half_written(output, expected)
        else:
            self.late += 1
            message = "(too late)"
            self.finish(process, LONGEST)
        if process.returncode != 0 and not problems:
            again = self.start(case, output, self.directory / "again.log")
            if not self.finish(again, LONGEST) or again.returncode:
                text = (self.directory / "again.log").read_text(errors="replace")
                problems.append(f"the same command failed: {text[-1500:]}")
                for pid in launchers_of(again) if again.poll() is None else []:
                    os.kill(pid, signal.SIGKILL)
        if not problems:
            found = contents(output)
            # The moment of the fault decides which checkpoints the unfinished run saved. So a checkpoint that
            # only one of the two directories contains is not a difference.
            names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name)
                           and not (CHECKPOINT.match(name) and (name in found) != (name in expected)))
            if names:
                self.different += 1
                problems.append(f"different: {', '.join(names)}")
        self.wrong += bool(problems)
        mark = "restarts" if case.restarts else "once"
        print(f"{case.number:3d} {case.fault:18s} {case.index} of {case.replicas} {case.moment:11s} "
              f"{mark:8s} {seconds:5.1f} s  {message[:150]}", flush=True)
        for problem in problems:
            print(f"    WRONG: {problem}", flush=True)
        if problems:
            shutil.copytree(output, f"{output}-wrong", dirs_exist_ok=True) if output.exists() else None
        else:
            shutil.rmtree(output, ignore_errors=True)

    def after(self, case, process, log, struck, pids):
        """Checks the end of a run after its fault. Returns (problems, message of the run)."""
        # If a machine is lost before all machines are connected, the remaining machines wait longer. See
        # cluster.md.
        waits = self.machines and case.moment in ("start", "meeting")
        limit = self.timeout * (1 + replica_meeting.START_TIMEOUTS * waits) + SLACK
        goes_on = case.restarts and case.fault in ("kill", "stop", "cut", "silence")
        problems = []
        while process.poll() is None:
            passed = time.monotonic() - struck
            if "started again" in log.read_text(errors="replace"):
                if passed > LONGEST:
                    problems.append("hangs after a restart")
                    break
            elif passed > limit + (LONGEST if goes_on else 0):
                problems.append(f"hangs: {passed:.0f} s")
                break
            time.sleep(0.05)
        ended = time.monotonic() - struck
        self.longest = max(self.longest, ended if not goes_on else 0)
        while left_over() and time.monotonic() - struck < limit + (ended if goes_on else 0):
            time.sleep(0.05)
        self.longest = max(self.longest, 0 if goes_on else time.monotonic() - struck)
        text = log.read_text(errors="replace")
        rest = left_over()
        if problems or rest:
            self.hangs += 1
            problems += [f"left over: {rest} of {pids}"] if rest else []
            for pid in {*launchers_of(process), *pids, *rest, *replicas_of(process)}:
                stacks(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.finish(process, 5)
            return [*problems, text[-1500:]], ""
        lines = [line for line in text.splitlines() if line.startswith("run_classifier.py: ")]
        restarted = re.findall(r"^[\d:]+ (.*) All replicas are started again", text, re.MULTILINE)
        message = " | ".join([*restarted, *lines])
        return self.check(case, process.returncode, lines, message, text), message

    def check(self, case, code, lines, message, text):
        """Checks the messages and the exit code of a run. Returns a list of the problems (str)."""
        problems = []
        if "Traceback" in text:
            problems.append(f"a traceback: {text[-2500:]}")
        if code == 0:
            return problems
        if case.fault == "kill launcher":
            return problems
        # On several machines, each machine may report the end of its own replica. On one machine, only one
        # message is allowed.
        if not 1 <= len(lines) <= (case.replicas if self.machines else 1):
            problems.append(f"{len(lines)} messages, code {code}: {text[-800:]}")
        if case.fault.startswith("terminate"):
            if code != 143 or "terminated." not in message:
                problems.append(f"exit code {code}: {message}")
            return problems
        named = rf"replica {case.index}\b" if case.fault in ("kill", "stop") else r"replica \d"
        if not re.search(named, message, re.IGNORECASE):
            problems.append(f"not named: {message}")
        if case.restarts:
            problems.append(f"not started again: {message}")
        return problems

    def half_written(self, output, expected):
        """Returns a message for each file whose content differs from the file of the undisturbed run.
        Temporary files do not count."""
        if not output.exists():
            return []
        found = contents(output)
        return [f"half written: {name}" for name in found
                if name in expected and found[name] != expected[name]]


def stacks(pid):
    """Prints the stacks of a process with py-spy. Prints nothing if py-spy is not installed."""
    try:
        done = subprocess.run(["py-spy", "dump", "--pid", str(pid)], capture_output=True, text=True,
                              timeout=20)
        print(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        pass


def cases(count, seed):
    """Yields random cases."""
    chance = random.Random(seed)
    pairs = list(itertools.product(FAULTS, MOMENTS))
    order = []
    for number in range(count):
        if not order:
            order = chance.sample(pairs, len(pairs))
        fault, moment = order.pop()
        replicas = chance.choice([2, 3])
        yield Case(number, fault, moment, replicas, chance.randrange(replicas), chance.random() < 0.5,
                   chance.choice([5, 10]) if moment == "saving" else chance.randrange(1, 16),
                   chance.uniform(0, MOMENTS[moment][1]))


def main():
    """Prints a line for each fault, and the counts. The exit code is 1 if a run did not end as the docstring
    of this module requires."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=12)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--machines", action="store_true", help="start a separate launcher for each replica")
    parser.add_argument("--only", default="", help="run only the faults whose name FAULT@MOMENT, such as "
                        "kill@saving, matches this regular expression")
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    recorder = results.Recorder(arguments.results, {"longest_end": "s", "timeout": "s"})
    _libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    faults, done = Faults(arguments, flags), 0
    for case in cases(arguments.first + arguments.faults, arguments.seed):
        # With --machines, a fault that ends a launcher is never combined with --max_restarts. Otherwise, the
        # launchers of the other machines would wait for a restart of the ended launcher.
        ends = case.fault not in ("kill", "stop", "cut", "silence")
        case = dataclasses.replace(case, restarts=case.restarts and not (arguments.machines and ends))
        if case.number >= arguments.first and re.search(arguments.only, f"{case.fault}@{case.moment}"):
            faults.run(case)
            done += 1
    print(f"{done} faults ({faults.late} too late): {faults.hangs} hangs, {faults.different} ended "
          f"differently, {faults.wrong} with something wrong; the longest end took {faults.longest:.1f} s "
          f"(--replica_timeout={faults.timeout:g})")
    recorder.add(faults=done, too_late=faults.late, hangs=faults.hangs, ended_differently=faults.different,
                 wrong=faults.wrong, longest_end=faults.longest, timeout=faults.timeout)
    recorder.write()
    if not faults.wrong:
        shutil.rmtree(faults.directory)
    sys.exit(bool(faults.wrong))


if __name__ == "__main__":
    main()
