"""Measures the time of training steps in TensorFlow's Model Garden, for benchmarks/compare.py. The model has
random weights.

    python benchmarks/peers/model_garden.py SETTINGS        (JSON; see compare.py)

In addition to TensorFlow and tf_keras, only these packages are needed:

    pip install --no-deps tf-models-official gin-config scipy
"""

import json
import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from official.nlp import optimization
from official.nlp.modeling import models, networks
from stopwatch import measure
import tensorflow as tf
import tf_keras


def step(settings):
    """Trains a classifier on one random batch without padding."""
    if settings["precision"] == "bf16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    config, shape = settings["config"], (settings["batch_size"], settings["length"])
    encoder = networks.BertEncoder(
        vocab_size=config["vocab_size"], hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"], inner_dim=config["intermediate_size"],
        type_vocab_size=config["type_vocab_size"])
    model = models.BertClassifier(encoder, num_classes=2)
    optimizer = optimization.create_optimizer(5e-5, 1000, 100)
    loss_of = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    random = np.random.RandomState(0)
    inputs = {"input_word_ids": tf.constant(random.randint(1000, config["vocab_size"], shape), tf.int32),
              "input_mask": tf.ones(shape, tf.int32), "input_type_ids": tf.zeros(shape, tf.int32)}
    labels = tf.constant(random.randint(0, 2, shape[:1]))

    @tf.function
    def train(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, tf.cast(model(inputs, training=True), tf.float32))
        gradients = tape.gradient(loss, model.trainable_variables)
        # This optimizer also clips the gradients to the norm 1.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    measure(lambda: train(inputs, labels).numpy(), settings["warm_up"], settings["count"])


def main():
    """Measures the training step with the settings of the command line."""
    step(json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
