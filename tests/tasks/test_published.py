"""Published checkpoints and data: names, files, and MRPC, which is put together from parts."""

import os
from urllib.parse import urlsplit

from bertlib.commands import published_files

from file_server import Server, zip_of
import pytest

from bertlib.tasks.classification.classifier_data import PROCESSORS

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
# Rows of the training part, with \r\n as in the corpus. They contain other characters that end a line in
# Unicode.
TRAIN = [HEADER, "1\t11\t12\tOne \" two .\tTwo\u2028one .",
         "0\t21\t22\tThree .\tFour . ", "1\t31\t32\tFive\t5"]
TEST = [HEADER, "1\t41\t42\tSix\tSeven", "0\t51\t52\tEight\tNine"]
MRPC = {
    "train.tsv": f"{HEADER}\n1\t11\t12\tOne \" two .\tTwo\u2028one .\n1\t31\t32\tFive\t5\n",
    "dev.tsv": f"{HEADER}\n0\t21\t22\tThree .\tFour .\n",
    "test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t41\t42\tSix\tSeven\n1\t51\t52\tEight\tNine\n"}


def parts(ids="21\t22\n"):
    texts = {"msr_paraphrase_train.txt": "\r\n".join([*TRAIN, ""]),
             "msr_paraphrase_test.txt": "\r\n".join([*TEST, ""]), "dev_ids.tsv": ids}
    return {name: text.encode() for name, text in texts.items()}


def write(folder, contents):
    for name, data in contents.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("existing", [{}, {"dev.tsv": "mine"}])
def test_mrpc_comes_out_as_glue_distributes_it_and_existing_files_stay(existing, tmp_path):
    write(tmp_path, {**parts(), **{name: text.encode() for name, text in existing.items()}})
    published_files.join_mrpc(str(tmp_path))
    assert {name: (tmp_path / name).read_bytes().decode() for name in MRPC} == {**MRPC, **existing}


@pytest.mark.parametrize(("changed", "says"), [
    ({"dev_ids.tsv": b"21\t22\n98\t99\n"}, "dev_ids.tsv: 1 of 2 pairs in this file are missing"),
    ({"dev_ids.tsv": b"21\t22\n23\n"}, "dev_ids.tsv, line 2: the line has 1 columns instead of 2"),
    ({"msr_paraphrase_test.txt": b"a\tb\tc\td\te\n1\t2\t3\n"}, "test.txt, line 2: the line has 3 columns")])
def test_parts_that_do_not_fit_make_nothing(tmp_path, changed, says):
    write(tmp_path, {**parts(), **changed})
    with pytest.raises(ValueError, match=says):
        published_files.join_mrpc(str(tmp_path))
    assert not set(MRPC) & set(os.listdir(tmp_path))


def contents_of(source):
    """Returns the fake content of a source: a zip with a folder, or a single file."""
    if source.address.endswith(".zip"):
        return zip_of({f"folder/{name}": b"a\tb\tc\n" for name in source.files})
    swag = b",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3\n"
    return parts().get(source.files[0], swag)


@pytest.mark.parametrize("task", [*sorted(PROCESSORS), "swag"])
def test_a_data_set_has_the_files_that_its_task_reads(task, tmp_path, monkeypatch):
    known = {name.lower() for name in published_files.DATA}
    assert task in known, f"Add {task} to DATA in bertlib/commands/published_files.py."
    (name, entry), = published_files.find_published([task], published_files.DATA).items()
    monkeypatch.setenv("no_proxy", "*")
    with Server({urlsplit(source.address).path: contents_of(source) for source in entry.sources}) as server:
        assert published_files.download(entry, str(tmp_path), server.address)
        assert not published_files.download(entry, str(tmp_path), server.address)
        assert len(server.requests) == len(entry.sources)
    directory = tmp_path / entry.directory
    if task == "swag":
        assert set(os.listdir(directory)) == {"test.csv", "train.csv", "val.csv"}
    else:
        if name in published_files.GLUE:  # all tasks of GLUE share a directory
            directory /= {"AX": "diagnostic"}.get(name, name)
        assert all(any((directory / file).exists() for file in names)
                   for names in PROCESSORS[task]().file_names().values())


def test_joined_data_is_there_without_its_parts(tmp_path):
    folder = tmp_path / "data" / "glue" / "MRPC"
    folder.mkdir(parents=True)
    write(folder, dict.fromkeys(MRPC, b"x"))
    assert not published_files.download(published_files.DATA["MRPC"], str(tmp_path))


def test_names_are_found_in_any_case_and_the_nearest_is_named():
    found = published_files.find_published(["mrpc", "SQuAD1.1"], published_files.DATA)
    assert list(found) == ["MRPC", "squad1.1"]
    assert list(published_files.find_published(["glue"], published_files.DATA)) == list(published_files.GLUE)
    with pytest.raises(ValueError, match="'SST' is not known; did you mean SST-2"):
        published_files.find_published(["SST"], published_files.DATA)
    with pytest.raises(ValueError, match="did you mean uncased_L-12_H-768_A-12"):
        published_files.find_published(["bert_uncased_L-12_H-768_A-12"], published_files.MODELS)
    with pytest.raises(ValueError, match="bert-base-cased'.*; did you mean cased_L-12_H-768_A-12"):
        published_files.find_published(["google-bert/bert-base-cased"], published_files.MODELS)
    assert set(published_files._HUB_NAMES.values()) <= set(published_files.MODELS)
    with pytest.raises(ValueError, match="'xyz' is not known[.]$"):
        published_files.find_published(["xyz"], published_files.DATA)


def test_each_checkpoint_has_a_directory_of_its_own():
    assert len(published_files.MODELS) == 33  # 9 of 2018 and 2019, 24 small ones of 2020
    assert len({entry.directory for entry in published_files.MODELS.values()}) == 33
    addresses = [entry.sources[0].address for entry in published_files.MODELS.values()]
    assert len(set(addresses)) == 33
    base = "https://storage.googleapis.com/bert_models/"
    for name, address in [
            ("uncased_L-12_H-768_A-12", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
            ("2020_02_20/uncased_L-12_H-768_A-12", "2020_02_20/uncased_L-12_H-768_A-12.zip"),
            ("wwm_cased_L-24_H-1024_A-16", "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip"),
            ("chinese_L-12_H-768_A-12", "2018_11_03/chinese_L-12_H-768_A-12.zip")]:
        assert published_files.MODELS[name].sources[0].address == base + address
