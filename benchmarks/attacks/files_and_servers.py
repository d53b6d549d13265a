"""Attacks commands that read GLUE's files or lines of text, extract vectors, convert checkpoints, check
submissions to GLUE, or download files.
"""

import json
import os

from attacks import oracle, world
from attacks.classifying import check_answers, read_answers
from attacks.trial import Bad, contents_of, unfinished_in
from file_server import Server, zip_of
import numpy as np
from safetensors import numpy as safetensors
import tensorflow.compat.v1 as tf
import tiny

# --- Files of GLUE ---------------------------------------------------------------------------------------


def glue_files(trial):
    """Runs predict.py and run_classifier.py on a file of GLUE. Both programs must read the texts from the
    columns that the task defines."""
    chance, task = trial.chance, trial.chance.choice(["mrpc", "cola"])
    part = chance.choice(["train", "dev", "test"])
    trial.note(f"{task}, {part}.tsv")
    trial.world.take(trial.here, task)
    path = f"data/{task}/{part}.tsv"
    rows = oracle.table_in(trial.here / path)[tiny.header(task, part) is not None:]
    columns = {"mrpc": (3, 4), "cola": (3,)}[task]
    if task == "cola" and part == "test":  # GLUE's test file of CoLA has a header and two columns
        rows = [[str(index), row[3]] for index, row in enumerate(rows)]
        (trial.here / path).write_text("".join("\t".join(row) + "\n"
                                               for row in [["index", "sentence"], *rows]))
        columns = (1,)
    if task == "mrpc" and part == "test":  # the first column of GLUE's test file contains an index
        rows = [[str(index), *row[1:]] for index, row in enumerate(rows)]
        names = ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        (trial.here / path).write_text("".join("\t".join(row) + "\n" for row in [names, *rows]))
    asked = [tuple(row[column] for column in columns) for row in rows]
    finished = trial.run("predict.py", model_dir=task, input_file=path, output_file="answers.jsonl")
    if trial.expect(finished, "either"):
        found = [list(answer["probabilities"].values())
                 for answer in read_answers(trial.here / "answers.jsonl")]
        check_answers(trial, task, asked, found)
    if part == "test":
        finished = trial.run("run_classifier.py", output_dir=task, do_predict=True, results_dir="results",
                             data_dir=f"data/{task}")
        trial.expect(finished, "right")
        found = [list(map(float, row)) for row in oracle.table_in(trial.here / "results/test_results.tsv")]
        check_answers(trial, task, asked, found)


def text_lines(trial):
    """Lets predict.py read lines of text. A line is one text, or two texts with ||| between them."""
    chance = trial.chance
    name = chance.choice(["single", "pair"])
    rows = [texts for texts, _ in world.rows(chance, name, 8)]
    kind = chance.choice(["plain", "empty line", "not UTF-8", "mark", "crlf", "no end", "odd spaces",
                          "escape", "three parts", "surrogate"])
    trial.note(f"{name}: {kind}")
    trial.world.take(trial.here, name)
    lines, must = [" ||| ".join(texts).encode() for texts in rows], "right"
    if kind == "empty line":
        lines.insert(3, chance.choice([b"", b"  ", b"\t"]))
        must = "refused"
    elif kind in ("not UTF-8", "surrogate"):
        lines.insert(3, b"the \xff cat" if kind == "not UTF-8" else b"the \xed\xa0\x80 cat")
        must = "refused"
    elif kind == "escape":
        rows[3] = ("the \x1b[31m cat", *rows[3][1:])
        lines[3] = " ||| ".join(rows[3]).encode()
    elif kind == "odd spaces":
        rows[3] = ("the\u2028cat\u3000sees\x85a\x0bdog", *rows[3][1:])
        lines[3] = " ||| ".join(rows[3]).encode()
    elif kind == "three parts":
        lines[3] += b" ||| the cat"
        must = "either"
        texts = [*rows[3], "the cat"]
        # For a model of single texts, the separator is a part of the text.
        rows[3] = (texts[0], " ||| ".join(texts[1:])) if len(rows[3]) > 1 else (" ||| ".join(texts),)
    end = b"\r\n" if kind == "crlf" else b"\n"
    content = b"\xef\xbb\xbf" * (kind == "mark") + end.join(lines) + end * (kind != "no end")
    trial.write("given.txt", content)
    finished = trial.run("predict.py", model_dir=name, input_file="given.txt", output_file="answers.jsonl")
    if trial.expect(finished, must):
        found = [list(answer["probabilities"].values())
                 for answer in read_answers(trial.here / "answers.jsonl")]
        check_answers(trial, name, rows, found)


# --- Conversions -----------------------------------------------------------------------------------------

# A checkpoint can have more layers than its configuration names. These additional layers are not converted,
# so the attack does not compare them. Each model of the attack has fewer layers than this number.
_MOST_LAYERS = 12


