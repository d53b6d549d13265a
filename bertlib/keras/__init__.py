"""Offers the BERT encoder as a Keras layer, for code in TensorFlow 2.

    from bertlib.keras import BertEncoder

    encoder = BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")
    outputs = encoder({"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids})
    outputs["pooled_output"]    # float32 [B, W]

The layer is a layer of `tf.keras`. Normally, `tf.keras` is Keras 3. If the environment variable
TF_USE_LEGACY_KERAS is 1 when TensorFlow is imported, `tf.keras` is Keras 2 from the package tf_keras. The
layer does not turn off eager execution.
"""

from bertlib.keras.encoder import BertEncoder

__all__ = ["BertEncoder"]
