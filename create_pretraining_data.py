"""Makes the data that run_pretraining.py trains on: TFRecords of masked text.

    python create_pretraining_data.py --input_file='corpus/*.txt.gz' \\
      --output_file=/tmp/data/0.tfrecord,/tmp/data/1.tfrecord --vocab_file=$BERT_DIR/vocab.txt \\
      --do_lower_case=true --max_seq_length=128 --max_predictions_per_seq=20 --masked_lm_prob=0.15 \\
      --random_seed=12345 --dupe_factor=5 --num_workers=0

The text has one sentence a line and a blank line between documents. Killed, the same command goes on where it
was.
"""

import collections
import contextlib
import gc
import itertools
import os
import sys

from absl import flags, logging

from bertlib.command_line import common_flags, launch, process_role

from bertlib.data import example_encoding, record_files
from bertlib.runs import checks, model_config, vocabularies
from bertlib.system import files, network_namespace
from bertlib.tasks.pretraining import corpus, pretraining_data, pretraining_stream

FLAGS = flags.FLAGS  # as the original has it, for scripts that import this one

# Environment variable of a command that runs in a network namespace.
_PORTS_ARE_CLOSED = "BERT_PORTS_CLOSED"


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Files"):
        flags.DEFINE_string("input_file", None, "Text files, or globs of them, with commas between; .gz too.")
        flags.DEFINE_string("output_file", None,
                            "TFRecord files, with commas between; instances go to them in turn.")
    with common_flags.section("Instances"):
        flags.DEFINE_integer("max_seq_length", 128, "Tokens of an instance, [CLS] and [SEP] included. Train "
                             "with the same.",
                             lower_bound=5, upper_bound=1 << 16)
        flags.DEFINE_integer("max_predictions_per_seq", 20,
                             "Most tokens to predict in an instance; about max_seq_length * masked_lm_prob. "
                             "Train with the same.",
                             lower_bound=1, upper_bound=1 << 16)
        flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens to predict.")
        flags.DEFINE_bool("do_whole_word_mask", False, "Mask all pieces of a word or none of them.")
        flags.DEFINE_bool("next_sentence", True,
                          "Make sentence pairs, half of them random. If false, instances are full sentences "
                          "one after the other, with [SEP] where a document ends, all in segment 0 and with "
                          "next-sentence label 0.")
        flags.DEFINE_float("short_seq_prob", 0.1,
                           "Share of the passes over a document, or with --next_sentence=false of the "
                           "instances, that aim at a random, shorter length.")
        flags.DEFINE_integer("dupe_factor", 10, "Passes over the text, each with other masks and pairs.",
                             lower_bound=1)
        flags.DEFINE_integer("random_seed", 12345, "Seed of everything random: the same seed and text give "
                             "the same files.")
        flags.DEFINE_integer("shuffle_buffer_documents", 1000,
                             "Documents that are shuffled among one another, and from which random next "
                             "sentences come. Each process holds so many in memory, with their instances; "
                             "the files depend on it.", lower_bound=2)
    common_flags.define_tokenizer_flags()
    with common_flags.section("Memory and speed"):
        flags.DEFINE_integer("num_workers", 1,
                             "Processes, 0 for one a core; the files are the same. Each works on "
                             "shuffle_buffer_documents at a time, so that more processes need more documents "
                             "than that.", lower_bound=0, upper_bound=common_flags.MAX_WORKERS)
        flags.DEFINE_string("beam_runner", None,
                            "Have a runner of Apache Beam do the work: DirectRunner (on this machine), "
                            "FlinkRunner, SparkRunner, DataflowRunner or another. The files are the same.")
        flags.DEFINE_list("beam_options", [],
                          "Beam's options for its runner, as name=value with commas between, such as "
                          "direct_num_workers=2,direct_running_mode=multi_processing.")
        common_flags.define_open_ports_flag()
    flags.register_validator("masked_lm_prob", lambda value: value is not None and 0 < value <= 1,
                             "must be above 0 and at most 1")
    flags.register_validator("short_seq_prob", lambda value: value is not None and 0 <= value <= 1,
                             "must be a number from 0 to 1")


define_flags()


# --- The published generator: lists of token strings, random numbers in the published order --------------


class TrainingInstance(object):
    """Tokens, some of them masked, and what they were.

    Attributes:
      tokens: list, [CLS] a [SEP] b [SEP] with the masks in it.
      segment_ids: list of int, 1 from the first token of b on.
      masked_lm_positions: list of int, ascending: where to predict.
      masked_lm_labels: list: the tokens that were there.
      is_random_next: bool: b does not follow a in a document.
    """

    def __init__(self, tokens, segment_ids, masked_lm_positions, masked_lm_labels, is_random_next):
        self.tokens = tokens
        self.segment_ids = segment_ids
        self.masked_lm_positions = masked_lm_positions
        self.masked_lm_labels = masked_lm_labels
        self.is_random_next = is_random_next

    def __str__(self):
        return "".join(f"{name}: {' '.join(map(str, value)) if isinstance(value, list) else value}\n"
                       for name, value in vars(self).items())

    def __repr__(self):
        return self.__str__()


