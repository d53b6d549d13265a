"""A request to end a run, such as a cluster's SIGTERM before it takes a machine back.

`bertlib.command_line.signals` makes the request. A training looks at it before each micro-batch, and replicas
look at it between two steps.
"""

import contextlib
import threading


class Stopped(BaseException):
    """The run was asked to end, and did. Like KeyboardInterrupt no error; a text says what is kept."""


class StopRequest:
    """A request that any thread can make.

    A training that is given one, in its `RunConfig`, looks at it before each micro-batch, an evaluation and a
    prediction before each batch.

    Attributes:
      awaited: whether a training is under way: it ends by itself, and saves what it has.
    """

    def __init__(self):
        self._made = threading.Event()
        self._raised = False
        self.awaited = False

    def set(self):
        """Asks for the end."""
        self._made.set()

    @property
    def is_set(self):
        """Whether somebody asked."""
        return self._made.is_set()

    def check(self):
        """Raises `Stopped` if somebody asked, once."""
        if self.is_set and not self._raised:
            self._raised = True
            raise Stopped

    @contextlib.contextmanager
    def being_awaited(self):
        """Says that what is in the block ends by itself."""
        before, self.awaited = self.awaited, True
        try:
            yield
        finally:
            self.awaited = before


# The request that all trainings of this process obey.
request = StopRequest()
