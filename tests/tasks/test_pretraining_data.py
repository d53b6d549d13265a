"""Pre-training data: recorded instances, properties of every instance, streaming, killed runs and bad input.

In the corpus of most tests, each word occurs only once. So a token shows its place in the corpus.
"""

import collections
import gzip
import itertools
import json
import os
import pathlib
import random
import re

from helpers import DATA
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_tokenization import released_vocab

from bertlib.data import tfrecord_files
from bertlib.data.corpus import find_input_files, make_blocks, merge_surveys, read_documents, survey_file
from bertlib.tasks.pretraining import pretraining_stream
from bertlib.tasks.pretraining.pretraining_data import Recipe
import create_pretraining_data
import tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def numbered(*tokens):
    return {token: number for number, token in enumerate(tokens)}


def corpus(documents, sentences, words):
    """Returns `documents` documents with `sentences` sentences of `words` words. All words are different."""
    return [[" ".join(f"d{d}s{s}w{w}" for w in range(words)) for s in range(sentences)]
            for d in range(documents)]


def tokenizer_of(texts, unused=0):
    """Returns a tokenizer of the words in texts. `unused` unused words have smaller ids than these words."""
    unused = [f"[unused{number}]" for number in range(unused)]
    words = sorted({word for document in texts for sentence in document for word in sentence.split()})
    return tokenization.FullTokenizer(numbered(*SPECIAL, *unused, *words))


def write(path, texts):
    text = "\n\n".join("\n".join(document) for document in texts) + "\n"
    path.write_bytes(text.encode())
    return str(path)


DEFAULTS = Recipe()
Instance = collections.namedtuple("Instance", "tokens segment_ids positions labels is_random_next texts")


def without_masks(tokens, positions, labels):
    found = list(tokens)
    for position, label in zip(positions, labels):
        found[position] = label
    return found


def read(paths, tokenizer, has_pairs=True):
    """Returns the instances of files. `texts` are the parts between the special tokens, without masks."""
    found = []
    for record in itertools.chain.from_iterable(map(tfrecord_files.read_records, paths)):
        assert record == tf.train.Example.FromString(record).SerializeToString(deterministic=True)
        row = {name: list(feature.int64_list.value or feature.float_list.value)
               for name, feature in tfrecord_files.parse_features(record).items()}
        length, count = sum(row["input_mask"]), int(sum(row["masked_lm_weights"]))
        for name, values in row.items():  # padding comes last, and is 0
            assert not any(values[count if name.startswith("masked") else length:]), name
        tokens, labels = (tokenizer.convert_ids_to_tokens(ids) for ids in (
            row["input_ids"][:length], row["masked_lm_ids"][:count]))
        positions = row["masked_lm_positions"][:count]
        original = without_masks(tokens, positions, labels)
        assert original[0] == "[CLS]" and original[-1] == "[SEP]"
        texts = [list(group) for is_special, group in itertools.groupby(original[1:], "[SEP]".__eq__)
                 if not is_special]
        first, segment_ids = len(texts[0]) + 2 if has_pairs else length, row["segment_ids"][:length]
        assert segment_ids == [0] * first + [1] * (length - first)
        found.append(Instance(tokens, segment_ids, positions, labels, bool(row["next_sentence_labels"][0]),
                              texts))
    return found


def stream(directory, texts, recipe=DEFAULTS, files=1, name="out", tokenizer=None, **arguments):
    """Writes the data of a corpus with `write_training_data`. Returns (paths, manifest). The arguments may be
    fields of the recipe."""
    recipe = recipe._replace(**{name: arguments.pop(name) for name in Recipe._fields if name in arguments})
    source = write(directory / "corpus.txt", texts)
    paths = [str(directory / f"{name}-{index}") for index in range(files)]
    manifest = pretraining_stream.write_training_data([source], paths, tokenizer or tokenizer_of(texts),
                                                      recipe, **arguments)
    return paths, manifest


def contents(paths):
    return [pathlib.Path(path).read_bytes() for path in paths]


