"""Computes keys for comparing texts: texts that look the same to a reader have equal keys.

In Unicode, the same accented letter can be encoded in several ways, and a text can contain invisible
characters. For example, "café" may have 4 or 5 code points, and a spreadsheet may add a zero-width space
after the word.
"""

import difflib
import os
import unicodedata

# Two groups of invisible characters. "Cf" is Unicode's category of format characters, such as the soft
# hyphen, the zero-width space and the byte-order mark. A variation selector chooses a variant of the
# character before it.
_INVISIBLE_CATEGORY = "Cf"
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
# A name may be a misspelling of another name if two conditions hold: the other name occurs at least
# `_MISSPELLING_FACTOR` times as often, and the similarity of the two names is at least
# `_MISSPELLING_SIMILARITY`. `difflib` computes the similarity. For names of at
# least `_LEAST_LETTERS` letters that differ by one typing error, the factor is `_TYPING_ERROR_FACTOR`.
_MISSPELLING_FACTOR, _MISSPELLING_SIMILARITY = 20, 0.85
_TYPING_ERROR_FACTOR, _LEAST_LETTERS = 8, 6
# The search for misspellings compares each name with many other names. With more than `_MAX_COMPARED` names,
# it would take longer than a second, so nothing is compared.
_MAX_COMPARED = 200


def visible_text(text):
    """Returns a text in the form that a reader sees.

    Invisible characters are removed, accents have Unicode's composed form (NFC), and each sequence of white
    space becomes one space.
    """
    if not text.isascii():
        for character in set(text):
            if _is_invisible(character):
                text = text.replace(character, "")
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def _is_invisible(character):
    return unicodedata.category(character) == _INVISIBLE_CATEGORY or ord(character) in _VARIATION_SELECTORS


def text_key(text_a, text_b=None):
    """Returns a tuple of str, the key of an example's texts.

    Two examples have equal keys if they differ only in letter case, white space, invisible characters, the
    encoding of accents, or the order of their two texts.
    """
    if text_b is None:  # faster than the general case
        return (_fold_case(visible_text(text_a)),)
    return tuple(sorted(_fold_case(visible_text(text)) for text in (text_a, text_b)))


def _fold_case(text):
    # Case folding may turn a composed letter into several code points: "ΐ" becomes three. So letters are
    # decomposed before the case folding and composed again after it.
    return text.lower() if text.isascii() else unicodedata.normalize(
        "NFC", unicodedata.normalize("NFD", text).casefold())


def find_misspellings(counts):
    """Returns {rare name: frequent name} for rare names that are spelled nearly like a frequent name.

    Names with digits are not compared, because similar names with digits are often different on purpose, such
    as "class1" and "class2".

    Args:
      counts: {name: how often the name occurs}.
    """
    words = [name for name in counts if not any(map(str.isdigit, name))]
    if len(words) > _MAX_COMPARED:
        return {}
    misspellings = {}
    for name in words:
        frequent = [other for other in words if counts[other] >= _MISSPELLING_FACTOR * counts[name] > 0]
        similar = difflib.get_close_matches(name, frequent, 1, _MISSPELLING_SIMILARITY) or [
            other for other in words if counts[other] >= _TYPING_ERROR_FACTOR * counts[name] > 0
            and _has_typing_error(name, other)]
        if similar:
            misspellings[name] = similar[0]
    return misspellings


def _has_typing_error(*names):
    """Returns whether two names differ only within a word: by an added, missing or other letter, or by two
    swapped letters. Names often differ on purpose in the first or last letter of a word, such as "typical"
    and "atypical", or "trainer" and "trainee"."""
    start = len(os.path.commonprefix(names))
    ends = [name[start:] for name in names]
    same = len(os.path.commonprefix([end[::-1] for end in ends]))
    left, right = (end[:len(end) - same] for end in ends)
    return (names[0][start - 1:start].isalpha() and ends[0][len(left):][:1].isalpha()
            and min(map(len, names)) >= _LEAST_LETTERS
            and (max(len(left), len(right)) == 1 or len(left) == 2 and left == right[::-1]))
