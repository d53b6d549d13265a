"""Question answering on SQuAD: examples, windows, features.

A context is split twice: at white space into words, which answers are made of, and each word into
WordPiece tokens, which the model sees. Every example keeps where its words begin in the context. A
context that is too long for the model is cut into overlapping windows, each of them fed as
`[CLS] question [SEP] window [SEP]`: one `InputFeatures`. `read_squad_examples` reads the questions
of a file and `read_gold` the right answers to score with, `convert_examples_to_features` and
`file_based_convert_examples_to_features` make the windows.

SQuAD 1.1: https://arxiv.org/abs/1606.05250; 2.0: https://arxiv.org/abs/1806.03822
"""

import bisect
import collections
import contextlib
import functools
import itertools
import json
import re

from absl import logging

from bertlib.data import example_encoding, record_files
from bertlib.system import files, workers
import tokenization

_FIRST_UNIQUE_ID = 1000000000
_LOGGED_EXAMPLES = 2
_EXAMPLES_PER_CHUNK = 256
_REMEMBERED_LAYOUTS = 1 << 10
_REMEMBERED_WORDS = 1 << 16
# Fewer characters than `str.split` takes for white space: "5\xa0km" is one word.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_KINDS = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}


class SquadExample:
    """One question about one context.

    Args:
      qas_id: str, names the question in predictions.
      question_text: str.
      doc_tokens: list of str, the words of the context; the questions about a context share it.
      orig_answer_text: str, the answer to learn; "" where there is none.
      start_position: int, word the answer begins in; -1 where there is none.
      end_position: int, word it ends in, that one included; -1 where there is none.
      is_impossible: bool, whether the context holds no answer.
      context: str, what was split into words.
      word_offsets: list of int, where in `context` each word begins.
    """

    def __init__(self, qas_id, question_text, doc_tokens, orig_answer_text=None, start_position=None,
                 end_position=None, is_impossible=False, context=None, word_offsets=None):
        self.qas_id = qas_id
        self.question_text = question_text
        self.doc_tokens = doc_tokens
        self.orig_answer_text = orig_answer_text
        self.start_position = start_position
        self.end_position = end_position
        self.is_impossible = is_impossible
        self.context = context
        self.word_offsets = word_offsets

    def __str__(self):
        return self.__repr__()

    def __repr__(self):
        parts = [f"qas_id: {self.qas_id}", f"question_text: {self.question_text}",
                 f"doc_tokens: [{' '.join(self.doc_tokens)}]"]
        if self.start_position is not None:
            parts += [f"start_position: {self.start_position}", f"end_position: {self.end_position}",
                      f"is_impossible: {self.is_impossible}"]
        return ", ".join(parts)


class InputFeatures:
    """What the model is fed for one window, and what leads back from there to the context.

    Args:
      unique_id: int, names the window in the model's results.
      example_index: int, place of the example among all.
      doc_span_index: int, place of the window among those of its example.
      tokens: list of str, without padding.
      token_to_orig_map: {place in `tokens`: word of the context}, of the window's tokens.
      token_is_max_context: {place in `tokens`: bool}, whether no other window shows more of the
        context on both sides of this token.
      input_ids: max_seq_length ints, the WordPiece ids, then zeros.
      input_mask: max_seq_length ints, 1 for a token and 0 for padding.
      segment_ids: max_seq_length ints, 1 for the window with its [SEP] and 0 elsewhere.
      start_position: int, place of the answer's first token in `tokens`; 0, that is [CLS], where the
        window does not hold the whole answer; None if not training.
      end_position: int, place of its last token, likewise.
      is_impossible: bool, whether the context holds no answer.
      token_spans: {place in `tokens`: (start, end) in its word}, of the window's tokens; None with a
        tokenizer that has no `spans`.
    """

    def __init__(self, unique_id, example_index, doc_span_index, tokens, token_to_orig_map,
                 token_is_max_context, input_ids, input_mask, segment_ids, start_position=None,
                 end_position=None, is_impossible=None, token_spans=None):
        self.unique_id = unique_id
        self.example_index = example_index
        self.doc_span_index = doc_span_index
        self.tokens = tokens
        self.token_to_orig_map = token_to_orig_map
        self.token_is_max_context = token_is_max_context
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.segment_ids = segment_ids
        self.start_position = start_position
        self.end_position = end_position
        self.is_impossible = is_impossible
        self.token_spans = token_spans


