"""Ranks two texts: predicts which of them is longer. A complete task outside of the package `bertlib`.

    python run_classifier.py --task_module=tests/data/ranking.py --train_file=train.csv --dev_file=dev.csv

The files have the columns text_a, text_b and label. The label is "first" or "second".
"""

import csv
import os

import numpy as np

from bertlib.data import prediction_files
from bertlib.data.prediction_rows import PredictedRow
from bertlib.runs import model_config
from bertlib.runs.input_paths import require_file
from bertlib.system import files
from bertlib.tasks import data_splits, results
from bertlib.tasks.classification import classifier_features
from bertlib.tasks.classification.classification_target import SingleLabel
from bertlib.tasks.task import Task

COLUMNS = ["text_a", "text_b", "label"]


class Ranking(Task):
    command, noun, title = "run_classifier.py", "pair", "Pairs of the development file"
    feature_files = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
    metric_titles = {"eval_accuracy": "accuracy"}
    target = SingleLabel(["first", "second"])

    def __init__(self, settings):
        super().__init__(settings)
        self.pairs = {}  # {split: list of `InputExample`}

    def resolve(self):
        self.resolve_run("ranking")
        model_config.resolve_model_flags(self.settings)

    def input_files(self):
        return data_splits.list_files(self.settings)

    def result_names(self, split):
        return (["eval_results.txt", "eval_results.json", "eval_predictions.csv"] if split == "dev"
                else ["test_predictions.csv"])

    def read(self):
        for split in data_splits.needed(self.settings):
            path = require_file(self.settings, f"{split}_file")
            rows = list(csv.reader(files.read_text(path).splitlines()))
            for line, row in enumerate(rows, 1):
                labels = COLUMNS[2:] if line == 1 else self.target.labels
                if row[:2] != COLUMNS[:2] and line == 1 or len(row) != 3 or row[2] not in labels:
                    raise ValueError(f"{path}:{line}: the row has to contain text_a, text_b and a label. "
                                     "Correct the row.")
            self.pairs[split] = [classifier_features.InputExample(str(line), *row)
                                 for line, row in enumerate(rows[1:], 2)]

    def splits(self):
        return [split for split in self.pairs if split != "train"]

    def num_examples(self):
        return len(self.pairs.get("train", ()))

    def record_fields(self):
        return {"task": "ranking", "labels": self.target.labels,
                **data_splits.data_fields(self.settings, lambda: len(self.pairs["dev"]))}

    def write_features(self, split, path):
        classifier_features.FeatureRecords(
            self.pairs[split], self.target, self.settings.max_seq_length, self.tokenizer,
            self.settings.num_workers).write(path, self.settings.features_cache)

    def predict(self, split, inference):
        probabilities = np.array([row["probabilities"] for row in inference.rows()])
        ids = np.array([self.target.encode_label(pair.label) for pair in self.pairs[split]])
        losses = self.target.losses(ids, probabilities)
        metrics = self.target.metrics(ids, probabilities, losses)
        return probabilities, {**metrics, "global_step": inference.step}

    def evaluate_and_write(self, split, inference):
        probabilities, scores = self.predict(split, inference)
        if split == "dev":
            results.write_metrics(self.settings, split, "eval_results", scores)
        rows = []
        for pair, numbers in zip(self.pairs[split], probabilities):
            answer, by_label = self.target.row_answer(numbers)
            texts = {"text_a": pair.text_a, "text_b": pair.text_b}
            rows.append(PredictedRow(int(pair.guid), texts, tuple(texts.values()), pair.label, answer,
                                     by_label, pair.label == answer))
        path = os.path.join(self.settings.results_dir, self.result_names(split)[-1])
        prediction_files.write_predictions(path, rows)
