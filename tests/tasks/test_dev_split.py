"""The development set of --dev_fraction: how it is drawn, stored and found again."""

import collections
import random
import unicodedata

import pytest

from bertlib.rows import text_keys
from bertlib.tasks.classification import dev_split, row_examples


def part_of(labels):
    rows = [row_examples.Row(index + 1, f"text {index}", None, label) for index, label in enumerate(labels)]
    return row_examples.Split("train.csv", rows, True)


def part_of_texts(*texts):
    """Returns a `Split` of texts, or of pairs of texts. The labels are x and y in turn."""
    pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
    return row_examples.Split("train.csv", [row_examples.Row(index + 1, *pair, "xy"[index % 2])
                                            for index, pair in enumerate(pairs)], True)


def contents(rows):
    """Returns sorted rows without their line numbers."""
    return sorted((row[1:] for row in rows), key=repr)


# --- Drawing ---------------------------------------------------------------------------------------------


def test_a_split_is_stratified_and_keeps_each_label():
    part = part_of(["x"] * 60 + ["y"] * 30 + ["z"] * 9 + ["only"])
    train, dev, unused = dev_split.stratified_split(part, 0.2)
    assert sorted([*train.rows, *dev.rows]) == part.rows and not unused
    for side in (train, dev):
        assert [row.line for row in side.rows] == sorted(row.line for row in side.rows)
    counts = collections.Counter(row.label for row in dev.rows)
    assert len(dev.rows) == 20
    for label, expected in (("x", 12), ("y", 6), ("z", 1.8), ("only", 0)):
        assert abs(counts[label] - expected) <= 1, label
    assert counts["only"] == 0


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("draw",
                         [dev_split.stratified_split, lambda *part: dev_split.split_by_seed(*part, seed=3)])
