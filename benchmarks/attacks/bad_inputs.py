"""Makes an input bad: changes a flag or the content of a file, or puts something else in the file's place.

Each change is a function in a table. The function takes the input and a random.Random. It returns the changed
input, or changes the file itself.
"""

import functools
import json
import os
import re
import shutil
import struct
import xml.etree.ElementTree

import numpy as np
import tensorflow.compat.v1 as tf
import tiny

# --- Flags -----------------------------------------------------------------------------------------------

INTEGERS = [0, -1, 1, 3, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 10**18, 10**30, 10**100, -2**63, "1e3",
            "٣", "", " 5", "0x10", "1_000", "nan"]
FLOATS = [0, "-0.0", -1, 0.5, 1, "1e-320", "1e308", "-1e308", "1e400", "nan", "inf", "-inf", 1e10, "", "1,5"]
# All paths are inside of the directory of the case. If the attack runs as root, a path outside of it could
# overwrite any file of the machine. `null` and `full` are devices.
STRINGS = ["", ".", "..", "nowhere", "none/there", "null", "full", "data", "model", "output", "text.txt",
           "model/vocab.txt", "./text.txt", "data/../text.txt", "dev.json", "train.json", "link.txt",
           "hard.txt", "model/bert_config.json", "model/bert_model.ckpt", "model/hugging_face",
           "records/0.tfrecord", "trained", "[", "a]b", "back\\slash", "with space", "ünï…\u200b",
           "new\nline",
           "-dash", "x" * 5000, "x" * 250, "~", "a,b", ",", "no://x", "file:///nowhere", "%s{0}", "*", "1",
           "1,2", "-1", "99", "a,,b", "\udcff", "2,1", "0,10000000000000000000000"]
BOOLEANS = ["true", "false", "maybe", "2", ""]
VALUES = {"int": INTEGERS, "float": FLOATS, "bool": BOOLEANS}


def flags_of(scripts, script, cwd):
    """Returns {flag: values to try} for the flags that a command lists with --helpxml. Flags of libraries are
    left out."""
    text = scripts.run(script, "--helpxml", cwd=cwd).out
    found = {}
    for flag in xml.etree.ElementTree.fromstring(text[text.index("<?xml"):].encode()).iter("flag"):
        module, name, kind = (flag.findtext(tag) or "" for tag in ("file", "name", "type"))
        if not re.match(r"absl|tensorflow", module) and name != "traceback" and not name.startswith("help"):
            found[name] = VALUES.get(kind, [*STRINGS, *flag.findtext("meaning")[:200].lstrip("<").split("|")]
                                     if "enum" in kind else STRINGS)
    return found


# --- Bytes of any file -----------------------------------------------------------------------------------


def _insert(inserted):
    def mutate(content, chance):
        place = chance.randrange(len(content) + 1)
        return content[:place] + inserted(chance) + content[place:]
    return mutate


def _on_lines(change):
    def mutate(content, chance):
        lines = content.splitlines(keepends=True) or [b""]
        change(lines, chance.randrange(len(lines)), chance)
        return b"".join(lines)
    return mutate


def _flip(content, chance):
    changed = bytearray(content or b"\0")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


FIELDS = [b"", b"0", b"-1", b"x" * 200000, b"\"", b"\"\"\"", b"1e999", b"[CLS]", b"\xef\xbb\xbf", b"\xff",
          b"\0", "é日本\u2028".encode(), b"a ||| b", b" ", b"\r"]


def _replace_field(lines, index, chance):
    fields = lines[index].rstrip(b"\n").split(b"\t")
    fields[chance.randrange(len(fields))] = chance.choice(FIELDS)
    lines[index] = b"\t".join(fields) + b"\n"


def _as_text(encoding):
    return lambda content, chance: content.decode("utf-8", "replace").encode(encoding, "replace")


