"""The pages of the server in a real browser: a person fills in the form, clicks, and sees the answer."""

import copy

import browser as browsers
from http_clients import Held, running
from model_directories import write_classifier
import pytest

from bertlib import serving

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = [
    pytest.mark.slow(reason="a browser, and a session for each task"),
    pytest.mark.skipif(not browsers.is_installed(), reason="chromium and chromedriver are not installed")]

TOKEN = "a-secret-of-many-letters"
ATTACK = '<img src=x onerror="document.title=\'broken\'"><script>document.title="broken"</script> the cat'


@pytest.fixture(scope="module")
def browser():
    with browsers.opened() as browser:
        yield browser


@pytest.fixture(scope="module")
def classifier(tiny_model, tmp_path_factory):
    path = write_classifier(tmp_path_factory.mktemp("page") / "model", tiny_model,
                            ["no", "<b>maybe</b>", "yes & no"])
    with serving.load(str(path)) as predictor:
        yield predictor


def open_page(browser, server, path="/"):
    browser.open(f"http://127.0.0.1:{server.port}{path}")
    browser.wait_for('document.querySelector("#send") ? !document.querySelector("#send").disabled : true')


def answer(browser):
    """Clicks the button, waits for the result, and returns its visible text."""
    browser.run('document.querySelector("#result").hidden = true')
    browser.click("#send")
    browser.wait_for('!document.querySelector("#result").hidden')
    return browser.text("#result")


def check_quiet(browser):
    """Checks that the browser blocked nothing, and that no script failed."""
    assert browser.messages() == [] and browser.run("return document.title") != "broken"


def test_a_pair_is_classified_and_all_texts_are_shown_as_texts(browser, classifier):
    with running(classifier) as server:
        open_page(browser, server)
        browser.type("#text_a", ATTACK)
        browser.type("#text_b", "the dog eats")
        found, expected = answer(browser), classifier(ATTACK, "the dog eats")
        assert found.splitlines()[0] == expected["label"]
        for label, value in expected["probabilities"].items():
            assert label in found and f"{value:.3f}" in found
        assert browser.run('return document.querySelectorAll("meter").length') == 3
        assert browser.text(".chosen th") == expected["label"] and browser.text("#title").endswith(" model")
        assert browser.run('return document.querySelector("meter").clientWidth') > 300
        # Without the second text.
        browser.type("#text_b", " ")
        assert f"{classifier(ATTACK)['probabilities']['no']:.3f}" in answer(browser)
    check_quiet(browser)


def test_an_error_is_shown(browser, classifier):
    with running(classifier) as server:
        open_page(browser, server)
        assert answer(browser) == "text_a is empty."
        browser.messages()  # removes the message about status 422
        browser.click("#example")
        assert browser.run('return document.querySelector("#text_a").value') == "The cat sleeps."
    assert "The server cannot be reached" in answer(browser)
    browser.messages()


def test_a_token_is_asked_for(browser, classifier):
    with running(classifier, token=TOKEN) as server:
        open_page(browser, server)
        browser.type("#text_a", "a cat")
        browser.type("#token", "wrong")
        assert "token is missing or wrong" in answer(browser)
        browser.messages()
        browser.type("#token", TOKEN)
        assert answer(browser).splitlines()[0] == classifier("a cat")["label"]
    check_quiet(browser)


class Fixed(Held):
    """A predictor with the fields and the answer of another task."""

    def __init__(self, classifier, task, value):
        super().__init__(classifier)
        self.task, self.value = task, value
        self.fields = ("question", "context") if task == "questions" else ("text",)
        self.required = len(self.fields)
        self.answers = copy.copy(classifier.answers)
        self.answers.texts_in_order = lambda texts, fields: None
        self.prepare = lambda **question: ([{"input_ids": [1]}], question)
        self.compute = lambda windows: windows
        self.answer_of = lambda outputs, details: self.value


# 🙂 counts as two units in a string of JavaScript, and as one character in Python.
TEXT = "🙂🙂 the <b>cat</b> sees 🙂 the dog"
ENTITIES = [{"type": "ANIMAL", "text": TEXT[start:end], "score": 0.5, "start": start, "end": end}
            for start, end in ((7, 17), (29, 32))]


@pytest.mark.parametrize("task, value, words, marked", [
    ("tagging", {"words": TEXT.split(), "tags": ["O"] * 7, "entities": ENTITIES}, "entities: 2",
     [["🙂🙂 the ", "<b>cat</b>"], [" sees 🙂 the ", "dog"]]),
    ("questions", {"answer": "dog", "probability": 0.9, "start": 29, "end": 32}, "dog",
     [[TEXT.removesuffix("dog"), "dog"]]),
    ("questions", {"answer": "", "probability": 0.9, "start": 0, "end": 0}, "contains no answer", []),
    ("multilabel", {"labels": ["a", "b"], "probabilities": {"a": 0.75, "b": 0.75}}, "a, b", []),
    ("regression", {"score": 3.5}, "3.5", []),
    ("masked_words", {"masks": [[{"token": "cat", "probability": 0.5}]]}, "cat", [])])
def test_answers_of_other_tasks(task, value, words, marked, browser, classifier):
    model = Fixed(classifier, task, value)
    with running(model) as server:
        open_page(browser, server)
        for name in model.fields:
            browser.run(f'document.querySelector("#{name}").value = arguments[0]', TEXT)
        assert words in answer(browser)
        assert marked == browser.run("""return [...document.querySelectorAll("#result mark")].map((mark) =>
            [mark.previousSibling ? mark.previousSibling.textContent : "", mark.firstChild.textContent])""")
    check_quiet(browser)


def test_the_description_of_the_interface(browser, classifier):
    with running(classifier) as server:
        open_page(browser, server, "/docs")
        browser.wait_for('document.querySelectorAll("h2").length == 2')
        found = browser.text("body")
        assert "POST /predict" in found and "GET /health" in found and "413" in found
        assert f"curl http://127.0.0.1:{server.port}/predict" in found and '"text_b"' in found
    check_quiet(browser)
