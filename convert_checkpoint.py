"""Converts checkpoints of TensorFlow and Hugging Face. `python convert_checkpoint.py --help` says how."""
from bertlib.commands import convert_checkpoint, launch

if __name__ == "__main__":
    launch.start(convert_checkpoint)