# --- Reading ---------------------------------------------------------------------------------------------


def read_squad_examples(input_file, is_training, version_2_with_negative=False):
    """Reads the questions of a file in the form of SQuAD, or of JSON Lines.

    A line of JSON Lines is {"id": …, "question": …, "context": …}, the id a string or an integer,
    and with "answers" as in SQuAD to train on. A question whose answer does not match its context is
    left out of training, with a warning, and so is one that finds an answer in an empty context.
    Other questions about empty contexts stay, with no words.

    Args:
      input_file: path, on any file system TensorFlow knows.
      is_training: bool, whether to read the answers.
      version_2_with_negative: bool, whether questions are marked as impossible or not (SQuAD 2.0).

    Returns:
      list of `SquadExample`, in the order of the file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: not UTF-8 or not JSON, says on which line; a part is missing or of the wrong kind,
        or in training a possible question has not exactly one answer, says of which question; an id
        occurs twice (in training both count); or there is no question to use.
    """
    examples, places, mismatches = [], {}, []
    context, doc_tokens, word_offsets = None, [], []
    for place, context_here, qa in _read_questions(input_file):
        if context_here != context:
            context = context_here
            doc_tokens, word_offsets = split_context(context)
        example = SquadExample(str(_get(qa, "id", place, str, int)), _get(qa, "question", place, str),
                               doc_tokens, context=context, word_offsets=word_offsets)
        _note_place(example.qas_id, place, places, is_training)
        if is_training and not _read_answer(example, qa, place, version_2_with_negative):
            mismatches.append(example.qas_id)
        else:
            examples.append(example)
    if mismatches:
        logging.warning("%s: left out %d of %d questions, "
                        "whose answers do not match their contexts (ids above)",
                        input_file, len(mismatches), len(mismatches) + len(examples))
    if not examples:
        raise ValueError(f"{input_file}: there is no question in it" if not mismatches else
                         f"{input_file}: none of the {len(mismatches)} answers matches its context; "
                         "answer_start counts characters, not bytes, from 0")
    return examples


def split_context(context):
    """Returns (the words of a context, list of str; where in it each begins, list of int)."""
    matches = list(_WORD.finditer(context))
    return [match.group() for match in matches], [match.start() for match in matches]


def read_gold(path):
    """Reads the right answers of a file in one of the forms that `read_squad_examples` takes.

    "answers" is a list of {"text": …, "answer_start": …}, of {"text": …} or of texts. Only where it is
    missing is "is_impossible" looked at, which then has to be true.

    Returns:
      {qas_id: list of (text, start in the context)}, an empty list if there is no right answer.
      Without an answer_start, the start is where the text is found first, or -1.

    Raises:
      FileNotFoundError, ValueError: see `read_squad_examples`; or a question has no answers, says where.
    """
    gold = {}
    for place, context, qa in _read_questions(path):
        qas_id = str(_get(qa, "id", place, str, int))
        if "answers" not in qa and qa.get("is_impossible") is not True:
            raise ValueError(f"{place}: question {qas_id} has no \"answers\" to score with. Add a list of "
                             "the right ones or \"is_impossible\": true, or ask for "
                             "--do_predict without --do_eval.")
        answers = _get(qa, "answers", place, list) if "answers" in qa else []
        gold[qas_id] = [_gold_answer(answer, context, place) for answer in answers]
    return gold


def _gold_answer(answer, context, place):
    if isinstance(answer, str):
        answer = {"text": answer}
    text = _get(answer, "text", place, str)
    return text, _get(answer, "answer_start", place, int) if "answer_start" in answer else context.find(text)


def _read_questions(path):
    """Yields where a question stands in a file, its context, and its entry."""
    text = files.read_text(path)
    start = len(text) - len(text.lstrip())
    if start == len(text):
        raise ValueError(f"{path}: the file is empty; it should hold questions")
    first, end = _parse(path, json.JSONDecoder().raw_decode, text, start)
    if not isinstance(first, dict):
        raise ValueError(f"{path}: it should be one JSON object with \"data\", as SQuAD is, or one "
                         "object with \"id\", \"question\" and \"context\" a line")
    if "data" not in first and not {"id", "question", "context"} & set(first):
        raise ValueError(f"{path}: it has neither \"data\", as SQuAD has, nor \"id\", \"question\" and "
                         "\"context\", as a line of JSON Lines has, but "
                         f"{', '.join(map(repr, first)) or 'nothing':.80}")
    if "data" in first:
        if text[end:].strip():
            _parse(path, json.loads, text)  # which complains
        yield from _questions_in_squad_file(path, first)
        return
    for i, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            record = _parse(path, json.loads, line, line=i)
            yield f"{path}:{i}", _get(record, "context", f"{path}:{i}", str), record