def create_training_instances(input_files, tokenizer, max_seq_length, dupe_factor, short_seq_prob,
                              masked_lm_prob, max_predictions_per_seq, rng, do_whole_word_mask=False):
    """Makes the instances of some text files, all in memory.

    As published, a document that a file ends with goes on in the next file unless a blank line divides them.

    Args:
      input_files: list of paths: one sentence a line, a blank line between documents; `.gz` too.
      tokenizer: has `tokenize(text)` and `vocab`.
      rng: a `random.Random`; it is asked in the published order.
      max_seq_length, dupe_factor, …: see `Recipe`.

    Returns:
      list of `TrainingInstance`, in random order; tokens are str.

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
    """Makes sentence pairs of one document; see `pretraining_data.sentence_pairs`.

    What is too long is cut; see `truncate_seq_pair`.

    Args:
      all_documents: list of documents: lists of sentences: lists of tokens; none is empty.
      document_index: which of them.
      vocab_words: list of what may stand in for a token.
      rng: a `random.Random`.
      continues_word: function of a token, see `pretraining_data.continuation_function`.
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


# A masked position and the token before masking, for scripts that import it; nothing here uses it.
MaskedLmInstance = collections.namedtuple("MaskedLmInstance", ["index", "label"])


def create_masked_lm_predictions(tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                 do_whole_word_mask=False, continues_word=pretraining_data.is_continuation):
    """Masks random tokens but [CLS] and [SEP]: of 10, 8 become [MASK], one stays, one becomes a random word.

    Args:
      tokens: list of tokens.
      vocab_words: list of what may stand in for a token.
      rng: a `random.Random`.
      continues_word: function of a token, see `pretraining_data.continuation_function`.
      masked_lm_prob, max_predictions_per_seq, do_whole_word_mask: see `Recipe`.

    Returns:
      (tokens with masks, positions of the chosen ones, the tokens that were there), lists.
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
    wanted = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    output, chosen = list(tokens), []
    for word in words:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(word) > wanted:
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
    """Shortens two lists in place until together they have at most `max_num_tokens` tokens.

    Each token goes from the longer list, b at a tie, and with even chances from its front or its end, so that
    no place is always cut.
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


def create_int_feature(values):
    """Returns a `tf.train.Feature` of ints."""
    return record_files.int_feature(values)


def create_float_feature(values):
    """Returns a `tf.train.Feature` of floats."""
    return record_files.float_feature(values)


def write_instance_to_example_files(instances, tokenizer, max_seq_length, max_predictions_per_seq,
                                    output_files):
    """Writes instances as TFRecords of `pretraining_data.feature_fields`, in turn to each of the files.

    The files appear when all is written.

    Args:
      instances: list of `TrainingInstance` with tokens as str.
      tokenizer: has `convert_tokens_to_ids(tokens)`.
      max_seq_length, max_predictions_per_seq: what instances are padded to.
      output_files: list of paths.

    Raises:
      ValueError: an instance is longer.
    """
    serialize = pretraining_data.Serializer(max_seq_length, max_predictions_per_seq)

    def pack(numbers, length):
        if len(numbers) > length:
            raise ValueError(f"An instance has {len(numbers)} tokens or predictions; there is room for "
                             f"{length}. Write with the lengths it was made with.")
        return example_encoding.varints([*numbers, *[0] * (length - len(numbers))])

    def pack_tokens(tokens, length):
        return pack(tokenizer.convert_tokens_to_ids(tokens), length)

    with contextlib.ExitStack() as stack:
        partial = [stack.enter_context(files.atomic_replacement(path)) for path in output_files]
        writers = [stack.enter_context(record_files.open_writer(path)) for path in partial]
        for index, (instance, writer) in enumerate(zip(instances, itertools.cycle(writers))):
            if index < pretraining_data.LOGGED_INSTANCES:
                logging.info("Instance %d:\n%s", index, instance)
            positions, second = instance.masked_lm_positions, sum(instance.segment_ids)
            writer.write(serialize(
                pack_tokens(instance.tokens, max_seq_length), len(instance.tokens) - second, second,
                pack(positions, max_predictions_per_seq),
                pack_tokens(instance.masked_lm_labels, max_predictions_per_seq),
                len(positions), bool(instance.is_random_next)))
    logging.info("Wrote %d instances.", len(instances))


