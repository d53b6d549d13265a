"""Questions with several endings: reading, features, and the scores of the head."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import input_pipeline
from bertlib.estimator.estimator import ModeKeys
from bertlib.tasks import head
from bertlib.tasks.multiple_choice import choice_data, choice_head, choice_metrics
import modeling
import tokenization

HEADER = "sent1,sent2,ending0,ending1,ending2,label"
GOOD = "the cat sees a bird .,it,eats the bird .,finds a house .,moves a train .,0"


def read(path, *lines, needs_labels=True, skip=False, **flags):
    path.write_text("".join(f"{line}\n" for line in lines))
    values = {"text_column": None, "label_column": None, "header": "auto", "delimiter": "auto",
              "encoding": "utf-8", **flags}
    return choice_data.read_questions(str(path), lambda name, default: values[name], needs_labels, skip)


# --- Reading ---------------------------------------------------------------------------------------------


def test_a_file_in_the_columns_of_swag(tmp_path):
    file = read(tmp_path / "a.csv", f"id,startphrase,{HEADER}", f'7,"the cat, it",{GOOD}')
    question, = file.questions
    assert (file.num_choices, file.is_labelled, question.line, question.label) == (3, True, 2, 0)
    assert (question.sent1, question.sent2) == ("the cat sees a bird .", "it")
    assert question.endings == ("eats the bird .", "finds a house .", "moves a train .")
    assert question.values[1] == "the cat, it"


def test_a_test_file_needs_no_labels(tmp_path):
    unlabelled = [line.rpartition(",")[0] for line in (HEADER, GOOD)]
    file = read(tmp_path / "a.csv", *unlabelled, needs_labels=False)
    assert not file.is_labelled and file.questions[0].label is None
    with pytest.raises(ValueError, match="a.csv:1: no column has a usual name for labels"):
        read(tmp_path / "a.csv", *unlabelled)
    # A column whose labels are all empty counts as no column. If only some labels are empty, it is an error.
    empty = read(tmp_path / "a.csv", HEADER, GOOD[:-1], GOOD[:-1] + " ", needs_labels=False, skip=None)
    assert not empty.is_labelled and [question.label for question in empty.questions] == [None, None]
    for label in ("null", "-1", '"-1"'):
        row = f'{{"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": {label}}}'
        assert not read(tmp_path / "a.jsonl", row, needs_labels=False, skip=None).is_labelled
    with pytest.raises(ValueError, match=r"(?s)a.csv:2: the label is empty, but other rows have labels.*\n"
                       r"Correct these lines\.$"):
        read(tmp_path / "a.csv", HEADER, GOOD[:-1], GOOD[:-1], GOOD, needs_labels=False, skip=None)


@pytest.mark.parametrize(("lines", "said"), [
    ([HEADER, GOOD, GOOD[:-1] + "3"], "a.csv:3: the label is '3', but it should be the number of the right "
                                      "ending, from 0 to 2"),
    ([HEADER, GOOD, GOOD[:-1] + "x"], "a.csv:3: the label is 'x'"),
    ([HEADER, GOOD, GOOD[:-1]], "a.csv:3: the label is ''"),
    ([HEADER, GOOD.replace("finds a house .", " ")], "a.csv:2: the text in column ending1 is empty"),
    ([HEADER, GOOD, "a,b"], "a.csv:3: the row has 2 columns, but line 1 has 6"),
    (["sent1,sent2,ending0,label", "a,b,c,0"], "a.csv:1: there is no column 'ending1'"),
    ([HEADER], "a.csv: the file contains no question"), ([], "a.csv: the file contains no question")])
def test_a_bad_line_is_named(lines, said, tmp_path):
    with pytest.raises(ValueError) as raised:
        read(tmp_path / "a.csv", *lines)
    assert said in str(raised.value)


def test_bad_lines_are_skipped_on_request(tmp_path):
    file = read(tmp_path / "a.csv", HEADER, GOOD, GOOD[:-1] + "9", GOOD, skip=True)
    assert [question.line for question in file.questions] == [2, 4]
    assert [(fault.line, fault.kind) for fault in file.skipped] == [(3, "bad label")]


def test_too_few_columns_of_endings_are_named(tmp_path):
    with pytest.raises(ValueError, match="--text_column names 3 columns"):
        read(tmp_path / "a.csv", HEADER, GOOD, text_column="sent1,sent2,ending0")


def test_rows_of_json_lines_have_the_same_number_of_endings(tmp_path):
    rows = ['{"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": 1}',
            '{"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "ending2": "e", "label": 1}']
    with pytest.raises(ValueError, match="a.jsonl:2: the row has 3 endings, but the first row has 2"):
        read(tmp_path / "a.jsonl", *rows)


# --- Features --------------------------------------------------------------------------------------------


def test_each_ending_is_a_sequence(tiny_model, tmp_path):
    """The form is that of section 4.4 of the paper: [CLS] sentence A [SEP] start of sentence B, ending [SEP].
    """
    tokenizer = tokenization.FullTokenizer(str(tiny_model.vocab))
    file = read(tmp_path / "a.csv", HEADER, GOOD[:-1] + "2")
    path = str(tmp_path / "a.tf_record")
    lengths = choice_data.write_features(file, 16, tokenizer, path)
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = input_pipeline.record_dataset(path, choice_data.feature_fields(16, 3), 1, False, False)
        batch = session.run(tf.data.make_one_shot_iterator(dataset).get_next())
    assert batch["input_ids"].shape == (1, 3, 16) and batch["label_ids"].tolist() == [2]
    endings = ("eats the bird .", "finds a house .", "moves a train .")
    for number, ending in enumerate(endings):
        first = ["[CLS]", "the", "cat", "sees", "a", "bird", ".", "[SEP]"]
        second = tokenizer.tokenize(f"it {ending}") + ["[SEP]"]
        size = len(first) + len(second)
        ids = tokenizer.convert_tokens_to_ids(first + second)
        assert batch["input_ids"][0, number].tolist() == ids + [0] * (16 - size)
        assert batch["input_mask"][0, number].tolist() == [1] * size + [0] * (16 - size)
        assert batch["segment_ids"][0, number].tolist() == (
            [0] * len(first) + [1] * len(second) + [0] * (16 - size))
        assert lengths == [size]  # all three sequences are equally long


def test_batches_are_sorted_and_trimmed_by_the_longest_sequence():
    """The length of a question is that of its longest sequence. This need not be the first sequence."""
    sizes = np.array([[3, 17], [20, 2], [4, 9], [2, 2]])
    mask = (np.arange(32) < sizes[..., None]).astype(np.int32)
    arrays = {"input_mask": mask, "number": np.arange(4, dtype=np.int32)}
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = input_pipeline.array_dataset(arrays, 2, False, False, trimmed_fields=("input_mask",))
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        batches = [session.run(following) for _ in range(2)]
    assert [batch["number"].tolist() for batch in batches] == [[1, 0], [2, 3]]
    assert [batch["input_mask"].shape for batch in batches] == [(2, 2, 24), (2, 2, 16)]
    assert all(np.array_equal(batch["input_mask"].sum(axis=-1), sizes[batch["number"]]) for batch in batches)


# --- The head --------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_over_the_endings(tiny_model):
    config = modeling.BertConfig.from_json_file(str(tiny_model.shallow))
    generator = np.random.RandomState(3)
    ids = generator.randint(5, config.vocab_size, [2, 3, 6]).astype(np.int32)
    features = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids),
                "label_ids": np.array([2, 0], np.int32)}
    vector = generator.standard_normal([1, config.hidden_size]).astype(np.float32)

    def predict(features):
        with tf.Graph().as_default(), tf.Session() as session:
            tensors = {name: tf.constant(array) for name, array in features.items()}
            model = modeling.BertModel(config, False, *head.encoder_inputs(tensors),
                                       first_token_only=True)
            outputs = choice_head.Choice().build(config, model, tensors, ModeKeys.PREDICT, 1)
            variables = tf.trainable_variables()
            tiny.load(session, variables, {**tiny_model.weights,
                                           "cls/multiple_choice/output_weights": vector})
            loss = tf.constant(0.0) if outputs.loss is None else outputs.loss
            return session.run([loss, outputs.predictions, model.get_pooled_output()])

    loss, predictions, pooled = predict(features)
    scores = (pooled @ vector[0]).reshape(2, 3)
    np.testing.assert_allclose(predictions["scores"], scores, rtol=1e-5, atol=1e-6)
    chosen = choice_metrics.probabilities(scores)[[0, 1], [2, 0]]
    np.testing.assert_allclose(predictions["loss"], -np.log(chosen), rtol=1e-5)
    np.testing.assert_allclose(loss, -np.log(chosen).mean(), rtol=1e-5)
    # If each sequence is a separate example, it has the same score.
    _, single, _ = predict({name: array.reshape(6, 6) for name, array in features.items()
                            if name != "label_ids"})
    np.testing.assert_allclose(single["scores"], scores.reshape(-1), rtol=1e-5, atol=1e-6)


def test_endings_with_almost_equal_scores_are_a_warning():
    scores = np.array([[1.0, 1.0 + 1e-6, 1.0], [2.0, 2.0, 2.0 - 1e-6]])
    assert "In all 2 questions, the endings have almost equal probabilities" in (
        choice_metrics.equal_scores_warning(scores))
    assert choice_metrics.equal_scores_warning(scores + [[0, 0, 1], [0, 0, 0]]) is None
