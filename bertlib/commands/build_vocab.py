"""Learns a WordPiece vocabulary from text, and writes the vocab.txt of a model that you want to pre-train.

    python build_vocab.py --input_file='corpus/*.txt.gz' --output_file=vocab.txt --vocab_size=30522

The next command adds words of the text to the vocabulary of a model. It also adds a row for each new word to
the weights of the model:

    python build_vocab.py --input_file='corpus/*.txt.gz' --extend=$BERT_DIR/vocab.txt \\
      --init_checkpoint=$BERT_DIR/bert_model.ckpt --vocab_size=31522 --output_file=extended/vocab.txt

`tokenization.BasicTokenizer` splits the text into words, as in training and in prediction. Two runs on the
same text write the same file.

The package `tokenizers` learns the pieces: it repeatedly merges the most frequent pair of pieces, see
Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, section 3.2.
"""

import collections
import itertools
import os

from bertlib.commands import common_flags, model_writer

from absl import logging
import tokenizers

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import corpus
from bertlib.runs import checks, entries, file_names, model_config, model_files, tokenizer_flags
from bertlib.runs.input_paths import refuse_directory
from bertlib.system import files, locks
from bertlib.tasks import starting_weights
from bertlib.tasks.pretraining import pretraining_head
import modeling
import tokenization

# Largest length of a word in characters. The tokenizer replaces each longer word by [UNK], even if the
# vocabulary contains the word.
_LONGEST_WORD = tokenization.WordpieceTokenizer([]).max_input_chars_per_word
# Largest number of distinct chunks (texts between spaces) that are counted in memory. Above this number, the
# chunks are tokenized and removed from memory.
_CHUNKS = 1 << 20
# Largest --vocab_size. Ids are int32, and the trainer allocates memory for all entries in advance.
_MAX_ENTRIES = 1 << 24
# The trainer learns from strings. A word that occurs n times in the text is repeated n times in these
# strings. A single string contains at most this number of repetitions.
_MAX_REPEATS = 10000


ENTRIES = entries.section("Vocabulary", None, [
    entries.Path("input_file", None,
                 "Comma-separated paths or glob patterns of text files in UTF-8. The files may be compressed "
                 "(.gz)."),
    entries.Path("output_file", None, "Vocabulary file to write, with one token in each line."),
    entries.Integer("vocab_size", 30522,
                    "Number of entries of the vocabulary, including special tokens and single characters.",
                    least=1, most=_MAX_ENTRIES),
    entries.Switch("do_lower_case", True,
                   "Convert the text to lower case and strip accents. Training and prediction must use the "
                   "same value."),
    entries.Integer("min_frequency", 2,
                    "Minimum number of occurrences of a character and of a merged pair. Rarer characters are "
                    "left out: words that contain them become [UNK]. Rarer pairs are not merged. With "
                    "--extend: minimum number of occurrences of a new word.", least=1),
    entries.Integer("num_unused", 0,
                    "Number of entries [unused0], [unused1], … after [PAD]. You can rename these entries "
                    "later. With --num_unused=99, the special tokens have the same ids as in the published "
                    "English vocabularies.", least=0, most=_MAX_ENTRIES),
]) + entries.section("Extension of a vocabulary", None, [
    entries.Path("extend", None,
                 "The vocab.txt of a model. Its tokens keep their ids. Words of --input_file that are not in "
                 "this vocabulary are added after these tokens, until the vocabulary has --vocab_size "
                 "entries. The words that save the most tokens are chosen."),
    entries.Path("init_checkpoint", None,
                 "With --extend: the weights of the model, in a format that the training commands read. The "
                 "command writes a model with the extended vocabulary to the directory of --output_file. The "
                 "embedding of a new word starts as the mean of the embeddings of its old pieces."),
    entries.Path("bert_config_file", None,
                 "The bert_config.json or config.json of --init_checkpoint. By default, the command reads "
                 "this file from the directory of the weights."),
])


# --- Words and pieces ------------------------------------------------------------------------------------


