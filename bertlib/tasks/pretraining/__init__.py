"""Pre-training: the instances with masked words that are made from a corpus, and the two heads that are
trained on these instances."""
