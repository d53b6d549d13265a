"""Long texts as windows in a classification: how texts are cut, what is stored, how predictions are pooled.
"""

import random

import numpy as np

from bertlib.data import tfrecord_files
from bertlib.tasks import text_windows
from bertlib.tasks.classification import classification_target, classifier_features
import tokenization

VOCABULARY = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"])}


def test_windows_of_any_pair():
    chance = random.Random(3)
    for _ in range(300):
        a, b = ([f"{name}{index}" for index in range(chance.randint(0, 20))] for name in "ab")
        room, stride = chance.randint(0, 25), chance.randint(1, 12)
        windows = text_windows.cut_into_windows(a, b, room, stride)
        cut = list(a), list(b)
        classifier_features._truncate_seq_pair(*cut, room)
        assert text_windows.cut_into_windows(a, b, room, 0) == [cut]
        # The longer text is cut as SQuAD cuts a context. A stride beyond the window leaves no token out.
        longer = 0 if len(a) > len(b) else 1
        text, size, starts = (a, b)[longer], len(cut[longer]), [0]
        while size and starts[-1] + size < len(text):
            starts.append(starts[-1] + min(stride, size))
        parts = [(text[start:start + size], cut[1 - longer]) for start in starts]
        assert windows == [part[::-1] if longer else part for part in parts]


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
    found = text_windows.pooled(rows, [1, 3, 2])
    for row, windows in zip(found, (rows[:1], rows[1:4], rows[4:]), strict=True):
        for name in row:
            mean = np.mean([window[name] for window in windows], axis=0, dtype=np.float64)
            assert row[name].dtype == np.float32 and (row[name] == np.float32(mean)).all()  # rounded once
    assert text_windows.pooled([], []) == []
