"""Log lines about lengths of texts and about examples of predictions; the folders of summaries."""

import types

from helpers import write_json
import model_directories
import numpy as np
import pytest

from bertlib.runs.settings import Settings
from bertlib.tasks import text_windows
from bertlib.tasks.classification import classification_results
from bertlib.tasks.classification.classification_target import SingleLabel
from bertlib.tasks.classification.classification_task import Classification
from bertlib.tasks.classification.classifier_data import get_processor


@pytest.mark.parametrize("lengths, said", [
    ([3, 5], "0 of 2 examples (0.0%) are longer than --max_seq_length=6; the longest has 5 tokens."),
    ([7] + [6] * 9, "1 of 10 examples (10.0%) are longer than --max_seq_length=6; the longest has 7 tokens. "
     "These examples were truncated. To use more of their text, raise --max_seq_length.")])
def test_lengths_in_words(lengths, said):
    assert text_windows.describe_lengths(lengths, "example", 6) == said


@pytest.mark.parametrize("right, expected", [
    ([1, 1, 1, 1], [0, 1, 2]), ([1, 1, 1, 1, 0, 0], [0, 1, 4]), ([0, 0, 0, 1], [0, 1, 3]), ([], [])])
def test_one_is_right_and_one_wrong_if_there_are_such(right, expected):
    assert classification_results.choose_samples([bool(value) for value in right]) == expected


@pytest.mark.parametrize("trained, split, folder", [
    ("mrpc", "dev", None), ("mrpc", "test", "test"), ("cola", "dev", "mrpc"), ("cola", "test", "test_mrpc")])
def test_summaries_of_another_task_than_the_trained_one_have_their_own_folder(trained, split, folder,
                                                                              tmp_path):
    write_json(tmp_path / "run.json", model_directories.record(["0", "1"], task=trained))
    task = Classification(Settings({"do_train": False, "results_dir": str(tmp_path), "task_name": "MRPC",
                                    "predict_batch_size": 8}))
    task.processor, task.target, task._test_has_labels = get_processor("mrpc"), SingleLabel(["0", "1"]), True
    task.settings.doc_stride, task.data = 0, {split: [types.SimpleNamespace(label="1")]}
    inference = types.SimpleNamespace(
        rows_of=lambda batches: [{"probabilities": np.float32([0.2, 0.8]), "loss": 0.2}],
        evaluate=lambda score, size, name: (score(None)[0], name))
    assert task.evaluate_during_training(split, inference) == folder
