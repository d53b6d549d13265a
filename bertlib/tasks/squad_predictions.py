"""From start and end logits to answers, their files and their scores.

    answers = select_answers(examples, features, results, n_best_size=20, max_answer_length=30,
                             do_lower_case=True)
    predictions = write_nbest(answers, "nbest_predictions.json")
    texts = write_answers(predictions, "predictions.json")
    evaluate(squad_data.read_gold("dev-v1.1.json"), texts)        # {"exact_match": 80.8, "f1": 88.5}

`write_predictions` is the published function: the first three steps in one. Logits are let go when scored.

SQuAD 1.1: Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250; 2.0, with questions that have no answer:
Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822. Null score: Devlin et al. 2018,
https://arxiv.org/abs/1810.04805, section 4.3.
"""

import bisect
import collections
import functools
import itertools
import json
import math
import re
import string
from typing import NamedTuple

from absl import logging
import numpy as np

from bertlib.runtime import files
import tokenization

# A window's logits: the unique_id of its features, and a start and an end logit per token.
RawResult = collections.namedtuple("RawResult", ["unique_id", "start_logits", "end_logits"])

# The null odds of a question for which no answer was found at all: above any threshold.
NO_ANSWER_ODDS = 1000000.0

# Windows scored together: enough to make NumPy's overhead small, few enough to stay in the cache.
_WINDOWS = 256

# Text, start and end of no answer.
_NOWHERE = ("", None, None)


class Answer(NamedTuple):
    """An entry of the n-best list.

    `example.context[start:end]` is its text, except for white space; None if it has none or the example has
    no offsets.
    """
    text: str
    start_logit: float
    end_logit: float
    probability: float
    start: int | None = None
    end: int | None = None


class Prediction(NamedTuple):
    """What was found for a question; the last two are None without `version_2_with_negative`.

    `answer` is the best entry, of those with a text if there are any. `null_answer` is the entry that stands
    for no answer, and `null_odds` by how much its score is above that of `answer`.
    """
    qas_id: str
    nbest: list
    answer: Answer
    null_answer: Answer | None = None
    null_odds: float | None = None

    def final_answer(self, null_score_diff_threshold=0.0):
        """Returns the `Answer` to give: none if its odds are above the threshold."""
        is_null = self.null_odds is not None and self.null_odds > null_score_diff_threshold
        return self.null_answer if is_null else self.answer


# --- Selecting answers -----------------------------------------------------------------------------------


def select_answers(examples, features, results, n_best_size, max_answer_length, do_lower_case,
                   version_2_with_negative=False, verbose_logging=False, basic_tokenizer=None):
    """Yields a `Prediction` for each example, in order, some hundred windows after its last one at most.

    A candidate is a pair of one of the best start and one of the best end positions of a window that make a
    span of the context. The candidates of all windows are ranked by the sum of both logits, and of those with
    the same text the first stays. Equal logits and sums keep their order.

    Args:
      examples: list of `SquadExample`.
      features: iterable of `InputFeatures`, in the order of their examples.
      results: iterable of `RawResult`, best in the order of the features: those that come early have to be
        kept. Logits may be arrays or lists, and shorter than the features if only padding is missing.
      n_best_size: positions taken from each window, and number of entries to find.
      max_answer_length: longest answer, in tokens.
      do_lower_case: whether the features are of lower-cased text.
      version_2_with_negative: whether questions may have no answer. Its score is the logits of the first
        token, [CLS], in the window where it is lowest, and it always has an entry.
      verbose_logging: whether to log answers that cannot be found again in the context's spelling.
      basic_tokenizer: what made the features' words; by default a `BasicTokenizer` of that case.

    Raises:
      ValueError: a window has no result or NaN for logits, or the features are out of order.
    """
    tokenizer = basic_tokenizer or tokenization.BasicTokenizer(do_lower_case=do_lower_case)
    normalize = functools.lru_cache(maxsize=1 << 16)(lambda word: " ".join(tokenizer.tokenize(word)))
    context = None
    for groups in _chunks(_by_example(examples, _with_results(features, results))):
        ranked = _rank([windows for _, windows in groups], n_best_size, max_answer_length,
                       version_2_with_negative)
        for (example, windows), (null_logits, candidates) in zip(groups, ranked):
            # Questions about a context come together.
            if context is None or context.words is not example.doc_tokens:
                context = _Context(example.doc_tokens, normalize, verbose_logging)
            yield _select(example, context, windows, null_logits, candidates, n_best_size,
                          version_2_with_negative)