CONTENTS = {
    "empty": lambda content, chance: b"",
    "truncated": lambda content, chance: content[:chance.randrange(max(1, len(content)))],
    "a bit flipped": _flip,
    "NUL bytes": _insert(lambda chance: bytes(chance.choice([1, 4096]))),
    "not UTF-8": _insert(lambda chance: b"\xff\xfe\xed\xa0\x80"),
    "a huge field": _insert(lambda chance: b"x" * 200000),
    "random bytes": _insert(lambda chance: chance.randbytes(300)),
    "nothing but random bytes": lambda content, chance: chance.randbytes(500),
    "nothing but white space": lambda content, chance: b" \n\n\t\r\n\xe2\x80\xa8\n",
    "UTF-16": _as_text("utf-16"), "UTF-8 with a mark": _as_text("utf-8-sig"), "Latin 1": _as_text("latin-1"),
    "CRLF": lambda content, chance: content.replace(b"\n", b"\r\n"),
    "CR": lambda content, chance: content.replace(b"\n", b"\r"),
    "no line end": lambda content, chance: content.rstrip(b"\n"),
    "twice": lambda content, chance: content + content,
    "a line twice": _on_lines(lambda lines, index, chance: lines.insert(index, lines[index])),
    "a line less": _on_lines(lambda lines, index, chance: lines.pop(index)),
    "an empty line": _on_lines(lambda lines, index, chance: lines.insert(index, b"\n")),
    "another field": _on_lines(_replace_field),
}
# A file is no longer a valid input after one of these changes.
SPOILED = {"empty", "nothing but random bytes", "nothing but white space"}

# --- JSON ------------------------------------------------------------------------------------------------

DEEP = "[" * 100000 + "]" * 100000
JSON_VALUES = [None, [], {}, "", "x", True, -1, 0, 1.5, 10**30, 2**31, 2**63, float("inf"), float("nan"),
               [[]], {"a": 1}, [1, "x"], "é\0\ud800", "DEEP"]


def mutate_json(content, chance):
    """Replaces or removes a random value in a JSON text, or replaces the whole text by another JSON value."""
    found = json.loads(content)
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(found)
    if not places or chance.random() < 0.1:
        found = chance.choice(JSON_VALUES)
    else:
        node, key = chance.choice(places)
        if chance.random() < 0.3:
            del node[key]
        else:
            node[key] = chance.choice(JSON_VALUES)
    return json.dumps(found).replace('"DEEP"', DEEP).encode("utf-8", "surrogatepass")


def _json_line(lines, index, chance):
    lines[index] = mutate_json(lines[index], chance) + b"\n"


def mutate_safetensors(content, chance):
    """Changes the header of a safetensors file, or the number that gives the length of the header."""
    size, = struct.unpack("<Q", content[:8])
    header, rest = content[8:8 + size], content[8 + size:]
    if chance.random() < 0.2:
        return struct.pack("<Q", chance.choice([0, 1, 2**31, 2**63, 2**64 - 1, len(content)])) + content[8:]
    header = mutate_json(header, chance)
    return struct.pack("<Q", len(header)) + header + rest


# --- Records and checkpoints -----------------------------------------------------------------------------


def mutate_records(path, chance):
    """Removes or changes a feature in one record of a file, or replaces the record by garbage."""
    records = list(tf.python_io.tf_record_iterator(str(path)))
    index = chance.randrange(len(records))
    example = tf.train.Example.FromString(records[index])
    features = example.features.feature
    name = chance.choice(sorted(features))
    values = features[name].int64_list.value or features[name].float_list.value
    kind = chance.choice(["remove", "shorter", "longer", "type", "value", "value", "value", "garbage"])
    if kind == "remove":
        del features[name]
    elif kind == "shorter":
        values.pop()
    elif kind == "longer":
        values.append(1)
    elif kind == "type":
        features[name].bytes_list.value.append(b"x")
    elif kind == "value":
        numbers = [-1, 10**6, 2**31, -2**63, 2**63 - 1] if features[name].int64_list.value else [
            float("nan"), float("inf"), -1.0, 1e38]
        values[chance.randrange(len(values))] = chance.choice(numbers)
    records[index] = b"\xff\x00garbage" if kind == "garbage" else example.SerializeToString()
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return f"{kind} {name} of record {index}"


