"""Defines the request to stop a run early, for example after a SIGTERM from a cluster's scheduler.

`bertlib.commands.signals` makes the request. A training in a single process checks the request before
each micro-batch. Replicas check it only between two steps.
"""

import contextlib


class Stopped(BaseException):
    """The exception that ends a run after a stop request. The message says which results are kept.

    `Stopped` is not an error. Like KeyboardInterrupt, it is a BaseException, so `except Exception` does not
    catch it.
    """


class StopRequest:
    """A request to stop the run. Any thread can make the request.

    An Estimator gets this object in its `RunConfig`. A training in a single process checks the request before
    each micro-batch, and replicas check it between two steps. An evaluation or a prediction checks the
    request before each batch.

    Attributes:
      is_set: whether the request was made.
      awaited: whether the running code checks the request. If true, this code will stop by itself. For
        example, a training saves a checkpoint and then stops.
    """

    _raised = awaited = False
    # Not a `threading.Event`: its lock would never be free again if a second signal interrupts its `set`.
    is_set = False

    def set(self):
        """Requests that the run stops."""
        self.is_set = True

    def check(self):
        """Raises `Stopped` if the request was made. Only the first call after the request raises it."""
        if self.is_set and not self._raised:
            self._raised = True
            raise Stopped

    @contextlib.contextmanager
    def being_awaited(self):
        """A context manager that sets `awaited` to True during the `with` block.

        In the block, a signal such as SIGTERM raises no error. It only makes the request to stop. So the code
        in the block must regularly check whether the request was made, and stop by itself.
        """
        before, self.awaited = self.awaited, True
        try:
            yield
        finally:
            self.awaited = before


# The request to stop. All trainings of this process check it.
request = StopRequest()
