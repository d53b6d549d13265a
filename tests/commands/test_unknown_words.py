"""Commands that make features from texts warn if the vocabulary does not contain their words."""

import pytest

CHINESE = "这部电影很好看"
WARNING = "100 % of the tokens are [UNK], for example in '这部电影很好看'"


@pytest.mark.parametrize("script, flags", [
    ("create_pretraining_data.py", dict(input_file="zh.txt", output_file="zh.tfrecord",
                                        bert_config_file=None, init_checkpoint=None)),
    ("extract_features.py", dict(input_file="zh.txt", output_file="zh.jsonl", layers="-1")),
    # This command ends before it trains, because the batch is larger than the data.
    ("run_classifier.py", dict(train_file="zh.csv", train_batch_size=99, output_dir="out"))])
def test_texts_of_another_language_are_named_once(script, flags, run_script, tiny_model, tmp_path):
    (tmp_path / "zh.csv").write_text("text,label\n" + f"{CHINESE},yes\n{CHINESE},no\n" * 8)
    (tmp_path / "zh.txt").write_text(f"{CHINESE}\n{CHINESE}\n\n" * 4)
    given = {**tiny_model.flags, "max_seq_length": 32, "do_lower_case": True, **flags}
    finished = run_script(script, **given)
    assert finished.err.count(WARNING) == 1, finished.err
