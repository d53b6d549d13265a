"""Training data: TFRecord files of examples, their encoding, and the input pipeline."""
