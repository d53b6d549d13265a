"""Records which tests run which lines of the product, for `mutations.py`.

This module is also a plugin of pytest and of coverage. Each worker of pytest writes the name of the current
test or fixture to a file. A process that starts or is forked during the test reads the name from the file,
and stores its lines under this name. A fixture has a separate name, because several tests can use its result.
"""

import collections
import contextlib
import difflib
import json
import linecache
import os
import pathlib
import shutil
import time

import coverage
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "output" / "mutations"
_DATA = DIRECTORY / "lines.coverage"
_TESTS = DIRECTORY / "tests.jsonl"
_CONFIG_FILE = DIRECTORY / "coveragerc"
_NAME_FILE = "LINE_MAP_NAME_FILE"
_CONFIG = f"""[run]
data_file = {_DATA}
include =
  {ROOT}/*.py
  {ROOT}/bertlib/*
parallel = true
patch =
  fork
  _exit
plugins = line_map
disable_warnings = no-data-collected, module-not-imported
"""

FAST = ["-m", "not slow and not soak", "-p", "no:cacheprovider", "-q"]
_SERVER_SECONDS = 5  # the first command of a process loads TensorFlow

_names = []
_durations = {}


class _Name(coverage.CoveragePlugin):
    """Sets the name under which a new process stores its lines."""

    def configure(self, config):
        with contextlib.suppress(KeyError, FileNotFoundError), open(os.environ[_NAME_FILE]) as file:
            config.set_option("run:context", file.read())


def coverage_init(registry, options):
    """Called by coverage in each process."""
    del options
    registry.add_configurer(_Name())


# --- The plugin of pytest --------------------------------------------------------------------------------


def pytest_configure(config):
    """Chooses the file of names of this worker."""
    if hasattr(config, "workerinput"):
        os.environ[_NAME_FILE] = str(DIRECTORY / f"name-{config.workerinput['workerid']}")


@contextlib.contextmanager
def _named(name):
    _names.append(name)
    _switch()
    try:
        yield
    finally:
        _names.pop()
        _switch()


def _switch():
    name = _names[-1] if _names else ""
    with open(os.environ[_NAME_FILE], "w") as file:
        file.write(name)
    coverage.Coverage.current().switch_context(name)


def _fixture_name(definition, item):
    """Returns the name of a fixture, with the parameters of the test if they can change its result."""
    case = getattr(item, "callspec", None)
    depends = case and (definition.scope == "function" or definition.argname in case.params)
    return f"{definition.baseid}::fixture {definition.argname}[{case.id if depends else ''}]"


def _fixtures(item):
    """Yields the definitions of the fixtures of a test, without those of pytest and its plugins."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        if definitions[-1].baseid:
            yield definitions[-1]


def _write(**line):
    with open(_TESTS, "a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Stores the lines of a test under its name. Writes its fixtures and seconds to the list of tests."""
    _durations.clear()
    with _named(item.nodeid):
        result = yield
    _write(test=item.nodeid, fixtures=[_fixture_name(each, item) for each in _fixtures(item)],
           passed=_durations.pop("passed", False), seconds=round(sum(_durations.values()), 3))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Stores the lines of a fixture under its name, and writes its seconds to the list of tests."""
    if not fixturedef.baseid:
        return (yield)
    name, start = _fixture_name(fixturedef, request._pyfuncitem), time.monotonic()
    with _named(name):
        result = yield
    seconds = time.monotonic() - start
    _durations["shared"] = _durations.get("shared", 0) - seconds * (fixturedef.scope != "function")
    _write(fixture=name, seconds=round(seconds, 3))
    return result


def pytest_runtest_logreport(report):
    """Keeps the seconds and the outcome of the current test."""
    if report.when == "call":
        _durations["passed"] = report.passed
    _durations[report.when] = report.duration


# --- The map ---------------------------------------------------------------------------------------------


def _write_config():
    """Writes coverage's configuration, and returns the environment variables that start the recording."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    _CONFIG_FILE.write_text(_CONFIG)
    return {"COVERAGE_PROCESS_START": str(_CONFIG_FILE), "PYTHONPATH": str(ROOT / "tests")}


def make():
    """Runs the fast tests, and stores which lines each of them runs. Returns pytest's exit code."""
    os.environ.update(_write_config())
    for path in [_TESTS, *DIRECTORY.glob("lines.coverage.*")]:
        path.unlink(missing_ok=True)
    code = pytest.main(["-p", "line_map", "--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder",
                        *FAST])
    shutil.rmtree(DIRECTORY / "code", ignore_errors=True)
    for path in [*ROOT.glob("*.py"), *ROOT.glob("bertlib/**/*.py")]:
        target = DIRECTORY / "code" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    combined = coverage.Coverage(str(_DATA), config_file=False)
    combined.combine(strict=True)
    combined.save()
    _write_summary()
    return code


class Map(object):
    """The lines that the tests ran.

    Attributes:
      seconds: {test: its seconds, with the fixtures that it shares with other tests}.
    """

    def __init__(self):
        lines = [json.loads(line) for line in _TESTS.read_text().splitlines()]
        fixtures = collections.Counter()
        for line in lines:
            if "fixture" in line:
                fixtures[line["fixture"]] = max(fixtures[line["fixture"]], line["seconds"])
        fixtures["tests::fixture scripts[]"] += _SERVER_SECONDS
        passed = [line for line in lines if line.get("passed")]
        self.seconds = {line["test"]: line["seconds"] + sum(fixtures[name] for name in line["fixtures"])
                        for line in passed}
        self._users = collections.defaultdict(set)
        for line in passed:
            for name in [line["test"], *line["fixtures"]]:
                self._users[name].add(line["test"])
        self._data = coverage.CoverageData(str(_DATA))
        self._data.read()

    def lines(self):
        """Yields (path in the repository, line number of today, set of the tests that ran the line)."""
        for path in sorted(os.path.relpath(path, ROOT) for path in self._data.measured_files()):
            if (DIRECTORY / "code" / path).exists():
                for line, tests in sorted(self.tests_by_line(path).items()):
                    yield path, line, tests

    def tests_by_line(self, path):
        """Returns {line number of a file of today: set of the tests that ran the line}."""
        old, new = ((root / path).read_text().splitlines() for root in (DIRECTORY / "code", ROOT))
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        moved = {block.a + i + 1: block.b + i + 1 for block in blocks for i in range(block.size)}
        found = self._data.contexts_by_lineno(str(ROOT / path))
        return {moved[line]: set().union(*(self._users.get(name, ()) for name in names))
                for line, names in found.items() if line in moved}


def _write_summary():
    """Writes the seconds of each test, and the number of lines that only this test runs."""
    found = Map()
    unique = collections.Counter(next(iter(tests)) for _, _, tests in found.lines() if len(tests) == 1)
    summary = {test: {"seconds": round(seconds, 2), "unique_lines": unique[test]}
               for test, seconds in sorted(found.seconds.items())}
    (DIRECTORY / "tests.json").write_text(json.dumps(summary, indent=1))


def print_lines(names):
    """Prints the lines that run only in tests whose names begin with one of `names`."""
    for path, line, tests in Map().lines():
        if tests and all(test.startswith(tuple(names)) for test in tests):
            print(f"{path}:{line}: {linecache.getline(str(ROOT / path), line).strip()}")
