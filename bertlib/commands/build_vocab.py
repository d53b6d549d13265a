"""Learns a WordPiece vocabulary from text, and writes the vocab.txt of a model that you want to pre-train.

    python build_vocab.py --input_file='corpus/*.txt.gz' --output_file=vocab.txt --vocab_size=30522

`tokenization.BasicTokenizer` splits the text into words, as in training and in prediction. Two runs on the
same text write the same file.

The package `tokenizers` learns the pieces: it repeatedly merges the most frequent pair of pieces, see
Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, section 3.2.
"""

import collections
import itertools
import os

from absl import flags, logging
import tokenizers

from bertlib.command_line import common_flags

from bertlib.runs import checks
from bertlib.system import files, locks
from bertlib.tasks.pretraining import corpus
import tokenization

# Largest length of a word in characters. The tokenizer replaces a longer word by [UNK], with any vocabulary.
_LONGEST_WORD = tokenization.WordpieceTokenizer([]).max_input_chars_per_word
# Largest number of distinct chunks (texts between spaces) that are counted in memory. Above this number, the
# chunks are tokenized and removed from memory.
_CHUNKS = 1 << 20
# Largest --vocab_size. Ids are int32, and the trainer allocates memory for all entries in advance.
_MAX_ENTRIES = 1 << 24
# Words are passed to the trainer in strings. A string repeats its word at most this number of times.
_MAX_REPEATS = 10000


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Vocabulary"):
        flags.DEFINE_string("input_file", None,
                            "Comma-separated paths or glob patterns of text files in UTF-8. The files may be "
                            "compressed (.gz).")
        flags.DEFINE_string("output_file", None, "Vocabulary file to write, with one token in each line.")
        flags.DEFINE_integer("vocab_size", 30522, "Number of entries of the vocabulary, including special "
                             "tokens and single characters.",
                             lower_bound=1, upper_bound=_MAX_ENTRIES)
        flags.DEFINE_bool("do_lower_case", True, "Convert the text to lower case and strip accents. Training "
                          "and prediction must use the same value.")
        flags.DEFINE_integer("min_frequency", 2, "Minimum number of occurrences of a character and of a "
                             "merged pair. Rarer characters are left out: words that contain them become "
                             "[UNK]. Rarer pairs are not merged.", lower_bound=1)
        flags.DEFINE_integer("num_unused", 0, "Number of entries [unused0], [unused1], … after [PAD], which "
                             "you can rename later. With --num_unused=99, the special tokens have the same "
                             "ids as in the published English vocabularies.",
                             lower_bound=0, upper_bound=_MAX_ENTRIES)


def count_words(lines, do_lower_case):
    """Returns a Counter with the number of occurrences of each word in `lines`. Words that are longer than
    the tokenizer allows are left out."""
    tokenizer = tokenization.BasicTokenizer(do_lower_case=do_lower_case)
    chunks, words = collections.Counter(), collections.Counter()
    for line in itertools.chain(lines, [None]):
        if line is not None:
            chunks.update(line.split(" "))
        # Most chunks of a text occur repeatedly. Each distinct chunk is tokenized only once.
        if line is None or len(chunks) > _CHUNKS:
            for chunk, count in chunks.items():
                for word in tokenizer.tokenize(chunk):
                    words[word] += count
            chunks.clear()
    return collections.Counter({word: count for word, count in words.items() if len(word) <= _LONGEST_WORD})


