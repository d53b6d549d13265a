"""Splits a text into words by the rules of the CoNLL-2003 data: punctuation marks are separate words.

Example: the text "Ana's firm (in Tennessee) paid $3.5 million." has 12 words:

    Ana  's  firm  (  in  Tennessee  )  paid  $  3.5  million  .

Some other corpora follow the same rules, such as the Penn Treebank (Bies et al. 1995, Bracketing Guidelines
for Treebank II Style). In other corpora, only white space separates words, so punctuation marks are parts of
words. `choose_splitting` determines from the training data which rules a corpus follows.
"""

import re
import unicodedata

# The two ways to split a text. run.json records the way that was chosen for a model.
SPLITTINGS = PUNCTUATION, SPACES = ("punctuation", "spaces")
# `PUNCTUATION` is chosen if its rules would divide at most this share of the words in the training data.
# These rules divide 0.1 % of the words in CoNLL-2003. In English text that was split at white space, they
# divide more than 10 % of the words.
_MAX_DIVIDED = 0.03
# A period after one of these words is a part of the word, except at the end of the text.
_ABBREVIATIONS = (
    "Adm|Ave|Bros|Brig|Capt|Cie|Co|Col|Comdr|Corp|Cpl|Dr|Drs|Gen|Gov|Hon|Inc|Jr|Lt|Ltd|Maj|Messrs|Mr|Mrs|Ms"
    "|Mt|Prof|Rep|Reps|Rev|Sen|Sens|Sgt|Sr|Ste?|Jan|Feb|Aug|Sept?|Oct|Nov|Dec|Ala|Ariz|Ark|Calif|Colo|Conn"
    "|Fla|Mass|Mich|Minn|Okla|Ore|Tenn|Tex|Va|vs|etc|approx|vol")
# Punctuation marks and symbols of common scripts. All other characters that are not white space belong to
# words. (The class `\w` does not contain the vowel signs of Indian scripts, so it is not used for words.)
_MARKS = (r"!-/:-@\[-\^`{-~\u00a1-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
          r"\u055a-\u055f\u0589\u05be\u05f3\u05f4\u060c\u061b\u061f\u066a-\u066c\u06d4\u0964\u0965"
          r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2190-\u21ff\u3001-\u3003\u3008-\u3011\u3014-\u301f"
          r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff3e\uff40\uff5b-\uff65")
_CHARACTER = rf"[^\s{_MARKS}]"
_LETTER = rf"[^\s{_MARKS}\d_]"
_DOTTED = rf"{_LETTER}{{1,2}}\.(?:{_LETTER}\.)+(?!{_CHARACTER})"  # U.S.
_NUMBER = rf"[+-]?\.?\d+(?:[.,:/'’]\d+)*{_CHARACTER}*"  # +1,000.5 or 12th
# Matches U.S., 12th, O'Brien and reuters.com.
_PART = rf"(?:{_DOTTED}|{_NUMBER}|{_CHARACTER}+(?:[.'’&]{_CHARACTER}+)*)"
_ENDING = r"(?i:['’](?:s|re|ve|ll|d|m))"
# The first alternative that matches is used. The pattern is applied only to texts without white space at the
# start and the end.
_WORD = re.compile(rf"""
    (?: \w+:// | www\. ) \S* [^\s{_MARKS}] /?                                   # https://example.org/
  | (?=[^\s@]{{1,64}}@) {_CHARACTER}+ (?:[.+-]{_CHARACTER}+)* @ {_CHARACTER}+ (?:[.-]{_CHARACTER}+)+
  | \A \d{{1,3}} \. (?=\s)                                                     # number of a list's item
  | (?<!{_CHARACTER}) {_ENDING} (?!{_CHARACTER})                                # 's as a separate word
  | (?: {_ABBREVIATIONS} | {_LETTER} ) \. (?=[\s,)]|['’]s)                       # Mr. or the initial J.
  | [#@] {_CHARACTER}+                                                          # hashtag or user
  | [A-Z]{{1,3}} \$                                                              # US$
  | {_PART} (?: [-\u2010\u2011] {_PART} )* (?: -(?=\s) | {_ENDING}(?!{_CHARACTER}) )?  # 12-year-old or mid-
  | ([-.*=|~<>\#]) \1+                                                         # dashes, ellipses and lines
  | \S
""", re.VERBOSE)
# don't = do + n't, Ana's = Ana + 's
_CONTRACTION = re.compile(rf"(?<!^)(?:(?i:n['’]t)|{_ENDING})\Z")


def split(text, splitting=PUNCTUATION):
    """Returns the words of a text: list of (start, end). `start` is the index of the first character of a
    word, and `end` is the index after its last character.

    With `PUNCTUATION`, characters that the tokenizer removes, such as the soft hyphen, do not separate words,
    and no word begins or ends with them.

    Args:
      text: str.
      splitting: `PUNCTUATION` for the rules of this module. `SPACES` for words between spaces, tabs and line
        ends, as in a file of columns.
    """
    if splitting == SPACES:
        return [match.span() for match in re.finditer(r"[^ \t\r\n]+", text)]
    places = [index for index, char in enumerate(text) if not _is_removed(char)]
    visible_text = "".join(text[index] for index in places)
    words, offset = [], len(visible_text) - len(visible_text.lstrip())
    for match in _WORD.finditer(visible_text.strip()):
        start, end = match.start() + offset, match.end() + offset
        contraction = _CONTRACTION.search(match[0])
        if contraction:
            words.append((start, start + contraction.start()))
            start += contraction.start()
        words.append((start, end))
    return [(places[start], places[end - 1] + 1) for start, end in words]


def _is_removed(char):
    """Returns whether the tokenizer removes a character that is not white space."""
    return char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf") and not char.isspace()


def choose_splitting(sentences):
    """Returns the rules by which some sentences were split into words: one of `SPLITTINGS`.

    Args:
      sentences: iterable of lists of str, the words of each sentence.
    """
    words = [word for sentence in sentences for word in sentence]
    # Some rules of `split` apply only at the end of a text. So each word is followed by the word "x". If
    # `split` returns more than two words, it has divided the word before "x".
    divided = sum(len(split(f"{word} x")) > 2 for word in words)
    return SPACES if divided > _MAX_DIVIDED * len(words) else PUNCTUATION
