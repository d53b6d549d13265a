"""Answers inputs, for example texts to classify, in batches. A batch may contain inputs of several concurrent
requests. A single thread computes the batches.

This thread tokenizes one request after another, the shorter ones first, until several batches wait. If less
than one batch waits, the thread waits for more inputs, but only for a limited time after the arrival of the
first one. Then it computes the request whose turn was longest ago, in a batch with other texts of similar
length. A request that needs several batches has its next turn after the requests that arrived during its
batch.
"""

import collections
import concurrent.futures
import math
import sys
import threading
import time
from typing import Any, NamedTuple

from absl import logging

# The fixed part of a call of the model takes at least as long as this number of tokens. (Measured on 2 cores,
# with the installed model: 24 with ONNX Runtime, 64 with TensorFlow.)
_CALL_TOKENS = 24
# The tokens of a batch, padding included, take at most this number of times as long as the fixed part. Larger
# batches are hardly cheaper, and other texts would wait longer.
_MOST_CALLS = 12
# Texts of this number of batches are tokenized before they are needed, to find texts of similar length.
_BATCHES_AHEAD = 4
# If texts wait for a batch, other texts are tokenized for at most this number of seconds, and one text more.
_TOKENIZE_SECONDS = 0.05
# A request may be tokenized before requests that arrived earlier by this number of seconds for each 10,000
# bytes that they have more. So short texts do not wait for long ones, and long ones wait for a limited time.
_SECONDS_AHEAD = 0.05
# Weight of the measurements before the last batch in the mean speed of the model.
_DECAY = 0.9


class QueueFull(Exception):
    """The queue has no room for the inputs of a request, or cannot answer them in time. The argument is the
    number of seconds (int) after which the client may try again."""


class BadInput(ValueError):
    """The error for an input that cannot be answered."""


class TooLong(BadInput):
    """The error for a request with too many windows."""


