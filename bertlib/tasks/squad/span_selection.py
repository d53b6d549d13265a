"""Searches for SQuAD answers: finds the n best texts for each question from start and end logits.

    search = Search(n_best_size=20, max_answer_length=30, do_lower_case=True)
    for prediction in select_answers(examples, features, results, search):
        print(prediction.qas_id, prediction.final_answer().text)

The steps, in the order of the calls in `select_answers`:

1. `_by_example` collects the windows of a question.
2. `_prelim_predictions` combines the best start positions and the best end positions of each window into
   spans of tokens.
3. `_null_prediction` scores "no answer" (SQuAD 2.0 only).
4. `select_answers` sorts the spans by the sum of start logit and end logit.
5. `_nbest` goes through the spans from best to worst. For each span, `_find_text` returns the text in the
   spelling of the context. The result is the n-best list.
6. `select_answers` yields a `Prediction` with the best text and the null answer.
7. `Prediction.final_answer` chooses the best text or the null answer. The caller calls this method, with a
   threshold.

`write_nbest` and `write_answers` write the files, and the module `squad_metrics` scores the texts.

SQuAD 1.1: Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250; 2.0, with questions that have no answer:
Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822. Null score: Devlin et al. 2018,
https://arxiv.org/abs/1810.04805, section 4.3.
"""

import collections
import itertools
import json
import math
from typing import NamedTuple

from absl import logging
import numpy as np

from bertlib.system import files
import tokenization

# The result of the model for a window: the unique_id of the window's features, and a start logit and an end
# logit for each token.
RawResult = collections.namedtuple("RawResult", ["unique_id", "start_logits", "end_logits"])

# If no text was found for a question, its null odds are this number, which is above any threshold.
NO_ANSWER_ODDS = 1000000.0


class Answer(NamedTuple):
    """An entry of the n-best list.

    `text` is equal to `example.context[start:end]`, except for white space. `start` and `end` are None if the
    text is empty or if the example has no offsets.
    """
    text: str
    start_logit: float
    end_logit: float
    probability: float
    start: int | None = None
    end: int | None = None


class Prediction(NamedTuple):
    """The answers to a question. Without `version_2_with_negative`, `null_answer` and `null_odds` are None.

    `nbest` is the n-best list. `answer` is its best entry that has a text, or the null answer if no entry has
    a text. `null_answer` is the entry without a text. `null_odds` is the null score minus the score of
    `answer`.
    """
    qas_id: str
    nbest: list
    answer: Answer
    null_answer: Answer | None = None
    null_odds: float | None = None

    def final_answer(self, null_score_diff_threshold=0.0):
        """Returns the null answer if the null odds are above the threshold, else `answer`."""
        is_null = self.null_odds is not None and self.null_odds > null_score_diff_threshold
        return self.null_answer if is_null else self.answer


class _Window(NamedTuple):
    """A window of a context: its features, and two logits for each token. A start logit is high if an answer
    probably starts at the token. An end logit is high if an answer probably ends there."""
    feature: object
    start_logits: list
    end_logits: list


class _PrelimPrediction(NamedTuple):
    """A span of tokens in a window, from `start_index` to `end_index`, including the token at `end_index`.

    For the null answer, both positions are 0, which is the position of [CLS].
    """
    feature: object
    start_index: int
    end_index: int
    start_logit: float
    end_logit: float

    @property
    def score(self):
        """The sum of the start logit and the end logit. Predictions are ranked by this sum."""
        return self.start_logit + self.end_logit


# --- The search ------------------------------------------------------------------------------------------


class Search(NamedTuple):
    """Settings of the search for answers.

    Attributes:
      n_best_size: this number of best start positions, and the same number of best end positions, are taken
        from each window. It is also the largest number of texts in an n-best list. With
        `version_2_with_negative`, the list may have the null answer as one additional entry.
      max_answer_length: length of the longest answer, in tokens.
      do_lower_case: whether the features were made from lower-cased text.
      version_2_with_negative: whether a question may have no answer. If it is true, each n-best list has an
        entry without a text. The score of this entry is the start logit plus the end logit of [CLS]. If there
        are several windows, the lowest of these sums is used.
      verbose_logging: whether to log the predicted texts that are not found in the context.
      basic_tokenizer: the tokenizer that made the words of the features; by default a `BasicTokenizer`.
      skips_padding: whether to leave out the padding when the best positions of a window are chosen. In the
        published code, the best positions may include positions in the padding. In trimmed batches, the
        length of the padding depends on the other windows of the batch. Pass True for trimmed batches, so
        that an answer does not depend on other questions.
    """

    n_best_size: int
    max_answer_length: int
    do_lower_case: bool
    version_2_with_negative: bool = False
    verbose_logging: bool = False
    basic_tokenizer: object = None
    skips_padding: bool = False