def _parse(path, parse, *arguments, line=1):
    """Returns parse(*arguments), of which the first is text that begins on this line of a file."""
    try:
        return parse(*arguments)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno + line - 1}:{error.colno}: this is not JSON ({error.msg}); "
                         "correct it, or fetch the file again if it was cut off") from None
    except RecursionError:
        raise ValueError(f"{path}:{line}: the JSON that begins here is nested too deeply; questions are not: "
                         "correct it, or fetch the file again") from None


def _questions_in_squad_file(path, document):
    for i, article in enumerate(_get(document, "data", path, list)):
        for j, paragraph in enumerate(_get(article, "paragraphs", f"{path}: data[{i}]", list)):
            place = f"{path}: data[{i}].paragraphs[{j}]"
            context = _get(paragraph, "context", place, str)
            for k, qa in enumerate(_get(paragraph, "qas", place, list)):
                yield f"{place}.qas[{k}]", context, qa


def _get(entry, key, place, *kinds):
    """Returns what an entry of a file has under a key, if it is of one of these kinds."""
    wanted = " or ".join(_KINDS[kind] for kind in kinds)
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: there should be an object with {key!r} here, not {entry!r:.60}")
    if key not in entry:
        raise ValueError(f"{place}: {key!r} is missing; it should be {wanted}")
    if type(entry[key]) not in kinds:
        raise ValueError(f"{place}: {key!r} should be {wanted}, not {entry[key]!r:.60}")
    return entry[key]


def _note_place(qas_id, place, places, is_training):
    first = places.setdefault(qas_id, place)
    if first is place:
        return
    if not is_training:
        raise ValueError(f"{place}: the id {qas_id!r} was already used at {first}; answers are told apart by "
                         "their questions' ids, so give each question its own")
    logging.warning("%s: the id %s was already used at %s; both questions are learned", place, qas_id, first)


def _read_answer(example, qa, place, version_2_with_negative):
    """Sets what an example has to learn; returns False, after a warning, if the context differs."""
    name = f"{place}: question {example.qas_id}"
    if version_2_with_negative and _get(qa, "is_impossible", name, bool):
        example.orig_answer_text, example.start_position, example.end_position = "", -1, -1
        example.is_impossible = True
        return True
    answers = _get(qa, "answers", name, list)
    if len(answers) != 1:
        hint = "; SQuAD 2.0 needs --version_2_with_negative" if qa.get("is_impossible") is True else ""
        raise ValueError(f"{name} has {len(answers)} answers; to train on it should have exactly one{hint}")
    text, begin = _get(answers[0], "text", name, str), _get(answers[0], "answer_start", name, int)
    end = begin + len(text)
    words = []
    if text.strip() and begin >= 0 and end <= len(example.context):
        # A position between two words counts as the word before.
        first, last = (max(0, bisect.bisect_right(example.word_offsets, position) - 1)
                       for position in (begin, end - 1))
        words = example.doc_tokens[first:last + 1]
    wanted, found = " ".join(tokenization.whitespace_tokenize(text)), " ".join(words)
    if not words or wanted not in found:
        logging.warning("%s is left out: its answer %r does not match the context at answer_start %d, which "
                        "has %r there",
                        name, wanted, begin, found)
        return False
    example.orig_answer_text, example.start_position, example.end_position = text, first, last
    return True


# --- Windows ---------------------------------------------------------------------------------------------

_DocSpan = collections.namedtuple("_DocSpan", ["start", "length"])
# A context's tokens, their ids, each token's word, each word's first token, then the number of tokens.
_Document = collections.namedtuple("_Document", ["tokens", "ids", "words", "firsts"])
# A window: which part of the context it is, that part's words by token, its tokens, ids and answer.
_Window = collections.namedtuple("_Window",
                                 ["span", "words", "tokens", "ids", "start_position", "end_position"])