def learn_vocab(words, vocab_size, min_frequency=2, num_unused=0):
    """Learns a vocabulary.

    Args:
      words: {word: number of occurrences}, see `count_words`.
      vocab_size: int, number of entries. The result has fewer entries if the words do not have enough pieces.
      min_frequency: int, minimum number of occurrences of a character and of a merged pair of pieces.
      num_unused: int, number of [unused…] entries.

    Returns:
      list of str, the tokens in the order of their ids: special tokens, single characters, and the pieces in
      the order of their merges.

    Raises:
      ValueError: there are no words, or `vocab_size` is too small for their characters.
    """
    characters = collections.Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    alphabet = {character for character, count in characters.items() if count >= min_frequency}
    known = {word: words[word] for word in sorted(words) if alphabet.issuperset(word)}
    if not known:
        raise ValueError(f"--min_frequency={min_frequency}: each word of the text contains a character that "
                         f"occurs fewer than {min_frequency} times. Pass a lower number, or use more text.")
    padding, *others = tokenization.SPECIAL_TOKENS
    special = [padding, *(f"[unused{i}]" for i in range(num_unused)), *others]
    fixed = special + sorted(alphabet) + sorted({tokenization.CONTINUATION + character for word in known
                                                 for character in word[1:]})
    if len(fixed) > vocab_size:
        raise ValueError(f"--vocab_size={vocab_size} is too small: {len(special)} special tokens and the "
                         "characters of the text, at the start of words and inside of words, already need "
                         f"{len(fixed)} entries. Pass --vocab_size={len(fixed)} or more, or raise "
                         f"--min_frequency={min_frequency} to leave out rarer characters.")
    unknown = sum(words.values()) - sum(known.values())
    logging.info("The text has %d words (%d different ones). The vocabulary contains %d characters of the "
                 "text. %d words contain a character below --min_frequency and will become [UNK].",
                 sum(words.values()), len(words), len(alphabet), unknown)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # Among equally frequent pairs, the trainer merges the pair with the lowest ids first. By default, the
    # trainer numbers the characters in the order of a hash table with a random seed, so each run would give a
    # different vocabulary. Passing the characters as special tokens fixes their ids. Each merge shortens a
    # word, so the number of merged pieces is below the total length of the words.
    most = min(vocab_size, len(fixed) + sum(map(len, known)))
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=most, min_frequency=min_frequency,
                                                   special_tokens=fixed, show_progress=False)
    tokenizer.train_from_iterator(_repeat_words(known), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _repeat_words(words):
    """Yields texts that together contain each word as often as it occurs."""
    for word, count in words.items():
        for start in range(0, count, _MAX_REPEATS):
            yield " ".join([word] * min(count - start, _MAX_REPEATS))


def write_vocab(path, vocab):
    """Writes a vocabulary to a new file and checks the file. The file appears only when it is complete."""
    if os.path.dirname(path):
        files.make_directories(os.path.dirname(path))
    with locks.lock_file(path), files.atomic_replacement(path) as partial:
        check_is_new(path)  # another process may have written it since the first check
        with files.open_file(partial, "w") as writer:
            writer.write("".join(f"{token}\n" for token in vocab))
        if not files.is_special(partial):
            tokenization.check_vocab(partial, len(vocab))


def check_is_new(path):
    """Raises a ValueError if the path is an existing regular file."""
    if files.exists(path) and not files.is_special(path):
        raise ValueError(f"--output_file={path} already exists, and models may depend on the ids in this "
                         "file. Name another file, or remove this one.")


def main(_):
    """Learns and writes the vocabulary."""
    settings = common_flags.read_settings()
    for name in ("input_file", "output_file"):
        if not getattr(settings, name):
            raise ValueError(f"--{name} is required.")
    check_is_new(settings.output_file)
    paths = corpus.find_input_files([path.strip() for path in settings.input_file.split(",")])
    checks.refuse_overwriting(settings, {"input_file": paths}, {"output_file": [settings.output_file]})
    lines = itertools.chain.from_iterable(map(corpus.read_lines, paths))
    words = count_words(lines, settings.do_lower_case)
    if not words:
        raise ValueError(f"--input_file={settings.input_file} contains no text. Name files with text.")
    vocab = learn_vocab(words, settings.vocab_size, settings.min_frequency, settings.num_unused)
    if len(vocab) < settings.vocab_size:
        logging.warning("The text yields only %d entries, fewer than --vocab_size=%d.", len(vocab),
                        settings.vocab_size)
    write_vocab(settings.output_file, vocab)
    logging.info("Wrote %d entries to %s. Set \"vocab_size\": %d in the model's bert_config.json, and pass "
                 "--do_lower_case=%s to each command that uses this vocabulary.", len(vocab),
                 settings.output_file, len(vocab), str(settings.do_lower_case).lower())
