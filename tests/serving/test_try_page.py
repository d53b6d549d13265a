"""The pages of the server in a real browser: a person fills in the form, clicks, and sees the answer."""

import browser as browsers
from http_clients import Held, running
from model_directories import TAGS, linear, write
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
    path = write(tmp_path_factory.mktemp("page") / "model", tiny_model, "classification", linear(3),
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


def marks(browser):
    """Returns [[text before the mark, text of the mark], …], without the names of entities."""
    return browser.run("""return [...document.querySelectorAll("#result mark")].map((mark) =>
        [mark.previousSibling ? mark.previousSibling.textContent : "", mark.firstChild.textContent])""")


def test_entities_are_marked_at_their_characters(browser, tiny_model, tmp_path):
    path = write(tmp_path / "tags", tiny_model, "tagging", linear(5), TAGS)
    # 🙂 counts as two units in a string of JavaScript, and as one character in Python.
    text = "🙂🙂 the <b>cat</b> sees 🙂 the dog <i> today the house"
    with serving.load(str(path)) as predictor, running(predictor) as server:
        open_page(browser, server)
        browser.run('document.querySelector("#text").value = arguments[0]', text)
        found, entities = answer(browser), predictor(text)["entities"]
        assert entities and f"entities: {len(entities)}" in found
        assert [mark for _, mark in marks(browser)] == [entity["text"] for entity in entities]
        assert browser.run('return document.querySelector("#result .text").firstChild.textContent') == (
            text[:entities[0]["start"]])
    check_quiet(browser)


def test_the_answer_is_marked_in_the_paragraph(browser, tiny_model, tmp_path):
    path = write(tmp_path / "squad", tiny_model, "questions",
                 {"cls/squad/output_weights": (2, 16), "cls/squad/output_bias": (2,)}, task="SQuAD 1.1",
                 doc_stride=4, max_query_length=6)
    context = "🙂 the old <b>cat</b> sees a dog . " * 3
    with serving.load(str(path)) as predictor, running(predictor) as server:
        open_page(browser, server)
        browser.type("#question", "what sees the dog")
        browser.run('document.querySelector("#context").value = arguments[0]', context)
        found, expected = answer(browser), predictor("what sees the dog", context)
        assert found.splitlines()[0].strip() == expected["answer"].strip()
        before, mark = marks(browser)[0]
        assert (before, mark) == (context[:expected["start"]], expected["answer"])
    check_quiet(browser)


def test_no_answer_and_other_tasks(browser, classifier):
    class Fixed(Held):
        value, required = None, 1

        def prepare(self, **question):
            return [{"input_ids": [1]}], question

        def answer(self, prepared):
            return [self.value] * len(prepared)

    model = Fixed(classifier)
    del model.prepare  # the method of the classifier
    for task, value, words in (
            ("questions", {"answer": "", "probability": 0.9, "start": 0, "end": 0}, "contains no answer"),
            ("multilabel", {"labels": [], "probabilities": {"a": 0.25}}, "no label"),
            ("multilabel", {"labels": ["a", "b"], "probabilities": {"a": 0.75, "b": 0.75}}, "a, b"),
            ("regression", {"score": 3.5}, "3.5"), ("vectors", {"vector": [0.5] * 16}, "16 numbers"),
            ("masked_words", {"masks": [[{"token": "cat", "probability": 0.5}]]}, "cat")):
        model.task, model.value = task, value
        model.fields = ("question", "context") if task == "questions" else ("text",)
        with running(model) as server:
            open_page(browser, server)
            for name in model.fields:
                browser.type(f"#{name}", "a cat")
            assert words in answer(browser)
        check_quiet(browser)


def test_the_description_of_the_interface(browser, classifier):
    with running(classifier) as server:
        open_page(browser, server, "/docs")
        browser.wait_for('document.querySelectorAll("h2").length == 2')
        found = browser.text("body")
        assert "POST /predict" in found and "GET /health" in found and "413" in found
        assert f"curl http://127.0.0.1:{server.port}/predict" in found and '"text_b"' in found
    check_quiet(browser)
