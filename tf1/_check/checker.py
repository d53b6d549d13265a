"""python -m tf1 --check: reads a program of TensorFlow 1.x and prints the lines that will not run."""

import collections
import dataclasses
import os
import pathlib
import re
import sys

from tf1._check import modules, syntax
from tf1._check.reader import Reader
from tf1._check.rules import PYTHON2

# Matches the names of files that a program imports only under Python 2, such as compat_py2. In these files,
# code of Python 2 is expected, so findings of the kind PYTHON2 are not reported.
_FOR_PYTHON2 = re.compile(r"(?:^|_)py(?:thon)?_?2(?:_|$)")


def findings(path, text, fork):
    """Returns the findings in a file.

    Args:
      path: pathlib.Path of the file.
      text: the code in the file.
      fork: the modules.Fork that contains the file.

    Returns:
      sorted list of Finding. A line can have several findings, with different texts.
    """
    tree, found = syntax.parsed(text)
    if tree is not None:
        found += [finding for _, finding in Reader(tree, path, fork).found]
    if _FOR_PYTHON2.search(path.stem):
        found = [finding for finding in found if finding.kind != PYTHON2]
    return sorted({(finding.line, finding.what): finding for finding in found}.values())


def _texts(paths, unread):
    """Reads files. Adds the files that cannot be read to `unread`, a list of (path, reason).

    Returns:
      {path: (code of the file, findings about the encoding of the file)}.
    """
    texts = {}
    for path in paths:
        try:
            if os.path.isfile(path):
                texts[path] = syntax.decoded(path.read_bytes())
            else:
                unread.append((path, "it is not a file, or it is a broken link"))
        except OSError as error:
            unread.append((path, error.strerror))
    return texts


def check(*roots):
    """Reads files and folders and prints the lines that will not run.

    Args:
      roots: paths of files or folders, each a str. Each path is checked as a separate program.

    Returns:
      the exit code: 0 if nothing was found, else 1. Notes do not count.

    Raises:
      FileNotFoundError: there is no such file or folder.
    """
    sys.stdout.reconfigure(errors="backslashreplace")
    roots = [pathlib.Path(root) for root in roots]
    for root in roots:
        if not root.exists():
            raise FileNotFoundError(f"there is no file or folder {root}")
    total = _Total()
    for root in roots:
        _check_program(root, total)
    for path, reason in total.unread:
        print(f"{path}: not read: {reason}")
    print(_summary(total))
    return 1 if total.lines else 0


@dataclasses.dataclass
class _Total:
    """The sums of the results over all files.

    Attributes:
      read: number of files that were read.
      files: number of files with lines that will not run.
      notebooks: number of notebooks.
      lines: number of lines that will not run.
      notes: number of notes.
      unread: list of (path, reason) of the files that were not read.
      not_followed: set of the imports that were not checked.
      kinds: number of findings of each kind, without notes.
    """

    read: int = 0
    lines: int = 0
    files: int = 0
    notes: int = 0
    notebooks: int = 0
    unread: list = dataclasses.field(default_factory=list)
    not_followed: set = dataclasses.field(default_factory=set)
    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def _check_program(root, total):
    """Prints the findings in a file or folder and adds them to the counts in `total`."""
    if root.is_dir():
        paths, notebooks, unread = modules.python_files(root)
    else:
        paths, notebooks, unread = [root], 0, []
    texts = _texts(paths, unread)
    fork = modules.Fork(root if root.is_dir() else root.parent,
                        {path: text for path, (text, _) in texts.items()})
    for path, (text, byte_findings) in texts.items():
        try:
            found = sorted({*byte_findings, *findings(path, text, fork)})
        except (RecursionError, MemoryError):
            unread.append((path, "it is nested too deeply"))
            continue
        for finding in found:
            print(f"{path}:{finding}")
        wrong = [finding for finding in found if not finding.note]
        total.kinds.update(finding.kind for finding in wrong)
        total.lines += len({finding.line for finding in wrong})
        total.files += bool(wrong)
        total.notes += len(found) - len(wrong)
    total.read += len(texts)
    total.notebooks += notebooks
    total.unread += unread
    total.not_followed |= fork.not_followed


def _summary(total):
    """Returns the last line of the checker's output. This line contains the counts in `total`."""
    kinds = ", ".join(f"{kind}: {count}" for kind, count in total.kinds.most_common())
    files = _number(total.read, "file")
    found = (f"{_number(total.lines, 'line')} in {total.files} of {files} will not run "
             f"({_number(total.kinds.total(), 'finding')}: {kinds})"
             if total.lines else f"Nothing found in {files}")
    more = [text for count, text in (
        (total.notes, _number(total.notes, "note")),
        (total.notebooks, f"{_number(total.notebooks, 'notebook')} not read"),
        (len(total.unread), f"{_number(len(total.unread), 'other file')} not read"),
        (total.not_followed, f"imports not checked: {', '.join(sorted(total.not_followed))}")) if count]
    return "; ".join([found, *more]) + "."


def _number(count, name):
    return f"{count} {name}{'' if count == 1 else 's'}"
