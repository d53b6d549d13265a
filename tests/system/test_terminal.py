"""Shown texts: they cannot control a terminal, and they cannot mislead a reader."""


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
