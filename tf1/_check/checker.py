"""python -m tf1 --check: reads a program of TensorFlow 1.x, and says which lines will not run, and why."""

import collections
import dataclasses
import os
import pathlib
import re
import sys

from tf1._check import modules, syntax
from tf1._check.reader import Reader
from tf1._check.rules import PYTHON2

LARGEST = 16_000_000  # bytes of a file that is read
_FOR_PYTHON2 = re.compile(r"(?:^|_)py(?:thon)?_?2(?:_|$)")  # a file that Python 3 does not import


def findings(path, text, fork):
    """What will not run in a file.

    Args:
      path: pathlib.Path of the file.
      text: its code.
      fork: modules.Fork that it is part of.

    Returns:
      sorted list of Finding, one for each thing in a line.
    """
    tree, found = syntax.parsed(text)
    if tree is not None:
        found += [finding for _, finding in Reader(tree, path, fork).found]
    if _FOR_PYTHON2.search(path.stem):
        found = [finding for finding in found if finding.kind != PYTHON2]
    return sorted({(finding.line, finding.what): finding for finding in found}.values())


def _content(path):
    """(bytes, None) of a file, or (None, why it is not read)."""
    try:
        if not os.path.isfile(path):
            return None, "it is no file, or a link to none"
        if os.path.getsize(path) > LARGEST:
            return None, f"it is larger than {LARGEST // 1_000_000} MB"
        return pathlib.Path(path).read_bytes(), None
    except OSError as error:
        return None, error.strerror


def _texts(paths, unread, seen):
    """{path: (code, findings of its bytes)}; adds what cannot be read to `unread`, and files to `seen`."""
    texts = {}
    for path in paths:
        content, why = _content(path)
        real = os.path.realpath(path)
        if content is None:
            unread.append((path, why))
        elif real not in seen:
            texts[path] = syntax.decoded(content)
            seen.add(real)
    return texts


def check(*roots):
    """Reads files and folders and prints what will not run.

    Args:
      roots: strs, each a file or a folder with a program of its own.

    Returns:
      0 if nothing was found, 1 if something was; notes do not count.

    Raises:
      FileNotFoundError: there is no such file or folder.
    """
    sys.stdout.reconfigure(errors="backslashreplace")
    roots = [pathlib.Path(root) for root in roots]
    for root in roots:
        if not root.exists():
            raise FileNotFoundError(f"there is no file or folder {root}")
    total, seen = _Total(), set()
    for root in roots:
        _check_program(root, total, seen)
    for path, why in total.unread:
        print(f"{path}: not read: {why}")
    print(_summary(total))
    return 1 if total.lines else 0


@dataclasses.dataclass
class _Total:
    """What was found in all files: numbers, but for the files that were not read and why."""

    read: int = 0
    lines: int = 0
    files: int = 0
    notes: int = 0
    notebooks: int = 0
    unread: list = dataclasses.field(default_factory=list)
    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def _check_program(root, total, seen):
    """Prints what will not run in a file or folder, and adds it to a _Total; files in `seen` are left out."""
    if root.is_dir():
        paths, notebooks, unread = modules.python_files(root)
    else:
        paths, notebooks, unread = [root], 0, []
    texts = _texts(paths, unread, seen)
    fork = modules.Fork(root if root.is_dir() else root.parent,
                               {path: text for path, (text, _) in texts.items()})
    for path, (text, of_bytes) in texts.items():
        try:
            found = sorted({*of_bytes, *findings(path, text, fork)})
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


def _summary(total):
    """The last line of what is printed."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in total.kinds.most_common())
    of_files = _number(total.read, "file")
    found = (f"{_number(total.lines, 'line')} in {total.files} of {of_files} will not run ({kinds})"
             if total.lines else f"Nothing found in {of_files}")
    more = [text for count, text in (
        (total.notes, _number(total.notes, "note")),
        (total.notebooks, f"{_number(total.notebooks, 'notebook')} not read"),
        (len(total.unread), f"{_number(len(total.unread), 'other file')} not read")) if count]
    return "; ".join([found, *more]) + "."


def _number(count, name):
    return f"{count} {name}{'' if count == 1 else 's'}"