# --- In memory: as published -----------------------------------------------------------------------------


def values(instance):
    return (instance.tokens, instance.segment_ids, instance.masked_lm_positions, instance.masked_lm_labels,
            instance.is_random_next)


@pytest.mark.parametrize("index", [0, 1])
def test_instances_are_the_recorded_ones_and_are_written(index, tmp_path):
    recorded = json.loads(gzip.decompress((DATA / "pretraining_instances.json.gz").read_bytes()))[index]
    tokenizer = tokenization.FullTokenizer(released_vocab())
    length, most = recorded["max_seq_length"], recorded["max_predictions_per_seq"]
    instances = create_pretraining_data.create_training_instances(
        [str(DATA / "pretraining.txt")], tokenizer, length, recorded["dupe_factor"],
        recorded["short_seq_prob"], recorded["masked_lm_prob"], most, random.Random(recorded["rng_seed"]),
        do_whole_word_mask=recorded["do_whole_word_mask"])
    assert [vars(instance) for instance in instances] == recorded["instances"]
    paths = [str(tmp_path / name) for name in "abc"]
    write_files = create_pretraining_data.write_instance_to_example_files
    write_files(instances, tokenizer, length, most, paths)
    for first, path in enumerate(paths):
        assert [instance[:5] for instance in read([path], tokenizer)] == list(
            map(values, instances[first::3]))
    before = contents(paths)
    with pytest.raises(ValueError, match="Field input_ids has .* declared with 4 values"):
        write_files(instances, tokenizer, 4, most, paths)
    assert contents(paths) == before


def test_the_other_document_is_another_one():
    # The published code draws at most ten times. Then it takes the same document as the "random" one.
    for seed in range(300):
        documents = [[["a"]], [["b"]]]
        instance, = create_pretraining_data.create_instances_from_document(
            documents, 0, 8, 0, 0.1, 1, ["c"], Always(seed))
        assert instance.is_random_next and "b" in instance.tokens + instance.masked_lm_labels


class Always(random.Random):
    """A generator whose `randint` always returns the lowest number."""

    def randint(self, low, high):
        return low


def test_features_and_printing():
    assert create_pretraining_data.create_int_feature([1, 2]).int64_list.value == [1, 2]
    assert create_pretraining_data.create_float_feature([0.5]).float_list.value == [0.5]
    instance = create_pretraining_data.TrainingInstance(["[CLS]", "a"], [0, 0], [1], ["b"], True)
    assert str(instance) == repr(instance)
    assert "tokens: [CLS] a\n" in str(instance) and "is_random_next: True\n" in str(instance)


# --- Streamed: what instances are ------------------------------------------------------------------------


def place(token):
    """Returns (document, sentence, word) of a token of `corpus`."""
    return tuple(map(int, token.replace("s", " ").replace("w", " ")[1:].split()))


