"""Parses code of Python 2. Lines that Python 3 does not parse are reported, and rewritten in memory."""

import ast
import io
import itertools
import re
import tokenize
import warnings

from tf1._check.rules import PYTHON2, PYTHON3, SYNTAX, Finding, shortened

# This pattern matches comments, and strings with their prefixes.
_TEXT = re.compile(r"""(?s)\#[^\n]*|(?:\b[bBrRuUfF]{1,2})?(?:\"{3}(?:\\.|[^\\])*?\"{3}"""
                   r"""|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""")
_STATEMENT = r"(?:^|[;:])[ \t]*"
_PRINT = re.compile(_STATEMENT + r"(print)(?=[ \t]*(?:[\"'{~`]|>>|(?!(?:if|or|and|in|is|for|else)\b)"
                    r"(?<=[ \t])[\w(\[]))")
_RAISE = re.compile(_STATEMENT + r"(raise)[ \t]+(?=[^;]*,)")
_EXCEPT = re.compile(r"^[ \t]*except\b([^:]*?)([ \t]*,[ \t]*)([A-Za-z_][\w.]*)[ \t]*:")
# Each rule for an expression of Python 2 is a tuple. It contains a pattern (searched in the text without
# strings and comments), the replacement, the kind of the finding, what is wrong, and the code to write
# instead. The last element is None if the code to write is the replacement itself.
_EXPRESSIONS = (
    (re.compile(r"\b[uU][rR](?=[\"'])"), "r", PYTHON2, 'Python 3 has no prefix ur""', '`r""`'),
    (re.compile(r"`([^`\n]+)`"), r"repr(\1)", PYTHON2, "backticks are gone", None),
    (re.compile(r"<>"), "!=", PYTHON2, "<> is gone", None),
    (re.compile(r"(?<![\w.])0+([1-7][0-7]*)[lL]?(?![\w.])"), r"0o\1", PYTHON2,
     "octal numbers begin with 0o", None),
    (re.compile(r"(?<![\w.])(0[xX][\da-fA-F]+|\d+)[lL]\b"), r"\1", PYTHON2,
     "Python 3 has no suffix L for numbers", None),
    (re.compile(r"\blambda\s*\(([\w\s,()]+)\)\s*:"), r"lambda \1:", PYTHON2,
     "a lambda cannot unpack its parameters", "lambda pair: … pair[0] … pair[1]"),
    (re.compile(r"\basync\b(?!\s+(?:def|with|for)\b)"), "async_", PYTHON3, "async is a keyword since 3.7",
     "another name"),
)
_TUPLE_PARAMETER = re.compile(r"^\s*def\s+\w+\s*\((?:[^()]*,)?\s*(\([\w\s,]+\))")


def decoded(content):
    """Decodes the bytes of a file. Returns (text, findings about bytes that are not text)."""
    found = []
    try:
        text = content.decode(tokenize.detect_encoding(io.BytesIO(content).readline)[0])
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        text = content.decode("utf-8", errors="replace")
        if not isinstance(error, LookupError):
            line = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
            found.append(Finding(
                line, SYNTAX,
                "the file is not UTF-8, and it does not begin with a line that names its encoding",
                "the file again, as UTF-8 (with `iconv -f GB18030 -t UTF-8`, or `-f latin-1`)"))
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), found


def without_strings(text):
    """Returns the text without comments and without the contents of strings.

    A comment becomes spaces, and each character in a string becomes "s". So the rest of the text stays at the
    same positions.
    """
    def blank(match):
        code = match.group()
        if code.startswith("#"):
            return " " * len(code)
        start = min(code.find(quote) for quote in "\"'" if quote in code) + 1
        return code[:start] + "s" * (len(code) - start - 1) + code[-1]
    return _TEXT.sub(blank, text)


def _statements(masked):
    """Yields (start, end) of each logical line. Brackets and backslashes join several lines of the file into
    one logical line."""
    start, depth, position = 0, 0, 0
    for line in masked.split("\n"):
        depth = max(0, depth + sum(map(line.count, "([{")) - sum(map(line.count, ")]}")))
        position += len(line) + 1
        if not depth and not line.endswith("\\"):
            yield start, position - 1
            start = position
    if start < len(masked):
        yield start, len(masked)


def _depths(masked):
    """Returns, for each character, the number of brackets that are open after the character."""
    return itertools.accumulate((character in "([{") - (character in ")]}") for character in masked)


def _parts(text, masked):
    """Splits a text at the commas that are outside brackets."""
    commas = [index for index, depth in enumerate(_depths(masked)) if masked[index] == "," and depth <= 0]
    return [text[before + 1:comma].strip() for before, comma in zip([-1, *commas], [*commas, len(text)])]


def _print_call(body, masked):
    """Returns the call of print that replaces a print statement, given the text after `print`."""
    parts = _parts(body, masked)
    more = []
    if parts[0].startswith(">>"):
        more = [f"file={parts.pop(0)[2:].strip()}"]
    if parts and not parts[-1]:
        parts.pop()
        more.append('end=" "')
    return f"print({', '.join([*parts, *more])})"


