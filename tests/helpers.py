"""Helpers that several test modules need."""

import collections
import contextlib
import json
import pathlib
import resource
import time

from absl import flags
import numpy as np
from numpy.testing import assert_allclose
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import labelled_rows
from bertlib.runs import registry
from bertlib.runs.settings import Settings
import bertlib.tasks  # noqa: F401  registers the commands, whose flags `settings_of` has
import modeling

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"


class Recording:
    """A model recorded with the published code (data/model_*.npz), and the same model built here.

    `arrays` is {name: array} with all arrays of the file.
    """

    def __init__(self, name):
        with np.load(DATA / f"model_{name}.npz") as file:
            self.arrays = {key: file[key] for key in file.files}
        self.config = modeling.BertConfig.from_dict(json.loads(str(self.arrays["config"])))
        self.optimizer = json.loads(str(self.arrays["optimizer"]))
        self.inputs = [self.arrays[f"in/{key}"] for key in ("input_ids", "input_mask", "segment_ids")]

    def group(self, prefix):
        """Returns {name: array} of the arrays whose names start with "<prefix>/", without the prefix."""
        return {key[len(prefix) + 1:]: value for key, value in self.arrays.items()
                if key.startswith(prefix + "/")}

    def build_model(self, **options):
        return modeling.BertModel(self.config, True, *map(tf.constant, self.inputs), **options)

    def build_loss(self, model):
        """Builds the recorded head on top of the model, and returns (logits, loss)."""
        labels = self.arrays["in/labels"]
        weights = tf.get_variable("output_weights", self.arrays["var/output_weights"].shape)
        bias = tf.get_variable("output_bias", self.arrays["var/output_bias"].shape)
        logits = tf.matmul(model.get_pooled_output(), weights, transpose_b=True) + bias
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return logits, tf.reduce_mean(losses)

    def load_weights(self, session):
        """Initializes everything, then sets the trainable variables to the recorded values."""
        session.run(tf.global_variables_initializer())
        tiny.load(session, tf.trainable_variables(), self.group("var"))


def write_file(path, content, encoding="utf-8"):
    """Writes text or bytes to a file, and returns its path as str."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(path)


def write_lines(path, lines):
    """Writes texts to a file, each with a line end. Returns the path."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


class FixedEncoder:
    """A fake BERT whose pooled output or last layer is a constant."""

    kernels = None

    def __init__(self, pooled=None, sequence=None):
        self._pooled, self._sequence = pooled, sequence

    def get_pooled_output(self):
        return tf.constant(self._pooled, tf.float32)

    def get_sequence_output(self):
        return tf.constant(self._sequence, tf.float32)


class WordTokenizer:
    """A tokenizer that splits at spaces. The id of a token is its length."""

    def tokenize(self, text):
        return text.split()

    def convert_tokens_to_ids(self, tokens):
        return [len(token) for token in tokens]


def tensors_of(prefix):
    """Returns {name: array} of a checkpoint, or of the newest checkpoint in a directory."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@contextlib.contextmanager
def largest_file(size):
    """In the block, no file of this process can become larger than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def events_in(directory):
    """Returns {tag: [(step, value)]} of the event files in a directory. A value that is no number is None."""
    found = collections.defaultdict(list)
    for path in sorted(pathlib.Path(directory).glob("*tfevents*")):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                number = (value.simple_value if value.HasField("simple_value") else
                          tf.make_ndarray(value.tensor).item() if value.HasField("tensor") else None)
                found[value.tag].append((event.step, number))
    return dict(found)


def settings_of(command="run_ner", **values):
    """Returns the `Settings` of a command with the flags of `command` and --task_name.

    `values` are the flags that are given.
    """
    task_name, = registry.find_definitions("task_name", "run_classifier.py")
    entries = {entry.name: entry for entry in (*registry.find_flags(command), task_name)}
    defined = flags.FlagValues()
    for entry in entries.values():
        entry.define_in(defined)
    defined(["command", *tiny.flags(**values)])
    return Settings({name: defined[name].value for name in defined},
                    {name for name in defined if defined[name].present}, entries)


def error_of(function, *arguments, **options):
    """Returns the message of the ValueError or OSError that a call must raise."""
    with pytest.raises((ValueError, OSError)) as error:
        function(*arguments, **options)
    return str(error.value)


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path, value):
    path.write_text(json.dumps(value))


