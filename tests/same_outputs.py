"""Runs commands with the code of a commit and with the working tree, and compares all their outputs.

    python tests/same_outputs.py REV [CASE ...]            # for example HEAD "SQuAD 1.1" refusals
    python tests/same_outputs.py --continue REV [CASE ...]
    python tests/same_outputs.py --list

A case writes its data, and then runs its commands in an empty directory, once with each code. The exit code
and the output of each command, and all files in the directory, are compared by the functions of
`conformance/comparisons.py`.
With `--continue`, the commit computes the first half of the training of a row of the table, and the working
tree continues the training. The result is compared with a training by the working tree alone.

The script prints SAME or the first differences of each case. It exits with 1 if a case differs.
"""

import argparse
import collections
import contextlib
import functools
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "conformance")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import comparisons  # noqa: E402
import rows  # noqa: E402
import scripts  # noqa: E402
import tiny  # noqa: E402

_SHOWN = 12  # differences of a case


class Side(object):
    """A directory in which the commands of one of the two codes run.

    Attributes:
      code: directory of the code.
      directory: the directory of the run. It is the same for both codes, because some files contain paths.
      scripts: a `scripts.Scripts` that runs the code.
      is_old: whether it is the old code.
    """

    def __init__(self, code, directory, runner, is_old):
        self.code, self.directory, self.scripts, self.is_old = code, directory, runner, is_old
        self._number = 0

    def run(self, script, *words, keeps=None, **flags):
        """Runs a command, and writes its exit code and its output to the folder `commands`.

        Args:
          script: the command.
          words, flags: its arguments.
          keeps: None if the command must succeed. Then its log is not compared, because it contains times.
            For a command that must fail: expression for the parts of its message that are compared.
        """
        done = self.scripts.run(script, *words, *tiny.flags(**flags), cwd=self.directory)
        self.record(pathlib.Path(script).stem, done.code, done.out, done.err, keeps)

    def record(self, name, code, out, err, keeps=None):
        """Writes how a command ended to the folder `commands`; see `run`."""
        if self.is_old and bool(code) != bool(keeps):
            raise RuntimeError(f"{name} of the old code ended with exit code {code}: {err[-1500:]}")
        folder = self.directory / "commands"
        folder.mkdir(exist_ok=True)
        self._number += 1
        errors = re.findall(keeps or r"(?s).{1,1500}\Z", err) if code else []
        text = "\n".join([f"exit code {code}", out, *errors])
        (folder / f"{self._number:02} {name}.txt").write_text(text.replace(str(self.code), "CODE"))


# --- The cases ---------------------------------------------------------------------------------------------


def _train(side, name, **changes):
    row = rows.ROWS[name]
    if row.prepare:
        side.run(row.prepare[0], **row.prepare[1])
    side.run(row.script, **row.training_flags(**changes))


_INPUTS = {
    "texts.txt": "the cat sees a dog .\nthe paper breaks .\n", "masked.txt": "the cat sees a [MASK] .\n",
    "questions.jsonl": '{"question": "what sees", "context": "the old cat sees a dog . the man eats"}\n'}


def run_row(side, name):
    """Trains, evaluates and predicts, and lets predict.py answer the file of the development set."""
    _train(side, name)
    row = rows.ROWS[name]
    if "bert_hub_module_handle" in row.base:  # predict.py does not read such models
        return
    for name, text in _INPUTS.items():
        (side.directory / name).write_text(text)
    inputs = {"masked_words": "masked.txt", "tagging": "texts.txt", "questions": "questions.jsonl"}
    dev_file = row.dev_file if (side.directory / row.dev_file).is_file() else "texts.txt"
    side.run("predict.py", model_dir="output", input_file=inputs.get(row.task, dev_file),
             output_file="answers.jsonl")
    side.run("predict.py", model_dir="output", task="vectors", input_file="texts.txt",
             output_file="vectors.jsonl")


def run_exports(side):
    _train(side, "one text")
    side.run("export.py", model_dir="output", text=True)
    side.run("export.py", model_dir="output", format="onnx")
    side.run("predict.py", model_dir="output", engine="onnx", input_file="data/dev.csv",
             output_file="answers.jsonl")


def run_conversions(side):
    side.run("convert_checkpoint.py", input="model/bert_model.ckpt", output="hugging_face")
    side.run("convert_checkpoint.py", input="hugging_face", output="again")


def run_vocabulary(side):
    side.run("build_vocab.py", input_file="data/train.txt", output_file="vocab.txt", vocab_size=60)


def run_features(side):
    flags = dict(input_file="data/train.txt", vocab_file="model/vocab.txt",
                 bert_config_file="model/bert_config.json", init_checkpoint="model/bert_model.ckpt",
                 max_seq_length=16)
    side.run("extract_features.py", **flags, output_file="features.jsonl", layers="-1,-2")
    side.run("extract_features.py", **flags, output_file="features.npz", layers="-1", pooling="mean",
             output_format="npz")


