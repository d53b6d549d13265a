"""Tests the reader and the writer of tagged sentences in JSON Lines."""

import json

from helpers import error_of, write_file
import pytest

from bertlib.data import faults
from bertlib.tasks.tagging import sentence_files, tagging_windows
from bertlib.tasks.tagging.conll_files import Sentence

GOOD = '{"tokens": ["Ana", "Ruiz"], "ner_tags": ["B-PER", "I-PER"], "id": 7}\n'


def test_words_and_tags_have_two_names_each(tmp_path):
    path = write_file(tmp_path / "train.JSON", GOOD + '{"words": ["a"], "tags": ["O"]}\n\n')
    file = sentence_files.read_sentences(path)
    assert file.is_tagged and file.sentences == [Sentence(["Ana", "Ruiz"], ["B-PER", "I-PER"], [1, 1]),
                                                 Sentence(["a"], ["O"], [2])]


@pytest.mark.parametrize("line, message", [
    ('{"tokens": ["a"], "ner_tags": [0]}', "'ner_tags' contains the number 0. Write the name of each tag"),
    ('{"tokens": ["a"], "ner_tags": ["O", "O"]}', "'tokens' has 1 word, but 'ner_tags' has 2 tags."),
    ('{"tokens": ["a"], "ner_tags": ["PER"]}', "'PER' in 'ner_tags' is not a tag."),
    ('{"tokens": ["a"]}', "the tags are missing."), ('{"ner_tags": ["O"]}', "the words are missing."),
    ('{"tokens": "a b", "ner_tags": ["O"]}', "'tokens' is \"a b\", but must be a list of texts."),
    ('{"tokens": ["a", " "], "ner_tags": ["O", "O"]}', "'tokens' contains the word ' ', which is empty."),
    ('{"tokens": [null], "tags": ["O"]}', "'tokens' contains null, which is not a text."),
    ('{"tokens": [], "tags": []}', "'tokens' is empty; remove the line."),
    ('{"tokens": ["a"], "words": ["a"], "tags": ["O"]}', "the line has both 'tokens' and 'words'"),
    ("", "the line is blank; remove it."), ("[1]", "each line is a JSON object"),
    ('{"tokens": [', "the line is not valid JSON")])
def test_errors_name_the_line(line, message, tmp_path):
    path = write_file(tmp_path / "train.jsonl", f"{GOOD}{line}\n{GOOD}")
    said = error_of(sentence_files.read_sentences, path)
    assert said.startswith(f"{path}:2: ") and message in said


def test_all_bad_lines_are_listed_or_left_out(tmp_path):
    good = '{"tokens": ["a"], "ner_tags": ["O"]}\n'
    bad = '{"tokens": []}\n{"tokens": ["a"]}\nno\n{"tokens": ["a"], "ner_tags": ["X"]}\n'
    path = write_file(tmp_path / "a.jsonl", good + bad + good * 5)
    title, *listed, _ = error_of(sentence_files.read_sentences, path).split("\n")
    assert "4 lines cannot be used" in title and [line.split(":")[1] for line in listed] == list("2345")
    bad_lines = faults.FileFaults(path, is_skipping=True)
    file = sentence_files.read_sentences(path, bad_lines=bad_lines)
    assert len(file.sentences) == len(file.lines) == 6
    assert [one.line for one in bad_lines.faults] == [2, 3, 4, 5]


def read(directory, text, **options):
    return sentence_files.read_sentences(write_file(directory / "test.jsonl", text), **options)


def test_tags_of_a_test_file_are_optional(tmp_path):
    only_o = '{"tokens": ["a"], "ner_tags": ["O"]}\n'
    for text in ('{"tokens": ["a"]}\n', only_o, '{"tokens": ["a"], "ner_tags": null}\n' + only_o):
        file = read(tmp_path, text, needs_tags=False)
        assert not file.is_tagged and file.sentences[0] == Sentence(["a"], None, [1])
    with pytest.raises(ValueError, match=":2: the tags are missing"):
        read(tmp_path, GOOD + '{"tokens": ["a"]}', needs_tags=False, width=4)
    with pytest.raises(ValueError, match="the file is blank"):
        read(tmp_path, "\n")


def test_predictions_are_added_to_each_line(tmp_path):
    file = read(tmp_path, '{"id": "é", "words": ["a", "b"]}\n', needs_tags=False)
    text = file.add_predictions([tagging_windows.Prediction(["O", "B-X"], [0.5, 0.25])])
    assert text.startswith('{"id": "é", ') and json.loads(text) == {
        "id": "é", "words": ["a", "b"], "predicted_tags": ["O", "B-X"], "tag_probabilities": [0.5, 0.25]}