def snapshot(directory):
    """Returns {path: content} of everything in a directory. The content of a directory is None."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def wait_until(is_true, seconds=60):
    """Waits until a function returns a true value."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid):
    """Returns whether a process exists and has not ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def initialize(session):
    """Initializes all variables and tables of the default graph."""
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(),
                 tf.tables_initializer()])


def evaluate(fetches, **options):
    """Returns the values of fetches of the default graph, in a new session with initialized variables.

    `options` are fields of `tf.ConfigProto`.
    """
    with tf.Session(config=tf.ConfigProto(**options)) as session:
        initialize(session)
        return session.run(fetches)


def read_batches(dataset, count=None, step=None):
    """Returns the batches of a dataset of the default graph, at most `count`.

    When the iterator starts, the global step is `step`, if this is not None.
    """
    iterator = tf.data.make_initializable_iterator(dataset)
    following = iterator.get_next()
    taken = []
    with tf.Session() as session, contextlib.suppress(tf.errors.OutOfRangeError):
        session.run(tf.global_variables_initializer())
        if step is not None:
            tf.train.get_global_step().load(step, session)
        session.run(iterator.initializer)
        while count is None or len(taken) < count:
            taken.append(session.run(following))
    return taken


def run_bert(config, ids, mask, loss, step=0, session_config=None, first_token_only=False, **settings):
    """Builds a BERT for training in a new graph, and returns {name: array}.

    The arrays are those of the layers, the embeddings, the pooled output and the variables. "/gradient" is
    added to the name of a variable for its gradient, if it has one.

    Args:
      config, ids, mask: arguments of `BertModel`.
      loss: function of the model that returns the loss of the gradients.
      step: the global step.
      session_config: `tf.ConfigProto` of the session.
      first_token_only: see `BertModel`.
      settings: those of its `StepConfig`.
    """
    with tf.Graph().as_default(), tf.Session(config=session_config) as session:
        global_step = tf.train.get_or_create_global_step()
        model = modeling.BertModel(config, True, tf.constant(ids, tf.int32), tf.constant(mask, tf.int32),
                                   first_token_only=first_token_only,
                                   step_config=modeling.StepConfig(**settings))
        fetches = {f"layer_{index}": layer for index, layer in enumerate(model.get_all_encoder_layers())}
        fetches.update(pooled=model.get_pooled_output(), embeddings=model.get_embedding_output())
        variables = tf.trainable_variables()
        for variable, gradient in zip(variables, tf.gradients(loss(model), variables)):
            fetches[variable.op.name] = variable
            if gradient is not None:
                fetches[f"{variable.op.name}/gradient"] = tf.convert_to_tensor(gradient)
        session.run(tf.global_variables_initializer())
        global_step.load(step, session)
        return session.run(fetches)


def assert_close(ours, expected, tolerance):
    """Checks that arrays are close.

    The tolerance is relative to the largest value of the array, or to a tenth of the largest value of all
    arrays if this is larger. The reason: a gradient may be zero in theory, for example the gradient of the
    scores if there is only one key. Its values are then only rounding errors.
    """
    assert ours.keys() == expected.keys()
    expected = {name: values.astype(np.float32) for name, values in expected.items()}
    largest = {name: np.abs(values).max(initial=0.0, where=np.isfinite(values))
               for name, values in expected.items()}
    for name, values in expected.items():
        assert_allclose(ours[name].astype(np.float32), values, rtol=0, err_msg=name,
                        atol=tolerance * max(largest[name], 0.1 * max(largest.values())))


def ancestors(op):
    """Returns all ops that must run before an op: its inputs and control inputs, their inputs, and so on."""
    seen, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        for before in [tensor.op for tensor in op.inputs] + list(op.control_inputs):
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return seen


def comparable(arrays):
    """Returns {name: array} without key biases and their slots, to compare two ways of one computation.

    A key bias adds the same number to all scores of a query, and the softmax removes this number again. So
    the gradient of a key bias is zero in theory, and rounding noise in practice. Adam divides a gradient by
    its size, so this noise moves a key bias as fast as any other weight. Two runs with the same arithmetic
    agree in the key biases, too: compare all of their arrays.
    """
    return {name: array for name, array in arrays.items() if "/attention/self/key/bias" not in name}


def example_reader(task_type="classification", text=None, label=None, header=None, skip_bad_lines=False,
                   **settings):
    """Returns the reader of own data with these columns, lists of names or numbers, and with other flags."""
    columns = {"text_column": text, "label_column": label}
    settings.update({flag: named and ",".join(map(str, named)) for flag, named in columns.items()})
    settings["header"] = {None: "auto", True: "true", False: "false"}[header]
    return labelled_rows.ExampleReader(
        registry.find_target(task_type).label_kind(settings.get), settings.get,
        lambda flag: isinstance(columns[flag][0], str), skip_bad_lines)
