"""Tags of words in three schemes, and the entities that they encode.

An entity is a span of words with a type. A scheme encodes entities with a tag for each word. The tag is "O"
outside of entities, otherwise a letter and the type, such as B-PER. Examples:

    words   Ana   Ruiz  Oslo  Bergen  is
    IOB2    B-PER I-PER B-LOC B-LOC   O      each entity begins with B
    IOB1    I-PER I-PER I-LOC B-LOC   O      B only directly after an entity of the same type
    BIOES   B-PER E-PER S-LOC S-LOC   O      E ends an entity, S is an entity of a single word

The model is trained with IOB2. Its predictions are written in the scheme of the training data.
"""

import re

SCHEMES = ("IOB2", "IOB1", "BIOES")
_TAG = re.compile(r"O|[BIES]-\S.*")


def is_tag(text):
    """Returns whether a text has the form of a tag in one of the schemes."""
    return bool(_TAG.fullmatch(text))


def is_iob2(tag):
    """Returns whether a text has the form of an IOB2 tag. The tag of the previous word is not considered."""
    return is_tag(tag) and tag[0] in "OBI"


def entity_spans(tags):
    """Returns the entities in a sentence. The tags may be in any scheme.

    The rules are those of the script conlleval: an entity begins at a tag with B or S, at the first tag after
    O, E or S, and at each change of the type.

    Args:
      tags: list of str.

    Returns:
      list of (index of the first word, index after the last word, type).
    """
    spans, before, is_end = [], None, True
    for place, tag in enumerate(tags):
        letter, _, kind = tag.partition("-")
        if letter == "O":
            before = None
            continue
        if letter in "BS" or kind != before or is_end:
            spans.append((place, place + 1, kind))
        else:
            spans[-1] = (spans[-1][0], place + 1, kind)
        before, is_end = kind, letter in "ES"
    return spans


def tags_from_spans(entities, length, scheme):
    """Returns the tags of a sentence with given entities. This function is the inverse of `entity_spans`.

    Args:
      entities: list of (index of the first word, index after the last word, type).
      length: number of words in the sentence.
      scheme: one of `SCHEMES`.
    """
    tags, before = ["O"] * length, (None, None)
    for start, end, kind in entities:
        letters = ["B", *["I"] * (end - start - 1)]
        if scheme == "IOB1" and before != (start, kind):
            letters[0] = "I"
        if scheme == "BIOES":
            letters[-1] = "S" if end - start == 1 else "E"
        tags[start:end] = [f"{letter}-{kind}" for letter in letters]
        before = end, kind
    return tags


def convert_scheme(tags, scheme="IOB2"):
    """Converts tags of any scheme to the scheme `scheme`. The rules of `entity_spans` decide which entities
    an invalid sequence of tags has."""
    return tags_from_spans(entity_spans(tags), len(tags), scheme)
