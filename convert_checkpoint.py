"""Converts checkpoints of TensorFlow and Hugging Face. See `python convert_checkpoint.py --help`."""
from bertlib.commands import convert_checkpoint, launch

if __name__ == "__main__":
    launch.start(convert_checkpoint)
