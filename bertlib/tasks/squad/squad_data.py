"""Question answering on SQuAD: examples, windows, features.

A context is split in two steps. First, it is split at white space into words. Answers consist of such words.
Then each word is split into WordPiece tokens, which are the input of the model. Every example stores the
positions of its words in the context. A context that is too long for the model is cut into overlapping
windows. For each window, the input of the model is `[CLS] question [SEP] window [SEP]`, which is stored in an
`InputFeatures`. `read_squad_examples` reads the questions of a file. `read_gold` reads the right answers for
the scores. `convert_examples_to_features` and `file_based_convert_examples_to_features` make the windows.

SQuAD 1.1: https://arxiv.org/abs/1606.05250; 2.0: https://arxiv.org/abs/1806.03822
"""

import bisect
import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import re

from absl import logging

from bertlib.data import example_encoding, features_cache, tfrecord_files
from bertlib.system import files, terminal, workers
import tokenization

# unique_id of the first window, as in the published code.
_FIRST_UNIQUE_ID = 1000000000
# Number of examples that are written to the log: the first examples of a set.
_LOGGED_EXAMPLES = 2
# Number of examples that a worker process gets at once.
_EXAMPLES_PER_CHUNK = 256
# Sizes of two caches. The first contains results of `_max_context`, and the second contains the tokens of
# words.
_REMEMBERED_LAYOUTS = 1 << 10
_REMEMBERED_WORDS = 1 << 16
# Matches a word of a context. `str.split` is not used, because it also splits at other white space, such as
# the no-break space of "5\xa0km". This text must stay one word.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_KINDS = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}


@dataclasses.dataclass(eq=False)
class SquadExample:
    """A question about a context.

    Args:
      qas_id: str, the id of the question. Files of predictions contain the same id.
      question_text: str.
      doc_tokens: list of str, the words of the context. All questions about a context share this list.
      orig_answer_text: str, the answer for training; "" if the question has no answer.
      start_position: int, index of the first word of the answer; -1 if there is no answer.
      end_position: int, index of the last word of the answer; -1 if there is no answer.
      is_impossible: bool, whether the context contains no answer.
      context: str, the context before it is split into words.
      word_offsets: list of int, the index in `context` at which each word begins.
      line: int, the line of the question in a file of JSON Lines, from 1; None for other files.
      answer_span: (start, end), the range of the answer's characters in `context`, for training. If it is
        None, the answer is searched for among the tokens of its words.
    """

    qas_id: str
    question_text: str
    doc_tokens: list
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    context: str | None = None
    word_offsets: list | None = None
    line: int | None = None
    answer_span: tuple | None = None

    def __str__(self):
        parts = [f"qas_id: {self.qas_id}", f"question_text: {self.question_text}",
                 f"doc_tokens: [{' '.join(self.doc_tokens)}]"]
        if self.start_position is not None:
            parts += [f"start_position: {self.start_position}", f"end_position: {self.end_position}",
                      f"is_impossible: {self.is_impossible}"]
        return ", ".join(parts)

    __repr__ = __str__


