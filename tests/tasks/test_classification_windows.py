"""Long texts as windows in a classification: how texts are cut, what is stored, how predictions are pooled.
"""

import numpy as np
import pytest

from bertlib.data import tfrecord_files
from bertlib.tasks import text_windows
from bertlib.tasks.classification import classification_target, classifier_features
import tokenization

VOCABULARY = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"])}


@pytest.mark.parametrize("first, second, room, stride, windows", [
    ("abcdef", "", 3, 2, ["abc|", "cde|", "ef|"]), ("abcdef", "", 3, 0, ["abc|"]),
    ("abcdef", "", 2, 9, ["ab|", "cd|", "ef|"]),  # a large stride leaves no token out
    ("ab", "uvwxyz", 5, 2, ["ab|uvw", "ab|wxy", "ab|yz"]), ("abcdef", "uv", 5, 3, ["abc|uv", "def|uv"]),
    ("abcd", "wxyz", 4, 1, ["ab|wx", "ab|xy", "ab|yz"]),  # of equally long texts, the second one is cut
    ("abc", "xyz", 6, 1, ["abc|xyz"]), ("abc", "", 0, 1, ["|"])])
def test_the_longer_text_of_a_pair_is_cut_into_windows(first, second, room, stride, windows):
    found = text_windows.cut_into_windows(list(first), list(second), room, stride)
    assert ["|".join(map("".join, pair)) for pair in found] == windows
    truncated = list(first), list(second)
    classifier_features._truncate_seq_pair(*truncated, room)
    assert found[0] == truncated


TARGET = classification_target.SingleLabel(["0", "1"])


def examples_of(texts):
    return [classifier_features.InputExample(f"train-{index}", text, None, "01"[index % 2])
            for index, text in enumerate(texts)]


def test_what_is_stored_and_how_long_the_texts_were():
    texts = ["a b c", "a b c d e f", "h", ""] * 300  # more texts than a worker gets at a time
    conversion = classifier_features.FeatureRecords(
        examples_of(texts), TARGET, 5, tokenization.FullTokenizer(VOCABULARY), 2, doc_stride=2)
    rows = [tfrecord_files.parse_features(record) for record in conversion]
    stored = [(list(row["input_ids"].int64_list.value), row["label_ids"].int64_list.value[0]) for row in rows]
    expected = [("a b c", 0), ("a b c", 1), ("c d e", 1), ("e f", 1), ("h", 0), ("", 1)]
    assert stored == [([VOCABULARY[word] for word in ["[CLS]", *text.split(), "[SEP]"]]
                       + [0] * (3 - len(text.split())), label) for text, label in expected] * 300
    assert conversion.windows == [1, 3, 1, 1] * 300
    assert conversion.lengths == [5, 8, 3, 2] * 300


def test_kept_records_are_those_that_are_written(tmp_path):
    written = []
    for keep in (False, True):
        conversion = classifier_features.FeatureRecords(examples_of(["a b c d e", "a"]), TARGET, 4,
                                                        tokenization.FullTokenizer(VOCABULARY), doc_stride=1)
        if keep:
            assert conversion.cache() == 5
        conversion.write(str(tmp_path / "records"))
        written.append((tmp_path / "records").read_bytes())
        assert conversion.windows == [4, 1]
    assert written[0] == written[1]


# --- Pooling ---------------------------------------------------------------------------------------------


def test_predictions_of_a_text_are_the_means_of_its_windows():
    generator = np.random.RandomState(0)
    rows = [{"probabilities": generator.random_sample(3).astype(np.float32),
             "scores": np.float32(generator.standard_normal())} for _ in range(6)]
    found = text_windows.mean_over_windows(rows, [1, 3, 2])
    for row, windows in zip(found, (rows[:1], rows[1:4], rows[4:]), strict=True):
        for name in row:
            mean = np.mean([window[name] for window in windows], axis=0, dtype=np.float64)
            assert row[name].dtype == np.float32 and (row[name] == np.float32(mean)).all()  # rounded once
    assert text_windows.mean_over_windows([], []) == []
