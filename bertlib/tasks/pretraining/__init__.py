"""Pre-training: makes instances with masked words from a corpus, and builds the two heads that are trained on
these instances."""