def _with_results(features, results):
    """Yields (feature, its result)."""
    results = iter(results)
    early = {}
    for feature in features:
        while feature.unique_id not in early:
            result = next(results, None)
            if result is None:
                raise ValueError(f"There are no logits for the window with unique_id {feature.unique_id} "
                                 f"(example {feature.example_index}): "
                                 "predict all features, and pass each once.")
            early[result.unique_id] = result
        yield feature, early.pop(feature.unique_id)


def _by_example(examples, windows):
    """Yields (example, list of its windows); a context without a word has no windows."""
    expected = 0
    for index, group in itertools.groupby(windows, key=lambda window: window[0].example_index):
        if not expected <= index < len(examples):
            raise ValueError(f"Features of example {index} where those of example {expected} or a later one "
                             f"of the {len(examples)} are due: sort the features by example_index.")
        yield from ((example, []) for example in examples[expected:index])
        yield examples[index], list(group)
        expected = index + 1
    yield from ((example, []) for example in examples[expected:])


def _chunks(groups):
    """Yields lists of groups (example, windows) with some windows in all."""
    chunk, num_windows = [], 0
    for group in groups:
        chunk.append(group)
        num_windows += len(group[1])
        if num_windows >= _WINDOWS:
            yield chunk
            chunk, num_windows = [], 0
    if chunk:
        yield chunk


def _rank(groups, n_best_size, max_answer_length, with_null):
    """Yields for each list of windows (logits of the null answer, its candidates from best to worst).

    A candidate is (index in the list of windows, start, end, start logit, end logit). W windows, S positions,
    n best.
    """
    windows = list(itertools.chain(*groups))
    sizes = np.array(list(map(len, groups)))
    first_windows = np.cumsum(sizes) - sizes
    group_of = np.repeat(np.arange(len(groups)), sizes)  # [W]
    start_logits, end_logits = _stack(windows, "start_logits"), _stack(windows, "end_logits")  # [W, S]
    window, start, end = _spans(windows, _best_positions(start_logits, n_best_size),
                                _best_positions(end_logits, n_best_size), max_answer_length)
    null_logits = np.stack([start_logits[:, 0], end_logits[:, 0]]).astype(float)
    # Of each question with windows the one with the lowest null score, the first of equal ones.
    nulls = np.lexsort((null_logits.sum(axis=0), group_of))[first_windows[sizes > 0]]
    if with_null:
        # Last, so that an answer with the same score comes first.
        window = np.concatenate([window, nulls])
        start, end = (np.concatenate([positions, np.zeros(len(nulls), int)]) for positions in (start, end))
    start_logit, end_logit = start_logits[window, start].astype(float), end_logits[window, end].astype(float)
    group = group_of[window]
    order = np.lexsort((-(start_logit + end_logit), group))  # of equal sums the first candidate comes first
    candidates = _rows((window - first_windows[group], start, end, start_logit, end_logit), order,
                       np.bincount(group, minlength=len(groups)), n_best_size)
    null_logits = zip(*null_logits[:, nulls].tolist())
    for size, rows in zip(sizes.tolist(), candidates):
        yield next(null_logits) if size else (0.0, 0.0), rows


