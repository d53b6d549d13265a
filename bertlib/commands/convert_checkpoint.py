"""Converts a BERT between TensorFlow and Hugging Face (safetensors): weights, configuration and vocabulary.

    python convert_checkpoint.py --input=$BERT_DIR/bert_model.ckpt --output=/tmp/hugging_face
    python convert_checkpoint.py --input=/tmp/hugging_face --output=/tmp/tensorflow

Or takes the weights alone out of a training checkpoint:

    python convert_checkpoint.py --input=/tmp/mrpc_output --output=/tmp/mrpc_weights --weights_only
"""

import contextlib
import fnmatch
import json
import os
import shutil
import tempfile

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import model_files, output_files, tokenizer_files
from bertlib.runs import checks, head_labels, model_config, run_record
from bertlib.runs.settings import require_file
from bertlib.system import files, locks
import modeling
import tokenization

# The head of each Hugging Face class, in the published names. The first complete one gives the class.
_MASKED_LM = ("cls/predictions/output_bias", "cls/predictions/transform/dense/kernel",
              "cls/predictions/transform/dense/bias", "cls/predictions/transform/LayerNorm/gamma",
              "cls/predictions/transform/LayerNorm/beta")
_NEXT_SENTENCE = ("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias")
_ARCHITECTURES = {
    "BertForSequenceClassification": ("output_weights", "output_bias"),
    "BertForQuestionAnswering": ("cls/squad/output_weights", "cls/squad/output_bias"),
    "BertForPreTraining": _MASKED_LM + _NEXT_SENTENCE,
    "BertForMaskedLM": _MASKED_LM,
    "BertForNextSentencePrediction": _NEXT_SENTENCE,
    "BertModel": (),
}
# Published names of activations -> Hugging Face's; `modeling.BertConfig.from_dict` has the opposite.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "": "linear"}
# What is written, and what stands in the way: old files that would be read with the new ones, or first.
_TENSORFLOW_WEIGHTS, _HUGGING_FACE_WEIGHTS = "bert_model.ckpt", "model.safetensors"
_CONFIG = {"tensorflow": "bert_config.json", "hugging_face": "config.json"}
_TEMPORARY_PREFIX = ".convert_checkpoint."  # what the names of unfinished directories begin with
_VOCABULARY, _TOKENIZER_CONFIG, _TOKENIZER = "vocab.txt", tokenizer_files.CONFIG, tokenizer_files.TOKENIZER
_REPLACED_FILES = {
    "tensorflow": (_TENSORFLOW_WEIGHTS + ".*", *output_files.NAMES, *tokenizer_files.NAMES),
    "hugging_face": ("*.safetensors", "*.safetensors.index.json", _CONFIG["hugging_face"], _VOCABULARY,
                     *tokenizer_files.NAMES),
}
_MAX_NAMES_SHOWN = 20


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Conversion"):
        flags.DEFINE_string("input", None, "A TensorFlow checkpoint prefix, an output directory of a "
                            "training, a Hugging Face BERT directory or a .safetensors file.")
        flags.DEFINE_string("output", None, f"Directory for {_TENSORFLOW_WEIGHTS}.* and "
                            f"{_CONFIG['tensorflow']}, or for {_HUGGING_FACE_WEIGHTS} and "
                            f"{_CONFIG['hugging_face']}; and for {_VOCABULARY} and {_TOKENIZER_CONFIG}.")
        flags.DEFINE_enum("to", None, sorted(_CONFIG), "What to write. By default the other kind than the "
                          "input; with --weights_only tensorflow.")
        flags.DEFINE_bool("weights_only", False, "From TensorFlow to TensorFlow, without the state of a "
                          "training: the step, the optimizer's variables and the like. Other conversions "
                          "always leave it out.")
        flags.DEFINE_bool("force", False, "Replace what stands in the way in --output.")
    with common_flags.section("What goes along"):
        flags.DEFINE_string("bert_config_file", None, "The model's bert_config.json or config.json; by "
                            "default beside the input.")
        flags.DEFINE_string("vocab_file", None, "The model's vocabulary, one WordPiece a line; by default "
                            "beside the input.")
        flags.DEFINE_bool("do_lower_case", None, "Whether the model lower-cases its text, for "
                          f"{_TOKENIZER_CONFIG}. By default what that file beside the vocabulary says.")


