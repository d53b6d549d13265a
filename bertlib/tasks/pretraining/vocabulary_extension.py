"""Chooses the words of a text that are added to a WordPiece vocabulary, and finds the pieces of each word in
the old vocabulary."""

# The tensors of a model that have a row for each token. All other tensors are independent of the vocabulary.
TABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


def choose_words(words, tokenizer, count, min_frequency=2):
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
    saved = {}
    for word, occurrences in words.items():
        if occurrences < min_frequency or word in tokenizer.vocab or (
                len(word) > tokenizer.max_input_chars_per_word):
            continue
        saved[word] = occurrences * max(len(tokenizer.tokenize(word)) - 1, 1)
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def find_old_ids(words, tokenizer):
    """Returns, for each word, the list of the ids of its pieces in the old vocabulary.

    Args:
      words: list of str.
      tokenizer: the `tokenization.WordpieceTokenizer` of the old vocabulary.
    """
    return [[tokenizer.vocab[piece] for piece in tokenizer.tokenize(word)] for word in words]


def count_tokens(words, tokenizer):
    """Returns the number of tokens into which a tokenizer splits all words of a text.

    Args:
      words: {word: number of its occurrences in the text}.
      tokenizer: the tokenizer.
    """
    return sum(count * len(tokenizer.tokenize(word)) for word, count in words.items())
