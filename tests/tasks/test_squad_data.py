"""squad_data.py: reading, windows, and the samples. The windows are those of recordings (data/squad_*).

The fast way and any number of processes give the same windows.
"""

import collections
import gzip
import json
import re

from helpers import DATA, ROOT, write_lines
from hypothesis import given
from hypothesis import strategies as st
import pytest
from test_tokenization import released_vocab
from texts import CASES, texts

from bertlib.data import example_encoding, tfrecord_files
from bertlib.tasks.squad import squad_data
import tokenization

SAMPLES = ROOT / "samples" / "squad"
VERSIONS = {"v1": False, "v2": True}
LENGTHS = collections.namedtuple("Lengths", ["max_seq_length", "doc_stride", "max_query_length"])


class PlainTokenizer(tokenization.FullTokenizer):
    tokenize = tokenization.FullTokenizer.tokenize_plainly


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(released_vocab())


@pytest.fixture(scope="module")
def plain_tokenizer():
    return PlainTokenizer(released_vocab())


def features_of(examples, tokenizer, lengths, is_training):
    features = []
    squad_data.convert_examples_to_features(examples, tokenizer, *lengths, is_training, features.append)
    return features


# --- As recorded -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=VERSIONS)
def recorded(request):
    """(version, path of its file of questions, recorded results of the published code)."""
    with gzip.open(DATA / f"squad_{request.param}_features.json.gz", "rt", encoding="utf-8") as file:
        recording = json.load(file)
    return VERSIONS[request.param], DATA / f"squad_{request.param}.json", recording


def places(mapping):
    return {int(place): value for place, value in mapping.items()}


@pytest.mark.parametrize("part, is_training", [("train", True), ("eval", False)])
def test_windows_maps_and_positions_are_the_recorded_ones(recorded, part, is_training, tokenizer):
    version_2, path, recording = recorded
    lengths = LENGTHS(*(recording[name] for name in LENGTHS._fields))
    examples = squad_data.read_squad_examples(str(path), is_training, version_2)
    features = features_of(examples, tokenizer, lengths, is_training)
    assert len(features) == len(recording[part]) == 170
    for feature, expected in zip(features, recording[part]):
        length = expected["length"]
        padding = [0] * (lengths.max_seq_length - length)
        assert feature.input_ids == expected["input_ids"] + padding
        assert feature.input_mask == [1] * length + padding
        assert feature.segment_ids == (
            [0] * (length - expected["segment_sum"]) + [1] * expected["segment_sum"] + padding)
        assert tokenizer.convert_tokens_to_ids(feature.tokens) == expected["input_ids"]
        assert feature.token_to_orig_map == places(expected["token_to_orig_map"])
        assert feature.token_is_max_context == places(expected["token_is_max_context"])
        for name in ("unique_id", "example_index", "doc_span_index", "start_position", "end_position",
                     "is_impossible"):
            assert getattr(feature, name) == expected[name], name


# --- Against the plain way -------------------------------------------------------------------------------


def plain_answer(example, all_tokens, first_of_word, tokenizer):
    """Returns the first and the last token of the answer: the first tokens that give the text of the answer.
    If several such runs begin there, the longest one is chosen.
    """
    first = first_of_word[example.start_position]
    last = (first_of_word + [len(all_tokens)])[example.end_position + 1] - 1
    wanted = " ".join(tokenizer.tokenize(example.orig_answer_text))
    return next(((start, end) for start in range(first, last + 1) for end in range(last, start - 1, -1)
                 if " ".join(all_tokens[start:end + 1]) == wanted), (first, last))