def select_answers(examples, features, results, search):
    """Yields a `Prediction` for each example, in order, as soon as the results of its windows are available.

    Args:
      examples: list of `SquadExample`.
      features: iterable of `InputFeatures`, in the order of their examples.
      results: iterable of `RawResult`, preferably in the order of the features. A result that comes before
        the results of earlier windows is kept in memory. Logits may be arrays or lists. Lists of logits may
        be shorter than `max_seq_length` if only the logits of padding are missing.
      search: a `Search`.

    Raises:
      ValueError: a window has no result, the logits of a window are NaN, or the features are not in the order
        of the examples.
    """
    tokenizer = search.basic_tokenizer or tokenization.BasicTokenizer(do_lower_case=search.do_lower_case)
    for example, windows in _by_example(examples, _with_logits(features, results, search.skips_padding)):
        prelim_predictions = _prelim_predictions(windows, search)
        null_prediction = None
        if search.version_2_with_negative:
            null_prediction = _null_prediction(windows)
            prelim_predictions.append(null_prediction)
        # Predictions with equal scores keep their order, because the sort is stable. The null answer was
        # appended last, so it comes after all other predictions with the same score.
        prelim_predictions.sort(key=lambda prediction: prediction.score, reverse=True)
        nbest = _nbest(example, prelim_predictions, null_prediction, search, tokenizer)
        if not search.version_2_with_negative:
            yield Prediction(example.qas_id, nbest, nbest[0])
            continue
        # If there is a null prediction, the list of `_nbest` always contains the null answer. The null answer
        # is the only entry of the list without a text.
        null_answer = next(answer for answer in nbest if not answer.text)
        answer = next((answer for answer in nbest if answer.text), null_answer)
        null_odds = NO_ANSWER_ODDS
        if answer.text:
            null_odds = null_prediction.score - answer.start_logit - answer.end_logit
        yield Prediction(example.qas_id, nbest, answer, null_answer, null_odds)


def _with_logits(features, results, skips_padding):
    """Yields a `_Window` for each window: its features, and the logits of the result with the same unique_id.
    If `skips_padding` is true, the logits of padding are left out."""
    results = iter(results)
    early = {}
    for feature in features:
        while feature.unique_id not in early:
            result = next(results, None)
            if result is None:
                raise ValueError(f"There are no logits for the window with unique_id {feature.unique_id} "
                                 f"(example {feature.example_index}): "
                                 "predict all features, and pass the result of each window once.")
            early[result.unique_id] = result
        result = early.pop(feature.unique_id)
        size = len(feature.tokens) if skips_padding else None
        logits = np.array([result.start_logits, result.end_logits], float)
        if np.isnan(logits).any():
            raise ValueError(f"The logits of the window with unique_id {result.unique_id} are NaN: the "
                             "model's weights are not usable. Start from an earlier checkpoint.")
        yield _Window(feature, *logits[:, :size].tolist())  # Python searches a list faster than an array


def _by_example(examples, windows):
    """Yields (example, list of its windows). The list is empty if the context has no word."""
    next_index = 0
    for index, group in itertools.groupby(windows, key=lambda window: window.feature.example_index):
        if not next_index <= index < len(examples):
            raise ValueError(f"A feature has the example_index {index}. At this position, the index "
                             f"must be at least {next_index}, and below {len(examples)}, the number of "
                             "examples. Sort the features by example_index.")
        yield from ((example, []) for example in examples[next_index:index])
        yield examples[index], list(group)
        next_index = index + 1
    yield from ((example, []) for example in examples[next_index:])


def _prelim_predictions(windows, search):
    """Returns the spans that can be an answer: a list of `_PrelimPrediction`, in the order of the windows.

    A span goes from one of the `n_best_size` best start positions of a window to one of its `n_best_size`
    best end positions.
    """
    n_best_size, max_answer_length = search.n_best_size, search.max_answer_length
    prelim_predictions = []
    for feature, start_logits, end_logits in windows:
        end_indexes = _get_best_indexes(end_logits, n_best_size)
        for start_index in _get_best_indexes(start_logits, n_best_size):
            # An answer must start in the context, and not in the question, in a special token or in the
            # padding. Windows overlap. An answer is taken only from the window with the most context around
            # the start of the answer.
            if not feature.token_is_max_context.get(start_index, False):
                continue
            for end_index in end_indexes:
                # The end of an answer must be in the context, too. It must not come before the start, and an
                # answer has at most `max_answer_length` tokens.
                if (end_index in feature.token_to_orig_map
                        and start_index <= end_index < start_index + max_answer_length):
                    prelim_predictions.append(_PrelimPrediction(
                        feature, start_index, end_index, start_logits[start_index], end_logits[end_index]))
    return prelim_predictions


