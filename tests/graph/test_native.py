"""Building and caching the native kernels. Each test has its own cache.

Most tests use a fake compiler, a shell script of one or two lines. To succeed, it copies the library of one
real build.
"""

import collections
import json
import math
import os
import re
import shlex
import shutil

from numpy.testing import assert_allclose
import pytest

# The kernels themselves are tested in test_formulas.py and test_packing.py, with the cache of the user. The
# effect of --compile_kernels is tested in tests/conformance.
pytestmark = pytest.mark.slow(reason="builds all kernels with the real compiler, "
                              "and starts a process for each case")

INPUTS = [-1.0, 0.5, 2.0]
# Executes statements of a test, and then loads the ops like a script, in one process or in two. Prints values
# of gelu.
PROBE = f"""
import json, logging, os, pathlib, sys, tempfile
import bertlib.commands  # noqa: F401
import tensorflow.compat.v1 as tf
from bertlib.graph import native as native_kernels

logging.basicConfig(format="%(levelname)s %(message)s", force=True)
logging.getLogger("absl").setLevel("INFO")
tempfile.tempdir = None  # the server's, found before TMPDIR was set
exec(sys.argv[1])
child = os.fork() if sys.argv[2:] else None
ops, values = native_kernels.load_ops(), None
if ops:
    with tf.Graph().as_default(), tf.Session() as session:
        values = session.run(ops.bert_gelu(tf.constant({INPUTS}), [], approximate=True)).tolist()
sys.stdout.write(json.dumps(values) + chr(10))
sys.stdout.flush()
if child:
    os.waitpid(child, 0)
"""
NO_COMPILER = (r"INFO No C\+\+ compiler found \(g\+\+, c\+\+, .* CXX\), so the kernels cannot be built\. "
               r"TensorFlow's ops are used instead.*")
BUILDING = ("INFO Building the kernels for this CPU with {}. This takes 10 to 30 seconds and is "
            "needed only once.")
BUILT = "INFO The kernels are built."

Compiler = collections.namedtuple("Compiler", ["path", "calls"])


def write_compiler(path, *lines):
    """Writes a fake compiler that logs its arguments, and then runs lines of shell.

    In these lines, $target is the file that the compiler must write.
    """
    calls = path.with_name(path.name + ".calls")
    path.write_text("\n".join([
        "#!/bin/sh", f"PATH={shlex.quote(os.environ['PATH'])}", f'echo "$*" >> {shlex.quote(str(calls))}',
        'for word; do [ "$previous" = -o ] && target=$word; previous=$word; done', *lines, ""]))
    path.chmod(0o755)
    return Compiler(path, lambda: calls.read_text().splitlines() if calls.exists() else [])


class Machine(object):
    """A user's machine without a compiler.

    Its cache, its folder for temporary files, and the folder in its PATH are empty at first.
    """

    def __init__(self, scripts, here):
        self._scripts, self.here = scripts, here
        self.cache, self.temporary, self.path = (here / name for name in ("cache", "temporary", "bin"))
        for folder in (self.cache, self.temporary, self.path):
            folder.mkdir()
        # The ops are for CPUs only.
        self.environment = {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.temporary), "CXX": "",
                            "PATH": str(self.path), "CUDA_VISIBLE_DEVICES": "-1"}
        (here / "probe.py").write_text(PROBE)

    def probe(self, before="", both=(), **changes):
        """Loads the ops in a new process.

        Args:
          before: statements that run first.
          both: with a value, a second process loads the ops at the same time.
          changes: environment variables.

        Returns:
          (whether the ops were loaded, lines of the log). With two processes, the first one is a list.
        """
        finished = self._scripts.run(self.here / "probe.py", before, *both, cwd=self.here,
                                     **{**self.environment, **changes})
        finished.assert_success()
        had = []
        for line in finished.out.splitlines():
            values = json.loads(line)
            had.append(values is not None)
            if values:
                expected = [x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
                            for x in INPUTS]
                assert_allclose(values, expected, rtol=1e-5)
        assert len(had) == 1 + len(both)
        log = finished.err.splitlines()
        return (had if both else had[0]), log

    def kept(self):
        """Returns the names of the libraries in the cache. Checks that the cache contains nothing else."""
        assert not set(os.listdir(self.cache)) - {"bert-kernels"} and not os.listdir(self.temporary)
        files = sorted(path.name for path in self.cache.rglob("*") if path.parent != self.cache)
        assert all(re.fullmatch(r"[0-9a-f]{32}\.so", name) for name in files), files
        return files


@pytest.fixture
def machine(scripts, tmp_path):
    return Machine(scripts, tmp_path)


Build = collections.namedtuple("Build", ["machine", "compiler", "had", "log", "library"])


@pytest.fixture(scope="module")
def build(scripts, tmp_path_factory):
    """A machine with the library of a real build."""
    real = shutil.which("g++") or shutil.which("c++")
    if real is None:
        pytest.skip("needs g++ or c++")
    machine = Machine(scripts, tmp_path_factory.mktemp("build"))
    compiler = write_compiler(machine.here / "compiler", f'exec {shlex.quote(real)} "$@"')
    machine.environment["CXX"] = str(compiler.path)
    had, log = machine.probe()
    name, = machine.kept()
    return Build(machine, compiler, had, log, machine.cache / "bert-kernels" / name)


