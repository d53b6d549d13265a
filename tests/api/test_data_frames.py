"""`bertlib.api` with DataFrames. pandas is optional."""

from model_directories import linear, write
import pytest
from test_api import rows

from bertlib import api

pandas = pytest.importorskip("pandas")


def test_a_table_of_predictions_has_the_index_of_the_data(tiny_model, tmp_path):
    path = write(tmp_path / "model", tiny_model, "classification", linear(2), ["no", "yes"], task="own data",
                 text_column="text")
    frame = pandas.DataFrame({"text": ["a cat", "a dog", "the man"], "note": ["x", "y", "z"]},
                             index=pandas.Index([30, 10, 20], name="id"))
    for data in (frame, frame["text"]):
        table = api.predict(path, data)
        assert table.index.equals(frame.index) and table.index.name == "id"
        assert table.iloc[:, 0].tolist() == frame["text"].tolist()
    assert api.predict(path, frame["text"].to_numpy()).index.tolist() == [0, 1, 2]
    for empty in (frame[:0], frame["text"][:0]):
        with pytest.raises(ValueError, match=r"data has no rows\. Pass at least one row"):
            api.predict(path, empty)


@pytest.mark.slow(reason="commands on further kinds of data")
def test_data_frames_in_and_out(tiny_model, tmp_path):
    settings = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, num_train_epochs=1,
                    train_batch_size=8)
    frame = pandas.DataFrame({"id": range(40), "body": [text for text, _ in rows(40, 4)],
                              "kind": pandas.Categorical([label for _, label in rows(40, 4)])})
    frame.loc[3, "note"] = pandas.Timestamp("2026-01-02")
    trained = api.train(frame, tmp_path / "model", dev_fraction=0.2, text="body", label="kind", verbose=False,
                        **settings)
    assert isinstance(trained.predictions, pandas.DataFrame) and len(trained.predictions) == 8
    again = api.evaluate(tmp_path / "model", verbose=False)  # evaluates the rows of --dev_fraction
    assert again.metrics == trained.metrics and again.predictions.equals(trained.predictions)
    found = api.evaluate(tmp_path / "model", frame.tail(5), verbose=False).predictions
    assert found["id"].tolist() == ["35", "36", "37", "38", "39"] and found["is_right"].dtype == bool
    table = api.predict(tmp_path / "model", frame)
    assert list(table) == ["id", "body", "kind", "note", "prediction", "probability_animal",
                           "probability_none"]
    assert table["id"].tolist() == list(range(40)) and table["note"].isna().sum() == 39
    assert table["prediction"].tolist()[-5:] == found["prediction"].tolist()
    with pytest.raises(ValueError, match="data has two columns with the name 'id'"):
        api.train(pandas.concat([frame, frame["id"]], axis=1), tmp_path / "other")


def test_a_table_keeps_the_names_of_columns(classifier_dir):
    frame = pandas.DataFrame({7: [1.5], "text_a": ["a cat"], "label": ["x"], "prediction": ["y"]}, ["z"])
    table = api.predict(classifier_dir, frame)
    assert list(table) == [7, "text_a", "label", "input_prediction", "prediction", "probability_no",
                           "probability_yes"]
    assert table.loc["z", 7] == 1.5 and table.loc["z", "input_prediction"] == "y"