@dataclasses.dataclass(eq=False)
class InputFeatures:
    """The features of one window: the input of the model, and the data to find answers in the context.

    Args:
      unique_id: int, the id of the window in the model's results.
      example_index: int, index of the example in the list of examples.
      doc_span_index: int, index of the window among the windows of its example.
      tokens: list of str, without padding.
      token_to_orig_map: {index in `tokens`: index of the word in the context}, for the tokens of the context.
      token_is_max_context: {index in `tokens`: bool}, for the tokens of the context. True if this window has
        the most context around the token, see `_max_context`.
      input_ids: list of max_seq_length ints: the WordPiece ids, and zeros after them.
      input_mask: list of max_seq_length ints, 1 for a token and 0 for padding.
      segment_ids: list of max_seq_length ints, 1 for the tokens of the context and the last [SEP], and 0 for
        all other tokens and for padding.
      start_position: int, index of the answer's first token in `tokens`. If the window does not contain the
        whole answer, start_position is 0, the index of [CLS]. None if the features are not for training.
      end_position: int, index of the answer's last token in `tokens`; 0 or None in the same cases as
        start_position.
      is_impossible: bool, whether the context contains no answer.
      token_spans: {index in `tokens`: (start, end)}, for the tokens of the context: the range of the token's
        characters in its word. None if the tokenizer does not know these ranges; see
        `tokenization.FullTokenizer.spans`.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: list
    token_to_orig_map: dict
    token_is_max_context: dict
    input_ids: list
    input_mask: list
    segment_ids: list
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool | None = None
    token_spans: dict | None = None


# --- Reading ---------------------------------------------------------------------------------------------


def read_squad_examples(input_file, is_training, version_2_with_negative=False):
    """Reads the questions of a SQuAD file or of a file of JSON Lines.

    A line of JSON Lines is {"id": …, "question": …, "context": …}. The id is a string or an integer. For
    training, the line also has "answers", as in SQuAD. In training, a question is skipped with a warning if
    its answer is not found in its context, for example because the context is empty. All other questions are
    kept, even if the context is empty. The list of words of an empty context is empty.

    Args:
      input_file: path, on any file system that TensorFlow supports.
      is_training: bool, whether to read the answers.
      version_2_with_negative: bool, whether questions have the field "is_impossible", as in SQuAD 2.0.

    Returns:
      list of `SquadExample`, in the order of the file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: there is no usable question, or the file has one of these errors:
        - The file is not UTF-8 or not JSON. The message names the line.
        - A field is missing or has a wrong type.
        - An id occurs twice, except in training.
        - In training, a question with is_impossible false has no answer, or more than one. The message names
          the question.
    """
    examples, places = [], {}
    context, doc_tokens, word_offsets = None, [], []
    for place, line, question_context, qa in _read_questions(input_file):
        if question_context != context:
            context = question_context
            doc_tokens, word_offsets = split_context(context)
        example = SquadExample(str(_get(qa, "id", place, str, int)), _get(qa, "question", place, str),
                               doc_tokens, context=context, word_offsets=word_offsets, line=line)
        first = places.setdefault(example.qas_id, place)
        if first is not place and not is_training:
            raise ValueError(f"{place}: the id {example.qas_id!r} was already used at {first}. Answers are "
                             "identified by the ids of their questions, so give each question a different id")
        if not is_training or _read_answer(example, qa, place, version_2_with_negative):
            examples.append(example)
    if not examples:
        raise ValueError(f"{input_file}: the file contains no question" if not places else
                         f"{input_file}: none of the {len(places)} answers matches its context. "
                         "Check answer_start: it counts characters, not bytes, and the first character has "
                         "the number 0.")
    return examples


def split_context(context):
    """Splits a context into words. Returns two lists: the words, and the index of each word in the
    context."""
    matches = list(_WORD.finditer(context))
    return [match.group() for match in matches], [match.start() for match in matches]


def read_gold(path):
    """Reads the right answers from a file, in one of the formats of `read_squad_examples`.

    "answers" is a list. Each answer is an object {"text": …, "answer_start": …}, an object {"text": …}, or a
    string, the text. If "answers" is missing, "is_impossible" must be true.

    Returns:
      {qas_id: list of (text, index in the context)}. The list is empty if the question has no answer. If an
      answer has no answer_start, its index is the index of the first occurrence of the text. This index is -1
      if the context does not contain the text.

    Raises:
      FileNotFoundError, ValueError: see `read_squad_examples`. A ValueError is also raised if a question
        lacks "answers". The message names the place of the question in the file.
    """
    gold = {}
    for place, _, context, qa in _read_questions(path):
        qas_id = str(_get(qa, "id", place, str, int))
        if "answers" not in qa and qa.get("is_impossible") is not True:
            raise ValueError(f"{place}: question {qas_id} has no \"answers\", which --do_eval needs. Add "
                             "\"answers\", a list of the right answers, or \"is_impossible\": true; or pass "
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
    """Yields (place, line, context, entry) for each question of a file.

    The place is a str that names the file and the position of the question, for error messages. The line is
    an int, the number of the line in a file of JSON Lines; in a SQuAD file, it is None. The entry is a dict.
    """
    text = files.read_text(path)
    start = len(text) - len(text.lstrip())
    if start == len(text):
        raise ValueError(f"{path}: the file is empty; it should contain questions")
    first, end = _parse(path, json.JSONDecoder().raw_decode, text, start)
    keys = set(first) if isinstance(first, dict) else set()
    # A row of JSON Lines may also have a key "data".
    is_squad = "data" in keys and not {"question", "context"} <= keys
    if not is_squad and not {"id", "question", "context"} & keys:
        raise ValueError(f"{path}: the file begins with {text[start:end]!r:.80}. It should contain one JSON "
                         "object with \"data\", as in SQuAD; or one JSON object with \"id\", \"question\" "
                         "and \"context\" in each line")
    if is_squad:
        if text[end:].strip():
            _parse(path, json.loads, text)  # raises an error, because text follows the object
        yield from _questions_in_squad_file(path, first)
        return
    for i, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            record = _parse(path, json.loads, line, line=i)
            yield f"{path}:{i}", i, _get(record, "context", f"{path}:{i}", str), record


def _parse(path, parse, *arguments, line=1):
    """Parses JSON, and translates errors into ValueErrors that name the file and the line.

    Args:
      path: path of the file.
      parse: function that is called with `arguments`. The first argument is the text.
      line: the line of the file in which the text begins.
    """
    try:
        return parse(*arguments)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno + line - 1}:{error.colno}: this is not JSON ({error.msg}). "
                         "Correct the file; if it is truncated, download it again") from None


def _questions_in_squad_file(path, document):
    for i, article in enumerate(_get(document, "data", path, list)):
        for j, paragraph in enumerate(_get(article, "paragraphs", f"{path}: data[{i}]", list)):
            place = f"{path}: data[{i}].paragraphs[{j}]"
            context = _get(paragraph, "context", place, str)
            for k, qa in enumerate(_get(paragraph, "qas", place, list)):
                yield f"{place}.qas[{k}]", None, context, qa


def _get(entry, key, place, *kinds):
    """Returns the value of a key in an entry of a file. Raises a ValueError if the key is missing, or if the
    type of the value is not one of `kinds`."""
    kinds_in_words = " or ".join(_KINDS[kind] for kind in kinds)
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: there should be an object with {key!r} here, not {entry!r:.60}")
    if key not in entry:
        raise ValueError(f"{place}: {key!r} is missing; it should be {kinds_in_words}")
    if type(entry[key]) not in kinds:
        raise ValueError(f"{place}: {key!r} should be {kinds_in_words}, not {entry[key]!r:.60}")
    return entry[key]


def _read_answer(example, qa, place, version_2_with_negative):
    """Reads the answer of a question, and stores it in `example`. Used only for training files.

    Returns:
      bool, whether the answer matches the context. If it does not match, a warning is logged.
    """
    name = f"{place}: question {example.qas_id}"
    if version_2_with_negative and "is_impossible" not in qa:
        raise ValueError(f"{name} has no \"is_impossible\", which --version_2_with_negative needs. If this "
                         "is data of SQuAD 1.1, leave the flag out. Otherwise, add \"is_impossible\": true "
                         "if the question has no answer, or false")
    if version_2_with_negative and _get(qa, "is_impossible", name, bool):
        example.orig_answer_text, example.start_position, example.end_position = "", -1, -1
        example.is_impossible = True
        return True
    answers = _get(qa, "answers", name, list)
    if len(answers) != 1:
        hint = "; SQuAD 2.0 needs --version_2_with_negative" if qa.get("is_impossible") is True else ""
        raise ValueError(f"{name} has {len(answers)} answers; for training, it must have exactly one{hint}")
    text, begin = _get(answers[0], "text", name, str), _get(answers[0], "answer_start", name, int)
    end, span = begin + len(text), None
    if example.doc_tokens and text.strip() and begin >= 0 and end <= len(example.context):
        # If a position is between two words, the word before the position is used.
        first, last = (max(0, bisect.bisect_right(example.word_offsets, position) - 1)
                       for position in (begin, end - 1))
        span = _find_answer(text, begin, example.context, example.word_offsets[first],
                            example.word_offsets[last] + len(example.doc_tokens[last]))
    if span is None:
        logging.warning("%s is left out: its answer %r does not match the context. At answer_start %d, the "
                        "context has %r", name, text, begin, example.context[max(0, begin):max(0, end)])
        return False
    example.orig_answer_text, example.start_position, example.end_position = text, first, last
    example.answer_span = span
    return True


def _find_answer(text, answer_start, context, start, end):
    """Returns (start, end), the range of an answer's characters in the context.

    If the answer is not at `answer_start`, the nearest occurrence in `context[start:end]` is used. In this
    search, white space of any kind and length is equal. Returns None if there is no occurrence.
    """
    stripped = text.strip()
    begin = answer_start + text.index(stripped)
    if context.startswith(stripped, begin):
        return begin, begin + len(stripped)
    pattern = r"\s+".join(map(re.escape, stripped.split()))
    # The lookahead finds overlapping occurrences, too.
    occurrences = re.compile(f"(?=({pattern}))").finditer(context, start, end)
    return min((match.span(1) for match in occurrences), key=lambda span: abs(span[0] - begin), default=None)


# --- Windows ---------------------------------------------------------------------------------------------

_DocSpan = collections.namedtuple("_DocSpan", ["start", "length"])
# A tokenized context. For each token, `words` contains the index of the word to which the token belongs. For
# each word, `firsts` contains the index of its first token. The last element of `firsts` is the number of
# tokens. `spans` contains (start, end) of each token, the range of its characters in its word; it is None if
# the tokenizer does not know these ranges.
_Document = collections.namedtuple("_Document", ["tokens", "ids", "words", "firsts", "spans"])


def _doc_spans(num_tokens, room, doc_stride):
    """Cuts a context into windows of at most `room` tokens. Returns a tuple of `_DocSpan`.

    No token is skipped: if `doc_stride` is larger than a window, each window begins directly after the
    previous window.
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
    """Finds the tokens of an answer among the tokens of its words.

    A word may be longer than the answer. For example, the answer "Oslo" may be in the word "(Oslo),", which
    has the tokens "(", "oslo", ")" and ",". If the tokens of the answer are not found, as for "art" in the
    word "artists", the result contains all tokens of the words.

    Args:
      doc_tokens: list of str, the WordPiece tokens of the context.
      input_start, input_end: int, indexes of the first and the last token of the answer's words.
      tokenizer: an object with `tokenize(text)`.
      orig_answer_text: str, the answer.

    Returns:
      (index of the first token, index of the last token).
    """
    answer = list(tokenizer.tokenize(orig_answer_text))
    if answer:
        for start in range(input_start, input_end - len(answer) + 2):
            if doc_tokens[start:start + len(answer)] == answer:
                return start, start + len(answer) - 1
    return input_start, input_end


