"""Measures the quality of trained models on their development sets: in TensorFlow, ONNX, and ONNX with int8.

    python benchmarks/onnx_quality.py --model_dir=output/mrpc [--model_dir=output/conll] [--results=NAME]

A model is the output directory of run_classifier.py with a task of GLUE, or of run_ner.py. The data of its
training must still exist. export.py writes the ONNX files into a temporary directory. The quality of a
classifier is its accuracy, that of a regression is the correlation of Pearson, and that of a tagger is the F1
of its entities. The CPU seconds are the sum over all answers. The time to load the model is not included.

Each model can be measured with a separate command, because render.py uses all results whose names begin with
onnx_quality.
"""

import argparse
import operator
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import numpy as np
import results

from bertlib import serving
from bertlib.runs import trained_model
from bertlib.tasks import data_splits
from bertlib.tasks.tagging.tag_schemes import entity_spans

UNITS = {"quality": "%", "cpu": "CPU s", "differing": "predictions", "num_train_epochs": "epochs",
         "learning_rate": ""}
TRAINING = ("seed", "num_train_epochs", "learning_rate", "train_batch_size")  # recorded flags
# Maps each compared form of a model to the flags with which export.py writes it. None: no export is needed.
SIDES = {"TensorFlow": None, "ONNX": [], "ONNX, int8": ["--quantize=int8"]}


def quality(predictions, gold):
    """Compares predictions with the right answers. Returns a percentage: the accuracy if the predictions are
    labels, the correlation if they are scores, or the F1 of the entities if they are tags."""
    if isinstance(gold[0], float):
        return 100 * float(np.corrcoef(predictions, gold)[0, 1])
    if isinstance(gold[0], str):
        return 100 * sum(map(str.__eq__, predictions, gold)) / len(gold)
    found, right = ({(number, *span) for number, tags in enumerate(all_tags) for span in entity_spans(tags)}
                    for all_tags in (predictions, gold))
    return 200 * len(found & right) / (len(found) + len(right))


def export(model_dir, directory, flags):
    """Exports a model as an ONNX file; returns the directory of the export."""
    subprocess.run([sys.executable, os.path.join(results.ROOT, "export.py"), f"--model_dir={model_dir}",
                    "--format=onnx", f"--output_dir={directory}", "--compare_examples=1", *flags], check=True,
                   stderr=subprocess.DEVNULL)
    version, = os.listdir(directory)
    return os.path.join(directory, version)


def measure(model_dir, recorder):
    """Measures the quality and the CPU time of a model, in TensorFlow and as each ONNX file of `SIDES`.
    Prints and records the results."""
    model = trained_model.read(model_dir)
    inputs, gold = zip(*data_splits.read_dev_set(model))
    first = None
    for side, flags in SIDES.items():
        with tempfile.TemporaryDirectory() as directory:
            path = model_dir if flags is None else export(model_dir, os.path.join(directory, "export"), flags)
            with serving.load(path) as predictor:
                prepared = [predictor.prepare(*texts) for texts in inputs]
                predictor.answer(prepared[:1])
                start = time.process_time()
                answers = predictor.answer(prepared)
                seconds = time.process_time() - start
        predictions = [answer.get("prediction", answer.get("tags")) for answer in answers]
        first = first or predictions
        row = {"task": model.task_name, **{name: model.setting(name) for name in TRAINING},
               "examples": len(gold), "side": side, "quality": quality(predictions, gold), "cpu": seconds,
               "differing": None if isinstance(gold[0], float) else sum(map(operator.ne, predictions, first))}
        recorder.add(**row)
        print(row, flush=True)


def main():
    """Measures the quality and the CPU seconds of each model, with TensorFlow and as ONNX files."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", action="append", required=True, help="output directory of a training")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, UNITS)
    for model_dir in arguments.model_dir:
        measure(model_dir, recorder)
    recorder.write()


if __name__ == "__main__":
    main()
