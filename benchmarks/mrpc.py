"""Fine-tunes on real MRPC with several seeds, and prints accuracy and F1 on dev, CPU seconds and peak memory.

    python benchmarks/mrpc.py --data_dir=$GLUE_DIR/MRPC [--seeds=3] [--results=NAME] \\
      [any flag of run_classifier.py]

Each seed is a run of run_classifier.py, started as a user would start it. One run takes about 7 CPU minutes.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

import results

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECIPE = ["--task_name=MRPC", "--do_train=true", "--do_eval=true", "--max_seq_length=128",
          "--train_batch_size=32", "--learning_rate=5e-5", "--num_train_epochs=3"]


def cpu_seconds():
    """Returns the CPU seconds (user and system) of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_once(data_dir, seed, flags):
    """Runs run_classifier.py once.

    Returns a dict: the names and values in eval_results.txt, as strings, and "cpu", the CPU seconds of the
    run.
    """
    with tempfile.TemporaryDirectory() as output_dir:
        before = cpu_seconds()
        subprocess.run([sys.executable, os.path.join(ROOT, "run_classifier.py"), *RECIPE,
                        f"--data_dir={data_dir}",
                        f"--seed={seed}", f"--output_dir={output_dir}", *flags], check=True)
        with open(os.path.join(output_dir, "eval_results.txt"), encoding="utf-8") as reader:
            metrics = dict(line.rstrip("\n").split(" = ", 1) for line in reader)
        return {**metrics, "cpu": cpu_seconds() - before}


def main():
    """Prints a row for each seed, and the means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    recorder = results.Recorder(arguments.results,
                                {"accuracy": "", "f1": "", "cpu": "CPU s", "largest_peak": "GB"})
    rows = []
    for seed in range(arguments.seeds):
        result = run_once(arguments.data_dir, seed, flags)
        rows.append([float(result["eval_accuracy"]), float(result["eval_f1"]), result["cpu"]])
        print(f"seed {seed}  accuracy {rows[-1][0]:.4f}  F1 {rows[-1][1]:.4f}  CPU {rows[-1][2]:.0f} s",
              flush=True)
        recorder.add(seed=seed, **dict(zip(("accuracy", "f1", "cpu"), rows[-1])))
    means = [sum(column) / len(column) for column in zip(*rows)]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"mean    accuracy {means[0]:.4f}  F1 {means[1]:.4f} "
          f" CPU {means[2]:.0f} s  peak memory {peak:.0f} MiB")
    recorder.add(largest_peak=peak * 2**20 / 1e9)
    recorder.write()


if __name__ == "__main__":
    main()
