"""Text to pre-train on: files of one sentence a line, with a blank line between documents.

    files → lines → documents → blocks of documents

Each is read when it is needed, so that there may be any amount of text. Workers load this module without
TensorFlow, which only remote files need.
"""

import collections
import contextlib
import gzip
import hashlib
import itertools
import os
import zlib

from absl import logging

from bertlib.system import files

# A file is reported from this fraction of documents of a single sentence on.
_SUSPICIOUS_FRACTION = 0.9


def find_input_files(patterns):
    """Returns the files (list of str) that paths and globs name: those of a glob sorted, each file once.

    Raises:
      FileNotFoundError: there is none of that name.
      IsADirectoryError: one is a directory.
    """
    found = []
    for pattern in patterns:
        paths = files.find_files(pattern)
        if not paths:
            raise FileNotFoundError(f"There is no input file {pattern!r}.")
        for path in paths:
            if os.path.isdir(path):
                raise IsADirectoryError(f"{path} is a directory; name the files in it, as in "
                                        f"{os.path.join(path, '*.txt')}")
        found += paths
    for path, count in collections.Counter(found).items():
        if count > 1:
            logging.warning("%s is named %d times; it is read once.", path, count)
    return list(dict.fromkeys(found))


def read_lines(path):
    """Yields the lines of a text file (`.gz` too), stripped."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(files.open_file(path, "rb"))
        if path.endswith(".gz"):
            file = stack.enter_context(gzip.open(file))
        number = 0
        try:
            for line in file:
                number += 1
                yield line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: byte {error.start + 1} of it, {error.object[error.start]:#04x}, "
                "is not UTF-8. Convert the file to UTF-8.") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: damaged or not gzip ({error}).") from error


def read_documents(path, tokenizer):
    """Yields a text file's documents: lists of sentences (str), none empty. A file's end ends a document.

    What has no token, such as a line of control characters, is left out.
    """
    document = []
    for line in itertools.chain(read_lines(path), [""]):
        if not line:
            if document:
                yield document
            document = []
        # Letters and digits leave a token, and almost every line has one at its beginning.
        elif any(map(str.isalnum, line)) or tokenizer.tokenize(line):
            document.append(line)


Survey = collections.namedtuple("Survey", "documents sentences single fingerprint")
Survey.__doc__ = \
    """How many documents, sentences, documents of one sentence a file has, and a hash (str) of the text."""
Corpus = collections.namedtuple("Corpus", "documents sentences fingerprint")
Corpus.__doc__ = \
    """How many documents and sentences some files have, and a hash (str) of them in their order."""


def survey(input_files, tokenizer):
    """Reads all input once, to find its faults before anything depends on it; see `merge_surveys`."""
    return merge_surveys(input_files, [survey_file(path, tokenizer) for path in input_files])


def survey_file(path, tokenizer):
    """Reads a file once; returns its `Survey`.

    Raises:
      ValueError, OSError: it cannot be read.
    """
    documents = sentences = single = 0
    digest = hashlib.blake2b(digest_size=16)
    for document in read_documents(path, tokenizer):
        documents += 1
        single += len(document) == 1
        sentences += len(document)
        digest.update("\n".join([*document, "\n"]).encode())
    return Survey(documents, sentences, single, digest.hexdigest())


def merge_surveys(input_files, surveys):
    """Returns the `Corpus` of some files with these surveys.

    Warns of a file without text, and of one in which each sentence is a document.

    Raises:
      ValueError: there is no text at all.
    """
    for path, found in zip(input_files, surveys):
        if not found.documents:
            logging.warning("%s has no text.", path)
        elif found.documents > 1 and found.single >= _SUSPICIOUS_FRACTION * found.documents:
            logging.warning("%s: %d of its %d documents have one sentence only. If a blank line stands after "
                            "each sentence, remove it: blank lines divide documents, and without a second "
                            "sentence in the document no pair can have a real next sentence.", path,
                            found.single, found.documents)
    if not any(found.documents for found in surveys):
        raise ValueError(f"There is no text in {', '.join(input_files)}. Expected is one sentence a line, a "
                         "blank line between documents.")
    # Of several files it is a hash of their hashes, so that each can be read elsewhere.
    fingerprint, *others = (found.fingerprint for found in surveys)
    if others:
        fingerprint = hashlib.blake2b(" ".join([fingerprint, *others]).encode(), digest_size=16).hexdigest()
    return Corpus(sum(found.documents for found in surveys), sum(found.sentences for found in surveys),
                  fingerprint)


def count_blocks(documents, size):
    """Returns how many blocks `make_blocks` yields of so many documents."""
    return max(0, (documents - 2) // size) + 1


def make_blocks(documents, size):
    """Yields lists of `size` documents; the last one has from 2 to size + 1, or all there are."""
    block = []
    for document in documents:
        block.append(document)
        # A document left alone would have no other for a random next sentence.
        if len(block) == size + 2:
            yield block[:size]
            block = block[size:]
    if block:
        yield block
