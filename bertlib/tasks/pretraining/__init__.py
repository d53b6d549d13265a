"""Pre-training: makes instances with masked words from a corpus; the two heads of the pre-training."""