def plain_windows(example, tokenizer, lengths, is_training):
    """Yields (tokens, token_to_orig_map, token_is_max_context, start, end) of each window, token by token."""
    question = tokenizer.tokenize(example.question_text)[:lengths.max_query_length]
    pairs = [(token, i) for i, word in enumerate(example.doc_tokens) for token in tokenizer.tokenize(word)]
    all_tokens = [token for token, _ in pairs]
    answer, spans = None, []
    if is_training and not example.is_impossible:
        first_of_word = [sum(i < word for _, i in pairs) for word in range(len(example.doc_tokens))]
        answer = plain_answer(example, all_tokens, first_of_word, tokenizer)
    room = lengths.max_seq_length - len(question) - 3
    while pairs and (not spans or spans[-1].start + room < len(pairs)):
        start = spans[-1].start + min(room, lengths.doc_stride) if spans else 0
        spans.append(squad_data._DocSpan(start, min(room, len(pairs) - start)))
    for number, (start, size) in enumerate(spans):
        held, offset = range(start, start + size), len(question) + 2 - start
        positions = (0, 0) if is_training else (None, None)
        # As published: without tokens in the answer, the first token is behind the last one.
        if answer and start <= answer[0] and answer[1] < start + size:
            positions = answer[0] + offset, answer[1] + offset
        yield (["[CLS]", *question, "[SEP]", *all_tokens[start:start + size], "[SEP]"],
               {position + offset: pairs[position][1] for position in held},
               {position + offset: squad_data._check_is_max_context(spans, number, position)
                for position in held}, *positions)


def example_of(question, context, rank=0, impossible=False, size=2, qas_id="q"):
    """Returns an example. Its answer is the word with the number `rank` and the words after it, up to `size`.
    """
    words = re.findall("[^ \t\r\n\u202f]+", context)
    if impossible or not words:
        return squad_data.SquadExample(qas_id, question, words, "", -1, -1, True)
    first = rank % len(words)
    last = min(first + size, len(words)) - 1
    return squad_data.SquadExample(qas_id, question, words, " ".join(words[first:last + 1]).strip(",.()"),
                                   first, last)


@given(question=texts, context=texts, rank=st.integers(0, 99), impossible=st.booleans(),
       is_training=st.booleans(), room=st.integers(1, 20), doc_stride=st.integers(1, 25),
       max_query_length=st.integers(0, 6))
def test_windows_of_any_text(question, context, rank, impossible, is_training, room, doc_stride,
                             max_query_length, tokenizer, plain_tokenizer):
    examples = [example_of(question, context, rank, impossible), example_of(context, context)]
    examples[1].doc_tokens = examples[0].doc_tokens  # as in examples from a file
    lengths = LENGTHS(max_query_length + 3 + room, doc_stride, max_query_length)
    expected = [window for example in examples
                for window in plain_windows(example, plain_tokenizer, lengths, is_training)]
    for given_tokenizer in (tokenizer, plain_tokenizer):
        assert [(one.tokens, one.token_to_orig_map, one.token_is_max_context, one.start_position,
                 one.end_position)
                for one in features_of(examples, given_tokenizer, lengths, is_training)] == expected


@pytest.mark.parametrize("answer, first, last, expected", [
    ("1912", 0, 5, (1, 1)), ("1912 - 1978", 0, 5, (1, 3)), ("Oslo", 0, 5, (0, 5)), ("\u200b", 0, 5, (0, 5)),
    ("(1912", 0, 5, (0, 1)), ("1978", 1, 2, (1, 2)), ("1978", 0, 3, (3, 3))])
def test_answers_are_narrowed_to_their_tokens(answer, first, last, expected, tokenizer):
    tokens = tokenizer.tokenize("(1912-1978).")
    assert tokens == ["(", "1912", "-", "1978", ")", "."]
    assert squad_data._improve_answer_span(tokens, first, last, tokenizer, answer) == expected


# --- Lengths ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", ["", " \n\t", "\u200b \x00"])
def test_a_context_without_tokens_makes_no_window_and_a_warning(context, tokenizer, tmp_path, caplog):
    examples = [example_of("who", "a b")] * 3
    examples.insert(2, example_of("who", context, impossible=True, qas_id="lost"))
    caplog.set_level("WARNING", "absl")
    features = features_of(examples, tokenizer, LENGTHS(10, 2, 2), True)
    assert write(tmp_path / "file", examples, tokenizer, LENGTHS(10, 2, 2), True)[1] == 3
    assert [(feature.example_index, feature.unique_id - 10**9)
            for feature in features] == [(0, 0), (1, 1), (3, 2)]
    assert caplog.text.count("Question lost: the context contains no token") == 2


@pytest.mark.parametrize("lengths, complaint", [
    (LENGTHS(8, 0, 2), "doc_stride is 0; it must be at least 1"),
    (LENGTHS(8, 2, -1), "max_query_length is -1"),
    (LENGTHS(6, 2, 3), "question q: max_seq_length 6 leaves no room for the context after 3 tokens .* "
     "max_query_length")])
