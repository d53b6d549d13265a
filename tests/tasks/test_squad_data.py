"""squad_data.py: reading, windows, and the samples. The windows are those of recordings (data/squad_*).
"""

import collections
import gzip
import json

from helpers import DATA, ROOT, write_lines
import pytest
from test_tokenization import released_vocab
from texts import CASES

from bertlib.data import example_encoding, tfrecord_files
from bertlib.tasks.squad import squad_data
import tokenization

SAMPLES = ROOT / "samples" / "squad"
VERSIONS = {"v1": False, "v2": True}
LENGTHS = collections.namedtuple("Lengths", ["max_seq_length", "doc_stride", "max_query_length"])


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(released_vocab())


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


# --- Windows of any length -------------------------------------------------------------------------------


@pytest.mark.parametrize("room, doc_stride, windows, most_context", [
    (7, 2, ["abcdefg"], ["abcdefg"]), (1, 1, "abcdefg", "abcdefg"),
    (3, 25, ["abc", "def", "g"], ["abc", "def", "g"]),  # a large stride leaves no token out
    (4, 2, ["abcd", "cdef", "efg"], ["abc", "de", "fg"]),
    (5, 1, ["abcde", "bcdef", "cdefg"], ["abc", "d", "efg"])])  # the first one of equal windows
def test_windows_of_a_context(room, doc_stride, windows, most_context, tokenizer):
    lengths = LENGTHS(room + 5, doc_stride, 2)
    features = features_of([example_of("who was it", "a b c d e f g", rank=3)], tokenizer, lengths, True)
    assert ["".join(feature.tokens[4:-1]) for feature in features] == list(windows)
    assert [feature.tokens[feature.start_position] for feature in features] == [
        "d" if "d" in window else "[CLS]" for window in windows]
    assert ["".join(feature.tokens[place] for place, is_max in feature.token_is_max_context.items() if is_max)
            for feature in features] == list(most_context)


def test_the_published_function_finds_the_most_context():
    spans = [squad_data._DocSpan(*span) for span in ((0, 8), (2, 8), (9, 3), (9, 5))]
    assert [[index for index in range(4) if squad_data._check_is_max_context(spans, index, position)]
            for position in (4, 5, 10, 20)] == [[0], [1], [3], []]  # at 10, the longer window is better


def example_of(question, context, rank=0, impossible=False, qas_id="q"):
    """Returns an example. Its answer is the word with the number `rank`."""
    words, _ = squad_data.split_context(context)
    if impossible or not words:
        return squad_data.SquadExample(qas_id, question, words, "", -1, -1, True)
    place = rank % len(words)
    return squad_data.SquadExample(qas_id, question, words, words[place].strip(",.()"), place, place)


@pytest.mark.parametrize("answer, first, last, expected", [
    ("1912 - 1978", 0, 5, (1, 3)), ("Oslo", 0, 5, (0, 5)), ("\u200b", 0, 5, (0, 5)),
    ("1978", 1, 2, (1, 2)), ("1978", 0, 3, (3, 3))])
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


