"""Reads text for the pre-training: files with one sentence in each line and a blank line between documents.

    files → lines → documents → blocks of documents

All steps are generators, so the text need not fit into memory. Worker processes import this module, so the
import does not load TensorFlow. TensorFlow is loaded only when a remote file is read.
"""

import collections
import itertools
import os

from absl import logging

from bertlib.data import tables
from bertlib.system import files, fingerprints

# A warning is logged if at least this fraction of the documents in a file have only one sentence.
_SUSPICIOUS_FRACTION = 0.9


def find_input_files(patterns, flag="input_file"):
    """Returns the list of the paths of all input files. The list contains each file once.

    Args:
      patterns: list of paths and glob patterns. The list of files is in the order of the patterns, and the
        files of one pattern are sorted by name.
      flag: name of the flag with the patterns, for messages.

    Raises:
      FileNotFoundError: no file matches one of the patterns.
      IsADirectoryError: a pattern matches a directory.
    """
    matches = []
    for pattern in patterns:
        paths = files.find_files(pattern)
        if not paths:
            raise FileNotFoundError(f"--{flag}={pattern}: there is no such file.")
        for path in paths:
            if os.path.isdir(path):
                raise IsADirectoryError(f"--{flag}: {path} is a directory. Name the files in this directory, "
                                        f"for example {os.path.join(path, '*.txt')}")
        matches += paths
    for path, count in collections.Counter(matches).items():
        if count > 1:
            logging.warning("%s is named %d times; it is read once.", path, count)
    return list(dict.fromkeys(matches))


def read_lines(path):
    """Yields the lines of a text file, without the white space at both ends of a line. The file may be
    compressed (`.gz`).

    Raises:
      ValueError: a line is not UTF-8, or a `.gz` file is not a valid gzip file.
    """
    with tables.open_table(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: byte {error.start + 1} of this line, "
                    f"{error.object[error.start]:#04x}, is not UTF-8. Convert the file to UTF-8.") from None


def sample_lines(paths, count):
    """Returns about `count` lines (list of str): the first lines of text files."""
    number = -(-count // len(paths))
    return [line for path in paths[:count] for line in itertools.islice(read_lines(path), number)]


def read_documents(path, tokenizer):
    """Yields the documents of a text file. A document is a list of at least one sentence (str).

    A document ends at a blank line or at the end of the file. Lines without a token, for example lines of
    control characters, are skipped.

    Args:
      path: path of the file.
      tokenizer: an object with `tokenize(text)`.
    """
    document = []
    for line in itertools.chain(read_lines(path), [""]):
        if not line:
            if document:
                yield document
            document = []
        # A line with a letter or a digit always has a token. Searching the line for such a character is much
        # faster than tokenizing it.
        elif any(map(str.isalnum, line)) or tokenizer.tokenize(line):
            document.append(line)


Survey = collections.namedtuple("Survey", "documents sentences single fingerprint")
Survey.__doc__ = \
    """Counts of the text in a file.

documents, sentences: numbers of documents and of sentences.
single: number of documents that have only one sentence.
fingerprint: str, a hash of the text.
"""
Corpus = collections.namedtuple("Corpus", "documents sentences fingerprint")
Corpus.__doc__ = \
    """Numbers of documents and sentences in all input files together, and a hash (str) of all texts in the
    order of the files."""


def survey_file(path, tokenizer):
    """Reads a file once and returns the `Survey` of the file.

    Raises:
      ValueError, OSError: the file cannot be read.
    """
    documents = sentences = single = 0
    digest = fingerprints.new_digest()
    for document in read_documents(path, tokenizer):
        documents += 1
        single += len(document) == 1
        sentences += len(document)
        digest.update("\n".join([*document, "\n"]).encode())
    return Survey(documents, sentences, single, digest.hexdigest())


def merge_surveys(input_files, surveys):
    """Combines the surveys of all input files into a `Corpus`.

    Logs a warning for a file without text, and for a file in which most documents have a single sentence.

    Args:
      input_files: list of paths, for messages.
      surveys: list of `Survey`, one for each file.

    Raises:
      ValueError: none of the files contains text.
    """
    for path, counts in zip(input_files, surveys):
        if not counts.documents:
            logging.warning("%s contains no text.", path)
        elif counts.documents > 1 and counts.single >= _SUSPICIOUS_FRACTION * counts.documents:
            logging.warning("%s: %d of its %d documents have only one sentence. If the file has a blank line "
                            "after each sentence, remove these blank lines, because blank lines divide "
                            "documents. In a document with one sentence, no sentence has a next sentence.",
                            path, counts.single, counts.documents)
    if not any(counts.documents for counts in surveys):
        raise ValueError(f"{', '.join(input_files)}: the input files contain no text. They should have one "
                         "sentence in each line, and a blank line between documents.")
    # Each file has its own fingerprint, so the files can be read by different processes. If there are several
    # files, the fingerprint of the corpus is a hash of these fingerprints.
    fingerprint, *other_fingerprints = (counts.fingerprint for counts in surveys)
    if other_fingerprints:
        fingerprint = fingerprints.hash_bytes(" ".join([fingerprint, *other_fingerprints]).encode())
    return Corpus(sum(counts.documents for counts in surveys), sum(counts.sentences for counts in surveys),
                  fingerprint)


def count_blocks(documents, size):
    """Returns the number of blocks that `make_blocks` makes from a number of documents."""
    return max(0, (documents - 2) // size) + 1


def make_blocks(documents, size):
    """Cuts documents into blocks. Yields lists of `size` documents. The last list has 2 to size + 1
    documents. If there is only one document in total, a single list with this document is yielded."""
    block = []
    for document in documents:
        block.append(document)
        # A block is complete only when two more documents have been read. So the last block has at least two
        # documents. It needs them, because a random next sentence comes from another document of the block.
        if len(block) == size + 2:
            yield block[:size]
            block = block[size:]
    if block:
        yield block
