"""Writes the training data of run_pretraining.py: TFRecords of masked text.

    python create_pretraining_data.py --input_file='corpus/*.txt.gz' \\
      --output_file=/tmp/data/0.tfrecord,/tmp/data/1.tfrecord --vocab_file=$BERT_DIR/vocab.txt \\
      --do_lower_case=true --max_seq_length=128 --max_predictions_per_seq=20 --masked_lm_prob=0.15 \\
      --random_seed=12345 --dupe_factor=5 --num_workers=0

The text has one sentence in each line and a blank line between documents. If a run was killed, start the same
command again: it continues the work of the killed run.
"""

import collections
import contextlib
import dataclasses
import gc
import itertools
import math
import os

from bertlib.commands import common_flags, launch

from absl import flags, logging

from bertlib.data import corpus, example_encoding, tfrecord_files
from bertlib.runs import checks, entries, model_config, tokenizer_flags
from bertlib.system import files
from bertlib.tasks import shared_flags
from bertlib.tasks.pretraining import pretraining_data, pretraining_stream

FLAGS = flags.FLAGS  # a published name; other scripts may import it from here

ENTRIES = entries.section("Files", None, [
    entries.Path("input_file", None,
                 "Text files, which may be compressed (.gz): paths or globs, with commas between them."),
    entries.Path("output_file", None,
                 "TFRecord files to write, with commas between them. The instances are distributed over the "
                 "files in turn."),
]) + entries.section("Instances", None, [
    entries.Integer("max_seq_length", 128,
                    "Maximum number of tokens in an instance, including [CLS] and [SEP]. Train with the same "
                    "value.", least=5, most=1 << 16),
    entries.Integer("max_predictions_per_seq", 20,
                    "Maximum number of masked tokens in an instance. A usual value is --max_seq_length times "
                    "--masked_lm_prob. Pass the same number to the training.", least=1, most=1 << 16),
    entries.Number("masked_lm_prob", 0.15, "Fraction of the tokens that are masked.", above=0, most=1),
    entries.Switch("do_whole_word_mask", False, "Mask all WordPieces of a word or none of them."),
    entries.Switch("next_sentence", True,
                   "An instance is a pair of texts for next-sentence prediction. In about half of the pairs, "
                   "the second text is random. false: an instance is a sequence of complete sentences, with "
                   "[SEP] at the end of a document. All its tokens are then in segment 0, and its "
                   "next-sentence label is 0."),
    entries.Number("short_seq_prob", 0.1,
                   "Probability that the target length of the instances is a random number, and not the "
                   "maximum that --max_seq_length allows. The target length is drawn once for each pass over "
                   "a document. With --next_sentence=false, it is drawn once for each instance.",
                   least=0, most=1),
    entries.Integer("dupe_factor", 10,
                    "Number of passes over the text, each with different masks and pairs.", least=1),
    entries.Integer("random_seed", 12345, "Random seed. The same seed and text give the same files.",
                    least=-math.inf, most=math.inf),
    entries.Integer("shuffle_buffer_documents", 1000,
                    "Number of documents that are shuffled together. Random second sentences also come from "
                    "these documents. Each process keeps this number of documents and their instances in "
                    "memory. If you change this number, the content of the files changes.", least=2),
]) + shared_flags.TOKENIZER + entries.section("Memory and speed", None, [
    entries.Integer("num_workers", 1,
                    "Number of processes; 0: one for each CPU core. The number of processes does not change "
                    "the files. Each process works on --shuffle_buffer_documents documents at a time, so "
                    "several processes help only if the text has more than --shuffle_buffer_documents "
                    "documents.", least=0, most=shared_flags.MAX_WORKERS, advanced="memory and speed"),
    entries.Text("beam_runner", None,
                 "Apache Beam runner that does the work: DirectRunner (on this machine), FlinkRunner, "
                 "SparkRunner, DataflowRunner or another one. The output files are the same with every "
                 "runner."),
    entries.Texts("beam_options", [],
                  "Options of the Beam runner: pairs name=value with commas between them, such as "
                  "flink_master=host:8081,parallelism=4."),
])

common_flags.define(ENTRIES)


# --- The published generator: lists of token strings, random numbers in the published order --------------


