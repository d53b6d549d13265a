"""Fine-tunes BERT to tag words, such as those of names. `python run_ner.py --help` says how."""
from bertlib.command_line import launch

from bertlib.commands import run_ner

if __name__ == "__main__":
    launch.start(run_ner)