# --- What goes in ----------------------------------------------------------------------------------------


def open_input(given):
    """Opens --input and fills in --to; returns the `checkpoint_formats.Checkpoint`.

    Raises:
      ValueError, FileNotFoundError: a flag is missing or does not suit the input, or the input cannot be
        read.
    """
    for name in ("input", "output"):
        if not getattr(given, name):
            raise ValueError(f"--{name} is required.")
    try:
        source = checkpoint_formats.open_checkpoint(given.input)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"--input={given.input}: {error}") from error
    if given.to is None:
        other = {"tensorflow": "hugging_face", "hugging_face": "tensorflow"}[source.kind]
        given.set_default("to", "tensorflow" if given.weights_only else other)
    if given.to == source.kind == "hugging_face":
        raise ValueError(f"--to=hugging_face: {source.path} is a Hugging Face model already.")
    if given.to == source.kind and not given.weights_only:
        raise ValueError(f"--to=tensorflow: {source.path} is a TensorFlow checkpoint already. With "
                         "--weights_only the state of the training is left out.")
    return source


def input_directory(source):
    """Where the input's other files are."""
    return source.path if files.is_directory(source.path) else os.path.dirname(source.path)


def input_record(source):
    """Returns the record of the training that the input comes from, or None.

    Raises:
      ValueError: run.json is damaged.
    """
    is_ours = run_record.is_training_checkpoint(source)
    return output_files.read_record(input_directory(source)) if is_ours else None


def find_file(given, source, flag, *candidates):
    """The path that a flag gives, else the first candidate that is beside the input; None if none is."""
    path = getattr(given, flag)
    if path is None:
        beside = (os.path.join(input_directory(source), name) for name in candidates)
        path = next(filter(files.exists, beside), None)
        if path is not None:
            given.set_default(flag, path)
        return path
    return require_file(given, flag)


def read_settings(given, source):
    """Reads and checks --bert_config_file; returns it as a published configuration, a dict."""
    path = find_file(given, source, "bert_config_file", _CONFIG[source.kind], *_CONFIG.values())
    if path is None:
        raise ValueError(f"--bert_config_file is required: there is no {' or '.join(_CONFIG.values())} "
                         f"beside --input={given.input}.")
    settings = files.read_json_object(path)
    problems = model_config.config_problems(settings)
    if settings.get("tie_word_embeddings", True) is not True:
        problems.append("tie_word_embeddings=false is not supported: "
                        "the published masked LM shares the word embeddings.")
    if problems:
        raise ValueError(f"--bert_config_file: {path} is not usable:\n"
                         + "\n".join(f"  {problem}" for problem in problems))
    output_files.check_config(path, modeling.BertConfig.from_dict(settings))
    kind = head_labels.kind_from_config(settings)
    said = {"id2label": head_labels.label_names(settings, path) is not None,
            "architectures": kind == "tagging",
            "problem_type": kind not in (None, "tagging")}
    for name, is_said in said.items():
        if not is_said or "output_bias" not in source.shapes:
            settings.pop(name, None)
    config = modeling.BertConfig.from_dict(settings).to_dict()
    if given.to == "tensorflow" and config["hidden_act"] == "gelu_erf":
        logging.warning("hidden_act is gelu_erf in bert_config.json: Hugging Face's gelu. The published code "
                        "knows the tanh form only, as gelu.")
    published = {*modeling.BertConfig(vocab_size=1).to_dict(), *model_config.IGNORED_CONFIG_KEYS}
    return {name: value for name, value in config.items() if name in published}


