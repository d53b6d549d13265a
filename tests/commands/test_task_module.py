"""--task_module: a user's own task, in a Python file."""

import json
import pathlib
import re
import shutil
import sys
import textwrap

from helpers import ROOT
import numpy as np
import pytest
import tiny

from bertlib.runs.settings import Settings
from bertlib.tasks.classification.task import classification_run, task_module

PAGE = ROOT / "docs" / "howto" / "own_task.md"
WORDS = {"good": "cat", "bad": "dog"}
PARTS = {"train": 12, "dev": 6, "test": 4}


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


def results_of(path):
    return dict(line.split(" = ") for line in path.read_text().splitlines())


# --- Whole runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """(directory, run, flags). The directory contains the module of the page, its data, and the output."""
    here = tmp_path_factory.mktemp("reviews")
    write_reviews(here / "reviews")
    (here / "my_task.py").write_text(example_of_the_page(), encoding="utf-8")
    flags = [*command_of_the_page(), *tiny.flags(**{
        **tiny_model.flags, "bert_config_file": tiny_model.shallow}, train_batch_size=4, num_train_epochs=1)]
    return here, scripts.run("run_classifier.py", *flags, cwd=here), flags


def copy_of(trained, here):
    """A copy of the output directory and of the data, without the module that the user wrote."""
    shutil.copytree(trained[0], here, dirs_exist_ok=True)
    (here / "my_task.py").unlink()
    return here / "output" / "my_task"


def evaluate(scripts, here, *flags, **more):
    flags = [*flags, *tiny.flags(**{"output_dir": "output/my_task", "do_eval": True, **more})]
    return scripts.run("run_classifier.py", *flags, cwd=here)


def test_the_example_of_the_page_trains_evaluates_and_predicts(trained):
    here, done, _ = trained
    done.assert_success()
    output = here / "output" / "my_task"
    found = results_of(output / "eval_results.txt")
    matrix = json.loads(found["eval_confusion_matrix"])
    assert float(found["eval_recall_bad"]) == matrix[0][0] / sum(matrix[0]) and sum(matrix[0]) == 3
    assert re.search(r"Reviews dev: F1 of good \d\.\d+, accuracy", done.err.splitlines()[-1])
    assert len((output / "test_predictions.tsv").read_text().splitlines()) == 1 + PARTS["test"]
    assert not (output / "test_eval_results.txt").exists()
    assert (output / "task_module.py").read_bytes() == (here / "my_task.py").read_bytes()
    assert (output / "labels.txt").read_text() == "bad\ngood\n"
    record = json.loads((output / "run.json").read_text())
    assert record["task"] == "task module" and record["train_data"]["examples"] == PARTS["train"]
    assert record["task_module"] == {"name": "my_task.py", "texts": 1,
                                     "fingerprint": record["model_files"]["task_module.py"]}
    assert sorted(path.name for path in here.iterdir()) == ["my_task.py", "output", "reviews"]


def test_a_later_evaluation_and_prediction_use_the_copy(scripts, trained, tmp_path):
    output = copy_of(trained, tmp_path)
    expected = {name: (output / name).read_bytes() for name in ("eval_results.txt", "test_predictions.tsv")}
    done = evaluate(scripts, tmp_path, do_predict=True, results_dir="again", data_dir="reviews")
    done.assert_success()
    assert "--task_module not given: using output/my_task/task_module.py (the copy of my_task.py" in done.err
    assert {name: (tmp_path / "again" / name).read_bytes() for name in expected} == expected
    assert not list(tmp_path.rglob("__pycache__"))


def test_predict_executes_no_module_and_an_edited_copy_is_refused(scripts, trained, tmp_path):
    output = copy_of(trained, tmp_path)
    with open(output / "task_module.py", "a") as file:
        file.write("\nraise RuntimeError('executed')\n")
    (tmp_path / "new.txt").write_text("the cat sees a house .\n")
    done = scripts.run("predict.py", *tiny.flags(model_dir=output, input_file="new.txt"), cwd=tmp_path)
    assert done.code == 0 and set(json.loads(done.out)["probabilities"]) == {"bad", "good"}, done.err
    done = evaluate(scripts, tmp_path)
    done.assert_refused("task_module.py was changed after the training wrote it")
    (output / "task_module.py").unlink()
    assert "task_module.py is missing" in evaluate(scripts, tmp_path).err


