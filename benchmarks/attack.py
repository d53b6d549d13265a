"""Attacks every command with spoiled flags and files, with faults around it, and with kills.

    python benchmarks/attack.py [--seed=0] [--count=300 | --minutes=60] [--kinds=flags,files,faults,kills]

Each case is a valid run on a tiny model with one thing spoiled: benchmarks/attacks. A case is numbered, and
its number and the seed decide what it is: --only=N repeats one, --keep leaves its directory. The counts and
each bad case are printed; exit code 1 says that there are bad ones. What is fine: one message that names a
flag or a file, with an exit code that is not 0; or success with output that can be read. Files that a command
only reads must stay as they are.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "tests")]

import bertlib.commands  # noqa: E402, F401, I001  after the path, and first: it loads TensorFlow quietly
from attacks import bad_inputs, faults, kills, runs  # noqa: E402
import scripts as running  # noqa: E402

INSIDE = "benchmarks/attacks/inside.py"
KINDS = {"flags": 5, "files": 6, "faults": 3, "kills": 1}
DEVICES = {"full": 7, "null": 3}  # /dev/NAME: its minor number
# What TensorFlow's threads do without memory, no command can prevent.
_NO_MEMORY = re.compile(r"terminate called|bad_alloc|Fatal Python error: (?:Aborted|Segmentation)|alloc|"
                        r"failed to map")
FINE = ("no memory, in C++", "message", "success", "ended by the signal", "still working")
# More than any of the runs needs, less than would hurt others on the machine.
MEMORY = 12 << 30
_MESSAGE = re.compile(r"^(?:[\w.]+\.py: (?:error: |interrupted|terminated|stopped)|FATAL Flags parsing)"
                      r"(?P<text>.*)", re.MULTILINE | re.DOTALL)
_NAMES_SOMETHING = re.compile(r"--\w|[\w.-]/|\.\w{2,}|'.+'|memory|no space|descriptor|RAM", re.IGNORECASE)
_CRASH = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|Check failed|Exception ignored|"
                    r"terminate called|core dumped")

Case = collections.namedtuple("Case", "number done verdict detail command")


class Attack:
    """A worker: a server of runs, and what cases share."""

    def __init__(self, arguments, directory):
        self._arguments = arguments
        self._directory = directory
        self._scripts = running.Scripts()
        self._template = directory / "template"
        self._flags = {}
        self._undisturbed = {}

    def write_template(self):
        runs.write_template(self._template, self._scripts)
        if os.geteuid():
            for name in DEVICES:
                (self._template / name).symlink_to(f"/dev/{name}")
        os.symlink("text.txt", self._template / "link.txt")
        os.link(self._template / "text.txt", self._template / "hard.txt")

    def close(self):
        self._scripts.__exit__()

    def case(self, number):
        """Runs a case; returns the `Case`."""
        chance = random.Random(f"{self._arguments.seed}/{number}")
        above = self._directory / str(number)
        here = above / "here"
        shutil.copytree(self._template, here, symlinks=True)
        os.remove(here / "hard.txt")
        os.link(here / "text.txt", here / "hard.txt")
        if not os.geteuid():  # devices of our own, lest a command replace the machine's
            for name, minor in DEVICES.items():
                os.mknod(here / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        kinds = self._arguments.kinds.split(",")
        kind = chance.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        try:
            if kind == "kills":
                return self._kill(number, chance, here)
            return self._spoil(number, kind, chance, here)
        finally:
            if not self._arguments.keep:
                shutil.rmtree(above, ignore_errors=True)

    def _kill(self, number, chance, here):
        done, finished, wrong, arguments = kills.attack(self._scripts, chance, here, self._undisturbed,
                                                        lambda run: self._watch(run, []))
        detail = wrong and f"{wrong}\n{finished.err[-700:]}"
        verdict = "success"
        if wrong:
            verdict = "killed, other bits" if "tensors differ" in wrong else "killed, fails"
        return Case(number, "kills: " + done, verdict, detail,
                    shlex.join(arguments))

    def _watch(self, run, overtime):
        """Kills a run that takes too long, and appends "still working" or "hang" to a list; returns what ends
        the watch.

        Seconds are of CPU, since others may use the machine; a run that takes none for a while hangs.
        """
        ended = threading.Event()

        def look():
            used, logged, idle = 0, 0, 0
            while not ended.wait(10):
                with contextlib.suppress(OSError):  # it ended in between
                    before, used = used, cpu_seconds(run.pid)
                    idle = idle + 1 if used - before < 0.1 else 0
                    logged_before, logged = logged, len(run.read("stderr"))
                    if used > self._arguments.limit or idle == 3:
                        overtime.append("still working" if logged > logged_before and not idle else "hang")
                        os.kill(run.pid, signal.SIGKILL)
                        return

        threading.Thread(target=look, daemon=True).start()
        return ended.set

    def _spoil(self, number, kind, chance, here):
        name = chance.choice(sorted(runs.RUNS))
        run, fault, changes, must = runs.RUNS[name], None, {}, None
        if kind == "flags":
            changes = self._change_flags(chance, run)
            done = f"{name}: {changes!r:.300}"
        elif kind == "files":
            done, changes, must = bad_inputs.mutation(chance, here, run)
            done = f"{name}: {done}"
        else:
            fault = faults.Fault(chance, here, run)
            done = f"{name}: {fault}"
        before = snapshot(here.parent)
        flags = runs.arguments({**run.flags, **changes})
        inside = {"limits": {"RLIMIT_AS": MEMORY}}
        if fault:
            fault.before()
            inside = {**inside, **json.loads(fault.inside(here))}
            if "gone" in inside:
                flags = runs.arguments({flag: absolute(value, here) for flag, value in run.flags.items()})
        overtime = []
        environment = fault.values.get("environment", {}) if fault else {}
        start = self._start_fresh if fault and "fresh" in fault.values else self._scripts.start
        run_now = start(INSIDE, json.dumps(inside), str(ROOT / run.script), *flags, cwd=here, **environment)
        stop = self._watch(run_now, overtime)
        if fault:
            fault.during(run_now.pid)
        finished = run_now.wait()
        stop()
        verdict, detail = overtime[0] if overtime else None, None
        if not verdict:
            verdict, detail = self._judge(run, here, finished, fault, kind, must, before)
        if fault:
            fault.after()
        command = f"cd {shlex.quote(str(here))} && python {ROOT / run.script} {shlex.join(flags)}"
        return Case(number, f"{kind}: {done}", verdict, detail or finished.err[-700:], command)

    def _start_fresh(self, *arguments, cwd, **environment):
        return Fresh(arguments, cwd, environment)

    def _change_flags(self, chance, run):
        if run.script not in self._flags:
            self._flags[run.script] = bad_inputs.flags_of(self._scripts, run.script, self._directory)
        possible = self._flags[run.script]
        names = chance.sample(sorted(possible), chance.choice([1, 1, 1, 2]))
        return {name: chance.choice(possible[name]) for name in names}

    def _judge(self, run, here, finished, fault, kind, must, before):
        """Returns (verdict, detail or None)."""
        if fault and "RLIMIT_AS" in fault.values.get("limits", ()) and _NO_MEMORY.search(finished.err):
            return "no memory, in C++", None
        if _CRASH.search(finished.err):
            end = finished.err[_CRASH.search(finished.err).start():].strip().splitlines()
            places = [line.strip() for line in end if str(ROOT) in line and INSIDE not in line]
            return "traceback", "\n".join([*places[-4:], *end[-4:]])[-1500:]
        if finished.code < 0 and not (fault and finished.code in fault.ends):
            return "abort by signal", f"{signal.Signals(-finished.code).name}\n{finished.err[-700:]}"
        gone = fault and fault.leaves_no_trace
        after = {} if gone else snapshot(here.parent)
        lost = [path for path, content in before.items()
                if not gone and after.get(path) != content and pathlib.Path(path).parts[1] not in runs.OWN
                and not path.endswith(tuple(DEVICES))]
        if lost:
            return "input lost or changed", f"{lost[:5]}\n{finished.err[-700:]}"
        wrong = [problem for path, content in after.items() if content and before.get(path) != content
                 and (problem := runs.problem_of(here.parent / path))]
        if wrong:
            return "output half written", f"{wrong[:5]}\n{finished.err[-700:]}"
        if fault and finished.code in fault.ends:
            return "ended by the signal", None
        if finished.code:
            return self._judge_message(finished, must)
        left = [path for path in after if path.endswith(".partial") and path not in before]
        missing = [pattern for pattern in run.outputs if not list(here.glob(pattern))]
        if must == "refused" or kind != "flags" and not gone and (missing or left):
            return "silent", f"exit code 0; missing {missing}, left {left}\n{finished.err[-700:]}"
        return "success", None

    def _judge_message(self, finished, must):
        found = _MESSAGE.search(finished.err)
        if must == "valid":
            return "refused though valid", None
        if not found:
            return "no message", f"exit code {finished.code}\n{finished.err[-700:]}"
        clear = "interrupted" in finished.err or _NAMES_SOMETHING.search(found["text"])
        return "message" if clear else "vague", None


class Fresh:
    """A script in an interpreter of its own, like `running.Running`."""

    def __init__(self, arguments, cwd, environment):
        script, *flags = arguments
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  closed with this object
        self._process = subprocess.Popen(
            [sys.executable, ROOT / script, *flags], cwd=cwd, env=running.environment(**environment),
            stdin=subprocess.DEVNULL, stdout=self._files[0], stderr=self._files[1])
        self.pid = self._process.pid

    def read(self, name):
        file = self._files[name == "stderr"]
        return os.pread(file.fileno(), 10**7, 0).decode("utf-8", "backslashreplace")

    def wait(self):
        code = self._process.wait()
        return running.Finished(code, self.read("stdout"), self.read("stderr"))


def absolute(value, here):
    """A flag's value with the paths in it absolute."""
    is_path = value == "output" or isinstance(value, str) and ("." in value or os.path.exists(here / value))
    if is_path:
        return ",".join(os.path.join(here, part) for part in value.split(","))
    return value


