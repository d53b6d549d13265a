"""Answers of a trained model over HTTP: batches of requests, the interface, and the network connections."""
