"""An export that takes text gives the tokenizer's tokens in any locale of the process that serves it."""

import json
import os
import pathlib
import subprocess
import sys
import unicodedata

import model_directories
from model_directories import linear
import pytest
from test_export import run_plainly
import tiny

from bertlib.output_directory import model_directory
from bertlib.serving import export_text, session
from bertlib.tasks import answers
import tokenization

# For the first three languages, ICU has special lower-case rules, also if the locale is not installed.
LOCALES = ("tr_TR.UTF-8", "lt_LT.UTF-8", "az_AZ.UTF-8", "C")
WORDS = ["I", "İ", "ı", "i\u0307", "DIŞ", "KIRIK", "İSTANBUL", "Į\u0301", "I\u0300", "J\u0303",
         "Ì", "Í", "Ĩ", "Į\u0307", "Σ", "ΑΣ",
         "ΑΣ.", "'ΑΣ'", "ΑΣ'Α", "ΣΑ", "ΑΣΣ", "ΑΣ\u0301", "\u0301Σ", "Α\u00adΣ", "ΟΔΟΣ ΟΔΟΣ", "1Σ",
         "DŽ", "ẞ", "Ⱥ"]
CHECK = """
import json, sys
import tensorflow.compat.v1 as tf
import graph_tokens
import test_locales
tf.disable_v2_behavior()
texts = test_locales.texts(*map(int, sys.argv[1:]))
print(json.dumps([(len(texts), graph_tokens.differing_tokens(tokenizer, texts))
                  for tokenizer in test_locales.tokenizers()]))
"""


def texts(end, step):
    """Returns `WORDS`, and words with each character below the code point `end`.

    A character occurs inside of a word, and before and after a sigma.
    """
    characters = [chr(code) for code in range(end) if not 0xd800 <= code <= 0xdfff]
    changed = [character for character in characters if unicodedata.category(character) != "Cn"
               and (character.lower() != character or unicodedata.category(character) in ("Lm", "Mn", "Sk"))]
    others = [f"a{character}b" for character in characters if unicodedata.category(character) != "Cn"]
    sentences = [" ".join(others[start:start + 50]) for start in range(0, len(others), 50 * step)]
    return [*WORDS, *(f"{before}{character}{after}" for character in changed[::step]
                      for before, after in (("a", "b"), ("", "Σ"), ("Α", "Σ"), ("ΑΣ", "")))] + sentences


def tokenizers():
    """Tokenizers that know each letter, with and without lower case and accents."""
    letters = {part for code in range(0x20000) if not 0xd800 <= code <= 0xdfff
               for part in unicodedata.normalize("NFD", chr(code)) + chr(code) + chr(code).lower()}
    words = [*tiny.VOCABULARY[:5], *sorted(letters), *sorted(f"##{letter}" for letter in letters)]
    vocabulary = {word: index for index, word in enumerate(words)}
    return [tokenization.FullTokenizer(vocabulary, do_lower_case=lower, strip_accents=strip)
            for lower, strip in ((True, None), (True, False), (False, None))]


def differences(locale, end, step):
    """Returns (number of texts, differing tokens) for each tokenizer, in a process with a locale."""
    paths = [str(pathlib.Path(__file__).parents[2]), str(pathlib.Path(__file__).parents[1]),
             str(pathlib.Path(__file__).parent)]
    done = subprocess.run([sys.executable, "-c", CHECK, str(end), str(step)], capture_output=True,
                          env={**os.environ, "LC_ALL": locale, "PYTHONPATH": os.pathsep.join(paths),
                               "PYTHONUTF8": "1"}, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak(reason="interpreters that load two packages of ops; below, a model answers in one of them")
@pytest.mark.parametrize("locale, end, step", [
    *((locale, 0x2c00, 8) for locale in LOCALES[1:]), (LOCALES[0], 0x20000, 1)])
def test_tokens_in_the_graph_are_the_tokenizers_in_any_locale(locale, end, step):
    for looked_at, differing in differences(locale, end, step):
        assert looked_at > 500 and not differing, differing[:3]


@pytest.mark.slow(reason="an interpreter that loads two packages of ops")
def test_a_model_that_is_served_in_another_locale_gives_the_same_answers(tmp_path, tiny_model):
    directory = model_directories.write(tmp_path / "model", tiny_model, "classification", linear(3),
                                        ["no", "yes", "perhaps"])
    asked = ["THIS IS IN THE RIVER", "A CHILD FINDS IT", "IN", "QUICKLY"]
    model = model_directory.read(str(directory))
    path = export_text.export(model, str(tmp_path / "export"))
    call = [path, "text_a", {"text_a": asked}]
    [answered] = run_plainly([call], tmp_path, "tensorflow_text", LC_ALL=LOCALES[0])
    task = answers.create(model, "classification")
    with session.tf.Graph().as_default():
        here = session.LoadedModel(task.head, model.bert_config, model.checkpoint, task.extra_inputs)
        expected = here([task.windows(text)[0][0] for text in asked])
        here.close()
    for index, one in enumerate(expected):
        assert answered["probabilities"][index] == pytest.approx(one["probabilities"].tolist(), abs=1e-5)
