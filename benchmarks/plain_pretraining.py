"""A plain implementation of the published algorithm for pre-training data.

`benchmarks/pretraining_data.py` measures its speed. Tokens are strings, each pass is a loop, all text and all
instances are in memory, and TensorFlow serializes the instances. An instance is the tuple (tokens,
segment_ids, positions, labels, is_random_next).
"""

import tensorflow.compat.v1 as tf

import tokenization


class PlainTokenizer(tokenization.FullTokenizer):
    """A tokenizer without a cache."""

    tokenize = tokenization.FullTokenizer.tokenize_plainly


def read_documents(paths, tokenizer):
    documents = [[]]
    for path in paths:
        with open(path, encoding="utf-8") as reader:
            for line in reader:
                line = line.strip()
                if not line:
                    documents.append([])
                tokens = tokenizer.tokenize(line)
                if tokens:
                    documents[-1].append(tokens)
    return [document for document in documents if document]


def create_instances(paths, tokenizer, rng, length=128, dupes=10, short=0.1, share=0.15, most=20,
                     whole_words=False):
    """Returns the instances of text files.

    The arguments after `rng` are those of `pretraining_data.Recipe`, in the same order.
    """
    documents = read_documents(paths, tokenizer)
    words = list(tokenizer.vocab)
    rng.shuffle(documents)
    instances = []
    for _ in range(dupes):
        for index in range(len(documents)):
            for tokens, segment_ids, is_random in pairs(documents, index, length, short, rng):
                masked = mask(tokens, share, most, words, rng, whole_words)
                instances.append((masked[0], segment_ids, masked[1], masked[2], is_random))
    rng.shuffle(instances)
    return instances


def pairs(documents, index, length, short, rng):
    """Yields (tokens, segment_ids, is_random_next) for the pairs of a document.

    Each pair is yielded before the next random number is drawn. So the caller can draw numbers in between.
    """
    document = documents[index]
    room = length - 3
    target = room
    if rng.random() < short:
        target = rng.randint(2, room)
    chunk, size, i = [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        if i == len(document) - 1 or size >= target:
            split = 1
            if len(chunk) >= 2:
                split = rng.randint(1, len(chunk) - 1)
            first = [token for sentence in chunk[:split] for token in sentence]
            if len(chunk) == 1 or rng.random() < 0.5:
                is_random = True
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                second = []
                for sentence in documents[other][rng.randint(0, len(documents[other]) - 1):]:
                    second.extend(sentence)
                    if len(second) >= target - len(first):
                        break
                i -= len(chunk) - split
            else:
                is_random = False
                second = [token for sentence in chunk[split:] for token in sentence]
            while len(first) + len(second) > room:
                longer = first if len(first) > len(second) else second
                if rng.random() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            tokens, segment_ids = [], []
            for segment, part in enumerate((["[CLS]"] + first + ["[SEP]"], second + ["[SEP]"])):
                for token in part:
                    tokens.append(token)
                    segment_ids.append(segment)
            yield tokens, segment_ids, is_random
            chunk, size = [], 0
        i += 1


def mask(tokens, share, most, words, rng, whole_words):
    candidates = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_words and candidates and token.startswith("##"):
            candidates[-1].append(position)
        else:
            candidates.append([position])
    rng.shuffle(candidates)
    count = min(most, max(1, int(round(len(tokens) * share))))
    output, chosen = list(tokens), []
    for word in candidates:
        if len(chosen) >= count:
            break
        if len(chosen) + len(word) > count:
            continue
        for position in word:
            if rng.random() < 0.8:
                output[position] = "[MASK]"
            elif rng.random() >= 0.5:
                output[position] = words[rng.randint(0, len(words) - 1)]
            chosen.append((position, tokens[position]))
    chosen.sort()
    return output, [position for position, _ in chosen], [token for _, token in chosen]


def write(instances, tokenizer, length, most, paths):
    """Writes instances to TFRecord files: the first instance to the first file, and so on in turn."""
    writers = [tf.python_io.TFRecordWriter(path) for path in paths]
    for index, instance in enumerate(instances):
        writers[index % len(writers)].write(serialize(instance, tokenizer, length, most))
    for writer in writers:
        writer.close()


def serialize(instance, tokenizer, length, most):
    tokens, segment_ids, positions, labels, is_random = instance

    def ints(values, size):
        return tf.train.Feature(
            int64_list=tf.train.Int64List(value=list(values) + [0] * (size - len(values))))

    weights = [1.0] * len(positions) + [0.0] * (most - len(positions))
    features = {
        "input_ids": ints(tokenizer.convert_tokens_to_ids(tokens), length),
        "input_mask": ints([1] * len(tokens), length),
        "segment_ids": ints(segment_ids, length),
        "masked_lm_positions": ints(positions, most),
        "masked_lm_ids": ints(tokenizer.convert_tokens_to_ids(labels), most),
        "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=weights)),
        "next_sentence_labels": ints([1 if is_random else 0], 1),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)
