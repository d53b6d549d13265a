"""An export that takes text gives the tokenizer's tokens in any locale of the process that serves it."""

import unicodedata

import pytest
from scripts import run_code
import tensorflow.compat.v1 as tf
import tiny

from bertlib.serving import export_text
import tokenization

# For the first three languages, ICU has special lower-case rules, also if the locale is not installed.
LOCALES = ("tr_TR.UTF-8", "lt_LT.UTF-8", "az_AZ.UTF-8", "C")
WORDS = ["I", "İ", "ı", "i\u0307", "DIŞ", "KIRIK", "İSTANBUL", "Į\u0301", "I\u0300", "J\u0303",
         "Ì", "Í", "Ĩ", "Į\u0307", "Σ", "ΑΣ",
         "ΑΣ.", "'ΑΣ'", "ΑΣ'Α", "ΣΑ", "ΑΣΣ", "ΑΣ\u0301", "\u0301Σ", "Α\u00adΣ", "ΟΔΟΣ ΟΔΟΣ", "1Σ",
         "DŽ", "ẞ", "Ⱥ"]
CHECK = """
import sys
sys.path[1:1] = ["tests", "tests/serving"]
import test_locales
test_locales.tf.disable_v2_behavior()
test_locales.check(*map(int, sys.argv[1:]))
"""


def texts(end, step):
    """Returns `WORDS`, and words with each character below the code point `end`.

    A character occurs inside of a word, and before and after a sigma.
    """
    characters = [character for character in map(chr, range(end))
                  if unicodedata.category(character) not in ("Cn", "Cs")]
    changed = [character for character in characters if character.lower() != character
               or unicodedata.category(character) in ("Lm", "Mn", "Sk")]
    return [*WORDS, *(text for character in changed[::step]
                      for text in (f"a{character}b", f"{character}Σ", f"Α{character}Σ", f"ΑΣ{character}")),
            *(f"a{character}b" for character in characters[::step])]


def tokenizers():
    """Tokenizers that know each letter, with and without lower case and accents."""
    letters = {part for code in range(0x20000) if not 0xd800 <= code <= 0xdfff
               for part in unicodedata.normalize("NFD", chr(code)) + chr(code) + chr(code).lower()}
    words = [*tiny.VOCABULARY[:5], *sorted(letters), *sorted(f"##{letter}" for letter in letters)]
    vocabulary = {word: index for index, word in enumerate(words)}
    return [tokenization.FullTokenizer(vocabulary, do_lower_case=lower, strip_accents=strip)
            for lower, strip in ((True, None), (True, False), (False, None))]


def check(end, step):
    """Compares the tokens of the graph with those of the tokenizers, for `texts`."""
    given = texts(end, step)
    for tokenizer in tokenizers():
        with tf.Graph().as_default(), tf.Session() as session:
            inputs = tf.placeholder(tf.string, [None])
            ids = export_text.GraphTokenizer(tokenizer)(inputs)
            session.run(tf.tables_initializer())
            found = session.run(ids, {inputs: [text.encode("utf-8", "replace") for text in given]}).to_list()
        for text, row in zip(given, found, strict=True):
            assert tokenizer.tokenize(text) == tokenizer.convert_ids_to_tokens(row), text


SOAK = pytest.mark.soak(reason="interpreters that load two packages of ops")


@pytest.mark.parametrize("locale, end, step", [
    pytest.param(LOCALES[0], 0x500, 8, marks=pytest.mark.slow(reason="loads two packages")),
    pytest.param(LOCALES[0], 0x20000, 1, marks=SOAK),
    *(pytest.param(locale, 0x2c00, 8, marks=SOAK) for locale in LOCALES[1:])])
def test_tokens_in_the_graph_are_the_tokenizers_in_any_locale(locale, end, step):
    run_code(CHECK, end, step, LC_ALL=locale, PYTHONUTF8="1").assert_success()
