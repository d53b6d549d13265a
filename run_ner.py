"""Fine-tunes BERT to tag words, for example names. See `python run_ner.py --help`."""
from bertlib.commands import launch, run_ner

if __name__ == "__main__":
    launch.start(run_ner)