def _check_is_max_context(doc_spans, cur_span_index, position):
    """Returns whether a window has the most context around a token, see `_max_context`. If several windows
    have the same highest score, the function returns True only for the first of these windows.

    Args:
      doc_spans: list of windows, each with a `start` and a `length` in tokens.
      cur_span_index: int, index of the window.
      position: int, index of the token in the whole context.
    """
    span = doc_spans[cur_span_index]
    return (span.start <= position < span.start + span.length
            and _max_context(tuple(doc_spans))[cur_span_index][position - span.start])


@functools.lru_cache(_REMEMBERED_LAYOUTS)
def _max_context(doc_spans):
    """Returns the results of `_check_is_max_context` for the tokens of each window: a list of lists of
    bool.

    The score of a token in a window is the number of tokens before or after the token, whichever is smaller.
    A hundredth of the length of the window is added: if the numbers are equal in two windows, the longer
    window has the higher score.
    """
    best = {}
    for i, span in enumerate(doc_spans):
        for before in range(span.length):
            position, score = span.start + before, min(before, span.length - 1 - before) + 0.01 * span.length
            if position not in best or score > best[position][0]:
                best[position] = score, i
    return [[best[position][1] == i for position in range(span.start, span.start + span.length)]
            for i, span in enumerate(doc_spans)]


