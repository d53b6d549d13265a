"""The development set of --dev_fraction: how it is drawn, stored and found again."""

import collections
import random
import unicodedata

from hypothesis import given
from hypothesis import strategies as some
import pytest

from bertlib.data import labelled_rows, text_keys
from bertlib.tasks.classification import dev_split


def base_split(labels):
    rows = [labelled_rows.Row(index + 1, (f"text {index}",), label) for index, label in enumerate(labels)]
    return labelled_rows.ExampleFile("train.csv", rows, True)


def lines(part):
    return {row.line for row in part.rows}


def contents(rows):
    """Returns sorted rows without their line numbers."""
    return sorted((row[1:] for row in rows), key=repr)


# --- Drawing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_dev, count", [(False, 1), (True, 4)])
def test_the_development_set_has_half_to_twice_the_share_of_a_label(from_dev, count):
    """All ten rows of x are in the training set, or in the development set, if all rows have one label."""
    drawn = lines(dev_split.draw_split(base_split("y" * 100), 0.2).dev)
    rare = [line for line in range(1, 101) if (line in drawn) == from_dev][:10]
    dev = dev_split.draw_split(base_split(["xy"[line not in rare] for line in range(1, 101)]), 0.2).dev
    assert collections.Counter(row.label for row in dev.rows)["x"] == count


def test_corrected_labels_move_no_row_to_the_other_set_and_added_rows_move_few():
    chance = random.Random(5)
    part = base_split([chance.choice("abc") for _ in range(500)])
    dev = lines(dev_split.draw_split(part, 0.2).dev)
    # Many corrections are in the development set, because its errors were read in the report.
    corrected = {*chance.sample(sorted(dev), 20), *chance.sample(range(1, 501), 20)}
    rows = [row._replace(label="c") if row.line in corrected else row for row in part.rows]
    assert lines(dev_split.draw_split(part._replace(rows=rows), 0.2).dev) == dev
    rows += base_split("abcab" * 110).rows[500:]
    again = lines(dev_split.draw_split(part._replace(rows=rows), 0.2).dev)
    assert len(dev ^ {line for line in again if line <= 500}) <= 3


# Other spellings of the same text.
VARIANTS = [str, str.upper, str.title, lambda text: f"  {text}", lambda text: text.replace(" ", "\u00a0 "),
            lambda text: f"\ufeff{text}", lambda text: text.replace(" ", "\u200b "),
            lambda text: unicodedata.normalize("NFD", text)]
LABELS = [some.sampled_from("xyz"), some.integers(0, 6).map(float),
          some.lists(some.sampled_from("ab"), unique=True).map(tuple)]


@some.composite
def splits(draw):
    """A `Split` of texts or pairs. Some of the texts are equal, or are spellings of the same text."""
    texts = some.builds(lambda number, spell: spell(f"café weiß {chr(0x390)} {number}"), some.integers(0, 30),
                        some.sampled_from(VARIANTS))
    pairs = some.tuples(texts, draw(some.sampled_from([some.none(), texts])))
    labels = draw(some.sampled_from(LABELS))
    rows = draw(some.lists(some.tuples(pairs, labels), min_size=4, max_size=40))
    return labelled_rows.ExampleFile("train.csv", [labelled_rows.Row(line, pair, label)
                                            for line, (pair, label) in enumerate(rows, 2)], True)


def shuffled(rows, chance):
    """Returns the rows in another order, with new line numbers."""
    return [row._replace(line=line) for line, row in enumerate(chance.sample(rows, len(rows)), 2)]


def keys(part):
    return set(map(dev_split.text_key_of_row, part.rows))


@given(whole=splits(), fraction=some.floats(0.02, 0.5), chance=some.randoms())
def test_both_sets_have_no_common_text_and_depend_only_on_the_rows(whole, fraction, chance):
    try:
        train, dev, unused = dev_split.draw_split(whole, fraction)
    except ValueError as error:
        assert f"--dev_fraction={fraction} selects none of the {len(whole.rows)} examples in" in str(error)
        return
    assert sorted([*train.rows, *dev.rows]) == whole.rows and not unused and dev.rows
    assert not keys(train) & keys(dev)
    again = dev_split.draw_split(whole._replace(rows=shuffled(whole.rows, chance)), fraction)
    assert contents(again.dev.rows) == contents(dev.rows)


@given(whole=splits(), more=splits(), chance=some.randoms())
def test_stored_rows_are_found_in_a_file_that_was_shuffled_and_got_more_rows(whole, more, chance):
    try:
        train, dev, _ = dev_split.draw_split(whole, 0.3)
    except ValueError:
        return
    stored = dev_split.format_dev_rows(dev)
    changed = whole._replace(rows=shuffled([*whole.rows, *more.rows], chance))
    found = dev_split.find_rows(changed, stored, "dev_rows.txt")
    assert contents(found.dev.rows) == contents(dev.rows)
    assert sorted([*found.train.rows, *found.dev.rows, *found.unused]) == changed.rows
    labels = [row.label for row in whole.rows]
    corrected = whole._replace(rows=[row._replace(label=chance.choice(labels)) for row in whole.rows])
    for changed in ("", "--encoding=a"):  # a spreadsheet program may write another encoding
        assert lines(dev_split.find_rows(corrected, stored, "dev_rows.txt", changed).dev) == lines(dev)
    assert not keys(found.train) & keys(found.dev)
    assert set(map(dev_split.text_key_of_row, found.unused)) <= keys(dev)
    lost = chance.choice(dev.rows)
    fewer = whole._replace(rows=[row for row in whole.rows if row != lost])
    with pytest.raises(ValueError, match="^train.csv lacks 1 of the .* rows that dev_rows.txt lists"):
        dev_split.find_rows(fewer, stored, "dev_rows.txt")
    with pytest.raises(ValueError, match="these flags, which change rows or labels: --encoding=a. Pass"):
        dev_split.find_rows(fewer, stored, "dev_rows.txt", "--encoding=a")


