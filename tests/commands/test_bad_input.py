"""Bad input ends a command with exit code 1 and one message: what is wrong, where, and what to do.

Nothing is written. A case is a function that spoils the input of a run that would train, evaluate and
predict. Its decorator lists texts that the message must contain. In them, {data}, {model}, {output} and
{here} are replaced by directories.
"""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors import numpy as safetensors
import tiny

from bertlib.data import record_files
import run_classifier


class Input(object):
    """The input of a run: files under `here`, and `flags`. At first, all of them are valid."""

    def __init__(self, here, model):
        self.here = here
        self.data = tiny.write_task(here / "data", "mrpc", train=4, dev=2, test=2)
        self.model = here / "model"
        shutil.copytree(model.directory, self.model)
        self.output = here / "output"
        self.flags = dict(
            task_name="mrpc", data_dir=self.data, vocab_file=self.model / "vocab.txt",
            bert_config_file=self.model / "bert_config.json", init_checkpoint=self.model / "bert_model.ckpt",
            output_dir=self.output, max_seq_length=tiny.SEQ_LENGTH, train_batch_size=2, do_train=True,
            do_eval=True, do_predict=True)
        self.weights = dict(model.weights)
        self.arguments = []

    def configure(self, **changes):
        """Changes the configuration. A value of None removes a setting."""
        path = self.flags["bert_config_file"]
        settings = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: value for name, value in settings.items() if value is not None}))

    def edit_row(self, file, line, change):
        """Replaces a line of a data file, counted from 1, by change(line)."""
        path = self.data / file
        lines = path.read_bytes().splitlines(keepends=True)
        lines[line - 1] = change(lines[line - 1])
        path.write_bytes(b"".join(lines))

    def use_hugging_face(self):
        """Changes the flags to the Hugging Face directory of the model. Returns the directory."""
        directory = self.model / "hugging_face"
        for flag in ("vocab_file", "bert_config_file"):
            del self.flags[flag]
        self.flags["init_checkpoint"] = directory
        return directory

    def train_there(self, **arguments):
        """Writes a training checkpoint into the output directory, see `tiny.write_training`."""
        tiny.write_training(self.output, self.weights, **arguments)


CASES = []


def case(*expected, **arguments):
    """Decorates a function that spoils an `Input`.

    Args:
      *expected: texts that the message must contain.
      **arguments: arguments of the function.
    """
    def register(spoil):
        label = " ".join([spoil.__name__, *(f"{name}={value}" for name, value in arguments.items())]).strip()
        CASES.append(pytest.param(spoil, arguments, expected, id=label))
        return spoil
    return register


def truncate(path, size=None):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2 if size is None else size)