class _Featurizer:
    """Cuts examples into windows; the arguments are those of `convert_examples_to_features`."""

    def __init__(self, tokenizer, max_seq_length, doc_stride, max_query_length, is_training):
        if doc_stride < 1:
            raise ValueError(f"doc_stride is {doc_stride}; it must be at least 1 token, because otherwise "
                             "all windows would begin at the same token")
        if max_query_length < 0:
            raise ValueError(f"max_query_length is {max_query_length}; it should be at least 0 tokens")
        self._arguments = tokenizer, max_seq_length, doc_stride, max_query_length, is_training
        self._tokenizer, self._length, self._stride = tokenizer, max_seq_length, doc_stride
        self._max_query_length, self._is_training = max_query_length, is_training
        # Consecutive questions often have the same context.
        self._document = functools.lru_cache(1)(self._tokenize)
        self._spans_of_word = functools.lru_cache(_REMEMBERED_WORDS)(
            getattr(tokenizer, "spans", lambda word: None))

    def __reduce__(self):
        return _Featurizer, self._arguments

    def __call__(self, item):
        """Returns the list of the `InputFeatures` of an example. `item` is (index of the example, example).
        The unique_ids begin with 0, because the number of windows of the earlier examples is not known yet.
        The caller replaces these unique_ids."""
        index, example = item
        question = list(self._tokenizer.tokenize(example.question_text))[:self._max_query_length]
        room = self._length - len(question) - 3
        if room < 1:
            raise ValueError(f"question {example.qas_id}: max_seq_length {self._length} leaves no room for "
                             f"the context after {len(question)} tokens of the question and 3 special "
                             "tokens; raise max_seq_length, or lower max_query_length, which is "
                             f"{self._max_query_length}")
        document = self._document(tuple(example.doc_tokens))
        before = ["[CLS]", *question, "[SEP]"]
        ids_before = list(self._tokenizer.convert_tokens_to_ids(before))
        answer = None
        if self._is_training and not example.is_impossible:
            answer = self._answer(example, document)
        features, spans = [], _doc_spans(len(document.tokens), room, self._stride)
        for number, (span, is_max_context) in enumerate(zip(spans, _max_context(spans))):
            part = slice(span.start, span.start + span.length)
            places = range(len(before), len(before) + span.length)
            start_position = end_position = 0 if self._is_training else None
            if answer and part.start <= answer[0] and answer[1] < part.stop:
                start_position, end_position = (token - part.start + len(before) for token in answer)
            ids = [*ids_before, *document.ids[part], ids_before[-1]]
            features.append(InputFeatures(
                unique_id=number, example_index=index, doc_span_index=number,
                tokens=[*before, *document.tokens[part], "[SEP]"],
                token_to_orig_map=dict(zip(places, document.words[part])),
                token_is_max_context=dict(zip(places, is_max_context)),
                **example_encoding.model_inputs(ids, span.length + 1, self._length),
                start_position=start_position,
                end_position=end_position,
                is_impossible=example.is_impossible,
                token_spans=document.spans and dict(zip(places, document.spans[part]))))
        return features

    def _answer(self, example, document):
        """Returns the indexes of the answer's first and last token in the context."""
        first, last = document.firsts[example.start_position], document.firsts[example.end_position + 1] - 1
        if document.spans is None or example.answer_span is None:
            return _improve_answer_span(document.tokens, first, last, self._tokenizer,
                                        example.orig_answer_text)
        begin, end = example.answer_span
        tokens = []
        for token in range(first, last + 1):
            offset = example.word_offsets[document.words[token]]
            left, right = document.spans[token]
            if offset + left < end and begin < offset + right:
                tokens.append(token)
        return (tokens[0], tokens[-1]) if tokens else (first, last)

    def _tokenize(self, words):
        """Returns the `_Document` of a context, a tuple of words."""
        tokens, token_words, firsts, spans = [], [], [], []
        for i, word in enumerate(words):
            firsts.append(len(tokens))
            tokens += self._tokenizer.tokenize(word)
            token_words += [i] * (len(tokens) - firsts[-1])
            spans.append(self._spans_of_word(word))
        firsts.append(len(tokens))
        spans = None if None in spans else list(itertools.chain.from_iterable(spans))
        ids = list(self._tokenizer.convert_tokens_to_ids(tokens))
        return _Document(tokens, ids, token_words, firsts, spans)


