"""python -m tf1 --check: reads a program of TensorFlow 1.x and prints the lines that will not run."""

import collections
import os
import pathlib
import sys

from tf1._check import modules, syntax
from tf1._check.reader import Reader


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
    return sorted({(finding.line, finding.what): finding for finding in found}.values())


class _Report:
    """The findings in all programs of a check.

    Attributes:
      found: {pathlib.Path of a file: list of Finding}.
      unread: list of (path, reason), the files that cannot be read.
      not_followed: set of the imports that were not checked.
      notebooks: number of notebooks.
    """

    def __init__(self):
        self.found, self.unread, self.not_followed, self.notebooks = {}, [], set(), 0

    def check_program(self, root):
        """Checks the file or folder `root`, a pathlib.Path, and prints the findings."""
        paths, folder = [root], root.parent
        if root.is_dir():
            folder = root
            paths, notebooks, unreadable = modules.python_files(root)
            self.notebooks += notebooks
            self.unread += unreadable
        texts = {}  # {path: (code of the file, findings about the encoding of the file)}
        for path in paths:
            try:
                if os.path.isfile(path):
                    texts[path] = syntax.decoded(path.read_bytes())
                else:
                    self.unread.append((path, "it is not a file, or it is a broken link"))
            except OSError as error:
                self.unread.append((path, error.strerror))
        # A file imports the modules beside it, also if only the file itself is checked.
        beside = [*folder.glob("*.py"), *folder.glob("*/*.py")]
        fork = modules.Fork(folder, {path: texts.get(path, [""])[0] for path in [*beside, *texts]})
        for path, (text, byte_findings) in texts.items():
            try:
                self.found[path] = sorted({*byte_findings, *findings(path, text, fork)})
            except (RecursionError, MemoryError):
                self.unread.append((path, "it is nested too deeply"))
                continue
            for finding in self.found[path]:
                print(f"{path}:{finding}")
        self.not_followed |= fork.not_followed


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
    for root in roots:
        if not os.path.exists(root):
            raise FileNotFoundError(f"there is no file or folder {root}")
    report = _Report()
    for root in roots:
        report.check_program(pathlib.Path(root))
    for path, reason in report.unread:
        print(f"{path}: not read: {reason}")
    wrong = [(path, finding) for path, own in report.found.items() for finding in own if not finding.note]
    notes = sum(map(len, report.found.values())) - len(wrong)
    more = [text for count, text in (
        (notes, _number(notes, "note")),
        (report.notebooks, f"{_number(report.notebooks, 'notebook')} not read"),
        (report.unread, f"{_number(len(report.unread), 'other file')} not read"),
        (report.not_followed, f"imports not checked: {', '.join(sorted(report.not_followed))}")) if count]
    print("; ".join([_result(wrong, len(report.found)), *more]) + ".")
    return int(bool(wrong))


def _result(wrong, read):
    """Returns the result of a check, such as "Nothing found in 3 files".

    Args:
      wrong: list of (path, Finding), without notes.
      read: number of files that were read.
    """
    if not wrong:
        return f"Nothing found in {_number(read, 'file')}"
    lines, files = {(path, finding.line) for path, finding in wrong}, {path for path, _ in wrong}
    kinds = collections.Counter(finding.kind for _, finding in wrong).most_common()
    return (f"{_number(len(lines), 'line')} in {len(files)} of {_number(read, 'file')} will not run "
            f"({_number(len(wrong), 'finding')}: {', '.join(f'{kind}: {count}' for kind, count in kinds)})")


def _number(count, name):
    return f"{count} {name}{'' if count == 1 else 's'}"
