"""Starts an HTTP server that answers inputs with a trained model. See `python serve.py --help`."""
from bertlib.commands import launch, serve

if __name__ == "__main__":
    launch.start(serve)
