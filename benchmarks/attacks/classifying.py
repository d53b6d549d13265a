"""Lets predict.py, and each phase of run_classifier.py, read a user's file.

The answers must belong to the rows that the attack wrote, in the same order. The metrics must be equal to
those that scikit-learn and SciPy compute from the files that the commands wrote.
"""

import gzip
import json
import math

from attacks import oracle, sheets, world
from attacks.trial import Bad
import numpy as np

_MODELS = sorted(world.LAYOUTS)


def _comparable(answer):
    """Returns the part of an answer that is compared: its numbers, as a list."""
    if "score" in answer:
        return [answer["score"]]
    return list(answer["probabilities"].values())


def check_answers(trial, name, questions, found):
    """Raises `Bad` if the numbers in the answers (`found`) differ from those of the Python predictor for the
    same questions, or if the number of answers is wrong."""
    if len(found) != len(questions):
        raise Bad("wrong result", f"{len(found)} answers for {len(questions)} rows; the first answers are "
                  f"{found[:2]}"[:500])
    expected = trial.world.answers(name, questions)
    for index, (ours, theirs) in enumerate(zip(expected, found)):
        if not np.allclose(_comparable(ours), theirs, rtol=0, atol=oracle.TOLERANCE):
            raise Bad("wrong result", f"row {index + 1}, {questions[index]!r:.150}: the command "
                      f"answers {theirs}, but the Python predictor answers {_comparable(ours)}")


def read_answers(path):
    """Returns the answers in a JSON Lines file. Raises `Bad` for NaN and Infinity, which are not JSON."""
    def refuse(text):
        raise Bad("wrong result", f"{text} in JSON output")
    content = path.read_bytes()
    content = gzip.decompress(content) if path.name.endswith(".gz") else content
    return [json.loads(line, parse_constant=refuse)
            for line in content.decode("utf-8").split("\n") if line]


def rows(trial):
    """Writes a file of rows. One thing in the file is changed, such as the delimiter. Then a command reads
    the file as training, development or test data, or predict.py answers its rows."""
    phase = trial.chance.choice(("predict", "predict", "test", "dev", "train"))
    name = trial.chance.choice(_MODELS)
    kind, sheet = sheets.draw(trial.chance, name)
    trial.note(f"{phase} of {name}: {kind}")
    trained = trial.world.take(trial.here, name)
    path = trial.write(sheet.name, sheet.content())
    if all(must == "right" for must in sheet.must.values()):
        _read_plainly(path, sheet)
    {"predict": _predict, "test": _test, "dev": _dev, "train": _train}[phase](trial, trained, sheet)


def _read_plainly(path, sheet):
    """Reads a valid file with the simple reader. Raises an error if the texts differ from those that the
    attack wrote."""
    texts = [sheet.shown.get(name, name) for name in sheet.texts]
    found = [tuple(row[name] for name in texts)
             for row in oracle.rows_of(path, sheet.delimiter, sheet.has_header)]
    if found != [row[0] for row in sheet.expected]:
        raise RuntimeError(f"{path} does not contain the texts that the attack wrote: correct the attack")


# --- predict.py ------------------------------------------------------------------------------------------


def _predict(trial, trained, sheet):
    skips = trial.chance.random() < 0.5
    output = trial.chance.choice(["answers.jsonl", "answers.jsonl", "answers.jsonl.gz"])
    finished = trial.run("predict.py", model_dir=trained.directory, input_file=sheet.name,
                         output_file=output, skip_bad_lines=skips or None, **sheet.flags)
    must, expected = sheet.must["predict"], sheet.expected
    if skips and must == "refused":
        # With --skip_bad_lines, the command may succeed. `_check_skipped` then checks the answers.
        must = "either"
    succeeded = trial.expect(finished, must)
    path = trial.here / output
    if not succeeded:
        _check_before(trial, trained, expected, path, skips)
        return
    if expected is None and not skips:
        raise Bad("accepted", finished.err[-500:])
    found = read_answers(path)
    if skips:
        _check_skipped(trial, trained, sheet, found)
        return
    if None in expected:
        raise Bad("accepted", f"{found[expected.index(None)]}"[:500] if len(found) > expected.index(None)
                  else finished.err[-500:])
    check_answers(trial, trained.name, [texts for texts, _ in expected], list(map(_comparable, found)))
    _check_labels(trained, found)
    _check_fields(sheet, found)