def _rows(columns, order, sizes, at_once):
    """Yields for each group an iterator of its rows, tuples of Python's numbers.

    Args:
      columns: arrays.
      order: indices of the rows, group by group.
      sizes: numbers of rows in the groups, array.
      at_once: how many rows of a group are made at a time. All groups' first are made together, others when
        needed.
    """
    starts = np.cumsum(sizes) - sizes
    first = zip(*(column[order[np.arange(len(order)) - np.repeat(starts, sizes) < at_once]].tolist()
                  for column in columns))
    for start, size in zip(starts.tolist(), sizes.tolist()):
        yield itertools.chain(list(itertools.islice(first, min(size, at_once))),
                              _further_rows(columns, order[start:start + size], at_once))


def _further_rows(columns, order, at_once):
    for start in range(at_once, len(order), at_once):
        yield from zip(*(column[order[start:start + at_once]].tolist() for column in columns))


def _spans(windows, starts, ends, max_answer_length):
    """Returns the pairs that are spans of the context, window by window, ordered by starts, then by ends.

    Args:
      starts, ends: positions from best to worst, int [W, n].

    Returns:
      (indices of the windows, starts, ends), int [number of spans] each.
    """
    # A start has to be in the window with its most context: one of overlapping windows proposes the span.
    both = np.hstack([starts, ends])
    in_context = _look_up(both, [feature.token_to_orig_map.__contains__ for feature, _ in windows])
    in_context = np.frombuffer(bytes(in_context), bool).reshape(both.shape)
    # None of one that is not there
    has_max_context = _look_up(starts, [feature.token_is_max_context.get for feature, _ in windows])
    is_start = in_context[:, :starts.shape[1]] & np.fromiter(has_max_context, bool,
                                                             starts.size).reshape(starts.shape)
    is_end = in_context[:, starts.shape[1]:] & (
        ends < np.array([len(feature.tokens) for feature, _ in windows])[:, None])
    window, i = np.nonzero(is_start)
    start = starts[window, i]  # [K]
    # -1, before all starts, is what cannot be an end.
    ends = np.where(is_end, ends, -1)[window]  # [K, n]
    steps = ends - start[:, None]
    spans = np.flatnonzero((steps >= 0) & (steps < max_answer_length))
    k = spans // ends.shape[1]
    return window[k], start[k], ends.ravel()[spans]


def _stack(windows, name):
    """Logits of all windows, [W, S]. Missing ones are -inf: they come last and are no candidates."""
    rows = [getattr(result, name) for _, result in windows]
    lengths = list(map(len, rows))
    length = max(lengths, default=1)
    if min(lengths, default=length) < length:
        rows = [np.append(row, np.full(length - len(row), -np.inf, getattr(row, "dtype", None)))
                for row in rows]
    logits = np.concatenate(rows or [()]).reshape(len(rows), length)
    if np.isnan(logits).any():
        feature, _ = windows[np.isnan(logits).any(axis=1).argmax()]
        raise ValueError(f"The {name} of the window with unique_id {feature.unique_id} are NaN: the model's "
                         "weights are not usable. Start from an earlier checkpoint.")
    return logits


def _best_positions(logits, n_best_size):
    """Each row's best positions, from best to worst, the first among equals: [W, S] → int [W, min(n, S)]."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :n_best_size]


def _look_up(positions, functions):
    """Iterates over what each row's function says of its positions, int [W, n]."""
    return itertools.chain.from_iterable(map(map, functions, positions.tolist()))


