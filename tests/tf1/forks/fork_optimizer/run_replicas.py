"""Trains small models with a fork's own optimizers, with any number of replicas.

The last line that it prints contains its results as JSON.
"""

import json
import os
import signal

import numpy as np
import tensorflow as tf

import optimization

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "Where everything goes.")
flags.DEFINE_integer("batch_size", 8, "Examples of a batch of the input_fn.")
flags.DEFINE_integer("num_gpus", 0, "Devices of a strategy; 0 for none.")
flags.DEFINE_bool("horovod", False, "Whether to use Horovod.")
flags.DEFINE_string("fault", None, "Train one model only; what the last replica does in its third step.")

hvd = None
WORDS, STEPS = 11, 4


def input_fn(params=None):
    chance = np.random.RandomState(3)
    ids = chance.randint(WORDS, size=[48, 5])
    dataset = tf.data.Dataset.from_tensor_slices(({"ids": ids}, (ids.sum(axis=1) % 2).astype(np.float32)))
    # Only with drop_remainder, the graph knows the size of a batch.
    dataset = dataset.batch(FLAGS.batch_size, drop_remainder=params == {"kind": "clipped"})
    return dataset.repeat() if hvd is None else dataset.shard(hvd.size(), hvd.rank()).repeat()


def train_op_of(kind, loss):
    step, variables = tf.train.get_or_create_global_step(), tf.trainable_variables()
    if kind == "own":
        return optimization.create_train_op(loss, 0.01, 100, 0, use_tpu=False)
    if kind == "none":
        return tf.group(variables[0].assign_add(tf.ones_like(variables[0])), step.assign_add(1))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    if kind == "afterwards":
        return accumulating_train_op(optimizer, loss, step, variables)
    if hvd is not None:
        optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=True,
                                             compression=hvd.Compression.none)
    pairs = optimizer.compute_gradients(loss, variables)
    if kind == "clipped":
        clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.1)
        pairs = zip(clipped, variables)
    return optimizer.apply_gradients(pairs, step)


def accumulating_train_op(optimizer, loss, step, variables):
    """Adds the gradients of two batches, and then the sums of all processes.

    The sums over the processes are inside of a condition. They are sums of floats, and of the number that
    shows whether all gradients are finite.
    """
    def own(name, shape, dtype=tf.float32):
        return tf.get_variable(name, shape, dtype, tf.zeros_initializer(), trainable=False)

    count = own("local_step", [], tf.int32).assign_add(1)
    sums = [own(f"{variable.op.name}/accum", variable.shape.as_list()) for variable in variables]
    gradients = [tf.convert_to_tensor(gradient)
                 for gradient, _ in optimizer.compute_gradients(loss / 2.0, variables)]
    is_finite = tf.reduce_all([tf.reduce_all(tf.is_finite(gradient)) for gradient in gradients])
    is_last = tf.equal(count % 2, 0)
    added = [total.assign(tf.where(is_last, total, tf.zeros_like(total)) + gradient)
             for total, gradient in zip(sums, gradients)]

    def update():
        means = [hvd.allreduce(total, compression=Compression.none) for total in added]
        return optimizer.apply_gradients(zip(means, variables))

    updated = tf.cond(is_last, update, tf.no_op)
    all_finite = tf.cast(hvd.allreduce(tf.cast(is_finite, tf.int32)), tf.bool)
    new_step = tf.cond(tf.logical_and(is_last, all_finite), lambda: step + 1, lambda: step)
    return tf.group(updated, [step.assign(new_step)])


class Fault(tf.train.SessionRunHook):
    """A fault that happens only once: a file in the output directory records that it has happened."""

    def after_run(self, run_context, run_values):
        done = os.path.join(FLAGS.output_dir, "fault")
        if run_context.session.run("global_step:0") == 3 and not os.path.exists(done):
            open(done, "x").close()
            exec(FLAGS.fault, {"os": os, "signal": signal})


def model_fn(features, labels, mode, params, config):
    # Each replica starts with different weights. The replicas must take over the weights of replica 0.
    shift = float(config.task_id)
    table = tf.get_variable("table", [WORDS, 3], initializer=tf.random_normal_initializer(seed=1))
    weights = tf.get_variable("weights", initializer=np.full([3], 0.5 + shift, np.float32))
    logits = tf.einsum("blw,w->b", tf.nn.embedding_lookup(table, features["ids"]), weights)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"logits": logits})
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": tf.metrics.mean(logits)})
    fails = FLAGS.fault and config.task_id == config.num_worker_replicas - 1
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op_of(params["kind"], loss),
                                      training_hooks=[Fault()] if fails else [])


