"""Checks the numbers of evaluations: computes them again from the tables of predictions with other libraries.

    python benchmarks/report_numbers.py --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR
    python benchmarks/report_numbers.py --glue_dir=$GLUE_DIR --conll_dir=$CONLL_DIR --sets=scores,STS-B

The script trains the installed model for some steps on six data sets. Three of the sets are generated and
have 10,000 noisy rows: topics (one label), labels (several labels) and scores. The other sets are CoLA, STS-B
and CoNLL-2003. scikit-learn, SciPy and seqeval then compute each number from eval_predictions.csv. The script
compares these numbers with eval_results.json and with eval_report.html. The script fails if two numbers
differ by more than 1e-6. For numbers above 1, this is a relative difference, because TensorFlow adds losses
in float32. The script needs the packages of requirements-dev.txt.
"""

import argparse
import collections
import csv
import html.parser
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import results
import scipy.stats
import seqeval.metrics
from seqeval.metrics.sequence_labeling import get_entities
import sklearn.metrics

TOLERANCE = 1e-6
ROWS = 10_000
SHOWN_ERRORS = 50
# The default of --eval_batch_size. This size is needed to compute the metric "loss", which is the mean of the
# losses of the batches.
EVAL_BATCH = 8
NO_ENTITY = "(no entity)"
WORDS = {
    "sport": "match goal player season coach league stadium score referee training",
    "travel": "flight hotel beach ticket luggage museum train passport island tour",
    "food": "soup bread recipe oven salt dinner cheese pepper kitchen taste",
    "money": "bank loan market price tax salary budget profit share invoice",
    "health": "doctor clinic fever nurse pill sleep vitamin pain surgery diet",
}
FILLER = 'the a of this was with my very and then it we they said about, after = "quoted" 3.5 -2 @home'
GENERATED = ("topics", "labels", "scores")
# Maps the name of each data set to the type of its task.
SETS = {"topics": "classification", "labels": "multilabel", "scores": "regression", "CoLA": "classification",
        "STS-B": "regression", "CoNLL-2003": "tagging"}
# Maps each task type to a metric that shows whether the model has learned something.
QUALITY = {"classification": "eval_matthews", "multilabel": "eval_f1_micro", "regression": "eval_pearson",
           "tagging": "eval_f1"}


# --- Data ------------------------------------------------------------------------------------------------


def noisy_text(rng, topics):
    """Returns a text of 3 to 40 random words. Some words belong to one of the given topics, and the other
    words belong to no topic. One text in ten contains a line end."""
    words = [rng.choice((WORDS[rng.choice(topics)] if topics and rng.random() < 0.4 else FILLER).split())
             for _ in range(rng.randint(3, 40))]
    if rng.random() < 0.1:
        words.insert(1, "\n")
    return " ".join(words)


def write_generated(name, path):
    """Writes generated texts with labels as CSV. About one label in ten is drawn at random, independently of
    its text."""
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
    """Returns the command that trains and evaluates on a data set."""
    output = [f"--output_dir={os.path.join(directory, 'output')}", "--max_seq_length=64",
              "--train_batch_size=32", "--precision=bf16"]
    if name in GENERATED:
        path = os.path.join(directory, f"{name}.csv")
        write_generated(name, path)
        return ["run_classifier.py", f"--train_file={path}", "--dev_fraction=0.2",
                f"--task_type={SETS[name]}", "--text_column=text", "--label_column=label",
                "--learning_rate=2e-4", "--num_train_epochs=0.3", *output]
    output += ["--do_train=true", "--do_eval=true"]
    if name == "CoNLL-2003":
        return ["run_ner.py", f"--data_dir={arguments.conll_dir}", "--learning_rate=1e-4",
                "--num_train_epochs=0.3", *output]
    return ["run_classifier.py", f"--task_name={name}", "--learning_rate=5e-5",
            f"--num_train_epochs={1 if name == 'STS-B' else 2}",
            f"--data_dir={os.path.join(arguments.glue_dir, name)}", *output]


# --- The same numbers from other libraries ---------------------------------------------------------------
# Each `recompute` function returns (metrics as in eval_results.json, {heading of the report: section}). A
# section is {name of a row: numbers}. Two entries are different: "errors" is a list of (line, numbers), and
# "lengths" is (number of examples, mean over all examples).


def probabilities_of(rows, names):
    """Returns the probabilities in the table: an array [rows, labels]."""
    return np.array([[float(row[f"probability_{name}"]) for name in names] for row in rows])


def label_scores(names, right, predicted):
    """Returns {label: dict with precision, recall, F1 and support}, computed by scikit-learn."""
    columns = sklearn.metrics.precision_recall_fscore_support(
        right, predicted, labels=range(len(names)), zero_division=0)
    return {name: dict(zip(("precision", "recall", "f1", "support"), map(float, values)))
            for name, *values in zip(names, *columns)}


