"""`bertlib.api` with DataFrames. pandas is optional."""

import importlib.util
import json

from helpers import write_json
from model_directories import write_classifier
import pytest
from test_api import rows

from bertlib import api

pandas = pytest.importorskip("pandas")


def test_a_table_of_predictions_has_the_index_and_the_names_of_the_data(classifier_dir):
    frame = pandas.DataFrame({"text_a": ["a cat", "a dog"], 7: [1.5, 2.5], "label": "x", "prediction": "y"},
                             index=pandas.Index([30, 10], name="id"))
    for data in (frame, frame["text_a"]):
        table = api.predict(classifier_dir, data)
        assert table.index.equals(frame.index) and table.index.name == "id"
        assert table.iloc[:, 0].tolist() == frame["text_a"].tolist()
    table = api.predict(classifier_dir, frame)
    assert list(table) == ["text_a", 7, "label", "input_prediction", "prediction", "probability_no",
                           "probability_yes"]
    assert table[7].equals(frame[7]) and table["input_prediction"].tolist() == ["y", "y"]
    assert api.predict(classifier_dir, frame["text_a"].to_numpy()).index.tolist() == [0, 1]
    for name, column in (("body", "body"), ("a, b", "text"), (("a", "b"), "text"), (None, "text")):
        series = pandas.Series([42, "a cat"], name=name)
        assert list(api.predict(classifier_dir, series))[:2] == [column, "prediction"]
    with pytest.raises(TypeError, match="a Series has no columns"):
        api.predict(classifier_dir, series, text="text")
    with pytest.raises(ValueError, match=r"^data, row 1 \(index 30\): the text is empty.*\n"
                                         r"data, row 2 \(index 10\): the text is missing"):
        api.predict(classifier_dir, pandas.Series([" ", None], index=frame.index))
    for empty in (frame[:0], frame["text_a"][:0]):
        with pytest.raises(ValueError, match=r"data has no rows\. Pass at least one row"):
            api.predict(classifier_dir, empty)


@pytest.mark.slow(reason="commands on further kinds of data")
def test_data_frames_in_and_out(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = dict(tiny_model.flags, num_train_epochs=1, train_batch_size=8)
    texts, labels = zip(*rows(40, 4))
    frame = pandas.DataFrame({"id": range(40), 0: texts, 1: [int(label == "animal") for label in labels],
                              "group": pandas.Categorical(["x", "y"] * 20), 5: [[1]] * 40, "label": "mine"})
    frame.loc[3, "note"] = pandas.Timestamp("2026-01-02")
    frame.loc[3, 0] = None
    frame.index = pandas.MultiIndex.from_arrays(
        [range(40, 0, -1), pandas.date_range("2026-01-02", periods=40)], names=["number", None])
    with pytest.raises(ValueError, match=r"^data, row 4 \(index \[37, .*: the text is missing; complete the"):
        api.train(frame, "~/model", text=0, label=1, verbose=False, **settings)
    with pytest.warns(UserWarning, match=r"^data: 1 bad rows are left out, because skip_bad_lines=True: "):
        trained = api.train(frame, "~/model", dev_fraction=0.2, text=0, label=1, verbose=False,
                            skip_bad_lines=True, **settings)
    table = trained.predictions
    assert list(table)[:10] == ["line", "id", 0, 1, "group", 5, "input_label", "note", "label", "prediction"]
    assert len(table) == 8 and table[list(frame)[:5]].equals(frame.loc[table.index, list(frame)[:5]])
    assert ((table["prediction"] == table[1]) == table["is_right"]).all() and table["label"].equals(
        table[1].rename("label"))
    again = api.evaluate("~/model", verbose=False)  # evaluates the rows of --dev_fraction
    assert again.metrics == trained.metrics
    pandas.testing.assert_frame_equal(again.predictions, table)
    result = api.evaluate("~/model", frame.tail(5), verbose=False, baseline=True, skip_bad_lines=True)
    found = result.predictions
    assert "bag_of_words" in result.metrics["baselines"] or not importlib.util.find_spec("sklearn")
    assert found.index.equals(frame.index[-5:]) and found["note"].dtype == frame["note"].dtype
    assert api.predict(tmp_path / "model", frame.tail(5))["prediction"].equals(found["prediction"])
    with pytest.raises(ValueError, match="data has two columns with the name 'id'"):
        api.train(pandas.concat([frame, frame["id"]], axis=1), tmp_path / "other")


@pytest.mark.parametrize("labels, trained, expected", [
    ([1, 0, 1], None, int), ([True, False, True], None, bool), (["1", "0", "1"], None, str),
    (None, None, str), (None, 0, int), (None, False, bool), (None, "0", str), (["1", "0", "1"], 0, str),
    ([None, 1, None], "0", int)])
def test_predictions_have_the_type_of_the_labels(labels, trained, expected, tiny_model, tmp_path):
    """The labels in the data determine the type. Without them, the training labels do."""
    names = ("false", "true") if bool in (expected, type(trained)) else ("0", "1")
    path = write_classifier(tmp_path / "model", tiny_model, names, task="own data", text_column="text",
                            label_column="kind")
    if trained is not None:
        (path / "data").mkdir()
        write_json(path / "data" / "train-1.jsonl", {"text": "a cat", "kind": trained})
        write_json(path / "run.json", {**json.loads((path / "run.json").read_text()),
                                       "files": {"train_file": "moved/data/train-1.jsonl"}})
    frame = pandas.DataFrame({"text": ["a cat", "a dog", "the man"], "label": "mine"})
    for data in [frame.assign(kind=labels)] if labels else [frame, frame["text"], frame["text"].tolist()]:
        table = api.predict(path, data)
        assert {type(value) for value in table["prediction"].tolist()} == {expected}
        assert list(table)[-2:] == [f"probability_{name}" for name in names]
    with api.load(path) as predictor:
        answer = predictor("a cat")
    kind = str if trained is None else type(trained)
    assert [type(label) for label in answer["probabilities"]] == [kind, kind]
    assert answer["label"] == answer["prediction"] == max(answer["probabilities"],
                                                          key=answer["probabilities"].get)
    assert "vector" in api.predict(path, frame, task="vectors")
