"""Compares CPU time, memory and utilisation of this project, PyTorch's transformers, TensorFlow's Model
Garden and google-research/bert.

    python benchmarks/compare.py --peer_python=PYTHON --data_dir=$GLUE_DIR/MRPC [--rounds=3] \\
      [--garden_python=PYTHON] [--published_python=PYTHON --published_code=CLONE]
    python benchmarks/compare.py --peer_python=PYTHON --work=step --precisions=fp32 [--results=NAME]

PYTHON is an interpreter with torch and transformers. benchmarks/peers/model_garden.py and
benchmarks/peers/published_code.py describe the other interpreters. The script measures these kinds of work:

    step      a training step of BERT-Base with random weights and without padding, for each precision
    finetune  MRPC with the installed model, from the start to the end of the evaluation. Each round has
              another seed. The script also prints the quality
    evaluate  BERT-Base with random weights, on the dev pairs of MRPC
    predict   like `evaluate`, but the results are probabilities. In addition, ONNX Runtime runs exports of
              export.py in fp32 and with int8 weights, and PyTorch runs with torch.compile

Short runs first find the fastest settings of each program: batch size, attention, kernels, and (except for
`step`) precision. This project runs run_classifier.py; for `step`, it runs a loop that calls functions of
run_classifier.py. Hugging Face's program sorts by length, pads each batch to its longest example, and uses
the fused AdamW. All programs have one thread for each core. Waiting threads sleep, and the allocator keeps
freed memory.

Every run is a separate process, and the programs take turns. CPU seconds are user and system time of all
threads. For `step`, a process measures its own steps, without the first ones. For `evaluate` and `predict`,
the cost of a run with few pairs is subtracted from the cost of a run with many pairs, so the start does not
count. For `finetune`, the whole run counts. Peak memory is the largest resident size of the whole process.
Ratios are medians of the rounds, with the smallest and the largest ratio.

Utilisation is the quotient of two speeds, in operations per CPU second. The dividend counts the operations in
the matrix products of the model on real tokens. The divisor is the speed of a product of two large matrices
at the same precision, in the library that is faster.
"""

import argparse
import collections
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import results

from bertlib.runs import model_config
from bertlib.system.files import read_json_object
import tokenization

ROOT = sys.path[0]
PEERS = os.path.join(ROOT, "benchmarks", "peers")
OURS, HUGGING_FACE, MODEL_GARDEN = "this project", "Hugging Face", "Model Garden"
PUBLISHED = "google-research/bert"
COMPILED = "Hugging Face, torch.compile"
ONNX = {"ONNX Runtime": [], "ONNX Runtime, int8": ["--quantize=int8"]}  # {program: flags of export.py}
BASE = {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02}
LENGTH, BATCH_SIZE = 128, 32
WIDTH_OF_PRODUCT, PRODUCTS = 4096, {"fp32": 20, "bf16": 100}
STEPS_OF_TRIALS = 8, 32  # of fine-tuning
UNITS = {"cpu": "CPU s per example", "wall": "s per example", "peak": "GB",
         "gflop_an_example": "GFLOP", "speed": "GFLOP per CPU s", "accuracy": "", "F1": "",
         "CPU s of the run": "CPU s"}

# The cost of a run: CPU seconds, wall seconds, peak memory in bytes, and the output of the run.
Run = collections.namedtuple("Run", ["cpu", "wall", "peak", "output"])
# The cost of an example: CPU seconds, wall seconds, the peak memory of the run in bytes, and the metrics of
# the run as {name: value}.
Cost = collections.namedtuple("Cost", ["cpu", "wall", "peak", "quality"])
# A line of the table. costs: {program: list with the `Cost` of each round}; settings: {program: settings};
# operations: number of operations for each example.
Line = collections.namedtuple("Line", ["title", "costs", "settings", "operations"])


