"""--task_module: a user's own task, in a Python file."""

import json
import pathlib
import re
import shutil
import sys
import textwrap

from helpers import ROOT, read_json
import numpy as np
import pytest
import tiny

from bertlib.runs.settings import Settings
from bertlib.tasks.classification import (
    classification_processor,
    classification_task,
    classifier_data,
    task_module,
)

PAGE = ROOT / "docs" / "howto" / "own_task.md"
WORDS = {"good": "cat", "bad": "dog"}
PARTS = {"train": 12, "dev": 6, "test": 4}


@pytest.fixture(autouse=True)
def without_run_classifier(monkeypatch):
    """After a test, `import run_classifier` imports the command again, and not what a user's module gets."""
    monkeypatch.setitem(sys.modules, "run_classifier", classifier_data)


def example_of_the_page():
    return re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


def command_of_the_page():
    """The flags of the first command of the page, a list."""
    first = re.search(r"^    python run_classifier\.py (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return first[1].split()


def write_reviews(directory):
    for part, size in PARTS.items():
        for index in range(size):
            label = sorted(WORDS)[index % 2]
            folder = directory / part / ("" if part == "test" else label)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{index}.txt").write_text(f"the {WORDS[label]} sees {' a house' * (index % 3)} .")


# --- Whole runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """(directory, run, flags). The directory contains the module of the page, its data, and the output."""
    here = tmp_path_factory.mktemp("reviews")
    write_reviews(here / "reviews")
    (here / "my_task.py").write_text(example_of_the_page(), encoding="utf-8")
    flags = [*command_of_the_page(), *tiny.flags(**tiny_model.flags, train_batch_size=4, num_train_epochs=1)]
    return here, scripts.run("run_classifier.py", *flags, cwd=here), flags


def copy_of(trained, here):
    """A copy of the output directory and of the data, without the module that the user wrote."""
    shutil.copytree(trained[0], here, dirs_exist_ok=True)
    (here / "my_task.py").unlink()
    return here / "output" / "my_task"


def evaluate(run_script, **more):
    return run_script("run_classifier.py", **{"output_dir": "output/my_task", "do_eval": True, **more})


def test_the_example_of_the_page_trains_evaluates_and_predicts(trained):
    here, done, _ = trained
    done.assert_success()
    output = here / "output" / "my_task"
    found = read_json(output / "eval_results.json")
    matrix = found["eval_confusion_matrix"]
    assert found["eval_recall_bad"] == matrix[0][0] / sum(matrix[0]) and sum(matrix[0]) == 3
    assert re.search(r"Reviews dev: F1 of good \d\.\d+, accuracy", done.err.splitlines()[-1])
    assert len((output / "test_predictions.tsv").read_text().splitlines()) == 1 + PARTS["test"]
    assert (output / "task_module.py").read_bytes() == (here / "my_task.py").read_bytes()
    record = read_json(output / "run.json")
    assert record["task"] == "task module" and record["train_data"]["examples"] == PARTS["train"]
    assert record["task_module"] == {"name": "my_task.py", "texts": 1,
                                     "fingerprint": record["model_files"]["task_module.py"]}


def test_a_later_evaluation_and_prediction_use_the_copy(run_script, trained, tmp_path):
    output = copy_of(trained, tmp_path)
    expected = {name: (output / name).read_bytes() for name in ("eval_results.txt", "test_predictions.tsv")}
    done = evaluate(run_script, do_predict=True, results_dir="again", data_dir="reviews")
    done.assert_success("--task_module not given: using output/my_task/task_module.py (the copy of my_task")
    assert {name: (tmp_path / "again" / name).read_bytes() for name in expected} == expected
    assert not list(tmp_path.rglob("__pycache__"))


def test_predict_executes_no_module_and_an_edited_copy_is_refused(trained, run_script, tmp_path):
    output = copy_of(trained, tmp_path)
    with open(output / "task_module.py", "a") as file:
        file.write("\nraise RuntimeError('executed')\n")
    (tmp_path / "new.txt").write_text("the cat sees a house .\n")
    done = run_script("predict.py", model_dir=output, input_file="new.txt")
    assert done.code == 0 and set(json.loads(done.out)["probabilities"]) == {"bad", "good"}, done.err
    done = evaluate(run_script)
    done.assert_refused("task_module.py was changed after the training wrote it")
    (output / "task_module.py").unlink()
    evaluate(run_script).assert_refused("task_module.py: there is no such file.")


def test_another_module_is_named_and_other_labels_are_refused(trained, run_script, tmp_path):
    copy_of(trained, tmp_path)
    other = tmp_path / "other.py"
    other.write_text(example_of_the_page().replace('["bad", "good"]', '["good", "bad"]'))
    done = evaluate(run_script, task_module="other.py")
    done.assert_refused('these values differ: labels: ["bad", "good"] -> ["good", "bad"]. Use another')
    other.write_text(example_of_the_page() + "\n# changed\n")
    done = evaluate(run_script, task_module="other.py")
    done.assert_success()
    assert re.search(r"WARNING: .*task_module: my_task\.py \(\w{8}\) -> other\.py \(\w{8}\)\.", done.err)
    # A training without the flag would otherwise be a training on no task.
    done = run_script("run_classifier.py", "--output_dir=output/my_task")
    done.assert_refused("contains a training with --task_module=my_task.py. To continue")
    # A model of a module can also evaluate a user's own file.
    (tmp_path / "dev.csv").write_text("text,label\nthe cat,good\nthe dog,bad\n")
    done = evaluate(run_script, dev_file="dev.csv", results_dir="of_file")
    done.assert_success("Own data dev: accuracy")
    # The directory of a checkpoint may come from a stranger, so its module is only executed on request.
    done = evaluate(run_script, init_checkpoint="output/my_task", output_dir="new")
    done.assert_refused("a copy in output/my_task/task_module.py. The module is exec")


def test_a_changed_module_continues_the_training_and_is_copied(run_script, trained, tmp_path):
    output = copy_of(trained, tmp_path)
    (tmp_path / "my_task.py").write_text(example_of_the_page() + "\n# changed\n")
    flags = [*trained[2], "--num_train_epochs=2", "--do_train=true"]
    done = run_script("run_classifier.py", *flags)
    # Another module file with the same name has the same default directory.
    done.assert_refused(f"already contains a training on a different file, {trained[0]}")
    done = run_script("run_classifier.py", *flags, "--output_dir=output/my_task")
    done.assert_success()
    assert re.search(r"WARNING: .*continues from step 3 .*task_module: my_task\.py \(", done.err)
    assert (output / "task_module.py").read_text().endswith("# changed\n")
    record = read_json(output / "run.json")
    assert record["task_module"]["fingerprint"] == record["model_files"]["task_module.py"]
    assert "task_module" in record["changes"][0]["changed"]


SCORES = """
from run_classifier import DataProcessor, InputExample

class Scores(DataProcessor):
    task_type = "regression"

    def get_train_examples(self, data_dir):
        assert data_dir is None
        texts = ["the cat", "the dog", "a house", "a river ."]
        return [InputExample(str(i), text, "the man", i / 2) for i, text in enumerate(texts)]

    def get_dev_examples(self, data_dir):
        self.shared = self.get_train_examples(data_dir)
        return self.shared

    def get_test_examples(self, data_dir):
        return self.shared

    def get_test_labels(self, data_dir):
        return [0, 1, 2, 3]

    def compute_metrics(self, labels, predictions):
        if labels == [0.0, 1.0, 2.0, 3.0]:
            return {"largest": max(labels), "count": sum(isinstance(one, float) for one in predictions)}
        raise KeyError("no such")
"""


def test_scores_of_pairs_and_a_metric_that_fails(run_script, tiny_model, tmp_path):
    (tmp_path / "scores.py").write_text(SCORES)
    weights = np.linspace(-1, 1, tiny.CONFIG["hidden_size"], dtype=np.float32)[None]
    tiny.write_training(tmp_path / "output", tiny_model.weights, num_labels=1, output_weights=weights)
    flags = {**tiny_model.flags, "bert_config_file": tiny_model.config, "output_dir": "output"}
    done = run_script("run_classifier.py", task_module="scores.py", do_eval=True, do_predict=True, **flags)
    # All other results are written, then the run ends with the error and its traceback.
    assert done.code == 1 and re.search(
        r"ERROR: --task_module=scores\.py, line 25: KeyError: 'no such'\nTraceback .*\nKeyError: 'no such'$",
        done.err.strip(), re.DOTALL), done.err
    output = tmp_path / "output"
    assert {"eval_pearson", "eval_spearman"} < set(read_json(output / "eval_results.json"))
    found = read_json(output / "test_eval_results.json")
    assert (found["eval_largest"], found["eval_count"]) == (3, 4) and "scores dev: Pearson" in done.err


# --- Modules that cannot be used -------------------------------------------------------------------------

BASE = "from run_classifier import DataProcessor, InputExample, Layout\n"
FLAGS = dict(task_module="task.py", task_name=None, train_file=None, threshold=0.5, label_separator=",",
             do_train=False, do_eval=False, do_predict=False, data_dir=None, output_dir="output",
             max_train_examples=None, max_eval_examples=None, init_checkpoint=None)


@pytest.fixture
def find(tmp_path, monkeypatch):
    """Returns the task of a run with a resolved processor, from the text of a module and from flags."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "run_classifier", classifier_data)

    def find_task(text, **flags):
        pathlib.Path("task.py").write_text(BASE + textwrap.dedent(text))
        settings = Settings({**FLAGS, "do_predict": True, **flags}, ["task_module", "do_predict", *flags])
        task = classification_task.Classification(settings)
        task.resolve_processor()
        return task
    return find_task


def read(find, text, **flags):
    """Returns (task, examples, whether the test set has labels)."""
    task = find(text, **flags)
    examples, has_labels = classification_processor.read_examples(task.settings, task.processor, task.target)
    return task, classification_processor.draw_examples(task.settings, examples, task.target), has_labels


@pytest.mark.parametrize("text, said", [
    ("", "must contain exactly one class derived from run_classifier.DataProcessor or "
         "bertlib.tasks.task.Task, but it contains 0. "),
    ("class A(DataProcessor): pass\nclass B(A): pass", "but it contains 2: A, B. A class whose name begins"),
    ("class A(DataProcessor):\n    task_type = 'tagging'", "A.task_type is 'tagging'. It must be one of cl"),
    ("class A(DataProcessor):\n    metrics = ['x']", "A.metrics contains x, but the task type classificat"),
    ("class A(DataProcessor): pass", "A.get_labels() returns (). It must return a list"),
    ("class A(DataProcessor):\n    labels = ('a', 'a')", "A.get_labels() returns ['a', 'a']. It must"),
    ("class A(DataProcessor):\n    labels = ('a\\n', 'b')", "A label is a text without control characters"),
    ("class A(DataProcessor):\n    def get_labels(self): return 'ab'", "A.get_labels() returns 'ab'. It"),
    ("class A(DataProcessor):\n    labels, task_type = ['a,b'], 'multilabel'", "'a,b' contains ','"),
])
def test_a_module_that_cannot_be_used(find, text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        find(text)


@pytest.mark.parametrize("name", ["ranking.py", "mean_pooling.py"])
def test_keep_best_of_a_users_task_is_not_checked_before_the_training(name):
    """The class may add metrics to those of its target."""
    settings = Settings({"task_module": str(ROOT / "tests" / "data" / name)}, ["task_module"])
    assert task_module.find_task(settings).known_metrics == ()


def test_a_head_of_a_user(run_script, tiny_model, tmp_path):
    """The trained head is evaluated again, and only commands with this module can use it."""
    rows = "".join(f"{text},{label}\n" for text, label in [("the cat", "a"), ("a house", "b")] * 4)
    (tmp_path / "data.csv").write_text(f"text,label\n{rows}")
    flags = {**tiny_model.flags, "train_file": "data.csv", "dev_file": "data.csv", "output_dir": "output",
             "train_batch_size": 4, "num_train_epochs": 2, "do_train": True, "do_eval": True}
    module = ROOT / "tests" / "data" / "mean_pooling.py"
    for flag, value in (("class_weights", "balanced"), ("label_smoothing", 0.1), ("do_export", True)):
        run_script("run_classifier.py", task_module=module, **flags, **{flag: value}).assert_refused(
            f"--{flag}", "head of MeanPooling")
    assert not (tmp_path / "output").exists()
    run_script("run_classifier.py", task_module=module, **flags).assert_success("Starting weights")
    record = read_json(tmp_path / "output" / "run.json")
    assert record["task_module"]["name"] == "mean_pooling.py" and record["task"] == "own data"
    later = run_script("run_classifier.py", results_dir="again", **{**flags, "do_train": False})
    later.assert_success("output/model.ckpt-4", "task_module.py (the copy of mean_pooling.py")
    again, first = (read_json(tmp_path / name / "eval_results.json") for name in ("again", "output"))
    assert again == first
    run_script("run_classifier.py", **flags).assert_refused("a training with --task_module=mean_pooling.py")
    (tmp_path / "changed.py").write_text(module.read_text().replace("GAMMA = 2.0", "GAMMA = 0.0"))
    done = run_script("run_classifier.py", task_module="changed.py", **{**flags, "num_train_epochs": 3})
    done.assert_success("task_module: mean_pooling.py (", " -> changed.py (")
    assert read_json(tmp_path / "output" / "eval_results.json")["global_step"] == 6
    assert (tmp_path / "output" / "task_module.py").read_text() == (tmp_path / "changed.py").read_text()
    (tmp_path / "lines.txt").write_text("the cat\n")
    run_script("predict.py", model_dir="output", input_file="lines.txt").assert_refused(
        "output_weights: not in the checkpoint", "a --task_module with another head trained")


def test_a_model_of_a_task_needs_its_module(run_script, classifier_dir):
    done = run_script("run_classifier.py", output_dir=classifier_dir, do_eval=True)
    done.assert_refused("the task 'mine', which is not a known task. If the training had a --task_module,")


@pytest.mark.parametrize("text, line, error", [
    ("x = 1 / 0", 2, ZeroDivisionError), ("def f(:", 2, SyntaxError),
    ("import sys\nsys.exit(3)", 3, SystemExit),
    ("class A(DataProcessor):\n    def get_labels(self): return self.x['y']", 3, AttributeError),
    ("class A(DataProcessor):\n    labels = 'xy'\n    def get_test_examples(self, path): return [1 / 0]", 4,
     ZeroDivisionError)])
def test_an_error_of_a_module_is_raised_after_a_line_about_its_place(find, caplog, text, line, error):
    with pytest.raises(error), task_module.name_line_in_errors(Settings(FLAGS)):
        read(find, text)
    assert f"--task_module=task.py, line {line}: {error.__name__}: " in caplog.text


@pytest.mark.parametrize("task_type, example, said", [
    ("classification", "'text'", "example 0 must be an InputExample whose text_a is a text"),
    ("classification", "InputExample('a', 'b', 5, 'x')", "text_b is a text or None"),
    ("classification", "InputExample('a', 'b', None, 'z')", "example a: label 'z' is not one of x, y"),
    ("regression", "InputExample('a', 'b', None, float('nan'))", "the label nan is not a finite number"),
    ("multilabel", "InputExample('a', 'b', None, 'x')", "the label 'x' is not a tuple of labels"),
    ("multilabel", "InputExample('a', 'b', None, ('x', 'z'))", "label 'z' is not one of x, y"),
    ("classification", "", "Task.get_dev_examples returns no examples"),
])
def test_examples_that_cannot_be_used(find, task_type, example, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read(find, f"""
            class Task(DataProcessor):
                labels, task_type = ("x", "y"), "{task_type}"
                def get_dev_examples(self, data_dir):
                    return [{example}]
        """, do_eval=True, do_predict=False)


def test_sets_with_the_same_objects_keep_their_labels_and_source_rows(find):
    code = """
        class Task(DataProcessor):
            labels = "x", "y"
            def get_dev_examples(self, data_dir):
                self.shared = [InputExample("a", "b", None, "y")]
                self.shared[0].source = 7, {{"text": "b"}}
                return self.shared
            def get_test_examples(self, data_dir):
                return self.shared
            def get_test_labels(self, data_dir):
                return {}
    """
    for returned, label in (("['x']", "x"), ("None", "x"), ("'y'", "y")):
        _, examples, is_labelled = read(find, code.format(returned), do_eval=True)
        assert examples["dev"][0].label == "y" and examples["test"][0].label == label
        assert is_labelled == (returned != "None")
        assert all(rows[0].source == (7, {"text": "b"}) for rows in examples.values())
    with pytest.raises(ValueError, match="returns 2 labels, but get_test_examples returns 1 examples"):
        read(find, code.format("'xy'"), do_eval=True)


@pytest.mark.parametrize("returned, said", [
    ("5", "has no attribute 'items'"), ("{'a': None}", "must be a string or a real number"),
    ("{'f1': 1}", "returns the metric 'f1'.* must differ from f1"),
    ("{'a b': 1}", "returns the metric 'a b'")])
def test_metrics_that_cannot_be_used(find, returned, said, caplog):
    task = find(f"""
        class Task(DataProcessor):
            labels = "x", "y"
            def compute_metrics(self, labels, predictions):
                return {returned}
    """)
    task.data = {"dev": []}
    assert task._own_metrics("dev", [], ["eval_f1"]) == {}
    assert "compute_metrics: " in caplog.text
    with pytest.raises(Exception, match=said):
        task.finish()


def code_of_section(heading):
    """The code in a section of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return textwrap.dedent("\n".join(line for line in section.splitlines() if line.startswith("    ")))


def test_declared_files_of_a_module(find, tmp_path):
    code = code_of_section("Declared files")
    (tmp_path / "dev.tsv").write_text("fits\tquestion\tanswer\nyes\twho ?\tthe man\n")
    (tmp_path / "test.tsv").write_text("question\tanswer\nwho ?\tthe dog\n")
    task, examples, is_labelled = read(find, code, data_dir=".", do_eval=True)
    [example] = examples["dev"]
    assert (example.text_a, example.text_b, example.label) == ("who ?", "the man", "yes")
    assert len(examples["test"]) == 1 and not is_labelled and task.processor.metrics == ("f1", "accuracy")
    (tmp_path / "dev.tsv").write_text("fits\tquestion\tanswer\nmaybe\twho ?\tthe man\n")
    with pytest.raises(ValueError, match=r"^\./dev\.tsv:2: the label 'maybe'"):
        read(find, code, data_dir=".", do_eval=True)


def test_rows_from_several_files(find, tmp_path):
    row = "drive\tV\t1-1\tThey drive the cattle .\tWe drive to work .\n"
    for split in ("dev", "test"):
        (tmp_path / f"{split}.data.txt").write_text(2 * row)
        (tmp_path / f"{split}.gold.txt").write_text("F\nT\n")
    code = code_of_section("Rows from several files")
    task, examples, is_labelled = read(find, code, data_dir=".", do_eval=True)
    texts = ("They drive the cattle .", "We drive to work .")
    for found in examples.values():
        assert [(each.text_a, each.text_b, each.label) for each in found] == [(*texts, "F"), (*texts, "T")]
    assert is_labelled and set(examples) == {"dev", "test"}
    assert "./dev.gold.txt" in task.input_files()["data_dir"]
    (tmp_path / "dev.gold.txt").write_text("F\nmaybe\n")
    with pytest.raises(ValueError, match=r"^\./dev\.data\.txt:2: the label 'maybe'"):
        read(find, code, data_dir=".", do_eval=True)


@pytest.mark.parametrize("flags, said", [
    (dict(task_name="MRPC"), "--task_module=task.py and --task_name exclude each other"),
    (dict(train_file="a.csv"), "--task_module=task.py and --train_file exclude each other"),
    (dict(threshold=0.4), "--threshold is for --task_type=multilabel"),
    (dict(task_module="none.py"), "--task_module=none.py: there is no such file"),
    (dict(do_eval=True), "task has no dev examples. If the task is for prediction only"),
    (dict(xnli_language="de"), "--xnli_language=de: this flag is only for the task XNLI"),
])
def test_flags_that_contradict_a_module(find, flags, said):
    with pytest.raises((ValueError, OSError), match=re.escape(said)):
        read(find, "class Task(DataProcessor):\n    labels = 'x', 'y'\n", **flags)