def _null_prediction(windows):
    """Returns the null answer of a question: a `_PrelimPrediction` with the span of [CLS] in the window with
    the lowest null score. If several windows have the lowest score, the first of these windows is used."""
    return min((_PrelimPrediction(feature, 0, 0, start_logits[0], end_logits[0])
                for feature, start_logits, end_logits in windows),
               key=lambda prediction: prediction.score, default=_PrelimPrediction(None, 0, 0, 0.0, 0.0))


def _nbest(example, prelim_predictions, null_prediction, search, tokenizer):
    """Returns the n-best list, a list of `Answer`s with different texts, from best to worst.

    Args:
      prelim_predictions: list of `_PrelimPrediction`, from best to worst.
      null_prediction: the null answer, or None for SQuAD 1.1. If the null answer is not among the best
        entries, it is added as the last entry.
    """
    nbest, seen_texts = [], set()
    for prediction in prelim_predictions:
        if len(nbest) >= search.n_best_size:
            break
        final_text, start, end = "", None, None
        if prediction.start_index > 0:  # not the null answer
            final_text, start, end = _find_text(example, prediction, tokenizer, search.verbose_logging)
            # Several spans may have the same text. The text may be empty, because a SentencePiece token may
            # have no character.
            if final_text in seen_texts or not final_text:
                continue
        seen_texts.add(final_text)
        nbest.append(Answer(final_text, prediction.start_logit, prediction.end_logit, 0.0, start, end))
    if null_prediction is not None and "" not in seen_texts:
        nbest.append(Answer("", null_prediction.start_logit, null_prediction.end_logit, 0.0))
    if not nbest:
        nbest.append(Answer("empty", 0.0, 0.0, 0.0))  # the text "empty" is returned as in the published code
    probabilities = _compute_softmax([answer.start_logit + answer.end_logit for answer in nbest])
    return [answer._replace(probability=probability) for answer, probability in zip(nbest, probabilities)]


def _get_best_indexes(logits, n_best_size):
    """Returns the positions of the `n_best_size` highest logits, sorted from the highest logit to the lowest.
    Positions with equal logits are in ascending order.

    Args:
      logits: list of float.
    """
    return sorted(range(len(logits)), key=logits.__getitem__, reverse=True)[:n_best_size]


def _compute_softmax(scores):
    """Returns the softmax of a list of scores, as a list of float."""
    if not scores:
        return []
    greatest = max(scores)
    exponentials = [math.exp(score - greatest) for score in scores]
    total = sum(exponentials)
    return [exponential / total for exponential in exponentials]


# --- The text in the spelling of the context -------------------------------------------------------------


def _find_text(example, prediction, tokenizer, verbose_logging):
    """Returns (text, start, end): the text of a `_PrelimPrediction`, and the range of its characters in the
    context.

    start and end are None if the example has no offsets; see `Answer`.
    """
    feature, start_index, end_index = prediction[:3]
    first_word, last_word = (feature.token_to_orig_map[index] for index in (start_index, end_index))
    words = example.doc_tokens[first_word:last_word + 1]
    orig_text = " ".join(words)
    token_spans = getattr(feature, "token_spans", None)
    if token_spans is None:  # the positions are unknown, so the text of the tokens is aligned with the words
        pred_text = " ".join(feature.tokens[start_index:end_index + 1]).replace(" ##", "").replace("##", "")
        tok_text = " ".join(tokenizer.tokenize(orig_text))
        start, end = align(" ".join(pred_text.split()), orig_text, tok_text, verbose_logging)
    else:  # `token_spans` contains (start, end) of each token: the range of its characters within its word
        start = token_spans[start_index][0]
        end = len(orig_text) - len(words[-1]) + token_spans[end_index][1]
    word_offsets = getattr(example, "word_offsets", None)
    if word_offsets is None:
        return orig_text[start:end], None, None
    word_offsets = word_offsets[first_word:last_word + 1]
    return (orig_text[start:end], _place_in_context(start, words, word_offsets),
            _place_in_context(end, words, word_offsets))


