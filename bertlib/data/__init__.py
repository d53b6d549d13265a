"""Training data: records of examples, their encoding, and the input pipeline."""