def assert_stretch(tokens, words):
    """Asserts that tokens follow one another in one document. Returns the number of the document."""
    numbers = [sentence * words + word for _, sentence, word in map(place, tokens)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    document, = {place(token)[0] for token in tokens}
    return document


def test_pairs(tmp_path):
    texts = corpus(30, 9, 7)
    recipe = Recipe(max_seq_length=32, dupe_factor=4, max_predictions_per_seq=4, short_seq_prob=0.2)
    tokenizer = tokenizer_of(texts, unused=16000)  # the ids have one, two and three bytes
    paths, manifest = stream(tmp_path, texts, recipe, tokenizer=tokenizer, shuffle_buffer_documents=12)
    instances = read(paths, tokenizer)
    assert len(instances) == manifest["statistics"]["instances"] > 300
    # Random next sentences come from documents of the same block.
    blocks = list(make_blocks(range(30), 12))
    assert blocks == [list(range(12)), list(range(12, 24)), list(range(24, 30))]
    block_of = {document: index for index, block in enumerate(blocks) for document in block}
    for tokens, _, positions, labels, is_random, (a, b) in instances:
        length = len(tokens)
        assert 5 <= length <= 32 and (length == 32) == (len(a) + len(b) == 29)
        documents = [assert_stretch(text, 7) for text in (a, b)]
        assert is_random == (documents[0] != documents[1])
        assert block_of[documents[0]] == block_of[documents[1]]
        if not is_random:  # between a and b, only tokens that were truncated are missing
            assert place(a[-1]) < place(b[0])
            assert length == 32 or place(b[0])[1] == place(a[-1])[1] + 1
        assert len(positions) == min(4, max(1, round(0.15 * length)))
        assert positions == sorted(set(positions)) and not set(labels) & set(SPECIAL)


@pytest.mark.parametrize("size, short", [(16, 0.0), (38, 0.0), (40, 0.0), (16, 0.5)])
def test_full_sentences(tmp_path, size, short):
    texts = corpus(20, 5, 6)
    texts[7][2] = " ".join(f"d7s2w{word}" for word in range(60))  # longer than an instance
    recipe = Recipe(max_seq_length=size, dupe_factor=2, next_sentence=False, short_seq_prob=short,
                    max_predictions_per_seq=4)
    tokenizer = tokenizer_of(texts)
    paths, manifest = stream(tmp_path, texts, recipe, tokenizer=tokenizer, shuffle_buffer_documents=6)
    instances = read(paths, tokenizer, has_pairs=False)
    words = collections.Counter(word for instance in instances for text in instance.texts for word in text)
    assert words == {word: 2 for document in texts for sentence in document for word in sentence.split()}
    assert manifest["statistics"]["long_sentences"] == 1
    for instance in instances:
        assert not instance.is_random_next and len(instance.tokens) <= size
        for text in instance.texts:
            document, = {place(word)[0] for word in text}
            # The sentences are whole, except the long one.
            assert document == 7 or place(text[0])[2] == 0 and place(text[-1])[2] == 5
    full = sum(len(instance.tokens) > size - 8 for instance in instances)
    assert short or full > 0.8 * len(instances)


def test_what_is_drawn_has_the_distribution_of_the_published_instances(tmp_path):
    texts = corpus(40, 14, 9)
    tokenizer = tokenizer_of(texts)
    recipe = Recipe(max_seq_length=48, dupe_factor=30, max_predictions_per_seq=20, short_seq_prob=0.3,
                    masked_lm_prob=0.2)
    paths, manifest = stream(tmp_path, texts, recipe, tokenizer=tokenizer)

    def samples(instances):
        """Returns a row of numbers for each instance."""
        for tokens, _, positions, labels, is_random, *_ in instances:
            original = without_masks(tokens, positions, labels)
            first = original.index("[SEP]")
            masked = sum(tokens[position] == "[MASK]" for position in positions)
            kept = sum(tokens[position] == original[position] for position in positions)
            yield (1, len(tokens), first, is_random, len(positions), masked / len(positions),
                   kept / len(positions), np.mean(positions) / len(tokens),
                   place(original[1])[2], place(original[first - 1])[2], place(original[first + 1])[1])

    ours = np.array(list(samples(read(paths, tokenizer))))
    theirs = np.array(list(samples(map(values, create_pretraining_data.create_training_instances(
        [str(tmp_path / "corpus.txt")], tokenizer, *recipe[:5], random.Random(5))))))
    assert abs(len(ours) - len(theirs)) < 0.03 * len(theirs) and len(ours) > 4000
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs)) + 1e-12
    assert (abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all(), (ours.mean(0), theirs.mean(0), error)
    counts, sums = manifest["statistics"], ours.sum(axis=0)
    assert [counts[name] for name in ("predictions", "tokens", "random_next")] == sums[[4, 1, 3]].tolist()


class Pieces(tokenization.FullTokenizer):
    """A tokenizer that marks the pieces at the beginning of a word, like SentencePiece."""

    def tokenize(self, text):
        return [piece for word in text.split() for piece in ("▁" + word[:3], *word[3:])]

    def continues_word(self, token):
        return not token.startswith("▁")


@pytest.mark.parametrize("words, tokenizer", [
    ("cat dogs cate catse dogest", tokenization.FullTokenizer(numbered(
        *SPECIAL, "cat", "##s", "##e", "##t", "dog"))),
    ("cat cats cate catse catest", Pieces(numbered(*SPECIAL, "▁cat", "s", "e", "t")))])
def test_whole_words_are_masked(tmp_path, words, tokenizer):
    rng = random.Random(3)
    texts = [[" ".join(rng.choices(words.split(), k=12)) for _ in range(6)] for _ in range(30)]
    recipe = Recipe(max_seq_length=40, dupe_factor=4, max_predictions_per_seq=8, do_whole_word_mask=True,
                    masked_lm_prob=0.2)
    paths, _ = stream(tmp_path, texts, recipe, tokenizer=tokenizer)
    several = full = 0
    for instance in read(paths, tokenizer):
        places = []  # a list of positions for each word
        for position, token in enumerate(without_masks(
                instance.tokens, instance.positions, instance.labels)):
            if token not in SPECIAL:
                if places and tokenizer.continues_word(token):
                    places[-1].append(position)
                else:
                    places.append([position])
        chosen = set(instance.positions)
        for word in places:
            assert chosen.isdisjoint(word) or chosen.issuperset(word)
            several += len(word) > 1 and chosen.issuperset(word)
        # A word is left out only if it has more pieces than may still be masked.
        left = min(8, round(0.2 * len(instance.tokens))) - len(chosen)
        assert left >= 0
        assert not left or all(len(word) > left for word in places if chosen.isdisjoint(word))
        full += not left
    assert several > 100 and full > 100


# --- Streamed: blocks, processes, killing ----------------------------------------------------------------


def test_documents_are_read_as_they_are_needed():
    taken = []
    blocks = make_blocks((taken.append(i) or i for i in range(1000)), 10)
    assert next(blocks) == list(range(10)) and len(taken) == 12


def stream_until_killed(blocks, monkeypatch, *arguments, **more):
    """Calls `stream`, and stops it after some blocks. The files then contain a part of the next block."""
    append = pretraining_stream._Output.append

    def die(output, *block):
        if output.done == blocks:
            for path in output._paths:
                with open(path + ".partial", "ab") as writer:
                    writer.write(b"half a record")
            raise KeyboardInterrupt
        append(output, *block)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining_stream._Output, "append", die)
        with pytest.raises(KeyboardInterrupt):
            stream(*arguments, **more)


