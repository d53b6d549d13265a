"""Tests the commands on unusual output directories: damaged directories, unfinished trainings, and flags that
contradict the directory. Also tests how the commands choose the development data."""

import json
import random

from attacks import oracle, world
from attacks.bad_inputs import DEEP
from attacks.classifying import check_answers, read_answers
from attacks.trial import Bad
import tiny

_CLASSIFIERS = ("single", "pair", "scores", "several")
_NONSENSE = [None, [], {}, "", "x", True, -1, 0.5, 10**9, 10**30, -10**9, float("nan"), float("inf"), [[]],
             {"a": 1}, [1, "x"], "é\0\ud800", "\x1b[31m", "DEEP", "1e9"]


# --- A question to any command ---------------------------------------------------------------------------


def ask(trial, name, must, **flags):
    """Runs a random command on the directory of a model, and checks how the command ends.

    The answers of predict.py and run_classifier.py are compared with those of the undamaged model.

    Args:
      trial: a `Trial`.
      name: the name of the model, which is also its directory.
      must: see `Trial.expect`.
      flags: more flags of predict.py and run_classifier.py.

    Returns:
      the `Finished` of the command.
    """
    command = trial.chance.choice(["predict", "predict", "test", "export", "convert", "features"])
    rows = world.rows(trial.chance, name, 6)
    trial.note(command)
    if command == "predict":
        return _predict(trial, name, rows, must, flags)
    if command == "test":
        return _test(trial, name, rows, must, flags)
    if command == "export":
        finished = trial.run("export.py", model_dir=name, warmup_requests=0)
    elif command == "convert":
        finished = trial.run("convert_checkpoint.py", input=name, output="converted")
    else:
        (trial.here / "lines.txt").write_text("the cat\n")
        finished = trial.run("extract_features.py", init_checkpoint=name, input_file="lines.txt",
                             output_file="features.jsonl", layers="-1", max_seq_length=20)
    trial.expect(finished, must)
    return finished


def _predict(trial, name, rows, must, flags):
    texts = world.LAYOUTS[name][0]
    trial.write("asked.jsonl", "".join(json.dumps(dict(zip(texts, row))) + "\n" for row, _ in rows))
    finished = trial.run("predict.py", model_dir=name, input_file="asked.jsonl", output_file="answers.jsonl",
                         **flags)
    if trial.expect(finished, must):
        found = [[answer["score"]] if "score" in answer else
                 [answer["probabilities"][label] for label in world.LABELS[name]]
                 for answer in read_answers(trial.here / "answers.jsonl")]
        check_answers(trial, name, [row for row, _ in rows], found)
    return finished


def _test(trial, name, rows, must, flags):
    texts, label, _, _ = world.LAYOUTS[name]
    trial.write("asked.jsonl", "".join(json.dumps({**dict(zip(texts, row)), label: value}) + "\n"
                                       for row, value in rows))
    finished = trial.run("run_classifier.py", output_dir=name, test_file="asked.jsonl", results_dir="results",
                         **flags)
    if trial.expect(finished, must):
        found = [list(map(float, row)) for row in oracle.table_in(trial.here / "results/test_results.tsv")]
        check_answers(trial, name, [row for row, _ in rows], found)
    return finished


# --- run.json --------------------------------------------------------------------------------------------


def records(trial):
    """Writes nonsense into run.json.

    The command must refuse this file, or give the same answers as with the undamaged file.
    """
    chance, name = trial.chance, trial.chance.choice(_CLASSIFIERS)
    trial.world.take(trial.here, name)
    path = trial.here / name / "run.json"
    record = json.loads(path.read_text())
    form = chance.choice(["value", "value", "value", "setting", "setting", "setting", "text", "removed"])
    if form == "text":
        content = chance.choice(["", "{", "null", "[]", "nonsense", "{}", "1e999", DEEP, '{"format": 99}',
                                 path.read_text()[:chance.randrange(len(path.read_text()))]])
        trial.note(f"{name}: run.json is {content!r:.60}")
    else:
        place = record["settings"] if form == "setting" or form == "removed" else record
        key = chance.choice(sorted(place))
        value = chance.choice(_NONSENSE)
        if form == "removed":
            del place[key]
        else:
            place[key] = value
        if key == "labels" and chance.random() < 0.5 and world.LABELS.get(name):
            place[key] = chance.choice([world.LABELS[name][::-1], world.LABELS[name] * 2,
                                        world.LABELS[name][:1], [*world.LABELS[name], "more"]])
        trial.note(f"{name}: {key} {place.get(key, 'removed')!r:.60}")
        content = json.dumps(record).replace('"DEEP"', DEEP)
    path.write_text(content)
    ask(trial, name, "either")