def _check_before(trial, trained, expected, path, skips):
    """Checks the answers of a run that ended with an error. Such a run may only answer the rows before the
    bad row."""
    if not path.exists() or skips or expected is None:
        return
    found = read_answers(path)
    first = expected.index(None) if None in expected else len(expected)
    if found and len(found) > first:
        raise Bad("wrong result", f"{len(found)} answers were written, but only the rows before row "
                  f"{first + 1} may be answered")
    check_answers(trial, trained.name, [texts for texts, _ in expected[:len(found)]],
                  list(map(_comparable, found)))


def _check_skipped(trial, trained, sheet, found):
    """Checks the answers of a run with --skip_bad_lines. For each bad line, the answer is an error."""
    good = [answer for answer in found if set(answer) & {"score", "probabilities"} and (
        not isinstance(answer.get("error"), str) or "error" in sheet.columns)]
    if sheet.must["predict"] == "refused" and len(good) == len(found) and found:
        raise Bad("accepted", json.dumps(found[0])[:500])
    if sheet.expected is None:
        return
    asked = [row[0] for row in sheet.expected if row is not None]
    if good:
        check_answers(trial, trained.name, asked, list(map(_comparable, good)))


def _check_labels(trained, found):
    """Checks that the label or the labels of each answer follow from its probabilities."""
    for answer in found if trained.labels else ():
        probabilities = answer["probabilities"]
        if trained.name == "several":
            likely = [label for label, value in probabilities.items() if value >= world.THRESHOLD]
            close = any(abs(value - world.THRESHOLD) < 1e-5 for value in probabilities.values())
            if answer["labels"] != likely and not close:
                raise Bad("wrong result", f"the answer has the labels {answer['labels']}, which do not "
                          f"follow from {probabilities} and the trained threshold {world.THRESHOLD}")
        elif probabilities[answer["label"]] < max(probabilities.values()):
            raise Bad("wrong result", f"label {answer['label']} of {probabilities}")


def _check_fields(sheet, found):
    """Checks that each answer contains all fields of its row."""
    for answer, cells in zip(found, sheet.cells):
        kept = [value if isinstance(value, str) else json.dumps(value) for value in answer.values()]
        for name in (name for name in sheet.columns if name in cells):
            value = cells[name] if isinstance(cells[name], str) else json.dumps(cells[name])
            if value not in kept and value.strip() not in kept:
                raise Bad("wrong result", f"the answer lacks the field {name!r} with the value "
                          f"{cells[name]!r:.80}: {answer!r:.300}")


# --- run_classifier.py -----------------------------------------------------------------------------------


def _test(trial, trained, sheet):
    finished = trial.run("run_classifier.py", output_dir=trained.directory, test_file=sheet.name,
                         results_dir="results", **sheet.flags)
    if not trial.expect(finished, sheet.must["test"]):
        return
    if sheet.expected is None or None in sheet.expected:
        raise Bad("accepted", finished.err[-500:])
    found = [list(map(float, row)) for row in oracle.table_in(trial.here / "results/test_results.tsv")]
    check_answers(trial, trained.name, [texts for texts, _ in sheet.expected], found)
    results = trial.here / "results/test_eval_results.txt"
    if results.exists():
        check_metrics(trained, [label for _, label in sheet.expected], found, results)


