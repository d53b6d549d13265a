"""`bertlib.serving.load`: the answers of a model of each kind, from Python."""

import inspect
import threading
import types
import typing

from model_directories import TAGS, linear, write
import numpy as np
import pytest
import tiny

from bertlib import serving
from bertlib.tasks.pretraining import pretraining_head
import modeling


@pytest.fixture(scope="module")
def classifier(tiny_model, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("serving") / "pairs", tiny_model, "classification",
                 linear(3), ["no", "maybe", "yes"])
    with serving.load(str(path)) as predictor:
        yield predictor


def test_a_classifier_says_the_likeliest_label_and_all_probabilities(classifier):
    found = classifier("the cat sees a dog .", "the dog eats")
    assert list(found["probabilities"]) == ["no", "maybe", "yes"]
    assert sum(found["probabilities"].values()) == pytest.approx(1, abs=3e-6)
    assert found["label"] == max(found["probabilities"], key=found["probabilities"].get)
    assert found == classifier(text_b="the dog eats", text_a="the cat sees a dog .")
    assert found != classifier("the cat sees a dog .") != classifier("the dog eats")


def test_a_model_takes_as_many_texts_as_it_was_trained_on(tiny_model, tmp_path):
    path = write(tmp_path / "own", tiny_model, "classification", linear(2), ["no", "yes"], task="own data",
                 text_column="first,second")
    (tmp_path / "new.csv").write_text("id,first,second\n7,a cat,a dog\n")
    with serving.load(str(path)) as predictor:
        found, = predictor.read(str(tmp_path / "new.csv"))
        assert found.values == ("a cat", "a dog")
        with pytest.raises(ValueError, match="text_b is missing: the model was trained on pairs"):
            predictor("a cat")
    with serving.load(str(path), task="vectors") as predictor:
        assert predictor("a cat") != predictor("a cat", "a dog")


def test_threads_get_their_own_answers(classifier):
    texts = [" ".join(tiny.WORDS[start:start + 3]) for start in range(8)]
    alone = [classifier(text) for text in texts]
    found = [None] * len(texts)

    def ask(index):
        found[index] = [classifier(texts[index]) for _ in range(10)]

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[answer] * 10 for answer in alone]


@pytest.mark.parametrize("texts, problem", [
    ((" \t",), "text_a is empty"), (("\u200b",), "text_a is empty"), (("a", ""), "text_b is empty"),
    (("a", 0), "text_b is 0")])
def test_what_is_no_text_is_refused(classifier, texts, problem):
    with pytest.raises(ValueError, match=problem):
        classifier(*texts)


def test_texts_of_another_language_are_warned_of_when_the_predictor_is_closed(tiny_model, tmp_path, caplog):
    path = write(tmp_path / "own", tiny_model, "classification", linear(2), ["no", "yes"])
    with serving.load(str(path)) as predictor:
        predictor.answer([predictor.prepare("这部电影很好看"), predictor.prepare("电影", "坏电影")])
        assert "[UNK]" not in caplog.text
    assert caplog.text.count("the texts: 100 % of the tokens are [UNK], for example in '这部电影很好看'") == 1


def test_a_long_text_is_cut_or_becomes_windows_as_in_the_training(tiny_model, tmp_path):
    words = [word for word in tiny.WORDS[:24] for _ in range(3)]
    found = {}
    for stride in (0, 18):
        path = write(tmp_path / f"stride_{stride}", tiny_model, "classification", linear(2), ["no", "yes"],
                     doc_stride=stride)
        with serving.load(str(path)) as predictor:
            found[stride] = predictor(" ".join(words))["probabilities"]["no"]
            parts = [predictor(" ".join(words[start:start + 18]))["probabilities"]["no"]
                     for start in range(0, len(words), 18)]
    assert found[0] == parts[0]
    assert found[18] == pytest.approx(np.mean(parts), abs=2e-6)
    assert found[18] != found[0]


def test_a_tagger_has_a_tag_for_each_word_however_long_the_text(tiny_model, tmp_path):
    path = write(tmp_path / "tags", tiny_model, "tagging", {**linear(5), "crf/transitions": (5, 5)}, TAGS,
                 crf=True, tag_scheme="BIOES")
    with serving.load(str(path)) as predictor:
        for text in ("cats", "the unseen cats " * 15):
            found = predictor(text)
            assert found["words"] == text.split()
            assert len(found["tags"]) == len(found["words"])
            for entity in found["entities"]:
                start, end = entity["start_word"], entity["end_word"]
                assert entity["text"] == " ".join(found["words"][start:end])
                assert entity["text"] == text[entity["start"]:entity["end"]] and 0 < entity["score"] <= 1
                assert found["tags"][start] == f"{'BS'[end - start == 1]}-{entity['type']}"
        assert predictor(["the", "cat"]) == predictor("the cat")
        # As in the columns of CoNLL, other space characters of Unicode are a part of a word.
        assert predictor("the\u3000cat \u3000\tsees")["words"] == ["the\u3000cat", "\u3000", "sees"]
        assert predictor("\u3000")["words"] == ["\u3000"]
        with pytest.raises(ValueError, match="empty"):
            predictor(" ")