def vocabularies(trial):
    """Changes the vocabulary, the labels, or the configuration of a model. For example, the words of the
    vocabulary get a different order.

    The command must refuse the change. There is one exception: a command that needs no labels may ignore a
    change of the labels.
    """
    chance, name = trial.chance, trial.chance.choice(("single", "pair"))
    trial.world.take(trial.here, name)
    kind = chance.choice(["vocab.txt", "vocab.txt, one pair", "labels.txt", "--vocab_file", "labels.txt cut",
                          "configuration"])
    trial.note(f"{name}: {kind}")
    must = "refused"
    if kind.startswith("vocab.txt"):
        path = trial.here / name / "vocab.txt"
        path.write_text(_reordered(chance, whole="pair" not in kind))
    elif kind.startswith("labels.txt"):
        labels = world.LABELS[name][::-1] if "cut" not in kind else world.LABELS[name][:-1]
        (trial.here / name / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
        must = "either"  # commands that need no labels may succeed
    elif kind == "configuration":
        path = trial.here / name / "bert_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **chance.choice([
            {"hidden_act": "relu"}, {"num_attention_heads": 4}, {"intermediate_size": 20}])}))
    else:
        (trial.here / "other.txt").write_text(_reordered(chance))
        rows = world.rows(chance, name, 4)
        _test(trial, name, rows, must, {"vocab_file": "other.txt"})
        return
    ask(trial, name, must)


def _reordered(chance, whole=True):
    """Returns the tiny vocabulary, with the words after its special tokens in another order."""
    rest = list(tiny.VOCABULARY[5:])
    if whole:
        rest.reverse()
    else:
        place = chance.randrange(20)
        rest[place], rest[place + 1] = rest[place + 1], rest[place]
    return "".join(f"{word}\n" for word in [*tiny.VOCABULARY[:5], *rest])


def pretrained_vocabularies(trial):
    """Passes another vocabulary to pre-training or fine-tuning.

    Records contain a fingerprint of their vocabulary. Pre-training compares it with its own vocabulary, and
    stores the fingerprint. Fine-tuning compares the stored fingerprint with its own vocabulary. So both
    commands must refuse another vocabulary.
    """
    chance = trial.chance
    kind = chance.choice(["fine-tuning, same", "fine-tuning, another order", "no flag",
                          "records, another order", "records, same"])
    trial.note(kind)
    trial.world.take(trial.here, "words")
    (trial.here / "other.txt").write_text(_reordered(chance))
    if kind.startswith("records"):
        world.copy_of(trial.world.directory / "records", trial.here / "records")
        finished = trial.run("run_pretraining.py", **{
            **world.runs.PRETRAINING, "num_train_steps": 2, "do_eval": False, "output_dir": "new",
            "vocab_file": "other.txt" if "another" in kind else "model/vocab.txt"})
        trial.expect(finished, "refused" if "another" in kind else "right")
        return
    world.copy_of(trial.world.directory / "data/single.csv", trial.here / "single.csv")
    given = {"fine-tuning, same": "model/vocab.txt", "fine-tuning, another order": "other.txt"}.get(kind)
    finished = trial.run("run_classifier.py", **{**world.STEPS, "num_train_epochs": 1}, max_seq_length=20,
                         init_checkpoint="words", train_file="single.csv", output_dir="new", vocab_file=given)
    trial.expect(finished, "refused" if "another" in kind else "right")


# --- Flags -----------------------------------------------------------------------------------------------

# List of (name of a model, flags for an evaluation of this model). The flags contradict the training of the
# model.
_CONTRADICTIONS = [
    ("single", {"do_lower_case": "false"}), ("single", {"task_type": "regression"}),
    ("pair", {"task_type": "multilabel"}), ("scores", {"task_type": "classification"}),
    ("several", {"task_type": "classification"}), ("single", {"protect_special_tokens": "true"}),
    ("single", {"bert_config_file": "wide.json"}), ("single", {"label_file": "labels.txt"}),
    ("pair", {"task_name": "mrpc"}), ("several", {"threshold": 0.9}), ("pair", {"task_name": "nonsense"}),
    ("single", {"label_column": "nowhere"}), ("single", {"text_column": "nowhere"})]


