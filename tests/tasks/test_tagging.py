"""tagging.py: the loss over tagged tokens with and without a CRF, micro-batches, training, and predictions.
"""

import functools
import itertools

from helpers import comparable
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import input_pipeline
from bertlib.estimator import estimator
from bertlib.estimator.step_config import StepConfig
from bertlib.tasks.tagging import tagging_data, tagging_head
from bertlib.tasks.tagging.tagging_data import Sentence
import modeling
import tokenization

LABELS = ["B-A", "B-B", "O"]
CONFIG = modeling.BertConfig.from_dict({**tiny.CONFIG, "num_hidden_layers": 1, "hidden_dropout_prob": 0.0,
                                        "attention_probs_dropout_prob": 0.0})
both = pytest.mark.parametrize("use_crf", [False, True], ids=["each", "crf"])

# --- Loss and predictions of one batch -------------------------------------------------------------------


class Encoder:
    """A fake BERT whose last layer is a constant."""

    def __init__(self, sequence):
        self._sequence = tf.constant(sequence)

    def get_sequence_output(self):
        return self._sequence


BATCH, LENGTH, WIDTH = 3, 6, 5


def example():
    """Returns (last layer, weights, transitions, features)."""
    chance = np.random.RandomState(2)
    mask = np.array([[0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0]], np.int32)
    features = {"tag_ids": chance.randint(0, 3, [BATCH, LENGTH]).astype(np.int32), "tag_mask": mask,
                "word_mask": mask * np.array([1, 1, 1, 1, 0, 1], np.int32)}
    return (*(chance.standard_normal(shape).astype(np.float32)
              for shape in ([BATCH, LENGTH, WIDTH], [3, WIDTH], [3, 3])), features)


def built(mode, use_crf, micro_batches=1, **more):
    """Returns (values of the head's outputs for `example`, {variable of the head: shape})."""
    sequence, weights, transitions, features = example()
    with tf.Graph().as_default(), tf.Session() as session:
        features = {name: tf.constant(value) for name, value in {**features, **more}.items()}
        outputs = tagging_head.Tagger(3, use_crf).build(CONFIG, Encoder(sequence), features, mode,
                                                        micro_batches)
        session.run(tf.global_variables_initializer())
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        variables["output_weights"].load(weights, session)
        if use_crf:
            variables["crf/transitions"].load(transitions, session)
        found = dict(outputs.predictions) if outputs.loss is None else {"loss": outputs.loss}
        shapes = {name: tuple(variable.shape.as_list()) for name, variable in variables.items()}
        return session.run(found), shapes


def by_counting(use_crf):
    """Yields, for each sequence, its loss and its best tags at the tagged tokens.

    They are found by enumerating all sequences of tags.
    """
    sequence, weights, transitions, features = example()
    for row in range(BATCH):
        places = np.flatnonzero(features["tag_mask"][row])
        scores = (sequence[row] @ weights.T)[places].astype(np.float64)
        totals = {}
        for tags in itertools.product(range(3), repeat=len(places)):
            totals[tags] = scores[np.arange(len(places)), tags].sum()
            if use_crf:
                totals[tags] += sum(transitions[pair] for pair in zip(tags, tags[1:]))
        log_norm = np.log(np.sum(np.exp(list(totals.values()))))
        right = tuple(features["tag_ids"][row, places].tolist())
        yield log_norm - totals[right], dict(zip(places.tolist(), max(totals, key=totals.get)))


@both
def test_predictions_are_the_best_tags_of_the_words(use_crf):
    found, shapes = built(estimator.ModeKeys.PREDICT, use_crf)
    assert shapes == tagging_head.head_shapes(modeling.BertConfig(9, hidden_size=WIDTH), 3, use_crf)
    for row, (loss, best) in enumerate(by_counting(use_crf)):
        words = [place for place in best if example()[3]["word_mask"][row, place]]
        assert found["num_words"][row] == len(words)
        assert found["tags"][row, :len(words)].tolist() == [best[place] for place in words]
        assert found["loss"][row] == pytest.approx(loss, rel=1e-5)


@both
def test_the_probability_of_a_tag_is_that_of_all_sequences_with_it(use_crf):
    found, _ = built(estimator.ModeKeys.PREDICT, use_crf)
    sequence, weights, transitions, features = example()
    for row in range(BATCH):
        places = np.flatnonzero(features["tag_mask"][row])
        scores, sums = (sequence[row] @ weights.T)[places].astype(np.float64), np.zeros([len(places), 3])
        for tags in itertools.product(range(3), repeat=len(places)):
            score = scores[np.arange(len(places)), tags].sum()
            score += sum(transitions[pair] for pair in zip(tags, tags[1:])) if use_crf else 0
            sums[np.arange(len(places)), tags] += np.exp(score)
        expected = dict(zip(places.tolist(), sums / sums.sum(axis=1, keepdims=True)))
        words = np.flatnonzero(features["word_mask"][row])
        best = found["tags"][row, :len(words)]
        np.testing.assert_allclose(found["probabilities"][row, :len(words)],
                                   [expected[word][tag] for word, tag in zip(words, best)], rtol=1e-5)