def conversions(trial):
    """Converts a checkpoint to the names of Hugging Face, and back. The numbers must not change."""
    chance = trial.chance
    name = chance.choice(["single", "scores", "words", "questions", "tags", "model/bert_model.ckpt"])
    kind = chance.choice(["plain", "there and back", "weights only", "output is input", "output is there",
                          "no vocabulary"])
    trial.note(f"{name}: {kind}")
    trial.world.take(trial.here, "single" if "/" in name else name)
    directory = name if "/" not in name else "model"
    before = contents_of(trial.here / directory)
    if kind == "no vocabulary":
        (trial.here / directory / "vocab.txt").unlink()
        before.pop("vocab.txt")
    output, must = "converted", "either" if kind == "no vocabulary" else "right"
    if kind == "output is input":
        output, must = directory, "refused"
    elif kind == "output is there":
        (trial.here / "converted").mkdir()
        (trial.here / "converted/model.safetensors").write_bytes(b"mine")
        must = "refused"
    finished = trial.run("convert_checkpoint.py", input=name, output=output,
                         weights_only=kind == "weights only" or None)
    after = contents_of(trial.here / directory)
    if {path: after.get(path) for path in before} != before:
        raise Bad("input lost or changed", name)
    if unfinished_in(trial.here):
        raise Bad("left behind", str(unfinished_in(trial.here)))
    if not trial.expect(finished, must) or kind == "weights only":
        return
    layers = json.loads((trial.here / directory / "bert_config.json").read_text())["num_hidden_layers"]
    arrays = {key: value for key, value in _tensors(trial.here / name).items()
              if not any(f"/layer_{index}/" in key for index in range(layers, _MOST_LAYERS))}
    found = safetensors.load_file(trial.here / "converted/model.safetensors")
    expected = tiny.hugging_face({key: value for key, value in arrays.items() if key.startswith("bert/")})
    for key, value in expected.items():
        given = found.get(key, found.get(key.removeprefix("bert.")))
        if given is None or not np.array_equal(given, value):
            raise Bad("wrong result", f"tensor {key} differs from the checkpoint, or is missing")
    if kind == "there and back":
        trial.expect(trial.run("convert_checkpoint.py", input="converted", output="back"), "right")
        again = _tensors(trial.here / "back/bert_model.ckpt")
        if wrong := [key for key in again if not np.array_equal(again[key], arrays.get(key))]:
            raise Bad("wrong result", f"these tensors are not the same after a conversion to Hugging "
                      f"Face's format and back: {wrong[:3]}")


def _tensors(path):
    """Returns the weights in a directory or checkpoint as {name: array}, without optimizer variables."""
    prefix = tf.train.latest_checkpoint(str(path)) if path.is_dir() else str(path)
    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if "adam" not in name and name != "global_step"}


# --- Downloads -------------------------------------------------------------------------------------------

_SQUAD_PATHS = [f"/SQuAD-explorer/dataset/{part}-v1.1.json" for part in ("train", "dev")]
_RTE = {f"RTE/{name}.tsv": f"index\tsentence1\tsentence2\tlabel\n0\t{name}\tb\tentailment\n".encode()
        for name in ("train", "dev", "test")}
_HTML = b"<!DOCTYPE html>\n<html><body>Sign in to continue</body></html>\n"


def _squad(chance):
    paragraph = {"context": "the cat sees", "qas": [{"id": "1", "question": "what", "answers": [
        {"text": "cat", "answer_start": 4}]}]}
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph] * 9}]}).encode()


def downloads(trial):
    """Lets download.py read from a server. The command must refuse wrong data, and must not write them under
    the final name of the file."""
    chance = trial.chance
    kind = chance.choice(["right", "empty", "HTML", "{}", "cut off", "no zip", "escapes", "absolute", "clash",
                          "bomb", "files missing", "damaged zip", "not JSON", "404", "resumed"])
    trial.note(kind)
    spoiled = kind not in ("right", "resumed")
    is_squad = kind in ("{}", "not JSON") or chance.random() < 0.5 and kind in (
        "right", "empty", "HTML", "cut off", "404", "resumed")
    files = {path: _squad(chance) for path in _SQUAD_PATHS} if is_squad else {
        "/glue/data/RTE.zip": zip_of(_RTE)}
    path = chance.choice(sorted(files))
    _spoil_download(chance, kind, files, path)
    must = "refused" if spoiled else "right"
    with Server(files) as server:
        if kind in ("cut off", "resumed"):
            server.cuts = [20] * (9 if kind == "cut off" else 1)
        if kind == "HTML":
            server.kind = chance.choice(["text/html", "application/octet-stream"])
        finished = trial.run("download.py", data="squad1.1" if is_squad else "rte",
                             base_url=server.address, environment={"no_proxy": "*"},
                             limits={"RLIMIT_FSIZE": 400 << 20})
    trial.command = "download.py"
    # If many connections end after 20 bytes, the command may give up, or may still complete the download.
    succeeded = trial.expect(finished, "either" if kind == "cut off" else must)
    outside = sorted(os.path.relpath(found, trial.here) for found in trial.here.parent.rglob("*")
                     if found.is_file() and not found.is_relative_to(trial.here / "data"))
    if outside:
        raise Bad("wrong result", f"download.py wrote files outside of data/: {outside}")
    names = sorted(contents_of(trial.here / "data")) if (trial.here / "data").exists() else []
    whole = [name for name in names if not name.endswith(".partial")]
    if succeeded:
        expected = ["squad/dev-v1.1.json", "squad/train-v1.1.json"] if is_squad else [
            "glue/RTE/dev.tsv", "glue/RTE/test.tsv", "glue/RTE/train.tsv"]
        if names != expected:
            raise Bad("wrong result", f"found {names}, expected {expected}")
    elif spoiled and not is_squad and [name for name in whole if name.endswith(".tsv")]:
        raise Bad("wrong result", f"download.py ended with an error, but wrote these files: {whole}")


