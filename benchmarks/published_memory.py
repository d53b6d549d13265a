"""Finds, by simulation, the largest batch with which google-research/bert's graph fits on a card.

    python benchmarks/published_memory.py --model=base --max_seq_length=64,128,256,320,384,512

The command takes 5 CPU minutes. The script builds a graph from TensorFlow's own ops. This graph has the same
operations as google-research/bert's graph. This project plans its own batches with the same simulation.

For each length, the script prints the largest batch of google-research/bert's graph, and the largest batch of
this project with each kind of recomputation. The README of google-research/bert contains values that were
measured on a Titan X. For the six lengths of the command above, these values are 64, 32, 16, 14, 12 and 6 for
BERT-Base, and 12, 6, 2, 1, 0 and 0 for BERT-Large.
"""

import argparse
import functools
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bertlib.commands import plan_memory

import results
import tensorflow.compat.v1 as tf

from bertlib.estimator import memory_planner
from bertlib.estimator.step_config import GB, StepConfig
from bertlib.system import gpu_cards
import modeling


def _inputs(batch_size, length):
    """Returns the placeholders for input_ids, input_mask and segment_ids, each [B, F]."""
    return [tf.placeholder(tf.int32, [batch_size, length]) for _ in range(3)]


def _loss(outputs, batch_size, task):
    """Adds a linear layer with two outputs to the encoder, and returns the loss of the model. `outputs` is
    the output of the encoder. Its shape is [B, W]; if the task is "squad", the shape is [B·F, W]."""
    weights = tf.get_variable("output_weights", [2, outputs.shape.as_list()[-1]])
    logits = tf.nn.bias_add(tf.matmul(outputs, weights, transpose_b=True),
                            tf.get_variable("output_bias", [2]))
    # SQuAD predicts a start and an end. For both, each position of the sequence is a class.
    if task == "squad":
        logits = tf.reshape(tf.transpose(tf.reshape(logits, [batch_size, -1, 2]), [2, 0, 1]),
                            [2 * batch_size, -1])
    size, classes = logits.shape.as_list()
    labels = tf.one_hot(tf.placeholder(tf.int32, [size]), classes)
    return -tf.reduce_mean(tf.reduce_sum(labels * tf.nn.log_softmax(logits), axis=-1))


def published_step(config, batch_size, length, task):
    """Builds a training step that needs the same memory as the published step, and returns its op.

    As in the published step, the variables are reference variables, dropout is a stateful op, each layer
    consists of separate ops, and Adam consists of elementwise ops.

    Args:
      config: a `modeling.BertConfig`.
      batch_size: B.
      length: F.
      task: "classifier" for two classes, or "squad".
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
            tf.transpose(tf.reshape(dense(inputs, width, name), [batch_size, length, heads, width // heads]),
                         [0, 2, 1, 3])
            for name in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) * (heads / width) ** 0.5 + masked
        context = tf.matmul(dropout(tf.nn.softmax(scores)), value)
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [batch_size * length, width])

    with tf.variable_scope("", use_resource=False):
        input_ids, input_mask, segment_ids = _inputs(batch_size, length)
        masked = (1.0 - tf.cast(tf.ones([batch_size, 1, length, 1], tf.int32) * input_mask[:, None, None],
                                tf.float32)) * -1e4
        hidden = tf.gather(tf.get_variable("words", [config.vocab_size, width]), input_ids)
        kinds = tf.one_hot(tf.reshape(segment_ids, [-1]), config.type_vocab_size)
        hidden += tf.reshape(tf.matmul(kinds, tf.get_variable("kinds", [config.type_vocab_size, width])),
                             [batch_size, length, width])
        hidden += tf.get_variable("positions", [config.max_position_embeddings, width])[:length]
        hidden = tf.reshape(dropout(normalize(hidden, "LayerNorm")), [batch_size * length, width])
        for index in range(config.num_hidden_layers):
            with tf.variable_scope(f"layer_{index}"):
                context = normalize(dropout(dense(attend(hidden), width, "output")) + hidden,
                                    "attention_LayerNorm")
                inner = dense(context, config.intermediate_size, "inner", gelu)
                hidden = normalize(dropout(dense(inner, width, "outer")) + context, "LayerNorm")
        if task == "squad":
            outputs = hidden
        else:
            outputs = dropout(dense(tf.reshape(hidden, [batch_size, length, width])[:, 0], width, "pooler",
                                    tf.tanh))
        return _published_update(_loss(outputs, batch_size, task))


def _published_update(loss):
    """Returns an op that clips the gradients and updates the variables: Adam with weight decay.

    The optimizer is built from elementwise ops, not from one fused op for each variable.
    """
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(5e-5, step, 100, 0.0)
    updates = [step.assign(step + 1)]
    for gradient, variable in zip(gradients, variables):
        m, v = (tf.get_variable(f"{variable.op.name}/{name}", variable.shape.as_list(), trainable=False)
                for name in "mv")
        gradient = tf.convert_to_tensor(gradient)  # a dense tensor, as in the published code
        next_m = 0.9 * m + 0.1 * gradient
        next_v = 0.999 * v + 0.001 * tf.square(gradient)
        update = next_m / (tf.sqrt(next_v) + 1e-6)
        if "LayerNorm" not in variable.name and "bias" not in variable.name:
            update += 0.01 * variable
        updates += [variable.assign(variable - rate * update), m.assign(next_m), v.assign(next_v)]
    return tf.group(*updates)


def simulations(config, length, task):
    """Returns a dict. Each key is the name of a program: the published code, or this project with one of the
    values of --recompute. The value is a function that takes the batch size and simulates a training step.
    """
    model = plan_memory.task_model(config, task)

    def ours(mode, size):
        return model.memory_need(StepConfig(max_seq_length=length, recompute=mode, train_batch_size=size))

    return {"published code": functools.partial(
                memory_planner.predict_memory, lambda size: published_step(config, size, length, task)),
            **{f"this project, --recompute={mode}": functools.partial(ours, mode)
               for mode in modeling.RECOMPUTE}}


def main():
    """Prints the largest batch size and its memory, in one line for each sequence length and program."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base", choices=sorted(plan_memory.MODELS))
    parser.add_argument("--max_seq_length", default="128,384,512")
    parser.add_argument("--task", default="classifier", choices=["classifier", "squad"])
    parser.add_argument("--card", default="titan-x", choices=gpu_cards.CARDS)
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {"memory": "GB"})
    usable = gpu_cards.CARDS[arguments.card].usable_mib * gpu_cards.MIB / memory_planner.ALLOCATOR_MARGIN
    config = modeling.BertConfig(**plan_memory.MODELS[arguments.model])
    for length in map(int, arguments.max_seq_length.split(",")):
        for program, simulate in simulations(config, length, arguments.task).items():
            found = memory_planner.largest_batch(simulate, usable)
            print(f"{length:6} {program:36} {found.batch_size:6}   {found.need or ''}", flush=True)
            recorder.add(model=arguments.model, card=arguments.card, length=length,
                         program=program, largest_batch=found.batch_size,
                         memory=found.need.total / GB if found.need else 0.0)
    recorder.write()


if __name__ == "__main__":
    tf.disable_v2_behavior()
    main()
