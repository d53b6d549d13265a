"""compare_results.py: numbers that agree with SciPy, each task, sweeps, and errors."""

import csv
import itertools
import json
import pathlib

from bertlib.commands import compare_results

from helpers import error_of, write_json, write_lines
import model_directories
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from bertlib.reports import paired_predictions, paired_sweeps, sweep_directory, sweep_runs

CHANCE = np.random.default_rng(3)
LABELS = ["no", "yes"]
COUNT = 60


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def record(directory, labels=LABELS, task_type="classification", **more):
    """Writes the run.json of run_classifier.py."""
    write_json(directory / "run.json",
               model_directories.record(labels, task_type, **{"task": "own data", **more}))


def write(name, columns, as_json=False, **described):
    """Writes a directory with a run.json, see `record`, and with a table of predictions.

    Args:
      name: the new directory.
      columns: {name: list}. A column `text` is added.
      as_json: writes eval_predictions.jsonl instead of eval_predictions.csv.
    """
    directory = pathlib.Path(name)
    directory.mkdir(parents=True, exist_ok=True)
    record(directory, **described)
    rows = [dict(zip(("text", *columns), (f"text {number},\u2028\x0b with \"quotes\"\nand lines", *values)))
            for number, values in enumerate(zip(*columns.values()))]
    if as_json:
        write_lines(directory / "eval_predictions.jsonl", map(json.dumps, rows))
        return name
    with open(directory / "eval_predictions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return name


def classified(label, prediction):
    return {"label": label, "prediction": prediction}


def wrong(labels, fraction):
    """Returns a copy of labels in which a fraction is changed."""
    return [LABELS[(label == "yes") == (CHANCE.random() > fraction)] for label in labels]


RIGHT = CHANCE.choice(LABELS, COUNT).tolist()
FIRST, SECOND = wrong(RIGHT, 0.4), wrong(RIGHT, 0.1)


@pytest.fixture
def two():
    """Two directories with the predictions FIRST and SECOND."""
    return write("a", classified(RIGHT, FIRST)), write("b", classified(RIGHT, SECOND))


def compare(*names, metric=None, resamples=200, seed=0):
    """Returns the result of a comparison, and the lines of the answer as `conclusion`."""
    kind, paths = compare_results.find_tables(list(names))
    found = (paired_sweeps.compare(paths, metric) if kind == "sweeps"
             else paired_predictions.compare(paths, metric, resamples, seed))
    return {**found, "conclusion": compare_results.to_text(found, list(names))}


def refused(*names, **options):
    """Returns the message of a comparison that is refused."""
    return error_of(compare, *names, **options)


def values_of(found):
    return {entry["metric"]: pytest.approx(entry["values"]) for entry in found["metrics"]}


# --- Tables of predictions -------------------------------------------------------------------------------


def test_classification_has_the_numbers_of_scipy(two):
    right, first, second = map(np.array, (RIGHT, FIRST, SECOND))
    found = compare(*two, resamples=100, seed=4)
    assert found["n"] == COUNT
    entries = {entry["metric"]: entry for entry in found["metrics"]}
    for entry, score in (
            (entries["eval_accuracy"], metrics.accuracy_score),
            (entries["eval_f1"], lambda *pair: metrics.f1_score(*pair, pos_label="yes")),
            (entries["eval_matthews"], metrics.matthews_corrcoef)):
        interval = stats.bootstrap(
            (np.arange(COUNT),) * 2, lambda one, other, score=score: 100 * (
                score(right[other], second[other]) - score(right[one], first[one])),
            paired=True, vectorized=False, n_resamples=100, method="percentile",
            rng=np.random.default_rng(4)).confidence_interval
        np.testing.assert_allclose(entry["interval"], interval, rtol=1e-9)
        np.testing.assert_allclose(entry["values"], [100 * score(right, found) for found in (first, second)])
    only = [int(((one == right) & (other != right)).sum())
            for one, other in ((first, second), (second, first))]
    test = found["mcnemar"]
    assert [test["only_first"], test["only_second"]] == only and test["discordant"] == sum(only) > 5
    assert test["p_value"] == pytest.approx(stats.binomtest(only[0], sum(only), 0.5).pvalue)
    first, *_, last = found["conclusion"]
    assert " points, 95 % interval " in first and first.endswith(": evidence that b is better")
    assert " discordant rows: " in last


def test_the_command_prints_json(two, run_script):
    done = run_script("compare_results.py", *two, metric="accuracy", output_format="json", seed=4,
                      resamples=200)
    assert json.loads(done.out)["conclusion"] == compare(*two, metric="accuracy", seed=4)["conclusion"]


def test_a_regression_has_correlations():
    scores = CHANCE.normal(size=(3, COUNT))
    scores[1:] = scores[0] + scores[1:] * [[0.5], [2.0]]
    for name, predicted in zip("ab", scores[1:]):
        write(name, classified(scores[0], predicted), labels=None, task_type="regression")
    comma = [[str(float(score)).replace(".", ",") for score in row] for row in scores[[0, 2]]]
    write("b", classified(*comma), labels=None, task_type="regression")  # from --output_decimal=comma
    found = compare("a", "b")
    assert [entry["metric"] for entry in found["metrics"]] == ["eval_pearson", "eval_spearman"]
    assert found["metrics"][1]["values"] == pytest.approx(
        [100 * stats.spearmanr(scores[0], row)[0] for row in scores[1:]])
    assert found["metrics"][0]["is_evidence"] and found["mcnemar"] is None


TAGS = ["B-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O", "B-PER"]


@pytest.mark.parametrize("columns, first, second, described, unit, expected", [
    ({"sentence": [0] * 3 + [1] * 3 + [2] * 3, "label": TAGS}, {"prediction": [*TAGS[:4], *"OO", *TAGS[6:]]},
     {"prediction": TAGS}, dict(task_type="tagging"), "sentences", {"eval_f1": [80, 100]}),
    ({"id": [0, 1, 2], "label": ["x"] * 3, "prediction": ["y"] * 3},
     {"exact_match": [0, 1, 0], "f1": [0.25, 1, 0]}, {"exact_match": [0, 1, 1], "f1": [0.5, 1, 1]},
     dict(labels=None, task_type="questions"), "questions",
     {"f1": [125 / 3, 250 / 3], "exact_match": [100 / 3, 200 / 3]}),
    ({"label": [["x", "y"], []]}, {"prediction": [["x"], []]}, {"prediction": [["x", "y"], []]},
     dict(as_json=True, labels=["x", "y"], task_type="multilabel"), "rows",
     {"eval_f1_micro": [200 / 3, 100], "eval_f1_macro": [50, 100]})])
def test_other_tasks_have_their_metrics(columns, first, second, described, unit, expected):
    for name, more in (("a", first), ("b", second)):
        write(name, {**columns, **more}, **described)
    found = compare("a", "b")
    assert found["unit"] == unit and expected.items() <= values_of(found).items()


def test_run_json_decides_the_task():
    for name, predicted in (("a", ["no", "no", "yes"]), ("b", ["no", "yes", "yes"])):
        write(name, {"sentence": [0, 1, 2], "word": list("xyz"),
                     **classified(["no", "yes", "yes"], predicted)})
    pathlib.Path("b/run.json").unlink()  # as in a --results_dir
    found = compare("a", "b")
    assert found["unit"] == "rows" and values_of(found)["eval_accuracy"] == [200 / 3, 100]
    pathlib.Path("a/run.json").unlink()
    assert "There is no run.json beside a/eval_predictions.csv or b/eval_predictions" in refused("a", "b")


def test_test_tables_of_two_results_dirs_are_compared(two):
    """Each directory describes the model itself, and has no table of a development set."""
    for name in two:
        directory = pathlib.Path(name)
        described = json.loads((directory / "run.json").read_text())
        (directory / "run.json").unlink()
        write_json(directory / "evaluated_model.json", {**described, "output_dir": f"trained_{name}"})
        (directory / "eval_predictions.csv").rename(directory / "test_predictions.csv")
    found = compare(*two)
    assert found["n"] == COUNT
    assert "compared test tables: a/test_predictions.csv and b/test_predictions.csv" in found["conclusion"]
    other = write("c", classified(RIGHT, FIRST))
    assert refused(other, "a").startswith("a contains no eval_predictions.csv and no eval_predictions.jsonl")


@pytest.mark.parametrize("name, flags, command", [
    ("eval_predictions.csv", {"dev_file": "/d.csv"}, "--do_eval=true --dev_file"),
    ("eval_predictions.csv", {"train_file": "/d.csv"}, "--do_eval=true --train_file"),
    ("test_predictions.csv", {"test_file": "/d.csv"}, "--do_predict=true --test_file")])
def test_corrected_labels_are_noticed(name, flags, command, two):
    for directory in map(pathlib.Path, two):
        record(directory, files=flags)
        (directory / "eval_predictions.csv").rename(directory / name)
    table = pathlib.Path("b", name)
    text = table.read_text(encoding="utf-8").replace(f",{RIGHT[0]},", ",maybe,", 1)
    table.write_text(text, encoding="utf-8")
    message = refused(*two)
    assert f"in 1 of {COUNT} rows: in row 1, the column 'label' contains {RIGHT[0]!r} in the" in message
    assert message.endswith(f"python run_classifier.py --do_train=false {command}=CORRECTED --output_dir=a "
                            "--results_dir=a_corrected")
    table.write_text(text.replace("text 5,", "text 6,"), encoding="utf-8")
    assert "are not predictions for the same examples: in row 6, the column 'text'" in refused(*two)


def test_a_metric_with_another_meaning_is_not_compared():
    reason = "F1 of yes for the first model, and the mean of the F1 of maybe, no, yes for"
    right = ["no", "yes", "yes", "no"]
    write("a", classified(right, ["no", "yes", "no", "yes"]))
    write("b", classified(right, right), labels=["no", "yes", "maybe"])
    found = compare("a", "b")
    values = values_of(found)
    assert values["eval_accuracy"] == [50, 100] and values["eval_matthews"] == [0, 100]
    assert list(found["refused"]) == ["eval_f1"] and reason in found["refused"]["eval_f1"]
    assert f"eval_f1: not compared, because {found['refused']['eval_f1']}" in found["conclusion"]
    assert reason in refused("a", "b", metric="f1")


def test_several_labels_of_models_with_other_labels():
    for name, labels, right in (("a", ["x", "y"], ["x", "x,y", ""]),
                                ("b", ["z", "y", "x"], ["x", "y,x", ""])):
        write(name, classified(right, ["x"] * 3), labels=labels, task_type="multilabel")
    found = compare("a", "b")
    assert list(values_of(found)) == ["eval_f1_micro"]
    assert "eval_f1_macro is the mean of the F1 of x, y for" in found["refused"]["eval_f1_macro"]


def test_labels_and_texts_are_not_compared_as_numbers():
    for name, label in (("a", "1"), ("b", "01")):
        write(name, classified([label] * 3, [label] * 3), labels=["01", "1"])
    assert "the column 'label' contains '1' in the first file, and '01' in" in refused("a", "b")
    # A score is a number, in CSV and in JSON Lines.
    score = {"labels": None, "task_type": "regression"}
    write("c", classified([1, 2.50, 3], [1, 2.50, 3]), **score)
    write("d", classified([1.0, 2.5, 3.0], [1.0, 2.5, 3.0]), True, **score)
    assert [entry["values"] for entry in compare("c", "d")["metrics"]] == [pytest.approx([100, 100])] * 2
    write("c", classified([1, 2.5, 3], [1, "nan", 2]), **score)
    assert "the prediction 'nan' in row 2 is not a finite number" in refused("c", "d")


def test_a_table_and_results_of_different_evaluations_are_refused(two):
    good = {"eval_accuracy": metrics.accuracy_score(RIGHT, FIRST),
            "eval_f1": metrics.f1_score(RIGHT, FIRST, pos_label="yes"), "eval_recall_bad": 0.5}
    write_json(pathlib.Path("a/eval_results.json"), good)
    assert values_of(compare(*two))["eval_f1"].expected[0] == pytest.approx(100 * good["eval_f1"])
    assert "Other metrics cannot be computed from a table of predictions" in refused(*two,
                                                                                     metric="recall_bad")
    write_json(pathlib.Path("a/eval_results.json"), {**good, "eval_f1": good["eval_f1"] - 0.01})
    assert "files belong to different evaluations. Evaluate the model again." in refused(*two)


# --- Sweeps ----------------------------------------------------------------------------------------------


def write_sweep(name, settings, runs, flags=None, **described):
    """Writes a sweep whose runs have records, see `record`.

    Args:
      name: the new directory.
      settings: names of the values that are settings. The others are metrics.
      runs: {name: value} for each run. A run with the value None has failed. The last metric ranks the runs.
      flags: {flag: value}, the flags of all runs.
    """
    sweep = sweep_directory.SweepDirectory(name, "run_classifier.py", flags or {})
    added = [sweep_runs.Run({setting: str(values[setting]) for setting in settings}) for values in runs]
    pathlib.Path(name).mkdir()
    sweep.add(added, list(runs[0])[-1])
    for run, values in zip(added, runs):
        output = pathlib.Path(name, "runs", run.name)
        output.mkdir()
        record(output, **described)
        sweep.store(sweep_runs.Run(
            run.settings, sweep_runs.FAILED if None in values.values() else sweep_runs.DONE,
            {metric: value for metric, value in values.items() if metric not in settings}))
    return name


def own_sweep(name, rates, seeds, metric="eval_recall", flags=None, **described):
    return write_sweep(name, ["learning_rate", "seed"], [
        {"learning_rate": rate, "seed": seed, metric: 12.5 + seed + len(name)}
        for rate, seed in itertools.product(rates, seeds)], flags, **described)


def sweep(name, rate, values, seeds=None, failed=()):
    return write_sweep(name, ["learning_rate", "seed"], [
        {"learning_rate": rate, "seed": seed, "eval_loss": 1 - value,
         "eval_accuracy": None if seed in failed else value}
        for seed, value in zip(seeds or range(len(values)), values)])


def test_sweeps_with_the_same_seeds_and_other_settings_are_refused():
    own_sweep("a", [1e-5, 2e-5], [0, 1])
    own_sweep("b", [3e-5, 4e-5], [0, 1])
    assert ("have no runs with the same values of learning_rate. Compare sweeps in which"
            in refused("a", "b"))


def test_two_settings_of_one_sweep_are_compared(run_script):
    own_sweep("a", [1e-5, 3e-5, 2e-5], range(3))
    opened = sweep_directory.SweepDirectory("a")
    for run in opened.runs:
        value = (0.25 if run.settings["learning_rate"] == "1e-05" else 0.5) + int(run.settings["seed"]) / 8
        opened.store(sweep_runs.Run(run.settings, sweep_runs.DONE, {"eval_loss": value}))
    opened.add(opened.runs, "eval_loss")
    done = run_script("compare_results.py", "a", "--setting=learning_rate=0.00001,3e-5")
    assert done.out.splitlines() == [
        "eval_loss: 0.375 -> 0.625: 0.25, 95 % interval 0.25 to 0.25: evidence that learning_rate=0.00001 is "
        "better", "compared setting: learning_rate = 1e-05 and 3e-05",
        "n = 3 pairs of runs with the same seed; paired t-test: p is not defined, because all differences "
        "are equal; Wilcoxon's test: p is not defined, because all differences are equal"]
    for words, said in ((["--setting=learning_rate=1e-5,5e-5"], "of learning_rate: 1e-05, 3e-05, 2e-05."),
                        (["--setting=crf=true,false"], "The sweep has no setting crf."),
                        (["a", "--setting=seed=1,2"], "Name the directory of the sweep, and no other")):
        run_script("compare_results.py", "a", *words).assert_refused(said)


def test_differences_for_each_pooled_setting_are_shown():
    for name in ("a", "bb"):
        own_sweep(name, [1e-5, 2e-5], range(3), "eval_recall_bad", {"crf": name})
    opened = sweep_directory.SweepDirectory("bb")
    for run in opened.runs[:3]:
        opened.store(sweep_runs.Run(run.settings, sweep_runs.DONE, {"eval_recall_bad": 12.0}))
    found = compare("a", "bb")
    assert found["test"]["n"] == 6 and found["metrics"][0]["unit"] == ""
    assert found["pooled"] == {"learning_rate=1e-05": -2.5, "learning_rate=2e-05": 1}
    assert found["conclusion"][-2:] == ["  learning_rate=1e-05: -2.5", "  learning_rate=2e-05: 1"]
    assert "the interval and p may be too small" in found["conclusion"][-3]


def test_sweeps_are_compared_on_the_same_data_and_by_the_same_metric():
    for name, described in (("a", dict(train_data={"fingerprint": "t1"}, dev_data={"fingerprint": "d1"})),
                            ("b", dict(train_data={"fingerprint": "t2"}, dev_data={"fingerprint": "d1"})),
                            ("c", dict(dev_data={"fingerprint": "d2"})), ("d", dict(labels=["yes", "no"]))):
        own_sweep(name, [1e-5], range(2), "eval_f1", **described)
    found = compare("a", "b")
    assert found["compared"] == {"training data": ["t1", "t2"]}
    assert "compared setting: training data = t1 and t2" in found["conclusion"]
    assert "were evaluated on different development data" in refused("a", "c")
    assert "eval_f1 is the F1 of yes for the first model, and the F1 of no" in refused("a", "d")


def test_sweeps_are_paired_by_their_settings():
    first, second = [0.80, 0.82, 0.79, 0.85, 0.81, 0.5], [0.83, 0.84, 0.83, 0.86, 0.85, 0.9]
    a, b = sweep("a", 2e-5, first), sweep("b", 5e-5, second, failed={5})
    test = stats.ttest_rel(second[:5], first[:5])
    low, high = (100 * value for value in test.confidence_interval(0.95))
    text = "\n".join(compare(a, b)["conclusion"]) + "\n"
    assert text.startswith(
        f"eval_accuracy: 81.4 -> 84.2: 2.8 points, 95 % interval {low:.1f} to {high:.1f}: evidence that b is "
        "better\ncompared setting: learning_rate = 2e-05 and 5e-05\nn = 5 pairs of runs with the same seed; "
        f"paired t-test: p = {test.pvalue:.3g}; Wilcoxon's test: p = "
        f"{stats.wilcoxon(second[:5], first[:5]).pvalue:.3g}\n")
    assert "a: 1 of 6 runs are left out" in text and "b: 1 of 6 runs are left out" in text
    assert compare(a, b, metric="loss")["conclusion"][0].endswith("evidence that b is better")

    found = compare(a, sweep("c", 5e-5, second, seeds=range(10, 16)))
    assert not found["is_paired"] and found["test"]["n"] == [6, 6]
    assert found["test"]["p_value"] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)
    assert "runs without pairs, because the sweeps have no seed in common" in found["conclusion"][2]


