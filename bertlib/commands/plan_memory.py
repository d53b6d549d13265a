"""Which batch fits on a GPU, found out without one: the real training step is built and simulated.

    python plan_memory.py --model=large --max_seq_length=128,384,512 --recompute=all --gpu_memory_gb=12

prints the largest micro-batch for each length and each mode of --recompute, and draws it. With --gradient_accumulation_steps
the training scripts reach any batch size from there. --bert_config_file takes the place of --model for your own model. GB are
10⁹ bytes.

    python plan_memory.py --published --max_seq_length=64,128,384,512

does the same for the graph of google-research/bert, to compare with the table in its README, measured on a 12 GB card.
"""

import functools
import math
import os
import time
import xml.sax.saxutils

from absl import flags
import tensorflow.compat.v1 as tf

from bertlib.commands import checks, common_flags
from bertlib.commands.settings import Settings
from bertlib.runtime import files, memory_planner
import modeling
import optimization

MODELS = {
    "base": dict(vocab_size=30522, type_vocab_size=2),
    "large": dict(vocab_size=30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
                  type_vocab_size=2),
}
_BAR = 50  # characters


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Model"):
        flags.DEFINE_enum("model", "base", sorted(MODELS), "A published model (uncased).")
        flags.DEFINE_string("bert_config_file", None, "Another one: its bert_config.json, or a Hugging Face config.json.")
        flags.DEFINE_list("max_seq_length", ["128", "384", "512"], "Sequence lengths.")
        flags.DEFINE_enum("task", "classifier", ["classifier", "squad"], "What is trained on top of the encoder.")
        flags.DEFINE_bool("published", False, "Plan for the graph of google-research/bert instead.")
    with common_flags.section("Step"):
        flags.DEFINE_enum("recompute", "none", [*modeling.RECOMPUTE, "all"],
                          "What the backward pass computes again instead of keeping it in memory.")
        flags.DEFINE_enum("optimizer", "adamw", sorted(optimization.OPTIMIZERS), "The optimizer.")
        flags.DEFINE_enum("precision", "fp32", ["fp32"], "Of weights and activations; there is no other one yet.")
    with common_flags.section("Card"):
        flags.DEFINE_float("gpu_memory_gb", 12, "The card's memory.", lower_bound=0)
        flags.DEFINE_float("reserve_gb", memory_planner.CARD_OVERHEAD / memory_planner.GB,
                           "What the CUDA context, libraries, kernels' workspaces and fragmentation are assumed to take of "
                           "it.",
                           lower_bound=0)
    with common_flags.section("Output"):
        flags.DEFINE_string("output_file", None, "Also draw the chart into this file, name.svg.")


# --- Training steps --------------------------------------------------------------------------------------


def training_step(config, batch_size, length, task, **options):
    """Builds a training step of the encoder and a head.

    Args:
      config: a `modeling.BertConfig`.
      batch_size: B.
      length: F.
      task: "classifier" for two classes, or "squad".
      options: "optimizer" of `optimization.create_optimizer`, the others of `modeling.BertModel`.

    Returns:
      the train op.
    """
    optimizer = options.pop("optimizer")
    tf.train.get_or_create_global_step()
    model = modeling.BertModel(config, True, *_inputs(batch_size, length), **options)
    if task == "squad":
        outputs = tf.reshape(model.get_sequence_output(), [batch_size * length, config.hidden_size])
    else:
        outputs = modeling.dropout(model.get_pooled_output(), 0.1)
    loss = _loss(outputs, batch_size, task)
    return optimization.create_optimizer(loss, 5e-5, 100, 10, use_tpu=False, optimizer=optimizer)


def _inputs(batch_size, length):
    """Placeholders of input_ids, input_mask and segment_ids, [B, F]."""
    return [tf.placeholder(tf.int32, [batch_size, length]) for _ in range(3)]


def _loss(outputs, batch_size, task):
    """The loss of a linear layer of two units on [B, W], or for "squad" on [B·F, W]."""
    weights = tf.get_variable("output_weights", [2, outputs.shape.as_list()[-1]])
    logits = tf.nn.bias_add(tf.matmul(outputs, weights, transpose_b=True), tf.get_variable("output_bias", [2]))
    if task == "squad":  # a choice among positions, for the start and for the end
        logits = tf.reshape(tf.transpose(tf.reshape(logits, [batch_size, -1, 2]), [2, 0, 1]), [2 * batch_size, -1])
    size, classes = logits.shape.as_list()
    labels = tf.one_hot(tf.placeholder(tf.int32, [size]), classes)
    return -tf.reduce_mean(tf.reduce_sum(labels * tf.nn.log_softmax(logits), axis=-1))


