"""Runs of the two classifier commands: data, labels, class weights, training and evaluation."""
