"""A training continues even if the list of its checkpoints is missing or its newest checkpoint is damaged."""

import subprocess

import pytest
import tiny


@pytest.fixture
def train(scripts, tiny_model, tmp_path):
    """A function that trains for some epochs of two steps in tmp_path/output. It returns `Finished`."""
    data = tiny.write_task(tmp_path / "data", "mrpc", train=4, dev=2)

    def train(epochs):
        flags = {**tiny_model.flags, "bert_config_file": tiny_model.shallow, "task_name": "mrpc",
                 "data_dir": data, "output_dir": tmp_path / "output", "save_checkpoints_steps": 1,
                 "do_train": True, "train_batch_size": 2, "num_train_epochs": epochs}
        return scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=tmp_path)
    return train


@pytest.mark.slow(reason="three whole runs; test_checkpoint_files.py has the message and its command")
def test_the_message_on_a_damaged_checkpoint_holds_the_command_to_go_on(train, tmp_path):
    assert train(2).code == 0
    path = tmp_path / "output" / "model.ckpt-4.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-5])
    finished = train(3)
    assert finished.code == 1 and "model.ckpt-4 is damaged" in finished.err
    *_, message, command = finished.err.splitlines()
    assert f"The newest complete checkpoint before it is {tmp_path}/output/model.ckpt-3." in message
    subprocess.run(command, shell=True, check=True)
    finished = train(3)
    assert finished.code == 0 and "step 3 to step 6" in finished.err


def test_pairs_are_refused_for_a_model_that_knows_one_segment(scripts, tiny_model, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(tiny_model.config.read_text().replace('"type_vocab_size": 2', '"type_vocab_size": 1'))
    (tmp_path / "text.txt").write_text("a cat\na cat ||| a dog\n")
    name = "bert/embeddings/token_type_embeddings"
    weights = {**tiny_model.weights, name: tiny_model.weights[name][:1]}
    checkpoint = tiny.write_tensorflow(tmp_path / "bert.ckpt", weights)
    flags = {**tiny_model.flags, "bert_config_file": config, "init_checkpoint": checkpoint}
    only = {"bert_config_file": config, "max_seq_length": 20}
    for script, given, what in (
            ("run_squad.py", {**flags, "max_query_length": 8}, "each input is a question and a context"),
            ("run_pretraining.py", {**only, "input_file": "x"}, "an example of pre-training is a pair"),
            ("extract_features.py", {**flags, "layers": -1, "input_file": tmp_path / "text.txt"},
             "line 2 of --input_file=")):
        finished = scripts.run(script, *tiny.flags(**given), cwd=tmp_path)
        assert finished.code == 1 and "type_vocab_size is 1 in the model's configuration" in finished.err
        assert what in finished.err and "Traceback" not in finished.err
