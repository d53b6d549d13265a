"""Compares this project with PyTorch's transformers in fine-tuning: regression, classification and tagging.

    python benchmarks/tasks.py --peer_python=PYTHON --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR \\
      [--rounds=5] [--results=NAME]
    python benchmarks/tasks.py --peer_python=PYTHON --glue_dir=$GLUE_DIR --tasks=STS-B,CoLA

PYTHON is an interpreter with torch, transformers, scikit-learn, SciPy and seqeval. Both programs start with
the weights of the installed model, and have the same recipe: batches of 32, AdamW, warm-up over a tenth of
the steps, linear decay, and clipping at norm 1. Each run is a separate process with training and evaluation,
and the programs run alternately. The seed of a round is its number. Before the rounds, short runs find the
fastest precision of each program, and the fastest attention kernel of transformers. benchmarks/compare.py
defines CPU seconds, memory and ratios. seqeval scores the tags of both programs.
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

# For each task: epochs, learning rate, the main metric, and the second metric in the table.
RECIPES = {"STS-B": (1, 5e-5, "pearson", "spearman"), "CoLA": (2, 5e-5, "matthews", "accuracy"),
           "CoNLL-2003": (2, 5e-5, "f1", "precision"), "MRPC": (3, 5e-5, "accuracy", "f1")}
BATCH_SIZE, LENGTH = compare.BATCH_SIZE, compare.LENGTH


class Task:
    """A task. The cost of fine-tuning a model for this task is measured; see `compare.Work`."""

    operations = 0  # number of floating point operations for an example; 0: not counted

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
        """Returns the number of training examples.

        For tagging, the examples are the sentences. For the other tasks, they are the rows below the header.
        Only the file of CoLA has no header.
        """
        with open(os.path.join(self.data_dir, "train.txt" if self.tags else "train.tsv"),
                  encoding="utf-8-sig") as lines:
            if self.tags:
                return len([block for block in lines.read().split("\n\n")
                            if block.strip() and not block.startswith("-DOCSTART-")])
            return len(lines.read().splitlines()) - (self.title != "CoLA")

    def choices(self, side):
        """Returns {setting: list of the values to try}. See `compare.Work`."""
        attention = self.arguments.attention.split(",")
        return {"precision": self.arguments.precisions.split(","),
                **({"attention": attention} if side == compare.HUGGING_FACE else {})}

    def command(self, side, count, settings, seed=0):
        """Returns the command line of a training of `count` steps. If `count` is the number of steps of the
        whole training, the command also evaluates the model. `side` is the name of the program that trains.
        """
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
        """Returns the cost of an example. See `compare.Work`."""
        if turn is None:
            return compare.beyond(lambda count: self.command(side, count, settings),
                                  *compare.STEPS_OF_TRIALS, BATCH_SIZE)
        command = self.command(side, self.steps, settings, seed=turn)
        found = compare.run(command)
        if side == compare.HUGGING_FACE:
            values = json.loads(found.output.splitlines()[-1])
            quality = {name: values[name] for name in self.metrics}
        else:
            output_dir = next(flag.partition("=")[2] for flag in command if flag.startswith("--output_dir="))
            with open(os.path.join(output_dir, "eval_results.txt"), encoding="utf-8") as lines:
                values = dict(line.rstrip("\n").split(" = ", 1) for line in lines)
            quality = {name: float(values[f"eval_{name}"]) for name in self.metrics}
        examples = self.steps * BATCH_SIZE
        return compare.Cost(found.cpu / examples, found.wall / examples, found.peak, quality)


def table(work, line):
    """Returns the rows of a task in a Markdown table, one row for each program.

    A row contains the metrics of each seed with their mean, the CPU seconds and the memory, and how these two
    costs compare with those of Hugging Face.
    """
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
    """Measures one task after the other, and prints the rows of each task in a table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--glue_dir", help="directory of GLUE's tasks")
    parser.add_argument("--conll_dir", help="directory of train.txt and dev.txt")
    parser.add_argument("--tasks", default="STS-B,CoLA,CoNLL-2003",
                        help="names of tasks, with commas between them. MRPC is also possible, but "
                        "benchmarks/compare.py already measures this task")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", default="bf16,fp32",
                        help="precisions, separated by commas. Each precision is tried in a short run, "
                        "and the fastest one is used")
    parser.add_argument("--attention", default="sdpa,eager",
                        help="attention kernels of the library transformers, separated by commas. Each "
                        "kernel is tried in a short run, and the fastest one is used")
    results.add_flag(parser)
    arguments = parser.parse_args()
    metrics = {name: "" for *_, first, second in RECIPES.values() for name in (first, second)}
    recorder = results.Recorder(arguments.results, {**compare.UNITS, **metrics}, [arguments.peer_python])
    print("| task | side and settings | metric, mean (each seed) | second metric | CPU s | peak GB | "
          "CPU ratio | memory ratio |\n" + "|---" * 8 + "|", flush=True)
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
