"""The baselines equal scikit-learn's own numbers, and the intervals equal SciPy's."""

import types

import numpy as np
import pytest
from scipy import sparse, stats
import scripts
from sklearn import feature_extraction, linear_model
from sklearn import metrics as sklearn_metrics

from bertlib.reports import baselines
from bertlib.tasks.classification import classification_target
from run_classifier import InputExample, MrpcProcessor

PERIODS = ["1790_1819", "1850_1879", "1910_1939"]
MAX_ROWS = 300


def read_pairs(split):
    return getattr(MrpcProcessor(), f"get_{split}_examples")(f"{scripts.ROOT}/samples/MRPC")[:MAX_ROWS]


def read_addresses(split, label_of=str):
    """Returns sentences of addresses. The label of a sentence is `label_of` its period."""
    examples = []
    for period in PERIODS:
        with open(f"{scripts.ROOT}/samples/addresses/{split}_{period}.txt", encoding="utf-8") as file:
            lines = list(filter(str.strip, file))[:MAX_ROWS // 3]
        examples += [InputExample("", line, None, label_of(period)) for line in lines]
    return examples


def read_years(split):
    return read_addresses(split, lambda period: float(period[:4]))


def read_topics(split):
    """Returns sentences of addresses with any number of labels, words that the sentences contain."""
    return [InputExample("", text, None, tuple(word for word in ("government", "which") if word in text))
            for text in (example.text_a for example in read_addresses(split))]


def predict_with_scikit_learn(model, train, labels, dev):
    """Returns the predictions of a model of scikit-learn on TF-IDF features."""
    parts = []
    for texts in (lambda example: example.text_a, lambda example: example.text_b):
        if texts(train[0]):
            words = feature_extraction.text.TfidfVectorizer()
            parts.append((words.fit_transform(map(texts, train)), words.transform(map(texts, dev))))
    known, new = map(sparse.hstack, zip(*parts))
    return model.fit(known, labels).predict(new)


def compare(target, train, dev, **settings):
    """Returns the labels of `dev`, and the results of `baselines`."""
    settings = types.SimpleNamespace(**{"baseline": "true", "evaluated_training": None, **settings})
    labels = np.array([target.encode_label(example.label) for example in dev])
    answers = baselines.bag_of_words(settings, target, train, {"dev": dev})
    outputs = np.eye(target.size)[labels] if labels.dtype.kind == "i" and labels.ndim == 1 else labels
    return labels, baselines.baseline_metrics(target, [], labels, outputs,
                                     {"words": answers["dev"]} if answers else {})["baselines"]


@pytest.mark.parametrize("read, names", [(read_pairs, ["0", "1"]), (read_addresses, PERIODS)])
def test_classes(read, names):
    train, dev = read("train"), read("dev")
    labels, found = compare(classification_target.SingleLabel(names), train, dev)
    predicted = predict_with_scikit_learn(linear_model.LogisticRegression(), train,
                                          [names.index(example.label) for example in train], dev)
    for name, answers in (("words", predicted), ("most_frequent_label",
                                                 np.full(len(labels), np.bincount(labels).argmax()))):
        average = "binary" if len(names) == 2 else "macro"
        assert found[name]["eval_accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(labels, answers))
        assert found[name]["eval_f1"] == pytest.approx(
            sklearn_metrics.f1_score(labels, answers, average=average))


def test_scores():
    train, dev = read_years("train"), read_years("dev")
    labels, found = compare(classification_target.Score(), train, dev)
    predicted = predict_with_scikit_learn(linear_model.Ridge(), train,
                                          [example.label for example in train], dev)
    assert found["words"] == pytest.approx({
        "eval_pearson": stats.pearsonr(labels, predicted).statistic,
        "eval_spearman": stats.spearmanr(labels, predicted).statistic,
        "eval_mae": sklearn_metrics.mean_absolute_error(labels, predicted),
        "eval_rmse": sklearn_metrics.mean_squared_error(labels, predicted)**0.5}, rel=1e-4)
    assert found["mean_score"] == pytest.approx({
        "eval_pearson": 0, "eval_spearman": 0, "eval_rmse": labels.std(),
        "eval_mae": np.abs(labels - labels.mean()).mean()})


@pytest.mark.parametrize("names", [["government", "which"], ["which"]])
def test_several_labels(names):
    train, dev = ([example for example in read_topics(split) if {*example.label} <= {*names}]
                  for split in ("train", "dev"))
    labels, found = compare(classification_target.MultiLabel(names), train, dev)
    columns = [predict_with_scikit_learn(linear_model.LogisticRegression(), train,
                                         [name in example.label for example in train], dev)
               for name in names]
    answers, counts = np.unique(labels, axis=0, return_counts=True)
    most_frequent = np.tile(answers[counts.argmax()], (len(labels), 1))
    for name, predicted in (("words", np.transpose(columns)), ("most_frequent_labels", most_frequent)):
        assert found[name]["eval_f1_micro"] == pytest.approx(
            sklearn_metrics.f1_score(labels.ravel(), predicted.ravel().astype(int), zero_division=0))


def test_what_prevents_a_bag_of_words(monkeypatch, caplog):
    """The program ends at its limit, too. A single class cannot be learned."""
    target, dev = classification_target.SingleLabel(["0", "1"]), read_pairs("dev")
    caplog.set_level("INFO")
    started = []
    monkeypatch.setattr(baselines, "_run", lambda arguments, run=baselines._run: (
        started.append(arguments), run(arguments))[1])

    def problem(train, **settings):
        caplog.clear()
        assert list(compare(target, train, dev, **settings)[1]) == ["most_frequent_label"]
        return caplog.text

    monkeypatch.setattr(baselines.time, "process_time", lambda: 99)
    assert not problem(dev, baseline="false")
    assert "and the flags of the training data." in problem(None)
    training = types.SimpleNamespace(record={"files": {"train_file": "/a/train.csv"}})
    assert "has no training examples." in (text := problem(None, evaluated_training=training))
    assert "pass --baseline=true and --train_file=/a/train.csv." in text
    too_long = "it would take more than 2 % of the CPU time of this run (in a short run: 10 %)."
    for seconds, limits in ((19, []), (25, [2]), (99, [2, 4]), (500, [2, 4, 10])):
        monkeypatch.setattr(baselines.time, "process_time", lambda seconds=seconds: seconds)
        text = problem([one for one in dev if one.label == "1"], baseline="auto")
        assert (too_long if not limits else "needs samples of at least 2 classes") in text
        assert [arguments["cpu_seconds"] for arguments in started] == limits
    monkeypatch.setattr(baselines, "_LEAST_SECONDS", 0)
    monkeypatch.setattr(baselines.time, "process_time", lambda: 10)
    monkeypatch.setattr(baselines, "_MAX_ROWS", 60_000)
    many = dev * (60_000 // len(dev))  # they take more than the limit of one second on any machine
    assert too_long in problem(many, baseline="auto") and started[-1]["cpu_seconds"] == 1
    monkeypatch.setattr(baselines.importlib.util, "find_spec", lambda name: None)
    assert "pip install -r requirements-baseline.txt" in problem(dev)


def test_intervals():
    """Wilson's interval for the accuracy, the bootstrap for other metrics, and none for many examples."""
    chance = np.random.default_rng(0)
    target, labels = classification_target.SingleLabel(["0", "1"]), chance.integers(2, size=150)
    outputs = np.eye(2)[np.where(chance.random(150) < 0.7, labels, 1 - labels)]
    found = baselines.baseline_metrics(target, ["eval_accuracy", "eval_f1"], labels, outputs, {})["intervals"]
    right = int((outputs.argmax(1) == labels).sum())
    assert found["eval_accuracy"] == pytest.approx(
        [*stats.binomtest(right, 150).proportion_ci(method="wilson")])
    f1 = target.metric_functions(labels, target.decide(outputs))["eval_f1"]
    expected = stats.bootstrap(
        (np.arange(150),), lambda rows: f1(rows.astype(int)), vectorized=False, n_resamples=1000,
        method="percentile", rng=np.random.default_rng(0)).confidence_interval
    assert found["eval_f1"] == pytest.approx([*expected])
    many = np.tile(labels, 20)
    assert not baselines.baseline_metrics(target, ["eval_f1"], many, np.eye(2)[many], {})["intervals"]