def _place_in_context(index, words, word_offsets):
    """Returns the index of a character in the context.

    Args:
      index: int, the index of the same character in `" ".join(words)`.
      words: list of str.
      word_offsets: list of int, the index of each word in the context.
    """
    place = 0
    # `index` may also be the end of an answer: the index after the last character of a word. So `>` is used
    # here, not `>=`.
    while index > len(words[place]):
        index -= len(words[place]) + 1
        place += 1
    return word_offsets[place] + index


def align(pred_text, orig_text, tok_text, verbose_logging):
    """Returns (start, end), the place of a predicted text in the original text.

    Tokens may lack the case, the accents and the spaces of the original text. In addition, the words of the
    original text may be longer than the predicted tokens. Example: the model predicts "steve smith", the
    words of the context are "Steve Smith's", and the answer is "Steve Smith".

    For this reason, the original text is tokenized too, which gives "steve smith ' s". The predicted text is
    found in this tokenized text. The place in the original text is then found by counting the characters that
    are not spaces. This is possible only if the original text and the tokenized text have the same number of
    these characters. If tokenization removed a character, or replaced one character by two, the whole
    original text is returned.

    Args:
      pred_text: str, words joined by spaces.
      orig_text: str, the words of the context that the tokens come from.
      tok_text: str, the tokens of the original text, joined by spaces.
      verbose_logging: whether to log the reason if the place is that of the whole original text.
    """
    orig_positions, tok_positions = _non_space_positions(orig_text), _non_space_positions(tok_text)
    first = tok_text.find(pred_text)
    last = first + len(pred_text) - 1
    if len(orig_positions) == len(tok_positions) and first in tok_positions and last in tok_positions:
        return (orig_positions[tok_positions.index(first)], orig_positions[tok_positions.index(last)] + 1)
    if verbose_logging:
        logging.info("Cannot find %r in %r (tokenized: %r): the whole text is the answer.", pred_text,
                     orig_text, tok_text)
    return 0, len(orig_text)


def _non_space_positions(text):
    return [index for index, character in enumerate(text) if character != " "]


# --- Files ------------------------------------------------------------------------------------------------


def write_nbest(predictions, path):
    """Writes the n-best lists, one question at a time, as {qas_id: [{"text", "probability", "start_logit",
    "end_logit"}]}.

    The file appears only when it is complete. If an error occurs, an older file of this name stays unchanged.

    Args:
      predictions: iterable of `Prediction`.
      path: path of the file.

    Returns:
      list of `Prediction`, without their n-best lists.
    """
    results = []
    with files.atomic_replacement(path) as partial, files.open_file(partial, "w") as writer:
        writer.write("{")
        for prediction in predictions:
            entries = [{"text": answer.text, "probability": answer.probability,
                        "start_logit": answer.start_logit, "end_logit": answer.end_logit}
                       for answer in prediction.nbest]
            question = json.dumps({prediction.qas_id: entries}, indent=4)  # writes -Infinity, as published
            writer.write(("," if results else "") + question[len("{"):-len("\n}")])
            results.append(prediction._replace(nbest=None))
        writer.write("\n}\n")
    return results


def write_answers(predictions, prediction_file, null_odds_file, offsets_file,
                  null_score_diff_threshold):
    """Writes the final answers as {qas_id: text}. Also writes the null odds and the offsets of the answers,
    each of them only if a path for it is passed.

    Args:
      predictions: list of `Prediction`.
      prediction_file: path for the answers, {qas_id: text}.
      null_odds_file: path for {qas_id: null odds}, or None.
      offsets_file: path for {qas_id: {"text", "start", "end"}}, or None; see `Answer`.
      null_score_diff_threshold: "" is the answer if the null odds are above this number.

    Returns:
      dict, the answers {qas_id: text}.
    """
    answers = {prediction.qas_id: prediction.final_answer(null_score_diff_threshold)
               for prediction in predictions}
    texts = {qas_id: answer.text for qas_id, answer in answers.items()}
    files.write_json(prediction_file, texts, indent=4)
    if null_odds_file:
        files.write_json(null_odds_file, null_odds(predictions), indent=4)
    if offsets_file:
        files.write_json(offsets_file, {
            qas_id: {"text": answer.text, "start": answer.start, "end": answer.end}
            for qas_id, answer in answers.items()}, indent=4)
    return texts


def null_odds(predictions):
    """Returns {qas_id: null odds} of a list of `Prediction`."""
    return {prediction.qas_id: prediction.null_odds for prediction in predictions}
