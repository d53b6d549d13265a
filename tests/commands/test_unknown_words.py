"""Each command that makes features from texts warns if the vocabulary does not contain their words."""


from helpers import write_json
import pytest

CHINESE = "这部电影很好看"
WARNING = "100 % of the tokens are [UNK], for example in '这部电影很好看'"


def write_data(directory):
    (directory / "zh.csv").write_text("text,label\n" + f"{CHINESE},yes\n{CHINESE},no\n" * 8)
    paragraph = {"context": CHINESE, "qas": [{"id": "1", "question": CHINESE, "answers": [
        {"text": "电影", "answer_start": 2}]}]}
    write_json(directory / "zh.json", {"version": "1.1", "data": [
        {"title": "t", "paragraphs": [paragraph]}]})
    (directory / "zh.txt").write_text(f"{CHINESE}\n{CHINESE}\n\n" * 4)
    (directory / "zh.conll").write_text(f"{CHINESE} B-X\n\n" * 8)
    (directory / "zh_swag.csv").write_text("sent1,sent2,ending0,ending1,label\n" + ",".join(
        [CHINESE] * 4 + ["0\n"]) * 2)


@pytest.mark.parametrize("script, flags", [
    ("create_pretraining_data.py", dict(input_file="zh.txt", output_file="zh.tfrecord",
                                        bert_config_file=None, init_checkpoint=None)),
    ("extract_features.py", dict(input_file="zh.txt", output_file="zh.jsonl", layers="-1")),
    # These commands end before they train, because the batch is larger than the data.
    ("run_classifier.py", dict(train_file="zh.csv", train_batch_size=99)),
    ("run_squad.py", dict(train_file="zh.json", do_train=True, train_batch_size=99, doc_stride=4,
                          max_query_length=8)),
    ("run_ner.py", dict(train_file="zh.conll", do_train=True, train_batch_size=99)),
    ("run_swag.py", dict(train_file="zh_swag.csv", do_train=True, train_batch_size=99))])
def test_texts_of_another_language_are_named_once(script, flags, run_script, tiny_model, tmp_path):
    write_data(tmp_path)
    given = {**tiny_model.flags, "max_seq_length": 32, "do_lower_case": True, **flags}
    if "train_file" in flags:
        given["output_dir"] = "out"
    finished = run_script(script, **given)
    assert finished.err.count(WARNING) == 1, finished.err