@pytest.fixture
def copying(machine, build):
    """A fake g++ of the machine. It writes the library of the real build."""
    return write_compiler(machine.path / "g++", f'cp {shlex.quote(str(build.library))} "$target"')


# --- With a compiler -------------------------------------------------------------------------------------


def test_a_build_is_kept_and_nothing_else_is(build):
    assert build.had and build.log == [BUILDING.format(build.compiler.path), BUILT]
    assert len(build.machine.kept()) == 1
    commands = [call.split() for call in build.compiler.calls()]
    assert sorted(os.path.basename(word) for command in commands for word in command
                  if word.endswith(".cc")) == [
        "loops.cc", "ops.cc"]
    assert [command.count("-shared") for command in commands] == [0, 0, 1]


def test_two_processes_build_at_once(machine, copying):
    # Each process waits before linking until the other one also links.
    with copying.path.open("a") as writer:
        writer.write('case "$*" in *-shared*)\n'
                     f"  until [ $(grep -c -e -shared {copying.path}.calls) -ge 2 ]; do sleep 0.02; done ;; "
                     "esac\n")
    had, log = machine.probe(both=["both"])
    assert had == [True, True] and log == 2 * [BUILDING.format("g++")] + 2 * [BUILT]
    assert len(copying.calls()) == 6 and len(machine.kept()) == 1


OTHER_PATH = """import shutil
native_kernels._SOURCES = pathlib.Path(shutil.copytree(native_kernels._SOURCES, "cpp", dirs_exist_ok=True))
"""


@pytest.mark.parametrize("change, libraries", [
    (OTHER_PATH, 1), (OTHER_PATH + "open('cpp/loops.h', 'a').write('// A comment.')", 2),
    ("native_kernels.cpuinfo = lambda: ['flags: another']", 2), ("tf.__version__ = '2.0.0'", 2),
    ("native_kernels._LOOPS_OPTIONS.append('-Oslow')", 2)])
def test_another_source_or_machine_has_another_library(change, libraries, machine, copying):
    assert machine.probe()[0] and machine.probe(change)[0]
    assert len(machine.kept()) == libraries


@pytest.mark.parametrize("cache", ["/dev/null/x", "/" + "x" * 300])
def test_a_cache_that_cannot_be_written(cache, machine, copying):
    had, log = machine.probe(XDG_CACHE_HOME=cache)
    assert not had and len(log) == 2 and log[0] == BUILDING.format("g++")
    assert log[1].startswith("WARNING The C++ compiler could not build the kernels")
    assert cache in log[1] and "XDG_CACHE" in log[1]
    assert not copying.calls() and not machine.kept()


# --- Without a compiler, or with one that fails ----------------------------------------------------------


@pytest.mark.parametrize("name", ["", "no-such-compiler -O1"])
def test_without_a_compiler_the_log_says_what_happens_and_what_is_missing(name, machine):
    had, log = machine.probe(CXX=name)
    assert not had and len(log) == 1 and re.fullmatch(NO_COMPILER, log[0])
    assert not machine.kept() and not os.listdir(machine.cache)


@pytest.mark.parametrize("lines, said", [
    (["echo In file included from errors.h:3:", "echo '  a.h:3: error: no such thing  ' >&2",
      "echo a.h:4: error: and another", "exit 1"], "a.h:3: error: no such thing"),
    (["echo collect2: error: ld returned 1 exit status", "echo /bin/ld: no room", "exit 1"],
     "/bin/ld: no room"),
    (["kill -9 $$"], "died with <Signals.SIGKILL: 9>."),
    ([], "library.so: .* No such file or directory"),  # the compiler did not write a library
    ([r"printf '\377: error'", "exit 1"], ".: error")])
def test_a_compiler_that_fails_is_tried_again_by_the_next_process(lines, said, machine):
    compiler, before = write_compiler(machine.path / "g++", *lines), 0
    for _ in range(2):
        had, (first, warning) = machine.probe()
        assert not had and first == BUILDING.format("g++")
        instead = "The C\\+\\+ compiler could not build the kernels"
        assert re.fullmatch(f"WARNING {instead} .* machine\\. .*{said}", warning)
        assert not machine.kept()
        assert len(compiler.calls()) > before
        before = len(compiler.calls())


@pytest.mark.parametrize("same", [False, True])
def test_a_library_that_does_not_load_is_built_again(same, machine, copying):
    good = copying.path.read_text()
    write_compiler(copying.path, 'echo garbage > "$target"')
    had, (_, warning) = machine.probe()
    assert not had and warning.startswith("WARNING The C++ compiler could not build the kernels")
    copying.path.write_text(good)
    had, log = machine.probe(**{} if same else {"CXX": str(copying.path)})
    assert had and log[-1] == BUILT