@dataclasses.dataclass(eq=False, repr=False)
class TrainingInstance:
    """A pre-training example: a masked pair of texts a and b.

    Attributes:
      tokens: the text after masking, as a list of str: [CLS] a [SEP] b [SEP].
      segment_ids: list of int, one for each token: 0 up to and including the first [SEP], and 1 after it.
      masked_lm_positions: the positions of the masked tokens, as a list of int in ascending order.
      masked_lm_labels: the tokens at these positions before masking, as a list of str.
      is_random_next: whether b is a random text (True) or the text that follows a (False).
    """

    tokens: list
    segment_ids: list
    masked_lm_positions: list
    masked_lm_labels: list
    is_random_next: bool

    def __str__(self):
        return "".join(f"{name}: {' '.join(map(str, value)) if isinstance(value, list) else value}\n"
                       for name, value in vars(self).items())

    __repr__ = __str__


def create_training_instances(input_files, tokenizer, max_seq_length, dupe_factor, short_seq_prob,
                              masked_lm_prob, max_predictions_per_seq, rng, do_whole_word_mask=False):
    """Creates the training instances of text files, and keeps all of them in memory.

    As in the published code, the last document of a file continues in the next file, unless a blank line
    separates the two files.

    Args:
      input_files: list of paths of text files, which may be compressed (.gz). Each line contains one
        sentence. A blank line ends a document.
      tokenizer: object with the method `tokenize(text)` and the attribute `vocab`.
      rng: a `random.Random`. Random numbers are drawn in the same order as in the published code.
      max_seq_length, dupe_factor, …: see `Recipe`.

    Returns:
      list of `TrainingInstance` in random order. Their tokens are str.

    Raises:
      FileNotFoundError, ValueError: a file cannot be read.
    """
    documents = [[]]
    for path in input_files:
        for sentence in corpus.read_lines(path):
            tokens = tokenizer.tokenize(sentence)
            if tokens:
                documents[-1].append(tokens)
            elif not sentence:
                documents.append([])
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    arguments = (max_seq_length, short_seq_prob, masked_lm_prob, max_predictions_per_seq,
                 list(tokenizer.vocab), rng, do_whole_word_mask,
                 pretraining_data.continuation_function(tokenizer))
    instances = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            instances += create_instances_from_document(documents, index, *arguments)
    rng.shuffle(instances)
    return instances


def create_instances_from_document(all_documents, document_index, max_seq_length, short_seq_prob,
                                   masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                   do_whole_word_mask=False, continues_word=pretraining_data.is_continuation):
    """Creates the instances of one document; see `pretraining_data.sentence_pairs`.

    Pairs that are too long are truncated; see `truncate_seq_pair`.

    Args:
      all_documents: list of documents. A document is a list of sentences, and a sentence is a list of tokens.
        No list is empty.
      document_index: int, index of the document.
      vocab_words: list of str, from which the random replacements of masked tokens are drawn.
      rng: a `random.Random`.
      continues_word: function that takes a token; see `pretraining_data.continuation_function`.
      max_seq_length, short_seq_prob, …: see `Recipe`.

    Returns:
      list of `TrainingInstance`.
    """
    instances = []
    room = max_seq_length - 3
    pairs = pretraining_data.sentence_pairs(all_documents, document_index, room, short_seq_prob, rng)
    for sentences_a, sentences_b, is_random_next in pairs:
        tokens_a = list(itertools.chain.from_iterable(sentences_a))
        tokens_b = list(itertools.chain.from_iterable(sentences_b))
        truncate_seq_pair(tokens_a, tokens_b, room, rng)
        tokens, positions, labels = create_masked_lm_predictions(
            ["[CLS]", *tokens_a, "[SEP]", *tokens_b, "[SEP]"], masked_lm_prob, max_predictions_per_seq,
            vocab_words, rng, do_whole_word_mask, continues_word)
        segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
        instances.append(TrainingInstance(tokens, segment_ids, positions, labels, is_random_next))
    return instances


# A masked position and its token before masking. This published name is kept for scripts that import it. This
# project does not use it.
MaskedLmInstance = collections.namedtuple("MaskedLmInstance", ["index", "label"])


