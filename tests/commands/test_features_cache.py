"""--features_cache: the same bits as without it, one conversion for equal inputs, killed processes."""

import multiprocessing
import os
import pathlib
import shutil
import time

from rows import ROWS

from bertlib.data import features_cache
from bertlib.system import files
from bertlib.tasks.squad import squad_data
from bertlib.tasks.tagging import tagging_windows
import tokenization

RECORDS = "train.tf_record", "eval.tf_record"


def test_a_classifier_has_the_same_features_with_the_cache(workspaces, tmp_path):
    work, plain = workspaces(ROWS["pairs"]).copy(tmp_path / "copy"), workspaces(ROWS["pairs"])
    for path in RECORDS:
        (work.output / path).unlink()
    for name, number in (("first", 0), ("second", 2)):
        shutil.copytree(work.output, work.directory / name)
        done = work.train(output_dir=name, features_cache="cache", do_predict=False)
        assert done.code == 0 and done.err.count("features are from --features_cache") == number, done.err
    for name in RECORDS:
        assert (work.directory / "second" / name).read_bytes() == (plain.output / name).read_bytes()
        assert os.stat(work.directory / "second" / name).st_nlink == 3
    assert len(list((work.directory / "cache").iterdir())) == 2
    refused = work.train(output_dir="refused", features_cache="data/train.tsv")
    refused.assert_refused("train.tsv is not a directory")
    assert not (work.directory / "refused").exists()


def test_squad_and_tagging_have_the_same_bits_with_the_cache(workspaces, tiny_model, tmp_path):
    tokenizer = tokenization.FullTokenizer(str(tiny_model.vocab))
    questions = workspaces(ROWS["SQuAD 2.0"], untrained=True).directory / "data" / "dev.json"
    examples = squad_data.read_squad_examples(str(questions), True, True)
    window = tagging_windows.Window(*([1, 2, 3] for _ in tagging_windows.Window._fields))

    def write(name, cache):
        squad, tags = (str(tmp_path / f"{name}.{task}") for task in ("squad", "tags"))
        count = squad_data.file_based_convert_examples_to_features(examples, tokenizer, 32, 8, 8, True, squad,
                                                                   cache=cache)
        tagging_windows.write_windows([window, window], 8, tags, cache)
        return count, pathlib.Path(squad).read_bytes(), pathlib.Path(tags).read_bytes()

    cache = str(tmp_path / "cache")
    assert write("plain", None) == write("first", cache) == write("second", cache)
    assert os.stat(tmp_path / "second.squad").st_nlink == os.stat(tmp_path / "second.tags").st_nlink == 3


class Example:
    def __init__(self, text):
        self.text = text


def write_text(directory, name, text="a", delay=0.0):
    """Writes a file through the cache in a directory. Each conversion adds a line to the file `calls`."""
    def convert(path):
        with open(directory / "calls", "a") as calls:
            calls.write("call\n")
        time.sleep(delay)
        files.write_text(path, f"features of {text}")
        return [len(text), 0.1, None]

    cache = str(directory / "cache")
    return features_cache.write(str(directory / name), cache, [7], [Example(text)], convert)


def calls(directory):
    return len((directory / "calls").read_text().splitlines())


def test_processes_that_need_the_same_features_convert_once(tmp_path):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=write_text, args=(tmp_path, f"file{index}", "a", 0.5))
                for index in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0] and calls(tmp_path) == 1
    assert write_text(tmp_path, "file3") == [1, 0.1, None] and calls(tmp_path) == 1
    assert {(tmp_path / f"file{index}").read_text() for index in range(4)} == {"features of a"}
    assert write_text(tmp_path, "file0", "bc") == [2, 0.1, None] and calls(tmp_path) == 2
    assert (tmp_path / "file0").read_text() == "features of bc"
    assert (tmp_path / "file1").read_text() == "features of a"


def test_an_entry_of_a_killed_process_is_made_again(tmp_path):
    """test_stored_file_properties.py damages entries."""
    write_text(tmp_path, "file")
    entry, = (tmp_path / "cache").iterdir()
    entry.rename(f"{entry}.partial")
    assert write_text(tmp_path, "other") == [1, 0.1, None] and calls(tmp_path) == 2
    assert (tmp_path / "other").read_text() == "features of a"
    assert list((tmp_path / "cache").iterdir()) == [entry]


def test_files_are_copied_where_links_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    write_text(tmp_path, "file")
    shutil.rmtree(tmp_path / "cache")
    assert (tmp_path / "file").read_text() == "features of a"
    assert os.stat(tmp_path / "file").st_nlink == 1
