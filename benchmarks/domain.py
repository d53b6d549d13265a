"""Compares the models of docs/tutorials/domain.md, on the tutorial's text and task.

    python benchmarks/domain.py --work=DIR [--seeds=3] [--results=NAME]

The script runs the commands of the page in DIR, up to the fine-tuning. Then it fine-tunes each model of
`MODELS` once for each seed, with the flags of the page. A run that is complete in DIR is not repeated, so the
same command continues an interrupted benchmark.
"""

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys

import results

PAGE = os.path.join(results.ROOT, "docs", "tutorials", "domain.md")
UNITS = {"masked_lm_accuracy": "", "masked_lm_loss": "", "accuracy": "", "cpu": "CPU s"}
# {name of a model: flags with the paths of its files}
MODELS = {
    "default": [],
    "extended": ["--init_checkpoint=data/extended"],
    "continued": ["--init_checkpoint=output/continued"],
    "random": ["--bert_config_file=data/extended/bert_config.json", "--vocab_file=data/extended/vocab.txt"]}


def read_page():
    """Reads the commands of the tutorial `PAGE`.

    Returns:
      (bash program with all commands before the fine-tuning, list of the flags of the fine-tuning). The list
      does not contain --init_checkpoint, --seed and --output_dir.
    """
    with open(PAGE, encoding="utf-8") as reader:
        blocks = re.findall(r"```(bash|python)\n(.*?)```", reader.read(), re.DOTALL)
    program = ["set -euo pipefail"]
    for language, code in blocks:
        if "run_classifier.py" in code:
            words = shlex.split(code.replace("\\\n", " "))[2:]
            return "\n".join(program), [word for word in words if not word.startswith(
                ("--init_checkpoint=", "--seed=", "--output_dir="))]
        program.append(code if language == "bash" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON")
    raise SystemExit(f"{PAGE} has no run_classifier.py.")


def prepare(work):
    """Makes a directory in which the commands of the tutorial find this project's scripts and the samples."""
    os.makedirs(work, exist_ok=True)
    for name in [name for name in os.listdir(results.ROOT) if name.endswith(".py")] + ["samples"]:
        if not os.path.lexists(os.path.join(work, name)):
            os.symlink(os.path.join(results.ROOT, name), os.path.join(work, name))


def run(work, name, words):
    """Runs a command, unless output/NAME is complete.

    The CPU seconds are stored in output/NAME.cpu. This file exists only if the run is complete.

    Returns:
      (metrics of the evaluation, CPU seconds).
    """
    directory = os.path.join(work, "output", name)
    if not os.path.exists(f"{directory}.cpu"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        paths = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        subprocess.run(words, check=True, cwd=work,
                       env={**os.environ, "PATH": paths, "PYTHONPATH": results.ROOT})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(f"{directory}.cpu", "w", encoding="utf-8") as writer:
            writer.write(f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f}\n")
    with open(f"{directory}.cpu", encoding="utf-8") as reader:
        return read_metrics(directory), float(reader.read())


def read_metrics(directory):
    """Returns the metrics of an evaluation, {name: value as str}."""
    with open(os.path.join(directory, "eval_results.txt"), encoding="utf-8") as reader:
        return dict(line.rstrip("\n").split(" = ", 1) for line in reader)


def main():
    """Runs all commands, and prints a line for each model and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, UNITS)
    program, flags = read_page()
    prepare(arguments.work)
    _, cpu = run(arguments.work, "continued", ["bash", "-c", program])
    for model, name in (("extended", "before"), ("continued", "continued")):
        metrics = read_metrics(os.path.join(arguments.work, "output", name))
        row = {field: float(metrics[field]) for field in ("masked_lm_accuracy", "masked_lm_loss")}
        recorder.add(model=model, **row, **({"cpu": cpu} if name == "continued" else {}))
        print(model, row, flush=True)
    for seed in range(1, arguments.seeds + 1):
        for model, words in MODELS.items():
            name = f"{model}-{seed}"
            metrics, cpu = run(arguments.work, name, ["python", "run_classifier.py", *flags, *words,
                                                      f"--seed={seed}", f"--output_dir=output/{name}"])
            recorder.add(model=model, seed=seed, accuracy=float(metrics["eval_accuracy"]), cpu=cpu)
            print(f"{model:10} seed {seed}  accuracy {metrics['eval_accuracy']}  CPU {cpu:.0f} s", flush=True)
    recorder.write()


if __name__ == "__main__":
    main()