def run_sweep(side):
    row = rows.ROWS["pairs"]
    side.run("sweep.py", "--sweep_dir=sweep", "--metric=eval_f1", "--grid=learning_rate=0.004,0.002",
             "--jobs=1", "--", "python", "run_classifier.py",
             *tiny.flags(**row.training_flags(output_dir=None, learning_rate=None, do_predict=False)))


def run_fork(side):
    """Trains a fork of tests/tf1/forks."""
    for part in ("train", "dev", "test"):
        (side.directory / "data" / f"{part}.tsv").write_text("".join(
            f"{index % 2}\tthe {word} sees a dog .\tthe dog\n"
            for index, word in enumerate(["cat", "bird", "fish", "man", "stone", "house"])))
    side.run("tests/tf1/forks/start.py", "fork_optimizer/run_pairs.py", vocab_file="model/vocab.txt",
             bert_config_file="model/shallow.json", init_checkpoint="model/bert_model.ckpt",
             max_seq_length=16, data_dir="data", output_dir="output", do_train=True, do_eval=True,
             do_predict=True, train_batch_size=3, eval_batch_size=3, num_train_steps=6, num_warmup_steps=2,
             save_checkpoints_steps=3)


def run_replicas(side):
    _train(side, "one text", num_replicas=2)


def run_beam(side):
    script, flags = rows.ROWS["pre-training"].prepare
    side.run(script, **flags, beam_runner="DirectRunner")


_API = '''
from bertlib import api
result = api.train("data/train.csv", "output", dev="data/dev.csv", text="text", label="label", verbose=False,
                   vocab_file="model/vocab.txt", bert_config_file="model/shallow.json", seed=3,
                   init_checkpoint="model/bert_model.ckpt", max_seq_length=20, train_batch_size=4)
print(result.metrics)
print(api.evaluate("output", verbose=False).metrics)
print(api.predict("output", ["the cat sees a dog .", "the stone breaks ."]))
'''
_SERVING = '''
from bertlib import serving
with serving.load("output") as predictor:
    print(predictor.task, predictor.fields, predictor("the cat sees a dog ."))
    print(predictor.answer([predictor.prepare(text) for text in ("the dog", "the old house breaks")]))
'''
_KERAS = '''
import numpy as np
from bertlib.keras import BertEncoder
encoder = BertEncoder.from_checkpoint("model/bert_model.ckpt", "model/shallow.json")
outputs = encoder(np.arange(10).reshape(2, 5) + 5)
print({name: np.asarray(value).tobytes().hex() for name, value in sorted(outputs.items())})
encoder.save_checkpoint("saved")
'''


def run_program(side, program, trains=None):
    """Runs a Python program. `trains` is the row whose model it uses."""
    if trains:
        _train(side, trains)
    path = side.directory / "program.py"
    path.write_text(program)
    done = scripts.run_fresh(path, cwd=side.directory, PYTHONPATH=str(side.code))
    side.record("program", *done)


# The parts of a refusal that are compared: the flags, the files and the lines that it names.
_NAMED = re.compile(r"--\w+|\bline \d+|[\w./-]+\.(?:csv|tsv|jsonl?|txt|ckpt|tfrecord)\b")
_BAD_LINES = {"blank text": "text,label\nthe cat,a\n ,b\n", "no label": "text,label\nthe cat,a\nthe dog,\n",
              "wide": "text,label\nthe cat,a\nthe dog,b,c\n", "empty": "", "header only": "text,label\n",
              "no column": "words,name\nthe cat,a\n", "quote": 'text,label\n"the cat,a\n',
              "one label": "text,label\nthe cat,a\nthe dog,a\n"}
# The flags of each refused command line, in addition to those of a row.
_BAD_FLAGS = """
--train_file=none.csv
--learning_rate=-1
--learning_rate=x
--max_seq_length=2
--max_seq_length=999
--train_batch_size=0
--num_train_epochs=-1
--precision=fp8
--vocab_file=none.txt
--bert_config_file=data/dev.csv
--init_checkpoint=none.ckpt
--text_column=none
--label_column=none
--delimiter=ab
--encoding=none
--task_type=none
--task_type=regression
--keep_best=none --eval_every_steps=2
--keep_best=eval_accuracy
--early_stopping_evals=2
--class_weights=a=2
--label_smoothing=2
--gradient_accumulation_steps=3
--num_replicas=3
--doc_stride=-1
--dev_fraction=2
--dev_fraction=0.5
--warmup_proportion=2
--clip_norm=-1
--do_train=false --do_eval=false --do_predict=false
--dev_file=none.csv
--task_name=MRPC
""".strip().splitlines()


def run_refusals(side):
    """Commands that are refused. Each has its own directory of results, which must stay empty."""
    row = rows.ROWS["one text"]
    for name, text in _BAD_LINES.items():
        (side.directory / "data" / "bad.csv").write_text(text)
        side.run(row.script, keeps=_NAMED, **row.training_flags(train_file="data/bad.csv",
                                                                output_dir=f"bad {name}"))
    for number, line in enumerate(_BAD_FLAGS):
        changes = dict(word.removeprefix("--").split("=", 1) for word in line.split())
        side.run(row.script, keeps=_NAMED, **{**row.training_flags(output_dir=f"bad {number}"), **changes})