def _spoil_download(chance, kind, files, path):
    """Changes the files that the server sends."""
    data = files[path]
    if kind == "404":
        del files[path]
        return
    files[path] = {
        "empty": b"", "HTML": _HTML, "{}": b"{}", "no zip": data[len(data) // 2:], "not JSON": data[:-40],
        "escapes": zip_of({**_RTE, "RTE/../../../../evil.tsv": b"x"}),
        "absolute": zip_of({**_RTE, "/tmp/evil.tsv": b"x"}),
        "clash": zip_of({**_RTE, "RTE/TRAIN.tsv": b"another"}),
        "bomb": zip_of({**_RTE, "RTE/train.tsv": b"\0" * (600 << 20)}) if kind == "bomb" else b"",
        "files missing": zip_of({"RTE/train.tsv": b"x"}),
        "damaged zip": data[:60] + bytes([data[60] ^ 255, data[61] ^ 255]) + data[62:],
    }.get(kind, data)


# --- Submissions -----------------------------------------------------------------------------------------


def submissions(trial):
    """Checks that glue_submission.py refuses every file of predictions that GLUE would refuse."""
    chance = trial.chance
    kind = chance.choice(["right", "a row less", "another label", "another index", "no header", "empty",
                          "twice", "escape", "not UTF-8", "missing"])
    trial.note(kind)
    rows = [[str(index), chance.choice(["0", "1"])] for index in range(1063)]
    lines, must = [["index", "prediction"], *rows], "refused"
    place = chance.randrange(1, len(lines))
    if kind == "right":
        must = "right"
    elif kind == "a row less":
        del lines[place]
    elif kind in ("another label", "escape"):
        lines[place][1] = "2" if kind == "another label" else "\x1b[31m"
    elif kind == "another index":
        lines[place][0] = "7777"
    elif kind == "no header":
        del lines[0]
    elif kind == "empty":
        lines = []
    content = "".join("\t".join(row) + "\n" for row in lines).encode()
    trial.write("a/CoLA.tsv", content + b"\xff" * (kind == "not UTF-8"))
    paths = ["a"]
    if kind == "twice":
        trial.write("b/CoLA.tsv", content)
        paths.append("b")
    elif kind == "missing":
        paths.append("c")
    finished = trial.run("glue_submission.py", *paths, partial=True)
    made = (trial.here / "glue_submission.zip").exists()
    if trial.expect(finished, must) != made:
        raise Bad("wrong result", f"the exit code {finished.code} does not fit the zip file (exists: {made})")


# --- Vectors ---------------------------------------------------------------------------------------------


def vectors(trial):
    """Runs extract_features.py on lines of text. The command must write one row for each line, in the order
    of the lines."""
    chance = trial.chance
    trial.world.take(trial.here, "single")
    lines = [world.words(chance) for _ in range(6)]
    kind = chance.choice(["plain", "pairs", "blank", "odd spaces", "escape"])
    trial.note(kind)
    if kind == "pairs":
        lines[2] += " ||| the cat"
    elif kind == "odd spaces":
        lines[2] = "the\u2028cat\u3000sees"
    elif kind == "escape":
        lines[2] = "the \x1b[31m cat"
    elif kind == "blank":
        lines[2] = ""
    trial.write("lines.txt", "".join(f"{line}\n" for line in lines))
    finished = trial.run("extract_features.py", init_checkpoint="single", input_file="lines.txt",
                         output_file="features.jsonl", layers="-1", max_seq_length=20)
    if not trial.expect(finished, "right"):
        return
    found = [json.loads(line) for line in (trial.here / "features.jsonl").read_text("utf-8").split("\n")
             if line]
    if [row["linex_index"] for row in found] != list(range(len(lines))):
        raise Bad("wrong result", "the answers have the line numbers "
                  f"{[row['linex_index'] for row in found]}, but the file has {len(lines)} lines")
