"""Runs the commands of a test case in its directory, and contains checks that apply to every command.

A test case has one of three results: the command succeeds, the command refuses its input, or a check raises
the exception `Bad`. This exception names the kind of the error that was found.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

import scripts as running
import tiny

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INSIDE = "benchmarks/attacks/inside.py"
# Memory limit of a run, in bytes. No run needs so much memory. But without a limit, a faulty run could take
# the memory that other programs of the machine need.
MEMORY = 12 << 30
_MESSAGE = re.compile(r"^(?:[\w.]+\.py: (?:error: |interrupted|terminated|stopped)|FATAL Flags parsing)"
                      r"(?P<text>.*)", re.MULTILINE | re.DOTALL)
_NAMES_SOMETHING = re.compile(r"--\w|[\w.-]/|\.\w{2,}|'.+'|memory|no space|descriptor|RAM|TF_CONFIG|standard|"
                              r"[Rr]eplicas differ|no such", re.IGNORECASE)
_CRASH = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|Check failed|Exception ignored|"
                    r"terminate called|core dumped")
# The control characters C0, DEL and C1, except tab and newline. A terminal would not show these characters,
# but act on them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Names of unfinished files and directories.
_UNFINISHED = re.compile(r"\.partial$|^temp-|^\.convert_checkpoint\.|^\.tmp|\.tmp$|\.tempstate|^tmp")
# Matches the names of lock files. A command may leave these files in addition to its output.
_LOCKS = re.compile(r"\.lock$")


class Bad(Exception):
    """A fault that an attack found. `verdict` names its kind in a few words, and `detail` describes it."""

    def __init__(self, verdict, detail=""):
        super().__init__(f"{verdict}: {detail}")
        self.verdict, self.detail = verdict, detail


class Fresh:
    """A script in its own Python process, with the methods of `running.Running`."""

    def __init__(self, arguments, cwd, environment, closes=False):
        """Starts the script. If `closes` is true, the standard output of the script is closed."""
        script, *flags = arguments
        started = [sys.executable, ROOT / script, *flags]
        if closes:
            started = ["sh", "-c", 'exec "$@" >&-', "sh", *started]
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  closed with this object
        self._process = subprocess.Popen(
            started, cwd=cwd, env=running.environment(**environment),
            stdin=subprocess.DEVNULL, stdout=self._files[0], stderr=self._files[1])
        self.pid = self._process.pid

    def read(self, name):
        file = self._files[name == "stderr"]
        return os.pread(file.fileno(), 10**7, 0).decode("utf-8", "backslashreplace")

    def wait(self):
        code = self._process.wait()
        return running.Finished(code, self.read("stdout"), self.read("stderr"))


def cpu_seconds(pid):
    """Returns the CPU seconds that a process and its descendants have used.

    The descendants are counted, because a launcher of replicas itself uses no CPU time while its child
    processes, the replicas, work.
    """
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the process has ended in the meantime
            seconds += sum(map(cpu_seconds, children.read_text().split()))
    return seconds


def watch(run, limit, overtime):
    """Watches a run, and kills it if it needs too many CPU seconds or uses no CPU time for a while.

    The limit is in CPU seconds, because the run takes more wall seconds if other programs use the machine.

    Args:
      run: the run.
      limit: CPU seconds.
      overtime: list to which "still working" or "hang" is appended before the run is killed.

    Returns:
      a function that ends the watch.
    """
    ended = threading.Event()

    def look():
        used, logged, idle = 0, 0, 0
        while not ended.wait(10):
            with contextlib.suppress(OSError):  # the process has ended in the meantime
                before, used = used, cpu_seconds(run.pid)
                idle = idle + 1 if used - before < 0.1 else 0
                logged_before, logged = logged, len(run.read("stderr"))
                if used > limit or idle == 3:
                    overtime.append("still working" if logged > logged_before and not idle else "hang")
                    os.kill(run.pid, signal.SIGKILL)
                    return

    threading.Thread(target=look, daemon=True).start()
    return ended.set


def crash_in(text):
    """Returns the end of a traceback or of an abort message in the output of a command, or None."""
    if not _CRASH.search(text):
        return None
    end = text[_CRASH.search(text).start():].strip().splitlines()
    places = [line.strip() for line in end if str(ROOT) in line and INSIDE not in line]
    return "\n".join([*places[-4:], *end[-4:]])[-1500:]


def judge_message(finished):
    """Judges the error message of a failed run. Returns "message" if it names the cause, such as a flag or a
    file; "vague" if it names no cause; "no message" if the run printed no error message."""
    found = _MESSAGE.search(finished.err)
    if not found:
        return "no message"
    clear = "interrupted" in finished.err or _NAMES_SOMETHING.search(found["text"])
    return "message" if clear else "vague"


def unfinished_in(directory):
    """Returns the sorted paths of unfinished files and directories below a directory."""
    return sorted(os.path.join(folder, name) for folder, names, files in os.walk(directory)
                  for name in (*names, *files) if _UNFINISHED.search(name))


def contents_of(directory):
    """Returns {relative path: hash of the content} of the regular files below a directory, without lock
    files.
    """
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not _LOCKS.search(name):
                found[os.path.relpath(path, directory)] = hashlib.sha1(
                    pathlib.Path(path).read_bytes()).hexdigest()
    return found


class Trial:
    """One test case: writes input files, runs commands, and checks their results.

    Attributes:
      chance: the `random.Random` of the case.
      here: pathlib.Path of its directory, in which its commands run.
      world: the `world.World` of trained models.
      commands: list of shell commands with which a reader can repeat the case. It grows with each command.
      notes: descriptions of the actions, for the report.
      command: the script that the case tests.
      refused: whether a command ended with an allowed error.
      memory: dict that the cases of a worker share.
    """

    def __init__(self, servers, world, chance, here, limit, memory):
        self.chance, self.here, self.world, self.memory = chance, here, world, memory
        self.command, self.refused = "", False
        self.commands, self.notes = [f"cd {shlex.quote(str(here))}"], []
        self._servers, self._limit = servers, limit
        self._read_only = {}

    def note(self, text):
        self.notes.append(text)

    # --- Files

    def write(self, name, content):
        """Writes an input, a str or bytes, and returns its path.

        The file must be unchanged when the case ends.
        """
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        path.write_bytes(content)
        self._read_only[path] = content
        return path

    def check_inputs(self):
        """Raises `Bad` if a command changed one of its inputs."""
        for path, content in self._read_only.items():
            if not path.is_file() or path.read_bytes() != content:
                raise Bad("input lost or changed", str(path))

    # --- Commands

    def start(self, script, *arguments, server=0, stdout=None, limits=None, environment=None, **flags):
        """Starts a command, and does not wait for its end. `finish` waits for the end.

        There are two servers, and each server runs one command at a time. So two commands can run at the same
        time.

        Args:
          server: 0 or 1, the number of the server that starts the command.
          other arguments: see `run`.

        Returns:
          an object that describes the running command. Pass it to `finish`.
        """
        environment = environment or {}
        self.command = script
        line = [*arguments, *tiny.flags(**{name: value for name, value in flags.items()
                                           if value is not None})]
        inside = json.dumps({"limits": {"RLIMIT_AS": MEMORY, **(limits or {})},
                             **({"stdout": stdout} if stdout in ("full", "closed") else {})})
        shown = [f"{name}={shlex.quote(value):.300}" for name, value in environment.items()]
        self.commands.append(" ".join([*shown, "python", str(ROOT / script), shlex.join(map(str, line)),
                                       {"none": ">&-", "full": ">/dev/full", "closed": "| true"}.get(
                                           stdout, "")]).strip())
        # All processes of a server have a standard output. So a command without a standard output runs in a
        # new process.
        if stdout == "none":
            started = Fresh([INSIDE, inside, str(ROOT / script), *line], self.here, environment, closes=True)
        else:
            started = self._servers[server].start(INSIDE, inside, str(ROOT / script), *line, cwd=self.here,
                                                  **environment)
        overtime = []
        return script, started, watch(started, self._limit, overtime), overtime, stdout

    def finish(self, started):
        """Waits for a command, and returns its `Finished`.

        Raises:
          Bad: the command crashed, hung, failed without a clear message, or wrote control characters.
        """
        _, process, stop, overtime, _ = started
        finished = process.wait()
        stop()
        if overtime:
            raise Bad(overtime[0], finished.err[-700:])
        if crash := crash_in(finished.err):
            raise Bad("traceback", crash)
        if finished.code < 0:
            raise Bad("abort by signal", f"{signal.Signals(-finished.code).name}\n{finished.err[-700:]}")
        if control := _CONTROL.search(finished.err):
            place = control.start()
            raise Bad("escape sequence", repr(finished.err[max(0, place - 150):place + 60]))
        if finished.code:
            verdict = judge_message(finished)
            said = finished.err[finished.err.rfind(".py: error: "):].strip()
            # A message has one line. Only two kinds of messages may have more: those with indented details,
            # and those that list the bad lines of a file.
            if verdict == "message" and re.search(r"\n\S", said) and not re.search(
                    r"\n  \S|lines cannot be used", said) and "FATAL" not in finished.err:
                verdict = "message of several lines"
            if verdict != "message":
                raise Bad(verdict, f"exit code {finished.code}\n{finished.err[-700:]}")
        return finished

    def finish_all(self, started):
        """Waits for commands that run at the same time, and returns the `Finished` of each.

        Raises:
          Bad: see `finish`. If several commands have a fault, the fault of the first of them is raised.
        """
        found, bad = [], []
        for one in started:
            try:
                found.append(self.finish(one))
            except Bad as error:
                bad.append(error)
        if bad:
            raise bad[0]
        return found

    def kill(self, started, moment):
        """Waits `moment` seconds, and then kills a command, unless the command has already ended. Returns
        the exit code of the command."""
        _, process, stop, _, _ = started
        end = time.time() + moment
        while time.time() < end and os.path.exists(f"/proc/{process.pid}"):
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        self.commands[-1] += f"  # killed after {moment:.2f} s"
        code = process.wait().code
        stop()
        return code

    def run(self, script, *arguments, **options):
        """Runs a command, and returns its `Finished`.

        Args:
          script: name of a file in the root of the repository.
          arguments: arguments that are passed unchanged.
          options: the flags of the command. A flag with the value None is left out. Three of the options are
            not flags: stdout is "none", "full" or "closed"; limits is {resource limit: value}; environment is
            {name of an environment variable: value}.
        """
        return self.finish(self.start(script, *arguments, **options))

    def expect(self, finished, must):
        """Returns whether a command succeeded. Raises `Bad` if `must` does not allow this result.

        Args:
          finished: the `Finished` of the command.
          must: "right" if it must have succeeded, "refused" if it must have failed, or "either".
        """
        if finished.code and must == "right":
            raise Bad("refused though valid", finished.err[-700:])
        if not finished.code and must == "refused":
            raise Bad("accepted", finished.err[-700:])
        self.refused |= bool(finished.code)
        return not finished.code