def test_files_are_those_of_protobuf_in_any_number_of_processes(tmp_path, tokenizer):
    examples = [example_of(f"{CASES[i % len(CASES)]} {i}", " ".join(CASES[i // 7 % 60:][:12]), i, i % 5 == 0)
                for i in range(300)]  # two chunks
    lengths, path = LENGTHS(32, 5, 6), tmp_path / "writer.tf_record"
    features = features_of(examples, tokenizer, lengths, True)
    writer = squad_data.FeatureWriter(str(path), True)
    for feature in features:
        writer.process_feature(feature)
    assert not path.exists()
    writer.close()
    assert writer.num_features == len(features) > 400
    for record, feature in zip(tfrecord_files.read_records(str(path)), features, strict=True):
        row = {**vars(feature), "unique_ids": feature.unique_id, "start_positions": feature.start_position,
               "end_positions": feature.end_position, "is_impossible": int(feature.is_impossible)}
        assert record == example_encoding.encode_example(squad_data.feature_fields(32, True), row)
    for num_workers in (1, 2):
        assert write(tmp_path / "a", iter(examples), tokenizer, lengths, True,
                     num_workers=num_workers) == (path.read_bytes(), len(features))


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
    ("met (Oslo) twice.", 5, (1, 3)), ("wice", 17, (3, 3)), (" met", 4, (0, 1)), ("met ", 5, (1, 1)),
    ("Oslo", 9, (2, 2)), ("met\n(Oslo)", 5, (1, 2))])
def test_answers_are_found_as_published(read, text, start, words):
    example, = read([qa_of(answers=[answer_of(text, start)])])
    assert (example.start_position, example.end_position) == words
    assert example.orig_answer_text == text and not example.is_impossible


@pytest.mark.parametrize("text, start", [
    ("Oslo", 0), ("Oslo", 10**9), ("Anna", -3), (" ", 4), ("twice.x", 16)])
def test_answers_that_do_not_match_are_reported(read, text, start, caplog):
    good = qa_of("good", answers=[answer_of("Anna", 0)])
    caplog.set_level("WARNING", "absl")
    examples = read([good, qa_of("bad", answers=[answer_of(text, start)])])
    assert [example.qas_id for example in examples] == ["good"]
    assert "data[0].paragraphs[0].qas[1]: question bad is left out" in caplog.text
    assert f"answer_start {start}" in caplog.text


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


def test_an_id_that_occurs_twice(read):
    qas = [qa_of("7", "one", answers=[answer_of("Anna", 0)]), qa_of(7, "two", answers=[answer_of("Anna", 0)])]
    with pytest.raises(ValueError, match=r"qas\[1\]: the id '7' was already used at .*qas\[0\]"):
        read(qas, False)
    assert [example.question_text for example in read(qas)] == ["one", "two"]


@pytest.mark.parametrize("content, complaint", [
    ('{"data": [\n{"title": "t",, }]}', r"file:2:15: this is not JSON"),
    ('{"data": []}\n{"data": []}', r"file:2:1: this is not JSON \(Extra data\)"),
    ('{"id": "1", "question": "q"}', "file:1: 'context' is missing; it should be a string"),
    ("[]", "one JSON object with \"data\""),
    ('{"version": "1.1", "questions": []}', "file: the file begins with '{\"version\": \"1.1\", .*\"data\""),
    (" \n", "the file is empty"),
    (b'{"data":\n "\xff"}', "file:2: byte 0xff at offset 11 is not UTF-8"),
    ({"data": {}}, "file: 'data' should be a list, not {}"),
    ({"data": []}, "file: the file contains no question"),
    ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\]: 'context' is missing"),
    ([qa_of(), 3], r"qas\[0\]: question 1: 'answers' is missing; it should be a list"),
    ([3], r"qas\[0\]: there should be an object with 'id' here, not 3"),
    ([qa_of(None)], r"qas\[0\]: 'id' should be a string or an integer, not None"),
    ([qa_of(answers=[])], "question 1 has 0 answers; for training, it must have exactly one$"),
    ([qa_of(answers=[answer_of("Anna", True)])], "1: 'answer_start' should be an integer, not True")])
def test_what_cannot_be_read_says_where(read, content, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(content)


def test_version_2_says_which_questions_are_impossible(read):
    with pytest.raises(ValueError, match="file: .*question 1 has no \"is_impossible\", which "
                       "--version_2_with_negative needs.*SQuAD 1.1, leave the flag out"):
        read([qa_of(answers=[answer_of("Anna", 0)])], True, True)


def test_questions_of_json_lines_are_those_of_squad(read):
    context, answers = "the cat\u2028sees \U0001f642 end", [answer_of("end", 15)]
    found = [vars(read(content, context=context)[0]) for content in (
        [qa_of(answers=answers)],
        "\ufeff" + json.dumps(qa_of(answers=answers, context=context, data=1), ensure_ascii=False) + "\n")]
    assert [example.pop("line") for example in found] == [None, 1] and found[0] == found[1]
    assert found[0]["answer_span"] == (15, 18) and found[0]["context"] == context


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
    ({"answers": [3]}, "dev.jsonl:2: there should be an object with 'text' here, not 3")], ids=str)
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