def mean_of_batches(losses):
    """Divides losses into batches. Returns the mean of the batches' means. The last batch may be smaller."""
    return np.mean([np.mean(losses[start:start + EVAL_BATCH]) for start in range(0, len(losses), EVAL_BATCH)])


def most_confident(rows, confidences, numbers):
    """Returns the errors that the report must show: a list of (line, numbers). The list contains the wrong
    rows with the largest confidences.

    Args:
      rows: list of rows of the table.
      confidences: list of numbers; None for a row without an error.
      numbers: function (index of a row) -> list of the numbers that the report shows in the heading of this
        error.
    """
    wrong = [index for index, confidence in enumerate(confidences) if confidence is not None]
    wrong.sort(key=lambda index: (-confidences[index], index))
    return [(int(rows[index]["line"]), numbers(index)) for index in wrong[:SHOWN_ERRORS]]


def recompute_classification(rows, names):
    """Computes the metrics of a classification, and the numbers in its report.

    Args:
      rows: list of rows of the table of predictions.
      names: list of the labels.

    Returns:
      (metrics, numbers in the report), two dicts.
    """
    right, predicted = ([names.index(row[key]) for row in rows] for key in ("label", "prediction"))
    probabilities = probabilities_of(rows, names)
    losses = -np.log(probabilities[range(len(rows)), right])
    two = len(names) == 2
    matrix = sklearn.metrics.confusion_matrix(right, predicted, labels=range(len(names)))
    accuracy = sklearn.metrics.accuracy_score(right, predicted)
    metrics = {
        "eval_accuracy": accuracy,
        "eval_f1": sklearn.metrics.f1_score(right, predicted, labels=range(len(names)), zero_division=0,
                                            **({} if two else {"average": "macro"})),
        "eval_matthews": sklearn.metrics.matthews_corrcoef(right, predicted),
        "eval_loss": np.mean(losses), "loss": mean_of_batches(losses), "eval_confusion_matrix": matrix,
        "labels": label_scores(names, right, predicted)}
    chosen = probabilities[range(len(rows)), predicted]
    errors = most_confident(
        rows, [chance if one != other else None for chance, one, other in zip(chosen, right, predicted)],
        lambda index: [chosen[index]])
    return metrics, {"summary": {"": [accuracy]}, "Confusion matrix": dict(zip(names, matrix)),
                     "lengths": (len(rows), accuracy), "errors": errors}


def recompute_multilabel(rows, names):
    """Computes the metrics and the report of a multi-label task; see `recompute_classification`."""
    right, predicted = (np.array([[name in row[key].split(",") for name in names] for row in rows], int)
                        for key in ("label", "prediction"))
    probabilities = probabilities_of(rows, names)
    areas = [sklearn.metrics.roc_auc_score(right[:, index], probabilities[:, index])
             for index in range(len(names))]
    losses = [sklearn.metrics.log_loss(row, chances, labels=[0, 1])
              for row, chances in zip(right, probabilities)]
    accuracy = sklearn.metrics.accuracy_score(right, predicted)
    metrics = {
        "eval_f1_micro": sklearn.metrics.f1_score(right, predicted, average="micro", zero_division=0),
        "eval_f1_macro": sklearn.metrics.f1_score(right, predicted, average="macro", zero_division=0),
        "eval_auc": np.mean(areas), **{f"eval_auc_{name}": area for name, area in zip(names, areas)},
        "eval_loss": np.mean(losses), "loss": mean_of_batches(losses),
        "labels": label_scores(names, right, predicted)}
    confidence = np.where(predicted == 1, probabilities, 1 - probabilities) * (right != predicted)
    order = np.argsort(-confidence, axis=1, kind="stable")
    errors = most_confident(
        rows, [max(row) or None for row in confidence],
        lambda index: [probabilities[index, label] for label in order[index] if confidence[index, label]])
    return metrics, {"summary": {"": [accuracy]}, "lengths": (len(rows), accuracy), "errors": errors}


def recompute_regression(rows, names):
    """Computes the metrics of a regression, and the numbers in its report, from the rows of
    eval_predictions.csv."""
    del names
    right, predicted = (np.array([float(row[key]) for row in rows]) for key in ("label", "prediction"))
    error = sklearn.metrics.mean_absolute_error(right, predicted)
    metrics = {
        "eval_pearson": scipy.stats.pearsonr(right, predicted)[0],
        "eval_spearman": scipy.stats.spearmanr(right, predicted)[0],
        "eval_mae": error,
        "eval_rmse": sklearn.metrics.root_mean_squared_error(right, predicted),
        "eval_loss": sklearn.metrics.mean_squared_error(right, predicted),
        "loss": mean_of_batches((right - predicted) ** 2)}
    errors = most_confident(rows, np.abs(right - predicted),
                            lambda index: [predicted[index], right[index]])
    return metrics, {"lengths": (len(rows), error), "errors": errors}


