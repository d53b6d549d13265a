"""Changes single statements of the product, and checks that the fast tests notice each change.

    python tests/mutations.py map                     # records which test runs which line: takes half an hour
    python tests/mutations.py run [--number=200] [--seed=0]
    python tests/mutations.py lines TEST [TEST ...]   # lines that only these tests run; TEST: start of a name

`map` also writes output/mutations/tests.json: the seconds of each test, and the number of lines that only
this test runs. Lines that have moved since are found again. `map` must run again if many tests are new.

`run` draws statements of `SOURCES`, and changes each of them in one way, see `_changes`. A changed statement
is called a mutant. A copy of the working tree gets the change, and runs the tests that run the statement, the
fastest first, until a test fails or until they would take more than two minutes. The results are kept in
output/mutations/found_by.json, so that a run that was stopped continues. The exit code is 1 if less than 90 %
of the mutants are found. Mutants in tests/data/equivalent_mutants.json do not count: the program does the
same with them, for the stated reason.

A statement is drawn by a hash of its text. So a change of other statements does not change the draw.

`mutmut` and `cosmic-ray` were considered. `mutmut` notes which test calls a function only inside the process
of pytest, but most commands run in other processes. `cosmic-ray` runs the same tests for each mutant.
"""

import argparse
import ast
import collections
import contextlib
import functools
import hashlib
import importlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import line_map
from line_map import DIRECTORY, ROOT
import pytest

# The files from which statements are drawn: the code that turns flags and files into results.
SOURCES = (
    "run_*.py",  # the published commands
    "bertlib/commands/*.py", "bertlib/api/*.py",  # callers of the driver
    "bertlib/runs/*.py", "bertlib/reports/*.py",  # the record, and comparisons of records
    "bertlib/data/*.py", "bertlib/tasks/**/*.py",  # readers, targets and answers; the driver
    "bertlib/system/replica_*.py", "bertlib/system/value_encoding.py", "bertlib/system/cluster.py",
    "bertlib/estimator/replica_sync.py",  # replicas
    "bertlib/estimator/sessions.py", "bertlib/checkpoints/metrics_history.py",
    "bertlib/checkpoints/checkpoint_files.py",
    "bertlib/estimator/evaluation.py", "bertlib/estimator/training_session.py",
    "bertlib/estimator/session_hooks.py", "bertlib/estimator/estimator.py",
)
_SHARE = 0.9
_MOST_SECONDS = 120  # of the tests of a mutant
_RESULTS = DIRECTORY / "found_by.json"
_EQUIVALENT = ROOT / "tests" / "data" / "equivalent_mutants.json"


# --- Mutants ---------------------------------------------------------------------------------------------

Mutant = collections.namedtuple("Mutant", ["path", "function", "lines", "old", "new", "text", "key"])
Mutant.__doc__ = """A changed statement. `lines` are its line numbers, `text` is the whole changed file, and
`key` is a hash, which does not depend on line numbers."""

_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot),
          (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.And, ast.Or))
_OPERATORS = dict(_PAIRS) | {second: first for first, second in _PAIRS}


def _files(*patterns):
    found = [list(ROOT.glob(pattern)) for pattern in patterns]
    assert all(found), "a pattern matches no file: change it"
    return sorted(set().union(*found))


def _statements(node, names=(), inside=False):
    """Yields (name of the function, statement) for each statement in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            function = inside or isinstance(child, ast.FunctionDef)
            yield from _statements(child, (*names, child.name), function)
        else:
            if inside and isinstance(child, ast.stmt):
                yield ".".join(names), child
            yield from _statements(child, names, inside)


def _is_log(node):
    return isinstance(node, ast.Call) and "logging." in ast.unparse(node.func)


def _expressions(node):
    """Yields the expressions of a statement, without nested statements, type hints and texts of messages."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.stmt, ast.JoinedStr)):
                continue
            if name != "annotation" and not _is_log(child):
                yield child
                yield from _expressions(child)


