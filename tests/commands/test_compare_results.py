"""compare_results.py: numbers that agree with SciPy, each task, sweeps, and errors."""

import csv
import itertools
import json
import shutil

from helpers import write_json
import model_directories
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from bertlib.commands import compare_results
from bertlib.comparison import paired_predictions
from bertlib.sweeps import grid, paired_sweeps, run_rows, sweep_directory

CHANCE = np.random.default_rng(3)
LABELS = ["no", "yes"]
COUNT = 60


def record(directory, labels=LABELS, task_type="classification", **more):
    """Writes the run.json of run_classifier.py."""
    write_json(directory / "run.json", model_directories.record(labels, task_type, **{"task": "own data",
                                                                                      **more}))


def write(directory, rows, as_json=False, **described):
    """Writes a run.json, see `record`, and eval_predictions.csv or eval_predictions.jsonl. Returns the
    directory."""
    directory.mkdir(parents=True, exist_ok=True)
    record(directory, **described)
    if as_json:
        (directory / "eval_predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return directory
    with open(directory / "eval_predictions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return directory


def classified(right, predicted):
    return [{"line": number, "text": f"text {number},\u2028\x0b with \"quotes\"\nand lines", "label": label,
             "prediction": prediction, "probability_no": 0.5, "probability_yes": 0.5,
             "is_right": str(label == prediction).lower(), "loss": 0.7}
            for number, (label, prediction) in enumerate(zip(right, predicted), 2)]


def wrong(labels, fraction):
    """Returns a copy of labels in which a fraction is changed."""
    return [LABELS[(label == "yes") == (CHANCE.random() > fraction)] for label in labels]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(first directory, second directory, right labels, predictions of the first, those of the second)."""
    folder = tmp_path_factory.mktemp("two")
    right = CHANCE.choice(LABELS, COUNT).tolist()
    first, second = wrong(right, 0.4), wrong(right, 0.1)
    return (write(folder / "a", classified(right, first)), write(folder / "b", classified(right, second)),
            np.array(right), np.array(first), np.array(second))


def compare(*names, metric=None, resamples=200, seed=0):
    """Returns the result of a comparison, and the lines of the answer as `conclusion`."""
    names = list(map(str, names))
    kind, paths = compare_results.find_tables(names)
    found = (paired_sweeps.compare(paths, metric) if kind == "sweeps"
             else paired_predictions.compare(paths, metric, resamples, seed))
    return {**found, "conclusion": compare_results.to_text(found, names)}


def refused(*names, **options):
    """Returns the message of a comparison that is refused."""
    with pytest.raises((ValueError, OSError)) as error:
        compare(*names, **options)
    return str(error.value)


def test_classification_has_the_numbers_of_scipy(two):
    a, b, right, first, second = two
    found = compare(a, b, resamples=100, seed=4)
    assert found["n"] == COUNT
    for entry, score in zip(found["metrics"], (
            metrics.accuracy_score, lambda *pair: metrics.f1_score(*pair, pos_label="yes"),
            metrics.matthews_corrcoef), strict=True):
        rows = (np.arange(COUNT),) * 2
        interval = stats.bootstrap(
            rows, lambda one, other, score=score: 100 * (score(right[other], second[other])
                                                         - score(right[one], first[one])),
            paired=True, vectorized=False, n_resamples=100, method="percentile",
            rng=np.random.default_rng(4)).confidence_interval
        np.testing.assert_allclose(entry["interval"], interval, rtol=1e-9)
        np.testing.assert_allclose(entry["values"], [100 * score(right, found) for found in (first, second)])
    only = [int(((one == right) & (other != right)).sum())
            for one, other in ((first, second), (second, first))]
    test = found["mcnemar"]
    assert [test["only_first"], test["only_second"]] == only and test["discordant"] == sum(only) > 5
    assert test["p_value"] == pytest.approx(stats.binomtest(only[0], sum(only), 0.5).pvalue)


def test_the_command_prints_text_or_json_or_one_message(two, run_script):
    a, b, right, first, second = two
    done = run_script("compare_results.py", a, b, "--metric=accuracy", "--resamples=200")
    lines = done.out.splitlines()
    assert lines[0].startswith("eval_accuracy: ") and " points, 95 % interval " in lines[0]
    assert lines[0].endswith(f": evidence that {b} is better") and not lines[1].startswith("eval_")
    assert " discordant rows: " in lines[-1]
    swapped = run_script("compare_results.py", b, a, "--output_format=json", "--seed=4", "--resamples=200")
    assert json.loads(swapped.out)["conclusion"] == compare(b, a, seed=4)["conclusion"]


def test_other_tasks_have_their_metrics(tmp_path):
    scores = CHANCE.normal(size=(3, COUNT))
    scores[1:] = scores[0] + scores[1:] * [[0.5], [2.0]]
    for name, predicted in (("a", scores[1]), ("b", scores[2])):
        write(tmp_path / name, [{"text": f"t{number}", "label": right, "prediction": value, "is_right": ""}
                                for number, (right, value) in enumerate(zip(scores[0], predicted))],
              labels=None, task_type="regression")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [entry["metric"] for entry in found["metrics"]] == ["eval_pearson", "eval_spearman"]
    assert found["metrics"][1]["values"] == pytest.approx(
        [100 * stats.spearmanr(scores[0], row)[0] for row in scores[1:]])
    assert found["metrics"][0]["is_evidence"] and found["mcnemar"] is None

    tags = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"], ["O", "O", "B-PER"]]
    for name, changed in (("c", "O"), ("d", "B-LOC")):
        write(tmp_path / name, [
            {"sentence": number, "word": f"w{place}", "label": tag,
             "prediction": changed if (number, place) == (1, 1) else tag, "is_right": ""}
            for number, sentence in enumerate(tags) for place, tag in enumerate(sentence)],
            task_type="tagging")
    found = compare(tmp_path / "c", tmp_path / "d")
    assert found["unit"] == "sentences" and found["n"] == 3
    assert found["metrics"][0]["values"] == pytest.approx([80.0, 100.0])
    assert found["mcnemar"]["discordant"] == 1

    for name, values in (("e", [0.25, 1, 0]), ("f", [0.5, 1, 1])):
        write(tmp_path / name, [{"id": number, "question": "q", "label": "x", "prediction": "y",
                                 "exact_match": float(value == 1), "f1": value}
                                for number, value in enumerate(values)], labels=None, task_type="questions")
    found = compare(tmp_path / "e", tmp_path / "f")
    assert {entry["metric"]: entry["values"] for entry in found["metrics"]} == {
        "f1": pytest.approx([125 / 3, 250 / 3]), "exact_match": pytest.approx([100 / 3, 200 / 3])}

    for name, value in (("g", ["x"]), ("h", ["x", "y"])):
        write(tmp_path / name, [
            {"text": "1", "label": ["x", "y"], "prediction": value, "probabilities": {"x": 0.9, "y": 0.6}},
            {"text": "2", "label": [], "prediction": [], "probabilities": {"x": 0.1, "y": 0.2}}],
            True, labels=["x", "y"], task_type="multilabel")
    found = compare(tmp_path / "g", tmp_path / "h")
    assert {entry["metric"]: entry["values"] for entry in found["metrics"]} == {
        "eval_f1_micro": pytest.approx([200 / 3, 100]), "eval_f1_macro": [50.0, 100.0]}


def test_run_json_decides_the_task(tmp_path):
    for name, predicted in (("a", ["no", "no", "yes"]), ("b", ["no", "yes", "yes"])):
        write(tmp_path / name, [
            {"sentence": f"a {word}", "word": word, "label": label, "prediction": answer}
            for word, label, answer in zip("xyz", ["no", "yes", "yes"], predicted)])
    (tmp_path / "b" / "run.json").unlink()  # as in a --results_dir
    found = compare("a", "b")
    assert found["unit"] == "rows" and found["metrics"][0]["metric"] == "eval_accuracy"
    assert found["metrics"][0]["values"] == pytest.approx([200 / 3, 100])
    (tmp_path / "a" / "run.json").unlink()
    assert "There is no run.json beside a/eval_predictions.csv or b/eval_predictions" in refused("a", "b")


def test_a_metric_with_another_meaning_is_not_compared(tmp_path):
    reason = "F1 of yes for the first model, and the mean of the F1 of maybe, no, yes for"
    right = ["no", "yes", "yes", "no"]
    answers = {"a": ["no", "yes", "no", "yes"], "b": right}
    for name, order in (("a", ["no", "yes"]), ("b", ["no", "yes", "maybe"])):
        rows = [{"text": str(number), "label": label, "prediction": answer}
                for number, (label, answer) in enumerate(zip(right, answers[name]))]
        write(tmp_path / name, rows, labels=order)
    found = compare("a", "b")
    values = {entry["metric"]: entry["values"] for entry in found["metrics"]}
    assert values == {"eval_accuracy": [50, 100], "eval_matthews": [0, 100]}
    assert list(found["refused"]) == ["eval_f1"] and reason in found["refused"]["eval_f1"]
    assert f"eval_f1: not compared, because {found['refused']['eval_f1']}" in found["conclusion"]
    assert reason in refused("a", "b", metric="f1")


def test_several_labels_of_models_with_other_labels(tmp_path):
    for name, labels, right in (("a", ["x", "y"], ["x", "x,y", ""]),
                                ("b", ["z", "y", "x"], ["x", "y,x", ""])):
        rows = [{"text": str(number), "label": label, "prediction": "x"}
                for number, label in enumerate(right)]
        write(tmp_path / name, rows, labels=labels, task_type="multilabel")
    found = compare("a", "b")
    assert [entry["metric"] for entry in found["metrics"]] == ["eval_f1_micro"]
    assert "eval_f1_macro is the mean of the F1 of x, y for" in found["refused"]["eval_f1_macro"]
    write(tmp_path / "b", [{"text": "0", "label": "x", "prediction": "w"}] * 2, task_type="multilabel")
    assert "'text' contains" in refused("b", "a")


def test_labels_and_texts_are_not_compared_as_numbers(tmp_path):
    for name, label in (("a", "1"), ("b", "01")):
        rows = [{"text": str(number), "label": label, "prediction": label} for number in range(3)]
        write(tmp_path / name, rows, labels=["01", "1"])
    assert "the column 'label' contains '1' in the first file, and '01' in" in refused("a", "b")
    # A score is a number, in CSV and in JSON Lines.
    score = {"labels": None, "task_type": "regression"}
    write(tmp_path / "c", [{"text": "1e3", "label": label, "prediction": label} for label in (1, 2.50, 3)],
          **score)
    write(tmp_path / "d", [{"text": "1e3", "label": label, "prediction": label} for label in (1.0, 2.5, 3.0)],
          True, **score)
    found = compare("c", "d")
    assert [entry["values"] for entry in found["metrics"]] == [pytest.approx([100, 100])] * 2
    write(tmp_path / "c", [{"text": "1e3", "label": label, "prediction": answer}
                           for label, answer in ((1, 1), (2.5, "nan"), (3, 2))], **score)
    assert "the prediction 'nan' in row 2 is not a finite number" in refused("c", "d")


def test_the_metrics_are_those_of_the_evaluation(two, tmp_path):
    """A table and eval_results.json of different evaluations are refused."""
    a, b, right, first, _ = two
    shutil.copytree(a, tmp_path / "a")
    good = {"eval_accuracy": metrics.accuracy_score(right, first),
            "eval_f1": metrics.f1_score(right, first, pos_label="yes"), "eval_recall_bad": 0.5}
    write_json(tmp_path / "a" / "eval_results.json", good)
    found = compare("a", b)
    assert found["metrics"][1]["values"][0] == pytest.approx(100 * good["eval_f1"])
    assert "Other metrics cannot be computed from a table of predictions" in refused("a", b,
                                                                                     metric="recall_bad")
    good["eval_f1"] -= 0.01
    write_json(tmp_path / "a" / "eval_results.json", good)
    assert "files belong to different evaluations. Evaluate the model again." in refused("a", b)


def write_sweep(directory, settings, runs, flags=None, **described):
    """Writes a sweep whose runs have records, see `record`.

    Args:
      directory: the new directory.
      settings: names of the values that are settings. The others are metrics.
      runs: {name: value} for each run. A run with the value None has failed.
      flags: {flag: value}, the flags of all runs.
    """
    sweep = sweep_directory.SweepDirectory(str(directory), "run_classifier.py", flags or {})
    added = [grid.make_run({name: str(values[name]) for name in settings}) for values in runs]
    directory.mkdir()
    sweep.add(added)
    for run, values in zip(added, runs):
        output = directory / "runs" / run.name
        output.mkdir()
        record(output, **described)
        sweep.write_row(run, run_rows.Row(
            run.settings, run_rows.FAILED if None in values.values() else run_rows.DONE,
            {name: value for name, value in values.items() if name not in settings}))
    return directory


def own_sweep(directory, rates, seeds, metric="eval_mean_length", flags=None, **described):
    return write_sweep(directory, ["learning_rate", "seed"], [
        {"learning_rate": rate, "seed": seed, metric: 12.5 + seed + len(directory.name)}
        for rate, seed in itertools.product(rates, seeds)], flags, **described)


@pytest.mark.parametrize("name", ["eval_recall_bad", "best_f1_thresh"])
def test_metrics_of_an_own_task_keep_their_scale(name, tmp_path):
    a, b = (own_sweep(tmp_path / text, [1e-5], range(3), name, {"task_module": "my_task.py"})
            for text in ("a", "bb"))
    found = compare(a, b, metric=name)
    assert found["metrics"][0]["values"] == [14.5, 15.5] and found["metrics"][0]["unit"] == ""
    assert found["conclusion"][0].startswith(f"{name}: 14.5 -> 15.5: 1, 95 % interval 1 to 1: ")


def test_sweeps_with_the_same_seeds_and_other_settings_are_refused(tmp_path):
    a = own_sweep(tmp_path / "a", [1e-5, 2e-5], range(2))
    b = own_sweep(tmp_path / "b", [3e-5, 4e-5], range(2))
    said = refused(a, b)
    assert "have no runs with the same values of learning_rate. Compare sweeps in which" in said
    c = own_sweep(tmp_path / "c", [1e-5, 2e-5], range(2, 4))
    found = compare(a, c)
    assert not found["is_paired"] and found["used_runs"] == [4, 4]


def test_sweeps_are_compared_on_the_same_data_and_by_the_same_metric(tmp_path):
    a = own_sweep(tmp_path / "a", [1e-5], range(2), "eval_f1",
                  train_data={"fingerprint": "t1"}, dev_data={"fingerprint": "d1"})
    b = own_sweep(tmp_path / "b", [1e-5], range(2), "eval_f1",
                  train_data={"fingerprint": "t2"}, dev_data={"fingerprint": "d1"})
    found = compare(a, b)
    assert found["compared"] == {"training data": ["t1", "t2"]}
    assert "compared setting: training data = t1 and t2" in found["conclusion"]
    c = own_sweep(tmp_path / "c", [1e-5], range(2), "eval_f1", dev_data={"fingerprint": "d2"})
    assert "were evaluated on different development data" in refused(a, c)
    d = own_sweep(tmp_path / "d", [1e-5], range(2), "eval_f1", labels=["yes", "no"])
    assert "eval_f1 is the F1 of yes for the first model, and the F1 of no" in refused(a, d)


def sweep(directory, rate, values, seeds=None, failed=()):
    return write_sweep(directory, ["learning_rate", "seed"], [
        {"learning_rate": rate, "seed": seed, "eval_loss": 1 - value,
         "eval_accuracy": None if seed in failed else value}
        for seed, value in zip(seeds or range(len(values)), values)])


def test_sweeps_are_paired_by_their_settings(tmp_path):
    first, second = [0.80, 0.82, 0.79, 0.85, 0.81, 0.5], [0.83, 0.84, 0.83, 0.86, 0.85, 0.9]
    a, b = sweep(tmp_path / "a", 2e-5, first), sweep(tmp_path / "b", 5e-5, second, failed={5})
    found = compare(a, b)
    test = stats.ttest_rel(second[:5], first[:5])
    low, high = (100 * value for value in test.confidence_interval(0.95))
    text = "\n".join(found["conclusion"]) + "\n"
    assert text.startswith(f"eval_accuracy: 81.4 -> 84.2: 2.8 points, 95 % interval {low:.1f} to "
                               f"{high:.1f}: evidence that {b} is better\n"
                               "compared setting: learning_rate = 2e-05 and 5e-05\nn = 5 pairs of runs with "
                               f"the same seed; paired t-test: p = {test.pvalue:.3g}; Wilcoxon's "
                               f"test: p = {stats.wilcoxon(second[:5], first[:5]).pvalue:.3g}\n")
    assert f"{a}: 1 of 6 runs are left out" in text and f"{b}: 1 of 6 runs are left out" in text
    loss = compare(a, b, metric="loss")
    assert loss["conclusion"][0].endswith(f"evidence that {b} is better")

    c = sweep(tmp_path / "c", 5e-5, second, seeds=range(10, 16))
    found = compare(a, c)
    assert not found["is_paired"] and found["test"]["n"] == [6, 6]
    assert found["test"]["p_value"] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)
    assert "runs without pairs, because the sweeps have no seed in common" in found["conclusion"][2]


def test_settings_and_metrics_of_a_sweep_come_from_its_record(tmp_path):
    """The record says which columns are settings and which are metrics.

    The sweep has unknown names of settings, flags outside of the grid, and metrics for which lower is better.
    """
    def written(name, rate, values, rows):
        write_sweep(tmp_path / name, ["num_warmup_steps", "log_steps"], [
            {"num_warmup_steps": 0, "log_steps": number, "eval_mae": value, "HasAns_f1": 10 * value}
            for number, value in enumerate(values)], {"learning_rate": rate, "data_dir": "d"})
        write(min((tmp_path / name / "runs").iterdir()), rows)
        return tmp_path / name

    rows = classified(LABELS, ["no", "no"])
    low, high = [0.30, 0.31, 0.32, 0.35], [0.40, 0.42, 0.43, 0.44]
    a, b = written("a", "2e-05", low, rows), written("b", "5e-05", high, rows)
    found = compare(a, b, metric="mae")
    assert found["conclusion"][0].startswith("eval_mae: 0.32 -> 0.4225: 0.1025, 95 % interval ")
    assert found["conclusion"][0].endswith(f"evidence that {a} is better")
    assert found["compared"] == {"learning_rate": ["2e-05", "5e-05"]}
    assert found["is_paired"] and found["paired_by"] == ["num_warmup_steps", "log_steps"]
    default = compare(a, b)
    assert default["metrics"][0]["metric"] == "HasAns_f1"
    assert default["metrics"][0]["values"] == pytest.approx([3.2, 4.225])

    c = written("c", "5e-05", high, [{"text": "t", "label": "no", "prediction": "no"}] * 2)
    assert "are not predictions for the same examples" in refused(a, c)
    (tmp_path / "c" / "sweep.json").write_text("{}")
    assert "c/sweep.json has the format None, but this version reads the format 1." in refused(a, c)


def test_tables_that_cannot_be_compared_are_refused(two, tmp_path):
    a, b, right, first, _ = two

    assert "Name two directories or tables." in refused(a)
    assert "are the same path. Name two different trainings." in refused(a, f"{a}/../a")
    assert "there is no such file or directory" in refused(a, tmp_path / "none")
    assert "contains no eval_predictions.csv and no eval_predictions.jsonl, and the arguments are not" in (
        refused(a, tmp_path))
    rows = classified(right, first)
    shorter = write(tmp_path / "shorter", rows[:-1])
    assert f"has {COUNT} rows, and {shorter}/eval_predictions.csv has {COUNT - 1}." in refused(a, shorter)
    other = write(tmp_path / "other", [*rows[:4], {**rows[4], "text": "another"}, *rows[5:]])
    assert "in row 5, the column 'text' contains " in refused(a, other)
    turned = write(tmp_path / "turned", [{**rows[0], "label": LABELS[rows[0]["label"] == "no"]}, *rows[1:]])
    assert "in row 1, the column 'label' contains " in refused(a, turned)
    for name, content in (("latin_1", b"label,prediction,text\nno,no,\xff\n"),
                          ("quote", b'label,prediction,text\nno,no,"a"b\n')):
        (write(tmp_path / name, rows) / "eval_predictions.csv").write_bytes(content)
        assert f"{name}/eval_predictions.csv:2: " in refused(a, tmp_path / name)
    (write(tmp_path / "cut", rows) / "eval_predictions.csv").write_text(
        "text,label,prediction\na,no,no\nb,no\n")
    assert "cut/eval_predictions.csv:3: the row has more or fewer fields than the header" in (
        refused(tmp_path / "cut", a))
    key = write(tmp_path / "key", [{"text": "a", "label": "no", "prediction": "no"},
                                   {"text": "b", "label": "no"}], True)
    assert "the column 'prediction' is missing in row 2" in refused(key, a)
    scores = write(tmp_path / "scores", [{"text": "t", "label": 1.5, "prediction": 2.5, "is_right": ""}],
                   labels=None, task_type="regression", task="stars")
    assert "belongs to the task own data, and " in refused(a, scores)
    assert "--metric=bleu: the metrics of these predictions are eval_accuracy, eval_f1, eval_matthews." in (
        refused(a, b, metric="bleu"))
    assert "are not two directories with sweep.json" in refused(a, sweep(tmp_path / "sweep", 1, [1, 2]))
    assert "no matching metric in common" in refused(
        sweep(tmp_path / "d", 2, [1, 2]), tmp_path / "sweep", metric="f1")
    assert "only one pair of finished runs with the same settings" in refused(
        sweep(tmp_path / "e", 2, [1, 2], failed={1}), tmp_path / "sweep")
