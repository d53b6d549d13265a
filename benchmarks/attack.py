"""Attacks every command with random cases: bad flags, bad files, faults of the machine, and kills.

    python benchmarks/attack.py [--seed=0] [--cases=1500 | --minutes=60] [--kinds=rows,tags,…] \\
      [--only=N,M] [--results=NAME]

The seed and the number of a case determine the case. --only=N repeats case N, and --keep keeps its directory.
The modules in benchmarks/attacks make the cases and judge them. A case is good if its result is the expected
one, or if it ends with one message that names a flag or a file. All other cases are bad. The program prints
each bad case with the commands that repeat it. At the end, it prints a table with the number of cases of each
command and kind. The exit code is 1 if a case is bad.
"""

import argparse
import collections
import concurrent.futures
import itertools
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "tests")]

import bertlib.command_line  # noqa: E402, F401, I001  after the path, and first: it loads TensorFlow quietly
from attacks import families, spoiled, trial, world  # noqa: E402
import results  # noqa: E402
import scripts as running  # noqa: E402

# {kind of cases: weight with which this kind is drawn at random}. The module `spoiled` defines the first four
# kinds, and `families` defines the other kinds.
KINDS = {"flags": 5, "files": 6, "faults": 3, "trainings killed": 1, **families.WEIGHTS}
_SPOILED = list(KINDS)[:4]
FINE = ("no memory, in C++", "message", "success", "ended by the signal", "still working", "refused")

Case = collections.namedtuple("Case", "number kind command done verdict detail repeat")


class Servers(dict):
    """A dict. Each key is a number from 0; the value is a process that runs commands (`running.Scripts`).

    A process is started when its number is first looked up.
    """

    def __missing__(self, number):
        return self.setdefault(number, running.Scripts())

    def close(self):
        for server in self.values():
            server.__exit__()


class Worker:
    """Runs cases one after the other. The commands of the cases run in processes that only this worker uses;
    see `Servers`."""

    def __init__(self, arguments, directory, models):
        self._arguments, self._directory, self._models = arguments, directory, models
        self._servers = Servers()
        self._spoiled = spoiled.Spoiled(self._servers[0], pathlib.Path(arguments.models or directory),
                                        arguments.limit)
        self._memory = {}

    def close(self):
        self._servers.close()

    def case(self, number):
        """Runs a case, and returns the `Case`."""
        chance = random.Random(f"{self._arguments.seed}/{number}")
        kinds = self._arguments.kinds.split(",")
        kind = chance.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        above = self._directory / str(number)
        try:
            if kind in _SPOILED:
                return Case(number, kind, *self._spoiled.case(kind, chance, above / "here"))
            return self._family(number, kind, chance, above / "here")
        finally:
            if not self._arguments.keep:
                shutil.rmtree(above, ignore_errors=True)

    def _family(self, number, kind, chance, here):
        here.mkdir(parents=True)
        case = trial.Trial(self._servers, self._models, chance, here, self._arguments.limit, self._memory)
        verdict, detail = "success", ""
        try:
            families.run(kind, case)
            case.check_inputs()
            verdict = "refused" if case.refused else verdict
        except trial.Bad as bad:
            verdict, detail = bad.verdict, bad.detail
        except Exception:  # the files that the command wrote may be damaged
            verdict, detail = "output cannot be judged", traceback.format_exc()[-1500:]
        return Case(number, kind, case.command, "; ".join(case.notes), verdict, detail,
                    "\n".join(case.commands))


def numbers(arguments):
    """Yields the numbers of the cases to run."""
    if arguments.only:
        yield from map(int, arguments.only.split(","))
        return
    end = time.time() + 60 * arguments.minutes if arguments.minutes else None
    for number in itertools.count() if end else range(arguments.cases):
        if end and time.time() > end:
            return
        yield number


def report(case, verbose):
    """Prints a case if it is bad, or if `verbose` is true."""
    if case.verdict not in FINE or verbose:
        print(f"\n--- case {case.number}: {case.verdict.upper()}: {case.kind}: {case.done}\n{case.repeat}\n"
              f"{case.detail}", flush=True)


def print_table(cases, recorder):
    """Prints and records a table: for each command and kind, the numbers of right, refused and bad cases."""
    counts = collections.defaultdict(collections.Counter)
    for case in cases:
        end = "bad" if case.verdict not in FINE else (
            "refused" if case.verdict in ("refused", "message") else "right")
        counts[case.command, case.kind][end] += 1
    print(f"\n{'command':30} {'kind':26} {'cases':>6} {'right':>6} {'refused':>8} {'bad':>5}")
    for (command, kind), found in sorted(counts.items()):
        print(f"{command:30} {kind:26} {found.total():6} {found['right']:6} {found['refused']:8} "
              f"{found['bad']:5}")
        recorder.add(command=command, kind=kind, cases=found.total(), right=found["right"],
                     refused=found["refused"], bad=found["bad"])


def parsed():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--minutes", type=float, help="number of minutes after which no new "
                        "test case starts. If this flag is given, --cases is ignored")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of cases, separated by commas")
    parser.add_argument("--only", help="numbers of the cases to repeat, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="number of cases that run at the same time")
    parser.add_argument("--limit", type=float, default=60, help="seconds of CPU that a run may take")
    parser.add_argument("--models", help="directory of trained models, which is made if it is missing")
    parser.add_argument("--keep", action="store_true", help="keep the directories in which the cases ran")
    results.add_flag(parser)
    arguments = parser.parse_args()
    if unknown := set(arguments.kinds.split(",")) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    return arguments


def _models(arguments, above):
    """Trains the models and stores them in the directory `above`/models, unless this directory exists.

    The cases of the kinds in `_SPOILED` start with a copy of the directory `above`/template. If --kinds names
    one of these kinds, this function also writes `above`/template, unless it exists.

    Returns the `world.World`.
    """
    with running.Scripts() as scripts:
        if set(_SPOILED) & set(arguments.kinds.split(",")) and not (above / "template").exists():
            spoiled.write_template(above / "template", scripts)
        models = world.World(above / "models", scripts)
        if not models.directory.exists():
            models.build()
    return models


def main():
    """Prints each bad case as soon as it is found, and the counts at the end."""
    arguments = parsed()
    recorder = results.Recorder(arguments.results, {})
    # A shell starts a background job with SIGINT ignored, and child processes would inherit this setting.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="attack."))
    models = _models(arguments, pathlib.Path(arguments.models or directory))
    workers = [Worker(arguments, directory, models) for _ in range(arguments.jobs)]
    cases, waiting, began, lock = [], numbers(arguments), time.time(), threading.Lock()

    def work(worker):
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                return
            case = worker.case(number)
            with lock:
                cases.append(case)
                report(case, arguments.only)

    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(work, workers))
    finally:
        for worker in workers:
            worker.close()
        models.close()
        if arguments.keep:
            print(f"Cases: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    print_table(cases, recorder)
    recorder.write()
    counts = collections.Counter(case.verdict for case in cases)
    print(f"\n{len(cases)} cases of seed {arguments.seed} in {time.time() - began:.0f} s:")
    for verdict, count in counts.most_common():
        print(f"  {count:5} {verdict}{'' if verdict in FINE else '  <-- bad'}")
    sys.exit(any(verdict not in FINE for verdict in counts))


if __name__ == "__main__":
    main()
