"""Writes and reads the results of a benchmark: benchmarks/results/NAME.json.

A benchmark with the flag --results=NAME stores every round in this file. Without the flag, it only prints. A
stored result is never overwritten: remove the old file first, or choose another name. benchmarks/render.py
makes the tables of the pages in docs/ from these files.

A file has these fields:

    command       the command line. Paths outside of the repository are shortened to their last part
    commit        the commit of the repository when the benchmark began
    clean         whether the working tree equalled this commit. Changes in benchmarks/results do not count
    date          in UTC, when the benchmark began
    machine       CPU, instruction sets, number of cores, memory in GB
    versions      {package: version}
    units         {name of a value: its unit}; "" for a value without a unit
    rounds        list of {name: value}, one for each round, seed or configuration
    summary       list of {name: value}, only in files without the rounds
    repeated      false if the figures were copied from an earlier page
    recorded      the name of this earlier page, only if `repeated` is false
    flags         only of stability.py: the flags of all trainings
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIRECTORY = os.path.join(ROOT, "benchmarks", "results")
FIELDS = {"command", "date", "machine", "versions", "units", "repeated"}
# Instruction sets of CPUs. TensorFlow, oneDNN and this project choose their kernels by these sets.
INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16",
                "asimd", "bf16")
PACKAGES = ("tensorflow", "numpy", "onnxruntime")
PEER_PACKAGES = ("torch", "transformers", "tf-models-official")


class Recorder:
    """Collects the rounds of a benchmark, and writes them at its end.

    Example:
      recorder = results.Recorder(arguments.results, {"accuracy": "", "cpu": "s"})
      recorder.add(seed=0, accuracy=0.88, cpu=118.2)
      recorder.write()
    """

    def __init__(self, name, units, peers=(), packages=(), continues=False, **fields):
        """Begins a benchmark.

        Args:
          name: name of the file, without directory and ".json". If it is None or empty, nothing is written.
          units: {name of a value: its unit}.
          peers: Python interpreters of other programs in the comparison. Their versions are recorded, too.
            None and empty strings are skipped.
          packages: names of other packages that the benchmark uses. Their versions are recorded, too.
          continues: whether the rounds of an existing file are kept, except for those with an "error".
          **fields: other fields of the file.

        Raises:
          SystemExit: the name is not a file name, or a result with this name exists.
        """
        self._name, self.rounds = name, []
        if not name:
            return
        if not re.fullmatch(r"[\w-]+", name):
            raise SystemExit(f"--results={name}: a name may contain only letters, digits, _ and -.")
        if continues and os.path.exists(path_of(name)):
            self.rounds = [row for row in read(name)["rounds"] if "error" not in row]
        elif os.path.exists(path_of(name)):
            raise SystemExit(f"--results={name}: {os.path.relpath(path_of(name))} exists. Remove this file "
                             "first, or choose another name.")
        commit, clean = commit_of_tree()
        self._result = {"command": command_line(), "commit": commit, "clean": clean,
                        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                        "machine": machine(), "versions": {**versions(peers), **_installed(packages)},
                        "repeated": True, "units": units, **fields}

    def add(self, **values):
        """Adds the values of one round: the measured values, and values that name the round, such as the
        seed."""
        self.rounds.append(values)

    def write(self, is_last=True):
        """Writes the file, and prints its path if it is written for the last time. The file gets its final
        name when it is complete."""
        if self._name:
            write(self._name, {**self._result, "rounds": self.rounds})
        if self._name and is_last:
            print(f"Stored: {os.path.relpath(path_of(self._name))}", file=sys.stderr)


def add_flag(parser):
    """Adds --results to an `argparse.ArgumentParser`."""
    parser.add_argument("--results", metavar="NAME",
                        help="store the results of all rounds in benchmarks/results/NAME.json; an existing "
                        "file is never overwritten")


# --- Files -----------------------------------------------------------------------------------------------


def path_of(name):
    """Returns the path of the JSON file that contains a result."""
    return os.path.join(DIRECTORY, f"{name}.json")


def names():
    """Returns the sorted names of all stored results."""
    return sorted(file.removesuffix(".json") for file in os.listdir(DIRECTORY) if file.endswith(".json"))


def write(name, result):
    """Writes a result with one round on each line. The file gets its final name when it is complete."""
    os.makedirs(DIRECTORY, exist_ok=True)
    fields = [f" {json.dumps(field)}: {_lines(value)}" for field, value in result.items()]
    aside = f"{path_of(name)}.partial"
    with open(aside, "w", encoding="utf-8") as writer:
        writer.write("{\n" + ",\n".join(fields) + "\n}\n")
    os.replace(aside, path_of(name))


def _lines(value):
    """Returns a value as JSON. If the value is a list of rounds, each round is on a separate line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value) + "\n ]"
    return json.dumps(value, ensure_ascii=False)


