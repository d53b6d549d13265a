"""Trains each row of the table in conformance/rows.py once, for all processes of a run of the tests."""

import fcntl
import hashlib
import json
import shutil

from rows import Workspace
from runs import EVALUATION, KILL_MOMENT, interrupt
from scripts import Finished


class Workspaces(object):
    """A function (row, untrained, changes) that returns a `Workspace`. Tests must not change its files.

    With `untrained`, the workspace contains only the data. Otherwise it is trained. `changes` are changed
    flags of the training, and each combination is trained once. The attribute `finished` is the `Finished` of
    the training. The attributes `killed` and `killed_in_evaluation` are workspaces that
    SIGKILL would leave after step 4, and before the first evaluation.
    """

    def __init__(self, scripts, model, directory):
        """Creates the function. Processes that share `directory` share the workspaces."""
        self._scripts, self._model, self._directory = scripts, model, directory
        directory.mkdir(exist_ok=True)

    def __call__(self, row, untrained=False, **changes):
        key = repr((row.name, untrained, sorted(changes.items())))
        place = self._directory / hashlib.sha256(key.encode()).hexdigest()[:16]
        with open(f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may train this row
            if not (place / "finished.json").exists():
                shutil.rmtree(place, ignore_errors=True)
                finished = (self._prepare(row, place / "work") if untrained
                            else self._train(row, place / "work", changes))
                (place / "finished.json").write_text(json.dumps(finished))
        found = Workspace(row, self._scripts, place / "work")
        found.killed, found.killed_in_evaluation = (
            Workspace(row, self._scripts, place / moment.split()[0]) for moment in (KILL_MOMENT, EVALUATION))
        found.finished = Finished(*json.loads((place / "finished.json").read_text()))
        return found

    def _prepare(self, row, directory):
        Workspace.create(row, self._scripts, directory, self._model)
        return Finished(0, "", "")

    def _train(self, row, directory, changes):
        directory.parent.mkdir()
        work = self(row, untrained=True).copy(directory)
        finished = interrupt(work, f"{KILL_MOMENT}|{EVALUATION}", "COPY", **changes)
        assert finished.code == 0, finished.err
        return finished