def _select(example, context, windows, null_logits, candidates, n_best_size, with_null):
    """Returns the `Prediction` of an example; see `select_answers` and `_rank`."""
    offsets = getattr(example, "word_offsets", None)
    entries, texts = [], set()  # (text, start, end), start logit, end logit
    for window, start, end, start_logit, end_logit in candidates:
        if len(entries) >= n_best_size:
            break
        place = _NOWHERE
        if start > 0:  # at 0 there is [CLS], which stands for no answer
            feature = windows[window][0]
            words = feature.token_to_orig_map
            spans = getattr(feature, "token_spans", None)
            if spans is None:
                predicted = " ".join(feature.tokens[start:end + 1]).replace(" ##", "").replace("##", "")
                place = context.locate(predicted, words[start], words[end], offsets)
            else:
                place = context.between((words[start], spans[start][0]), (words[end], spans[end][1]), offsets)
            if place[0] in texts or not place[0]:  # tokens may be of no character
                continue
        texts.add(place[0])
        entries.append((place, start_logit, end_logit))
    if with_null and "" not in texts:
        entries.append((_NOWHERE, *null_logits))
    if not entries:
        entries.append((("empty", None, None), 0.0, 0.0))
    probabilities = _compute_softmax([start_logit + end_logit for _, start_logit, end_logit in entries])
    nbest = [Answer(text, start_logit, end_logit, probability, start, end)
             for ((text, start, end), start_logit, end_logit), probability in zip(entries, probabilities)]
    if not with_null:
        return Prediction(example.qas_id, nbest, nbest[0])
    null_answer = next(answer for answer in nbest if not answer.text)
    answer = next((answer for answer in nbest if answer.text), null_answer)
    odds = sum(null_logits) - answer.start_logit - answer.end_logit if answer.text else NO_ANSWER_ODDS
    return Prediction(example.qas_id, nbest, answer, null_answer, odds)


def _get_best_indexes(logits, n_best_size):
    """Returns the positions (ints) of the greatest logits, from greatest to least, the first among equals.

    For scripts that import it; an answer's spans are found by `select_answers`.
    """
    return sorted(range(len(logits)), key=logits.__getitem__, reverse=True)[:n_best_size]


def _compute_softmax(scores):
    """Returns exp(score) / Σ exp(score) of each score: list of float."""
    if not scores:
        return []
    greatest = max(scores)
    exponentials = [math.exp(score - greatest) for score in scores]
    total = sum(exponentials)
    return [exponential / total for exponential in exponentials]


# --- The answer in the context's own spelling ------------------------------------------------------------


def get_final_text(pred_text, orig_text, do_lower_case, verbose_logging=False):
    """Returns the part of the original text that a predicted text stands for.

    Tokens have lost case, accents and the original spacing, and the original words reach further than they:
    the model says "steve smith", the words are "Steve Smith's", the answer is "Steve Smith". So the original
    is tokenized too, which gives "steve smith ' s", the prediction is looked up in it, and its place is
    carried over by counting characters that are no spaces. That needs as many of them on both sides: a
    character that was dropped or became two leaves the original whole.

    Args:
      pred_text: str, tokens joined by spaces, pieces of words put together.
      orig_text: str, the words that the tokens come from.
      do_lower_case: whether tokens are lower-cased and without accents.
      verbose_logging: whether to log why the original is returned whole.

    For scripts that import it; `select_answers` does the same for many spans of a context.
    """
    words = tokenization.BasicTokenizer(do_lower_case=do_lower_case).tokenize(orig_text)
    start, end = _align(pred_text, orig_text, " ".join(words), verbose_logging)
    return orig_text[start:end]


def _align(predicted, original, normalized, verbose_logging):
    """Where the original has the normalized text's prediction: (start, end), all of it if that is unknown."""
    start = normalized.find(predicted)
    end = start + len(predicted)
    as_many = len(original) - original.count(" ") == len(normalized) - normalized.count(" ")
    if start >= 0 and as_many and predicted and predicted[0] != " " != predicted[-1]:
        first = start - normalized.count(" ", 0, start)
        last = end - normalized.count(" ", 0, end) - 1
        return _nth_character(original, first), _nth_character(original, last) + 1
    if verbose_logging:
        logging.info("Cannot find %r in %r (tokenized: %r): all of it is the answer.", predicted, original,
                     normalized)
    return 0, len(original)


def _nth_character(text, n):
    """The index of the n-th character that is no space, counted from 0, without a loop over characters."""
    index, before = n, -1
    while index != before:
        index, before = n + text.count(" ", 0, index + 1), index
    return index


