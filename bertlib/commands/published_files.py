"""Lists the published checkpoints and data sets with their addresses and files, and downloads the files.

The addresses come from google-research/bert's README.md (checkpoints, SQuAD), from the GLUE benchmark's
download_glue_data.py (nyu-mll/GLUE-baselines), from facebookresearch/XNLI's README.md and from rowanz/swagaf
(SWAG).
"""

import difflib
import os
from typing import NamedTuple

from bertlib.system import files, http_download, locks
from bertlib.system.http_download import Source
from bertlib.tasks.classification.classifier_data import XnliProcessor

_CHECKPOINTS = "https://storage.googleapis.com/bert_models"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_MRPC = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_SWAG = "https://raw.githubusercontent.com/rowanz/swagaf/master/data"
_XNLI = "https://dl.fbaipublicfiles.com/XNLI"

_CHECKPOINT_FILES = ("bert_config.json", "vocab.txt", "bert_model.ckpt.index",
                     "bert_model.ckpt.data-00000-of-00001")
_SMALL = tuple(f"uncased_L-{layers}_H-{width}_A-{width // 64}" for layers in (2, 4, 6, 8, 10, 12)
               for width in (128, 256, 512, 768))
_RELEASES = {
    "2018_10_18": ("uncased_L-12_H-768_A-12", "uncased_L-24_H-1024_A-16", "cased_L-12_H-768_A-12",
                   "cased_L-24_H-1024_A-16"),
    "2018_11_03": ("multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12"),
    "2018_11_23": ("multi_cased_L-12_H-768_A-12",),
    "2019_05_30": ("wwm_uncased_L-24_H-1024_A-16", "wwm_cased_L-24_H-1024_A-16"),
    "2020_02_20": _SMALL,
}
# {name of a checkpoint on the Hugging Face Hub: its published name}, for a hint.
_HUB_NAMES = {
    **{f"bert-{size}-{case}": f"{case}_{shape}" for case in ("uncased", "cased")
       for size, shape in (("base", "L-12_H-768_A-12"), ("large", "L-24_H-1024_A-16"))},
    **{f"bert-large-{case}-whole-word-masking": f"wwm_{case}_L-24_H-1024_A-16"
       for case in ("uncased", "cased")},
    "bert-base-chinese": "chinese_L-12_H-768_A-12",
    "bert-base-multilingual-cased": "multi_cased_L-12_H-768_A-12",
    "bert-base-multilingual-uncased": "multilingual_L-12_H-768_A-12"}
_TSV = ("train.tsv", "dev.tsv", "test.tsv")
_MNLI = ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "test_matched.tsv", "test_mismatched.tsv")
_MRPC_PARTS = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "dev_ids.tsv")


class Published(NamedTuple):
    """A checkpoint or a data set.

    Attributes:
      sources: tuple of `http_download.Source`.
      variable: str, the environment variable that README.md uses for the directory.
      directory: str, relative to the root of the downloads.
      join: function that gets the directory and builds files from the downloaded files; None if no files are
        built.
      joined_files: tuple of str, the paths of the files that `join` writes, relative to the directory.
    """

    sources: tuple
    variable: str
    directory: str
    join: object = None
    joined_files: tuple = ()


def _models():
    """Returns the published checkpoints, {name: `Published`}."""
    models = {}
    for release, names in _RELEASES.items():
        for name in names:
            # Two releases contain a model uncased_L-12_H-768_A-12. The key of the later model contains the
            # date of its release.
            key = f"{release}/{name}" if name in models else name
            directory = f"checkpoints/{key}"
            archive = Source(f"{_CHECKPOINTS}/{release}/{name}.zip", directory, _CHECKPOINT_FILES)
            models[key] = Published((archive,), "BERT_BASE_DIR", directory)
    return models


def _glue(task, file, names=_TSV):
    return Published((Source(f"{_GLUE}/{file}", f"data/glue/{task}", names),), "GLUE_DIR", "data/glue")


def _single_files(variable, directory, address, names):
    """Returns a `Published` whose files are all at one address, and not in an archive."""
    return Published(tuple(Source(f"{address}/{name}", directory, (name,)) for name in names), variable,
                     directory)


def _squad(version):
    return _single_files("SQUAD_DIR", "data/squad", _SQUAD,
                         (f"train-v{version}.json", f"dev-v{version}.json"))


