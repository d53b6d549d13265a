"""Runs scripts as a user does: with arguments; the results are exit code, stdout, stderr and files.

Loading TensorFlow takes seconds of CPU. So one process, the server, loads the modules of the commands first.
Each run is a fork of the server, with its own process id, arguments, environment and working
directory.
"""

import atexit
import collections
import contextlib
import importlib
import json
import os
import pathlib
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
_TIME_LIMIT_SECONDS = 300


class Finished(collections.namedtuple("Finished", ["code", "out", "err"])):
    """How a run ended: its exit code (-n if signal n ended it), stdout and stderr."""

    def assert_success(self, *texts):
        """Asserts that the run succeeded, and that its log contains these texts."""
        assert self.code == 0 and all(text in self.err for text in texts), self.err

    def assert_refused(self, *texts):
        """Asserts that the run ended with an error message, without a traceback, and that its log contains
        these texts."""
        assert self.code == 1 and all(text in self.err for text in texts), self.err
        assert "Traceback" not in self.err, self.err


def environment(**changes):
    """Returns the environment of a run: this process's variables, except those of pytest and conftest.py."""
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith("PYTEST_") and name != "TF_CPP_MIN_LOG_LEVEL"}
    return {**ours, **changes}


def run_fresh(script, *flags, cwd, **changes):
    """Runs a script in a new Python interpreter, with changed environment variables. Returns `Finished`."""
    return _interpret([ROOT / script, *flags], cwd, None, changes)


def run_code(code, *arguments, text=None, **changes):
    """Runs a program in a new interpreter in the root of the repository, with `text` as its stdin."""
    return _interpret(["-c", code, *map(str, arguments)], ROOT, text, changes)


def _interpret(arguments, cwd, text, changes):
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment(**changes), input=text or "",
                          capture_output=True, encoding="utf-8", timeout=_TIME_LIMIT_SECONDS)
    return Finished(done.returncode, done.stdout, done.stderr)


# The program of `Scripts.write_python`.
_PYTHON = """#!{python} -IS
import json, os, sys
if not (sys.argv[1:] and sys.argv[1].endswith(".py") and os.path.exists(os.path.join("{root}", sys.argv[1]))):
    os.execv("{python}", ["{python}", *sys.argv[1:]])
streams = {{name: f"/proc/{{os.getpid()}}/fd/{{number}}"
           for number, name in enumerate(("stdin", "stdout", "stderr"))}}
request = dict(streams, argv=sys.argv[1:], cwd=os.getcwd(), environment=dict(os.environ))
with open("{requests}", "w") as requests, open("{replies}") as replies:
    print(json.dumps(request), file=requests, flush=True)
    replies.readline()
    code = int(replies.readline())
sys.exit(code if code >= 0 else 128 - code)
"""


class Scripts(object):
    """A context manager that starts the server, and stops it at the end of the block."""

    def __init__(self, root=ROOT):
        """Starts the server. `root` contains the code of the commands and of the server."""
        self._root = root
        self._server = subprocess.Popen([sys.executable, root / "tests" / "scripts.py"], cwd=root,
                                        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.ExitStack() as stack:
            stack.callback(self._server.kill)  # if a process that a test has left holds its stdin open
            self._server.communicate(timeout=_TIME_LIMIT_SECONDS)

    def start(self, script, *flags, cwd, **changes):
        """Starts a script, and returns a `Running`. The script before it must have ended: call `wait` first.

        Args:
          script: file name in the repository root.
          flags: command-line arguments.
          cwd: working directory.
          changes: environment variables.
        """
        return Running(self._server, {"argv": [str(self._root / script), *map(str, flags)], "cwd": str(cwd),
                                      "environment": environment(**changes)})

    def write_python(self, directory):
        """Writes a program `python` into a directory, and returns its path.

        If the program gets the path of a script of the repository, the script runs in a fork of the server.
        It has the standard streams of the program. A signal to the program does not reach the script.
        """
        path = os.path.join(directory, "python")
        pipes = {name: f"/proc/{os.getpid()}/fd/{stream.fileno()}" for name, stream in (
            ("requests", self._server.stdin), ("replies", self._server.stdout))}
        with open(path, "x") as file:
            file.write(_PYTHON.format(python=sys.executable, root=ROOT, **pipes))
        os.chmod(path, 0o700)
        return path

    def run_bash(self, program, *, cwd, **changes):
        """Runs a program of bash, and returns `Finished`. Its `python` is the program of `write_python`."""
        with tempfile.TemporaryDirectory() as directory:
            self.write_python(directory)
            path = os.pathsep.join([directory, os.path.dirname(sys.executable), os.environ["PATH"]])
            done = subprocess.run(["bash", "-c", program], cwd=cwd, env=environment(PATH=path, **changes),
                                  stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                                  timeout=3 * _TIME_LIMIT_SECONDS)
        return Finished(done.returncode, done.stdout, done.stderr)

    def run(self, script, *flags, cwd, **changes):
        """Runs a script to its end, and returns `Finished`. The arguments are those of `start`."""
        return self.start(script, *flags, cwd=cwd, **changes).wait()


class Running(object):
    """A script that was started. `pid` is its process id."""

    def __init__(self, server, request):
        self._server = server
        self._output = tempfile.TemporaryDirectory()
        self._files = {name: os.path.join(self._output.name, name) for name in ("stdout", "stderr")}
        server.stdin.write(json.dumps({**request, **self._files}) + "\n")
        server.stdin.flush()
        self.pid = int(server.stdout.readline())

    def read(self, name):
        """Returns the text that was written to "stdout" or "stderr" so far."""
        with open(self._files[name], encoding="utf-8", errors="backslashreplace", newline="") as reader:
            return reader.read()

    def wait(self):
        """Waits for the end of the script, and returns `Finished`."""
        code = int(self._server.stdout.readline())
        with self._output:
            return Finished(code, self.read("stdout"), self.read("stderr"))


# --- The server ------------------------------------------------------------------------------------------


def _load_modules():
    """Imports the modules that the commands share, and those of all commands and tasks."""
    from bertlib import commands, tasks
    for package in (commands, tasks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def _serve():
    """Forks a child for each request, a line of JSON on stdin.

    In a child, returns the request. In the server, returns None after the last request.
    """
    replies = os.dup(1)
    for line in sys.stdin:
        request = json.loads(line)
        # The files are created before the fork, because they must exist when `Running` reads them.
        outputs = [os.open(request[name], os.O_WRONLY | os.O_CREAT, 0o600) for name in ("stdout", "stderr")]
        streams = [os.open(request.get("stdin", os.devnull), os.O_RDONLY), *outputs]
        pid = os.fork()
        if not pid:
            os.close(replies)
            _become(request, streams)
            return request
        for stream in streams:
            os.close(stream)
        os.write(replies, f"{pid}\n".encode())
        os.write(replies, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    return None


def _become(request, streams):
    """Sets the arguments, environment, working directory and standard streams that a request contains."""
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(request["cwd"])
    sys.argv[:] = request["argv"]
    sys.orig_argv[:] = [sys.executable, *request["argv"]]  # a launcher of replicas starts this command
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, if the tests run under nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
    signal.alarm(_TIME_LIMIT_SECONDS)


def _run(script):
    """Runs the script, and ends the process like the interpreter, but without destroying the modules.

    For the modules of TensorFlow, this would take longer than most tests.
    """
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as request:
        code = request.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    _load_modules()
    if _serve():
        _run(sys.argv[0])
