"""Fine-tunes on SQuAD with several seeds: exact match and F1 on dev, CPU seconds.

    python benchmarks/squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json [--seeds=3] [flags of run_squad.py]

Each seed is a run of run_squad.py as a user would start it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Few questions: more epochs, a smaller batch and a higher rate than the published recipe.
RECIPE = ["--do_train=true", "--do_eval=true", "--max_seq_length=384", "--doc_stride=128", "--train_batch_size=16",
          "--learning_rate=1e-4", "--num_train_epochs=4"]


def run_once(seed, flags):
    """Runs the script; returns (exact match, F1, CPU seconds)."""
    with tempfile.TemporaryDirectory() as output_dir:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, os.path.join(ROOT, "run_squad.py"), *RECIPE, f"--seed={seed}",
                        f"--output_dir={output_dir}", *flags], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(os.path.join(output_dir, "eval_results.json"), encoding="utf-8") as reader:
            scores = json.load(reader)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return scores.get("exact_match", scores.get("exact")), scores["f1"], cpu


def main():
    """Prints a row a seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    arguments, flags = parser.parse_known_args()
    rows = []
    for seed in range(arguments.seeds):
        rows.append(run_once(seed, flags))
        print("seed {}  exact match {:.2f}  F1 {:.2f}  CPU {:.0f} s".format(seed, *rows[-1]), flush=True)
    print("mean    exact match {:.2f}  F1 {:.2f}  CPU {:.0f} s".format(*(sum(column) / len(column) for column in zip(*rows))))


if __name__ == "__main__":
    main()
