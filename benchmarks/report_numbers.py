"""Computes the numbers of evaluations again with other libraries, from the tables of predictions.

    python benchmarks/report_numbers.py --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR
    python benchmarks/report_numbers.py --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR --sets=scores,STS-B

The script trains the installed model for some steps on six data sets. Three of the sets are generated and
have 10,000 noisy rows: topics (one label), labels (several labels) and scores. The other sets are CoLA, STS-B
and CoNLL-2003. scikit-learn, SciPy and seqeval then compute each metric from eval_predictions.csv. The script
compares the results with eval_results.json. It fails if a number differs by more than 1e-6. It needs the
packages of requirements-dev.txt.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import scipy.stats
import seqeval.metrics
import sklearn.metrics

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = 1e-6
ROWS = 10_000
WORDS = {
    "sport": "match goal player season coach league stadium score referee training",
    "travel": "flight hotel beach ticket luggage museum train passport island tour",
    "food": "soup bread recipe oven salt dinner cheese pepper kitchen taste",
    "money": "bank loan market price tax salary budget profit share invoice",
    "health": "doctor clinic fever nurse pill sleep vitamin pain surgery diet",
}
FILLER = 'the a of this was with my very and then it we they said about, after = "quoted" 3.5 -2 @home'
# {name of a set: arguments of its command}.
SETS = {"topics": "classification", "labels": "multilabel", "scores": "regression", "CoLA": "classification",
        "STS-B": "regression", "CoNLL-2003": "tagging"}


# --- Data ------------------------------------------------------------------------------------------------


def noisy_text(rng, topics):
    """Returns a text of 3 to 40 words about some topics, with words of other topics and line ends."""
    words = [rng.choice((WORDS[rng.choice(topics)] if topics and rng.random() < 0.4 else FILLER).split())
             for _ in range(rng.randint(3, 40))]
    if rng.random() < 0.1:
        words.insert(1, "\n")
    return " ".join(words)


def write_generated(name, path):
    """Writes a generated set as CSV. One label in ten is wrong."""
    rng, topics = random.Random(name), list(WORDS)
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["number", "text", "label"])
        for number in range(ROWS):
            if name == "topics":
                chosen = [rng.choice(topics)]
            else:
                chosen = [topic for topic in topics if rng.random() < 0.3]
            text, shown = noisy_text(rng, chosen), chosen
            if rng.random() < 0.1:
                shown = [rng.choice(topics)]
            label = f"{len(shown) + rng.gauss(0, 0.3):.3f}" if name == "scores" else ",".join(shown)
            writer.writerow([number, text, label])


def command(name, directory, arguments):
    """Returns the command that trains and evaluates on a set."""
    output = [f"--output_dir={os.path.join(directory, 'output')}", "--max_seq_length=64",
              "--train_batch_size=32", "--learning_rate=2e-4", f"--num_train_epochs={arguments.epochs}"]
    if name == "CoNLL-2003":
        return ["run_ner.py", "--do_train=true", "--do_eval=true", f"--data_dir={arguments.conll_dir}",
                *output]
    if name in ("CoLA", "STS-B"):
        return ["run_classifier.py", f"--task_name={name}", "--do_train=true", "--do_eval=true",
                f"--data_dir={os.path.join(arguments.glue_dir, name)}", *output]
    path = os.path.join(directory, f"{name}.csv")
    write_generated(name, path)
    return ["run_classifier.py", f"--train_file={path}", "--dev_fraction=0.2", f"--task_type={SETS[name]}",
            "--text_column=text", "--label_column=label", *output]


# --- The same numbers from other libraries ---------------------------------------------------------------


def label_scores(names, right, predicted):
    """Returns {label: precision, recall, F1 and support} by scikit-learn."""
    columns = sklearn.metrics.precision_recall_fscore_support(
        right, predicted, labels=range(len(names)), zero_division=0)
    return {name: dict(zip(("precision", "recall", "f1", "support"), map(float, values)))
            for name, *values in zip(names, *columns)}


def recompute_classification(rows, names):
    """Returns the metrics of a classification from the rows of the table."""
    right, predicted = ([names.index(row[key]) for row in rows] for key in ("label", "prediction"))
    probabilities = np.array([[float(row[f"probability_{name}"]) for name in names] for row in rows])
    two = len(names) == 2
    return {
        "eval_accuracy": sklearn.metrics.accuracy_score(right, predicted),
        "eval_f1": sklearn.metrics.f1_score(right, predicted, labels=range(len(names)), zero_division=0,
                                            **({} if two else {"average": "macro"})),
        "eval_matthews": sklearn.metrics.matthews_corrcoef(right, predicted),
        "eval_loss": -np.mean(np.log(probabilities[range(len(rows)), right])),
        "eval_confusion_matrix": sklearn.metrics.confusion_matrix(right, predicted,
                                                                  labels=range(len(names))),
        "labels": label_scores(names, right, predicted)}


def recompute_multilabel(rows, names):
    """Returns the metrics of several labels from the rows of the table."""
    right, predicted = (np.array([[name in row[key].split(",") for name in names] for row in rows], int)
                        for key in ("label", "prediction"))
    probabilities = np.array([[float(row[f"probability_{name}"]) for name in names] for row in rows])
    areas = [sklearn.metrics.roc_auc_score(right[:, index], probabilities[:, index])
             for index in range(len(names))]
    return {
        "eval_f1_micro": sklearn.metrics.f1_score(right, predicted, average="micro", zero_division=0),
        "eval_f1_macro": sklearn.metrics.f1_score(right, predicted, average="macro", zero_division=0),
        "eval_auc": np.mean(areas), **{f"eval_auc_{name}": area for name, area in zip(names, areas)},
        "eval_loss": np.mean([sklearn.metrics.log_loss(row, chances, labels=[0, 1])
                              for row, chances in zip(right, probabilities)]),
        "labels": label_scores(names, right, predicted)}


def recompute_regression(rows, names):
    """Returns the metrics of a regression from the rows of the table."""
    del names
    right, predicted = (np.array([float(row[key]) for row in rows]) for key in ("label", "prediction"))
    return {
        "eval_pearson": scipy.stats.pearsonr(right, predicted)[0],
        "eval_spearman": scipy.stats.spearmanr(right, predicted)[0],
        "eval_mae": sklearn.metrics.mean_absolute_error(right, predicted),
        "eval_rmse": sklearn.metrics.root_mean_squared_error(right, predicted),
        "eval_loss": sklearn.metrics.mean_squared_error(right, predicted)}


def recompute_tagging(rows, names):
    """Returns the scores of entities from the rows of the table."""
    del names
    sentences = {}
    for row in rows:
        sentences.setdefault(row["sentence"], []).append((row["label"], row["prediction"]))
    right, predicted = ([[pair[index] for pair in words] for words in sentences.values()] for index in (0, 1))
    values = {"eval_accuracy": seqeval.metrics.accuracy_score(right, predicted)}
    for name in ("precision", "recall", "f1"):
        values[f"eval_{name}"] = getattr(seqeval.metrics, f"{name}_score")(right, predicted)
    for kind, scores in seqeval.metrics.classification_report(right, predicted, output_dict=True).items():
        if " avg" not in kind:
            values.update({f"eval_precision_{kind}": scores["precision"], f"eval_recall_{kind}":
                           scores["recall"], f"eval_f1_{kind}": scores["f1-score"]})
    return values


# --- Comparison ------------------------------------------------------------------------------------------


def differences(reported, computed, path=""):
    """Yields (name, reported value, computed value, difference) for each number of `computed`."""
    for name, value in computed.items():
        place = f"{path}{name}"
        if name not in reported:
            yield place, None, value, float("inf")
        elif isinstance(value, dict):
            yield from differences(reported[name], value, f"{place} ")
        else:
            gap = np.max(np.abs(np.asarray(reported[name], float) - np.asarray(value, float)))
            yield place, reported[name], value, float(gap)


def check(name, arguments):
    """Trains and evaluates on a set, and compares all numbers. Returns whether they are equal."""
    with tempfile.TemporaryDirectory() as directory:
        words = command(name, directory, arguments)
        done = subprocess.run([sys.executable, os.path.join(ROOT, words[0]), *words[1:]], cwd=ROOT, text=True,
                              capture_output=True)
        if done.returncode:
            sys.exit(f"{name}: the command failed.\n{done.stderr[-3000:]}")
        output = os.path.join(directory, "output")
        with open(os.path.join(output, "eval_predictions.csv"), newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        with open(os.path.join(output, "eval_results.json"), encoding="utf-8") as stream:
            reported = json.load(stream)
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
            for file in ("eval_predictions.csv", "eval_results.json", "eval_report.html"):
                if os.path.exists(os.path.join(output, file)):
                    os.replace(os.path.join(output, file), os.path.join(arguments.keep, f"{name}_{file}"))
    names = [column.removeprefix("probability_") for column in rows[0] if column.startswith("probability_")]
    computed = globals()[f"recompute_{SETS[name]}"](rows, names)
    gaps = list(differences(reported, computed))
    worst = max(gaps, key=lambda gap: gap[3])
    wrong = [gap for gap in gaps if not gap[3] <= TOLERANCE]
    print(f"{name}: {len(rows)} rows, {len(gaps)} numbers, largest difference {worst[3]:.1e} ({worst[0]})",
          flush=True)
    for gap in wrong:
        print("  differs: {}: reported {}, computed {}".format(*gap[:3]), flush=True)
    return not wrong


def main():
    """Checks the sets that the arguments name. The exit code is 1 if a number differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--glue_dir", help="Directory of CoLA and STS-B.")
    parser.add_argument("--conll_dir", help="Directory of CoNLL-2003.")
    parser.add_argument("--sets", default=",".join(SETS), help="Names of the sets.")
    parser.add_argument("--epochs", type=float, default=0.3, help="Length of each training.")
    parser.add_argument("--keep", help="Directory in which the tables and reports are kept.")
    arguments = parser.parse_args()
    equal = [check(name, arguments) for name in arguments.sets.split(",")]
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
