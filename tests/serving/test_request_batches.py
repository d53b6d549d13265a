"""`request_batches`: which inputs share a batch, and what happens to requests that cannot be answered."""

import concurrent.futures
import threading
import time

from http_clients import wait_until
import pytest

from bertlib.serving import request_batches


class Echo:
    """A fake predictor that answers with the text. A text of n words has n windows.

    The text "bad" is refused, and the text "lost" breaks the model.
    """

    def __init__(self, is_open=True):
        self.go, self.batches = threading.Event(), []
        if is_open:
            self.go.set()

    def prepare(self, text):
        if text == "bad":
            raise ValueError("text is bad.")
        return [{"input_ids": [1] * len(text)}] * len(text.split()), text

    def answer(self, prepared):
        self.batches.append([text for _, text in prepared])
        assert self.go.wait(30)
        if "lost" in self.batches[-1]:
            raise ValueError("out of memory.")
        return [{"said": text} for _, text in prepared]


def batches_of(predictor, batch_size=4, max_wait=0.0, max_queue=20, max_windows=10):
    return request_batches.RequestBatches(predictor, batch_size, max_wait, max_queue, max_windows)


def inputs(*texts):
    return [{"text": text} for text in texts]


def held(batches, predictor):
    """Submits a request, and returns its future. The model computes it until `predictor.go` is set."""
    first = batches.submit(inputs("first"))
    wait_until(lambda: predictor.batches)
    return first


def test_requests_that_wait_share_batches_of_limited_size():
    predictor = Echo(is_open=False)
    with batches_of(predictor) as batches:
        first = held(batches, predictor)
        later = [batches.submit(inputs(f"q{number}")) for number in range(6)]
        predictor.go.set()
        assert [future.result(30) for future in later] == [[{"said": f"q{number}"}] for number in range(6)]
        assert first.result(30) == [{"said": "first"}]
    assert predictor.batches == [["first"], ["q0", "q1", "q2", "q3"], ["q4", "q5"]]


def test_the_size_of_a_batch_counts_windows():
    predictor = Echo(is_open=False)
    with batches_of(predictor) as batches:
        held(batches, predictor)
        futures = [batches.submit(inputs(text)) for text in ("a b c", "d e", "f g h i j k", "l")]
        predictor.go.set()
        concurrent.futures.wait(futures)
    assert predictor.batches == [["first"], ["a b c"], ["d e"], ["f g h i j k"], ["l"]]


def test_a_batch_waits_for_more_inputs_but_only_for_a_limited_time():
    predictor = Echo()
    with batches_of(predictor, max_wait=5) as batches:
        start = time.monotonic()
        futures = [batches.submit(inputs(text)) for text in "abcd"]  # a full batch does not wait
        concurrent.futures.wait(futures)
        assert time.monotonic() - start < 4
    assert predictor.batches == [["a", "b", "c", "d"]]
    with batches_of(predictor, max_wait=0.2) as batches:
        start = time.monotonic()
        batches.submit(inputs("alone")).result(30)
        assert 0.2 <= time.monotonic() - start < 4


def test_a_full_queue_refuses_until_answers_are_given():
    predictor = Echo(is_open=False)
    with batches_of(predictor, max_queue=3) as batches:
        first = held(batches, predictor)
        second = batches.submit(inputs("a", "b"))
        with pytest.raises(request_batches.QueueFull):
            batches.submit(inputs("c"))
        second.cancel()  # so the queue is no longer full
        third = batches.submit(inputs("c", "d"))
        predictor.go.set()
        concurrent.futures.wait([first, third])
        assert batches.submit(inputs("e", "f", "g")).result(30)


def test_a_request_that_is_cancelled_between_two_of_its_batches():
    predictor = Echo(is_open=False)
    with batches_of(predictor) as batches:
        long = batches.submit(inputs(*"abcdefgh"))
        wait_until(lambda: predictor.batches)
        assert long.cancel()
        predictor.go.set()
        assert batches.submit(inputs("next")).result(30) == [{"said": "next"}]
    assert predictor.batches == [["a", "b", "c", "d"], ["next"]]


@pytest.mark.parametrize("texts, message, is_too_long", [
    (["bad"], "text is bad.", False), (["good", "bad"], "input 2: text is bad.", False),
    (["a b c d e f", "a b c d e"], "more than 10 texts", True)])
def test_a_bad_input_is_the_error_of_its_request_alone(texts, message, is_too_long):
    with batches_of(Echo()) as batches:
        with pytest.raises(request_batches.BadInput, match=message) as caught:
            batches.submit(inputs(*texts)).result(30)
        assert caught.value.is_too_long == is_too_long
        assert batches.submit(inputs("good")).result(30) == [{"said": "good"}]


def test_the_thread_survives_an_error_of_the_model():
    predictor = Echo()
    with batches_of(predictor) as batches:
        with pytest.raises(ValueError, match="out of memory"):
            batches.submit(inputs("lost")).result(30)
        assert batches.is_alive and batches.submit(inputs("good")).result(30) == [{"said": "good"}]


def test_close_answers_what_is_in_the_queue_and_then_refuses():
    predictor = Echo(is_open=False)
    batches = batches_of(predictor)
    held(batches, predictor)
    last = batches.submit(inputs("last"))
    threading.Timer(0.1, predictor.go.set).start()
    batches.close()
    assert last.result(0) == [{"said": "last"}] and not batches.is_alive
    with pytest.raises(RuntimeError):
        batches.submit(inputs("late"))