def read(name):
    """Reads a stored result as a dict.

    Raises:
      ValueError: a field is missing.
    """
    with open(path_of(name), encoding="utf-8") as reader:
        result = json.load(reader)
    missing = FIELDS - set(result)
    if missing or not (result.get("rounds") or result.get("summary")):
        raise ValueError(f"{path_of(name)}: these fields are missing: "
                         f"{', '.join(sorted(missing)) or 'rounds'}.")
    return result


# --- Surroundings ----------------------------------------------------------------------------------------


def command_line():
    """Returns the command line of this process, as a user would type it in the root of the repository."""
    script = os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)
    return " ".join(["python", script, *(shlex.quote(_short(word)) for word in sys.argv[1:])])


def _short(word):
    """Returns a command-line argument, with its path shortened.

    An absolute path in the repository becomes a path relative to the root of the repository. Of an absolute
    path outside of the repository, only the last part is kept.
    """
    flag, equals, value = word.rpartition("=")
    if not os.path.isabs(value):
        return word
    inside = os.path.relpath(value, ROOT)
    return f"{flag}{equals}{os.path.basename(value.rstrip('/')) if inside.startswith('..') else inside}"


def describe(about, installed):
    """Returns a text that describes a machine and the versions of its packages.

    Args:
      about: see `machine`.
      installed: see `versions`.
    """
    packages = ", ".join(f"{name.title() if name == 'python' else name} {version}"
                         for name, version in installed.items())
    return f"{about['cores']} cores of {about['cpu']}, {about['memory_gb']:.0f} GB; {packages}"


def commit_of_tree():
    """Returns a pair: the hash of the current commit, and whether the working tree equals this commit, apart
    from benchmarks/results. Returns (None, None) if git cannot answer."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True,
                              encoding="utf-8").stdout.strip()

    try:
        return git("rev-parse", "HEAD"), not git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return None, None


def machine():
    """Returns the CPU, its instruction sets, the number of usable cores and the memory in GB."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            about = dict(re.findall(r"^(model name|flags|Features)\s*: (.*)$", lines.read(), re.MULTILINE))
    except OSError:
        about = {}
    flags = about.get("flags", about.get("Features", "")).split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {"cpu": about.get("model name", platform.machine()),
            "instructions": [flag for flag in INSTRUCTIONS if flag in flags],
            "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1)}


def versions(peers=()):
    """Returns {package: version} for Python, TensorFlow, NumPy, and the packages of other programs.

    Args:
      peers: Python interpreters of other programs. None and empty strings are skipped.
    """
    found = {"python": platform.python_version(), **_installed(PACKAGES)}
    code = f"import results, json; print(json.dumps(results._installed({PEER_PACKAGES!r})))"
    for python in filter(None, peers):
        done = subprocess.run([python, "-c", code], check=True, capture_output=True, encoding="utf-8",
                              cwd=os.path.dirname(os.path.abspath(__file__)))
        found.update(json.loads(done.stdout))
    return found


def _installed(packages):
    """Returns {package: version} of the given packages that are installed in this environment."""
    found = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
