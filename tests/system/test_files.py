"""Files: text that is not valid JSON, and paths that could be read as glob patterns."""

import json

import numpy as np
import pytest

from bertlib.system import files


@pytest.mark.parametrize("content, said", [
    (b"", "is not JSON"), (b"\xff", "is not JSON"), (b"[]", "must contain a JSON object, not a list"),
    (b"[" * 100000, "nested too deeply"), (b'{"a": ' + b"7" * 5000 + b"}", "is not JSON")], ids=range(5))
def test_what_is_no_json_object_is_a_value_error_that_names_the_file(tmp_path, content, said):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        files.read_json_object(path)
    assert str(path) in str(refused.value) and said in str(refused.value)


def test_what_exists_as_it_stands_is_no_glob(tmp_path):
    for directory in ("a[1]", "a1"):
        (tmp_path / directory).mkdir()
        for name in ("x1.txt", "x[1].txt", "y.txt"):
            (tmp_path / directory / name).touch()
    found = {pattern: [path.removeprefix(f"{tmp_path}/")
                       for path in files.find_files(f"{tmp_path}/{pattern}")]
             for pattern in ("a[1]/x[1].txt", "a[1]/x*.txt", "a[1]/y.txt", "a?/y.txt", "a1/x[1].txt", "b/*")}
    assert found == {"a[1]/x[1].txt": ["a[1]/x[1].txt"], "a[1]/x*.txt": ["a[1]/x1.txt", "a[1]/x[1].txt"],
                     "a[1]/y.txt": ["a[1]/y.txt"], "a?/y.txt": ["a1/y.txt"],
                     "a1/x[1].txt": ["a1/x[1].txt"], "b/*": []}


NUMBERS = {"step": np.int64(3), "loss": np.float32(0.1), "exact": np.float64(0.25), "is_best": np.bool_(True),
           "matrix": np.array([[1, 2]]), "nested": [(np.uint8(7), np.float16(0.5))], "name": b"dev",
           np.int64(4): None, "undefined": np.float32("nan"), "infinite": [float("-inf")]}
EXPECTED = {"step": 3, "loss": 0.1, "exact": 0.25, "is_best": True, "matrix": [[1, 2]], "nested": [[7, 0.5]],
            "name": "dev", "4": None, "undefined": None, "infinite": [None]}


def test_numbers_of_numpy_are_written_as_json(tmp_path):
    files.write_json(str(tmp_path / "values.json"), NUMBERS)
    assert json.loads((tmp_path / "values.json").read_text()) == EXPECTED


def test_files_that_belong_together_appear_and_disappear_together(tmp_path):
    def content():
        return {path.name: path.read_text() for path in tmp_path.iterdir() if path.suffix != ".partial"}

    group = [tmp_path / name for name in ("a.txt", "b.csv", "b.jsonl", "new.html")]
    earlier = {"a.txt": "1", "b.csv": "1", "other": "1"}
    for name, text in earlier.items():
        (tmp_path / name).write_text(text)
    for problem in (OSError, KeyboardInterrupt):
        with pytest.raises(problem), files.replace_together(group):
            files.write_text(tmp_path / "a.txt", "2")
            raise problem
        assert content() == earlier and not list(tmp_path.glob("*.partial"))
    with files.replace_together(group):
        for name in ("a.txt", "b.jsonl", "new.html"):
            files.write_text(str(tmp_path / name), "2")
        assert content() == earlier
        files.write_text(tmp_path / "other", "2")  # this file is not in the group
        assert content() == {**earlier, "other": "2"}
    assert content() == {"a.txt": "2", "b.jsonl": "2", "new.html": "2", "other": "2"}
    files.write_text(tmp_path / "a.txt", "3")
    assert content()["a.txt"] == "3"