def test_lengths_that_make_no_windows_are_refused(lengths, complaint, tokenizer):
    with pytest.raises(ValueError, match=complaint):
        features_of([example_of("one two three", "a b c")], tokenizer, lengths, False)


# --- Files of windows ------------------------------------------------------------------------------------


def write(path, examples, tokenizer, lengths, is_training, **options):
    """Writes a file of windows. Returns (its bytes, number of windows)."""
    count = squad_data.file_based_convert_examples_to_features(
        examples, tokenizer, *lengths, is_training, str(path), **options)
    return path.read_bytes(), count


@pytest.mark.parametrize("is_training", [
    True, pytest.param(False, marks=pytest.mark.slow(reason="starts four more processes"))])
def test_files_are_those_of_protobuf_in_any_number_of_processes(
        is_training, tmp_path, tokenizer, plain_tokenizer):
    examples = [example_of(f"{CASES[i % len(CASES)]} {i}", " ".join(CASES[i // 7 % 60:][:12]), i, i % 5 == 0)
                for i in range(300)]  # two chunks
    lengths, path = LENGTHS(32, 5, 6), tmp_path / "writer.tf_record"
    features = features_of(examples, tokenizer, lengths, is_training)
    writer = squad_data.FeatureWriter(str(path), is_training)
    for feature in features:
        writer.process_feature(feature)
    assert not path.exists()
    writer.close()
    assert writer.num_features == len(features) > 400
    for record, feature in zip(tfrecord_files.read_records(str(path)), features, strict=True):
        row = {**vars(feature), "unique_ids": feature.unique_id, "start_positions": feature.start_position,
               "end_positions": feature.end_position, "is_impossible": int(feature.is_impossible)}
        assert record == example_encoding.encode_example(squad_data.feature_fields(32, is_training), row)
    for given_tokenizer, num_workers in ((tokenizer, 1), (tokenizer, 2), (plain_tokenizer, 2)):
        assert write(tmp_path / "a", iter(examples), given_tokenizer, lengths, is_training,
                     num_workers=num_workers) == (path.read_bytes(), len(features))


def test_fields_have_the_published_names():
    names = [field.name for field in squad_data.feature_fields(8, False)]
    assert names == ["unique_ids", "input_ids", "input_mask", "segment_ids"]
    assert [field.name for field in squad_data.feature_fields(8, True)] == [
        *names, "start_positions", "end_positions", "is_impossible"]


class CountingTokenizer(tokenization.FullTokenizer):
    def convert_tokens_to_ids(self, tokens):
        return [len(token) for token in tokens]


@pytest.mark.parametrize("of_a_subclass", [True, False])
def test_replaced_methods_of_the_tokenizer_are_used(of_a_subclass):
    tokenizer = (CountingTokenizer if of_a_subclass else tokenization.FullTokenizer)(released_vocab())
    if not of_a_subclass:
        tokenizer.tokenize = list
    feature, = features_of([example_of("of", "the")], tokenizer, LENGTHS(10, 4, 4), False)
    if of_a_subclass:
        assert feature.input_ids == [5, 2, 5, 3, 5, 0, 0, 0, 0, 0]
    else:
        assert feature.tokens == ["[CLS]", "o", "f", "[SEP]", "t", "h", "e", "[SEP]"]


# --- Reading ---------------------------------------------------------------------------------------------


def answer_of(text, start):
    return {"text": text, "answer_start": start}


def qa_of(qas_id="1", question="who?", **parts):
    return {"id": qas_id, "question": question, **parts}


@pytest.fixture
def read(tmp_path):
    """A function that writes a file and reads it: a file with one paragraph, or with any text or object."""
    def read(content, is_training=True, version_2=False, context="Anna met (Oslo) twice.", **options):
        if isinstance(content, list):
            content = {"version": "x",
                       "data": [{"title": "t", "paragraphs": [{"context": context, "qas": content}]}]}
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        path = tmp_path / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return squad_data.read_squad_examples(str(path), is_training, version_2, **options)

    return read


def test_words_are_those_of_the_published_white_space(read):
    context = "\ta b\u202fc\xa0d\r\ne\x0bf \u2003g "
    example, = read([qa_of()], False, context=context)
    assert example.doc_tokens == ["a", "b", "c\xa0d", "e\x0bf", "\u2003g"]
    assert [context[offset:offset + 1] for offset in example.word_offsets] == ["a", "b", "c", "e", "\u2003"]
    assert example.context == context


@pytest.mark.parametrize("text, start, words", [
    ("Anna", 0, (0, 0)), ("Oslo", 10, (2, 2)), ("met (Oslo) twice.", 5, (1, 3)), ("wice", 17, (3, 3)),
    (" met", 4, (0, 1)), ("met ", 5, (1, 1)), ("Oslo", 9, (2, 2)), ("met\n(Oslo)", 5, (1, 2))])
def test_answers_are_found_as_published(read, text, start, words):
    example, = read([qa_of(answers=[answer_of(text, start)])])
    assert (example.start_position, example.end_position) == words
    assert example.orig_answer_text == text and not example.is_impossible


@pytest.mark.parametrize("text, start", [
    ("Oslo", 0), ("Oslo", 22), ("Oslo", 10**9), ("Anna", -3), ("twice.", 18), ("", 0), (" ", 4),
    ("Bergen", 9), ("twice.x", 16)])
def test_answers_that_do_not_match_are_reported_and_counted(read, text, start, caplog):
    good = qa_of("good", answers=[answer_of("Anna", 0)])
    caplog.set_level("WARNING", "absl")
    examples = read([good, qa_of("bad", answers=[answer_of(text, start)])])
    assert [example.qas_id for example in examples] == ["good"]
    assert "data[0].paragraphs[0].qas[1]: question bad is left out" in caplog.text
    assert f"answer_start {start}" in caplog.text and "left out 1 of 2 questions" in caplog.text


def test_answers_that_none_match_are_an_error(read):
    with pytest.raises(ValueError, match="none of the 1 answers matches"):
        read([qa_of(answers=[answer_of("Oslo", 1)])])


def test_an_empty_context(read):
    example, = read([qa_of()], False, context="")
    assert example.doc_tokens == example.word_offsets == [] and example.context == ""
    example, = read([qa_of(is_impossible=True)], True, True, context=" ")
    assert example.is_impossible
    examples = read([qa_of("kept", is_impossible=True),
                     qa_of("lost", is_impossible=False, answers=[answer_of("a", 0)])],
                    True, True, context="")
    assert [example.qas_id for example in examples] == ["kept"]


def test_impossible_questions(read):
    qas = [qa_of("1", answers=[], is_impossible=True, plausible_answers=[answer_of("Oslo", 10)]),
           qa_of("2", answers=[answer_of("Oslo", 10)], is_impossible=False)]
    impossible, possible = read(qas, True, True)
    assert (impossible.start_position, impossible.end_position, impossible.orig_answer_text) == (-1, -1, "")
    assert impossible.is_impossible and not possible.is_impossible
    examples = read(qas, False, True)
    assert [(example.is_impossible, example.start_position) for example in examples] == [(False, None)] * 2
    with pytest.raises(ValueError,
                       match="question 1 has 0 answers.*SQuAD 2.0 needs --version_2_with_negative"):
        read(qas)


def test_an_id_that_occurs_twice(read, caplog):
    qas = [qa_of("7", "one", answers=[answer_of("Anna", 0)]), qa_of(7, "two", answers=[answer_of("Anna", 0)])]
    with pytest.raises(ValueError, match=r"qas\[1\]: the id '7' was already used at .*qas\[0\]"):
        read(qas, False)
    caplog.set_level("WARNING", "absl")
    assert [example.question_text for example in read(qas)] == ["one", "two"]
    assert "the id 7 was already used" in caplog.text


@pytest.mark.parametrize("content, complaint", [
    ('{"data": [\n{"title": "t",, }]}', r"file:2:15: this is not JSON"),
    ('{"version": "1.1",\n "data": [', r"file:2:11: this is not JSON .* truncated"),
    ('{"data": []}\n{"data": []}', r"file:2:1: this is not JSON \(Extra data\)"),
    ('{"id": "1", "question": "q"}', "file:1: 'context' is missing; it should be a string"),
    ("[]", "one JSON object with \"data\""),
    ('{"version": "1.1", "questions": []}', "file: the first JSON object has neither \"data\", as in SQuAD, "
                                            "nor \"id\", .* "
     "Its keys are 'version', 'questions'"),
    ("{}", "file: the first JSON object has neither \"data\".* are none"),
    ('{"data": 3}', "file: 'data' should be a list, not 3"),
    ('{"data": ' + "[" * 100000 + "]" * 100000 + "}",
     "file:1: the JSON value that begins here is nested too deeply"),
    ('{"data": []}'.encode("utf-16"), "file:1: byte 0xff at offset 0 is not UTF-8; convert the file"),
    (" \n", "the file is empty"),
    (b'{"data":\n "\xff"}', "file:2: byte 0xff at offset 11 is not UTF-8"),
    ({"data": {}}, "file: 'data' should be a list, not {}"),
    ({"data": []}, "file: the file contains no question"),
    ({"data": [{"title": "t"}]}, r"file: data\[0\]: 'paragraphs' is missing"),
    ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\]: 'context' is missing"),
    ([qa_of(), 3], r"qas\[0\]: question 1: 'answers' is missing; it should be a list"),
    ([3], r"qas\[0\]: there should be an object with 'id' here, not 3"),
    ([qa_of(None)], r"qas\[0\]: 'id' should be a string or an integer, not None"),
    ([qa_of("1", None)], r"qas\[0\]: 'question' should be a string, not None"),
    ([qa_of(answers=[])], "question 1 has 0 answers; for training, it must have exactly one$"),
    ([qa_of(answers=[answer_of("Anna", 0)] * 2)], "question 1 has 2 answers"),
    ([qa_of(answers=[answer_of("Anna", "0")])], "question 1: 'answer_start' should be an integer, not '0'"),
    ([qa_of(answers=[answer_of("Anna", True)])], "'answer_start' should be an integer, not True")])
def test_what_cannot_be_read_says_where(read, content, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(content)


def test_version_2_says_which_questions_are_impossible(read):
    with pytest.raises(ValueError, match="file: .*question 1 has no \"is_impossible\", which "
                       "--version_2_with_negative needs.*SQuAD 1.1, leave the flag out"):
        read([qa_of(answers=[answer_of("Anna", 0)])], True, True)


def test_gold_answers_of_json_lines(tmp_path):
    marks = [{"answers": ["b c", "z"]}, {"answers": [{"text": "c", "answer_start": 6}, {"text": "c"}],
                                         "is_impossible": False},
             {"answers": []}, {"is_impossible": True}]
    path = write_lines(tmp_path / "dev.jsonl", (
        json.dumps({"id": i, "question": "q", "context": "a b c c", **mark}) for i, mark in enumerate(marks)))
    assert squad_data.read_gold(str(path)) == {"0": [("b c", 2), ("z", -1)], "1": [("c", 6), ("c", 4)],
                                               "2": [], "3": []}


@pytest.mark.parametrize("changes, complaint", [
    ({}, "dev.jsonl:2: question 2 has no \"answers\", which --do_eval needs.*--do_predict without --do_eval"),
    ({"is_impossible": False}, "dev.jsonl:2: question 2 has no \"answers\""),
    ({"answers": "b"}, "dev.jsonl:2: 'answers' should be a list, not 'b'"),
    ({"answers": [3]}, "dev.jsonl:2: there should be an object with 'text' here, not 3"),
    ({"answers": [{"text": "b", "answer_start": "2"}]}, "dev.jsonl:2: 'answer_start' should be an integer")],
                         ids=str)
def test_without_gold_answers_their_line_is_named(tmp_path, changes, complaint):
    lines = [{"id": i, "question": "q", "context": "a b", **given}
             for i, given in ((1, {"answers": ["a"]}), (2, changes))]
    path = write_lines(tmp_path / "dev.jsonl", map(json.dumps, lines))
    with pytest.raises(ValueError, match=complaint):
        squad_data.read_gold(str(path))


def test_examples_are_printed():
    example = squad_data.SquadExample("1", "who?", ["a", "b"], "b", 1, 1)
    assert str(example) == repr(example) == ("qas_id: 1, question_text: who?, doc_tokens: [a b], "
                                             "start_position: 1, end_position: 1, is_impossible: False")