def create_masked_lm_predictions(tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                 do_whole_word_mask=False, continues_word=pretraining_data.is_continuation):
    """Masks random tokens, except [CLS] and [SEP].

    With probability 0.8, a chosen token becomes [MASK], and with probability 0.1, it becomes a random word.
    Otherwise it stays unchanged.

    Args:
      tokens: list of str.
      vocab_words: list of str, from which the random replacements of masked tokens are drawn.
      rng: a `random.Random`.
      continues_word: function that takes a token; see `pretraining_data.continuation_function`.
      masked_lm_prob, max_predictions_per_seq, do_whole_word_mask: see `Recipe`.

    Returns:
      (tokens after masking, positions of the chosen tokens, these tokens before masking), three lists.
    """
    words = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if do_whole_word_mask and words and continues_word(token):
            words[-1].append(position)
        else:
            words.append([position])
    rng.shuffle(words)
    num_to_mask = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    output, chosen = list(tokens), []
    for word in words:
        if len(chosen) >= num_to_mask:
            break
        if len(chosen) + len(word) > num_to_mask:
            continue
        chosen += word
        for position in word:
            if rng.random() < 0.8:
                output[position] = "[MASK]"
            elif rng.random() >= 0.5:
                output[position] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
    chosen.sort()
    return output, chosen, [tokens[position] for position in chosen]


def truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng):
    """Shortens two lists in place until the sum of their lengths is at most `max_num_tokens`.

    Each removed token comes from the longer list, or from b if both are equally long. It is the first or the
    last token of this list, with equal probability, so that truncation is not biased to one end.
    """
    length_a, length_b, front_a, front_b = len(tokens_a), len(tokens_b), 0, 0
    while length_a + length_b > max_num_tokens:
        from_front = rng.random() < 0.5
        if length_a > length_b:
            length_a -= 1
            front_a += from_front
        else:
            length_b -= 1
            front_b += from_front
    tokens_a[:] = tokens_a[front_a:front_a + length_a]
    tokens_b[:] = tokens_b[front_b:front_b + length_b]


# Published names of two functions that return a `tf.train.Feature`.
create_int_feature, create_float_feature = tfrecord_files.int_feature, tfrecord_files.float_feature


def write_instance_to_example_files(instances, tokenizer, max_seq_length, max_predictions_per_seq,
                                    output_files):
    """Writes instances as TFRecords with the fields of `pretraining_data.feature_fields`. The instances are
    distributed over the files in turn.

    The files get their final names only after all instances were written.

    Args:
      instances: list of `TrainingInstance` with tokens as str.
      tokenizer: object with the method `convert_tokens_to_ids(tokens)`.
      max_seq_length, max_predictions_per_seq: int, numbers of tokens and predictions after padding.
      output_files: list of paths.

    Raises:
      ValueError: an instance has more tokens than max_seq_length, or more predictions than
        max_predictions_per_seq.
    """
    fields = pretraining_data.feature_fields(max_seq_length, max_predictions_per_seq)

    def encode(instance):
        row = {"input_ids": tokenizer.convert_tokens_to_ids(instance.tokens),
               "input_mask": [1] * len(instance.tokens),
               "segment_ids": instance.segment_ids,
               "masked_lm_positions": instance.masked_lm_positions,
               "masked_lm_ids": tokenizer.convert_tokens_to_ids(instance.masked_lm_labels),
               "masked_lm_weights": [1.0] * len(instance.masked_lm_positions),
               "next_sentence_labels": [int(instance.is_random_next)]}
        return example_encoding.encode_example(fields, {
            field.name: [*row[field.name], *[0] * (field.shape[0] - len(row[field.name]))]
            for field in fields})

    with contextlib.ExitStack() as stack:
        partial = [stack.enter_context(files.atomic_replacement(path)) for path in output_files]
        writers = [stack.enter_context(tfrecord_files.open_writer(path)) for path in partial]
        for index, (instance, writer) in enumerate(zip(instances, itertools.cycle(writers))):
            if index < pretraining_data.LOGGED_INSTANCES:
                logging.info("Instance %d:\n%s", index, instance)
            writer.write(encode(instance))
    logging.info("Wrote %d instances.", len(instances))


# --- The command -----------------------------------------------------------------------------------------