def test_a_sweep_with_runs_that_have_not_ended_is_called_unfinished():
    a, b = sweep("a", 2e-5, [0.7, 0.8, 0.9]), sweep("b", 5e-5, [0.7, 0.9, 0.9], failed={1})
    opened = sweep_directory.SweepDirectory(b)
    opened.store(sweep_runs.Run(opened.runs[0].settings, sweep_runs.RUNNING))
    assert "b has no finished run: " not in refused(a, b)
    opened.add([*opened.runs, sweep_runs.Run({"learning_rate": "5e-05", "seed": "0.0"})])
    opened.store(sweep_runs.Run(opened.runs[1].settings, sweep_runs.DONE, {"eval_loss": 1}))
    lines = compare(a, b, metric="loss")["conclusion"]
    assert lines[-1].startswith("b is unfinished: 2 of 4 runs have not ended. ")
    for run in opened.runs:
        opened.store(sweep_runs.Run(run.settings, sweep_runs.FAILED))
    opened.store(sweep_runs.Run(opened.runs[0].settings, sweep_runs.RUNNING))
    assert refused(a, b).startswith("b has no finished run: 3 failed or diverged, and 1 have not ended. ")


def test_a_metric_that_is_not_finite_does_not_exclude_runs_from_another_metric():
    for name in ("a", "bb"):
        opened = sweep_directory.SweepDirectory(own_sweep(name, [1e-5], range(3)))
        for run in opened.runs:
            opened.store(sweep_runs.Run(run.settings, sweep_runs.DONE,
                                        {"eval_auc": None, "eval_x": len(name)}))
        opened.add([], "eval_auc")
    assert values_of(compare("a", "bb", metric="eval_x")) == {"eval_x": [1, 2]}
    assert "a has no finished run with the metric eval_auc. " in refused("a", "bb")


