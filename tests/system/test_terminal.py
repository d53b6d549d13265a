"""Shown texts: they cannot control a terminal, and they cannot mislead a reader."""

import sys
import unicodedata

import pytest

from bertlib.system import terminal


@pytest.mark.parametrize(("text", "shown"), [
    ("\x1b[31mred\r", r"\x1b[31mred\r"), ("pass\u202eexe.txt", r"pass\u202eexe.txt"),
    ("\U000e0041", r"\U000e0041")])
def test_characters_that_control_or_mislead_are_escaped(text, shown):
    assert terminal.printable(text) == shown


def test_texts_in_any_language_are_unchanged():
    text = "two\n\tlines: é ü 中文 عربي נ می\u200cخواهم 👩\u200d💻 e\u0301 \\x1b"
    assert terminal.printable(text) == text


def test_only_controls_formats_separators_and_surrogates_are_escaped():
    escaped = {character for character in map(chr, range(sys.maxunicode + 1))
               if terminal.printable(character) != character}
    kinds = {unicodedata.category(character) for character in escaped}
    assert kinds == {"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"}  # Cn: characters that may become tags
    assert {chr(code) for code in [*range(32), *range(127, 160)]} - escaped == {"\n", "\t"}
    # Unicode's own list of characters that change the direction of text.
    assert {character for character in map(chr, range(0x3000)) if unicodedata.bidirectional(character) in (
        "LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")} <= escaped
