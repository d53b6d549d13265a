"""Trains one tiny model for each task, and asks the Python predictor for answers with these models."""

import json
import pathlib
import random
import shutil
import threading
from typing import NamedTuple

from attacks import runs
import tiny

from bertlib import serving

MODEL = runs.MODEL
STEPS = dict(train_batch_size=8, num_train_epochs=2, learning_rate=0.01, save_checkpoints_steps=100)
LABELS = {"single": ["no", "yes"], "pair": ["agree", "differ", "other"], "odd": ["no", "yes"],
          "numbered": ["no", "yes"], "json": ["no", "yes"], "several": ["big", "old", "red"],
          "split": ["no", "yes"], "unfinished": ["no", "yes"], "empty": ["no", "yes"]}
# Some models are trained on a user's own file. This dict maps the name of such a model to the form of its
# file: (columns of the texts, column of the label, extension of the name, whether there is a header row).
LAYOUTS = {
    "single": (["text"], "label", ".csv", True),
    "pair": (["question", "answer"], "label", ".csv", True),
    "odd": (["the text"], "class of it", ".tsv", True),
    "numbered": (["3"], "2", ".tsv", False),
    "json": (["premise", "hypothesis"], "label", ".jsonl", True),
    "scores": (["sentence1", "sentence2"], "score", ".csv", True),
    "several": (["text"], "labels", ".jsonl", True),
}
# Columns of a question with several endings.
CHOICES = ("id", "sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label")
THRESHOLD, MAX_ANSWER_LENGTH = 0.3, 2
TAGGED = {**dict.fromkeys(["cat", "dog", "bird"], "ANIMAL"), **dict.fromkeys(["paper", "song"], "THING")}


class Trained(NamedTuple):
    """A trained model.

    Attributes:
      name: name of the model, such as "single".
      directory: output directory of its training, relative to the directory in which the commands run.
      texts, label: names of the columns of its training file.
      labels: its labels.
    """

    name: str
    directory: str
    texts: list
    label: str
    labels: list

    @property
    def is_pair(self):
        return len(self.texts) > 1


def words(chance, most=7):
    """Returns a text of a few words of the vocabulary."""
    return " ".join(chance.choice(tiny.WORDS[:32]) for _ in range(chance.randint(2, most)))


def rows(chance, name, count):
    """Returns rows for a model: a list of (texts, label). All texts are different."""
    found, seen = [], set()
    while len(found) < count:
        texts = tuple(words(chance) for _ in LAYOUTS.get(name, LAYOUTS["single"])[0])
        if texts in seen:
            continue
        seen.add(texts)
        if name == "scores":
            label = round(chance.uniform(0, 5), 2)
        elif name == "several":
            label = [label for label in LABELS[name] if chance.random() < 0.5]
        else:
            label = LABELS[name][len(found) % len(LABELS[name])]
        found.append((texts, label))
    return found


def _table(name, found):
    """Returns the content of a training file, as text.

    Args:
      name: name of the model, which decides the format of the file.
      found: the examples, as a list of (texts, label).
    """
    texts, label, ending, header = LAYOUTS.get(name, LAYOUTS["single"])
    if ending == ".jsonl":
        return "".join(json.dumps({**dict(zip(texts, values)), label: value}) + "\n"
                       for values, value in found)
    tab = {".csv": ",", ".tsv": "\t"}[ending]
    if not header:
        return "".join(f"{index}\t{value}\t{values[0]}\n" for index, (values, value) in enumerate(found))
    lines = [tab.join([*texts, label]), *(tab.join([*values, str(value)]) for values, value in found)]
    return "".join(f"{line}\n" for line in lines)


def conll(sentences, separator=" ", ending="\n"):
    """Returns the content of a file with four columns: number, word, tag, and an unused column."""
    return ending.join("".join(f"{number}{separator}{word}{separator}{tag}{separator}X{ending}"
                               for number, (word, tag) in enumerate(sentence)) for sentence in sentences)


def sentences(chance, count):
    """Returns `count` random sentences for the tagger. A sentence is a list of pairs (word, tag in IOB2)."""
    found = []
    for _ in range(count):
        here = words(chance).split() + [chance.choice(sorted(TAGGED))]
        found.append([(word, f"B-{TAGGED[word]}" if word in TAGGED else "O") for word in here])
    return found


def questions_with_endings(chance, count):
    """Returns questions with four endings: a list of {name of the column: value}."""
    return [{"id": str(index), **{name: words(chance) for name in CHOICES[1:-1]}, "label": index % 4}
            for index in range(count)]