# --- The command -----------------------------------------------------------------------------------------


def list_paths(settings, name):
    """Returns what a flag lists."""
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
    tokenizer = vocabularies.load_tokenizer(settings)
    if "[MASK]" not in tokenizer.vocab:
        raise ValueError(f"{settings.vocab_file or settings.spm_model_file} has no [MASK]. Rename an unused "
                         "entry to it.")
    return tokenizer


def check_predictions(settings):
    """Warns if --max_predictions_per_seq is not about what --masked_lm_prob of --max_seq_length is."""
    length, fraction, most = (
        settings.max_seq_length, settings.masked_lm_prob, settings.max_predictions_per_seq)
    expected = max(1, round(length * fraction))
    if most < expected:
        logging.warning("--max_predictions_per_seq=%d leaves --masked_lm_prob=%g no room: of %d tokens %d "
                        "would be predicted. To predict that share, pass --max_predictions_per_seq=%d.", most,
                        fraction, length, expected, expected)
    elif most > 2 * expected:
        logging.warning("--max_predictions_per_seq=%d is more than can be used: --masked_lm_prob=%g of %d "
                        "tokens are %d. The rest costs time in training; "
                        "--max_predictions_per_seq=%d is enough.", most, fraction, length, expected,
                        expected)


def create_cluster(settings):
    """Returns the `pretraining_beam.Cluster` that the flags describe, or None."""
    if settings.beam_runner is None:
        if settings.is_given("beam_options"):
            raise ValueError("--beam_options is for a runner of Apache Beam: name it with --beam_runner.")
        return None
    if settings.is_given("num_workers"):
        raise ValueError("--num_workers is for the processes of this command, which --beam_runner takes the "
                         "place of. How many workers a runner has is one of --beam_options, such as "
                         "direct_num_workers. Leave one of the two flags out.")
    # Imported here: it is for this flag alone.
    from bertlib.tasks.pretraining import pretraining_beam

    try:
        return pretraining_beam.Cluster(settings.beam_runner, settings.beam_options)
    except ValueError as error:
        options = settings.beam_options and f" --beam_options={','.join(settings.beam_options)}"
        raise ValueError(f"--beam_runner={settings.beam_runner}{options or ''}: {error}") from None


def close_ports(settings):
    """Starts this command again in a network namespace if Beam's local runner would open ports, once."""
    cluster = None if _PORTS_ARE_CLOSED in os.environ else create_cluster(settings)
    if cluster is None or not cluster.opens_ports:
        return
    with network_namespace.for_processes(
            settings.open_ports, process_role.path_arguments(),
            "The gRPC servers of Apache Beam's local runner",
            lambda text: logging.warning("%s", text)) as namespace:
        if namespace is not None:
            # The threads that TensorFlow has started keep this process itself out of the namespace.
            namespace.execute([sys.executable, *sys.orig_argv[1:]], {**os.environ, _PORTS_ARE_CLOSED: "1"})


def command(argv):
    """Runs `main`, with closed ports where possible."""
    close_ports(common_flags.read_settings())
    main(argv)


def main(_):
    """Writes the data."""
    settings = common_flags.read_settings()
    cluster = create_cluster(settings)
    gc.freeze()  # What TensorFlow holds stays; to look through it again and again costs a third of the time.
    input_files = corpus.find_input_files(list_paths(settings, "input_file"))
    output_files = list_paths(settings, "output_file")
    tokenizer = load_tokenizer(settings)
    checks.refuse_overwriting(settings, {"input_file": input_files},
                              {"output_file": pretraining_stream.list_written_files(output_files)})
    check_predictions(settings)
    recipe = pretraining_data.Recipe(**{name: getattr(settings, name)
                                        for name in pretraining_data.Recipe._fields})
    kept = {name: getattr(settings, name) for name in ("do_lower_case", "protect_special_tokens")}
    basic = getattr(tokenizer, "basic_tokenizer", None)
    if basic:  # None is the default, and what earlier manifests have
        kept.update(strip_accents=basic.strip_accents, keep_chinese=not basic.tokenize_chinese_chars or None)
    flag = "vocab_file" if settings.vocab_file else "spm_model_file"
    vocabulary = vocabularies.manifest_entry(getattr(settings, flag), flag)
    manifest = pretraining_stream.write_training_data(
        input_files, output_files, tokenizer, recipe, settings.random_seed, settings.shuffle_buffer_documents,
        settings.num_workers, kept, cluster, vocabulary)
    logging.info("Wrote %s: %s", ", ".join(output_files),
                 pretraining_stream.describe_statistics(manifest["statistics"]))


if __name__ == "__main__":
    launch.run(command, resumable=True)
