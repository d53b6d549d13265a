"""Causes faults while a command runs: a full disk, too little memory, too few file descriptors, signals, and
removed directories."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

FAULTS = {
    # Each function returns a dict, `Fault.values`, which describes the fault. Depending on the fault, the
    # dict contains settings of inside.py (such as "limits" and "stdout"), environment variables, a signal, or
    # a change of the output directory.
    "files of at most some bytes": lambda chance: dict(limits={
        # Maximum size in bytes of each file that the command writes. The limit also applies to its log file.
        "RLIMIT_FSIZE": chance.choice([20000, 30000, 60000, 200000])}),
    "little memory": lambda chance: dict(limits={"RLIMIT_AS": int(10**chance.uniform(6.5, 9.3))}),
    "few descriptors": lambda chance: dict(limits={"RLIMIT_NOFILE": chance.randrange(8, 60)}),
    "stdout closed": lambda chance: dict(stdout="closed"),
    "stdout full": lambda chance: dict(stdout="full"),
    "no stdout": lambda chance: dict(stdout="none"),
    "a working directory that is gone": lambda chance: dict(gone=True),
    "no HOME": lambda chance: dict(environment={"HOME": ""}),
    "TMPDIR that is missing": lambda chance: dict(environment={"TMPDIR": "/nowhere"}),
    "locale C": lambda chance: dict(fresh=True, environment={
        "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "SIGTERM": lambda chance: dict(signal="SIGTERM"), "SIGINT": lambda chance: dict(signal="SIGINT"),
    "SIGHUP": lambda chance: dict(signal="SIGHUP"),
    "SIGINT, started anew": lambda chance: dict(signal="SIGINT", fresh=True),
    "output removed": lambda chance: dict(removed=True),
    "a small disk": lambda chance: dict(disk=chance.choice([4, 8, 16, 40, 80, 200]) << 10),
    "partial files on a full device": lambda chance: dict(full=True),
    "a directory that is read-only": lambda chance: dict(read_only=True),
}
if os.geteuid():
    del FAULTS["a small disk"]
else:  # root may write to a read-only directory, so such a directory is no fault for root
    del FAULTS["a directory that is read-only"]
SIGNALS = {"SIGTERM": (143, -signal.SIGTERM), "SIGINT": (130, -signal.SIGINT),
           "SIGHUP": (129, -signal.SIGHUP)}


class Fault:
    """A fault that disturbs one run of a command, such as a full disk or a signal. The methods `before`,
    `during` and `after` cause the fault and clean up."""

    def __init__(self, chance, here, run):
        self.name = chance.choice(sorted(FAULTS))
        self.values = FAULTS[self.name](chance)
        self.ends = SIGNALS.get(self.values.get("signal"), ())
        # The run is a fork of a server process. In the first 0.1 s, the fork may not yet have the arguments
        # and the signal handlers of the run. So the fault occurs later.
        self._moment = 0.1 + chance.uniform(0, 2) ** 2
        if "fresh" in self.values:
            self._moment += chance.uniform(0, 3)
        flag = next(name for name in ("output_dir", "output_file", "output") if name in run.flags)
        output = run.flags[flag]
        self._output = here / output.split(",")[0]
        self._directory = self._output if self._output.suffix == "" else self._output.parent
        self._mounted = False

    def inside(self, here):
        """Returns the argument FAULTS for the command line of inside.py. The argument is a text in JSON."""
        values = {name: self.values[name] for name in ("limits", "stdout") if name in self.values}
        if "gone" in self.values:
            values["gone"] = str(here / "gone")
        return json.dumps(values)

    def before(self):
        if "disk" in self.values and not self._directory.exists():
            self._directory.mkdir()
            self._mounted = not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self.values['disk']}", "tmpfs", str(self._directory)],
                capture_output=True).returncode
        if "read_only" in self.values:
            self._directory.mkdir(exist_ok=True)
            self._directory.chmod(0o555)
        if "full" in self.values and self._output.suffix:
            self._output.parent.mkdir(exist_ok=True)
            os.symlink("/dev/full", f"{self._output}.partial")

    def during(self, pid):
        """If the fault is a signal or the removal of the output directory, waits until the moment of the
        fault or the end of the run, and then causes the fault. Does nothing for all other faults."""
        if "signal" not in self.values and "removed" not in self.values:
            return
        end = time.time() + self._moment
        while time.time() < end and os.path.exists(f"/proc/{pid}"):
            time.sleep(0.005)
        if "signal" in self.values:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, self.values["signal"]))
        else:
            shutil.rmtree(self._directory, ignore_errors=True)

    def after(self):
        if self._mounted:
            subprocess.run(["umount", "-l", str(self._directory)], check=True)
        if "read_only" in self.values:
            self._directory.chmod(0o755)

    @property
    def leaves_no_trace(self):
        """Returns whether the files in the output directory no longer exist after this fault. In this case,
        they cannot be checked."""
        return self._mounted or "removed" in self.values

    def __str__(self):
        details = {name: value for name, value in self.values.items() if name not in ("environment", "fresh")}
        return f"{self.name} {details or ''}" + f" after {self._moment:.2f} s" * bool(
            {"signal", "removed"} & set(self.values))
