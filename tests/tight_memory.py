"""Runs run_classifier.py with a simulated limit: micro-batches of more than --most examples have no memory.
"""

from bertlib.commands import launch

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
import run_classifier

FLAGS = flags.FLAGS
flags.DEFINE_integer("most", 2, "Larger micro-batches run out of memory.")


class Model(modeling.BertModel):
    """A model that runs out of memory in training if the micro-batch is too large."""

    def __init__(self, config, is_training, input_ids, *args, **kwargs):
        def allocate(ids):
            if is_training and len(ids) > FLAGS.most:
                raise MemoryError("that is too much")  # TensorFlow turns it into a ResourceExhaustedError
            return ids

        shape = input_ids.shape
        input_ids = tf.numpy_function(allocate, [input_ids], tf.int32)
        input_ids.set_shape(shape)
        super().__init__(config, is_training, input_ids, *args, **kwargs)


if __name__ == "__main__":
    modeling.BertModel = Model
    launch.run(run_classifier.main)
