"""A request to stop a run early, for example after the SIGTERM of a cluster that needs the machine.

`bertlib.command_line.signals` makes the request. A training checks it before each micro-batch, and replicas
check it between two steps.
"""

import contextlib
import threading


class Stopped(BaseException):
    """The run has stopped because of a request. The message says which results are kept.

    It is no error: like KeyboardInterrupt, it is a BaseException, so that `except Exception` does not catch
    it.
    """


class StopRequest:
    """A request to stop, which any thread can make.

    An Estimator gets it in its `RunConfig`. A training checks it before each micro-batch. An evaluation or a
    prediction checks it before each batch.

    Attributes:
      awaited: whether a training runs that checks the request. It will stop by itself and save a checkpoint.
    """

    def __init__(self):
        self._made = threading.Event()
        self._raised = False
        self.awaited = False

    def set(self):
        """Makes the request."""
        self._made.set()

    @property
    def is_set(self):
        """Returns whether the request was made."""
        return self._made.is_set()

    def check(self):
        """Raises `Stopped` if the request was made. It raises only once."""
        if self.is_set and not self._raised:
            self._raised = True
            raise Stopped

    @contextlib.contextmanager
    def being_awaited(self):
        """Sets `awaited` in the block, which checks the request and stops by itself."""
        before, self.awaited = self.awaited, True
        try:
            yield
        finally:
            self.awaited = before


# The request that all trainings of this process check.
request = StopRequest()
