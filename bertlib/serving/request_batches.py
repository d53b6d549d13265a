"""Answers inputs, for example texts to classify, in batches. A batch may contain inputs of several concurrent
requests. A single thread computes the batches.

This thread tokenizes the inputs in the order of their requests, until a batch is full. If a batch is not
full, the thread waits for more inputs, but only for a limited time after the arrival of the first input.
"""

import collections
import concurrent.futures
import threading
import time
from typing import NamedTuple

from absl import logging


class QueueFull(Exception):
    """The queue has no room for the inputs of a request."""


class BadInput(ValueError):
    """The error for an input that cannot be answered, or for a request with too many windows.

    Attributes:
      is_too_long: whether the request has too many windows.
    """

    def __init__(self, message, is_too_long=False):
        super().__init__(message)
        self.is_too_long = is_too_long


class _Request(NamedTuple):
    """A request in the queue. `inputs` contains dicts {name of a field: value}. `answers` has one element for
    each input: its answer, or None if the input has no answer yet. `arrival` is the time of the request's
    arrival, from `time.monotonic`.
    """

    inputs: list
    future: concurrent.futures.Future
    answers: list
    arrival: float


class _Waiting(NamedTuple):
    """A tokenized input that waits for a batch. `number` is the index of the input in its request."""

    request: _Request
    number: int
    prepared: tuple

    @property
    def windows(self):
        return len(self.prepared[0])


class RequestBatches:
    """A queue of requests, and the thread that answers them. Close this object after use, or use it in a
    `with` statement.

    Attributes:
      is_alive: whether the thread is running.
    """

    def __init__(self, predictor, batch_size, max_wait, max_queue, max_windows):
        """Starts the thread.

        Args:
          predictor: a `serving.Predictor`. The caller must not close the predictor before this object is
            closed.
          batch_size: int, largest number of windows in a batch. A long text consists of several windows. An
            input with more windows than `batch_size` is answered alone, in several batches.
          max_wait: float, largest number of seconds that an input waits for its batch to become full.
          max_queue: int, largest number of inputs that wait for an answer.
          max_windows: int, largest number of windows in a request.
        """
        self._predictor, self._batch_size, self._max_wait = predictor, batch_size, max_wait
        self._max_queue, self._max_windows = max_queue, max_windows
        self._changed = threading.Condition()  # protects the next three attributes
        self._requests, self._is_closed, self._unanswered = collections.deque(), False, 0
        self._waiting = collections.deque()  # contains `_Waiting` objects; only `self._thread` uses it
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    @property
    def is_alive(self):
        return self._thread.is_alive()

    def submit(self, inputs):
        """Adds a request to the queue.

        Args:
          inputs: non-empty list of dicts {name of a field: value}.

        Returns:
          a `concurrent.futures.Future` of the list of answers, in the order of the inputs. If the request
          fails, the exception of the future is a `BadInput`, or the error that the model raised. If the
          future is cancelled, the inputs are removed from the queue.

        Raises:
          QueueFull: too many inputs wait already.
          RuntimeError: the object is closed.
        """
        request = _Request(list(inputs), concurrent.futures.Future(), [None] * len(inputs), time.monotonic())
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the queue of requests is closed")
            if self._unanswered + len(inputs) > self._max_queue:
                raise QueueFull
            self._requests.append(request)
            self._changed.notify()
            self._unanswered += len(inputs)
            request.future.add_done_callback(lambda _: self._release(request))
        return request.future

    def close(self):
        """Answers the requests in the queue, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _release(self, request):
        with self._changed:
            self._unanswered -= len(request.answers)
        request.inputs.clear()  # a cancelled request remains in the queue, but its texts use no memory

    # --- The thread ---

    def _run(self):
        while batch := self._next_batch():
            try:
                answers = self._predictor.answer([waiting.prepared for waiting in batch])
            except Exception as error:  # noqa: BLE001 (the requests of the batch get the error)
                logging.exception("A batch of %d inputs could not be answered.", len(batch))
                for waiting in batch:
                    _fail(waiting.request, error)
                continue
            for waiting, answer in zip(batch, answers):
                waiting.request.answers[waiting.number] = answer
            for request in {id(waiting.request): waiting.request for waiting in batch}.values():
                if (all(answer is not None for answer in request.answers)
                        and request.future.set_running_or_notify_cancel()):
                    request.future.set_result(request.answers)

    def _next_batch(self):
        """Returns the inputs of the next batch as a list of `_Waiting`. The list is empty if the object is
        closed and the queue is empty."""
        while True:
            self._waiting = collections.deque(waiting for waiting in self._waiting
                                              if not waiting.request.future.done())
            windows = sum(waiting.windows for waiting in self._waiting)
            request = None if windows >= self._batch_size else self._next_request()
            if request is None:
                break
            self._waiting.extend(self._prepare(request))
        batch, windows = [], 0
        while self._waiting and (not batch or windows + self._waiting[0].windows <= self._batch_size):
            batch.append(self._waiting.popleft())
            windows += batch[-1].windows
        return batch

    def _next_request(self):
        """Takes the next request from the queue. If the queue is empty, waits for a request.

        The wait ends when a request arrives or the object is closed. If inputs of earlier requests already
        wait for a batch, the wait also ends when the first of them has waited for the maximum time.

        Returns:
          the request, or None if the wait ended without a request.
        """
        with self._changed:
            while not self._requests:
                seconds = None
                if self._waiting:
                    seconds = self._waiting[0].request.arrival + self._max_wait - time.monotonic()
                if self._is_closed or seconds is not None and seconds <= 0:
                    return None
                self._changed.wait(seconds)
            return self._requests.popleft()

    def _prepare(self, request):
        """Tokenizes the inputs of a request. Returns a list of `_Waiting`, the shortest input first; an
        empty list if the request has failed or was cancelled."""
        found, windows = [], 0
        for number, item in enumerate(request.inputs):
            if request.future.done():
                return []
            try:
                found.append(_Waiting(request, number, self._predictor.prepare(**item)))
            except Exception as error:  # noqa: BLE001 (the request gets the error)
                if isinstance(error, ValueError):
                    which = f"input {number + 1}: " * (len(request.inputs) > 1)
                    error = BadInput(f"{which}{error}")
                else:
                    logging.exception("An input could not be tokenized.")
                _fail(request, error)
                return []
            windows += found[-1].windows
            if windows > self._max_windows:
                _fail(request, BadInput(
                    f"the request has more than {self._max_windows} texts; each window of a long text counts "
                    "as one text. Send shorter or fewer texts.", is_too_long=True))
                return []
        # The inputs are sorted by length, because texts of similar length need little padding in a batch.
        # A context without tokens has no window.
        return sorted(found, key=lambda waiting: max(
            (len(row["input_ids"]) for row in waiting.prepared[0]), default=0))


def _fail(request, error):
    if not request.future.done() and request.future.set_running_or_notify_cancel():
        request.future.set_exception(error)
