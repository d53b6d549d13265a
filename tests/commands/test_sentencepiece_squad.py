"""SQuAD with a SentencePiece model: answers become tokens, and tokens become the same characters again."""


from helpers import read_json, write_json
import numpy as np
import pytest
from test_sentencepiece import train
import tiny

from bertlib.checkpoints.bert_config import variable_shapes
from bertlib.tasks.squad import span_selection, squad_data
import modeling
import tokenization

# {context: answers to find in it}. Answers are inside of words, or contain several words. In some answers,
# the tokenizer changes the number or the case of characters.
CONTEXTS = {
    "Steve  Smith's café\t(in Oslo), naïve since 1,999, sold ½ cups… and ﬁn.":
        ["Smith", "Oslo", "Steve  Smith", "café", "1,999", "½ cups", "½", "cups", "naïve since", "ﬁn"],
    "the cafe\u0301s in cafe\u0301": ["cafe\u0301s", "cafe\u0301"],
    "東京は日本の首都です。人口は1400万人。": ["日本", "首都", "1400万人"],
    "Москва — столица России.": ["столица", "Москва", "России"],
    "हिन्दी भाषा भारत की है।": ["भाषा", "भारत"],
    "القاهرة عاصمة مصر": ["عاصمة"],
}


@pytest.fixture(scope="module")
def spm_model_file(tmp_path_factory):
    """A model that splits texts into characters, so that each answer consists of whole tokens."""
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    path.write_bytes(train(model_type="char"))
    return path


@pytest.fixture(scope="module")
def squad_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("squad") / "squad.json"
    paragraphs = [{"context": context, "qas": [
        {"id": f"{i}.{j}", "question": f"{text}?",
         "answers": [{"text": text, "answer_start": context.find(text)}]}
        for j, text in enumerate(answers)]} for i, (context, answers) in enumerate(CONTEXTS.items())]
    write_json(path, {"data": [{"paragraphs": paragraphs}]})
    return path


@pytest.mark.parametrize("lower, length", [(True, 60), (False, 400)])
def test_answers_come_back_with_their_places(spm_model_file, squad_file, lower, length):
    tokenizer = tokenization.SentencePieceTokenizer(spm_model_file, lower)
    examples = squad_data.read_squad_examples(str(squad_file), True)
    features = list(squad_data.generate_features(examples, tokenizer, length, 12, 8, True, report=False))
    results = []
    for feature in features:
        # The logits of a perfect model: they select the answer, or no answer if the window does not contain
        # it.
        sure = 9.0 if feature.start_position else -9.0
        logits = [np.where(np.arange(length) == place, sure, -20.0)
                  for place in (feature.start_position, feature.end_position)]
        results.append(span_selection.RawResult(feature.unique_id, *logits))
    found = {prediction.qas_id: prediction.answer for prediction in span_selection.select_answers(
        examples, features, results, span_selection.Search(3, 60, lower))}
    for i, (context, answers) in enumerate(CONTEXTS.items()):
        for j, text in enumerate(answers):
            answer = found[f"{i}.{j}"]
            assert answer.text == " ".join(text.split())
            assert context[answer.start:answer.end] == text


def test_the_script_answers(run_script, squad_file, spm_model_file, tmp_path):
    size = len(tokenization.SentencePieceTokenizer(spm_model_file).vocab)
    config = {**tiny.CONFIG, "num_hidden_layers": 1, "vocab_size": size, "max_position_embeddings": 64}
    write_json(tmp_path / "config.json", config)
    chance = np.random.default_rng(0)
    shapes = {**variable_shapes(modeling.BertConfig.from_dict(config)), "cls/squad/output_bias": (2,),
              "cls/squad/output_weights": (2, config["hidden_size"])}
    tiny.write_tensorflow(tmp_path / "model.ckpt", {
        name: chance.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()})
    done = run_script("run_squad.py", bert_config_file="config.json", spm_model_file=spm_model_file,
                      predict_file=squad_file, do_eval=True, init_checkpoint="model.ckpt",
        max_seq_length=64, doc_stride=20, max_query_length=16, n_best_size=64, output_dir="out",
        num_workers=2)
    done.assert_success()
    contexts = list(CONTEXTS)
    answers = read_json(tmp_path / "out" / "answer_offsets.json")
    assert len(answers) == sum(map(len, CONTEXTS.values()))
    for qas_id, answer in answers.items():
        part = contexts[int(qas_id.split(".")[0])][answer["start"]:answer["end"]]
        assert answer["text"] and part.split() == answer["text"].split()