def test_another_module_is_named_and_other_labels_are_refused(scripts, trained, tmp_path):
    copy_of(trained, tmp_path)
    other = tmp_path / "other.py"
    other.write_text(example_of_the_page().replace('["bad", "good"]', '["good", "bad"]'))
    done = evaluate(scripts, tmp_path, task_module="other.py")
    assert done.code == 1 and ("other.py: get_labels() returns good, bad, but the training in "
                               "--output_dir=output/my_task has the labels bad, good.") in done.err
    other.write_text(example_of_the_page() + "\n# changed\n")
    done = evaluate(scripts, tmp_path, task_module="other.py")
    done.assert_success()
    assert re.search(r"WARNING: .*task_module: my_task\.py \(\w{8}\) -> other\.py \(\w{8}\)\.", done.err)
    # A training without the flag would otherwise be a training on no task.
    done = scripts.run("run_classifier.py", "--output_dir=output/my_task", cwd=tmp_path)
    done.assert_refused("contains a training with --task_module=my_task.py. To continue")
    # A model of a module can also evaluate a user's own file.
    (tmp_path / "dev.csv").write_text("text,label\nthe cat,good\nthe dog,bad\n")
    done = evaluate(scripts, tmp_path, dev_file="dev.csv", results_dir="of_file")
    assert done.code == 0 and "Own data dev: accuracy" in done.err, done.err
    # The directory of a checkpoint may come from a stranger, so its module is only executed on request.
    done = evaluate(scripts, tmp_path, init_checkpoint="output/my_task", output_dir="new")
    assert done.code == 1 and "a copy in output/my_task/task_module.py. The module is exec" in done.err


def test_a_changed_module_continues_the_training_and_is_copied(scripts, trained, tmp_path):
    output = copy_of(trained, tmp_path)
    (tmp_path / "my_task.py").write_text(example_of_the_page() + "\n# changed\n")
    flags = [*trained[2], "--num_train_epochs=2", "--do_train=true"]
    done = scripts.run("run_classifier.py", *flags, cwd=tmp_path)
    # Another module file with the same name has the same default directory.
    done.assert_refused(f"already contains a training with a different module, {trained[0]}")
    done = scripts.run("run_classifier.py", *flags, "--output_dir=output/my_task", cwd=tmp_path)
    done.assert_success()
    assert re.search(r"WARNING: .*continues from step 3 .*task_module: my_task\.py \(", done.err)
    assert (output / "task_module.py").read_text().endswith("# changed\n")
    record = json.loads((output / "run.json").read_text())
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


def test_scores_of_pairs_and_a_metric_that_fails(scripts, tiny_model, tmp_path):
    (tmp_path / "scores.py").write_text(SCORES)
    flags = {**tiny_model.flags, "bert_config_file": tiny_model.shallow, "num_train_epochs": 1,
             "train_batch_size": 4}
    done = scripts.run("run_classifier.py", *tiny.flags(task_module="scores.py", **flags), cwd=tmp_path)
    # All other results are written, then the run ends with the error.
    assert done.code == 1 and done.err.splitlines()[-1] == (
        "run_classifier.py: error: --task_module=scores.py, line 25: compute_metrics raised KeyError: "
        "'no such'. --traceback=true shows the traceback."), done.err
    output = tmp_path / "output" / "scores"
    assert {"eval_pearson", "eval_spearman"} < set(results_of(output / "eval_results.txt"))
    found = results_of(output / "test_eval_results.txt")
    assert float(found["eval_largest"]) == 3 and float(found["eval_count"]) == 4
    assert "scores dev: Pearson" in done.err and not (output / "labels.txt").exists()


# --- Modules that cannot be used -------------------------------------------------------------------------

BASE = "from run_classifier import DataProcessor, InputExample, Layout\n"


@pytest.fixture
def load(tmp_path):
    """Creates a processor from the text of a module, and sets its target."""
    def load_text(text):
        path = tmp_path / "task.py"
        path.write_text(BASE + textwrap.dedent(text))
        processor = task_module.ModuleProcessor(str(path), path.name, path.read_bytes())
        processor.set_target(Settings({"threshold": 0.5, "label_separator": ","}))
        return processor
    return load_text