def _raise_call(body, masked):
    kind, value, *trace = _parts(body, masked)
    value = "" if value == "None" else value
    call = f"raise {kind}{value}" if value.startswith("(") else f"raise {kind}({value})"
    return f"{call}.with_traceback({trace[0]})" if trace else call


_CALLS = ((_PRINT, _print_call, "print is a function"),
          (_RAISE, _raise_call, "raise takes one exception"))


# An edit is a tuple (start, end, replacement, kind, what, instead). It replaces a part of the text. The last
# three values belong to the Finding about this part.


def _replaced(text, edits):
    """Returns (text after the edits, list of their findings). A replacement has as many line ends as the text
    that it replaces."""
    found = []
    for start, end, replacement, *finding in sorted(edits, reverse=True):
        found.append(Finding(text.count("\n", 0, start) + 1, *finding))
        text = text[:start] + replacement + text[end:]
    return text, found


def _edits_of_expressions(text, pattern, replacement, kind, what, instead):
    """Yields the edits of one rule of `_EXPRESSIONS`. The expressions can be anywhere in a line."""
    for match in pattern.finditer(without_strings(text)):
        start, end = match.span()
        new = match.expand(replacement)
        if pattern.groups:
            new = new.replace(match[1], text[match.start(1):match.end(1)])
        yield start, end, new, kind, f"`{shortened(text[start:end])}`: {what}", instead or f"`{new}`"


def _edits_of_statements(text):
    """Yields the edits for print, raise and except statements of Python 2, and for parameters in
    brackets, such as the pair in `def f(x, (a, b))`."""
    masked = without_strings(text)
    for start, end in _statements(masked):
        statement = masked[start:end]
        for pattern, call, what in _CALLS:
            for match in pattern.finditer(statement):
                yield from _edits_of_call(text, masked, start + match.start(1), end, call, what)
        if match := _EXCEPT.match(statement):
            yield (start + match.start(2), start + match.end(2), " as ", PYTHON2,
                   f"`{shortened(text[start:start + match.end()].strip())}`: the name of the exception "
                   "follows `as`", f"`except{match[1].rstrip()} as {match[3]}:`")
        if match := _TUPLE_PARAMETER.match(statement):
            yield (start + match.start(1), start + match.end(1), match[1][1:-1], PYTHON2,
                   f"`{match[1]}`: a function cannot unpack its parameters",
                   "one parameter, and unpack it in the function")


def _edits_of_call(text, masked, start, end, call, what):
    """Yields the edit that turns a statement of Python 2 into a call. Yields nothing if Python 3 can parse
    the statement.

    Args:
      text: the text.
      masked: the text without strings and comments.
      start, end: positions of the keyword and of the end of the logical line.
      call: function of `_CALLS`. It takes the text after the keyword, and the same text without strings
        and comments. It returns the new code.
      what: text for the finding. It says what is wrong with the statement.
    """
    semicolon = masked.find(";", start, end)
    end = start + len(masked[start:semicolon if semicolon >= 0 else end].rstrip(" \t\\"))
    word = re.match(r"\w+", masked[start:]).end()
    body, mask = (code[start + word:end].strip() for code in (text, masked))
    if not _is_one_bracket(mask) and (call is not _raise_call or len(_parts(mask, mask)) > 1):
        new = call(body, mask.ljust(len(body)))
        yield (start, end, new, PYTHON2, f"`{shortened(text[start:end])}`: {what}", f"`{shortened(new)}`")


def _is_one_bracket(masked):
    """Returns whether a text is only one pair of brackets with its contents, as in print (x)."""
    closing = next((index for index, depth in enumerate(_depths(masked)) if not depth), None)
    return masked.startswith("(") and masked.endswith(")") and closing == len(masked) - 1


def parsed(text):
    """Parses source code of Python 2 or 3.

    Returns:
      (tree, findings). `tree` is an ast.Module, or None if the text cannot be parsed even after replacements.
      `findings` is a list with a Finding for each replacement, and for the error of the parser.
    """
    found, is_repaired = [], False
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # hides warnings, for example about "\d" or `x is 1`
                return ast.parse(text), found
        except TabError as error:
            found.append(Finding(error.lineno, PYTHON2, "tabs and spaces are mixed",
                                 "spaces only (`expand -t 8 file.py`)"))
            text = text.expandtabs(8)
        except (SyntaxError, ValueError) as error:  # a ValueError reports a null byte
            if is_repaired:
                what = f"Python 3 does not parse this: {getattr(error, 'msg', error)}"
                line = getattr(error, "lineno", None) or 1
                return None, [*found, Finding(line, SYNTAX, what, "it in Python 3")]
            for rule in _EXPRESSIONS:
                text, more = _replaced(text, _edits_of_expressions(text, *rule))
                found += more
            text, more = _replaced(text, _edits_of_statements(text))
            found += more
            is_repaired = True
