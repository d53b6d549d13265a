"""Compares fine-tuning for regression, classification and tagging with PyTorch's transformers.

    python benchmarks/tasks.py --peer_python=PYTHON --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR \\
      [--rounds=5] [--results=NAME]
    python benchmarks/tasks.py --peer_python=PYTHON --glue_dir=$GLUE_DIR --tasks=STS-B,CoLA

PYTHON is an interpreter with torch, transformers, scikit-learn, SciPy and seqeval. Both programs start from
the installed model, and have the same recipe: batches of 32, AdamW, warm-up over a tenth of the steps, linear
decay, and clipping at norm 1. Each run is a separate process that also evaluates, and the programs take
turns. The seed of a round is its number. Short runs find the fastest precision, and for transformers the
fastest kernel of attention. CPU seconds, memory and ratios are defined as in benchmarks/compare.py. `seqeval`
scores the tagging of both programs. For this purpose, this project writes its predictions.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
import results

from bertlib.runs import model_config

# Per task: epochs, learning rate, the metric that counts and that is shown beside it.
RECIPES = {"STS-B": (1, 5e-5, "pearson", "spearman"), "CoLA": (2, 5e-5, "matthews", "accuracy"),
           "CoNLL-2003": (2, 5e-5, "f1", "precision")}
BATCH_SIZE, LENGTH = compare.BATCH_SIZE, compare.LENGTH


class Task:
    """A task's whole fine-tuning; a work of `compare.compare`."""

    operations = 0  # not counted here

    def __init__(self, name, arguments, directory):
        self.title, self.arguments, self.directory = name, arguments, directory
        self.model = model_config.find_installed_model()
        self.epochs, self.learning_rate, *self.metrics = RECIPES[name]
        self.data_dir = arguments.conll_dir if self.tags else os.path.join(arguments.glue_dir, name)
        self.num_examples = self.count_examples()
        self.steps = int(self.num_examples / BATCH_SIZE * self.epochs)

    @property
    def tags(self):
        """Whether the task is tagging."""
        return self.title == "CoNLL-2003"

    def count_examples(self):
        """The number of training examples: sentences, or rows below the header that CoLA does not have."""
        with open(os.path.join(self.data_dir, "train.txt" if self.tags else "train.tsv"),
                  encoding="utf-8-sig") as lines:
            if self.tags:
                return len([block for block in lines.read().split("\n\n")
                            if block.strip() and not block.startswith("-DOCSTART-")])
            return len(lines.read().splitlines()) - (self.title == "STS-B")

    def choices(self, side):
        """{setting: values}; see `compare.Work`."""
        attention = self.arguments.attention.split(",")
        return {"precision": self.arguments.precisions.split(","),
                **({"attention": attention} if side == compare.HUGGING_FACE else {})}

    def command(self, side, count, settings, seed=0):
        """The command of that many steps; of all of them, with evaluation."""
        whole = count == self.steps
        if side == compare.HUGGING_FACE:
            return [self.arguments.peer_python, os.path.join(compare.PEERS, "hf_tasks.py"), json.dumps({
                "task": self.title, "data_dir": self.data_dir, "count": count, "total_steps": self.steps,
                "batch_size": BATCH_SIZE, "length": LENGTH, "seed": seed, "model": self.model,
                "vocab": os.path.join(self.model, "vocab.txt"), "learning_rate": self.learning_rate,
                "evaluate": whole, **settings})]
        flags = {"data_dir": self.data_dir, "max_seq_length": LENGTH, "train_batch_size": BATCH_SIZE,
                 "learning_rate": self.learning_rate, "do_train": True, "do_eval": whole, "seed": seed,
                 "predict_batch_size" if self.tags else "eval_batch_size": BATCH_SIZE,
                 "num_train_epochs": (count + 0.5) * BATCH_SIZE / self.num_examples,
                 "output_dir": tempfile.mkdtemp(prefix="output_", dir=self.directory), **settings}
        script = "run_ner.py"
        if not self.tags:
            script, flags["task_name"] = "run_classifier.py", self.title
        return [sys.executable, os.path.join(compare.ROOT, script),
                *(f"--{name}={value}" for name, value in flags.items())]

    def cost(self, side, settings, turn=None):
        """What an example costs; see `compare.Work`."""
        if turn is None:
            return compare.beyond(lambda count: self.command(side, count, settings),
                                  *compare.STEPS_OF_TRIALS, BATCH_SIZE)
        command = self.command(side, self.steps, settings, seed=turn)
        found = compare.run(command)
        if side == compare.HUGGING_FACE:
            quality = json.loads(found.output.splitlines()[-1])
        else:
            output_dir = next(flag.partition("=")[2] for flag in command if flag.startswith("--output_dir="))
            with open(os.path.join(output_dir, "eval_results.txt"), encoding="utf-8") as lines:
                values = dict(line.rstrip("\n").split(" = ", 1) for line in lines)
            quality = {name: float(values[f"eval_{name}"]) for name in self.metrics}
        examples = self.steps * BATCH_SIZE
        return compare.Cost(found.cpu / examples, found.wall / examples, found.peak, quality)


def table(work, line):
    """The rows of a task in Markdown: each side's metrics by seed and their mean, costs, and ratios."""
    rows = []
    for side, costs in line.costs.items():
        cells = [work.title, f"{side} ({compare.describe(line.settings[side])})"]
        for metric in work.metrics:
            values = [cost.quality[metric] for cost in costs]
            cells.append(f"{metric} {statistics.mean(values):.4f} "
                         f"({', '.join(f'{value:.4f}' for value in values)})")
        examples = work.steps * BATCH_SIZE
        cells += [f"{compare.median_of(line, side, 'cpu') * examples:.0f}",
                  f"{compare.median_of(line, side, 'peak') / 1e9:.2f}"]
        for field in ("cpu", "peak"):
            found = compare.ratios(line, field, side) if side != compare.HUGGING_FACE else []
            cells.append(f"{statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"
                         if found else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main():
    """Prints the table, a task at a time."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--glue_dir", help="directory of GLUE's tasks")
    parser.add_argument("--conll_dir", help="directory of train.txt and dev.txt")
    parser.add_argument("--tasks", default=",".join(RECIPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", default="bf16,fp32", help="of which short runs find the fastest")
    parser.add_argument("--attention", default="sdpa,eager", help="kernels of the other side, likewise")
    results.add_flag(parser)
    arguments = parser.parse_args()
    metrics = {name: "" for *_, first, second in RECIPES.values() for name in (first, second)}
    recorder = results.Recorder(arguments.results, {**compare.UNITS, **metrics}, [arguments.peer_python])
    print("| task | side and settings | metric, mean (each seed) | beside it | CPU s | peak GB | CPU ratio | "
          "memory ratio |\n" + "|---" * 8 + "|", flush=True)
    for name in arguments.tasks.split(","):
        with tempfile.TemporaryDirectory() as directory:
            work = Task(name, arguments, directory)
            line = compare.compare(work, [compare.OURS, compare.HUGGING_FACE], arguments.rounds,
                                   recorder)
            recorder.add(work=name, examples_of_a_run=work.steps * BATCH_SIZE)
            print(table(work, line), flush=True)
    recorder.write()


if __name__ == "__main__":
    main()
