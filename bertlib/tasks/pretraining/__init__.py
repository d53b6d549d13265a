"""Pre-training: instances with masked words from a corpus, and the two heads."""
