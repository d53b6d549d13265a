"""Tagging: CoNLL files, tagging schemes, scores (compared with seqeval), and the content of windows.
"""

import re

from helpers import error_of, write_file
from hypothesis import given
from hypothesis import strategies as some
import pytest
from seqeval import metrics, scheme
import tiny

from bertlib.tasks.tagging import (
    conll_files,
    sentence_files,
    tag_schemes,
    tagging_metrics,
    tagging_windows,
)
from bertlib.tasks.tagging.conll_files import Sentence
import tokenization

# --- Files -----------------------------------------------------------------------------------------------

# The file has a byte-order mark, two kinds of line ends, a comment, "#" as a word, and a space within a word.
FILE = ("\ufeff-DOCSTART- -X- -X- O\r\n\r\n# a comment, before a sentence\nAna\tNN  I-NP I-PER\n"
        "#\tNN I-NP O  \n10\u00a0000 NN B-NP O\n\n\n# another\n-DOCSTART-\n# NN I-NP I-LOC\nis NN I-NP O")


def read(directory, text, *columns, **options):
    return sentence_files.read_sentences(write_file(directory / "f.txt", text), *columns, **options)


def test_a_file_is_read_and_written_line_by_line(tmp_path):
    file = read(tmp_path, FILE)
    assert file.sentences == [Sentence(["Ana", "#", "10\u00a0000"], ["I-PER", "O", "O"], [4, 5, 6]),
                              Sentence(["#", "is"], ["I-LOC", "O"], [11, 12])]
    assert file.width == 4 and file.is_tagged
    text = file.add_predictions([tagging_windows.Prediction(["B-X", "O", "I-X"], [1.0] * 3),
                                 tagging_windows.Prediction(["O", "S-Y"], [1.0] * 2)])
    assert text == ("-DOCSTART- -X- -X- O O\n\n# a comment, before a sentence\nAna\tNN  I-NP I-PER\tB-X\n"
                    "#\tNN I-NP O\tO\n10\u00a0000 NN B-NP O I-X\n\n\n# another\n-DOCSTART- O\n"
                    "# NN I-NP I-LOC O\nis NN I-NP O S-Y\n")


@pytest.mark.parametrize("text, width, expected", [
    ("a NN\nb O\n", None, None), ("a B-X\nb O\n", None, ["B-X", "O"]), ("a\nb\n", None, None),
    ("a B-X\nb O\n", 3, None), ("a B-X\nb O\n", 2, ["B-X", "O"])])
def test_whether_a_file_has_tags(text, width, expected, tmp_path):
    file = read(tmp_path, text, needs_tags=False, width=width)
    assert file.sentences[0].tags == expected and file.is_tagged == (expected is not None)


def test_plain_sentences_with_as_many_words_as_columns_are_refused(tmp_path):
    text = "\nPeter Blackburn of Berlin\n"
    with pytest.raises(ValueError, match=r"f.txt:2: 'Berlin' is not a tag. .* 4 .* use predict.py"):
        read(tmp_path, text, needs_tags=False, width=4)
    assert not read(tmp_path, text, needs_tags=False, width=2).is_tagged
    text = "Peter NNP B-NP _\nBlackburn NNP I-NP _\n"  # "_" means no tag
    assert not read(tmp_path, text, needs_tags=False, width=4).is_tagged


@pytest.mark.parametrize("lines", [["cat\tN,sg\tO", "old\tA,sg\tB-X"], [", N O", "cat N,sg O"]])
def test_columns_may_contain_commas(lines, tmp_path):
    file = read(tmp_path, "\n".join(lines) + "\n")
    assert file.sentences[0].words == [re.split(r"\s", line)[0] for line in lines]


@pytest.mark.parametrize("text, columns, message", [
    ("cat, O\nold, B-X\n", (), ": the file is a table .* are separated by ','"),
    ('"cat"; O\n"old"; O\n', (), ": the file is a table .* are separated by ';'"),
    ('Sentence #,Word,Tag\n1,Ana,B-PER\n,",",O\n', (), ": the file is a table .* are separated by ','"),
    (" \n\t\r\n", (), ": the file is blank;"), ("-DOCSTART- -X- O\n\n", (), ": the file is blank;"),
    ("# NN NN\n\n# NN NN\n", (), ": the file has only comments;"),
    ("a\nb\n", (), ":1: the line has only one column; each word needs a tag in another column."),
    ("# a note\n\na O\n\n\nb\n", (), ":6: the line has 1 column, but line 3 has 2;"),
    ("a O\n# x y\nb O\n", (), ":2: the line has 3 columns, but line 1 has 2;"),
    ("a O\nb PER\n", (), ":2: 'PER' is not a tag. .* If the tags are in another column, .*--tag_column"),
    ("a O\nb L-PER\n", (), ":2: 'L-PER' is not a tag"),
    ("a O\n", (1, 3), ":1: there is no column 3 for the tags. The columns have the numbers 1 to 2; the last "
                      "column also has the number -1"),
    ("a O\n", (0, 2), ":1: there is no column 0 for the words"),
    ("a O\n", (-2, 1), ":1: column 1 is named both for the words and for the tags")])