def contradictions(trial):
    """Passes a flag that contradicts run.json. The command must refuse it, or the answers must not change."""
    name, flags = trial.chance.choice(_CONTRADICTIONS)
    trial.world.take(trial.here, name)
    trial.note(f"{name}: {flags}")
    (trial.here / "wide.json").write_text(json.dumps({**tiny.CONFIG, "num_hidden_layers": 1,
                                                      "intermediate_size": 48}))
    reversed_labels = world.LABELS.get(name, ["a"])[::-1]
    (trial.here / "labels.txt").write_text("".join(f"{label}\n" for label in reversed_labels))
    if "task_name" in flags:
        finished = trial.run("run_classifier.py", output_dir=name, do_predict=True, data_dir="data", **flags)
        trial.expect(finished, "refused")
        return
    _test(trial, name, world.rows(trial.chance, name, 6), "refused" if "text_column" in flags else "either",
          flags)


# --- Unfinished trainings --------------------------------------------------------------------------------


def unfinished(trial):
    """Uses the directory of an unfinished training.

    A directory with only the checkpoint of step 0 is refused. If the training was cut off later, there is a
    warning that contains the step of the checkpoint and the planned number of steps.
    """
    name = trial.chance.choice(["unfinished", "empty"])
    trained = trial.world.take(trial.here, name)
    trial.note(name)
    trial.write("asked.jsonl", '{"text": "the cat sees a dog"}\n')
    command = trial.chance.choice(["predict", "export", "export --text", "test"])
    trial.note(command)
    if command == "predict":
        finished = trial.run("predict.py", model_dir=trained.directory, input_file="asked.jsonl")
    elif command == "test":
        finished = trial.run("run_classifier.py", output_dir=trained.directory, test_file="asked.jsonl",
                             results_dir="results")
    else:
        finished = trial.run("export.py", model_dir=trained.directory, warmup_requests=0,
                             text=True if "text" in command else None)
    if not trial.expect(finished, "refused" if name == "empty" else "right"):
        return
    warnings = [line for line in finished.err.splitlines()
                if "2" in line.split() or " 2 " in line and "6" in line]
    warnings = [line for line in warnings if "6" in line and "step" in line.lower()]
    if len(warnings) != 1:
        raise Bad("accepted", f"{len(warnings)} warnings name step 2 of 6, instead of one warning: "
                  f"{finished.err[-700:]}")


# --- Dev rows --------------------------------------------------------------------------------------------


def dev_rows(trial):
    """Changes flags or files after a training, and evaluates the trained model. The evaluation must not use
    any row on which the model was trained."""
    chance = trial.chance
    trial.world.take(trial.here, "split")
    kind = chance.choice(["same flags", "no seed", "other seed", "other fraction", "rows appended",
                          "rows shuffled", "rows removed", "dev_rows.txt removed", "dev_rows.txt damaged",
                          "renamed", "case and spaces"])
    trial.note(kind)
    path = trial.here / "data/split.csv"
    header, *lines = path.read_text().splitlines(keepends=True)
    flags = dict(train_file="data/split.csv", dev_fraction=0.2, seed=7)
    must = "right" if kind in ("same flags", "no seed", "renamed") else "either"
    if kind in ("no seed", "other seed"):
        flags["seed"] = None if kind == "no seed" else 99
    elif kind == "other fraction":
        flags["dev_fraction"] = 0.4
    elif kind == "rows appended":
        lines += [f"{world.words(chance)} here,yes\n" for _ in range(3)]
    elif kind == "rows shuffled":
        chance.shuffle(lines)
    elif kind == "rows removed":
        del lines[chance.randrange(len(lines)) % 50:][:3]
        lines = lines[3:]
    elif kind == "case and spaces":
        lines = [line[0].upper() + line[1:] for line in lines]
    elif kind.startswith("dev_rows"):
        stored = trial.here / "split/dev_rows.txt"
        if not stored.exists():
            trial.note("there is none")
        elif "removed" in kind:
            stored.unlink()
        else:
            stored.write_bytes(chance.choice([b"", b"nonsense\n", b"\xff", stored.read_bytes()[:-20],
                                              stored.read_bytes()[20:]]))
            must = "either"
    path.write_text("".join([header, *lines]))
    if kind == "renamed":
        path.rename(trial.here / "data/other.csv")
        flags["train_file"] = "data/other.csv"
    finished = trial.run("run_classifier.py", output_dir="split", results_dir="results", do_eval=True,
                         **flags)
    if trial.expect(finished, must):
        _check_apart(trial, "split/train.tf_record", "results/eval.tf_record")


