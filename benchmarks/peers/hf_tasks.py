"""Trains Hugging Face's model on STS-B, CoLA, MRPC or CoNLL-2003, for benchmarks/tasks.py and stability.py.

    python benchmarks/peers/hf_tasks.py SETTINGS            (JSON; see tasks.py)

The settings are those that are fastest in PyTorch. The script prints the scores on the development set as
JSON.
"""

import csv
import itertools
import json
import os
import random
import sys

from hf_compare import Trainer, autocast, tokenizer
import numpy as np
from scipy import stats
import seqeval.metrics
from sklearn import metrics
import torch
import transformers

# The label of word pieces without a tag. In torch, such word pieces are not a part of the loss.
NO_TAG = -100


def read_glue(settings, part):
    """Returns the rows of STS-B, CoLA or MRPC: [(tuple of texts, label)]."""
    with open(os.path.join(settings["data_dir"], f"{part}.tsv"), encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    if settings["task"] == "CoLA":
        return [((row[3],), int(row[1])) for row in rows]
    header, *rows = rows
    if settings["task"] == "MRPC":
        return [((row[3], row[4]), int(row[0])) for row in rows]
    columns = [header.index(name) for name in ("sentence1", "sentence2", "score")]
    return [((row[columns[0]], row[columns[1]]), float(row[columns[2]])) for row in rows]


def read_conll(settings, part):
    """Reads the file of a part, such as train.txt. Its first column is the word, and its last column the tag.
    Returns the sentences as a list of (words, tags)."""
    with open(os.path.join(settings["data_dir"], f"{part}.txt"), encoding="utf-8") as lines:
        blocks = [list(block) for filled, block in itertools.groupby(lines, lambda line: bool(line.strip()))
                  if filled]
    rows = [[line.split() for line in block if not line.startswith("-DOCSTART-")] for block in blocks]
    return [([row[0] for row in block], [row[-1] for row in block]) for block in rows if block]


def batch(settings, rows):
    """Returns (arguments of the model, labels). The batch is padded to its longest row."""
    if settings["tags"] is None:
        texts = list(zip(*(texts for texts, _ in rows)))
        arguments = settings["tokenizer"](*map(list, texts), truncation=True, max_length=settings["length"],
                                          padding=True, return_tensors="pt")
        return arguments, torch.tensor([label for _, label in rows])
    arguments = settings["tokenizer"]([words for words, _ in rows], is_split_into_words=True, truncation=True,
                                      max_length=512, padding=True, return_tensors="pt")
    labels = torch.full(arguments["input_ids"].shape, NO_TAG)
    for index, (_, tags) in enumerate(rows):
        for place, word in first_pieces(arguments.word_ids(index)):
            labels[index, place] = settings["tags"].index(tags[word])
    return arguments, labels


def first_pieces(word_ids):
    """Yields (position of the word piece, index of the word) for the first piece of each word."""
    previous = None
    for place, word in enumerate(word_ids):
        if word is not None and word != previous:
            yield place, word
        previous = word


def train(settings, model, rows):
    """Trains the model on random batches of `rows`. `settings["count"]` is the number of steps."""
    trainer = Trainer(settings, model, settings["total_steps"])
    for group in trainer.optimizer.param_groups:
        group["initial_lr"] = settings["learning_rate"]
    trainer.schedule.base_lrs = [settings["learning_rate"]] * len(trainer.optimizer.param_groups)
    order = []
    for _ in range(settings["count"]):
        if len(order) < settings["batch_size"]:
            order = random.sample(rows, len(rows))
        some, order = order[:settings["batch_size"]], order[settings["batch_size"]:]
        trainer.step(*batch(settings, some))


@torch.inference_mode()
def outputs(settings, model, rows):
    """Runs the model on the rows, in batches.

    Yields (row, its logits, the model's arguments for the batch, index of the row in the batch). The rows are
    sorted by length, so that each batch needs little padding. The longest rows come first.
    """
    model.eval()
    rows = sorted(rows, key=lambda row: -sum(map(len, row[0])))
    for first in range(0, len(rows), settings["batch_size"]):
        some = rows[first:first + settings["batch_size"]]
        arguments, _ = batch(settings, some)
        with autocast(settings):
            logits = model(**arguments).logits.float().numpy()
        yield from ((row, logits[index], arguments, index) for index, row in enumerate(some))


def scores(settings, model, rows):
    """Returns the metrics of the task as a dict. The metrics of a classifier include its confusion matrix."""
    found = list(outputs(settings, model, rows))
    if settings["tags"] is not None:
        actual, predicted = [], []
        for (words, tags), logits, arguments, index in found:
            best = ["O"] * len(words)
            for place, word in first_pieces(arguments.word_ids(index)):
                best[word] = settings["tags"][logits[place].argmax()]
            actual.append(tags)
            predicted.append(best)
        return {"f1": seqeval.metrics.f1_score(actual, predicted),
                "precision": seqeval.metrics.precision_score(actual, predicted)}
    labels, logits = np.array([row[1] for row, *_ in found]), np.array([logits for _, logits, *_ in found])
    if settings["task"] == "STS-B":
        return {"pearson": stats.pearsonr(labels, logits[:, 0])[0],
                "spearman": stats.spearmanr(labels, logits[:, 0])[0]}
    best = logits.argmax(axis=1)
    return {"matthews": metrics.matthews_corrcoef(labels, best),
            "accuracy": metrics.accuracy_score(labels, best), "f1": metrics.f1_score(labels, best),
            "confusion_matrix": metrics.confusion_matrix(labels, best).tolist()}


def main():
    """Trains a model. If the setting "evaluate" is true, also evaluates the model."""
    settings = json.loads(sys.argv[1])
    transformers.logging.set_verbosity_error()
    torch.manual_seed(settings["seed"])
    random.seed(settings["seed"])
    settings["tokenizer"] = tokenizer(settings["vocab"])
    read, kind, size = read_glue, transformers.BertForSequenceClassification, 2
    settings["tags"] = None
    if settings["task"] == "STS-B":
        size = 1
    elif settings["task"] == "CoNLL-2003":
        read, kind = read_conll, transformers.BertForTokenClassification
    rows = read(settings, "train")
    if read is read_conll:
        settings["tags"] = sorted({tag for _, tags in rows for tag in tags})
        size = len(settings["tags"])
    model = kind.from_pretrained(settings["model"], num_labels=size,
                                 attn_implementation=settings["attention"])
    train(settings, model, rows)
    if settings["evaluate"]:
        print(json.dumps(scores(settings, model, read(settings, "dev")), default=float))


if __name__ == "__main__":
    main()
