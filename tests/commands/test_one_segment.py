"""Commands refuse pairs of texts for a model that knows only one segment."""

import tiny


def test_pairs_are_refused_for_a_model_that_knows_one_segment(run_script, tiny_model, tmp_path):
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
        finished = run_script(script, **given)
        assert finished.code == 1 and "type_vocab_size is 1 in the model's configuration" in finished.err
        assert what in finished.err and "Traceback" not in finished.err
