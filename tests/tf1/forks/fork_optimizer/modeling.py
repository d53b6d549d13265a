"""A fork's own encoder. Its variables have the published names, so that the published checkpoints fit."""

import json
import math

import tensorflow as tf


class BertConfig(object):
    """The settings of a configuration file, as attributes."""

    def __init__(self, **settings):
        self.__dict__.update(settings)

    @classmethod
    def from_json_file(cls, path):
        with tf.gfile.GFile(path, "r") as reader:
            return cls(**json.loads(reader.read()))


def gelu(x):
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def normalize(x):
    return tf.contrib.layers.layer_norm(inputs=x, begin_norm_axis=-1, begin_params_axis=-1, scope="LayerNorm")


def drop(x, rate):
    return x if not rate else tf.nn.dropout(x, keep_prob=1.0 - rate)


class Encoder(object):
    """The layers of one input. `pooled` is [B, W], `sequence` is [B, F, W]."""

    def __init__(self, config, is_training, input_ids, input_mask, segment_ids):
        self._config = config
        self._hidden_dropout = config.hidden_dropout_prob if is_training else 0.0
        self._attention_dropout = config.attention_probs_dropout_prob if is_training else 0.0
        self._initializer = tf.truncated_normal_initializer(stddev=config.initializer_range)
        with tf.variable_scope("bert"):
            with tf.variable_scope("embeddings"):
                x = self._embed(input_ids, segment_ids)
            # [B, 1, 1, F]
            closed = (1.0 - tf.to_float(input_mask[:, tf.newaxis, tf.newaxis, :])) * -10000.0
            with tf.variable_scope("encoder"):
                for index in range(config.num_hidden_layers):
                    with tf.variable_scope(f"layer_{index}"):
                        x = self._layer(x, closed)
            self.sequence = x
            with tf.variable_scope("pooler"):
                self.pooled = self._dense(tf.squeeze(x[:, 0:1, :], axis=1), config.hidden_size,
                                          activation=tf.tanh)

    def _dense(self, x, units, name="dense", activation=None):
        return tf.layers.dense(x, units, activation=activation, name=name,
                               kernel_initializer=self._initializer)

    def _embed(self, input_ids, segment_ids):
        config = self._config
        width = config.hidden_size
        words = tf.get_variable("word_embeddings", [config.vocab_size, width], initializer=self._initializer)
        segments = tf.get_variable("token_type_embeddings", [config.type_vocab_size, width],
                                   initializer=self._initializer)
        positions = tf.get_variable("position_embeddings", [config.max_position_embeddings, width],
                                    initializer=self._initializer)
        length = input_ids.shape[1].value
        x = tf.gather(words, input_ids)
        x += tf.tensordot(tf.one_hot(segment_ids, depth=config.type_vocab_size), segments, axes=1)
        x += tf.expand_dims(tf.slice(positions, [0, 0], [length, -1]), 0)
        return drop(normalize(x), self._hidden_dropout)

    def _layer(self, x, closed):
        config = self._config
        with tf.variable_scope("attention"):
            with tf.variable_scope("self"):
                attended = self._attend(x, closed)
            with tf.variable_scope("output"):
                x = normalize(x + drop(self._dense(attended, config.hidden_size), self._hidden_dropout))
        with tf.variable_scope("intermediate"):
            inner = self._dense(x, config.intermediate_size, activation=gelu)
        with tf.variable_scope("output"):
            return normalize(x + drop(self._dense(inner, config.hidden_size), self._hidden_dropout))

    def _attend(self, x, closed):
        heads = self._config.num_attention_heads
        width = self._config.hidden_size
        shape = tf.shape(x)

        def project(name):
            # [B, N, F, H]
            projected = tf.reshape(self._dense(x, width, name=name),
                                   [shape[0], shape[1], heads, width // heads])
            return tf.transpose(projected, [0, 2, 1, 3])

        query, key, value = project("query"), project("key"), project("value")
        scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(width / heads) + closed
        weights = drop(tf.nn.softmax(scores, dim=-1), self._attention_dropout)
        mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return tf.reshape(mixed, [shape[0], shape[1], width])
