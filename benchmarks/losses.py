"""Records the first steps of a training without dropout: their batches and their losses.

A second script takes the same steps with Hugging Face's BERT, and prints the largest difference between the
losses.

    python benchmarks/losses.py --data_dir=$GLUE_DIR/MRPC --output=/tmp/losses.npz [--steps=50] \\
      [--results=NAME]
    python benchmarks/peers/hf_losses.py MODEL_DIR /tmp/losses.npz

The second command needs torch and transformers. Features, order of the data, model, optimizer and the
schedule of 3 epochs are those of run_classifier.py.
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import bertlib.commands  # noqa: F401  graph mode

from absl import app, flags
import numpy as np
import results
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.estimator import estimator
from bertlib.runs import model_config
from bertlib.tasks import head
from bertlib.tasks.classification import classifier_data
import modeling
import run_classifier
import tokenization

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Directory with the data of MRPC.", required=True)
flags.DEFINE_string("output", None, "The .npz file to write.", required=True)
flags.DEFINE_integer("steps", 50, "Number of steps to record.")
flags.DEFINE_string("results", None, "Store the losses as benchmarks/results/NAME.json.")
BATCH_SIZE, LENGTH, RATE, EPOCHS, SEED = 32, 128, 5e-5, 3, 0


class LossRecorder(tf.train.SessionRunHook):
    """Keeps the loss of each step."""

    def __init__(self):
        self.losses = []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(run_context.original_args.fetches[1])

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))


def main(_):
    """Trains. Then writes the batches, the losses, the schedule and the initial weights of the head."""
    store = results.Recorder(FLAGS.results, {"loss": ""})
    directory = model_config.find_installed_model()
    config = modeling.BertConfig.from_json_file(os.path.join(directory, "config.json"))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    head._DROPOUT = 0.0
    tokenizer = tokenization.FullTokenizer(os.path.join(directory, "vocab.txt"))
    processor = classifier_data.MrpcProcessor()
    features = classifier_data.convert_examples_to_features(
        processor.get_train_examples(FLAGS.data_dir), processor.get_labels(), LENGTH, tokenizer)
    total = int(len(features) / BATCH_SIZE * EPOCHS)
    model_fn = run_classifier.model_fn_builder(config, 2, directory, RATE, total, total // 10, False, False)
    recorder = LossRecorder()
    with tempfile.TemporaryDirectory() as model_dir:
        classifier = estimator.Estimator(model_fn, config=estimator.RunConfig(model_dir, tf_random_seed=SEED),
                                         train_batch_size=BATCH_SIZE)
        classifier.train(run_classifier.input_fn_builder(features, LENGTH, True, True), hooks=[recorder],
                         max_steps=FLAGS.steps)
        start = tf.train.load_checkpoint(os.path.join(model_dir, "model.ckpt-0"))
        weights = start.get_tensor("output_weights")
    order = np.stack([input_pipeline.batch_of_step(step, BATCH_SIZE, len(features), SEED)
                      for step in range(FLAGS.steps)])
    columns = {name: np.array([getattr(feature, name) for feature in features])[order]
               for name in ("input_ids", "input_mask", "segment_ids", "label_id")}
    np.savez_compressed(FLAGS.output, losses=recorder.losses, output_weights=weights, total_steps=total,
                        learning_rate=RATE, **columns)
    for step, loss in enumerate(recorder.losses):
        store.add(step=step, loss=loss)
    store.write()


if __name__ == "__main__":
    app.run(main)
