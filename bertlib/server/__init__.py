"""Contains the HTTP server for a trained model: `http_server`, `http_app` and `request_batches`."""