def mutate_checkpoint(path, chance):
    """Replaces a checkpoint by a copy in which one tensor is bad. The tensor is missing, has another shape or
    type, or contains values that are not finite. Returns a description of the change."""
    prefix = path.with_suffix("")
    reader = tf.train.load_checkpoint(str(prefix))
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    name = chance.choice(sorted(arrays))
    changes = {"missing": lambda array: None, "NaN": lambda array: np.full(array.shape, np.nan, np.float32),
               "infinite": lambda array: np.full(array.shape, np.inf, np.float32),
               "of another shape": lambda array: np.zeros((*array.shape, 2), array.dtype),
               "float16": lambda array: array.astype(np.float16),
               "strings": lambda array: np.full(array.shape, b"x", object),
               "an integer": lambda array: array.astype(np.int32)}
    kind = chance.choice(sorted(changes))
    arrays[name] = changes[kind](arrays[name])
    tiny.write_tensorflow(prefix, {name: array for name, array in arrays.items() if array is not None})
    return f"{name} {kind}"


# --- Something else in the place of a file ---------------------------------------------------------------


def _replace_by(make):
    def mutate(path):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)
    return mutate


PLACES = {
    "missing": _replace_by(lambda path: None),
    "a directory": _replace_by(lambda path: path.mkdir()),
    "a link to nothing": _replace_by(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _replace_by(lambda path: path.symlink_to(path.name)),
    "a link to a device without end": _replace_by(lambda path: path.symlink_to("full")),
}
if os.geteuid():
    PLACES["unreadable"] = lambda path: path.chmod(0)
OTHERS = ["text.txt", "dev.json", "model/spm.model", "data/dev.tsv", "records/0.tfrecord"]
ODD_NAMES = ["[a]", "a]b[", "back\\slash", "with space", "ünï…", "new\nline", "-dash", "q?x", "%s{0}",
             "'\"$(x)", ".hidden", "\udcff"]


def mutation(chance, here, run):
    """Makes one input of a run bad. This changes files under `here`.

    Returns:
      (description of the change, {changed flag: value}, required end of the run). The required end is
      "refused", "valid" or None. None means that the run may succeed or fail.
    """
    name = chance.choice(run.inputs)
    path = here / name.rstrip("/")
    flags = {flag: value for flag, value in run.flags.items() if value is not None}
    named = [flag for flag, value in flags.items() if value == name.rstrip("/")]
    if chance.random() < 0.15 and named and "output_dir" not in named:
        odd = path.with_name(chance.choice(ODD_NAMES) + (path.suffix if path.is_file() else ""))
        path.rename(odd)
        return (f"{name} is called {odd.name!r}",
                {flag: os.fspath(odd.relative_to(here)) for flag in named}, "valid")
    if name.endswith("/") or chance.random() < 0.15:
        kind = chance.choice(sorted(PLACES))
        PLACES[kind](path)
        return f"{name} is {kind}", {}, None
    mutations = {kind: functools.partial(_rewrite, CONTENTS[kind]) for kind in CONTENTS}
    mutations["another file"] = lambda path, chance: shutil.copyfile(here / chance.choice(OTHERS), path)
    special = {".json": _rewriter(mutate_json), ".jsonl": _rewriter(_on_lines(_json_line)),
               ".safetensors": _rewriter(mutate_safetensors), ".tfrecord": mutate_records,
               ".index": mutate_checkpoint}.get(path.suffix)
    if special and chance.random() < 0.6:
        return f"{name}: {special.__name__} {special(path, chance) or ''}", {}, None
    kind = chance.choice(sorted(mutations))
    try:
        mutations[kind](path, chance)
    except shutil.SameFileError:
        return f"{name} unchanged", {}, "valid"
    optional = path.name in ("checkpoint", "tokenizer_config.json")  # the runs succeed without these files
    # For extract_features.py, a blank line is valid. As in the published code, its vectors are those of [CLS]
    # and [SEP].
    blank = run.script == "extract_features.py" and name == "text.txt" and "white" in kind
    refused = kind in SPOILED and not optional and not blank
    return f"{name}: {kind}", {}, "refused" if refused else None


def _rewriter(mutate):
    function = functools.partial(_rewrite, mutate)
    function.__name__ = getattr(mutate, "__name__", "").strip("_")
    return function


def _rewrite(mutate, path, chance):
    path.write_bytes(mutate(path.read_bytes(), chance))
