"""Learns a WordPiece vocabulary from text. `python build_vocab.py --help` says how."""
from bertlib.commands import build_vocab, launch

if __name__ == "__main__":
    launch.start(build_vocab)
