"""`request_batches`: which inputs share a batch, and what happens to requests that cannot be answered."""

import itertools
import threading
import time

from helpers import wait_until
import pytest

from bertlib.serving import request_batches


class Echo:
    """A fake predictor that answers with the text. A text of n words has n windows, which are as long as the
    text.

    The text "bad" is refused, and the text "lost" breaks the model. Batches wait until `go` is set.
    """

    def __init__(self):
        self.go, self.batches = threading.Event(), []

    def prepare(self, text):
        if text == "bad":
            raise ValueError("text is bad.")
        return [{"input_ids": [1] * len(text), "text": text}] * len(text.split()), text

    def compute(self, windows):
        self.batches.append([window["text"] for window in windows])
        assert self.go.wait(30)
        if "lost" in self.batches[-1]:
            raise ValueError("out of memory.")
        return [window["text"] for window in windows]

    def answer_of(self, outputs, details):
        assert outputs == [details] * len(details.split())
        return {"said": details}


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
    """The size of a batch counts windows. The turn of a request is at the end of its last batch."""
    requests = [["q0"], ["q1"], ["r s", "q"], ["a b c"], ["d e"], ["f g h i j k"], ["l"], [" "]]
    later = [batches.submit(inputs(*texts)) for texts in requests]
    echo.go.set()
    assert [future.result(30) for future in later] == [said(*texts) for texts in requests]
    assert first.result(30) == said(*"abcdefgh")
    assert echo.batches[:3] == [list("abcd"), ["q", "q0", "q1", "r s"], ["r s", "d e", "d e", "a b c"]]
    assert max(map(len, echo.batches)) == 4 and len(echo.batches) == 7
    windows = [text for texts in [list("abcdefgh"), *requests] for text in texts for _ in text.split()]
    assert sorted(itertools.chain(*echo.batches)) == sorted(windows)


def test_a_long_text_delays_others_by_at_most_one_batch(echo, batches):
    long = batches.submit(inputs("a b c d e f g h i j"))
    wait_until(lambda: echo.batches)
    short = [batches.submit(inputs(*texts)) for texts in (["x"], ["y"] * 3)]
    echo.go.set()
    assert [future.result(30) for future in short] == [said("x"), said("y", "y", "y")]
    assert long.result(30) == said("a b c d e f g h i j")
    assert echo.batches == [["a b c d e f g h i j"] * 4, ["x", "y", "y", "y"], ["a b c d e f g h i j"] * 4,
                            ["a b c d e f g h i j"] * 2]


def test_texts_that_take_long_to_tokenize_do_not_delay_the_others(echo, batches, first):
    """Short texts are tokenized first, and tokenization pauses for a batch that could be computed."""
    prepare, order = echo.prepare, []
    echo.prepare = lambda text: order.append(text[:3]) or time.sleep(0.06) or prepare(text)
    compute = echo.compute
    echo.compute = lambda windows: order.append("batch") or compute(windows)
    later = [batches.submit(inputs(text)) for text in ("long" * 50_000, "bad", "bad", "new", "bad")]
    echo.go.set()
    assert later[3].result(30) == said("new") and later[0].result(30)
    assert order == ["bad", "batch", "bad", "new", "batch", "bad", "lon", "batch"]


@pytest.mark.parametrize("lengths, first, batch_size, call_tokens, expected", [
    ([10] * 6, 2, 4, 24, (0, 4)),  # no padding: a full batch
    ([5, 6, 95, 100, 120], 3, 9, 24, (2, 4)),  # 120 would pad both texts
    ([5, 6, 95, 100, 120], 4, 9, 1000, (0, 5)),  # a call takes longer than the padding
    ([100] * 9, 0, 9, 50, (0, 6))])  # 600 tokens are enough
def test_a_batch_has_texts_of_similar_length(lengths, first, batch_size, call_tokens, expected):
    assert request_batches.similar_lengths(lengths, first, batch_size, call_tokens) == expected


def test_a_request_that_would_be_late_is_not_refused_if_nothing_waits(echo, batches, first):
    """test_http_server.py refuses requests."""
    time.sleep(0.5)
    echo.go.set()
    first.result(30)
    assert batches.submit(inputs("nothing waits"), seconds=0.001).result(30) == said("nothing waits")


def test_a_batch_waits_for_more_inputs_but_only_for_a_limited_time(echo):
    echo.go.set()
    for max_wait, texts, shortest in ((5, "abcd", 0), (0.2, "a", 0.2)):  # a full batch does not wait
        with batches_of(echo, max_wait) as batches:
            start = time.monotonic()
            for future in [batches.submit(inputs(text)) for text in texts]:
                future.result(30)
            assert shortest <= time.monotonic() - start < 4
    assert echo.batches == [list("abcd"), ["a"]]


@pytest.mark.parametrize("texts, message, kind", [
    (["bad"], "text is bad.", request_batches.BadInput),
    (["good", "bad"], "input 2: text is bad.", request_batches.BadInput),
    (["a b c d e f", "a b c d e"], "more than 10 texts", request_batches.TooLong),
    (["lost"], "out of memory", ValueError)])
def test_an_error_is_that_of_its_request_alone(texts, message, kind, echo, batches):
    echo.go.set()
    with pytest.raises(kind, match=message) as caught:
        batches.submit(inputs(*texts)).result(30)
    assert type(caught.value) is kind
    assert batches.is_alive and batches.submit(inputs("good")).result(30) == said("good")
