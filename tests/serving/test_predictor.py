"""`bertlib.serving.load`: the answers of a model of each kind, from Python."""

import concurrent.futures
import types

from helpers import write_json
from model_directories import TAGS, linear, record, write, write_classifier
import numpy as np
import pytest
import tiny

from bertlib import serving
from bertlib.tasks.pretraining import pretraining_head
import modeling


@pytest.fixture(scope="module")
def classifier(classifier_dir):
    with serving.load(classifier_dir) as predictor:
        yield predictor


def test_a_model_takes_as_many_texts_as_it_was_trained_on(tiny_model, tmp_path, caplog):
    path = write_classifier(tmp_path / "own", tiny_model, task="own data", text_column="first,second")
    (tmp_path / "new.csv").write_text("id,first,second\n7,a cat,a dog\n")
    with serving.load(path) as predictor:
        found, = predictor.read(str(tmp_path / "new.csv"))
        assert found.values == ("a cat", "a dog")
        with pytest.raises(ValueError, match=r"^text_b is missing\.$"):
            predictor("a cat", None)
        with pytest.raises(ValueError, match="text_a is missing"):
            predictor(text_b="a dog")
        for texts, by_name in ((), {"first": "a cat", "third": "a dog"}), (("a cat",), {"first": "a dog"}):
            with pytest.raises(TypeError, match=r"text_a, text_b \(or: first, second\)\. Pass each"):
                predictor(*texts, **by_name)
        with pytest.raises(TypeError, match="The flag 'text_columns' is unknown. The flags for the columns "):
            list(predictor.read(str(tmp_path / "new.csv"), text_columns="first"))
        # A warning about texts of another language is shown when the predictor is closed.
        predictor.answer([predictor.prepare("这部电影很好看", "电影"), predictor.prepare("电影", "坏电影")])
        assert "[UNK]" not in caplog.text
    with pytest.raises(RuntimeError, match=r"^the predictor is closed\. Load the model again\."):
        predictor("a cat", "a dog")
    assert caplog.text.count("the texts: 100 % of the tokens are [UNK], for example in '这部电影很好看'") == 1


def test_a_list_of_texts_needs_the_method_for_several_inputs(classifier):
    texts = ["a cat", "a dog"]
    for several in texts, tuple(texts), np.array(texts):
        with pytest.raises(ValueError, match=r"be a text\. A call takes one input\. For several inputs,"):
            classifier(several)
    for unprepared in texts, "a cat", [("a cat", "a dog")]:
        with pytest.raises(TypeError, match=r"takes a list of results of `prepare`\. For several inputs,"):
            classifier.answer(unprepared)


def test_a_model_with_one_type_of_segments_takes_no_pairs(tiny_model, tmp_path):
    name = "bert/embeddings/token_type_embeddings"
    model = types.SimpleNamespace(weights={**tiny_model.weights, name: tiny_model.weights[name][:1]},
                                  vocab=tiny_model.vocab)
    path = write_classifier(tmp_path / "single", model, config={**tiny.CONFIG, "type_vocab_size": 1})
    with serving.load(path) as predictor:
        assert predictor("a cat")["label"] in ("no", "yes")
        with pytest.raises(ValueError, match="^text_b: the model cannot distinguish the second text"):
            predictor("a cat", "a dog")


def test_threads_get_their_own_answers(classifier):
    texts = [" ".join(tiny.WORDS[start:start + 3]) for start in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(classifier, texts * 10)) == list(map(classifier, texts)) * 10


def test_a_long_text_is_cut_or_becomes_windows_as_in_the_training(classifier, tiny_model, tmp_path):
    words = [word for word in tiny.WORDS[:24] for _ in range(3)]
    path = write_classifier(tmp_path / "windows", tiny_model, task="own data", text_column="body",
                            doc_stride=18)
    with serving.load(path) as predictor:
        found, *parts = (predictor(" ".join(part))["probabilities"]["no"]
                         for part in (words, *(words[start:start + 18] for start in range(0, 72, 18))))
        assert predictor("a cat", None) == predictor("a cat", text_b=None) == predictor("a cat")
        with pytest.raises(TypeError, match=r"texts of an input are text_a \(or: body, text\)\."):
            predictor("a cat", "a dog")
    assert classifier(" ".join(words))["probabilities"]["no"] == parts[0] != found
    assert found == pytest.approx(np.mean(parts), abs=2e-6)


