"""Implements the runs of the two classifier commands: data, labels, class weights, training, evaluation."""