def _doc_spans(num_tokens, room, doc_stride):
    """Returns the windows (tuple of `_DocSpan`) of a context, of at most `room` tokens each.

    Where `doc_stride` exceeds the room, windows stand side by side: no token is ever skipped.
    """
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append(_DocSpan(start, length))
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return tuple(spans)


def _improve_answer_span(doc_tokens, input_start, input_end, tokenizer, orig_answer_text):
    """Narrows the tokens of an answer's words down to those of the answer itself.

    Words keep their punctuation: the answer "Oslo" may lie in the word "(Oslo)," and has a token
    of its own there. Where it has not, as "art" in "artists", the words stay whole.

    Args:
      doc_tokens: list of str, the WordPiece tokens of the context.
      input_start: int, the first token of the answer's words.
      input_end: int, the last one.
      tokenizer: has `tokenize(text)`.
      orig_answer_text: str, the answer.

    Returns:
      The first and the last token, two ints.
    """
    answer = list(tokenizer.tokenize(orig_answer_text))
    if answer:
        for start in range(input_start, input_end - len(answer) + 2):
            if doc_tokens[start:start + len(answer)] == answer:
                return start, start + len(answer) - 1
    return input_start, input_end


def _context_score(span, position):
    """Returns how much context a token has in a window: on its poorer side, longer windows first at a tie."""
    before = position - span.start
    return min(before, span.length - 1 - before) + 0.01 * span.length


def _check_is_max_context(doc_spans, cur_span_index, position):
    """Returns whether a window is the one that shows a token with most context, the first of those that do.

    Args:
      doc_spans: list of windows, each with a `start` and a `length` in tokens.
      cur_span_index: int, which of them is asked about.
      position: int, place of the token in the whole context.
    """
    holding = [i for i, span in enumerate(doc_spans) if span.start <= position < span.start + span.length]
    return bool(holding) and cur_span_index == max(holding,
                                                   key=lambda i: _context_score(doc_spans[i], position))


@functools.lru_cache(_REMEMBERED_LAYOUTS)
def _max_context(doc_spans):
    """Returns `_check_is_max_context` of each token of each window: a list of lists of bool."""
    best = {}
    for i, span in enumerate(doc_spans):
        for position in range(span.start, span.start + span.length):
            score = _context_score(span, position)
            if position not in best or score > best[position][0]:
                best[position] = score, i
    return [[best[position][1] == i for position in range(span.start, span.start + span.length)]
            for i, span in enumerate(doc_spans)]


