"""`bertlib.api`: training, evaluation and prediction from Python, without pandas."""

import contextlib
import json
import logging
import os
import pathlib
import random
import signal
import sys

from helpers import ROOT, read_json, tensors_of, write_json
from model_directories import record, write_classifier
import numpy as np
import pytest
from scripts import run_code
import tensorflow.compat.v1 as tf
import tiny

from bertlib import api
from bertlib.api import data_files
from bertlib.system import child_command

ANIMALS = {"cat", "dog", "bird", "fish"}


def rows(size, seed):
    """Returns `size` rows (text, label). The label shows whether the text contains an animal."""
    chance = random.Random(seed)
    texts = [tiny.sentence(chance) for _ in range(size)]
    return [(text, "animal" if ANIMALS & set(text.split()) else "none") for text in texts]


@pytest.fixture(scope="module", autouse=True)
def no_pandas():
    """Hides pandas, because these tests use lists. The tests in test_data_frames.py use pandas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        yield


@pytest.fixture(scope="module", autouse=True)
def forked_commands(scripts, tmp_path_factory):
    """The commands of `bertlib.api` run in forks, which have loaded TensorFlow before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", scripts.write_python(tmp_path_factory.mktemp("python")))
        yield


@pytest.fixture(scope="module")
def settings(tiny_model):
    return dict(tiny_model.flags, num_train_epochs=1, train_batch_size=8, learning_rate=np.float32(2**-10),
                do_lower_case=True, label_map=None)


