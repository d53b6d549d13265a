"""`request_batches`: which inputs share a batch, and what happens to requests that cannot be answered."""

import threading
import time

from http_clients import wait_until
import pytest

from bertlib.serving import request_batches


class Echo:
    """A fake predictor that answers with the text. A text of n words has n windows.

    The text "bad" is refused, and the text "lost" breaks the model. Batches wait until `go` is set.
    """

    def __init__(self):
        self.go, self.batches = threading.Event(), []

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


@pytest.fixture
def echo():
    return Echo()


def batches_of(echo, max_wait=0.0):
    return request_batches.RequestBatches(echo, batch_size=4, max_wait=max_wait, max_queue=20, max_windows=10)


@pytest.fixture
def batches(echo):
    with batches_of(echo) as batches:
        yield batches


@pytest.fixture
def first(echo, batches):
    """The future of a request of eight inputs. The model computes the first four until `echo.go` is set."""
    future = batches.submit(inputs(*"abcdefgh"))
    wait_until(lambda: echo.batches)
    return future


def inputs(*texts):
    return [{"text": text} for text in texts]


def said(*texts):
    return [{"said": text} for text in texts]


def test_requests_that_wait_share_batches_of_limited_size(echo, batches, first):
    """The size of a batch counts windows. The inputs of a request are sorted by length, but not its answers.
    """
    requests = [["q0"], ["q1"], ["r s", "q"], ["a b c"], ["d e"], ["f g h i j k"], ["l"]]
    later = [batches.submit(inputs(*texts)) for texts in requests]
    echo.go.set()
    assert [future.result(30) for future in later] == [said(*texts) for texts in requests]
    assert first.result(30) == said(*"abcdefgh")
    assert echo.batches == [list("abcd"), list("efgh"), ["q0", "q1", "q"], ["r s"], ["a b c"], ["d e"],
                            ["f g h i j k"], ["l"]]


def test_a_batch_waits_for_more_inputs_but_only_for_a_limited_time(echo):
    echo.go.set()
    for max_wait, texts, shortest in ((5, "abcd", 0), (0.2, "a", 0.2)):  # a full batch does not wait
        with batches_of(echo, max_wait) as batches:
            start = time.monotonic()
            for future in [batches.submit(inputs(text)) for text in texts]:
                future.result(30)
            assert shortest <= time.monotonic() - start < 4
    assert echo.batches == [list("abcd"), ["a"]]


def test_a_request_that_is_cancelled_between_two_of_its_batches_is_not_computed(echo, batches, first):
    assert first.cancel()
    echo.go.set()
    assert batches.submit(inputs("next")).result(30) == said("next")
    assert echo.batches == [list("abcd"), ["next"]]


@pytest.mark.parametrize("texts, message, is_too_long", [
    (["bad"], "text is bad.", False), (["good", "bad"], "input 2: text is bad.", False),
    (["a b c d e f", "a b c d e"], "more than 10 texts", True), (["lost"], "out of memory", None)])
def test_an_error_is_that_of_its_request_alone(texts, message, is_too_long, echo, batches):
    echo.go.set()
    with pytest.raises(ValueError, match=message) as caught:
        batches.submit(inputs(*texts)).result(30)
    assert getattr(caught.value, "is_too_long", None) == is_too_long
    assert batches.is_alive and batches.submit(inputs("good")).result(30) == said("good")