def list_paths(settings, name):
    """Returns the paths in the value of a flag, as a list of str.

    Raises:
      ValueError: the flag names no path.
    """
    paths = [path.strip() for path in (getattr(settings, name) or "").split(",") if path.strip()]
    if not paths:
        raise ValueError(f"--{name} is required.")
    return paths


def load_tokenizer(settings):
    """Returns the tokenizer that the flags describe."""
    model = model_config.find_installed_model()
    if settings.vocab_file is settings.spm_model_file is None and model:
        settings.set_default("vocab_file", os.path.join(model, "vocab.txt"),
                             "of the installed uncased model")
    tokenizer = tokenizer_flags.load_tokenizer(settings)
    if "[MASK]" not in tokenizer.vocab:
        raise ValueError(f"{settings.vocab_file or settings.spm_model_file} has no entry [MASK], which is "
                         "needed to mask words. Rename an unused entry to [MASK].")
    return tokenizer


def check_predictions(settings):
    """Warns if --max_predictions_per_seq is below --max_seq_length times --masked_lm_prob."""
    length, fraction = settings.max_seq_length, settings.masked_lm_prob
    expected = max(1, round(length * fraction))
    if settings.max_predictions_per_seq < expected:
        logging.warning("--max_predictions_per_seq=%d is too low for --masked_lm_prob=%g: in an instance of "
                        "%d tokens, %d tokens should be masked. To mask all of them, pass "
                        "--max_predictions_per_seq=%d.", settings.max_predictions_per_seq, fraction, length,
                        expected, expected)


def create_cluster(settings):
    """Returns the `pretraining_beam.BeamRunner` that the flags describe, or None."""
    if settings.beam_runner is None:
        if settings.is_given("beam_options"):
            raise ValueError("--beam_options has no effect without --beam_runner. Name a runner of Apache "
                             "Beam with --beam_runner, or leave --beam_options out.")
        return None
    if settings.is_given("num_workers"):
        raise ValueError("--num_workers cannot be used with --beam_runner, because the Beam runner replaces "
                         "the processes of this command. Leave one of these two flags out.")
    # This import runs only if --beam_runner is given, because Apache Beam is an optional package.
    from bertlib.tasks.pretraining import pretraining_beam

    try:
        return pretraining_beam.BeamRunner(settings.beam_runner, settings.beam_options)
    except ValueError as error:
        options = settings.beam_options and f" --beam_options={','.join(settings.beam_options)}"
        raise ValueError(f"--beam_runner={settings.beam_runner}{options or ''}: {error}") from None


def main(_):
    """Writes the data."""
    settings = common_flags.read_settings()
    cluster = create_cluster(settings)
    # TensorFlow's objects stay alive until the command ends. This call excludes them from the search for
    # garbage. Otherwise, the search would take a third of the time of this command.
    gc.freeze()
    input_files = corpus.find_input_files(list_paths(settings, "input_file"))
    output_files = list_paths(settings, "output_file")
    tokenizer = load_tokenizer(settings)
    checks.refuse_overwriting(settings, {"input_file": input_files},
                              {"output_file": pretraining_stream.list_written_files(output_files)})
    check_predictions(settings)
    recipe = pretraining_data.Recipe(**{name: getattr(settings, name)
                                        for name in pretraining_data.Recipe._fields})
    recorded = {name: getattr(settings, name)
                for name in ("do_lower_case", "protect_special_tokens", "marker_tokens")}
    basic = getattr(tokenizer, "basic_tokenizer", None)
    # The defaults of `strip_accents` and `keep_chinese` are recorded as None. The manifests of earlier
    # versions lack these settings, and a setting that a manifest lacks counts as None.
    if basic:
        recorded.update(strip_accents=basic.strip_accents,
                        keep_chinese=not basic.tokenize_chinese_chars or None)
    flag = tokenizer_flags.given_flag(settings)
    vocabulary = {"path": files.absolute(getattr(settings, flag)), "flag": flag}
    manifest = pretraining_stream.write_training_data(
        input_files, output_files, tokenizer, recipe, settings.num_workers, recorded, cluster, vocabulary)
    logging.info("Wrote %s: %s.", ", ".join(output_files), ", ".join(
        f"{name} {count:,}" for name, count in manifest["statistics"].items()))


if __name__ == "__main__":
    launch.run(main, resumable=True)
