"""The files of an output directory: the record of the training, the vocabulary, the labels, the model."""