def test_no_label_is_lost_to_the_evaluation(draw, fraction):
    part = part_of([str(index // 2) for index in range(40)] + ["more"] * 7)
    train = draw(part, fraction).train
    assert {row.label for row in train.rows} == {row.label for row in part.rows}


@pytest.mark.parametrize("labels", [
    ["x", "y"] * 30, [float(index % 7) for index in range(60)],
    [("a", "b")[:index % 3] for index in range(60)]])
def test_a_split_depends_on_contents_and_not_on_the_order_of_rows(labels):
    part = part_of(labels)
    expected = contents(dev_split.stratified_split(part, 0.2).dev.rows)
    for seed in range(5):
        rows = random.Random(seed).sample(part.rows, len(part.rows))
        moved = [row._replace(line=line) for line, row in enumerate(rows, 2)]
        assert contents(dev_split.stratified_split(part._replace(rows=moved), 0.2).dev.rows) == expected


def test_a_split_is_the_same_on_each_machine():
    # These lines were recorded. If a new version drew other rows, models of both versions could not be
    # compared.
    dev = dev_split.stratified_split(part_of(["x", "y"] * 30), 0.2).dev
    assert [row.line for row in dev.rows] == [5, 6, 13, 18, 20, 24, 29, 45, 46, 47, 53, 60]


def test_scores_are_split_over_their_range():
    part = part_of([float(index * 37 % 100) for index in range(100)])
    dev = dev_split.stratified_split(part, 0.2).dev
    assert collections.Counter(int(row.label // 10) for row in dev.rows) == dict.fromkeys(range(10), 2)


def test_several_labels_are_split_by_the_rarest():
    labels = [("common", "rare") if index % 5 == 0 else ("common",) for index in range(50)] + [()] * 10
    dev = dev_split.stratified_split(part_of(labels), 0.2).dev
    counts = collections.Counter(row.label for row in dev.rows)
    assert counts == {("common", "rare"): 2, ("common",): 8, (): 2}


def test_the_same_texts_are_on_one_side_and_those_of_two_labels_stay():
    rows = [row_examples.Row(line, f"text {line // 3 % 20}", None,
                             "xy"[line // 3 % 2]) for line in range(120)]
    rows += [row_examples.Row(200 + line, "same", None, "xyz"[line]) for line in range(3)]
    train, dev, _ = dev_split.stratified_split(row_examples.Split("train.csv", rows, True), 0.3)
    assert len(dev.rows) == 36 and not {row.text_a for row in dev.rows} & {row.text_a for row in train.rows}
    assert collections.Counter(row.label for row in dev.rows) == {"x": 18, "y": 18}
    assert {row.line for row in train.rows} >= {200, 201, 202}
    pairs = [row_examples.Row(line, "same", f"text {line}", "xy"[line % 2]) for line in range(10)]
    assert len(dev_split.stratified_split(row_examples.Split("train.csv", pairs, True), 0.2).dev.rows) == 2


VARIANTS = [str.upper, str.title, lambda text: f"  {text}", lambda text: text.replace(" ", "\u00a0 "),
            lambda text: f"\ufeff{text}", lambda text: text.replace(" ", "\u200b "),
            lambda text: unicodedata.normalize("NFD", text)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_near_duplicates_are_on_one_side(variant):
    """Each of 40 texts occurs twice: unchanged, and in another spelling of the same text."""
    texts = [f"café weiß {chr(0x390)} {number}" for number in range(40)]
    rows = [row_examples.Row(index + 1, text, None, "xy"[index % 40 % 2])
            for index, text in enumerate([*texts, *map(variant, texts)])]
    assert len({row.text_a for row in rows}) == 80
    train, dev, _ = dev_split.stratified_split(row_examples.Split("train.csv", rows, True), 0.25)
    on_dev, on_train = ({(row.line - 1) % 40 for row in side.rows} for side in (dev, train))
    assert len(dev.rows) == 20 and not on_dev & on_train


def test_swapped_pairs_are_on_one_side():
    pairs = [(f"left {number}", f"right {number}") for number in range(40)]
    rows = [row_examples.Row(index + 1, *pair, "xy"[index % 40 % 2])
            for index, pair in enumerate([*pairs, *((second, first) for first, second in pairs)])]
    train, dev, _ = dev_split.stratified_split(row_examples.Split("train.csv", rows, True), 0.25)
    on_dev, on_train = ({(row.line - 1) % 40 for row in side.rows} for side in (dev, train))
    assert len(dev.rows) == 20 and not on_dev & on_train


def test_texts_that_differ_in_words_are_told_apart():
    texts = ["a cat", "a  cat s", "acat", "a cat.", "a càt", "a cat2", "a cat²"]
    assert len({text_keys.text_key(text) for text in texts}) == len(texts)
    assert text_keys.text_key("a", "b") != text_keys.text_key("a b") != text_keys.text_key("a", "c")
    assert text_keys.text_key("a") != text_keys.text_key("a", "")


def test_a_split_that_would_be_empty_is_refused():
    for labels, fraction, advice in ((["x", "y"] * 4, 0.01, r"csv\. Raise --dev_fraction, or name"),
                                     (["x", "y", "z"], 0.5, "csv, because none .* Name")):
        with pytest.raises(ValueError, match=rf"^--dev_fraction=.* of the \d examples in train."
                           f"{advice} a --dev_file"):
            dev_split.stratified_split(part_of(labels), fraction)


def test_the_rule_of_earlier_versions_is_kept():
    """The rule uses the seed and the positions of rows. Recorded from the last version without dev_rows.txt.
    """
    part = part_of(["x", "y"] * 30)
    lines = {seed: [row.line for row in dev_split.split_by_seed(part, 0.2, seed).dev.rows] for seed in (1, 2)}
    assert lines[1] == [7, 10, 15, 18, 28, 32, 38, 42, 49, 51, 53, 59]
    assert lines[1] != lines[2]
    scores = part_of([float(index * 37 % 100) for index in range(100)])
    assert [row.line for row in dev_split.split_by_seed(scores, 0.1, 3).dev.rows] == [
        23, 25, 26, 28, 48, 57, 74, 81, 86, 97]
    twins = part_of_texts("a", "a", *(f"text {number}" for number in range(20)))
    assert not {row.line for row in dev_split.split_by_seed(twins, 0.3, 1).dev.rows} & {1, 2}


# --- Storing and finding ---------------------------------------------------------------------------------

ROWS = [row_examples.Row(2, "a cat", None, "x"),
        row_examples.Row(3, "a \ud800 dog", "zwei\nZeilen", ("b", "a")),
        row_examples.Row(5, "7", None, 0.1)]


def found_in(rows, stored_rows=ROWS):
    text = dev_split.format_dev_rows(row_examples.Split("train.csv", stored_rows, True))
    part = row_examples.Split("new.csv", rows, True)
    return dev_split.split_by_dev_rows(part, dev_split.parse_dev_rows(text, "dev_rows.txt"), "dev_rows.txt")


def test_stored_rows_are_a_line_each_and_tell_rows_apart():
    text = dev_split.format_dev_rows(row_examples.Split("train.csv", ROWS, True))
    comment, header, *lines = text.splitlines()
    assert comment.startswith("# ") and header == "line\tdigest"
    assert [line.split("\t")[0] for line in lines] == ["2", "3", "5"]
    # This line was recorded, because later versions must be able to read the files of older trainings.
    assert lines[0] == "2\t7994d71fa6fc751bc3dccb3f95c714b8"
    others = [ROWS[0]._replace(label="y"), ROWS[0]._replace(text_b=""), ROWS[0]._replace(text_a="A cat"),
              ROWS[2]._replace(label="0.1"), ROWS[1]._replace(label=("a",))]
    assert len({dev_split.row_digest(row) for row in [*ROWS, *others]}) == 8
    assert dev_split.row_digest(ROWS[1]._replace(label=("a", "b"), line=9)) == dev_split.row_digest(ROWS[1])


def test_stored_rows_are_found_wherever_they_are():
    more = [row_examples.Row(1, "a bird", None, "x"), row_examples.Row(7, "7", None, 0.2)]
    rows = [more[0], ROWS[2]._replace(line=2), ROWS[0]._replace(line=3), ROWS[1]._replace(line=4)]
    train, dev, unused = found_in(rows)
    assert contents(dev.rows) == contents(ROWS) and train.rows == more[:1] and not unused
    assert [row.line for row in dev.rows] == [2, 3, 4]


def test_later_rows_with_the_texts_of_stored_ones_are_on_neither_side():
    later = [row_examples.Row(8, "A  Cat", None, "y"), row_examples.Row(9, "a cat", None, "x"),
             row_examples.Row(10, "zwei Zeilen", "a \ud800 dog", ("a",)),
             row_examples.Row(11, "a cats", None, "x")]
    train, dev, unused = found_in([*ROWS, *later])
    assert dev.rows == ROWS and unused == later[:3] and train.rows == later[3:]


def test_stored_twins_are_counted():
    twins = [ROWS[0], ROWS[0]._replace(line=4)]
    assert found_in([ROWS[0]._replace(line=9), *twins, *ROWS[1:]], twins).unused == [twins[1]]
    with pytest.raises(ValueError, match="new.csv lacks 1 of the 2 rows that dev_rows.txt lists"):
        found_in(ROWS, twins)


@pytest.mark.parametrize("rows", [
    ROWS[1:], [ROWS[0]._replace(label="y"), *ROWS[1:]], [ROWS[0]._replace(text_a="a  cat"), *ROWS[1:]]])
def test_a_stored_row_that_is_missing_or_was_changed_is_an_error(rows):
    with pytest.raises(ValueError, match="^new.csv lacks 1 of the 3 rows that dev_rows.txt lists. When "
                                         "the training started, one of these rows began in line 2"):
        found_in(rows)


@pytest.mark.parametrize("damage", [
    lambda text: "", lambda text: text[:-5], lambda text: text.split("\n", 1)[1],
    lambda text: text.replace("digest", "row"), lambda text: text.replace("\n2\t", "\n2 "),
    lambda text: text.replace("\n2\t", "\nx\t"), lambda text: "\n".join(text.split("\n")[:2]) + "\n"])
def test_damaged_rows_are_refused(damage):
    text = dev_split.format_dev_rows(row_examples.Split("train.csv", ROWS, True))
    assert len(dev_split.parse_dev_rows(text, "dev_rows.txt")) == 3
    with pytest.raises(ValueError, match="^dev_rows.txt is damaged"):
        dev_split.parse_dev_rows(damage(text), "dev_rows.txt")