def test_it_is_said_if_no_entity_was_predicted():
    none, some = [["O", "O"], ["O"]], [["O", "B-A"], ["B-A"]]
    assert "No entity was predicted, but the data has 2." in tagging_head.no_entity_warning(some, none)
    assert tagging_head.no_entity_warning(none, none) is None
    assert tagging_head.no_entity_warning(some, [["B-B", "O"], ["O"]]) is None


@both
def test_the_loss_is_a_mean_over_the_tagged_tokens_of_the_step(use_crf, monkeypatch):
    monkeypatch.setattr(modeling, "dropout", lambda tensor, _: tensor)
    losses = [loss for loss, _ in by_counting(use_crf)]
    found, _ = built(estimator.ModeKeys.TRAIN, use_crf)
    assert found["loss"] == pytest.approx(sum(losses) / example()[3]["tag_mask"].sum(), rel=1e-5)
    found, _ = built(estimator.ModeKeys.TRAIN, use_crf, 4, tag_mask_total=np.int32(30))
    assert found["loss"] == pytest.approx(4 * sum(losses) / 30, rel=1e-5)


# --- Training --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentences():
    """Sentences in which the tag depends only on the word."""
    chance, tags = np.random.RandomState(1), {"sees": "B-A", "song": "B-A", "the": "B-B"}
    found = [chance.choice(["sees", "song", "the", "cats", "breads"], chance.randint(1, 14)).tolist()
             for _ in range(64)]
    return [Sentence(words, [tags.get(word, "O") for word in words], []) for words in found]


@pytest.fixture(scope="module")
def records(sentences, tiny_model, tmp_path_factory):
    tokenizer = tokenization.FullTokenizer(str(tiny_model.vocab))
    made = tagging_data.make_windows(sentences, LABELS, tokenizer, tiny.SEQ_LENGTH)
    path = str(tmp_path_factory.mktemp("records") / "train.tf_record")
    tagging_data.write_windows(list(itertools.chain.from_iterable(made)), tiny.SEQ_LENGTH, path)
    return path


def trained(records, tiny_model, directory, use_crf, steps, trim=True, **changes):
    """Trains for some steps, and returns the Estimator."""
    step = StepConfig(train_batch_size=16, max_seq_length=tiny.SEQ_LENGTH, trims_training=trim, **changes)
    model_fn = tagging_head.model_fn_builder(CONFIG, 3, use_crf, str(tiny_model.checkpoint), 0.01, steps, 0,
                                             False, False)
    tagger = estimator.Estimator(model_fn, config=estimator.RunConfig(model_dir=str(directory),
                                                                      step_config=step),
                                 train_batch_size=16, predict_batch_size=16)
    return tagger.train(tagging_head.input_fn_builder(records, tiny.SEQ_LENGTH, True, True, trim,
                                                      step.unequal_micro_batches), max_steps=steps)


@pytest.fixture(scope="module")
def weights_after(records, tiny_model, tmp_path_factory):
    """A function with the arguments of `trained` that returns the weights after two steps. It is cached."""
    @functools.cache
    def train(use_crf, **changes):
        tagger = trained(records, tiny_model, tmp_path_factory.mktemp("weights"), use_crf, 2, **changes)
        return comparable({name: tagger.get_variable_value(name) for name in tagger.get_variable_names()})
    return train


_IN_PARTS_ELSEWHERE = ("trains with and without; test_accumulation.py has other heads, and test_packing.py "
                       "the encoder")


@pytest.mark.parametrize("use_crf, changes", [
    pytest.param(False, dict(gradient_accumulation_steps=4),
                 marks=pytest.mark.soak(reason=_IN_PARTS_ELSEWHERE)),
    pytest.param(True, dict(remove_padding=True), marks=pytest.mark.soak(reason=_IN_PARTS_ELSEWHERE)),
    pytest.param(True, dict(gradient_accumulation_steps=3, tokens_per_micro_batch=100),
                 marks=pytest.mark.slow(reason=_IN_PARTS_ELSEWHERE))],
    ids=["equal", "packed", "unequal"])
def test_micro_batches_make_the_step_of_the_whole_batch(use_crf, changes, weights_after, monkeypatch):
    monkeypatch.setattr(modeling, "dropout", lambda tensor, _: tensor)
    whole, parts = weights_after(use_crf), weights_after(use_crf, **changes)
    assert set(whole) == set(parts)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.slow(reason="trains a tagger; test_run_ner.py has one that learns with a CRF")
@pytest.mark.parametrize("use_crf", [
    pytest.param(False, marks=pytest.mark.soak(reason="trains once more, without the CRF")), True])
def test_it_learns_and_tags_all_words_in_order(use_crf, sentences, records, tiny_model, tmp_path):
    tagger = trained(records, tiny_model, tmp_path, use_crf, 120)
    for trim in (True, False):
        rows = input_pipeline.restore_file_order(tagger.predict(
            tagging_head.input_fn_builder(records, tiny.SEQ_LENGTH, False, False, trim)))
        tags = [LABELS[tag] for row in rows for tag in row["tags"][:row["num_words"]]]
        expected = [tag for sentence in sentences for tag in sentence.tags]
        assert len(tags) == len(expected)
        assert np.mean([tag == other for tag, other in zip(tags, expected)]) > 0.95
