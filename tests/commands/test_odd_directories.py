"""Every command works in a directory whose name TensorFlow would read as a glob pattern."""


import pytest
import tiny

ODD = "a[1] \\ b*?"
TEXT = "\n".join(["the cat sees a bird .", "a dog hears the old man .", "", "no fish sings .",
                  "a river moves ."] * 8)


@pytest.fixture
def run(scripts, tmp_path):
    """A function that runs a command in the odd directory. The command must succeed.

    Another directory has a name that the pattern would match.
    """
    (tmp_path / "a1 \\ bc").mkdir()
    (tmp_path / ODD).mkdir()

    def run(script, **flags):
        finished = scripts.run(script, *tiny.flags(**flags), cwd=tmp_path / ODD)
        assert finished.code == 0, finished.err
        return finished
    return run


@pytest.fixture
def here(tmp_path):
    return tmp_path / ODD


@pytest.fixture
def model(run, here):
    return tiny.Model(here)


@pytest.mark.soak(reason="six whole runs; SQuAD's above has the same checkpoints and records in such a "
                         "directory")
def test_text_becomes_a_vocabulary_records_and_a_pretrained_model(run, here, model):
    for name in ("text.txt", "more[1].txt"):
        (here / name).write_text(TEXT)
    run("build_vocab.py", input_file=here / "*.txt", output_file=here / "new[1].txt", vocab_size=90,
        min_frequency=1)
    run("create_pretraining_data.py", input_file=f"{here / 'text.txt'},{here / 'more[1].txt'}",
        output_file=here / "records[1].tfrecord", vocab_file=model.vocab, max_seq_length=20,
        max_predictions_per_seq=4, dupe_factor=1)
    for pattern, steps in (("records[1].tfrecord", 2), ("*.tfrecord", 4)):
        run("run_pretraining.py", input_file=here / pattern, bert_config_file=model.shallow, do_train=True,
            init_checkpoint=model.checkpoint, output_dir=here / "output", do_eval=True,
            eval_each_checkpoint=True, train_batch_size=2, num_train_steps=steps, num_warmup_steps=1,
            max_seq_length=20, max_predictions_per_seq=4, save_checkpoints_steps=1, max_eval_steps=1)
    assert "global_step = 4" in (here / "output" / "eval_results.txt").read_text()
    assert len((here / "output" / "learning_curve.tsv").read_text().splitlines()) > 4


def test_checkpoints_are_converted(run, here, model):
    run("convert_checkpoint.py", input=model.checkpoint, output=here / "theirs[1]")
    run("convert_checkpoint.py", input=here / "theirs[1]", output=here / "ours*")
    run("convert_checkpoint.py", input=here / "ours*", output=here / "stripped", weights_only=True)
    assert (here / "stripped" / "bert_model.ckpt.index").exists()