class _Context:
    """A context's words, to do what `get_final_text` does for spans of tokens, tokenizing no word twice.

    A text's tokens are those of its words one by one, since `BasicTokenizer` looks at characters and splits
    at spaces.
    """

    def __init__(self, words, normalize, verbose_logging):
        self.words = words
        normalized = list(map(normalize, words))
        self._original = " ".join(words)
        self._normalized = " ".join(filter(None, normalized))
        # Where each word begins, and where one after the last would.
        self._starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]
        self._normalized_starts = [0,
                                   *itertools.accumulate(len(word) + 1 if word else 0 for word in normalized)]
        self._verbose_logging = verbose_logging

    def locate(self, predicted, first, last, offsets):
        """Returns (text, start, end) of a predicted text in the words from `first` to `last`; see `Answer`.

        Args:
          offsets: list of int, where the words begin in the unsplit context, or None.
        """
        first_character = self._starts[first]
        original = self._original[first_character:self._starts[last + 1] - 1]
        normalized = self._normalized[
            self._normalized_starts[first]:max(self._normalized_starts[last + 1] - 1, 0)]
        if predicted == normalized and offsets is not None:  # often, and then there is nothing to look for
            return original, offsets[first], offsets[last] + len(self.words[last])
        start, end = _align(" ".join(predicted.split()), original, normalized, self._verbose_logging)
        if offsets is None:
            return original[start:end], None, None
        return (original[start:end],
                *(self._unsplit(first_character + index, offsets) for index in (start, end)))

    def between(self, start, end, offsets):
        """Returns (text, start, end) between two places, each a word and a character of it; see `locate`."""
        start, end = (self._starts[word] + character for word, character in (start, end))
        if offsets is None:
            return self._original[start:end], None, None
        return self._original[start:end], self._unsplit(start, offsets), self._unsplit(end, offsets)

    def _unsplit(self, index, offsets):
        # The end of a word is the place of the space after it, which counts as the word's.
        word = bisect.bisect_right(self._starts, index) - 1
        return offsets[word] + index - self._starts[word]


# --- Files -----------------------------------------------------------------------------------------------


def write_predictions(all_examples, all_features, all_results, n_best_size, max_answer_length, do_lower_case,
                      output_prediction_file, output_nbest_file, output_null_log_odds_file,
                      version_2_with_negative=False, null_score_diff_threshold=0.0, verbose_logging=False,
                      output_offsets_file=None):
    """Writes answers, n-best lists and, for `version_2_with_negative`, null odds; see `select_answers`.

    Args:
      all_features: list of `InputFeatures`, in any order.
      all_results: iterable of `RawResult`, in any order.
      output_prediction_file, output_nbest_file, output_null_log_odds_file, output_offsets_file: paths; see
        `write_nbest` and `write_answers`.
      null_score_diff_threshold: a question whose null odds are above it gets no answer.

    Returns:
      list of `Prediction`, without their n-best lists.
    """
    features = sorted(all_features, key=lambda feature: feature.example_index)
    predictions = write_nbest(select_answers(all_examples, features, all_results, n_best_size,
                                             max_answer_length, do_lower_case, version_2_with_negative,
                                             verbose_logging), output_nbest_file)
    write_answers(predictions, output_prediction_file, output_null_log_odds_file if version_2_with_negative
                  else None, output_offsets_file, null_score_diff_threshold)
    return predictions


# Indents entries as in the file. An encoder with `indent` would be the slow one, in Python.
_ENTRIES = json.JSONEncoder(separators=(",\n            ", ": "))