def test_a_run_that_was_killed_goes_on(tmp_path, monkeypatch):
    texts, recipe = corpus(30, 4, 5), Recipe(max_seq_length=32, dupe_factor=2)
    arguments = {"files": 2, "shuffle_buffer_documents": 5}
    expected, _ = stream(tmp_path, texts, recipe, name="whole", **arguments)
    append = pretraining_stream._Output.append
    stream_until_killed(3, monkeypatch, tmp_path, texts, recipe, **arguments)
    assert sorted(os.listdir(tmp_path)) == sorted([
        "corpus.txt", "out-0.manifest.json", "out-0.partial", "out-1.partial", "whole-0",
        "whole-0.manifest.json", "whole-1"])
    with pytest.raises(ValueError, match="random_seed was 12345 and is now 1"):
        stream(tmp_path, texts, recipe, random_seed=1, **arguments)
    made = []
    monkeypatch.setattr(pretraining_stream._Output, "append", lambda output, *block: made.append(1)
                        or append(output, *block))
    paths, manifest = stream(tmp_path, texts, recipe, num_workers=2, **arguments)
    assert len(made) == manifest["blocks"] - 3 == 3
    assert contents(paths) == contents(expected)
    whole = json.loads((tmp_path / "whole-0.manifest.json").read_text())
    assert whole["statistics"] == manifest["statistics"]
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]

    # All data are complete. The same run notices this, even if it was killed while it renamed the files.
    os.rename(paths[1], paths[1] + ".partial")
    before = os.stat(paths[0]).st_mtime_ns
    assert stream(tmp_path, texts, recipe, **arguments) == (paths, manifest)
    assert os.stat(paths[0]).st_mtime_ns == before and len(made) == 3
    # A file that was removed is written again.
    os.remove(paths[1])
    stream(tmp_path, texts, recipe, **arguments)
    assert contents(paths) == contents(expected) and len(made) == 9
    with open(paths[0], "ab") as writer:
        writer.write(b"more")
    stream(tmp_path, texts, recipe, **arguments)
    assert contents(paths) == contents(expected)