def generate_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length, is_training,
                      report=True, num_workers=1):
    """Yields the `InputFeatures` of examples, one at a time.

    For the errors and the arguments that are not listed here, see `convert_examples_to_features`.

    Args:
      report: whether to log the first examples, warnings and the progress.
      num_workers: see `file_based_convert_examples_to_features`.
    """
    featurizer = _Featurizer(tokenizer, max_seq_length, doc_stride, max_query_length, is_training)
    unique_ids = itertools.count(_FIRST_UNIQUE_ID)
    if type(tokenizer) not in tokenization.TOKENIZERS:
        num_workers = 1
    examples = list(examples)
    with contextlib.closing(workers.ordered_map(featurizer, list(enumerate(examples)), num_workers,
                                                _EXAMPLES_PER_CHUNK)) as results:
        progress = files.with_progress(results, len(examples), "Converting question") if report else results
        for i, (example, features) in enumerate(zip(examples, progress)):
            if report:
                _report(i, example, features)
            for feature in features:
                feature.unique_id = next(unique_ids)
                yield feature


def _report(index, example, features):
    """Logs the example if it is one of the first examples. Logs a warning if the example has no window."""
    if not features:
        logging.warning("Question %s: the context contains no token, so the question has no window",
                        example.qas_id)
    elif index < _LOGGED_EXAMPLES:
        first = features[0]
        answer = "" if example.orig_answer_text is None else (
            f", answer {example.orig_answer_text!r} (tokens {first.start_position} to "
            f"{first.end_position} of the first window)")
        logging.info("Question %s%s, %s. Tokens of the first window: %s", example.qas_id, answer,
                     terminal.counted(len(features), "window"),
                     " ".join(tokenization.printable_text(token) for token in first.tokens))