def test_a_tagger_has_a_tag_for_each_word_however_long_the_text(tiny_model, tmp_path):
    path = write(tmp_path / "tags", tiny_model, "tagging", {**linear(5), "crf/transitions": (5, 5)}, TAGS,
                 crf=True, tag_scheme="BIOES")
    with serving.load(path) as predictor:
        for text in ("cats", "the unseen cats " * 15):
            found = predictor(text)
            assert found["words"] == text.split()
            assert len(found["tags"]) == len(found["words"]) and found["prediction"] == found["tags"]
            for entity in found["entities"]:
                start, end = entity["start_word"], entity["end_word"]
                assert entity["text"] == " ".join(found["words"][start:end]) and 0 < entity["score"] <= 1
                assert found["tags"][start] == f"{'BS'[end - start == 1]}-{entity['type']}"
        for name in ("text", "tokens", "words"):
            assert predictor(**{name: ["the", "cat"]}) == predictor("the cat")
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
    with serving.load(path) as predictor:
        found, listed = predictor(text), predictor(words)
        with pytest.raises(ValueError, match="empty"):
            predictor("\u00a0")
    assert found["words"] == listed["words"] == words and found["tags"] == listed["tags"]
    assert found["entities"], "this model finds entities"
    for its_text, answer in ((text, found), (" ".join(words), listed)):
        assert [its_text[start:end] for start, end in answer["word_spans"]] == words
        for entity in answer["entities"]:
            (start, _), *_, (_, end) = 2 * answer["word_spans"][entity["start_word"]:entity["end_word"]]
            assert (entity["start"], entity["end"], entity["text"]) == (start, end, its_text[start:end])


def test_an_answer_is_a_part_of_the_context_and_uses_the_threshold_of_the_evaluation(tiny_model, tmp_path):
    """An evaluation of best/ writes its results into the output directory."""
    head = {"cls/squad/output_weights": (2, 16), "cls/squad/output_bias": (2,)}
    path, context = tmp_path / "squad", "the old cat sees a dog . " * 4
    for directory in (path, path / "best"):
        write(directory, tiny_model, "questions", head, task="SQuAD 2.0", doc_stride=4, max_query_length=6,
              keep_best="f1")
    write_json(path / "best" / "best.json", {
        "metric": "f1", "step": 7, "value": 50.0, "first_step": 0, "training": record()["started"],
        "earlier": []})
    with serving.load(path) as predictor:
        found = predictor("what sees the dog", context)
        assert found == predictor(context=context, question="what sees the dog")
        with pytest.raises(ValueError, match="context is empty"):
            predictor("what", " ")
        with pytest.raises(ValueError, match="context is missing"):
            predictor("what")
    assert found["prediction"] == found["answer"] == context[found["start"]:found["end"]]
    # The other side of the odds has the other answer.
    threshold = found["null_odds"] + (-1 if found["answer"] else 1)
    write_json(path / "eval_results.json", {"null_score_diff_threshold": threshold})
    with serving.load(path) as predictor:
        assert predictor.checkpoint.startswith(str(path / "best"))
        assert bool(predictor("what sees the dog", context)["answer"]) != bool(found["answer"])


@pytest.fixture(scope="module")
def pretrained(tiny_model, tmp_path_factory):
    """A pre-trained model with a padded vocab_size. The padding has larger logits than the words."""
    config = {**tiny.CONFIG, "vocab_size": 64}
    name = "bert/embeddings/word_embeddings"
    words = tiny_model.weights[name]
    weights = {**tiny_model.weights, name: np.concatenate([words, 9 * words[:64 - len(words)]])}
    head = pretraining_head.PretrainingHead().shapes(modeling.BertConfig.from_dict(config))
    return write(tmp_path_factory.mktemp("serving") / "pretrained",
                 types.SimpleNamespace(weights=weights, vocab=tiny_model.vocab), "pre-training", head,
                 config=config)


def test_masked_words_have_the_likeliest_words_of_the_vocabulary(pretrained):
    with serving.load(pretrained) as predictor:
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
    with serving.load(pretrained, task="vectors") as predictor:
        found, other, again, pair = (np.array(predictor(*texts)["vector"]) for texts in (
            ["a cat"], ["a cat ."], ["a cat"], ["a cat", "."]))
    assert found.shape == (16,) and (found == again).all()
    assert (found != other).any() and (other != pair).any()


@pytest.mark.parametrize("arguments, message", [
    (dict(task="classification"), "trained for pre-training"),
    (dict(engine="onx"), "engine='onx' is unknown. Pass one of tensorflow, onnx, tflite."),
    (dict(weights="bset"), "weights='bset' is unknown. Pass 'best'"),
    (dict(engine="tflite"), "export_tflite contains no export"),
    (dict(model_dir="nothing"), "there is no such directory")])
def test_wrong_arguments_are_refused(arguments, message, pretrained):
    with pytest.raises((ValueError, NotADirectoryError), match=message):
        serving.load(**{"model_dir": pretrained, **arguments})
