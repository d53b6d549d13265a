"""Defines valid runs of every command on a tiny model, and checks their output. The attack changes these
runs.

`write_template` writes the input files of all runs into a directory, the template. The working directory of
each run is a copy of the template. All paths are relative to this working directory.
"""

import collections
import csv
import json
import os
import random
import zipfile

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors
import sentencepiece
import tensorflow.compat.v1 as tf
import tiny

Run = collections.namedtuple("Run", "script flags inputs outputs")
Run.__doc__ = """A command that succeeds: script, {flag: value}, files that it reads, files that it writes.

`inputs` are paths; the path of a directory ends with a slash. `outputs` are paths and glob patterns.
"""

MODEL = dict(vocab_file="model/vocab.txt", bert_config_file="model/bert_config.json",
             init_checkpoint="model/bert_model.ckpt", max_seq_length=tiny.SEQ_LENGTH)
MODEL_FILES = ["model/vocab.txt", "model/bert_config.json", "model/bert_model.ckpt.index",
               "model/bert_model.ckpt.data-00000-of-00001"]
HUGGING_FACE_FILES = [f"model/hugging_face/{name}" for name in (
    "vocab.txt", "config.json", "tokenizer_config.json", "model.safetensors")]
STEPS = dict(output_dir="output", train_batch_size=4, save_checkpoints_steps=2, log_steps=1)
CLASSIFIER = dict(MODEL, **STEPS, task_name="mrpc", data_dir="data", num_train_epochs=2, do_train=True,
                  do_eval=True, do_predict=True)
RECORDS = dict(vocab_file="model/vocab.txt", max_seq_length=tiny.SEQ_LENGTH, max_predictions_per_seq=4,
               dupe_factor=2, shuffle_buffer_documents=4, input_file="text.txt",
               output_file="output/0.tfrecord,output/1.tfrecord")
SQUAD = dict(MODEL, **STEPS, max_query_length=8, doc_stride=8, num_train_epochs=2, do_train=True,
             do_eval=True, train_file="train.json", predict_file="dev.json")
PRETRAINING = dict(STEPS, bert_config_file="model/bert_config.json", init_checkpoint="model/bert_model.ckpt",
                   input_file="records/*.tfrecord", max_seq_length=tiny.SEQ_LENGTH,
                   max_predictions_per_seq=4, num_train_steps=6, num_warmup_steps=2, max_eval_steps=2,
                   do_train=True, do_eval=True)
FEATURES = dict(MODEL, input_file="text.txt", output_file="output/features.jsonl", layers="-1")
TSV_FILES = ["data/train.tsv", "data/dev.tsv", "data/test.tsv"]
RUN_FILES = ["trained/checkpoint", "trained/model.ckpt-4.index", "trained/model.ckpt-4.data-00000-of-00001"]
CLASSES = ["output/eval_results.txt", "output/test_results.tsv", "output/test_predictions.tsv",
           "output/model.ckpt-6.index"]
ANSWERS = [f"output/{name}.json" for name in ("predictions", "nbest_predictions", "answer_offsets",
                                              "eval_results")]