def recompute_tagging(rows, names):
    """Computes the scores of the entities from the rows of the table of predictions."""
    del names
    sentences = {}
    for row in rows:
        sentences.setdefault(row["sentence"], []).append((row["label"], row["prediction"]))
    right, predicted = ([[pair[index] for pair in words] for words in sentences.values()] for index in (0, 1))
    metrics = {"eval_accuracy": seqeval.metrics.accuracy_score(right, predicted)}
    for name in ("precision", "recall", "f1"):
        metrics[f"eval_{name}"] = getattr(seqeval.metrics, f"{name}_score")(right, predicted)
    of_kind = {kind: scores for kind, scores in seqeval.metrics.classification_report(
        right, predicted, output_dict=True).items() if not kind.endswith(" avg")}
    for kind, scores in of_kind.items():
        metrics.update({f"eval_precision_{kind}": scores["precision"], f"eval_recall_{kind}":
                        scores["recall"], f"eval_f1_{kind}": scores["f1-score"]})
    pairs, without_error = collections.Counter(), []
    for one, other in zip(right, predicted):
        real, found = ({(first, last): kind for kind, first, last in get_entities(tags)}
                       for tags in (one, other))
        without_error.append((len(one), real == found))
        pairs.update((real.get(span, NO_ENTITY), found.get(span, NO_ENTITY)) for span in {*real, *found})
    kinds = [*sorted(of_kind), NO_ENTITY]
    types = {}
    for kind, scores in of_kind.items():
        support, hits = int(scores["support"]), pairs[kind, kind]
        found = sum(pairs[other, kind] for other in kinds)
        types[kind] = [scores["precision"], scores["recall"], scores["f1-score"], support, hits, found - hits,
                       support - hits]
    share = np.mean([is_right for _, is_right in without_error])
    return metrics, {
        "summary": {"": [share]}, "Types of entities": types, "lengths": (len(sentences), share),
        "Confusions between types": {kind: [pairs[kind, other] for other in kinds] for kind in kinds}}


