"""Bad input ends a command with exit code 1 and one message: what is wrong, where, and what to do.

Nothing is written. A case is a function that spoils the input of a run that would train, evaluate and
predict. Its decorator lists texts that the message must contain. In them, {data}, {model}, {output} and
{here} are replaced by directories. The tests of readers, vocabularies and checkpoints have more faults; here
is one of each kind.
"""

import re
import shutil

from helpers import read_json, snapshot, write_json
import pytest
import tiny

from bertlib.runs import model_config
from bertlib.runs.settings import Settings


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

    def configure(self, **changes):
        """Changes the configuration."""
        path = self.flags["bert_config_file"]
        write_json(path, {**read_json(path), **changes})

    def use_hugging_face(self):
        """Changes the flags to the Hugging Face directory of the model. Returns the directory."""
        directory = self.model / "hugging_face"
        for flag in ("vocab_file", "bert_config_file"):
            del self.flags[flag]
        self.flags["init_checkpoint"] = directory
        return directory

    def write_weights(self, **changes):
        """Writes the starting weights again, with other arrays. None removes an array."""
        arrays = {name: values for name, values in {**self.weights, **changes}.items() if values is not None}
        tiny.write_tensorflow(self.flags["init_checkpoint"], arrays)

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


def truncate(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)


LOG_LINE = re.compile(r"\d\d:\d\d:\d\d ")
ERROR = re.compile(r"run_classifier\.py: error: (.*?)\n", re.DOTALL)


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
        spoil, arguments, expected, run_script, tiny_model, tmp_path):
    given = Input(tmp_path, tiny_model)
    spoil(given, **arguments)
    before = snapshot(tmp_path)
    message = message_of(run_script("run_classifier.py", **given.flags))
    for part in expected:
        assert part.format(**vars(given)) in message
    assert "Traceback" not in message and "Errno" not in message
    assert snapshot(tmp_path) == before


# --- Data and flags --------------------------------------------------------------------------------------


@case("--task_name: unknown task 'mprc'; the tasks are ax, cola, mnli, mrpc, ", "Did you mean mrpc?",
      task_name="mprc")
@case("4 training examples", "--train_batch_size=5", "--num_train_epochs=1", "Lower the batch size",
      train_batch_size=5, num_train_epochs=1)
@case("--max_seq_length=41 is above max_position_embeddings=40 in {model}/bert_config.json", "Pass a lower",
      max_seq_length=41)
@case("--vocab_file=c/uncased_L-2_H-128_A-2/v.txt: there is no such file. `python download.py "
      "--model=uncased_L-2_H-128_A-2` downloads the published model. Then pass "
      "--vocab_file=checkpoints/uncased_L-2_H-128_A-2/vocab.txt.",
      vocab_file="c/uncased_L-2_H-128_A-2/v.txt")
@case("--vocab_file=data is a directory; name the file", vocab_file="data")
def flag(given, **flags):
    given.flags.update(flags)


@case("--data_dir is required", "a sample of MRPC, but not of CoLA")
def task_without_a_sample(given):
    del given.flags["data_dir"]
    given.flags["task_name"] = "CoLA"


@case("--task_name is required, because --output_dir={output} contains no training of a classifier with a ru")
def no_training_and_no_task(given):
    del given.flags["task_name"]
    given.flags["do_train"] = False


# --- The model -------------------------------------------------------------------------------------------

SIZE = len(tiny.VOCABULARY)


@case(f"{{model}}/vocab.txt has {SIZE + 1} entries, but the config's vocab_size is {SIZE}: from line "
      f"{SIZE + 1} on", "that belong to the same checkpoint")
def vocabulary_with_one_more(given):
    with open(given.flags["vocab_file"], "ab") as file:
        file.write(b"more\n")


@case("type_vocab_size is 1 in the model's configuration", "the examples of mrpc are pairs")
def pairs_for_a_model_of_one_segment(given):
    given.configure(type_vocab_size=1)
    name = "bert/embeddings/token_type_embeddings"
    given.write_weights(**{name: given.weights[name][:1]})


@case("--vocab_file is required: there is no vocab.txt or spm.model in the directory of "
      "--init_checkpoint={model}/hugging_face")
def directory_without_vocabulary(given):
    (given.use_hugging_face() / "vocab.txt").unlink()


@case("--do_lower_case=True does not suit", "cased_L-12_H-768_A-12 was trained on cased text. Pass "
      "--do_lower_case=False")
def casing_against_the_models_name(given):
    renamed = given.model.rename(given.here / "cased_L-12_H-768_A-12")
    given.flags.update(vocab_file=renamed / "vocab.txt", bert_config_file=renamed / "bert_config.json",
                       init_checkpoint=renamed / "bert_model.ckpt", do_lower_case=True)


# --- Output directory ------------------------------------------------------------------------------------


@case("--output_dir={output} contains checkpoints that do not fit this run. They probably belong to another "
      "model, or", "{output}/model.ckpt-3",
      "output_weights: the checkpoint has [3, 16], the model [2, 16]", "fine-tuned with other labels",
      num_labels=3)
def output_of_another_training(given, **changes):
    given.train_there(**changes)


@case("--output_dir={output}: {output} is a broken link")
def output_directory_that_is_a_link_to_nothing(given):
    given.output.symlink_to("nowhere")


# --- Configurations, without a command -------------------------------------------------------------------


@pytest.mark.parametrize("changes, said", [
    (dict(hidden_sise=16), "hidden_sise is unknown; did you mean hidden_size?"),
    (dict(num_attention_heads=None), "num_attention_heads is missing."),
    (dict(num_attention_heads=3), "num_attention_heads=3 does not divide hidden_size=16"),
    (dict(hidden_size="16"), "hidden_size is '16'; it must be a whole number from 1 to 16777216"),
    (dict(hidden_size=10**4000), f"hidden_size is 1{59 * '0'}…; it must be a whole number"),
    (dict(hidden_dropout_prob=1.5), "hidden_dropout_prob is 1.5; it must be a number of at least 0 and belo"),
    (dict(hidden_act="swish"), "hidden_act: Unknown activation 'swish'; known: gelu,"),
    (dict(model_type="roberta"), "model_type='roberta' is not supported; use 'bert'")], ids=str)
def test_a_configuration_that_cannot_be_names_its_setting(changes, said, tmp_path):
    path = tmp_path / "bert_config.json"
    write_json(path, {name: value for name, value in {**tiny.CONFIG, **changes}.items()
                                if value is not None})
    with pytest.raises(ValueError) as error:
        model_config.read_config(Settings(dict(bert_config_file=str(path))))
    assert str(error.value).startswith(f"--bert_config_file: {path} is not usable:\n")
    assert said in str(error.value)


def test_a_configuration_that_is_no_json_object_is_named(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match=f"{path} must contain a JSON object, not a list"):
        model_config.read_config(Settings(dict(bert_config_file=str(path))))