RUNS = {
    "classifier": Run("run_classifier.py", CLASSIFIER, MODEL_FILES + TSV_FILES + ["data/", "model/"],
                      CLASSES),
    "classifier, Hugging Face": Run(
        "run_classifier.py", {**CLASSIFIER, "init_checkpoint": "model/hugging_face", "vocab_file": None,
                              "bert_config_file": None}, HUGGING_FACE_FILES, CLASSES),
    "classifier, SentencePiece": Run(
        "run_classifier.py", {**CLASSIFIER, "vocab_file": None, "spm_model_file": "model/spm.model",
                              "init_checkpoint": None}, ["model/spm.model"], CLASSES),
    "classifier, going on": Run("run_classifier.py", {**CLASSIFIER, "output_dir": "trained"},
                                RUN_FILES + ["trained/"], ["trained/eval_results.txt",
                                                           "trained/model.ckpt-6.index"]),
    "classifier, evaluating": Run("run_classifier.py", {**CLASSIFIER, "output_dir": "trained",
                                                        "do_train": False}, RUN_FILES,
                                  ["trained/eval_results.txt", "trained/test_results.tsv"]),
    "squad": Run("run_squad.py", SQUAD, ["train.json", "dev.json"], ANSWERS),
    "squad 2": Run("run_squad.py", {**SQUAD, "train_file": "train2.json", "predict_file": "dev2.json",
                                    "version_2_with_negative": True}, ["train2.json", "dev2.json"],
                   [*ANSWERS, "output/null_odds.json"]),
    "squad, JSON Lines": Run("run_squad.py", {**SQUAD, "predict_file": "dev.jsonl", "do_train": False},
                             ["dev.jsonl"], ANSWERS),
    "pretraining": Run("run_pretraining.py", PRETRAINING, ["records/0.tfrecord", "records/1.tfrecord"],
                       ["output/eval_results.txt", "output/model.ckpt-6.index"]),
    "records": Run("create_pretraining_data.py", RECORDS, ["text.txt", "model/vocab.txt"],
                   ["output/[01].tfrecord"]),
    "records, SentencePiece": Run(
        "create_pretraining_data.py", {**RECORDS, "vocab_file": None, "spm_model_file": "model/spm.model"},
        ["text.txt", "model/spm.model"], ["output/[01].tfrecord"]),
    "records, again": Run(
        "create_pretraining_data.py", {**RECORDS, "output_file": "records/0.tfrecord,records/1.tfrecord"},
        ["records/0.tfrecord.manifest.json"], ["records/[01].tfrecord"]),
    "features": Run("extract_features.py", FEATURES, ["text.txt", *MODEL_FILES], ["output/features.jsonl"]),
    "features, npz": Run("extract_features.py", {**FEATURES, "output_format": "npz", "pooling": "mean",
                                                 "output_file": "output/features.npz"}, ["text.txt"],
                         ["output/features.npz"]),
    "vocabulary": Run("build_vocab.py", dict(input_file="text.txt", output_file="output/vocab.txt",
                                             vocab_size=100), ["text.txt"], ["output/vocab.txt"]),
    "to Hugging Face": Run("convert_checkpoint.py", dict(input="model/bert_model.ckpt", output="output"),
                           MODEL_FILES, ["output/model.safetensors", "output/config.json"]),
    "to TensorFlow": Run("convert_checkpoint.py", dict(input="model/hugging_face", output="output"),
                         HUGGING_FACE_FILES, ["output/bert_model.ckpt.index", "output/bert_config.json"]),
    "weights only": Run("convert_checkpoint.py", dict(input="trained", output="output", weights_only=True),
                        RUN_FILES, ["output/bert_model.ckpt.index"]),
    "memory": Run("plan_memory.py", dict(bert_config_file="model/shallow.json", max_seq_length="16",
                                         gpu_memory_gb=0.01, reserve_gb=0.009, output_file="chart.svg"),
                  ["model/shallow.json"], ["chart.svg"]),
}
# Names of files and directories that a run may change, in addition to the files that it creates.
OWN = ("output", "trained", "records", "chart.svg")


# --- The template ----------------------------------------------------------------------------------------


def write_squad(path, chance, size, version_2=False, lines=False):
    """Writes questions in the format of SQuAD. Each answer is a word of the context.

    Args:
      path: pathlib.Path of the file.
      chance: random.Random.
      size: number of questions.
      version_2: whether a third of the questions have no answer, as in SQuAD 2.0.
      lines: whether to write JSON Lines instead of the JSON of SQuAD.
    """
    questions = []
    for index in range(size):
        words = chance.sample(tiny.WORDS[:24], 14)
        place = chance.randrange(1, 14)
        answers = [{"text": words[place], "answer_start": len(" ".join(words[:place])) + 1}]
        question = {"id": f"q{index}", "question": f"what {words[place - 1]}", "answers": answers}
        if version_2:
            question.update(is_impossible=index % 3 == 2, answers=[] if index % 3 == 2 else answers)
        questions.append((" ".join(words), question))
    if lines:
        text = "".join(json.dumps({"context": context, **question}) + "\n" for context, question in questions)
    else:
        paragraphs = [{"context": context, "qas": [question]} for context, question in questions]
        text = json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})
    path.write_text(text)


