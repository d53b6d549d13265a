"""python -m tf1 --check: reads a program of TensorFlow 1.x, and says which lines will not run, and why."""

import collections
import os
import pathlib
import re
import sys

from tf1 import _check_modules, _check_syntax
from tf1._check_reader import Reader
from tf1._check_rules import PYTHON2

LARGEST = 16_000_000  # bytes of a file that is read
_FOR_PYTHON2 = re.compile(r"(?:^|_)py(?:thon)?_?2(?:_|$)")  # a file that Python 3 does not import


def findings(path, text, fork):
    """What will not run in a file.

    Args:
      path: pathlib.Path of the file.
      text: its code.
      fork: _check_modules.Fork that it is part of.

    Returns:
      sorted list of Finding, one for each thing in a line.
    """
    tree, found = _check_syntax.parsed(text)
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


def _texts(paths, unread):
    """{path: (code, findings of its bytes)}; adds what cannot be read to `unread`."""
    texts, seen = {}, set()
    for path in paths:
        content, why = _content(path)
        real = os.path.realpath(path)
        if content is None:
            unread.append((path, why))
        elif real not in seen:
            texts[path] = _check_syntax.decoded(content)
            seen.add(real)
    return texts


def check(path):
    """Reads a file or a folder and prints what will not run.

    Args:
      path: str.

    Returns:
      0 if nothing was found, 1 if something was; notes do not count.

    Raises:
      FileNotFoundError: there is no such file or folder.
    """
    sys.stdout.reconfigure(errors="backslashreplace")
    root = pathlib.Path(path)
    if not root.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if root.is_dir():
        paths, notebooks, unread = _check_modules.python_files(root)
    else:
        paths, notebooks, unread = [root], 0, []
    texts = _texts(paths, unread)
    fork = _check_modules.Fork(root if root.is_dir() else root.parent,
                               {path: text for path, (text, _) in texts.items()})
    counts, lines, files, notes = collections.Counter(), 0, 0, 0
    for path, (text, of_bytes) in texts.items():
        try:
            found = sorted({*of_bytes, *findings(path, text, fork)})
        except (RecursionError, MemoryError):
            unread.append((path, "it is nested too deeply"))
            continue
        for finding in found:
            print(f"{path}:{finding}")
        wrong = [finding for finding in found if not finding.note]
        counts.update(finding.kind for finding in wrong)
        lines += len({finding.line for finding in wrong})
        files += bool(wrong)
        notes += len(found) - len(wrong)
    for path, why in unread:
        print(f"{path}: not read: {why}")
    print(_summary(len(texts), lines, files, counts, notes, notebooks, len(unread)))
    return 1 if lines else 0


def _summary(read, lines, files, counts, notes, notebooks, unread):
    """The last line of what is printed."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in counts.most_common())
    of_files = _number(read, "file")
    found = (f"{_number(lines, 'line')} in {files} of {of_files} will not run ({kinds})" if lines
             else f"Nothing found in {of_files}")
    more = [text for count, text in (
        (notes, _number(notes, "note")), (notebooks, f"{_number(notebooks, 'notebook')} not read"),
        (unread, f"{_number(unread, 'other file')} not read")) if count]
    return "; ".join([found, *more]) + "."


def _number(count, name):
    return f"{count} {name}{'' if count == 1 else 's'}"