def cpu_seconds(pid):
    """Returns what a process has used so far, with the children it waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def snapshot(directory):
    """{relative path: hash of the content} of everything in a directory; None for what is no file."""
    found = {}
    for folder, names, files in os.walk(directory):
        for name in names + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, directory)] = hashlib.sha1(
                pathlib.Path(path).read_bytes()).digest() if os.path.isfile(path) else None
    return found


def numbers(arguments):
    """Yields the numbers of the cases to run."""
    if arguments.only:
        yield from map(int, arguments.only.split(","))
        return
    end = time.time() + 60 * arguments.minutes if arguments.minutes else None
    for number in itertools.count() if end else range(arguments.count):
        if end and time.time() > end:
            return
        yield number


def report(case, verbose):
    if case.verdict not in FINE or verbose:
        print(f"\n--- case {case.number}: {case.verdict.upper()}: {case.done}\n{case.command}\n{case.detail}",
              flush=True)


def main():
    """Prints bad cases when they are found, and the counts at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300, help="cases")
    parser.add_argument("--minutes", type=float, help="instead of a count")
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between")
    parser.add_argument("--only", help="numbers of the cases to repeat, with commas between")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--limit", type=float, default=60, help="seconds of CPU that a run may take")
    parser.add_argument("--keep", action="store_true", help="leave the directories")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and then inherited
    directory = pathlib.Path(tempfile.mkdtemp(prefix="attack."))
    attacks = [Attack(arguments, directory) for _ in range(arguments.jobs)]
    attacks[0].write_template()
    counts, waiting, began = collections.Counter(), numbers(arguments), time.time()
    lock = threading.Lock()

    def work(attack):
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                return
            case = attack.case(number)
            with lock:
                counts[case.verdict] += 1
                report(case, arguments.only)

    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(work, attacks))
    finally:
        for attack in attacks:
            attack.close()
        if arguments.keep:
            print(f"Cases: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{sum(counts.values())} cases of seed {arguments.seed} in {time.time() - began:.0f} s:")
    for verdict, count in counts.most_common():
        print(f"  {count:5} {verdict}{'' if verdict in FINE else '  <-- bad'}")
    sys.exit(any(verdict not in FINE for verdict in counts))


if __name__ == "__main__":
    main()