def process_state():
    """Returns the state of this process that a training could change."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    return ([signal.getsignal(number) for number in numbers], list(logging.root.handlers), logging.root.level,
            list(logging.getLogger("absl").handlers), len(tf.get_default_graph().get_operations()))


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """(directory, result of `train`, state of the process before, state of the process after)."""
    here = tmp_path_factory.mktemp("trained")
    before = process_state()
    result = api.train(rows(24, 1), here / "model", dev=rows(9, 2), verbose=False, **settings)
    return here, result, before, process_state()


def test_a_training_changes_nothing_in_the_calling_process(trained):
    _, _, before, after = trained
    assert before == after


def test_a_training_has_metrics_and_a_table_of_its_evaluation(trained):
    here, result, _, _ = trained
    table = result.predictions
    assert result.output_dir == result.results_dir == str(here / "model")
    assert [(row["text"], row["label"]) for row in table] == rows(9, 2)
    right = [row["label"] == row["prediction"] for row in table]
    assert [row["is_right"] for row in table] == right
    assert result.metrics["eval_accuracy"] == pytest.approx(np.mean(right))
    for row in table:
        assert row["probability_animal"] + row["probability_none"] == pytest.approx(1, abs=1e-5)
    assert repr(result).endswith("predictions=9 rows)")


def test_the_command_gets_the_data_and_the_settings(trained, settings):
    """So a call of the command with these flags gives the same bits, as tests/conformance shows."""
    here, _, _, _ = trained
    files = {part: str(path) for part in ("train", "dev") for path in here.glob(f"model/data/{part}-*.jsonl")}
    for part, expected in ("train", rows(24, 1)), ("dev", rows(9, 2)):
        lines = map(json.loads, pathlib.Path(files[part]).read_text().splitlines())
        assert [(line["text"], line["label"]) for line in lines] == expected
    same = data_files.prepare(rows(24, 1), here / "model" / "data", "train", data_files.Columns())
    assert same.path == files["train"]
    found = read_json(here / "model" / "run.json")
    assert found["finished_step"] == 3 and sorted(found["arguments"]) == sorted(tiny.flags(
        **settings, task_type="classification", train_file=files["train"], dev_file=files["dev"],
        text_column="text", label_column="label", do_train=True, do_eval=True, predictions_format="jsonl",
        output_dir=here / "model"))


def test_an_evaluation_of_a_list_agrees_with_answers_in_this_process(trained, capsys):
    """The evaluation uses the columns of the training, and prints the log."""
    here, at_the_end, _, _ = trained
    before = set((here / "model").iterdir())
    data = [{"text": text, "label": label, "probability_none": "mine"} for text, label in rows(9, 2)[:6]]
    result = api.evaluate(here / "model", data, eval_batch_size=4)
    assert "Evaluating on 6 examples." in capsys.readouterr().out
    assert result.results_dir == str(here / "model" / "evaluation")
    assert set((here / "model").iterdir()) - before == {here / "model" / "evaluation"}
    texts = [row["text"] for row in data]
    for row, other in zip(result.predictions, at_the_end.predictions):
        assert row["probability_animal"] == pytest.approx(other["probability_animal"], abs=1e-6)
        assert row["input_probability_none"] == "mine"
    with api.load(here / "model") as predictor:
        answers = predictor(texts)
        assert predictor(np.array(texts)) == answers and predictor(texts[0]) == answers[0]
    table = api.predict(here / "model", [{"text": text, "prediction": 7} for text in texts])
    for rows_of in (table, result.predictions):
        assert [row["prediction"] for row in rows_of] == [answer["label"] for answer in answers]
    assert list(table[0]) == ["text", "input_prediction", "prediction", "probability_animal",
                              "probability_none"]
    assert table[0]["probability_none"] == answers[0]["probabilities"]["none"]


@pytest.mark.slow(reason="four processes that load TensorFlow")
def test_the_encoding_and_the_skipped_lines_of_a_training_do_not_apply_to_data_in_memory(settings, tmp_path):
    content = "text,label\n" + "".join(f"{text} café,{label}\n" for text, label in rows(16, 1)) + ",none\n"
    (tmp_path / "train.csv").write_bytes(content.encode("cp1252"))
    api.train(tmp_path / "train.csv", tmp_path / "model", encoding="cp1252", skip_bad_lines=True, max_steps=1,
              verbose=False, **settings)
    result = api.evaluate(tmp_path / "model", [("a cat “café”", "animal"), ("ā cup", "none")], verbose=False)
    assert [row["text"] for row in result.predictions] == ["a cat “café”", "ā cup"]
    table = api.predict(tmp_path / "model", [{"text": "a cat “café”"}])
    assert [row["text"] for row in table] == ["a cat “café”"]


def test_a_file_and_a_list_have_the_same_predictions(trained, tmp_path):
    here, _, _, _ = trained
    texts = [text for text, _ in rows(5, 3)]
    (tmp_path / "new.csv").write_text("text,note\n" + "".join(f"{text.replace(',', '')},7\n"
                                                              for text in texts))
    by_file = api.predict(here / "model", tmp_path / "new.csv")
    by_list = api.predict(here / "model", texts)
    assert [row.pop("note") for row in by_file] == ["7"] * 5
    assert [list(row.values())[1:] for row in by_list] == [list(row.values())[1:] for row in by_file]
    with pytest.raises(ValueError, match=r"(?s)row 2: the text is empty.*row 6: .*\nand 1 more$") as caught:
        api.predict(here / "model", [{"text": "a cat"}, *[{"text": ""}] * 6])
    assert str(caught.value).count("\n") == 5
    with pytest.raises(ValueError, match=r"row 1: there is no column 'text' \(`text` of the training\); the"):
        api.predict(here / "model", [{"body": "a cat"}])
    with pytest.raises(TypeError, match="has no columns. Leave `text` out"):
        api.predict(here / "model", ["a cat"], text="body")
    with pytest.raises(ValueError, match=r"element 1 of the list: the text is missing\."):
        api.predict(here / "model", ["a cat", float("nan")])
    with pytest.raises(FileNotFoundError, match=r"a cat does not exist\. To predict one text, pass a list\."):
        api.predict(here / "model", "a cat")


# --- Errors and warnings of the command ------------------------------------------------------------------


def test_the_error_message_of_the_command_is_that_of_the_exception(settings, tmp_path):
    data = [("a cat", "animal"), ("", "none"), ("a stone", "none")]
    with pytest.raises(ValueError, match="^data, row 2: the text is empty") as caught:
        api.train(data, tmp_path / "new" / "model", verbose=False, **settings)
    assert not str(caught.value).startswith("error") and "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "new" / "model").iterdir()] == ["data"]


def replace_command(monkeypatch, code, outcome):
    """Replaces all commands by a program that prints two lines, reports an outcome, and ends with a code."""
    end = f"os.kill(os.getpid(), {-code})" if code < 0 else f"sys.exit({code})"
    text = outcome and json.dumps({"exit_code": code, **outcome})
    program = (f"import os, sys\nprint('a\\nb', flush=True)\nif {text!r}:\n"
               f"  open(os.environ['BERT_OUTCOME_FILE'], 'w').write({text!r})\n{end}")
    monkeypatch.setattr(child_command, "command_line", lambda script: [sys.executable, "-S", "-c", program])


@pytest.mark.parametrize("code, outcome, kind, message", [
    (1, {"outcome": "refused", "flags": ["num_epochs"], "similar_flags": ["num_cores"]}, TypeError,
     "there is no setting 'num_epochs'. Did you mean num_cores?"),
    (1, {"outcome": "refused", "message": "no column 'b' (--text_column);\nthe columns are a."}, ValueError,
     "no column 'b' (--text_column);\nthe columns are a."),
    (-9, None, ChildProcessError,
     "run.py was ended by the signal SIGKILL. Memory may have run out. The last lines of its log: a / b"),
    (1, {"outcome": "failed", "message": "KeyError: 'a'.", "has_traceback": True}, ChildProcessError,
     "run.py ended with the exit code 1: a / b"),
    (143, {"outcome": "stopped", "message": "terminated. Run it again."}, ChildProcessError,
     "run.py ended with the exit code 143: terminated. Run it again.")])
def test_each_end_of_a_command_has_an_exception(code, outcome, kind, message, monkeypatch):
    replace_command(monkeypatch, code, outcome)
    with pytest.raises(kind) as caught:
        child_command.run("run.py", [], verbose=False)
    assert type(caught.value) is kind and str(caught.value) == message


def test_warnings_of_a_command_are_warnings_in_python(monkeypatch):
    for code, ends in (0, contextlib.nullcontext()), (1, pytest.raises(ValueError)):
        replace_command(monkeypatch, code, {"outcome": "refused", "message": "a", "warnings": ["No step."]})
        with ends, pytest.warns(UserWarning, match=r"^NO STEP\.$"):
            child_command.run("run.py", [], verbose=False, explain=str.upper)


@pytest.mark.parametrize("message, text", [
    ("Pass --skip_bad_lines=true to leave them out.", "Pass skip_bad_lines=True to leave them out."),
    ("--text_column and --label_column=a.b: Pass --dev_fraction=0.1.",
     "`text` and label=a.b: Pass dev_fraction=0.1."),
    ("--text_column=a,b names 2", "text=a,b names 2"), ("--dev_file", "`dev`"),
    ("`download.py --data=MRPC`, --do_predict", "`download.py --data=MRPC`, --do_predict")])
def test_flags_in_messages_are_written_as_arguments(message, text):
    assert data_files.explain_flags(message, api._flag_names()) == text


# --- Wrong arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, kind, message", [
    (dict(data=[]), ValueError, "data has no rows"),
    (dict(data=7), TypeError, "data is of the type int. Pass a pandas DataFrame"),
    (dict(data=[("a", "b"), {"text": "a"}]), TypeError, "data is a list of dict and tuple"),
    (dict(data=[("a",)]), ValueError, r"data\[0\] has 1 values, but the columns are text, label\."),
    (dict(dev=[("a", "b")], dev_fraction=0.1), TypeError, "exclude each other"),
    (dict(text=["a", "b"]), ValueError, "has 2 values, but the columns are a, b, label"),
    (dict(text=1.5), TypeError, "text=1.5 must be the name of a column"),
    (dict(label="a,b"), ValueError, "label: the name 'a,b' contains a comma, so"),
    (dict(text="a "), ValueError, "text: the name 'a ' is empty, or begins or ends"),
    (dict(seed={}), TypeError, "seed={} is of the type dict"),
    (dict(train_file="a"), TypeError, "Pass the argument `data` instead"),
    (dict(do_train=False), TypeError, "does not take the setting 'do_train'"),
    (dict(num_epochs=1), TypeError, r"no setting 'num_epochs'\. Did you mean num_train_epochs\?"),
    (dict(lr=1), TypeError, r"no setting 'lr'\. Did you mean learning_rate\?"),
    (dict(batch_size=1), TypeError, r"no setting 'batch_size'\. Did you mean train_batch_size\?"),
    (dict(verbosity={}), TypeError, "verbosity={} is of the type dict"),
    (dict(zzz=1), TypeError, r"no setting 'zzz'\. See docs/reference/flags\.md\.")])
def test_wrong_arguments_are_refused_before_anything_is_written(arguments, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        api.train(output_dir=tmp_path / "model", **{"data": [("a", "b")], **arguments})
    assert not (tmp_path / "model").exists()


def test_other_data_need_another_directory(trained):
    directory = trained[0] / "model"
    before = sorted(directory.rglob("*"))
    with pytest.raises(ValueError, match="model contains a training on other data"):
        api.train(rows(5, 7), directory, dev_fraction=0.2)
    with pytest.raises(TypeError, match="pass baseline=True"):
        api.evaluate(directory, train_file="train.csv")
    assert sorted(directory.rglob("*")) == before


def test_an_output_directory_is_no_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"^output_dir: .*file is not a directory\. Use another"):
        api.train(rows(3, 1), tmp_path / "file")


def test_messages_about_data_in_memory_name_rows():
    file = data_files.DataFile("a.jsonl", data_files.Columns(), b"")
    for message, text in [
            ("a.jsonl: 2 bad lines. The first is line 3.", "data: 2 bad rows. The first is row 3."),
            ("--train_file=a.jsonl:2: the label 'line 1' occurs in other lines.",
             "data, row 2: the label 'line 1' occurs in other rows."),
            ("b.csv: 2 bad lines.", "b.csv: 2 bad lines.")]:
        assert data_files.name_rows(message, file) == text


def test_swapped_arguments_and_unknown_options_are_named(trained, tmp_path):
    texts, directory = ["a cat"], trained[0] / "model"
    for call in api.evaluate, api.predict:
        with pytest.raises(TypeError, match=rf"is a list of str, .* {call.__name__}\(output_dir, data\)"):
            call(texts, directory)
    with pytest.raises(TypeError, match=r"output_dir is a list of tuple, .*Call train\(data, output_dir\)\."):
        api.train(tmp_path / "model", rows(3, 1))
    with pytest.raises(TypeError, match=r"output_dir is a list of str, .* Call load\(output_dir\)\."):
        api.load(texts)
    with pytest.raises(TypeError, match="unexpected keyword argument 'skip_bad_lines'"):
        api.predict(directory, texts, skip_bad_lines=True)
    assert not (tmp_path / "model").exists()


def test_development_data_are_found_in_a_directory_that_was_moved(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dev-1.jsonl").touch()
    for name, more in ("dev_file", {}), ("train_file", {"dev_fraction": 0.1}):
        record = {"settings": more, "files": {name: "/gone/model/data/dev-1.jsonl"}}
        assert api._development_file(record, str(tmp_path)) == (name, str(tmp_path / "data" / "dev-1.jsonl"))


def test_an_evaluation_needs_a_training_and_data(tmp_path):
    with pytest.raises(ValueError, match=r"has no run.json, so it is not the output directory"):
        api.evaluate(tmp_path, [("a", "b")])
    write_json(tmp_path / "run.json", record(["a"], task="own data"))
    with pytest.raises(ValueError, match="had no development data. Pass `data`"):
        api.evaluate(tmp_path)
    write_json(tmp_path / "run.json", record(["O"], "tagging", task="ner"))
    for data in (None, [("a", "b")]):
        with pytest.raises(ValueError, match=r"a training by run_ner\.py, and no training of a classifier"):
            api.evaluate(tmp_path, data)


def test_the_results_of_another_training_are_not_read(trained, tmp_path):
    write_json(tmp_path / "run.json", record(["a"], task="mrpc"))
    with pytest.raises(ValueError, match="contains the training of a different task, and the"):
        api.evaluate(trained[0] / "model", rows(3, 1), results_dir=tmp_path, verbose=False)
    assert os.listdir(tmp_path) == ["run.json"]


def test_values_of_other_types_become_json():
    row = {"a": np.int64(3), "b": np.array([1.5, np.nan]), "c": float("nan"), "d": {"y", "x"}, 5: ROOT,
           "e": b"caf\xc3\xa9", "f": b"\xff", "g": {1, "x"}, "h": np.datetime64("2026-01-02", "ns"),
           "i": np.array(["NaT", "2026-01-02T03"], "datetime64[ns]"), "j": np.timedelta64("NaT", "ns")}
    found, _ = data_files.to_rows([row], data_files.Columns())
    assert found == [{"a": 3, "b": [1.5, None], "c": None, "d": ["x", "y"], "5": str(ROOT),
                      "e": "café", "f": "b'\\xff'", "g": [1, "x"], "h": "2026-01-02T00:00:00.000000000",
                      "i": [None, "2026-01-02T03:00:00.000000000"], "j": None}]
    assert json.loads(data_files.json_lines([{"a": "\ud800"}, {"a": "é"}]).split(b"\n")[1]) == {"a": "é"}


# --- The predictor ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tiny_model, tmp_path_factory):
    path = write_classifier(tmp_path_factory.mktemp("api") / "pairs", tiny_model, task="own data",
                            text_column="first,second")
    with api.load(path) as predictor:
        yield predictor


def test_a_tuple_is_a_pair_and_a_list_has_several_pairs(pairs):
    first, second = ("a cat", "a dog"), ("a stone", "the river")
    answers = pairs([first, second])
    assert pairs(first) == answers[0] and pairs(second) == answers[1] and answers[0] != answers[1]


@pytest.mark.parametrize("argument, kind, message", [
    ("a cat", TypeError, "the argument has 1 text, but the model takes 2: text_a and text_b"),
    (["a cat", "a dog"], TypeError, "element 0 of the list has 1 text, .* and never a pair"),
    (("a", "b", "c"), TypeError, "the argument has 3 texts, but the model takes 2"),
    (("a", 1), TypeError, "the argument is a tuple of str, int"),
    ([("a", "b"), ("a", " ")], ValueError, "element 1 of the list: text_b is empty"),
    (7, TypeError, "the argument is of the type int. Pass a text"),
    ([], ValueError, "the list is empty")])
def test_wrong_questions_are_named(pairs, argument, kind, message):
    with pytest.raises(kind, match=message):
        pairs(argument)


# Prints whether the import loads TensorFlow, and whether eager execution, Keras and a gradient still work.
# Also prints the lines that TensorFlow writes to the log of a program with the log level INFO.
EAGER = """
import io
import logging as standard_logging
import sys
from bertlib import api
log = io.StringIO()
standard_logging.basicConfig(level=standard_logging.INFO, stream=log, format="%(name)s: %(message)s")
assert not {"tensorflow", "pandas"} & set(sys.modules)
import tensorflow as tf
from absl import logging
before = tf.executing_eagerly(), logging.get_verbosity(), tf.compat.v1.resource_variables_enabled()
with api.load(sys.argv[1]) as predictor:
    answer = predictor("a cat")
    weights = tf.Variable([[2.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.matmul([[3.0]], weights))
    gradient = float(tape.gradient(loss, weights)[0, 0])
    inputs = tf.keras.Input([1])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    model.fit(tf.ones([4, 1]), tf.ones([4, 1]), verbose=0)
    same = predictor("a cat") == answer
after = tf.executing_eagerly(), logging.get_verbosity(), tf.compat.v1.resource_variables_enabled()
lines = [line for line in log.getvalue().splitlines() if line.startswith("tensorflow: ")]
print(before == after, before[0], gradient, same, answer["label"], lines)
"""


@pytest.mark.slow(reason="a process that loads TensorFlow")
def test_a_loaded_model_leaves_eager_execution_on(trained):
    done = run_code(EAGER, trained[0] / "model")
    answer = api.predict(trained[0] / "model", ["a cat"])[0]["prediction"]
    assert done.out == f"True True 3.0 True {answer} []\n", done.err


@pytest.mark.slow(reason="processes that load TensorFlow")
@pytest.mark.parametrize("level, is_silent", [(None, True), ("0", False)])
def test_a_loaded_model_hides_the_messages_of_tensorflow(trained, level, is_silent):
    """Exception: a user who sets TF_CPP_MIN_LOG_LEVEL gets the messages that he asked for."""
    program = "import sys; from bertlib import api; print(api.load(sys.argv[1])('a cat')['label'])"
    chosen = {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    done = run_code(program, trained[0] / "model", **chosen)
    assert done.code == 0 and done.out and (done.err == "") == is_silent, done.err


# --- Interruptions ---------------------------------------------------------------------------------------

# Trains, and gets SIGINT when the training has logged a step. Prints the numbers of the child processes that
# still run.
INTERRUPTED = """
import json, os, signal, sys
from bertlib import api

class Log:
    flush = sys.stderr.flush
    def write(self, text):
        sys.stderr.write(text)
        if " step 10" in text:
            os.kill(os.getpid(), signal.SIGINT)

out, sys.stdout = sys.stdout, Log()
try:
    api.train(json.loads(sys.argv[1]), sys.argv[2], **json.loads(sys.argv[3]))
except KeyboardInterrupt as error:
    left = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    print("interrupted", left, error, file=out)
"""


@pytest.mark.slow(reason="a process of its own that trains; tests/commands/test_signals.py tests the command")
def test_an_interrupted_training_saves_its_step_and_leaves_no_process(settings, tmp_path):
    data = [{"text": text, "label": label} for text, label in rows(24, 1)]
    plain = {name: str(value) for name, value in settings.items() if value is not None}
    done = run_code(INTERRUPTED, json.dumps(data), tmp_path / "model",
                    json.dumps({**plain, "num_train_epochs": 1000}))
    done.assert_success("run_classifier.py: terminated.")
    step = tensors_of(tmp_path / "model")["global_step"]
    assert 10 <= step < 3000 and step != 1000
    assert done.out.startswith("interrupted [] The last step is saved in "), done.err
    assert f"model.ckpt-{step}: run the same call again to continue." in done.out
    assert len(list((tmp_path / "model" / "data").iterdir())) == 1
