"""Checks of the sample data in samples/: format, sizes, and that the task is not word overlap."""

import itertools
import pathlib
import re

import pytest

MRPC = pathlib.Path(__file__).resolve().parents[1] / "samples" / "MRPC"
MIN_SIZE = {"train": 200, "dev": 60, "test": 30}
COLUMNS = ["#1 ID", "#2 ID", "#1 String", "#2 String"]
# Words that say nothing about what a sentence is about; dropped before pairs are compared.
STOP_WORDS = set(re.findall(r"\w+", """
    a about after all an and any are as at be because been but by for from had has have he her his in into is
    it its more no not of on one or she so than that the their them they this to was were when which who will
    with"""))


def read_tsv(name):
    text = (MRPC / (name + ".tsv")).read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    return [line.split("\t") for line in text[:-1].split("\n")]


def read_split(split):
    """Pairs of one split as (label, first sentence, second sentence); the test labels have their own file."""
    rows = read_tsv(split)[1:]
    labels = [row[1] for row in read_tsv("test_labels")[1:]] if split == "test" else [row[0] for row in rows]
    return [(int(label), row[3], row[4]) for label, row in zip(labels, rows, strict=True)]


def words(sentence):
    return set(re.findall(r"[a-z0-9]+(?:[.,'][a-z0-9]+)*", sentence.lower()))


def jaccard(a, b):
    return len(a & b) / len(a | b)


def containment(a, b):
    return len(a & b) / min(len(a), len(b))


def scores(pairs, overlap):
    return [(overlap(words(first), words(second)), label) for label, first, second in pairs]


def accuracy(scored, threshold, sign):
    """Accuracy of "paraphrase if and only if sign * score >= sign * threshold"."""
    return sum((sign * score >= sign * threshold) == bool(label) for score, label in scored) / len(scored)


def best_rule(scored):
    """The (threshold, sign) that is most accurate on `scored`; +-9 stand for the constant answers."""
    candidates = {score for score, _ in scored} | {-9, 9}
    return max(itertools.product(sorted(candidates), (1, -1)), key=lambda rule: accuracy(scored, *rule))


@pytest.mark.parametrize("split", MIN_SIZE)
def test_format(split):
    header, *rows = read_tsv(split)
    assert header == ["index" if split == "test" else "Quality"] + COLUMNS
    assert len(rows) >= MIN_SIZE[split]
    for number, row in enumerate(rows):
        assert len(row) == 5, row
        assert row[0] == str(number) if split == "test" else row[0] in ("0", "1")
        assert row[1].isdigit() and row[2].isdigit()
        for sentence in row[3:]:
            assert 10 <= len(sentence.split()) <= 30, sentence
            assert sentence == sentence.strip() and '"' not in sentence, sentence


def test_test_labels():
    header, *rows = read_tsv("test_labels")
    assert header == ["index", "label"]
    assert [row[0] for row in rows] == [row[0] for row in read_tsv("test")[1:]]
    assert all(len(row) == 2 and row[1] in ("0", "1") for row in rows)


def test_ids_are_unique():
    ids = [row_id for split in MIN_SIZE for row in read_tsv(split)[1:] for row_id in row[1:3]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("split", MIN_SIZE)
def test_labels_are_balanced_like_mrpc_and_mixed(split):
    labels = [label for label, _, _ in read_split(split)]
    assert 1.6 <= labels.count(1) / labels.count(0) <= 2.6
    longest_run = max(len(list(run)) for _, run in itertools.groupby(labels))
    assert longest_run <= 16


def test_no_sentence_occurs_twice():
    sentences = [" ".join(re.findall(r"\w+", sentence.lower()))
                 for split in MIN_SIZE for _, *pair in read_split(split) for sentence in pair]
    assert len(set(sentences)) == len(sentences)


def test_no_two_pairs_from_one_template():
    """Different pairs' sentences have neither wording (all words) nor matter (content words) in common."""
    pairs = [pair for split in MIN_SIZE for _, *pair in read_split(split)]
    bags = [(number, sentence, words(sentence), words(sentence) - STOP_WORDS)
            for number, pair in enumerate(pairs) for sentence in pair]
    for (i, first, all_1, content_1), (j, second, all_2, content_2) in itertools.combinations(bags, 2):
        if i != j:
            assert jaccard(all_1, all_2) < 0.4, (first, second)
            assert jaccard(content_1, content_2) < 0.3, (first, second)


@pytest.mark.parametrize("overlap", [jaccard, containment])
def test_word_overlap_does_not_solve_dev(overlap):
    train, dev = (scores(read_split(split), overlap) for split in ("train", "dev"))
    assert accuracy(dev, *best_rule(train)) < 0.75  # the threshold learned on train
    assert accuracy(dev, *best_rule(dev)) < 0.75    # the best there is, chosen with the dev labels


def test_both_labels_occur_at_low_and_at_high_overlap():
    pairs = [pair for split in MIN_SIZE for pair in read_split(split)]
    scored = scores(pairs, jaccard)
    for label in (0, 1):
        own = [score for score, of in scored if of == label]
        assert sum(score < 0.2 for score in own) >= len(own) / 5
        assert sum(score > 0.5 for score in own) >= len(own) / 5


# --- Sentences with names --------------------------------------------------------------------------------


@pytest.mark.parametrize("part, count", [("train", 200), ("dev", 40), ("test", 40)])
def test_sentences_with_names(part, count):
    text = (MRPC.parent / "ner" / f"{part}.txt").read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\n\n\n" not in text
    sentences = [[line.split(" ") for line in block.splitlines()] for block in text.split("\n\n")]
    assert len(sentences) == count == len({str(rows) for rows in sentences})
    kinds = set()
    for rows in sentences:
        assert all(len(row) == 2 for row in rows) and len(rows) >= 6, rows
        for before, tag in zip(["O", *(row[1] for row in rows)], (row[1] for row in rows)):
            letter, _, kind = tag.partition("-")
            assert tag == "O" or letter == "B" or letter == "I" and before[1:] == tag[1:], rows
            kinds.add(kind)
    assert kinds == {"", "LOC", "MISC", "ORG", "PER"}