def join_mrpc(directory):
    """Builds train.tsv, dev.tsv and test.tsv of MRPC as GLUE defines them. Existing files stay unchanged.

    The corpus has a training part and a test part. As in GLUE, the pairs that dev_ids.tsv lists are moved
    from the training part to the development set, and the labels of the test part are removed (Wang et al.
    2018, arXiv:1804.07461).

    Args:
      directory: a directory with msr_paraphrase_train.txt, msr_paraphrase_test.txt and dev_ids.tsv.

    Raises:
      ValueError: one of these files has wrong contents. The message names the file, and the line of a
        wrong row.
    """
    train, test, ids = (os.path.join(directory, name) for name in _MRPC_PARTS)
    dev_ids = {tuple(row) for row in _rows(ids, 2)}
    header, *pairs = _rows(train, 5)
    dev_rows = [row for row in pairs if tuple(row[1:3]) in dev_ids]
    if missing_ids := dev_ids - {tuple(row[1:3]) for row in dev_rows}:
        raise ValueError(f"{ids}: {len(missing_ids)} of {len(dev_ids)} pairs in this file are missing in "
                         f"{train}, for example {' '.join(min(missing_ids))}. Remove both files and run the "
                         "command again; it then downloads them again.")
    train_rows = [row for row in pairs if tuple(row[1:3]) not in dev_ids]
    test_rows = [[str(index), *row[1:]] for index, row in enumerate(_rows(test, 5)[1:])]
    tables = {"test.tsv": [["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], *test_rows],
              "dev.tsv": [header, *dev_rows], "train.tsv": [header, *train_rows]}
    for name, rows in tables.items():
        if not os.path.exists(os.path.join(directory, name)):
            files.write_text(os.path.join(directory, name),
                             "".join("\t".join(row) + "\n" for row in rows))


def _rows(path, columns):
    """Returns the rows of a part of MRPC. Each row is a list of str. White space at both ends of a line is
    removed.

    Raises:
      ValueError: a row does not have `columns` columns.
    """
    with open(path, encoding="utf-8") as reader:
        rows = [line.strip().split("\t") for line in reader]
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise ValueError(f"{path}, line {number}: the line has {len(row)} columns instead of {columns}. "
                             "Remove the file and run the command again; it then downloads the file again.")
    return rows


MODELS = _models()
GLUE = {
    "CoLA": _glue("CoLA", "CoLA.zip"),
    "SST-2": _glue("SST-2", "SST-2.zip"),
    "MRPC": Published(tuple(Source(address, "data/glue/MRPC", (name,)) for address, name in zip(
        (f"{_MRPC}/{_MRPC_PARTS[0]}", f"{_MRPC}/{_MRPC_PARTS[1]}", f"{_GLUE}/mrpc_dev_ids.tsv"),
        _MRPC_PARTS)), "GLUE_DIR", "data/glue", join_mrpc, tuple(f"MRPC/{name}" for name in _TSV)),
    "STS-B": _glue("STS-B", "STS-B.zip"),
    "QQP": _glue("QQP", "QQP-clean.zip"),
    "MNLI": _glue("MNLI", "MNLI.zip", _MNLI),
    "QNLI": _glue("QNLI", "QNLIv2.zip"),
    "RTE": _glue("RTE", "RTE.zip"),
    "WNLI": _glue("WNLI", "WNLI.zip"),
    "AX": _glue("diagnostic", "AX.tsv", ("diagnostic.tsv",)),
}
_XNLI_TRAINING = tuple(f"multinli.train.{language}.tsv" for language in XnliProcessor.LANGUAGES)
DATA = {
    **GLUE,
    "squad1.1": _squad("1.1"),
    "squad2.0": _squad("2.0"),
    "SWAG": _single_files("SWAG_DIR", "data/swag", _SWAG, ("train.csv", "val.csv", "test.csv")),
    "XNLI": Published((
        Source(f"{_XNLI}/XNLI-1.0.zip", "data/XNLI", ("xnli.dev.tsv", "xnli.test.tsv")),
        Source(f"{_XNLI}/XNLI-MT-1.0.zip", "data/XNLI/multinli", _XNLI_TRAINING)),
        "XNLI_DIR", "data/XNLI"),
}


def find_published(names, catalog):
    """Returns the checkpoints or data sets with the given names, {published name: `Published`}.

    Args:
      names: list of str, in upper or lower case; "glue" means all GLUE tasks.
      catalog: `MODELS` or `DATA`.

    Raises:
      ValueError: a name is not known. The message contains the most similar known name.
    """
    entries, by_lower_case = {}, {name.lower(): name for name in catalog}
    for name in names:
        lower = name.lower()
        if lower == "glue" and catalog is DATA:
            entries.update(GLUE)
        elif lower in by_lower_case:
            entries[by_lower_case[lower]] = catalog[by_lower_case[lower]]
        else:
            similar = {**(_HUB_NAMES if catalog is MODELS else {}), **by_lower_case}
            close = difflib.get_close_matches(lower.split("/")[-1], similar, n=1, cutoff=0.5)
            hint = f"; did you mean {similar[close[0]]}?" if close else "."
            raise ValueError(f"{name!r} is not known{hint}")
    return entries


def download(entry, root, base_url=None):
    """Downloads the missing files of a checkpoint or a data set to its directory below `root`.

    Args:
      entry: a `Published`.
      root: str, a directory.
      base_url: see `http_download.download`.

    Returns:
      bool, True if at least one file was missing and has been downloaded.

    Raises:
      ValueError, OSError: see `http_download.download`.
      locks.InUseError: another process downloads the same files.
    """
    directory = os.path.join(root, entry.directory)
    if entry.joined_files and all(
            os.path.exists(os.path.join(directory, name)) for name in entry.joined_files):
        return False
    is_new = False
    for source in entry.sources:
        destination = os.path.join(root, source.directory)
        files.make_parent(destination)
        with locks.lock_file(destination):
            is_new |= http_download.download(source, root, base_url)
            if entry.join and source == entry.sources[-1]:
                entry.join(destination)
    return is_new