def test_settings_and_metrics_of_a_sweep_come_from_its_record():
    """The record says which columns are settings and which are metrics.

    The sweep has unknown names of settings, flags outside of the grid, and metrics for which lower is better.
    """
    def written(name, rate, values, labels=LABELS):
        write_sweep(name, ["num_warmup_steps", "log_steps"], [
            {"num_warmup_steps": 0, "log_steps": number, "eval_mae": value, "HasAns_f1": 10 * value}
            for number, value in enumerate(values)], {"learning_rate": rate, "data_dir": "d"})
        return write(min(pathlib.Path(name, "runs").iterdir()), classified(labels, ["no", "no"]))

    low, high = [0.30, 0.31, 0.32, 0.35], [0.40, 0.42, 0.43, 0.44]
    written("a", "2e-05", low)
    written("b", "5e-05", high)
    found = compare("a", "b", metric="mae")
    assert found["conclusion"][0].startswith("eval_mae: 0.32 -> 0.4225: 0.1025, 95 % interval ")
    assert found["conclusion"][0].endswith("evidence that a is better")
    assert found["compared"] == {"learning_rate": ["2e-05", "5e-05"]}
    assert found["is_paired"] and found["paired_by"] == ["num_warmup_steps", "log_steps"]
    assert values_of(compare("a", "b")) == {"HasAns_f1": [3.2, 4.225]}
    sweep_directory.SweepDirectory("a").add([], "eval_mae")
    assert ("a and b have different values of --metric. Pass one of their metrics as --metric: HasAns_f1, "
            "eval_mae and HasAns_f1, eval_mae.") in refused("a", "b")
    assert list(values_of(compare("a", "b", metric="HasAns_f1"))) == ["HasAns_f1"]

    written("c", "5e-05", high, ["no", "no"])
    assert "have the same texts, but different labels in 1 of 2 rows: in row 2" in refused(
        "a", "c", metric="mae")
    pathlib.Path("c/sweep.json").write_text("{}")
    assert "c/sweep.json has the format None, but this version reads the format 1." in refused("a", "c")


