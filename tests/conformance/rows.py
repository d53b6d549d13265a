"""The table of runs: one small training for each kind of task and of data.

A row writes its own data and model into a new directory, the workspace, and names the flags of the
training. All paths of the flags are relative to the workspace, so a workspace can be copied and moved. The
rows use only commands and files, so that the same table describes an older commit, too.
"""

import csv
import dataclasses
import json
import random
import shutil
import sys

from helpers import ROOT
import hub_modules
import tiny

BATCH_SIZE = 4
STEPS = 8  # of each training: two epochs of 16 examples
SIZES = {"train": 16, "dev": 8, "test": 6}
_MODEL = dict(vocab_file="model/vocab.txt", bert_config_file="model/shallow.json",
              init_checkpoint="model/bert_model.ckpt", max_seq_length=tiny.SEQ_LENGTH)
_TRAINING = dict(do_train=True, do_eval=True, do_predict=True, train_batch_size=BATCH_SIZE,
                 learning_rate=0.0002, num_train_epochs=2, save_checkpoints_steps=3, log_steps=1,
                 output_dir="output")
_WORDS = ["cat", "dog", "bird", "sees", "hears"], ["stone", "house", "paper", "breaks", "slowly"]
_TAGS = {"cat": "B-ANIMAL", "dog": "B-ANIMAL", "paper": "B-THING", "song": "B-THING"}


@dataclasses.dataclass(frozen=True)
class Row(object):
    """A training.

    Attributes:
      name: name of the row in the table.
      script: the command that trains.
      data: function (directory, part, size, chance) that writes the file of a part of the data: "train",
        "dev" or "test". `chance` is a `random.Random`.
      flags: flags of the training in addition to those of `training_flags`.
      metric: the metric that --keep_best can use.
      task: the value of --task of predict.py, or None: predict.py does not answer such inputs.
      results: file of the scores.
      train_file, dev_file: paths of the data in the workspace.
      prepare: (script, flags) of a command that runs before the training, or None.
      base: flags of the model.
      dropped: flags of a training that this command does not have.
    """
    name: str
    script: str
    data: object
    flags: dict
    metric: str
    task: str | None
    train_file: str
    dev_file: str
    results: str = "eval_results.txt"
    prepare: tuple | None = None
    base: dict = dataclasses.field(default_factory=lambda: _MODEL)
    dropped: tuple = ()

    def training_flags(self, **changes):
        """Returns {flag: value} of the training. A change to None removes a flag. A change to False leaves
        out a flag of `dropped`.
        """
        given = {name: value for name, value in _TRAINING.items() if name not in self.dropped}
        found = {**self.base, **given, **self.flags, **changes}
        return {name: value for name, value in found.items()
                if value is not None and not (value is False and name in self.dropped)}

    def write(self, workspace, model):
        """Writes the data and a copy of the model into the workspace. `model` is a `tiny.Model`."""
        (workspace / "data").mkdir(parents=True)
        shutil.copytree(model.directory, workspace / "model")
        if "bert_hub_module_handle" in self.base:
            hub_modules.write(model, workspace / "module", config=model.shallow)
        # A value of --label_map.
        (workspace / "spellings.csv").write_text("old,new\npets,animals\n")
        for seed, (part, size) in enumerate(SIZES.items()):
            self.data(workspace / "data", part, size, random.Random(seed))
        return workspace


# --- Data ------------------------------------------------------------------------------------------------


def _write_csv(path, header, lines):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])


def _sentence(chance, index):
    """A sentence with a comma. Sentences with even and odd indices have different words."""
    words = [chance.choice(_WORDS[index % 2]) for _ in range(chance.randint(3, 7))]
    return f"{words[0]} , {' '.join(words)}"


def _one_text(directory, part, size, chance):
    names = ["pets", "wild, big"]  # a label with a delimiter and a space
    lines = [[_sentence(chance, index), names[index % 2]] for index in range(size)]
    _write_csv(directory / f"{part}.csv", ["text", "label"][:1 if part == "test" else 2],
               [line[:1] if part == "test" else line for line in lines])


def _pairs(directory, part, size, chance):
    (directory / f"{part}.tsv").write_text(tiny.format_task("mrpc", [
        (index % 2, _sentence(chance, index), tiny.sentence(chance)) for index in range(size)]))


def _scores(directory, part, size, chance):
    lines = [[f"{index}", _sentence(chance, index), tiny.sentence(chance),
              f"{1 + 3 * (index % 2) + chance.random():.2f}"] for index in range(size)]
    _write_csv(directory / f"{part}.csv", ["id", "text_a", "text_b", "score"], lines)