def _check_apart(trial, trained, evaluated):
    """Raises `Bad` if the evaluation used a row of the training data, or used no rows at all."""
    before = {ids for ids, _ in oracle.fed(trial.here / trained)}
    now = [ids for ids, _ in oracle.fed(trial.here / evaluated)]
    if both := [ids for ids in now if ids in before]:
        raise Bad("wrong result", f"{len(both)} of {len(now)} dev rows are also in the training data")
    if not now:
        raise Bad("wrong result", "no dev rows")


def splits(trial):
    """Trains with --dev_fraction. The choice of the dev rows must depend only on the texts and the labels of
    the rows, not on the order of the rows and not on --seed.

    If two texts are equal, or differ only in capitals and spaces, both must be dev rows, or both must be
    training rows.
    """
    chance = trial.chance
    rows = [(texts[0], label) for texts, label in world.rows(chance, "single", 30)]
    kind = chance.choice(["two seeds", "two orders", "twins", "near twins"])
    trial.note(kind)
    world.copy_of(trial.world.directory / "model", trial.here / "model")
    if kind == "twins":
        rows += rows[:10]
    elif kind == "near twins":
        rows += [(chance.choice([text.upper(), f" {text}", text.replace(" ", "  ")]), label)
                 for text, label in rows[:15]]
    chosen = []
    for turn in range(2 if kind.startswith("two") else 1):
        if turn and kind == "two orders":
            random.Random(chance.random()).shuffle(rows)
        lines = [f"{text},{label}\n" for text, label in rows]
        trial.write(f"given{turn}.csv", "".join(["text,label\n", *lines]))
        finished = trial.run("run_classifier.py", **{
            **world.MODEL, **world.STEPS, "num_train_epochs": 0.5, "train_file": f"given{turn}.csv",
            "dev_fraction": 0.2, "output_dir": f"new{turn}", "seed": 7 + turn * (kind == "two seeds")})
        if not trial.expect(finished, "right"):
            return
        _check_apart(trial, f"new{turn}/train.tf_record", f"new{turn}/eval.tf_record")
        chosen.append(sorted(ids for ids, _ in oracle.fed(trial.here / f"new{turn}/eval.tf_record")))
    if len(chosen) > 1 and chosen[0] != chosen[1]:
        raise Bad("wrong result", f"the development sets of {kind} differ. Only in the first set: "
                  f"{len(set(chosen[0]) - set(chosen[1]))} of {len(chosen[0])} rows")


def collisions(trial):
    """Starts runs whose inputs or outputs conflict, for example with one file for training and evaluation.
    The command must refuse such a run, or print a warning."""
    chance = trial.chance
    kind = chance.choice(["two files of one name", "dev is train", "test of another task", "output is data"])
    trial.note(kind)
    trial.world.take(trial.here, "single")
    if kind == "two files of one name":
        for place in ("a", "b"):
            (trial.here / place).mkdir()
            rows = world.rows(chance, "single", 16)
            (trial.here / place / "mine.csv").write_text("text,label\n" + "".join(
                f"{text},{label}\n" for (text,), label in rows))
        flags = {**world.MODEL, **world.STEPS, "num_train_epochs": 1}
        first = trial.run("run_classifier.py", train_file="a/mine.csv", **flags)
        trial.expect(first, "right")
        trial.expect(trial.run("run_classifier.py", train_file="b/mine.csv", **flags), "refused")
    elif kind == "dev is train":
        finished = trial.run("run_classifier.py", **{**world.MODEL, **world.STEPS, "num_train_epochs": 1},
                             train_file="data/single.csv", dev_file="data/../data/single.csv",
                             output_dir="new")
        if trial.expect(finished, "either") and "same texts" not in finished.err:
            raise Bad("accepted", "the command did not warn that it trains on rows of the development set: "
                      f"{finished.err[-400:]}")
    elif kind == "test of another task":
        trial.world.take(trial.here, "mrpc")
        finished = trial.run("run_classifier.py", task_name="cola", data_dir="data/mrpc", do_predict=True,
                             output_dir="mrpc")
        trial.expect(finished, "refused")
    else:
        finished = trial.run("run_classifier.py", **{**world.MODEL, **world.STEPS, "num_train_epochs": 1},
                             train_file="data/single.csv", output_dir="data/single.csv")
        trial.expect(finished, "refused")
