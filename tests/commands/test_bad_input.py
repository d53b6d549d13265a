"""Bad input ends a command with exit code 1 and one message: what is wrong, where, and what to do.

Nothing is written. The tests of readers, vocabularies and checkpoints have more faults; here is one of each
kind.
"""

import re

from helpers import error_of, read_json, snapshot, write_json
import model_directories
import pytest
from rows import ROWS
import tiny

from bertlib.runs import model_config
from bertlib.runs.settings import Settings


def remove_vocabulary(untrained):
    (untrained.directory / "model" / "hugging_face" / "vocab.txt").unlink()


def record_of(**fields):
    """Returns a function that writes a record with these fields into --output_dir."""
    def write(untrained):
        untrained.output.mkdir()
        write_json(untrained.output / "run.json", model_directories.record(**fields))
    return write


@pytest.mark.parametrize("spoil, flags, expected", [
    (None, dict(task_name="mprc"),
     ["--task_name: unknown task 'mprc'; the tasks are ax, cola, mnli, mrpc, ", "Did you mean mrpc?"]),
    (None, dict(max_seq_length=41), [
        "--max_seq_length=41 is above max_position_embeddings=40 in model/shallow.json", "Pass a lower"]),
    (None, dict(vocab_file="c/uncased_L-2_H-128_A-2/v.txt"), [
        "--vocab_file=c/uncased_L-2_H-128_A-2/v.txt: there is no such file. `python download.py "
        "--model=uncased_L-2_H-128_A-2` downloads the published model. Then pass "
        "--vocab_file=checkpoints/uncased_L-2_H-128_A-2/vocab.txt."]),
    (None, dict(init_checkpoint="/no_dir/bert_model.ckpt"), [
        "If your command has a shell variable before /no_dir/bert_model.ckpt: is this variable set?"]),
    (None, dict(vocab_file="data"), ["--vocab_file=data is a directory; name the file"]),
    (None, dict(data_dir=None, task_name="CoLA"), ["--data_dir is required",
                                                   "a sample of MRPC, but not of CoLA"]),
    (None, dict(task_name=None, do_train=False), [
        "--task_name is required, because --output_dir=output contains no training of a classifier with a "]),
    (record_of(task="mrpc"), dict(task_name=None), [
        "output contains a training of mrpc. To continue it, pass --task_name=mrpc and the other flags of"]),
    (record_of(task_type="questions"), dict(task_name=None, do_train=False), [
        "--task_name is required, because --output_dir=output contains a training by run_squad.py; known"]),
    (remove_vocabulary, dict(vocab_file=None, bert_config_file=None, init_checkpoint="model/hugging_face"), [
        "--vocab_file is required: there is no vocab.txt or spm.model in the directory of "
        "--init_checkpoint=model/hugging_face"]),
    (lambda work: (work.directory / "model").rename(work.directory / "cased_L-12_H-768_A-12"),
     dict(vocab_file="cased_L-12_H-768_A-12/vocab.txt", bert_config_file="cased_L-12_H-768_A-12/shallow.json",
          init_checkpoint="cased_L-12_H-768_A-12/bert_model.ckpt", do_lower_case=True), [
        "--do_lower_case=True does not suit",
        "cased_L-12_H-768_A-12 was trained on cased text. Pass --do_lower_case=False"]),
    (lambda work: work.output.symlink_to("nowhere"), {}, ["--output_dir=output: output is a broken link"])])
def test_bad_input_is_refused_in_one_message_before_anything_is_written(spoil, flags, expected, untrained):
    if spoil:
        spoil(untrained)
    before = snapshot(untrained.directory)
    refused = untrained.train(**flags)
    refused.assert_refused()
    log, _, message = refused.err.partition("run_classifier.py: error: ")
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in log.splitlines()) and not refused.out
    assert "Errno" not in message and not [part for part in expected if part not in message], message
    assert snapshot(untrained.directory) == before


def test_pairs_are_refused_for_a_model_that_knows_one_segment(untrained, tiny_model):
    config = untrained.directory / "model" / "shallow.json"
    write_json(config, {**read_json(config), "type_vocab_size": 1})
    name = "bert/embeddings/token_type_embeddings"
    tiny.write_tensorflow(untrained.directory / "model" / "bert_model.ckpt",
                          {**tiny_model.weights, name: tiny_model.weights[name][:1]})
    (untrained.directory / "text.txt").write_text("a cat\na cat ||| a dog\n")
    for script, given, what in (
            ("run_classifier.py", dict(task_name="mrpc", data_dir="data", do_train=True),
             "the examples of mrpc are pairs"),
            ("run_squad.py", dict(max_query_length=8), "each input is a question and a context"),
            ("extract_features.py", dict(layers=-1, input_file="text.txt"), "line 2 of --input_file=")):
        refused = untrained.run(script, **{**untrained.row.base, **given})
        refused.assert_refused("type_vocab_size is 1 in the model's configuration", what)


# (row, flags, message). The tests of the commands have the refusals that need further files.
REFUSED = [
    ("pairs", dict(profile_steps="2,9"),
     "--profile_steps=2,9: training ends at step 8. Pass steps from 1 to 8"),
    ("pairs", dict(use_xla=True, compile_kernels=True),
     "--use_xla=true and --compile_kernels=true replace the same ops"),
    ("pairs", dict(memory_limit_gb=0.00001, gradient_accumulation_steps=0, trim_padding=False),
     "with micro-batches of 1, needs"),
    ("hub module", dict(bert_hub_module_handle="nothing"),
     "--bert_hub_module_handle: The hub module nothing was not"),
    ("hub module", dict(bert_hub_module_handle="https://tfhub.dev/google/b/1"), "modules are not downloaded"),
    ("hub module", dict(freeze_layers=1), "--freeze_layers=1: a hub module is used with its own weights"),
    ("hub module", dict(vocab_file="vocab.txt"),
     "--vocab_file=vocab.txt: the hub module has its own vocabulary"),
    ("hub module", dict(do_lower_case=False),
     "--do_lower_case=false, but the hub module says do_lower_case=true"),
    ("hub module", dict(max_seq_length=41), "--max_seq_length=41: the hub module has only 40 positions"),
    ("SQuAD 1.1", dict(tokens_per_micro_batch=40), "--tokens_per_micro_batch needs --trim_padding=true"),
    ("SQuAD 2.0", dict(train_file=None), "--train_file is required"),
    ("SQuAD 2.0", dict(max_query_length=29), "leaves no room for a context"),
    ("multiple choice", dict(tokens_per_micro_batch=64),
     "--tokens_per_micro_batch=64 is below --max_seq_length=32 × 4 sequences"),
    ("pre-training", dict(input_file=None), "--input_file is required"),
    ("pre-training", dict(max_seq_length=24), "--max_seq_length=24, but train.tfrecord was written with "
     "--max_seq_length=20. Pass --max_seq_length=20")]


@pytest.mark.parametrize("name, flags, message", REFUSED, ids=str)
def test_flags_that_do_not_fit_are_refused_before_anything_is_written(name, flags, message, workspaces,
                                                                      tmp_path):
    work = workspaces(ROWS[name], untrained=True).copy(tmp_path / "copy")
    work.train(**flags).assert_refused(message)
    assert not work.output.exists()


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
    found = error_of(model_config.read_config, Settings(dict(bert_config_file=str(path))))
    assert found.startswith(f"--bert_config_file: {path} is not usable:\n") and said in found
