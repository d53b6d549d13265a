"""An export that takes text gives each row of a batch the predictor's answer for this row alone."""

import random
import types

from model_directories import TAGS, linear, write
import numpy as np
import pytest
from test_export import MODELS, task_of, written
import tiny

from bertlib import serving
from bertlib.reports import answer_differences
from bertlib.runs import registry, trained_model
from bertlib.serving import export_text
from bertlib.tasks.tagging import tag_schemes
import tf1

WORDS = ["cat", "dogly", "catsed", "un", "gardens", "manedly", "the", "sees", ".", "xyz"]
NO_TOKENS = "\ufffd"  # not empty, but the tokenizer removes this character
NAMES = [name for name in MODELS if registry.find_answers(task_of(name)).exports_texts]


class Export:
    """The predictor and the text export of a model."""

    def __init__(self, name, directory, tiny_model, task=None):
        # Smaller weights than those of `tiny_model`, so that rounding changes no answer by 1e-5.
        weights = {variable: array / 4 if variable.endswith("kernel") else array
                   for variable, array in tiny_model.weights.items()}
        model = types.SimpleNamespace(weights=weights, vocab=tiny_model.vocab)
        self.model = written(directory / name, model, name)
        self.path = export_text.export(self.model, str(directory / "export"), task)
        self.predictor = serving.Predictor(self.model, task)

    def signature(self, name):
        return tf1.contrib.predictor.from_saved_model(self.path, name)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tiny_model):
    return Export("classification", tmp_path_factory.mktemp("texts"), tiny_model)


def words_of(chance):
    length = tiny.SEQ_LENGTH
    size = chance.choice([0, chance.randint(1, 8), chance.randint(1, length), chance.randint(1, 4 * length)])
    return [chance.choice(WORDS) for _ in range(size)]


def check_texts(export, count):
    """Compares the answers to pairs, and to single texts, with the predictor's answers."""
    chance = random.Random(count)
    for texts_of_input in (2, 1):
        inputs = [tuple(" ".join(words_of(chance)) for _ in range(texts_of_input)) for _ in range(16 * count)]
        expected = [export.predictor(texts[0] or NO_TOKENS, *filter(None, texts[1:])) for texts in inputs]
        exported = export_text.answer(export.path, inputs, export.predictor.answers)
        found = answer_differences.compare(expected, exported)
        assert (found.inputs, found.mismatches) == (len(exported), 0) and 0 < found.largest < 1e-5
    columns = {"text_a": [text for text, in inputs], "text_b": [""] * len(inputs)}
    of_pairs = export.signature("serving_default")(columns)
    for name, values in export.signature("text_a")({"text_a": columns["text_a"]}).items():
        np.testing.assert_array_equal(of_pairs[name], values)


def check_words(export, count):
    """Words that do not fit have no tag. The other words have the predictor's tags for these words alone."""
    chance = random.Random(count)
    of_text, of_words = export.signature("serving_default"), export.signature("words")
    for _ in range(count):
        batch = [words_of(chance) for _ in range(chance.randint(1, 32))]
        longest = max(map(len, batch)) + chance.randint(0, 2)
        padded = [words + [""] * (longest - len(words)) for words in batch]
        tags = of_words({"words": np.array(padded, object).reshape(len(batch), longest)})["tags"]
        found = of_text({"text": [" ".join(words) for words in batch]})
        assert found["words"].tolist() == [
            [word.encode() for word in row[:found["words"].shape[1]]] for row in padded]
        np.testing.assert_array_equal(tags[:, :found["tags"].shape[1]], found["tags"])
        assert not tags[:, found["tags"].shape[1]:].any() and tags.shape == np.shape(padded)
        for words, row in zip(batch, tags):
            fitting = words[:fit(export.model, words)]
            expected = export.predictor(fitting)["tags"] if fitting else []
            row = [tag.decode() for tag in row]
            assert tag_schemes.convert_scheme(row[:len(fitting)]) == expected, batch
            assert not any(row[len(fitting):])


def fit(model, words):
    """Returns the number of words that fit into one sequence of the model."""
    room = model.max_seq_length - 2
    sizes = np.cumsum([len(model.tokenizer.tokenize(word)) for word in words])
    return int(np.sum(sizes <= room))


def test_each_row_of_a_batch_is_answered_as_if_it_were_alone(classifier):
    check_texts(classifier, 6)
    for signature in ("serving_default", "text_a"):
        function = classifier.signature(signature)
        answer = function({name: np.zeros(0, object) for name in function.feed_tensors})
        assert answer and {len(values) for values in answer.values()} == {0}


@pytest.mark.slow(reason="exports of all heads, and many batches of each; a classifier is shown above")
@pytest.mark.parametrize("name, task", [*((name, None) for name in NAMES), ("tagging", "vectors")])
def test_each_row_of_many_batches_is_answered_as_if_it_were_alone(name, task, tmp_path, tiny_model):
    export = Export(name, tmp_path, tiny_model, task)
    check = check_words if export.predictor.task == "tagging" else check_texts
    check(export, 100)


def test_the_log_says_that_an_exported_tagger_splits_only_at_spaces(tmp_path, tiny_model, caplog):
    caplog.set_level("INFO", "absl")
    path = write(tmp_path / "model", tiny_model, "tagging", linear(5), TAGS, word_splitting="punctuation")
    export_text.export(trained_model.read(str(path)), str(tmp_path / "export"))
    assert "splits a text only at spaces. Put spaces around punctuation marks." in caplog.text
