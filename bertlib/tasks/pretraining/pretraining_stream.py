"""Makes pre-training records from any amount of text, in several processes. Killed runs can be continued.

    documents → blocks of documents --workers--> records of each block → output files and their manifest

The instances have the same distribution as those of `create_pretraining_data.create_training_instances`, but
the random choices are different. This module computes many instances at once, as arrays of ids. Worker
processes import this module, so the import does not load TensorFlow.
"""

import collections
import contextlib
import itertools
import os
import random
import shutil

from absl import logging
import numpy as np

from bertlib.data import corpus, example_encoding, tfrecord_files, tfrecord_manifests, unknown_tokens
from bertlib.system import files, fingerprints, locks, workers
from bertlib.tasks.pretraining import pretraining_data

# Number of instances that are masked at once. If this number is changed, the random choices change, too.
_BATCH = 512
# Sort key for positions at which no word starts. This key is larger than all other keys, so these positions
# come after all words.
_NO_WORD = 1 << 48


# --- Blocks ----------------------------------------------------------------------------------------------


class _BlockMaker:
    """Makes the records of a block.

    For one block, this class does the same work as `create_training_instances` and
    `write_instance_to_example_files` of `create_pretraining_data`. One array contains the ids of all tokens
    of the block. A sentence is a range of this array.
    """

    def __init__(self, tokenizer, recipe):
        self._tokenizer, self._recipe = tokenizer, recipe
        self._to_ids = tokenizer.convert_tokens_to_ids
        words, continues = list(tokenizer.vocab), pretraining_data.continuation_function(tokenizer)
        self._word_ids = np.array(self._to_ids(words), np.int32)
        self._cls, self._sep, self._mask = self._to_ids(["[CLS]", "[SEP]", "[MASK]"])
        by_id = np.zeros((2, self._word_ids.max() + 1), bool)
        self._is_special, self._continues = by_id
        self._is_special[[self._cls, self._sep]] = True
        if recipe.do_whole_word_mask:
            self._continues[self._word_ids] = list(map(continues, words))
        self._fields = pretraining_data.feature_fields(recipe.max_seq_length, recipe.max_predictions_per_seq)

    def __call__(self, block):
        """Returns (records, statistics). The argument `block` is a pair: the index of the block, and its
        documents."""
        index, texts = block
        recipe = self._recipe
        rng = random.Random(f"{recipe.random_seed}/{index}")
        tokens, documents = self._tokenize(texts)
        rng.shuffle(documents)
        lengths = [len(sentence) for document in documents for sentence in document]
        longest = recipe.max_seq_length - (3 if recipe.next_sentence else 2)
        statistics = collections.Counter(documents=len(documents), sentences=len(lengths),
                                         long_sentences=sum(length > longest for length in lengths))
        records = []
        spans = self._spans(documents, rng)
        while batch := list(itertools.islice(spans, _BATCH)):
            records += self._records(tokens, batch, rng, statistics)
        rng.shuffle(records)
        return records, statistics

    def _tokenize(self, texts):
        """Tokenizes the documents of a block.

        Returns:
          (ids, documents). `ids` is an int32 array: first the id of [SEP], then the ids of all tokens.
          `documents` is a list with a list for each document. This list contains a `range` for each sentence
          of the document: the indices of the sentence's tokens in `ids`.
        """
        ids, documents = [self._sep], []
        for text in texts:
            documents.append([])
            for sentence in text:
                start = len(ids)
                ids += self._to_ids(self._tokenizer.tokenize(sentence))
                documents[-1].append(range(start, len(ids)))
        return np.array(ids, np.int32), documents

    def _spans(self, documents, rng):
        """Yields ([start, stop, …], is_random_next) for each instance.

        The list contains two numbers for each text of the instance: the index of the text's first token, and
        the index after its last token. The two texts of a pair may be longer than an instance allows. In this
        case, `_truncate` shortens them later.
        """
        recipe = self._recipe
        for _ in range(recipe.dupe_factor):
            if not recipe.next_sentence:
                for texts in pretraining_data.full_sentences(documents, recipe.max_seq_length - 2,
                                                             recipe.short_seq_prob, rng):
                    yield [end for text in texts for end in (text[0].start, text[-1].stop)], False
                continue
            for index in range(len(documents)):
                for a, b, is_random_next in pretraining_data.sentence_pairs(
                        documents, index, recipe.max_seq_length - 3, recipe.short_seq_prob, rng):
                    yield [a[0].start, a[-1].stop, b[0].start, b[-1].stop], is_random_next

    def _records(self, tokens, batch, rng, statistics):
        """Returns the records of a batch of instances, and adds the counts of the batch to `statistics`.

        Args:
          tokens: (int32 array of ids, list with the `range`s of the sentences of each document).
          batch: list of the pairs that `_spans` yields.
          rng: a `random.Random`.
          statistics: collections.Counter.
        """
        recipe = self._recipe
        batch, is_random_next = zip(*batch)
        texts = np.array([len(spans) // 2 for spans in batch])
        spans = np.array(list(itertools.chain.from_iterable(batch))).reshape(-1, 2)
        if recipe.next_sentence:
            _truncate(spans.reshape(-1, 2, 2), recipe.max_seq_length - 3, rng)
        lengths = spans[:, 1] - spans[:, 0]
        ends = np.cumsum(texts)
        # The number of tokens of each instance: the tokens of its texts, a [SEP] after each text, and [CLS].
        totals = np.add.reduceat(lengths + 1, ends - texts) + 1
        present = np.arange(recipe.max_seq_length) < totals[:, None]  # [instances, max_seq_length]
        ids = np.zeros(present.shape, np.int32)
        ids[:, 0] = self._cls
        # The token at index 0 of `tokens` is [SEP]. It is copied after each text.
        starts = np.stack([spans[:, 0], np.zeros_like(lengths)], 1).reshape(-1)
        sizes = np.stack([lengths, np.ones_like(lengths)], 1).reshape(-1)
        ids[:, 1:][present[:, 1:]] = tokens[_ranges(starts, sizes)]
        rows, positions = np.nonzero(self._choose(ids, present, totals, rng))
        labels = ids[rows, positions]
        chance = _random_numbers(rng, len(rows))
        ids[rows, positions] = np.where(
            chance < 0.8 * 2**32, self._mask, np.where(
                chance < 0.9 * 2**32, labels,
                self._word_ids[_random_numbers(rng, len(rows)) % len(self._word_ids)]))
        predictions = np.bincount(rows, minlength=len(batch))
        is_prediction = np.arange(recipe.max_predictions_per_seq) < predictions[:, None]
        padded = np.zeros((2, *is_prediction.shape), int)
        padded[:, is_prediction] = positions, labels

        statistics.update(instances=len(batch), random_next=sum(is_random_next), tokens=int(totals.sum()),
                          predictions=len(rows))
        is_second = np.zeros_like(present)
        if recipe.next_sentence:
            is_second = present & (np.arange(recipe.max_seq_length) >= (lengths[::2] + 2)[:, None])
        columns = {"input_ids": ids, "input_mask": present, "segment_ids": is_second,
                   "masked_lm_positions": padded[0], "masked_lm_ids": padded[1],
                   "masked_lm_weights": is_prediction,
                   "next_sentence_labels": np.array(is_random_next)[:, None]}
        rows = zip(*[column.astype(int).tolist() for column in columns.values()])
        return [example_encoding.encode_example(self._fields, dict(zip(columns, row))) for row in rows]

    def _choose(self, ids, present, totals, rng):
        """Chooses the tokens that the model learns to predict, by the rules of
        `create_masked_lm_predictions`. Returns a bool array [instances, length].

        Args:
          ids: int32 [instances, length].
          present: bool [instances, length], False for padding.
          totals: int [instances], the number of tokens of each instance.
          rng: a `random.Random`.
        """
        recipe = self._recipe
        wanted = np.minimum(np.maximum(np.rint(totals * recipe.masked_lm_prob).astype(int), 1),
                            recipe.max_predictions_per_seq)
        candidates = present & ~self._is_special[ids]
        # Words are chosen in the order of their keys. The upper bits of a key are a random number. The lowest
        # 16 bits are the position of the word, so that no two keys of an instance are equal.
        random_numbers = _random_numbers(rng, ids.size).reshape(ids.shape).astype(np.int64)
        keys = random_numbers << 16 | np.arange(ids.shape[1])
        everyone = np.arange(len(ids))
        # Without do_whole_word_mask, no token continues a word, so each token is a word.
        starts = candidates & ~self._continues[ids]
        # The first candidate of an instance may be in the middle of a word, for example because the start of
        # the word was truncated. So the first candidate always counts as the start of a word.
        starts[everyone, candidates.argmax(1)] |= candidates.any(1)
        keys[~starts] = _NO_WORD
        word = np.cumsum(starts).reshape(ids.shape) - 1  # index of the word among the words of all instances
        sizes = np.bincount(word[candidates], minlength=1)
        taken, count = np.zeros(len(sizes), bool), np.zeros(len(ids), int)
        for key in np.sort(keys).T:
            is_word = key < _NO_WORD
            if not is_word.any() or (count == wanted).all():
                break
            words = word[everyone, key & 0xFFFF]
            fits = is_word & (count + sizes[words] <= wanted)
            count += fits * sizes[words]
            taken[words[fits]] = True
        return candidates & taken[word]


def _truncate(spans, room, rng):
    """Truncates many pairs at once, in the same way as `truncate_seq_pair`.

    Args:
      spans: int array [instances, 2, 2] with the start and the stop of both texts of each pair. The array is
        changed in place.
      room: largest number of tokens in both texts together.
      rng: a `random.Random`. Each time a token is removed from a text, a random bit decides whether this is
        the first or the last token of the text.
    """
    a, b = np.diff(spans)[..., 0].T
    excess = np.maximum(a + b - room, 0)
    from_longer = np.minimum(excess, abs(a - b))
    rest = excess - from_longer
    cuts = np.stack([(a > b) * from_longer + rest // 2, (a <= b) * from_longer + (rest + 1) // 2], 1)
    fronts = np.array([rng.getrandbits(cut).bit_count()
                       for cut in cuts.reshape(-1).tolist()]).reshape(cuts.shape)
    spans[..., 0] += fronts
    spans[..., 1] -= cuts - fronts


def _ranges(starts, lengths):
    """Returns an int array with all integers of several ranges, one range after the other. `starts` and
    `lengths` contain the first integer and the length of each range. For example, the starts [3, 8] and the
    lengths [2, 3] give [3, 4, 8, 9, 10]."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


def _random_numbers(rng, count):
    """Returns `count` random numbers below 2**32, uint32."""
    return np.frombuffer(rng.randbytes(4 * count), "<u4")


# --- Writing ---------------------------------------------------------------------------------------------


def write_training_data(input_files, output_files, tokenizer, recipe, num_workers=1, tokenizer_settings=None,
                        cluster=None, vocabulary=None):
    """Writes pre-training data from any amount of text. If a run with the same arguments was killed,
    continues that run.

    The text is cut into blocks of documents. Each block is processed separately, in the same way as
    `create_pretraining_data.create_training_instances` processes the whole text. Documents and instances are
    shuffled within the block, and random next sentences come from documents of the block. The instances are
    written in the order of the blocks. As in the published code, they are written to the output files in
    turn, so all files grow at the same time. Until the files are complete, their names end in ".partial".
    After each block, the sizes of the files are stored in the manifest. If the run is killed, the next run
    truncates the files to these sizes and continues. The output files are locked during the run.

    Args:
      input_files: list of paths, see `corpus.find_input_files`.
      output_files: list of paths. Without a cluster, they must be local. The manifest is a JSON file in the
        directory of the first output file.
      tokenizer: a `tokenization.FullTokenizer`, or another tokenizer that can be pickled.
      recipe: a `pretraining_data.Recipe`. The output depends only on the input, the tokenizer and the recipe.
      num_workers: number of processes; 0 for one process per core. The output does not depend on this number.
      tokenizer_settings: {name: value} of all settings of the tokenizer except the vocabulary. The settings
        are stored in the manifest, so that a later run can detect a change.
      cluster: a `pretraining_beam.BeamRunner` whose workers do the work; None for processes of this machine.
        The output is the same with and without a cluster. If a run on a cluster is killed, the next run
        starts again from the beginning.
      vocabulary: a dict that describes the vocabulary file. It is stored in the manifest and does not change
        the output files.

    Returns:
      the manifest: {"statistics": {name: count}, "documents": …}.

    Raises:
      ValueError: there is no text; or there is only one document, but recipe.next_sentence is true; or the
        manifest of an earlier run exists, and its settings or its input differ from those of this run.
      OSError: a file cannot be read or written. If another process is writing an output file, the error is a
        locks.InUseError.
    """
    _check_output_files(input_files, output_files, remote=cluster is not None)
    with contextlib.ExitStack() as stack:
        for path in output_files:
            stack.enter_context(locks.lock_file(path))
        return _write_locked(input_files, output_files, tokenizer, recipe, num_workers, tokenizer_settings,
                             cluster, vocabulary)


def _write_locked(input_files, output_files, tokenizer, recipe, num_workers, tokenizer_settings, cluster,
                  vocabulary):
    """Does the work of `write_training_data`. The caller has already locked the output files."""
    if cluster:
        surveys = cluster.survey(input_files, tokenizer, files.resolve_links(output_files[0]))
    else:
        surveys = [corpus.survey_file(path, tokenizer) for path in input_files]
    text = corpus.merge_surveys(input_files, surveys)
    if recipe.next_sentence and text.documents == 1:
        raise ValueError(f"{', '.join(input_files)}: the input has only one document, so a random next "
                         "sentence cannot be taken from another document. Put blank lines between documents, "
                         "or pass --next_sentence=false.")
    unknown_tokens.warn_if_many({"the input files": corpus.sample_lines(input_files, unknown_tokens.SAMPLE)},
                                lambda line: [line], tokenizer)
    size = recipe.shuffle_buffer_documents
    blocks = corpus.count_blocks(text.documents, size)
    logging.info("Input: %d files, %d documents, %d sentences; %d blocks of at most %d documents.",
                 len(input_files), text.documents, text.sentences, blocks, min(text.documents, size + 1))
    settings = {**recipe._asdict(), "vocabulary": fingerprints.hash_tokens(tokenizer.vocab),
                **(tokenizer_settings or {})}
    output = _Output(output_files, {"settings": settings, **text._asdict(), "blocks": blocks}, vocabulary)
    make_block = _BlockMaker(tokenizer, recipe)
    if output.done < blocks and cluster:
        with contextlib.closing(cluster.make_blocks(
                input_files, [survey.documents for survey in surveys], tokenizer, make_block, size,
                files.resolve_links(output_files[0]))) as results:
            output.write_all(results)
    elif output.done < blocks:
        documents = itertools.chain.from_iterable(corpus.read_documents(path, tokenizer)
                                                  for path in input_files)
        rest = itertools.islice(enumerate(corpus.make_blocks(documents, size)), output.done, None)
        results = workers.ordered_map(make_block, rest,
                                      min(num_workers or workers.available_cores(), blocks - output.done),
                                      chunk_size=1)
        with contextlib.closing(results):
            left = blocks - output.done
            for records, statistics in files.with_progress(results, left, "Making block", max(1, left // 20)):
                if not output.done:
                    for record in records[:pretraining_data.LOGGED_INSTANCES]:
                        _log(record, tokenizer)
                output.append(records, statistics)
    return output.finish()


def _log(record, tokenizer):
    """Logs the tokens of an instance, and the tokens to predict."""
    features = {name: feature.int64_list.value
                for name, feature in tfrecord_files.parse_features(record).items()}
    logging.info("Instance: %s; to predict: %s", *(" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (
        features["input_ids"][:sum(features["input_mask"])], filter(None, features["masked_lm_ids"]))))


def _check_output_files(input_files, output_files, remote):
    """Raises an error if an output file cannot be written.

    Args:
      input_files, output_files: lists of paths.
      remote: whether output files may be on remote file systems.
    """
    named = collections.Counter(map(files.file_identity, [*input_files, *output_files]))
    for path in output_files:
        if files.is_remote(path) and not remote:
            raise ValueError(f"Output file {path} is not a local file. Output is written in parts, which "
                             "is possible only for local files. Name a local file, and copy it afterwards.")
        if named[files.file_identity(path)] > 1:
            raise ValueError(f"Output file {path} is named twice, or is also an input file. Name another "
                             "file.")
        if files.is_directory(path):
            raise IsADirectoryError(f"Output file {path} is a directory. Name a file.")
        if files.is_special(path):
            raise ValueError(f"Output file {path} is a device or a FIFO. Name a regular file: output is "
                             "written in parts, so that a killed run can be continued.")
        files.make_parent(path)


class _Output:
    """The unfinished output files, and their manifest.

    The manifest is replaced after each block, when all records of the block have been written. If a run is
    killed while it writes the next block, the following run truncates the files to the sizes in the manifest.
    """

    def __init__(self, paths, manifest, vocabulary=None):
        """Continues the files of a killed run, or starts new files.

        Args:
          paths: list of the output files.
          manifest: {"settings": {name: value}, "blocks": number of blocks, …}, a dict of all values on which
            the output depends.
          vocabulary: a dict that is added to the manifest, or None; see `write_training_data`.
        """
        self._paths, self._partial = paths, list(map(tfrecord_manifests.partial_path, paths))
        added = {"vocabulary": vocabulary} if vocabulary else {}
        self._manifest_path = files.path_beside(paths[0], tfrecord_manifests.SUFFIX)
        self._manifest = {**manifest, "files": [os.path.basename(path) for path in paths], "blocks_done": 0,
                          "sizes": [0] * len(paths), "statistics": {}, **added}
        if files.exists(self._manifest_path):
            stored = self._read_manifest()
            self._check_same(stored)
            complete = stored["blocks_done"] == stored["blocks"]
            if all(_has_bytes(*sizes, complete) for sizes in zip(paths, self._partial, stored["sizes"])):
                self._manifest = {**stored, **added}
                logging.info("%s: %d of %d blocks are already written.", self._manifest_path, self.done,
                             stored["blocks"])
                for partial, size in zip(self._partial, stored["sizes"]):
                    if files.exists(partial) and not files.is_remote(partial):
                        os.truncate(partial, size)
                return
            logging.warning("The output files differ from the description in %s. They are written again from "
                            "the beginning.", self._manifest_path)
        for partial in self._partial:
            with files.open_file(partial, "wb"):
                pass

    @property
    def done(self):
        """Number of blocks that are already written."""
        return self._manifest["blocks_done"]

    def _read_manifest(self):
        """Returns the manifest that the previous run wrote, a dict.

        Raises:
          ValueError: the file does not have the form of a manifest.
        """
        with contextlib.suppress(ValueError):
            stored = files.read_json_object(self._manifest_path)
            if files.has_form(stored, tfrecord_manifests.FORM):
                return stored
        raise ValueError(f"{self._manifest_path} is damaged: it does not have the form of a manifest. "
                         "Remove this file to write all output files again, or name other output files.")

    def _check_same(self, stored):
        """Raises a ValueError if the settings, the output files or the input of this run differ from those in
        the stored manifest."""
        settings = stored["settings"]
        changed = [f"{name} was {settings.get(name)!r} and is now {value!r}"
                   for name, value in self._manifest["settings"].items() if settings.get(name) != value]
        if stored["files"] != self._manifest["files"]:
            changed.append(f"the output files were {', '.join(map(str, stored['files']))}")
        if stored["fingerprint"] != self._manifest["fingerprint"]:
            changed.append(f"the input had {stored['documents']} documents with {stored['sentences']} "
                           "sentences, and the text has changed")
        if not changed and stored["blocks"] != self._manifest["blocks"]:
            changed.append(f"the number of blocks was {stored['blocks']} and is now "
                           f"{self._manifest['blocks']}")
        if changed:
            raise ValueError(f"{self._paths[0]} is the complete or unfinished output of another run: "
                             f"{'; '.join(changed)}. Name other output files, or remove "
                             f"{self._manifest_path} to write these files again.")

    def append(self, records, statistics):
        """Adds the records of the next block."""
        total = collections.Counter(self._manifest["statistics"])
        first, sizes = total["instances"], []
        for index, (path, partial) in enumerate(zip(self._paths, self._partial)):
            with files.translate_disk_errors(path):
                sizes.append(_append(partial, records[(index - first) % len(self._paths)::len(self._paths)]))
        total.update(statistics)
        self._write_manifest(self.done + 1, sizes, total)

    def write_all(self, blocks):
        """Writes the records of all blocks. Earlier records in the partial files are replaced.

        Args:
          blocks: iterable of (records, statistics), one for each block.
        """
        total = collections.Counter()
        with files.translate_disk_errors(self._paths[0]), contextlib.ExitStack() as stack:
            writers = itertools.cycle([stack.enter_context(tfrecord_files.open_writer(path))
                                       for path in self._partial])
            for records, statistics in blocks:
                total.update(statistics)
                for record, writer in zip(records, writers):
                    writer.write(record)
        self._write_manifest(self._manifest["blocks"], list(map(files.size, self._partial)), total)

    def _write_manifest(self, blocks_done, sizes, statistics):
        self._manifest.update(blocks_done=blocks_done, sizes=sizes, statistics=dict(statistics))
        files.write_json(self._manifest_path, self._manifest)

    def finish(self):
        """Gives the output files their final names; returns the manifest."""
        for path, partial in zip(self._paths, self._partial):
            if files.exists(partial):
                files.move(partial, files.resolve_links(path))
        return self._manifest


def _append(partial, records):
    """Appends serialized records to a partial file. Returns its new size in bytes."""
    block = _block_path(partial)
    try:
        # TensorFlow's writer of records cannot append to a file. So the records are written to a separate
        # file, which is then appended to the partial file.
        with tfrecord_files.open_writer(block) as writer:
            for record in records:
                writer.write(record)
        with open(block, "rb") as source, open(partial, "ab") as target:
            shutil.copyfileobj(source, target)
            return target.tell()
    finally:
        if os.path.exists(block):
            os.remove(block)


def _block_path(partial):
    """Returns the path of the file with the records of the current block; see `_append`."""
    return files.path_beside(partial, ".block")


def list_written_files(output_files):
    """Returns the paths of the files that `write_training_data` writes: the output files, the file with the
    current block of each of them, and the manifest. Partial files are not in the list."""
    return [*output_files, *map(_block_path, map(tfrecord_manifests.partial_path, output_files)),
            files.path_beside(output_files[0], tfrecord_manifests.SUFFIX)]


def _has_bytes(path, partial, size, complete):
    """Returns whether an output file contains all bytes that the manifest records for it.

    If the partial file exists, it must have at least `size` bytes. Otherwise,
    `complete` must be true, and the output file itself must have exactly `size` bytes.

    Args:
      path, partial: the output file, and its partial file.
      size: size of the file in the manifest, in bytes.
      complete: whether the manifest says that all blocks are written.
    """
    if files.exists(partial):
        return files.size(partial) >= size
    return complete and files.exists(path) and files.size(path) == size
