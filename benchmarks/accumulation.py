"""Measures how much the number of micro-batches in a batch changes the trained model.

    python benchmarks/accumulation.py [--splits=1,2,4,8,16,32] [--steps=20] [--results=NAME] \\
      [flags of run_classifier.py]

The script runs run_classifier.py once for each number N of micro-batches, with dropout. Let w_N be the
weights after a training with N micro-batches, and w_0 the initial weights. The script prints ‖w_N − w_1‖ /
‖w_1 − w_0‖ over all variables of the model, and the CPU seconds and the peak memory of each training.
"""

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

import results

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH_SIZE = 32


def train(directory, splits, steps, flags):
    """Trains, and returns (CPU seconds, peak memory in GB, gradient norms of the steps)."""
    examples = (ROOT / "samples" / "MRPC" / "train.tsv").read_bytes().count(b"\n") - 1
    command = [sys.executable, str(ROOT / "run_classifier.py"), "--task_name=MRPC", "--max_seq_length=128",
               "--do_train=true", "--trim_padding=false", f"--train_batch_size={BATCH_SIZE}",
               f"--num_train_epochs={(steps + 0.5) * BATCH_SIZE / examples}",
               f"--output_dir={directory}", f"--gradient_accumulation_steps={splits}", "--log_steps=1",
               *flags]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    norms = [float(text) for text in re.findall(r"gradient_norm (\S+)", done.stderr)]
    memory = max(float(text) for text in re.findall(r"peak_memory_gb (\S+)", done.stderr))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, memory, norms


def weights(checkpoint):
    """Returns {name: array} of the variables of the model."""
    import tensorflow.compat.v1 as tf
    reader = tf.train.load_checkpoint(checkpoint)
    names = [name for name in reader.get_variable_to_shape_map()
             if not re.search(r"/adam_[mv]$|^global_step$", name)]
    return {name: reader.get_tensor(name) for name in names}


def distance(first, second):
    """Returns the Euclidean distance between two sets of variables, each {name: array}."""
    return sum(((first[name].astype("float64") - second[name]) ** 2).sum() for name in first) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", default="1,2,4,8,16,32")
    parser.add_argument("--steps", type=int, default=20)
    results.add_flag(parser)
    options, flags = parser.parse_known_args()
    recorder = results.Recorder(options.results, {"distance": "", "cpu": "CPU s", "peak": "GB",
                                                  "smallest_norm": "", "largest_norm": ""})
    start = whole = None
    print(f"{'micro-batches':>13} {'distance':>10} {'CPU s':>7} {'peak GB':>8}  gradient norms")
    for splits in map(int, options.splits.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            seconds, memory, norms = train(directory, splits, options.steps, flags)
            found = weights(os.path.join(directory, f"model.ckpt-{options.steps}"))
            if whole is None:
                start, whole = weights(os.path.join(directory, "model.ckpt-0")), found
        relative = distance(found, whole) / distance(whole, start)
        print(f"{splits:>13} {relative:>10.1e} {seconds:>7.1f} {memory:>8.2f}  {min(norms):.2f} to "
              f"{max(norms):.2f}",
              flush=True)
        recorder.add(micro_batches=splits, distance=float(relative), cpu=seconds, peak=memory,
                     smallest_norm=min(norms), largest_norm=max(norms))
    recorder.write()


if __name__ == "__main__":
    main()