def convert_examples_to_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                 is_training, output_fn):
    """Cuts each example into windows, and calls a function with each window, in order.

    Questions are truncated to `max_query_length` tokens. If `doc_stride` is larger than a window, each
    window begins directly after the previous window. An example with an empty context has no window, and a
    warning is logged.

    Args:
      examples: iterable of `SquadExample`.
      tokenizer: an object with `tokenize(text)` and `convert_tokens_to_ids(tokens)`.
      max_seq_length: int, number of tokens in a window, including question, special tokens and padding.
      doc_stride: int, number of tokens from the start of a window to the start of the next window.
      max_query_length: int, largest number of tokens of a question.
      is_training: bool, whether to find the positions of the answers.
      output_fn: function that takes an `InputFeatures`.

    Raises:
      ValueError: a length is out of range, or leaves no room for the context of a question.
    """
    for feature in generate_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                     is_training):
        output_fn(feature)


# --- Storing ---------------------------------------------------------------------------------------------


def feature_fields(seq_length, is_training):
    """Returns the fields of a stored window. Records are written and read with these fields.

    Args:
      seq_length: int, number of tokens in a window, including padding.
      is_training: bool, whether the answers are stored.

    Returns:
      list of `example_encoding.Field`.
    """
    fields = [example_encoding.Field("unique_ids", "int64", ()),
              *example_encoding.token_fields((seq_length,))]
    if is_training:
        fields += [
            example_encoding.Field("start_positions", "int64", (), (0, seq_length - 1)),
            example_encoding.Field("end_positions", "int64", (), (0, seq_length - 1)),
            example_encoding.Field("is_impossible", "int64", ()),
        ]
    return fields


def _row(feature):
    """Returns the values of a window as {name of a field: value}; see `feature_fields`."""
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
    """Writes `InputFeatures` to a TFRecord file. The file appears only when the writer is closed.

    Attributes:
      num_features: int, number of windows that have been written.
    """

    def __init__(self, filename, is_training):
        """Creates a writer.

        Args:
          filename: path of the file.
          is_training: bool, whether the answers are stored.
        """
        self.filename = filename
        self.is_training = is_training
        self.num_features = 0
        self._stack = contextlib.ExitStack()
        self._writer = tfrecord_files.open_writer(
            self._stack.enter_context(files.atomic_replacement(filename)))

    def process_feature(self, feature):
        """Writes one window. All windows must have the same length."""
        with files.translate_disk_errors(self.filename):
            fields = feature_fields(len(feature.input_ids), self.is_training)
            self._writer.write(example_encoding.encode_example(fields, _row(feature)))
        self.num_features += 1

    def close(self):
        """Completes the file and moves it to its final path."""
        with self._stack:
            self._writer.close()


def file_based_convert_examples_to_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length,
                                            is_training, output_file, num_workers=1, cache=None):
    """Writes the windows of all examples to a TFRecord file.

    `convert_examples_to_features` with a `FeatureWriter` would write the same file. For the arguments and
    errors that are not listed here, see `convert_examples_to_features`.

    Args:
      output_file: path of the file. The file appears only when it is complete.
      num_workers: number of processes; 0 for one process per core. The file does not depend on this number.
        If the tokenizer's class is not in `tokenization.TOKENIZERS`, a single process is used.
      cache: directory of a cache of features, see `features_cache`; None for no cache. The cache is used only
        if the tokenizer's class is in `tokenization.TOKENIZERS`.

    Returns:
      int, the number of windows.

    Raises:
      ChildProcessError: a worker process was killed.
    """
    examples, arguments = list(examples), (tokenizer, max_seq_length, doc_stride, max_query_length,
                                           is_training)

    def convert(path):
        return tfrecord_files.write_records(path, feature_fields(max_seq_length, is_training), map(
            _row, generate_features(examples, *arguments, num_workers=num_workers)))

    if type(tokenizer) not in tokenization.TOKENIZERS:
        cache = None
    return features_cache.write(output_file, cache, arguments, examples, convert)