def write_nbest(predictions, path):
    """Writes {qas_id: [{"text", "probability", "start_logit", "end_logit"}]} as they come; all or nothing.

    Returns:
      list of `Prediction`, without their n-best lists.
    """
    written = []
    with files.replacing(path) as partial, files.opened(partial, "w") as writer:
        writer.write("{")
        for prediction in predictions:
            entries = _ENTRIES.encode([{"text": answer.text, "probability": answer.probability,
                                        "start_logit": answer.start_logit, "end_logit": answer.end_logit}
                                       for answer in prediction.nbest])
            # A line end in a text is escaped, so these are all between entries.
            entries = entries[2:-2].replace("},\n            {", "\n        },\n        {\n            ")
            writer.write(f"{',' if written else ''}\n    {json.dumps(prediction.qas_id)}: [\n        {{\n"
                         f"            {entries}\n        }}\n    ]")
            written.append(prediction._replace(nbest=None))
        writer.write("\n}\n" if written else "}\n")
    return written


def write_answers(predictions, prediction_file, null_odds_file=None, offsets_file=None,
                  null_score_diff_threshold=0.0):
    """Writes the final answers, {qas_id: text}.

    Args:
      predictions: list of `Prediction`.
      prediction_file: path.
      null_odds_file: path for {qas_id: null odds}, or None.
      offsets_file: path for {qas_id: {"text", "start", "end"}}, or None; see `Answer`.
      null_score_diff_threshold: see `write_predictions`.

    Returns:
      what is in the first file.
    """
    answers = {prediction.qas_id: prediction.final_answer(null_score_diff_threshold)
               for prediction in predictions}
    texts = {qas_id: answer.text for qas_id, answer in answers.items()}
    _write_json(prediction_file, texts)
    if null_odds_file:
        _write_json(null_odds_file, null_odds(predictions))
    if offsets_file:
        _write_json(offsets_file, {qas_id: {"text": answer.text, "start": answer.start, "end": answer.end}
                                   for qas_id, answer in answers.items()})
    return texts


def one_sided(gold, texts):
    """Returns what is to be said, in words, if all answers are empty though some questions have one, or none
    is though some have none; else None. Scores do not show it.

    Args:
      gold: {qas_id: list of right answers}.
      texts: {qas_id: answer}.
    """
    unanswerable = sum(not gold[qas_id] for qas_id in texts if qas_id in gold)
    empty = sum(not text for text in texts.values())
    if empty == len(texts) and unanswerable < len(texts):
        return (f"All {empty} answers are empty, as {unanswerable} of the right ones are: nothing was told "
                "apart, and the scores are those of never answering.")
    if not empty and unanswerable:
        return (f"None of the {len(texts)} answers is empty, though {unanswerable} of the right ones are: "
                "nothing was told apart, and the scores are those of always answering.")
    return None


def null_odds(predictions):
    """Returns {qas_id: null odds}."""
    return {prediction.qas_id: prediction.null_odds for prediction in predictions}


def _write_json(path, content):
    files.write_text(path, json.dumps(content, indent=4) + "\n")