def read_vocabulary(given, source, vocab_size):
    """Reads and checks --vocab_file; returns its bytes.

    Recent Hugging Face models have their vocabulary in tokenizer.json only.
    """
    path = find_file(given, source, "vocab_file", _VOCABULARY, _TOKENIZER)
    pieces = os.path.join(input_directory(source), output_files.SENTENCE_PIECES)
    if path is None and files.exists(pieces):
        raise ValueError(f"{pieces} is the model's vocabulary, and Hugging Face's BERT has no tokenizer for "
                         "it. With --weights_only --to=tensorflow the weights are taken out with it.")
    if path is None:
        raise ValueError(f"--vocab_file is required: there is no {_VOCABULARY} or {_TOKENIZER} beside "
                         f"--input={given.input}.")
    if not path.endswith(".json"):
        tokenization.check_vocab(path, vocab_size)
        record = input_record(source)
        if record:
            output_files.check_vocabulary(input_directory(source), record, path)
        return files.read_bytes(path)
    model = files.read_json_object(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    wrong = _find_id_problem(ids, vocab_size)
    if wrong:
        raise ValueError(f"--vocab_file: {path} has no WordPiece vocabulary of at most {vocab_size} entries "
                         f"with ids from 0 on: {wrong}. Pass the model's {_VOCABULARY}.")
    return "".join(word + "\n" for word in sorted(ids, key=ids.get)).encode()


def _find_id_problem(ids, vocab_size):
    """What is wrong with the ids of a tokenizer.json, {token: id}, in words; None if they are the lines of a
    vocabulary."""
    if not isinstance(ids, dict) or not ids:
        return "it is of another kind"
    for token, index in ids.items():
        if type(index) is not int or index < 0:
            return f"the id of {token!r} is {index!r}"
        if "\n" in token or not token:
            return f"the token {token!r} is no line of a file"
    seen = {}
    for token, index in ids.items():
        if seen.setdefault(index, token) != token:
            return f"{seen[index]!r} and {token!r} both have the id {index}"
    missing = next((index for index in range(len(ids)) if index not in seen), None)
    if missing is not None:
        return f"no token has the id {missing}"
    return f"it has {len(ids)} entries" if len(ids) > vocab_size else None


def read_tokenizer_settings(given, source, settings):
    """The content of tokenizer_config.json, a dict; None if nothing is known about letter case and nothing
    has to be. Warns of what no tokenizer here does."""
    directories = [os.path.dirname(given.vocab_file), input_directory(source)]
    found = next(filter(None, map(tokenizer_files.merge_settings, directories)), {})
    for problem in dict.fromkeys(tokenizer_files.read(directories).problems):
        logging.warning("The scripts here do not make this model's tokens: %s", problem)
    if given.do_lower_case is None and "do_lower_case" not in found:
        if given.to == "tensorflow":
            return found or None
        try:
            tokenization.validate_case_matches_checkpoint(True, source.path)
            given.set_default("do_lower_case", True, "right for uncased models only")
        except ValueError:
            given.set_default("do_lower_case", False, "the input has the name of a cased model")
    if given.do_lower_case is not None:
        found = {**found, "do_lower_case": given.do_lower_case}
    return {"tokenizer_class": "BertTokenizer", "model_max_length": settings["max_position_embeddings"],
            **found}


# --- What comes out --------------------------------------------------------------------------------------


def check_output(given, source):
    """Checks that --output can be written, and removes the unfinished directories of killed conversions.

    Existing files are replaced only with --force.

    Raises:
      ValueError, NotADirectoryError, FileExistsError: it cannot.
    """
    if given.output.endswith((".ckpt", ".safetensors")):
        raise ValueError(f"--output={given.output} names a file; name the directory.")
    if os.path.realpath(given.output) == os.path.realpath(input_directory(source)):
        raise ValueError(f"--output={given.output} is the input's directory; name another one.")
    existing = files.existing_parent(given.output)
    if not os.path.isdir(existing):
        raise NotADirectoryError(f"--output={given.output}: {existing} is not a directory. Use another one.")
    # Before a refusal, too: a conversion that was killed at its end leaves its output whole.
    for folder in {existing, os.path.dirname(os.path.abspath(given.output))}:
        locks.remove_abandoned(folder, _TEMPORARY_PREFIX)
    blocking = list_replaced_files(given.output, given.to)
    for name in blocking:
        if os.path.isdir(os.path.join(given.output, name)):
            raise IsADirectoryError(f"--output={given.output}: {name} in it is a directory, where a file "
                                    "must be written.")
    if blocking and not given.force:
        raise FileExistsError(f"--output={given.output} holds files that would be replaced: "
                              f"{', '.join(blocking)}. "
                              "Use another directory, or pass --force to replace them.")


def list_replaced_files(output, kind):
    """Names of what is in the output directory that a model of that kind replaces."""
    names = os.listdir(output) if os.path.isdir(output) else []
    return sorted(name for name in names
                  if any(fnmatch.fnmatchcase(name, pattern) for pattern in _REPLACED_FILES[kind]))


def hugging_face_config(settings, source, names):
    """Translates a published configuration, a dict; the tensors give the class and its number of labels."""
    activation = (settings["hidden_act"] or "").lower()
    theirs = _ACTIVATIONS.get(activation, activation)
    if theirs != activation:
        logging.info("hidden_act is %s in config.json: Hugging Face's name of %s.", theirs,
                     activation or "none")
    architecture = next(name for name, head in _ARCHITECTURES.items() if set(head) <= set(names))
    head = head_labels.read_head(source)
    if head and head.kind == "tagging":
        architecture = "BertForTokenClassification"
    translated = {**settings, "architectures": [architecture], "hidden_act": theirs,
                  "layer_norm_eps": modeling.LAYER_NORM_EPSILON, "model_type": "bert"}
    logging.info("The tensors are a %s's.", architecture)
    if architecture in ("BertForSequenceClassification", "BertForTokenClassification"):
        count = source.shapes["output_bias"][0]
        labels = head.labels or head_labels.label_names(settings, _CONFIG["tensorflow"]) or []
        if len(labels) != count:
            labels = [f"LABEL_{index}" for index in range(count)]
        translated.update(id2label=dict(enumerate(labels)),
                          label2id={label: index for index, label in enumerate(labels)})
        if head.kind in ("regression", "multilabel"):
            translated["problem_type"] = head_labels.PROBLEM_TYPES[head.kind]
    if head and head.crf:
        logging.warning("The CRF is left out, as no class of Hugging Face's has one: tags are then predicted "
                        "each by itself, from the same scores.")
    elif head and head.outputs and head.kind is None:
        logging.info("A BertForTokenClassification has the same: if it is one, write that into config.json.")
    return translated


def translate(given, source):
    """What a conversion writes: (names of the tensors, {file name: content in bytes})."""
    settings = read_settings(given, source)
    encoder = modeling.variable_shapes(modeling.BertConfig.from_dict(settings))
    heads = {name for head in _ARCHITECTURES.values() for name in head} & set(source.shapes)
    shapes = {name: (*source.shapes[name][:1], settings["hidden_size"]) for name in heads
              if name.endswith("_weights")}
    checkpoint_formats.check_types(source, [*encoder, *heads])
    # Question answering and masked LM do not need the pooler, and Hugging Face's have none.
    checkpoint_formats.check_fits(source, {**encoder, **shapes},
                                  optional={name for name in encoder if "/pooler/" in name})
    names = sorted(name for name in {*encoder, *heads} if name in source.shapes)
    others = sorted(set(checkpoint_formats.weight_names(source)) - set(names))
    if others:
        more = len(others) - _MAX_NAMES_SHOWN
        logging.warning("Left out, as no part of a published BERT: %s%s.",
                        ", ".join(others[:_MAX_NAMES_SHOWN]), f" and {more} more" if more > 0 else "")
    texts = {_VOCABULARY: read_vocabulary(given, source, settings["vocab_size"])}
    tokenizer = read_tokenizer_settings(given, source, settings)
    config = hugging_face_config(settings, source, names) if given.to == "hugging_face" else settings
    for name, content in ((_CONFIG[given.to], config), (_TOKENIZER_CONFIG, tokenizer)):
        if content is not None:
            texts[name] = (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
    return names, texts


def copy_weights(given, source):
    """What --weights_only writes: (tensors' names, {file name: content in bytes}), the files unchanged."""
    paths = {_CONFIG["tensorflow"]: find_file(given, source, "bert_config_file", _CONFIG["tensorflow"]),
             _VOCABULARY: find_file(given, source, "vocab_file", _VOCABULARY),
             **{name: os.path.join(input_directory(source), name)
                for name in (_TOKENIZER_CONFIG, output_files.SENTENCE_PIECES)}}
    texts = {}
    for name, path in paths.items():
        if path is not None and files.exists(path):
            if name.endswith(".json"):
                files.read_json_object(path)  # complains if it is none
            texts[name] = files.read_bytes(path)
    head = head_labels.read_head(source)
    if head and head.labels and head_labels.has_trained_names(head):
        texts[output_files.LABELS] = model_files.format_labels(head.labels)
    # Other numbers than floats count as the state of a training, but those of the encoder cannot be that.
    checkpoint_formats.check_types(source, [name for name in source.shapes if name.startswith("bert/")])
    return sorted(checkpoint_formats.weight_names(source)), texts


def write(output, kind, source, names, texts):
    """Writes a model aside, then moves it to its directory and removes what is left in the way.

    Args:
      output: the directory.
      kind: "tensorflow" or "hugging_face".
      source: a `checkpoint_formats.Checkpoint`.
      names: names of its tensors to write.
      texts: the other files, {name: content in bytes}.

    Returns:
      the names of the files.

    Raises:
      FileExistsError: another process wrote there meanwhile.
      locks.InUseError: it is writing there.
    """
    with files.translate_disk_errors(output), contextlib.ExitStack() as stack:
        if os.path.isdir(output):
            stack.enter_context(locks.lock_directory(output))
        before = list_replaced_files(output, kind)
        # In the directory or above it, so that moving is renaming.
        aside = tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=files.existing_parent(output))
        stack.enter_context(locks.lock_file(aside))
        stack.callback(shutil.rmtree, aside)
        if kind == "tensorflow":
            checkpoint_formats.write_tensorflow(os.path.join(aside, _TENSORFLOW_WEIGHTS), source, names)
        else:
            checkpoint_formats.write_safetensors(os.path.join(aside, _HUGGING_FACE_WEIGHTS), source, names)
        for name, content in texts.items():
            files.write_bytes(os.path.join(aside, name), content)
        os.makedirs(output, exist_ok=True)
        new = sorted(os.listdir(aside))
        with locks.lock_directory(output):  # it may have been made just now
            if list_replaced_files(output, kind) != before:
                raise FileExistsError(f"--output={output}: another process wrote there meanwhile. Use "
                                      "another directory, or start again.")
            for name in new:
                os.replace(os.path.join(aside, name), os.path.join(output, name))
            for name in set(before) - set(new):
                os.remove(os.path.join(output, name))
    return new


def main(_):
    """Converts."""
    given = common_flags.read_settings()
    source = open_input(given)
    record = input_record(source)
    if record:
        output_files.check_trained(record, source.path)
    check_output(given, source)
    names, texts = copy_weights(given, source) if given.to == source.kind else translate(given, source)
    checks.refuse_overwriting(
        given, {"input": checks.list_checkpoint_files(source.path)},
        {"output": [os.path.join(given.output, name)
                    for name in list_replaced_files(given.output, given.to)]})
    if not names:
        raise ValueError(f"--input={given.input}: {source.path} holds no weights.")
    checkpoint_formats.check_readable(source, names)
    narrow = sum(source.read_dtype(name) != source.dtypes[name] for name in names)
    if narrow:
        logging.warning("%d tensors of 16 bits are written as float32: the same values, twice the size.",
                        narrow)
    new = write(given.output, given.to, source, names, texts)
    logging.info("%d of %d tensors of %s are in %s: %s.", len(names), len(source.shapes), source.path,
                 given.output, ", ".join(new))
