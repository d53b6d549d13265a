"""Featurization follows each change of the tokenizer, and has the same order in any number of processes."""

import math
import operator
import os
import signal
import subprocess
import sys
import time

from helpers import ROOT, is_running, wait_until
from network_namespaces import children
import pytest
from test_tokenization import released_vocab

from bertlib.system import files, workers
from bertlib.tasks.classification import classifier_data
import tokenization

LABELS = ["0", "1"]


# --- Tokens ----------------------------------------------------------------------------------------------


@pytest.fixture
def tokenizer():
    """A tokenizer whose cache contains the words of the tests below."""
    tokens = ["[UNK]", "a", "b", "##b", "ab", "abb", "A", "-", "x", "##-", "##x"]
    tokenizer = tokenization.FullTokenizer(dict.fromkeys(tokens, 1))
    assert tokenizer.tokenize("Abb a-x") == ["abb", "a", "-", "x"]
    return tokenizer


def test_a_changed_setting_or_vocabulary_is_noticed(tokenizer):
    tokenizer.basic_tokenizer.do_lower_case = False
    assert tokenizer.tokenize("Abb") == ["A", "##b", "##b"]
    tokenizer.basic_tokenizer.do_lower_case = True
    tokenizer.wordpiece_tokenizer.max_input_chars_per_word = 2
    assert tokenizer.tokenize("Abb a") == ["[UNK]", "a"]  # although "abb" is in the vocabulary
    tokenizer.wordpiece_tokenizer.max_input_chars_per_word = 200
    del tokenizer.vocab["abb"]
    assert tokenizer.tokenize("Abb") == ["ab", "##b"]
    tokenizer.vocab["##bb"] = tokenizer.vocab.pop("ab")  # the size of the vocabulary does not change
    assert tokenizer.tokenize("Abb") == ["a", "##bb"]
    tokenizer.wordpiece_tokenizer.unk_token = "?"
    assert tokenizer.tokenize("xA a") == ["?", "a"]
    for container in ({"a", "##b"}, ["a", "##b"], {"a": 0, "##b": 1}):
        tokenizer.wordpiece_tokenizer = tokenization.WordpieceTokenizer(container)
        assert tokenizer.tokenize("Abb") == ["a", "##b", "##b"]


# --- Processes -------------------------------------------------------------------------------------------


def test_an_error_in_a_worker_is_the_same_error_and_leaves_no_file(tmp_path):
    examples = [classifier_data.InputExample(f"train-{i}", "a", None, "9" if i >= 1500 else "0")
                for i in range(2100)]
    for num_workers in (1, 2):
        with pytest.raises(ValueError) as error:
            classifier_data.file_based_convert_examples_to_features(
                examples, LABELS, 24, tokenization.FullTokenizer(released_vocab()), str(tmp_path / "file"),
                num_workers)
        assert str(error.value) == "example train-1500: label '9' is not one of 0, 1"
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_come_in_order(num_workers):
    items = list(range(23))
    for given_items in (items, iter(items)):
        assert list(workers.ordered_map(operator.neg, given_items, num_workers,
                                        chunk_size=2)) == [-i for i in items]


def test_items_are_taken_as_they_are_needed():
    taken = []
    results = workers.ordered_map(operator.neg, (taken.append(i) or i for i in range(1000)), 2, chunk_size=1)
    assert next(results) == 0
    assert len(taken) <= 5
    results.close()


def test_what_was_done_before_an_error_comes_first():
    results = workers.ordered_map(math.sqrt, iter([4, 1, -1, 9]), 2, chunk_size=4)
    assert [next(results), next(results)] == [2, 1]
    with pytest.raises(ValueError) as error:
        next(results)
    with pytest.raises(ValueError) as expected:
        math.sqrt(-1)
    assert str(error.value) == str(expected.value)
    assert "in a worker process" in str(error.value.__cause__)


@pytest.mark.parametrize("function, item, complaint", [
    (signal.raise_signal, signal.SIGKILL, "was killed by SIGKILL"), (os._exit, 3, "ended with exit code 3")])
def test_a_worker_that_dies_is_an_error_and_no_hang(function, item, complaint):
    with pytest.raises(ChildProcessError, match=complaint):
        list(workers.ordered_map(function, [item] * 8, 2, chunk_size=1))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="looks into /proc")
@pytest.mark.parametrize("number, seconds", [(signal.SIGINT, 60), (signal.SIGKILL, 0.3)])
def test_workers_end_with_their_process(number, seconds):
    # A shell script starts background processes with SIGINT ignored. If the tests run in the background, this
    # process would also ignore SIGINT. So it sets the default handler.
    code = ("import signal, time; from bertlib.system import workers; signal.signal(signal.SIGINT, "
            f"signal.default_int_handler); print(list(workers.ordered_map(time.sleep, [{seconds}] * 400, 2, "
            "chunk_size=1)))")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE,
                               start_new_session=True)
    wait_until(lambda: len(children(process.pid)) == 2)
    started = children(process.pid)
    # The workers must leave the process group: with Ctrl-C, each of them would print a traceback.
    wait_until(lambda: os.getpgid(process.pid) not in map(os.getpgid, started))
    time.sleep(0.3)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as Ctrl-C does
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode
    if number == signal.SIGINT:
        assert errors.count(b"Traceback") == 1 and b"KeyboardInterrupt" in errors
    wait_until(lambda: not any(map(is_running, started)), 20)


# --- Progress --------------------------------------------------------------------------------------------


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    bars = []

    def bar(items, doing, total, **options):
        bars.append((doing, total, options["leave"]))
        return items

    monkeypatch.setattr(files, "tqdm", bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(files.with_progress("abc", 3, "Converting example")) == list("abc")
    assert bars == [("Converting example", 3, False)]
