"""Computes answers from logits, and their files, scores and report."""

import itertools
import json
import math
import re
from types import SimpleNamespace

from helpers import DATA
import numpy as np
import pytest
from squad_recording import SquadRecording, example

from bertlib.reports.report_sections import Facts
from bertlib.tasks.squad import span_selection, squad_metrics, squad_report
from bertlib.tasks.squad.span_selection import Answer, Prediction, RawResult
import run_squad

LIMITS = dict(n_best_size=20, max_answer_length=30, do_lower_case=True)
VERSIONS = {"v1": False, "v2": True}


@pytest.fixture(scope="module")
def recording():
    return SquadRecording()


def window(example_index, words, first=0, unique_id=0, question=2):
    """Returns the features of a window: [CLS], a question, [SEP], `words`, [SEP]. Each word is a token.

    `first` is the number of the first word in the context.
    """
    places = range(question + 2, question + 2 + len(words))
    return SimpleNamespace(unique_id=unique_id, example_index=example_index,
                           tokens=["[CLS]", *["?"] * question, "[SEP]", *words, "[SEP]"],
                           token_to_orig_map=dict(zip(places, itertools.count(first))),
                           token_is_max_context=dict.fromkeys(places, True))


def select(examples, features, results, version_2_with_negative=False, **limits):
    search = span_selection.Search(**{**LIMITS, **limits}, version_2_with_negative=version_2_with_negative)
    return list(span_selection.select_answers(examples, features, results, search))


# --- The same as recorded --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", [list, np.array])
def test_files_are_the_recorded_ones_byte_for_byte(recording, tmp_path, version, form):
    paths = [tmp_path / name for name in ("predictions", "nbest", "null_odds")]
    results = [RawResult(result.unique_id, form(result.start_logits), form(result.end_logits))
               for result in reversed(recording.results(version))]
    run_squad.write_predictions(
        recording.examples, recording.features, results, 20, 30, True, *map(str, paths),
        version_2_with_negative=VERSIONS[version],
        null_score_diff_threshold=recording.settings["null_score_diff_threshold"])
    assert paths[0].read_text() == recording.text(f"{version}/predictions")
    assert paths[1].read_text() == recording.text(f"{version}/nbest")
    if VERSIONS[version]:
        assert paths[2].read_text() == recording.text("v2/null_odds")
    else:
        assert not paths[2].exists()


def test_final_texts_are_the_recorded_ones(recording):
    for case in json.loads(recording.text("final_text")):
        assert run_squad.get_final_text(case["pred"], case["orig"], True) == case["final"]


@pytest.mark.parametrize("context, n_best_size, longest, found", [
    ("cat dog bird", 20, 30, ["cat", "cat dog", "cat dog bird", "dog", "dog bird", "bird"]),
    ("cat dog bird", 6, 2, ["cat", "cat dog", "dog"]), ("cat cat", 20, 30, ["cat", "cat cat"])])
def test_equal_logits_are_taken_in_the_order_of_positions(context, n_best_size, longest, found):
    question = example("q", "?", context)
    feature = window(0, question.doc_tokens)  # the first word is at place 4
    logits = [0.0, -0.0] * 6
    limits = dict(n_best_size=n_best_size, max_answer_length=longest)
    prediction, = select([question], [feature], [RawResult(0, logits, logits)], **limits)
    assert [answer.text for answer in prediction.nbest] == found
    prediction, = select([question], [feature], [RawResult(0, logits, logits)], True, **limits)
    assert [answer.text for answer in prediction.nbest] == [*found, ""]


def test_padding_takes_places_among_the_best_positions_unless_it_is_skipped():
    question = example("q", "?", "cat dog")
    feature = window(0, question.doc_tokens, 0, unique_id=0)
    size = len(feature.tokens)
    real = [1.0] * size
    logits = real + [2.0] * size  # as many positions of padding, with higher logits
    published, skipped, alone = (
        select([question], [feature], [RawResult(0, each, each)], n_best_size=size,
               skips_padding=skips)[0].nbest
        for each, skips in ((logits, False), (logits, True), (real, False)))
    assert [answer.text for answer in published] == ["empty"]
    assert skipped == alone and "empty" not in [answer.text for answer in skipped]


# --- No answer -------------------------------------------------------------------------------------------


def null_only():
    """Returns a question without a candidate in any window, and a question about an empty context."""
    feature = window(0, ["cat"])
    feature.token_is_max_context = {}
    result = RawResult(0, [2.0] + [0.0] * 5, [1.0] + [0.0] * 5)
    return [example("q0", "?", "Cat"), example("q1", "?", " ")], [feature], [result]