def check_metrics(trained, right, found, path, decisions=None):
    """Raises `Bad` unless the metrics in a file are equal to those of scikit-learn and SciPy.

    Args:
      trained: a `world.Trained`.
      right: the labels or scores of the rows, a list.
      found: list with one element for each row. The element is the list of the numbers that the command wrote
        for the row: the probabilities of all labels, or only the score.
      path: the file of metrics.
      decisions: the predicted labels. If None, they follow from `found`.
    """
    with np.errstate(all="ignore"):
        if trained.labels is None:
            expected = oracle.regression(np.array(right, float), np.array([row[0] for row in found]))
        elif trained.name == "several":
            decisions = [[label for label, value in zip(trained.labels, row) if value >= world.THRESHOLD]
                         for row in found]
            expected = oracle.several_labels(right, decisions, trained.labels)
        else:
            decisions = decisions or [trained.labels[int(np.argmax(row))] for row in found]
            expected = oracle.classification(right, decisions, trained.labels)
    if any(isinstance(value, float) and math.isnan(value) for value in expected.values()):
        return
    if wrong := oracle.differing(oracle.results_in(path), expected):
        raise Bad("wrong result", f"{path.name}: the written metrics differ from the recomputed metrics: "
                  f"{wrong}")


def _fed_rows(sheet, labels):
    """Returns the input of the model for the rows of a sheet: a sorted list of (ids, label)."""
    found = []
    for texts, label in sheet.expected:
        if labels is None:
            value = (np.float32(label),)
        elif sheet.model == "several":
            value = tuple(int(name in label) for name in labels)
        else:
            value = (labels.index(label),) if label is not None else None
        found.append((oracle.ids_of(*texts), value))
    return found


def _check_fed(path, sheet, labels):
    found, expected = oracle.fed(path), _fed_rows(sheet, labels)
    by_label = all(value is not None for _, value in expected)
    if not by_label:
        found, expected = [row[:1] for row in found], [row[:1] for row in expected]
    if sorted(found) != sorted(expected):
        wrong = [row for row in found if row not in expected]
        raise Bad("wrong result", f"{path.name} has {len(found)} rows, but {len(expected)} were expected. "
                  f"{len(wrong)} rows of the file were not expected, such as {wrong[:1]}")


def _dev(trial, trained, sheet):
    finished = trial.run("run_classifier.py", output_dir=trained.directory, dev_file=sheet.name,
                         results_dir="results", **sheet.flags)
    if not trial.expect(finished, sheet.must["dev"]):
        return
    if sheet.expected is None or None in sheet.expected:
        raise Bad("accepted", finished.err[-500:])
    _check_fed(trial.here / "results/eval.tf_record", sheet, trained.labels)


def _train(trial, trained, sheet):
    labels = {"scores": dict(task_type="regression"), "several": dict(task_type="multilabel")}
    flags = dict(text_column=",".join(trained.texts), label_column=trained.label)
    flags = {**world.MODEL, **world.STEPS, "num_train_epochs": 1, "output_dir": "new",
             **labels.get(trained.name, {}), **flags, **sheet.flags}
    if sheet.flags.get("header") == "false" and "text_column" not in sheet.flags:
        flags.update(text_column="3", label_column="2")
    finished = trial.run("run_classifier.py", train_file=sheet.name, **flags)
    if not trial.expect(finished, sheet.must["train"]):
        if (trial.here / "new").exists():
            raise Bad("written before the check", str(sorted((trial.here / "new").iterdir())))
        return
    if sheet.warns and not any(word in finished.err for word in ("differ", "alike", "invisible", "normal")):
        raise Bad("accepted", f"the log has no warning about labels that look alike: {finished.err[-500:]}")
    if sheet.expected is None or None in sheet.expected:
        raise Bad("accepted", finished.err[-500:])
    record = json.loads((trial.here / "new/run.json").read_text())
    if sheet.must["train"] == "either" and record["labels"] != trained.labels:
        return  # the file has an additional label, so the labels have other numbers than in `trained`
    _check_fed(trial.here / "new/train.tf_record", sheet, record["labels"])
