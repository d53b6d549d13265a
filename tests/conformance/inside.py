"""inside.py MOMENT ACT SCRIPT FLAGS: runs a script that is disturbed at a moment.

MOMENT is one of these texts. So the same command is disturbed at the same place, however busy the machine is.

    a part of a log line    the first log line that contains it, for example "step 5/8"
    change 7                the 7th change below the working directory by Python code: it opens a file for
                            writing, renames, links or removes a file, or makes a directory
    cpu 1.5                 1.5 seconds of CPU time after the start

ACT is one of these texts:

    SIGKILL, …              the process gets this signal. After CPU time, it is SIGPROF, which ends it, too
    ENOSPC, EIO, …          the change fails with this error
    COPY                    the working directory is copied, and the process continues. The copy has the files
                            that SIGKILL would leave. MOMENT is parts of log lines, with a | between them. The
                            first word of a part is the name of its copy, beside the working directory
    RLIMIT_FSIZE            from then on, no file can become larger than 40 kB, as on a full disk
    COUNT                   prints "threads=… files=…" for each log line that contains MOMENT. If MOMENT is
                            "end", prints "changes=…" at the end of the process
"""

import atexit
import errno
import functools
import logging
import os
import resource
import runpy
import shutil
import signal
import sys

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.mkdir", "os.truncate"}


class _LogWatch(logging.Handler):
    """Acts at the first message that contains the moment; at all of them, with COUNT."""

    def __init__(self, moment, act):
        super().__init__()
        self._moment, self._act = moment, act

    def emit(self, record):
        if self._moment and self._moment in record.getMessage():
            print(f"inside.py: {self._moment}", file=sys.stderr, flush=True)  # absl's handler may come later
            self._moment = self._act()


class _ChangeWatch(object):
    """An audit hook that counts changes of files, and acts at the change with the number `at`."""

    def __init__(self, at, act):
        self.count, self._at, self._act = 0, at, act
        self._directory = os.path.join(os.getcwd(), "")

    def __call__(self, event, arguments):
        if event != "open" and event not in _CHANGES or not isinstance(
                arguments[0], str | bytes | os.PathLike):
            return
        path = os.fsdecode(arguments[0])
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if os.path.abspath(path).startswith(self._directory):
            self.count += 1
            if self.count == self._at:
                print(f"inside.py: change {self.count}: {event} {path}", file=sys.stderr, flush=True)
                self._act(path)


def _act(name, path=None):
    """Disturbs the process. Returns None."""
    if name == "RLIMIT_FSIZE":
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    elif name == "COPY":
        shutil.copytree(".", path)
    elif name.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, name))
    else:
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number), path)


def _count(moment):
    counts = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
    print("threads={} files={}".format(*counts))
    return moment


def _watch(moment, name):
    """Prepares the disturbance."""
    kind, _, number = moment.partition(" ")
    if kind == "cpu":
        signal.setitimer(signal.ITIMER_PROF, float(number))
    elif kind in ("change", "end"):
        watch = _ChangeWatch(int(number or 0), lambda path: _act(name, path))
        sys.addaudithook(watch)
        if kind == "end":
            atexit.register(lambda: print(f"changes={watch.count}", file=sys.stderr))
    elif name == "COPY":
        for part in moment.split("|"):
            copy = os.path.join("..", part.split()[0])
            logging.getLogger("absl").addHandler(_LogWatch(part, functools.partial(_act, name, copy)))
    else:
        act = (lambda: _count(moment)) if name == "COUNT" else lambda: _act(name)
        logging.getLogger("absl").addHandler(_LogWatch(moment, act))


_, moment, name, *sys.argv = sys.argv
sys.orig_argv[:] = [sys.executable, *sys.argv]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
_watch(moment, name)
runpy.run_path(sys.argv[0], run_name="__main__")