def _deletion(statement):
    """Returns (node, new node) that delete a statement, or None. A local variable becomes None."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Return) and value or isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], ast.Name):
        return None if ast.unparse(value) == "None" else (value, ast.Constant(None))
    if isinstance(statement, ast.Expr) and (
            isinstance(value, (ast.Constant, ast.Yield)) or "logging.info(" in ast.unparse(value)):
        return None
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Delete)
    return (statement, ast.Pass()) if isinstance(statement, simple) else None


def _changes(statement):
    """Yields (node, new node): the changes of a statement that a test should notice.

    The statement is deleted, a condition is negated, or one of these is changed: an operator, True or False,
    a number by one, the order of the first two arguments of a call.
    """
    deletion = _deletion(statement)
    if deletion:
        yield deletion
    for node in [] if isinstance(statement, ast.Raise) else [statement, *_expressions(statement)]:
        for test in getattr(node, "ifs", [getattr(node, "test", None)]):
            if test:
                is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
                yield test, test.operand if is_negated else ast.UnaryOp(ast.Not(), test)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield node, ast.Compare(node.left, [_OPERATORS[type(node.ops[0])]()], node.comparators)
        elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in _OPERATORS:
            fields = dict(ast.iter_fields(node), op=_OPERATORS[type(node.op)]())
            yield node, type(node)(**fields)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            yield node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and not any(
                isinstance(each, ast.Starred) for each in node.args[:2]):
            first, second, *rest = node.args
            if ast.unparse(first) != ast.unparse(second):
                yield node, ast.Call(node.func, [second, first, *rest], node.keywords)


def _hash(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _replace(source, node, new):
    """Returns the source with a node replaced. Columns of nodes are counted in bytes."""
    lines = source.encode().splitlines(keepends=True)
    start, end = (sum(map(len, lines[:line - 1])) + column for line, column in (
        (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)))
    data = b"".join(lines)
    text = new if isinstance(node, ast.stmt) else f"({new})"
    return (data[:start] + text.encode() + data[end:]).decode()


def _draw(seed, number):
    """Returns mutants of different statements. The draw depends only on the seed and on the statements."""
    found = []
    for path in _files(*SOURCES):
        source = path.read_text()
        seen = collections.Counter()
        for function, statement in _statements(ast.parse(source)):
            body = getattr(statement, "body", None)
            last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno
            header = ast.unparse(statement).split("\n")[0]
            seen[function, header] += 1
            name = path.relative_to(ROOT), function, header, seen[function, header]
            changes = sorted(_changes(statement), key=lambda pair: _hash(seed, *name, *map(ast.dump, pair)))
            if changes:
                lines = range(statement.lineno, last + 1)
                found.append((_hash(seed, *name), name, lines, source, changes[0]))
    mutants = []
    for order, (path, function, header, count), lines, source, (node, new) in sorted(found)[:number]:
        old, new = ast.unparse(node), ast.unparse(new)
        shown = old if old == header else f"{old} in {header}"
        mutants.append(Mutant(str(path), function, lines, shown, new, _replace(source, node, new),
                              _hash(order, old, new, count)))
    return mutants


# --- The tests of a mutant -------------------------------------------------------------------------------


def _file_of(test):
    return test.split("::")[0]


class _Progress(object):
    """A plugin of pytest: it sorts the tests, and keeps the name of the test that failed."""

    def __init__(self, tests):
        self._order = {test: index for index, test in enumerate(tests)}
        self.failed = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((item for item in items if item.nodeid in self._order),
                          key=lambda item: self._order[item.nodeid])

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed = f"{report.nodeid} (is not collected)"

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = report.nodeid


class Tree(object):
    """A copy of the working tree in which mutants are tested."""

    def __init__(self, directory, seconds):
        """`directory`: where the copy is made. `seconds`: {test: its seconds}."""
        self._directory = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self._root = self._directory / "tree"
        self._seconds = seconds
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(
            ".git", ".venv", "output", "site", "__pycache__"))

    def find(self, mutant, tests):
        """Returns the name of the test that finds a mutant, or None."""
        target = self._root / mutant.path
        target.write_text(mutant.text)
        chosen, total = [], 0
        for test in sorted(tests, key=self._seconds.get):
            total += self._seconds[test]
            if total <= _MOST_SECONDS and (self._root / _file_of(test)).exists():
                chosen.append(test)
        try:
            return self._run(chosen) if chosen else None
        finally:
            shutil.copyfile(ROOT / mutant.path, target)

    def _run(self, tests):
        """Runs tests in a fork, until one of them fails. Returns the name of this test, or None."""
        failed = self._directory / "failed"
        failed.write_text("a test that did not end")
        pid = os.fork()
        if not pid:
            signal.alarm(5 * _MOST_SECONDS)
            try:
                failed.write_text(self._become_pytest(tests))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        self._end_processes()
        return failed.read_text() or None

    def _become_pytest(self, tests):
        """Returns the name of the test that failed, or an empty text."""
        output = os.open(self._directory / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each command would compile all modules
        sys.dont_write_bytecode = False
        os.chdir(self._root)
        sys.path.remove(str(ROOT / "tests"))
        temporary = self._directory / "temporary"
        shutil.rmtree(temporary, ignore_errors=True)
        progress = _Progress(tests)
        pytest.main(["-x", f"--basetemp={temporary}", *line_map.FAST, *dict.fromkeys(map(_file_of, tests))],
                    plugins=[progress])
        return progress.failed or ""

    def _end_processes(self):
        """Ends processes that the tests of a mutant have left."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self._directory).encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def _run(arguments):
    """Tests the mutants, and prints them. Returns the exit code."""
    drawn = dict(enumerate(_draw(arguments.seed, arguments.number), 1))
    equivalent = {tuple(entry[name] for name in ("path", "function", "old", "new"))
                  for entry in json.loads(_EQUIVALENT.read_text())}
    mutants = {number: mutant for number, mutant in drawn.items()
               if (mutant.path, mutant.function, mutant.old, mutant.new) not in equivalent}
    found_by = json.loads(_RESULTS.read_text()) if _RESULTS.exists() else {}
    found = line_map.Map()
    by_line = functools.cache(found.tests_by_line)
    importlib.import_module("tensorflow.compat.v1")  # once, for all forks
    with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
        tree = Tree(directory, found.seconds)
        for number, mutant in mutants.items():
            tests = set().union(*(by_line(mutant.path).get(line, ()) for line in mutant.lines))
            if mutant.key not in found_by:
                found_by[mutant.key] = tree.find(mutant, tests)
                _RESULTS.write_text(json.dumps(found_by, indent=1))
            test = found_by[mutant.key]
            outcome = f"found by {test}" if test else f"SURVIVED {len(tests)} tests"
            print(f"{number}. {mutant.path}:{mutant.lines[0]} {mutant.function}: "
                  f"{mutant.old} -> {mutant.new}: {outcome}", flush=True)
    share = sum(bool(found_by[mutant.key]) for mutant in mutants.values()) / len(mutants)
    print(f"\n{len(drawn) - len(mutants)} of {len(drawn)} mutants are equivalent. The tests found "
          f"{share:.1%} of the others.")
    return int(share < _SHARE)


def main():
    """Runs the command in the arguments. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("map")
    run = commands.add_parser("run")
    run.add_argument("--number", type=int, default=200)
    run.add_argument("--seed", type=int, default=0)
    commands.add_parser("lines").add_argument("tests", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "map":
        return line_map.make()
    return _run(arguments) if arguments.command == "run" else line_map.print_lines(arguments.tests)


if __name__ == "__main__":
    sys.exit(main())
