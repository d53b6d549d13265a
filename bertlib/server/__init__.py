"""The HTTP server of a trained model: batches of requests, the interface, and the network connections."""