class _Featurizer:
    """Cuts examples into windows, the arguments being those of `convert_examples_to_features`."""

    def __init__(self, tokenizer, max_seq_length, doc_stride, max_query_length, is_training):
        if doc_stride < 1:
            raise ValueError(f"doc_stride is {doc_stride}; "
                             "it should be at least 1 token, or windows never move on")
        if max_query_length < 0:
            raise ValueError(f"max_query_length is {max_query_length}; it should be at least 0 tokens")
        self._arguments = tokenizer, max_seq_length, doc_stride, max_query_length, is_training
        self._tokenizer = tokenizer
        self._length = max_seq_length
        self._stride = doc_stride
        self._max_query_length = max_query_length
        self._is_training = is_training
        spans = getattr(tokenizer, "spans", None)
        self._last = None, None
        self._spans = spans and functools.lru_cache(_REMEMBERED_WORDS)(spans)

    def __reduce__(self):
        return _Featurizer, self._arguments

    def __call__(self, item):
        """Returns the `InputFeatures` of (index, example), numbered from 0 on."""
        index, example = item
        return self.features(example, index, 0)

    def features(self, example, example_index, unique_id):
        """Returns the `InputFeatures` of an example, numbered from `unique_id` on."""
        windows = self._windows(example)
        is_max_context = _max_context(tuple(window.span for window in windows))
        spans = self._spans and list(itertools.chain.from_iterable(map(self._spans, example.doc_tokens)))
        features = []
        for i, window in enumerate(windows):
            first = len(window.ids) - 1 - len(window.words)
            places = range(first, len(window.ids) - 1)
            padding = [0] * (self._length - len(window.ids))
            features.append(InputFeatures(
                unique_id=unique_id + i,
                example_index=example_index,
                doc_span_index=i,
                tokens=window.tokens,
                token_to_orig_map=dict(zip(places, window.words)),
                token_is_max_context=dict(zip(places, is_max_context[i])),
                input_ids=window.ids + padding,
                input_mask=[1] * len(window.ids) + padding,
                segment_ids=[0] * first + [1] * (len(window.ids) - first) + padding,
                start_position=window.start_position,
                end_position=window.end_position,
                is_impossible=example.is_impossible,
                token_spans=None if spans is None else dict(zip(places, spans[window.span.start:]))))
        return features

    def _windows(self, example):
        question = list(self._tokenizer.tokenize(example.question_text))[:self._max_query_length]
        room = self._length - len(question) - 3
        if room < 1:
            raise ValueError(f"question {example.qas_id}: max_seq_length {self._length} leaves no room for "
                             f"its context beside {len(question)} tokens of the question and 3 special ones; "
                             f"raise it, or lower max_query_length, which is {self._max_query_length}")
        document = self._document(example.doc_tokens)
        tokens = ["[CLS]", *question, "[SEP]"]
        ids = list(self._tokenizer.convert_tokens_to_ids(tokens))
        answer = None
        if self._is_training and not example.is_impossible:
            answer = self._answer(example, document)
        windows = []
        for span in _doc_spans(len(document.tokens), room, self._stride):
            part = slice(span.start, span.start + span.length)
            start_position = end_position = 0 if self._is_training else None
            if answer and part.start <= answer[0] and answer[1] < part.stop:
                start_position, end_position = (token - part.start + len(tokens) for token in answer)
            windows.append(_Window(span, document.words[part], tokens + document.tokens[part] + tokens[-1:],
                                   ids + document.ids[part] + ids[-1:], start_position, end_position))
        return windows

    def _answer(self, example, document):
        """Returns the first and the last token of the answer."""
        start, end = document.firsts[example.start_position], document.firsts[example.end_position + 1] - 1
        if self._spans is None:
            return _improve_answer_span(document.tokens, start, end, self._tokenizer,
                                        example.orig_answer_text)
        words = example.doc_tokens[example.start_position:example.end_position + 1]
        answer = " ".join(tokenization.whitespace_tokenize(example.orig_answer_text))
        first = " ".join(words).find(answer)
        beginnings = itertools.accumulate((len(word) + 1 for word in words), initial=0)
        spans = [(beginning + left, beginning + right) for beginning, word in zip(beginnings, words)
                 for left, right in self._spans(word)]
        inside = [start + i for i, (left, right) in enumerate(spans)
                  if left < first + len(answer) and first < right]
        return (inside[0], inside[-1]) if inside and first >= 0 else (start, end)

    def _document(self, words):
        if words == self._last[0]:  # questions about one context come together
            return self._last[1]
        tokens, token_words, firsts = [], [], []
        for i, word in enumerate(words):
            firsts.append(len(tokens))
            tokens += self._tokenizer.tokenize(word)
            token_words += [i] * (len(tokens) - firsts[-1])
        firsts.append(len(tokens))
        ids = list(self._tokenizer.convert_tokens_to_ids(tokens))
        self._last = list(words), _Document(tokens, ids, token_words, firsts)
        return self._last[1]


def generate_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length, is_training,
                      report=True):
    """Yields what `convert_examples_to_features` hands on, as it is asked for.

    Arguments and errors are the same; without `report` nothing is logged.
    """
    featurizer = _Featurizer(tokenizer, max_seq_length, doc_stride, max_query_length, is_training)
    unique_id = _FIRST_UNIQUE_ID
    for i, example in enumerate(examples):
        features = featurizer.features(example, i, unique_id)
        if report:
            _report(i, example, features)
        unique_id += len(features)
        yield from features


def _report(index, example, features):
    """Logs the first examples; warns of one without a window."""
    if not features:
        logging.warning("Question %s: there is no token in its context, so it has no window", example.qas_id)
    elif index < _LOGGED_EXAMPLES:
        logging.info("Question %s, answer %r, %d windows, in the first at tokens %s to %s: %s",
                     example.qas_id, example.orig_answer_text, len(features), features[0].start_position,
                     features[0].end_position,
                     " ".join(tokenization.printable_text(token) for token in features[0].tokens))