def write_template(here, scripts):
    """Writes the input files of all runs. Some of these files are the output of two commands, which are run
    here.

    Args:
      here: pathlib.Path of the directory for the files.
      scripts: a `Scripts`, which runs the two commands.
    """
    (here / "model").mkdir(parents=True)
    model = tiny.Model(here / "model")
    model.config.write_bytes(model.shallow.read_bytes())
    tiny.write_task(here / "data", "mrpc", train=12, dev=6, test=6)
    chance = random.Random(5)
    documents = ("\n".join(tiny.sentence(chance) for _ in range(4)) for _ in range(9))
    (here / "text.txt").write_text("\n\n".join(documents) + "\n")
    for name, size, version_2, lines in (("train.json", 12, False, False), ("dev.json", 6, False, False),
                                         ("train2.json", 12, True, False), ("dev2.json", 6, True, False),
                                         ("dev.jsonl", 6, False, True)):
        write_squad(here / name, chance, size, version_2, lines)
    with open(here / "model" / "spm.model", "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([tiny.sentence(chance) for _ in range(50)]), model_writer=writer,
            minloglevel=2, vocab_size=len(tiny.VOCABULARY), hard_vocab_limit=False, pad_id=0, unk_id=1,
            bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    for name, changes in (("records, again", {}), ("classifier, going on", {"num_train_epochs": 1.4})):
        run = RUNS[name]
        finished = scripts.run(run.script, *arguments({**run.flags, **changes}), cwd=here)
        if finished.code:
            raise RuntimeError(f"The run '{name}' failed, although its files are not damaged:\n"
                               f"{finished.err}")


def arguments(flags):
    """Returns command-line arguments. A flag with the value None is left out."""
    return tiny.flags(**{name: value for name, value in flags.items() if value is not None})


# --- Checks of the output -------------------------------------------------------------------------------


def _not_a_number(text):
    raise ValueError(f"{text} in JSON")


def _check_json(path):
    json.loads(path.read_text("utf-8"), parse_constant=_not_a_number)


def _check_json_lines(path):
    for line in path.read_text("utf-8").splitlines():
        json.loads(line, parse_constant=_not_a_number)


def _check_table(path):
    with open(path, encoding="utf-8", newline="") as reader:
        widths = {len(row) for row in csv.reader(reader, delimiter="\t", quoting=csv.QUOTE_NONE)}
    if len(widths) != 1:
        raise ValueError(f"rows of {sorted(widths)} columns")


def _check_results(path):
    for line in path.read_text("utf-8").splitlines():
        if not np.isfinite(json.loads(line.split(" = ")[1])).all():
            raise ValueError(line)


def _check_records(path):
    if not sum(1 for _ in tf.python_io.tf_record_iterator(str(path))):
        raise ValueError("no records")


def _check_arrays(path):
    with np.load(path) as arrays:
        for name in arrays.files:
            arrays[name]  # raises an error if the file is not complete


def _check_checkpoint(path):
    reader = tf.train.load_checkpoint(str(path.with_suffix("")))
    for name in reader.get_variable_to_shape_map():
        array = reader.get_tensor(name)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")


def _check_ending(*ends):
    def check(path):
        if not path.read_bytes().rstrip().endswith(ends):
            raise ValueError(f"the file does not end in {ends[0]}")
    return check


CHECKS = {
    ".json": _check_json, ".jsonl": _check_json_lines, ".tsv": _check_table, ".tfrecord": _check_records,
    ".tf_record": _check_records, ".npz": _check_arrays, ".index": _check_checkpoint,
    ".svg": _check_ending(b"</svg>"), ".html": _check_ending(b"</html>", b"</script>", b"</body>"),
    ".safetensors": safetensors.load_file}


def problem_of(path):
    """Returns a description of the fault in an output file, or None if the file has no fault."""
    check = _check_results if path.name.endswith("eval_results.txt") else CHECKS.get(path.suffix)
    try:
        if check:
            check(path)
    except (ValueError, IndexError, OSError, EOFError, zipfile.BadZipFile, tf.errors.OpError,
            SafetensorError) as error:
        return f"{os.fspath(path)}: {type(error).__name__}: {str(error)[:150]}"
    return None
