"""inside.py MOMENT SIGNAL SCRIPT FLAGS: runs a script that sends itself a signal at a moment of its log.

MOMENT is a part of a log line, for example "step 5/8". The process gets the signal SIGNAL, for example
SIGKILL, when it logs the first line that contains MOMENT. So the same command always ends at the same place,
however busy the machine is. With SIGNAL=RLIMIT_FSIZE, no file can become larger than 40 kB from this moment
on, as on a full disk. With SIGNAL=COUNT, the process prints a line "threads=… files=…" to its standard output
for each log line that contains MOMENT.
"""

import logging
import os
import resource
import runpy
import signal
import sys


class _Watch(logging.Handler):
    """Acts at the first message that contains the moment; at all of them, with COUNT."""

    def __init__(self, moment, act):
        super().__init__()
        self._moment, self._act = moment, act

    def emit(self, record):
        if self._moment and self._moment in record.getMessage():
            print(f"inside.py: {self._moment}", file=sys.stderr, flush=True)  # absl's handler may come later
            self._moment = self._act()


def _act(name, moment):
    """Returns the next moment at which to act, or None."""
    if name == "COUNT":
        counts = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
        print("threads={} files={}".format(*counts))
        return moment
    if name == "RLIMIT_FSIZE":
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    else:
        os.kill(os.getpid(), getattr(signal, name))
    return None


_, moment, name, *sys.argv = sys.argv
sys.orig_argv[:] = [sys.executable, *sys.argv]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
logging.getLogger("absl").addHandler(_Watch(moment, lambda: _act(name, moment)))
runpy.run_path(sys.argv[0], run_name="__main__")