def _several_labels(directory, part, size, chance):
    with open(directory / f"{part}.jsonl", "w", encoding="utf-8") as file:
        for index in range(size):
            labels = [name for name, take in (("pets", index % 2), ("loud", index % 3 == 1)) if take]
            file.write(json.dumps({"text": _sentence(chance, index), "labels": labels}) + "\n")


_TASK_MODULE = '''"""Reviews: one file for each text."""
import pathlib

import run_classifier


class ReviewProcessor(run_classifier.DataProcessor):

    def get_train_examples(self, data_dir):
        return self._read(data_dir, "train")

    def get_dev_examples(self, data_dir):
        return self._read(data_dir, "dev")

    def get_test_examples(self, data_dir):
        return self._read(data_dir, "test")

    def get_labels(self):
        return ["good", "bad"]

    def _read(self, data_dir, part):
        return [run_classifier.InputExample(guid=path.stem, text_a=path.read_text(),
                                            label=path.stem.split("_")[1])
                for path in sorted(pathlib.Path(data_dir, part).glob("*.txt"))]


processors = {"reviews": ReviewProcessor}
'''


def _reviews(directory, part, size, chance):
    (directory / part).mkdir()
    for index in range(size):
        name = f"{index:03}_{('good', 'bad')[index % 2]}.txt"
        (directory / part / name).write_text(_sentence(chance, index))
    (directory.parent / "reviews.py").write_text(_TASK_MODULE)


def _squad(directory, part, size, chance, version_2=False):
    paragraphs = []
    for index in range(size):
        words = chance.sample(tiny.WORDS[:24], 14)
        place = chance.randrange(1, 14)
        question = {"id": f"{part}{index}", "question": f"what {words[place - 1]}",
                    "answers": [{"text": words[place], "answer_start": len(" ".join(words[:place])) + 1}]}
        if version_2:
            question["is_impossible"] = index % 3 == 2
            question["answers"] = [] if index % 3 == 2 else question["answers"]
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    (directory / f"{part}.json").write_text(
        json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}))


def _squad_2(directory, part, size, chance):
    _squad(directory, part, size, chance, version_2=True)


def _tagged(size, chance):
    """Returns sentences, each a list of (word, tag)."""
    return [[(word, _TAGS.get(word, "O")) for word in
             [chance.choice([*_TAGS, "the", "sees", "here"]) for _ in range(chance.randint(2, 7))] + ["cat"]]
            for _ in range(size)]


def _columns(directory, part, size, chance):
    sentences = ["".join(f"{word} {tag}\n" for word, tag in words) for words in _tagged(size, chance)]
    (directory / f"{part}.conll").write_text("\n".join(sentences))


def _json_lines(directory, part, size, chance):
    with open(directory / f"{part}.jsonl", "w", encoding="utf-8") as file:
        for sentence in _tagged(size, chance):
            words, tags = zip(*sentence)
            file.write(json.dumps({"tokens": words, "ner_tags": tags}) + "\n")


def _endings(directory, part, size, chance):
    lines = []
    for index in range(size):
        endings = [f"{verb} the bird ." for verb in chance.sample(["sees", "finds", "likes", "moves"], 4)]
        endings[index % 4] = "sells stone stone ."
        lines.append([index, tiny.sentence(chance), "the man", *endings, index % 4])
    _write_csv(directory / f"{'val' if part == 'dev' else part}.csv",
               ["id", "sent1", "sent2", *(f"ending{index}" for index in range(4)), "label"], lines)


def _lengths(directory, part, size, chance):
    lines = []
    for _ in range(size):
        texts = [" ".join(chance.choice(_WORDS[0]) for _ in range(count))
                 for count in chance.sample(range(2, 8), 2)]
        lines.append([*texts, "first" if len(texts[0]) > len(texts[1]) else "second"])
    _write_csv(directory / f"{part}.csv", ["text_a", "text_b", "label"], lines)


def _documents(directory, part, size, chance):
    if part == "test":
        return
    documents = ["".join(tiny.sentence(chance) + "\n" for _ in range(6)) for _ in range(size)]
    (directory / f"{part}.txt").write_text("\n".join(documents))


# --- The rows --------------------------------------------------------------------------------------------

_SQUAD_FLAGS = dict(max_seq_length=32, doc_stride=8, max_query_length=8, train_file="data/train.json",
                    predict_file="data/dev.json")


def _files(ending):
    return {f"{part}_file": f"data/{part}.{ending}" for part in SIZES}


