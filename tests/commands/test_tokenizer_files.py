"""The settings in the tokenizer files of a Hugging Face model are applied or refused.

A letter case that does not fit the vocabulary is also refused.
"""

import itertools

from helpers import error_of, settings_of, write_json, write_lines
import pytest
import tokenizers

from bertlib.runs import tokenizer_flags

TEXTS = ["Ein Café über Ångström, İstanbul!", "Zoe\u0308 saw 中国人 and 한국어 in TOKYO, 東京-Tower.",
         "naïve [MASK] x" + "a" * 30, "हिन्दी ÉÈ ß ﬁ"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary():
    """Returns all characters of TEXTS as tokens, at the beginning and inside of a word.

    A character occurs in each form into which an option of the tokenizer converts it.
    """
    characters = set()
    for lower, strips in itertools.product((False, True), repeat=2):
        normalizer = tokenizers.normalizers.BertNormalizer(True, False, strips, lower)
        characters.update(character for text in TEXTS for character in normalizer.normalize_str(text))
    characters = sorted(characters - {" "})
    words = ["über", "uber", "Café", "cafe", "café", "中国", "##国人", "tokyo", "TOKYO"]
    pieces = [f"##{character}" for character in characters]
    return list(dict.fromkeys([*SPECIAL, *words, *characters, *pieces]))


def load(directory, **flags):
    """Returns the tokenizer of a command with the vocabulary in a directory and with some flags."""
    return tokenizer_flags.load_tokenizer(settings_of(vocab_file=directory / "vocab.txt", **flags))


@pytest.fixture
def model(tmp_path):
    """A directory with a vocabulary."""
    write_lines(tmp_path / "vocab.txt", vocabulary())
    return tmp_path


def write(directory, name, content):
    write_json(directory / name, content)


def rust_tokenizer(lower, strips, chinese, longest):
    """Returns the fast tokenizer of Hugging Face."""
    tokens = {token: index for index, token in enumerate(vocabulary())}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(tokens, unk_token="[UNK]",
                                                            max_input_chars_per_word=longest))
    made.normalizer = tokenizers.normalizers.BertNormalizer(True, chinese, strips, lower)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return made


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("strips", [None, True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_tokens_are_those_of_the_tokenizers_package(model, lower, strips, chinese):
    theirs = rust_tokenizer(lower, strips, chinese, 20)
    theirs.save(str(model / "tokenizer.json"))
    ours = load(model)
    for text in TEXTS:
        assert ours.tokenize(text) == theirs.encode(text).tokens
        assert ours.tokenize_plainly(text) == theirs.encode(text).tokens


def test_tokenizer_config_goes_before_tokenizer_json(model):
    rust_tokenizer(True, True, True, 100).save(str(model / "tokenizer.json"))
    write(model, "tokenizer_config.json", {"do_lower_case": False, "strip_accents": False,
                                           "tokenize_chinese_chars": False,
                                           "tokenizer_class": "BertTokenizerFast"})
    ours = load(model)
    assert [ours.tokenize(text) for text in TEXTS] == [
        rust_tokenizer(False, False, False, 100).encode(text).tokens for text in TEXTS]


def test_special_tokens_in_texts_stay_whole_on_request(model):
    found = [load(model, do_lower_case=True, protect_special_tokens=is_protected).tokenize("a[MASK]")
             for is_protected in (False, True)]
    assert "[MASK]" not in found[0] and found[1] == ["a", "[MASK]"]


def test_files_beside_a_safetensors_file_count_too(model, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, "tokenizer_config.json", {"do_lower_case": False})
    checkpoint = other / "model.safetensors"
    assert load(model, init_checkpoint=checkpoint).tokenize("TOKYO") == ["TOKYO"]
    write(model, "tokenizer_config.json", {"do_lower_case": True})
    with pytest.raises(ValueError, match=r"says do_lower_case=true, but .* do_lower_case=false\. Use the "
                       r"vocabulary"):
        load(model, init_checkpoint=checkpoint)


@pytest.mark.parametrize("name, content, message", [
    ("tokenizer_config.json", {"do_basic_tokenize": False},
     "do_basic_tokenize=false, which is not supported"),
    ("tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"},
     'tokenizer_class="BertJapaneseTokenizer", '
     "which is not supported"),
    ("tokenizer_config.json", {"cls_token": "<s>"}, 'cls_token="<s>", which is not supported'),
    ("special_tokens_map.json", {"unk_token": {"content": "<unk>"}}, 'unk_token="<unk>", which is not'),
    ("tokenizer_config.json", {"strip_accents": "no"},
     'strip_accents="no"; it should be true, false or null'),
    ("tokenizer.json", {"normalizer": None}, "normalizer.type=null, which is not supported; the only "
     'supported value is "BertNormalizer"'),
    ("tokenizer.json", {"model": {"type": "BPE"}}, 'model.type="BPE"'),
    ("tokenizer.json", {"model": {"max_input_chars_per_word": -1}}, "max_input_chars_per_word=-1; it should "
     "be a"),
    ("tokenizer.json", {"added_tokens": [{"id": 400, "content": "<user>"}]},
     "adds the token '<user>', but"),
    ("added_tokens.json", {"<user>": 400}, "adds the token '<user>', but")])
def test_what_would_make_other_tokens_is_refused(model, name, content, message):
    write(model, name, content)
    said = error_of(load, model, do_lower_case=True)
    assert message in said and str(model / name) in said


def test_a_class_that_takes_all_from_tokenizer_json_needs_it(model):
    write(model, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(ValueError, match='tokenizer_class="PreTrainedTokenizerFast", which is not supported'):
        load(model)
    rust_tokenizer(True, None, True, 100).save(str(model / "tokenizer.json"))
    load(model)


def test_added_tokens_of_the_vocabulary_stay_whole(model):
    with open(model / "vocab.txt", "a", encoding="utf-8") as writer:
        writer.write("<user>\n")
    write(model, "tokenizer_config.json", {"additional_special_tokens": ["<user>"], "do_lower_case": True})
    assert load(model).tokenize("x<user>y") == ["x", "<user>", "y"]


CASED = ["Paris", "London", "the", "a", "dog"]


@pytest.mark.parametrize("words, message", [
    (CASED, "2 of the 5 words in {}, such as Paris, London, never occur in lower-cased text without "
            "accents. For a cased model, pass --do_lower_case=false"),
    (["한국", "어", "the"], "such as 한국, 어")])
def test_a_cased_vocabulary_needs_the_flag(tmp_path, words, message):
    path = write_lines(tmp_path / "vocab.txt", [*SPECIAL, *words])
    assert message.format(path) in error_of(load, tmp_path)
    for lower in (True, False):
        load(tmp_path, do_lower_case=lower)
    write(tmp_path, "tokenizer_config.json", {"do_lower_case": False})
    load(tmp_path)
