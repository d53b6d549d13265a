"""--features_cache: the same bits as without it, one conversion for equal inputs, killed processes."""

import multiprocessing
import os
import pathlib
import random
import shutil
import time

import pytest
from test_run_squad import LENGTHS, write_squad
import tiny

from bertlib.data import features_cache
from bertlib.system import files
from bertlib.tasks.squad import squad_data
from bertlib.tasks.tagging import tagging_data
import tokenization

RESULTS = ("train.tf_record", "eval.tf_record", "predict.tf_record", "eval_results.txt", "eval_results.json",
           "test_results.tsv")


def contents(directory):
    return {name: (directory / name).read_bytes() for name in RESULTS}


def test_a_classifier_has_the_same_bits_with_the_cache(scripts, tiny_model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="mrpc", do_train=True,
                 data_dir=tiny.write_task(data, "mrpc", train=12, dev=5, test=3), do_eval=True,
                 do_predict=True, num_train_epochs=1, train_batch_size=4)

    def train(name, **changes):
        arguments = tiny.flags(**{**flags, "output_dir": tmp_path / name, **changes})
        return scripts.run("run_classifier.py", *arguments, cwd=tmp_path)

    cached = dict(features_cache=tmp_path / "cache")
    logs = [train("plain"), train("first", **cached), train("second", **cached)]
    assert [log.code for log in logs] == [0, 0, 0], logs[-1].err
    plain, first, second = (contents(tmp_path / name) for name in ("plain", "first", "second"))
    assert plain == first == second
    assert [log.err.count("features are from --features_cache") for log in logs] == [0, 0, 3]
    assert all(os.stat(tmp_path / "second" / name).st_nlink == 3 for name in RESULTS[:3])
    assert len(list((tmp_path / "cache").iterdir())) == 3

    # A resumed run writes its features again; another length and other texts have other features.
    assert train("second", **cached, do_predict=False).code == 0
    assert contents(tmp_path / "second") == second and not list((tmp_path / "second").glob("*.partial"))
    shorter = train("shorter", **cached, max_seq_length=12, do_eval=False, do_predict=False)
    assert shorter.code == 0 and len(list((tmp_path / "cache").iterdir())) == 4
    assert (tmp_path / "shorter" / "train.tf_record").read_bytes() != plain["train.tf_record"]

    refused = train("refused", features_cache=data / "train.tsv")
    assert refused.code == 1 and "train.tsv is not a directory" in refused.err
    assert not (tmp_path / "refused").exists()


def test_squad_and_tagging_have_the_same_bits_with_the_cache(tiny_model, tmp_path):
    tokenizer = tokenization.FullTokenizer(str(tiny_model.vocab))
    questions = write_squad(tmp_path / "squad.json", random.Random(3), 5, version_2=True)
    examples = squad_data.read_squad_examples(str(questions), True, True)
    lengths = [LENGTHS[name] for name in ("max_seq_length", "doc_stride", "max_query_length")]
    window = tagging_data.Window(*([1, 2, 3] for _ in tagging_data.Window._fields))

    def write(name, cache):
        squad, tags = (str(tmp_path / f"{name}.{task}") for task in ("squad", "tags"))
        count = squad_data.file_based_convert_examples_to_features(examples, tokenizer, *lengths, True,
                                                                   squad, cache=cache)
        tagging_data.write_windows([window, window], 8, tags, cache)
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


@pytest.mark.parametrize("damage", ["killed", "truncated", "one byte", "no facts"])
def test_an_incomplete_entry_is_made_again(tmp_path, damage):
    write_text(tmp_path, "file")
    entry, = (tmp_path / "cache").iterdir()
    if damage == "killed":
        entry.rename(f"{entry}.partial")
    elif damage == "truncated":
        (entry / "features.tf_record").write_text("feat")
    elif damage == "one byte":
        (entry / "features.tf_record").write_text("features of b")
    else:
        (entry / "facts.json").write_text("{")
    assert write_text(tmp_path, "other") == [1, 0.1, None] and calls(tmp_path) == 2
    assert (tmp_path / "other").read_text() == "features of a"
    assert list((tmp_path / "cache").iterdir()) == [entry]


def test_files_are_copied_where_links_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
    write_text(tmp_path, "file")
    shutil.rmtree(tmp_path / "cache")
    assert (tmp_path / "file").read_text() == "features of a"
    assert os.stat(tmp_path / "file").st_nlink == 1
