"""A BERT with a few thousand weights in all formats of checkpoints, and a few lines of data for each task."""

import json
import random

import numpy as np
from safetensors import numpy as safetensors
import tensorflow.compat.v1 as tf

_TEXT = """a an the no old new cat dog bird fish man child house garden river train paper song bread stone
sees hears eats likes finds sells moves breaks quickly slowly today again here there and not of in on"""
_STEMS = _TEXT.split()
WORDS = [*_STEMS, "un", "##s", "##ed", "##ing", "##ly", ".", ","]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = {
    "vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 40, "type_vocab_size": 2, "initializer_range": 0.02}
SEQ_LENGTH = 20
LABELS = {"mrpc": ["0", "1"], "cola": ["0", "1"], "mnli": ["contradiction", "entailment", "neutral"]}


# --- The model -------------------------------------------------------------------------------------------


def shapes():
    """Returns {published variable name: shape} of the encoder. This table does not depend on `modeling`."""
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    found = {"bert/embeddings/word_embeddings": (CONFIG["vocab_size"], width),
             "bert/embeddings/position_embeddings": (CONFIG["max_position_embeddings"], width),
             "bert/embeddings/token_type_embeddings": (CONFIG["type_vocab_size"], width)}
    dense = {"bert/pooler/dense": (width, width)}
    norms = ["bert/embeddings/LayerNorm"]
    for index in range(CONFIG["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{index}"
        dense.update({f"{layer}/attention/self/{name}": (width, width) for name in ("query", "key", "value")})
        dense.update({f"{layer}/attention/output/dense": (width, width),
                      f"{layer}/intermediate/dense": (width, inner), f"{layer}/output/dense": (inner, width)})
        norms += [f"{layer}/attention/output/LayerNorm", f"{layer}/output/LayerNorm"]
    for name, (inputs, outputs) in dense.items():
        found.update({f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)})
    for name in norms:
        found.update({f"{name}/beta": (width,), f"{name}/gamma": (width,)})
    return found


def weights():
    """Returns {published variable name: array}.

    The weights are large, so that different examples give different outputs. Only the weights of the pooler
    are small, because its tanh would saturate.
    """
    generator = np.random.RandomState(7)
    return {name: (generator.standard_normal(shape) * (0.15 if "pooler" in name else 0.8)
                   + name.endswith("gamma")).astype(np.float32) for name, shape in shapes().items()}


def load(session, variables, values):
    """Sets variables to the values {name: array}.

    This needs only one run of the session, because TensorFlow prepares each new run.
    """
    session.run([variable.initializer for variable in variables],
                {variable.initializer.inputs[1]: values[variable.op.name] for variable in variables})


def write_tensorflow(prefix, arrays):
    """Writes a checkpoint of arrays as TensorFlow 1 did, with reference variables. Returns the prefix."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as session:
        for name, array in arrays.items():
            tf.get_variable(name, initializer=tf.constant(array), use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(prefix))
    return prefix


def hugging_face(arrays):
    """Returns {Hugging Face's name: array}. PyTorch stores the transposed kernels of linear layers."""
    renamed = {}
    for name, array in arrays.items():
        name = name.replace("/layer_", "/layer/")
        if name.endswith("_embeddings"):
            name += "/weight"
        for ours, theirs in (("/gamma", "/weight"), ("/beta", "/bias")):
            name = name.removesuffix(ours) + theirs if name.endswith(ours) else name
        if name.endswith("/kernel"):
            name, array = name.removesuffix("kernel") + "weight", array.T
        renamed[name.replace("/", ".")] = np.ascontiguousarray(array)
    return renamed


def write_training(directory, arrays, num_labels=2, step=3, **changes):
    """Writes a training checkpoint: the encoder, a head of zeros, the optimizer's slots and the step.

    Args:
      directory: the output directory.
      arrays: the encoder's {name: array}.
      num_labels: labels of the head.
      step: the global step.
      changes: {name: array} of additional or changed arrays. None removes an array.

    Returns:
      {name: array} of the arrays that were written.
    """
    head = {"output_weights": np.zeros((num_labels, CONFIG["hidden_size"]), np.float32),
            "output_bias": np.zeros(num_labels, np.float32)}
    model = {**arrays, **head}
    slots = {f"{name}/{slot}": np.full_like(array, value) for name, array in model.items()
             for slot, value in (("adam_m", 1e-3), ("adam_v", 1e-2))}
    state = {**model, **slots, "global_step": np.int64(step), **changes}
    state = {name: array for name, array in state.items() if array is not None}
    write_tensorflow(directory / f"model.ckpt-{step}", state)
    return state


class Model(object):
    """The files of the model in a directory.

    The files have the published format. The folder `hugging_face` contains the model in Hugging Face's
    format. `config` describes both layers, and `shallow` only the first one. `flags` contains the flags of
    the shallow model.
    """

    def __init__(self, directory):
        self.directory = directory
        self.weights = weights()
        self.vocab = directory / "vocab.txt"
        self.config = directory / "bert_config.json"
        self.checkpoint = write_tensorflow(directory / "bert_model.ckpt", self.weights)
        self.vocab.write_text("".join(word + "\n" for word in VOCABULARY), encoding="utf-8")
        self.config.write_text(json.dumps(CONFIG))
        self.shallow = directory / "shallow.json"
        self.shallow.write_text(json.dumps({**CONFIG, "num_hidden_layers": 1}))
        self.hugging_face = directory / "hugging_face"
        self.hugging_face.mkdir()
        (self.hugging_face / "vocab.txt").write_bytes(self.vocab.read_bytes())
        (self.hugging_face / "config.json").write_text(json.dumps(
            {**CONFIG, "model_type": "bert", "architectures": ["BertModel"], "layer_norm_eps": 1e-12}))
        (self.hugging_face / "tokenizer_config.json").write_text('{"do_lower_case": true}')
        safetensors.save_file(hugging_face(self.weights), self.hugging_face / "model.safetensors",
                              {"format": "pt"})
        self.flags = dict(vocab_file=self.vocab, bert_config_file=self.shallow,
                          init_checkpoint=self.checkpoint, max_seq_length=SEQ_LENGTH)


def flags(**values):
    """Command-line arguments: one --name=value each, but none for the value None."""
    return [f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in values.items() if value is not None]


# --- Data ------------------------------------------------------------------------------------------------

# {task: (header row, row of an example)}.
_ROWS = {
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "{label}\t{index}\t{index}\t{a}\t{b}\n"),
    "cola": ("", "source\t{label}\t\t{a}\n"),
    "mnli": ("index\t1\t2\t3\t4\t5\t6\t7\tsentence1\tsentence2\tlabel1\tgold_label\n",
             "{index}\t1\t2\t3\t4\t5\t6\t7\t{a}\t{b}\t{label}\t{label}\n")}


def sentence(chance):
    return " ".join(chance.choice(_STEMS) for _ in range(chance.randint(3, 12))) + " ."


def format_task(task, examples):
    """Returns the content of a file of a task. An example is (label, first text, second text)."""
    header, row = _ROWS[task]
    return header + "".join(row.format(index=index, label=label, a=first, b=second)
                            for index, (label, first, second) in enumerate(examples))


def write_task(directory, task, **sizes):
    """Writes the files of a task, and returns the directory. `sizes` are numbers of examples (train=12)."""
    chance, labels = random.Random(task), LABELS[task]
    directory.mkdir(parents=True, exist_ok=True)
    for part, size in sizes.items():
        name = f"{part}_matched" if task == "mnli" and part != "train" else part
        (directory / f"{name}.tsv").write_text(format_task(task, [
            (labels[index % len(labels)], sentence(chance), sentence(chance)) for index in range(size)]),
            encoding="utf-8")
    return directory