# --- Scores ----------------------------------------------------------------------------------------------


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text):
    """Returns the text in lower case, without ASCII punctuation, articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def score_answers(gold, texts, version_2_with_negative=False):
    """Scores each question: {qas_id: (exact match, F1)}, the best over its right answers, each from 0 to 1.

    Exact match compares normalized texts, F1 the bags of their words. A question without an answer in `texts`
    scores 0. With `version_2_with_negative`, a question without a right answer has "" as its only one.

    Args:
      gold: see `squad_data.read_gold`.
      texts: {qas_id: text}.
    """
    missing = [qas_id for qas_id in gold if qas_id not in texts]
    if missing:
        logging.warning("%d of %d questions have no prediction and score 0, such as %s.", len(missing),
                        len(gold), missing[0])
    scores = dict.fromkeys(gold, (0.0, 0.0))
    for qas_id, answers in gold.items():
        if qas_id not in texts:
            continue
        rights = [normalize_answer(text) for text, _ in answers]
        if version_2_with_negative:
            rights = list(filter(None, rights)) or [""]
        text = normalize_answer(texts[qas_id])
        scores[qas_id] = (float(text in rights),
                          max((_f1(text.split(), right.split(), version_2_with_negative) for right in rights),
                              default=0.0))
    return scores


def _f1(words, right_words, empty_may_be_right):
    """Harmonic mean of words' precision and recall. Two empty texts have 0 in SQuAD 1.1 and 1 in 2.0."""
    if empty_may_be_right and not (words and right_words):
        return float(words == right_words)
    common = sum((collections.Counter(words) & collections.Counter(right_words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(right_words)
    return (2 * precision * recall) / (precision + recall)


def evaluate(gold, texts, version_2_with_negative=False, null_odds=None):
    """Returns the figures of the official evaluation scripts, in percent: {name: number}.

    SQuAD 1.1 has exact_match and f1. 2.0 has exact, f1 and total; the same of the questions with (HasAns_…)
    and without (NoAns_…) an answer; and with null odds best_exact, best_exact_thresh, best_f1 and
    best_f1_thresh: the figures if answers were withheld above another threshold than that of `texts`, which
    has no answers to offer above its own.

    Args:
      gold: see `squad_data.read_gold`.
      texts: {qas_id: text}.
      version_2_with_negative: whether it is SQuAD 2.0.
      null_odds: {qas_id: number}, or None.
    """
    scores = score_answers(gold, texts, version_2_with_negative)
    if not version_2_with_negative:
        return dict(zip(("exact_match", "f1"), mean_scores(scores.values())))
    has_answer = {qas_id: bool(answers) for qas_id, answers in gold.items()}
    figures = {}
    for prefix, chosen in (("", list(scores)),
                           ("HasAns_", [qas_id for qas_id in scores if has_answer[qas_id]]),
                           ("NoAns_", [qas_id for qas_id in scores if not has_answer[qas_id]])):
        if chosen:
            means = mean_scores([scores[qas_id] for qas_id in chosen])
            figures.update(zip((f"{prefix}exact", f"{prefix}f1", f"{prefix}total"), (*means, len(chosen))))
    if null_odds is not None:
        for column, name in enumerate(("exact", "f1")):
            column_scores = {qas_id: score[column] for qas_id, score in scores.items()}
            best, threshold = _official_threshold(column_scores, texts, null_odds, has_answer)
            figures.update({f"best_{name}": best, f"best_{name}_thresh": threshold})
    return figures


def mean_scores(scores):
    """Returns the mean exact match and F1 of (exact match, F1) pairs, in percent."""
    return [100.0 * sum(column) / len(scores) for column in zip(*scores)] or [0.0, 0.0]


def _official_threshold(scores, texts, null_odds, has_answer):
    """The best mean score in percent and its threshold, found as the official script does: question by
    question from the lowest odds on, starting with no answer to any."""
    total = best = sum(not has_answer[qas_id] for qas_id in scores)
    threshold = 0.0
    for qas_id in sorted(null_odds, key=null_odds.get):
        if qas_id in scores:
            total += scores[qas_id] if has_answer[qas_id] else -bool(texts.get(qas_id))
            if total > best:
                best, threshold = total, null_odds[qas_id]
    return 100.0 * best / len(scores), threshold


def find_null_threshold(gold, predictions):
    """Returns the `null_score_diff_threshold` for which the mean F1 is highest, the least of them.

    Unlike the official script's best_f1_thresh it considers the answers that the threshold in use withholds,
    and only what a threshold can do: questions with the same odds all get their answer or none does.

    Args:
      gold: see `squad_data.read_gold`; of the same questions.
      predictions: list of `Prediction` with null odds.
    """
    answered = score_answers(gold, {prediction.qas_id: prediction.answer.text for prediction in predictions},
                             True)
    withheld = score_answers(gold, dict.fromkeys(answered, ""), True)
    scored = [prediction for prediction in predictions if prediction.qas_id in gold]
    odds, group = np.unique([prediction.null_odds for prediction in scored], return_inverse=True)
    gains = [answered[prediction.qas_id][1] - withheld[prediction.qas_id][1] for prediction in scored]
    totals = np.cumsum(np.bincount(group, gains))
    best = totals.argmax()
    return float(odds[best] if totals[best] > 0 else odds[0] - 1)
