"""An example of a new head: token tagging with its data and metrics. The tests follow below."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import batches, input_pipeline
from bertlib.estimator import estimator
from bertlib.estimator.step_config import StepConfig
from bertlib.tasks import head
import modeling

SEQUENCES = ("input_mask", "input_ids", "segment_ids", "tag_ids")


class Tagger:
    """Predicts a tag for each token; see `head`. Features: tag_ids, int32 [B, F], -1 if there is no word."""

    modes = (estimator.ModeKeys.TRAIN, estimator.ModeKeys.EVAL, estimator.ModeKeys.PREDICT)
    first_token_only = False

    def __init__(self, tags):
        self._tags = tags

    def shapes(self, bert_config):
        return {"output_weights": (len(self._tags), bert_config.hidden_size),
                "output_bias": (len(self._tags),)}

    def build(self, bert_config, model, features, mode, micro_batches):
        del bert_config, micro_batches
        sequence = model.get_sequence_output()  # [B, F, W]
        if mode == estimator.ModeKeys.TRAIN:
            sequence = modeling.dropout(sequence, 0.1)
        weights = tf.get_variable("output_weights", [len(self._tags), sequence.shape[-1]],
                                  initializer=modeling.create_initializer(0.02))
        bias = tf.get_variable("output_bias", [len(self._tags)], initializer=tf.zeros_initializer())
        logits = tf.einsum("bfw,tw->bft", sequence, weights) + bias  # [B, F, tags]
        tags = tf.argmax(logits, -1, output_type=tf.int32)  # [B, F]
        counts = tf.cast(features["tag_ids"] >= 0, tf.float32)  # [B, F]
        labels = tf.maximum(features["tag_ids"], 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        # Each example has the same weight. So micro-batches of equal size give the same step as the whole
        # batch.
        loss = tf.reduce_mean(tf.reduce_sum(losses * counts, 1) / tf.maximum(tf.reduce_sum(counts, 1), 1.0))
        return head.HeadOutputs(loss, {"tags": tags}, (self.metrics, [labels, tags, counts]))

    def metrics(self, labels, tags, counts):
        """Returns accuracy, and precision and recall of all tags except the first one (no entity)."""
        found, right = (tf.cast(values > 0, tf.float32) for values in (tags, labels))
        hits = tf.cast(tf.equal(tags, labels), tf.float32) * right
        return {"accuracy": tf.metrics.accuracy(labels, tags, counts),
                "precision": tf.metrics.mean(hits, found * counts),
                "recall": tf.metrics.mean(hits, right * counts)}


def read_conll(path):
    """Yields the sentences of a file as ([word], [tag]).

    A line of the file is "word tag". There is a blank line after each sentence.
    """
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        words, tags = zip(*(line.split() for line in block.splitlines()))
        yield list(words), list(tags)


def features_of(sentences, tokenizer, tags, seq_length):
    """Returns the input arrays of the model, [examples, F].

    The first piece of a word has the tag of the word.
    """
    arrays = {name: [] for name in ("input_ids", "input_mask", "segment_ids", "tag_ids")}
    for words, names in sentences:
        pieces = [tokenizer.tokenize(word) for word in words]
        tokens = ["[CLS]", *[piece for word in pieces for piece in word], "[SEP]"][:seq_length]
        ids = [-1,
               *[tag for word, name in zip(pieces, names)
                 for tag in [tags.index(name), *[-1] * (len(word) - 1)]], -1]
        padding = [0] * (seq_length - len(tokens))
        arrays["input_ids"].append(tokenizer.convert_tokens_to_ids(tokens) + padding)
        arrays["input_mask"].append([1] * len(tokens) + padding)
        arrays["segment_ids"].append([0] * seq_length)
        arrays["tag_ids"].append((ids + [-1] * seq_length)[:seq_length])
    return {name: np.array(rows, np.int32) for name, rows in arrays.items()}


def input_fn_builder(arrays, is_training):
    def input_fn(params):
        return input_pipeline.array_dataset(arrays, params["batch_size"], is_training,
                                            drop_remainder=is_training,
                                            micro_batches=params.get("gradient_accumulation_steps", 1),
                                            trimmed_fields=SEQUENCES)
    return input_fn


# --- Tests: a new task needs only the code above ---------------------------------------------------------

TAGS = ["O", "PER", "LOC"]


class Words:
    """A tokenizer for which each word is a token."""

    def tokenize(self, word):
        return [word]

    def convert_tokens_to_ids(self, tokens):
        return [tiny.VOCABULARY.index(token) for token in tokens]


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """The input arrays of sentences in which the tag depends only on the word."""
    chance, path = np.random.RandomState(1), tmp_path_factory.mktemp("conll") / "train.txt"
    sentences = [chance.choice(tiny.WORDS[:12], size=chance.randint(3, 9)) for _ in range(64)]
    path.write_text("\n\n".join("\n".join(f"{word} {TAGS[tiny.WORDS.index(word) % 3]}" for word in words)
                                for words in sentences) + "\n")
    return features_of(read_conll(path), Words(), TAGS, tiny.SEQ_LENGTH)


def trained(arrays, tiny_model, directory, steps=40, **changes):
    step = StepConfig(train_batch_size=16, max_seq_length=tiny.SEQ_LENGTH, trim_padding=True, **changes)
    config = modeling.BertConfig.from_dict({**tiny.CONFIG, "num_hidden_layers": 1, "hidden_dropout_prob": 0.0,
                                            "attention_probs_dropout_prob": 0.0})
    model_fn = head.model_fn_builder(Tagger(TAGS), config, None, 0.01, steps, 2, False, False)
    tagger = estimator.Estimator(model_fn,
                                 config=estimator.RunConfig(model_dir=str(directory), step_config=step),
                                 train_batch_size=16, eval_batch_size=16, predict_batch_size=16)
    return tagger.train(input_fn_builder(arrays, True), max_steps=steps)


def test_a_head_learns_is_evaluated_and_predicts(arrays, tiny_model, tmp_path):
    tagger = trained(arrays, tiny_model, tmp_path)
    found = tagger.evaluate(input_fn_builder(arrays, False))
    assert min(found["accuracy"], found["precision"], found["recall"]) > 0.95
    predicted = list(batches.restore_file_order(tagger.predict(input_fn_builder(arrays, False))))
    tags = np.array([np.pad(row["tags"], (0, tiny.SEQ_LENGTH - len(row["tags"]))) for row in predicted])
    counts = arrays["tag_ids"] >= 0
    assert (tags == arrays["tag_ids"])[counts].mean() == pytest.approx(found["accuracy"], abs=1e-6)


def test_a_mode_that_a_head_does_not_have_is_refused(graph):
    model_fn = head.model_fn_builder(Tagger(TAGS), None, None, 0.01, 1, 0, False, False)
    with pytest.raises(ValueError,
                       match="The mode is 'other', but this model has only the modes 'train', 'eval'"):
        model_fn({}, None, "other", {})