def test_what_cannot_be_read_is_told_with_its_line(text, columns, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{tmp_path}/f.txt{message}"):
        read(tmp_path, text, *columns)


# --- Schemes ---------------------------------------------------------------------------------------------

SEQEVAL = {"IOB1": scheme.IOB1, "IOB2": scheme.IOB2, "BIOES": scheme.IOBES}


@some.composite
def entities(draw):
    """Draws (spans of the entities in a sentence, length of the sentence)."""
    found, place = [], 0
    for gap, length, kind in draw(some.lists(some.tuples(some.integers(0, 2), some.integers(1, 3),
                                                         some.sampled_from(["A", "B-C"])), max_size=5)):
        found.append((place + gap, place + gap + length, kind))
        place += gap + length
    return found, place + draw(some.integers(0, 2))


@given(entities(), some.sampled_from(tag_schemes.SCHEMES))
def test_a_scheme_says_which_entities_there_are(found, name):
    spans, length = found
    tags = tag_schemes.tags_from_spans(spans, length, name)
    assert len(tags) == length and tag_schemes.entity_spans(tags) == spans
    theirs = scheme.Entities([tags], SEQEVAL[name]).entities[0] if tags else []
    assert [entity.to_tuple()[1:] for entity in theirs] == [(kind, start, end) for start, end, kind in spans]
    for other in tag_schemes.SCHEMES:
        assert tag_schemes.convert_scheme(tags, other) == tag_schemes.tags_from_spans(spans, length, other)


def tagged(*sentences):
    """Returns a file of sentences. A sentence is a string of tags, and each word is equal to its tag."""
    found, line = [], 1
    for sentence in sentences:
        tags = sentence.split()
        found.append(Sentence(tags, tags, list(range(line, line + len(tags)))))
        line += len(tags) + 1
    return conll_files.ConllFile("f.txt", [], 2, found)


@pytest.mark.parametrize("sentences, expected", [
    (["O B-A I-A O", "B-A"], "IOB2"), (["O I-A I-A O", "I-A"], "IOB1"), (["B-A E-A O"], "BIOES"),
    (["O O"], "IOB2"), (["B-A B-A", "B-A", "I-A"], "IOB2"), (["I-A", "I-B", "I-A O B-A"], "IOB1")])
def test_the_scheme_is_the_one_that_most_tags_fit(sentences, expected):
    assert conll_files.detect_scheme(tagged(*sentences)) == expected


@pytest.mark.parametrize("sentences, scheme, message", [
    (["B-A", "O I-A"], "IOB2", "f.txt:4: the tag I-A after O is not valid in the scheme IOB2, which is so; "
                               "the right tag is B-A."),
    (["B-A I-B", "B-B"], "IOB2", "f.txt:2: the tag I-B after B-A is not .* IOB2, .* the right tag is B-B."),
    (["B-A I-B"], "IOB2", "f.txt:2: .* the file has no tag B-B, so I-B may be misspelled. Correct the file."),
    (["I-A B-B", "I-B"], "IOB1", "f.txt:2: the tag B-B after I-A is not .* IOB1, .* the right tag is I-B."),
    (["B-A O"], "BIOES", "f.txt:1: the tag B-A at the start of a sentence is not .* BIOES, .* tag is S-A.")])
def test_tags_that_are_no_sequence_of_a_scheme_are_told_with_their_line(sentences, scheme, message):
    with pytest.raises(ValueError, match=message):
        conll_files.check_scheme(tagged(*sentences), scheme, "is so")


# --- Scores ----------------------------------------------------------------------------------------------

ANY_TAGS = some.lists(some.tuples(*2 * [some.sampled_from(
    ["O", *[f"{letter}-{kind}" for letter in "BIES" for kind in ("A", "B")]])]), min_size=1, max_size=8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # seqeval's mean over no types
@given(some.lists(ANY_TAGS, min_size=1, max_size=4))
def test_scores_are_those_of_seqeval_whatever_the_sequences(sentences):
    right, predicted = ([[pair[side] for pair in sentence] for sentence in sentences] for side in (0, 1))
    found = tagging_metrics.score_tags(right, predicted)
    expected = {"accuracy": metrics.accuracy_score(right, predicted)}
    for ending, measures in metrics.classification_report(right, predicted, output_dict=True,
                                                          zero_division=0).items():
        if not ending.endswith(" avg") or ending == "micro avg":
            ending = "" if ending == "micro avg" else f"_{ending}"
            expected.update({f"{name}{ending}": measures[f"{name}-score" if name == "f1" else name]
                             for name in ("precision", "recall", "f1")})
    if "f1" not in expected:  # there are no entities
        expected.update(precision=0, recall=0, f1=0)
    assert found == pytest.approx(expected)


# --- Windows ---------------------------------------------------------------------------------------------


@given(some.lists(some.integers(1, 6), min_size=1, max_size=30), some.integers(6, 20))
def test_windows_tag_each_word_once_where_it_has_most_context(sizes, room):
    windows = tagging_windows.window_bounds(sizes, room)
    assert windows[0][:1] == windows[0][2:3] == (0,) and windows[-1][1] == windows[-1][3] == len(sizes)
    for start, end, first, last in windows:
        assert start <= first < last <= end and sum(sizes[start:end]) <= room
        # A window ends at the end of the sentence, or its next word would not fit.
        assert end == len(sizes) or sum(sizes[start:end + 1]) > room
    for (start, end, _, last), (next_start, next_end, first, _) in zip(windows, windows[1:]):
        assert last == first and start < next_start <= end < next_end
        for word in range(next_start, end):
            left, right = word - next_start, end - 1 - word
            assert left >= right if word >= first else right >= left
    if sum(sizes) <= room:
        assert windows == [(0, len(sizes), 0, len(sizes))]


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return tokenization.FullTokenizer(str(tiny_model.vocab))


LABELS = ["B-A", "B-B", "I-A", "O"]


def windows(tokenizer, words, tags, length=tiny.SEQ_LENGTH, **options):
    sentence = Sentence(words.split(" "), tags and tags.split(), [])
    found, = tagging_windows.make_windows([sentence], LABELS, tokenizer, length, **options)
    return found


def test_first_pieces_are_tagged(tokenizer):
    # A word that is not in the vocabulary becomes [UNK], and so does a word of one control character.
    found, = windows(tokenizer, "cats the breaks? xyz \x01 eats", "B-A O B-B O I-A O")
    tokens = ["[CLS]", "cat", "##s", "the", "breaks", "[UNK]", "[UNK]", "[UNK]", "eats", "[SEP]"]
    assert found.input_ids == [tiny.VOCABULARY.index(token) for token in tokens]
    assert found.word_mask == [0, 1, 0, 1, 1, 0, 1, 1, 1, 0] == found.tag_mask
    # The tags are converted to IOB2 as in conlleval: there, I-A after O begins an entity.
    assert [tag for tag, here in zip(found.tag_ids, found.tag_mask) if here] == [0, 3, 1, 3, 0, 3]


def test_all_pieces_are_tagged_if_asked_for(tokenizer):
    # The labels contain B-B but not I-B, so all pieces of the last word have B-B.
    found, = windows(tokenizer, "cats dogs dogs", "B-A I-A B-B", label_all_pieces=True)
    assert found.word_mask == [0, 1, 0, 1, 0, 1, 0, 0] and found.tag_mask == [0, *[1] * 6, 0]
    assert [LABELS[tag] for tag in found.tag_ids[1:-1]] == ["B-A", "I-A", "I-A", "I-A", "B-B", "B-B"]


def test_a_long_sentence_is_cut_and_joined_again(tokenizer):
    words, tags = ["cat", "dogs", "the", "birds", "finds"] * 8, ["O", "B-A", "B-B", "O"] * 10
    found = windows(tokenizer, " ".join(words), " ".join(tags), length=10)
    assert len(found) > 4 and all(len(window.input_ids) <= 10 for window in found)
    places = [(tiny.VOCABULARY[token], LABELS[tag]) for window in found for token, tag, here in zip(
        window.input_ids, window.tag_ids, window.word_mask) if here]
    assert places == [(tokenizer.tokenize(word)[0], tag) for word, tag in zip(words, tags)]


def test_a_word_longer_than_a_window_is_cut(tokenizer):
    first, second = windows(tokenizer, "the catssss", "O B-A", length=5)
    assert [tiny.VOCABULARY[token] for token in second.input_ids] == ["[CLS]", "cat", "##s", "##s", "[SEP]"]
    assert sum(first.word_mask) == sum(second.word_mask) == 1


def test_an_error_lists_all_lines_that_cannot_be_used(tmp_path):
    title, *listed, _ = error_of(read, tmp_path, b"a O\nb B\nc\n\nd\xff O\ne O\n").split("\n")
    assert "3 lines cannot be used (bad encoding 1, bad tag 1, wrong width 1)" in title
    assert [line.split(":")[1] for line in listed] == list("235")


def test_an_entity_type_that_is_probably_misspelled_is_named(tmp_path, caplog):
    lines = ["Ada B-PERSON", "sleeps O", ""] * 60 + ["Bob B-PERSOON", ""]
    path = write_file(tmp_path / "train.conll", "\n".join(lines))
    file = sentence_files.read_sentences(str(path), 1, -1)
    conll_files.log_file(file, "IOB2", ["O", "B-PERSON", "B-PERSOON"])
    assert "the entity type 'PERSOON' occurs 1 times, and looks like a misspelling of 'PERSON'" in caplog.text
