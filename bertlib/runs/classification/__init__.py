"""Runs of the two commands that classify: data, labels, class weights, training and evaluation."""