ROWS = {row.name: row for row in [
    Row("one text", "run_classifier.py", _one_text, _files("csv"), "eval_accuracy", "classification",
        "data/train.csv", "data/dev.csv"),
    Row("pairs", "run_classifier.py", _pairs, dict(task_name="MRPC", data_dir="data"), "eval_f1",
        "classification", "data/train.tsv", "data/dev.tsv"),
    Row("regression", "run_classifier.py", _scores, dict(_files("csv"), task_type="regression"),
        "eval_pearson", "regression", "data/train.csv", "data/dev.csv"),
    Row("several labels", "run_classifier.py", _several_labels,
        dict(_files("jsonl"), task_type="multilabel"), "eval_f1_micro", "multilabel", "data/train.jsonl",
        "data/dev.jsonl"),
    Row("task module", "run_classifier.py", _reviews,
        dict(task_module="reviews.py", data_dir="data"), "eval_accuracy",
        "classification", "data/train", "data/dev"),
    Row("hub module", "run_classifier_with_tfhub.py", _pairs, dict(task_name="MRPC", data_dir="data"),
        "eval_f1", "classification", "data/train.tsv", "data/dev.tsv",
        base=dict(bert_hub_module_handle="module", max_seq_length=tiny.SEQ_LENGTH)),
    Row("SQuAD 1.1", "run_squad.py", _squad, _SQUAD_FLAGS, "f1", "questions",
        "data/train.json", "data/dev.json", "eval_results.json", dropped=("do_predict",)),
    Row("SQuAD 2.0", "run_squad.py", _squad_2, dict(_SQUAD_FLAGS, version_2_with_negative=True), "f1",
        "questions", "data/train.json", "data/dev.json", "eval_results.json", dropped=("do_predict",)),
    Row("tagging, columns", "run_ner.py", _columns, _files("conll"), "eval_f1", "tagging",
        "data/train.conll", "data/dev.conll"),
    Row("tagging, JSON Lines", "run_ner.py", _json_lines, dict(_files("jsonl"), crf=True), "eval_f1",
        "tagging", "data/train.jsonl", "data/dev.jsonl"),
    # Two layers: with one layer, this model's pooled vectors of the endings are nearly equal.
    Row("multiple choice", "run_swag.py", _endings,
        dict(data_dir="data", max_seq_length=32, bert_config_file="model/bert_config.json"), "eval_accuracy",
        "multiple_choice", "data/train.csv", "data/val.csv"),
    Row("pre-training", "run_pretraining.py", _documents,
        dict(input_file="train.tfrecord", eval_file="train.tfrecord", num_train_steps=STEPS,
             num_warmup_steps=2, max_predictions_per_seq=4), "masked_lm_accuracy", "masked_words",
        "train.tfrecord", "train.tfrecord",
        prepare=("create_pretraining_data.py", dict(
            input_file="data/train.txt", output_file="train.tfrecord", vocab_file="model/vocab.txt",
            max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=4, dupe_factor=2, random_seed=1)),
        dropped=("do_predict", "num_train_epochs")),
    Row("task of a user", "run_classifier.py", _lengths,
        dict(_files("csv"), task_module=str(ROOT / "tests" / "data" / "ranking.py")), "eval_accuracy",
        "classification", "data/train.csv", "data/dev.csv"),
]}


class Workspace(object):
    """A directory with the data of a row, and the runs in it.

    `trained` is the workspace after the training of the row. Tests must not change it: they call `copy`.
    """

    def __init__(self, row, scripts, directory):
        self.row, self.directory, self._scripts = row, directory, scripts
        self.output = directory / "output"

    @classmethod
    def create(cls, row, scripts, directory, model):
        """Writes the data of the row, and runs the command that prepares them."""
        found = cls(row, scripts, row.write(directory, model))
        if row.prepare:
            done = found.run(row.prepare[0], **row.prepare[1])
            assert done.code == 0, done.err
        return found

    def start(self, script, *words, environment=(), **flags):
        """Starts a command in the workspace. Returns a `scripts.Running`."""
        return self._scripts.start(script, *words, *tiny.flags(**flags), cwd=self.directory,
                                   **dict(environment))

    def run(self, script, *words, environment=(), **flags):
        """Runs a command in the workspace. Returns `scripts.Finished`."""
        return self.start(script, *words, environment=environment, **flags).wait()

    def train(self, **changes):
        """Runs the training of the row with changed flags. Returns `scripts.Finished`."""
        return self.run(self.row.script, **self.row.training_flags(**changes))

    def copy(self, directory):
        """Returns a copy of the whole workspace in a new directory."""
        shutil.copytree(self.directory, directory)
        return Workspace(self.row, self._scripts, directory)


if __name__ == "__main__":  # python tests/conformance/rows.py: the commands of the rows
    for row in ROWS.values():
        print(f"{row.name}:\n    {' '.join([row.script, *tiny.flags(**row.training_flags())])}",
              file=sys.stdout)