def test_an_nbest_list_without_a_text_is_no_crash():
    first, second = select(*null_only(), version_2_with_negative=True)
    assert first == Prediction("q0", [Answer("", 2.0, 1.0, 1.0)], Answer("", 2.0, 1.0, 1.0),
                               Answer("", 2.0, 1.0, 1.0), span_selection.NO_ANSWER_ODDS)
    assert second.nbest == [Answer("", 0.0, 0.0,
                                   1.0)] and second.null_odds == span_selection.NO_ANSWER_ODDS
    assert [prediction.final_answer(1e9).text for prediction in (first, second)] == ["", ""]
    # Without negative questions, the published placeholder is the answer.
    assert [prediction.nbest for prediction in select(*null_only())] == [[Answer("empty", 0.0, 0.0, 1.0)]] * 2


# --- Streaming -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage, message", [
    (lambda features, results: results.pop(), "unique_id 1000000169"),
    (lambda features, results: results[3].start_logits.__setitem__(5, math.nan),
     "unique_id 1000000003 are NaN"),
    (lambda features, results: results[3].end_logits.__setitem__(5, math.nan), "1000000003 are NaN"),
    (lambda features, results: features.reverse(), "Sort the features"),
    (lambda features, results: setattr(features[-1], "example_index", 43), "below 43, the number"),
])
def test_what_is_wrong_with_the_results_is_said(damage, message):
    recording = SquadRecording()
    results = recording.results("v1")
    damage(recording.features, results)
    with pytest.raises(ValueError, match=message):
        select(recording.examples, recording.features, results)


# --- Offsets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span, text, place", [
    ((0, 1), "(The cat's)", (2, 16)), ((2, 2), "café", (17, 21)), ((2, 3), "café noir", (17, 27))])
def test_offsets_are_those_of_the_context_with_its_own_white_space(span, text, place):
    question = example("q", "?", "\t\n(The  \u202f cat's) café\t noir")
    words = ["(the", "cat's)", "cafe", "noir"]
    logits = np.zeros((2, 9))
    logits[0, 4 + span[0]] = logits[1, 4 + span[1]] = 9.0
    answer = select([question], [window(0, words)], [RawResult(0, *logits)])[0].answer
    assert (answer.text, (answer.start, answer.end)) == (text, place)


def test_an_example_without_offsets_gives_none(recording, tmp_path):
    plain = [SimpleNamespace(qas_id=question.qas_id, doc_tokens=question.doc_tokens)
             for question in recording.examples]
    predictions = select(plain, recording.features, recording.results("v1"))
    recorded = json.loads(recording.text("v1/predictions"))
    assert {prediction.qas_id: prediction.answer.text for prediction in predictions} == recorded
    assert {answer.start for prediction in predictions for answer in prediction.nbest} == {None}


@pytest.mark.parametrize("predicted, original", [
    ("dog", "The cat"), ("the cat", "The cat"), ("cat", "The\xad cat")])  # the soft hyphen has no token
def test_an_answer_that_cannot_be_found_again_is_logged_if_wanted(predicted, original, caplog):
    caplog.set_level("INFO", "absl")
    for is_logged in (False, True):
        assert run_squad.get_final_text(predicted, original, False, verbose_logging=is_logged) == original
        assert (f"Cannot find {predicted!r} in {original!r}" in caplog.text) == is_logged


# --- Scores ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored():
    """80 random questions, scored by torchmetrics 1.9.0 (1.1) and transformers 4.40.2 (2.0)."""
    case = json.loads((DATA / "squad_predictions_scores.json").read_text(encoding="utf-8"))
    case["gold"] = {qas_id: [tuple(answer) for answer in answers] for qas_id, answers in case["gold"].items()}
    return case


def test_squad_1_scores_are_those_of_an_independent_implementation(scored):
    # Texts whose normalized form is empty are left out: torchmetrics scores them by the rule of version 2.0.
    gold = {qas_id: answers for qas_id, answers in scored["gold"].items()
            if answers and all(squad_metrics.normalize_answer(text) for text, _ in answers)}
    assert len(gold) == 50
    figures = squad_metrics.evaluate(gold, scored["texts"])
    assert figures == pytest.approx(scored["torchmetrics_v1"],
                                    abs=1e-4) and 40 < figures["exact_match"] < figures["f1"]


