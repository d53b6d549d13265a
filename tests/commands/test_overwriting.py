"""No command overwrites a file that it reads, whatever the names of the two files are.

The command checks this before it writes anything.
"""

import os
import shutil

from helpers import snapshot, write_json
import pytest
import tiny

TEXT = "the cat sees a dog .\na man eats bread .\n\nthe child likes the old house .\na bird sings .\n"


def squad(path):
    answer = {"text": "cat", "answer_start": 4}
    question = {"id": "q", "question": "what sees", "answers": [answer]}
    paragraph = {"context": "the cat sees", "qas": [question]}
    write_json(path, {"data": [{"title": "t", "paragraphs": [paragraph]}]})


@pytest.fixture
def here(tiny_model, tmp_path):
    """A directory with a model, text and data. The text has several names."""
    shutil.copytree(tiny_model.directory, tmp_path / "model")
    tiny.write_task(tmp_path / "data", "mrpc", train=4, dev=2, test=2)
    for name in ("text.txt", "new.npz.partial", "new.partial.block", "new.manifest.json"):
        (tmp_path / name).write_text(TEXT)
    os.makedirs(tmp_path / "answers")
    squad(tmp_path / "answers" / "predictions.json")
    squad(tmp_path / "answers" / "x.json")
    (tmp_path / "answers" / "test_results.tsv").symlink_to("../data/test.tsv")
    (tmp_path / "converted").mkdir()
    shutil.copy(tmp_path / "model" / "vocab.txt", tmp_path / "converted")
    for path in (tmp_path / "model").glob("bert_model.ckpt.*"):
        shutil.copy(path, tmp_path / "answers" / path.name.replace("bert_model.ckpt", "model.ckpt-0"))
    return tmp_path


MODEL = dict(vocab_file="model/vocab.txt", bert_config_file="model/bert_config.json",
             init_checkpoint="model/bert_model.ckpt", max_seq_length=tiny.SEQ_LENGTH)
FEATURES = dict(MODEL, input_file="text.txt")
RECORDS = dict(vocab_file="model/vocab.txt", input_file="text.txt", max_seq_length=16)
CLASSIFIER = dict(MODEL, task_name="mrpc", data_dir="data", do_train=True, do_predict=True,
                  train_batch_size=2)
SQUAD = dict(MODEL, max_query_length=8, train_file="answers/predictions.json", do_train=True,
             train_batch_size=1)
CASES = {
    "what would be written aside": ("extract_features.py", dict(
        FEATURES, input_file="new.npz.partial", output_format="npz", output_file="new.npz"),
        "--output_file=new.npz would overwrite new.npz.partial, which --input_file reads"),
    "a manifest": ("create_pretraining_data.py", dict(
        RECORDS, input_file="new.manifest.json", output_file="new"),
        "would overwrite new.manifest.json, which --input_file reads"),
    "one output twice": ("create_pretraining_data.py", dict(RECORDS, output_file="new,./new"),
                         "is named twice"),
    "examples, by a link": (
        "run_classifier.py", dict(CLASSIFIER, output_dir="answers"),
        "would overwrite answers/test_results.tsv (the same file as data/test.tsv), which --data_dir reads"),
    "questions in another directory": (
        "run_squad.py", dict(SQUAD, output_dir="trained", results_dir="answers"),
        "--results_dir=answers would overwrite answers/predictions.json, which --train_file reads"),
    "a starting checkpoint": ("run_squad.py", dict(
        SQUAD, train_file="answers/x.json", init_checkpoint="answers/model.ckpt-0", output_dir="answers"),
        "which --init_checkpoint reads"),
    "what goes along": ("convert_checkpoint.py", dict(
        input="model/bert_model.ckpt", vocab_file="converted/vocab.txt", output="converted", force=True),
        "would overwrite converted/vocab.txt, which --vocab_file reads"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_is_read_is_not_overwritten(case, here, scripts):
    script, flags, expected = CASES[case]
    before = snapshot(here)
    finished = scripts.run(script, *tiny.flags(**flags), cwd=here)
    assert finished.code == 1
    assert finished.err.splitlines()[-1].startswith(f"{script}: error: ") and expected in finished.err
    assert snapshot(here) == before
