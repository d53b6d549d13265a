"""Learns a WordPiece vocabulary from text. See `python build_vocab.py --help`."""
from bertlib.commands import build_vocab, launch

if __name__ == "__main__":
    launch.start(build_vocab)
