"""Files that one run stores and another one reads: a damaged file is refused by name, or made again."""

import json
import shutil

from hypothesis import given
from hypothesis import strategies as some
import model_directories
import pytest

from bertlib.data import features_cache, tfrecord_manifests
from bertlib.runs import record_format
from bertlib.system import fingerprints

MANIFEST = {"settings": {"vocabulary": "ab", "max_seq_length": 20}, "documents": 3, "sentences": 9,
            "fingerprint": "cd", "blocks": 2, "files": ["a.tfrecord"], "blocks_done": 2, "sizes": [4],
            "statistics": {"instances": 5},
            "vocabulary": {"path": "v", "flag": "vocab_file"}}
RECORD = model_directories.record(
    ["no", "yes"], vocabulary="ab", do_lower_case=True, bert_config={"max_position_embeddings": 40},
    files={"train_file": "a.csv"},
    settings={"max_seq_length": 20, "seed": 1, "learning_rate": 0.01, "text_column": "text"})
NONSENSE = [None, [], {}, "", "x", True, -1, 0.5, 10**9, 10**30, float("nan"), float("inf"), [[]], {"a": 1},
            [1, "x"], "é\0\ud800", "\x1b[31m", "1e9", [[[[]]] * 3] * 3]
NO_JSON = [b"", b"{", b"\xff", b"nonsense", b"null", b"[]", b"17", b"[" * 100000, b'{"a": 1e999}']


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # the fingerprint of the code takes a tenth of a second
        patch.setattr(fingerprints, "hash_package", lambda: "code")
        patch.setattr(fingerprints, "hash_scripts", dict)
        yield tmp_path_factory.mktemp("stored")


@some.composite
def damaged_objects(draw, value):
    """Returns the bytes of an object in JSON in which one value is nonsense or missing, or no such object."""
    places, found = [], json.loads(json.dumps(value))

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(found)
    node, key = draw(some.sampled_from(places))
    if draw(some.booleans()):
        node[key] = draw(some.sampled_from(NONSENSE))
    else:
        del node[key]
    whole = json.dumps(found).encode()
    return draw(some.sampled_from([*[whole] * 8, whole[:-1 - len(whole) // 3]]) | some.sampled_from(NO_JSON))


def assert_read_or_refused(read, path, content):
    """Asserts that a damaged object is either read as it is written, or refused in one line with its path."""
    path.write_bytes(content)
    try:
        found = read()
    except ValueError as error:
        assert str(path) in str(error) and "\n" not in str(error) and "\x1b" not in str(error), str(error)
    else:
        assert json.dumps(found) == json.dumps(json.loads(content))


@given(content=damaged_objects(RECORD))
def test_a_damaged_run_json_is_one_sentence(directory, content):
    assert_read_or_refused(lambda: record_format.read_record(str(directory)), directory / "run.json", content)


@given(content=damaged_objects(MANIFEST), size=some.sampled_from([4, 4, 3, 5]))
def test_a_damaged_manifest_of_records_is_one_sentence(directory, content, size):
    (directory / "a.tfrecord").write_bytes(b"x" * size)
    path = directory / "a.tfrecord.manifest.json"

    def read():
        found = tfrecord_manifests.read([str(directory / "a.tfrecord")])
        if not found:  # the damaged manifest names no such file
            assert "a.tfrecord" not in json.loads(content)["files"]
            return json.loads(content)
        (where, manifest), = found
        assert where == str(path) and manifest["sizes"] == [size]
        return manifest

    assert_read_or_refused(read, path, content)


class Example(object):
    def __init__(self, text):
        self.text = text


@given(text=some.text(max_size=30), place=some.floats(0, 1, exclude_max=True),
       what=some.sampled_from(["bit", "cut", "more"]),
       which=some.sampled_from(["features.tf_record", "facts.json"]))
def test_a_damaged_entry_of_the_features_cache_is_made_again(directory, text, place, what, which):
    """A bit is changed, the file is cut off, or it gets one more byte."""
    shutil.rmtree(directory / "cache", ignore_errors=True)
    made = []

    def write():
        def convert(path):
            with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(f"features of {text}")
            made.append(path)
            return [len(text), 0.1, None]

        value = features_cache.write(str(directory / "features"), str(directory / "cache"), [7],
                                     [Example(text)], convert)
        return value, (directory / "features").read_bytes()

    first = write()
    assert write() == first and len(made) == 1
    entry, = (directory / "cache").iterdir()
    (entry / which).chmod(0o644)
    old = (entry / which).read_bytes()
    index = int(place * len(old))
    new = {"bit": old[:index] + bytes([old[index] ^ 1]) + old[index + 1:], "cut": old[:index],
           "more": old + b"x"}[what]
    (entry / which).write_bytes(new)
    is_same = which == "facts.json" and new.strip() == old.strip()
    assert write() == first and len(made) == 2 - is_same
    assert list((directory / "cache").iterdir()) == [entry]