# --- The numbers of a report -----------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Reads the page of a report, and stores its numbers without rounding.

    Attributes:
      sections: {heading of a section: {name of a row in the section: numbers}}. The numbers above the first
        heading are in the section "summary".
      errors: list of (line number, numbers), one entry for each wrong prediction that the page shows.
    """

    def __init__(self, text):
        super().__init__()
        self.sections, self.errors = {"summary": {"": []}}, []
        self._heading, self._row, self._error, self._reads = "summary", "", None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "h2":
            self._reads, self._heading = "heading", ""
        elif tag == "tr":
            self._row = ""
        elif tag == "th" and not self._row:
            self._reads = "row"
        elif tag == "article":
            self._error = []
        elif tag == "p" and self._error is not None:
            self._reads = "place"
        elif tag == "data":
            value = float(dict(attributes)["value"])
            if self._error is not None:
                self._error.append(value)
            else:
                self.sections.setdefault(self._heading, {}).setdefault(self._row, []).append(value)

    def handle_endtag(self, tag):
        if tag in ("h2", "th", "p"):
            self._reads = None

    def handle_data(self, data):
        if self._reads == "heading":
            self._heading += data
        elif self._reads == "row":
            self._row += data
        elif self._reads == "place" and (place := re.search(r", line (\d+)$", data)):
            self.errors.append((int(place[1]), self._error))


def numbers_of_report(page, metrics, sections):
    """Yields (name, number in the report, computed number).

    Args:
      page: `Page`.
      metrics, sections: the result of a `recompute` function.
    """
    shown = page.sections["Metrics"]
    for name in set(metrics) & set(shown):
        yield f"report, {name}", shown[name][0], metrics[name]
    expected = {name: rows for name, rows in sections.items() if name not in ("lengths", "errors")}
    if "labels" in metrics:
        expected["Labels"] = {name: list(scores.values()) for name, scores in metrics["labels"].items()}
    for heading, rows in expected.items():
        found = page.sections.get(heading, {})
        if set(found) != set(rows):
            yield f"report, {heading}, names", float("nan"), 0.0
            continue
        for name, values in rows.items():
            yield from pairs_of(f"report, {heading}, {name}", found[name], values)
    # The lengths in tokens are not in the table of predictions. So only this is checked: the mean of the
    # values for all lengths, weighted by the numbers of examples, must be the mean over all examples.
    count, mean = sections["lengths"]
    of_lengths = np.array(list(next(
        rows for heading, rows in page.sections.items() if heading.endswith("by length")).values()))
    yield "report, examples by length", of_lengths[:, 1].sum(), count
    yield "report, mean by length", np.average(of_lengths[:, 0], weights=of_lengths[:, 1]), mean
    if "errors" in sections:
        yield "report, number of errors", len(page.errors), len(sections["errors"])
        for number, (found, wanted) in enumerate(zip(page.errors, sections["errors"]), 1):
            yield from pairs_of(f"report, error {number}", [found[0], *found[1]], [wanted[0], *wanted[1]])


def pairs_of(name, found, computed):
    """Pairs the elements of two lists. For each position, yields (name, element of `found`, element of
    `computed`)."""
    if len(found) != len(computed):
        yield f"{name}, count", len(found), len(computed)
    for one, other in zip(found, computed):
        yield name, one, other


# --- Comparison ------------------------------------------------------------------------------------------


def numbers_of_results(reported, computed, path=""):
    """Yields (name, reported number, computed number) for each number of `computed`."""
    for name, value in computed.items():
        if isinstance(value, dict):
            yield from numbers_of_results(reported.get(name, {}), value, f"{path}{name} ")
        else:
            found = np.asarray(reported.get(name, float("nan")), float)
            found, wanted = np.broadcast_arrays(found, np.asarray(value, float))
            yield from ((path + name, *pair) for pair in zip(found.ravel(), wanted.ravel()))


def check(name, arguments):
    """Trains and evaluates on a data set, and compares all numbers in the reports with recomputed numbers.
    Returns a dict for `results.Recorder.add`."""
    with tempfile.TemporaryDirectory() as directory:
        words = command(name, directory, arguments)
        done = subprocess.run([sys.executable, os.path.join(results.ROOT, words[0]), *words[1:]],
                              cwd=results.ROOT, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{name}: the command failed.\n{done.stderr[-3000:]}")
        output = os.path.join(directory, "output")
        texts = {}
        for file in ("eval_predictions.csv", "eval_results.json", "eval_report.html"):
            path = os.path.join(output, file)
            with open(path, newline="", encoding="utf-8") as stream:
                texts[file] = stream.read()
            if arguments.keep:
                os.makedirs(arguments.keep, exist_ok=True)
                shutil.copy(path, os.path.join(arguments.keep, f"{name}_{file}"))
    rows = list(csv.DictReader(texts["eval_predictions.csv"].splitlines(keepends=True)))
    reported, page = json.loads(texts["eval_results.json"]), Page(texts["eval_report.html"])
    names = [column.removeprefix("probability_") for column in rows[0] if column.startswith("probability_")]
    metrics, sections = globals()[f"recompute_{SETS[name]}"](rows, names)
    found = {"eval_results.json": list(numbers_of_results(reported, metrics)),
             "eval_report.html": list(numbers_of_report(page, metrics, sections))}
    gaps = [(abs(one - other) / max(1, abs(other)), file, what, one, other) for file, numbers in found.items()
            for what, one, other in numbers]
    wrong = [gap for gap in gaps if not gap[0] <= TOLERANCE]
    worst = max(gaps, key=lambda gap: (gap[0] != gap[0], gap[0]))
    left_out = sorted({*reported, *page.sections["Metrics"]} - {*metrics, "labels"})
    print(f"{name}: {len(rows)} rows, {len(gaps)} numbers, largest difference {worst[0]:.1e} ({worst[2]}); "
          f"not in the table: {', '.join(left_out)}", flush=True)
    for _, file, what, one, other in wrong:
        print(f"  differs, {file}: {what}: reported {one}, computed {other}", flush=True)
    quality = QUALITY[SETS[name]]
    return {"set": name, "task": SETS[name], "rows": len(rows), "metric": quality,
            "quality": round(float(metrics[quality]), 4), "in_results": len(found["eval_results.json"]),
            "in_report": len(found["eval_report.html"]), "largest_difference": float(f"{worst[0]:.2g}"),
            "largest_in": worst[2], "wrong": len(wrong), "not_computed": left_out}


def main():
    """Checks the reported numbers for each data set in --sets. The exit code is 1 if a number differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--glue_dir", help="Directory with the data of CoLA and STS-B.")
    parser.add_argument("--conll_dir", help="Directory with the data of CoNLL-2003.")
    parser.add_argument("--sets", default=",".join(SETS), help="Names of the data sets to check.")
    parser.add_argument("--keep", help="Directory in which the tables and reports are kept.")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"quality": "", "largest_difference": ""},
                                packages=("scikit-learn", "scipy", "seqeval"))
    wrong = 0
    for name in arguments.sets.split(","):
        found = check(name, arguments)
        wrong += found["wrong"]
        recorder.add(**found)
    recorder.write()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