def test_another_run_or_a_damaged_manifest_is_refused(tmp_path):
    texts = corpus(6, 3, 4)
    paths, manifest = stream(tmp_path, texts, max_seq_length=32, tokenizer_settings={"do_lower_case": True})
    before = contents(paths)

    def refused(match, texts=texts, length=32, files=1, changed=None, **arguments):
        (tmp_path / "out-0.manifest.json").write_text(json.dumps({**manifest, **(changed or {})}))
        with pytest.raises(ValueError, match=match):
            stream(tmp_path, texts, files=files, max_seq_length=length,
                   **{"tokenizer_settings": {"do_lower_case": True}, **arguments})

    refused("max_seq_length was 32 and is now 16", length=16)
    refused("do_lower_case was True and is now False", tokenizer_settings={"do_lower_case": False})
    refused("the input had 6 documents with 18 sentences", texts=[*texts[1:], texts[0]])
    refused(r"the output files were out-0\. .* remove", files=2)
    refused("vocabulary was", tokenizer=tokenizer_of([*texts, ["more"]]))
    refused("out-0.manifest.json is damaged: .* Remove this file", changed={"sizes": ["1"]})
    refused("the number of blocks was 3 and is now 1", changed={"blocks": 3})
    assert contents(paths) == before


# --- Reading ---------------------------------------------------------------------------------------------


def documents_of(path):
    return list(read_documents(str(path), tokenizer_of([["one two three"]])))


@pytest.mark.parametrize("text", [
    "one\ntwo\n\nthree\n", "one\ntwo\n\nthree", "\n\n one \r\ntwo\t\n \n\n\nthree\n\n",
    "\ufeff\none\ntwo\n\u200b\n\nthree", "one\n\ufffd\ntwo\n\n\x07\n\nthree\n"])
@pytest.mark.parametrize("suffix", [".txt", ".gz"])
def test_documents(tmp_path, text, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix == ".gz" else text.encode())
    assert documents_of(path) == [["one", "two"], ["three"]]


def test_a_file_ends_a_document_in_the_stream(tmp_path):
    paths = [write(tmp_path / name, [[word]]) for name, word in (("a", "one"), ("b", "two"))]
    tokenizer = tokenizer_of([["one two"]])
    assert merge_surveys(paths, [survey_file(path, tokenizer) for path in paths])[:2] == (2, 2)
    # In memory, as in the published code, only a blank line ends a document.
    paths.append(write(tmp_path / "c", [["one", "two"]]))
    instances = [create_pretraining_data.create_training_instances(
        given, tokenizer, 8, 20, 0, 0.1, 1, random.Random(1)) for given in (paths[:2], paths[2:])]
    assert list(map(values, instances[0])) == list(map(values, instances[1]))