def test_texts_that_differ_in_words_are_told_apart():
    texts = ["a cat", "acat", "a cat.", "a càt", "a cat²"]
    assert len({text_keys.text_key(text) for text in texts}) == len(texts)
    assert text_keys.text_key("a", "b") != text_keys.text_key("a b") != text_keys.text_key("a", "c")
    assert text_keys.text_key("a") != text_keys.text_key("a", "")


@pytest.mark.parametrize("text", ["Stra\u00dfe", "\u0390", "\ufb01n"])
def test_letter_case_makes_no_other_text(text):
    assert text != text.upper().lower() and text_keys.text_key(text) == text_keys.text_key(text.upper())


def test_a_split_that_would_be_empty_is_refused():
    for labels, fraction, advice in ((["x", "y"] * 4, 0.01, r"csv\. Raise --dev_fraction, or name"),
                                     (["x", "y", "z"], 0.5, "csv, because none .* Name")):
        with pytest.raises(ValueError, match=rf"^--dev_fraction=.* of the \d examples in train."
                           f"{advice} a --dev_file"):
            dev_split.draw_split(base_split(labels), fraction)


# --- Storing and finding ---------------------------------------------------------------------------------

ROWS = [labelled_rows.Row(2, ("a cat",), "x"),
        labelled_rows.Row(3, ("a \ud800 dog", "zwei\nZeilen"), ("b", "a")),
        labelled_rows.Row(5, ("7",), 0.1)]


# A line of a file that has no digests of texts. It belongs to the first of the `ROWS`.
OLD_LINE = "2\t7994d71fa6fc751bc3dccb3f95c714b8"


def test_stored_rows_are_a_line_each_and_tell_rows_apart():
    text = dev_split.format_dev_rows(labelled_rows.ExampleFile("train.csv", ROWS, True))
    comment, header, *stored = text.splitlines()
    assert comment.startswith("# ") and header == "line\tdigest\ttexts"
    assert [line.split("\t")[0] for line in stored] == ["2", "3", "5"]
    # This line was recorded, because later versions must be able to read the files of older trainings.
    assert stored[0] == f"{OLD_LINE}\tfe43e8ede1c998284c748d621eccb5ec"
    others = [ROWS[0]._replace(label="y"), ROWS[0]._replace(texts=("a cat", "")),
              ROWS[1]._replace(label=("a",)), ROWS[2]._replace(label="0.1")]
    assert len({dev_split.row_digest(row) for row in [*ROWS, *others]}) == 7
    assert dev_split.row_digest(ROWS[1]._replace(label=("a", "b"), line=9)) == dev_split.row_digest(ROWS[1])


def test_files_without_digests_of_texts_are_read_and_need_unchanged_labels():
    file, stored = labelled_rows.ExampleFile("train.csv", ROWS, True), f"# \nline\tdigest\n{OLD_LINE}\n"
    assert dev_split.find_rows(file, stored, "dev_rows.txt").dev.rows == ROWS[:1]
    corrected = file._replace(rows=[ROWS[0]._replace(label="y"), *ROWS[1:]])
    with pytest.raises(ValueError, match="lacks 1 of the 1 rows .* texts or labels were changed"):
        dev_split.find_rows(corrected, stored, "dev_rows.txt")


def test_labels_that_flags_have_changed_are_no_corrected_labels():
    file = labelled_rows.ExampleFile("train.csv", ROWS, True)
    changed = file._replace(rows=[ROWS[0]._replace(label="y"), *ROWS[1:]])
    with pytest.raises(ValueError, match="flags, which change rows or labels: --label_map=a"):
        dev_split.find_rows(changed, dev_split.format_dev_rows(file), "dev_rows.txt", "--label_map=a", True)


# --- Texts of an earlier training ------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [2, 3])
def test_the_texts_of_an_earlier_training_are_found(columns, tmp_path, caplog):
    """The training file has a bad line, which was logged in the training. The first rows are its development
    set. In dev_rows.txt of older versions, a line has two columns."""
    rows = [labelled_rows.Row(line, (f"text {line}",), "x") for line in range(2, 202)]
    path = tmp_path / "train.csv"
    path.write_text("text;label\n" + "".join(f"{row.text_a};{row.label}\n" for row in rows) + "bad\n")
    stored = dev_split.format_dev_rows(labelled_rows.ExampleFile(path, rows[:100], True)).splitlines()
    (tmp_path / "dev_rows.txt").write_text(
        "\n".join("\t".join(line.split("\t")[:columns]) for line in stored))
    record = {"dev_rows": {"rows": 100}, "task_type": "classification", "files": {"train_file": path},
              "settings": {"text_column": "text", "label_column": "label", "skip_bad_lines": True}}
    asked = set(map(dev_split.text_key_of_row, [*rows[90:110], rows[-1]._replace(texts=("new",))]))
    caplog.set_level("INFO")
    found = dev_split.find_trained(str(tmp_path), record, str(path), asked)
    assert found == set(map(dev_split.text_key_of_row, rows[100:110])) and not caplog.records