class _Request:
    """A request in the queue.

    Attributes:
      inputs: list of dicts {name of a field: value}.
      future: the future of the list of answers.
      answers: list with the answer of each input, or None if the input has no answer yet.
      num_left: number of inputs without an answer.
      arrival: time of the request's arrival, from `time.monotonic`.
      turn: time of its arrival, or of the end of the last batch that was computed for this request.
      rank: the request with the lowest number is tokenized first.
    """

    def __init__(self, inputs):
        self.inputs, self.num_left = inputs, len(inputs)
        self.future, self.answers = concurrent.futures.Future(), [None] * len(inputs)
        self.arrival = self.turn = time.monotonic()
        self.rank = self.arrival + _SECONDS_AHEAD * (size_of(inputs) // 10_000)


class _Input(NamedTuple):
    """A tokenized input. `number` is the index of the input in its request. `outputs` has the outputs of the
    model for each window, or None if the window is not computed yet."""

    request: _Request
    number: int
    outputs: list
    details: Any


class _Window(NamedTuple):
    """A window that waits for a batch. `place` is its index in its input, and `row` the model's arguments."""

    input: _Input
    place: int
    row: dict

    @property
    def length(self):
        return len(self.row["input_ids"])


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
          batch_size: int, largest number of windows in a batch. A long text consists of several windows,
            which may be computed in several batches.
          max_wait: float, largest number of seconds that an input waits for its batch to become full.
          max_queue: int, largest number of inputs that wait for an answer.
          max_windows: int, largest number of windows in a request.
        """
        self._predictor, self._batch_size, self._max_wait = predictor, batch_size, max_wait
        self._max_queue, self._max_windows = max_queue, max_windows
        self._condition = threading.Condition()  # protects the next three attributes
        self._requests, self._is_closed = [], False
        self._open = set()  # all requests without an answer, from the queue and from `_windows`
        self._windows = []  # contains `_Window` objects; only `self._thread` uses it
        # Weighted sums over the last batches; and the seconds of the fastest call of the model.
        self._seconds, self._inputs, self._tokens, self._fastest = 0.0, 0.0, 0, math.inf
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    @property
    def is_alive(self):
        return self._thread.is_alive()

    @property
    def num_waiting(self):
        """Number of inputs of the requests that have no answer yet."""
        return sum(len(request.answers) for request in list(self._open))

    def submit(self, inputs, seconds=math.inf):
        """Adds a request to the queue.

        Args:
          inputs: non-empty list of dicts {name of a field: value}. The list is cleared when its texts are not
            needed any more.
          seconds: float, number of seconds in which the answers are needed.

        Returns:
          a `concurrent.futures.Future` of the list of answers, in the order of the inputs. If the request
          fails, the exception of the future is a `BadInput`, or the error that the model raised. If the
          future is cancelled, the inputs are removed from the queue.

        Raises:
          QueueFull: too many inputs wait already, or other requests would delay the answers for too long.
          RuntimeError: the object is closed.
        """
        request = _Request(inputs)
        with self._condition:
            if self._is_closed:
                raise RuntimeError("the queue of requests is closed")
            if self.num_waiting + len(inputs) > self._max_queue:
                raise QueueFull(1)
            late = self._wait_of(len(inputs)) - seconds
            if self._open and late > 0:
                raise QueueFull(math.ceil(late))
            self._requests.append(request)
            self._condition.notify()
            self._open.add(request)
            request.future.add_done_callback(lambda _: self._release(request))
        return request.future

    def _wait_of(self, number):
        """Returns the expected number of seconds until a new request with some inputs is answered. Each other
        request has as many turns as the new one until then."""
        most = self._batch_size * math.ceil(number / self._batch_size)
        inputs = number + sum(min(other.num_left, most) for other in self._open)
        return inputs * self._seconds / self._inputs if self._inputs else 0.0

    def close(self):
        """Answers the requests in the queue, and ends the thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _release(self, request):
        with self._condition:
            self._open.discard(request)
        request.inputs.clear()  # a cancelled request remains in the queue, but its texts use no memory

    # --- The thread ---

    def _run(self):
        end = time.monotonic()
        while self._gather():
            request, batch = self._take_batch()
            if not batch:
                continue
            start = max(end, request.arrival)
            self._compute(batch)
            end = request.turn = time.monotonic()
            self._seconds = _DECAY * self._seconds + end - start
            self._tokens = _DECAY * self._tokens + len(batch) * batch[-1].length
            self._inputs = _DECAY * self._inputs + sum(1 / len(window.input.outputs) for window in batch)
            self._fastest = min(self._fastest, end - start)

    def _gather(self):
        """Tokenizes requests until enough inputs wait. Returns false if the object is closed and all requests
        are answered."""
        requests = collections.Counter(window.input.request for window in self._windows)
        number, seconds = sum(min(count, self._batch_size) for count in requests.values()), 0
        while not (self._windows and seconds > _TOKENIZE_SECONDS) and (request := self._next_request(number)):
            start = time.monotonic()
            windows = self._prepare(request)
            seconds += time.monotonic() - start
            self._windows.extend(windows)
            number += min(len(windows), self._batch_size)
        return bool(self._windows)

    def _next_request(self, number):
        """Takes the next request from the queue. If the queue is empty, waits for a request.

        The wait ends when a request arrives or the object is closed. If inputs of earlier requests already
        wait for a batch, the wait also ends when the first of them has waited for the maximum time.

        Args:
          number: number of windows that wait for a batch. A request counts as at most one batch.

        Returns:
          the request, or None if enough windows wait or the wait ended without a request.
        """
        if number >= _BATCHES_AHEAD * self._batch_size:
            return None
        with self._condition:
            while not self._requests:
                seconds = None
                if self._windows:
                    seconds = self._windows[0].input.request.arrival + self._max_wait - time.monotonic()
                if self._is_closed or seconds is not None and (seconds <= 0 or number >= self._batch_size):
                    return None
                self._condition.wait(seconds)
            self._requests.sort(key=lambda request: request.rank)
            return self._requests.pop(0)

    def _prepare(self, request):
        """Tokenizes the inputs of a request. Returns a list of `_Window`; an empty list if the request has
        failed or was cancelled."""
        windows = []
        for number, item in enumerate(request.inputs):
            if request.future.done():
                return []
            try:
                rows, details = self._predictor.prepare(**item)
            except Exception as error:  # noqa: BLE001 (the request gets the error)
                if isinstance(error, ValueError):
                    which = f"input {number + 1}: " * (len(request.inputs) > 1)
                    error = BadInput(f"{which}{error}")
                else:
                    logging.exception("An input could not be tokenized.")
                _fail(request, error)
                return []
            one = _Input(request, number, [None] * len(rows), details)
            windows.extend(_Window(one, place, row) for place, row in enumerate(rows))
            if len(windows) > self._max_windows:
                _fail(request, TooLong(
                    f"the request has more than {self._max_windows} texts; each window of a long text counts "
                    "as one text. Send shorter or fewer texts."))
                return []
            if not rows:  # a context without tokens has no window
                self._finish(one)
        request.inputs.clear()  # the texts may be much longer than their windows
        return windows

    def _take_batch(self):
        """Returns the request whose turn it is, and its next batch as a list of `_Window`. Returns (None, [])
        if all requests are cancelled."""
        self._windows = sorted((window for window in self._windows if not window.input.request.future.done()),
                               key=lambda window: window.input.request.turn)
        if not self._windows:
            return None, []
        first = self._windows[0]
        # If many texts wait, the last ones do not share this batch. Otherwise, short texts would often
        # overtake long texts.
        most = max(self._batch_size, len(self._windows) * 3 // 4)
        candidates = sorted(self._windows[:most], key=lambda window: window.length)
        place = next(place for place, window in enumerate(candidates) if window is first)
        call_tokens = self._fastest * self._tokens / self._seconds if self._seconds else 0
        low, high = similar_lengths([window.length for window in candidates], place, self._batch_size,
                                    max(_CALL_TOKENS, call_tokens))
        self._windows = candidates[:low] + candidates[high:] + self._windows[most:]
        return first.input.request, candidates[low:high]

    def _compute(self, batch):
        """Computes a batch, and answers the requests that are complete."""
        try:
            outputs = self._predictor.compute([window.row for window in batch])
        except Exception as error:  # noqa: BLE001 (the requests of the batch get the error)
            logging.exception("A batch of %d inputs could not be answered.", len(batch))
            for window in batch:
                _fail(window.input.request, error)
            return
        for window, output in zip(batch, outputs):
            window.input.outputs[window.place] = output
            if all(output is not None for output in window.input.outputs):
                self._finish(window.input)

    def _finish(self, one):
        """Stores the answer of an input. Answers its request if this was the last input."""
        request = one.request
        try:
            request.answers[one.number] = self._predictor.answer_of(one.outputs, one.details)
        except Exception as error:  # noqa: BLE001 (the request gets the error)
            logging.exception("An input could not be answered.")
            _fail(request, error)
            return
        request.num_left -= 1
        if not request.num_left and request.future.set_running_or_notify_cancel():
            request.future.set_result(request.answers)


def size_of(inputs):
    """Returns the number of bytes of the texts. A text with an emoji has four bytes for each character."""
    values = (value for item in inputs for value in item.values())
    return sum(sum(map(sys.getsizeof, value if isinstance(value, list) else [value])) for value in values)


def similar_lengths(lengths, first, batch_size, call_tokens):
    """Chooses texts of similar length for a batch, in which each text is padded to the longest one. The
    padding of the batch takes at most as long as the additional call of the model for two smaller batches.

    Args:
      lengths: sorted list with the number of tokens of each text.
      first: int, index of the text that the batch must contain.
      batch_size: int, largest number of texts.
      call_tokens: the fixed part of the time for a call of the model, as a number of tokens.

    Returns:
      (low, high): the batch contains the texts from `low` to `high` - 1.
    """
    def padded(low, high):
        return (high - low) * lengths[high - 1]

    def padding(span):
        return padded(*span) - sum(lengths[slice(*span)])

    best, larger = None, [(first, first + 1)]
    while larger:
        low, high = best = min(larger, key=padding)
        larger = [(start, end) for start, end in ((low - 1, high), (low, high + 1))
                  if start >= 0 and end <= len(lengths) and end - start <= batch_size
                  and padding((start, end)) <= call_tokens
                  and padded(start, end) <= _MOST_CALLS * call_tokens]
    return best


def _fail(request, error):
    if not request.future.done() and request.future.set_running_or_notify_cancel():
        request.future.set_exception(error)