def estimator_of(kind):
    strategy = None
    if FLAGS.num_gpus:
        strategy = tf.contrib.distribute.MirroredStrategy(num_gpus=FLAGS.num_gpus)
        assert strategy.num_replicas_in_sync == FLAGS.num_gpus == tf.distribute.MirroredStrategy(
            [f"/gpu:{index}" for index in range(FLAGS.num_gpus)]).num_replicas_in_sync
    is_first = hvd is None or hvd.rank() == 0
    return tf.estimator.Estimator(
        model_fn, os.path.join(FLAGS.output_dir, kind) if is_first else None, params={"kind": kind},
        config=tf.estimator.RunConfig(save_checkpoints_steps=2, save_summary_steps=1,
                                      train_distribute=strategy))


def weights_of(estimator):
    return {name: estimator.get_variable_value(name).tolist() for name in ("table", "weights", "global_step")}


def evaluated(estimator):
    found = estimator.evaluate(lambda: input_fn().take(3))
    return {name: float(value) for name, value in sorted(found.items())}


def serving_input_receiver_fn():
    ids = tf.placeholder(tf.int64, [None, 5])
    return tf.estimator.export.ServingInputReceiver({"ids": ids}, {"ids": ids})


def write_and_read():
    """Writes files, reads them at once, and returns the contents."""
    me = str(tf.estimator.RunConfig().task_id)
    folder = os.path.join(FLAGS.output_dir, "files")
    tf.gfile.MakeDirs(folder)
    text, records, moved = (os.path.join(folder, name) for name in ("text", "records", "moved"))
    with tf.gfile.GFile(text, "w") as writer:
        writer.write(me)
    with tf.python_io.TFRecordWriter(records) as writer:
        writer.write(me.encode())
    copied = os.path.join(FLAGS.output_dir, "copied")  # outside of the folder, which another replica lists
    tf.gfile.Copy(text, copied)
    tf.gfile.Rename(copied, moved)
    with tf.gfile.GFile(moved) as reader:
        return [reader.read(), next(tf.python_io.tf_record_iterator(records)).decode(), tf.gfile.Exists(text),
                sorted(tf.gfile.ListDirectory(folder))]


def run():
    found = {"files": write_and_read()}
    for kind in ("own", "clipped"):
        estimator = estimator_of(kind)
        if kind == "own":
            estimator.train(input_fn, max_steps=STEPS - 1)
        estimator.train(input_fn, max_steps=STEPS)  # continues from the checkpoint, and in the input
        found[kind] = weights_of(estimator)
    found["evaluated"] = evaluated(estimator)
    found["predicted"] = [float(one["logits"]) for one in estimator.predict(lambda: input_fn().take(2))]
    found["exported"] = estimator.export_saved_model(os.path.join(FLAGS.output_dir, "export"),
                                                     serving_input_receiver_fn).decode()
    metrics, _ = tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=STEPS + 1),
        tf.estimator.EvalSpec(input_fn, steps=2))
    found["train_and_evaluate"] = float(metrics["loss"])
    try:
        estimator_of("none").train(input_fn, max_steps=STEPS)
    except ValueError as error:
        found["none"] = str(error)
    return found


class Weights(tf.train.SessionRunHook):
    """Stores the weights at the end of a training, because only one process saves them in a checkpoint."""

    def end(self, session):
        self.found = {name: session.run(f"{name}:0").tolist() for name in ("table", "weights", "global_step")}


def run_horovod():
    found = {"rank": [hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size()]}
    for kind in ("sgd", "afterwards"):
        estimator, weights = estimator_of(kind), Weights()
        estimator.train(input_fn, hooks=[hvd.BroadcastGlobalVariablesHook(0), weights], max_steps=STEPS)
        found[kind] = weights.found
    found["evaluated"] = evaluated(estimator) if hvd.rank() == 0 else None
    return found


def main(_):
    if FLAGS.fault:
        found = weights_of(estimator_of("own").train(input_fn, max_steps=STEPS))
    else:
        found = run_horovod() if hvd else run()
    print(json.dumps(found))


if __name__ == "__main__":
    import sys
    if "--horovod" in sys.argv:
        import horovod.tensorflow as hvd
        from horovod.tensorflow.compression import Compression
        hvd.init()
    tf.app.run()