def convert_examples_to_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                 is_training, output_fn):
    """Cuts each example into windows and hands them on, in order.

    A question is cut to its first `max_query_length` tokens. Where `doc_stride` exceeds a window,
    windows stand side by side. An empty context makes no window, which is warned of.

    Args:
      examples: iterable of `SquadExample`.
      tokenizer: has `tokenize(text)` and `convert_tokens_to_ids(tokens)`.
      max_seq_length: int, length of a window with its question in tokens.
      doc_stride: int, how many tokens after a window the next one begins.
      max_query_length: int.
      is_training: bool, whether to locate the answers.
      output_fn: function of one `InputFeatures`.

    Raises:
      ValueError: a length is out of range, or leaves no room for the context of some question.
    """
    for feature in generate_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                     is_training):
        output_fn(feature)


# --- Storing ---------------------------------------------------------------------------------------------


# Of the fields below those [F], the mask first.
SEQUENCES = ("input_mask", "input_ids", "segment_ids")


def feature_fields(seq_length, is_training):
    """Returns the fields of a stored window, for `input_pipeline` to write and to read.

    Args:
      seq_length: int, tokens per window.
      is_training: bool, whether the answers are stored.
    """
    fields = [
        example_encoding.Field("unique_ids", "int64", ()),
        example_encoding.Field("input_ids", "int64", (seq_length,), example_encoding.ANY_ID),
        example_encoding.Field("input_mask", "int64", (seq_length,), (0, 1)),
        example_encoding.Field("segment_ids", "int64", (seq_length,), example_encoding.ANY_ID),
    ]
    if is_training:
        fields += [
            example_encoding.Field("start_positions", "int64", (), (0, seq_length - 1)),
            example_encoding.Field("end_positions", "int64", (), (0, seq_length - 1)),
            example_encoding.Field("is_impossible", "int64", ()),
        ]
    return fields


def _row(feature):
    """Returns what `feature_fields` names, of one window."""
    return {
        "unique_ids": feature.unique_id,
        "input_ids": feature.input_ids,
        "input_mask": feature.input_mask,
        "segment_ids": feature.segment_ids,
        "start_positions": feature.start_position,
        "end_positions": feature.end_position,
        "is_impossible": int(bool(feature.is_impossible)),
    }


class FeatureWriter:
    """Writes `InputFeatures` to a TFRecord file, which appears when it is closed.

    Attributes:
      num_features: int, how many were written.
    """

    def __init__(self, filename, is_training):
        """Begins the file.

        Args:
          filename: path.
          is_training: bool, whether the answers are stored too.
        """
        self.filename = filename
        self.is_training = is_training
        self.num_features = 0
        self._stack = contextlib.ExitStack()
        self._writer = record_files.open_writer(self._stack.enter_context(files.atomic_replacement(filename)))

    def process_feature(self, feature):
        """Writes one window; all have the length of the first."""
        with files.translate_disk_errors(self.filename):
            fields = feature_fields(len(feature.input_ids), self.is_training)
            self._writer.write(record_files.encode_example(fields, _row(feature)))
        self.num_features += 1

    def close(self):
        """Ends the file and puts it in its place."""
        with self._stack:
            self._writer.close()


def file_based_convert_examples_to_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                            is_training, output_file, num_workers=1):
    """Writes all windows to a TFRecord file: what `convert_examples_to_features` hands to a `FeatureWriter`.

    The other arguments and errors are those of `convert_examples_to_features`.

    Args:
      output_file: path of the file; it appears only when complete.
      num_workers: number of processes, 0 for one a core; the file is the same. With a tokenizer
        that is not of `tokenization.TOKENIZERS` all is done in this process.

    Returns:
      int, the number of windows.

    Raises:
      ChildProcessError: a worker was killed.
    """
    examples = list(examples)
    featurizer = _Featurizer(tokenizer, max_seq_length, doc_stride, max_query_length, is_training)
    processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
    results = workers.ordered_map(featurizer, list(enumerate(examples)), processes, _EXAMPLES_PER_CHUNK)

    def rows():
        unique_ids = itertools.count(_FIRST_UNIQUE_ID)
        for i, features in enumerate(files.with_progress(results, len(examples), "Converting question")):
            _report(i, examples[i], features)
            for feature in features:
                feature.unique_id = next(unique_ids)
                yield _row(feature)

    with contextlib.closing(results):
        return record_files.write_records(output_file, feature_fields(max_seq_length, is_training), rows())
