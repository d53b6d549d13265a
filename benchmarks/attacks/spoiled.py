"""Changes one thing in a valid run of a command: a flag, a file, or the surroundings. Also kills trainings.

The modules `runs`, `bad_inputs`, `faults` and `kills` contain the runs and the changes.
"""

import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import stat

from attacks import bad_inputs, faults, kills, runs
from attacks.trial import INSIDE, MEMORY, ROOT, Fresh, crash_in, judge_message, watch

DEVICES = {"full": 7, "null": 3}  # {NAME: minor number of the device /dev/NAME}
# Signs that TensorFlow's C++ code ran out of memory. A command cannot catch this and print its own message.
_NO_MEMORY = ("terminate called", "bad_alloc", "Fatal Python error: Aborted",
              "Fatal Python error: Segmentation", "alloc", "failed to map")


def write_template(template, scripts):
    """Writes a directory with input files and a model. Each case runs a command in a copy of it."""
    runs.write_template(template, scripts)
    if os.geteuid():
        for name in DEVICES:
            (template / name).symlink_to(f"/dev/{name}")
    os.symlink("text.txt", template / "link.txt")
    os.link(template / "text.txt", template / "hard.txt")


class Spoiled:
    """Runs the cases of this module one after the other. A case either runs a command with one change, such
    as a wrong flag or a damaged file, or kills a training."""

    def __init__(self, scripts, directory, limit):
        """Stores the settings. Runs no case yet.

        Args:
          scripts: a `Scripts`, the server that starts the runs.
          directory: pathlib.Path of the directory that contains the folder "template". Each case uses a copy
            of this folder.
          limit: CPU seconds that a run may take.
        """
        self._scripts, self._template, self._limit = scripts, directory / "template", limit
        self._above = directory
        self._flags, self._undisturbed = {}, {}

    def case(self, kind, chance, here):
        """Runs a case in the directory `here`, which must not exist yet.

        Returns:
          (name of the command, description of the damage, verdict, details of the verdict, command line).
        """
        shutil.copytree(self._template, here, symlinks=True)
        os.remove(here / "hard.txt")
        os.link(here / "text.txt", here / "hard.txt")
        # If this program runs as root, a command could replace a device of the machine, such as /dev/null. So
        # each case gets its own device files in the directory `here`.
        if not os.geteuid():
            for name, minor in DEVICES.items():
                os.mknod(here / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        return self._kill(chance, here) if kind == "trainings killed" else self._spoil(kind, chance, here)

    def _kill(self, chance, here):
        done, finished, wrong, (script, *arguments) = kills.attack(
            self._scripts, chance, here, self._undisturbed, lambda run: watch(run, self._limit, []))
        verdict = "success"
        if wrong:
            verdict = "killed, other bits" if "tensors differ" in wrong else "killed, fails"
        return (script, done, verdict, wrong and f"{wrong}\n{finished.err[-700:]}",
                f"cd {shlex.quote(str(here))} && python {ROOT / script} {shlex.join(arguments)}")

    def _spoil(self, kind, chance, here):
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
        start = _start_fresh if fault and "fresh" in fault.values else self._scripts.start
        run_now = start(INSIDE, json.dumps(inside), str(ROOT / run.script), *flags, cwd=here, **environment)
        stop = watch(run_now, self._limit, overtime)
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
        return run.script, done, verdict, detail or finished.err[-700:], command

    def _change_flags(self, chance, run):
        if run.script not in self._flags:
            self._flags[run.script] = bad_inputs.flags_of(self._scripts, run.script, self._above)
        possible = self._flags[run.script]
        names = chance.sample(sorted(possible), chance.choice([1, 1, 1, 2]))
        return {name: chance.choice(possible[name]) for name in names}

    def _judge(self, run, here, finished, fault, kind, must, before):
        """Judges a run that has ended. Returns (verdict, detail): the verdict in a few words, such as
        "success" or "input lost or changed", and a text with details, or None."""
        memory = fault and "RLIMIT_AS" in fault.values.get("limits", ())
        if memory and any(sign in finished.err for sign in _NO_MEMORY):
            return "no memory, in C++", None
        if crash := crash_in(finished.err):
            return "traceback", crash
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
            verdict = "refused though valid" if must == "valid" else judge_message(finished)
            return verdict, f"exit code {finished.code}\n{finished.err[-700:]}"
        left = [path for path in after if path.endswith(".partial") and path not in before]
        missing = [pattern for pattern in run.outputs if not list(here.glob(pattern))]
        if must == "refused" or kind != "flags" and not gone and (missing or left):
            return "silent", f"exit code 0; missing {missing}, left {left}\n{finished.err[-700:]}"
        return "success", None


def _start_fresh(*arguments, cwd, **environment):
    return Fresh(arguments, cwd, environment)


def absolute(value, here):
    """Returns the value of a flag. If the value consists of paths, they are made absolute."""
    is_path = value == "output" or isinstance(value, str) and ("." in value or os.path.exists(here / value))
    if is_path:
        return ",".join(os.path.join(here, part) for part in value.split(","))
    return value


def snapshot(directory):
    """Returns {relative path: hash of the content} of all entries below a directory.

    The hash is None for an entry that is not a regular file.
    """
    found = {}
    for folder, names, files in os.walk(directory):
        for name in names + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, directory)] = hashlib.sha1(
                pathlib.Path(path).read_bytes()).digest() if os.path.isfile(path) else None
    return found