class World:
    """The tiny models in a directory: their output directories, their data and their predictors."""

    def __init__(self, directory, scripts):
        self.directory, self._scripts = directory, scripts
        self._predictors, self._lock = {}, threading.Lock()

    # --- Training

    def build(self):
        """Trains all models."""
        chance = random.Random(11)
        (self.directory / "model").mkdir(parents=True)
        (self.directory / "data").mkdir()
        model = tiny.Model(self.directory / "model")
        model.config.write_bytes(model.shallow.read_bytes())
        for name in LAYOUTS:
            texts, label, ending, _ = LAYOUTS[name]
            file = f"data/{name}{ending}"
            (self.directory / file).write_text(_table(name, rows(chance, name, 24)))
            flags = dict(train_file=file, text_column=",".join(texts), label_column=label)
            kinds = {"scores": dict(task_type="regression"),
                     "several": dict(task_type="multilabel", threshold=THRESHOLD)}
            self._train(name, **flags, **kinds.get(name, {}))
        (self.directory / "data/split.csv").write_text(_table("single", rows(chance, "single", 60)))
        self._train("split", train_file="data/split.csv", dev_fraction=0.2, seed=7, do_train=True)
        self._train("unfinished", train_file="data/single.csv", save_checkpoints_steps=2)
        self._cut("unfinished", "2")
        self._train("empty", train_file="data/single.csv")
        self._cut("empty", "0")
        for task in ("mrpc", "cola"):
            tiny.write_task(self.directory / "data" / task, task, train=12, dev=8, test=8)
            self._train(task, task_name=task, data_dir=f"data/{task}", do_train=True)
        self._others(chance)
        for path in self.directory.glob("*/*"):
            if path.name.startswith(("events", "graph.pb")) or path.suffix == ".meta":
                path.unlink()

    def _others(self, chance):
        """Trains the taggers, a model for SQuAD, a model for multiple choice, and a pre-trained model."""
        (self.directory / "data/tags.conll").write_text(conll(sentences(chance, 24)))
        for name, crf in (("tags", False), ("crf", True)):
            self._train(name, "run_ner.py", train_file="data/tags.conll", token_column=2, tag_column=3,
                        do_train=True, crf=crf)
        runs.write_squad(self.directory / "data/questions.json", chance, 16)
        self._train("questions", "run_squad.py", train_file="data/questions.json", do_train=True,
                    max_query_length=8, doc_stride=8, max_answer_length=MAX_ANSWER_LENGTH)
        rows = [",".join(map(str, row.values())) for row in questions_with_endings(chance, 24)]
        (self.directory / "data/endings.csv").write_text("\n".join([",".join(CHOICES), *rows]) + "\n")
        self._train("endings", "run_swag.py", train_file="data/endings.csv", do_train=True)
        documents = ("\n".join(words(chance) for _ in range(4)) for _ in range(9))
        (self.directory / "data/text.txt").write_text("\n\n".join(documents) + "\n")
        (self.directory / "records").mkdir()
        self._run("create_pretraining_data.py", **{**runs.RECORDS, "input_file": "data/text.txt",
                                                   "output_file": "records/0.tfrecord,records/1.tfrecord"})
        self._run("run_pretraining.py", **{
            **runs.PRETRAINING, "output_dir": "words", "num_train_steps": 3, "do_eval": False,
            "vocab_file": "model/vocab.txt", "save_checkpoints_steps": 100})

    def _train(self, name, script="run_classifier.py", **flags):
        self._run(script, **{**MODEL, **STEPS, "output_dir": name, **flags})

    def _run(self, script, **flags):
        finished = self._scripts.run(script, *tiny.flags(**flags), cwd=self.directory)
        if finished.code:
            raise RuntimeError(f"{script} {flags} failed on undamaged files:\n{finished.err[-3000:]}")

    def _cut(self, name, step):
        """Keeps only the checkpoint of one step, as if the training was killed after this step."""
        directory = self.directory / name
        record = json.loads((directory / "run.json").read_text())
        if "finished_step" in record:
            record["finished_step"] = None
        (directory / "run.json").write_text(json.dumps(record, indent=1))
        for path in directory.glob("model.ckpt-*"):
            if not path.name.startswith(f"model.ckpt-{step}."):
                path.unlink()
        (directory / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n'
                                              f'all_model_checkpoint_paths: "model.ckpt-{step}"\n')

    # --- For cases

    def take(self, here, name):
        """Copies a trained model, its data, and the model from which its training started.

        Args:
          here: pathlib.Path of the directory of a case, to which the files are copied.
          name: name of the trained model.

        Returns:
          the `Trained` of the model.
        """
        shutil.copytree(self.directory / name, here / name, dirs_exist_ok=True)
        shutil.copytree(self.directory / "model", here / "model", dirs_exist_ok=True)
        (here / "data").mkdir(exist_ok=True)
        for path in (self.directory / "data").glob(f"{name}*"):
            if path.is_dir():
                shutil.copytree(path, here / "data" / path.name, dirs_exist_ok=True)
            else:
                shutil.copy(path, here / "data" / path.name)
        texts, label, _, _ = LAYOUTS.get(name, LAYOUTS["single"])
        return Trained(name, name, texts, label, LABELS.get(name))

    def answers(self, name, questions):
        """Returns the answers of the Python predictor with the undamaged model.

        Each question is a list with the texts of one input.
        """
        with self._lock:
            if name not in self._predictors:
                self._predictors[name] = serving.load(str(self.directory / name))
            predictor = self._predictors[name]
            return predictor.answer([predictor.prepare(*texts) for texts in questions])

    def close(self):
        for predictor in self._predictors.values():
            predictor.close()


def copy_of(path, target):
    """Copies a file or directory, and returns the target."""
    path, target = pathlib.Path(path), pathlib.Path(target)
    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, target)
    return target