def published_step(config, batch_size, length, task):
    """Builds a training step that takes the memory of the published one; arguments as for `training_step`.

    Reference variables, dropout with a state, layers as they were composed, and Adam from elementwise ops.
    """
    width, heads = config.hidden_size, config.num_attention_heads

    def dense(inputs, units, name, activation=lambda outputs: outputs):
        with tf.variable_scope(name):
            kernel = tf.get_variable("kernel", [inputs.shape.as_list()[-1], units])
            return activation(tf.nn.bias_add(tf.matmul(inputs, kernel), tf.get_variable("bias", [units])))

    def dropout(inputs):
        return tf.nn.dropout(inputs, rate=0.1)

    def normalize(inputs, name):
        with tf.variable_scope(name):
            mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
            return tf.nn.batch_normalization(inputs, mean, variance, tf.get_variable("beta", [width]),
                                             tf.get_variable("gamma", [width]), modeling.LAYER_NORM_EPSILON)

    def gelu(x):
        return x * (0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3)))))

    def attend(inputs):
        query, key, value = (
            tf.transpose(tf.reshape(dense(inputs, width, name), [batch_size, length, heads, width // heads]), [0, 2, 1, 3])
            for name in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) * (heads / width) ** 0.5 + masked
        context = tf.matmul(dropout(tf.nn.softmax(scores)), value)
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [batch_size * length, width])

    with tf.variable_scope("", use_resource=False):
        input_ids, input_mask, segment_ids = _inputs(batch_size, length)
        masked = (1.0 - tf.cast(tf.ones([batch_size, 1, length, 1], tf.int32) * input_mask[:, None, None], tf.float32)) * -1e4
        hidden = tf.gather(tf.get_variable("words", [config.vocab_size, width]), input_ids)
        kinds = tf.one_hot(tf.reshape(segment_ids, [-1]), config.type_vocab_size)
        hidden += tf.reshape(tf.matmul(kinds, tf.get_variable("kinds", [config.type_vocab_size, width])),
                             [batch_size, length, width])
        hidden += tf.get_variable("positions", [config.max_position_embeddings, width])[:length]
        hidden = tf.reshape(dropout(normalize(hidden, "LayerNorm")), [batch_size * length, width])
        for index in range(config.num_hidden_layers):
            with tf.variable_scope(f"layer_{index}"):
                context = normalize(dropout(dense(attend(hidden), width, "output")) + hidden, "attention_LayerNorm")
                inner = dense(context, config.intermediate_size, "inner", gelu)
                hidden = normalize(dropout(dense(inner, width, "outer")) + context, "LayerNorm")
        if task == "squad":
            outputs = hidden
        else:
            outputs = dropout(dense(tf.reshape(hidden, [batch_size, length, width])[:, 0], width, "pooler", tf.tanh))
        return _published_update(_loss(outputs, batch_size, task))


def _published_update(loss):
    """Clipping, Adam with weight decay, all elementwise."""
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(5e-5, step, 100, 0.0)
    updates = [step.assign(step + 1)]
    for gradient, variable in zip(gradients, variables):
        m, v = (tf.get_variable(f"{variable.op.name}/{name}", variable.shape.as_list(), trainable=False) for name in "mv")
        gradient = tf.convert_to_tensor(gradient)  # densified, as there
        next_m = 0.9 * m + 0.1 * gradient
        next_v = 0.999 * v + 0.001 * tf.square(gradient)
        update = next_m / (tf.sqrt(next_v) + 1e-6)
        if "LayerNorm" not in variable.name and "bias" not in variable.name:
            update += 0.01 * variable
        updates += [variable.assign(variable - rate * update), m.assign(next_m), v.assign(next_v)]
    return tf.group(*updates)


# --- The chart -------------------------------------------------------------------------------------------


def text_chart(rows):
    """Returns the rows, (label, value), as a bar chart in text."""
    widest = max([len(label) for label, _ in rows])
    largest = max([value for _, value in rows] + [1])
    return "\n".join(f"{label:>{widest}} {'█' * round(_BAR * value / largest)} {value}" for label, value in rows)


def svg_chart(title, rows):
    """Returns the rows, (label, value), as a bar chart in SVG."""
    largest = max([value for _, value in rows] + [1])
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {0}" width="720" height="{0}" font-family="sans-serif" '
             'font-size="13">'.format(50 + 24 * len(rows)), '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="10" y="24">{xml.sax.saxutils.escape(title)}</text>']
    for index, (label, value) in enumerate(rows):
        y, bar = 40 + 24 * index, round(480 * value / largest, 1)
        parts += [f'<text x="150" y="{y + 13}" text-anchor="end">{xml.sax.saxutils.escape(label)}</text>',
                  f'<rect x="160" y="{y}" width="{bar}" height="17" fill="#4878a8"/>',
                  f'<text x="{166 + bar}" y="{y + 13}">{value}</text>']
    return "\n".join([*parts, "</svg>", ""])


# --- The script ------------------------------------------------------------------------------------------


def load_config(settings, lengths):
    """Returns the `modeling.BertConfig` that the flags name; checks the lengths against it."""
    if settings.bert_config_file:
        if settings.given("model"):
            raise ValueError("--model and --bert_config_file are both given. Leave one out.")
        settings.max_seq_length = max(lengths)  # what `checks.load_config` goes by
        return checks.load_config(settings)
    config = modeling.BertConfig(**MODELS[settings.model])
    if max(lengths) > config.max_position_embeddings:
        raise ValueError(f"--max_seq_length={max(lengths)}: the published models have {config.max_position_embeddings} "
                         "positions.")
    return config


def parse_lengths(settings):
    """Returns --max_seq_length as a list of ints."""
    try:
        lengths = [int(text) for text in settings.max_seq_length]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 3:
        raise ValueError(f"--max_seq_length={','.join(settings.max_seq_length)}: it takes whole numbers of at least 3, with "
                         "commas between them.")
    return lengths


def check_flags(settings):
    """Checks what one flag means for another.

    Raises:
      ValueError: they do not go together, or a file could not be written.
    """
    if settings.published:
        for name in ("recompute", "optimizer"):
            if getattr(settings, name) != flags.FLAGS[name].default:
                raise ValueError(f"--published goes with --{name}={flags.FLAGS[name].default} only: the published code has "
                                 f"nothing else. Leave --{name} out.")
    if settings.reserve_gb >= settings.gpu_memory_gb:
        raise ValueError(f"--reserve_gb={settings.reserve_gb} leaves nothing of --gpu_memory_gb={settings.gpu_memory_gb}.")
    if settings.output_file:
        if not settings.output_file.endswith(".svg"):
            raise ValueError(f"--output_file={settings.output_file}: the chart is SVG; let the name end in .svg.")
        if not tf.gfile.IsDirectory(os.path.dirname(settings.output_file) or "."):
            raise ValueError(f"--output_file={settings.output_file}: there is no such directory.")


def describe(settings):
    """Returns what is planned for, in one line."""
    code = "google-research/bert's graph" if settings.published else f"optimizer {settings.optimizer}"
    model = settings.bert_config_file or "BERT-" + settings.model.title()
    return f"{model}, {settings.task}, {settings.precision}, {code}, dropout on"


def builder(settings, config, length, mode):
    """Returns the function of the batch size that builds a step, and returns its op."""
    if settings.published:
        return lambda size: published_step(config, size, length, settings.task)
    return lambda size: training_step(config, size, length, settings.task, recompute=mode, optimizer=settings.optimizer)


def main(_):
    """Prints the table and the chart."""
    settings = Settings()
    lengths = parse_lengths(settings)
    check_flags(settings)
    config = load_config(settings, lengths)
    modes = modeling.RECOMPUTE if settings.recompute == "all" else [settings.recompute]
    usable = (settings.gpu_memory_gb - settings.reserve_gb) * memory_planner.GB
    print(describe(settings))
    print(f"Card of {settings.gpu_memory_gb:g} GB (GB = 10⁹ bytes), {settings.reserve_gb:g} GB of it assumed for the CUDA "
          f"context, libraries, workspaces and fragmentation: {usable / memory_planner.GB:g} GB usable\n")
    print(f"{'length':>6} {'recompute':>9} {'micro-batch':>11}   memory", flush=True)
    rows = []
    for length in lengths:
        for mode in modes:
            found = memory_planner.largest_batch(
                functools.partial(memory_planner.predict, builder(settings, config, length, mode)), usable)
            memory = [str(found.prediction)] if found.prediction else []
            if found.next:
                memory.append(f"{found.batch_size + 1} would need {found.next.total / memory_planner.GB:.2f} GB")
            print(f"{length:6} {mode:>9} {found.batch_size:11}   {'; '.join(memory)}", flush=True)
            rows.append((f"{length} {mode}", found.batch_size))
    print(f"\n{text_chart(rows)}\n\n{time.process_time():.0f} CPU seconds")
    if settings.output_file:
        title = f"Largest micro-batch on {settings.gpu_memory_gb:g} GB: {describe(settings)}"
        files.write_text(settings.output_file, svg_chart(title, rows))