def test_a_text_is_split_as_the_training_text_was(tiny_model, tmp_path):
    head = {**linear(5), "output_bias": (5,)}
    path = write(tmp_path / "tags", tiny_model, "tagging", head, TAGS, word_splitting="punctuation")
    text = " The cat\u00a0sees\nthe  dog's bread."
    words = ["The", "cat", "sees", "the", "dog", "'s", "bread", "."]
    with serving.load(str(path)) as predictor:
        found, listed = predictor(text), predictor(words)
        with pytest.raises(ValueError, match="empty"):
            predictor("\u00a0")
    assert found["words"] == listed["words"] == words and found["tags"] == listed["tags"]
    assert found["entities"], "this model finds entities"
    joined = " ".join(words)
    for entity, other in zip(found["entities"], listed["entities"], strict=True):
        assert entity["text"] == text[entity["start"]:entity["end"]]
        assert other["text"] == joined[other["start"]:other["end"]] == " ".join(
            words[other["start_word"]:other["end_word"]])
        assert entity["text"].startswith(words[entity["start_word"]])
        assert entity["text"].endswith(words[entity["end_word"] - 1])
        names = ("type", "score", "start_word", "end_word")
        assert [entity[name] for name in names] == [other[name] for name in names]


def test_an_answer_is_a_part_of_the_context(tiny_model, tmp_path):
    head = {"cls/squad/output_weights": (2, 16), "cls/squad/output_bias": (2,)}
    path = write(tmp_path / "squad", tiny_model, "questions", head, task="SQuAD 2.0",
                 max_seq_length=20, doc_stride=4, max_query_length=6)
    context = "the old cat sees a dog . " * 4
    with serving.load(str(path)) as predictor:
        found = predictor("what sees the dog", context)
        assert found == predictor(context=context, question="what sees the dog")
        with pytest.raises(ValueError, match="context is empty"):
            predictor("what", " ")
        with pytest.raises(TypeError):
            predictor("what")
    if found["answer"]:
        assert found["answer"] == context[found["start"]:found["end"]]
    for threshold, is_null in ((found["null_odds"] - 1, True), (found["null_odds"] + 1, False)):
        (path / "eval_results.json").write_text(f'{{"null_score_diff_threshold": {threshold}}}')
        with serving.load(str(path)) as predictor:
            assert (predictor("what sees the dog", context)["answer"] == "") == is_null


@pytest.fixture(scope="module")
def pretrained(tiny_model, tmp_path_factory):
    """A pre-trained model with a padded vocab_size. The padding has larger logits than the words."""
    config = {**tiny.CONFIG, "vocab_size": 64}
    name = "bert/embeddings/word_embeddings"
    words = tiny_model.weights[name]
    weights = {**tiny_model.weights, name: np.concatenate([words, 9 * words[:64 - len(words)]])}
    return write(tmp_path_factory.mktemp("serving") / "pretrained",
                 types.SimpleNamespace(weights=weights, vocab=tiny_model.vocab), "pre-training",
                 pretraining_head.head_shapes(modeling.BertConfig.from_dict(config)), config=config)


def test_masked_words_have_the_likeliest_words_of_the_vocabulary(pretrained):
    with serving.load(str(pretrained)) as predictor:
        assert predictor.task == "masked_words"
        first, second = predictor("the [MASK] sees a [MASK] .")["masks"]
        for found in (first, second):
            assert len(found) == 5
            values = [candidate["probability"] for candidate in found]
            assert values == sorted(values, reverse=True) and values[0] > 0.2
            assert all(candidate["token"] in tiny.VOCABULARY for candidate in found)
        for text, problem in (("a cat", "no \\[MASK\\]"), ("cat " * 30 + "[MASK]", "beyond the 20 tokens")):
            with pytest.raises(ValueError, match=problem):
                predictor(text)


def test_any_model_gives_vectors(pretrained):
    with serving.load(str(pretrained), task="vectors") as predictor:
        found = np.array([predictor(text)["vector"] for text in ("a cat", "a cat .", "a cat")])
    assert found.shape == (3, 16)
    assert (found[0] == found[2]).all()
    assert (found[0] != found[1]).any()


def test_a_task_that_the_model_was_not_trained_for_is_refused(pretrained):
    with pytest.raises(ValueError, match="trained for pre-training"):
        serving.load(str(pretrained), task="classification")


def test_unknown_arguments_are_refused(classifier, pretrained, tmp_path):
    for arguments, message in ((dict(engine="onx"), "engine='onx' is unknown. Pass one of tensorflow, onnx, "
                                "tflite."), (dict(weights="bset"), "weights='bset' is unknown. Pass 'best'"),
                               (dict(engine="tflite"), "export_tflite contains no export")):
        with pytest.raises(ValueError, match=message):
            serving.load(str(pretrained), **arguments)
    (tmp_path / "texts.csv").write_text("text_a\na cat\n")
    with pytest.raises(TypeError, match="The flag 'text_columns' is unknown. The flags for the columns are "):
        list(classifier.read(str(tmp_path / "texts.csv"), text_columns="text_a"))


def test_the_interface_has_types(classifier, tmp_path):
    public = [method for name, method in vars(serving.Predictor).items()
              if inspect.isfunction(method) and (name in ("__init__", "__call__") or name[0] != "_")]
    for function in [serving.load, *public]:
        hints = typing.get_type_hints(function)
        assert set(inspect.signature(function).parameters) - {"self"} == set(hints) - {"return"}, function
        assert "return" in hints, function
    for name in ("task", "required", "checkpoint"):
        assert isinstance(getattr(classifier, name), typing.get_type_hints(serving.Predictor)[name])
    with pytest.raises(NotADirectoryError, match="there is no such directory"):
        serving.load(tmp_path / "nothing")