@pytest.mark.parametrize("text, said", [
    ("x = 1 / 0", r"task\.py, line 2: the module raised ZeroDivisionError: division by zero\. --traceback"),
    ("def f(:", r"task\.py, line 2: the module raised SyntaxError: "),
    ("import sys\nsys.exit(3)", r"line 3: the module raised SystemExit: 3\."),
    ("import no_such", r"line 2: the module raised ModuleNotFoundError: No module named 'no_such'\. --trace"),
    ("import beside.part", "A task module cannot import files of its directory.* Move the code of beside"),
    ("from run_classifier import no_such", "line 2: the module raised ImportError: cannot import name"),
    ("", "contains no class derived from DataProcessor. Write "),
    ("class A: pass", "contains no class derived from DataProcessor. It contains only the classes A. "),
    ("class A(DataProcessor): pass\nclass B(A): pass", "contains 2 classes derived from DataProcessor: A, B"),
    ("class A(DataProcessor): pass", r"class A: the method get_labels\(\) is missing"),
    ("class A(DataProcessor):\n    task_type = 'tagging'", "task_type is 'tagging'. It must be one of class"),
    ("class A(DataProcessor):\n    def __init__(self, x): pass", r"A\(\) raised TypeError: "),
    ("class A(DataProcessor):\n    labels = (0, 1)", "the label 0, which is not a text. Write '0'"),
    ("class A(DataProcessor):\n    labels = ('a', 'a')", "returns the label 'a' twice"),
    ("class A(DataProcessor):\n    labels = ('a\\n', 'b')", "must not contain control characters"),
    ("class A(DataProcessor):\n    def get_labels(self): return 'ab'", "returns 'ab'. It must return a list"),
    ("class A(DataProcessor):\n    def get_labels(self): return self.x['y']", "line 3: get_labels raised"),
    ("class A(DataProcessor):\n    labels, task_type = ['a,b'], 'multilabel'", "'a,b' contains ','"),
    ("class A(DataProcessor):\n    labels, further_sets = 'ab', ['../x']", "further_sets contains '../x'"),
    ("class A(DataProcessor):\n    labels, further_sets = 'ab', ['好' * 80]", "and have at most 200 bytes"),
])
def test_a_module_that_cannot_be_used(load, tmp_path, text, said):
    (tmp_path / "beside.py").touch()
    before = set(sys.modules)
    with pytest.raises(ValueError, match=said) as caught:
        load(text)
    assert str(caught.value).startswith(f"--task_module={tmp_path}/task.py")
    assert "run_classifier" in before or "run_classifier" not in sys.modules


@pytest.mark.parametrize("text, said", [
    ("return [x]", r"task\.py, line 6: get_train_examples raised NameError: .*\. data_dir is None, because"),
    ("return None", "get_train_examples returns None. It must return a list of InputExample"),
    ("return []", "get_train_examples returns no examples"),
    ("return ['text']", "get_train_examples, example 0: 'text' is not an InputExample"),
    ("return [InputExample('a', b'text', label='x')]", r"example 0 \(guid 'a'\): text_a is b'text'. It must"),
    ("return [InputExample('a', 'b', 5, 'x')]", "text_b is 5. It must be a text"),
    ("return [InputExample('a', ' ', None, 'x')]", "text_a is empty"),
    ("return [InputExample('a', 'b', None, 'z')]", "the label 'z' is not one of the labels that .*: x, y"),
    ("return [InputExample('a', 'b')]", "the label None is not one of the labels"),
])
def test_examples_that_cannot_be_used(load, text, said):
    processor = load(f"""
        class Task(DataProcessor):
            labels = "x", "y"
            def get_train_examples(self, data_dir):
                {text}
    """)
    with pytest.raises(ValueError, match=said):
        processor.get_train_examples(None)


@pytest.mark.parametrize("task_type, label, said", [
    ("regression", "float('nan')", "the label is nan. It must be a finite number"),
    ("regression", "None", "the label is None. It must be a finite number"),
    ("multilabel", "'x'", "the label is 'x'. It must be a tuple of labels"),
    ("multilabel", "('x', 'z')", "the label 'z' is not one of the labels"),
])
def test_labels_of_another_type(load, task_type, label, said):
    processor = load(f"""
        class Task(DataProcessor):
            labels, task_type = ("x", "y"), "{task_type}"
            def get_dev_examples(self, data_dir):
                return [InputExample("a", "b", None, {label})]
    """)
    with pytest.raises(ValueError, match=said):
        processor.get_dev_examples(None)


def test_sets_with_the_same_objects_keep_their_labels_and_source_rows(load):
    processor = load("""
        class Task(DataProcessor):
            labels = "x", "y"
            def get_dev_examples(self, data_dir):
                self.shared = [InputExample("a", "b", None, "y")]
                self.note_source(self.shared[0], 7, {"text": "b"})
                return self.shared
            def get_test_examples(self, data_dir):
                return self.shared
            def get_test_labels(self, data_dir):
                return ["y"]
    """)
    names = dict.fromkeys(("do_train", "max_train_examples", "max_eval_examples", "data_dir"))
    examples, _ = classification_run.read_examples(
        Settings({**names, "do_eval": True, "do_predict": True}), processor)
    assert [rows[0].label for rows in examples.values()] == ["y", "y"]
    placeholder = processor.get_test_examples(None)
    assert examples["dev"][0].label == "y" and placeholder[0].label == "x"
    for rows in (*examples.values(), placeholder):
        assert processor.source_rows(rows) == [(7, {"text": "b"})]


