"""Fine-tunes on SQuAD with several seeds, and compares the scores with those of Hugging Face's model.

    python benchmarks/squad.py --data_dir=$SQUAD_DIR [--versions=1.1,2.0] [--seeds=0,1,2] \\
      [--peer_python=python] [--results=NAME]
    python benchmarks/squad.py --data_dir=$SQUAD_DIR --losses [--steps=50] [--start=DIR] --peer_python=python

For each seed, the script starts run_squad.py twice, as a user would start it, with trimmed batches. The first
run uses train-v1.1.json and dev-v1.1.json, and starts from the installed model. The second run uses the files
of version 2.0, and starts from the weights of the first run. The reason is that the data are too few to learn
two tasks in one run: to find answers, and to decide whether an answer exists.

--peer_python names a Python interpreter with torch and transformers. If it is given,
benchmarks/peers/hf_squad.py repeats each run with the same starting weights, windows, order, optimizer and
schedule. This project computes the scores from the logits of both programs, so only the training differs.

With --losses, the script does not measure scores. It trains both programs without dropout, and compares the
losses of all steps. The exit code is 1 if a loss differs by more than 1e-4. In longer trainings, rounding
errors grow beyond this limit.
"""

import argparse
import collections
import json
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import bertlib.commands  # noqa: F401  graph mode

from absl import logging
import numpy as np
import results
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.runs import model_config
from bertlib.system import files
from bertlib.tasks.squad import span_selection, squad_data, squad_metrics
import tokenization

ROOT = sys.path[0]
# The data are a few hundred questions and the model is small. For this reason, the recipe has more epochs and
# a higher learning rate than the published one. The windows are shorter, so that a run is cheap.
RECIPE = {"max_seq_length": 256, "doc_stride": 128, "train_batch_size": 8, "learning_rate": 1e-4,
          "precision": "fp32"}