def count_words(lines, tokenizer):
    """Returns a Counter with the number of occurrences of each word in `lines`. Words that are longer than
    the tokenizer allows are left out. `tokenizer` is a `tokenization.BasicTokenizer`."""
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
      vocab_size: int, number of entries. The result has fewer entries if the words contain too few pairs that
        can be merged.
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
    usable_words = {word: words[word] for word in sorted(words) if alphabet.issuperset(word)}
    if not usable_words:
        raise ValueError(f"--min_frequency={min_frequency}: each word of the text contains a character that "
                         f"occurs fewer than {min_frequency} times. Pass a lower number, or use more text.")
    padding, *other_tokens = tokenization.SPECIAL_TOKENS
    special = [padding, *(f"[unused{i}]" for i in range(num_unused)), *other_tokens]
    fixed = special + sorted(alphabet) + sorted({tokenization.CONTINUATION + character
                                                 for word in usable_words for character in word[1:]})
    if len(fixed) > vocab_size:
        raise ValueError(f"--vocab_size={vocab_size} is too small: {len(special)} special tokens and the "
                         f"characters of the text already need {len(fixed)} entries. Pass "
                         f"--vocab_size={len(fixed)} or more, or raise --min_frequency={min_frequency} to "
                         "leave out rarer characters. A character that also occurs inside of words needs two "
                         "entries.")
    num_unknown = sum(words.values()) - sum(usable_words.values())
    logging.info("The text has %d words (%d different ones). The vocabulary contains %d characters of the "
                 "text. %d words contain a character below --min_frequency and will become [UNK].",
                 sum(words.values()), len(words), len(alphabet), num_unknown)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # If several pairs of pieces are equally frequent, the trainer first merges the pair with the lowest ids.
    # By default, the trainer numbers the characters in the order of a hash table with a random seed, so each
    # run would give a different vocabulary. Passing the characters as special tokens fixes their ids.
    # The trainer allocates memory for `most` entries in advance, so `most` must not be larger than needed. At
    # first, each character of a word is one piece. Each merge reduces the number of pieces of at least one
    # word. So there are fewer merges, and fewer merged pieces, than characters in all words.
    most = min(vocab_size, len(fixed) + sum(map(len, usable_words)))
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=most, min_frequency=min_frequency,
                                                   special_tokens=fixed, show_progress=False)
    tokenizer.train_from_iterator(_repeat_words(usable_words), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _repeat_words(words):
    """Yields strings for the trainer. Together, they contain each word as often as the text contains it."""
    for word, count in words.items():
        for start in range(0, count, _MAX_REPEATS):
            yield " ".join([word] * min(count - start, _MAX_REPEATS))


# --- The extension of a model ----------------------------------------------------------------------------


def check_flags(settings):
    """Checks the flags before any file is read.

    Raises:
      ValueError, FileExistsError: a flag contradicts another flag, or an output file already
        exists.
    """
    refuse_directory(settings)
    check_is_new(settings.output_file)
    if settings.extend and settings.num_unused:
        raise ValueError("--num_unused has no effect with --extend, because the old tokens stay unchanged. "
                         "Leave one of the two flags out.")
    for name, prerequisite in (("init_checkpoint", "extend"), ("bert_config_file", "init_checkpoint")):
        if getattr(settings, name) and not getattr(settings, prerequisite):
            raise ValueError(f"--{name} needs --{prerequisite}. Pass both flags, or leave --{name} out.")
    if settings.init_checkpoint:
        directory, name = os.path.split(settings.output_file)
        if name != file_names.VOCABULARY:
            raise ValueError(f"--output_file={settings.output_file}: with --init_checkpoint, the name of the "
                             f"file must be {file_names.VOCABULARY}, because other commands look for this "
                             "file in the directory of the model. Pass for example "
                             f"--output_file={os.path.join(directory, 'extended', file_names.VOCABULARY)}.")
        model_writer.check_directory(directory or ".", "tensorflow",
                                     f"The directory of --output_file={settings.output_file}")


def open_model(settings):
    """Opens and checks the weights of --init_checkpoint.

    Returns:
      (the `checkpoint_formats.Checkpoint`, the `modeling.BertConfig`, names of the tensors to write). The
      tensors to write are those of the encoder and of the pre-training heads. Other heads are left out.

    Raises:
      ValueError, FileNotFoundError: a file is missing or damaged, or the files contradict each other.
    """
    model_config.fill_in_model_files(settings, reads_text=False)
    source, config = model_config.open_starting_weights(settings), model_config.read_config(settings)
    encoder, heads = modeling.variable_shapes(config), pretraining_head.PretrainingHead().shapes(config)
    starting_weights.check_fits(source, config, heads)
    return source, config, sorted(name for name in {**encoder, **heads} if name in source.shapes)


def choose_words(words, tokenizer, count, min_frequency):
    """Returns the words that save the most tokens if they are added to the vocabulary. The word with the
    largest saving is first.

    A word of k pieces saves k - 1 tokens at each occurrence. A word that the old vocabulary converts to [UNK]
    saves no token. But it counts as if it saved one token at each occurrence, because without a new entry,
    its text is lost.

    Args:
      words: {word: number of occurrences}.
      tokenizer: the `tokenization.WordpieceTokenizer` of the old vocabulary.
      count: int, largest number of words.
      min_frequency: int, minimum number of occurrences of a word.

    Returns:
      list of str, words that the old vocabulary does not contain.
    """
    savings = {}
    for word, occurrences in words.items():
        if occurrences >= min_frequency and word not in tokenizer.vocab and (
                len(word) <= tokenizer.max_input_chars_per_word):
            savings[word] = occurrences * max(len(tokenizer.tokenize(word)) - 1, 1)
    return sorted(savings, key=lambda word: (-savings[word], word))[:count]


def _count_tokens(words, tokenizer):
    """Returns the number of tokens into which a tokenizer splits all words of a text. For `words`, see
    `choose_words`."""
    return sum(count * len(tokenizer.tokenize(word)) for word, count in words.items())


def extend_vocab(settings, words, tokenizer):
    """Returns (the lines of --extend, the new tokens), two lists of str.

    Args:
      settings: a `Settings`.
      words: {word: number of occurrences}, see `count_words`.
      tokenizer: the `tokenization.FullTokenizer` of --extend.

    Raises:
      ValueError: --vocab_size leaves no place for new words, the text contains no new words, or new words
        have capital letters although the old vocabulary has none.
    """
    # In `tokenizer.vocab`, all lines of Unicode white space are one entry. If a line were missing, the ids of
    # all tokens below it would change.
    old = tokenization.read_lines(settings.extend)
    if all(line.endswith("\r") for line in old):  # a file with the line ends of Windows
        old = [line[:-1] for line in old]
    free = settings.vocab_size - len(old)
    if free <= 0:
        raise ValueError(f"--vocab_size={settings.vocab_size} leaves no place for new words: "
                         f"{settings.extend} already has {len(old)} entries. For 1000 new words, pass "
                         f"--vocab_size={len(old) + 1000}.")
    new = choose_words(words, tokenizer.wordpiece_tokenizer, free, settings.min_frequency)
    if not new:
        raise ValueError(f"There are no words to add: {settings.extend} already contains each word of "
                         f"--input_file that occurs at least --min_frequency={settings.min_frequency} "
                         "times. Use more text, or continue with the old vocabulary.")
    capitals = [word for word in new if word != word.lower()]
    if capitals and all(token == token.lower() for token in old if not token.startswith("[")):
        raise ValueError(f"--do_lower_case=false: the new words, such as {capitals[0]}, have capital "
                         f"letters, but no token of {settings.extend} has one. The vocabulary belongs to an "
                         "uncased model. Pass --do_lower_case=true.")
    return old, new


def write_model(settings, model, tokenizer, old, new):
    """Writes the model with the extended vocabulary to the directory of --output_file.

    Args:
      settings: a `Settings`.
      model: the result of `open_model`.
      tokenizer: the `tokenization.FullTokenizer` of --extend.
      old, new: lists of str, the lines of --extend and the new tokens.
    """
    source, config, names = model
    # The ids of the pieces of each new word in the old vocabulary.
    rows = [[tokenizer.vocab[piece] for piece in tokenizer.wordpiece_tokenizer.tokenize(word)]
            for word in new]
    source = checkpoint_formats.append_mean_rows(source, len(old), rows)
    contents = {
        file_names.BERT_CONFIG: model_files.format_json(
            {**model_files.published_settings(config), "vocab_size": len(old) + len(new)}),
        file_names.VOCABULARY: format_vocab(old + new).encode(),
        model_writer.TOKENIZER_CONFIG: model_files.format_json(
            model_files.tokenizer_content(settings, config, "extend"))}
    model_writer.write(os.path.dirname(settings.output_file) or ".", "tensorflow", source, names, contents)


# --- The command -----------------------------------------------------------------------------------------


def format_vocab(vocab):
    """Returns the content of a vocabulary file as str, with one token in each line."""
    return "".join(f"{token}\n" for token in vocab)


def write_vocab(path, vocab):
    """Writes a vocabulary to a new file. The file appears only when it is complete."""
    files.make_parent(path)
    with locks.lock_file(path):
        check_is_new(path)  # another process may have written this file in the meantime
        files.write_text(path, format_vocab(vocab))


def check_is_new(path):
    """Raises a ValueError if the path is an existing regular file."""
    if files.exists(path) and not files.is_special(path):
        raise ValueError(f"--output_file={path} already exists, and models may depend on the ids in this "
                         "file. Name another file, or remove this one.")


def learn(settings, words):
    """Learns a vocabulary from the Counter `words`, and writes it."""
    vocab = learn_vocab(words, settings.vocab_size, settings.min_frequency, settings.num_unused)
    write_vocab(settings.output_file, vocab)
    logging.info("Wrote %d entries to %s. Set \"vocab_size\": %d in the model's bert_config.json, and pass "
                 "--do_lower_case=%s to each command that uses this vocabulary.", len(vocab),
                 settings.output_file, len(vocab), str(settings.do_lower_case).lower())


def extend(settings, words, tokenizer, model):
    """Adds words of the text to the vocabulary of --extend, and writes the extended vocabulary.

    Args:
      settings: a `Settings`.
      words: {word: number of occurrences}, see `count_words`.
      tokenizer: the `tokenization.FullTokenizer` of --extend.
      model: the result of `open_model`, or None. If it is not None, the model with the extended vocabulary is
        also written.
    """
    old, new = extend_vocab(settings, words, tokenizer)
    pieces = tokenizer.wordpiece_tokenizer
    extended = tokenization.WordpieceTokenizer({*tokenizer.vocab, *new}, pieces.unk_token,
                                               pieces.max_input_chars_per_word)
    logging.info("%d new words, such as %s. The text has %d tokens instead of %d.", len(new),
                 ", ".join(new[:5]), _count_tokens(words, extended), _count_tokens(words, pieces))
    if model:
        write_model(settings, model, tokenizer, old, new)
        logging.info("Wrote the model with %d entries to %s. To train it, pass --init_checkpoint=%s.",
                     len(old) + len(new), *[os.path.dirname(settings.output_file) or "."] * 2)
    else:
        write_vocab(settings.output_file, old + new)
        logging.info("Wrote %d entries to %s.", len(old) + len(new), settings.output_file)


def main(_):
    """Learns or extends the vocabulary, and writes it."""
    settings = common_flags.read_settings("input_file", "output_file")
    check_flags(settings)
    model = open_model(settings) if settings.init_checkpoint else None
    tokenizer = tokenizer_flags.load_tokenizer(
        settings, model and model[1].vocab_size, flags=["extend"]) if settings.extend else None
    paths = corpus.find_input_files([path.strip() for path in settings.input_file.split(",")])
    checks.refuse_overwriting(settings, {"input_file": paths}, {"output_file": [settings.output_file]})
    lines = itertools.chain.from_iterable(map(corpus.read_lines, paths))
    words = count_words(lines, tokenizer.basic_tokenizer if tokenizer
                        else tokenization.BasicTokenizer(do_lower_case=settings.do_lower_case))
    if not words:
        raise ValueError(f"--input_file={settings.input_file} contains no text. Name files with text.")
    if settings.extend:
        extend(settings, words, tokenizer, model)
    else:
        learn(settings, words)