def test_squad_2_scores_are_those_of_an_independent_implementation(scored):
    figures = squad_metrics.evaluate(scored["gold"], scored["texts"], True, scored["null_odds"])
    assert figures == pytest.approx(scored["squad_metrics_v2"], abs=1e-9)
    assert list(figures) == ["exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total",
                             "NoAns_exact", "NoAns_f1",
                             "NoAns_total", "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]


@pytest.mark.parametrize("text, rights, version_2, score", [
    ("The Cat's  hat!", ["cats hat"], False, (1.0, 1.0)),
    ("a black cat", ["cat", "the white cat sat"], False, (0.0, 2 / 3)),
    ("the", ["a"], False, (1.0, 0.0)),  # both are empty after normalization: in 1.1, F1 is 0
    ("the", ["a"], True, (1.0, 1.0)),
    ("athena then", ["athena  then"], False, (1.0, 1.0)),
])
def test_score_of_an_answer(text, rights, version_2, score):
    gold = {"q": [(right, 0) for right in rights]}
    assert squad_metrics.score_answers(gold, {"q": text}, version_2)["q"] == pytest.approx(score)


def test_a_question_without_a_prediction_scores_0():
    gold = {"a": [("x", 0)], "b": [("x", 0)]}
    assert squad_metrics.evaluate(gold, {"a": "x"}) == {"exact_match": 50.0, "f1": 50.0}


def test_no_threshold_is_better_than_the_one_found(scored):
    rng = np.random.default_rng(0)
    for _ in range(40):
        chosen = rng.choice(list(scored["gold"]), rng.integers(1, 12), replace=False)
        gold = {qas_id: scored["gold"][qas_id] for qas_id in chosen}
        null = Answer("", 0.0, 0.0, 0.5)
        answers = [Answer(scored["texts"][qas_id], 0.0, 0.0, 0.5) for qas_id in chosen]
        predictions = [Prediction(qas_id, None, answer, null, float(rng.integers(-3, 4)))
                       for qas_id, answer in zip(chosen, answers)]

        def f1(threshold, predictions=predictions, gold=gold):
            final = {prediction.qas_id: prediction.final_answer(threshold).text for prediction in predictions}
            return squad_metrics.evaluate(gold, final, True)["f1"]

        found = squad_metrics.find_null_threshold(gold, predictions)
        assert f1(found) == pytest.approx(max(f1(threshold) for threshold in np.arange(-4.5, 5.0, 0.5)))


# --- Report ----------------------------------------------------------------------------------------------


def write_report(directory, examples, predictions, gold=None, metrics=()):
    """Writes a report, and returns its text."""
    answers, path = [prediction.final_answer() for prediction in predictions], directory / "report.html"
    rows = squad_report.predicted_rows(examples, predictions, answers, gold, True)
    facts = Facts("dev", dict(metrics), metric_titles={"f1": "F1", "exact_match": "exact match"})
    squad_report.write_report(str(path), facts, rows, answers, gold)
    return path.read_text(encoding="utf-8")


def test_report_shows_the_worst_first_and_marks_both_answers(tmp_path):
    context, gold, predictions = "<b>Tom & \"Jerry\"</b> ran.\nThen they slept.", {}, []
    for question, span, probability, right in [
            ("Who <i>ran</i>?", (3, 16), 0.9, [('Tom & "Jerry"', 3)]),
            ("What then?", (26, 35), 0.8, [("they slept", 31)]),
            ("Who slept?", (3, 16), 0.7, [("they", 31)]), ("Why?", (None, None), 0.6, [])]:
        answer = Answer(context[slice(*span)] if span[0] else "", 0.0, 0.0, probability, *span)
        predictions.append(Prediction(question, None, answer, Answer("", 0.0, 0.0, 0.1), -1.0))
        gold[question] = right
    examples = [example(question, question, context) for question in gold]
    page = write_report(tmp_path, examples, predictions, gold, {"exact_match": 50.0, "f1": 62.5})
    head, *articles = page.split("<article ")
    for article, css, parts in zip(articles, ["wrong", "partly", "right", "right"], [
            ["Who slept?", '&lt;b&gt;<mark class="predicted">Tom &amp; &quot;Jerry&quot;</mark>&lt;/b&gt;',
             '<mark class="gold">they</mark>', "probability 0.700"],
            ["What then?", '<mark class="predicted">Then </mark><mark class="gold predicted">they</mark>'
                           '<mark class="gold"> slept</mark>'],
            ["Who &lt;i&gt;ran&lt;/i&gt;?", '<mark class="gold predicted">Tom'], ["Why?", "no answer"]],
            strict=True):
        assert article.startswith(f'class="{css}"') and [part for part in parts if part not in article] == []
    head = re.sub("<[^>]*>|\n", "", head)
    assert re.search(r"F1 62\.500 \(95 % interval [\d.]+ to [\d.]+\)\.exact match 50\.000 \(95 % int", head)
    assert ("4 questions: 2 right (50.0 %), 1 partly (25.0 %), 1 wrong (25.0 %), "
            "1 without a predicted answer (25.0 %)." in head)
    assert page.rindex("</article>") < page.index("Exact match by length")
    # Without the right answers, the least confident answers come first.
    page = write_report(tmp_path, examples, predictions)
    places = [page.index(part) for part in ("Why?", "Who slept?", "What then?", "Who &lt;i&gt;ran")]
    assert places == sorted(places)


def test_a_long_context_is_shown_around_the_answer(tmp_path):
    context = "a" * 3_000_000 + " the answer " + "b" * 3_000_000
    question = example("q", "what?", context)
    answer = Answer("the answer", 0.0, 0.0, 0.9, 3_000_001, 3_000_011)
    predictions = [Prediction("q", None, answer, Answer("", 0.0, 0.0, 0.1), None)]
    text = write_report(tmp_path, [question], predictions, {"q": [("answer", 3_000_005)]})
    assert len(text) < 20_000 and "[4,000 of 6,000,012 characters]" in text
    assert '<mark class="predicted">the </mark><mark class="gold predicted">answer</mark>' in text
