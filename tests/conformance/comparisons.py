"""Compares the files of two directories, with one function for each kind of file."""

import csv
import itertools
import json
import os
import re
import zipfile

import numpy as np
import tensorflow.compat.v1 as tf

# Fields of JSON files, at any depth, whose values differ between two equal runs: the time, the code, the
# speed and the memory. The last two are fingerprints of files with such values.
FIELDS = {"git", "code", "started", "time", "seconds", "cpu_seconds", "waiting_seconds", "peak_memory_gb",
          "examples_per_second", "steps_per_second", "run.json", "model.onnx"}
# Lines of HTML pages with such values, and the values in texts.
LINES = re.compile(r"<bdi>(environment\.git|code\b)")
WORDS = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([.,]\d+)?(\+00:00)?"
                   r"|\b\d+(\.\d+)? (s|ms|seconds?|[KMG]B)\b|0x[0-9a-f]{6,}"
                   r"|\b\d+\.\d+ (steps|examples|sentences) (a|per) second\b|(?<=/)\d{10}\b")
# These files contain graphs, logs and times. The tensors, results and records next to them are compared, and
# the answers of exported graphs.
LEFT_OUT = re.compile(r"events\.out\.|\.(meta|onnx|lock|log)$|graph\.pbtxt$|^\."
                      r"|(saved_model|fingerprint)\.pb$")
_SHOWN = 160
_LINES_OF_FILE = 3


def compare(old, new):
    """Yields lines with the first differences of each file of two directories."""
    first, second = _files(old), _files(new)
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            yield f"{name}: only the {'old' if name in first else 'new'} code writes this file"
            continue
        function = next(function for pattern, function in KINDS if re.search(pattern, name))
        for line in itertools.islice(function(first[name], second[name]), _LINES_OF_FILE):
            yield f"{name}: {line}"


def _files(directory):
    """Returns {name: path} of the files of a directory. The time in the name of an export is left out."""
    return {re.sub(r"\b\d{10}/", "TIME/", path.relative_to(directory).as_posix()): path
            for path in directory.rglob("*") if path.is_file() and not LEFT_OUT.search(path.name)}


def compare_bytes(old, new):
    """TFRecord files, vocabularies and files of other kinds: all bytes are equal."""
    if old.read_bytes() != new.read_bytes():
        yield f"the bytes differ ({old.stat().st_size} and {new.stat().st_size})"


def compare_tensors(old, new):
    """Checkpoints: names, types and bits of all tensors."""
    readers = [tf.train.load_checkpoint(str(path.with_suffix(""))) for path in (old, new)]
    shapes = [set(map(str, reader.get_variable_to_shape_map().items())) for reader in readers]
    types = [reader.get_variable_to_dtype_map() for reader in readers]
    if shapes[0] != shapes[1]:
        yield f"only one checkpoint has {sorted(shapes[0] ^ shapes[1])}"
    for name in sorted(types[0].keys() & types[1].keys()):
        if types[0][name] == tf.variant:  # the state of an iterator
            continue
        arrays = [np.asarray(reader.get_tensor(name)) for reader in readers]
        if arrays[0].dtype != arrays[1].dtype or arrays[0].tobytes() != arrays[1].tobytes():
            yield f"the tensor {name} differs"


def compare_arrays(old, new):
    """npz files: names, types and bits of all arrays. The time in the archive is not compared."""
    with zipfile.ZipFile(old) as first, zipfile.ZipFile(new) as second:
        if first.namelist() != second.namelist():
            yield f"the names differ: {first.namelist()} and {second.namelist()}"
        elif any(first.read(name) != second.read(name) for name in first.namelist()):
            yield "the contents differ"


def compare_json(old, new):
    """JSON files: all values except `FIELDS`."""
    yield from _differences("", *(json.loads(path.read_text(encoding="utf-8")) for path in (old, new)))


def compare_json_lines(old, new):
    """JSON Lines: the values of each line except `FIELDS`."""
    lines = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
             for path in (old, new)]
    yield from _differences("line ", *({str(number): line for number, line in enumerate(side, 1)}
                                       for side in lines))


def _differences(path, old, new):
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted((old.keys() | new.keys()) - FIELDS):
            if name not in old or name not in new:
                yield f"{path}{name}: only the {'old' if name in old else 'new'} code writes this field"
            else:
                yield from _differences(f"{path}{name}.", old[name], new[name])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new)):
            yield from _differences(f"{path}{index}.", *pair)
    elif _plain(old) != _plain(new):
        yield f"{path.rstrip('.')}: {json.dumps(old)[:_SHOWN]} and {json.dumps(new)[:_SHOWN]}"


def _plain(value):
    return WORDS.sub("…", value) if isinstance(value, str) else value


def compare_tables(old, new):
    """CSV files: all columns except `FIELDS`."""
    tables = []
    for path in (old, new):
        with open(path, encoding="utf-8", newline="") as file:
            table = list(csv.reader(file))
        kept = [index for index, name in enumerate(table[0] if table else []) if name not in FIELDS]
        tables.append([",".join(row[index] for index in kept if index < len(row)) for row in table])
    yield from _compare_lines(*tables)


def compare_sweep_page(old, new):
    """The page of a sweep: as other texts, without the last column of its tables, the seconds."""
    last = re.compile(r"<data[^>]*>[^<]*</data></td></tr>$")
    yield from _compare_lines(*([last.sub("", line) for line in _lines(path)] for path in (old, new)))


def compare_texts(old, new):
    """Results, tables, HTML pages and the output of commands: all lines except `LINES`, without `WORDS`."""
    yield from _compare_lines(_lines(old), _lines(new))


def _lines(path):
    return [WORDS.sub("…", line) for line in path.read_text(encoding="utf-8").splitlines()
            if not LINES.search(line)]


def _compare_lines(*lines):
    if len(lines[0]) != len(lines[1]):
        yield f"{len(lines[0])} and {len(lines[1])} lines"
    for number, (first, second) in enumerate(zip(*lines), 1):
        if first != second:
            start = max(0, len(os.path.commonprefix([first, second])) - _SHOWN // 4)
            yield f"line {number}: {first[start:start + _SHOWN]!r} and {second[start:start + _SHOWN]!r}"
            return


def ignore(old, new):
    """The data file of a checkpoint or of a SavedModel: `compare_tensors` reads it through its index."""
    return ()


KINDS = [(r"\.index$", compare_tensors), (r"\.data-\d+-of-\d+$", ignore), (r"\.npz$", compare_arrays),
         (r"\.json$", compare_json), (r"\.jsonl$", compare_json_lines),
         (r"\.csv$", compare_tables), (r"(^|/)sweep\.html$", compare_sweep_page),
         (r"\.(txt|tsv|html|md|conll|svg)$|(^|/)checkpoint$", compare_texts), ("", compare_bytes)]