MAX_QUERY_LENGTH, N_BEST_SIZE, MAX_ANSWER_LENGTH = 64, 20, 30
UNITS = {"cpu": "CPU s", "loss": "", "peer_loss": "", "threshold": "", "exact_match": "%",
         **{prefix + name: "%" for prefix in ("", "tuned_")
            for name in ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")}}
TOLERANCE = 1e-4


class Task:
    """A version of SQuAD: its files, the recipe of its training, and its correct answers."""

    def __init__(self, data_dir, version, recipe):
        self.version = version
        self.version_2 = version == "2.0"
        self.recipe = recipe
        self.train_file, self.dev_file = (os.path.join(data_dir, f"{part}-v{version}.json")
                                          for part in ("train", "dev"))
        self.gold = squad_data.read_gold(self.dev_file)
        self.examples = squad_data.read_squad_examples(self.dev_file, False, self.version_2)

    def run(self, output_dir, seed, start=None, **changes):
        """Runs run_squad.py, starting from the installed model or from the training in `start`.

        Returns the CPU seconds.
        """
        if start:
            model = model_config.find_installed_model()
            changes = {"init_checkpoint": start, "bert_config_file": os.path.join(model, "config.json"),
                       "vocab_file": os.path.join(model, "vocab.txt"), **changes}
        flags = {"do_train": True, "do_eval": True, "train_file": self.train_file,
                 "predict_file": self.dev_file, "seed": seed,
                 "trim_padding": True, "version_2_with_negative": self.version_2,
                 "max_query_length": MAX_QUERY_LENGTH, "output_dir": output_dir, **self.recipe, **changes}
        return cpu_seconds([sys.executable, os.path.join(ROOT, "run_squad.py"),
                            *(f"--{name}={value}" for name, value in flags.items())])

    def features(self):
        tokenizer = tokenization.FullTokenizer(os.path.join(model_config.find_installed_model(), "vocab.txt"))
        return list(squad_data.generate_features(self.examples, tokenizer, self.recipe["max_seq_length"],
                                                 self.recipe["doc_stride"], MAX_QUERY_LENGTH, False,
                                                 report=False))

    def scores(self, directory):
        """Returns {name: score} for the answers in a directory.

        For SQuAD 2.0, the dict also contains the best null threshold, "threshold". Names with the prefix
        "tuned_" are scores with this threshold. All other scores are computed with the threshold 0.
        """
        def content(name):
            with open(os.path.join(directory, name), encoding="utf-8") as reader:
                return json.load(reader)

        texts = content("predictions.json")
        if not self.version_2:
            return squad_metrics.evaluate(self.gold, texts)
        odds = content("null_odds.json")
        nothing = span_selection.Answer("", 0.0, 0.0, 0.0)
        best = {qas_id: next((entry["text"] for entry in entries if entry["text"]), "")
                for qas_id, entries in content("nbest_predictions.json").items()}
        predictions = [span_selection.Prediction(qas_id, None, nothing._replace(text=text), nothing,
                                                odds[qas_id])
                       for qas_id, text in best.items()]
        figures = squad_metrics.evaluate(self.gold, texts, True)
        threshold = squad_metrics.find_null_threshold(self.gold, predictions)
        tuned = squad_metrics.evaluate(
            self.gold, {prediction.qas_id: prediction.final_answer(threshold).text
                        for prediction in predictions}, True)
        return {**{name: value for name, value in figures.items() if not name.endswith("total")},
                "threshold": threshold,
                **{f"tuned_{name}": tuned[name] for name in ("exact", "f1", "HasAns_f1", "NoAns_f1")}}


def cpu_seconds(command):
    """Runs a command, and returns its CPU seconds (user and system)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stored(path, length, is_training):
    """Returns the windows in a TFRecord file as {name: int64 array}."""
    fields = squad_data.feature_fields(length, is_training)
    records = input_pipeline.RecordFiles([path], fields)
    rows = [tf.train.Example.FromString(record).features.feature
            for record in records.read(range(len(records)))]
    return {field.name:
            np.array([row[field.name].int64_list.value for row in rows]).reshape([len(rows), *field.shape])
            for field in fields}


def run_peer(python, output_dir, recipe, seed, steps, dropout):
    """Repeats a run of run_squad.py with the peer, which is benchmarks/peers/hf_squad.py. `output_dir` is the
    output directory of the run of run_squad.py.

    Returns (CPU seconds of the peer, {name: array} that the peer wrote).
    """
    length, batch_size = recipe["max_seq_length"], recipe["train_batch_size"]
    arrays = {}
    for part in ("train", "eval"):
        path = os.path.join(output_dir, f"{part}.tf_record")
        if os.path.exists(path):
            arrays.update((f"{part}/{name}", values)
                          for name, values in stored(path, length, part == "train").items())
    count = len(arrays["train/input_ids"])
    windows, logits, start, untrained = (os.path.join(output_dir, name) for name in (
        "windows.npz", "logits.npz", "start", "untrained"))
    model = model_config.find_installed_model()
    # convert_checkpoint.py does not convert a checkpoint of step 0. So the weights are first copied to a
    # checkpoint that contains no step.
    first = checkpoint_formats.open_checkpoint(os.path.join(output_dir, "model.ckpt-0"))
    os.makedirs(untrained)
    untrained = os.path.join(untrained, "bert_model.ckpt")
    checkpoint_formats.write_tensorflow(untrained, first, checkpoint_formats.weight_names(first))
    subprocess.run([sys.executable, os.path.join(ROOT, "convert_checkpoint.py"), f"--output={start}",
                    f"--input={untrained}",
                    f"--bert_config_file={os.path.join(model, 'config.json')}",
                    f"--vocab_file={os.path.join(model, 'vocab.txt')}"], check=True)
    np.savez(windows, **arrays,
             order=[input_pipeline.batch_of_step(step, batch_size, count, seed) for step in range(steps)],
             learning_rate=recipe["learning_rate"], total_steps=steps, warmup_steps=int(steps * 0.1),
             seed=seed, dropout=dropout, bf16=recipe["precision"] == "bf16")
    peer = os.path.join(ROOT, "benchmarks", "peers", "hf_squad.py")
    cpu = cpu_seconds([python, peer, start, windows, logits])
    with np.load(logits) as file:
        return cpu, dict(file)


def losses_agree(task, python, recorder, steps, start=None, seed=0):
    """Compares the losses without dropout. Returns whether they agree.

    The trainings start from the weights in the output directory `start`, or from the installed model.
    """
    with tempfile.TemporaryDirectory() as output_dir:
        model = model_config.find_installed_model()
        config = {**files.read_json_object(os.path.join(model, "config.json")), "hidden_dropout_prob": 0.0,
                  "attention_probs_dropout_prob": 0.0}
        config_file = os.path.join(output_dir, "config.json")
        files.write_text(config_file, json.dumps(config))
        num_questions = len(squad_data.read_squad_examples(task.train_file, True, task.version_2))
        task.run(output_dir, seed, do_eval=False, bert_config_file=config_file,
                 init_checkpoint=start or model, log_steps=1, vocab_file=os.path.join(model, "vocab.txt"),
                 num_train_epochs=(
                     (steps + 0.5) * task.recipe["train_batch_size"] / num_questions))
        _, found = run_peer(python, output_dir, task.recipe, seed, steps, dropout=False)
        ours = {event.step: value.simple_value for path in tf.gfile.Glob(os.path.join(output_dir, "events*"))
                for event in tf.train.summary_iterator(path) for value in event.summary.value
                if value.tag == "loss"}
    ours, losses = np.array([loss for _, loss in sorted(ours.items())]), found["losses"]
    if ours.shape != losses.shape:
        raise RuntimeError(f"This project logged {len(ours)} losses, but Hugging Face's program returned "
                           f"{len(losses)}.")
    difference = np.abs(ours - losses)
    print(f"SQuAD {task.version}, dropout 0: {len(ours)} losses, from {ours[0]:.5f} to {ours[-1]:.5f}; "
          f"largest difference {difference.max():.1e} at step {difference.argmax()}", flush=True)
    for step, (one, other) in enumerate(zip(ours, losses)):
        recorder.add(version=task.version, step=step, loss=float(one), peer_loss=float(other))
    return difference.max() < TOLERANCE


def run_seed(task, python, seed, output_dir, start):
    """Yields (program, {name of a score: value}) for one seed. The scores include "cpu", the CPU seconds."""
    cpu = task.run(output_dir, seed, start)
    yield "run_squad.py", {**task.evaluate_during_training(output_dir), "cpu": cpu}
    if python:
        steps = tf.train.load_checkpoint(
            tf.train.latest_checkpoint(output_dir)).get_tensor("global_step").item()
        cpu, found = run_peer(python, output_dir, task.recipe, seed, steps, dropout=True)
        features = task.features()
        raw = [span_selection.RawResult(feature.unique_id, start, end) for feature, start, end in zip(
            features, found["start_logits"], found["end_logits"], strict=True)]
        paths = [os.path.join(output_dir, name) for name in ("predictions.json", "nbest_predictions.json",
                                                             "null_odds.json")]
        search = span_selection.Search(N_BEST_SIZE, MAX_ANSWER_LENGTH, True, task.version_2)
        answers = span_selection.select_answers(task.examples, features, raw, search)
        span_selection.write_answers(span_selection.write_nbest(answers, paths[1]), paths[0],
                                    paths[2] if task.version_2 else None, None, 0.0)
        yield "Hugging Face", {**task.evaluate_during_training(output_dir), "cpu": cpu}


def print_row(name, figures):
    print(f"{name:24}" + "  ".join(f"{figure} {value:.2f}" for figure, value in figures.items()), flush=True)


def main():
    """Prints a row for each seed and program, and the means. The exit code is 1 if losses differ."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="directory with the files of --versions, such as "
                        "train-v1.1.json and dev-v1.1.json")
    parser.add_argument("--versions", default="1.1,2.0", help="versions of SQuAD, in the order of their "
                        "trainings; each training starts from the weights of the previous version")
    parser.add_argument("--num_train_epochs", default="8,3", help="numbers of epochs, one "
                        "for each of the --versions")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--start", help="output directory of an earlier training. The weights in this "
                        "directory are the starting weights for the first of the --versions. The default is "
                        "the installed model.")
    parser.add_argument("--peer_python", help="path of a Python that has torch and transformers")
    parser.add_argument("--losses", action="store_true", help="train without dropout, and compare the "
                        "losses instead of the scores")
    parser.add_argument("--steps", type=int, default=50, help="number of training steps with --losses")
    results.add_flag(parser)
    for name, value in RECIPE.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    arguments = parser.parse_args()
    if arguments.losses and not arguments.peer_python:
        parser.error("--losses needs --peer_python.")
    logging.set_verbosity(logging.WARNING)
    tasks = [Task(arguments.data_dir, version, {**{name: getattr(arguments, name) for name in RECIPE},
                                                "num_train_epochs": float(epochs)})
             for version, epochs in zip(arguments.versions.split(","), arguments.num_train_epochs.split(","))]
    recorder = results.Recorder(arguments.results, UNITS, [arguments.peer_python])
    if arguments.losses:
        agree = [losses_agree(task, arguments.peer_python, recorder, arguments.steps, arguments.start)
                 for task in tasks]
        recorder.write()
        sys.exit(not all(agree))
    rows = collections.defaultdict(list)
    for seed in map(int, arguments.seeds.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            start = arguments.start
            for task in tasks:
                output_dir = os.path.join(directory, task.version)
                for program, figures in run_seed(task, arguments.peer_python, seed, output_dir, start):
                    rows[f"{task.version} mean {program}"].append(figures)
                    print_row(f"{task.version} seed {seed} {program}", figures)
                    recorder.add(version=task.version, seed=seed, program=program, **figures)
                start = output_dir
    for name, found in rows.items():
        print_row(name,
                  {figure: sum(figures[figure] for figures in found) / len(found) for figure in found[0]})
    recorder.write()


if __name__ == "__main__":
    main()