def snapshot(directory):
    """Returns {path: content} of everything in a directory. The content of a directory is None."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


LOG_LINE = re.compile(r"\d\d:\d\d:\d\d ")
# The error messages of the scripts, and of absl if it cannot parse flags.
ERROR = re.compile(r"(?:run_classifier\.py: error: |FATAL Flags parsing error:\s)(.*?)"
                   r"(?:\nPass --helpshort or --helpfull to see help on flags\.)?\n", re.DOTALL)


def message_of(finished):
    """Returns the error message of a run. The run must have failed, and printed only its log and the message.
    """
    assert finished.code == 1, finished
    assert not finished.out
    lines = finished.err.splitlines(keepends=True)
    while lines and LOG_LINE.match(lines[0]):
        lines.pop(0)
    found = ERROR.fullmatch("".join(lines))
    assert found, finished.err
    return found.group(1)


@pytest.mark.parametrize("spoil, arguments, expected", CASES)
def test_bad_input_is_refused_in_one_message_before_anything_is_written(
        spoil, arguments, expected, scripts, tiny_model, tmp_path):
    given = Input(tmp_path, tiny_model)
    spoil(given, **arguments)
    before = snapshot(tmp_path)
    message = message_of(scripts.run("run_classifier.py", *tiny.flags(**given.flags), *given.arguments,
                                     cwd=tmp_path))
    for part in expected:
        assert part.format(**vars(given)) in message
    assert "Traceback" not in message and "Errno" not in message
    assert snapshot(tmp_path) == before


# --- Data ------------------------------------------------------------------------------------------------


@case("{data}/train.tsv does not exist. MrpcProcessor needs these files in the data directory {data}: "
      "dev.tsv, test.tsv, train.tsv", file="train.tsv")
@case("{data}/dev.tsv does not exist", file="dev.tsv")
@case("{data}/test.tsv does not exist", file="test.tsv")
def missing_data_file(given, file):
    (given.data / file).unlink()


@case("{data}/train.tsv: the file is empty; it should contain the train examples", file="train.tsv")
@case("{data}/dev.tsv: the file is empty", file="dev.tsv")
@case("{data}/test.tsv: the file is empty", file="test.tsv")
def empty_data_file(given, file):
    truncate(given.data / file, 0)


@case("{data}/dev.tsv:1: the file has only a header row")
def data_file_without_rows(given):
    path = given.data / "dev.tsv"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


@case("{data}/train.tsv:3: the row has 4 tab-separated columns, but at least 5 are needed; complete the row "
      "or remove it",
      file="train.tsv")
@case("{data}/test.tsv:3: the row has 4 tab-separated columns, but at least 5 are needed", file="test.tsv")
def row_with_too_few_columns(given, file):
    given.edit_row(file, 3, lambda line: line.rsplit(b"\t", 1)[0] + b"\n")


@case("{data}/train.tsv:2: the label '2' is not one of 0, 1: correct the row or remove it", file="train.tsv")
@case("{data}/dev.tsv:2: the label '2' is not one of 0, 1", file="dev.tsv")
@case("{data}/test.tsv:2: the label '2' is not one of 0, 1", file="test.tsv")
def unknown_label(given, file):
    given.edit_row(file, 2, lambda line: b"2" + line[1:])


@case("{data}/test.tsv:2: byte 0xff at offset", "is not UTF-8; convert the file to UTF-8")
def data_that_is_not_utf8(given):
    given.edit_row("test.tsv", 2, lambda line: line.replace(b" ", b"\xff", 1))


@case("{data}/dev.tsv: Is a directory")
def data_file_that_is_a_directory(given):
    (given.data / "dev.tsv").unlink()
    (given.data / "dev.tsv").mkdir()


@case("{data}/dev.tsv:2: the line contains a NUL character. If the file is UTF-16, convert it to UTF-8")
def nul_in_the_data(given):
    given.edit_row("dev.tsv", 2, lambda line: line.replace(b" ", b"\0", 1))


@case("{data}/dev.tsv:1: byte 0xff at offset 0 is not UTF-8; convert the file to UTF-8")
def data_in_utf16(given):
    path = given.data / "dev.tsv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))


@case("--data_dir={here}/none: there is no such directory")
def missing_data_directory(given):
    given.flags["data_dir"] = given.here / "none"


@case("--data_dir=data/glue/MRPC: there is no such directory. `python download.py --data=MRPC` downloads the "
      "data.")
def data_that_were_not_downloaded(given):
    given.flags["data_dir"] = "data/glue/MRPC"


@case("--data_dir=/MRPC: there is no such directory. If your command has a shell variable before /MRPC: is "
      "this variable set?")
def data_after_an_unset_variable(given):
    given.flags["data_dir"] = "/MRPC"


@case("--data_dir={data}/train.tsv: there is no such directory")
def data_directory_that_is_a_file(given):
    given.flags["data_dir"] = given.data / "train.tsv"


@case("--data_dir is required", "a sample of MRPC, but not of CoLA")
def task_without_a_sample(given):
    del given.flags["data_dir"]
    given.flags["task_name"] = "CoLA"


@case("4 training examples", "--train_batch_size=5", "--num_train_epochs=1", "Lower the batch size",
      train_batch_size=5, num_train_epochs=1)
@case("4 training examples", "--train_batch_size=2", "--num_train_epochs=0.4", train_batch_size=2,
      num_train_epochs=0.4)
def fewer_examples_than_a_batch(given, **flags):
    given.flags.update(flags)


# --- Vocabulary ------------------------------------------------------------------------------------------

SIZE = len(tiny.VOCABULARY)


@case("{model}/vocab.txt", "lacks special tokens that are required: [PAD]. Pass a BERT "
                           "vocabulary", token="[PAD]")
@case("{model}/vocab.txt", "lacks special tokens that are required: [UNK].", token="[UNK]")
@case("{model}/vocab.txt", "lacks special tokens that are required: [CLS].", token="[CLS]")
@case("{model}/vocab.txt", "lacks special tokens that are required: [SEP].", token="[SEP]")
def vocabulary_without(given, token):
    path = given.flags["vocab_file"]
    path.write_text(path.read_text().replace(token + "\n", "other\n"))


@case(f"{{model}}/vocab.txt has {SIZE + 1} entries, but the config's vocab_size is {SIZE}: from line "
      f"{SIZE + 1} on",
      "that belong to the same checkpoint", line=b"more")
@case(f"{{model}}/vocab.txt, lines 6 and {SIZE + 1}: both lines contain 'a'", line=b"a")
@case(f"{{model}}/vocab.txt, line {SIZE + 1}:", "is not UTF-8. Convert", line=b"\xe9t\xe9")
def vocabulary_with_one_more(given, line):
    with open(given.flags["vocab_file"], "ab") as file:
        file.write(line + b"\n")


@case("{model}/vocab.txt has 50 entries", f"vocab_size is {SIZE}: the embeddings after line 50 belong")
def vocabulary_too_short(given):
    path = given.flags["vocab_file"]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:50]))


@case("{model}/vocab.txt is empty: pass the vocab.txt that came with the checkpoint")
def empty_vocabulary(given):
    truncate(given.flags["vocab_file"], 0)


@case("--vocab_file={model}/vocab.txt: there is no such file")
def missing_vocabulary(given):
    given.flags["vocab_file"].unlink()


@case("--vocab_file=/vocab.txt: there is no such file. If your command has a shell variable before "
      "/vocab.txt: is this variable set?")
def vocabulary_after_an_unset_variable(given):
    given.flags["vocab_file"] = "/vocab.txt"


@case("--vocab_file=c/uncased_L-2_H-128_A-2/v.txt: there is no such file. `python download.py "
      "--model=uncased_L-2_H-128_A-2` downloads the published model. Then pass "
      "--vocab_file=checkpoints/uncased_L-2_H-128_A-2/vocab.txt.")
def vocabulary_of_a_published_model(given):
    given.flags["vocab_file"] = "c/uncased_L-2_H-128_A-2/v.txt"


@case("--vocab_file={model} is a directory; name the file")
def vocabulary_that_is_a_directory(given):
    given.flags["vocab_file"] = given.model


# --- Configuration ---------------------------------------------------------------------------------------


@case("--max_seq_length=41 is above max_position_embeddings=40 in {model}/bert_config.json", "Pass a lower")
def sequences_longer_than_the_positions(given):
    given.flags["max_seq_length"] = 41


@case("--bert_config_file=uncased_L-2_H-128_A-2/x.json: there is no such file. `python download.py ",
      "Then pass --bert_config_file=checkpoints/uncased_L-2_H-128_A-2/bert_config.json.")
def configuration_of_a_published_model(given):
    given.flags["bert_config_file"] = "uncased_L-2_H-128_A-2/x.json"


@case("--bert_config_file={model}/none.json: there is no such file")
def missing_configuration(given):
    given.flags["bert_config_file"] = given.model / "none.json"


@case("--bert_config_file={model} is a directory; name the file")
def configuration_that_is_a_directory(given):
    given.flags["bert_config_file"] = given.model


@case("{model}/bert_config.json is damaged: its brackets are nested too deep", text="[" * 10**5 + "]" * 10**5)
@case("{model}/bert_config.json is not JSON", "4300 digits", text='{"vocab_size": ' + "1" * 5000 + "}")
@case("{model}/bert_config.json is not JSON", "line 1 column 2", text="{vocab_size: 3}")
@case("{model}/bert_config.json is not JSON", text="")
@case("{model}/bert_config.json must contain a JSON object, not a list", text="[]")
def configuration_of(given, text):
    given.flags["bert_config_file"].write_text(text)


@case("{model}/bert_config.json is damaged: its brackets are nested too deep")
def configuration_nested_deeply(given):
    given.flags["bert_config_file"].write_text('{"a": ' + "[" * 100000 + "]" * 100000 + "}")


@case("{model}/bert_config.json is not JSON", "utf-8")
def configuration_that_is_not_utf8(given):
    given.flags["bert_config_file"].write_bytes(b'{"vocab_size": "\xff"}')


@case("bert_config.json", "hidden_sise is unknown; did you mean hidden_size?", hidden_sise=16)
@case("bert_config.json", "flavour is unknown.", flavour="vanilla")
@case("bert_config.json", "num_attention_heads is missing.", num_attention_heads=None)
@case("bert_config.json", "num_attention_heads=3 does not divide hidden_size=16", num_attention_heads=3)
@case("bert_config.json", "hidden_size is '16'; it must be a positive integer", hidden_size="16")
@case("bert_config.json", "num_hidden_layers is 0; it must be a positive integer", num_hidden_layers=0)
@case("bert_config.json", "num_hidden_layers is 1001; it must be at most 1000", num_hidden_layers=1001)
@case("bert_config.json", "hidden_size is 1000000000000000000000; it must be at most 16777216",
      hidden_size=10**21)
@case("bert_config.json", "intermediate_size is True; it must be a positive integer", intermediate_size=True)
@case("bert_config.json", "hidden_dropout_prob is 1.5; it must be at least 0 and below 1",
      hidden_dropout_prob=1.5)
@case("bert_config.json", "attention_probs_dropout_prob is nan; it must be",
      attention_probs_dropout_prob=float("nan"))
@case("bert_config.json", "initializer_range is '0.02'; it must be", initializer_range="0.02")
@case("bert_config.json", "hidden_act: Unknown activation 'swish'; known: gelu,", hidden_act="swish")
@case("bert_config.json", "hidden_act is 3; it must be a string", hidden_act=3)
@case("bert_config.json", "num_hidden_layers is 1000000000; it must be at most 1000", "hidden_size=16 and "
      "num_hidden_layers=2", num_hidden_layers=10**9)
@case("bert_config.json", "a model with these sizes has 4.4e+12 weights, but at most 1e+11 are",
      "For comparison, --init_checkpoint={model}/bert_model.ckpt has", hidden_size=2**20, num_hidden_layers=1,
      intermediate_size=2)
@case("bert_config.json", "vocab_size is 1000000000000; it must be at most 16777216", vocab_size=10**12)
@case("bert_config.json", f"hidden_size is 1{59 * '0'}…; it must be at most", hidden_size=10**4000)
@case("bert_config.json", "model_type='roberta' is not supported; use 'bert'", model_type="roberta")
def configuration_with(given, **changes):
    given.configure(**changes)


@case("hidden_size is 0; it must", "hidden_sise is unknown", "type_vocab_size is missing")
def configuration_with_several_mistakes(given):
    given.configure(hidden_size=0, hidden_sise=16, type_vocab_size=None)


# --- Checkpoints -----------------------------------------------------------------------------------------


@case("{model}/bert_model.ckpt does not fit",
      "bert/embeddings/position_embeddings: not in the checkpoint; the model has [40, 16]",
      "bert/encoder/layer_1/output/LayerNorm/beta: not in the checkpoint; the model has [16]",
      "incomplete, or was saved under other variable names")
def checkpoint_that_lacks_variables(given):
    for name in ("bert/encoder/layer_1/output/LayerNorm/beta", "bert/embeddings/position_embeddings"):
        del given.weights[name]
    tiny.write_tensorflow(given.flags["init_checkpoint"], given.weights)


@case("bert/embeddings/LayerNorm/gamma: the checkpoint has [16], the model [24]",
      "bert_config.json that came with",
      hidden_size=24)
@case("bert/encoder/layer_1/intermediate/dense/kernel: the checkpoint has [16, 24], the model [16, 32]",
      "the configuration is not the one that came with the checkpoint", intermediate_size=32)
@case("num_hidden_layers", "the checkpoint has 2 layers", "bert/encoder/layer_2/",
      num_hidden_layers=3)
@case("bert/embeddings/position_embeddings: the checkpoint has [40, 16], the model [50, 16]",
      max_position_embeddings=50)
def checkpoint_of_another_configuration(given, **changes):
    given.configure(**changes)


@case(f"bert/embeddings/word_embeddings: the checkpoint has [50, 16], the model [{SIZE}, 16]",
      f"vocab_size={SIZE} in the configuration is wrong: the checkpoint has 50 words")
def checkpoint_of_another_vocabulary(given):
    words = "bert/embeddings/word_embeddings"
    tiny.write_tensorflow(given.flags["init_checkpoint"], {**given.weights, words: given.weights[words][:50]})


@case("of labels: it has 3 labels, but the task has 2. Train first")
def checkpoint_of_another_task(given):
    given.flags["do_train"] = False
    head = {"output_weights": np.zeros((3, 16), np.float32), "output_bias": np.zeros(3, np.float32)}
    tiny.write_tensorflow(given.flags["init_checkpoint"], {**given.weights, **head})


@case("it has none of the names of BERT's variables (its names are a, b, …)")
def checkpoint_of_something_else(given):
    tiny.write_tensorflow(given.flags["init_checkpoint"],
                          {"b": np.zeros(1, np.float32), "a": np.zeros(1, np.float32)})


@case("{model}/bert_model.ckpt is damaged: bert/", "cannot be read", "Copy or download the checkpoint again")
def checkpoint_with_truncated_data(given):
    truncate(given.model / "bert_model.ckpt.data-00000-of-00001")


@case("{model}/bert_model.ckpt is damaged: bert/", "cannot be read", "Copy or download the checkpoint again")
def checkpoint_with_a_wrong_byte(given):
    path = given.model / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@case("{model}/bert_model.ckpt is damaged", "bert_model.ckpt.data-00000-of-00001; No such file")
def checkpoint_without_data(given):
    (given.model / "bert_model.ckpt.data-00000-of-00001").unlink()


@case("The checkpoint {model}/bert_model.ckpt cannot be read", "truncated or damaged. Copy or download "
      "the checkpoint again")
def checkpoint_with_truncated_index(given):
    truncate(given.model / "bert_model.ckpt.index")


@case("There is no checkpoint {model}/bert_model.ckpt (looked for {model}/bert_model.ckpt.index)")
def checkpoint_without_index(given):
    (given.model / "bert_model.ckpt.index").unlink()


@case("There is no checkpoint {model}/model.ckpt", "Checkpoints in this directory: {model}/bert_model.ckpt")
def misspelt_checkpoint(given):
    given.flags["init_checkpoint"] = given.model / "model.ckpt"


@case("--init_checkpoint={here}/none/: There is no directory {here}/none/.", path="none/")
@case("--init_checkpoint={here}/none/model.ckpt: There is no checkpoint {here}/none/model.ckpt",
      path="none/model.ckpt")
def missing_starting_weights_without_their_configuration(given, path):
    for flag in ("vocab_file", "bert_config_file"):
        del given.flags[flag]
    given.flags["init_checkpoint"] = f"{given.here}/{path}"


@case("one file of a checkpoint. Name the prefix of the checkpoint: {model}/bert_model.ckpt")
def one_file_of_a_checkpoint(given):
    given.flags["init_checkpoint"] = given.model / "bert_model.ckpt.index"


@case("{model}/bert_model.ckpt is damaged: bert/pooler/dense/bias contains values that are not finite")
def checkpoint_with_nan(given):
    given.weights["bert/pooler/dense/bias"] = np.full(16, np.nan, np.float32)
    tiny.write_tensorflow(given.flags["init_checkpoint"], given.weights)


@case("{model}/hugging_face/model.safetensors is not a complete safetensors file", "Copy or download the",
      left=0.5)
@case("{model}/hugging_face/model.safetensors is not a complete safetensors file", left=0.01)
@case("{model}/hugging_face/model.safetensors is not a complete safetensors file", left=0)
def truncated_safetensors(given, left):
    path = given.use_hugging_face() / "model.safetensors"
    truncate(path, int(path.stat().st_size * left))


@case("{model}/hugging_face does not fit",
      "bert/encoder/layer_0/output/dense/kernel: not in the checkpoint; the model has [24, 16]")
def safetensors_that_lack_variables(given):
    directory = given.use_hugging_face()
    del given.weights["bert/encoder/layer_0/output/dense/kernel"]
    safetensors.save_file(tiny.hugging_face(given.weights), directory / "model.safetensors")


@case("{model}/bert_model.ckpt is quantized, or does not belong to a model: bert/pooler/dense/kernel has the "
      "type int8.",
      "Use the model from before the quantization")
def quantized_checkpoint(given):
    given.weights["bert/pooler/dense/kernel"] = np.ones([16, 16], np.int8)
    tiny.write_tensorflow(given.flags["init_checkpoint"], given.weights)


@case("{model}/hugging_face is quantized, or does not belong to a model: bert/", "has the type int8",
      f"and {len(tiny.shapes()) - 1} more tensors have a wrong type")
def quantized_safetensors(given):
    directory = given.use_hugging_face()
    arrays = {name: np.ones(values.shape, np.int8) for name, values in given.weights.items()}
    scales = {"bert.pooler.dense.weight_scale": np.ones(1, np.float32)}
    safetensors.save_file({**tiny.hugging_face(arrays), **scales}, directory / "model.safetensors")


@case("{model}/hugging_face: bert/pooler/dense/bias contains 1e+300, which is too large for float32")
def numbers_beyond_float32(given):
    directory = given.use_hugging_face()
    given.weights["bert/pooler/dense/bias"] = np.full(16, 1e300)
    safetensors.save_file(tiny.hugging_face(given.weights), directory / "model.safetensors")


@case("{model}/bert_model.ckpt is damaged: output_bias contains values that are not finite")
def checkpoint_with_nan_in_the_head(given):
    head = {"output_weights": np.zeros((2, 16), np.float32), "output_bias": np.full(2, np.nan, np.float32)}
    tiny.write_tensorflow(given.flags["init_checkpoint"], {**given.weights, **head})


@case("type_vocab_size is 1 in the model's configuration", "the examples of mrpc are pairs")
def pairs_for_a_model_of_one_segment(given):
    given.configure(type_vocab_size=1)
    name = "bert/embeddings/token_type_embeddings"
    tiny.write_tensorflow(given.flags["init_checkpoint"], {**given.weights, name: given.weights[name][:1]})


@case("There is no file {here}/none.safetensors")
def missing_safetensors(given):
    given.flags["init_checkpoint"] = given.here / "none.safetensors"


@case("The directory {model}/hugging_face contains neither model.safetensors nor a TensorFlow checkpoint")
def directory_without_weights(given):
    (given.use_hugging_face() / "model.safetensors").unlink()


@case("{model}/hugging_face has no model.safetensors", "can run any code", "safe_serialization=True")
def directory_with_pickled_weights(given):
    directory = given.use_hugging_face()
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


@case("{here}/pytorch_model.bin: ", "can run any code", "safe_serialization=True")
def pickled_weights(given):
    given.flags["init_checkpoint"] = given.here / "pytorch_model.bin"
    given.flags["init_checkpoint"].write_bytes(b"\x80\x04")


@case("--vocab_file is required: there is no vocab.txt or spm.model in the directory of "
      "--init_checkpoint={model}/hugging_face")
def directory_without_vocabulary(given):
    (given.use_hugging_face() / "vocab.txt").unlink()


@case("--vocab_file is required")
def configuration_alone(given):
    del given.flags["vocab_file"], given.flags["init_checkpoint"]


# --- Casing ----------------------------------------------------------------------------------------------


@case("--do_lower_case=True does not suit", "cased_L-12_H-768_A-12 was trained on cased text. Pass "
      "--do_lower_case=False", name="cased_L-12_H-768_A-12", do_lower_case=True)
@case("--do_lower_case=False does not suit", "trained on lower-cased text. Pass --do_lower_case=True",
      name="uncased_L-2_H-128_A-2", do_lower_case=False)
def casing_against_the_models_name(given, name, do_lower_case):
    renamed = given.model.rename(given.here / name)
    given.flags.update(vocab_file=renamed / "vocab.txt", bert_config_file=renamed / "bert_config.json",
                       init_checkpoint=renamed / "bert_model.ckpt", do_lower_case=do_lower_case)


@case("--do_lower_case=false", "{model}/hugging_face/tokenizer_config.json says", "Pass --do_lower_case=true")
def casing_against_the_tokenizers_configuration(given):
    given.use_hugging_face()
    given.flags["do_lower_case"] = False


@case("{model}/hugging_face/tokenizer_config.json is damaged: its brackets are nested", text='{"a":' * 100000)
@case("{model}/hugging_face/tokenizer_config.json is not JSON", text="")
@case("{model}/hugging_face/tokenizer_config.json must contain a JSON object, not a list", text="[]")
def tokenizer_configuration_of(given, text):
    (given.use_hugging_face() / "tokenizer_config.json").write_text(text)


# --- Output directory ------------------------------------------------------------------------------------


@case("--output_dir={output} contains checkpoints that do not fit this run. They probably belong to another "
      "model. Use another directory, or remove these checkpoints.", "{output}/model.ckpt-3",
      "output_weights: the checkpoint has [3, 16], the model [2, 16]", "fine-tuned with other labels")
def output_of_another_task(given):
    given.train_there(num_labels=3)


@case("--output_dir={output} contains checkpoints that do not fit this run",
      "the checkpoint has [16], the model [24]")
def output_of_another_configuration(given):
    given.train_there()
    given.configure(hidden_size=24)


@case("--output_dir={output}", "global_step: not in the checkpoint", global_step=None)
@case("--output_dir={output}", "output_bias/adam_m: not in the checkpoint", **{"output_bias/adam_m": None})
def output_that_lacks(given, **names):
    given.train_there(**names)


@case("{output}/model.ckpt-3 is damaged", "cannot be read", file="model.ckpt-3.data-00000-of-00001", left=0.9)
@case("{output}/model.ckpt-3 cannot be read", "truncated or damaged", file="model.ckpt-3.index", left=0.5)
@case("{output}/checkpoint is damaged", file="checkpoint", left=0.5)
@case("{output}/checkpoint is damaged", file="checkpoint", left=0)
def output_with_truncated(given, file, left):
    given.train_there()
    path = given.output / file
    truncate(path, int(path.stat().st_size * left))


@case("{output} contains checkpoints, but no file `checkpoint` that names them, and all of them are damaged",
      "model.ckpt-3 is damaged")
def output_without_its_list_and_damaged(given):
    given.train_there()
    (given.output / "checkpoint").unlink()
    truncate(given.output / "model.ckpt-3.data-00000-of-00001")


@case("{output}/checkpoint names model.ckpt-3, but the directory contains no model.ckpt-3.index")
def output_without_the_checkpoint_it_names(given):
    given.train_there()
    (given.output / "model.ckpt-3.index").unlink()


@case("--output_dir={output}: {output} is not a directory. Use another", below="")
@case("--output_dir={output}/below/deeper: {output} is not a directory. Use another", below="below/deeper")
def output_directory_that_is_a_file(given, below):
    given.output.write_text("mine")
    given.flags["output_dir"] = given.output / below


@case("--output_dir={output}: {output} is a broken link", to="nowhere")
@case("--output_dir={output}: {output} is a broken link", to="output")
def output_directory_that_is_a_link_to_nothing(given, to):
    given.output.symlink_to(given.output.parent / to)


# --- Flags -----------------------------------------------------------------------------------------------


@case("--task_name: unknown task 'mprc'; the tasks are ax, cola, mnli, mrpc, ", "Did you mean mrpc?")
def unknown_task(given):
    given.flags["task_name"] = "mprc"


@case(f"--task_name is required; known tasks: {', '.join(sorted(run_classifier.PROCESSORS))}")
def no_task(given):
    del given.flags["task_name"]


@case("--output_dir={output}: there is no such directory. Pass the output directory of a training, or train")
@case("--output_dir={output} contains no training, because it contains no checkpoint. Pass the", empty=True)
@case("--output_dir={output} contains checkpoints, but no run.json that names the task of their training.",
      empty=False)
def no_training_and_no_task(given, empty=None):
    del given.flags["task_name"]
    given.flags["do_train"] = False
    if empty:
        given.output.mkdir()
    elif empty is not None:
        given.train_there()


@case("--xnli_language=de: this flag is only for the task XNLI, and not for mrpc", xnli_language="de")
@case("--xnli_language=xx", "ar|bg|de|", xnli_language="xx")
@case("--train_batch_size=nan", "int()", train_batch_size="nan")
@case("--train_batch_size=3.5", "int()", train_batch_size="3.5")
@case("--seed=x", "int()", seed="x")
@case("--do_train=maybe", "boolean flag", do_train="maybe")
@case("Unknown command line flag 'max_seq_lenght'. Did you mean: max_seq_length", max_seq_lenght=20)
@case("--use_tpu=true: TPUs are not supported. Leave the flag out to run on CPU or GPU", use_tpu=True)
@case("Nothing to do: at least one of --do_train, --do_eval and --do_predict must be true",
      do_train=False, do_eval=False, do_predict=False)
@case("--data_dir is empty. Pass a path, or leave the flag out. If the path comes from a shell variable",
      data_dir="")
@case("--vocab_file is empty.", vocab_file="")
@case("--spm_model_file is empty.", spm_model_file="")
@case("--bert_config_file is empty.", bert_config_file="")
@case("--output_dir is empty.", output_dir="")
@case("--init_checkpoint is empty.", "Pass a path, or leave the flag out.", init_checkpoint="")
@case("--init_checkpoint is empty.", init_checkpoint=" ")
def flag(given, **flags):
    given.flags.update(flags)


@case("Nothing to do: at least one of --do_train, --do_eval and --do_predict must be true. --do_train is "
      "false because --do_eval is on the command line; add --do_train=true.", phase="do_eval")
@case("must be true. --do_eval is false because --do_train is on the command line; add --do_eval=true.",
      phase="do_train")
def only_one_phase_and_false(given, phase):
    for name in ("do_train", "do_eval", "do_predict"):
        del given.flags[name]
    given.flags[phase] = False


@case("This command takes only flags, written as --name=value. Remove or correct: stray 3.")
def stray_argument(given):
    given.arguments = ["stray", "3"]


# --- TFRecords -------------------------------------------------------------------------------------------


# The script reads only records that it wrote. But other programs call this function with their own files.
def read_records(path, seq_length=4):
    run_classifier.file_based_input_fn_builder(str(path), seq_length, False, False)({"batch_size": 2})


@pytest.fixture
def records(tmp_path):
    """A file with three records of four tokens each."""
    path = tmp_path / "train.tf_record"
    row = {"input_ids": [1, 2, 3, 0], "input_mask": [1, 1, 1, 0], "segment_ids": [0] * 4, "label_ids": 1,
           "is_real_example": 1}
    record_files.write_records(str(path), run_classifier.feature_fields(4), [row] * 3)
    return path


def test_a_flag_file_that_is_not_utf_8(scripts, tmp_path):
    (tmp_path / "a.flags").write_bytes(b"--output_file=caf\xe9.txt\n")
    done = scripts.run("build_vocab.py", "--flagfile=a.flags", cwd=tmp_path)
    assert done.code == 1 and "a file that --flagfile names is not UTF-8" in done.err, done.err
    assert "Traceback" not in done.err


def test_missing_records(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"There is no file {tmp_path / 'none'}")):
        read_records(tmp_path / "none")


def test_truncated_records_are_named_and_located(records):
    read_records(records)
    size = records.stat().st_size
    for left, number in ((size - 1, 2), (size // 3 + 5, 1), (5, 0)):
        truncate(records, left)
        with pytest.raises(ValueError) as error:
            read_records(records)
        assert (f"{records} is damaged or truncated at record {number} (byte {size // 3 * number} of "
                f"{left}). Delete this file"
                in str(error.value))
    truncate(records, 0)
    with pytest.raises(ValueError, match=f"{re.escape(str(records))} is empty"):
        read_records(records)


def test_a_wrong_byte_in_records_is_found(records):
    content = bytearray(records.read_bytes())
    content[len(content) // 2] ^= 1
    records.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or truncated at record 1"):
        read_records(records)


def test_records_of_another_sequence_length(records):
    with pytest.raises(ValueError, match="input_ids has 4 int64 values, not 5. .* another sequence length"):
        read_records(records, seq_length=5)
