"""Keys by which texts are compared that a reader cannot tell apart, or that say the same.

Unicode has several encodings of one accented letter, and characters that no screen shows: "café" may have 4
or 5 code points, and a spreadsheet may put a zero-width space after it.
"""

import unicodedata

# Soft hyphen and the format characters (zero-width space, joiners, byte-order mark, direction marks), and
# the selectors of a character's variant.
_INVISIBLE_CATEGORY = "Cf"
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


def visible_text(text):
    """Returns a text as a reader sees it: accents in Unicode's composed form (NFC), without invisible
    characters, each run of white space as one space."""
    if not text.isascii():
        for character in set(text):
            if _is_invisible(character):
                text = text.replace(character, "")
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def _is_invisible(character):
    return unicodedata.category(character) == _INVISIBLE_CATEGORY or ord(character) in _VARIATION_SELECTORS


def text_key(text_a, text_b=None):
    """Returns the key of an example's texts: equal for examples that differ in letter case, white space,
    invisible characters, the encoding of accents or the order of the two texts alone. A tuple of str."""
    return tuple(sorted(_fold_case(visible_text(text)) for text in (text_a, text_b) if text is not None))


def _fold_case(text):
    # Folding a composed letter may give several code points, "ΐ" three: so it is taken apart before and
    # composed again after.
    return text.lower() if text.isascii() else unicodedata.normalize(
        "NFC", unicodedata.normalize("NFD", text).casefold())