def environment():
    """Returns the environment variables of all runs. With them, waiting threads sleep, and allocators keep
    freed memory."""
    cores = str(len(os.sched_getaffinity(0)))
    return {**os.environ, "OMP_NUM_THREADS": cores, "OMP_WAIT_POLICY": "PASSIVE",
            "MALLOC_MMAP_THRESHOLD_": str(2**30),
            "MALLOC_TRIM_THRESHOLD_": str(2**40), "TOKENIZERS_PARALLELISM": "false"}


def run(command):
    """Runs a command; returns a `Run`. If the command fails, raises a RuntimeError with the last lines that
    the command wrote to the standard error."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=messages, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        messages.seek(0)
        if process.returncode:
            said = messages.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"{' '.join(command)[:300]}\nended with the exit code {process.returncode}: "
                               + "\n".join(said[-3:]))
        return Run(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024, output.read().decode())


# --- The works -------------------------------------------------------------------------------------------


class Work:
    """A task, such as training steps or an evaluation. The cost of the task is measured for each program.

    The object defines the runs of each program, and the settings that may make a program faster.

    `operations` is the number of floating point operations for each example.
    """

    def __init__(self, arguments, directory):
        self.arguments, self.directory = arguments, directory

    def choices(self, side):
        """Returns {setting: list of the values to try}. The search in `fastest` starts with the first value
        of each setting."""
        raise NotImplementedError

    def cost(self, side, settings, turn=None):
        """Returns the `Cost` of an example.

        Args:
          side: name of the program.
          settings: {setting: value}.
          turn: int, the round, counted from 0. None: the run is not part of a round. It only helps to
            choose the settings, so it is short.
        """
        raise NotImplementedError


class Step(Work):
    """Measures training steps in one precision."""

    def __init__(self, arguments, directory, precision):
        super().__init__(arguments, directory)
        self.title, self.precision = f"step, {precision}", precision
        self.operations = 3 * forward_operations(BASE, LENGTH)

    def choices(self, side):
        more = {OURS: {"compile_kernels": [True, False]},
                HUGGING_FACE: {"attention": ["sdpa", "eager"],
                               "compile": [False, True][:1 + self.arguments.try_compile]}}
        return {"precision": [self.precision], **more.get(side, {})}

    def cost(self, side, settings, turn=None):
        return self_measured(program(
            self.arguments, side, "step", warm_up=2, count=1 if turn is None else self.arguments.steps,
            length=LENGTH, batch_size=BATCH_SIZE, config=BASE, **settings), BATCH_SIZE)


class Inference(Work):
    """Measures the cost of an evaluation or a prediction of the pairs in dev.tsv; see `Cost`. A short run
    uses only some of the pairs. A long run uses each pair at least once."""

    def __init__(self, arguments, directory, name):
        super().__init__(arguments, directory)
        self.title = self.name = name
        self.vocab = os.path.join(model_config.find_installed_model(), "vocab.txt")
        with open(os.path.join(arguments.data_dir, "dev.tsv"), encoding="utf-8") as lines:
            self.header, *self.rows = lines.read().splitlines()
        lengths = pair_lengths(self.vocab, os.path.join(arguments.data_dir, "dev.tsv"))
        self.operations = statistics.mean(forward_operations(BASE, length) for length in lengths)

    def choices(self, side):
        sizes = {"batch_size": list(map(int, self.arguments.batch_sizes.split(",")))}
        precisions = self.arguments.precisions.split(",")
        if side in ONNX:
            return {**sizes, "precision": ["int8" if ONNX[side] else "fp32"]}
        if side == OURS:
            return {**sizes, "precision": precisions}
        if side == COMPILED:
            return {**sizes, "precision": precisions, "attention": ["sdpa"], "compile": [True]}
        return {**sizes, "precision": [*precisions, *["bf16 weights"] * ("bf16" in precisions)],
                "attention": ["sdpa", "eager"]}

    def model(self):
        """Returns the directory of a model with random weights. The first call trains this model for one
        step, because this project does not predict with a head that was never trained."""
        model = os.path.join(self.directory, "random_model")
        if not os.path.exists(model):
            flags = {"task_name": "MRPC", "do_train": True, "data_dir": self.arguments.data_dir,
                     "bert_config_file": self.config(), "vocab_file": self.vocab, "max_seq_length": LENGTH,
                     "train_batch_size": 1, "max_train_examples": 2, "num_train_epochs": 0.5,
                     "output_dir": model}
            run([sys.executable, os.path.join(ROOT, "run_classifier.py"), *as_flags(flags)])
        return model

    def export(self, side):
        """Returns the directory of the ONNX file that a program reads. `side` is the name of the program, a
        key of `ONNX`."""
        directory = os.path.join(self.directory, side.replace(" ", "_"))
        if not os.path.exists(directory):
            run([sys.executable, os.path.join(ROOT, "export.py"), f"--model_dir={self.model()}",
                 "--format=onnx",
                 f"--output_dir={directory}", "--compare_examples=1", *ONNX[side]])
        version, = os.listdir(directory)
        return os.path.join(directory, version)

    def config(self):
        """Writes the configuration of the model, and returns its path."""
        path = os.path.join(self.directory, "bert_config.json")
        with open(path, "w", encoding="utf-8") as writer:
            json.dump(BASE, writer)
        return path

    def data(self, count):
        """Writes `count` pairs as dev.tsv and as test.tsv, and returns their directory.

        The pairs are taken from the development set, at equal distances, so that all lengths occur.
        """
        directory = os.path.join(self.directory, f"pairs_{count}")
        os.makedirs(directory, exist_ok=True)
        rows = [self.rows[index * len(self.rows) // count] for index in range(count)]
        for part, first in (("dev", "Quality"), ("test", "index")):
            with open(os.path.join(directory, f"{part}.tsv"), "w", encoding="utf-8") as writer:
                writer.write(f"{first}\t{self.header.split(chr(9), 1)[1]}\n")
                writer.writelines((row if part == "dev" else f"{index}\t{row.split(chr(9), 1)[1]}") + "\n"
                                  for index, row in enumerate(rows))
        return directory

    def cost(self, side, settings, turn=None):
        few = max(len(self.rows) // 8, 1)
        many = few + len(self.rows) * (1 if turn is None else self.arguments.passes)
        if settings.get("compile") and not turn:
            run(self.command(side, many, settings))  # fills the cache of compiled code on the disk
        return beyond(lambda count: self.command(side, count, settings), few, many)

    def command(self, side, count, settings):
        """Returns the command of a run on `count` pairs."""
        data_dir = self.data(count)
        if side in (HUGGING_FACE, COMPILED):
            return program(self.arguments, HUGGING_FACE, self.name, config=BASE, vocab=self.vocab,
                           length=LENGTH, dev=os.path.join(data_dir, "dev.tsv"), **settings)
        if side in ONNX:
            answers = os.path.join(self.directory, "answers.jsonl")
            return [sys.executable, os.path.join(ROOT, "predict.py"), f"--model_dir={self.export(side)}",
                    f"--input_file={os.path.join(data_dir, 'test.tsv')}", f"--output_file={answers}",
                    f"--batch_size={settings['batch_size']}"]
        name = {"evaluate": "eval", "predict": "predict"}[self.name]
        return our_script(self.directory, settings["precision"], output_dir=self.model(), data_dir=data_dir,
                          **{f"do_{name}": True, f"{name}_batch_size": settings["batch_size"]})


class FineTuning(Work):
    """A whole fine-tuning of the installed model on MRPC."""

    def __init__(self, arguments, directory):
        super().__init__(arguments, directory)
        self.title, self.model = "finetune", model_config.find_installed_model()
        vocab = os.path.join(self.model, "vocab.txt")
        train, dev = (pair_lengths(vocab, os.path.join(arguments.data_dir, f"{part}.tsv"))
                      for part in ("train", "dev"))
        self.num_examples, self.steps = len(train), int(len(train) / BATCH_SIZE * arguments.epochs)
        config = read_json_object(os.path.join(self.model, "config.json"))
        forward = [sum(forward_operations(config, length) for length in lengths) for lengths in (train, dev)]
        self.operations = (3 * forward[0] * arguments.epochs + forward[1]) / (self.steps * BATCH_SIZE)

    def choices(self, side):
        attention = {"attention": ["sdpa", "eager"]} if side == HUGGING_FACE else {}
        precisions = ["fp32"] if side == PUBLISHED else self.arguments.precisions.split(",")
        return {"precision": precisions, **attention}

    def command(self, side, count, settings, seed=0):
        """Returns the command with which the program `side` trains for `count` steps.

        If `count` is the number of steps of the whole training, the command also evaluates.
        """
        data_dir, whole = self.arguments.data_dir, count == self.steps
        if side == HUGGING_FACE:
            files = {part: os.path.join(data_dir, f"{part}.tsv") for part in ("train", "dev")}
            return program(self.arguments, side, "finetune", count=count, total_steps=self.steps,
                           batch_size=BATCH_SIZE, length=LENGTH, seed=seed, model=self.model,
                           vocab=os.path.join(self.model, "vocab.txt"), train=files["train"],
                           dev=files["dev"] if whole else None, **settings)
        flags = {"data_dir": data_dir, "do_train": True, "do_eval": whole, "train_batch_size": BATCH_SIZE,
                 "learning_rate": 5e-5, "num_train_epochs": (count + 0.5) * BATCH_SIZE / self.num_examples}
        if side == PUBLISHED:
            model = self.published_model()
            flags.update(task_name="MRPC", max_seq_length=LENGTH, vocab_file=f"{model}/vocab.txt",
                         bert_config_file=f"{model}/bert_config.json",
                         init_checkpoint=f"{model}/bert_model.ckpt",
                         output_dir=tempfile.mkdtemp(prefix="output_", dir=self.directory))
            return [self.arguments.published_python, os.path.join(PEERS, "published_code.py"),
                    os.path.join(self.arguments.published_code, "run_classifier.py"), *as_flags(flags)]
        return our_script(self.directory, settings["precision"], seed=seed, **flags)

    def published_model(self):
        """Returns the directory of the installed model in the format of google-research/bert."""
        directory = os.path.join(self.directory, "published_model")
        if not os.path.exists(directory):
            run([sys.executable, os.path.join(ROOT, "convert_checkpoint.py"), f"--output={directory}",
                 "--published_config=true"])
        return directory

    def cost(self, side, settings, turn=None):
        if turn is None:
            return beyond(lambda count: self.command(side, count, settings), *STEPS_OF_TRIALS, BATCH_SIZE)
        command = self.command(side, self.steps, settings, self.arguments.seed + turn)
        found = run(command)
        if side == HUGGING_FACE:
            quality = json.loads(found.output.splitlines()[-1])
        else:
            output_dir, = (flag.partition("=")[2] for flag in command if flag.startswith("--output_dir="))
            with open(os.path.join(output_dir, "eval_results.txt"), encoding="utf-8") as lines:
                metrics = dict(line.split(" = ") for line in lines)
            names = {"accuracy": "eval_accuracy", "F1": "eval_f1"}  # the published code computes no F1
            quality = {name: float(metrics[key]) for name, key in names.items() if key in metrics}
        quality["CPU s of the run"] = found.cpu
        examples = self.steps * BATCH_SIZE
        return Cost(found.cpu / examples, found.wall / examples, found.peak, quality)


def self_measured(command, examples=1):
    """Runs a program that measures itself, and returns the `Cost` of an example.

    Args:
      command: command line. The program prints its CPU and wall seconds for `examples` examples as JSON.
      examples: int.
    """
    found = run(command)
    seconds = json.loads(found.output.splitlines()[-1])
    return Cost(seconds["cpu"] / examples, seconds["wall"] / examples, found.peak, {})


def beyond(command, few, many, examples=1):
    """Returns the `Cost` of an example, without the cost of the program's start.

    The cost of a run on `few` units is subtracted from the cost of a run on `many` units.

    Args:
      command: function (number of units) -> command line of a run on this number of units.
      few, many: int, the two numbers of units.
      examples: int, number of examples in a unit.
    """
    short, long = (run(command(count)) for count in (few, many))
    examples *= many - few
    if long.cpu <= short.cpu:
        raise RuntimeError(f"The work is too little to be measured: a run on {few} units took "
                           f"{short.cpu:.1f} CPU s, and a run on {many} units took {long.cpu:.1f} CPU s.")
    return Cost((long.cpu - short.cpu) / examples, (long.wall - short.wall) / examples, long.peak, {})


def program(arguments, side, name, **settings):
    """Returns the command that runs a program in benchmarks/peers. `side` chooses the program, and `name` is
    the work that the program does, such as "finetune"."""
    python, file = {OURS: (sys.executable, "this_project.py"),
                    HUGGING_FACE: (arguments.peer_python, "hf_compare.py"),
                    MODEL_GARDEN: (arguments.garden_python, "model_garden.py")}[side]
    return [python, os.path.join(PEERS, file), json.dumps({"work": name, **settings})]


def our_script(directory, precision, **flags):
    """Returns the command line of run_classifier.py, with a new directory for the results. Without
    `output_dir`, this is also the directory of the model."""
    results_dir = tempfile.mkdtemp(prefix="output_", dir=directory)
    flags = {"task_name": "MRPC", "max_seq_length": LENGTH, "output_dir": results_dir,
             "results_dir": results_dir, "precision": precision, **flags}
    return [sys.executable, os.path.join(ROOT, "run_classifier.py"), *as_flags(flags)]


def as_flags(values):
    """Returns {name: value} as a list of flags."""
    return [f"--{name}={value}" for name, value in values.items()]


# --- Formulas --------------------------------------------------------------------------------------------


def forward_operations(config, length):
    """Returns the floating point operations of the matrix products in the forward pass of a sequence.

    A multiplication counts as two operations. With hidden size W, intermediate size I and length T, each
    layer needs these multiplications for each token:

        4 W²     query, key, value and output
        2 W I    feed-forward layer
        2 T W    scores and context

    In addition, the pooler needs W² multiplications for the sequence. The backward pass needs twice as many
    operations as the forward pass.
    """
    width = config["hidden_size"]
    token = 4 * width**2 + 2 * width * config["intermediate_size"] + 2 * length * width
    return 2 * (config["num_hidden_layers"] * length * token + width**2)


def pair_lengths(vocab, path):
    """Returns the number of tokens of each pair in a GLUE file of MRPC, at most `LENGTH`."""
    tokenizer = tokenization.FullTokenizer(vocab)
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [min(LENGTH, 3 + sum(len(tokenizer.tokenize(text)) for text in row[3:5])) for row in rows]


# --- Measuring -------------------------------------------------------------------------------------------


def fastest(work, side):
    """Returns the settings with which a program takes the least CPU seconds.

    The settings are chosen one after the other. For each setting, all its values are tried with the other
    settings unchanged, and the fastest value is kept.

    Raises:
      RuntimeError: the program fails with all settings that were tried.
    """
    seconds, failures = {}, []

    def measured(settings):
        key = describe(settings)
        if key not in seconds:
            try:
                found = work.cost(side, settings)
                seconds[key] = found.cpu
                report(f"  {work.title}, {side}, {key}: {found.cpu:.4g} CPU s per example, "
                       f"{found.peak / 1e9:.2f} GB")
            except RuntimeError as error:
                seconds[key] = float("inf")
                failures.append(str(error))
                report(f"  {work.title}, {side}, {key} does not work: {error}")
        return seconds[key]

    choices = work.choices(side)
    settings = {name: values[0] for name, values in choices.items()}
    for name, values in choices.items():
        if len(values) > 1:
            settings = min(({**settings, name: value} for value in values), key=measured)
    if failures and min(seconds.values()) == float("inf"):
        raise RuntimeError(failures[0])
    return settings


def compare(work, sides, rounds, recorder):
    """Measures the programs in turn. Returns a `Line`.

    If a program fails, it is left out, and the reason is printed.

    Args:
      work: a `Work`.
      sides: names of the programs.
      rounds: how often each program does the work.
      recorder: a `results.Recorder`, which gets each round.
    """
    settings, costs = {}, {}
    for side in sides:
        try:
            settings[side], costs[side] = fastest(work, side), []
        except RuntimeError as error:
            report(f"{work.title}: without {side}. {error}")
    for turn in range(rounds):
        for side in list(costs):
            try:
                costs[side].append(work.cost(side, settings[side], turn))
            except RuntimeError as error:
                report(f"{work.title}: without {side}. {error}")
                del costs[side]
                continue
            found = costs[side][-1]
            recorder.add(work=work.title, side=side, settings=describe(settings[side]), round=turn + 1,
                         cpu=found.cpu, wall=found.wall, peak=found.peak / 1e9, **found.quality)
            report(f"{work.title}, round {turn + 1}, {side} ({describe(settings[side])}): {found.cpu:.4g} "
                   f"CPU s per example, {found.wall:.4g} s, {found.peak / 1e9:.2f} GB "
                   f"{in_words(found.quality)}")
    return Line(work.title, costs, settings, work.operations)


def best_products(arguments):
    """Measures the product of two large matrices in the libraries of both programs.

    Returns:
      {precision: speed of the faster library, in floating point operations per CPU second}.
    """
    best = {}
    for precision in arguments.precisions.split(","):
        count = PRODUCTS[precision]
        for side in (OURS, HUGGING_FACE):
            product = self_measured(program(arguments, side, "matmul", warm_up=2, count=count,
                                            width=WIDTH_OF_PRODUCT, precision=precision))
            speed = 2 * WIDTH_OF_PRODUCT**3 / product.cpu
            report(f"matrix product, {precision}, {side}: {speed / 1e9:.0f} GFLOP per CPU s")
            best[precision] = max(speed, best.get(precision, 0))
    return best


# --- Results ---------------------------------------------------------------------------------------------


def report(message):
    """Prints a message about the progress to stderr; stdout has only the result."""
    print(message, file=sys.stderr, flush=True)


def describe(settings):
    """Returns settings as text."""
    return ", ".join(value if isinstance(value, str) else name if value is True else f"{name} {value}"
                     for name, value in settings.items() if value is not False)


def in_words(quality):
    """Returns the metrics of a program as text. `quality` is {metric: value}."""
    return ", ".join(f"{name} {value:.4g}" for name, value in quality.items())


def median_of(line, side, field):
    """Returns the median of one cost of a program over all rounds.

    Args:
      line: a `Line`.
      side: name of the program.
      field: name of the cost, such as "cpu".
    """
    return statistics.median(getattr(found, field) for found in line.costs[side])


def ratios(line, field, side=OURS):
    """Returns a list with a ratio for each round: the cost of a program divided by the cost of Hugging Face's
    program. The list is empty if one of these two programs was not measured."""
    return [getattr(ours, field) / getattr(theirs, field)
            for ours, theirs in zip(line.costs.get(side, ()), line.costs.get(HUGGING_FACE, ()))]


def table(lines, products):
    """Returns the results as a table in Markdown. Each row contains the costs of one program for one kind of
    work."""
    titles = ["work", "side and settings", "CPU s / example", "wall s / example", "peak GB", "GFLOP / CPU s",
              "utilisation", "CPU ratio", "memory ratio", "quality"]
    rows = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for line in lines:
        for side, costs in line.costs.items():
            cpu = median_of(line, side, "cpu")
            best = products.get(line.settings[side]["precision"].split()[0])
            utilisation = f"{line.operations / cpu / best:.0%}" if best else ""
            of_cpu, of_memory = (ratios(line, field, side) for field in ("cpu", "peak"))
            ratio = [f"{statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"
                     if found and side != HUGGING_FACE else "" for found in (of_cpu, of_memory)]
            rows.append(f"| {line.title} | {side} ({describe(line.settings[side])}) | {cpu:.4g} | "
                        f"{median_of(line, side, 'wall'):.4g} | {median_of(line, side, 'peak') / 1e9:.2f} | "
                        f"{line.operations / cpu / 1e9:.0f} | {utilisation} | "
                        f"{ratio[0]} | {ratio[1]} | "
                        f"{'; '.join(in_words(found.quality) for found in costs if found.quality)} |")
    return "\n".join(rows)


def works(arguments, directory):
    """Yields a `Work` for each name in --work. For `step`, yields one `Work` for each precision."""
    for name in arguments.work.split(","):
        if name == "step":
            yield from (Step(arguments, directory, precision)
                        for precision in arguments.precisions.split(","))
        else:
            yield (FineTuning(arguments, directory) if name == "finetune"
                   else Inference(arguments, directory, name))


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", required=True,
                        help="path of a Python that has torch and transformers")
    parser.add_argument("--garden_python", help="path of a Python that has the Model Garden")
    parser.add_argument("--published_python", help="path of a Python that has tensorflow 2.15; with "
                        "--published_code, `finetune` also measures google-research/bert")
    parser.add_argument("--published_code", help="clone of google-research/bert")
    parser.add_argument("--data_dir", help="directory of MRPC; only `step` does not need it")
    parser.add_argument("--work", default="step,finetune,evaluate,predict")
    parser.add_argument("--precisions", default="fp32,bf16", help="precisions to try. "
                        "--work=step measures all of them. All other kinds of work use the fastest one.")
    parser.add_argument("--batch_sizes", default="32,8,64",
                        help="batch sizes to try: `evaluate` and `predict` use the fastest one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="number of training steps that --work=step "
                        "measures")
    parser.add_argument("--passes", type=int, default=3, help="number of measured passes over the dev pairs")
    parser.add_argument("--epochs", type=float, default=3.0, help="number of epochs of `finetune`")
    parser.add_argument("--seed", type=int, default=0, help="seed of `finetune` in the first round; it grows "
                        "by 1 in each round")
    parser.add_argument("--try_compile", action="store_true",
                        help="for `step`, also try torch.compile. This takes "
                        "minutes. In all trials so far, the compiled steps needed more CPU seconds")
    results.add_flag(parser)
    arguments = parser.parse_args()
    known = {"work": ("step", "finetune", "evaluate", "predict"), "precisions": ("fp32", "bf16")}
    for name, values in known.items():
        unknown = set(getattr(arguments, name).split(",")) - set(values)
        if unknown:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is none of {', '.join(values)}.")
    if arguments.work != "step" and not arguments.data_dir:
        parser.error("--data_dir is required for all works but step.")
    return arguments


def main():
    """Prints the table."""
    arguments = parse_arguments()
    peers = [arguments.peer_python, arguments.garden_python]
    recorder = results.Recorder(arguments.results, UNITS, peers)
    about = results.describe(results.machine(), results.versions(peers))
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        products = best_products(arguments)
        if not arguments.garden_python:
            report("Without the Model Garden: --garden_python is not given.")
        for work in works(arguments, directory):
            more = ([MODEL_GARDEN] if isinstance(work, Step) and arguments.garden_python else
                    [PUBLISHED] if isinstance(work, FineTuning) and arguments.published_python else
                    [*ONNX, COMPILED] if work.title == "predict" else [])
            lines.append(compare(work, [OURS, HUGGING_FACE, *more], arguments.rounds, recorder))
    print(f"{about}; rounds: {arguments.rounds}. Best matrix product, GFLOP per CPU s: "
          + ", ".join(f"{precision} {speed / 1e9:.0f}" for precision, speed in products.items()) + "\n")
    print(table(lines, products))
    for precision, speed in products.items():
        recorder.add(best_product=precision, speed=speed / 1e9)
    for line in lines:
        recorder.add(work=line.title, gflop_an_example=round(line.operations / 1e9, 3))
    recorder.write()


if __name__ == "__main__":
    main()