# --- Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting, column", [("Art,x", "Art"), ("label", "input_label"), ("2", "column_2"),
                                             (None, "Quality")])
def test_the_column_of_the_labels_is_no_text(setting, column):
    """The label "no " of a file is "no" in tables, because of --label_map or of spaces at its end."""
    for name, labels in (("a", ["no", "yes"]), ("b", ["yes", "yes"]), ("c", ["no", "yes"])):
        copy = [f"{label} " if setting and name != "a" else label for label in labels]
        write(name, {column: copy, **classified(labels, ["no", "no"])}, settings={"label_column": setting})
    said = refused("a", "b")
    assert "the same texts, but different labels in 1 of 2 rows: in row 1, the column 'label'" in said
    assert "python run_classifier.py --do_train=false" in said and compare("a", "c")["n"] == 2


def test_tables_that_cannot_be_compared_are_refused(two):
    a, b = two
    assert "Name two directories or tables." in refused(a)
    assert "are the same path. Name two different trainings." in refused(a, "b/../a")
    assert "there is no such file or directory" in refused(a, "none")
    assert "contains no eval_predictions.csv and no eval_predictions.jsonl, and the arguments are not" in (
        refused(a, "."))
    assert f"has {COUNT} rows, and shorter/eval_predictions.csv has {COUNT - 1}." in refused(
        a, write("shorter", classified(RIGHT[:-1], FIRST[:-1])))
    turned = [LABELS[RIGHT[0] == "no"], *RIGHT[1:]]
    assert "in row 1, the column 'label' contains " in refused(a, write("turned", classified(turned, FIRST)))
    for name, content, said in (("quote", b'no,no,"a"b\n', "2: "),
                                ("cut", b"no,no,a\nno,b\n", "3: the row has more or fewer fields than the")):
        write(name, classified(RIGHT, FIRST))
        pathlib.Path(name, "eval_predictions.csv").write_bytes(b"label,prediction,text\n" + content)
        assert f"{name}/eval_predictions.csv:{said}" in refused(a, name)
    write("key", classified(["no"] * 2, ["no"] * 2), True)
    lines = pathlib.Path("key/eval_predictions.jsonl").read_text().replace(', "prediction": "no"}\n', "}\n")
    pathlib.Path("key/eval_predictions.jsonl").write_text(lines)
    assert "the column 'prediction' is missing in row 1" in refused("key", a)
    write("scores", classified([1.5], [2.5]), labels=None, task_type="regression", task="stars")
    assert ("belongs to a task of the type classification, and scores/eval_predictions.csv to a task of the "
            "type regression.") in refused(a, "scores")
    assert "--metric=bleu: the metrics of these predictions are eval_accuracy, eval_f1, " in (
        refused(a, b, metric="bleu"))
    assert "are not two directories with sweep.json" in refused(a, sweep("sweep", 1, [1, 2]))
    assert "d and sweep have no metric f1 in common. Pass one of their metrics" in refused(
        sweep("d", 2, [1, 2]), "sweep", metric="f1")
    assert "only one pair of finished runs with the same settings" in refused(
        sweep("e", 2, [1, 2], failed={1}), "sweep")