def test_missing_methods_and_labels_of_tests(load):
    processor = load("""
        class Task(DataProcessor):
            labels = "x", "y"
            def get_test_examples(self, data_dir):
                return [InputExample("a", "b"), InputExample("c", "d", None, "unknown")]
            def get_test_labels(self, data_dir):
                return ["y"]
    """)
    assert [processor.has_examples(split) for split in PARTS] == [False, False, True]
    with pytest.raises(ValueError, match=r"get_dev_examples\(data_dir\) is missing, but --do_eval=true"):
        processor.require_examples("dev")
    assert [example.label for example in processor.get_test_examples(None)] == ["x", "x"]
    with pytest.raises(ValueError, match="returns 1 labels, but get_test_examples returns 2 examples"):
        processor.get_test_labels(None)


@pytest.mark.parametrize("returned, said", [
    ("5", "compute_metrics returns 5. It must return a dict"), ("{'a': None}", "returns None for a"),
    ("{'f1': 1}", "name 'f1'.* must differ from f1"), ("{'a b': 1}", "a metric with the name 'a b'")])
def test_metrics_that_cannot_be_used(load, returned, said):
    processor = load(f"""
        class Task(DataProcessor):
            labels = "x", "y"
            def compute_metrics(self, labels, predictions):
                return {returned}
    """)
    assert processor.own_metrics([], [], ["eval_f1"]) == {}
    assert re.search(said, str(processor.failure))


def test_own_metrics_get_tuples_of_labels(load):
    processor = load("""
        class Topics(DataProcessor):
            task_type, labels = "multilabel", ("animals", "people")
            def get_dev_examples(self, data_dir):
                yield InputExample("a", "the cat", label=["animals"])
                yield InputExample("b", "no", label=())
            def compute_metrics(self, labels, predictions):
                assert labels == [("animals",), ()]
                return {"most": max(map(len, predictions))}
    """)
    numbers = [{processor.target.output: np.array(row)} for row in ([0.9, 0.8], [0.1, 0.2])]
    assert processor.own_metrics(processor.get_dev_examples(None), numbers, []) == {"eval_most": 2}


def test_declared_files_of_a_module(load, tmp_path):
    """The module is that of the section "Declared files" of the page, without the import of the class."""
    page = PAGE.read_text(encoding="utf-8").partition("## Declared files")[2]
    code = textwrap.dedent("\n".join(line for line in page.splitlines() if line.startswith("    "))
                           .partition("    python ")[0])
    processor = load(code)
    (tmp_path / "dev.tsv").write_text("fits\tquestion\tanswer\nyes\twho ?\tthe man\n")
    (tmp_path / "test.tsv").write_text("question\tanswer\nwho ?\tthe dog\n")
    [example] = processor.get_dev_examples(str(tmp_path))
    assert (example.text_a, example.text_b, example.label) == ("who ?", "the man", "yes")
    assert len(processor.get_test_examples(str(tmp_path))) == 1
    assert processor.get_test_labels(str(tmp_path)) is None
    assert processor.metrics == ("f1", "accuracy") and processor.file_names()["dev"] == ["dev.tsv"]
    (tmp_path / "dev.tsv").write_text("fits\tquestion\tanswer\nmaybe\twho ?\tthe man\n")
    with pytest.raises(ValueError, match=r"get_dev_examples raised .*dev\.tsv:2: the label 'maybe'"):
        processor.get_dev_examples(str(tmp_path))


@pytest.mark.parametrize("flags, said", [
    (["--task_name=MRPC"], "--task_module=task.py and --task_name exclude each other"),
    (["--train_file=a.csv"], "--task_module=task.py and --train_file exclude each other"),
    (["--threshold=0.4"], "--threshold is for tasks of the type multilabel"),
    (["--task_module=none.py"], "--task_module=none.py: there is no such file"),
    (["--do_eval=true"], "class Task: the method get_dev_examples(data_dir) is missing"),
    (["--data_dir=none"], "--data_dir=none: there is no such directory"),
])
def test_flags_that_contradict_a_module(flags, said, tmp_path, monkeypatch):
    names = dict(task_module="task.py", task_name=None, train_file=None, threshold=0.5, label_separator=",",
                 do_train=False, do_eval=False, do_predict=False, data_dir=None, output_dir="output",
                 use_tpu=False, init_checkpoint=None)
    given = dict(flag.removeprefix("--").replace("=true", "=1").split("=") for flag in flags)
    monkeypatch.chdir(tmp_path)
    pathlib.Path("task.py").write_text(BASE + "class Task(DataProcessor):\n    labels = 'x', 'y'\n"
                                       "    def get_train_examples(self, data_dir): pass\n")
    settings = Settings({**names, **given}, {**given, "task_module": ""})
    with pytest.raises((ValueError, OSError), match=re.escape(said)):
        assert task_module.is_given(settings)
        task_module.create_processor(settings)