def test_input_files(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "[1].txt", "c.gz"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_input_files(["*.txt", "c.gz", "a.txt"]) == ["[1].txt", "a.txt", "b.txt", "c.gz"]
    assert find_input_files(["[1].txt"]) == ["[1].txt"]
    with pytest.raises(FileNotFoundError, match="--input_file=d\\*: there is no such file"):
        find_input_files(["a.txt", "d*"])
    with pytest.raises(IsADirectoryError, match="is a directory. Name the files in this directory"):
        find_input_files([str(tmp_path)])


@pytest.mark.parametrize("name, content, complaint", [
    ("text", b"one\ntwo \xe9\n", "text, line 2: byte 5 of this line, 0xe9, is not UTF-8"),
    ("text.gz", b"one\n", "text.gz is not a gzip file, or is damaged"),
    ("text.gz", gzip.compress(b"one two three\n" * 9, mtime=0)[:-12],
     "text.gz is truncated: the end of its compressed content is missing"),
    ("text", b"\n \n\xe2\x80\x8b\n", "text: the input files contain no text"),
    ("text", b"one\ntwo\n", "only one document, .* pass --next_sentence=false")])
def test_bad_text(tmp_path, name, content, complaint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        pretraining_stream.write_training_data([str(tmp_path / name)], [str(tmp_path / "out")],
                                               tokenizer_of([["one two"]]), Recipe())
    assert os.listdir(tmp_path) == [name]


def test_one_document_makes_full_sentences(tmp_path):
    paths, _ = stream(tmp_path, corpus(1, 4, 5), Recipe(next_sentence=False, dupe_factor=1), files=3)
    instance, = read(paths, tokenizer_of(corpus(1, 4, 5)), has_pairs=False)
    assert len(instance.tokens) == 22


def test_output_that_cannot_be_written(tmp_path):
    source, file = write(tmp_path / "corpus", corpus(3, 2, 2)), write(tmp_path / "file", [])
    before = contents([source, file])

    def fails(error, complaint, *outputs):
        with pytest.raises(error, match=complaint):
            pretraining_stream.write_training_data([source], list(outputs), tokenizer_of([["one"]]), Recipe())

    fails(NotADirectoryError, "file", file + "/out")
    fails(IsADirectoryError, "is a directory. Name a file", str(tmp_path))
    fails(ValueError, "named twice", file, file)
    fails(ValueError, "is also an input file", source)
    fails(ValueError, "is not a local file", "gs://bucket/file")
    if os.getuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        fails(PermissionError, "closed", str(tmp_path / "closed" / "out"))
    assert contents([source, file]) == before


# --- The script ------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    """The working directory of the script, with a corpus of 60 documents and its vocabulary."""
    texts = corpus(60, 6, 6)
    write(tmp_path / "corpus.txt", texts)
    words = "\n".join(tokenizer_of(texts).vocab) + "\n"
    (tmp_path / "vocab.txt").write_text(words)
    (tmp_path / "no_mask.txt").write_text(words.replace("[MASK]", "[UNUSED]"))
    return tmp_path


def test_script(scripts, files):
    write(files / "more.txt", [[sentence] for sentence in itertools.chain(*corpus(60, 6, 6))])
    flags = ["--input_file=corpus.txt, mor*.txt", "--output_file=a,b", "--vocab_file=vocab.txt",
             "--max_seq_length=32", "--dupe_factor=2", "--max_predictions_per_seq=4"]
    done = scripts.run("create_pretraining_data.py", *flags, cwd=files)
    done.assert_success("more.txt: 360 of its 360 documents have only one sentence")
    assert "corpus.txt:" not in done.err
    assert re.search("--max_predictions_per_seq=4 is too low for --masked_lm_prob=0.15.* To mask all of "
                     "them, pass --max_predictions_per_seq=5", done.err)
    for said in ("420 documents, 720 sentences", "instances 1,000,", "[CLS]"):
        assert said in done.err
    written = contents([files / "a", files / "b"])
    assert all(written)
    again = scripts.run("create_pretraining_data.py", *flags, "--num_workers=2", cwd=files)
    again.assert_success("1 of 1 blocks are already written")
    assert contents([files / "a", files / "b"]) == written


@pytest.mark.parametrize("flags, complaint", [
    (dict(input_file=None), "--input_file is required"),
    (dict(output_file=None), "--output_file is required"),
    (dict(vocab_file="no_mask.txt"), "txt has no entry [MASK]")])
def test_script_says_what_is_wrong(run_script, files, flags, complaint):
    given = {"input_file": "corpus.txt", "output_file": "a", "vocab_file": "vocab.txt", **flags}
    run_script("create_pretraining_data.py", **given).assert_refused(complaint)
    assert sorted(os.listdir(files)) == ["corpus.txt", "no_mask.txt", "vocab.txt"]