# `row`: the row whose data the case needs. `run`: function that runs its commands in a `Side`. `leaves_out`:
# expression for the files that are not compared, because they differ between two equal runs.
Case = collections.namedtuple("Case", ["row", "run", "leaves_out"], defaults=[r"\Z."])


def _program(program, trains=None):
    return Case("one text", functools.partial(run_program, program=program, trains=trains))


# The task of a user is no part of the code that is compared.
_OUR_ROWS = [name for name in rows.ROWS if name != "task of a user"]
CASES = {
    **{name: Case(name, functools.partial(run_row, name=name)) for name in _OUR_ROWS},
    "exports": Case("one text", run_exports), "conversions": Case("one text", run_conversions),
    "vocabulary": Case("pre-training", run_vocabulary), "features": Case("pre-training", run_features),
    "sweep": Case("pairs", run_sweep),
    # The fields of a tf.train.Example, which forks serialize, are in random order. The position of the input
    # contains the names of temporary files.
    "fork optimizer": Case("one text", run_fork, r"\.tf_?record:|/input_position/"),
    "two replicas": Case("one text", run_replicas), "Beam": Case("pre-training", run_beam),
    "bertlib.api": _program(_API), "serving.load": _program(_SERVING, "one text"),
    "BertEncoder": _program(_KERAS),
    "refusals": Case("one text", run_refusals),
}


# --- Running -----------------------------------------------------------------------------------------------


def run_case(case, directory, model, codes):
    """Runs a case with both codes. Returns the list of the differences.

    Args:
      case: a `Case`.
      directory: an empty directory.
      model: a `tiny.Model`.
      codes: pair of (directory of the code, `scripts.Scripts`), of the old and the new code.
    """
    for name, (code, runner) in zip(("old", "new"), codes):
        work = directory / "run"
        rows.ROWS[case.row].write(work, model)
        case.run(Side(code, work, runner, name == "old"))
        work.rename(directory / name)
    return [line for line in comparisons.compare(directory / "old", directory / "new")
            if not re.search(case.leaves_out, line)]


def continue_case(case, directory, model, codes):
    """Begins the training of a row with the old code, and continues it with the new code. Returns the
    differences from a training whose two parts the new code computes. The record, and the report that shows
    it, are not compared: they name both codes."""
    row, results = rows.ROWS[case.row], {}
    half = ({"num_train_steps": rows.STEPS // 2} if "num_train_epochs" in row.dropped
            else {"num_train_epochs": 1})
    for name, (_, begins) in zip(("old", "new"), codes):
        work = directory / "run"
        row.write(work, model)
        if row.prepare:  # the files of an older code are read, but not those of a later code
            begins.run(row.prepare[0], *tiny.flags(**row.prepare[1]), cwd=work)
        for runner, changes in ((begins, half), (codes[1][1], {})):
            done = runner.run(row.script, *tiny.flags(**row.training_flags(**changes)), cwd=work)
            if done.code:
                return [f"a training fails: {done.err.strip().splitlines()[-1]}"]
        results[name] = work.rename(directory / name)
    return [line for line in comparisons.compare(results["old"], results["new"])
            if not re.match(r"output/(run\.json|eval_report\.html):", line)]


@contextlib.contextmanager
def extracted(rev):
    """A context manager that yields a directory with the code of a commit."""
    with tempfile.TemporaryDirectory(prefix="old_code") as directory:
        archive = subprocess.run(["git", "archive", rev], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(directory, filter="data")
        yield pathlib.Path(directory)


def compare_cases(rev, names, function):
    """Runs cases, and prints the result of each. Returns the number of cases that differ."""
    different = 0
    with extracted(rev) as code, tempfile.TemporaryDirectory(prefix="same_outputs") as top:
        top = pathlib.Path(top)
        (top / "model").mkdir()
        model = tiny.Model(top / "model")
        with scripts.Scripts(code) as old, scripts.Scripts() as new:
            for number, name in enumerate(names):
                directory = top / str(number)
                directory.mkdir()
                lines = function(CASES[name], directory, model, [(code, old), (ROOT, new)])
                different += bool(lines)
                print(f"{name}: {f'{len(lines)} differences' if lines else 'SAME'}", *lines[:_SHOWN],
                      sep="\n    ", flush=True)
                shutil.rmtree(directory)
    return different


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--continue", action="store_true", dest="continues",
                        help="begin each training with REV, and continue it with the working tree")
    parser.add_argument("rev", nargs="?", help="the commit")
    parser.add_argument("case", nargs="*", help="names of cases; all cases by default")
    options = parser.parse_args(arguments)
    known = list(_OUR_ROWS if options.continues else CASES)
    if options.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in options.case if name not in known]
    if options.rev is None or unknown:
        parser.error(f"unknown case {unknown[0]!r}; see --list" if unknown else "REV is missing")
    different = compare_cases(options.rev, options.case or known,
                              continue_case if options.continues else run_case)
    print(f"{different} of {len(options.case or known)} cases differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
