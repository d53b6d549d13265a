"""A fork's own optimizer in the published form: elementwise updates, and slots as variables of the graph."""

import re

import tensorflow as tf


def create_train_op(loss, peak_rate, num_train_steps, num_warmup_steps, use_tpu):
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(tf.constant(peak_rate, tf.float32), global_step, num_train_steps,
                                     end_learning_rate=0.0, power=1.0, cycle=False)
    if num_warmup_steps:
        done = tf.to_float(global_step) / float(num_warmup_steps)
        rate = tf.where(done < 1.0, peak_rate * done, rate)
    tf.summary.scalar("learning_rate", rate)

    optimizer = AdamWeightDecayOptimizer(rate)
    if use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    tvars = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
    train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
    # The optimizer does not count steps.
    new_global_step = global_step + 1
    return tf.group(train_op, [global_step.assign(new_global_step)])


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam without bias correction; the decay is not part of the gradient."""

    def __init__(self, learning_rate):
        super().__init__(False, "AdamWeightDecayOptimizer")
        self.learning_rate = learning_rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None:
                continue
            param_name = re.match("^(.*?)(:\\d+)?$", param.name).group(1)
            m, v = (tf.get_variable(f"{param_name}/{slot}", shape=param.shape.as_list(), dtype=tf.float32,
                                    trainable=False, initializer=tf.zeros_initializer())
                    for slot in ("adam_m", "adam_v"))
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + 1e-6)
            if not re.search("LayerNorm|layer_norm|bias", param_name):
                update += 0.01 * param
            next_param = param - self.learning_rate * update
            assignments.extend([param.assign(next_param), m.assign(next_m), v.assign(next_v)])
        return tf.group(*assignments, name=name)
